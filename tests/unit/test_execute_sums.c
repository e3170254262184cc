/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The host's reduce-scatter and all-reduce compared with plain sums in the order of ranks,
 * while another thread delivers partial and whole sums in any order. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "feeder.h"
#include "ops/compute/executor.h"
#include "ops/compute/dtype.h"
#include "testing.h"

#define RANKS_MAX    5u
#define PIECES_MAX   4u
#define FIRST_MAX    3u
#define COUNTERS_MAX (FIRST_MAX + RANKS_MAX * PIECES_MAX)
#define RUNS         2u

static struct testing_log log_of;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(RANKS_MAX, &log_of);
}

static void tear_down(void)
{
	ceov_close(context);
}

struct rig {
	struct cei_executor   executor;
	struct cei_reduce_job job;
	struct feeder         feeder;
	uint64_t              counts[RANKS_MAX];
	uint64_t              piece_elements[RANKS_MAX];
	uint64_t              n_all;    /* elements of all parts together */
	uint64_t              own_at;   /* first element of this rank's part */
	int                   gathers;
	uint64_t              n_words;  /* 16-bit words per element; arrays consist of such words */
	uint16_t             *source;
	uint16_t             *partials; /* what peers will send ... */
	uint16_t             *partials_come;    /* ... and what has arrived of it so far */
	uint16_t             *gathered; /* all-reduce: final sums of all parts, as peers will send
					 * them ... */
	uint16_t             *gathered_come;    /* ... and what has arrived of them so far */
	uint16_t             *target;
};

static uint64_t n_own(const struct rig *rig)
{
	return rig->counts[rig->job.own];
}

static uint64_t n_target(const struct rig *rig)
{
	return rig->gathers ? rig->n_all : n_own(rig);
}

static enum ceov_dtype any_dtype(uint64_t *random)
{
	static const enum ceov_dtype all[] = { CEOV_BF16, CEOV_FP16, CEOV_FP32 };

	return all[testing_below(random, 3)];
}

static void shape_any(struct rig *rig, uint64_t *random)
{
	static const float scales[] = { 1, 0.5f, 1 / 3.0f, -3 };
	struct cei_reduce_job *job = &rig->job;
	uint64_t least;
	uint32_t i;

	job->scale = scales[testing_below(random, 4)];
	rig->gathers = testing_below(random, 2) != 0;
	job->dtype = any_dtype(random);
	job->n_ranks = 1 + (uint32_t)testing_below(random, RANKS_MAX);
	job->own = (uint32_t)testing_below(random, job->n_ranks);
	job->n_pieces = 1 + (uint32_t)testing_below(random, PIECES_MAX);
	job->first_arrived = (uint32_t)testing_below(random, FIRST_MAX + 1);
	for (i = 0; i < job->n_ranks; i++) {
		if (testing_below(random, 5))
			rig->counts[i] = 8 * testing_below(random, 700);
		least = (rig->counts[i] + job->n_pieces - 1) / job->n_pieces;
		/* larger pieces than needed leave the last ones empty */
		rig->piece_elements[i] = (least + 7) / 8 * 8 +
			(testing_below(random, 2) ? 8 * testing_below(random, 200) : 0);
	}
}

static void shape_plain(struct rig *rig)
{
	struct cei_reduce_job *job = &rig->job;

	rig->gathers = 1;
	job->dtype = CEOV_FP16;
	job->scale = 1;
	job->n_ranks = 2;
	job->n_pieces = 2;
	job->first_arrived = 1;
	rig->counts[0] = rig->counts[1] = 32;
	rig->piece_elements[0] = rig->piece_elements[1] = 16;
}

static void open_signals(struct rig *rig)
{
	struct cei_job_marks *marks = &rig->job.marks;

	marks->awaited = testing_signal(context, rig->job.own, COUNTERS_MAX);
	marks->ready = testing_signal(context, rig->job.own, PIECES_MAX);
	marks->sent = testing_signal(context, rig->job.own, FEEDER_SENT);
	marks->sent_index = 1;
	marks->n_sent = FEEDER_SENT - 1;
	marks->timeout_ns = TESTING_PATIENCE;
	rig->job.arrived = testing_signal(context, rig->job.own, COUNTERS_MAX);
}

static void close_signals(struct rig *rig)
{
	ck_assert_int_eq(ceov_signal_release(rig->job.marks.awaited), 0);
	ck_assert_int_eq(ceov_signal_release(rig->job.marks.ready), 0);
	ck_assert_int_eq(ceov_signal_release(rig->job.marks.sent), 0);
	ck_assert_int_eq(ceov_signal_release(rig->job.arrived), 0);
}

/* Fills with NaN all memory for data that has not arrived yet. */
static void clear(struct rig *rig)
{
	free(rig->partials_come);
	free(rig->gathered_come);
	rig->partials_come = feeder_nans(rig->job.n_ranks * n_own(rig) * rig->n_words);
	rig->gathered_come = feeder_nans(rig->n_all * rig->n_words);
	rig->target = feeder_nans(n_target(rig) * rig->n_words);
	rig->job.partials = rig->partials_come;
	rig->job.gathered = rig->gathers ? rig->gathered_come : NULL;
	rig->job.target = rig->target;
}

