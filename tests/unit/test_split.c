/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how transfers are cut: every byte once, at its place, no chunk too large. */

#include <check.h>
#include <string.h>

#include "ce_engine/program/program_cut.h"
#include "testing.h"

#define BASE UINT64_C(1000000)

/* Where the byte at this place of the source's rows belongs in the target's. */
static uint64_t target_of(const struct cei_piece *piece, uint64_t at)
{
	if (!piece->source_pitch_bytes)
		return at;
	return at / piece->source_pitch_bytes * piece->target_pitch_bytes +
		at % piece->source_pitch_bytes;
}

static void check_byte_by_byte(const struct cei_piece *piece, uint64_t max_bytes)
{
	static unsigned char seen[4000000];
	uint64_t count = cei_split_count(piece, max_bytes);
	uint64_t i, row, at, there, n_bytes = 0;
	struct cei_piece cut;

	memset(seen, 0, piece->row_bytes * piece->n_rows);
	for (i = 0; i < count; i++) {
		cut = cei_split_at(piece, max_bytes, i);
		if (!cut.n_rows || !cut.row_bytes || cut.row_bytes * cut.n_rows > max_bytes ||
		    (cut.n_rows > 1 && cut.row_bytes != piece->row_bytes))
			ck_abort_msg("chunk %u has %u rows of %u bytes", (uint32_t)i,
				     (uint32_t)cut.n_rows, (uint32_t)cut.row_bytes);
		for (row = 0; row < cut.n_rows; row++) {
			at = cut.source - BASE + row * cut.source_pitch_bytes;
			there = cut.target - 2 * BASE + row * cut.target_pitch_bytes;
			if (there != target_of(piece, at))
				ck_abort_msg("chunk %u goes elsewhere", (uint32_t)i);
			if (piece->source_pitch_bytes)
				at = at / piece->source_pitch_bytes * piece->row_bytes +
					at % piece->source_pitch_bytes;
			if (at + cut.row_bytes > piece->row_bytes * piece->n_rows ||
			    memchr(seen + at, 1, cut.row_bytes))
				ck_abort_msg("chunk %u has bytes of no row, or of others",
					     (uint32_t)i);
			memset(seen + at, 1, cut.row_bytes);
			n_bytes += cut.row_bytes;
		}
	}
	ck_assert_uint_eq(n_bytes, piece->row_bytes * piece->n_rows);
}

START_TEST(test_random_pieces_are_cut_into_every_byte_once)
{
	uint64_t random = testing_seed(), max_bytes;
	struct cei_piece piece;
	uint32_t i;

	for (i = 0; i < testing_share(3000); i++) {
		memset(&piece, 0, sizeof(piece));
		piece.source = BASE;
		piece.target = 2 * BASE;
		piece.n_rows = 1 + testing_below(&random, testing_below(&random, 2) ? 4 : 60);
		piece.row_bytes = 1 + testing_below(&random, 60000);
		if (piece.n_rows > 1) {
			piece.source_pitch_bytes = piece.row_bytes + testing_below(&random, 9);
			piece.target_pitch_bytes = piece.row_bytes + testing_below(&random, 9);
		}
		max_bytes = 1 + testing_below(&random, testing_below(&random, 4) ? 200000
					      : 2000) + (i % 2 ? 500 : 0);
		if (piece.row_bytes * piece.n_rows / max_bytes < 3000)
			check_byte_by_byte(&piece, max_bytes);
	}
}
END_TEST

/* All chunks of a piece, shortened to what belongs to its first n_rows rows, have these rows' bytes
 * and no others. */
static void check_first_rows(const struct cei_piece *piece, uint64_t max_bytes, uint64_t n_rows)
{
	uint64_t i, n_bytes, sum = 0, count = cei_split_count(piece, max_bytes);
	uint64_t pitch = piece->target_pitch_bytes, end;
	struct cei_piece cut;

	for (i = 0; i < count; i++) {
		cut = cei_split_at(piece, max_bytes, i);
		n_bytes = cei_split_bytes_within(piece, &cut, n_rows);
		sum += n_bytes;
		if (!n_bytes)
			continue;
		cut = cei_split_shorten(&cut, n_bytes);
		ck_assert_uint_eq(cut.row_bytes * cut.n_rows, n_bytes);
		end = cut.target - piece->target + (cut.n_rows - 1) * pitch + cut.row_bytes;
		ck_assert_uint_le(end, (n_rows - 1) * pitch + piece->row_bytes);
	}
	ck_assert_uint_eq(sum, n_rows * piece->row_bytes);
}

START_TEST(test_the_first_rows_of_a_piece)
{
	uint64_t random = testing_seed(), max_bytes;
	struct cei_piece piece;
	uint32_t i;

	for (i = 0; i < testing_share(3000); i++) {
		memset(&piece, 0, sizeof(piece));
		piece.source = BASE;
		piece.target = 2 * BASE;
		piece.n_rows = 1 + testing_below(&random, testing_below(&random, 2) ? 4 : 60);
		piece.row_bytes = 1 + testing_below(&random, 60000);
		if (piece.n_rows > 1) {
			piece.source_pitch_bytes = piece.row_bytes + testing_below(&random, 9);
			piece.target_pitch_bytes = piece.row_bytes + testing_below(&random, 9);
		}
		max_bytes = 1 + testing_below(&random, 200000);
		if (piece.row_bytes * piece.n_rows / max_bytes < 3000)
			check_first_rows(&piece, max_bytes,
					 testing_below(&random, piece.n_rows + 1));
	}
}
END_TEST

