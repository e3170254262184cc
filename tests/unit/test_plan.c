/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what adding transfers and commit refuse and accept, and their messages. */

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"

#define SIZE UINT64_C(10000)

/* These variables are global because Check's tests take no arguments. */
static struct testing_log log_of;
static ceov_context *context;
static ceov_buffer *source, *target, *third;
static ceov_signal *ready, *arrived;
static ceov_plan *plan;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(3, &log_of);
	source = testing_buffer(context, 0, SIZE);
	target = testing_buffer(context, 1, SIZE);
	third = testing_buffer(context, 2, SIZE);
	ready = testing_signal(context, 0, 8);
	arrived = testing_signal(context, 1, 8);
	plan = testing_plan(context, 0);
}

static void tear_down(void)
{
	ceov_close(context);
}

static struct ceov_transfer piece(uint64_t from, uint64_t to, uint64_t n_bytes)
{
	struct ceov_transfer made = testing_transfer(source, target, n_bytes);

	made.source.offset_bytes = from;
	made.target.offset_bytes = to;
	return made;
}

static struct ceov_transfer rows(uint64_t row_bytes, uint64_t n_rows, uint64_t pitch)
{
	struct ceov_transfer made = piece(0, 0, row_bytes);

	made.n_rows = n_rows;
	made.source.pitch_bytes = made.target.pitch_bytes = pitch;
	return made;
}

static void add(const struct ceov_transfer *transfer)
{
	ck_assert_int_eq(ceov_plan_add(plan, transfer), 0);
}

static void expect(ceov_signal *signal, uint32_t index, uint64_t value)
{
	struct ceov_mark mark = testing_mark(signal, index, value);

	ck_assert_int_eq(ceov_plan_expect(plan, &mark), 0);
}

static void refused(const char *text, const char *and_text)
{
	testing_log_clear(&log_of);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_INVALID);
	testing_log_has(&log_of, text, and_text, NULL);
	ck_assert_int_eq(ceov_launch(plan, NULL, NULL), CEOV_ERR_STATE);
}

static void refused_alone(const struct ceov_transfer *transfer, const char *text,
			  const char *and_text)
{
	struct ceov_transfer fine = piece(0, SIZE - 1, 1);

	plan = testing_plan(context, 0);
	add(&fine);
	add(transfer);
	refused(text, and_text);
	ceov_plan_release(plan);
}

/* --- bounds -------------------------------------------------------------- */

START_TEST(test_what_is_outside_is_named_in_bytes)
{
	struct ceov_transfer bad;

	bad = piece(0, 0, SIZE + 1);
	refused_alone(&bad, "1 row of 10001 bytes from offset 0 on", "10000 bytes");
	bad = rows(100, 101, 200);
	bad.source.offset_bytes = 5;
	refused_alone(&bad, "101 rows of 100 bytes, one every 200 bytes, from offset 5 on",
		      "10000 bytes");
}
END_TEST

START_TEST(test_pieces_outside_of_buffers_are_refused)
{
	struct ceov_transfer bad;

	bad = piece(1, 0, SIZE);
	refused_alone(&bad, "transfer 1: source", "outside");
	bad = piece(0, 1, SIZE);
	refused_alone(&bad, "transfer 1: target", "outside");
	bad = piece(SIZE, 0, 1);
	refused_alone(&bad, "transfer 1: source", "outside");
	bad = piece(UINT64_MAX, 0, 2);
	refused_alone(&bad, "transfer 1: source", "outside");
	bad = piece(0, UINT64_MAX - 1, UINT64_MAX);
	refused_alone(&bad, "transfer 1: source", "outside");
	bad = rows(100, 101, 100);
	refused_alone(&bad, "transfer 1: source", "outside");
	bad = rows(1, UINT64_MAX, 1);
	refused_alone(&bad, "transfer 1", "outside");
	bad = rows(2, UINT64_MAX / 2 + 2, 2);   /* (n - 1) * pitch overflows to 2 */
	refused_alone(&bad, "transfer 1", "outside");
	bad = rows(8, 3, UINT64_MAX / 2 + 1);   /* overflows to 0 */
	refused_alone(&bad, "transfer 1", "outside");
	bad = rows(100, 10, 99);
	refused_alone(&bad, "transfer 1: source", "pitch");
	bad = rows(100, 10, 100);
	bad.target.pitch_bytes = 0;
	refused_alone(&bad, "transfer 1: target", "pitch");
}
END_TEST

