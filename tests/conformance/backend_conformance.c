/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of copies, posts and reaping; backend_gates.c has those of waiting lanes. */

#include "backend_conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/waits.h"
#include "backend_rig.h"
#include "base/clock.h"
#include "base/cuda_driver.h"

#define SKIPPED 77

/* --- copies -------------------------------------------------------------- */

START_TEST(test_table_is_complete)
{
	const struct cei_place_ops *ops = rig.ops;
	const struct cei_lane_ops *lanes = ops->lanes;

	ck_assert(ops->name && ops->open && ops->close);
	ck_assert(ops->store && ops->load && ops->staging_open && ops->staging_close);
	ck_assert(lanes->open && lanes->close && lanes->copy);
	ck_assert(lanes->post && lanes->submit && lanes->reap && lanes->drain);
	ck_assert(lanes->stop && lanes->is_idle);
}
END_TEST

START_TEST(test_copy_writes_its_bytes_and_no_others)
{
	rig_fill(rig_at(0, 0), BYTES, 1);
	rig_fill(rig_at(1, 0), BYTES, 2);
	rig_copy(0, rig_at(1, 4096), rig_at(0, 4096), BYTES - 8192);
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(0, 0), BYTES, 1);
	rig_check(rig_at(1, 0), 4096, 2);
	rig_check(rig_at(1, 4096), BYTES - 8192, 1 + 4096 / 8);
	rig_check(rig_at(1, BYTES - 4096), 4096, 2 + (BYTES - 4096) / 8);
}
END_TEST

START_TEST(test_later_copies_begin_when_earlier_are_done)
{
	uint64_t half = BYTES / 2;
	uint32_t i;

	rig_fill(rig_at(0, 0), half, 3);
	for (i = 0; i < 20; i++) {      /* copies to and fro between two areas, all in one submit */
		rig_copy(0, rig_at(1, i % 2 * half), rig_at(0, i % 2 * half), half);
		rig_copy(0, rig_at(0, (i + 1) % 2 * half), rig_at(1, i % 2 * half), half);
	}
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(0, 0), half, 3);
	rig_check(rig_at(1, half), half, 3);
}
END_TEST

START_TEST(test_pieces_of_one_call_all_move)
{
	struct cei_piece pieces[GROUP];
	uint64_t part = BYTES / GROUP / 8 * 8;
	uint32_t i;

	rig_fill(rig_at(0, 0), BYTES, 4);
	rig_fill(rig_at(1, 0), BYTES, 5);
	for (i = 0; i < GROUP; i++)     /* pieces in reverse order; the last one copies onto
					 * itself */
		pieces[i] = rig_piece(rig_at(1, (GROUP - 1 - i) * part), rig_at(0, i * part), part);
	ck_assert_int_eq(rig.ops->lanes->copy(&rig.lane[0], pieces, GROUP - 1), 0);
	rig_reap(0, rig_submit(0));
	for (i = 0; i + 1 < GROUP; i++)
		rig_check(rig_at(1, (GROUP - 1 - i) * part), part, 4 + i * part / 8);
	rig_check(rig_at(1, 0), part, 5);
}
END_TEST

/* Computes a copy byte by byte, as the reference. */
static void copy_model(unsigned char *target, const unsigned char *source,
		       const struct cei_piece *piece)
{
	uint64_t i;

	for (i = 0; i < piece->n_rows; i++)
		memcpy(target + i * piece->target_pitch_bytes,
		       source + i * piece->source_pitch_bytes, piece->row_bytes);
}

/* Makes a random piece within the two regions. */
static struct cei_piece random_piece(uint64_t *source, uint64_t *target)
{
	struct cei_piece piece;

	memset(&piece, 0, sizeof(piece));
	piece.n_rows = 1 + testing_below(&rig.random, 40);
	piece.row_bytes = 1 + testing_below(&rig.random, 3000);
	piece.source_pitch_bytes = piece.row_bytes + testing_below(&rig.random, 500);
	piece.target_pitch_bytes = piece.row_bytes + testing_below(&rig.random, 500);
	if (piece.n_rows == 1)          /* a single row's pitch is not used, so any value must do */
		piece.source_pitch_bytes = piece.target_pitch_bytes = 0;
	*source = testing_below(&rig.random, BYTES - 40 * 3500);
	*target = testing_below(&rig.random, BYTES - 40 * 3500);
	piece.source = rig_at(0, *source);
	piece.target = rig_at(1, *target);
	return piece;
}

