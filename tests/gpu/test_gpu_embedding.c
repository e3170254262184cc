/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Embedding bags + all-to-all and its backward on GPUs, launched by the engine and queued by the
 * calling thread, against what plain loops on the host make of the data of all ranks: the same
 * bits. All ranks are in this process and share the host's data, which rank 0 draws.
 *
 *   CEOVERLAP_GPU_EMBEDDING_SHAPES   shapes for each kind of workspace (default 12)
 */

#include <stdlib.h>
#include <string.h>

#include "gpu_graph.h"
#include "gpu_op_rig.h"

#include "unit/embedding_data.h"

#define SHAPES      12u
#define BATCHES     3u
#define QUEUED      8u
#define REPLAYS     12u
#define ALIGN_BYTES UINT64_C(256)
#define SCALE       40u                 /* by which a part of the shapes gets more samples */

/* More indices than the batches of graphs have: 2 tables for each of at most 4 ranks. */
#define GRAPH_INDICES 4096u

static struct gpu_op_rig rig;
static struct embedding_data batches[QUEUED];
static struct embedding_data *const data = &batches[0];
static uint32_t n_all;
static uint64_t random_data;

/* What a rank has on its GPU, in its arena. */
struct device {
	char    *tables, *grads;
	int64_t *indices, *offsets;
	float   *weights;
	char    *pooled, *bag_grads, *row_grads;
	uint64_t n_indices;             /* for which there is room */
};

struct layer {
	ceov_op *forward, *backward;
};

/* --- memory ------------------------------------------------------------------------ */

