/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Dispatch and combine of a mixture of experts as rows of ceoverlap-bench overlap. A row's shape
 * are m tokens of each rank, n values of a token, k experts of all ranks, top_k experts of a token,
 * and the share of these choices that are dropped.
 *
 * Each token's experts differ and are drawn evenly. Every rank draws the choices of all ranks, so
 * it knows by itself which rows come where, and in which order. NCCL sends as many rows from each
 * rank to each. It is told their numbers, and finds and leaves them as one block for each rank: to
 * count and to permute them, which a program with NCCL has to do, is left out of its time.
 */

#include <stdlib.h>
#include <string.h>

#include "ops/core/op.h"
#include "tools/bench/group.h"
#include "tools/bench/overlap/overlap.h"

#define VALUE_BYTES 2u                  /* of a bf16 */
#define SPARE_ROWS  64u                 /* of a block, above twice the mean */

/* A list of the host, and where jobs can read it. */
struct list {
	void    *own;
	void    *held;                  /* the executor's copy; NULL: it reads the list itself */
	uint64_t n_bytes;
};

struct bench_experts {
	int32_t  *choices;              /* [rank][token][top_k], of all ranks */
	uint64_t *counts;               /* [expert][rank]: rows that come to it from each */
	uint64_t *starts;               /* [expert][rank]: the first of them among the rows that
					 * the expert's rank receives */
	uint64_t *blocks;               /* [source][target]: rows that a dispatch sends */
	uint64_t  sent[BENCH_RANKS_MAX];        /* bytes from this rank to each, for NCCL */
	uint64_t  got[BENCH_RANKS_MAX];         /* and to this rank from each */
	struct list experts;            /* the rank's own choices */
	struct list arrived;            /* the numbers that a dispatch must write */
	struct list ends;
	struct list zeros;              /* a sum of nothing, in fp32 */
	void     *at[3];                /* what a dispatch writes: slots, arrived, ends */
	ceov_op  *dispatch;             /* writes the routing that a combine needs */
};

enum { AT_SLOTS, AT_ARRIVED, AT_ENDS };

/* --- the shape --------------------------------------------------------------------- */

/* Rows that a rank may send to one other: twice as many as it does on average, and some more. */
static uint64_t capacity_of(const struct bench_overlap *o)
{
	uint64_t n_local = o->shape.k / o->rank->n_ranks;
	uint64_t top_k = o->shape.choices.top_k;
	uint64_t most = o->shape.m * (top_k < n_local ? top_k : n_local);
	uint64_t wanted = o->shape.m * top_k / o->rank->n_ranks * 2 + SPARE_ROWS;

	return wanted < most ? wanted : most;
}

static uint64_t received_rows(const struct bench_overlap *o)
{
	return capacity_of(o) * o->rank->n_ranks;
}

static struct ceov_moe shape_of(const struct bench_overlap *o)
{
	return (struct ceov_moe){
		.struct_bytes = sizeof(struct ceov_moe),
		.dtype = CEOV_BF16,
		.n_tokens = o->shape.m,
		.hidden = o->shape.n,
		.n_experts = (uint32_t)o->shape.k,
		.top_k = o->shape.choices.top_k,
		.capacity = capacity_of(o),
		.tuning = o->options->is_tuned ? &o->options->tuning : NULL,
	};
}

/* A combine needs no more than the dispatch before it. */
uint64_t bench_experts_scratch_bytes(const struct bench_overlap *o)
{
	struct ceov_moe shape = shape_of(o);

	return ceov_moe_dispatch_scratch_bytes(&shape, o->rank->n_ranks);
}

int bench_experts_create(const struct bench_overlap *o, ceov_workspace *workspace,
			 ceov_op **ret_op)
{
	struct ceov_moe shape = shape_of(o);

	return o->test == OVERLAP_DISPATCH ? ceov_moe_dispatch_create(workspace, &shape, ret_op)
		: ceov_moe_combine_create(workspace, &shape, ret_op);
}

uint64_t bench_experts_nccl_bytes(const struct bench_overlap *o)
{
	uint64_t sent = o->shape.m * o->shape.choices.top_k, received = received_rows(o);

	return (sent > received ? sent : received) * o->shape.n * VALUE_BYTES;
}

/* --- choices, and what follows from them -------------------------------------------- */

