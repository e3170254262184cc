/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Operators whose ranks are on several nodes, which a simulated network joins. */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/plan.h"
#include "move_rig.h"
#include "op_rig.h"
#include "ops/core/op.h"
#include "unit/nodes_rig.h"

#define SCRATCH (UINT64_C(16) << 20)
#define CASES   4u
#define RUNS    3u
#define LIMIT   UINT64_C(20000)         /* most bytes in a block */

static struct nodes nodes;

/* Workspaces of ranks whose contexts are those of their nodes. */
static void open_workspaces(struct op_rig *rig)
{
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	rig->n_ranks = nodes.n_ranks;
	for (i = 0; i < rig->n_ranks; i++)
		rig->workspaces[i] = op_workspace(nodes_context(&nodes, i), i, "nodes", SCRATCH, 0);
	for (i = 0; i < rig->n_ranks; i++)
		ck_assert_int_eq(ceov_workspace_connect(rig->workspaces[i], TESTING_PATIENCE), 0);
}

/* Rank r is on node node_of[r]. */
static void open_mixed(struct op_rig *rig, uint32_t n_nodes, uint32_t n_ranks,
		       const uint32_t *node_of)
{
	nodes_open_mixed(&nodes, n_nodes, n_ranks, node_of);
	open_workspaces(rig);
}

/* Other nodes say with a delay that they use nothing any more. */
static void close_all(struct op_rig *rig)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	uint32_t i, n_left = rig->n_ranks;
	int r;

	while (n_left) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		for (i = n_left = 0; i < rig->n_ranks; i++) {
			r = ceov_workspace_release(rig->workspaces[i]);
			ck_assert(r == 0 || r == CEOV_PENDING);
			if (!r)
				rig->workspaces[i] = NULL;
			n_left += r == CEOV_PENDING;
		}
		usleep(1000);
	}
	nodes_close(&nodes);
}

/* --- products and sums ----------------------------------------------------------------- */

static void run_once(const struct op_part *part, ceov_op *op, uint64_t seed)
{
	const struct op_case *one = part->arg;
	struct op_data data;

	op_data_make(one, part->rank, seed, &data);
	ck_assert_int_eq(op_data_run(one, op, &data), 0);
	op_data_check(one, part->rank, seed, &data);
	op_data_free(&data);
}

static void once(const struct op_part *part)
{
	ceov_op *op = op_case_made(part->arg, part->rig->workspaces[part->rank]);

	run_once(part, op, testing_seed());
	ceov_op_release(op);
}

static void repeat(const struct op_part *part)
{
	ceov_op *op = op_case_made(part->arg, part->rig->workspaces[part->rank]);
	uint64_t i;

	for (i = 0; i < testing_share(RUNS); i++)
		run_once(part, op, testing_seed() + i);
	ceov_op_release(op);
}

static void run_cases(struct op_rig *rig)
{
	uint64_t random = testing_seed();
	struct op_case one;
	uint32_t i;

	for (i = 0; i < testing_share(CASES); i++) {
		one = op_case_random(&random, rig->n_ranks);
		op_rig_each(rig, repeat, &one);
	}
}

START_TEST(test_random_operators)
{
	const uint32_t node_of[][4] = { { 0, 1 }, { 0, 0, 1, 1 }, { 0, 1, 0, 1 }, { 0, 1, 1, 2 } };
	const uint32_t n_nodes[] = { 2, 2, 2, 3 }, n_ranks[] = { 2, 4, 4, 4 };
	struct op_rig rig;

	open_mixed(&rig, n_nodes[_i], n_ranks[_i], node_of[_i]);
	run_cases(&rig);
	close_all(&rig);
}
END_TEST

/* All ranks but the last one take turns, or all do. */
static void run_in_turns(const struct op_part *part)
{
	struct op_case one = *(const struct op_case *)part->arg;
	const struct op_part mine = { part->rig, part->rank, &one };

	if (part->rank + 1 == one.n_ranks && one.rows[0] % 2)
		one.tuning.tile_order = CEOV_ORDER_BANDS;
	repeat(&mine);
}

