/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What ranks tell each other while they measure: that they have come, failures, samples, rows. */

#include "tools/bench/bench.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/launched.h"
#include "tools/bench/world.h"
#include "tools/common/streams.h"

#define WAIT_NS UINT64_C(60000000000)

int bench_fail(const struct bench_rank *rank, int result, const char *what)
{
	struct ceov_failure failure;
	int expected = 0;

	fprintf(stderr, "ceoverlap-bench: rank %u: %s: %s\n", rank->rank, what,
		ceov_strerror(result));
	if (rank->context && !ceov_last_failure(rank->context, &failure))
		fprintf(stderr, "ceoverlap-bench: rank %u: first failure: %s\n", rank->rank,
			failure.text);
	atomic_compare_exchange_strong(&rank->shared->failed, &expected,
				       result ? result : CEOV_ERR_STATE);
	return result ? result : CEOV_ERR_STATE;
}

int bench_meet(struct bench_rank *rank)
{
	struct bench_shared *shared = rank->shared;
	/* seq_cst throughout: this barrier is not timed */
	uint32_t round = atomic_load(&shared->round);
	struct cei_backoff backoff;
	int ignored;

	if (rank->launched)
		return bench_any(rank, 0, &ignored);

	if (atomic_fetch_add(&shared->n_arrived, 1) + 1 == rank->n_ranks) {
		atomic_store(&shared->n_arrived, 0);
		atomic_fetch_add(&shared->round, 1);
		return atomic_load(&shared->failed) ? CEOV_ERR_ABORTED : 0;
	}
	cei_backoff_reset(&backoff);
	while (atomic_load(&shared->round) == round) {
		if (atomic_load(&shared->failed))
			return CEOV_ERR_ABORTED;
		if (cei_now_ns() >= shared->deadline_ns)
			return bench_fail(rank, CEOV_ERR_TIMEOUT, "the time that -T gives "
					  "the whole run is over");
		cei_backoff_step(&backoff);
	}
	return atomic_load(&shared->failed) ? CEOV_ERR_ABORTED : 0;
}

void bench_sample(struct bench_rank *rank, uint32_t mode, uint32_t sample, double us)
{
	rank->shared->samples[mode][rank->rank][sample] = us;
}

void bench_forget(struct bench_rank *rank)
{
	uint32_t mode;

	for (mode = 0; mode < BENCH_MODES; mode++)
		memset(rank->shared->samples[mode][rank->rank], 0,
		       sizeof(rank->shared->samples[mode][rank->rank]));
}

int bench_collect(struct bench_rank *rank, uint32_t mode, uint32_t n_samples)
{
	double *samples[BENCH_RANKS_MAX];
	uint32_t i;
	int r;

	if (!rank->launched)
		return bench_meet(rank);
	for (i = 0; i < BENCH_RANKS_MAX; i++)
		samples[i] = rank->shared->samples[mode][i];
	r = bench_launched_collect(rank->launched, samples, n_samples);
	return r ? r : bench_meet(rank);
}

uint64_t bench_patience_ns(const struct bench_rank *rank)
{
	uint64_t now = cei_now_ns(), deadline = rank->shared->deadline_ns;
	uint64_t left = now < deadline ? deadline - now : 0;

	return left < WAIT_NS ? left : WAIT_NS;
}

static int compare_doubles(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return a < b ? -1 : a > b;
}

double bench_median(double *values, uint32_t n)
{
	qsort(values, n, sizeof(*values), compare_doubles);
	return n ? values[n / 2] : 0;
}

void bench_statistics(struct bench_rank *rank, uint32_t mode, uint32_t n_samples,
		      struct bench_row *row)
{
	double worst[BENCH_SAMPLES_MAX];
	uint32_t i, r;

	for (i = 0; i < n_samples; i++) {
		worst[i] = 0;
		for (r = 0; r < rank->n_ranks; r++)
			if (rank->shared->samples[mode][r][i] > worst[i])
				worst[i] = rank->shared->samples[mode][r][i];
	}
	row->us_median = bench_median(worst, n_samples);
	row->us_min = worst[0];
	row->us_p99 = worst[(n_samples * 99 + 99) / 100 - 1];
}

void bench_set_bandwidths(struct bench_row *row, double size_bytes, double factor)
{
	row->algorithm_gb_per_s = size_bytes / row->us_median / 1e3;
	row->gb_per_s = row->algorithm_gb_per_s * factor;
}

/* relaxed throughout: the count is read when the ranks have ended, or have met */
static void count_wrong(struct bench_rank *rank, uint64_t n_wrong)
{
	atomic_fetch_add_explicit(&rank->shared->n_all_wrong, n_wrong, memory_order_relaxed);
}

void bench_wrong(struct bench_rank *rank, uint32_t mode, uint64_t n_wrong)
{
	count_wrong(rank, n_wrong);
	atomic_fetch_add(&rank->shared->n_wrong[mode], n_wrong);
}

uint64_t bench_take_wrong(struct bench_rank *rank, uint32_t mode)
{
	return atomic_exchange(&rank->shared->n_wrong[mode], 0);
}

/* Prints a row that is stored behind the others, if there is room for it; ends the run if there is
 * none, or if nobody reads the output. */
static void add_row(struct bench_rank *rank, int verified, uint32_t n_most)
{
	struct bench_shared *shared = rank->shared;

	if (shared->n_rows == n_most) {
		bench_fail(rank, CEOV_FULL, "more rows than the report holds");
		return;
	}
	shared->n_rows++;
	shared->n_bad_rows += verified == 0;
	bench_print_row(rank->options, shared);
	if (streams_flush())
		bench_fail(rank, CEOV_ERR_SYSTEM, "printing a row");
}

void bench_add_row(struct bench_rank *rank, const struct bench_row *row)
{
	if (rank->shared->n_rows < BENCH_ROWS_MAX)
		rank->shared->rows[rank->shared->n_rows] = *row;
	add_row(rank, row->verified, BENCH_ROWS_MAX);
}

void bench_add_overlap_row(struct bench_rank *rank, const struct bench_overlap_row *row)
{
	if (rank->shared->n_rows < OVERLAP_ROWS_MAX)
		rank->shared->overlap_rows[rank->shared->n_rows] = *row;
	add_row(rank, row->verified, OVERLAP_ROWS_MAX);
}

/* Between this call's two barriers no rank uses the word of the next call, so that word is cleared
 * there. */
int bench_any(struct bench_rank *rank, int yes, int *ret_any)
{
	struct bench_shared *shared = rank->shared;
	uint32_t turn = rank->n_turns++ % 2;
	int r;

	if (rank->launched) {
		r = bench_launched_meet(rank->launched, yes, ret_any);
		return !r || r == CEOV_ERR_ABORTED ? r
			: bench_fail(rank, r, "waiting for the others");
	}
	/* seq_cst throughout, as in bench_meet() */
	if (yes)
		atomic_store(&shared->any[turn], 1);
	r = bench_meet(rank);
	if (r)
		return r;
	*ret_any = atomic_load(&shared->any[turn]);
	atomic_store(&shared->any[1 - turn], 0);
	return bench_meet(rank);
}

int bench_any_wrong(struct bench_rank *rank, uint64_t n_wrong, int *ret_any)
{
	count_wrong(rank, n_wrong);
	return bench_any(rank, n_wrong != 0, ret_any);
}

void *bench_blob(struct bench_rank *rank)
{
	return rank->shared->blob;
}

