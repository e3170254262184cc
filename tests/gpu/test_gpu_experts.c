/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Dispatch and combine of a mixture of experts on GPUs, against what plain loops on the host make
 * of the data of all ranks: the same places, and the same bits of the same sums.
 *
 *   CEOVERLAP_GPU_EXPERT_SHAPES   shapes for each number of ranks (default 20)
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu_expert_data.h"
#include "kernels/experts.h"
#include "ops/core/op.h"
#include "ops/exec_cuda/execute_cuda.h"
#include "system/daemon_fixture.h"

#define BATCHES     5u
#define QUEUED      12u
#define LATE_ROUNDS 8u
#define LATE_US     30000u
#define NAME        "experts"

static struct gpu_op_rig rig;
static struct gpu_experts experts;
static uint32_t n_all;
static uint64_t random_shapes;
static int has_daemon;                  /* 1: a daemon moves the bytes */

/* --- runs ------------------------------------------------------------------------- */

static int dispatch(struct gpu_op_rank *rank, ceov_op *op, const struct gpu_experts_device *device,
		    int is_routed)
{
	struct ceov_moe_dispatch_run run = { .struct_bytes = sizeof(run) };

	run.stream = rank->gpu.streams[GPU_CONSUME];
	run.n_tokens = experts.all[rank->rank].n_tokens;
	run.tokens = device->tokens;
	run.is_routed = is_routed;
	run.experts = device->experts;
	run.routing = (struct ceov_moe_routing){ device->slots, device->arrived };
	run.received = device->received;
	run.ends = device->ends;
	run.sent = device->sent;
	run.group = device->group;
	return ceov_moe_dispatch_run(op, &run);
}

static int combine(struct gpu_op_rank *rank, ceov_op *op, const struct gpu_experts_device *device,
		   int is_weighted)
{
	struct ceov_moe_combine_run run = { .struct_bytes = sizeof(run) };

	run.stream = rank->gpu.streams[GPU_CONSUME];
	run.n_tokens = experts.all[rank->rank].n_tokens;
	run.rows = device->received;
	run.weights = is_weighted ? device->weights : NULL;
	run.routing = (struct ceov_moe_routing){ device->slots, device->arrived };
	run.sums = device->sums;
	run.group = device->group;
	return ceov_moe_combine_run(op, &run);
}

/* --- one layer --------------------------------------------------------------------- */

struct layer {
	ceov_op *dispatch, *combine;
};

/* All ranks call it: creates the operators, and data that the first rank draws for all. */
static struct layer make_layer(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	struct layer layer = { NULL, NULL };

	rank->used_bytes = 0;
	gpu_op_meet(rank);
	gpu_experts_make(&experts, &experts.all[rank->rank]);
	ck_assert_int_eq(ceov_moe_dispatch_create(workspace, &experts.shape, &layer.dispatch), 0);
	ck_assert_int_eq(ceov_moe_combine_create(workspace, &experts.shape, &layer.combine), 0);
	if (has_daemon)
		testing_explained(layer.dispatch->stages[0].plan[0], "carried out by the daemon");
	gpu_op_meet(rank);
	return layer;
}

static void release_layer(struct gpu_op_rank *rank, struct layer *layer)
{
	gpu_op_meet(rank);
	ceov_op_release(layer->dispatch);
	ceov_op_release(layer->combine);
	gpu_experts_free(&experts.all[rank->rank]);
	gpu_op_meet(rank);
}

static void draw_for_all(struct gpu_op_rank *rank, uint32_t kind, uint64_t *random)
{
	gpu_op_meet(rank);
	if (!rank->rank)
		gpu_experts_draw(&experts, kind, random);
	gpu_op_meet(rank);
}

