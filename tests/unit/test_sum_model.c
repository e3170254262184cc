/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the predicted times of sums against measured ones, and the choice between SMs and copy
 * engines. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "ops/kind.h"
#include "ops/kinds.h"
#include "ops/reduce/sum_model.h"
#include "testing.h"

#define MIB (UINT64_C(1) << 20)

static struct cei_op_shape shape_of(const struct cei_op_kind *kind, uint32_t n_ranks,
				    uint64_t bytes)
{
	struct cei_op_shape shape = { .kind = kind, .dtype = CEOV_BF16, .n_ranks = n_ranks };
	uint32_t i;

	for (i = 0; i < n_ranks; i++)
		shape.rows[i] = bytes / 2 / n_ranks;
	shape.sum.scale = 1;
	return shape;
}

static struct cei_rates rates_of_one_node(void)
{
	struct cei_rates rates = cei_rates_gpu();

	rates.has_direct = rates.has_lanes = 1;
	return rates;
}

static struct cei_choice choose(const struct cei_op_shape *shape, const struct cei_rates *rates,
				const struct ceov_op_tuning *tuning)
{
	struct cei_choice choice;

	cei_selector_choose(shape, rates, tuning, &choice);
	return choice;
}

/* By copy engines, in graphs: 2 x H100, 4 x H200 and 8 x H200 (docs/results of 2026-11-26; of eight
 * ranks, from 16 MiB on, docs/internals/operators.md). */
static const struct {
	const struct cei_op_kind *kind;
	uint32_t                  n_ranks;
	uint64_t                  mib;
	double                    us;
} measured[] = {
	{ &cei_reduce_scatter, 2, 4, 24.2 }, { &cei_reduce_scatter, 2, 16, 48.1 },
	{ &cei_reduce_scatter, 2, 64, 130.6 }, { &cei_reduce_scatter, 2, 256, 435.1 },
	{ &cei_all_reduce, 2, 4, 45.6 }, { &cei_all_reduce, 2, 16, 83.1 },
	{ &cei_all_reduce, 2, 64, 247.8 }, { &cei_all_reduce, 2, 256, 806.3 },
	{ &cei_reduce_scatter, 4, 4, 36.0 }, { &cei_reduce_scatter, 4, 16, 69.7 },
	{ &cei_reduce_scatter, 4, 64, 188.5 }, { &cei_reduce_scatter, 4, 256, 613.3 },
	{ &cei_all_reduce, 4, 4, 73.5 }, { &cei_all_reduce, 4, 64, 395.0 },
	{ &cei_all_reduce, 4, 256, 1247.3 },
	{ &cei_reduce_scatter, 8, 4, 58.6 }, { &cei_reduce_scatter, 8, 16, 93.6 },
	{ &cei_reduce_scatter, 8, 64, 235.3 }, { &cei_reduce_scatter, 8, 256, 776.2 },
	{ &cei_all_reduce, 8, 4, 115.5 }, { &cei_all_reduce, 8, 16, 212.5 },
	{ &cei_all_reduce, 8, 64, 473.7 }, { &cei_all_reduce, 8, 256, 1500.6 },
};

START_TEST(test_what_was_measured_is_predicted)
{
	struct cei_op_shape shape = shape_of(measured[_i].kind, measured[_i].n_ranks,
					     measured[_i].mib * MIB);
	const struct ceov_op_tuning open = { .struct_bytes = sizeof(open) };
	struct cei_rates rates = rates_of_one_node();
	const struct cei_choose_args args = { &shape, &rates, &open };
	double us = cei_sum_engines_ns(&args) / 1e3;

	ck_assert_double_ge(us, 0.75 * measured[_i].us);
	ck_assert_double_le(us, 1.2 * measured[_i].us);
}
END_TEST

/* Eight ranks make seven copies one after the other, so SMs are faster; and so they are with few
 * bytes between any ranks. */
