/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests the prologue of runs whose number is counted in GPU memory: two ranks on one GPU, whose
 * counters are plain words.
 */

#include "gpu_rig.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "kernels/begin.h"

#define RUNS     200u
#define SHORT_NS (5 * TESTING_MS)

static struct gpu gpu;
static uint64_t *words;         /* RANK_WORDS words for each rank, in the GPU's memory */

/* Layout of each rank's words. */
enum { EPOCH, LAST_USE, DONE = LAST_USE + 2, RANK_WORDS = DONE + 2 };

static void set_up(void)
{
	const uint64_t zeros[2 * RANK_WORDS] = { 0 };

	gpu_open(&gpu, 0);
	words = gpu_allocate(&gpu, sizeof(zeros));
	gpu_move(&gpu, words, zeros, sizeof(zeros));
}

static void tear_down(void)
{
	gpu_free(&gpu, words);
	gpu_close(&gpu);
}

static uint64_t *words_of(uint32_t rank)
{
	return words + rank * RANK_WORDS;
}

static void begin_run(uint32_t rank, uint32_t half, uint64_t timeout_ns)
{
	struct cei_op_begin begin;
	void *arguments[] = { &begin };
	const struct cei_module_launch made = {
		.name = "cei_op_begin",
		.n_blocks = 1,
		.n_threads = CEI_BEGIN_THREADS,
		.arguments = arguments,
	};

	memset(&begin, 0, sizeof(begin));
	begin.epoch = words_of(rank) + EPOCH;
	begin.last_use = words_of(rank) + LAST_USE;
	begin.half = half;
	begin.n_ranks = 2;
	begin.own = rank;
	begin.peer_done[1 - rank] = words_of(1 - rank) + DONE + rank;
	begin.done.counters = words_of(rank) + DONE;
	begin.timeout_ns = timeout_ns;
	begin.status = &gpu.results[rank].status;
	gpu_launch_as(&gpu, rank ? GPU_PRODUCE : GPU_CONSUME, &made);
}

static void check_rank(uint32_t rank, const uint64_t *wanted)
{
	uint64_t seen[RANK_WORDS];
	uint32_t i;

	gpu_move(&gpu, seen, words_of(rank), sizeof(seen));
	for (i = 0; i < RANK_WORDS; i++)
		ck_assert_msg(seen[i] == wanted[i], "rank %u, word %u: %llu, not %llu", rank,
			      i, (unsigned long long)seen[i],
			      (unsigned long long)wanted[i]);
}

START_TEST(test_a_run_begins_when_peers_begin_it)
{
	/* words of each rank: epoch, last use of either scratch slot, runs done by rank 0 and by
	 * rank 1 */
	const uint64_t rank_0[] = { 2, 1, 2, 0, 1 }, rank_1[] = { 2, 1, 2, 1, 0 };
	const uint64_t late[] = { CEOV_VALUE_LIMIT, 3, 2, 0, 1 };
	const struct timespec pause = { 0, 20 * (long)TESTING_MS };
	uint64_t epoch = 0;

	begin_run(0, 0, GPU_AWAIT_NS);
	gpu_idle(&gpu, GPU_CONSUME);            /* before the first run there is nothing to wait
						 * for */
	begin_run(0, 1, GPU_AWAIT_NS);          /* waits for rank 1, which has begun no run */
	begin_run(1, 0, GPU_AWAIT_NS);
	gpu_idle(&gpu, GPU_PRODUCE);
	nanosleep(&pause, NULL);
	ck_assert_int_eq(gpu_is_idle(&gpu, GPU_CONSUME), 0);    /* rank 1 may be in run 1 still */
	begin_run(1, 1, GPU_AWAIT_NS);
	gpu_idle(&gpu, GPU_PRODUCE);
	gpu_idle(&gpu, GPU_CONSUME);
	check_rank(0, rank_0);
	check_rank(1, rank_1);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
	begin_run(0, 0, SHORT_NS);              /* times out, because rank 1 does not begin its run
						 * 3 */
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	ck_assert_uint_eq(gpu_result(&gpu, 1).status, GPU_REACHED);
	check_rank(0, late);
	begin_run(0, 0, GPU_AWAIT_NS);          /* the epoch is poisoned: the run waits for nothing
						 * and passes the poison on */
	gpu_idle(&gpu, GPU_CONSUME);
	begin_run(1, 0, GPU_AWAIT_NS);
	gpu_idle(&gpu, GPU_PRODUCE);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	ck_assert_uint_eq(gpu_result(&gpu, 1).status, GPU_ABORTED);
	gpu_move(&gpu, &epoch, words_of(1) + EPOCH, sizeof(epoch));
	ck_assert_uint_eq(epoch, CEOV_VALUE_LIMIT);
}
END_TEST