static int32_t draw_other(uint64_t *random, const struct bench_overlap *o, const int32_t *before,
			  uint32_t n_before)
{
	int32_t expert;
	uint32_t i;

	do {
		expert = (int32_t)(bench_random(random) % o->shape.k);
		for (i = 0; i < n_before && before[i] != expert; i++)
			;
	} while (i < n_before);
	return expert;
}

/* Draws the experts of a rank's tokens; a dropped choice is -1. */
static void draw_choices(const struct bench_overlap *o, uint32_t rank, int32_t *choices)
{
	uint64_t random = bench_overlap_seed(o, rank, 1), i;
	uint32_t top_k = o->shape.choices.top_k, j;

	for (i = 0; i < o->shape.m; i++) {
		int32_t *of_token = choices + i * top_k;

		for (j = 0; j < top_k; j++)
			of_token[j] = draw_other(&random, o, of_token, j);
		for (j = 0; j < top_k; j++)
			if (bench_random(&random) % 100 < o->shape.choices.dropped)
				of_token[j] = -1;
	}
}

static const int32_t *choices_of(const struct bench_overlap *o, uint32_t rank)
{
	return o->experts->choices + rank * o->shape.m * o->shape.choices.top_k;
}

static uint32_t rank_of(const struct bench_overlap *o, uint64_t expert)
{
	return (uint32_t)(expert / (o->shape.k / o->rank->n_ranks));
}

static void count_rows(struct bench_overlap *o)
{
	struct bench_experts *experts = o->experts;
	uint64_t n_ranks = o->rank->n_ranks, n_local = o->shape.k / n_ranks, e, i, row = 0;
	const int32_t *choices;
	uint32_t rank;

	for (rank = 0; rank < n_ranks; rank++) {
		choices = choices_of(o, rank);
		for (i = 0; i < o->shape.m * o->shape.choices.top_k; i++)
			if (choices[i] >= 0)
				experts->counts[(uint64_t)choices[i] * n_ranks + rank]++;
	}
	for (e = 0; e < o->shape.k; e++) {
		row = e % n_local ? row : 0;
		for (rank = 0; rank < n_ranks; rank++) {
			experts->starts[e * n_ranks + rank] = row;
			row += experts->counts[e * n_ranks + rank];
			experts->blocks[rank * n_ranks + rank_of(o, e)] +=
				experts->counts[e * n_ranks + rank];
		}
	}
}

/* Returns the bytes that the busiest rank sends to others or gets from them, whichever is more. */
static uint64_t busiest_bytes(const struct bench_overlap *o)
{
	const uint64_t *blocks = o->experts->blocks;
	uint64_t most = 0, out, in;
	uint32_t n = o->rank->n_ranks, i, j;

	for (i = 0; i < n; i++) {
		for (out = in = j = 0; j < n; j++) {
			out += i == j ? 0 : blocks[i * n + j];
			in += i == j ? 0 : blocks[j * n + i];
		}
		most = out > most ? out : most;
		most = in > most ? in : most;
	}
	return most * o->shape.n * VALUE_BYTES;
}

/* Says what the rank sends and gets. A combine sends back what a dispatch has brought. */
static int take_blocks(struct bench_overlap *o)
{
	struct bench_experts *experts = o->experts;
	uint32_t n = o->rank->n_ranks, own = o->rank->rank, i;
	uint64_t row_bytes = o->shape.n * VALUE_BYTES, n_received = 0;

	for (i = 0; i < n * n; i++)
		if (experts->blocks[i] > capacity_of(o))
			return bench_fail(o->rank, CEOV_ERR_INVALID, "more rows are drawn for a "
					  "rank than twice the mean");
	for (i = 0; i < n; i++) {
		uint64_t out = experts->blocks[own * n + i] * row_bytes;
		uint64_t in = experts->blocks[i * n + own] * row_bytes;

		n_received += experts->blocks[i * n + own];
		experts->sent[i] = o->test == OVERLAP_DISPATCH ? out : in;
		experts->got[i] = o->test == OVERLAP_DISPATCH ? in : out;
	}
	o->shape.bytes = busiest_bytes(o);
	o->n_result = (o->test == OVERLAP_DISPATCH ? n_received : o->shape.m) * o->shape.n;
	return 0;
}

