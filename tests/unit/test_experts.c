/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests dispatch and combine of a mixture of experts on host ranks, a thread each, against sums
 * made here one token after another. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "unit/op_rig.h"

#define TOKENS_MAX 40u
#define HIDDEN_MAX 48u
#define TOP_K_MAX  6u
#define LOCAL_MAX  5u
#define GUARD      0x5a

struct rank {
	ceov_op    *dispatch, *combine;
	uint64_t    n_tokens;
	char       *tokens, *received, *sums, *expected;
	int32_t    *experts, *slots, *ends;
	uint32_t   *arrived;
	float      *weights;
	int         result;             /* of the last run */
};

static struct op_rig rig;
static struct ceov_moe shape;
static struct rank ranks[OP_RANKS_MAX];
static int is_weighted, is_again;   /* is_again: how many ranks give the routing */

/* --- cases ------------------------------------------------------------------------ */

static uint64_t row_bytes(void)
{
	return shape.hidden * cei_dtype_bytes(shape.dtype);
}

static uint32_t n_local(void)
{
	return shape.n_experts / rig.n_ranks;
}

static uint64_t capacity(void)
{
	uint64_t each = shape.top_k < n_local() ? shape.top_k : n_local();

	return shape.capacity ? shape.capacity : shape.n_tokens * each;
}

static uint64_t room(void)
{
	return shape.n_received ? shape.n_received : rig.n_ranks * capacity();
}

static void draw_shape(uint64_t *random, uint32_t n_ranks)
{
	memset(&shape, 0, sizeof(shape));
	shape.struct_bytes = sizeof(shape);
	shape.dtype = (enum ceov_dtype)(CEOV_BF16 + testing_below(random, 3));
	shape.n_tokens = 1 + testing_below(random, TOKENS_MAX);
	shape.hidden = 8 * (1 + testing_below(random, HIDDEN_MAX / 8));
	shape.n_experts = n_ranks * (1 + (uint32_t)testing_below(random, LOCAL_MAX));
	shape.top_k = 1 + (uint32_t)testing_below(random, TOP_K_MAX);
	if (shape.top_k > shape.n_experts)
		shape.top_k = shape.n_experts;
	if (!testing_below(random, 3))
		shape.capacity = 1 + testing_below(random, 1 + shape.n_tokens / 2);
}

static void *fresh(uint64_t n_bytes)
{
	void *memory = aligned_alloc(64, (n_bytes + 127) / 64 * 64);

	ck_assert_ptr_nonnull(memory);
	memset(memory, GUARD, (n_bytes + 127) / 64 * 64);
	return memory;
}

/* Distinct experts of one token; some tokens have fewer. All choose the same few experts if
 * is_narrow. */
static void draw_experts(struct rank *rank, uint64_t *random, int is_narrow)
{
	uint32_t n = is_narrow ? 1 + shape.top_k : shape.n_experts, k, i;
	uint64_t token;
	int32_t *of;

	if (n > shape.n_experts)
		n = shape.n_experts;
	for (token = 0; token < rank->n_tokens; token++) {
		of = rank->experts + token * shape.top_k;
		for (k = 0; k < shape.top_k; k++) {
			of[k] = testing_below(random, 8) ? (int32_t)testing_below(random, n) : -1;
			for (i = 0; i < k; i++)
				if (of[i] == of[k])
					of[k] = -1;
		}
	}
}

static void draw_data(struct rank *rank, uint64_t *random)
{
	float values[HIDDEN_MAX];
	uint64_t token, i;

	rank->n_tokens = testing_below(random, 4) ? testing_below(random, shape.n_tokens + 1)
		: shape.n_tokens;
	for (token = 0; token < rank->n_tokens; token++) {
		for (i = 0; i < shape.hidden; i++)
			values[i] = (float)testing_below(random, 1000) / 256 - 2;
		cei_dtype_narrow(shape.dtype, rank->tokens + token * row_bytes(), values,
				 shape.hidden);
	}
	for (i = 0; i < shape.n_tokens * shape.top_k; i++)
		rank->weights[i] = (float)testing_below(random, 1000) / 777;
	draw_experts(rank, random, !testing_below(random, 4));
}

