/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "unit/channel_case.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "unit/channel_item.h"

#define GUARD_BYTES 64u
#define GUARD       ((char)0xa5)
#define FREE        ((char)0x5c)        /* what a target holds before the call */
#define ITEM_MAX    CHANNEL_ITEM_MAX

static const enum ceov_dtype summed[] = {       /* the floats first */
	CEOV_BF16, CEOV_FP16, CEOV_FP32, CEOV_FP64,
	CEOV_INT8, CEOV_UINT8, CEOV_INT16, CEOV_INT32, CEOV_INT64,
};

#define FLOATS 4u
#define SUMMED (sizeof(summed) / sizeof(summed[0]))

int channel_case_is_sum(const struct channel_case *one)
{
	return one->kind == CEOV_REDUCE_SCATTER || one->kind == CEOV_ALL_REDUCE ||
		one->kind == CEOV_REDUCE;
}

static int has_root(enum ceov_call_kind kind)
{
	return kind == CEOV_BROADCAST || kind == CEOV_GATHER || kind == CEOV_SCATTER ||
		kind == CEOV_REDUCE;
}

/* --- cases ----------------------------------------------------------------------------------- */

static uint64_t random_count(uint64_t *random, uint64_t many)
{
	switch (testing_below(random, 32)) {
	case 0: case 1: case 2:
		return 0;
	case 3: case 4: case 5:
		return 1;
	case 6: case 7:
		return testing_below(random, 3000);
	case 8:
		return testing_below(random, many);
	default:
		return testing_below(random, 200);
	}
}

struct channel_case channel_case_random(uint64_t seed, uint32_t number, uint32_t n_ranks,
					uint64_t ring_bytes)
{
	uint64_t random = seed + number * UINT64_C(0x1000193), many, n;
	struct channel_case one = { .n_ranks = n_ranks };
	uint32_t i, j;

	(void)testing_random(&random);
	one.kind = (enum ceov_call_kind)(1 + testing_below(&random, CEOV_BARRIER));
	one.dtype = (enum ceov_dtype)(1 + testing_below(&random, CEOV_COMPLEX128));
	one.root = has_root(one.kind) ? (uint32_t)testing_below(&random, n_ranks) : 0;
	if (channel_case_is_sum(&one)) {
		one.dtype = summed[testing_below(&random, SUMMED)];
		n = channel_is_float(one.dtype) ? 5 : 4;
		one.reduction = (enum ceov_reduction)testing_below(&random, n);
	}
	many = one.kind == CEOV_BARRIER ? 1 : 3 * ring_bytes / channel_item_bytes(&one);
	one.count = random_count(&random, many);
	one.is_uneven = testing_below(&random, 2) == 0;
	for (i = 0; i < n_ranks; i++) {
		one.sizes[i] = one.is_uneven ? random_count(&random, many) : one.count;
		for (j = 0; j < n_ranks; j++)
			one.blocks[i][j] = one.is_uneven ? random_count(&random, many) : one.count;
	}
	one.seed = testing_random(&random);
	return one;
}

struct channel_case channel_case_of(enum ceov_call_kind kind, enum ceov_dtype dtype,
				    uint32_t n_ranks, uint64_t count)
{
	struct channel_case one = { .n_ranks = n_ranks, .kind = kind, .dtype = dtype,
				    .count = count, .seed = 1 };
	uint32_t i, j;

	for (i = 0; i < n_ranks; i++) {
		one.sizes[i] = count;
		for (j = 0; j < n_ranks; j++)
			one.blocks[i][j] = count;
	}
	return one;
}

static void change_kind(struct channel_case *one, uint32_t rank)
{
	uint64_t count = one->sizes[rank];

	one->kind = one->kind == CEOV_BARRIER ? CEOV_ALL_GATHER :
		(enum ceov_call_kind)(one->kind % 8 + 1);
	if (channel_case_is_sum(one) && one->dtype > CEOV_UINT8)
		one->dtype = CEOV_INT8;
	if (!channel_case_is_sum(one))
		one->reduction = CEOV_SUM;
	if (!has_root(one->kind))
		one->root = 0;
	one->count = count;
}

