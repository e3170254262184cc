/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the table of operators: every operator has all functions, and this test covers every
 * operator. */

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/core/graph_cache.h"
#include "ops/core/workspace.h"
#include "ops/gemm/product.h"
#include "ops/kinds.h"
#include "ops/tuning/candidates.h"
#include "ops/tuning/tunings.h"
#include "testing.h"

static const struct cei_op_kind *const kinds[] = {
	&cei_ag_gemm, &cei_gemm_rs, &cei_reduce_scatter, &cei_all_reduce, &cei_all_gather,
	&cei_all_to_all, &cei_gemm_ar, &cei_gemm_a2a, &cei_a2a_gemm, &cei_gemm_marks,
	&cei_moe_dispatch, &cei_moe_combine, &cei_embedding_a2a, &cei_embedding_backward
};

#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

START_TEST(test_no_function_is_missing)
{
	const struct cei_op_kind *kind = kinds[_i];

	ck_assert_msg(kind->shape && kind->fault && kind->row_bytes && kind->scratch_bytes &&
		      kind->pieces && kind->choose && kind->explain && kind->build &&
		      kind->take && kind->job, "%s lacks a function", kind->name);
	ck_assert_uint_le(kind->run_bytes, CEI_GRAPH_OPERANDS_MAX);
	/* What graphs are cached by is read as a whole struct, so a caller's older one must belong
	 * to an operator whose rows the engine counts: it is never captured. */
	ck_assert(!kind->run_first_bytes ||
		  (kind->run_first_bytes < kind->run_bytes && kind->is_counted));
	ck_assert_int_eq(kind->n_stages == 0, kind->is_local);
	ck_assert_uint_le(kind->n_stages, CEI_OP_STAGES_MAX);
	if (kind->trial)
		ck_assert(kind->trial->candidates && kind->trial->sizes && kind->trial->run);
	if (kind->product)
		ck_assert(kind->product->job && kind->lacks && kind->fini);
	if (kind->product && !kind->is_local)
		ck_assert(kind->product->play && kind->trial);
}
END_TEST

/* An operator's key is a part of a line in a stored file, so it must consist of words between
 * slashes. */
START_TEST(test_names_and_keys_are_unique)
{
	const struct cei_op_kind *kind = kinds[_i];
	const char *c;
	int i;

	ck_assert_int_eq(strncmp(kind->name, "ceov_", 5), 0);
	ck_assert_str_eq(kind->name + 5, kind->key);
	ck_assert_int_eq(strncmp(kind->run_call, "ceov_", 5), 0);
	for (c = kind->key; *c; c++)
		ck_assert(islower((unsigned char)*c) || isdigit((unsigned char)*c) || *c == '_');
	for (i = 0; i < _i; i++)
		ck_assert_str_ne(kind->key, kinds[i]->key);
}
END_TEST

/* Counts the kinds in the header, so that a new kind that this test does not cover is noticed. */
START_TEST(test_all_kinds_are_here)
{
	const char *srcdir = getenv("srcdir");
	char path[4096], line[256];
	int n = 0;
	FILE *file;

	snprintf(path, sizeof(path), "%s/src/ops/kinds.h", srcdir ? srcdir : ".");
	file = fopen(path, "r");
	ck_assert_msg(file != NULL, "%s cannot be read", path);
	while (fgets(line, sizeof(line), file))
		n += !strncmp(line, "extern const struct cei_op_kind ", 32);
	fclose(file);
	ck_assert_int_eq(n, KINDS);
}
END_TEST

/* --- an operator made up by this test --------------------------------------- */

static const char *made_up_fault(const struct cei_op_shape *shape)
{
	return shape->rows[0] == 13 ? "13 brings bad luck" : NULL;
}

static uint64_t made_up_row_bytes(const struct cei_op_shape *shape)
{
	(void)shape;
	return 3;
}

static uint32_t made_up_pieces(const struct cei_op_shape *shape)
{
	return shape->n_ranks + 1;
}

static void made_up_choose(const struct cei_choose_args *args, struct cei_choice *choice)
{
	choice->copy_ns = cei_selector_copy_ns(args, choice->n_pieces);
}

