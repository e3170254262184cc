/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Choices by the cost model, and the file of measured tunings. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ops/core/op.h"
#include "ops/core/workspace.h"
#include "ops/kinds.h"
#include "ops/tuning/tunings.h"
#include "testing.h"

static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint64_t rows, uint64_t k,
				    uint64_t n)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = 4 };
	uint32_t i;

	for (i = 0; i < shape.n_ranks; i++)
		shape.rows[i] = rows;
	shape.product.k = k;
	shape.product.n_products = 1;
	shape.product.n[0] = n;
	return shape;
}

static struct cei_choice choose(const struct cei_op_shape *shape,
				const struct ceov_op_tuning *tuning)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	cei_selector_choose(shape, &rates, tuning, &choice);
	return choice;
}

/* --- rates of a machine ---------------------------------------------------- */

START_TEST(test_rates_are_the_machines)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096);
	struct cei_choice usual = choose(&shape, NULL), slow, small;
	struct cei_rates rates = cei_rates_gpu();

	/* an unknown value leaves the default */
	cei_rates_take(&rates, 0, 0, 0);
	ck_assert_double_eq(rates.mark_ns, 4200);
	ck_assert_uint_eq(rates.n_sms, 132);
	ck_assert_double_eq(rates.copy_bytes_per_ns, 392);
	cei_rates_take(&rates, 0, UINT64_C(25000000000), 0);
	cei_selector_choose(&shape, &rates, NULL, &slow);
	ck_assert_double_ge(slow.copy_ns, 10 * usual.copy_ns);
	ck_assert_double_ge(slow.run_ns, slow.copy_ns * 0.9);
	rates = cei_rates_gpu();
	cei_rates_take(&rates, 66, 0, 6000);
	ck_assert_double_eq(rates.mark_ns, 7400);
	cei_selector_choose(&shape, &rates, NULL, &small);
	ck_assert_double_ge(small.gemm_ns, 1.7 * usual.gemm_ns);
}
END_TEST

static uint32_t pairs(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	(void)executor;
	(void)shape;
	return 2;
}

static int fits(const struct cei_executor *executor, struct cei_tile_shape shape)
{
	(void)executor;
	return shape.rows == 1;
}

/* A workspace uses the rates that all ranks agreed on, not those of its own executor, because all
 * ranks must cut alike. */
START_TEST(test_rates_of_a_workspace)
{
	struct cei_executor_ops ops = { .pair = pairs, .is_fit = fits };
	static ceov_workspace workspace;
	struct cei_rates rates;

	workspace.executor.ops = &ops;
	workspace.executor.n_sms = 144;
	rates = cei_op_rates(&workspace);
	ck_assert_uint_eq(rates.n_sms, 132);            /* the default, because one rank does not
							 * know the number */
	ck_assert_double_eq(rates.copy_bytes_per_ns, 392);
	workspace.least[CEI_ALLREDUCE_SMS] = 114;
	workspace.least[CEI_ALLREDUCE_COPY_RATE] = UINT64_C(21000000000);
	workspace.least[CEI_ALLREDUCE_COPY_T0] = cei_allreduce_turned(3100);
	rates = cei_op_rates(&workspace);
	ck_assert_uint_eq(rates.n_sms, 114);
	ck_assert_double_eq_tol(rates.copy_bytes_per_ns, 21, 1e-9);
	ck_assert_double_eq(rates.mark_ns, 4500);
	ck_assert_int_eq(rates.has_tiles, 1);
	ck_assert_int_eq(rates.has_library, 1);
	workspace.is_host = 1;
	ck_assert_uint_eq(cei_op_rates(&workspace).n_sms, 0);
}
END_TEST

/* --- choices by the model -------------------------------------------------- */

static uint32_t pieces_by_library(const struct cei_op_shape *shape)
{
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	rates.has_tiles = 0;
	rates.has_library = 1;
	cei_selector_choose(shape, &rates, NULL, &choice);
	return choice.n_pieces;
}

