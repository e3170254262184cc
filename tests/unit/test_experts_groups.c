/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests dispatch and combine with groups of experts on host ranks. Each group has to be what
 * operators without groups make of a batch in which tokens have no other experts: the same bits. */

#include <check.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"
#include "unit/op_rig.h"

#define TOKENS_MAX 30u
#define HIDDEN_MAX 24u
#define TOP_K_MAX  6u
#define EACH_MAX   3u                   /* experts of a rank in a group */
#define GROUPS_MAX 4u
#define GUARD      0x5a

/* What runs with one routing write, and a pair of operators that make them. */
struct side {
	ceov_op  *dispatch, *combine;
	int32_t  *slots, *ends[GROUPS_MAX];
	uint32_t *arrived, *sent;
	char     *received[GROUPS_MAX], *sums[GROUPS_MAX];
};

struct rank {
	uint64_t    n_tokens;
	char       *tokens;
	int32_t    *experts;
	int32_t    *masked;             /* those of one group that are not dropped */
	float      *weights;
	struct side grouped, plain;
	int         result;             /* of the last run */
};

static struct op_rig rig;
static struct ceov_moe grouped, plain;
static struct rank ranks[OP_RANKS_MAX];
static uint64_t order_random;           /* equal at all ranks */

/* --- cases ------------------------------------------------------------------------ */

static uint64_t row_bytes(void)
{
	return grouped.hidden * cei_dtype_bytes(grouped.dtype);
}

static uint32_t n_local(void)
{
	return grouped.n_experts / rig.n_ranks;
}

static uint32_t n_each(void)
{
	return n_local() / grouped.n_groups;
}

static uint64_t n_copies(const struct rank *rank)
{
	return rank->n_tokens * grouped.top_k;
}

/* The shapes without groups have what groups have by themselves, said in numbers. */
static void derive_plain(uint32_t n_each_of_rank)
{
	uint32_t most = grouped.top_k < n_each_of_rank ? grouped.top_k : n_each_of_rank;

	plain = grouped;
	plain.n_groups = 0;
	plain.total_capacity = 0;
	plain.capacity = grouped.capacity ? grouped.capacity : grouped.n_tokens * most;
}

static void draw_shapes(uint64_t *random, uint32_t n_ranks)
{
	uint32_t each = 1 + (uint32_t)testing_below(random, EACH_MAX);

	memset(&grouped, 0, sizeof(grouped));
	grouped.struct_bytes = sizeof(grouped);
	grouped.dtype = (enum ceov_dtype)(CEOV_BF16 + testing_below(random, 3));
	grouped.n_tokens = 1 + testing_below(random, TOKENS_MAX);
	grouped.hidden = 8 * (1 + testing_below(random, HIDDEN_MAX / 8));
	grouped.n_groups = 1 + (uint32_t)testing_below(random, GROUPS_MAX);
	grouped.n_experts = n_ranks * each * grouped.n_groups;
	grouped.top_k = 1 + (uint32_t)testing_below(random, TOP_K_MAX);
	if (grouped.top_k > grouped.n_experts)
		grouped.top_k = grouped.n_experts;
	if (!testing_below(random, 3))
		grouped.capacity = 1 + testing_below(random, 1 + grouped.n_tokens / 2);
	if (!testing_below(random, 2))
		grouped.total_capacity = 1 + testing_below(random, 1 + grouped.n_tokens);
	derive_plain(each);
}

static void set_shapes(void)
{
	memset(&grouped, 0, sizeof(grouped));
	grouped.struct_bytes = sizeof(grouped);
	grouped.dtype = CEOV_FP32;
	grouped.n_tokens = 6;
	grouped.hidden = 16;
	grouped.n_groups = 2;
	grouped.n_experts = 8;
	grouped.top_k = 2;
	derive_plain(2);
}

static void *fresh(uint64_t n_bytes)
{
	void *memory = aligned_alloc(64, (n_bytes + 127) / 64 * 64);

	ck_assert_ptr_nonnull(memory);
	memset(memory, GUARD, (n_bytes + 127) / 64 * 64);
	return memory;
}

static uint64_t received_bytes(void)
{
	return rig.n_ranks * plain.capacity * row_bytes();
}