static void made_up_candidates(const struct cei_listing *listing)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };

	tuning.mode = CEOV_MODE_OVERLAP;
	tuning.n_pieces = 7;
	cei_candidates_add(listing, &tuning);
}

static const struct cei_op_trial made_up_trial = { .candidates = made_up_candidates };

static const struct cei_op_kind made_up = {
	.name = "ceov_made_up",
	.key = "made_up",
	.n_stages = 3,
	.fault = made_up_fault,
	.row_bytes = made_up_row_bytes,
	.pieces = made_up_pieces,
	.choose = made_up_choose,
	.explain = cei_choice_say_pieces,
	.trial = &made_up_trial,
};

/* Code shared by operators uses only the table: a made-up kind works without further
 * changes. */
START_TEST(test_a_new_kind_needs_its_table_alone)
{
	struct cei_op_shape shape = { .kind = &made_up, .dtype = CEOV_BF16, .n_ranks = 4 };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_candidates candidates;
	char key[CEI_TUNING_KEY_BYTES];
	struct cei_choice choice;

	shape.rows[0] = 13;
	ck_assert_str_eq(cei_op_shape_fault(&shape), "13 brings bad luck");
	shape.rows[0] = 1000;
	ck_assert_ptr_null(cei_op_shape_fault(&shape));
	cei_tuning_key("g", &shape, key);
	ck_assert_ptr_nonnull(strstr(key, "/made_up/bf16/4/"));
	cei_selector_choose(&shape, &rates, NULL, &choice);
	ck_assert_int_eq(choice.mode, CEOV_MODE_OVERLAP);
	ck_assert_uint_eq(choice.n_pieces, 5);
	ck_assert_int_eq(strncmp(choice.text, "pieces: 5 of at most 600 bytes", 30), 0);
	ck_assert_double_ge(choice.copy_ns, 3 * 3 * 5 * rates.mark_ns);
	cei_candidates_list(&shape, &rates, NULL, &candidates);
	ck_assert_uint_eq(candidates.n, 2);
	ck_assert_uint_eq(candidates.tuning[0].n_pieces, 5);
	ck_assert_uint_eq(candidates.tuning[1].n_pieces, 7);
}
END_TEST

/* As many rows as are allowed, in all ranks together, and one step more. */
START_TEST(test_how_many_rows_ranks_may_have)
{
	struct cei_op_shape shape = { .n_ranks = 3, .rows = { 8, 0, 56 } };

	ck_assert_ptr_null(cei_op_rows_fault(&shape, 64, 8));
	ck_assert_ptr_nonnull(cei_op_rows_fault(&shape, 63, 8));
	shape.rows[1] = 8;
	ck_assert_ptr_nonnull(cei_op_rows_fault(&shape, 64, 8));
	ck_assert_ptr_null(cei_op_rows_fault(&shape, 72, 8));
	shape.rows[1] = UINT64_MAX - 7;         /* the sum would wrap */
	ck_assert_ptr_nonnull(cei_op_rows_fault(&shape, 64, 8));
	shape = (struct cei_op_shape){ .n_ranks = 3, .rows = { 8, 4, 56 } };
	ck_assert_ptr_nonnull(cei_op_rows_fault(&shape, 72, 8));
	shape = (struct cei_op_shape){ .n_ranks = 3 };
	ck_assert_ptr_nonnull(cei_op_rows_fault(&shape, 64, 8));
}
END_TEST

int main(void)
{
	Suite *made = suite_create("kinds");
	TCase *table = tcase_create("table");

	tcase_add_loop_test(table, test_no_function_is_missing, 0, KINDS);
	tcase_add_loop_test(table, test_names_and_keys_are_unique, 0, KINDS);
	tcase_add_test(table, test_all_kinds_are_here);
	tcase_add_test(table, test_a_new_kind_needs_its_table_alone);
	tcase_add_test(table, test_how_many_rows_ranks_may_have);
	suite_add_tcase(made, table);
	return testing_run(made);
}
