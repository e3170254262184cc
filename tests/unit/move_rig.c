/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Cases of all-gather and all-to-all. */

#include "move_rig.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MAX  32u
#define GUARD_BYTES 64u
#define GUARD       0x5au

static uint32_t n_blocks(const struct move_case *one)
{
	return one->is_gather ? one->n_ranks : one->n_ranks * one->n_ranks;
}

struct move_case move_case_of(int is_gather, uint32_t n_ranks, uint64_t bytes)
{
	struct move_case one;
	uint32_t i;

	memset(&one, 0, sizeof(one));
	one.is_gather = is_gather;
	one.n_ranks = n_ranks;
	for (i = 0; i < n_blocks(&one); i++)
		one.bytes[i] = bytes;
	return one;
}

static uint64_t pick_bytes(uint64_t *random, uint64_t limit)
{
	switch (testing_below(random, 4)) {
	case 0:  return 0;
	case 1:  return MOVE_STEP;
	default: return MOVE_STEP * testing_below(random, limit / MOVE_STEP);
	}
}

static uint32_t pick_pieces(uint64_t *random)
{
	switch (testing_below(random, 4)) {
	case 0:  return 0;
	case 1:  return PIECES_MAX;
	default: return 1 + (uint32_t)testing_below(random, 6);
	}
}

struct move_case move_case_random(uint64_t *random, uint32_t n_ranks, uint64_t limit)
{
	struct move_case one = move_case_of((int)testing_below(random, 2), n_ranks, 0);
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < n_blocks(&one); i++)
		sum += one.bytes[i] = pick_bytes(random, limit);
	if (!sum)
		one.bytes[testing_below(random, n_blocks(&one))] = 2 * MOVE_STEP;
	one.n_pieces = pick_pieces(random);
	one.is_in_place = one.is_gather && testing_below(random, 2);
	return one;
}

uint64_t move_block(const struct move_case *one, uint32_t source, uint32_t target)
{
	return one->is_gather ? one->bytes[source]
		: one->bytes[source * one->n_ranks + target];
}

uint64_t move_leaves_at(const struct move_case *one, uint32_t source, uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	if (one->is_gather)             /* each rank sends the same bytes to all */
		return target == one->n_ranks ? one->bytes[source] : 0;
	for (i = 0; i < target; i++)
		sum += move_block(one, source, i);
	return sum;
}

uint64_t move_arrives_at(const struct move_case *one, uint32_t source, uint32_t target)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < source; i++)
		sum += move_block(one, i, target);
	return sum;
}

uint64_t move_seed(const struct move_case *one, uint64_t number, uint32_t source,
		   uint32_t target)
{
	uint64_t pair = source * OP_RANKS_MAX + (one->is_gather ? 0 : target);

	return testing_seed() + number * OP_RANKS_MAX * OP_RANKS_MAX + pair;
}

static struct ceov_move shape_of(const struct move_case *one,
				 const struct ceov_op_tuning *tuning)
{
	struct ceov_move shape = { .struct_bytes = sizeof(shape) };

	shape.bytes = one->bytes;
	shape.tuning = one->n_pieces || one->mode ? tuning : NULL;
	return shape;
}

uint64_t move_scratch(const struct move_case *one)
{
	struct ceov_move shape = shape_of(one, NULL);

	return one->is_gather ? ceov_all_gather_scratch_bytes(&shape, one->n_ranks)
		: ceov_all_to_all_scratch_bytes(&shape, one->n_ranks);
}

int move_create(const struct move_case *one, ceov_workspace *workspace, ceov_op **ret_op)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };
	struct ceov_move shape = shape_of(one, &tuning);

	tuning.n_pieces = one->n_pieces;
	tuning.mode = one->mode;
	tuning.n_reduce_blocks = one->n_sms;
	return one->is_gather ? ceov_all_gather_create(workspace, &shape, ret_op)
		: ceov_all_to_all_create(workspace, &shape, ret_op);
}

void move_describe(const struct move_case *one, char *text, size_t n_bytes)
{
	size_t at;
	uint32_t i;

	at = (size_t)snprintf(text, n_bytes, "%s%s of %u ranks, mode %d, pieces %u, SMs %u, "
			      "bytes", one->is_gather ? "all-gather" : "all-to-all",
			      one->is_in_place ? " in place" : "", one->n_ranks,
			      (int)one->mode, one->n_pieces, one->n_sms);
	for (i = 0; i < n_blocks(one) && at < n_bytes; i++)
		at += (size_t)snprintf(text + at, n_bytes - at, " %llu",
				       (unsigned long long)one->bytes[i]);
}

/* --- operands -------------------------------------------------------------- */

static unsigned char *allocate(uint64_t n_bytes)
{
	unsigned char *memory = aligned_alloc(MOVE_STEP, n_bytes + GUARD_BYTES);

	ck_assert_ptr_nonnull(memory);
	memset(memory, GUARD, n_bytes + GUARD_BYTES);
	return memory;
}

struct move_data move_data_make(const struct move_case *one, uint32_t rank, uint64_t number)
{
	struct move_data data = { .target = allocate(move_arrives_at(one, one->n_ranks, rank)) };
	uint32_t target, n = one->is_gather ? 1 : one->n_ranks;

	if (one->is_in_place)
		data.source = data.target + move_arrives_at(one, rank, rank);
	else
		data.source = data.own_source = allocate(move_leaves_at(one, rank,
									one->n_ranks));
	for (target = 0; target < n; target++)
		testing_fill(data.source + move_leaves_at(one, rank, target),
			     move_block(one, rank, target),
			     move_seed(one, number, rank, target));
	return data;
}

void move_data_free(struct move_data *data)
{
	free(data->own_source);
	free(data->target);
}

int move_data_run(ceov_op *op, const struct move_data *data)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };

	run.source = data->source;
	run.target = data->target;
	return ceov_move_run(op, &run);
}

void move_data_check(const struct move_case *one, uint32_t rank, uint64_t number,
		       const struct move_data *data)
{
	uint64_t n_bytes, wrong;
	const unsigned char *end;
	char text[400];
	uint32_t source;

	for (source = 0; source < one->n_ranks; source++) {
		n_bytes = move_block(one, source, rank);
		wrong = testing_check(data->target + move_arrives_at(one, source, rank), n_bytes,
				      move_seed(one, number, source, rank));
		if (wrong == n_bytes)
			continue;
		move_describe(one, text, sizeof(text));
		ck_abort_msg("rank %u, run %llu: byte %llu from rank %u is wrong: %s", rank,
			     (unsigned long long)number, (unsigned long long)wrong, source,
			     text);
	}
	end = data->target + move_arrives_at(one, one->n_ranks, rank);
	ck_assert_uint_eq(testing_check_same(end, GUARD_BYTES, GUARD), GUARD_BYTES);
}