/* Another count of what goes between this rank and another one. */
static void change_count(struct channel_case *one, uint32_t rank)
{
	uint32_t next = (rank + 1) % one->n_ranks;
	int is_root = rank == one->root;

	one->count++;
	one->is_uneven = 1;
	one->blocks[rank][next]++;
	if ((one->kind == CEOV_SCATTER || one->kind == CEOV_GATHER) && is_root)
		one->sizes[next]++;
	else
		one->sizes[rank]++;
}

void channel_case_change(struct channel_case *one, uint32_t rank, uint32_t way)
{
	int is_sum = channel_case_is_sum(one);

	if (one->kind == CEOV_BARRIER)
		way = 0;
	if (way == 1)
		one->dtype = one->dtype == CEOV_INT8 ? CEOV_INT16 : CEOV_INT8;
	else if (way == 2 && has_root(one->kind))
		one->root = (one->root + 1) % one->n_ranks;
	else if (way == 3 && is_sum)
		one->reduction = one->reduction == CEOV_MAX ? CEOV_MIN : CEOV_MAX;
	else if (way == 4)
		change_count(one, rank);
	else if (way == 5)
		*one = channel_case_of(CEOV_BARRIER, one->dtype, one->n_ranks, 0);
	else
		change_kind(one, rank);
	if (one->reduction == CEOV_MEAN && !channel_is_float(one->dtype))
		one->reduction = CEOV_SUM;
}

/* --- what goes where ------------------------------------------------------------------------- */

/* Items of the ranks before this one. */
static uint64_t before(const struct channel_case *one, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += one->sizes[i];
	return sum;
}

/* Items of the blocks before that of (source, target), at the source or at the target. */
static uint64_t blocks_before(const struct channel_case *one, uint32_t source, uint32_t target,
			      int is_at_source)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < (is_at_source ? target : source); i++)
		sum += is_at_source ? one->blocks[source][i] : one->blocks[i][target];
	return sum;
}

static uint64_t source_items(const struct channel_case *one, uint32_t rank)
{
	int is_root = rank == one->root;

	switch (one->kind) {
	case CEOV_ALL_GATHER: case CEOV_GATHER:
		return one->sizes[rank];
	case CEOV_REDUCE_SCATTER:
		return before(one, one->n_ranks);
	case CEOV_ALL_REDUCE: case CEOV_REDUCE:
		return one->count;
	case CEOV_ALL_TO_ALL:
		return blocks_before(one, rank, one->n_ranks, 1);
	case CEOV_BROADCAST:
		return is_root ? one->count : 0;
	case CEOV_SCATTER:
		return is_root ? before(one, one->n_ranks) : 0;
	case CEOV_BARRIER: case CEOV_SEND: case CEOV_RECEIVE:
		break;
	}
	return 0;
}

static uint64_t target_items(const struct channel_case *one, uint32_t rank)
{
	int is_root = rank == one->root;

	switch (one->kind) {
	case CEOV_ALL_GATHER:
		return before(one, one->n_ranks);
	case CEOV_REDUCE_SCATTER: case CEOV_SCATTER:
		return one->sizes[rank];
	case CEOV_ALL_REDUCE: case CEOV_BROADCAST:
		return one->count;
	case CEOV_ALL_TO_ALL:
		return blocks_before(one, one->n_ranks, rank, 0);
	case CEOV_GATHER:
		return is_root ? before(one, one->n_ranks) : 0;
	case CEOV_REDUCE:
		return is_root ? one->count : 0;
	case CEOV_BARRIER: case CEOV_SEND: case CEOV_RECEIVE:
		break;
	}
	return 0;
}

/* --- what a target has to hold --------------------------------------------------------------- */

struct wanted {
	const struct channel_case *one;
	char                      *to;          /* where the next item goes */
	const char                *seen;        /* what is there */
};

static void want_items(struct wanted *wanted, uint32_t source, uint64_t at, uint64_t n)
{
	uint64_t bytes = channel_item_bytes(wanted->one), i;
	char item[ITEM_MAX];

	for (i = at; i < at + n; i++) {
		channel_item_make(wanted->one, source, i, item);
		memcpy(wanted->to, item, bytes);
		wanted->to += bytes;
	}
}

