/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Rows of ceoverlap-bench overlap: every method on a stream and in a graph, alternating sample by
 * sample in one run.
 *
 * A sample times OVERLAP_CALLS calls back to back on the caller's stream, or one graph of them,
 * between two events, and divides by their number. As many calls go before the first event: they
 * keep the GPUs busy while the host queues the timed calls, and bring the ranks into step. On host
 * ranks a sample is one call, timed by the clock.
 */

#include "tools/bench/overlap/overlap.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tools/bench/group.h"
#include "tools/bench/overlap/models.h"
#include "tools/bench/overlap/tables.h"

#define SHAPES_MAX 64u

_Static_assert((unsigned)OVERLAP_MODES <= BENCH_MODES, "bench_sample() has too few modes");

const char *bench_overlap_name(enum bench_overlap_test test)
{
	switch (test) {
	case OVERLAP_AG_GEMM:        return "ag_gemm";
	case OVERLAP_GEMM_RS:        return "gemm_rs";
	case OVERLAP_REDUCE_SCATTER: return "reduce_scatter";
	case OVERLAP_ALL_REDUCE:     return "all_reduce";
	case OVERLAP_GEMM_A2A:       return "gemm_a2a";
	case OVERLAP_A2A_GEMM:       return "a2a_gemm";
	case OVERLAP_GEMM_AR:        return "gemm_ar";
	case OVERLAP_ALL_GATHER:     return "all_gather";
	case OVERLAP_ALL_TO_ALL:     return "all_to_all";
	case OVERLAP_EMBEDDING:      return "embedding_a2a";
	case OVERLAP_DISPATCH:       return "ep_dispatch";
	case OVERLAP_COMBINE:        return "ep_combine";
	}
	return "?";
}

/* --- taking a sample ------------------------------------------------------ */

struct moment {
	uint64_t wall_ns;
	uint64_t thread_ns;             /* CPU time of this thread */
	uint64_t process_ns;            /* CPU time of the process */
};

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return 0;
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static struct moment look(void)
{
	struct moment moment = {
		.wall_ns = cei_now_ns(),
		.thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID),
		.process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID),
	};

	return moment;
}

struct taken {
	double        us;
	struct moment begin;
	struct moment queued;           /* taken after the last call returned */
	struct moment end;
};

static int take_gpu(struct bench_overlap *o, enum bench_overlap_method method, int is_graph,
		    struct taken *taken)
{
	struct bench_device *device = o->rank->device;
	int r = bench_overlap_calls(o, method, is_graph);

	if (!r)
		r = bench_time_begin(device);
	taken->begin = look();
	if (!r)
		r = bench_overlap_calls(o, method, is_graph);
	taken->queued = look();
	if (!r)
		r = bench_time_end(device);
	if (!r)
		r = bench_time_us(device, &taken->us);
	taken->end = look();
	taken->us /= OVERLAP_CALLS;
	return r;
}

static int take_host(struct bench_overlap *o, enum bench_overlap_method method,
		     struct taken *taken)
{
	int r;

	taken->begin = look();
	r = bench_overlap_once(o, method, 0);
	taken->queued = taken->end = look();
	taken->us = (double)(taken->end.wall_ns - taken->begin.wall_ns) / 1e3;
	return r;
}

/* Returns the CPU time of other threads in percent. The caller's wait at the end belongs to the
 * bench and is left out. If ranks are threads of one process, CPU time cannot be attributed to
 * ranks. */
static double others_percent(const struct bench_overlap *o, const struct taken *taken)
{
	uint64_t wall = taken->end.wall_ns - taken->begin.wall_ns;
	uint64_t process = taken->end.process_ns - taken->begin.process_ns;
	uint64_t thread = taken->end.thread_ns - taken->begin.thread_ns;

	if (o->rank->options->one_process || !wall || process < thread)
		return 0;
	return 100.0 * (double)(process - thread) / (double)wall;
}

static int sample(struct bench_overlap *o, enum bench_overlap_method method, int is_graph,
		  uint32_t number)
{
	uint32_t mode = (uint32_t)method + (is_graph ? OVERLAP_METHODS : 0);
	double n_calls = o->rank->is_gpu ? OVERLAP_CALLS : 1;
	struct taken taken = { .us = 0 };
	int r = bench_meet(o->rank);

	if (!r)
		r = o->rank->is_gpu ? take_gpu(o, method, is_graph, &taken)
			: take_host(o, method, &taken);
	if (r)
		return bench_fail(o->rank, r, "a sample");
	bench_sample(o->rank, OVERLAP_MODE_US + mode, number, taken.us);
	bench_sample(o->rank, OVERLAP_MODE_THREAD + mode, number,
		     (double)(taken.queued.thread_ns - taken.begin.thread_ns) / 1e3 /
		     n_calls);
	bench_sample(o->rank, OVERLAP_MODE_PROCESS + mode, number,
		     others_percent(o, &taken));
	return bench_overlap_settle(o);
}