START_TEST(test_pieces_that_just_fit_are_taken)
{
	struct ceov_transfer fits = rows(100, 100, 100);

	add(&fits);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	plan = testing_plan(context, 0);
	fits = rows(1, SIZE / 7 + 1, 7);
	add(&fits);
	fits = piece(1, 1, 1);          /* the transfer fits between the rows; the pitch of a single
					 * row is not used */
	fits.source.pitch_bytes = UINT64_MAX;
	add(&fits);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

START_TEST(test_what_add_refuses_is_not_added)
{
	struct ceov_transfer bad = piece(0, 0, 8);
	struct ceov_mark mark;

	ck_assert_int_eq(ceov_plan_add(plan, NULL), CEOV_ERR_INVALID);
	bad.struct_bytes--;
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	bad = piece(0, 0, 8);
	bad.source.buffer = NULL;
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 0", "source", "no buffer");
	bad = piece(0, 0, 8);
	bad.then = testing_mark(arrived, 8, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 0", "then",
			"there is no counter 8 of an unshared signal of rank");
	bad.then = testing_mark(arrived, 7, CEOV_VALUE_LIMIT);
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "then", "CEOV_VALUE_LIMIT", NULL);
	bad.then = testing_mark((ceov_signal *)source, 0, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "wants a signal and got a buffer", NULL, NULL);
	bad = rows(8, 0, 8);            /* it must be refused: it would raise its mark without
					 * moving bytes */
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 0: n_rows is 0, and row_bytes 8", "must be 0",
			NULL);
	mark = testing_mark(NULL, 0, 0);
	ck_assert_int_eq(ceov_plan_expect(plan, &mark), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_expect(plan, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_STATE);
	bad = piece(0, 0, 8);
	add(&bad);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_plan_add(plan, &bad), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_STATE);
}
END_TEST

START_TEST(test_a_plan_moves_memory_of_its_rank)
{
	struct ceov_transfer bad = piece(0, 0, 8);
	ceov_plan *none = NULL;

	bad.source.buffer = third;
	refused_alone(&bad, "transfer 1: moves from rank 2 to rank 1", "rank 0");
	ck_assert_int_eq(ceov_plan_create(context, 3, NULL, &none), CEOV_ERR_INVALID);
	ck_assert_ptr_null(none);
	plan = testing_plan(context, 0);
	bad.target.buffer = source;     /* the plan's rank may also pull from a peer */
	add(&bad);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

/* --- handles ------------------------------------------------------------- */

START_TEST(test_released_handles_are_refused)
{
	struct ceov_transfer transfer = piece(0, 0, 8);

	ck_assert_int_eq(ceov_buffer_release(source), 0);
	ck_assert_int_eq(ceov_buffer_release(source), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "buffer was released before", NULL, NULL);
	ck_assert_ptr_null(ceov_buffer_base(source, 0));
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_release(arrived), 0);
	ck_assert_int_eq(ceov_signal_release(arrived), CEOV_ERR_INVALID);
	transfer = testing_transfer(target, target, 0);
	transfer.then = testing_mark(arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), CEOV_ERR_INVALID);
	ceov_plan_release(plan);
	ceov_plan_release(plan);
	testing_log_has(&log_of, "plan was released before", NULL, NULL);
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_launch(plan, NULL, NULL), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_release(NULL), 0);
	ck_assert_int_eq(ceov_signal_release(NULL), 0);
	ceov_plan_release(NULL);
}
END_TEST

START_TEST(test_what_a_plan_names_is_not_released)
{
	struct ceov_transfer transfer = piece(0, 0, 8);

	transfer.source_ready = testing_mark(ready, 0, 1);
	transfer.then = testing_mark(arrived, 0, 1);
	add(&transfer);
	ck_assert_int_eq(ceov_buffer_release(source), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(ready), CEOV_PENDING);
	expect(ready, 0, 1);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_buffer_release(target), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(arrived), CEOV_PENDING);
	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_buffer_release(target), 0);
	ck_assert_int_eq(ceov_buffer_release(source), 0);
	ck_assert_int_eq(ceov_signal_release(arrived), 0);
	ck_assert_int_eq(ceov_signal_release(ready), 0);
}
END_TEST