static void make_side(struct side *side, const struct ceov_moe *shape, uint32_t i)
{
	uint64_t counts_bytes = shape->n_experts * sizeof(uint32_t);
	uint32_t g;

	side->slots = fresh(shape->n_tokens * shape->top_k * sizeof(int32_t));
	side->arrived = fresh(counts_bytes);
	side->sent = fresh(counts_bytes);
	for (g = 0; g < grouped.n_groups; g++) {
		side->ends[g] = fresh(n_local() * sizeof(int32_t));
		side->received[g] = fresh(received_bytes());
		side->sums[g] = fresh(shape->n_tokens * row_bytes());
	}
	ck_assert_int_eq(ceov_moe_dispatch_create(rig.workspaces[i], shape, &side->dispatch), 0);
	ck_assert_int_eq(ceov_moe_combine_create(rig.workspaces[i], shape, &side->combine), 0);
}

static void free_side(struct side *side)
{
	uint32_t g;

	ceov_op_release(side->dispatch);
	ceov_op_release(side->combine);
	free(side->slots);
	free(side->arrived);
	free(side->sent);
	for (g = 0; g < grouped.n_groups; g++) {
		free(side->ends[g]);
		free(side->received[g]);
		free(side->sums[g]);
	}
}

static void open_case(uint32_t n_ranks, struct testing_log *log)
{
	uint64_t bytes = ceov_moe_dispatch_scratch_bytes(&grouped, n_ranks);
	uint64_t n = grouped.n_tokens * grouped.top_k;
	struct rank *rank;
	uint32_t i;

	ck_assert_uint_ne(bytes, 0);
	ck_assert_uint_eq(bytes, ceov_moe_combine_scratch_bytes(&plain, n_ranks));
	op_rig_open(&rig, n_ranks, bytes, log);
	memset(ranks, 0, sizeof(ranks));
	for (i = 0; i < n_ranks; i++) {
		rank = &ranks[i];
		rank->tokens = fresh(grouped.n_tokens * row_bytes());
		rank->experts = fresh(n * sizeof(int32_t));
		rank->masked = fresh(n * sizeof(int32_t));
		rank->weights = fresh(n * sizeof(float));
		make_side(&rank->grouped, &grouped, i);
		make_side(&rank->plain, &plain, i);
	}
}

static void close_case(void)
{
	uint32_t i;

	for (i = 0; i < rig.n_ranks; i++) {
		free(ranks[i].tokens);
		free(ranks[i].experts);
		free(ranks[i].masked);
		free(ranks[i].weights);
		free_side(&ranks[i].grouped);
		free_side(&ranks[i].plain);
	}
	op_rig_close(&rig);
}

/* Tokens whose experts differ, or, so that blocks are full, may be equal. */
static void draw_data(struct rank *rank, uint64_t *random, int may_repeat)
{
	float values[HIDDEN_MAX];
	uint64_t token, i, k;
	int32_t *of;

	rank->n_tokens = grouped.n_tokens;
	for (token = 0; token < rank->n_tokens; token++) {
		for (i = 0; i < grouped.hidden; i++)
			values[i] = (float)testing_below(random, 1000) / 256 - 2;
		cei_dtype_narrow(grouped.dtype, rank->tokens + token * row_bytes(), values,
				 grouped.hidden);
	}
	for (i = 0; i < n_copies(rank); i++) {
		rank->weights[i] = (float)testing_below(random, 1000) / 777;
		rank->experts[i] = testing_below(random, 8)
			? (int32_t)testing_below(random, grouped.n_experts) : -1;
		of = rank->experts + i / grouped.top_k * grouped.top_k;
		for (k = 0; !may_repeat && k < i % grouped.top_k; k++)
			if (of[k] == rank->experts[i])
				rank->experts[i] = -1;
	}
	if (testing_below(random, 4))
		rank->n_tokens = testing_below(random, grouped.n_tokens + 1);
}

/* --- what a batch of one group has ------------------------------------------------- */

/* Leaves the experts of one group that the total capacity has room for, which copies take up in the
 * order of experts and tokens. */