/* Takes one sample of each method. The first method changes with every round, so that it is not
 * always the same one that runs first. */
static int round_of_samples(struct bench_overlap *o, uint32_t turn, uint32_t number)
{
	uint32_t i, at;
	int is_graph, r = 0;

	for (i = 0; !r && i < 2 * OVERLAP_METHODS; i++) {
		at = (turn + i) % (2 * OVERLAP_METHODS);
		is_graph = at >= OVERLAP_METHODS;
		at %= OVERLAP_METHODS;
		if (o->runs[is_graph][at])
			r = sample(o, (enum bench_overlap_method)at, is_graph, number);
	}
	return r;
}

/* --- rows ----------------------------------------------------------------- */

static struct bench_row statistics(struct bench_overlap *o, uint32_t mode, uint32_t n)
{
	struct bench_row row;

	memset(&row, 0, sizeof(row));
	bench_statistics(o->rank, mode, n, &row);
	return row;
}

static void add_times(struct bench_overlap *o, enum bench_overlap_method method, int is_graph,
		      struct bench_overlap_times *times)
{
	uint32_t mode = (uint32_t)method + (is_graph ? OVERLAP_METHODS : 0);
	uint32_t n = o->rank->options->n_samples;
	struct bench_row row = statistics(o, OVERLAP_MODE_US + mode, n);

	times->us_median = row.us_median;
	times->us_min = row.us_min;
	times->us_p99 = row.us_p99;
	times->thread_us = statistics(o, OVERLAP_MODE_THREAD + mode, n).us_median;
	times->process_percent = statistics(o, OVERLAP_MODE_PROCESS + mode, n).us_median;
}

/* Judges the row by the worse of two checks (the 99th percentile of two samples is their
 * maximum). */
static void judge(struct bench_overlap *o, int is_graph, int is_checked,
		  struct bench_overlap_row *row)
{
	uint32_t mode = (uint32_t)is_graph;

	row->tolerance = bench_overlap_tolerance(o);
	row->verified = row->same_bits = -1;
	row->error = row->error_nccl = -1;
	if (!is_checked)
		return;
	row->error = statistics(o, OVERLAP_MODE_ERROR + mode, 2).us_p99;
	if (o->nccl[0] && o->runs[0][OVERLAP_COMM] && !o->experts)
		row->error_nccl = statistics(o, OVERLAP_MODE_ERROR_NCCL, 2).us_p99;
	row->same_bits = statistics(o, OVERLAP_MODE_UNLIKE + mode, 2).us_p99 <= 0;
	row->verified = row->error <= row->tolerance && row->same_bits;
}

/* Hands rank 0 two samples of what a check found: one for each of the row's checks. */
static int collect_findings(struct bench_overlap *o, int is_graph)
{
	static const uint32_t findings[] = { OVERLAP_MODE_ERROR, OVERLAP_MODE_ERROR_NCCL,
					     OVERLAP_MODE_UNLIKE };
	size_t i;
	int r = 0;

	for (i = 0; !r && i < sizeof(findings) / sizeof(findings[0]); i++)
		r = bench_collect(o->rank, findings[i] + (uint32_t)is_graph, 2);
	return r;
}

/* Hands rank 0 what all ranks have measured of one method. */
static int collect_method(struct bench_overlap *o, uint32_t method, int is_graph)
{
	static const uint32_t measured[] = { OVERLAP_MODE_US, OVERLAP_MODE_THREAD,
					     OVERLAP_MODE_PROCESS };
	uint32_t mode = method + (is_graph ? OVERLAP_METHODS : 0);
	size_t i;
	int r = 0;

	for (i = 0; !r && i < sizeof(measured) / sizeof(measured[0]); i++)
		r = bench_collect(o->rank, measured[i] + mode, o->rank->options->n_samples);
	return r;
}

static int collect(struct bench_overlap *o)
{
	uint32_t method;
	int is_graph, r = 0;

	for (is_graph = 0; is_graph < 2; is_graph++) {
		if (!r && o->runs[is_graph][OVERLAP_OURS])
			r = collect_findings(o, is_graph);
		for (method = 0; !r && method < OVERLAP_METHODS; method++)
			if (o->runs[is_graph][method])
				r = collect_method(o, method, is_graph);
	}
	return r;
}