/* One group forward, with the experts' work on the host between both runs. */
static void pass_group(struct gpu_op_rank *rank, const struct layer *layer,
		       const struct gpu_experts_device *device, int is_weighted)
{
	const struct gpu_experts_sum how = { is_weighted, 1 };

	gpu_experts_clear(&experts, rank, device);
	gpu_op_meet(rank);
	ck_assert_int_eq(dispatch(rank, layer->dispatch, device, device->group > 0), 0);
	gpu_op_idle(rank, GPU_CONSUME);
	gpu_experts_check_routing(&experts, rank, device);
	gpu_experts_check_received(&experts, rank, device);
	gpu_experts_apply(&experts, rank, device);
	gpu_op_meet(rank);
	ck_assert_int_eq(combine(rank, layer->combine, device, is_weighted), 0);
	gpu_op_idle(rank, GPU_CONSUME);
	gpu_experts_check_sums(&experts, rank, device, how);
	gpu_experts_check_guards(&experts, rank, device);
}

/* Forward: one group after another. */
static void pass(struct gpu_op_rank *rank, const struct layer *layer,
		 const struct gpu_experts_device *device, int is_weighted)
{
	struct gpu_experts_device at = *device;

	gpu_experts_load(&experts, rank, device);
	for (at.group = 0; at.group < experts.shape.n_groups; at.group++)
		pass_group(rank, layer, &at, is_weighted);
}

static void each_rank(uint32_t n_ranks, void (*body)(struct gpu_op_rank *rank, const void *arg),
		      const void *arg)
{
	experts.n_ranks = n_ranks;
	gpu_op_open(&rig, n_ranks);
	gpu_op_each(&rig, body, arg);
	gpu_op_close(&rig);
}

/* What kernels of this rank's operators have written of a failure: enum cei_experts_fault, or 0.
 * The rank's streams are idle. */
static uint32_t fault_word(const ceov_workspace *workspace)
{
	const struct cei_gpu_executor *own = workspace->executor.private;

	/* relaxed: the kernels have ended */
	return atomic_load_explicit(own->status, memory_order_relaxed);
}

/* --- the tests --------------------------------------------------------------------- */

static const struct gpu_op_mode plain = { NAME, 0, 0, 0 };

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	uint32_t n = gpu_setting("CEOVERLAP_GPU_EXPERT_SHAPES", 20), i, batch;
	struct gpu_experts_device device;
	struct layer layer;

	(void)arg;
	for (i = 0; i < n; i++) {
		gpu_op_meet(rank);
		if (!rank->rank)
			gpu_experts_draw_shape(&experts, &random_shapes);
		gpu_op_meet(rank);
		layer = make_layer(rank, workspace);
		device = gpu_experts_device(&experts, rank);
		for (batch = 0; batch < BATCHES; batch++) {
			draw_for_all(rank, batch, &random_shapes);
			pass(rank, &layer, &device, batch % 2);
		}
		ck_assert_int_eq(ceov_workspace_status(workspace), 0);
		ck_assert_uint_eq(fault_word(workspace), 0);
		release_layer(rank, &layer);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_random_batches)
{
	random_shapes = testing_seed();
	each_rank(_i ? n_all : 2, try_shapes, NULL);
}
END_TEST

START_TEST(test_one_rank_alone)
{
	random_shapes = testing_seed();
	each_rank(1, try_shapes, NULL);
}
END_TEST

/* The ranks' memory, marks and numbers of rows are then mapped by the daemon. */
START_TEST(test_through_a_daemon)
{
	struct daemon_fixture server = { .drain = NULL };

	daemon_start(&server, "d.sock");
	ck_assert_int_eq(setenv("CEOVERLAP_DAEMON", server.path, 1), 0);
	has_daemon = 1;
	random_shapes = testing_seed();
	each_rank(2, try_shapes, NULL);
	daemon_end(&server);
	has_daemon = 0;
	ck_assert_int_eq(unsetenv("CEOVERLAP_DAEMON"), 0);
}
END_TEST

/* All ranks call it: a shape that is always the same, with so many groups. */
static void set_shape(struct gpu_op_rank *rank, uint32_t n_groups)
{
	gpu_op_meet(rank);
	if (!rank->rank) {
		gpu_experts_shape(&experts);
		experts.shape.n_groups = n_groups;
	}
	gpu_op_meet(rank);
}

