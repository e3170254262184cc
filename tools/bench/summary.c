/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What a run says before and after its rows. */

#include <stdlib.h>

#include "tools/bench/world.h"
#include "tools/common/cells.h"

/* Returns why the case cannot run; NULL: it can. */
static const char *obstacle(const struct bench_run *run, const struct bench_case *test)
{
	if (test->needs_gpu && run->n_gpus < run->n_ranks)
		return "it needs a GPU for each rank";
	if (run->n_ranks < test->n_ranks_min)
		return "it needs more ranks";
	if (run->is_launched && !test->over_nodes)
		return "ranks that a launcher started share no memory";
	if (run->options->n_nodes > 1 && !test->over_nodes)
		return "it runs within a node";
	return NULL;
}

/* Whether NCCL can have rows. */
static int has_nccl(const struct bench_run *run)
{
	return run->n_gpus >= run->n_ranks && !run->is_launched && run->options->n_nodes < 2 &&
		!run->options->without_nccl;
}

void bench_run_choose(struct bench_run *run, const struct bench_asked *asked, int is_quiet)
{
	const char *why;
	uint32_t i;

	for (i = 0; i < asked->n; i++) {
		why = obstacle(run, asked->cases[i]);
		if (!why)
			run->cases[run->n_cases++] = asked->cases[i];
		else if (!is_quiet)
			bench_note(run->options, "%s: left out, %s", asked->cases[i]->name, why);
	}
	if (is_quiet)
		return;
	if (run->options->overlap)
		bench_overlap_report_head(stdout, run->options->is_brief);
	else if (run->options->is_brief)
		printf("# times in us (max over ranks); algbw, busbw: GB/s\n");
	else
		bench_report_head(stdout, run->n_gpus != 0, has_nccl(run));
}

static void fill(struct cells *cells, const struct bench_options *options,
		 const struct bench_shared *shared, uint32_t row)
{
	if (options->overlap)
		bench_overlap_fill_row(cells, &shared->overlap_rows[row],
				       options);
	else
		bench_fill_row(cells, &shared->rows[row], options->is_brief);
}

void bench_print_row(const struct bench_options *options, const struct bench_shared *shared)
{
	struct cells cells;

	fill(&cells, options, shared, shared->n_rows - 1);
	cells_print(stdout, &cells, shared->n_rows == 1);
	cells_end(&cells);
}

/* The average bus bandwidth of the rows of a mode that have one; 0: none has. */
static double average_of(const struct bench_shared *shared, enum bench_mode mode)
{
	double sum = 0;
	uint32_t i, n = 0;

	for (i = 0; i < shared->n_rows; i++) {
		if (shared->rows[i].mode != mode || shared->rows[i].gb_per_s <= 0)
			continue;
		sum += shared->rows[i].gb_per_s;
		n++;
	}
	return n ? sum / n : 0;
}

static void add_totals(struct cells *report, const struct bench_shared *shared)
{
	struct cells averages;
	enum bench_mode mode;

	cells_integer(report, "wrong_values", NULL, shared->n_all_wrong);
	cells_begin(&averages);
	for (mode = BENCH_OURS; mode <= BENCH_NCCL_CE; mode++)
		cells_optional(&averages, bench_mode_name(mode), NULL, average_of(shared, mode));
	cells_add(report, "average_gb_per_s", cells_take(&averages));
}

static void say_totals(const struct bench_run *run)
{
	const struct bench_shared *shared = run->shared;
	const char *between = "# average busbw, GB/s:";
	enum bench_mode mode;
	double average;

	if (!run->options->check)
		printf("# wrong values: not looked for (-c 0)\n");
	else
		printf("# wrong values: %llu%s\n", (unsigned long long)shared->n_all_wrong,
		       shared->n_all_wrong || shared->n_bad_rows ? " WRONG" : " OK");
	for (mode = BENCH_OURS; mode <= BENCH_NCCL_CE; mode++) {
		average = average_of(shared, mode);
		if (average <= 0)
			continue;
		printf("%s %s %.3f", between, bench_mode_name(mode), average);
		between = ",";
	}
	if (*between == ',')
		putchar('\n');
}

