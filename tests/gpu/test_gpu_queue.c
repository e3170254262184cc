/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Plans that are queued on streams: two ranks of one process, on one GPU and, where there
 * are more, on two, pull each other's shard as FSDP2's all-gather does. Signals that say
 * "ready" are on the host, so that a thread can raise them without the driver.
 *
 *   CEOVERLAP_GPU_ROUNDS   runs in flight (default 200)
 */

#include "gpu_rig.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu_graph.h"

#define ROUNDS     200u
#define SLOTS      2u                   /* slots for a shard; see many_runs() */
#define FLAT_WORDS UINT64_C(20011)
#define ROW_WORDS  UINT64_C(67)
#define ROW_PAIRS  UINT64_C(301)
#define WORDS      (FLAT_WORDS + 2 * ROW_PAIRS * ROW_WORDS)
#define BYTES      (WORDS * 8)
#define LATE_NS    (50 * TESTING_MS)

struct rank {
	struct gpu   gpu;
	ceov_buffer *slots[SLOTS];
	ceov_buffer *target;            /* for the shards of ranks 0 and 1 */
	ceov_signal *ready;             /* counter r: the shard of rank r is ready */
	ceov_signal *arrived;           /* raised when the rank's own copies are done */
	ceov_plan   *plans[SLOTS];
};

static struct rank ranks[2];
static ceov_context *context;

static void open_rank(uint32_t r, uint32_t gpu, int is_ready_on_gpu)
{
	struct rank *rank = &ranks[r];
	uint32_t i;

	gpu_open(&rank->gpu, gpu);
	for (i = 0; i < SLOTS; i++)
		rank->slots[i] = testing_buffer(context, r, BYTES);
	rank->target = testing_buffer(context, r, 2 * BYTES);
	rank->ready = is_ready_on_gpu ? gpu_signal(context, r, gpu, 2, 0)
		: testing_signal(context, r, 2);
	rank->arrived = gpu_signal(context, r, gpu, 1, CEOV_SIGNAL_HOST_VISIBLE);
}

/* Adds one shard to the plan as one part, or as two: its even and its odd rows. */
static void add_shard(uint32_t r, uint32_t from, uint32_t slot, struct ceov_mark ready)
{
	struct ceov_transfer transfer = testing_transfer(ranks[from].slots[slot],
							 ranks[r].target, FLAT_WORDS * 8);
	uint32_t i;

	transfer.source_ready = ready;
	transfer.target.offset_bytes = from * BYTES;
	testing_add(ranks[r].plans[slot], &transfer);
	transfer.row_bytes = ROW_WORDS * 8;
	transfer.n_rows = ROW_PAIRS;
	transfer.source.pitch_bytes = transfer.target.pitch_bytes = 2 * ROW_WORDS * 8;
	for (i = 0; i < 2; i++) {
		transfer.source.offset_bytes = (FLAT_WORDS + i * ROW_WORDS) * 8;
		transfer.target.offset_bytes = from * BYTES + transfer.source.offset_bytes;
		testing_add(ranks[r].plans[slot], &transfer);
	}
}

static void build_plan(uint32_t r, uint32_t slot)
{
	struct ceov_transfer end = testing_transfer(NULL, NULL, 0);

	ranks[r].plans[slot] = testing_plan(context, r);
	add_shard(r, r, slot, testing_mark(NULL, 0, 0));
	add_shard(r, !r, slot, testing_mark(ranks[r].ready, !r, 1));
	end.then = testing_mark(ranks[r].arrived, 0, 1);
	testing_add(ranks[r].plans[slot], &end);
	ck_assert_int_eq(ceov_plan_commit(ranks[r].plans[slot]), 0);
}

/* Opens the ranks, with rank 1 on GPU `second`. `ready` is in host memory, or in the memory of each
 * rank's GPU. */
static void open_ranks_at(uint32_t second, int is_ready_on_gpu)
{
	const uint32_t indices[2] = { 0, second };
	uint32_t r, i;

	context = gpu_context(indices, 2);
	for (r = 0; r < 2; r++)
		open_rank(r, indices[r], is_ready_on_gpu);
	for (r = 0; r < 2; r++)
		for (i = 0; i < SLOTS; i++)
			build_plan(r, i);
}