static void want_sums(struct wanted *wanted, uint64_t at, uint64_t n)
{
	uint64_t bytes = channel_item_bytes(wanted->one), i;
	char item[ITEM_MAX];

	for (i = at; i < at + n; i++) {
		channel_item_sum(wanted->one, i, item);
		if (channel_item_is_nan(wanted->one, item) &&
		    channel_item_is_nan(wanted->one, wanted->seen))
			memcpy(item, wanted->seen, bytes);
		memcpy(wanted->to, item, bytes);
		wanted->to += bytes;
		wanted->seen += bytes;
	}
}

static void want_target(struct wanted *wanted, uint32_t rank)
{
	const struct channel_case *one = wanted->one;
	uint32_t i;

	switch (one->kind) {
	case CEOV_ALL_GATHER: case CEOV_GATHER:
		for (i = 0; i < one->n_ranks && target_items(one, rank); i++)
			want_items(wanted, i, 0, one->sizes[i]);
		break;
	case CEOV_ALL_TO_ALL:
		for (i = 0; i < one->n_ranks; i++)
			want_items(wanted, i, blocks_before(one, i, rank, 1),
				   one->blocks[i][rank]);
		break;
	case CEOV_SCATTER:
		want_items(wanted, one->root, before(one, rank), one->sizes[rank]);
		break;
	case CEOV_BROADCAST:
		want_items(wanted, one->root, 0, one->count);
		break;
	default:
		want_sums(wanted, one->kind == CEOV_REDUCE_SCATTER ? before(one, rank) : 0,
			  target_items(one, rank));
	}
}

/* --- memory ---------------------------------------------------------------------------------- */

struct channel_form channel_form_random(uint64_t *random)
{
	struct channel_form form = { 0 };

	form.is_in_place = testing_below(random, 4) == 0;
	form.has_lists = testing_below(random, 2) == 0;
	if (testing_below(random, 2))
		form.source_shift = (uint32_t)testing_below(random, 16);
	if (testing_below(random, 2))
		form.target_shift = (uint32_t)testing_below(random, 16);
	return form;
}

/* Where the source begins in the target (1) or the target in the source (-1); 0: they are
 * apart. */
static int place_of(const struct channel_case *one, uint32_t rank, int64_t *ret_at)
{
	int is_root = rank == one->root;

	*ret_at = 0;
	switch (one->kind) {
	case CEOV_ALL_REDUCE:
		return 1;
	case CEOV_BROADCAST: case CEOV_REDUCE:
		return is_root;
	case CEOV_ALL_GATHER: case CEOV_GATHER:
		*ret_at = (int64_t)(before(one, rank) * channel_item_bytes(one));
		return one->kind == CEOV_ALL_GATHER || is_root;
	case CEOV_REDUCE_SCATTER: case CEOV_SCATTER:
		*ret_at = (int64_t)(before(one, rank) * channel_item_bytes(one));
		return one->kind == CEOV_REDUCE_SCATTER || is_root ? -1 : 0;
	default:
		return 0;
	}
}

/* Gives the call its lists of counts where it has to have them or the form wants it. */
static void set_counts(const struct channel_case *one, uint32_t rank,
		       const struct channel_form *form, struct channel_data *data)
{
	int is_root = rank == one->root, wants = one->is_uneven || form->has_lists;
	int sends = one->kind == CEOV_ALL_TO_ALL || one->kind == CEOV_REDUCE_SCATTER ||
		(one->kind == CEOV_SCATTER && is_root);
	int receives = one->kind == CEOV_ALL_TO_ALL || one->kind == CEOV_ALL_GATHER ||
		(one->kind == CEOV_GATHER && is_root);
	uint32_t i;

	for (i = 0; i < one->n_ranks; i++) {
		data->sends[i] = one->kind == CEOV_ALL_TO_ALL ? one->blocks[rank][i]
			: one->sizes[i];
		data->receives[i] = one->kind == CEOV_ALL_TO_ALL ? one->blocks[i][rank]
			: one->sizes[i];
	}
	data->call.count = one->kind == CEOV_GATHER || one->kind == CEOV_SCATTER ?
		one->sizes[rank] : one->count;
	if (one->kind == CEOV_BARRIER)
		data->call.count = 0;
	if (wants && sends)
		data->call.sends = data->sends;
	if (wants && receives)
		data->call.receives = data->receives;
	if (wants && (sends || receives))
		data->call.count = 12345;       /* without effect */
}