START_TEST(test_pieces_are_some_mebibytes)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096);

	ck_assert_uint_eq(pieces_by_library(&shape), 4);        /* pieces of 16 MiB */
	shape = shape_of(&cei_ag_gemm, 128, 4096, 4096);
	ck_assert_uint_eq(pieces_by_library(&shape), 1);
	shape = shape_of(&cei_ag_gemm, 1 << 20, 8192, 4096);
	ck_assert_uint_eq(pieces_by_library(&shape), 8);
	shape = shape_of(&cei_ag_gemm, 256, 1 << 20, 4096);
	ck_assert_uint_eq(pieces_by_library(&shape), 1);        /* more pieces would cut tiles */
	shape = shape_of(&cei_all_reduce, 16 << 20, 0, 0);
	shape.product.n_products = 0;
	ck_assert_uint_eq(choose(&shape, NULL).n_pieces, 4);
	shape = shape_of(&cei_all_reduce, 6 << 20, 0, 0);
	shape.product.n_products = 0;
	ck_assert_uint_eq(choose(&shape, NULL).n_pieces, 3);    /* pieces of 12 MiB */
	shape.dtype = CEOV_FP32;
	ck_assert_uint_eq(choose(&shape, NULL).n_pieces, 4);    /* pieces of 24 MiB, but at most 4
								 * of them */
	shape = shape_of(&cei_all_reduce, 2 << 20, 0, 0);
	shape.product.n_products = 0;
	shape.dtype = CEOV_FP32;
	ck_assert_uint_eq(choose(&shape, NULL).n_pieces, 2);
}
END_TEST

/* A product that is so long that all copies fit beside it is not cut into pieces. */
START_TEST(test_long_products_have_few_pieces)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 8192, 7168);
	struct cei_choice choice = choose(&shape, NULL);

	ck_assert_uint_eq(choice.n_pieces, 1);
	ck_assert_double_le(choice.run_ns, choice.gemm_ns * 1.01);
	ck_assert_ptr_nonnull(strstr(choice.text, "together"));
}
END_TEST

START_TEST(test_tiles_fill_waves)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 8192, 8192, 8192);
	struct cei_choice choice = choose(&shape, NULL);

	ck_assert_uint_eq(choice.shape.rows, 128);
	ck_assert_uint_eq(choice.shape.columns, 256);
	ck_assert_int_eq(choice.mode, CEOV_MODE_OVERLAP);
	shape = shape_of(&cei_ag_gemm, 256, 8192, 2048);      /* 8 x 8 tiles of the largest shape
							       * would leave SMs idle */
	choice = choose(&shape, NULL);
	ck_assert_uint_eq(choice.shape.columns, 128);           /* 8 x 16 tiles of this shape fill
								 * one wave */
}
END_TEST

static void check_cut(const struct cei_op_shape *shape)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_choice common = choose(shape, NULL), choice;

	if (common.cut.kind != CEOV_CUT_EQUAL)
		ck_abort_msg("pieces are not equal: %s", common.text);
	given.tile_rows = given.tile_columns = 128;
	choice = choose(shape, &given);
	if (choice.n_pieces != common.n_pieces || choice.mode != common.mode)
		ck_abort_msg("a tile that one rank sets changes the cut: %s%s", choice.text,
			     common.text);
	given.tile_rows = given.tile_columns = 0;
	given.n_pieces = 4;
	choice = choose(shape, &given);
	if (choice.n_pieces != 4)
		ck_abort_msg("4 pieces were given: %s", choice.text);
}

/* Ranks may choose different tiles, which does not affect the others; a given number of pieces is
 * kept. */
