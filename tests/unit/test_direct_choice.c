/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what is chosen for ops in which SMs move the bytes. */

#include <check.h>
#include <string.h>

#include "ops/compute/direct.h"
#include "ops/kinds.h"
#include "ops/tuning/direct_choice.h"
#include "testing.h"

/* The kernels are made for 1, 4 or 8 vectors of a rank in flight, and where these are several, for
 * those of all ranks at once. Then each thread has as many vectors of the largest span. */
START_TEST(test_vectors_in_flight)
{
	uint64_t random = testing_seed(), span_bytes, at_once;
	struct cei_rates rates = cei_rates_gpu();
	struct cei_op_shape shape = { .kind = &cei_reduce_scatter };
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given) };
	const struct cei_choose_args args = { &shape, &rates, &given };
	uint32_t seen[CEI_DIRECT_FLIGHT + 1] = { 0 }, i;
	struct cei_choice choice;

	for (i = 0; i < 4000; i++) {
		memset(&choice, 0, sizeof(choice));
		shape.n_ranks = 1 + (uint32_t)testing_below(&random, CEI_DIRECT_RANKS_MAX);
		if (i % 2)
			shape.n_ranks = 1 + shape.n_ranks % 6;
		given.n_reduce_blocks = (uint32_t)testing_below(&random, 40);
		span_bytes = testing_below(&random, UINT64_C(1) << testing_below(&random, 34));
		cei_direct_choose(&args, span_bytes, &choice);
		at_once = (uint64_t)choice.n_reduce_blocks * CEI_DIRECT_THREADS * 16;
		ck_assert(choice.direct_each == 1 || choice.direct_each == 4 ||
			  choice.direct_each == 8);
		ck_assert(choice.direct_each == 1 ||
			  (choice.direct_each * shape.n_ranks <= CEI_DIRECT_FLIGHT &&
			   choice.direct_each * at_once <= span_bytes));
		seen[choice.direct_each]++;
	}
	ck_assert(seen[1] && seen[4] && seen[8]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("direct choice");
	TCase *all = tcase_create("choices");

	tcase_add_test(all, test_vectors_in_flight);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
