/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Generates operands of all-gathers and all-to-alls, and checks what arrives. */

#include "gpu_move_data.h"

#define GUARD_WORDS UINT64_C(32)
#define GUARD_SEED  UINT64_C(0x6a09e667f3bcc909)
#define WORD        sizeof(uint64_t)

static uint64_t target_bytes(const struct gpu_move_data *data)
{
	return move_arrives_at(data->one, data->one->n_ranks, data->rank->rank);
}

struct gpu_move_data gpu_move_data_make(struct gpu_op_rank *rank,
					const struct move_case *one)
{
	struct gpu_move_data data = { .rank = rank, .one = one };

	ck_assert_uint_le(move_scratch(one), GPU_OP_SCRATCH);
	data.target = gpu_op_take(rank, target_bytes(&data) + GUARD_WORDS * WORD);
	data.source = one->is_in_place
		? data.target + move_arrives_at(one, rank->rank, rank->rank)
		: gpu_op_take(rank, move_leaves_at(one, rank->rank, one->n_ranks));
	return data;
}

static void fill_words(const struct gpu_move_data *data, enum gpu_stream stream, char *p,
		       uint64_t n_bytes, uint64_t seed)
{
	struct gpu_words words = { p, n_bytes / WORD, seed };

	if (words.n_words)
		gpu_fill(&data->rank->gpu, stream, &words);
}

static void check_words(const struct gpu_move_data *data, char *p, uint64_t n_bytes,
			uint64_t seed)
{
	struct gpu_words words = { p, n_bytes / WORD, seed };

	if (words.n_words)
		gpu_check(&data->rank->gpu, &words);
}

void gpu_move_data_fill_source(const struct gpu_move_data *data, enum gpu_stream stream,
			       uint64_t number)
{
	const struct move_case *one = data->one;
	uint32_t own = data->rank->rank, n = one->is_gather ? 1 : one->n_ranks, target;

	for (target = 0; target < n; target++)
		fill_words(data, stream, data->source + move_leaves_at(one, own, target),
			   move_block(one, own, target),
			   move_seed(one, number, own, target));
}

void gpu_move_data_fill(const struct gpu_move_data *data, enum gpu_stream stream,
			uint64_t number)
{
	fill_words(data, stream, data->target, target_bytes(data), ~GUARD_SEED);
	fill_words(data, stream, data->target + target_bytes(data), GUARD_WORDS * WORD,
		   GUARD_SEED);
	gpu_move_data_fill_source(data, stream, number);
}

int gpu_move_data_run(const struct gpu_move_data *data, ceov_op *op, enum gpu_stream stream)
{
	struct ceov_move_run run = { .struct_bytes = sizeof(run) };

	run.stream = data->rank->gpu.streams[stream];
	run.source = data->source;
	run.target = data->target;
	return ceov_move_run(op, &run);
}

void gpu_move_data_turn(const struct gpu_move_data *data, ceov_op *op,
			enum gpu_stream stream, uint64_t number)
{
	char text[400];
	int r;

	gpu_move_data_fill(data, stream, number);
	r = gpu_move_data_run(data, op, stream);
	if (!r)
		return;
	move_describe(data->one, text, sizeof(text));
	ck_abort_msg("rank %u: %s: run: %s", data->rank->rank, text, ceov_strerror(r));
}

void gpu_move_data_check(const struct gpu_move_data *data, enum gpu_stream stream,
			 uint64_t number)
{
	const struct move_case *one = data->one;
	uint32_t own = data->rank->rank, source;

	gpu_op_idle(data->rank, stream);
	for (source = 0; source < one->n_ranks; source++)
		check_words(data, data->target + move_arrives_at(one, source, own),
			    move_block(one, source, own),
			    move_seed(one, number, source, own));
	check_words(data, data->target + target_bytes(data), GUARD_WORDS * WORD, GUARD_SEED);
}
