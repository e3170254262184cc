/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Kernels whose tiles start transfers, and kernels that await them, between two ranks of
 * one process: on one GPU and, where there are more, on two.
 */

#include "gpu_rounds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define PIECES      6u
#define PIECE_WORDS UINT64_C(20011)     /* odd, so that tiles are uneven */
#define WORDS       (PIECES * PIECE_WORDS)
#define PIECE_BYTES (PIECE_WORDS * 8)
#define TILES       9u                  /* tiles of the first piece; each next piece has one more */
#define LAUNCHES    40u
#define ROUNDS      1000u
#define END_NS      (2 * TESTING_SECOND) /* limit for an abort's error */

/* The source's pitch is 4 rows of 64 words, the target's is 2. */
#define ROW_WORDS UINT64_C(64)
#define ROWS      UINT64_C(777)

static struct gpu gpus[2];      /* GPUs of ranks 0 and 1 */
static ceov_context *context;

struct way {
	ceov_buffer *source;    /* memory of rank 0 */
	ceov_buffer *target;    /* memory of rank 1 */
	ceov_signal *ready;
	ceov_signal *arrived;
	ceov_signal *free;
	ceov_plan   *plan;      /* transfer i waits for ready i and free i and raises arrived i */
	struct ceov_device_signal ready_view;   /* of rank 0 */
	struct ceov_device_signal arrived_view; /* of rank 1 */
};

static struct way way;

/* Opens the ranks, with rank 1 on GPU `second`. */
static void open_ranks(uint32_t second)
{
	uint32_t indices[2] = { 0, second };

	context = gpu_context(indices, 2);
	gpu_open(&gpus[0], 0);
	gpu_open(&gpus[1], second);
}

static void close_ranks(void)
{
	gpu_close(&gpus[0]);
	gpu_close(&gpus[1]);
	ceov_close(context);
}

static void add_piece(uint32_t i)
{
	struct ceov_transfer transfer = testing_transfer(way.source, way.target,
							 PIECE_BYTES);

	transfer.source.offset_bytes = transfer.target.offset_bytes = i * PIECE_BYTES;
	transfer.source_ready = testing_mark(way.ready, i, 1);
	transfer.target_free = testing_mark(way.free, i, 0);
	transfer.then = testing_mark(way.arrived, i, 1);
	testing_add(way.plan, &transfer);
}

static void build_way(void)
{
	uint32_t i;

	way.source = testing_buffer(context, 0, WORDS * 8);
	way.target = testing_buffer(context, 1, WORDS * 8);
	way.ready = gpu_signal(context, 0, gpus[0].index, PIECES, CEOV_SIGNAL_HOST_VISIBLE);
	way.arrived = gpu_signal(context, 1, gpus[1].index, PIECES,
				 CEOV_SIGNAL_HOST_VISIBLE);
	way.free = gpu_signal(context, 1, gpus[1].index, PIECES, CEOV_SIGNAL_HOST_VISIBLE);
	way.ready_view = gpu_view(way.ready, 0);
	way.arrived_view = gpu_view(way.arrived, 1);
	way.plan = testing_plan(context, 0);
	for (i = 0; i < PIECES; i++)
		add_piece(i);
	ck_assert_int_eq(ceov_plan_commit(way.plan), 0);
}

static uint64_t seed_of(uint64_t k)
{
	return testing_seed() + k * WORDS;
}

/* --- launches ------------------------------------------------------------ */

static void produce(uint64_t k)
{
	struct cei_kernel_produce produce;

	memset(&produce, 0, sizeof(produce));
	produce.signal = way.ready_view;
	produce.p = ceov_buffer_base(way.source, 0);
	produce.n_words = PIECE_WORDS;
	produce.seed = seed_of(k);
	produce.n_pieces = PIECES;
	produce.n_tiles = TILES;
	produce.value = k + 1;
	gpu_launch(&gpus[0], GPU_PRODUCE, "cei_kernel_produce", 40, &produce);
}

static ceov_ticket launch(uint64_t k, int is_gated, uint64_t deadline_ns)
{
	struct ceov_launch made = {
		.struct_bytes = sizeof(made),
		.base = k,
		.deadline_ns = deadline_ns,
		.producer_stream = is_gated ? gpus[0].streams[GPU_PRODUCE] : NULL,
	};
	ceov_ticket ticket = { 0 };

	ck_assert_int_eq(ceov_launch(way.plan, &made, &ticket), 0);
	return ticket;
}