START_TEST(test_released_handles_stay_recognisable_for_a_while)
{
	ceov_signal *old = testing_signal(context, 0, 1);
	uint32_t i;

	ck_assert_int_eq(ceov_signal_release(old), 0);
	for (i = 0; i < 1000; i++)
		ck_assert_int_eq(ceov_signal_release(testing_signal(context, 0, 1)), 0);
	ck_assert_int_eq(ceov_signal_raise(old, 0, 1), CEOV_ERR_INVALID);
	for (i = 0; i < 2000; i++)      /* their memory is bounded, too */
		ck_assert_int_eq(ceov_signal_release(testing_signal(context, 0, 1)), 0);
}
END_TEST

START_TEST(test_two_handles_are_one_signal)
{
	struct ceov_transfer transfer = piece(0, 0, 8);
	ceov_signal *found = NULL;

	ck_assert_int_eq(ceov_signal_share(arrived, "a"), 0);
	ck_assert_int_eq(ceov_signal_find(context, 1, "a", &found), 0);
	transfer.then = testing_mark(arrived, 0, 1);
	add(&transfer);
	transfer = piece(8, 8, 8);
	transfer.source_ready = testing_mark(found, 0, 1);
	add(&transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	transfer = piece(0, 0, 8);
	transfer.then = testing_mark(arrived, 0, 1);
	plan = testing_plan(context, 0);
	add(&transfer);
	transfer = piece(8, 8, 8);
	transfer.then = testing_mark(found, 0, 1);
	add(&transfer);
	refused("transfers 0 and 1", "both raise counter 0 of signal '");
}
END_TEST

/* --- marks --------------------------------------------------------------- */

START_TEST(test_a_mark_that_nobody_raises_is_refused_until_expected)
{
	struct ceov_transfer waits = piece(0, 0, 8);

	waits.source_ready = testing_mark(ready, 3, 5);
	add(&waits);
	refused("transfer 0: source_ready waits for counter 3 of an unshared signal",
		"to reach 5, which no transfer raises and ceov_plan_expect()");
	expect(ready, 2, 5);
	expect(ready, 3, 4);
	refused("transfer 0: source_ready waits for counter 3 of an unshared signal",
		"to reach 5, which no transfer raises and ceov_plan_expect()");
	expect(ready, 3, 5);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	plan = testing_plan(context, 0);
	waits = piece(0, 0, 8);
	waits.target_free = testing_mark(arrived, 1, 0);
	add(&waits);
	refused("transfer 0: target_free waits for counter 1 of", "to reach 0");
	expect(arrived, 1, 0);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

/* Transfer i waits for counter `after` and raises counter i to 1. */
static void add_link(uint32_t i, uint32_t after)
{
	struct ceov_transfer link = piece(i * 8, i * 8, 8);

	link.source_ready = testing_mark(arrived, after, 1);
	link.then = testing_mark(arrived, i, 1);
	add(&link);
}

START_TEST(test_marks_in_a_circle_are_refused)
{
	struct ceov_transfer self = piece(0, 0, 8);

	add_link(0, 3);
	add_link(1, 0);
	add_link(2, 1);
	add_link(3, 2);
	add_link(4, 3);
	refused("circle", "transfer");
	plan = testing_plan(context, 0);
	self.source_ready = self.then = testing_mark(arrived, 0, 1);
	add(&self);
	refused("transfer 0", "circle");
	plan = testing_plan(context, 0);
	add_link(3, 2);                 /* a chain in reverse order is allowed */
	add_link(2, 1);
	add_link(1, 0);
	expect(arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

START_TEST(test_a_counter_has_one_raiser)
{
	struct ceov_transfer raiser = piece(0, 0, 8);

	raiser.then = testing_mark(arrived, 0, 1);
	add(&raiser);
	raiser = piece(8, 8, 8);
	raiser.then = testing_mark(arrived, 0, 2);
	add(&raiser);
	refused("transfers 0 and 1", "both raise counter 0 of");
	plan = testing_plan(context, 0);
	raiser = piece(0, 0, 8);
	raiser.then = testing_mark(arrived, 0, 1);
	add(&raiser);
	raiser = piece(8, 8, 8);
	raiser.source_ready = testing_mark(arrived, 0, 1);
	raiser.then = testing_mark(arrived, 0, 2);
	add(&raiser);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	plan = testing_plan(context, 0);
	add(&raiser);
	expect(arrived, 0, 1);
	refused("transfer 0", "expected to be raised outside");
}
END_TEST

/* --- overlapping areas --------------------------------------------------- */

START_TEST(test_targets_that_overlap_are_refused)
{
	struct ceov_transfer one = piece(0, 100, 50), two = piece(200, 149, 50);

	add(&one);
	add(&two);
	refused("transfers 0 and 1", "targets overlap and no mark orders them");
	plan = testing_plan(context, 0);
	two = piece(200, 150, 50);
	add(&one);
	add(&two);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	plan = testing_plan(context, 0);
	one.then = testing_mark(arrived, 0, 1);
	two = piece(200, 100, 50);
	two.source_ready = testing_mark(arrived, 0, 1);
	add(&one);
	add(&two);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

START_TEST(test_reading_what_is_written_wants_order)
{
	struct ceov_transfer in = piece(0, 0, 100), out = piece(0, 0, 100);

	in.source.buffer = target;      /* rank 1 -> rank 0 -> rank 2 */
	in.target.buffer = source;
	out.source.buffer = source;
	out.source.offset_bytes = 99;
	out.target.buffer = third;
	add(&out);
	add(&in);
	refused("transfer 0 reads what transfer 1 writes", NULL);
	plan = testing_plan(context, 0);
	in.then = out.source_ready = testing_mark(ready, 0, 1);
	add(&out);
	add(&in);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

START_TEST(test_a_transfer_does_not_overlap_itself)
{
	struct ceov_transfer self = piece(0, 50, 51);

	self.target.buffer = source;
	add(&self);
	refused("transfer 0: its source and target overlap", NULL);
	plan = testing_plan(context, 0);
	self = rows(10, 100, 20);
	self.target.buffer = source;
	self.target.offset_bytes = 10;  /* interleaved with itself: copies in both directions, no
					 * byte twice */
	add(&self);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	plan = testing_plan(context, 0);
	self.target.offset_bytes = 11;
	add(&self);
	refused("transfer 0: its source and target overlap", NULL);
}
END_TEST

#define SMALL 64u

static struct ceov_transfer small_piece(uint64_t *random)
{
	struct ceov_transfer made = rows(1 + testing_below(random, 6),
					 1 + testing_below(random, 5), 0);

	made.source.pitch_bytes = made.row_bytes + testing_below(random, 7);
	made.target.pitch_bytes = made.row_bytes + testing_below(random, 7);
	made.source.offset_bytes = testing_below(random, SIZE - SMALL);
	made.target.offset_bytes = testing_below(random, SMALL);
	return made;
}

/* Counts the writes of each byte; returns whether a byte is written twice. */
static int writes_twice(const struct ceov_transfer *pieces, uint32_t n)
{
	unsigned char counts[4 * SMALL] = { 0 };
	uint32_t i, row, k, twice = 0;
	uint64_t at;

	for (i = 0; i < n; i++) {
		for (row = 0; row < pieces[i].n_rows; row++) {
			at = pieces[i].target.offset_bytes +
				row * pieces[i].target.pitch_bytes;
			for (k = 0; k < pieces[i].row_bytes; k++)
				twice += counts[at + k]++ != 0;
		}
	}
	return twice != 0;
}

START_TEST(test_overlap_of_tiles_is_found_as_by_counting)
{
	uint64_t random = testing_seed();
	struct ceov_transfer pieces[4];
	uint32_t round, i, n, n_refused = 0, n_taken = 0;
	int r;

	for (round = 0; round < 4000; round++) {
		plan = testing_plan(context, 0);
		n = 2 + (uint32_t)testing_below(&random, 3);
		for (i = 0; i < n; i++) {
			pieces[i] = small_piece(&random);
			add(&pieces[i]);
		}
		r = ceov_plan_commit(plan);
		ck_assert_msg((r == CEOV_ERR_INVALID) == writes_twice(pieces, n),
			      "round %u: %u pieces: %s", round, n, ceov_strerror(r));
		n_refused += r != 0;
		n_taken += !r;
		ceov_plan_release(plan);
	}
	ck_assert_uint_gt(n_refused, 100);
	ck_assert_uint_gt(n_taken, 100);
}
END_TEST

START_TEST(test_a_large_plan_is_checked_quickly)
{
	ceov_buffer *wide = testing_buffer(context, 1, 1 << 20);
	struct ceov_transfer link;
	ceov_signal *chain = testing_signal(context, 1, 20000);
	uint32_t i;

	for (i = 0; i < 20000; i++) {
		link = testing_transfer(source, wide, 32);
		link.target.offset_bytes = i * UINT64_C(32);
		link.then = testing_mark(chain, i, 1);
		if (i)
			link.source_ready = testing_mark(chain, i - 1, 1);
		add(&link);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
}
END_TEST

/* --- explain ------------------------------------------------------------- */

START_TEST(test_explain_says_what_was_decided)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .max_chunk_bytes = 1000 };
	struct ceov_transfer transfer = piece(0, 0, 2500);
	char text[2000] = "";
	int pipe_fds[2];
	ssize_t n;

	ck_assert_int_eq(ceov_plan_explain(plan, 1), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	add(&transfer);
	transfer = piece(0, 0, 0);
	transfer.source_ready = testing_mark(ready, 0, 1);
	transfer.then = testing_mark(arrived, 0, 1);
	add(&transfer);
	expect(ready, 0, 1);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(pipe(pipe_fds), 0);
	ck_assert_int_eq(ceov_plan_explain(plan, pipe_fds[1]), 0);
	n = read(pipe_fds[0], text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	while (!strstr(text, "transfer 1") && n > 0) {
		n = read(pipe_fds[0], text + strlen(text), sizeof(text) - 1 - strlen(text));
		ck_assert_int_gt(n, 0);
	}
	ck_assert_msg(strstr(text, "transfer 0: rank 0 -> rank 1, 2500 bytes"), "%s", text);
	ck_assert_msg(strstr(text, "backend host"), "%s", text);
	ck_assert_msg(strstr(text, "at launch"), "%s", text);
	ck_assert_msg(strstr(text, "3 chunks"), "%s", text);
	ck_assert_msg(strstr(text, "transfer 1: moves nothing"), "%s", text);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	ck_assert_int_eq(ceov_plan_explain(plan, -1), CEOV_ERR_SYSTEM);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("plan");
	TCase *all = tcase_create("plan");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_what_is_outside_is_named_in_bytes);
	tcase_add_test(all, test_pieces_outside_of_buffers_are_refused);
	tcase_add_test(all, test_pieces_that_just_fit_are_taken);
	tcase_add_test(all, test_what_add_refuses_is_not_added);
	tcase_add_test(all, test_a_plan_moves_memory_of_its_rank);
	tcase_add_test(all, test_released_handles_are_refused);
	tcase_add_test(all, test_what_a_plan_names_is_not_released);
	tcase_add_test(all, test_released_handles_stay_recognisable_for_a_while);
	tcase_add_test(all, test_two_handles_are_one_signal);
	tcase_add_test(all, test_a_mark_that_nobody_raises_is_refused_until_expected);
	tcase_add_test(all, test_marks_in_a_circle_are_refused);
	tcase_add_test(all, test_a_counter_has_one_raiser);
	tcase_add_test(all, test_targets_that_overlap_are_refused);
	tcase_add_test(all, test_reading_what_is_written_wants_order);
	tcase_add_test(all, test_a_transfer_does_not_overlap_itself);
	tcase_add_test(all, test_overlap_of_tiles_is_found_as_by_counting);
	tcase_add_test(all, test_a_large_plan_is_checked_quickly);
	tcase_add_test(all, test_explain_says_what_was_decided);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