static void *take(struct gpu_op_rank *rank, uint64_t n_bytes)
{
	char *taken = rank->arena + rank->used_bytes;

	rank->used_bytes += (n_bytes + 2 * ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
	ck_assert_uint_le(rank->used_bytes, GPU_OP_ARENA_BYTES);
	return taken;
}

static uint64_t n_bags(const struct embedding_data *of, uint32_t rank)
{
	return of->n_local[rank] * embedding_all_samples(of);
}

/* The bytes of one row of the gradients of rows. */
static uint64_t row_bytes(const struct embedding_data *of, uint32_t rank)
{
	uint64_t n = of->ranks[rank].n_indices;

	return n ? embedding_row_grads_bytes(of, rank) / n : 0;
}

/* n_indices: how many there is room for. */
static struct device make_device(struct gpu_op_rank *rank, const struct embedding_data *of,
				 uint64_t n_indices)
{
	struct device device = { .n_indices = n_indices };
	uint32_t own = rank->rank;

	device.tables = take(rank, embedding_table_bytes(of, own));
	device.grads = take(rank, embedding_pooled_bytes(of, own));
	device.indices = take(rank, n_indices * sizeof(int64_t));
	device.offsets = take(rank, (n_bags(of, own) + 1) * sizeof(int64_t));
	device.weights = take(rank, n_indices * sizeof(float));
	device.pooled = take(rank, embedding_pooled_bytes(of, own));
	device.bag_grads = take(rank, embedding_bag_grads_bytes(of, own));
	device.row_grads = take(rank, n_indices * row_bytes(of, own));
	return device;
}

static struct device make_fitting(struct gpu_op_rank *rank, const struct embedding_data *of)
{
	return make_device(rank, of, of->ranks[rank->rank].n_indices);
}

static void load(struct gpu_op_rank *rank, void *to, const void *from, uint64_t n_bytes)
{
	if (n_bytes)
		gpu_move(&rank->gpu, to, from, n_bytes);
}

/* Fills a result and the bytes behind it with the guards' byte. */
static void spoil(struct gpu_op_rank *rank, void *result, uint64_t n_bytes)
{
	char *guard = embedding_guarded(n_bytes);

	load(rank, result, guard, n_bytes + EMBEDDING_GUARD_BYTES);
	free(guard);
}

static void load_device(struct gpu_op_rank *rank, const struct embedding_data *of,
			const struct device *device)
{
	uint32_t own = rank->rank;
	const struct embedding_rank *from = &of->ranks[own];

	ck_assert_uint_le(from->n_indices, device->n_indices);
	load(rank, device->tables, from->tables, embedding_table_bytes(of, own));
	load(rank, device->grads, from->grads, embedding_pooled_bytes(of, own));
	load(rank, device->indices, from->indices, from->n_indices * sizeof(int64_t));
	load(rank, device->offsets, from->offsets, (n_bags(of, own) + 1) * sizeof(int64_t));
	load(rank, device->weights, from->weights, from->n_indices * sizeof(float));
	spoil(rank, device->pooled, embedding_pooled_bytes(of, own));
	spoil(rank, device->bag_grads, embedding_bag_grads_bytes(of, own));
	spoil(rank, device->row_grads, embedding_row_grads_bytes(of, own));
}

/* --- runs -------------------------------------------------------------------------- */

static struct ceov_embedding_bags bags_of(const struct embedding_data *of,
					  const struct device *device)
{
	return (struct ceov_embedding_bags){
		.n_indices = device->n_indices,
		.indices = device->indices,
		.offsets = device->offsets,
		.weights = of->is_weighted ? device->weights : NULL,
	};
}

static int forward(struct gpu_op_rank *rank, ceov_op *op, const struct embedding_data *of,
		   const struct device *device)
{
	struct ceov_embedding_a2a_run run = { .struct_bytes = sizeof(run) };

	run.stream = rank->gpu.streams[GPU_CONSUME];
	run.tables = device->tables;
	run.bags = bags_of(of, device);
	run.pooled = device->pooled;
	return ceov_embedding_a2a_run(op, &run);
}

static int backward(struct gpu_op_rank *rank, ceov_op *op, const struct embedding_data *of,
		    const struct device *device)
{
	struct ceov_embedding_backward_run run = { .struct_bytes = sizeof(run) };

	run.stream = rank->gpu.streams[GPU_CONSUME];
	run.grads = device->grads;
	run.bags = bags_of(of, device);
	run.bag_grads = device->bag_grads;
	run.row_grads = device->row_grads;
	return ceov_embedding_backward_run(op, &run);
}

/* A result of the GPU, and the function that makes what is expected. */
struct result {
	const char *what;
	const void *found;
	uint64_t    n_bytes;
	void      (*expect)(const struct embedding_data *of, uint32_t rank, char *expected);
};

static void check_result(struct gpu_op_rank *rank, const struct embedding_data *of,
			 const struct result *result)
{
	uint64_t n_bytes = result->n_bytes + EMBEDDING_GUARD_BYTES;
	char *expected = embedding_guarded(result->n_bytes);
	char *found = embedding_guarded(result->n_bytes);

	result->expect(of, rank->rank, expected);
	gpu_move(&rank->gpu, found, result->found, n_bytes);
	ck_assert_msg(!memcmp(found, expected, n_bytes), "rank %u: wrong %s", rank->rank,
		      result->what);
	free(expected);
	free(found);
}

static void check_device(struct gpu_op_rank *rank, const struct embedding_data *of,
			 const struct device *device)
{
	uint32_t own = rank->rank;
	const struct result results[] = {
		{ "pooled vectors", device->pooled, embedding_pooled_bytes(of, own),
		  embedding_expect_pooled },
		{ "gradients of bags", device->bag_grads, embedding_bag_grads_bytes(of, own),
		  embedding_expect_bag_grads },
		{ "gradients of rows", device->row_grads, embedding_row_grads_bytes(of, own),
		  embedding_expect_row_grads },
	};
	uint32_t i;

	for (i = 0; i < sizeof(results) / sizeof(results[0]); i++)
		check_result(rank, of, &results[i]);
}

/* --- layers ------------------------------------------------------------------------ */

/* All ranks call it: creates the operators of data->shape. */
static struct layer make_layer(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	struct layer layer = { NULL, NULL };

	rank->used_bytes = 0;
	gpu_op_meet(rank);
	ck_assert_int_eq(ceov_embedding_a2a_create(workspace, &data->shape, &layer.forward), 0);
	ck_assert_int_eq(ceov_embedding_backward_create(workspace, &data->shape, &layer.backward),
			 0);
	gpu_op_meet(rank);
	return layer;
}

static void release_layer(struct gpu_op_rank *rank, struct layer *layer)
{
	gpu_idle(&rank->gpu, GPU_CONSUME);
	gpu_op_meet(rank);
	ceov_op_release(layer->forward);
	ceov_op_release(layer->backward);
	gpu_op_meet(rank);
	if (!rank->rank)
		embedding_data_free(data);
	gpu_op_meet(rank);
}

static void draw_batch(struct gpu_op_rank *rank)
{
	gpu_op_meet(rank);
	if (!rank->rank)
		embedding_draw_batch(data, &random_data);
	gpu_op_meet(rank);
}

static void set_shape(struct gpu_op_rank *rank)
{
	gpu_op_meet(rank);
	if (!rank->rank)
		embedding_set_shape(data, rank->rig->n_ranks);
	gpu_op_meet(rank);
}

static uint64_t scratch_bytes(void)
{
	uint64_t forth = ceov_embedding_a2a_scratch_bytes(&data->shape, data->n_ranks);
	uint64_t back = ceov_embedding_backward_scratch_bytes(&data->shape, data->n_ranks);

	return forth > back ? forth : back;
}

/* Each third shape has more bags than the threads of a GPU. */
static void draw_shape(struct gpu_op_rank *rank, uint32_t number)
{
	uint32_t i;

	gpu_op_meet(rank);
	if (!rank->rank) {
		embedding_draw_shape(data, rank->rig->n_ranks, &random_data);
		for (i = 0; number % 3 == 2 && i < data->n_ranks; i++)
			data->samples[i] *= SCALE;
		while (scratch_bytes() > GPU_OP_SCRATCH)
			for (i = 0; i < data->n_ranks; i++)
				data->samples[i] = (data->samples[i] + 1) / 2;
	}
	gpu_op_meet(rank);
}

/* Runs body with both kinds of workspace. */
static void each_mode(uint32_t n_ranks, void (*body)(struct gpu_op_rank *rank, const void *arg))
{
	struct gpu_op_mode mode = { "embedding", 0, 0, 0 };

	random_data = testing_seed();
	gpu_op_open(&rig, n_ranks);
	gpu_op_each(&rig, body, &mode);
	gpu_op_close(&rig);
}

/* --- the tests --------------------------------------------------------------------- */

static void try_batches(struct gpu_op_rank *rank, ceov_workspace *workspace)
{
	struct layer layer = make_layer(rank, workspace);
	struct device device;
	uint32_t batch;

	for (batch = 0; batch < BATCHES; batch++) {
		rank->used_bytes = 0;
		draw_batch(rank);
		device = make_fitting(rank, data);
		load_device(rank, data, &device);
		gpu_op_meet(rank);
		ck_assert_int_eq(forward(rank, layer.forward, data, &device), 0);
		ck_assert_int_eq(backward(rank, layer.backward, data, &device), 0);
		gpu_op_idle(rank, GPU_CONSUME);
		ck_assert_int_eq(ceov_workspace_status(workspace), 0);
		check_device(rank, data, &device);
	}
	release_layer(rank, &layer);
}

static void try_shapes(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint32_t n = gpu_setting("CEOVERLAP_GPU_EMBEDDING_SHAPES", SHAPES), i;

	for (i = 0; i < n; i++) {
		draw_shape(rank, i);
		try_batches(rank, workspace);
	}
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_random_batches)
{
	each_mode(_i ? n_all : 2, try_shapes);
}
END_TEST

/* Draws batches of data's shape, the first of which is that of data. */
static void draw_batches(struct gpu_op_rank *rank)
{
	uint32_t i;

	gpu_op_meet(rank);
	for (i = 0; !rank->rank && i < QUEUED; i++) {
		if (i) {
			batches[i] = *data;
			memset(batches[i].ranks, 0, sizeof(batches[i].ranks));
		}
		embedding_draw_batch(&batches[i], &random_data);
	}
	gpu_op_meet(rank);
}

static void free_batches(struct gpu_op_rank *rank)
{
	uint32_t i;

	gpu_op_meet(rank);
	for (i = 1; !rank->rank && i < QUEUED; i++)
		embedding_data_free(&batches[i]);
}

/* Queues a layer forth and back, batch after batch, without a look in between, by ranks that come
 * late. Each batch has memory of its own. */
static void queue_ahead(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	uint64_t late = testing_seed() + rank->rank;
	struct device devices[QUEUED];
	struct layer layer;
	uint32_t i;

	set_shape(rank);
	layer = make_layer(rank, workspace);
	draw_batches(rank);
	for (i = 0; i < QUEUED; i++) {
		devices[i] = make_fitting(rank, &batches[i]);
		load_device(rank, &batches[i], &devices[i]);
	}
	gpu_op_meet(rank);
	for (i = 0; i < QUEUED; i++) {
		gpu_op_be_late(rank, GPU_CONSUME, &late);
		ck_assert_int_eq(forward(rank, layer.forward, &batches[i], &devices[i]), 0);
		ck_assert_int_eq(backward(rank, layer.backward, &batches[i], &devices[i]), 0);
	}
	gpu_op_idle(rank, GPU_CONSUME);
	for (i = 0; i < QUEUED; i++)
		check_device(rank, &batches[i], &devices[i]);
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	free_batches(rank);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_runs_are_queued_ahead)
{
	each_mode(_i ? n_all : 2, queue_ahead);
}
END_TEST

/* Captures a layer forth and back, and replays it with new tables and bags in the same memory. */
static void replay(struct gpu_op_rank *rank, const void *arg)
{
	const struct gpu_op_mode mode = { "graphs", 0, 0, 0 };
	ceov_workspace *workspace = gpu_op_workspace(rank, &mode);
	struct gpu_graph graph;
	struct device device;
	struct layer layer;
	uint32_t i;

	(void)arg;
	set_shape(rank);
	layer = make_layer(rank, workspace);
	draw_batch(rank);
	device = make_device(rank, data, GRAPH_INDICES);
	gpu_op_meet(rank);
	data->is_weighted = 1;          /* all ranks store the same */
	gpu_op_meet(rank);
	gpu_graph_begin(&graph, &rank->gpu, GPU_CONSUME);
	ck_assert_int_eq(forward(rank, layer.forward, data, &device), 0);
	ck_assert_int_eq(backward(rank, layer.backward, data, &device), 0);
	gpu_graph_end(&graph);
	for (i = 0; i < REPLAYS; i++) {
		draw_batch(rank);
		if (!rank->rank)
			data->is_weighted = 1;
		gpu_op_meet(rank);
		load_device(rank, data, &device);
		gpu_graph_launch(&graph);
		gpu_op_idle(rank, GPU_CONSUME);
		check_device(rank, data, &device);
	}
	ck_assert_int_eq(ceov_workspace_status(workspace), 0);
	gpu_op_meet(rank);
	gpu_graph_free(&graph);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_graphs_are_replayed)
{
	random_data = testing_seed();
	gpu_op_open(&rig, _i ? n_all : 2);
	gpu_op_each(&rig, replay, NULL);
	gpu_op_close(&rig);
}
END_TEST

/* Writes one wrong number into the bags of rank 0. */
static void spoil_number(struct gpu_op_rank *rank, const struct device *device, int which)
{
	const int64_t numbers[] = { 20, -1, -1, INT64_MAX };
	int64_t *const at[] = { device->indices + device->n_indices - 1,
				device->indices + device->n_indices - 1, device->offsets,
				device->offsets + 1 };

	gpu_move(&rank->gpu, at[which], &numbers[which], sizeof(numbers[which]));
}

static int which_is_wrong, is_backward;

/* A run of which rank 0 gives a wrong number ends there. */
static void go_wrong(struct gpu_op_rank *rank, const void *arg)
{
	ceov_workspace *workspace = gpu_op_workspace(rank, arg);
	struct device device;
	struct layer layer;
	int r;

	set_shape(rank);
	layer = make_layer(rank, workspace);
	draw_batch(rank);
	device = make_fitting(rank, data);
	load_device(rank, data, &device);
	if (!rank->rank)
		spoil_number(rank, &device, which_is_wrong);
	gpu_op_meet(rank);
	r = is_backward ? backward(rank, layer.backward, data, &device)
		: forward(rank, layer.forward, data, &device);
	/* The run is queued, unless it was found to be wrong even while it was queued. */
	if (r)
		ck_assert_int_lt(r, 0);
	gpu_idle(&rank->gpu, GPU_CONSUME);
	if (!rank->rank)
		ck_assert_int_eq(gpu_op_error(rank, workspace), CEOV_ERR_INVALID);
	release_layer(rank, &layer);
	gpu_op_workspace_release(rank, workspace);
}

START_TEST(test_wrong_bags_end_the_run)
{
	which_is_wrong = _i % 4;
	is_backward = _i == 4 || _i == 5;
	if (is_backward)
		which_is_wrong = _i - 2;
	each_mode(2, go_wrong);
}
END_TEST

static Suite *suite(uint32_t n_ranks)
{
	Suite *made = suite_create("gpu embedding");
	TCase *cases = tcase_create("embedding");

	n_all = n_ranks < GPU_OP_RANKS_MAX ? n_ranks : GPU_OP_RANKS_MAX;
	tcase_set_timeout(cases, 100);
	tcase_add_loop_test(cases, test_random_batches, n_all == 2, 2);
	tcase_add_loop_test(cases, test_runs_are_queued_ahead, n_all == 2, 2);
	tcase_add_loop_test(cases, test_graphs_are_replayed, n_all == 2, 2);
	tcase_add_loop_test(cases, test_wrong_bags_end_the_run, 0, 6);
	suite_add_tcase(made, cases);
	return made;
}

int main(void)
{
	return gpu_main_ranks(suite);
}
