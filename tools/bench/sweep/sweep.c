/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Runs the sweep's jobs one after another; rows measured before a failure are kept. */

#include "tools/bench/sweep/sweep.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/children.h"
#include "tools/bench/group.h"
#include "tools/bench/options.h"
#include "tools/common/output.h"
#include "tools/common/streams.h"

#define REPORT_NS UINT64_C(120000000000)        /* time for the last wait and for writing reports */

/* --- rows ----------------------------------------------------------------- */

int sweep_add_row(struct sweep *sweep, const struct sweep_row *row)
{
	if (sweep->n_rows == SWEEP_ROWS_MAX)
		return sweep_fail(sweep, NULL, CEOV_FULL, "more rows than the report holds");
	sweep->rows[sweep->n_rows++] = *row;
	sweep->n_bad_rows += row->verified == 0;
	sweep_print_row(stdout, sweep, row);
	return streams_flush() ? CEOV_ERR_SYSTEM : 0;
}

const char *sweep_place(const struct sweep *sweep, int32_t place)
{
	return place < 0 ? "all" : sweep->place_names[place];
}

static int is_like(const struct sweep_row *row, const struct sweep_key *key)
{
	if (row->source != key->source || row->target != key->target ||
	    strcmp(row->method, key->method))
		return 0;
	if (key->test)
		return !strcmp(row->test, key->test);
	return !strcmp(row->test, "pairs") || !strcmp(row->test, "host");
}

const struct sweep_row *sweep_find(const struct sweep *sweep, const struct sweep_key *key)
{
	const struct sweep_row *row, *best = NULL;
	uint32_t i;

	for (i = 0; i < sweep->n_rows; i++) {
		row = &sweep->rows[i];
		if (!is_like(row, key) || (key->bytes && row->bytes != key->bytes))
			continue;
		if (row->chunk_bytes && row->chunk_bytes != sweep->own->chunks.values[0])
			continue;
		if (!best || row->bytes > best->bytes ||
		    (row->bytes == best->bytes && row->in_flight > best->in_flight))
			best = row;
	}
	return best;
}

/* --- pairs of ranks, and ranks and the host ------------------------------- */

static int one_pair(struct sweep *sweep, struct sweep_area *area, struct sweep_job *job)
{
	struct sweep_move *move = &job->moves[0];
	char size[24];

	job->n_moves = 1;
	memset(move, 0, sizeof(*move));
	move->source = (uint32_t)job->source;
	move->target = (uint32_t)job->target;
	move->bytes = job->rate_bytes = job->bytes;
	sweep_progress(sweep, "%s %s to %s, %s", job->test, sweep_place(sweep, job->source),
		       sweep_place(sweep, job->target), sweep_size(job->bytes, size));
	return sweep_job_run(sweep, sweep->context, area, job);
}

/* Returns whether a job belongs to the test: "pairs" is between two ranks, "host" between a rank
 * and the host. */
static int belongs(const struct sweep *sweep, const struct sweep_job *job)
{
	int32_t host = (int32_t)sweep->n_ranks;
	int has_host = job->source == host || job->target == host;

	return job->source != job->target && has_host == !strcmp(job->test, "host");
}

static int all_pairs(struct sweep *sweep, const char *test)
{
	struct sweep_area area;
	struct sweep_job *job = calloc(1, sizeof(*job));
	uint32_t i, n = sweep->n_places;
	uint64_t bytes;
	int r, s;

	if (!job)
		return CEOV_ERR_NO_MEMORY;
	memset(&area, 0, sizeof(area));
	area.n_places = n;
	area.source_bytes = area.target_bytes = sweep->options->end_bytes;
	r = sweep_area_open(sweep, sweep->context, &area);
	job->test = test;
	for (i = 0; !r && i < n * n; i++) {
		job->source = (int32_t)(i / n);
		job->target = (int32_t)(i % n);
		for (bytes = sweep->options->begin_bytes; !r && bytes && belongs(sweep, job);
		     bytes = bench_next_size(sweep->options, bytes)) {
			job->bytes = bytes;
			r = one_pair(sweep, &area, job);
		}
	}
	free(job);
	s = sweep_area_close(sweep, &area);
	return r ? r : s;
}