static int add_row(struct bench_overlap *o, int is_graph, int is_checked)
{
	const struct bench_overlap_shape *shape = &o->shape;
	struct bench_overlap_row row;
	uint32_t method;
	int r;

	memset(&row, 0, sizeof(row));
	row.chosen.struct_bytes = sizeof(row.chosen);
	r = ceov_op_chosen(o->ops[is_graph], &row.chosen);
	if (r)
		return bench_fail(o->rank, r, "asking what the operator has chosen");
	row.test = o->test;
	row.is_graph = is_graph;
	row.by_node = bench_overlap_is_by_node(o);
	row.ranks = o->rank->n_ranks;
	row.m = shape->m;
	row.n = shape->n;
	row.k = shape->k;
	row.choices = shape->choices;
	row.bytes = shape->bytes;
	if (shape->model)
		snprintf(row.model, sizeof(row.model), "%s", shape->model);
	if (shape->named)
		row.named = *shape->named;
	for (method = 0; method < OVERLAP_METHODS; method++)
		if (o->runs[is_graph][method])
			add_times(o, (enum bench_overlap_method)method, is_graph,
				  &row.methods[method]);
	judge(o, is_graph, is_checked, &row);
	bench_add_overlap_row(o->rank, &row);
	return 0;
}

static int check(struct bench_overlap *o, int is_checked, uint32_t slot)
{
	int is_graph, r = 0;

	for (is_graph = 0; is_graph < 2; is_graph++)
		if (!r && is_checked && o->runs[is_graph][OVERLAP_OURS])
			r = bench_overlap_check(o, is_graph, slot);
	return r;
}

static int measure(struct bench_overlap *o)
{
	const struct bench_options *options = o->rank->options;
	uint32_t i;
	int is_graph, is_checked = options->check, r = bench_overlap_open_methods(o);

	bench_forget(o->rank);
	if (!r && is_checked)
		r = bench_overlap_refer(o);
	if (r == CEOV_NONE) {           /* cuBLAS is missing, at all ranks alike */
		is_checked = 0;
		r = 0;
	}
	if (!r)
		r = check(o, is_checked, 0);
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++)
		r = round_of_samples(o, i, i < options->n_warmup ? 0
				     : i - options->n_warmup);
	if (!r)
		r = check(o, is_checked, 1);
	if (!r)
		r = collect(o);
	for (is_graph = 0; !r && !o->rank->rank && is_graph < 2; is_graph++)
		if (o->runs[is_graph][OVERLAP_OURS])
			r = add_row(o, is_graph, is_checked);
	bench_overlap_close_methods(o);
	return r ? r : bench_meet(o->rank);
}

/* --- shapes --------------------------------------------------------------- */

/* Returns the next number of a comma list; 0 at its end. The text was checked when the options were
 * parsed. */
static uint64_t next_number(const char **list)
{
	char *end;
	uint64_t value;

	if (!**list)
		return 0;
	value = strtoull(*list, &end, 10);
	*list = end + (*end == ',');
	return value;
}

static uint32_t add_model(const struct bench_overlap *o, const struct bench_model *model,
			  struct bench_overlap_shape *shapes, uint32_t n)
{
	const char *tokens = o->options->tokens;
	int gathers = o->test == OVERLAP_AG_GEMM || o->test == OVERLAP_A2A_GEMM;
	uint64_t share = model->ffn / o->rank->n_ranks / 8 * 8, m;

	if (!tokens)
		tokens = o->rank->is_gpu ? "2048,8192" : "256";
	while (n < SHAPES_MAX && (m = next_number(&tokens)) != 0) {
		shapes[n++] = (struct bench_overlap_shape){
			.model = model->name,
			.m = m,
			.n = gathers ? share : model->hidden,
			.k = gathers ? model->hidden : share,
		};
	}
	return n;
}

/* Lists the shapes that the caller gave for such operators, and those of the tables that were
 * named. */
static uint32_t list_given(const struct bench_overlap *o, struct bench_overlap_shape *shapes)
{
	const struct bench_overlap_options *options = o->options;
	const struct bench_overlap_mnk *given = options->shapes;
	uint32_t i, n = 0;

	for (i = 0; i < options->n_shapes; i++) {
		if ((options->choices[i].top_k != 0) != bench_overlap_is_experts(o->test))
			continue;
		shapes[n++] = (struct bench_overlap_shape){
			.model = "shape",
			.m = given[i].m,
			.n = given[i].n,
			.k = given[i].k,
			.choices = options->choices[i],
		};
	}
	if (options->tables)
		n += bench_tables_shapes(options->tables, o->test, o->rank->n_ranks, shapes + n,
					 SHAPES_MAX - n);
	return n;
}

/* Tables and columns of the DLRM that MLPerf trains, whose tables are shared out evenly, rounded
 * up. Host memory: far less. */
static uint32_t add_embeddings(const struct bench_overlap *o, struct bench_overlap_shape *shapes)
{
	uint64_t n_tables = (26 + o->rank->n_ranks - 1) / o->rank->n_ranks;

	if (!o->rank->is_gpu) {
		shapes[0] = (struct bench_overlap_shape){ .model = "tiny", .m = 100, .n = 16,
							  .k = 2 };
		return 1;
	}
	shapes[0] = (struct bench_overlap_shape){ .model = "dlrm", .m = 8192, .n = 128,
						  .k = n_tables };
	shapes[1] = shapes[0];
	shapes[1].m = 65536;
	return 2;
}

