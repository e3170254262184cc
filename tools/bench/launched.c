/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Each rank has one signal in host memory. At rank 0 its counters are
 *
 *   r                                      what rank r says at a barrier
 *   n_ranks + r * BENCH_SAMPLES_MAX + i    sample i of rank r
 *
 * and at the others
 *
 *   0                                      the answer of rank 0
 *   1 ... WORDS                            what all have to agree on, 32 bits each
 *
 * Counters only rise. So the number of the barrier, or of the collection, is in the upper bits of
 * each value and what is said in the lower ones. No value is lost: a rank goes on to the next
 * barrier only with the answer, which rank 0 gives when it has read what all said.
 */

#include "tools/bench/launched.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/launcher.h"

#define NAME        "bench.launched"
#define WORDS       4u
#define SAID_BITS   8                   /* of a barrier's value: what is said */
#define SAMPLE_BITS 36                  /* of a sample's value: the upper bits of its double */
#define CUT_BITS    (64 - SAMPLE_BITS)  /* the lower ones, which are left out */
#define LAST_ROUND  (UINT64_C(1) << 48) /* the round of rank 0's verdict */
#define SLICE_NS    UINT64_C(1000000)
#define LINGER_NS   UINT64_C(10000000000)

enum said { SAID_YES = 1, SAID_FAILED = 2 };

struct bench_launched {
	ceov_context *context;
	uint32_t      rank;
	uint32_t      n_ranks;
	uint64_t      deadline_ns;
	ceov_signal  *own;
	ceov_signal  *found[BENCH_RANKS_MAX];   /* of rank 0; at rank 0 of all others */
	uint64_t      round;
	uint64_t      n_collected;
	int           has_failed;               /* this rank or another one, as told */
};

/* --- the launcher -------------------------------------------------------- */

/* The number that a variable holds; -1 without one. */
static long number_of(const char *name)
{
	const char *text = getenv(name);
	char *end;
	long number;

	if (!text || !*text)
		return -1;
	number = strtol(text, &end, 10);
	return *end || number < 0 ? -1 : number;
}

int bench_launched_is(void)
{
	const char *means = getenv("CEOVERLAP_BOOTSTRAP");

	return means && *means ? strcmp(means, "alone") != 0 : cei_launcher_of_several() != NULL;
}

uint32_t bench_launched_local_number(void)
{
	const struct cei_launcher *launcher = cei_launcher_find();
	long number = number_of("CEOVERLAP_PROCESS");

	if (number < 0 && launcher && launcher->local)
		number = number_of(launcher->local);

	return number < 0 ? 0 : (uint32_t)number;
}

/* --- signals ------------------------------------------------------------- */

static uint64_t left_ns(const struct bench_launched *launched)
{
	uint64_t now = cei_now_ns();

	return now < launched->deadline_ns ? launched->deadline_ns - now : 0;
}

/* Waits for a counter of this rank until the deadline. */
static int wait_for(struct bench_launched *launched, uint32_t index, uint64_t value,
		    uint64_t *ret_value)
{
	int r = ceov_signal_wait(launched->own, index, value, left_ns(launched));

	if (r == CEOV_PENDING)
		return CEOV_ERR_TIMEOUT;
	return r ? r : ceov_signal_value(launched->own, index, ret_value);
}

static int share(struct bench_launched *launched)
{
	const struct ceov_place host = { CEOV_PLACE_HOST, 0 };
	uint32_t n = launched->rank ? 1 + WORDS
		: launched->n_ranks * (1 + BENCH_SAMPLES_MAX), i;
	int r;

	r = ceov_signal_create(launched->context, launched->rank, host, n, 0, &launched->own);
	if (!r)
		r = ceov_signal_share(launched->own, NAME);
	if (!r)
		r = ceov_barrier(launched->context, left_ns(launched));
	for (i = 0; !r && i < (launched->rank ? 1 : launched->n_ranks); i++)
		if (i != launched->rank)
			r = ceov_signal_find(launched->context, i, NAME, &launched->found[i]);
	return r;
}