/* is_counted 0: how many rows leave is looked up in the slots. */
static void go_back_group(struct gpu_op_rank *rank, const struct layer *layer,
			  const struct gpu_experts_device *device, int is_counted)
{
	struct gpu_experts_device given = *device;

	if (!is_counted)
		given.sent = NULL;
	gpu_experts_clear(&experts, rank, device);
	gpu_op_meet(rank);
	ck_assert_int_eq(dispatch(rank, layer->dispatch, &given, 1), 0);
	ck_assert_int_eq(combine(rank, layer->combine, device, 0), 0);
	gpu_op_idle(rank, GPU_CONSUME);
	gpu_experts_check_received(&experts, rank, device);
	gpu_experts_check_sums(&experts, rank, device, (struct gpu_experts_sum){ 0, 0 });
	gpu_experts_check_guards(&experts, rank, device);
}

/* As a backward pass does: gradients of sums take the places that tokens took, and gradients of
 * rows come back without weights. */
static void go_back(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	struct gpu_experts_device device;
	struct layer layer;
	uint32_t i;

	set_shape(rank, *(const uint32_t *)arg);
	layer = make_layer(rank, workspace);
	device = gpu_experts_device(&experts, rank);
	draw_for_all(rank, 3, &random_shapes);
	pass(rank, &layer, &device, 1);
	gpu_op_meet(rank);
	gpu_experts_renew(&experts, rank, &device, testing_seed() + 17 * rank->rank);
	gpu_op_meet(rank);
	for (i = 0; i < 2 * experts.shape.n_groups; i++) {
		device.group = experts.shape.n_groups - 1 - i / 2;
		go_back_group(rank, &layer, &device, i % 2);
	}
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_routing_is_used_again)
{
	const uint32_t n_groups[] = { 1, 2 };

	random_shapes = testing_seed();
	each_rank(_i ? n_all : 2, go_back, &n_groups[0]);
	each_rank(_i ? n_all : 2, go_back, &n_groups[1]);
}
END_TEST

/* Memory of two groups of one batch: the second one has results of its own, and the operands and
 * the routing of the first one. */
struct pair {
	struct gpu_experts_device first, second;
};

static struct pair make_pair(struct gpu_op_rank *rank)
{
	struct pair pair;

	pair.first = gpu_experts_device(&experts, rank);
	pair.second = gpu_experts_device(&experts, rank);
	gpu_experts_load(&experts, rank, &pair.first);
	gpu_experts_load(&experts, rank, &pair.second);
	return pair;
}

static struct gpu_experts_device second_of(const struct pair *pair)
{
	struct gpu_experts_device at = pair->second;

	at.group = 1;
	at.tokens = pair->first.tokens;
	at.experts = pair->first.experts;
	at.weights = pair->first.weights;
	at.slots = pair->first.slots;
	at.arrived = pair->first.arrived;
	at.sent = pair->first.sent;
	return at;
}

static void queue_pair(struct gpu_op_rank *rank, const struct layer *layer,
		       const struct pair *pair)
{
	const struct gpu_experts_device second = second_of(pair);

	ck_assert_int_eq(dispatch(rank, layer->dispatch, &pair->first, 0), 0);
	if (experts.shape.n_groups > 1)
		ck_assert_int_eq(dispatch(rank, layer->dispatch, &second, 1), 0);
	ck_assert_int_eq(combine(rank, layer->combine, &pair->first, 1), 0);
	if (experts.shape.n_groups > 1)
		ck_assert_int_eq(combine(rank, layer->combine, &second, 1), 0);
}