/* --- lists --------------------------------------------------------------------------- */

static int make_list(struct list *list, uint64_t n_bytes)
{
	list->n_bytes = n_bytes;
	list->own = calloc(1, n_bytes);
	return list->own ? 0 : CEOV_ERR_NO_MEMORY;
}

static const void *list_at(const struct list *list)
{
	return list->held ? list->held : list->own;
}

/* Fills in the lists, and gives the executor copies. */
static int make_lists(struct bench_overlap *o, struct cei_executor *executor)
{
	struct bench_experts *experts = o->experts;
	uint64_t n_ranks = o->rank->n_ranks, n_local = o->shape.k / n_ranks, own = o->rank->rank;
	struct list *const all[] = { &experts->experts, &experts->arrived, &experts->ends,
		&experts->zeros };
	uint64_t sizes[] = { o->shape.m * o->shape.choices.top_k * sizeof(int32_t),
		o->shape.k * sizeof(uint32_t), n_local * sizeof(int32_t),
		o->shape.n * sizeof(float) };
	uint64_t e, i, at, row = 0;
	int r = 0;

	for (i = 0; !r && i < 4; i++)
		r = make_list(all[i], sizes[i]);
	if (r)
		return r;
	memcpy(experts->experts.own, choices_of(o, o->rank->rank), sizes[0]);
	for (e = 0; e < n_local; e++) {
		for (i = 0; i < n_ranks; i++) {
			at = (own * n_local + e) * n_ranks + i;
			((uint32_t *)experts->arrived.own)[i * n_local + e] =
				(uint32_t)experts->counts[at];
			row += experts->counts[at];
		}
		((int32_t *)experts->ends.own)[e] = (int32_t)row;
	}
	for (i = 0; !r && i < 4; i++)
		r = executor->ops->hold(executor, all[i]->own, all[i]->n_bytes, &all[i]->held);
	return r;
}

static void drop_list(struct cei_executor *executor, struct list *list)
{
	executor->ops->drop(executor, list->held);
	free(list->own);
}

/* --- methods ------------------------------------------------------------------------ */

static struct ceov_moe_routing routing_of(const struct bench_experts *experts)
{
	return (struct ceov_moe_routing){ experts->at[AT_SLOTS], experts->at[AT_ARRIVED] };
}

static int run_dispatch(const struct bench_overlap *o, ceov_op *op, const void *tokens,
			void *received)
{
	struct ceov_moe_dispatch_run run = {
		.struct_bytes = sizeof(run),
		.stream = bench_overlap_stream(o),
		.n_tokens = o->shape.m,
		.tokens = tokens,
		.experts = list_at(&o->experts->experts),
		.routing = routing_of(o->experts),
		.received = received,
		.ends = o->experts->at[AT_ENDS],
	};

	return ceov_moe_dispatch_run(op, &run);
}

static int run_combine(const struct bench_overlap *o, ceov_op *op)
{
	struct ceov_moe_combine_run run = {
		.struct_bytes = sizeof(run),
		.stream = bench_overlap_stream(o),
		.n_tokens = o->shape.m,
		.rows = o->memory.a,
		.routing = routing_of(o->experts),
		.sums = o->memory.c,
	};

	return ceov_moe_combine_run(op, &run);
}

int bench_experts_is_there(const struct bench_overlap *o, enum bench_overlap_method method)
{
	return method == OVERLAP_OURS || (method == OVERLAP_COMM && o->nccl[0]);
}

int bench_experts_once(struct bench_overlap *o, enum bench_overlap_method method)
{
	const struct bench_nccl_blocks blocks = { o->rank->n_ranks, o->experts->sent,
						  o->experts->got };

	if (method == OVERLAP_COMM)
		return bench_nccl_send_blocks(o->nccl[0], &blocks, bench_overlap_stream(o));
	return o->test == OVERLAP_DISPATCH
		? run_dispatch(o, o->ops[0], o->memory.a, o->memory.c) : run_combine(o, o->ops[0]);
}

/* --- the expected result -------------------------------------------------------------- */

/* Returns how many bytes a result of a dispatch has, rounded up to whole words. */
static uint64_t at_bytes(const struct bench_overlap *o, int which)
{
	const uint64_t n[] = { o->shape.m * o->shape.choices.top_k, o->shape.k,
		o->shape.k / o->rank->n_ranks };

	return (n[which] * 4 + 7) / 8 * 8;
}