int bench_launched_open(ceov_context *context, uint64_t deadline_ns,
			struct bench_launched **ret_launched)
{
	struct bench_launched *launched = calloc(1, sizeof(*launched));
	struct ceov_member own;
	uint32_t n_own;
	int r;

	if (!launched)
		return CEOV_ERR_NO_MEMORY;
	launched->context = context;
	launched->deadline_ns = deadline_ns;
	r = ceov_n_ranks(context, &launched->n_ranks);
	if (!r)
		r = ceov_members(context, &own, 1, &n_own);
	if (!r) {
		launched->rank = own.rank;
		r = launched->n_ranks > BENCH_RANKS_MAX || n_own != 1 ? CEOV_ERR_INVALID
			: share(launched);
	}
	if (r)
		free(launched);
	else
		*ret_launched = launched;
	return r;
}

void bench_launched_close(struct bench_launched *launched)
{
	free(launched);         /* ceov_close() releases the signals */
}

/* --- agreeing ------------------------------------------------------------ */

static int tell(struct bench_launched *launched, const uint32_t *words)
{
	uint32_t to, i;
	int r = 0;

	for (to = 1; !r && to < launched->n_ranks; to++)
		for (i = 0; !r && i < WORDS; i++)
			r = ceov_signal_raise(launched->found[to], 1 + i,
					      UINT64_C(1) << 32 | words[i]);
	return r;
}

int bench_launched_agree(struct bench_launched *launched, uint64_t *seed, uint64_t arguments)
{
	uint32_t words[WORDS] = { (uint32_t)*seed, (uint32_t)(*seed >> 32), (uint32_t)arguments,
				  (uint32_t)(arguments >> 32) };
	uint64_t value;
	uint32_t i;
	int r = 0;

	if (!launched->rank)
		return tell(launched, words);
	for (i = 0; !r && i < WORDS; i++) {
		r = wait_for(launched, 1 + i, UINT64_C(1) << 32, &value);
		words[i] = (uint32_t)value;
	}
	if (r)
		return r;
	*seed = (uint64_t)words[1] << 32 | words[0];
	return arguments == ((uint64_t)words[3] << 32 | words[2]) ? 0 : CEOV_ERR_INVALID;
}

/* --- barriers ------------------------------------------------------------ */

/* Rank 0: tells all others the value. Tries all of them, because some may be lost. */
static int answer(struct bench_launched *launched, uint64_t value)
{
	uint32_t to;
	int r = 0, one;

	for (to = 1; to < launched->n_ranks; to++) {
		one = ceov_signal_raise(launched->found[to], 0, value);
		r = r ? r : one;
	}
	return r;
}

/* Rank 0: waits until all others have spoken in this round, or until one has told that it failed:
 * the others may be waiting for its data. */
static int listen(struct bench_launched *launched, enum said *ret_said)
{
	uint64_t least = launched->round << SAID_BITS, value;
	uint32_t from, n_left = launched->n_ranks - 1;
	uint8_t has_spoken[BENCH_RANKS_MAX] = { 0 };
	unsigned said = *ret_said;
	int r = 0;

	while (!r && n_left && !(said & SAID_FAILED)) {
		for (from = 1; !r && from < launched->n_ranks; from++) {
			if (has_spoken[from])
				continue;
			r = ceov_signal_wait(launched->own, from, least, SLICE_NS);
			if (r == CEOV_PENDING) {
				r = left_ns(launched) ? 0 : CEOV_ERR_TIMEOUT;
				continue;
			}
			if (!r)
				r = ceov_signal_value(launched->own, from, &value);
			if (r)
				break;
			said |= (unsigned)value & (SAID_YES | SAID_FAILED);
			has_spoken[from] = 1;
			n_left--;
		}
	}
	*ret_said = (enum said)said;
	return r;
}