/* Partial sums and sums of a GEMM + all-reduce leave to ranks of both nodes in one order. */
START_TEST(test_turns_across_nodes)
{
	const uint32_t node_of[] = { 0, 1, 1, 0 };
	uint64_t random = testing_seed();
	struct op_case one;
	struct op_rig rig;
	uint32_t i;

	open_mixed(&rig, 2, 4, node_of);
	for (i = 0; i < testing_share(CASES); i++) {
		one = op_case_of(OP_GEMM_AR, 4, 0, 16, 8 + 8 * testing_below(&random, 12));
		one.rows[0] = 1 + testing_below(&random, 300);
		one.by_columns = (int)testing_below(&random, 2);
		one.tuning.mode = CEOV_MODE_OVERLAP;
		one.tuning.n_pieces = 2 + (uint32_t)testing_below(&random, 4);
		one.tuning.tile_order = CEOV_ORDER_TURNS;
		op_rig_each(&rig, run_in_turns, &one);
	}
	close_all(&rig);
}
END_TEST

/* Sums in two levels; _i: which nodes. Reduce-scatters and all-reduces of all types, with gaps,
 * empty parts and factors. */
START_TEST(test_random_sums_by_node)
{
	static const uint32_t node_of[][8] = {
		{ 0, 0, 1, 1 }, { 0, 1, 0, 1, 1 }, { 0, 0, 0, 1, 2, 2 }, { 0, 1, 1, 1, 1, 1, 2, 0 },
		{ 0, 1, 2 },
	};
	static const uint32_t n_nodes[] = { 2, 2, 3, 3, 3 }, n_ranks[] = { 4, 5, 6, 8, 3 };
	uint64_t random = testing_seed();
	struct op_case one;
	struct op_rig rig;
	uint32_t i;

	open_mixed(&rig, n_nodes[_i], n_ranks[_i], node_of[_i]);
	for (i = 0; i < testing_share(CASES); ) {
		one = op_case_random(&random, rig.n_ranks);
		if (!op_is_sum(one.sort))
			continue;
		one.node_of = node_of[_i];
		op_rig_each(&rig, repeat, &one);
		i++;
	}
	close_all(&rig);
}
END_TEST

/* What a rank sends to another has more pieces than one. */
START_TEST(test_large_operands)
{
	const struct op_case cases[] = {
		op_case_of(OP_AG_GEMM, 2, 550, 2048, 8),
		op_case_of(OP_REDUCE_SCATTER, 2, 550 * 2048, 0, 0),
		op_case_of(OP_GEMM_A2A, 2, 550, 8, 2048),
		op_case_of(OP_A2A_GEMM, 2, 550, 2048, 8),
		op_case_of(OP_GEMM_AR, 2, 120, 8, 8192),
	};
	struct op_case one = cases[_i];
	struct op_rig rig;

	one.tuning.n_pieces = 1;
	one.wants_gathered = 1;
	one.by_columns = 1;             /* rows with gaps, where there is an all-to-all */
	nodes_open(&nodes, 2, 1);
	open_workspaces(&rig);
	op_rig_each(&rig, once, &one);
	close_all(&rig);
}
END_TEST

/* --- moves ------------------------------------------------------------------------------- */

static unsigned char *allocate(uint64_t n_bytes)
{
	unsigned char *memory = aligned_alloc(MOVE_STEP, n_bytes + MOVE_STEP);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static void move_once(const struct move_case *one, uint32_t rank, uint64_t number, ceov_op *op)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };
	unsigned char *source = allocate(move_leaves_at(one, rank, one->n_ranks));
	unsigned char *target = allocate(move_arrives_at(one, one->n_ranks, rank));
	uint32_t i, n = one->is_gather ? 1 : one->n_ranks;
	uint64_t n_bytes;

	for (i = 0; i < n; i++)
		testing_fill(source + move_leaves_at(one, rank, i), move_block(one, rank, i),
			     move_seed(one, number, rank, i));
	run.source = source;
	run.target = target;
	ck_assert_int_eq(ceov_move_run(op, &run), 0);
	for (i = 0; i < one->n_ranks; i++) {
		n_bytes = move_block(one, i, rank);
		ck_assert_uint_eq(testing_check(target + move_arrives_at(one, i, rank), n_bytes,
						move_seed(one, number, i, rank)), n_bytes);
	}
	free(source);
	free(target);
}

