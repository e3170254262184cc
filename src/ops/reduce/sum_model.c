/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Predicts sums by copy engines and by SMs. The constants are from sums of 4 to 256 MiB between 2,
 * 4 and 8 GPUs in graphs (docs/results of 2026-11-26). */

#include "ops/reduce/sum_model.h"

#include "ops/kind.h"
#include "ops/kinds.h"
#include "ops/reduce/direct_sum.h"
#include "ops/reduce/parts.h"
#include "ops/tuning/direct_choice.h"

/* By copy engines: a run's begin and end, and that of the second phase of an all-reduce; by how
 * much the copies of both phases take longer, since those of sums wait for these; then the rate at
 * which 16 SMs add up what has come. */
#define ENGINES_NS        13000.0
#define GATHER_NS          7000.0
#define GATHER_FACTOR      1.12
#define ADDED_BYTES_PER_NS 2200.0

/* By SMs: what the second step of an all-reduce adds. */
#define DIRECT_GATHER_NS    4000.0

/* SMs are chosen if their predicted time is below this fraction of that of copy engines. */
#define DIRECT_WORTH 0.98

static int is_all_reduce(const struct cei_choose_args *args)
{
	return args->shape->kind == &cei_all_reduce;
}

double cei_sum_engines_ns(const struct cei_choose_args *args)
{
	uint32_t n_ranks = args->shape->n_ranks, n_phases = is_all_reduce(args) ? 2 : 1;
	double rate = cei_rates_all_send(args->rates, n_ranks);
	double span = (double)cei_sum_slot_bytes(args->shape);
	double copies = (n_ranks - 1) * (span / rate + args->rates->mark_ns);

	if (n_phases > 1)
		copies *= GATHER_FACTOR;
	return ENGINES_NS + (n_phases - 1) * GATHER_NS + n_phases * copies +
		n_ranks * span / ADDED_BYTES_PER_NS;
}

/* Returns how long a run takes with 16 SMs in a direct mode. */
static double direct_ns(const struct cei_choose_args *args, enum ceov_op_mode mode)
{
	uint64_t span = cei_direct_sum_span(args->shape, mode);
	uint64_t sent = (args->shape->n_ranks - 1) * span;
	struct cei_choice choice = { .mode = mode };

	cei_direct_choose_sum(args, span, &choice);
	if (mode == CEOV_MODE_TWO_SHOT)
		return DIRECT_GATHER_NS + cei_direct_ns(args, &choice, 2 * sent);
	return cei_direct_ns(args, &choice, sent);
}

static enum ceov_op_mode mode_of(const struct cei_choose_args *args)
{
	const struct cei_op_shape *shape = args->shape;

	if (!is_all_reduce(args))
		return CEOV_MODE_DIRECT;
	return cei_direct_all_reduce_mode(cei_sum_bytes(shape, cei_op_all_rows(shape)),
					  shape->n_ranks);
}

enum ceov_op_mode cei_sum_direct_mode(const struct cei_choose_args *args)
{
	const struct cei_op_shape *shape = args->shape;
	enum ceov_op_mode mode = mode_of(args);

	if (!cei_direct_is_open(args) || shape->sum.by_node ||
	    shape->kind->direct_fault(shape, mode))
		return CEOV_MODE_CHOOSE;
	return direct_ns(args, mode) < cei_sum_engines_ns(args) * DIRECT_WORTH
		? mode : CEOV_MODE_CHOOSE;
}
