/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes the rounds in which all ranks exchange a number each. */

#include "ops/core/host_allreduce.h"

#include <inttypes.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"

int cei_allreduce_tell_facts(const struct cei_allreduce *allreduce)
{
	uint64_t fact;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < CEI_ALLREDUCE_FACTS; i++) {
		fact = allreduce->facts[i] < CEI_ALLREDUCE_VALUE_MAX ? allreduce->facts[i]
			: CEI_ALLREDUCE_VALUE_MAX;
		r = ceov_signal_raise(allreduce->signals[allreduce->rank],
				      CEI_ALLREDUCE_ROUND_COUNTERS + i, fact + 1);
	}
	return r;
}

/* Waits for the fact of one rank, and returns it. */
static int hear_fact(ceov_signal *signal, enum cei_allreduce_fact fact, uint64_t deadline_ns,
		     uint64_t *ret_fact)
{
	uint32_t index = CEI_ALLREDUCE_ROUND_COUNTERS + (uint32_t)fact;
	uint64_t now_ns = cei_now_ns(), told = 0;
	int r = ceov_signal_wait(signal, index, 1,
				 now_ns < deadline_ns ? deadline_ns - now_ns : 0);

	if (!r)
		r = ceov_signal_value(signal, index, &told);
	/* If the signal was aborted since, its counter holds no fact; waiting again returns the
	 * error of the abort. */
	if (!r && told > CEI_ALLREDUCE_VALUE_MAX + 1)
		r = ceov_signal_wait(signal, index, 1, 0);
	if (!r)
		*ret_fact = told - 1;
	return r;
}

int cei_allreduce_least(const struct cei_allreduce *allreduce, enum cei_allreduce_fact fact,
			uint64_t deadline_ns, uint64_t *ret_least)
{
	uint64_t told = 0, least = CEI_ALLREDUCE_VALUE_MAX;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < allreduce->n_ranks; i++) {
		r = hear_fact(allreduce->signals[i], fact, deadline_ns, &told);
		if (!r && told < least)
			least = told;
	}
	if (!r)
		*ret_least = least;
	return r;
}

static uint64_t first_of(uint64_t round)
{
	return round << CEI_ALLREDUCE_VALUE_BITS;
}

static int check(const struct cei_allreduce *allreduce, uint64_t value)
{
	if (value > CEI_ALLREDUCE_VALUE_MAX)
		return cei_raise(&allreduce->context->report, CEOV_ERR_INVALID, 0,
				 "rank %u: %" PRIu64 " is too large to be told to peers",
				 allreduce->rank, value);
	if (allreduce->round + 2 < CEOV_VALUE_LIMIT >> CEI_ALLREDUCE_VALUE_BITS)
		return 0;
	return cei_raise(&allreduce->context->report, CEOV_ERR_STATE, 0,
			 "rank %u: this workspace was tuned too often (%" PRIu64 " rounds); "
			 "create another one", allreduce->rank, allreduce->round);
}

/* Waits for the number that a rank publishes in this round, and returns it. */
static int hear(const struct cei_allreduce *allreduce, uint32_t rank, uint64_t timeout_ns,
		uint64_t *ret_value)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	uint32_t index = (uint32_t)(allreduce->round % CEI_ALLREDUCE_ROUND_COUNTERS);
	uint64_t seen = 0;
	int r = ceov_signal_wait(allreduce->signals[rank], index, first_of(allreduce->round),
				 timeout_ns);

	if (r == CEOV_PENDING) {
		failure.rank = rank;
		return cei_raise_failure(&allreduce->context->report, &failure,
					 "rank %u waits for rank %u to tune: it has not come "
					 "within %" PRIu64 " ms; all ranks must call "
					 "ceov_op_tune()", allreduce->rank, rank,
					 timeout_ns / 1000000);
	}
	if (!r)
		r = ceov_signal_value(allreduce->signals[rank], index, &seen);
	/* If the signal was aborted, its counter holds no number; waiting again returns the
	 * error of the abort. */
	if (!r && seen >> CEI_ALLREDUCE_VALUE_BITS != allreduce->round)
		r = ceov_signal_wait(allreduce->signals[rank], index,
				     first_of(allreduce->round), 0);
	if (r)
		return r;
	if (seen >> CEI_ALLREDUCE_VALUE_BITS != allreduce->round)
		return cei_raise(&allreduce->context->report, CEOV_ERR_STATE, 0,
				 "rank %u: rank %u tells of another round; all ranks must "
				 "tune the same ops in the same order", allreduce->rank, rank);
	*ret_value = seen & CEI_ALLREDUCE_VALUE_MAX;
	return 0;
}

int cei_allreduce_range(struct cei_allreduce *allreduce, uint64_t value, uint64_t timeout_ns,
			struct cei_allreduce_range *ret_range)
{
	struct cei_allreduce_range range = { value, value };
	uint64_t told = value;
	uint32_t i;
	int r = check(allreduce, value);

	if (r)
		return r;
	allreduce->round++;
	r = ceov_signal_raise(allreduce->signals[allreduce->rank],
			      (uint32_t)(allreduce->round % CEI_ALLREDUCE_ROUND_COUNTERS),
			      first_of(allreduce->round) | value);
	for (i = 0; !r && i < allreduce->n_ranks; i++) {
		if (i == allreduce->rank)
			continue;
		r = hear(allreduce, i, timeout_ns, &told);
		if (!r && told < range.min)
			range.min = told;
		if (!r && told > range.max)
			range.max = told;
	}
	if (!r)
		*ret_range = range;
	return r;
}