static int zero_row(struct bench_overlap *o, float *at)
{
	struct bench_copy copy = {
		.target = at,
		.source = list_at(&o->experts->zeros),
		.row_bytes = o->experts->zeros.n_bytes,
		.n_rows = 1,
	};
	int r;

	if (!o->rank->is_gpu) {
		memset(at, 0, copy.row_bytes);
		return 0;
	}
	r = bench_raw_copies(o->rank->device, BENCH_STREAM_MAIN, &copy, 1);
	return r ? r : bench_stream_sync(o->rank->device, BENCH_STREAM_MAIN);
}

/* Fills in, or adds to a row of the expected result, row `row` of a rank's operand. */
static int refer_row(struct bench_overlap *o, float *at, uint32_t rank, uint64_t row, int adds)
{
	struct bench_values values = {
		.at = at,
		.n = o->shape.n,
		.seed = bench_overlap_seed(o, rank, 0),
		.first = row * o->shape.n,
		.kind = adds ? BENCH_VALUES_ADD : BENCH_VALUES_FLOAT,
	};

	return bench_make_values(o->rank->device, &values);
}

/* Goes through a rank's tokens: what of them a dispatch brings to this rank, or, if they are this
 * rank's own, what a combine adds up. `starts` is the place of each expert's next row. */
static int refer_tokens(struct bench_overlap *o, uint32_t rank, uint64_t *starts)
{
	const int32_t *choices = choices_of(o, rank);
	uint64_t n_ranks = o->rank->n_ranks, n = o->shape.n, token, row;
	int is_dispatch = o->test == OVERLAP_DISPATCH, adds, r = 0;
	float *reference = o->memory.reference;
	uint32_t j, target;

	for (token = 0; !r && token < o->shape.m; token++) {
		for (adds = 0, j = 0; !r && j < o->shape.choices.top_k; j++, choices++) {
			if (*choices < 0)
				continue;
			target = rank_of(o, (uint64_t)*choices);
			row = starts[(uint64_t)*choices * n_ranks + rank]++;
			if (is_dispatch && target == o->rank->rank)
				r = refer_row(o, reference + row * n, rank, token, 0);
			if (!is_dispatch)
				r = refer_row(o, reference + token * n, target, row, adds);
			adds = 1;
		}
		if (!r && !is_dispatch && !adds)
			r = zero_row(o, reference + token * n);
	}
	return r;
}

int bench_experts_refer(struct bench_overlap *o)
{
	uint64_t n_bytes = o->shape.k * o->rank->n_ranks * sizeof(uint64_t);
	uint64_t *starts = malloc(n_bytes);
	uint32_t rank;
	int r = starts ? 0 : CEOV_ERR_NO_MEMORY;

	if (!r)
		memcpy(starts, o->experts->starts, n_bytes);
	for (rank = 0; !r && rank < o->rank->n_ranks; rank++)
		if (o->test == OVERLAP_DISPATCH || rank == o->rank->rank)
			r = refer_tokens(o, rank, starts);
	free(starts);
	return r;
}

int bench_experts_spoil(struct bench_overlap *o)
{
	int i, r = 0;

	for (i = 0; !r && i < 3 && o->test == OVERLAP_DISPATCH; i++)
		r = bench_fill(o->rank->device, o->experts->at[i], at_bytes(o, i), ~o->seed);
	return r;
}

int bench_experts_check(struct bench_overlap *o, uint64_t *n_unlike)
{
	const struct list *const lists[] = { &o->experts->arrived, &o->experts->ends };
	struct bench_compare compare;
	int i, r = 0;

	for (i = 0; !r && i < 2 && o->test == OVERLAP_DISPATCH; i++) {
		compare = (struct bench_compare){
			.x = o->experts->at[AT_ARRIVED + i],
			.y = list_at(lists[i]),
			.n = lists[i]->n_bytes / 2,
		};
		r = bench_compare(o->rank->device, &compare);
		*n_unlike += compare.n_unlike;
	}
	return r;
}

/* --- opening and closing a row -------------------------------------------------------- */