/* Queues a kernel for each piece that awaits its mark and checks its words. */
static void consume(uint64_t k, uint32_t result)
{
	struct cei_kernel_consume consume;
	uint32_t i;

	memset(&consume, 0, sizeof(consume));
	consume.signal = way.arrived_view;
	consume.value = k + 1;
	consume.timeout_ns = GPU_AWAIT_NS;
	consume.n_words = PIECE_WORDS;
	consume.n_wrong = &gpus[1].results[result].n_wrong;
	consume.first_wrong = &gpus[1].results[result].first_wrong;
	consume.ret_status = &gpus[1].results[result].status;
	for (i = 0; i < PIECES; i++) {
		consume.index = i;
		consume.p = (uint64_t *)ceov_buffer_base(way.target, 1) + i * PIECE_WORDS;
		consume.seed = seed_of(k) + i * PIECE_WORDS;
		gpu_launch(&gpus[1], GPU_CONSUME, "cei_kernel_consume", 8, &consume);
	}
}

static void free_targets(uint64_t k)
{
	struct ceov_mark marks[PIECES];
	uint32_t i;

	for (i = 0; i < PIECES; i++)
		marks[i] = testing_mark(way.free, i, 1);
	ck_assert_int_eq(ceov_stream_raise(context, 1, gpus[1].streams[GPU_CONSUME], marks,
					   PIECES, k), 0);
}

static void check_consumed(uint32_t result)
{
	struct gpu_result seen;

	gpu_idle(&gpus[1], GPU_CONSUME);
	seen = gpu_result(&gpus[1], result);
	ck_assert_uint_eq(seen.status, GPU_REACHED);
	ck_assert_msg(!seen.n_wrong, "%llu words are wrong, the first is %llu", seen.n_wrong,
		      seen.first_wrong);
}

/* Carries out one launch from the producer to the freed target; every word is checked. */
static void whole_launch(uint64_t k, int is_gated)
{
	ceov_ticket ticket;

	produce(k);
	ticket = launch(k, is_gated, 0);
	consume(k, 0);
	free_targets(k);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	check_consumed(0);
}

START_TEST(test_tiles_start_pieces_and_kernels_await_them)
{
	uint64_t k;

	open_ranks((uint32_t)_i);
	build_way();
	for (k = 0; k < LAUNCHES; k++)
		whole_launch(k, k / 5 % 2 != 0);
	close_ranks();
}
END_TEST

/* The consumer waits before the producer has begun. */
START_TEST(test_a_launch_may_come_before_its_producer)
{
	ceov_ticket ticket;
	uint64_t k;

	open_ranks((uint32_t)_i);
	build_way();
	for (k = 0; k < 10; k++) {
		ticket = launch(k, 0, 0);
		consume(k, 0);
		free_targets(k);
		ck_assert_int_eq(ceov_wait(context, ticket, 2 * TESTING_MS), CEOV_PENDING);
		produce(k);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
		check_consumed(0);
	}
	close_ranks();
}
END_TEST

START_TEST(test_many_launches_in_flight)
{
	struct rounds rounds = {
		.gpus = gpus,
		.n_rounds = ROUNDS,
		.n_words = 4099,
		.seed = testing_seed(),
	};
	uint64_t took;

	open_ranks((uint32_t)_i);
	rounds.context = context;
	for (rounds.is_gated = 0; rounds.is_gated < 2; rounds.is_gated++) {
		rounds.consumer = ROUNDS_KERNEL;
		ck_assert_uint_eq(rounds_run(&rounds, &took), 0);
		rounds.consumer = ROUNDS_STREAM;
		ck_assert_uint_eq(rounds_run(&rounds, &took), 0);
		/* On one GPU the two ranks' gated lanes may share a hardware queue. */
		if (!_i)
			continue;
		rounds.consumer = ROUNDS_FORWARD;
		ck_assert_uint_eq(rounds_run(&rounds, &took), 0);
	}
	close_ranks();
}
END_TEST

static void raise_free(uint64_t value)
{
	uint32_t i;

	for (i = 0; i < PIECES; i++)
		ck_assert_int_eq(ceov_signal_raise(way.free, i, value), 0);
}

