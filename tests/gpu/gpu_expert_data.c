/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Data of dispatches and combines, and what has to come of it, by plain loops on the host. */

#include "gpu_expert_data.h"

#include <stdlib.h>
#include <string.h>

#include "ops/compute/dtype.h"

#define TOKENS_MAX  300u
#define HIDDEN_MAX  1032u               /* rows of more vectors than a warp has in flight */
#define TOP_K_MAX   8u
#define LOCAL_MAX   40u                 /* more experts than a warp has lanes */
#define ALIGN_BYTES UINT64_C(256)
#define GUARD       0x5a
#define GUARD_BYTES UINT64_C(256)
#define GROUPS_MAX  4u
#define N_PIECES    10u

/* --- sizes ------------------------------------------------------------------------- */

static uint64_t row_bytes(const struct gpu_experts *one)
{
	return one->shape.hidden * cei_dtype_bytes(one->shape.dtype);
}

static uint32_t n_local(const struct gpu_experts *one)
{
	return one->shape.n_experts / one->n_ranks;
}

/* The experts of a rank in each group. */
static uint32_t n_each(const struct gpu_experts *one)
{
	return n_local(one) / one->shape.n_groups;
}

static uint32_t group_of(const struct gpu_experts *one, uint32_t expert)
{
	return expert % n_local(one) / n_each(one);
}

static uint64_t n_copies(const struct gpu_experts *one)
{
	return one->shape.n_tokens * one->shape.top_k;
}

uint64_t gpu_experts_capacity(const struct gpu_experts *one)
{
	uint64_t each = one->shape.top_k < n_each(one) ? one->shape.top_k : n_each(one);

	return one->shape.capacity ? one->shape.capacity : one->shape.n_tokens * each;
}

static uint64_t room(const struct gpu_experts *one)
{
	return one->shape.n_received ? one->shape.n_received
		: one->n_ranks * gpu_experts_capacity(one);
}

void gpu_experts_shape(struct gpu_experts *one)
{
	memset(&one->shape, 0, sizeof(one->shape));
	one->shape.struct_bytes = sizeof(one->shape);
	one->shape.dtype = CEOV_BF16;
	one->shape.n_tokens = 48;
	one->shape.hidden = 264;
	one->shape.n_experts = 4 * one->n_ranks;
	one->shape.top_k = 3;
	one->shape.n_groups = 1;
}

void gpu_experts_draw_shape(struct gpu_experts *one, uint64_t *random)
{
	gpu_experts_shape(one);
	one->shape.dtype = (enum ceov_dtype)(CEOV_BF16 + testing_below(random, 3));
	one->shape.n_tokens = 1 + testing_below(random, TOKENS_MAX);
	one->shape.hidden = 8 * (1 + testing_below(random, HIDDEN_MAX / 8));
	one->shape.n_groups = 1 + (uint32_t)testing_below(random, GROUPS_MAX);
	one->shape.n_experts = one->n_ranks * one->shape.n_groups *
		(1 + (uint32_t)testing_below(random, LOCAL_MAX / one->shape.n_groups));
	one->shape.top_k = 1 + (uint32_t)testing_below(random, TOP_K_MAX);
	if (one->shape.top_k > one->shape.n_experts)
		one->shape.top_k = one->shape.n_experts;
	if (!testing_below(random, 3))
		one->shape.capacity = 1 + testing_below(random, 1 + one->shape.n_tokens / 2);
	if (!testing_below(random, 3))
		one->shape.total_capacity = 1 + testing_below(random, 1 + one->shape.n_tokens);
	while (ceov_moe_dispatch_scratch_bytes(&one->shape, one->n_ranks) > GPU_OP_SCRATCH)
		one->shape.n_tokens = (one->shape.n_tokens + 1) / 2;
}

/* --- data on the host --------------------------------------------------------------- */

