/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How channels between ranks on GPUs end: calls that differ, a rank that does not call, aborts, a
 * context that closes, runs that nobody has ordered. Each time kernels end and streams go on, and
 * another channel works. */

#include "gpu_channel_rig.h"
#include "gpu_graph.h"
#include "gpu_process.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ops/channel/call.h"

#define DEADLINE_NS TESTING_SECOND      /* of channels */
#define END_NS      (2 * TESTING_SECOND)        /* so soon after a deadline or an abort of a peer
						 * streams are idle, on a busy machine */
#define ABORT_NS    TESTING_SECOND      /* and at the rank that aborts */
#define WAIT_US     50000               /* until a thread aborts */
#define LATE_US     200000
#define ROUNDS      3u                  /* of calls that differ in each way */
#define UNIT        UINT64_C(16384)
#define QUEUED      3u                  /* runs on each of two streams when a context closes */

static struct gpu_op_rig rig;
static struct testing_log lines;        /* the log of the rig */
static uint32_t n_all;                  /* number of ranks */

/* --- calls that differ ----------------------------------------------------------------------- */

/* How failures call it. */
static void text_of(const struct channel_case *one, char text[CEI_CALL_TEXT_BYTES])
{
	int is_barrier = one->kind == CEOV_BARRIER;

	cei_call_text((uint64_t)one->kind | (is_barrier ? 0 : (uint64_t)one->dtype << 8) |
		      (uint64_t)one->reduction << 16 | (uint64_t)one->root << 24, text);
}

static struct channel_case changed(const struct channel_case *one, uint32_t way)
{
	struct channel_case other = *one;

	channel_case_change(&other, 1, way);
	if (channel_case_is_sum(&other) && !gpu_channel_can_sum(other.dtype))
		other.dtype = one->dtype == CEOV_FP32 ? CEOV_BF16 : CEOV_FP32;
	return other;
}

/* Asserts that failures of two ranks name both calls. A process has those of its own rank alone:
 * there rank 1, from which all differ, looks. */
static void expect_names(struct gpu_op_rank *rank, const struct channel_case *one,
			 const struct channel_case *other)
{
	char text[CEI_CALL_TEXT_BYTES], other_text[CEI_CALL_TEXT_BYTES];
	struct ceov_failure failure;
	uint32_t n;

	text_of(one, text);
	text_of(other, other_text);
	if (rank->rig->n_here == 1 && rank->rank == 1) {
		failure = testing_failure(rank->context);
		ck_assert_msg(strstr(failure.text, text) && strstr(failure.text, other_text) &&
			      strstr(failure.text, ", but rank "), "'%s' and '%s' are not in: %s",
			      text, other_text, failure.text);
	} else if (rank->rig->n_here > 1 && rank->rank == 0) {
		n = gpu_channel_lines(&lines, text, other_text);
		ck_assert_msg(n >= 2, "%u lines name '%s' and '%s'", n, text, other_text);
	}
}

/* Rank 1 makes another call than the others. */
static void differ(struct gpu_op_rank *rank, const void *arg)
{
	uint32_t number = *(const uint32_t *)arg, way = number % CHANNEL_CHANGES;
	struct channel_case one = gpu_channel_case(number, rank->rig->n_ranks, UNIT);
	struct channel_case other = changed(&one, way);
	const struct channel_case *own = rank->rank == 1 ? &other : &one;
	struct gpu_channel_mode mode = { NULL, GPU_CHANNEL_RING, DEADLINE_NS };
	struct ceov_failure old;
	ceov_channel *channel;
	uint64_t begin_ns, took_ns;
	char name[40];

	snprintf(name, sizeof(name), "differ %u", number);
	mode.name = name;
	rank->used_bytes = 0;
	(void)ceov_last_failure(rank->context, &old);
	channel = gpu_channel_made(rank, &mode);
	gpu_channel_works(rank, channel);
	gpu_op_meet(rank);
	begin_ns = cei_now_ns();
	gpu_channel_run_in_vain(rank, channel, own, CEOV_ERR_INVALID);
	gpu_channel_expect_end(rank, channel, own, CEOV_ERR_INVALID);
	took_ns = cei_now_ns() - begin_ns;
	ck_assert_msg(took_ns < DEADLINE_NS + END_NS, "rank %u: known after %llu us only",
		      rank->rank, (unsigned long long)took_ns / 1000);
	gpu_op_meet(rank);
	expect_names(rank, &one, &other);
	gpu_channel_release(rank, channel);
}