static int pairs(struct sweep *sweep)
{
	return all_pairs(sweep, "pairs");
}

static int host(struct sweep *sweep)
{
	return all_pairs(sweep, "host");
}

/* --- collectives ---------------------------------------------------------- */

void sweep_collective(const struct sweep *sweep, enum sweep_pattern pattern,
		      uint64_t bytes, struct sweep_job *job)
{
	uint32_t n = sweep->n_ranks, source, step, target;
	struct sweep_move *move;

	memset(job, 0, sizeof(*job));
	job->test = pattern == SWEEP_GATHER ? "all_gather" : "all_to_all";
	job->pattern = pattern;
	job->source = job->target = -1;
	job->bytes = bytes;
	job->rate_bytes = (n - 1) * bytes;
	for (source = 0; source < n; source++) {
		for (step = 1; step < n; step++) {
			target = (source + step) % n;
			move = &job->moves[job->n_moves++];
			move->source = source;
			move->target = target;
			move->bytes = bytes;
			move->source_offset = pattern == SWEEP_GATHER ? 0 : target * bytes;
			move->target_offset = source * bytes;
		}
	}
}

static int collective(struct sweep *sweep, enum sweep_pattern pattern)
{
	struct sweep_area area;
	struct sweep_job *job = calloc(1, sizeof(*job));
	uint64_t bytes, most = sweep->options->end_bytes;
	char size[24];
	int r, s;

	if (!job)
		return CEOV_ERR_NO_MEMORY;
	memset(&area, 0, sizeof(area));
	area.n_places = sweep->n_ranks;
	area.target_bytes = most * sweep->n_ranks;
	area.source_bytes = pattern == SWEEP_GATHER ? most : most * sweep->n_ranks;
	r = sweep_area_open(sweep, sweep->group, &area);
	for (bytes = sweep->options->begin_bytes; !r && bytes;
	     bytes = bench_next_size(sweep->options, bytes)) {
		sweep_collective(sweep, pattern, bytes, job);
		sweep_progress(sweep, "%s, %s", job->test, sweep_size(bytes, size));
		r = sweep_job_run(sweep, sweep->group, &area, job);
	}
	free(job);
	s = sweep_area_close(sweep, &area);
	return r ? r : s;
}

static int all_gather(struct sweep *sweep)
{
	return collective(sweep, SWEEP_GATHER);
}

static int all_to_all(struct sweep *sweep)
{
	return collective(sweep, SWEEP_EXCHANGE);
}

/* --- running all jobs ----------------------------------------------------- */

static const struct {
	const char *name;
	int         in_default;
	int       (*run)(struct sweep *sweep);
} tests[] = {
	{ "pairs", 1, pairs },
	{ "host", 1, host },
	{ "all_gather", 1, all_gather },
	{ "all_to_all", 1, all_to_all },
	{ "random", 0, sweep_random },
	{ "urgent", 0, sweep_urgent },
	{ "load", 0, sweep_load },
};

#define TESTS (sizeof(tests) / sizeof(tests[0]))

static int is_named(const char *list, const char *name)
{
	size_t length = strlen(name);

	while (*list) {
		if (strcspn(list, ",") == length && !strncmp(list, name, length))
			return 1;
		list += strcspn(list, ",");
		list += *list == ',';
	}
	return 0;
}

static int run_tests(struct sweep *sweep)
{
	const char *list = sweep->options->tests;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < TESTS; i++) {
		if (list ? !is_named(list, tests[i].name) : !tests[i].in_default)
			continue;
		r = tests[i].run(sweep);
	}
	if (!r && (sweep->own->html_path || sweep->options->json_path))
		r = sweep_timeline(sweep);
	return r;
}

/* Writes the reports, also after failures. */
static int report(struct sweep *sweep)
{
	if (!sweep->n_rows) {
		fprintf(stderr, "ceoverlap-bench: nothing ran\n");
		return -1;
	}
	sweep_print_matrix(stdout, sweep);
	if (sweep->n_bad_rows)
		fprintf(stderr, "ceoverlap-bench: %u rows with wrong data\n",
			sweep->n_bad_rows);
	return sweep_write(sweep) || sweep->n_bad_rows ? -1 : 0;
}

