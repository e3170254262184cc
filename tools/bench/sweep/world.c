/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens the sweep's context, devices and memory, fills memory and checks data. */

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/group.h"
#include "tools/bench/sweep/sweep.h"

#define COUNTERS SWEEP_MOVES_MAX

int sweep_fail(const struct sweep *sweep, ceov_context *context, int result, const char *what)
{
	struct ceov_failure failure;

	fprintf(stderr, "ceoverlap-bench: sweep: %s: %s\n", what, ceov_strerror(result));
	if (!context)
		context = sweep->context;
	if (context && !ceov_last_failure(context, &failure))
		fprintf(stderr, "ceoverlap-bench: sweep: first failure: %s\n", failure.text);
	return result ? result : CEOV_ERR_STATE;
}

int sweep_late(const struct sweep *sweep)
{
	if (cei_now_ns() < sweep->deadline_ns)
		return 0;
	fprintf(stderr, "ceoverlap-bench: sweep: the time of -T is up; the reports hold what "
		"was measured so far\n");
	return CEOV_ERR_TIMEOUT;
}

void sweep_progress(struct sweep *sweep, const char *format, ...)
{
	va_list args;

	fprintf(stderr, "# %u: ", ++sweep->n_jobs);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
}

/* --- context and devices -------------------------------------------------- */

static int is_host(const struct sweep *sweep, uint32_t place)
{
	return !sweep->is_gpu || place == sweep->n_ranks;
}

int sweep_open_context(const struct sweep *sweep, uint32_t n_places, const char *trace_path,
		       ceov_context **ret_context)
{
	struct ceov_member members[SWEEP_PLACES_MAX];
	struct ceov_config config = CEOV_CONFIG_INIT;
	uint32_t i;

	for (i = 0; i < n_places; i++) {
		members[i].rank = i;
		members[i].place.kind = is_host(sweep, i) ? CEOV_PLACE_HOST : CEOV_PLACE_GPU;
		members[i].place.index = is_host(sweep, i) ? 0 : i;
	}
	config.members = members;
	config.n_members = config.n_ranks = n_places;
	if (trace_path)
		setenv("CEOVERLAP_TRACE", trace_path, 1);
	else
		unsetenv("CEOVERLAP_TRACE");
	return ceov_open(&config, ret_context);
}

static void name_place(struct sweep *sweep, uint32_t place)
{
	char *name = sweep->place_names[place];
	size_t n_bytes = sizeof(sweep->place_names[place]);

	if (place == sweep->n_ranks)
		snprintf(name, n_bytes, "host");
	else
		snprintf(name, n_bytes, "%s%u", sweep->is_gpu ? "gpu" : "rank", place);
}

int sweep_open(struct sweep *sweep)
{
	const char *path = sweep->options->trace_path;
	char group_path[4096];
	uint32_t i;
	int r;

	snprintf(group_path, sizeof(group_path), "%s.group", path ? path : "");
	r = sweep_open_context(sweep, sweep->n_places, path, &sweep->context);
	if (!r)
		r = sweep_open_context(sweep, sweep->n_ranks, path ? group_path : NULL,
				       &sweep->group);

	for (i = 0; !r && i < sweep->n_places; i++) {
		name_place(sweep, i);
		r = bench_device_open(&sweep->devices[i], !is_host(sweep, i), i);
	}
	return r ? sweep_fail(sweep, NULL, r, "opening the ranks") : 0;
}

void sweep_close(struct sweep *sweep)
{
	uint32_t i;

	for (i = 0; i < sweep->n_places; i++)
		bench_device_close(sweep->devices[i]);
	ceov_close(sweep->group);
	ceov_close(sweep->context);
}

/* --- memory --------------------------------------------------------------- */

int sweep_area_open(struct sweep *sweep, ceov_context *context, struct sweep_area *area)
{
	struct ceov_place place = { CEOV_PLACE_HOST, 0 };
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < area->n_places; i++) {
		place.kind = is_host(sweep, i) ? CEOV_PLACE_HOST : CEOV_PLACE_GPU;
		place.index = is_host(sweep, i) ? 0 : i;
		r = ceov_buffer_create(context, i, area->source_bytes, &area->source[i]);
		if (!r)
			r = ceov_buffer_create(context, i, area->target_bytes,
					       &area->target[i]);
		if (!r)
			r = ceov_signal_create(context, i, place, COUNTERS, 0,
					       &area->arrived[i]);
	}
	return r ? sweep_fail(sweep, context, r, "allocating memory") : 0;
}