START_TEST(test_sms_where_copies_are_many)
{
	static const struct cei_op_kind *const kinds[] = { &cei_reduce_scatter, &cei_all_reduce };
	struct cei_op_shape shape = shape_of(kinds[_i], 8, 64 * MIB);
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice choice = choose(&shape, &rates, NULL);

	ck_assert_int_eq(choice.mode, _i ? CEOV_MODE_TWO_SHOT : CEOV_MODE_DIRECT);
	ck_assert_uint_eq(choice.n_reduce_blocks, 16);
	ck_assert_ptr_nonnull(strstr(choice.text, "(by the model)"));
	ck_assert_ptr_nonnull(strstr(choice.text, "moved by: SMs, 16 of each GPU"));
	shape = shape_of(kinds[_i], 2, MIB);
	ck_assert_int_ne(choose(&shape, &rates, NULL).mode, CEOV_MODE_OVERLAP);
	shape = shape_of(kinds[_i], 2, 256 * MIB);
	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_OVERLAP);
}
END_TEST

START_TEST(test_few_bytes_take_one_step)
{
	struct cei_rates rates = rates_of_one_node();
	struct cei_op_shape shape = shape_of(&cei_all_reduce, 4, MIB / 4);

	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_DIRECT);
	shape = shape_of(&cei_all_reduce, 4, MIB);
	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_TWO_SHOT);
}
END_TEST

/* Pieces and modes that the caller gives are for copy engines unless the mode says otherwise.
 * Several nodes, GPUs without kernels, slow links, few SMs and hosts have no such choice. */
START_TEST(test_never_against_the_caller)
{
	struct cei_op_shape shape = shape_of(&cei_reduce_scatter, 8, 64 * MIB);
	struct cei_rates rates = rates_of_one_node(), other = rates;
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };

	tuning.mode = CEOV_MODE_OVERLAP;
	ck_assert_int_eq(choose(&shape, &rates, &tuning).mode, CEOV_MODE_OVERLAP);
	tuning.mode = CEOV_MODE_CHOOSE;
	tuning.n_pieces = 2;
	ck_assert_int_eq(choose(&shape, &rates, &tuning).mode, CEOV_MODE_OVERLAP);
	tuning.n_pieces = 0;
	other.has_lanes = 0;
	ck_assert_int_eq(choose(&shape, &other, NULL).mode, CEOV_MODE_OVERLAP);
	other = rates;
	other.copy_bytes_per_ns = 50;
	ck_assert_int_eq(choose(&shape, &other, NULL).mode, CEOV_MODE_OVERLAP);
	other = rates;
	other.n_sms = 4;
	ck_assert_int_eq(choose(&shape, &other, NULL).mode, CEOV_MODE_OVERLAP);
	other = cei_rates_host();
	other.has_lanes = 1;
	ck_assert_int_eq(choose(&shape, &other, NULL).mode, CEOV_MODE_OVERLAP);
	shape.sum.by_node = 1;
	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_OVERLAP);
	shape = shape_of(&cei_reduce_scatter, 1, 64 * MIB);
	ck_assert_int_eq(choose(&shape, &rates, NULL).mode, CEOV_MODE_OVERLAP);
}
END_TEST

/* Numbers of SMs that ranks ask for without a mode may differ, so they change neither the mode nor
 * the number that a direct mode takes, which must be the same at all ranks. */
START_TEST(test_all_ranks_choose_alike)
{
	static const struct cei_op_kind *const kinds[] = { &cei_reduce_scatter, &cei_all_reduce };
	struct cei_op_shape shape = shape_of(kinds[_i], 8, 16 * MIB);
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct cei_rates rates = rates_of_one_node();
	struct cei_choice one = choose(&shape, &rates, NULL), other;

	tuning.n_reduce_blocks = 8;
	tuning.chunk_bytes = 1 << 20;
	other = choose(&shape, &rates, &tuning);
	ck_assert_int_ne(one.mode, CEOV_MODE_OVERLAP);
	ck_assert_int_eq(one.mode, other.mode);
	ck_assert_uint_eq(one.n_reduce_blocks, other.n_reduce_blocks);
	ck_assert_uint_eq(one.direct_steps, other.direct_steps);
	ck_assert_uint_eq(one.direct_step_rows, other.direct_step_rows);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("model of sums");
	TCase *all = tcase_create("model of sums");

	tcase_add_loop_test(all, test_what_was_measured_is_predicted, 0,
			    sizeof(measured) / sizeof(measured[0]));
	tcase_add_loop_test(all, test_sms_where_copies_are_many, 0, 2);
	tcase_add_test(all, test_few_bytes_take_one_step);
	tcase_add_test(all, test_never_against_the_caller);
	tcase_add_loop_test(all, test_all_ranks_choose_alike, 0, 2);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