START_TEST(test_all_ranks_cut_alike)
{
	uint64_t rows, k, n;
	struct cei_op_shape shape;

	for (rows = 128; rows <= 8192; rows *= 2) {
		for (k = 64; k <= 16384; k *= 4) {
			for (n = 64; n <= 16384; n *= 4) {
				shape = shape_of(&cei_ag_gemm, rows, k, n);
				check_cut(&shape);
				shape.kind = &cei_gemm_rs;
				check_cut(&shape);
			}
		}
	}
}
END_TEST

START_TEST(test_what_is_given_is_taken)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 4096, 4096, 4096);
	struct cei_choice choice;

	given.n_pieces = 7;
	given.tile_rows = 128;
	given.tile_columns = 192;
	choice = choose(&shape, &given);
	ck_assert_uint_eq(choice.n_pieces, 7);
	ck_assert_uint_eq(choice.shape.columns, 192);
	ck_assert_ptr_nonnull(strstr(choice.text, "pieces: 7"));
	memset(&given, 0, sizeof(given));
	given.mode = CEOV_MODE_SEQUENCE;
	choice = choose(&shape, &given);
	ck_assert_uint_eq(choice.n_pieces, 1);
	ck_assert_ptr_nonnull(strstr(choice.text, "sequence (as given)"));
}
END_TEST

START_TEST(test_cuts_that_are_given)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .n_pieces = 4 };
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 2048, 4096, 7168);
	struct cei_choice choice = choose(&shape, &given);

	ck_assert_ptr_null(strstr(choice.text, "cut:"));
	given.cut = CEOV_CUT_SHRINKING;
	choice = choose(&shape, &given);
	ck_assert_int_eq(choice.cut.kind, CEOV_CUT_SHRINKING);
	ck_assert_ptr_nonnull(strstr(choice.text, "cut: shrinking (as given), rows 832 576 448 192"
					     "\n"));
	given.cut = CEOV_CUT_GROWING;
	choice = choose(&shape, &given);
	ck_assert_ptr_nonnull(strstr(choice.text, "cut: growing (as given), rows 192 448 576 832"
					     "\n"));
	/* 66 pairs of 128 x 256 tiles are 2.36 rows of 28: waves end behind 2, 4 and 7 */
	given.cut = CEOV_CUT_WAVES;
	given.tile_rows = 128;
	given.tile_columns = 256;
	choice = choose(&shape, &given);
	ck_assert_ptr_nonnull(strstr(choice.text, "cut: waves (as given), rows 512 512 768 256\n"));
	given.n_pieces = 32;
	given.cut = CEOV_CUT_GROWING;
	choice = choose(&shape, &given);
	ck_assert_ptr_nonnull(strstr(choice.text, "cut: growing (as given), rows 64 64 ... 64\n"));
	given.mode = CEOV_MODE_SEQUENCE;        /* one piece, whatever the cut */
	given.n_pieces = 0;
	choice = choose(&shape, &given);
	ck_assert_uint_eq(choice.n_pieces, 1);
	ck_assert_ptr_null(strstr(choice.text, "cut:"));
}
END_TEST

/* By cuBLAS a piece is one product, so its tiles have the rows of the largest piece. */
START_TEST(test_unequal_pieces_by_a_library)
{
	struct ceov_op_tuning given = {
		.struct_bytes = sizeof(given), .n_pieces = 4, .cut = CEOV_CUT_GROWING };
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 2048, 4096, 7168);
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	rates.has_library = 1;
	rates.has_tiles = 0;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.shape.rows, 832);
	given.cut = CEOV_CUT_WAVES;             /* of tiles as the kernels' */
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.shape.rows, 768);
	given.cut = CEOV_CUT_EQUAL;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.shape.rows, 512);
}
END_TEST

START_TEST(test_a_library_takes_whole_rows)
{
	struct cei_op_shape shape = shape_of(&cei_gemm_rs, 1000, 4096, 4096);
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	rates.has_library = 1;
	given.mode = CEOV_MODE_SEQUENCE;
	cei_selector_choose(&shape, &rates, &given, &choice);
	ck_assert_uint_eq(choice.shape.rows, 1024);
	ck_assert_uint_eq(choice.shape.columns, 4096);
	rates.has_tiles = 0;
	cei_selector_choose(&shape, &rates, NULL, &choice);
	ck_assert_uint_eq(choice.shape.columns, 4096);
}
END_TEST