/* Each time in another context, since a log says only some lines of a kind within a short time. */
START_TEST(test_calls_that_differ)
{
	const uint32_t number = (uint32_t)_i;

	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, differ, &number);
	gpu_channel_close(&rig);
}
END_TEST

static void be_process(uint32_t rank)
{
	uint32_t number;
	char path[200];

	testing_path("group", path, sizeof(path));
	gpu_op_open_one(&rig, rank, n_all, path);
	for (number = 0; number < CHANNEL_CHANGES; number++)
		gpu_op_each(&rig, differ, &number);
	gpu_op_close(&rig);
}

START_TEST(test_processes_whose_calls_differ)
{
	gpu_process_each(n_all, be_process);
}
END_TEST

/* --- a rank that does not call, and aborts --------------------------------------------------- */

enum who { NOBODY_ABORTS, ONE_WHO_WAITS_ABORTS, ONE_WHO_IS_AWAITED_ABORTS };

struct ending {
	struct gpu_channel_mode mode;
	enum who                who;
	int                     error;
	int                     by_graph;       /* the run that waits is a replay */
};

static const struct ending endings[] = {
	{ { "absent", GPU_CHANNEL_RING, DEADLINE_NS }, NOBODY_ABORTS, CEOV_ERR_TIMEOUT, 0 },
	{ { "absent, replayed", GPU_CHANNEL_RING, DEADLINE_NS }, NOBODY_ABORTS,
	  CEOV_ERR_TIMEOUT, 1 },
	{ { "abort", GPU_CHANNEL_RING, 0 }, ONE_WHO_WAITS_ABORTS, CEOV_ERR_ABORTED, 0 },
	{ { "abort, replayed", GPU_CHANNEL_RING, 0 }, ONE_WHO_WAITS_ABORTS, CEOV_ERR_ABORTED, 1 },
	{ { "abort by a peer", GPU_CHANNEL_RING, 0 }, ONE_WHO_IS_AWAITED_ABORTS,
	  CEOV_ERR_ABORTED, 0 },
};

#define ENDINGS (int)(sizeof(endings) / sizeof(endings[0]))

static uint64_t aborted_ns;             /* written before the abort, read behind a barrier */

static void *abort_soon(void *channel)
{
	usleep(WAIT_US);
	aborted_ns = cei_now_ns();
	ck_assert_int_eq(ceov_channel_abort(channel), 0);
	return NULL;
}

/* Which rank aborts; n_ranks: none. The last rank is the one that does not call. */
static uint32_t aborter_of(const struct ending *ending, uint32_t n_ranks)
{
	if (ending->who == NOBODY_ABORTS)
		return n_ranks;
	return ending->who == ONE_WHO_WAITS_ABORTS ? 0 : n_ranks - 1;
}

/* Captures a call. To be done while no kernel waits for another rank, as all that may allocate. */
static void capture(const struct gpu_channel_call *call, ceov_channel *channel,
		    struct gpu_graph *ret_graph)
{
	gpu_graph_begin(ret_graph, &call->rank->gpu, GPU_CONSUME);
	gpu_op_result_check(call->rank, gpu_channel_run(channel, call, GPU_CONSUME));
	gpu_graph_end(ret_graph);
}