static struct rig *rig_make(uint64_t *random, int is_plain)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	struct cei_reduce_job *job;
	uint32_t i;

	ck_assert_ptr_nonnull(rig);
	job = &rig->job;
	if (is_plain)
		shape_plain(rig);
	else
		shape_any(rig, random);
	rig->n_words = cei_dtype_bytes(job->dtype) / sizeof(*rig->source);
	for (i = 0; i < job->n_ranks; i++) {
		rig->own_at += i < job->own ? rig->counts[i] : 0;
		rig->n_all += rig->counts[i];
	}
	job->counts = rig->counts;
	job->piece_elements = rig->piece_elements;
	job->partial_stride_bytes = n_own(rig) * cei_dtype_bytes(job->dtype);
	rig->source = feeder_numbers(job->dtype, rig->n_all, 0, random);
	rig->partials = feeder_numbers(job->dtype, job->n_ranks * n_own(rig), 0, random);
	rig->gathered = feeder_numbers(job->dtype, rig->n_all, 0, random);
	job->source = rig->source + rig->own_at * rig->n_words;
	rig->executor.ops = &cei_executor_host;
	rig->executor.context = context;
	rig->executor.rank = job->own;
	ck_assert_int_eq(cei_executor_host.open(&rig->executor), 0);
	open_signals(rig);
	rig->feeder.random = testing_random(random);
	return rig;
}

static void rig_free(struct rig *rig)
{
	cei_executor_host.close(&rig->executor);
	close_signals(rig);
	free(rig->source);
	free(rig->partials);
	free(rig->partials_come);
	free(rig->gathered);
	free(rig->gathered_come);
	free(rig->target);
	free(rig);
}

/* Adds a delivery of one piece that `rank` sends, at its place in the array. */
static void add_piece(struct rig *rig, uint32_t rank, uint32_t piece, int is_partial)
{
	uint32_t of = is_partial ? rig->job.own : rank;
	uint64_t at = piece * rig->piece_elements[of], part = rank * n_own(rig);
	uint64_t n = rig->piece_elements[of];
	struct delivery *delivery;
	uint32_t i;

	if (at >= rig->counts[of] || !n)
		return;                 /* empty pieces are not sent */
	n = n < rig->counts[of] - at ? n : rig->counts[of] - at;
	delivery = feeder_add(&rig->feeder);
	delivery->index = rank * rig->job.n_pieces + piece;
	delivery->signal = rig->job.marks.awaited;
	delivery->from = rig->partials + (part + at) * rig->n_words;
	delivery->to = rig->partials_come + (part + at) * rig->n_words;
	delivery->n_bytes = n * cei_dtype_bytes(rig->job.dtype);
	if (is_partial)
		return;
	for (i = 0, part = 0; i < rank; i++)
		part += rig->counts[i];
	delivery->index += rig->job.first_arrived;
	delivery->signal = rig->job.arrived;
	delivery->from = rig->gathered + (part + at) * rig->n_words;
	delivery->to = rig->gathered_come + (part + at) * rig->n_words;
}

static void add_all(struct rig *rig)
{
	uint32_t rank, piece;

	rig->feeder.n = 0;
	for (rank = 0; rank < rig->job.n_ranks; rank++) {
		for (piece = 0; piece < rig->job.n_pieces; piece++) {
			if (rank == rig->job.own)
				continue;
			add_piece(rig, rank, piece, 1);
			if (rig->gathers)
				add_piece(rig, rank, piece, 0);
		}
	}
}

/* Returns the bits of an element of any type. */
static uint32_t bits_of(const struct rig *rig, const uint16_t *array, uint64_t at)
{
	const uint16_t *word = array + at * rig->n_words;

	return rig->n_words == 1 ? word[0] : word[0] | (uint32_t)word[1] << 16;
}

/* Computes the exact result, because the order of summation is guaranteed. */
static uint32_t right_sum(const struct rig *rig, uint64_t at)
{
	uint16_t narrow[2] = { 0, 0 };
	const uint16_t *from;
	float sum = 0, addend;
	uint32_t rank;

	for (rank = 0; rank < rig->job.n_ranks; rank++) {
		from = rig->partials + (rank * n_own(rig) + at) * rig->n_words;
		if (rank == rig->job.own)
			from = rig->source + (rig->own_at + at) * rig->n_words;
		cei_dtype_widen(rig->job.dtype, &addend, from, 1);
		sum = rank ? sum + addend : addend;
	}
	sum *= rig->job.scale;
	cei_dtype_narrow(rig->job.dtype, narrow, &sum, 1);
	return bits_of(rig, narrow, 0);
}

