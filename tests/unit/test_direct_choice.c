/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what is chosen for ops in which SMs move the bytes: vectors in flight, and steps. */

#include <check.h>
#include <string.h>

#include "ops/compute/direct.h"
#include "ops/kinds.h"
#include "ops/tuning/direct_choice.h"
#include "testing.h"

#define MIB (UINT64_C(1) << 20)

/* The kernels are made for 1, 4 or 8 vectors of a rank in flight, and where these are several, for
 * those of all ranks at once. Then each thread has as many vectors of the largest span. */
START_TEST(test_vectors_in_flight)
{
	uint64_t random = testing_seed(), span_bytes, at_once;
	struct cei_rates rates = cei_rates_gpu();
	struct cei_op_shape shape = { .kind = &cei_reduce_scatter };
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .mode = CEOV_MODE_DIRECT };
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

/* --- bytes with the number of the run ------------------------------------------- */

static struct cei_choice choose_ll_with(const struct cei_rates *rates, uint32_t n_ranks,
					int all_send, uint64_t span_bytes)
{
	struct cei_op_shape shape = { .kind = &cei_all_to_all, .n_ranks = n_ranks };
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .mode = CEOV_MODE_DIRECT };
	const struct cei_choose_args args = { &shape, rates, &given };
	struct cei_choice choice;

	memset(&choice, 0, sizeof(choice));
	choice.mode = given.mode;
	cei_direct_choose(&args, span_bytes, &choice);
	cei_direct_choose_ll(&args, all_send, span_bytes, &choice);
	return choice;
}

static struct cei_choice choose_ll(uint32_t n_ranks, int all_send, uint64_t span_bytes,
				   uint32_t n_sms)
{
	struct cei_rates rates = cei_rates_gpu();

	rates.n_sms = n_sms;
	return choose_ll_with(&rates, n_ranks, all_send, span_bytes);
}

/* Up to 384 KiB to all peers of 2 to 8 GPUs, some to each; one SM for each 8 KiB, at most 16. */
START_TEST(test_what_travels_with_the_number)
{
	const uint64_t most = UINT64_C(384) << 10;
	uint32_t n_ranks;
	uint64_t span_bytes;

	for (n_ranks = 2; n_ranks <= CEI_DIRECT_LL_RANKS_MAX; n_ranks++) {
		span_bytes = most / (n_ranks - 1) / 16 * 16;
		ck_assert_uint_eq(cei_direct_ll_span_max(n_ranks), span_bytes);
		ck_assert(choose_ll(n_ranks, 1, span_bytes, 132).direct_ll);
		ck_assert_uint_eq(choose_ll(n_ranks, 1, span_bytes, 132).n_reduce_blocks, 16);
		ck_assert_uint_eq(choose_ll(n_ranks, 1, span_bytes, 5).n_reduce_blocks, 5);
		ck_assert(!choose_ll(n_ranks, 1, span_bytes + 16, 132).direct_ll);
		ck_assert(!choose_ll(n_ranks, 0, span_bytes, 132).direct_ll);
		ck_assert(!choose_ll(n_ranks, 1, span_bytes, 0).direct_ll);
	}
	ck_assert(!choose_ll(1, 1, 16, 132).direct_ll);
	ck_assert(!choose_ll(CEI_DIRECT_LL_RANKS_MAX + 1, 1, 16, 132).direct_ll);
	ck_assert_uint_eq(choose_ll(2, 1, 8192, 132).n_reduce_blocks, 1);
	ck_assert_uint_eq(choose_ll(2, 1, 8208, 132).n_reduce_blocks, 2);
	ck_assert_uint_eq(choose_ll(8, 1, 8192, 132).n_reduce_blocks, 7);
}
END_TEST

/* Over PCIe a store of 16 bytes may arrive in two halves, the number before the bytes. */
START_TEST(test_only_nvlinks_carry_the_number)
{
	struct cei_rates rates = cei_rates_gpu();

	ck_assert_uint_eq(choose_ll_with(&rates, 2, 1, 1024).direct_ll, 1);
	rates.has_packets = 0;
	ck_assert_uint_eq(choose_ll_with(&rates, 2, 1, 1024).direct_ll, 0);
}
END_TEST

