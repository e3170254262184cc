/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of work on streams of the caller, and of work that can be captured into a graph. */

#include "backend_rig.h"

#include "base/clock.h"

#define GATE_AT  1u                     /* counter that the work waits for */
#define MARK_AT  2u                     /* counter that the work raises */
#define VALUE_AT 3u                     /* counter from which the work takes the value */
#define ROWS     5u
#define ROW      1000u                  /* bytes of a row */
#define PITCH    4096u
#define FLAT_AT  (UINT64_C(1) << 20)    /* offset of the piece that has one row */
#define FLAT     (UINT64_C(1) << 20)    /* bytes of that row */
#define REPLAYS  20u

/* Work of a wait, two pieces and a post. One piece has rows with gaps, the other one has one long
 * row. */
struct load {
	struct cei_await       await;
	struct cei_piece       pieces[2];
	struct cei_post        post;
	struct cei_stream_work work;
};

static void load_init(struct load *load, uint64_t value, uint64_t value_at)
{
	const struct cei_piece rows = { rig_at(0, 0), rig_at(1, 0), ROW, ROWS, PITCH,
					2 * PITCH };

	load->await = (struct cei_await){ rig_counter_at(GATE_AT), 1, NULL };
	load->pieces[0] = rows;
	load->pieces[1] = rig_piece(rig_at(1, FLAT_AT), rig_at(0, FLAT_AT), FLAT);
	load->post = (struct cei_post){ rig_counter_at(MARK_AT), rig.words.address[0], value };
	load->work = (struct cei_stream_work){ &load->await, load->pieces, &load->post, 1, 2, 1,
					       value_at };
}

static int queue(void *stream, const struct cei_stream_work *work)
{
	return rig.ops->stream_queue(&rig.backend, stream, work);
}

static void fill_sources(uint64_t seed)
{
	rig_fill(rig_at(0, 0), ROWS * PITCH, seed);
	rig_fill(rig_at(0, FLAT_AT), FLAT, seed + 1);
}

static void check_targets(uint64_t seed)
{
	uint32_t i;

	for (i = 0; i < ROWS; i++)
		rig_check(rig_at(1, 2 * i * PITCH), ROW, seed + i * PITCH / 8);
	rig_check(rig_at(1, FLAT_AT), FLAT, seed + 1);
}

/* Asserts that the bytes have arrived and that the mark and its word in host memory have the
 * value. */
static void check_arrival(uint64_t value, uint64_t seed)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	rig_reach(MARK_AT, value);
	check_targets(seed);
	ck_assert_uint_eq(rig_value(MARK_AT), value);
	while (rig_word(0) != value)
		ck_assert(cei_now_ns() < deadline);
}

START_TEST(test_work_waits_copies_and_raises_in_this_order)
{
	void *stream = rig.streams->open();
	struct load load;
	uint64_t k;

	for (k = 1; k <= REPLAYS; k++) {
		load_init(&load, k, 0);
		load.await.value = k;
		fill_sources(k);
		ck_assert_int_eq(queue(stream, &load.work), 0);
		rig_pause();
		ck_assert_uint_eq(rig_value(MARK_AT), k - 1);
		rig_raise(GATE_AT, k);
		check_arrival(k, k);
	}
	rig.streams->idle(stream);
	rig.streams->close(stream);
}
END_TEST

START_TEST(test_a_full_batch_of_pieces_and_posts_goes_at_once)
{
	struct cei_piece pieces[CEI_LANE_BATCH];
	struct cei_post posts[CEI_LANE_BATCH];
	const struct cei_stream_work work = { NULL, pieces, posts, 0, CEI_LANE_BATCH,
					      CEI_LANE_BATCH, 0 };
	void *stream = rig.streams->open();
	uint32_t i;

	rig_fill(rig_at(0, 0), CEI_LANE_BATCH * 1024, 1);
	for (i = 0; i < CEI_LANE_BATCH; i++) {
		pieces[i] = rig_piece(rig_at(1, i * 1024), rig_at(0, i * 1024), 1024);
		posts[i] = (struct cei_post){ rig_counter_at(i), 0, i + 1 };
	}
	ck_assert_int_eq(queue(stream, &work), 0);
	rig.streams->idle(stream);
	rig_check(rig_at(1, 0), CEI_LANE_BATCH * 1024, 1);
	for (i = 0; i < CEI_LANE_BATCH; i++)
		ck_assert_uint_eq(rig_value(i), i + 1);
	rig.streams->close(stream);
}
END_TEST

/* A captured stream refuses copies without value_at, whose constants must not be part of a graph,
 * and takes waits and posts. */