/* Lets launch k + 1 arrive without freeing the target: launch k + 2 must not overwrite it. */
static void press_against(uint64_t k, int is_gated)
{
	struct gpu_words words = { ceov_buffer_base(way.target, 1), WORDS, seed_of(k + 1) };
	ceov_ticket ticket;

	produce(k + 1);
	ticket = launch(k + 1, is_gated, 0);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	produce(k + 2);
	ticket = launch(k + 2, is_gated, 0);
	gpu_idle(&gpus[0], GPU_PRODUCE);
	ck_assert_int_eq(ceov_wait(context, ticket, 50 * TESTING_MS), CEOV_PENDING);
	gpu_check(&gpus[1], &words);
	raise_free(k + 2);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	words.seed = seed_of(k + 2);
	gpu_check(&gpus[1], &words);
	raise_free(k + 3);
}

START_TEST(test_a_target_that_is_not_free_keeps_its_bytes)
{
	open_ranks((uint32_t)_i);
	build_way();
	whole_launch(0, 0);
	press_against(0, 0);
	whole_launch(3, 1);
	press_against(3, 1);
	close_ranks();
}
END_TEST

/* --- shapes and kinds of memory ------------------------------------------ */

static struct cei_kernel_rows rows_of(void *p, uint64_t pitch_words, uint64_t seed)
{
	struct cei_kernel_rows rows;

	memset(&rows, 0, sizeof(rows));
	rows.p = p;
	rows.n_rows = ROWS;
	rows.row_words = ROW_WORDS;
	rows.pitch_words = pitch_words;
	rows.seed = seed;
	return rows;
}

static void check_rows(void *p, uint64_t seed)
{
	struct cei_kernel_rows rows = rows_of(p, 2 * ROW_WORDS, seed);

	gpu_reset(&gpus[1], 1);
	rows.n_wrong = &gpus[1].results[1].n_wrong;
	rows.first_wrong = &gpus[1].results[1].first_wrong;
	gpu_launch(&gpus[1], GPU_CONTROL, "cei_kernel_verify_rows", 32, &rows);
	ck_assert_uint_eq(gpu_result(&gpus[1], 1).n_wrong, 0);
}