static void mask(struct rank *rank, uint32_t group)
{
	uint64_t i, n_taken = 0;
	uint32_t expert;

	for (i = 0; i < n_copies(rank); i++)
		rank->masked[i] = -1;
	for (expert = 0; expert < grouped.n_experts; expert++) {
		n_taken = expert % n_local() ? n_taken : 0;
		for (i = 0; i < n_copies(rank); i++) {
			if (rank->experts[i] != (int32_t)expert)
				continue;
			if (grouped.total_capacity && n_taken++ >= grouped.total_capacity)
				continue;
			if (expert % n_local() / n_each() == group)
				rank->masked[i] = (int32_t)expert;
		}
	}
}

/* --- runs ------------------------------------------------------------------------- */

static struct ceov_moe_dispatch_run dispatch_run(const struct rank *rank, const struct side *side,
						 uint32_t group)
{
	struct ceov_moe_dispatch_run run = { .struct_bytes = sizeof(run) };

	run.n_tokens = rank->n_tokens;
	run.tokens = rank->tokens;
	run.routing = (struct ceov_moe_routing){ side->slots, side->arrived };
	run.received = side->received[group];
	run.ends = side->ends[group];
	return run;
}

static int dispatch_group(const struct rank *rank, uint32_t group, int is_routed, int is_counted)
{
	struct ceov_moe_dispatch_run run = dispatch_run(rank, &rank->grouped, group);

	run.experts = is_routed ? NULL : rank->experts;
	run.is_routed = is_routed;
	run.sent = is_counted ? rank->grouped.sent : NULL;
	run.group = group;
	return ceov_moe_dispatch_run(rank->grouped.dispatch, &run);
}

static int dispatch_plain(const struct rank *rank, uint32_t group)
{
	struct ceov_moe_dispatch_run run = dispatch_run(rank, &rank->plain, group);

	run.experts = rank->masked;
	return ceov_moe_dispatch_run(rank->plain.dispatch, &run);
}

static int combine(const struct rank *rank, const struct side *side, uint32_t group,
		   uint32_t run_group)
{
	struct ceov_moe_combine_run run = { .struct_bytes = sizeof(run) };

	run.n_tokens = rank->n_tokens;
	run.rows = side->received[group];
	run.weights = rank->weights;
	run.routing = (struct ceov_moe_routing){ side->slots, side->arrived };
	run.sums = side->sums[group];
	run.group = run_group;
	return ceov_moe_combine_run(side->combine, &run);
}

static void clear(struct side *side, uint32_t group)
{
	memset(side->received[group], GUARD, received_bytes());
	memset(side->sums[group], GUARD, grouped.n_tokens * row_bytes());
	memset(side->ends[group], GUARD, n_local() * sizeof(int32_t));
}

/* --- groups against batches of their own --------------------------------------------- */

/* A batch of the group's experts alone. The numbers of its other experts' rows are 0, so ends of
 * the group's experts begin where the others end: at 0. */
static void expect_group(struct rank *rank, uint32_t group)
{
	mask(rank, group);
	clear(&rank->plain, group);
	ck_assert_int_eq(dispatch_plain(rank, group), 0);
	ck_assert_int_eq(combine(rank, &rank->plain, group, 0), 0);
}

static void check_received(const struct rank *rank, uint32_t group)
{
	ck_assert_mem_eq(rank->grouped.received[group], rank->plain.received[group],
			 received_bytes());
	ck_assert_mem_eq(rank->grouped.ends[group], rank->plain.ends[group] + group * n_each(),
			 n_each() * sizeof(int32_t));
}

static void check_sums(const struct rank *rank, uint32_t group)
{
	ck_assert_mem_eq(rank->grouped.sums[group], rank->plain.sums[group],
			 grouped.n_tokens * row_bytes());
}

/* Forward: dispatch g, combine g - 1. */
static void go_forward(struct rank *rank)
{
	uint32_t g;

	for (g = 0; g < grouped.n_groups; g++) {
		clear(&rank->grouped, g);
		ck_assert_int_eq(dispatch_group(rank, g, g > 0, 1), 0);
		if (g)
			ck_assert_int_eq(combine(rank, &rank->grouped, g - 1, g - 1), 0);
	}
	ck_assert_int_eq(combine(rank, &rank->grouped, g - 1, g - 1), 0);
}