START_TEST(test_captured_streams_take_no_copies_without_value_at)
{
	const struct cei_stream_work nothing = { .value_at = 0 };
	void *stream = rig.streams->open(), *graph;
	struct load load;

	load_init(&load, 9, 0);
	ck_assert_int_eq(queue(stream, &nothing), 0);
	rig.streams->capture_begin(stream);
	ck_assert_int_eq(queue(stream, &load.work), CEOV_ERR_INVALID);
	ck_assert_int_eq(queue(stream, &nothing), CEOV_ERR_INVALID);
	load.work.n_pieces = 0;
	ck_assert_int_eq(queue(stream, &load.work), 0);
	graph = rig.streams->capture_end(stream);
	rig.streams->launch(graph, stream);
	rig_pause();
	ck_assert_uint_eq(rig_value(MARK_AT), 0);
	rig_raise(GATE_AT, 1);
	rig_reach(MARK_AT, 9);
	rig.streams->idle(stream);
	rig.streams->free(graph);
	rig.streams->close(stream);
}
END_TEST

/* --- work with value_at ------------------------------------------------------------ */

START_TEST(test_values_are_read_when_the_stream_comes_to_them)
{
	void *stream = rig.streams->open();
	struct load load;

	load_init(&load, 5, rig_counter_at(VALUE_AT));
	fill_sources(1);
	rig_raise(VALUE_AT, 6);
	ck_assert_int_eq(queue(stream, &load.work), 0);
	rig_pause();
	ck_assert_uint_eq(rig_value(MARK_AT), 0);
	rig_raise(VALUE_AT, 7);
	rig_raise(GATE_AT, 1);
	check_arrival(7, 1);
	rig.streams->idle(stream);
	rig.streams->close(stream);
}
END_TEST

START_TEST(test_a_graph_reads_its_values_anew)
{
	void *stream = rig.streams->open(), *graph;
	struct load load;
	uint64_t k;

	load_init(&load, 5, rig_counter_at(VALUE_AT));
	rig.streams->capture_begin(stream);
	ck_assert_int_eq(queue(stream, &load.work), 0);
	graph = rig.streams->capture_end(stream);
	for (k = 1; k <= REPLAYS; k++) {
		rig_raise(GATE_AT, 0);
		rig_raise(VALUE_AT, 3 * k);
		fill_sources(k);
		rig.streams->launch(graph, stream);
		if (k < 4)
			rig_pause();
		ck_assert_uint_eq(rig_value(MARK_AT), 3 * (k - 1));
		rig_raise(GATE_AT, 1);
		check_arrival(3 * k, k);
		rig.streams->idle(stream);
	}
	rig.streams->free(graph);
	rig.streams->close(stream);
}
END_TEST

/* A stream that waits is counted. Work with value_at is not, because it may be captured, and then
 * it does not wait when it is queued. */
START_TEST(test_streams_that_wait_are_counted)
{
	const uint32_t left = cei_backend_waits_left(&rig.backend);
	void *streams[2] = { rig.streams->open(), rig.streams->open() };
	struct load load;

	load_init(&load, 5, rig_counter_at(VALUE_AT));
	ck_assert_int_eq(queue(streams[0], &load.work), 0);
	ck_assert_uint_eq(cei_backend_waits_left(&rig.backend), left);
	load_init(&load, 5, 0);
	ck_assert_int_eq(queue(streams[1], &load.work), 0);
	ck_assert_uint_eq(cei_backend_waits_left(&rig.backend), left - 1);
	rig_raise(GATE_AT, 1);
	rig.streams->idle(streams[0]);
	rig.streams->idle(streams[1]);
	rig.streams->close(streams[0]);
	rig.streams->close(streams[1]);
}
END_TEST

void rig_add_stream_cases(Suite *suite)
{
	TCase *streams = tcase_create("streams");

	tcase_add_checked_fixture(streams, rig_open, rig_close);
	tcase_set_timeout(streams, 60);
	suite_add_tcase(suite, streams);
	if (!rig.streams)
		return;
	tcase_add_test(streams, test_work_waits_copies_and_raises_in_this_order);
	tcase_add_test(streams, test_a_full_batch_of_pieces_and_posts_goes_at_once);
	tcase_add_test(streams, test_captured_streams_take_no_copies_without_value_at);
	if (!(rig.ops->caps & CEI_CAP_CAPTURE))
		return;
	tcase_add_test(streams, test_values_are_read_when_the_stream_comes_to_them);
	tcase_add_test(streams, test_a_graph_reads_its_values_anew);
	tcase_add_test(streams, test_streams_that_wait_are_counted);
}