START_TEST(test_any_rows_pitches_and_alignments_move_exactly)
{
	unsigned char *from = malloc(BYTES), *to = malloc(BYTES), *seen = malloc(BYTES);
	uint64_t source, target;
	struct cei_piece piece;
	uint32_t i;

	ck_assert(from && to && seen);
	rig_fill(rig_at(0, 0), BYTES, 6);
	rig_fill(rig_at(1, 0), BYTES, 7);
	testing_fill(from, BYTES, 6);
	testing_fill(to, BYTES, 7);
	for (i = 0; i < 200; i++) {
		piece = random_piece(&source, &target);
		copy_model(to + target, from + source, &piece);
		ck_assert_int_eq(rig.ops->lanes->copy(&rig.lane[0], &piece, 1), 0);
		rig_reap(0, rig_submit(0));
	}
	ck_assert_int_eq(rig.ops->load(&rig.backend, rig_at(1, 0), seen, BYTES), 0);
	ck_assert_int_eq(memcmp(seen, to, BYTES), 0);
	free(from);
	free(to);
	free(seen);
}
END_TEST

/* Makes more streams wait than there are hardware queues. A backend that counts waiting streams may
 * from then on issue small copies and writes in another way. */
static void let_many_streams_wait(void)
{
	static const char names[CEI_WAITS_QUEUES_MAX];
	uint32_t i;

	for (i = 0; i < CEI_WAITS_QUEUES_MAX; i++)
		(void)cei_waits_enter(cei_waits_of(rig.backend.place.index), &names[i]);
}

/* Copies from host memory to the backend's memory and back. */
static void copy_by_host(const struct cei_region *host, uint64_t n_bytes, uint64_t seed)
{
	const uint64_t offset = testing_below(&rig.random, 64);

	rig_fill(rig_at(0, 64), n_bytes, seed);
	rig_copy(0, host->address[0] + offset, rig_at(0, 64), n_bytes);
	rig_copy(0, rig_at(1, offset), host->address[0] + offset, n_bytes);
	rig_post(0, 0, seed);
	rig_reap(0, rig_submit(0));
	ck_assert_uint_eq(rig_value(0), seed);
	rig_check(rig_at(1, offset), n_bytes, seed);
}

START_TEST(test_copies_of_any_size_while_many_streams_wait)
{
	struct cei_region host;
	uint64_t n_bytes;
	uint32_t i;

	memset(&host, 0, sizeof(host));
	rig_make_region(&host, CEOV_PLACE_HOST, BYTES);
	let_many_streams_wait();
	for (i = 1; i <= 300; i++) {
		n_bytes = i < 100 ? i : 1 + testing_below(&rig.random, BYTES - 64) / (i % 7 + 1);
		rig_fill(rig_at(1, 0), 64 + n_bytes, 0);
		copy_by_host(&host, n_bytes, i);
	}
	cei_region_fini(&host);
}
END_TEST

START_TEST(test_an_empty_piece_moves_nothing_and_is_done)
{
	rig_fill(rig_at(1, 0), 4096, 8);
	rig_copy(0, rig_at(1, 64), rig_at(0, 64), 0);
	rig_post(0, 0, 5);
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(1, 0), 4096, 8);
	ck_assert_uint_eq(rig_value(0), 5);
}
END_TEST

START_TEST(test_load_reads_what_store_wrote)
{
	uint64_t offset, n_bytes;
	uint32_t i;

	rig_fill(rig_at(0, 0), BYTES, 9);
	for (i = 0; i < 300; i++) {
		offset = testing_below(&rig.random, BYTES / 16) * 8;
		n_bytes = 1 + testing_below(&rig.random, 2000);
		rig_fill(rig_at(0, offset), n_bytes, i);
		rig_check(rig_at(0, offset), n_bytes, i);
	}
}
END_TEST

/* --- posts and reaping --------------------------------------------------- */

START_TEST(test_post_comes_after_its_copies)
{
	uint32_t k;

	for (k = 1; k <= 20; k++) {
		rig_fill(rig_at(0, 0), BYTES, k);
		rig_copy(0, rig_at(1, 0), rig_at(0, 0), BYTES);
		rig_post(0, 0, k);
		(void)rig_submit(0);
		rig_reach(0, k);
		rig_check(rig_at(1, 0), BYTES, k);
	}
	rig_reap(0, 20);
}
END_TEST