static void move(const struct op_part *part)
{
	const struct move_case *one = part->arg;
	ceov_op *op = NULL;
	uint64_t number;

	ck_assert_int_eq(move_create(one, part->rig->workspaces[part->rank], &op), 0);
	for (number = 0; number < RUNS; number++)
		move_once(one, part->rank, number, op);
	ceov_op_release(op);
}

/* Ranks reach the memory of their own node alone: a direct mode is refused, at each rank that has a
 * peer on another node, and is not among what is measured. */
START_TEST(test_direct_modes_are_refused)
{
	const uint32_t node_of[] = { 0, 1, 1 };
	struct op_case sum = op_case_of(OP_ALL_REDUCE, 3, 80, 0, 0);
	struct move_case one = move_case_of(1, 3, 160);
	struct op_rig rig;
	ceov_op *op = NULL;
	uint32_t i;

	open_mixed(&rig, 2, 3, node_of);
	sum.tuning.mode = CEOV_MODE_TWO_SHOT;
	one.mode = CEOV_MODE_DIRECT;
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(op_case_create(&sum, rig.workspaces[i], &op), CEOV_ERR_INVALID);
		ck_assert_int_eq(move_create(&one, rig.workspaces[i], &op), CEOV_ERR_INVALID);
		ck_assert(!cei_op_rates(rig.workspaces[i]).has_direct);
	}
	ck_assert_ptr_null(op);
	close_all(&rig);
}
END_TEST

START_TEST(test_random_moves)
{
	const uint32_t node_of[] = { 0, 1, 1, 0 };
	uint64_t random = testing_seed();
	struct move_case one;
	struct op_rig rig;
	uint32_t i;

	open_mixed(&rig, 2, 4, node_of);
	for (i = 0; i < testing_share(CASES); i++) {
		one = move_case_random(&random, 4, LIMIT);
		op_rig_each(&rig, move, &one);
	}
	close_all(&rig);
}
END_TEST

/* --- marks ------------------------------------------------------------------------------- */

/* What is sent to each rank of another node has a lane of its own, so each of these lanes says that
 * it has read the caller's memory. */
START_TEST(test_each_lane_says_what_it_sent)
{
	const uint32_t node_of[] = { 0, 0, 1, 2 };
	struct op_case one = op_case_of(OP_REDUCE_SCATTER, 4, 64, 0, 0);
	struct op_rig rig;
	ceov_op *op;

	open_mixed(&rig, 3, 4, node_of);
	op = op_case_made(&one, rig.workspaces[0]);
	ck_assert_uint_eq(op->n_sent, 3);
	ck_assert(op->stages[0].awaits_start && !op->stages[0].follows);
	ceov_op_release(op);
	op = op_case_made(&one, rig.workspaces[2]);
	ck_assert_uint_eq(op->n_sent, 4);
	ceov_op_release(op);
	close_all(&rig);
}
END_TEST

/* Counts, in the plan of one rank, the transfers with the bytes of each source to other nodes.
 * Bytes from a rank's operand are its own; others are at their source's place in scratch. */
static void count_entries(const struct op_rig *rig, uint32_t rank, const ceov_op *op,
			  uint32_t n_entries[OP_RANKS_MAX][NODES_MAX])
{
	const struct cei_program *program = &op->stages[0].plan[0]->program;
	const struct cei_levels *levels = &rig->workspaces[rank]->levels;
	const struct cei_program_transfer *transfer;
	uint32_t i, target;

	for (i = 0; i < program->n_transfers; i++) {
		transfer = &program->transfers[i];
		if (!transfer->row_bytes)
			continue;
		target = program->buffers[transfer->target.buffer].rank;
		if (levels->node[target] == levels->node[rank])
			continue;
		ck_assert_uint_eq(transfer->source.buffer, program->floating);
		n_entries[rank][levels->node[target]]++;
	}
}