static void check_pair(struct gpu_op_rank *rank, const struct pair *pair)
{
	const struct gpu_experts_device second = second_of(pair);
	const struct gpu_experts_sum how = { 1, 0 };

	gpu_experts_check_routing(&experts, rank, &pair->first);
	gpu_experts_check_received(&experts, rank, &pair->first);
	gpu_experts_check_sums(&experts, rank, &pair->first, how);
	if (experts.shape.n_groups > 1) {
		gpu_experts_check_received(&experts, rank, &second);
		gpu_experts_check_sums(&experts, rank, &second, how);
	}
	gpu_experts_check_guards(&experts, rank, &pair->first);
	gpu_experts_check_guards(&experts, rank, &pair->second);
}

/* Queues dispatches and combines one behind the other, without a look in between, by ranks that
 * come late. Each batch has memory of its own. */
static void queue_ahead(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	uint64_t random = testing_seed() + rank->rank;
	struct pair pairs[QUEUED];
	struct layer layer;
	uint32_t i;

	set_shape(rank, *(const uint32_t *)arg);
	layer = make_layer(rank, workspace);
	draw_for_all(rank, 3, &random_shapes);
	for (i = 0; i < QUEUED; i++)
		pairs[i] = make_pair(rank);
	gpu_op_meet(rank);
	for (i = 0; i < QUEUED; i++) {
		gpu_op_be_late(rank, GPU_CONSUME, &random);
		queue_pair(rank, &layer, &pairs[i]);
	}
	gpu_op_idle(rank, GPU_CONSUME);
	for (i = 0; i < QUEUED; i++)
		check_pair(rank, &pairs[i]);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_runs_are_queued_ahead)
{
	const uint32_t n_groups[] = { 1, 2 };

	random_shapes = testing_seed();
	each_rank(_i ? n_all : 2, queue_ahead, &n_groups[0]);
	each_rank(_i ? n_all : 2, queue_ahead, &n_groups[1]);
}
END_TEST