static uint32_t is_ll(struct cei_op_shape *shape, enum ceov_op_mode mode)
{
	struct ceov_op_tuning given = { .struct_bytes = sizeof(given), .mode = mode };
	struct cei_rates rates = cei_rates_gpu();
	struct cei_choice choice;

	cei_selector_choose(shape, &rates, &given, &choice);
	ck_assert_int_eq((int)choice.direct_ll,
			 strstr(choice.text, "together with the number") != NULL);
	return choice.direct_ll;
}

/* Operators whose runs take one step, and in which every rank has bytes for every other one. */
START_TEST(test_which_operators_send_the_number)
{
	uint64_t blocks[] = { 0, 64, 64, 0 };
	struct cei_op_shape shape = { .kind = &cei_all_reduce, .dtype = CEOV_BF16, .n_ranks = 2 };

	shape.sum.scale = 1;
	shape.rows[1] = 512;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 1);
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_TWO_SHOT), 0);
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_OVERLAP), 0);
	shape.rows[0] = 512;            /* both ranks send parts */
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_TWO_SHOT), 0);
	shape.rows[0] = 0;
	shape.kind = &cei_reduce_scatter;       /* rank 0 has no part */
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 0);
	shape.rows[0] = 16;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 1);
	shape.kind = &cei_all_gather;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 1);
	shape.rows[0] = 0;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 0);
	shape.kind = &cei_all_to_all;
	shape.blocks = blocks;
	shape.rows[0] = shape.rows[1] = 64;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 1);
	blocks[2] = 0;
	ck_assert_uint_eq(is_ll(&shape, CEOV_MODE_DIRECT), 0);
}
END_TEST

/* --- sums in steps ------------------------------------------------------------- */

struct sum {
	struct cei_op_shape   shape;
	struct cei_rates      rates;
	struct ceov_op_tuning given;
};

static struct sum sum_of(uint32_t n_ranks, uint32_t n_blocks)
{
	struct sum sum = { .shape = { .kind = &cei_reduce_scatter }, .rates = cei_rates_gpu() };

	sum.shape.n_ranks = n_ranks;
	sum.given.struct_bytes = sizeof(sum.given);
	sum.given.mode = CEOV_MODE_DIRECT;
	sum.given.n_reduce_blocks = n_blocks;
	return sum;
}

static struct cei_choice choose(const struct sum *sum, uint64_t span_bytes)
{
	const struct cei_choose_args args = { &sum->shape, &sum->rates, &sum->given };
	struct cei_choice choice;

	memset(&choice, 0, sizeof(choice));
	cei_direct_choose_sum(&args, span_bytes, &choice);
	return choice;
}

/* Steps have all rows of chunks of the largest span and no more, none is empty, and there are
 * counters for them; each but the last has four chunks or more. */
START_TEST(test_steps)
{
	uint64_t random = testing_seed(), span_bytes, n_rows, row_bytes;
	uint32_t i, n_ranks, seen = 0, most = 0;
	struct cei_choice choice;
	struct sum sum;

	for (i = 0; i < 4000; i++) {
		n_ranks = 2 + (uint32_t)testing_below(&random, CEI_DIRECT_STEP_RANKS_MAX - 1);
		sum = sum_of(n_ranks, (uint32_t)testing_below(&random, 20));
		span_bytes = testing_below(&random, UINT64_C(1) << testing_below(&random, 38));
		choice = choose(&sum, span_bytes);
		if (!choice.direct_steps)
			continue;
		row_bytes = (uint64_t)CEI_DIRECT_CHUNK * choice.n_reduce_blocks;
		n_rows = (span_bytes + row_bytes - 1) / row_bytes;
		ck_assert_uint_le(choice.n_reduce_blocks, CEI_DIRECT_STEP_BLOCKS_MAX);
		ck_assert_uint_le(choice.direct_steps, CEI_DIRECT_STEPS_MAX);
		ck_assert_uint_ge((uint64_t)choice.direct_steps * choice.direct_step_rows, n_rows);
		ck_assert_uint_lt((choice.direct_steps - 1) * (uint64_t)choice.direct_step_rows,
				  n_rows);
		ck_assert_uint_ge((uint64_t)choice.direct_step_rows * (n_ranks - 1), 4);
		seen++;
		most += choice.direct_steps == CEI_DIRECT_STEPS_MAX;
	}
	ck_assert(seen > 100 && most);
}
END_TEST

