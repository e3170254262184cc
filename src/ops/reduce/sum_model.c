/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Predicts sums by copy engines and by SMs. The constants are from sums of 4 to 256 MiB between 2,
 * 4 and 8 GPUs in graphs (docs/results of 2026-11-26). */

#include "ops/reduce/sum_model.h"

#include "kernels/direct.h"
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

/* By SMs: a run's begin and end, and what the second step of an all-reduce adds to that; then the
 * rates at which 16 SMs store to peers: while they add, in sums made in steps, and before they add,
 * in the kernels for few bytes. */
#define DIRECT_NS           9000.0
#define DIRECT_GATHER_NS    4000.0
#define STEPS_BYTES_PER_NS   270.0
#define FEW_BYTES_PER_NS     210.0
#define MANY_RANKS_PER_NS    140.0      /* ... of more ranks than sums in steps take */
#define MEASURED_SMS          16.0

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

double cei_sum_direct_ns(const struct cei_choose_args *args, enum ceov_op_mode mode)
{
	double span = (double)cei_direct_sum_span(args->shape, mode);
	double sent = (args->shape->n_ranks - 1) * span * (mode == CEOV_MODE_TWO_SHOT ? 2 : 1);
	double fixed = DIRECT_NS + (mode == CEOV_MODE_TWO_SHOT ? DIRECT_GATHER_NS : 0);
	double rate = FEW_BYTES_PER_NS;
	struct cei_choice choice = { .mode = mode };

	cei_direct_choose_sum(args, cei_direct_sum_span(args->shape, mode), &choice);
	if (choice.direct_steps)
		rate = STEPS_BYTES_PER_NS;
	else if (args->shape->n_ranks > CEI_DIRECT_STEP_RANKS_MAX)
		rate = MANY_RANKS_PER_NS;
	if (args->rates->n_sms < MEASURED_SMS)
		rate *= args->rates->n_sms / MEASURED_SMS;
	return fixed + sent / rate;
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
	return cei_sum_direct_ns(args, mode) < cei_sum_engines_ns(args) * DIRECT_WORTH
		? mode : CEOV_MODE_CHOOSE;
}