static void open_ranks(uint32_t second)
{
	open_ranks_at(second, 0);
}

static void close_ranks(void)
{
	gpu_close(&ranks[0].gpu);
	gpu_close(&ranks[1].gpu);
	ceov_close(context);
}

/* --- one run -------------------------------------------------------------- */

static void *stream_of(uint32_t r)
{
	return ranks[r].gpu.streams[GPU_PRODUCE];
}

static struct gpu_words shard_of(uint32_t r, uint64_t k)
{
	const struct gpu_words words = { NULL, WORDS, testing_seed() + (2 * k + r) * WORDS };

	return words;
}

static void fill(uint32_t r, uint64_t k)
{
	struct gpu_words words = shard_of(r, k);

	words.p = ceov_buffer_base(ranks[r].slots[k % SLOTS], r);
	gpu_fill(&ranks[r].gpu, GPU_PRODUCE, &words);
}

static void raise_at_peer(uint32_t r, uint64_t k)
{
	const struct ceov_mark mark = testing_mark(ranks[!r].ready, r, 1);

	ck_assert_int_eq(ceov_stream_raise(context, r, stream_of(r), &mark, 1, k), 0);
}

static void queue(uint32_t r, uint64_t k)
{
	ck_assert_int_eq(ceov_plan_queue(ranks[r].plans[k % SLOTS], stream_of(r), k), 0);
}

/* Describes both shards of run k in the rank's target. */
static struct gpu_words gathered(uint32_t r, uint32_t from, uint64_t k)
{
	struct gpu_words words = shard_of(from, k);

	words.p = (uint64_t *)ceov_buffer_base(ranks[r].target, r) + from * WORDS;
	return words;
}

static void verify(uint32_t r, uint64_t k)
{
	struct gpu_words words;
	uint32_t from;

	for (from = 0; from < 2; from++) {
		words = gathered(r, from, k);
		gpu_verify(&ranks[r].gpu, GPU_PRODUCE, &words, 0);
	}
}

static void check_now(uint32_t r, uint64_t k)
{
	struct gpu_words words;
	uint32_t from;

	for (from = 0; from < 2; from++) {
		words = gathered(r, from, k);
		gpu_check(&ranks[r].gpu, &words);
	}
}

static void check_verified(uint32_t r)
{
	struct gpu_result seen;

	gpu_idle(&ranks[r].gpu, GPU_PRODUCE);
	seen = gpu_result(&ranks[r].gpu, 0);
	ck_assert_msg(!seen.n_wrong, "rank %u: %llu words are wrong, the first is %llu", r,
		      seen.n_wrong, seen.first_wrong);
}

/* --- tests ---------------------------------------------------------------- */

/* Pulls without waiting on the host. A slot is filled for run k behind the rank's copies of run k -
 * 1. The peer was ready for those, so it had already read run k - 2's data from the slot. */
static void pull_both_ways(uint32_t second, int is_ready_on_gpu)
{
	const uint32_t n_rounds = gpu_setting("CEOVERLAP_GPU_ROUNDS", ROUNDS);
	uint32_t r;
	uint64_t k;

	open_ranks_at(second, is_ready_on_gpu);
	for (k = 0; k < n_rounds; k++) {
		for (r = 0; r < 2; r++) {
			fill(r, k);
			raise_at_peer(r, k);
		}
		for (r = 0; r < 2; r++) {
			queue(r, k);
			verify(r, k);
		}
	}
	for (r = 0; r < 2; r++)
		check_verified(r);
	close_ranks();
}

START_TEST(test_many_runs_pull_both_ways)
{
	pull_both_ways((uint32_t)_i, 0);
}
END_TEST

START_TEST(test_marks_in_the_own_gpu)
{
	pull_both_ways((uint32_t)_i, 1);
}
END_TEST