static void make_rank(struct rank *rank, uint32_t i)
{
	memset(rank, 0, sizeof(*rank));
	rank->tokens = fresh(shape.n_tokens * row_bytes());
	rank->received = fresh(room() * row_bytes());
	rank->sums = fresh(shape.n_tokens * row_bytes());
	rank->expected = fresh(shape.n_tokens * row_bytes());
	rank->experts = fresh(shape.n_tokens * shape.top_k * sizeof(int32_t));
	rank->slots = fresh(shape.n_tokens * shape.top_k * sizeof(int32_t));
	rank->ends = fresh(n_local() * sizeof(int32_t));
	rank->arrived = fresh(shape.n_experts * sizeof(uint32_t));
	rank->weights = fresh(shape.n_tokens * shape.top_k * sizeof(float));
	ck_assert_int_eq(ceov_moe_dispatch_create(rig.workspaces[i], &shape, &rank->dispatch), 0);
	ck_assert_int_eq(ceov_moe_combine_create(rig.workspaces[i], &shape, &rank->combine), 0);
}

static void open_case(uint32_t n_ranks, struct testing_log *log)
{
	uint32_t i;

	op_rig_open(&rig, n_ranks, ceov_moe_dispatch_scratch_bytes(&shape, n_ranks), log);
	for (i = 0; i < n_ranks; i++)
		make_rank(&ranks[i], i);
}

static void close_case(void)
{
	struct rank *rank;
	uint32_t i;

	for (i = 0; i < rig.n_ranks; i++) {
		rank = &ranks[i];
		ceov_op_release(rank->dispatch);
		ceov_op_release(rank->combine);
		free(rank->tokens);
		free(rank->received);
		free(rank->sums);
		free(rank->expected);
		free(rank->experts);
		free(rank->slots);
		free(rank->ends);
		free(rank->arrived);
		free(rank->weights);
	}
	op_rig_close(&rig);
}

/* --- runs ------------------------------------------------------------------------- */

static void run_dispatch(const struct op_part *part)
{
	struct rank *rank = &ranks[part->rank];
	struct ceov_moe_dispatch_run run = { .struct_bytes = sizeof(run) };

	run.n_tokens = rank->n_tokens;
	run.tokens = rank->tokens;
	run.is_routed = is_again > (int)part->rank;
	run.experts = rank->experts;
	run.routing = (struct ceov_moe_routing){ rank->slots, rank->arrived };
	run.received = rank->received;
	run.ends = rank->ends;
	rank->result = ceov_moe_dispatch_run(rank->dispatch, &run);
}

static void run_combine(const struct op_part *part)
{
	struct rank *rank = &ranks[part->rank];
	struct ceov_moe_combine_run run = { .struct_bytes = sizeof(run) };

	run.n_tokens = rank->n_tokens;
	run.rows = rank->received;
	run.weights = is_weighted ? rank->weights : NULL;
	run.routing = (struct ceov_moe_routing){ rank->slots, rank->arrived };
	run.sums = rank->sums;
	rank->result = ceov_moe_combine_run(rank->combine, &run);
}

static void run_all(void (*run)(const struct op_part *part))
{
	uint32_t i;

	op_rig_each(&rig, run, NULL);
	for (i = 0; i < rig.n_ranks; i++)
		ck_assert_int_eq(ranks[i].result, 0);
}

/* --- what is expected -------------------------------------------------------------- */

/* How many copies rank `source` sends to the rank of the expert before those for the expert. */
static uint64_t copies_for(const struct rank *rank, uint32_t expert)
{
	uint64_t i, n = 0;

	for (i = 0; i < rank->n_tokens * shape.top_k; i++)
		n += rank->experts[i] == (int32_t)expert;
	return n;
}

/* Checks the rows of one expert of one source, and moves behind them. */
static char *check_from(const struct rank *source, uint32_t expert, uint64_t *n_taken, char *row)
{
	uint64_t i;

	for (i = 0; i < source->n_tokens * shape.top_k; i++) {
		if (source->experts[i] != (int32_t)expert || *n_taken == capacity())
			continue;
		ck_assert_mem_eq(row, source->tokens + i / shape.top_k * row_bytes(), row_bytes());
		++*n_taken;
		row += row_bytes();
	}
	return row;
}