/* As a backward pass does: groups in any order, each by the routing that is known. */
static void go_again(struct rank *rank, uint64_t random)
{
	uint32_t g, first = (uint32_t)testing_below(&random, grouped.n_groups), i;

	for (i = 0; i < grouped.n_groups; i++) {
		g = (first + i) % grouped.n_groups;
		clear(&rank->grouped, g);
		ck_assert_int_eq(dispatch_group(rank, g, 1, (int)testing_below(&random, 2)), 0);
		ck_assert_int_eq(combine(rank, &rank->grouped, g, g), 0);
		check_received(rank, g);
		check_sums(rank, g);
	}
}

static void make_runs(const struct op_part *part)
{
	struct rank *rank = &ranks[part->rank];
	uint32_t g;

	go_forward(rank);
	for (g = 0; g < grouped.n_groups; g++) {
		expect_group(rank, g);
		check_received(rank, g);
		check_sums(rank, g);
	}
	go_again(rank, order_random);
}

START_TEST(test_groups_are_batches_of_their_own)
{
	uint64_t random = testing_seed();
	uint32_t i, r, batch, n_ranks;

	for (i = 0; i < testing_share(40); i++) {
		n_ranks = 1 + (uint32_t)testing_below(&random, 4);
		draw_shapes(&random, n_ranks);
		open_case(n_ranks, NULL);
		for (batch = 0; batch < 3; batch++) {
			for (r = 0; r < n_ranks; r++)
				draw_data(&ranks[r], &random, batch == 2);
			order_random = testing_random(&random);
			op_rig_each(&rig, make_runs, NULL);
		}
		close_case();
	}
}
END_TEST

/* --- what is refused ----------------------------------------------------------------- */

START_TEST(test_wrong_shapes_are_refused)
{
	set_shapes();
	ck_assert_uint_ne(ceov_moe_dispatch_scratch_bytes(&grouped, 2), 0);
	switch (_i) {
	case 0: grouped.n_groups = 3; break;
	case 1: grouped.n_groups = 8; break;
	case 2: grouped.capacity = UINT64_C(1) << 29; break;
	default: ck_abort();
	}
	ck_assert_uint_eq(ceov_moe_dispatch_scratch_bytes(&grouped, 2), 0);
	ck_assert_uint_eq(ceov_moe_combine_scratch_bytes(&grouped, 2), 0);
}
END_TEST