/* Counters are raised by stream memory operations, or by copies. */
START_TEST(test_counters_that_copies_raise)
{
	ck_assert_int_eq(setenv("CEOVERLAP_FLAG", "copy", 1), 0);
	pull_both_ways((uint32_t)_i / 2, _i % 2);
}
END_TEST

/* Fills the slots, and makes rank 0's stream wait for rank 1's mark. */
static void begin_too_early(uint64_t k)
{
	uint32_t r;

	for (r = 0; r < 2; r++) {
		fill(r, k);
		gpu_idle(&ranks[r].gpu, GPU_PRODUCE);
	}
	raise_at_peer(0, k);
	queue(0, k);
}

/* The mark `arrived` promises that the bytes are there: the test checks them as soon as it sees the
 * mark. */
START_TEST(test_a_late_producer_is_waited_for)
{
	uint64_t k;

	open_ranks((uint32_t)_i);
	for (k = 0; k < 10; k++) {
		begin_too_early(k);
		ck_assert_int_eq(ceov_signal_wait(ranks[0].arrived, 0, k + 1, 2 * TESTING_MS),
				 CEOV_PENDING);
		ck_assert_int_eq(gpu_is_idle(&ranks[0].gpu, GPU_PRODUCE), 0);
		ck_assert_int_eq(ceov_signal_raise(ranks[0].ready, 1, k + 1), 0);
		ck_assert_int_eq(ceov_signal_wait(ranks[0].arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
		check_now(0, k);
		gpu_idle(&ranks[0].gpu, GPU_PRODUCE);
	}
	close_ranks();
}
END_TEST

static atomic_int is_freeing;

/* Thread function that raises the mark some time after the other thread began to free memory. */
static void *raise_late(void *ready)
{
	const struct timespec late = { 0, (long)LATE_NS };

	while (!atomic_load(&is_freeing))
		(void)sched_yield();
	(void)nanosleep(&late, NULL);
	return ceov_signal_raise(ready, 1, 1) ? ready : NULL;
}

/* The driver frees memory only when the GPU is idle, and accepts no work until then. So the waiting
 * stream must already have been given all the work that it needs to end. */
START_TEST(test_memory_is_freed_while_a_stream_waits)
{
	void *memory, *failed = NULL;
	pthread_t thread;

	open_ranks((uint32_t)_i);
	memory = gpu_allocate(&ranks[0].gpu, BYTES);
	begin_too_early(0);
	ck_assert_int_eq(pthread_create(&thread, NULL, raise_late, ranks[0].ready), 0);
	ck_assert_int_eq(gpu_is_idle(&ranks[0].gpu, GPU_PRODUCE), 0);
	atomic_store(&is_freeing, 1);
	gpu_free(&ranks[0].gpu, memory);
	ck_assert_int_eq(pthread_join(thread, &failed), 0);
	ck_assert_ptr_null(failed);
	gpu_idle(&ranks[0].gpu, GPU_PRODUCE);
	check_now(0, 0);
	close_ranks();
}
END_TEST

/* A launch that waits for the same mark has a deadline, and its failure releases the stream. */
START_TEST(test_an_abort_lets_the_stream_go_on)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	ceov_plan *guard;
	ceov_ticket ticket;

	open_ranks((uint32_t)_i);
	guard = testing_plan(context, 0);
	transfer.source_ready = testing_mark(ranks[0].ready, 1, 1);
	testing_add(guard, &transfer);
	ck_assert_int_eq(ceov_plan_commit(guard), 0);
	launch.deadline_ns = LATE_NS;
	begin_too_early(0);
	ck_assert_int_eq(ceov_launch(guard, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_TIMEOUT);
	gpu_idle(&ranks[0].gpu, GPU_PRODUCE);
	ck_assert_int_eq(ceov_plan_queue(ranks[0].plans[1], stream_of(0), 1),
			 CEOV_ERR_TIMEOUT);
	close_ranks();
}
END_TEST

/* Queues rank 1's plan, which waits for marks in rank 0's GPU. */
static void wait_at_rank_0(ceov_plan *plan, uint64_t k)
{
	struct ceov_mark mark = testing_mark(ranks[0].arrived, 0, 1);
	struct ceov_mark after = testing_mark(ranks[1].arrived, 0, 1);

	if (k % 2) {
		ck_assert_int_eq(ceov_plan_queue(plan, stream_of(1), k), 0);
		return;
	}
	ck_assert_int_eq(ceov_stream_wait(context, 1, stream_of(1), &mark, 1, k), 0);
	ck_assert_int_eq(ceov_stream_raise(context, 1, stream_of(1), &after, 1, k), 0);
}

/* One process owns both GPUs, so an abort can release waits in either. */
START_TEST(test_a_stream_waits_at_the_other_gpu_of_its_process)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	ceov_ticket ticket;
	ceov_plan *plan;
	uint64_t k;

	open_ranks((uint32_t)_i);
	plan = testing_plan(context, 1);
	transfer.source_ready = testing_mark(ranks[0].arrived, 0, 1);
	transfer.then = testing_mark(ranks[1].arrived, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	for (k = 0; k < 10; k++) {
		wait_at_rank_0(plan, k);
		ck_assert_int_eq(ceov_signal_wait(ranks[1].arrived, 0, k + 1, TESTING_MS),
				 CEOV_PENDING);
		ck_assert_int_eq(ceov_stream_raise(context, 0, stream_of(0),
						   &transfer.source_ready, 1, k), 0);
		ck_assert_int_eq(ceov_signal_wait(ranks[1].arrived, 0, k + 1,
						  TESTING_PATIENCE), 0);
	}
	wait_at_rank_0(plan, k);
	launch.base = k;
	launch.deadline_ns = LATE_NS;
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_TIMEOUT);
	gpu_idle(&ranks[1].gpu, GPU_PRODUCE);
	close_ranks();
}
END_TEST

START_TEST(test_streams_that_cannot_be_used_are_refused)
{
	struct gpu_graph graph;
	uint32_t r;

	open_ranks((uint32_t)_i);
	ck_assert_int_eq(ceov_plan_queue(ranks[0].plans[0], NULL, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_queue(ranks[0].plans[0], (void *)(uintptr_t)1, 0),
			 CEOV_ERR_INVALID);     /* CUDA's other handle of the legacy stream */
	if (_i)                         /* a stream of another GPU */
		ck_assert_int_eq(ceov_plan_queue(ranks[0].plans[0], stream_of(1), 0),
				 CEOV_ERR_INVALID);
	gpu_graph_begin(&graph, &ranks[0].gpu, GPU_PRODUCE);
	ck_assert_int_eq(ceov_plan_queue(ranks[0].plans[0], stream_of(0), 0),
			 CEOV_ERR_INVALID);
	gpu_graph_end(&graph);
	gpu_graph_free(&graph);
	for (r = 0; r < 2; r++) {       /* nothing was queued by the refused calls */
		fill(r, 0);
		raise_at_peer(r, 0);
	}
	for (r = 0; r < 2; r++) {
		queue(r, 0);
		verify(r, 0);
	}
	for (r = 0; r < 2; r++)
		check_verified(r);
	close_ranks();
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	const int n_pairs = n_gpus > 1 ? 2 : 1;
	Suite *made = suite_create("gpu queue");
	TCase *all = tcase_create("queue");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_many_runs_pull_both_ways, 0, n_pairs);
	tcase_add_loop_test(all, test_marks_in_the_own_gpu, 0, n_pairs);
	tcase_add_loop_test(all, test_counters_that_copies_raise, 0, 2 * n_pairs);
	tcase_add_loop_test(all, test_a_late_producer_is_waited_for, 0, n_pairs);
	tcase_add_loop_test(all, test_memory_is_freed_while_a_stream_waits, 0, n_pairs);
	tcase_add_loop_test(all, test_an_abort_lets_the_stream_go_on, 0, n_pairs);
	tcase_add_loop_test(all, test_a_stream_waits_at_the_other_gpu_of_its_process, 0,
			    n_pairs);
	tcase_add_loop_test(all, test_streams_that_cannot_be_used_are_refused, 0, n_pairs);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