/* Both ranks begin many runs: with both scratch slots alternately, or with only one as in a
 * replayed graph. */
START_TEST(test_ranks_begin_many_runs_without_waiting_in_a_circle)
{
	const uint64_t both[] = { RUNS, RUNS - 1, RUNS }, one[] = { RUNS, RUNS, 0 };
	uint64_t wanted[RANK_WORDS] = { 0 };
	uint32_t rank, i;

	for (i = 0; i < RUNS; i++) {
		begin_run(0, _i ? 0 : i % 2, GPU_AWAIT_NS);
		begin_run(1, _i ? 0 : i % 2, GPU_AWAIT_NS);
	}
	gpu_idle(&gpu, GPU_PRODUCE);
	gpu_idle(&gpu, GPU_CONSUME);
	for (rank = 0; rank < 2; rank++) {
		ck_assert_uint_eq(gpu_result(&gpu, rank).status, GPU_REACHED);
		memcpy(wanted, _i ? one : both, sizeof(both));
		wanted[DONE + rank] = 0;
		wanted[DONE + 1 - rank] = RUNS - 1;
		check_rank(rank, wanted);
	}
}
END_TEST

/* Awaits rank 0's first done counter, which no test raises. */
static void await_done(uint64_t *epoch, uint64_t timeout_ns)
{
	struct cei_op_await await;
	void *arguments[] = { &await };
	const struct cei_module_launch made = {
		.name = "cei_op_await",
		.n_blocks = 1,
		.n_threads = 1,
		.arguments = arguments,
	};

	memset(&await, 0, sizeof(await));
	await.signal.counters = words_of(0) + DONE;
	await.n = 2;
	await.epoch = epoch;
	await.value = 1;
	await.timeout_ns = timeout_ns;
	await.status = &gpu.results[0].status;
	await.failed = &gpu.results[1].status;
	gpu_launch_as(&gpu, GPU_CONSUME, &made);
}

/* The first wait fails at its deadline; the waits behind it have long deadlines but end at once.
 * With an epoch in memory they find its poison, without one the word that counts failures. */
START_TEST(test_behind_a_failed_wait_nobody_waits)
{
	uint64_t *epoch = _i ? words_of(0) + EPOCH : NULL;
	uint64_t begin_ns = cei_now_ns(), seen = 0;
	uint32_t i;

	await_done(epoch, SHORT_NS);
	for (i = 0; i < 20; i++)
		await_done(epoch, GPU_AWAIT_NS);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_ge(cei_now_ns() - begin_ns, SHORT_NS);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, GPU_AWAIT_NS / 10);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	gpu_move(&gpu, &seen, words_of(0) + EPOCH, sizeof(seen));
	ck_assert_uint_eq(seen, _i ? CEOV_VALUE_LIMIT : 0);
}
END_TEST

/* What raise_behind() is tried in. */
enum raise_case { RAISE_GOOD, RAISE_FAILED, RAISE_FAILED_CAPTURED, RAISE_CASES };

/* Raises two counters of rank 0 to 9 behind a wait that is good or not. Arrivals are counted in
 * words of rank 1. */
static void raise_behind(enum raise_case which)
{
	struct cei_op_raise raise;
	void *arguments[] = { &raise };
	const struct cei_module_launch made = {
		.name = "cei_op_raise",
		.n_blocks = 1,
		.n_threads = 1,
		.arguments = arguments,
	};

	memset(&raise, 0, sizeof(raise));
	raise.signal.counters = words_of(0);
	raise.signal.arrivals = (uint32_t *)words_of(1);
	raise.index = LAST_USE;
	raise.n = 2;
	raise.value = 9;
	raise.epoch = which == RAISE_FAILED_CAPTURED ? words_of(0) + EPOCH : NULL;
	raise.failed = &gpu.results[1].status;
	if (which != RAISE_GOOD)
		await_done(NULL, SHORT_NS);
	gpu_launch_as(&gpu, GPU_CONSUME, &made);
	gpu_idle(&gpu, GPU_CONSUME);
}

START_TEST(test_marks_behind_a_failed_wait)
{
	const uint64_t raised[RANK_WORDS] = { 0, 9, 9 }, left[RANK_WORDS] = { 0 };

	raise_behind((enum raise_case)_i);
	check_rank(0, _i == RAISE_FAILED ? left : raised);
	check_rank(1, left);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu begin");
	TCase *all = tcase_create("begin");

	(void)n_gpus;
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_run_begins_when_peers_begin_it);
	tcase_add_loop_test(all, test_ranks_begin_many_runs_without_waiting_in_a_circle, 0,
			    2);
	tcase_add_loop_test(all, test_behind_a_failed_wait_nobody_waits, 0, 2);
	tcase_add_loop_test(all, test_marks_behind_a_failed_wait, 0, RAISE_CASES);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