/* Each shard of a gather enters each other node once; _i: all-gather + GEMM, or all-gather. */
START_TEST(test_a_shard_enters_a_node_once)
{
	const uint32_t node_of[] = { 0, 0, 1, 1, 1 };
	uint32_t n_entries[OP_RANKS_MAX][NODES_MAX] = { { 0 } }, rank;
	struct op_case product = op_case_of(OP_AG_GEMM, 5, 64, 8, 8);
	struct move_case gather = move_case_of(1, 5, 4096);
	struct op_rig rig;
	ceov_op *op = NULL;

	product.tuning.n_pieces = gather.n_pieces = 1;
	open_mixed(&rig, 2, 5, node_of);
	for (rank = 0; rank < 5; rank++) {
		ck_assert_int_eq(_i ? move_create(&gather, rig.workspaces[rank], &op)
				 : op_case_create(&product, rig.workspaces[rank], &op), 0);
		count_entries(&rig, rank, op, n_entries);
		ceov_op_release(op);
	}
	for (rank = 0; rank < 5; rank++)
		ck_assert_uint_eq(n_entries[rank][!node_of[rank]], 1);
	op_rig_each(&rig, _i ? move : repeat, _i ? (void *)&gather : (void *)&product);
	close_all(&rig);
}
END_TEST

/* Counts a plan's transfers with bytes to other nodes. */
static uint32_t count_far(const ceov_workspace *workspace, const ceov_plan *plan)
{
	const struct cei_levels *levels = &workspace->levels;
	uint32_t i, target, n = 0;

	for (i = 0; plan && i < plan->program.n_transfers; i++) {
		if (!plan->program.transfers[i].row_bytes)
			continue;
		target = plan->program.buffers[plan->program.transfers[i].target.buffer].rank;
		n += levels->node[target] != levels->node[workspace->rank];
	}
	return n;
}

/* By node, each part gets one sum from each other node, and in an all-reduce (_i) each sum goes to
 * each other node once. */
START_TEST(test_a_node_sends_one_sum)
{
	const uint32_t node_of[] = { 0, 0, 1, 1, 1, 2 };
	struct op_case one = op_case_of(_i ? OP_ALL_REDUCE : OP_REDUCE_SCATTER, 6, 64, 0, 0);
	uint32_t rank, n_parts = 0, n_node_sums = 0, n_sums = 0;
	struct op_rig rig;
	ceov_op *op;

	one.node_of = node_of;
	one.tuning.n_pieces = 1;
	open_mixed(&rig, 3, 6, node_of);
	for (rank = 0; rank < 6; rank++) {
		op = op_case_made(&one, rig.workspaces[rank]);
		n_parts += count_far(op->workspace, op->stages[0].plan[0]);
		n_node_sums += count_far(op->workspace, op->stages[1].plan[0]);
		n_sums += count_far(op->workspace, op->stages[2].plan[0]);
		ceov_op_release(op);
	}
	ck_assert_uint_eq(n_parts, 5);          /* of the node that has one rank */
	ck_assert_uint_eq(n_node_sums, 6 * 2 - 5);
	ck_assert_uint_eq(n_sums, _i ? 6 * 2 : 0);
	close_all(&rig);
}
END_TEST

/* --- failures ---------------------------------------------------------------------------- */

static void run_without(const struct op_part *part)
{
	const struct op_case *one = part->arg;
	ceov_op *op = op_case_made(one, part->rig->workspaces[part->rank]);
	struct op_data data;
	int r = 0;
	uint64_t seed;

	for (seed = 0; !r && seed < 1000; seed++) {
		if (part->rank == 0 && seed == 3)
			nodes_cut(&nodes, 0, 1);
		op_data_make(one, part->rank, seed, &data);
		r = op_data_run(one, op, &data);
		if (!r)
			op_data_check(one, part->rank, seed, &data);
		op_data_free(&data);
	}
	ck_assert_msg(r == CEOV_ERR_PEER_LOST || r == CEOV_ERR_UNCERTAIN ||
		      r == CEOV_ERR_ABORTED, "%d", r);
}