/* Asserts that streams have become idle in time. */
static void expect_soon(const struct gpu_op_rank *rank, const struct ending *ending,
			uint64_t begin_ns, uint64_t idle_ns)
{
	int is_aborter = rank->rank == aborter_of(ending, rank->rig->n_ranks);
	uint64_t took_ns = idle_ns - (ending->who == NOBODY_ABORTS ? begin_ns : aborted_ns);
	uint64_t limit_ns = ending->who == NOBODY_ABORTS ? DEADLINE_NS + END_NS :
		is_aborter ? ABORT_NS : END_NS;

	ck_assert_msg(took_ns < limit_ns, "%s: rank %u: idle after %llu us only",
		      ending->mode.name, rank->rank, (unsigned long long)took_ns / 1000);
	if (ending->who == NOBODY_ABORTS && rank->rank == 0)
		ck_assert_uint_ge(took_ns, DEADLINE_NS / 2);
}

static struct channel_case awaited_case(const struct gpu_op_rank *rank)
{
	return channel_case_of(CEOV_ALL_REDUCE, CEOV_BF16, rank->rig->n_ranks, 100000);
}

/* A call that the last rank does not make. */
static void end_one(struct gpu_op_rank *rank, ceov_channel *channel, const struct ending *ending)
{
	uint32_t n_ranks = rank->rig->n_ranks;
	const struct channel_case one = awaited_case(rank);
	int calls = rank->rank + 1 < n_ranks, aborts = rank->rank == aborter_of(ending, n_ranks);
	const struct channel_form form = { 0 };
	struct gpu_channel_call call;
	struct gpu_graph graph;
	uint64_t begin_ns, idle_ns;
	pthread_t thread;

	gpu_channel_put(rank, &one, &form, &call);
	if (calls && ending->by_graph)
		capture(&call, channel, &graph);
	gpu_op_meet(rank);
	begin_ns = cei_now_ns();
	if (calls && ending->by_graph)
		gpu_graph_launch(&graph);
	else if (calls)
		gpu_op_result_check(rank, gpu_channel_run(channel, &call, GPU_CONSUME));
	gpu_op_meet(rank);
	if (aborts)
		ck_assert_int_eq(pthread_create(&thread, NULL, abort_soon, channel), 0);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	idle_ns = cei_now_ns();
	if (aborts)
		pthread_join(thread, NULL);
	gpu_op_meet(rank);
	if (calls)
		expect_soon(rank, ending, begin_ns, idle_ns);
	if (calls && ending->by_graph)
		gpu_graph_free(&graph);
	gpu_channel_drop(&call);
}

/* Which rank is missing is told by the one that has waited for it until the deadline. */
static void expect_blame(struct gpu_op_rank *rank, const struct ending *ending)
{
	char blamed[40];

	if (rank->rank || ending->who != NOBODY_ABORTS)
		return;
	snprintf(blamed, sizeof(blamed), ": rank %u has not ", rank->rig->n_ranks - 1);
	ck_assert_uint_ge(gpu_channel_lines(&lines, blamed, "all_reduce of bf16, sum"), 1);
}

/* A second channel works while the first one has ended, and a third one afterwards. */
static void end_each(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode next = { "next", GPU_CHANNEL_RING, 0 };
	const struct ending *ending = arg;
	ceov_channel *channel = gpu_channel_made(rank, &ending->mode), *other;
	const struct channel_case one = awaited_case(rank);
	uint32_t i;

	gpu_channel_works(rank, channel);
	end_one(rank, channel, ending);
	gpu_channel_expect_end(rank, channel, &one, ending->error);
	gpu_op_meet(rank);
	expect_blame(rank, ending);
	for (i = 0; i < 2; i++) {
		other = gpu_channel_made(rank, &next);
		gpu_channel_works(rank, other);
		gpu_channel_release(rank, other);
		if (!i)
			gpu_channel_release(rank, channel);
	}
}

START_TEST(test_a_rank_does_not_call_or_aborts)
{
	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, end_each, &endings[_i]);
	gpu_channel_close(&rig);
}
END_TEST

/* --- a context that closes ------------------------------------------------------------------- */