static void *host_memory(uint64_t n_bytes)
{
	void *memory = calloc(1, n_bytes ? n_bytes : 1);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

void gpu_experts_make(struct gpu_experts *one, struct gpu_experts_data *data)
{
	data->tokens = host_memory(one->shape.n_tokens * row_bytes(one));
	data->experts = host_memory(n_copies(one) * sizeof(int32_t));
	data->weights = host_memory(n_copies(one) * sizeof(float));
	data->slots = host_memory(n_copies(one) * sizeof(int32_t));
	data->n_sent = host_memory(one->shape.n_experts * sizeof(uint32_t));
}

void gpu_experts_free(struct gpu_experts_data *data)
{
	free(data->tokens);
	free(data->experts);
	free(data->weights);
	free(data->slots);
	free(data->n_sent);
}

/* Distinct experts of one token among the first n; some are missing. */
static void draw_experts(const struct gpu_experts *one, int32_t *of, uint32_t n, uint64_t *random)
{
	uint32_t k, i;

	for (k = 0; k < one->shape.top_k; k++) {
		of[k] = testing_below(random, 8) ? (int32_t)testing_below(random, n) : -1;
		for (i = 0; i < k; i++)
			if (of[i] == of[k])
				of[k] = -1;
	}
}

static void draw_tokens(const struct gpu_experts *one, struct gpu_experts_data *data,
			uint64_t *random)
{
	float values[HIDDEN_MAX];
	uint64_t token, i;

	for (token = 0; token < data->n_tokens; token++) {
		for (i = 0; i < one->shape.hidden; i++)
			values[i] = (float)testing_below(random, 1000) / 256 - 2;
		cei_dtype_narrow(one->shape.dtype, data->tokens + token * row_bytes(one), values,
				 one->shape.hidden);
	}
}

/* Copies for an expert get the next rows of its group's block for its rank, in the order of
 * tokens. */
static void expect_places(const struct gpu_experts *one, struct gpu_experts_data *data)
{
	uint64_t capacity = gpu_experts_capacity(one), copy, all = 0, row = 0;
	uint64_t most = one->shape.total_capacity ? one->shape.total_capacity : UINT64_MAX;
	uint32_t expert, block;

	for (copy = 0; copy < n_copies(one); copy++)
		data->slots[copy] = -1;
	for (expert = 0; expert < one->shape.n_experts; expert++) {
		block = group_of(one, expert) * one->n_ranks + expert / n_local(one);
		all = expert % n_local(one) ? all : 0;
		row = expert % n_each(one) ? row : 0;
		data->n_sent[expert] = 0;
		for (copy = 0; copy < data->n_tokens * one->shape.top_k; copy++) {
			if (data->experts[copy] != (int32_t)expert)
				continue;
			if (all++ < most && row < capacity) {
				data->slots[copy] = (int32_t)(block * capacity + row);
				data->n_sent[expert]++;
			}
			row++;
		}
	}
}

void gpu_experts_draw(struct gpu_experts *one, uint32_t kind, uint64_t *random)
{
	uint32_t n_all = one->shape.n_experts, n_experts = n_all, i;
	struct gpu_experts_data *data;
	uint64_t token, copy;

	if (kind == 2)
		n_experts = n_all > 1 ? 1 + n_all % 2 : 1;
	for (i = 0; i < one->n_ranks; i++) {
		data = &one->all[i];
		data->n_tokens = kind < 3 ? one->shape.n_tokens
			: testing_below(random, one->shape.n_tokens + 1);
		if (kind == 1 && !i)
			data->n_tokens = 0;
		draw_tokens(one, data, random);
		for (token = 0; token < one->shape.n_tokens; token++)
			draw_experts(one, data->experts + token * one->shape.top_k, n_experts,
				     random);
		for (copy = 0; copy < n_copies(one); copy++)
			data->weights[copy] = (float)testing_below(random, 1000) / 777;
		expect_places(one, data);
	}
}

/* --- memory on the GPU -------------------------------------------------------------- */

static uint64_t aligned(uint64_t n_bytes)
{
	return (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static void *take(struct gpu_op_rank *rank, uint64_t n_bytes)
{
	char *taken = rank->arena + rank->used_bytes;

	rank->used_bytes += aligned(n_bytes) + GUARD_BYTES;
	ck_assert_uint_le(rank->used_bytes, GPU_OP_ARENA_BYTES);
	return taken;
}

static void spoil(struct gpu_op_rank *rank, void *p, uint64_t n_bytes)
{
	void *guard = host_memory(n_bytes);

	memset(guard, GUARD, n_bytes);
	gpu_move(&rank->gpu, p, guard, n_bytes);
	free(guard);
}

/* Whether memory of the GPU is as expected. */
static int is_same(struct gpu_op_rank *rank, const void *p, const void *expected,
		   uint64_t n_bytes)
{
	void *found = host_memory(n_bytes);
	int is;

	if (n_bytes)
		gpu_move(&rank->gpu, found, p, n_bytes);
	is = !memcmp(found, expected, n_bytes);
	free(found);
	return is;
}

/* Writes or checks the guards: one before the first piece, and one behind each, which begins where
 * the piece ends and goes on to the next piece. */
static void each_guard(const struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device, int checks)
{
	const uint64_t rows = one->shape.n_tokens * row_bytes(one);
	const uint64_t numbers = n_copies(one) * sizeof(int32_t);
	const struct {
		char    *begin;
		uint64_t n_bytes;
	} pieces[] = {
		{ device->begin, 0 },
		{ device->tokens, rows },
		{ device->received, room(one) * row_bytes(one) },
		{ device->sums, rows },
		{ (char *)device->experts, numbers },
		{ (char *)device->slots, numbers },
		{ (char *)device->ends, n_each(one) * sizeof(int32_t) },
		{ (char *)device->arrived, one->shape.n_experts * sizeof(uint32_t) },
		{ (char *)device->sent, one->shape.n_experts * sizeof(uint32_t) },
		{ (char *)device->weights, n_copies(one) * sizeof(float) },
	};
	char guard[GUARD_BYTES + ALIGN_BYTES], *end, *next;
	uint32_t i;

	memset(guard, GUARD, sizeof(guard));
	for (i = 0; i < N_PIECES; i++) {
		end = pieces[i].begin + pieces[i].n_bytes;
		next = i + 1 < N_PIECES ? pieces[i + 1].begin : device->end;
		ck_assert_uint_le((uint64_t)(next - end), sizeof(guard));
		if (!checks)
			gpu_move(&rank->gpu, end, guard, (uint64_t)(next - end));
		else
			ck_assert_msg(is_same(rank, end, guard, (uint64_t)(next - end)),
				      "rank %u: something was written behind piece %u", rank->rank,
				      i);
	}
}

void gpu_experts_check_guards(const struct gpu_experts *one, struct gpu_op_rank *rank,
			      const struct gpu_experts_device *device)
{
	each_guard(one, rank, device, 1);
}

struct gpu_experts_device gpu_experts_device(const struct gpu_experts *one,
					     struct gpu_op_rank *rank)
{
	struct gpu_experts_device device = { .group = 0 };

	device.begin = take(rank, 0);
	device.tokens = take(rank, one->shape.n_tokens * row_bytes(one));
	device.received = take(rank, room(one) * row_bytes(one));
	device.sums = take(rank, one->shape.n_tokens * row_bytes(one));
	device.experts = take(rank, n_copies(one) * sizeof(int32_t));
	device.slots = take(rank, n_copies(one) * sizeof(int32_t));
	device.ends = take(rank, n_each(one) * sizeof(int32_t));
	device.arrived = take(rank, one->shape.n_experts * sizeof(uint32_t));
	device.sent = take(rank, one->shape.n_experts * sizeof(uint32_t));
	device.weights = take(rank, n_copies(one) * sizeof(float));
	device.end = rank->arena + rank->used_bytes;
	each_guard(one, rank, &device, 0);
	return device;
}

void gpu_experts_clear(const struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device)
{
	spoil(rank, device->received, room(one) * row_bytes(one));
	spoil(rank, device->sums, one->shape.n_tokens * row_bytes(one));
	spoil(rank, device->ends, n_each(one) * sizeof(int32_t));
}

void gpu_experts_load(const struct gpu_experts *one, struct gpu_op_rank *rank,
		      const struct gpu_experts_device *device)
{
	const struct gpu_experts_data *data = &one->all[rank->rank];

	gpu_move(&rank->gpu, device->tokens, data->tokens, one->shape.n_tokens * row_bytes(one));
	gpu_move(&rank->gpu, device->experts, data->experts, n_copies(one) * sizeof(int32_t));
	gpu_move(&rank->gpu, device->weights, data->weights, n_copies(one) * sizeof(float));
	spoil(rank, device->slots, n_copies(one) * sizeof(int32_t));
	spoil(rank, device->arrived, one->shape.n_experts * sizeof(uint32_t));
	spoil(rank, device->sent, one->shape.n_experts * sizeof(uint32_t));
	gpu_experts_clear(one, rank, device);
}

void gpu_experts_renew(struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device, uint64_t seed)
{
	struct gpu_experts_data *data = &one->all[rank->rank];

	draw_tokens(one, data, &seed);
	gpu_move(&rank->gpu, device->tokens, data->tokens,
		 one->shape.n_tokens * row_bytes(one));
	gpu_experts_clear(one, rank, device);
}

/* --- what is expected -------------------------------------------------------------- */

/* Fills in the rows that come from one source for one expert; returns the row behind them. */
static char *expect_from(const struct gpu_experts *one, const struct gpu_experts_data *source,
			 uint32_t expert, char *row)
{
	uint64_t copy;

	for (copy = 0; copy < source->n_tokens * one->shape.top_k; copy++) {
		if (source->experts[copy] != (int32_t)expert || source->slots[copy] < 0)
			continue;
		memcpy(row, source->tokens + copy / one->shape.top_k * row_bytes(one),
		       row_bytes(one));
		row += row_bytes(one);
	}
	return row;
}

void gpu_experts_check_received(const struct gpu_experts *one, struct gpu_op_rank *rank,
				const struct gpu_experts_device *device)
{
	uint32_t first = rank->rank * n_local(one) + device->group * n_each(one), i, source;
	char *rows = host_memory(room(one) * row_bytes(one)), *end = rows;
	int32_t ends[LOCAL_MAX];

	memset(rows, GUARD, room(one) * row_bytes(one));
	for (i = 0; i < n_each(one); i++) {
		for (source = 0; source < one->n_ranks; source++)
			end = expect_from(one, &one->all[source], first + i, end);
		ends[i] = (int32_t)((uint64_t)(end - rows) / row_bytes(one));
	}
	ck_assert_msg(is_same(rank, device->ends, ends, n_each(one) * sizeof(*ends)),
		      "rank %u: wrong ends", rank->rank);
	ck_assert_msg(is_same(rank, device->received, rows, room(one) * row_bytes(one)),
		      "rank %u: wrong rows came", rank->rank);
	free(rows);
}

void gpu_experts_check_routing(const struct gpu_experts *one, struct gpu_op_rank *rank,
			       const struct gpu_experts_device *device)
{
	const struct gpu_experts_data *own = &one->all[rank->rank];
	uint32_t source;

	ck_assert_msg(is_same(rank, device->slots, own->slots,
			      own->n_tokens * one->shape.top_k * sizeof(int32_t)),
		      "rank %u: wrong slots", rank->rank);
	ck_assert_msg(is_same(rank, device->sent, own->n_sent,
			      one->shape.n_experts * sizeof(uint32_t)),
		      "rank %u: wrong numbers of rows that it sends", rank->rank);
	for (source = 0; source < one->n_ranks; source++)
		ck_assert_msg(is_same(rank, device->arrived + source * n_local(one),
				      one->all[source].n_sent + rank->rank * n_local(one),
				      n_local(one) * sizeof(uint32_t)),
			      "rank %u: wrong numbers of rows from rank %u", rank->rank, source);
}

/* The work of expert e: multiplies a row by `factor`, and rounds. */
static void apply_expert(const struct gpu_experts *one, uint32_t factor, const char *from,
			 char *to)
{
	float values[HIDDEN_MAX];
	uint64_t i;

	cei_dtype_widen(one->shape.dtype, values, from, one->shape.hidden);
	for (i = 0; i < one->shape.hidden; i++)
		values[i] *= (float)factor;
	cei_dtype_narrow(one->shape.dtype, to, values, one->shape.hidden);
}

static uint32_t factor_of(uint32_t expert, int does_work)
{
	return does_work ? expert + 1 : 1;
}

void gpu_experts_apply(const struct gpu_experts *one, struct gpu_op_rank *rank,
		       const struct gpu_experts_device *device)
{
	char *rows = host_memory(room(one) * row_bytes(one)), *at = rows;
	uint32_t first = rank->rank * n_local(one) + device->group * n_each(one), i;
	int32_t ends[LOCAL_MAX], row = 0;

	gpu_move(&rank->gpu, rows, device->received, room(one) * row_bytes(one));
	gpu_move(&rank->gpu, ends, device->ends, n_each(one) * sizeof(*ends));
	for (i = 0; i < n_each(one); i++)
		for (; row < ends[i]; row++, at += row_bytes(one))
			apply_expert(one, factor_of(first + i, 1), at, at);
	gpu_move(&rank->gpu, device->received, rows, room(one) * row_bytes(one));
	free(rows);
}

/* The sums of a rank: of what experts of a group made of its tokens. */
struct summing {
	const struct gpu_experts_data *own;
	struct gpu_experts_sum         how;
	uint32_t                       group;
};

/* Adds up token number `token`, in the order of its experts. */
static void expect_sum(const struct gpu_experts *one, const struct summing *summing,
		       uint64_t token, char *target)
{
	const struct gpu_experts_data *own = summing->own;
	const struct ceov_moe *shape = &one->shape;
	const char *row = own->tokens + token * row_bytes(one);
	float sum[HIDDEN_MAX] = { 0 }, values[HIDDEN_MAX];
	char rounded[HIDDEN_MAX * sizeof(float)];
	uint64_t copy, i;

	for (copy = token * shape->top_k; copy < (token + 1) * shape->top_k; copy++) {
		if (own->slots[copy] < 0 ||
		    group_of(one, (uint32_t)own->experts[copy]) != summing->group)
			continue;
		apply_expert(one, factor_of((uint32_t)own->experts[copy], summing->how.does_work),
			     row, rounded);
		cei_dtype_widen(shape->dtype, values, rounded, shape->hidden);
		for (i = 0; i < shape->hidden; i++)
			sum[i] += (summing->how.is_weighted ? own->weights[copy] : 1) * values[i];
	}
	cei_dtype_narrow(shape->dtype, target, sum, shape->hidden);
}

void gpu_experts_check_sums(const struct gpu_experts *one, struct gpu_op_rank *rank,
			    const struct gpu_experts_device *device, struct gpu_experts_sum how)
{
	uint64_t n_bytes = one->shape.n_tokens * row_bytes(one), token;
	const struct summing summing = { &one->all[rank->rank], how, device->group };
	char *sums = host_memory(n_bytes);

	memset(sums, GUARD, n_bytes);
	for (token = 0; token < summing.own->n_tokens; token++)
		expect_sum(one, &summing, token, sums + token * row_bytes(one));
	ck_assert_msg(is_same(rank, device->sums, sums, n_bytes), "rank %u: wrong sums",
		      rank->rank);
	free(sums);
}