START_TEST(test_word_is_written_beside_the_counter)
{
	struct cei_post made[2] = {
		{ rig_counter_at(3), rig.words.address[0] + 24, CEOV_VALUE_LIMIT - 1 },
		{ rig_counter_at(4), 0, 17 },
	};

	rig_fill(rig_at(0, 0), BYTES, 10);
	rig_copy(0, rig_at(1, 0), rig_at(0, 0), BYTES);
	ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[0], made, 2), 0);
	(void)rig_submit(0);
	while (!rig_word(3))
		cei_relax();
	rig_check(rig_at(1, 0), BYTES, 10);
	rig_reap(0, 1);
	ck_assert_uint_eq(rig_word(3), CEOV_VALUE_LIMIT - 1);
	ck_assert_uint_eq(rig_value(3), CEOV_VALUE_LIMIT - 1);
	ck_assert_uint_eq(rig_value(4), 17);
	ck_assert_uint_eq(rig_word(4), 0);
	ck_assert_uint_eq(rig_word(2), 0);
	ck_assert_uint_eq(rig_value(2), 0);
}
END_TEST

START_TEST(test_an_engines_full_group_goes_in_one_submit)
{
	struct cei_piece pieces[GROUP];
	struct cei_post posts[GROUP];
	uint32_t i, k;

	for (k = 1; k <= 50; k++) {
		rig_fill(rig_at(0, 0), GROUP * 1024, k);
		for (i = 0; i < GROUP; i++) {
			pieces[i] = rig_piece(rig_at(1, i * 1024), rig_at(0, i * 1024), 1024);
			posts[i] = (struct cei_post){ rig_counter_at(i), 0, k + i };
		}
		if (rig_has_gates())
			rig_await(GATE, COUNTERS - 1, k);
		ck_assert_int_eq(rig.ops->lanes->copy(&rig.lane[GATE], pieces, GROUP), 0);
		ck_assert_int_eq(rig.ops->lanes->post(&rig.lane[GATE], posts, GROUP), 0);
		(void)rig_submit(GATE);
		rig_raise(COUNTERS - 1, k);
		rig_reap(GATE, k);
		rig_check(rig_at(1, 0), GROUP * 1024, k);
		for (i = 0; i < GROUP; i++)
			ck_assert_uint_eq(rig_value(i), k + i);
	}
}
END_TEST

START_TEST(test_reap_counts_submits)
{
	uint64_t seen, last = 0;
	uint32_t i;

	ck_assert_uint_eq(rig_reaped(0), 0);
	for (i = 0; i < CEI_LANE_SUBMITS; i++) {
		rig_copy(0, rig_at(1, i * 512), rig_at(0, i * 512), 512);
		rig_post(0, 0, i + 1);
		(void)rig_submit(0);
	}
	do {
		seen = rig_reaped(0);
		ck_assert_uint_ge(seen, last);
		ck_assert_uint_ge(rig_value(0), seen);
		last = seen;
	} while (seen < CEI_LANE_SUBMITS);
	ck_assert_uint_eq(rig_reaped(1), 0);
}
END_TEST

START_TEST(test_a_submit_of_nothing_is_done)
{
	rig_reap(0, rig_submit(0));
	rig_reap(0, rig_submit(0));
	rig_reap(GATE, rig_submit(GATE));
}
END_TEST

START_TEST(test_a_submit_is_not_done_before_it_is_made)
{
	rig_fill(rig_at(0, 0), 4096, 11);
	rig_fill(rig_at(1, 0), 4096, 12);
	rig_reap(0, rig_submit(0));
	ck_assert_uint_eq(rig_reaped(0), 1);
	rig_copy(0, rig_at(1, 0), rig_at(0, 0), 4096);
	rig_post(0, 0, 1);
	rig_pause();
	ck_assert_uint_eq(rig_reaped(0), 1);
	rig_reap(0, rig_submit(0));
	rig_check(rig_at(1, 0), 4096, 11);
	ck_assert_uint_eq(rig_value(0), 1);
}
END_TEST