int bench_run_json(const struct bench_run *run, const char *machine, int is_complete)
{
	const struct bench_options *options = run->options;
	struct json_object *list = json_object_new_array(), *origin;
	struct cells report, cells;
	uint32_t i;

	origin = bench_report_begin(&report, options, machine, options->overlap ? 2 : 1);
	if (options->overlap)
		json_object_object_add(origin, "calls_per_sample",
				       json_object_new_int(OVERLAP_CALLS));
	cells_add(&report, "complete", json_object_new_boolean(is_complete));
	for (i = 0; i < run->shared->n_rows; i++) {
		fill(&cells, options, run->shared, i);
		json_object_array_add(list, cells_take(&cells));
	}
	cells_add(&report, "rows", list);
	if (!options->overlap)
		add_totals(&report, run->shared);
	return bench_report_end(&report, options);
}

static void say_sharing(const struct bench_run *run)
{
	if (run->is_launched)
		return;
	printf("# ranks share GPUs: rank r is on GPU r %% %u; their times say nothing of GPUs "
	       "of their own\n", run->n_gpus);
	if (run->options->one_process)
		printf("# ranks are threads of one process: CUDA_DEVICE_MAX_CONNECTIONS is %s, "
		       "CUDA_MODULE_LOADING %s\n", getenv("CUDA_DEVICE_MAX_CONNECTIONS"),
		       getenv("CUDA_MODULE_LOADING"));
	else
		printf("# ranks are processes, which take turns on a GPU\n");
}

void bench_run_head(const struct bench_run *run, const char *machine)
{
	const struct bench_options *options = run->options;

	if (options->is_brief) {
		printf("# ceoverlap-bench %s: %u ranks on %s, %u node%s, seed %llu\n",
		       ceov_version(), run->n_ranks, run->n_gpus ? "GPUs" : "host memory",
		       options->n_nodes ? options->n_nodes : 1, options->n_nodes > 1 ? "s" : "",
		       (unsigned long long)options->seed);
		return;
	}
	printf("# ceoverlap-bench %s: %u ranks on %s (%s), seed %llu\n", ceov_version(),
	       run->n_ranks, run->n_gpus ? "GPUs" : "host memory", machine,
	       (unsigned long long)options->seed);
	if (run->n_gpus && run->n_gpus < run->n_ranks)
		say_sharing(run);
	if (run->is_launched)
		printf("# a launcher started the ranks, on %u node%s\n", options->n_nodes,
		       options->n_nodes > 1 ? "s" : "");
	if (run->is_launched ? getenv("CEOVERLAP_NODE") != NULL : options->n_nodes > 1)
		printf("# ranks act as %u nodes of one machine: no figure is that of a network "
		       "between machines\n", options->n_nodes);
	if (run->n_gpus && bench_report_nvls(options))
		printf("# NVLS (NVLink multicast) in NCCL's rows: %s\n",
		       bench_report_nvls(options));
	if (!run->n_gpus)
		printf("# host memory stands in for GPUs: what the rows show is that all bytes "
		       "arrive; their times are this processor's\n");
}

int bench_run_judge(const struct bench_run *run)
{
	const struct bench_shared *shared = run->shared;

	if (!shared->n_rows)
		fprintf(stderr, "ceoverlap-bench: nothing ran\n");
	else if (!run->options->overlap)
		say_totals(run);
	if (shared->n_bad_rows)
		fprintf(stderr, "ceoverlap-bench: %d rows with wrong data\n",
			shared->n_bad_rows);
	return !shared->n_rows || shared->n_bad_rows ? EXIT_FAILURE : EXIT_SUCCESS;
}