/* The received rows are those of the own experts, by expert, source and token. */
static void check_received(uint32_t own)
{
	uint64_t n_taken[OP_RANKS_MAX] = { 0 };
	char *row = ranks[own].received, guard[HIDDEN_MAX * 4];
	uint32_t i, source;

	for (i = 0; i < n_local(); i++) {
		for (source = 0; source < rig.n_ranks; source++)
			row = check_from(&ranks[source], own * n_local() + i, &n_taken[source],
					 row);
		ck_assert_uint_eq((uint64_t)ranks[own].ends[i] * row_bytes(),
				  (uint64_t)(row - ranks[own].received));
	}
	memset(guard, GUARD, sizeof(guard));
	if ((uint64_t)(row - ranks[own].received) < room() * row_bytes())
		ck_assert_mem_eq(row, guard, row_bytes());
}

/* The experts' work: expert e multiplies by e + 1. */
static void apply_experts(uint32_t own)
{
	float values[HIDDEN_MAX];
	char *row = ranks[own].received;
	uint64_t i, n = 0;
	uint32_t e;

	for (e = 0; e < n_local(); e++) {
		for (; n < (uint64_t)ranks[own].ends[e]; n++, row += row_bytes()) {
			cei_dtype_widen(shape.dtype, values, row, shape.hidden);
			for (i = 0; i < shape.hidden; i++)
				values[i] *= (float)(own * n_local() + e + 1);
			cei_dtype_narrow(shape.dtype, row, values, shape.hidden);
		}
	}
}

static void add_copy(const struct rank *rank, uint64_t copy, float *sum)
{
	float values[HIDDEN_MAX], weight = is_weighted ? rank->weights[copy] : 1;
	uint16_t rounded[2 * HIDDEN_MAX];
	uint64_t i;

	if (rank->slots[copy] < 0)
		return;
	cei_dtype_widen(shape.dtype, values, rank->tokens + copy / shape.top_k * row_bytes(),
			shape.hidden);
	for (i = 0; i < shape.hidden; i++)
		values[i] *= (float)(rank->experts[copy] + 1);
	cei_dtype_narrow(shape.dtype, rounded, values, shape.hidden);
	cei_dtype_widen(shape.dtype, values, rounded, shape.hidden);
	for (i = 0; i < shape.hidden; i++)
		sum[i] += weight * values[i];
}

static void check_sums(const struct rank *rank)
{
	float sum[HIDDEN_MAX];
	uint64_t token;
	uint32_t k;

	for (token = 0; token < rank->n_tokens; token++) {
		memset(sum, 0, sizeof(sum));
		for (k = 0; k < shape.top_k; k++)
			add_copy(rank, token * shape.top_k + k, sum);
		cei_dtype_narrow(shape.dtype, rank->expected + token * row_bytes(), sum,
				 shape.hidden);
	}
	ck_assert_mem_eq(rank->sums, rank->expected, shape.n_tokens * row_bytes());
}

/* A copy has no slot only if it has no expert, or its block is full. */
static void check_drops(const struct rank *rank)
{
	uint64_t i, n = 0, n_wanted = 0, n_kept = 0, most;
	uint32_t target, e;

	for (target = 0; target < rig.n_ranks; target++) {
		most = 0;
		for (e = 0; e < n_local(); e++)
			most += copies_for(rank, target * n_local() + e);
		n_wanted += most < capacity() ? most : capacity();
	}
	for (i = 0; i < rank->n_tokens * shape.top_k; i++) {
		n += rank->slots[i] >= 0;
		n_kept += rank->experts[i] >= 0;
	}
	ck_assert_uint_eq(n, n_wanted);
	ck_assert_uint_le(n, n_kept);
}

/* One batch forward, with the checks of all ranks. */
static void pass(uint64_t *random)
{
	uint32_t i;

	for (i = 0; i < rig.n_ranks; i++) {
		memset(ranks[i].received, GUARD, room() * row_bytes());
		memset(ranks[i].sums, GUARD, shape.n_tokens * row_bytes());
		memset(ranks[i].expected, GUARD, shape.n_tokens * row_bytes());
		draw_data(&ranks[i], random);
	}
	is_weighted = (int)testing_below(random, 2);
	run_all(run_dispatch);
	for (i = 0; i < rig.n_ranks; i++) {
		check_drops(&ranks[i]);
		check_received(i);
		apply_experts(i);
	}
	run_all(run_combine);
	for (i = 0; i < rig.n_ranks; i++)
		check_sums(&ranks[i]);
}

/* --- the tests --------------------------------------------------------------------- */