START_TEST(test_a_counter_is_never_seen_to_fall)
{
	uint64_t seen, last = 0;
	uint32_t i, k;

	for (k = 0; k < 40; k++) {
		for (i = 0; i < CEI_LANE_SUBMITS; i++) {
			rig_post(0, 0, k * CEI_LANE_SUBMITS + i + 1);
			(void)rig_submit(0);
		}
		while (rig_reaped(0) < (k + 1) * CEI_LANE_SUBMITS) {
			seen = rig_value(0);
			ck_assert_uint_ge(seen, last);
			last = seen;
		}
	}
	ck_assert_uint_eq(rig_value(0), 40 * CEI_LANE_SUBMITS);
}
END_TEST

START_TEST(test_a_lane_lasts_thousands_of_rounds)
{
	uint32_t k;

	rig_fill(rig_at(0, 0), 64 * 1024, 13);
	for (k = 1; k <= 5000; k++) {
		rig_copy(0, rig_at(1, k % 61 * 1000), rig_at(0, k % 61 * 1000), 1000);
		rig_post(0, k % 7, k);
		rig_reap(0, rig_submit(0));
	}
	ck_assert_uint_eq(rig_reaped(0), 5000);
	ck_assert_uint_eq(rig_value(5000 % 7), 5000);
	rig_check(rig_at(1, 1000), 60 * 1000, 13 + 125);
}
END_TEST

static Suite *suite_of_cases(void)
{
	static char name[64];
	Suite *suite;
	TCase *copies = tcase_create("copies");
	TCase *posts = tcase_create("posts");

	snprintf(name, sizeof(name), "backend %s", rig.ops->name);
	suite = suite_create(name);
	tcase_add_checked_fixture(copies, rig_open, rig_close);
	tcase_set_timeout(copies, 60);
	tcase_add_test(copies, test_table_is_complete);
	tcase_add_test(copies, test_copy_writes_its_bytes_and_no_others);
	tcase_add_test(copies, test_later_copies_begin_when_earlier_are_done);
	tcase_add_test(copies, test_pieces_of_one_call_all_move);
	tcase_add_test(copies, test_any_rows_pitches_and_alignments_move_exactly);
	tcase_add_test(copies, test_copies_of_any_size_while_many_streams_wait);
	tcase_add_test(copies, test_an_empty_piece_moves_nothing_and_is_done);
	tcase_add_test(copies, test_load_reads_what_store_wrote);
	suite_add_tcase(suite, copies);
	tcase_add_checked_fixture(posts, rig_open, rig_close);
	tcase_set_timeout(posts, 60);
	tcase_add_test(posts, test_post_comes_after_its_copies);
	tcase_add_test(posts, test_word_is_written_beside_the_counter);
	tcase_add_test(posts, test_an_engines_full_group_goes_in_one_submit);
	tcase_add_test(posts, test_reap_counts_submits);
	tcase_add_test(posts, test_a_submit_of_nothing_is_done);
	tcase_add_test(posts, test_a_submit_is_not_done_before_it_is_made);
	tcase_add_test(posts, test_a_counter_is_never_seen_to_fall);
	tcase_add_test(posts, test_a_lane_lasts_thousands_of_rounds);
	suite_add_tcase(suite, posts);
	rig_add_gate_cases(suite);
	rig_add_stream_cases(suite);
	rig_add_cap_cases(suite);
	return suite;
}

/* Returns whether the machine has such a place. Looks in a child process, because an opened driver
 * does not survive the forks of the cases. */
static int is_there(enum ceov_place_kind kind)
{
	struct cei_report report;
	struct cei_cuda *cuda = NULL;
	const char *why = "";
	int r, status = 0;
	pid_t child;

	if (kind == CEOV_PLACE_HOST)
		return 1;
	child = fork();
	if (!child) {
		cei_report_init(&report, NULL, NULL);
		r = cei_cuda_open(&report, &cuda, &why);
		if (r)
			printf("no GPU to test with: %s\n", why);
		fflush(stdout);
		_exit(r != 0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && !status;
}

int conformance_run(const struct cei_place_ops *ops)
{
	if (!ops) {
		printf("this build does not have the backend\n");
		return SKIPPED;
	}
	rig.kind = cei_backend_serves(ops, CEOV_PLACE_HOST) ? CEOV_PLACE_HOST : CEOV_PLACE_GPU;
	if (!is_there(rig.kind))
		return SKIPPED;
	rig.ops = ops;
	return testing_run(suite_of_cases());
}