static int choose_places(struct sweep *sweep)
{
	const struct bench_options *options = sweep->options;
	uint32_t n_gpus = 0;

	if (options->force_host)
		snprintf(sweep->machine, sizeof(sweep->machine), "host memory, as asked");
	else
		n_gpus = bench_count_gpus(sweep->machine, sizeof(sweep->machine));
	sweep->is_gpu = n_gpus != 0;
	sweep->n_ranks = options->n_ranks ? options->n_ranks : n_gpus ? n_gpus : 3;
	sweep->n_places = sweep->n_ranks + 1;
	if (sweep->n_places > SWEEP_PLACES_MAX || (n_gpus && sweep->n_ranks > n_gpus)) {
		fprintf(stderr, "ceoverlap-bench: sweep: %u ranks, at most %u\n",
			sweep->n_ranks, n_gpus ? n_gpus : SWEEP_PLACES_MAX - 1);
		return -1;
	}
	return 0;
}

/* Runs the sweep in a child process, which may be killed at any time. */
static int run(void *arg, uint32_t number)
{
	struct sweep *sweep = arg;
	int r;

	(void)number;
	sweep_print_head(stdout);
	r = sweep_open(sweep);
	if (!r)
		r = run_tests(sweep);
	sweep->is_complete = !r;
	r = report(sweep) || r ? EXIT_FAILURE : EXIT_SUCCESS;
	json_object_put(sweep->timeline);
	sweep_close(sweep);
	return r;
}

static int run_in_child(struct sweep *sweep)
{
	uint64_t timeout_ns = sweep->options->timeout_s * UINT64_C(1000000000);
	struct bench_children children;
	_Atomic int failed = 0;
	int r;

	if (bench_children_begin(&children, "the sweep's process"))
		return EXIT_FAILURE;
	sweep->folder = children.folder;
	sweep->deadline_ns = cei_deadline(timeout_ns);
	r = bench_children_start(&children, run, sweep);
	/* the sweep watches its deadline itself, and then writes reports */
	if (!r)
		r = bench_children_wait(&children, sweep->deadline_ns + REPORT_NS, &failed);
	bench_children_end(&children);
	return r ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Checks all output files before anything is measured. Returns 0, or -1, reported on stderr. */
static int check_outputs(const struct bench_options *options, const struct sweep_options *own)
{
	if (output_check(own->html_path) || output_check(own->csv_path) ||
	    output_check(options->json_path))
		return -1;
	return output_check(options->trace_path);
}

int bench_sweep_run(const struct bench_options *options, const struct sweep_options *own)
{
	struct sweep *sweep;
	int r = 2;

	if (check_outputs(options, own))
		return EXIT_FAILURE;
	sweep = calloc(1, sizeof(*sweep));
	if (!sweep)
		return EXIT_FAILURE;
	sweep->options = options;
	sweep->own = own;
	sweep->rows = calloc(SWEEP_ROWS_MAX, sizeof(*sweep->rows));
	if (sweep->rows && !choose_places(sweep)) {
		printf("# ceoverlap-bench %s sweep: %u ranks on %s (%s), seed %llu\n",
		       ceov_version(), sweep->n_ranks, sweep->is_gpu ? "GPUs" : "host memory",
		       sweep->machine, (unsigned long long)options->seed);
		r = run_in_child(sweep);
	}
	free(sweep->rows);
	free(sweep);
	return r;
}

/* Returns the first unknown name in -t, or NULL. */
const char *bench_sweep_unknown(const char *list)
{
	uint32_t i;

	while (*list) {
		size_t length = strcspn(list, ",");

		for (i = 0; i < TESTS; i++)
			if (strlen(tests[i].name) == length &&
			    !strncmp(tests[i].name, list, length))
				break;
		if (i == TESTS)
			return list;
		list += length + (list[length] == ',');
	}
	return NULL;
}