/* Lays out source and target between guards. */
static void lay_out(const struct channel_case *one, uint32_t rank,
		    const struct channel_form *form, struct channel_data *data)
{
	uint64_t n_source = source_items(one, rank) * channel_item_bytes(one);
	uint64_t n_target = target_items(one, rank) * channel_item_bytes(one);
	int64_t at = 0;
	int place = form->is_in_place ? place_of(one, rank, &at) : 0;
	char *source, *target;

	data->n_bytes = n_source + n_target + 3 * GUARD_BYTES + 2 * ITEM_MAX;
	data->memory = malloc(data->n_bytes);
	data->wanted = malloc(data->n_bytes);
	ck_assert(data->memory && data->wanted);
	memset(data->memory, GUARD, data->n_bytes);
	source = data->memory + GUARD_BYTES + form->source_shift;
	target = source + n_source + GUARD_BYTES + form->target_shift;
	if (place > 0) {
		target = source;
		source += at;
	} else if (place < 0) {
		target = source + at;
	}
	memset(target, FREE, n_target);
	data->call.source = n_source ? source : NULL;
	data->call.target = n_target ? target : NULL;
}

void channel_data_make(const struct channel_case *one, uint32_t rank,
		       const struct channel_form *form, struct channel_data *ret_data)
{
	struct ceov_call *call = &ret_data->call;
	uint64_t i, bytes = channel_item_bytes(one);

	memset(ret_data, 0, sizeof(*ret_data));
	call->struct_bytes = sizeof(*call);
	call->kind = one->kind;
	call->dtype = one->dtype;
	call->reduction = one->reduction;
	call->root = one->root;
	set_counts(one, rank, form, ret_data);
	lay_out(one, rank, form, ret_data);
	for (i = 0; i < source_items(one, rank); i++)
		channel_item_make(one, rank, i, (char *)call->source + i * bytes);
	memcpy(ret_data->wanted, ret_data->memory, ret_data->n_bytes);
}

void channel_data_free(struct channel_data *data)
{
	free(data->memory);
	free(data->wanted);
}

struct ceov_call channel_data_call_at(const struct channel_data *data, char *copy)
{
	struct ceov_call call = data->call;

	if (call.source)
		call.source = copy + ((const char *)call.source - data->memory);
	if (call.target)
		call.target = copy + ((char *)call.target - data->memory);
	return call;
}

static void report(const struct channel_case *one, uint32_t rank,
		   const struct channel_data *data)
{
	uint64_t i = 0;

	while (data->memory[i] == data->wanted[i])
		i++;
	ck_abort_msg("rank %u of %u, kind %d, dtype %d, reduction %d, root %u: byte %lld of the "
		     "target is 0x%02x instead of 0x%02x", rank, one->n_ranks, (int)one->kind,
		     (int)one->dtype, (int)one->reduction, one->root,
		     (long long)(data->memory + i - (const char *)data->call.target),
		     (unsigned char)data->memory[i], (unsigned char)data->wanted[i]);
}

void channel_data_check(const struct channel_case *one, uint32_t rank, struct channel_data *data)
{
	struct wanted wanted = { .one = one, .seen = data->call.target };

	if (data->call.target) {
		wanted.to = data->wanted + ((const char *)data->call.target - data->memory);
		want_target(&wanted, rank);
	}
	if (memcmp(data->memory, data->wanted, data->n_bytes))
		report(one, rank, data);
}

void channel_data_check_unchanged(const struct channel_data *data)
{
	ck_assert(!memcmp(data->memory, data->wanted, data->n_bytes));
}

int channel_case_run(const struct channel_case *one, uint32_t rank, ceov_channel *channel,
		     uint64_t *random)
{
	struct channel_form form = channel_form_random(random);
	struct channel_data data;
	int r;

	channel_data_make(one, rank, &form, &data);
	r = ceov_channel_run(channel, &data.call, 1);
	if (!r)
		channel_data_check(one, rank, &data);
	channel_data_free(&data);
	return r;
}