static int draw(struct bench_overlap *o)
{
	struct bench_experts *experts = o->experts;
	uint64_t n_ranks = o->rank->n_ranks, n_choices = o->shape.m * o->shape.choices.top_k;
	uint32_t rank;

	experts->choices = calloc(n_ranks * n_choices, sizeof(int32_t));
	experts->counts = calloc(o->shape.k * n_ranks, sizeof(uint64_t));
	experts->starts = calloc(o->shape.k * n_ranks, sizeof(uint64_t));
	experts->blocks = calloc(n_ranks * n_ranks, sizeof(uint64_t));
	if (!experts->choices || !experts->counts || !experts->starts || !experts->blocks)
		return bench_fail(o->rank, CEOV_ERR_NO_MEMORY, "the choices of experts");
	for (rank = 0; rank < n_ranks; rank++)
		draw_choices(o, rank, experts->choices + rank * n_choices);
	count_rows(o);
	return take_blocks(o);
}

static int get_memory(struct bench_overlap *o)
{
	struct bench_overlap_memory *memory = &o->memory;
	uint64_t tokens = o->shape.m * o->shape.n * VALUE_BYTES;
	uint64_t received = received_rows(o) * o->shape.n * VALUE_BYTES;
	struct bench_device *device = o->rank->device;
	int is_dispatch = o->test == OVERLAP_DISPATCH, i;
	int r = bench_allocate(device, is_dispatch ? tokens : received, &memory->a);

	r = r ? r : bench_allocate(device, is_dispatch ? received : tokens, &memory->c);
	r = r ? r : bench_allocate(device, o->n_result * VALUE_BYTES, &memory->other);
	r = r ? r : bench_allocate(device, o->n_result * sizeof(float), &memory->reference);
	for (i = 0; !r && i < 3; i++)
		r = bench_allocate(device, at_bytes(o, i), &o->experts->at[i]);
	return r;
}

/* Writes the routing that a combine needs, by a dispatch of any values. */
static int make_routing(struct bench_overlap *o)
{
	struct ceov_moe shape = shape_of(o);
	int r = ceov_moe_dispatch_create(o->workspaces[0], &shape, &o->experts->dispatch);

	if (!r)
		r = bench_meet(o->rank);
	if (!r)
		r = run_dispatch(o, o->experts->dispatch, o->memory.c, o->memory.a);
	return r ? r : bench_overlap_settle(o);
}

/* A rank's tokens, or the rows that experts made of those which it received. */
static int make_data(struct bench_overlap *o)
{
	uint64_t n_bytes = 0, i;
	struct bench_values values = {
		.at = o->memory.a,
		.seed = bench_overlap_seed(o, o->rank->rank, 0),
	};

	for (i = 0; i < o->rank->n_ranks; i++)
		n_bytes += o->experts->sent[i];
	values.n = o->test == OVERLAP_DISPATCH ? o->shape.m * o->shape.n : n_bytes / VALUE_BYTES;
	return bench_make_values(o->rank->device, &values);
}

int bench_experts_open(struct bench_overlap *o)
{
	int r;

	o->experts = calloc(1, sizeof(*o->experts));
	if (!o->experts)
		return bench_fail(o->rank, CEOV_ERR_NO_MEMORY, "experts");
	r = draw(o);
	if (!r)
		r = make_lists(o, &o->ops[0]->workspace->executor);
	if (!r)
		r = get_memory(o);
	if (!r && o->test == OVERLAP_COMBINE)
		r = make_routing(o);
	if (!r)
		r = make_data(o);
	return r ? bench_fail(o->rank, r, "opening experts") : bench_meet(o->rank);
}

void bench_experts_close(struct bench_overlap *o)
{
	struct bench_experts *experts = o->experts;
	struct cei_executor *executor;
	int i;

	if (!experts)
		return;
	executor = &o->ops[0]->workspace->executor;
	ceov_op_release(experts->dispatch);
	for (i = 0; i < 3; i++)
		if (experts->at[i])
			bench_release(o->rank->device, experts->at[i]);
	drop_list(executor, &experts->experts);
	drop_list(executor, &experts->arrived);
	drop_list(executor, &experts->ends);
	drop_list(executor, &experts->zeros);
	free(experts->choices);
	free(experts->counts);
	free(experts->starts);
	free(experts->blocks);
	free(experts);
	o->experts = NULL;
}