/* Few bytes, many ranks or SMs, GPUs without the kernels, and the host: not in steps. */
START_TEST(test_what_is_not_made_in_steps)
{
	const uint64_t least = (uint64_t)4 * 16 * CEI_DIRECT_CHUNK;
	struct sum sum = sum_of(8, 16);

	ck_assert_uint_eq(choose(&sum, least).direct_steps, 4);
	ck_assert_uint_eq(choose(&sum, least).direct_step_rows, 1);
	ck_assert_uint_eq(choose(&sum, least - 16).direct_steps, 0);
	sum = sum_of(9, 16);
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 0);
	sum = sum_of(8, 17);
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 0);
	sum = sum_of(1, 16);
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 0);
	sum = sum_of(2, 16);    /* each SM sends 256 KiB at least */
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 4);
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_step_rows, 4);
	ck_assert_uint_eq(choose(&sum, 4 * least - 16).direct_steps, 0);
	sum.rates.all_have_kernels = 0;
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 0);
	sum.rates = cei_rates_host();
	ck_assert_uint_eq(choose(&sum, 4 * least).direct_steps, 0);
}
END_TEST

/* A sum of few bytes by one SM is made in steps, and no step carries the number of the run. */
START_TEST(test_steps_carry_no_number)
{
	const uint64_t span_bytes = UINT64_C(300) << 10;
	struct sum sum = sum_of(2, 1);
	const struct cei_choose_args args = { &sum.shape, &sum.rates, &sum.given };
	struct cei_choice choice = choose(&sum, span_bytes);

	choice.mode = CEOV_MODE_DIRECT;
	ck_assert_uint_ne(choice.direct_steps, 0);
	cei_direct_choose_ll(&args, 1, span_bytes, &choice);
	ck_assert_uint_eq(choice.direct_ll, 0);
	choice.direct_steps = 0;
	cei_direct_choose_ll(&args, 1, span_bytes, &choice);
	ck_assert_uint_eq(choice.direct_ll, 1);
}
END_TEST

START_TEST(test_steps_are_explained)
{
	struct sum sum = sum_of(8, 16);
	const struct cei_choose_args args = { &sum.shape, &sum.rates, &sum.given };
	struct cei_choice choice = choose(&sum, UINT64_C(32) << 20);

	choice.mode = CEOV_MODE_DIRECT;
	cei_direct_explain(&args, &choice);
	ck_assert_ptr_nonnull(strstr(choice.text, "added up: in 32 steps"));
	choice = choose(&sum, 4096);
	choice.mode = CEOV_MODE_DIRECT;
	cei_direct_explain(&args, &choice);
	ck_assert_ptr_null(strstr(choice.text, "steps"));
}
END_TEST

/* --- moves --------------------------------------------------------------------- */

struct move {
	struct cei_op_shape   shape;
	struct cei_rates      rates;
	struct ceov_op_tuning given;
};

/* An all-gather between ranks of one node, each with n_bytes. */
static struct move move_of(uint32_t n_ranks, uint64_t n_bytes)
{
	struct move move = { .shape = { .kind = &cei_all_gather }, .rates = cei_rates_gpu() };
	uint32_t i;

	move.shape.n_ranks = n_ranks;
	for (i = 0; i < n_ranks; i++)
		move.shape.rows[i] = n_bytes;
	move.rates.has_direct = move.rates.has_lanes = 1;
	move.given.struct_bytes = sizeof(move.given);
	return move;
}

static struct cei_choice choice_of(const struct move *move)
{
	struct cei_choice choice;