static void check_target(const struct rig *rig)
{
	uint64_t i, own_at = rig->gathers ? rig->own_at : 0;
	uint32_t wanted;

	for (i = 0; i < n_target(rig); i++) {
		if (i >= own_at && i < own_at + n_own(rig))
			wanted = right_sum(rig, i - own_at);
		else
			wanted = bits_of(rig, rig->gathered, i);
		if (bits_of(rig, rig->target, i) != wanted)
			ck_abort_msg("%s: element %u is %x, not %x",
				     cei_dtype_name(rig->job.dtype), (unsigned)i,
				     bits_of(rig, rig->target, i), wanted);
	}
	feeder_check_guard(rig->target, n_target(rig) * rig->n_words);
}

static void check_ready(const struct rig *rig, uint64_t value)
{
	uint64_t seen, step = rig->piece_elements[rig->job.own];
	uint32_t piece;

	for (piece = 0; piece < rig->job.n_pieces; piece++) {
		ck_assert_int_eq(ceov_signal_value(rig->job.marks.ready, piece, &seen), 0);
		ck_assert_uint_eq(seen, piece * step < n_own(rig) ? value : 0);
	}
}

static void check_sums(uint64_t *random)
{
	struct rig *rig = rig_make(random, 0);
	uint16_t *first = NULL;
	uint64_t run;

	for (run = 1; run <= RUNS; run++) {
		clear(rig);
		add_all(rig);
		rig->job.marks.value = run;
		feeder_start(&rig->feeder, rig->job.marks.sent, run);
		ck_assert_int_eq(cei_executor_host.reduce(&rig->executor, NULL, &rig->job),
				 0);
		feeder_finish(&rig->feeder);
		ck_assert_int_eq(cei_executor_host.status(&rig->executor), 0);
		check_target(rig);
		check_ready(rig, run);
		if (run == 1)
			first = rig->target;
	}
	ck_assert(!memcmp(first, rig->target,
			  n_target(rig) * cei_dtype_bytes(rig->job.dtype)));
	free(first);
	rig_free(rig);
}

START_TEST(test_sums_of_any_shape)
{
	uint64_t random = testing_seed();
	uint32_t i;

	for (i = 0; i < 300; i++)
		check_sums(&random);
}
END_TEST

/* --- failures ---------------------------------------------------------------- */

static struct rig *plain(void)
{
	uint64_t random = testing_seed();
	struct rig *rig = rig_make(&random, 1);

	clear(rig);
	rig->job.marks.value = 1;
	rig->job.marks.timeout_ns = 20 * TESTING_MS;
	rig->job.marks.n_sent = 0;
	return rig;
}

static void fail_with(struct rig *rig, const char *what)
{
	ck_assert_int_eq(cei_executor_host.reduce(&rig->executor, NULL, &rig->job),
			 CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(cei_executor_host.status(&rig->executor), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(testing_failure(context).error, CEOV_ERR_TIMEOUT);
	testing_log_has(&log_of, "rank 0", what, "20 ms");
}

START_TEST(test_what_never_arrives_ends_the_job)
{
	struct rig *rig = plain();
	uint64_t seen;

	ck_assert_int_eq(ceov_signal_raise(rig->job.marks.awaited, 2, 1), 0);
	fail_with(rig, "partial sums: counter 3 ");
	/* the first piece was sent, the second one not started */
	ck_assert_int_eq(ceov_signal_wait(rig->job.marks.ready, 0, 1, 0), 0);
	ck_assert_int_eq(ceov_signal_value(rig->job.marks.ready, 1, &seen), 0);
	ck_assert_uint_eq(seen, 0);
	ck_assert_uint_eq(rig->target[16], 0xffff);

	ck_assert_int_eq(ceov_signal_raise(rig->job.marks.awaited, 3, 1), 0);
	ck_assert_int_eq(ceov_signal_raise(rig->job.arrived, 1 + 2, 1), 0);
	fail_with(rig, "sums of its peers: counter 4 ");
	ck_assert_uint_eq(rig->target[48], 0xffff);

	ck_assert_int_eq(ceov_signal_raise(rig->job.arrived, 1 + 3, 1), 0);
	ck_assert_int_eq(cei_executor_host.reduce(&rig->executor, NULL, &rig->job), 0);
	ck_assert_int_eq(cei_executor_host.status(&rig->executor), CEOV_ERR_TIMEOUT);
	rig_free(rig);
}
END_TEST

START_TEST(test_without_signals_nothing_waits)
{
	struct rig *rig = plain();
	struct cei_reduce_job job = rig->job;

	memcpy(rig->partials_come, rig->partials, 64 * CEI_DTYPE16_BYTES);
	memcpy(rig->gathered_come, rig->gathered, 64 * CEI_DTYPE16_BYTES);
	job.marks.awaited = job.marks.ready = job.marks.sent = job.arrived = NULL;
	ck_assert_int_eq(cei_executor_host.reduce(&rig->executor, NULL, &job), 0);
	check_target(rig);
	rig_free(rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("execute_sums");
	TCase *all = tcase_create("execute_sums");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_sums_of_any_shape);
	tcase_add_test(all, test_what_never_arrives_ends_the_job);
	tcase_add_test(all, test_without_signals_nothing_waits);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