START_TEST(test_every_text_fits)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, UINT64_C(1) << 24, 1 << 30, 1 << 30);
	struct ceov_op_tuning given = {
		.struct_bytes = sizeof(given), .n_pieces = 8, .cut = CEOV_CUT_SHRINKING,
		.tile_order = CEOV_ORDER_TURNS, .band_rows = UINT32_MAX,
		.n_gemm_blocks = UINT32_MAX };
	struct cei_choice choice = choose(&shape, _i ? &given : NULL);

	ck_assert_uint_lt(strlen(choice.text), sizeof(choice.text) - 1);
	ck_assert_int_eq(choice.text[strlen(choice.text) - 1], '\n');
}
END_TEST

/* --- the file of tunings --------------------------------------------------- */

static struct cei_report report;

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void set_up(void)
{
	char folder[200];

	testing_path("cache", folder, sizeof(folder));
	setenv("XDG_CACHE_HOME", folder, 1);
	cei_report_init(&report, drop_line, NULL);
}

static void file_path(char *path, size_t n_bytes)
{
	testing_path("cache/ceoverlap/tunings", path, n_bytes);
}

static void tear_down(void)
{
	char path[200];

	file_path(path, sizeof(path));
	unlink(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	*strrchr(path, '/') = 0;
	rmdir(path);
	cei_report_fini(&report);
}

static struct ceov_op_tuning tuning_of(uint32_t n_pieces)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };

	tuning.mode = CEOV_MODE_OVERLAP;
	tuning.n_pieces = n_pieces;
	tuning.tile_rows = 128;
	tuning.tile_columns = 256;
	return tuning;
}

static void remember(const char *key, uint32_t n_pieces)
{
	struct ceov_op_tuning tuning = tuning_of(n_pieces);

	ck_assert_int_eq(cei_tunings_remember(&report, key, &tuning), 0);
}

static void expect_pieces(const char *key, uint32_t n_pieces)
{
	struct ceov_op_tuning tuning;

	ck_assert_int_eq(cei_tunings_recall(key, &tuning), 0);
	ck_assert_uint_eq(tuning.n_pieces, n_pieces);
	ck_assert_uint_eq(tuning.tile_columns, 256);
	ck_assert_int_eq(tuning.mode, CEOV_MODE_OVERLAP);
}

START_TEST(test_remembered)
{
	struct ceov_op_tuning tuning;

	ck_assert_int_eq(cei_tunings_recall("a", &tuning), CEOV_NONE);
	remember("a", 3);
	remember("b", 4);
	expect_pieces("a", 3);
	remember("a", 5);
	expect_pieces("a", 5);
	expect_pieces("b", 4);
	ck_assert_int_eq(cei_tunings_recall("c", &tuning), CEOV_NONE);
}
END_TEST

START_TEST(test_bad_lines_are_passed_over)
{
	struct ceov_op_tuning tuning;
	char path[200], line[400];
	FILE *file;

	remember("a", 3);
	file_path(path, sizeof(path));
	file = fopen(path, "a");
	ck_assert_ptr_nonnull(file);
	memset(line, 'x', sizeof(line));
	fprintf(file, "b 2 9 1 1 1 1 1 0 0 0 0\nb 2 1 99 0 0 0 1 0 0 0 0\nb 2 1\n\n"
		"b 2 1 1 1 1 1 1 0 0 0 0 more\nb 2 1 1 1 1 1 9 0 0 0 0\n"
		"b 2 1 1 1 1 1 1 5 0 0 0\n%.*s\nb 2 1 2 128 256 0 1 0 0 0 0\n"
		"b 2 1 2 128 256", 399, line);
	fclose(file);
	expect_pieces("a", 3);
	expect_pieces("b", 2);
	remember("c", 1);
	expect_pieces("b", 2);
	ck_assert_int_eq(cei_tunings_recall("x", &tuning), CEOV_NONE);
}
END_TEST