	cei_selector_choose(&move->shape, &move->rates, &move->given, &choice);
	return choice;
}

START_TEST(test_sms_move_few_bytes)
{
	struct move move = move_of(8, MIB / 8);
	struct cei_choice choice = choice_of(&move);

	ck_assert_int_eq(choice.mode, CEOV_MODE_DIRECT);
	ck_assert_uint_eq(choice.n_pieces, 1);
	ck_assert_uint_gt(choice.n_reduce_blocks, 0);
	ck_assert_ptr_nonnull(strstr(choice.text, "direct (by the model)"));
	ck_assert_ptr_nonnull(strstr(choice.text, "moved by: SMs"));
	move = move_of(8, MIB / 4);
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
	move = move_of(2, MIB);
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_DIRECT);
	move = move_of(2, MIB + 16);
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
}
END_TEST

START_TEST(test_few_bytes_are_left_to_engines)
{
	struct move move = move_of(1, MIB);

	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);    /* nobody else */
	move = move_of(4, 1024);
	move.rates.has_lanes = 0;                               /* ranks share GPUs */
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
	move = move_of(4, 1024);
	move.rates.copy_bytes_per_ns = 50;                      /* PCIe */
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
	move = move_of(4, 1024);
	move.given.n_pieces = 1;
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
	move = move_of(4, 1024);
	move.given.mode = CEOV_MODE_OVERLAP;
	ck_assert_int_eq(choice_of(&move).mode, CEOV_MODE_OVERLAP);
}
END_TEST

/* Ranks may differ in it, and SMs of all ranks wait for each other. */
START_TEST(test_a_number_of_sms_without_a_mode_does_not_count)
{
	struct move move = move_of(2, MIB), same = move;

	move.given.n_reduce_blocks = 3;
	ck_assert_uint_eq(choice_of(&move).n_reduce_blocks, choice_of(&same).n_reduce_blocks);
	move.given.mode = CEOV_MODE_DIRECT;
	ck_assert_uint_eq(choice_of(&move).n_reduce_blocks, 3);
}
END_TEST

static int lists(const struct cei_candidates *candidates, enum ceov_op_mode mode)
{
	uint32_t i, n = 0;

	for (i = 0; i < candidates->n; i++)
		n += candidates->tuning[i].mode == mode;
	return n != 0;
}

START_TEST(test_both_ways_are_measured)
{
	struct cei_candidates candidates;
	struct move move = move_of(2, MIB);

	cei_candidates_list(&move.shape, &move.rates, &move.given, &candidates);
	ck_assert_int_eq(candidates.tuning[0].mode, CEOV_MODE_DIRECT);
	ck_assert(lists(&candidates, CEOV_MODE_OVERLAP));
	move = move_of(2, 2 * MIB);
	cei_candidates_list(&move.shape, &move.rates, &move.given, &candidates);
	ck_assert_int_eq(candidates.tuning[0].mode, CEOV_MODE_OVERLAP);
	ck_assert(lists(&candidates, CEOV_MODE_DIRECT));
	move.given.mode = CEOV_MODE_OVERLAP;
	cei_candidates_list(&move.shape, &move.rates, &move.given, &candidates);
	ck_assert(!lists(&candidates, CEOV_MODE_DIRECT));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("direct choice");
	TCase *all = tcase_create("choices");

	tcase_add_test(all, test_what_travels_with_the_number);
	tcase_add_test(all, test_only_nvlinks_carry_the_number);
	tcase_add_test(all, test_which_operators_send_the_number);
	tcase_add_test(all, test_vectors_in_flight);
	tcase_add_test(all, test_steps);
	tcase_add_test(all, test_what_is_not_made_in_steps);
	tcase_add_test(all, test_steps_carry_no_number);
	tcase_add_test(all, test_steps_are_explained);
	tcase_add_test(all, test_sms_move_few_bytes);
	tcase_add_test(all, test_few_bytes_are_left_to_engines);
	tcase_add_test(all, test_a_number_of_sms_without_a_mode_does_not_count);
	tcase_add_test(all, test_both_ways_are_measured);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