/* Queues runs on two streams that the last rank does not make. */
static void queue_in_vain(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "closed", GPU_CHANNEL_RING, 0 };
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	struct channel_case one = channel_case_of(CEOV_ALL_GATHER, CEOV_INT8,
						  rank->rig->n_ranks, UINT64_C(2) << 20);
	const struct channel_form form = { 0 };
	struct gpu_channel_call call;
	uint32_t i;

	(void)arg;
	gpu_channel_works(rank, channel);
	gpu_channel_put(rank, &one, &form, &call);
	gpu_op_meet(rank);
	for (i = 0; i < 2 * QUEUED && rank->rank + 1 < rank->rig->n_ranks; i++)
		gpu_op_result_check(rank, gpu_channel_run(channel, &call,
							  i % 2 ? GPU_PRODUCE : GPU_CONSUME));
	gpu_op_meet(rank);
	gpu_channel_drop(&call);
}

static void drain(struct gpu_op_rank *rank, const void *arg)
{
	(void)arg;
	gpu_idle(&rank->gpu, GPU_PRODUCE);
	gpu_idle(&rank->gpu, GPU_CONSUME);
}

START_TEST(test_close_with_queued_runs)
{
	uint64_t begin_ns;

	gpu_op_open(&rig, n_all);
	gpu_op_each(&rig, queue_in_vain, NULL);
	begin_ns = cei_now_ns();
	ceov_close(rig.context);
	rig.context = NULL;
	gpu_op_each(&rig, drain, NULL);
	ck_assert_uint_lt(cei_now_ns() - begin_ns, GPU_DEADLINE);
	gpu_op_close(&rig);
}
END_TEST

/* --- runs that nobody has ordered ------------------------------------------------------------ */

/* A replay on one stream and a call on another one. Rank 0 begins both long before its peers do, so
 * that both are under way there. Runs that end without an error have to be right. */
static void run_beside(struct gpu_op_rank *rank, const void *arg)
{
	static const struct gpu_channel_mode mode = { "beside", GPU_CHANNEL_RING, 0 };
	uint32_t n_ranks = rank->rig->n_ranks, i;
	ceov_channel *channel = gpu_channel_made(rank, &mode);
	const struct channel_case cases[2] = {
		channel_case_of(CEOV_ALL_REDUCE, CEOV_FP32, n_ranks, 1000),
		channel_case_of(CEOV_ALL_GATHER, CEOV_INT32, n_ranks, 500),
	};
	const struct channel_form form = { 0 };
	struct gpu_channel_call calls[2];
	struct gpu_graph graph;
	int r;

	(void)arg;
	for (i = 0; i < 2; i++)
		gpu_channel_put(rank, &cases[i], &form, &calls[i]);
	capture(&calls[0], channel, &graph);
	gpu_op_meet(rank);
	if (rank->rank)
		usleep(LATE_US);
	gpu_graph_launch(&graph);
	r = gpu_channel_run(channel, &calls[1], GPU_PRODUCE);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_idle(&rank->gpu, GPU_PRODUCE);
	gpu_op_meet(rank);
	r = r ? r : ceov_channel_status(channel);
	ck_assert_msg(rank->rank ? r <= 0 : r == CEOV_ERR_STATE, "rank %u: %s", rank->rank,
		      ceov_strerror(r));
	for (i = 0; i < 2; i++) {
		if (!r)
			gpu_channel_check(&calls[i]);
		gpu_channel_drop(&calls[i]);
	}
	gpu_graph_free(&graph);
	gpu_channel_release(rank, channel);
}

START_TEST(test_runs_that_nobody_has_ordered)
{
	gpu_channel_open(&rig, n_all, &lines);
	gpu_op_each(&rig, run_beside, NULL);
	gpu_channel_close(&rig);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu channel fails");
	TCase *all = tcase_create("channel fails");

	n_all = n_ranks < CHANNEL_RANKS_MAX ? n_ranks : CHANNEL_RANKS_MAX;
	tcase_set_timeout(all, 100);
	tcase_add_loop_test(all, test_calls_that_differ, 0, (int)(ROUNDS * CHANNEL_CHANGES));
	tcase_add_test(all, test_processes_whose_calls_differ);
	tcase_add_loop_test(all, test_a_rank_does_not_call_or_aborts, 0, ENDINGS);
	tcase_add_test(all, test_close_with_queued_runs);
	tcase_add_test(all, test_runs_that_nobody_has_ordered);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
