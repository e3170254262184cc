/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Rounds in which all ranks exchange a number. */

#include "ops/core/agree.h"

#include <inttypes.h>

#include "ce_engine/context.h"

int cei_agree_tell_facts(const struct cei_agree *agree)
{
	uint64_t fact;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < CEI_AGREE_FACTS; i++) {
		fact = agree->facts[i] < CEI_AGREE_VALUE_MAX ? agree->facts[i]
			: CEI_AGREE_VALUE_MAX;
		if (fact)
			r = ceov_signal_raise(agree->signals[agree->rank],
					      CEI_AGREE_ROUND_COUNTERS + i, fact);
	}
	return r;
}

int cei_agree_least(const struct cei_agree *agree, enum cei_agree_fact fact,
		    uint64_t *ret_least)
{
	uint64_t told = 0, least = CEI_AGREE_VALUE_MAX;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < agree->n_ranks; i++) {
		r = ceov_signal_value(agree->signals[i],
				      CEI_AGREE_ROUND_COUNTERS + (uint32_t)fact, &told);
		if (!r && told < least)
			least = told;
	}
	if (!r)
		*ret_least = least;
	return r;
}

static uint64_t first_of(uint64_t round)
{
	return round << CEI_AGREE_VALUE_BITS;
}

static int check(const struct cei_agree *agree, uint64_t value)
{
	if (value > CEI_AGREE_VALUE_MAX)
		return cei_raise(&agree->context->report, CEOV_ERR_INVALID, 0,
				 "rank %u: %" PRIu64 " is too large to be told to peers",
				 agree->rank, value);
	if (agree->round + 2 < CEOV_VALUE_LIMIT >> CEI_AGREE_VALUE_BITS)
		return 0;
	return cei_raise(&agree->context->report, CEOV_ERR_STATE, 0,
			 "rank %u: this workspace was tuned too often (%" PRIu64 " rounds); "
			 "create another one", agree->rank, agree->round);
}

/* Awaits a rank's number of this round. */
static int hear(const struct cei_agree *agree, uint32_t rank, uint64_t timeout_ns,
		uint64_t *ret_value)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	uint32_t index = (uint32_t)(agree->round % CEI_AGREE_ROUND_COUNTERS);
	uint64_t seen = 0;
	int r = ceov_signal_wait(agree->signals[rank], index, first_of(agree->round),
				 timeout_ns);

	if (r == CEOV_PENDING) {
		failure.rank = rank;
		return cei_raise_failure(&agree->context->report, &failure,
					 "rank %u waits for rank %u to tune: it has not come "
					 "within %" PRIu64 " ms; all ranks must call "
					 "ceov_op_tune()", agree->rank, rank,
					 timeout_ns / 1000000);
	}
	if (!r)
		r = ceov_signal_value(agree->signals[rank], index, &seen);
	/* after an abort the counter holds no number, and waiting returned the abort's
	 * error */
	if (!r && seen >> CEI_AGREE_VALUE_BITS != agree->round)
		r = ceov_signal_wait(agree->signals[rank], index, first_of(agree->round), 0);
	if (r)
		return r;
	if (seen >> CEI_AGREE_VALUE_BITS != agree->round)
		return cei_raise(&agree->context->report, CEOV_ERR_STATE, 0,
				 "rank %u: rank %u tells of another round; all ranks must "
				 "tune the same ops in the same order", agree->rank, rank);
	*ret_value = seen & CEI_AGREE_VALUE_MAX;
	return 0;
}

int cei_agree_range(struct cei_agree *agree, uint64_t value, uint64_t timeout_ns,
		    struct cei_agree_range *ret_range)
{
	struct cei_agree_range range = { value, value };
	uint64_t told = value;
	uint32_t i;
	int r = check(agree, value);

	if (r)
		return r;
	agree->round++;
	r = ceov_signal_raise(agree->signals[agree->rank],
			      (uint32_t)(agree->round % CEI_AGREE_ROUND_COUNTERS),
			      first_of(agree->round) | value);
	for (i = 0; !r && i < agree->n_ranks; i++) {
		if (i == agree->rank)
			continue;
		r = hear(agree, i, timeout_ns, &told);
		if (!r && told < range.min)
			range.min = told;
		if (!r && told > range.max)
			range.max = told;
	}
	if (!r)
		*ret_range = range;
	return r;
}