/* Random shapes, each with several batches that are routed in other ways. */
START_TEST(test_random_batches)
{
	uint64_t random = testing_seed();
	uint32_t i, batch, n_ranks;

	for (i = 0; i < testing_share(40); i++) {
		n_ranks = 1 + (uint32_t)testing_below(&random, 5);
		draw_shape(&random, n_ranks);
		open_case(n_ranks, NULL);
		for (batch = 0; batch < 4; batch++)
			pass(&random);
		close_case();
	}
}
END_TEST

/* As a backward pass does: other rows take the same places. */
START_TEST(test_a_routing_is_used_again)
{
	uint64_t random = testing_seed();
	uint32_t i;

	draw_shape(&random, 3);
	shape.capacity = 0;
	open_case(3, NULL);
	pass(&random);
	for (i = 0; i < 3; i++) {
		memset(ranks[i].received, GUARD, room() * row_bytes());
		testing_fill(ranks[i].tokens, ranks[i].n_tokens * row_bytes(), random + i);
	}
	is_again = 3;
	run_all(run_dispatch);
	is_again = 0;
	for (i = 0; i < 3; i++)
		check_received(i);
	close_case();
}
END_TEST

static void set_shape(void)
{
	memset(&shape, 0, sizeof(shape));
	shape.struct_bytes = sizeof(shape);
	shape.dtype = CEOV_BF16;
	shape.n_tokens = 6;
	shape.hidden = 16;
	shape.n_experts = 4;
	shape.top_k = 2;
}

/* Each case is one wrong value in what rank 0 gives to a run, which ends with words. So does rank
 * 1's run, which waits for rank 0's block, but in the last case, where both have sent theirs. */