int sweep_area_close(struct sweep *sweep, struct sweep_area *area)
{
	uint32_t i;
	int r = 0, s;

	for (i = 0; i < area->n_places; i++) {
		s = bench_release_buffer(area->source[i]);
		r = r ? r : s;
		s = bench_release_buffer(area->target[i]);
		r = r ? r : s;
		s = ceov_signal_release(area->arrived[i]);
		r = r ? r : s;
	}
	memset(area, 0, sizeof(*area));
	return r ? sweep_fail(sweep, NULL, r, "releasing memory") : 0;
}

/* --- data ----------------------------------------------------------------- */

/* Returns the seed for part of a memory, because the pattern depends on a word's offset in the
 * whole memory. */
static uint64_t seed_of(uint64_t seed, uint32_t place, uint64_t offset)
{
	return seed + place * UINT64_C(0x100000001b3) + offset / 8;
}

int sweep_prepare(struct sweep *sweep, const struct sweep_area *area,
		  const struct sweep_job *job, uint64_t seed)
{
	const struct sweep_move *move;
	uint32_t i;
	char *at;
	int r = 0;

	for (i = 0; !r && i < job->n_moves; i++) {
		move = &job->moves[i];
		at = ceov_buffer_base(area->source[move->source], move->source);
		r = bench_fill(sweep->devices[move->source], at + move->source_offset,
			       move->bytes, seed_of(seed, move->source,
						    move->source_offset));
		at = ceov_buffer_base(area->target[move->target], move->target);
		if (!r)
			r = bench_fill(sweep->devices[move->target],
				       at + move->target_offset, move->bytes, ~seed);
	}
	return r ? sweep_fail(sweep, NULL, r, "filling memory") : 0;
}

int sweep_verify(struct sweep *sweep, const struct sweep_area *area,
		 const struct sweep_job *job, uint64_t seed, uint64_t *ret_n_wrong)
{
	const struct sweep_move *move;
	uint64_t n_wrong = 0;
	const char *at;
	uint32_t i;
	int r = 0;

	*ret_n_wrong = 0;
	for (i = 0; !r && i < job->n_moves; i++) {
		move = &job->moves[i];
		at = ceov_buffer_base(area->target[move->target], move->target);
		r = bench_verify(sweep->devices[move->target], at + move->target_offset,
				 move->bytes, seed_of(seed, move->source,
						      move->source_offset), &n_wrong);
		*ret_n_wrong += n_wrong;
	}
	return r ? sweep_fail(sweep, NULL, r, "checking memory") : 0;
}

/* --- raw driver calls ----------------------------------------------------- */

static struct bench_copy copy_of(const struct sweep *sweep, const struct sweep_area *area,
				 const struct sweep_move *move)
{
	uint32_t owner = sweep_owner(sweep, move);
	const char *source = ceov_buffer_base(area->source[move->source], owner);
	char *target = ceov_buffer_base(area->target[move->target], owner);
	struct bench_copy copy = { target + move->target_offset,
				   source + move->source_offset, move->bytes, 1, 0 };

	return copy;
}

static void raw_host(const struct sweep *sweep, const struct sweep_area *area,
		     const struct sweep_job *job)
{
	struct bench_copy copy;
	uint32_t i;

	for (i = 0; i < job->n_moves; i++) {
		copy = copy_of(sweep, area, &job->moves[i]);
		memcpy(copy.target, copy.source, copy.row_bytes);
	}
}

/* Queues every GPU's copies in the job's order, as one batch if the driver has batched copies. */
static int raw_gpu(struct sweep *sweep, const struct sweep_area *area,
		   const struct sweep_job *job)
{
	struct bench_copy copies[SWEEP_MOVES_MAX];
	uint32_t owner, i, n;
	int r = 0;

	for (owner = 0; !r && owner < sweep->n_ranks; owner++) {
		n = 0;
		for (i = 0; i < job->n_moves; i++)
			if (sweep_owner(sweep, &job->moves[i]) == owner)
				copies[n++] = copy_of(sweep, area, &job->moves[i]);
		if (n)
			r = bench_raw_copies(sweep->devices[owner], BENCH_STREAM_COPY,
					     copies, n);
	}
	return r;
}

int sweep_raw_run(struct sweep *sweep, const struct sweep_area *area,
		  const struct sweep_job *job, uint32_t n_times)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < n_times; i++) {
		if (sweep->is_gpu)
			r = raw_gpu(sweep, area, job);
		else
			raw_host(sweep, area, job);
	}
	for (i = 0; !r && sweep->is_gpu && i < sweep->n_ranks; i++)
		r = bench_stream_sync(sweep->devices[i], BENCH_STREAM_COPY);
	return r ? sweep_fail(sweep, NULL, r, "raw copies") : 0;
}