START_TEST(test_a_piece_of_nothing_is_one_chunk_of_nothing)
{
	struct cei_piece nothing, cut;

	memset(&nothing, 0, sizeof(nothing));
	ck_assert_uint_eq(cei_split_count(&nothing, 1), 1);
	cut = cei_split_at(&nothing, 1, 0);
	ck_assert_uint_eq(cut.row_bytes | cut.n_rows, 0);
}
END_TEST

START_TEST(test_cuts_are_nearly_equal_and_aligned)
{
	struct cei_piece piece = { BASE, 2 * BASE, 1025 * 512, 1, 0, 0 };
	struct cei_piece cut;

	ck_assert_uint_eq(cei_split_count(&piece, 1024 * 512), 2);
	cut = cei_split_at(&piece, 1024 * 512, 0);
	ck_assert_uint_eq(cut.row_bytes % CEI_CUT_ALIGN_BYTES, 0);
	ck_assert_uint_le(cut.row_bytes, 514 * 512);
	piece.row_bytes = 1000;
	piece.n_rows = 11;
	piece.source_pitch_bytes = piece.target_pitch_bytes = 1000;
	ck_assert_uint_eq(cei_split_count(&piece, 10000), 2);
	ck_assert_uint_eq(cei_split_at(&piece, 10000, 0).n_rows, 6);
	ck_assert_uint_eq(cei_split_at(&piece, 10000, 1).n_rows, 5);
}
END_TEST

START_TEST(test_short_rows_bound_a_chunk_as_their_time_does)
{
	struct cei_piece piece = { BASE, 2 * BASE, 1, UINT64_C(4) << 20, 64, 64 };
	struct cei_piece cut;

	ck_assert_uint_eq(cei_split_count(&piece, UINT64_C(16) << 20), 128);
	cut = cei_split_at(&piece, UINT64_C(16) << 20, 127);
	ck_assert_uint_eq(cut.n_rows, 32768);
	ck_assert_uint_eq(cut.source, BASE + UINT64_C(127) * 32768 * 64);
	ck_assert_uint_eq(cei_split_gap_bytes(&cut, 32768), 32768 * 511);
	ck_assert_uint_eq(cei_split_gap_bytes(&cut, 10), 10 * 511);
	/* the limit of a chunk is small: few rows stay together */
	ck_assert_uint_eq(cei_split_count(&piece, 4096), 4096);
	/* a row is counted from its first byte on */
	piece.row_bytes = 100;
	ck_assert_uint_eq(cei_split_gap_bytes(&piece, 101), 2 * 412);
	/* long rows, or one alone, take the time of their bytes */
	piece.row_bytes = CEI_SPLIT_ROW_BYTES;
	ck_assert_uint_eq(cei_split_gap_bytes(&piece, 4096), 0);
	piece.row_bytes = piece.n_rows = 1;
	ck_assert_uint_eq(cei_split_gap_bytes(&piece, 1), 0);
}
END_TEST

START_TEST(test_sizes_beyond_32_bits)
{
	struct cei_piece piece = { 0, 0, UINT64_C(1) << 40, 1, 0, 0 };
	uint64_t max = UINT64_C(64) << 20, count = cei_split_count(&piece, max);
	struct cei_piece last;

	ck_assert_uint_eq(count, (UINT64_C(1) << 40) / max);
	last = cei_split_at(&piece, max, count - 1);
	ck_assert_uint_eq(last.source + last.row_bytes, UINT64_C(1) << 40);
	piece.row_bytes = 4096;
	piece.n_rows = 3;
	piece.source_pitch_bytes = UINT64_C(3) << 30;   /* larger than drivers accept */
	piece.target_pitch_bytes = 4096;
	ck_assert_uint_eq(cei_split_count(&piece, max), 3);
	last = cei_split_at(&piece, max, 2);
	ck_assert_uint_eq(last.source, UINT64_C(6) << 30);
	ck_assert_uint_eq(last.target, 8192);
	ck_assert_uint_eq(last.n_rows, 1);
	ck_assert_uint_eq(cei_split_count(&piece, UINT64_MAX), 3);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("split");
	TCase *all = tcase_create("split");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_random_pieces_are_cut_into_every_byte_once);
	tcase_add_test(all, test_the_first_rows_of_a_piece);
	tcase_add_test(all, test_a_piece_of_nothing_is_one_chunk_of_nothing);
	tcase_add_test(all, test_cuts_are_nearly_equal_and_aligned);
	tcase_add_test(all, test_short_rows_bound_a_chunk_as_their_time_does);
	tcase_add_test(all, test_sizes_beyond_32_bits);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