START_TEST(test_wrong_values_end_the_run)
{
	const char *const words[] = { "slot that does not exist", "slot that does not exist",
				      "more rows came from a rank",
				      "more rows came than n_received" };
	uint64_t random = testing_seed();
	struct testing_log log;
	uint32_t i;

	testing_log_init(&log);
	set_shape();
	if (_i == 3)
		shape.n_received = 1;
	open_case(2, &log);
	for (i = 0; i < 2; i++) {
		draw_data(&ranks[i], &random);
		ranks[i].n_tokens = shape.n_tokens;
		memset(ranks[i].experts, 0, shape.n_tokens * shape.top_k * sizeof(int32_t));
	}
	if (_i == 3) {
		op_rig_each(&rig, run_dispatch, NULL);
	} else {
		run_all(run_dispatch);
		if (_i < 2)
			ranks[0].slots[1] = _i ? (int32_t)(2 * capacity()) : -2;
		else
			ranks[0].arrived[0] = (uint32_t)capacity() + 1;
		op_rig_each(&rig, run_combine, NULL);
	}
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	if (_i < 3)
		ck_assert_int_eq(ceov_workspace_status(rig.workspaces[1]), CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", words[_i], NULL);
	close_case();
}
END_TEST

/* A token of rank 0 names an expert that does not exist: all ranks refuse the dispatch, have a
 * routing by which nothing goes anywhere, and go on. */
START_TEST(test_an_expert_that_does_not_exist)
{
	uint64_t random = testing_seed();
	struct testing_log log;
	char text[64];
	uint32_t i, k;

	testing_log_init(&log);
	set_shape();
	open_case(2, &log);
	for (i = 0; i < 2; i++) {
		draw_data(&ranks[i], &random);
		ranks[i].n_tokens = shape.n_tokens;
		memset(ranks[i].experts, 0, shape.n_tokens * shape.top_k * sizeof(int32_t));
	}
	ranks[0].experts[3] = _i ? -2 : 4;
	for (k = 0; k < 3; k++) {
		op_rig_each(&rig, run_dispatch, NULL);
		for (i = 0; i < 2; i++)
			ck_assert_int_eq(ranks[i].result, CEOV_ERR_INVALID);
	}
	for (i = 0; i < 2; i++) {
		snprintf(text, sizeof(text), "rank %u: a token of rank 0 names expert %d", i,
			 _i ? -2 : 4);
		testing_log_has(&log, text, "must be -1 to 3", NULL);
		ck_assert_int_eq(ceov_workspace_status(rig.workspaces[i]), 0);
		for (k = 0; k < shape.n_tokens * shape.top_k; k++)
			ck_assert_int_eq(ranks[i].slots[k], -1);
		for (k = 0; k < shape.n_experts; k++)
			ck_assert_uint_eq(ranks[i].arrived[k], 0);
	}
	ranks[0].experts[3] = 1;
	run_all(run_dispatch);
	run_all(run_combine);
	close_case();
}
END_TEST

/* A rank that gives a routing, while its peers look for experts anew, is found out by them, also if
 * it has no tokens. */
START_TEST(test_ranks_that_do_not_agree_on_the_routing)
{
	uint64_t random = testing_seed();
	uint32_t i;

	set_shape();
	open_case(2, NULL);
	for (i = 0; i < 2; i++)
		draw_data(&ranks[i], &random);
	ranks[0].n_tokens = _i ? 0 : ranks[0].n_tokens;
	run_all(run_dispatch);
	is_again = 1;                   /* rank 0 */
	op_rig_each(&rig, run_dispatch, NULL);
	is_again = 0;
	ck_assert_int_eq(ranks[1].result, CEOV_ERR_INVALID);
	close_case();
}
END_TEST

START_TEST(test_a_run_has_no_more_tokens_than_its_shape)
{
	struct testing_log log;

	testing_log_init(&log);
	set_shape();
	open_case(1, &log);
	ranks[0].n_tokens = 7;
	op_rig_each(&rig, run_dispatch, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	testing_log_has(&log, "7 tokens", "created for 6", NULL);
	op_rig_each(&rig, run_combine, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	ranks[0].n_tokens = 0;
	op_rig_each(&rig, run_dispatch, NULL);
	ck_assert_int_eq(ranks[0].result, 0);
	close_case();
}
END_TEST

START_TEST(test_wrong_shapes_are_refused)
{
	set_shape();
	ck_assert_uint_ne(ceov_moe_dispatch_scratch_bytes(&shape, 2), 0);
	switch (_i) {
	case 0: shape.dtype = (enum ceov_dtype)4; break;
	case 1: shape.hidden = 12; break;
	case 2: shape.hidden = 0; break;
	case 3: shape.n_experts = 3; break;
	case 4: shape.n_experts = 0; break;
	case 5: shape.top_k = 0; break;
	case 6: shape.top_k = 5; break;
	case 7: shape.n_tokens = 0; break;
	case 8: shape.capacity = UINT64_C(1) << 30; break;
	case 9: shape.n_received = UINT64_C(1) << 31; break;
	case 10: shape.struct_bytes = 8; break;
	case 11: shape.hidden = UINT64_C(1) << 31; shape.n_tokens = 1 << 20; break;
	case 12: shape.n_tokens = UINT64_C(1) << 40; break;
	case 13: shape.n_experts = 70000; break;
	default: ck_abort();
	}
	ck_assert_uint_eq(ceov_moe_dispatch_scratch_bytes(&shape, 2), 0);
	ck_assert_uint_eq(ceov_moe_combine_scratch_bytes(&shape, 2), 0);
}
END_TEST

static void abort_or_dispatch(const struct op_part *part)
{
	if (part->rank == 1)
		ranks[1].result = ceov_workspace_abort(rig.workspaces[1]);
	else
		run_dispatch(part);
}

/* A rank aborts instead of making its run: the others' runs end. */
START_TEST(test_an_abort_ends_all_runs)
{
	uint64_t random = testing_seed();
	uint32_t i;

	set_shape();
	shape.n_experts = 6;
	open_case(3, NULL);
	for (i = 0; i < 3; i++)
		draw_data(&ranks[i], &random);
	op_rig_each(&rig, abort_or_dispatch, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ranks[1].result, 0);
	ck_assert_int_eq(ranks[2].result, CEOV_ERR_ABORTED);
	close_case();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("experts");
	TCase *tcase = tcase_create("experts");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_random_batches);
	tcase_add_test(tcase, test_a_routing_is_used_again);
	tcase_add_loop_test(tcase, test_wrong_values_end_the_run, 0, 4);
	tcase_add_loop_test(tcase, test_an_expert_that_does_not_exist, 0, 2);
	tcase_add_loop_test(tcase, test_ranks_that_do_not_agree_on_the_routing, 0, 2);
	tcase_add_test(tcase, test_a_run_has_no_more_tokens_than_its_shape);
	tcase_add_loop_test(tcase, test_wrong_shapes_are_refused, 0, 14);
	tcase_add_test(tcase, test_an_abort_ends_all_runs);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
