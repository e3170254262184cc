/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of operators: each has all functions, and none is missing here. */

#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kinds.h"
#include "ops/product.h"
#include "ops/replays.h"
#include "ops/workspace.h"
#include "testing.h"

static const struct cei_op_kind *const kinds[] = {
	&cei_ag_gemm, &cei_gemm_rs, &cei_reduce_scatter, &cei_all_reduce, &cei_all_gather,
	&cei_all_to_all
};

#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

START_TEST(test_no_function_is_missing)
{
	const struct cei_op_kind *kind = kinds[_i];

	ck_assert_msg(kind->shape && kind->fault && kind->row_bytes && kind->scratch_bytes &&
		      kind->pieces && kind->choose && kind->explain && kind->build &&
		      kind->take && kind->job, "%s lacks a function", kind->name);
	ck_assert_uint_le(kind->run_bytes, CEI_REPLAY_OPERANDS_MAX);
	ck_assert_uint_ge(kind->n_phases, 1);
	ck_assert_uint_le(kind->n_phases, CEI_OP_PHASES_MAX);
	if (kind->trial)
		ck_assert(kind->trial->candidates && kind->trial->sizes && kind->trial->run);
	if (kind->product)
		ck_assert(kind->product->play && kind->product->job && kind->trial &&
			  kind->lacks && kind->fini);
}
END_TEST

/* A key is a part of a path of words between slashes, in a file that is kept. */
START_TEST(test_names_and_keys_are_unique)
{
	const struct cei_op_kind *kind = kinds[_i];
	const char *c;
	int i;

	ck_assert_int_eq(strncmp(kind->name, "ceov_", 5), 0);
	ck_assert_str_eq(kind->name + 5, kind->key);
	ck_assert_int_eq(strncmp(kind->run_call, "ceov_", 5), 0);
	for (c = kind->key; *c; c++)
		ck_assert(islower((unsigned char)*c) || *c == '_');
	for (i = 0; i < _i; i++)
		ck_assert_str_ne(kind->key, kinds[i]->key);
}
END_TEST

/* The header has a line for each kind: those that are not tested here are missed. */
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

int main(void)
{
	Suite *made = suite_create("kinds");
	TCase *table = tcase_create("table");

	tcase_add_loop_test(table, test_no_function_is_missing, 0, KINDS);
	tcase_add_loop_test(table, test_names_and_keys_are_unique, 0, KINDS);
	tcase_add_test(table, test_all_kinds_are_here);
	suite_add_tcase(made, table);
	return testing_run(made);
}