/* A network that is cut ends the runs of all ranks with an error. */
START_TEST(test_a_cut_network_ends_runs)
{
	const uint32_t node_of[] = { 0, 1, 0, 1 };
	struct op_case one = op_case_of(_i ? OP_ALL_REDUCE : OP_AG_GEMM, 4, 64, 8, 8);
	struct op_rig rig;

	open_mixed(&rig, 2, 4, node_of);
	op_rig_each(&rig, run_without, &one);
	nodes_close(&nodes);
}
END_TEST

/* --- numbers that ranks exchange ---------------------------------------------------------- */

#define ROUNDS 200u

/* Rank i is on node i; its facts are 132 - 32 i and none. */
static void open_numbers(struct cei_allreduce ranks[2])
{
	uint32_t i;

	nodes_open(&nodes, 2, 1);
	memset(ranks, 0, 2 * sizeof(*ranks));
	for (i = 0; i < 2; i++) {
		ranks[i].context = nodes_context(&nodes, i);
		ranks[i].rank = i;
		ranks[i].n_ranks = 2;
		ranks[i].facts[CEI_ALLREDUCE_SMS] = 132 - 32 * i;
		ranks[i].signals[i] = testing_signal(ranks[i].context, i, CEI_ALLREDUCE_COUNTERS);
		ck_assert_int_eq(cei_allreduce_tell_facts(&ranks[i]), 0);
		ck_assert_int_eq(ceov_signal_share(ranks[i].signals[i], "numbers"), 0);
	}
	for (i = 0; i < 2; i++)
		ranks[i].signals[!i] = nodes_find_signal(&nodes, i, !i, "numbers");
}

/* What a rank knows of a fact of another node is what that node has said, so it waits for that. */
START_TEST(test_facts_of_another_node)
{
	struct cei_allreduce ranks[2];
	uint64_t least;
	uint32_t i;

	open_numbers(ranks);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(cei_allreduce_least(&ranks[i], CEI_ALLREDUCE_SMS,
						     cei_deadline(TESTING_PATIENCE), &least), 0);
		ck_assert_uint_eq(least, 100);
		ck_assert_int_eq(cei_allreduce_least(&ranks[i], CEI_ALLREDUCE_COPY_RATE,
						     cei_deadline(TESTING_PATIENCE), &least), 0);
		ck_assert_uint_eq(least, 0);
	}
	nodes_close(&nodes);
}
END_TEST

static void *make_rounds(void *arg)
{
	struct cei_allreduce *allreduce = arg;
	struct cei_allreduce_range range;
	uint64_t i, own;

	for (i = 0; i < testing_share(ROUNDS); i++) {
		own = allreduce->rank ? 3 * i : i;
		ck_assert_int_eq(cei_allreduce_range(allreduce, own, TESTING_PATIENCE, &range), 0);
		ck_assert_uint_eq(range.min, i);
		ck_assert_uint_eq(range.max, 3 * i);
	}
	return NULL;
}

START_TEST(test_rounds_with_another_node)
{
	struct cei_allreduce ranks[2];
	pthread_t other;

	open_numbers(ranks);
	ck_assert_int_eq(pthread_create(&other, NULL, make_rounds, &ranks[1]), 0);
	make_rounds(&ranks[0]);
	pthread_join(other, NULL);
	nodes_close(&nodes);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("nodes_ops");
	TCase *tcase = tcase_create("nodes_ops");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, test_random_operators, 0, 4);
	tcase_add_test(tcase, test_turns_across_nodes);
	tcase_add_loop_test(tcase, test_random_sums_by_node, 0, 5);
	tcase_add_loop_test(tcase, test_large_operands, 0, (int)testing_share(5));
	tcase_add_test(tcase, test_direct_modes_are_refused);
	tcase_add_test(tcase, test_random_moves);
	tcase_add_test(tcase, test_each_lane_says_what_it_sent);
	tcase_add_test(tcase, test_facts_of_another_node);
	tcase_add_test(tcase, test_rounds_with_another_node);
	tcase_add_loop_test(tcase, test_a_shard_enters_a_node_once, 0, 2);
	tcase_add_loop_test(tcase, test_a_node_sends_one_sum, 0, 2);
	tcase_add_loop_test(tcase, test_a_cut_network_ends_runs, 0, 2);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