/* One rank after another comes late to a dispatch, and the next one to the combine behind it. */
static void come_late(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	struct layer layer = make_layer(rank, workspace);
	struct gpu_experts_device device = gpu_experts_device(&experts, rank);
	uint32_t i;

	(void)arg;
	for (i = 0; i < LATE_ROUNDS; i++) {
		draw_for_all(rank, 3, &random_shapes);
		gpu_experts_load(&experts, rank, &device);
		gpu_op_meet(rank);
		if (i % experts.n_ranks == rank->rank)
			usleep(LATE_US);
		ck_assert_int_eq(dispatch(rank, layer.dispatch, &device, 0), 0);
		if ((i + 1) % experts.n_ranks == rank->rank)
			usleep(LATE_US);
		ck_assert_int_eq(combine(rank, layer.combine, &device, 1), 0);
		gpu_op_idle(rank, GPU_CONSUME);
		gpu_experts_check_routing(&experts, rank, &device);
		gpu_experts_check_received(&experts, rank, &device);
		gpu_experts_check_sums(&experts, rank, &device, (struct gpu_experts_sum){ 1, 0 });
		gpu_experts_check_guards(&experts, rank, &device);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	ck_assert_uint_eq(fault_word(workspace), 0);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_a_late_rank)
{
	random_shapes = testing_seed();
	experts.n_ranks = _i ? n_all : 2;
	gpu_experts_shape(&experts);
	each_rank(experts.n_ranks, come_late, NULL);
}
END_TEST

/* Writes one wrong number into what rank 0 gives to a run. */
static void spoil_number(struct gpu_op_rank *rank, const struct gpu_experts_device *device,
			 int which)
{
	const int32_t capacity = (int32_t)gpu_experts_capacity(&experts);
	const int32_t numbers[] = { (int32_t)experts.shape.n_experts, -2, -2, 2 * capacity,
				    capacity + 1 };
	void *const at[] = { device->experts + 3, device->experts + 3, device->slots + 1,
			     device->slots + 1, device->arrived };

	gpu_move(&rank->gpu, at[which], &numbers[which], sizeof(numbers[which]));
}

/* Cases 0 and 1 are wrong numbers of a dispatch, 2 to 4 of a combine; in case 5 more rows come than
 * there is room for. */
static void go_wrong(struct gpu_op_rank *rank, const void *arg)
{
	static const uint32_t faults[] = { CEI_EXPERTS_NO_EXPERT, CEI_EXPERTS_NO_EXPERT,
					   CEI_EXPERTS_NO_SLOT, CEI_EXPERTS_NO_SLOT,
					   CEI_EXPERTS_FULL_BLOCK, CEI_EXPERTS_TOO_MANY };
	int which = *(const int *)arg, is_wrong = !rank->rank, r;
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	struct layer layer = make_layer(rank, workspace);
	struct gpu_experts_device device = gpu_experts_device(&experts, rank);

	draw_for_all(rank, 2, &random_shapes);
	gpu_experts_load(&experts, rank, &device);
	if (is_wrong && which < 2)
		spoil_number(rank, &device, which);
	gpu_op_meet(rank);
	r = dispatch(rank, layer.dispatch, &device, 0);
	if (which > 1 && which < 5) {
		ck_assert_int_eq(r, 0);
		gpu_idle(&rank->gpu, GPU_CONSUME);
		if (is_wrong)
			spoil_number(rank, &device, which);
		gpu_op_meet(rank);
		r = combine(rank, layer.combine, &device, 1);
	}
	/* The run is queued, unless it was found to be wrong even while it was queued. */
	if (r)
		ck_assert_int_lt(r, 0);
	if (is_wrong || which < 5)
		ck_assert_int_eq(gpu_op_error(rank, workspace), CEOV_ERR_INVALID);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	if (is_wrong)
		ck_assert_uint_eq(fault_word(workspace), faults[which]);
	gpu_experts_check_guards(&experts, rank, &device);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_wrong_values_end_the_run)
{
	random_shapes = testing_seed();
	experts.n_ranks = 2;
	gpu_experts_shape(&experts);
	experts.shape.n_received = _i == 5 ? 1 : 0;
	each_rank(2, go_wrong, &_i);
}
END_TEST

/* A workspace's first op decides whether the calling thread or the engine carries out its runs. */
static void refuse_others(struct gpu_op_rank *rank, const void *arg)
{
	const struct op_case sum = gpu_op_case_plain(OP_ALL_REDUCE, 2);
	ceov_workspace *workspace = gpu_op_workspace(rank, &plain);
	ceov_op *op = NULL, *other = NULL;

	(void)arg;
	ck_assert_int_eq(op_case_create(&sum, workspace, &op), 0);
	ck_assert_int_eq(ceov_moe_dispatch_create(workspace, &experts.shape, &other),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_moe_combine_create(workspace, &experts.shape, &other),
			 CEOV_ERR_INVALID);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
	workspace = gpu_op_workspace(rank, &plain);
	ck_assert_int_eq(ceov_moe_dispatch_create(workspace, &experts.shape, &op), 0);
	ck_assert_int_eq(op_case_create(&sum, workspace, &other), CEOV_ERR_INVALID);
	ck_assert_ptr_null(workspace->capture);
	ceov_op_release(op);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_other_operators_need_another_workspace)
{
	experts.n_ranks = 2;
	gpu_experts_shape(&experts);
	each_rank(2, refuse_others, NULL);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu experts");
	TCase *cases = tcase_create("experts");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(cases, 100);
	tcase_add_loop_test(cases, test_random_batches, n_all == 2, 2);
	tcase_add_test(cases, test_one_rank_alone);
	if (access("./ceoverlapd", X_OK))
		printf("left out: a daemon, which was not built\n");
	else
		tcase_add_test(cases, test_through_a_daemon);
	tcase_add_loop_test(cases, test_a_routing_is_used_again, n_all == 2, 2);
	tcase_add_loop_test(cases, test_runs_are_queued_ahead, n_all == 2, 2);
	tcase_add_loop_test(cases, test_a_late_rank, n_all == 2, 2);
	tcase_add_loop_test(cases, test_wrong_values_end_the_run, 0, 6);
	tcase_add_test(cases, test_other_operators_need_another_workspace);
	suite_add_tcase(made, cases);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