/* Before anything is sent: what follows works. */
START_TEST(test_wrong_runs_are_refused)
{
	uint64_t random = testing_seed();
	struct rank *rank = &ranks[0];
	struct testing_log log;

	testing_log_init(&log);
	set_shapes();
	open_case(1, &log);
	draw_data(rank, &random, 0);
	rank->n_tokens = grouped.n_tokens;
	ck_assert_int_eq(dispatch_group(rank, 1, 0, 1), CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", "is_routed is 0 for group 1", NULL);
	ck_assert_int_eq(combine(rank, &rank->grouped, 0, 2), CEOV_ERR_INVALID);
	testing_log_has(&log, "ceov_moe_combine_run", "group 2", "created for 2");
	ck_assert_int_eq(combine(rank, &rank->plain, 0, 1), CEOV_ERR_INVALID);
	testing_log_has(&log, "group 1", "created for 1", NULL);
	rank->grouped.sent += 1;
	ck_assert_int_eq(dispatch_group(rank, 0, 0, 1), CEOV_ERR_INVALID);
	testing_log_has(&log, "sent is not aligned", NULL, NULL);
	rank->grouped.sent -= 1;
	op_rig_each(&rig, make_runs, NULL);
	close_case();
}
END_TEST

static int wrong;

static void begin_well(const struct op_part *part)
{
	ck_assert_int_eq(dispatch_group(&ranks[part->rank], 0, 0, 1), 0);
}

/* Rank 0 gives a run of group 1 a wrong number: a slot, what has come, or what leaves. */
static void go_wrong(const struct op_part *part)
{
	struct rank *rank = &ranks[part->rank];
	struct side *side = &rank->grouped;
	uint32_t n_each_rank = n_each();

	if (!part->rank && wrong == 0)
		side->slots[1] = (int32_t)(2 * 2 * plain.capacity);
	if (!part->rank && wrong == 1)
		side->arrived[n_each_rank] = (uint32_t)plain.capacity + 1;
	if (!part->rank && wrong == 2)
		side->sent[n_local() + n_each_rank] = (uint32_t)plain.capacity + 1;
	rank->result = wrong ? dispatch_group(rank, 1, 1, 1) : combine(rank, side, 0, 1);
}

START_TEST(test_wrong_values_end_the_run)
{
	const char *const words[] = { "slot that does not exist", "more rows came from a rank",
				      "n_rows_at is" };
	uint64_t random = testing_seed();
	struct testing_log log;
	uint32_t i;

	testing_log_init(&log);
	set_shapes();
	open_case(2, &log);
	for (i = 0; i < 2; i++) {
		draw_data(&ranks[i], &random, 0);
		ranks[i].n_tokens = grouped.n_tokens;
		memset(ranks[i].experts, 0, n_copies(&ranks[i]) * sizeof(int32_t));
	}
	wrong = _i;
	op_rig_each(&rig, begin_well, NULL);
	op_rig_each(&rig, go_wrong, NULL);
	ck_assert_int_eq(ranks[0].result, CEOV_ERR_INVALID);
	testing_log_has(&log, "rank 0", words[_i], NULL);
	close_case();
}
END_TEST

/* --- callers that were compiled before there were groups ------------------------------ */

/* What lies behind their structs is not read. */
static void run_as_before(const struct op_part *part)
{
	struct rank *rank = &ranks[part->rank];
	struct side *side = &rank->plain;
	struct ceov_moe_dispatch_run there = dispatch_run(rank, side, 0);
	struct ceov_moe_combine_run back = { .n_tokens = rank->n_tokens };

	there.struct_bytes = offsetof(struct ceov_moe_dispatch_run, sent);
	there.experts = rank->experts;
	there.sent = (uint32_t *)side->sums[0] + 1;
	there.group = 7;
	ck_assert_int_eq(ceov_moe_dispatch_run(side->dispatch, &there), 0);
	back.struct_bytes = offsetof(struct ceov_moe_combine_run, group);
	back.rows = side->received[0];
	back.weights = rank->weights;
	back.routing = there.routing;
	back.sums = side->sums[0];
	back.group = 7;
	ck_assert_int_eq(ceov_moe_combine_run(side->combine, &back), 0);
	memcpy(rank->masked, rank->experts, n_copies(rank) * sizeof(int32_t));
	ck_assert_int_eq(dispatch_plain(rank, 1), 0);
	ck_assert_int_eq(combine(rank, side, 1, 0), 0);
	ck_assert_mem_eq(side->received[0], side->received[1], received_bytes());
	ck_assert_mem_eq(side->sums[0], side->sums[1], grouped.n_tokens * row_bytes());
}

START_TEST(test_older_callers)
{
	uint64_t random = testing_seed(), bytes;
	struct ceov_moe shape;
	uint32_t i;

	set_shapes();
	shape = plain;
	shape.struct_bytes = offsetof(struct ceov_moe, total_capacity);
	shape.total_capacity = 1;
	shape.n_groups = 5;
	bytes = ceov_moe_dispatch_scratch_bytes(&plain, 2);
	ck_assert_uint_eq(ceov_moe_dispatch_scratch_bytes(&shape, 2), bytes);
	plain = shape;
	open_case(2, NULL);
	for (i = 0; i < 2; i++)
		draw_data(&ranks[i], &random, 0);
	op_rig_each(&rig, run_as_before, NULL);
	close_case();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("experts_groups");
	TCase *tcase = tcase_create("experts_groups");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_groups_are_batches_of_their_own);
	tcase_add_loop_test(tcase, test_wrong_shapes_are_refused, 0, 3);
	tcase_add_test(tcase, test_wrong_runs_are_refused);
	tcase_add_loop_test(tcase, test_wrong_values_end_the_run, 0, 3);
	tcase_add_test(tcase, test_older_callers);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