/* Lines of another format are no error. They are dropped when the file is written again. */
START_TEST(test_other_formats_are_passed_over)
{
	struct ceov_op_tuning tuning;
	char path[200], text[200];
	FILE *file;

	remember("a", 3);
	file_path(path, sizeof(path));
	file = fopen(path, "a");
	ck_assert_ptr_nonnull(file);
	fputs("a 1 7 128 256 0\nb 1 7 128 256 0\na 3 1 7 128 256 0 1 0 0 0 0\n", file);
	fclose(file);
	expect_pieces("a", 3);
	ck_assert_int_eq(cei_tunings_recall("b", &tuning), CEOV_NONE);
	remember("c", 4);
	expect_pieces("a", 3);
	file = fopen(path, "r");
	ck_assert_ptr_nonnull(file);
	while (fgets(text, sizeof(text), file))
		ck_assert_ptr_null(strstr(text, " 7 "));
	fclose(file);
}
END_TEST

START_TEST(test_cuts_and_chunks_are_remembered)
{
	struct ceov_op_tuning tuning = tuning_of(4), seen;

	tuning.cut = CEOV_CUT_SHRINKING;
	tuning.chunk_bytes = UINT64_C(1) << 40;
	ck_assert_int_eq(cei_tunings_remember(&report, "a", &tuning), 0);
	ck_assert_int_eq(cei_tunings_recall("a", &seen), 0);
	ck_assert_int_eq(seen.cut, CEOV_CUT_SHRINKING);
	ck_assert_uint_eq(seen.chunk_bytes, UINT64_C(1) << 40);
}
END_TEST

/* Order and budget are stored, too. Lines of other formats, or whose order makes no sense, are as
 * if they were not there. */
START_TEST(test_orders_are_remembered)
{
	static const char *const lines[] = {
		"b 1 2 128 256 0\n", "b 1 1 2 128 256 0 1 0 0 0 0\n",
		"b 3 1 2 128 256 0 1 0 0 0 0\n", "b 2 1 2 128 256 0 1 0 4 0 0\n",
		"b 2 1 2 128 256 0 1 0 2 64 0\n",
		"b 2 1 2 128 256 0 1 0 1 64 1\n", "b 2 1 2 128 256 0 1 0 1 64\n"
	};
	struct ceov_op_tuning tuning = tuning_of(3), seen;
	char path[200];
	FILE *file;
	uint32_t i;

	tuning.tile_order = CEOV_ORDER_TURNS;
	tuning.band_rows = 512;
	tuning.n_gemm_blocks = 64;
	ck_assert_int_eq(cei_tunings_remember(&report, "a", &tuning), 0);
	file_path(path, sizeof(path));
	for (i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		file = fopen(path, "a");
		ck_assert_ptr_nonnull(file);
		ck_assert_int_ge(fputs(lines[i], file), 0);
		ck_assert_int_eq(fclose(file), 0);
		ck_assert_int_eq(cei_tunings_recall("b", &seen), CEOV_NONE);
	}
	ck_assert_int_eq(cei_tunings_recall("a", &seen), 0);
	ck_assert_int_eq(seen.tile_order, CEOV_ORDER_TURNS);
	ck_assert_uint_eq(seen.band_rows, 512);
	ck_assert_uint_eq(seen.n_gemm_blocks, 64);
}
END_TEST