static int exchange(struct bench_launched *launched, enum said own, enum said *ret_said)
{
	uint64_t least, value;
	int r;

	if (launched->has_failed)
		return CEOV_ERR_ABORTED;
	launched->round++;
	least = launched->round << SAID_BITS;
	if (!launched->rank) {
		r = listen(launched, &own);
		if (r)
			own = SAID_FAILED;
		launched->has_failed = (own & SAID_FAILED) != 0;
		*ret_said = own;
		(void)answer(launched, least | own);
		return r;
	}
	r = ceov_signal_raise(launched->found[0], launched->rank, least | own);
	if (!r)
		r = wait_for(launched, 0, least, &value);
	*ret_said = r ? SAID_FAILED : (enum said)(value & (SAID_YES | SAID_FAILED));
	launched->has_failed = (*ret_said & SAID_FAILED) != 0;
	return r;
}

int bench_launched_meet(struct bench_launched *launched, int yes, int *ret_any)
{
	enum said said = 0;
	int r = exchange(launched, yes ? SAID_YES : 0, &said);

	*ret_any = (said & SAID_YES) != 0;
	if (!r && said & SAID_FAILED)
		return CEOV_ERR_ABORTED;
	return r;
}

void bench_launched_fail(struct bench_launched *launched)
{
	uint64_t latest = cei_deadline(LINGER_NS);
	enum said said;

	if (launched->deadline_ns > latest)
		launched->deadline_ns = latest;
	(void)exchange(launched, SAID_FAILED, &said);
	launched->has_failed = 1;
}

int bench_launched_end(struct bench_launched *launched, int is_good)
{
	uint64_t least = LAST_ROUND << SAID_BITS, value = SAID_FAILED, latest;
	int r;

	if (!launched->rank)
		return !answer(launched, least | (is_good ? 0 : SAID_FAILED)) && is_good;
	latest = cei_deadline(LINGER_NS);
	if (launched->has_failed && launched->deadline_ns > latest)
		launched->deadline_ns = latest;
	r = wait_for(launched, 0, least, &value);
	return !r && !(value & SAID_FAILED) && is_good && !launched->has_failed;
}

/* --- samples ------------------------------------------------------------- */

/* A sample's sign, exponent and 24 bits of its fraction. */
static uint64_t to_bits(double sample)
{
	uint64_t bits;

	memcpy(&bits, &sample, sizeof(bits));
	return bits >> CUT_BITS;
}

static double from_bits(uint64_t bits)
{
	double sample;

	bits <<= CUT_BITS;
	memcpy(&sample, &bits, sizeof(sample));
	return sample;
}

static int collect_from(struct bench_launched *launched, uint32_t from, double *samples,
			uint32_t n_samples)
{
	uint64_t round = launched->n_collected << SAMPLE_BITS, value;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < n_samples; i++) {
		r = wait_for(launched, launched->n_ranks + from * BENCH_SAMPLES_MAX + i, round,
			     &value);
		if (!r)
			samples[i] = from_bits(value & ((UINT64_C(1) << SAMPLE_BITS) - 1));
	}
	return r;
}

int bench_launched_collect(struct bench_launched *launched, double *const *samples,
			   uint32_t n_samples)
{
	uint32_t own = launched->rank, i;
	int r = 0;

	if (launched->has_failed)
		return CEOV_ERR_ABORTED;
	launched->n_collected++;
	for (i = 1; !r && !own && i < launched->n_ranks; i++)
		r = collect_from(launched, i, samples[i], n_samples);
	for (i = 0; !r && own && i < n_samples; i++)
		r = ceov_signal_raise(launched->found[0], launched->n_ranks +
				      own * BENCH_SAMPLES_MAX + i,
				      launched->n_collected << SAMPLE_BITS |
				      to_bits(samples[own][i]));
	return r;
}