static ceov_plan *plan_rows(ceov_buffer *source, ceov_buffer *target)
{
	struct ceov_transfer transfer = testing_transfer(source, target, ROW_WORDS * 8);
	ceov_plan *plan = testing_plan(context, 0);

	transfer.n_rows = ROWS;
	transfer.source.pitch_bytes = 4 * ROW_WORDS * 8;
	transfer.target.pitch_bytes = 2 * ROW_WORDS * 8;
	transfer.source_ready = testing_mark(way.ready, 0, 1);
	transfer.then = testing_mark(way.arrived, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

START_TEST(test_rows_move_at_their_pitches)
{
	ceov_buffer *source, *target;
	struct ceov_launch made = { .struct_bytes = sizeof(made) };
	struct ceov_mark ready;
	struct cei_kernel_rows rows;
	ceov_plan *plan;
	ceov_ticket ticket;

	open_ranks((uint32_t)_i);
	build_way();
	source = testing_buffer(context, 0, ROWS * 4 * ROW_WORDS * 8);
	target = testing_buffer(context, 1, ROWS * 2 * ROW_WORDS * 8);
	plan = plan_rows(source, target);
	ready = testing_mark(way.ready, 0, 1);
	for (made.base = 0; made.base < 10; made.base++) {
		rows = rows_of(ceov_buffer_base(source, 0), 4 * ROW_WORDS,
			       seed_of(made.base));
		gpu_launch(&gpus[0], GPU_PRODUCE, "cei_kernel_fill_rows", 32, &rows);
		ck_assert_int_eq(ceov_stream_raise(context, 0, gpus[0].streams[GPU_PRODUCE],
						   &ready, 1, made.base), 0);
		made.producer_stream = made.base % 2 ? gpus[0].streams[GPU_PRODUCE] : NULL;
		ck_assert_int_eq(ceov_launch(plan, &made, &ticket), 0);
		ck_assert_int_eq(ceov_signal_wait(way.arrived, 0, made.base + 1,
						  TESTING_PATIENCE), 0);
		check_rows(ceov_buffer_base(target, 1), seed_of(made.base));
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	}
	ceov_plan_release(plan);
	close_ranks();
}
END_TEST

#define HOST_BYTES (WORDS * 8)

/* Plans host -> GPU of rank 0 -> its other buffer -> host, ordered by marks on the host. */
static ceov_plan *plan_loop(ceov_buffer *const *stops, ceov_signal *marks)
{
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer transfer;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		transfer = testing_transfer(stops[i], stops[i + 1], HOST_BYTES);
		if (i)
			transfer.source_ready = testing_mark(marks, i - 1, 1);
		transfer.then = testing_mark(marks, i, 1);
		ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void *take_host(int is_pinned)
{
	void *p = is_pinned ? gpu_host_allocate(&gpus[0], HOST_BYTES) : malloc(HOST_BYTES);

	ck_assert_ptr_nonnull(p);
	return p;
}

static void give_host(void *p, int is_pinned)
{
	if (is_pinned)
		gpu_host_free(&gpus[0], p);
	free(is_pinned ? NULL : p);
}

/* Uses memory from malloc(), then from cudaHostAlloc(), which the driver cannot register. */
START_TEST(test_host_memory_goes_to_the_gpu_and_back)
{
	struct ceov_launch made = { .struct_bytes = sizeof(made) };
	ceov_buffer *stops[4];
	ceov_signal *marks;
	ceov_ticket ticket;
	ceov_plan *plan;
	char *from, *to;

	open_ranks(0);
	from = take_host(_i);
	to = take_host(_i);
	marks = testing_signal(context, 0, 3);
	ck_assert_int_eq(ceov_buffer_register(context, 0, from, HOST_BYTES, &stops[0]), 0);
	stops[1] = testing_buffer(context, 0, HOST_BYTES);
	stops[2] = testing_buffer(context, 0, HOST_BYTES);
	ck_assert_int_eq(ceov_buffer_register(context, 0, to, HOST_BYTES, &stops[3]), 0);
	plan = plan_loop(stops, marks);
	for (made.base = 0; made.base < 10; made.base++) {
		testing_fill(from, HOST_BYTES, seed_of(made.base));
		ck_assert_int_eq(ceov_launch(plan, &made, &ticket), 0);
		ck_assert_int_eq(ceov_signal_wait(marks, 2, made.base + 1,
						  TESTING_PATIENCE), 0);
		ck_assert_uint_eq(testing_check(to, HOST_BYTES, seed_of(made.base)),
				  HOST_BYTES);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
	}
	ceov_close(context);
	give_host(from, _i);
	give_host(to, _i);
	gpu_close(&gpus[0]);
	gpu_close(&gpus[1]);
}
END_TEST

/* --- failures ------------------------------------------------------------ */

static void renew(ceov_signal *signal)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_signal_renew(signal)) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
}

static void renew_way(void)
{
	uint32_t i;

	renew(way.ready);
	renew(way.arrived);
	renew(way.free);
	for (i = 0; i < 2; i++)
		gpu_reset(&gpus[i], 0);
	(void)ceov_last_failure(context, &(struct ceov_failure){ 0 });
}

/* Kernels and a stream of rank 1 wait for bytes that rank 0's launch never delivers. */
static void wait_in_vain(uint64_t k)
{
	struct ceov_mark last = testing_mark(way.arrived, PIECES - 1, 1);

	consume(k, 0);
	ck_assert_int_eq(ceov_stream_wait(context, 1, gpus[1].streams[GPU_WAIT], &last, 1,
					  k), 0);
}

/* Poison releases gated copies of bytes that nobody produced: a kernel that awaits their marks must
 * see the abort, and must not read the bytes. */
static void expect_left(void)
{
	struct gpu_result seen;

	gpu_idle(&gpus[1], GPU_CONSUME);
	seen = gpu_result(&gpus[1], 0);
	ck_assert_uint_eq(seen.status, GPU_ABORTED);
	ck_assert_msg(!seen.n_wrong, "a kernel was let through to %llu wrong words",
		      seen.n_wrong);
	gpu_idle(&gpus[1], GPU_WAIT);
}

START_TEST(test_an_abort_ends_a_launch_whose_producer_never_raises)
{
	uint64_t start, took;
	ceov_ticket ticket;
	int is_gated;

	open_ranks((uint32_t)_i);
	build_way();
	for (is_gated = 0; is_gated < 2; is_gated++) {
		whole_launch(0, is_gated);
		ticket = launch(1, is_gated, 0);
		wait_in_vain(1);
		ck_assert_int_eq(ceov_wait(context, ticket, 20 * TESTING_MS), CEOV_PENDING);
		ck_assert_int_eq(gpu_is_idle(&gpus[1], GPU_CONSUME), 0);
		ck_assert_int_eq(gpu_is_idle(&gpus[1], GPU_WAIT), 0);
		start = cei_now_ns();
		ck_assert_int_eq(ceov_abort(context, ticket), 0);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE),
				 CEOV_ERR_ABORTED);
		took = cei_now_ns() - start;
		printf("abort: %s launch ended after %llu us\n",
		       is_gated ? "gated" : "polled", (unsigned long long)took / 1000);
		ck_assert_uint_lt(took, END_NS);
		expect_left();
		ck_assert_int_eq(ceov_launch(way.plan, NULL, NULL), CEOV_ERR_ABORTED);
		renew_way();
	}
	whole_launch(0, 1);
	whole_launch(1, 0);
	close_ranks();
}
END_TEST