START_TEST(test_the_file_is_bounded)
{
	struct ceov_op_tuning tuning;
	char key[32], path[200];
	struct stat facts;
	uint32_t i;

	for (i = 0; i < CEI_TUNINGS_MAX + 10; i++) {
		snprintf(key, sizeof(key), "key%u", i);
		remember(key, 1 + i % 8);
	}
	expect_pieces(key, 1 + (i - 1) % 8);
	ck_assert_int_eq(cei_tunings_recall("key9", &tuning), CEOV_NONE);
	expect_pieces("key10", 1 + 10 % 8);
	file_path(path, sizeof(path));
	ck_assert_int_eq(stat(path, &facts), 0);
	ck_assert_int_lt(facts.st_size, 64 * (int)CEI_TUNINGS_MAX);
}
END_TEST

START_TEST(test_no_folder)
{
	struct ceov_op_tuning tuning = tuning_of(1);

	setenv("XDG_CACHE_HOME", "/proc/none", 1);
	ck_assert_int_eq(cei_tunings_recall("a", &tuning), CEOV_NONE);
	ck_assert_int_eq(cei_tunings_remember(&report, "a", &tuning), CEOV_ERR_SYSTEM);
	unsetenv("XDG_CACHE_HOME");
	unsetenv("HOME");
	ck_assert_int_eq(cei_tunings_remember(&report, "a", &tuning), CEOV_ERR_SYSTEM);
}
END_TEST

START_TEST(test_keys)
{
	struct cei_op_shape shape = shape_of(&cei_ag_gemm, 2048, 4096, 4096), other = shape;
	char key[CEI_TUNING_KEY_BYTES], second[CEI_TUNING_KEY_BYTES];

	cei_tuning_key("Some GPU\tof ours", &shape, key);
	ck_assert_ptr_null(strpbrk(key, " \t\n"));
	other.rows[1]--;
	other.rows[2]++;
	cei_tuning_key("Some GPU\tof ours", &other, second);
	ck_assert_str_ne(key, second);
	cei_tuning_key("another", &shape, second);
	ck_assert_str_ne(key, second);
	other = shape;
	other.product.b_is_k_by_n = 1;
	cei_tuning_key("Some GPU\tof ours", &other, second);
	ck_assert_str_ne(key, second);
	ck_assert_ptr_nonnull(strstr(second, "/ag_gemm_kn/"));
	other = shape_of(&cei_all_reduce, 4096, 0, 0);
	other.dtype = CEOV_FP32;
	cei_tuning_key("g", &other, second);
	ck_assert_ptr_nonnull(strstr(second, "/all_reduce/fp32/"));
	remember(key, 6);
	expect_pieces(key, 6);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("chooser");
	TCase *model = tcase_create("model"), *file = tcase_create("file");

	tcase_add_test(model, test_rates_are_the_machines);
	tcase_add_test(model, test_rates_of_a_workspace);
	tcase_add_test(model, test_pieces_are_some_mebibytes);
	tcase_add_test(model, test_long_products_have_few_pieces);
	tcase_add_test(model, test_tiles_fill_waves);
	tcase_add_test(model, test_all_ranks_cut_alike);
	tcase_add_test(model, test_what_is_given_is_taken);
	tcase_add_test(model, test_cuts_that_are_given);
	tcase_add_test(model, test_unequal_pieces_by_a_library);
	tcase_add_test(model, test_a_library_takes_whole_rows);
	tcase_add_loop_test(model, test_every_text_fits, 0, 2);
	suite_add_tcase(made, model);
	tcase_add_checked_fixture(file, set_up, tear_down);
	tcase_set_timeout(file, 60);
	tcase_add_test(file, test_remembered);
	tcase_add_test(file, test_bad_lines_are_passed_over);
	tcase_add_test(file, test_other_formats_are_passed_over);
	tcase_add_test(file, test_cuts_and_chunks_are_remembered);
	tcase_add_test(file, test_orders_are_remembered);
	tcase_add_test(file, test_the_file_is_bounded);
	tcase_add_test(file, test_no_folder);
	tcase_add_test(file, test_keys);
	suite_add_tcase(made, file);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