static uint32_t list_shapes(const struct bench_overlap *o,
			    struct bench_overlap_shape *shapes)
{
	const struct bench_options *options = o->rank->options;
	const char *models = o->options->models;
	uint32_t n = 0;
	uint64_t bytes = options->begin_bytes;
	size_t length;

	if (bench_overlap_is_plain(o) && o->options->tables)
		return 0;               /* tables are of products */
	if (bench_overlap_is_plain(o)) {
		/* on host memory the default sizes would take seconds */
		if (!options->has_sizes && !o->rank->is_gpu)
			bytes = UINT64_C(1) << 20;
		for (; n < SHAPES_MAX && bytes; bytes = bench_next_size(options, bytes)) {
			shapes[n++] = (struct bench_overlap_shape){
				.bytes = bytes / 16 * 16 };
			if (!options->has_sizes && !o->rank->is_gpu)
				break;
		}
		return n;
	}
	if (o->options->n_shapes || o->options->tables)
		return list_given(o, shapes);
	if (o->test == OVERLAP_EMBEDDING)
		return add_embeddings(o, shapes);
	if (bench_overlap_is_experts(o->test))
		return bench_tables_shapes(o->rank->is_gpu ? "ep" : "tiny", o->test,
					   o->rank->n_ranks, shapes, SHAPES_MAX);
	if (!models && o->rank->is_gpu && bench_overlap_is_a2a(o))
		return bench_tables_shapes("a2a", o->test, o->rank->n_ranks, shapes, SHAPES_MAX);
	if (!models)
		models = o->rank->is_gpu
			? "llama7b,llama8b,llama70b,qwen72b,gpt3,llama405b" : "tiny";
	while (*models) {
		length = strcspn(models, ",");
		n = add_model(o, bench_model_find(models, length), shapes, n);
		models += length + (models[length] == ',');
	}
	return n;
}

static int run(struct bench_rank *rank, enum bench_overlap_test test)
{
	struct bench_overlap_shape shapes[SHAPES_MAX];
	struct bench_overlap o;
	uint32_t i, n;
	int r, s;

	memset(shapes, 0, sizeof(shapes));
	memset(&o, 0, sizeof(o));
	o.rank = rank;
	o.options = rank->options->overlap;
	o.test = test;
	o.seed = rank->options->seed + test;
	n = list_shapes(&o, shapes);
	if (!n)                         /* no table or shape is for this operator */
		return 0;
	r = bench_overlap_open(&o, shapes, n);
	if (!o.workspaces[0] && !o.workspaces[1])
		n = 0;                  /* graphs alone are wanted, and left out */
	for (i = 0; !r && i < n; i++) {
		r = bench_overlap_open_row(&o, &shapes[i]);
		if (!r)
			r = measure(&o);
		s = bench_overlap_close_row(&o);
		r = r ? r : s;
	}
	s = bench_overlap_close(&o);
	return r ? r : s;
}

int bench_overlap_ag_gemm(struct bench_rank *rank)
{
	return run(rank, OVERLAP_AG_GEMM);
}

int bench_overlap_gemm_rs(struct bench_rank *rank)
{
	return run(rank, OVERLAP_GEMM_RS);
}

int bench_overlap_reduce_scatter(struct bench_rank *rank)
{
	return run(rank, OVERLAP_REDUCE_SCATTER);
}

int bench_overlap_all_reduce(struct bench_rank *rank)
{
	return run(rank, OVERLAP_ALL_REDUCE);
}

int bench_overlap_gemm_a2a(struct bench_rank *rank)
{
	return run(rank, OVERLAP_GEMM_A2A);
}

int bench_overlap_a2a_gemm(struct bench_rank *rank)
{
	return run(rank, OVERLAP_A2A_GEMM);
}

int bench_overlap_gemm_ar(struct bench_rank *rank)
{
	return run(rank, OVERLAP_GEMM_AR);
}

int bench_overlap_all_gather(struct bench_rank *rank)
{
	return run(rank, OVERLAP_ALL_GATHER);
}

int bench_overlap_all_to_all(struct bench_rank *rank)
{
	return run(rank, OVERLAP_ALL_TO_ALL);
}

int bench_overlap_embedding(struct bench_rank *rank)
{
	return run(rank, OVERLAP_EMBEDDING);
}

int bench_overlap_experts(struct bench_rank *rank)
{
	int r = run(rank, OVERLAP_DISPATCH);

	return r ? r : run(rank, OVERLAP_COMBINE);
}