/* Makes pieces 0 to 2 ready on rank 0; the tiles of the other pieces never arrive. */
static void produce_some(uint64_t k)
{
	struct gpu_words words = { ceov_buffer_base(way.source, 0), 3 * PIECE_WORDS,
				   seed_of(k) };
	struct cei_kernel_raise raise;

	memset(&raise, 0, sizeof(raise));
	raise.signal = way.ready_view;
	raise.n = 3;
	raise.n_tiles = 5;
	raise.value = k + 1;
	gpu_fill(&gpus[0], GPU_PRODUCE, &words);
	gpu_launch(&gpus[0], GPU_PRODUCE, "cei_kernel_raise", 15, &raise);
}

START_TEST(test_a_deadline_names_the_transfer_and_its_mark)
{
	struct ceov_failure failure;
	ceov_ticket ticket;
	int is_gated;

	open_ranks((uint32_t)_i);
	build_way();
	for (is_gated = 0; is_gated < 2; is_gated++) {
		whole_launch(0, is_gated);
		produce_some(1);
		ticket = launch(1, is_gated, 200 * TESTING_MS);
		wait_in_vain(1);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE),
				 CEOV_ERR_TIMEOUT);
		failure = testing_failure(context);
		ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
		ck_assert_uint_eq(failure.transfer, 3);
		ck_assert_uint_eq(failure.rank, 0);
		ck_assert_uint_eq(failure.mark_value, 2);
		ck_assert_uint_eq(failure.seen_value, 1);
		expect_left();
		renew_way();
	}
	whole_launch(0, 1);
	close_ranks();
}
END_TEST

/* One launch waits for its ready mark, one for its target. */
START_TEST(test_closing_ends_what_is_in_flight)
{
	uint64_t start;

	open_ranks((uint32_t)_i);
	build_way();
	whole_launch(0, 1);
	(void)launch(1, 1, 0);
	(void)launch(2, 1, 0);
	start = cei_now_ns();
	ceov_close(context);
	ck_assert_uint_lt(cei_now_ns() - start, 10 * TESTING_SECOND);
	gpu_close(&gpus[0]);
	gpu_close(&gpus[1]);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	const int n_pairs = n_gpus > 1 ? 2 : 1;
	Suite *made = suite_create("gpu transfer");
	TCase *all = tcase_create("transfer");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_tiles_start_pieces_and_kernels_await_them, 0, n_pairs);
	tcase_add_loop_test(all, test_a_launch_may_come_before_its_producer, 0, n_pairs);
	tcase_add_loop_test(all, test_many_launches_in_flight, 0, n_pairs);
	tcase_add_loop_test(all, test_a_target_that_is_not_free_keeps_its_bytes, 0, n_pairs);
	tcase_add_loop_test(all, test_rows_move_at_their_pitches, 0, n_pairs);
	tcase_add_loop_test(all, test_host_memory_goes_to_the_gpu_and_back, 0, 2);
	tcase_add_loop_test(all, test_an_abort_ends_a_launch_whose_producer_never_raises, 0,
			    n_pairs);
	tcase_add_loop_test(all, test_a_deadline_names_the_transfer_and_its_mark, 0, n_pairs);
	tcase_add_loop_test(all, test_closing_ends_what_is_in_flight, 0, n_pairs);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
