/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceoverlap-bench measure: the command line, and the order of its measurements. */

#include "tools/bench/measure/measure.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/bench/options.h"
#include "tools/common/output.h"
#include "config.h"
#include "topology/machine_cache.h"
#include "topology/topology.h"

#define GPU_BYTES      (UINT64_C(512) << 20)    /* nvbandwidth's bufferSize */
#define PLAIN_COPIES   16u                      /* nvbandwidth's loopCount */
#define HOST_BYTES     (UINT64_C(2) << 30)
#define NODE_BYTES     (UINT64_C(64) << 20)
#define QUICK_SHIFT    3                        /* --quick divides the sizes by 2^3 */

enum key { KEY_QUICK = BENCH_KEY_OWN, KEY_NO_STORE };

static const struct argp_option options_table[] = {
	{ "output", 'o', "FILE", 0, "Write the machine as XML and FILE.measured, too", 0 },
	{ "no-store", KEY_NO_STORE, NULL, 0, "Do not keep it for the runtime", 0 },
	{ "quick", KEY_QUICK, NULL, 0, "Smaller sizes and fewer rounds", 0 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

struct both {
	struct bench_options options;
	struct measure       measure;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct both *both = state->input;

	switch (key) {
	case 'o': both->measure.output = text; break;
	case KEY_QUICK: both->measure.is_quick = 1; break;
	case KEY_NO_STORE: both->measure.is_stored = 0; break;
	default: return ARGP_ERR_UNKNOWN;
	}
	return 0;
}

/* --- functions for the other files -------------------------------------------------- */

int measure_has_time(struct measure *m)
{
	if (cei_now_ns() < m->deadline_ns)
		return 1;
	m->n_left_out++;
	return 0;
}

void measure_progress(const char *format, ...)
{
	char text[120];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "measure: %s\n", text);
}

/* --- the run ------------------------------------------------------------------------ */

/* Returns how much host memory may be used: a part of what is free. */
static uint64_t host_bytes(const struct measure *m)
{
	uint64_t n_bytes = m->is_quick ? HOST_BYTES >> QUICK_SHIFT : HOST_BYTES;
	long n_pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	uint64_t spare = n_pages > 0 && page > 0 ? (uint64_t)n_pages * (uint64_t)page / 8 : 0;

	return spare && spare < n_bytes ? spare : n_bytes;
}

static int open_mover(struct measure *m)
{
	struct measure_mover_config config = {
		.report = &m->report,
		.machine = m->machine,
		.n_gpus = m->n_gpus,
		.seed = m->options->seed,
		.gpu_bytes_max = m->is_quick ? GPU_BYTES >> QUICK_SHIFT : GPU_BYTES,
		.host_bytes_max = host_bytes(m),
	};
	int r;

	measure_progress("memory of %u GPUs and the host", m->n_gpus);
	r = m->ops->open(&m->mover, &config, &m->sizes);
	m->plain_bytes = m->sizes.gpu_bytes;
	m->n_plain_copies = m->is_quick ? 4 : PLAIN_COPIES;
	return r;
}

static int count_gpus(struct measure *m)
{
#if HAVE_CUDA
	m->ops = &measure_mover_cuda;
#endif
	m->n_gpus = m->ops && m->machine->driver[0] && !m->options->force_host
		? m->machine->n_gpus : 0;
	if (!m->options->n_ranks)
		return 0;
	if (m->options->n_ranks > m->n_gpus) {
		fprintf(stderr, "ceoverlap-bench: %u GPUs wanted, there are %u\n",
			m->options->n_ranks, m->n_gpus);
		return CEOV_ERR_INVALID;
	}
	m->n_gpus = m->options->n_ranks;
	return 0;
}

static int measure_all(struct measure *m)
{
	int r = measure_nodes(m);

	if (r || !m->n_gpus)
		return r;
	r = open_mover(m);
	if (!r)
		r = measure_pairs(m);
	if (!r)
		r = measure_host_links(m);
	if (!r)
		r = measure_sets(m);
	m->ops->close(m->mover);
	m->mover = NULL;
	return r;
}

/* Returns why the result is not stored; NULL: it is. A measurement of only a part of the machine
 * would replace an earlier one of the whole machine. */
static const char *why_not_stored(const struct measure *m)
{
	if (!m->is_stored)
		return "as asked";
	if (m->options->force_host)
		return "the GPUs were left out";
	if (m->n_gpus < m->machine->n_gpus)
		return "not all GPUs were measured";
	if (m->n_wrong)
		return "data was wrong";
	return NULL;
}

static int store(struct measure *m)
{
	const char *why = why_not_stored(m);
	int r = why ? CEOV_NONE : cei_machine_cache_store(&m->report, m->machine);

	m->is_stored = !r;
	if (!r)
		r = cei_machine_cache_path(m->machine, m->stored_in, sizeof(m->stored_in),
					   &why);
	else if (!why)
		(void)cei_machine_cache_path(m->machine, m->stored_in, sizeof(m->stored_in),
					     &why);
	if (r > 0)
		snprintf(m->stored_in, sizeof(m->stored_in), "%s", why ? why : "no folder");
	return r < 0 ? r : 0;
}

static int keep(struct measure *m)
{
	int r = store(m);

	if (!r && m->output)
		r = cei_machine_write_xml(&m->report, m->machine, m->output);
	if (measure_report(m))
		r = CEOV_ERR_SYSTEM;
	return r;
}

static int open_machine(struct measure *m)
{
	uint32_t n;
	int r = cei_machine_open_unmeasured(&m->report, &m->machine);

	if (!r)
		r = count_gpus(m);
	if (r)
		return r;
	n = cei_machine_n_places(m->machine);
	m->links = calloc((size_t)n * n, sizeof(*m->links));
	m->sets = calloc(MEASURE_SETS_MAX, sizeof(*m->sets));
	m->node_bytes = m->is_quick ? NODE_BYTES >> QUICK_SHIFT : NODE_BYTES;
	if (!m->links || !m->sets)
		return cei_raise(&m->report, CEOV_ERR_NO_MEMORY, 0, "bench: no memory for %u "
				 "places", n);
	return 0;
}

static int run(struct measure *m)
{
	int r;

	if (output_check(m->output) || output_check(m->options->json_path))
		return EXIT_FAILURE;
	cei_report_init(&m->report, NULL, NULL);
	m->deadline_ns = cei_deadline(m->options->timeout_s * UINT64_C(1000000000));
	r = open_machine(m);
	if (!r)
		r = measure_all(m);
	if (!r)
		r = keep(m);
	if (m->n_wrong)
		fprintf(stderr, "ceoverlap-bench: %llu words came wrong\n",
			(unsigned long long)m->n_wrong);
	free(m->links);
	free(m->sets);
	cei_machine_destroy(m->machine);
	cei_report_fini(&m->report);
	return r || m->n_wrong ? EXIT_FAILURE : EXIT_SUCCESS;
}

int bench_measure_main(int argc, char **argv)
{
	static const int common[] = { 'h', 'g', 'c', 'J', 'T', BENCH_KEY_HOST, BENCH_KEY_SEED, 0 };
	static const struct bench_command command = {
		"ceoverlap-bench measure", options_table, parse,
		"Measures what the machine's links carry, alone and at once, with plain driver "
		"calls: between GPUs, between each NUMA node and each GPU, and between nodes. "
		"The result is kept for the runtime, which chooses routes by it.\v"
		"With less than all GPUs (-g), and with --host, nothing is kept. What is not begun "
		"within -T (default 120) is left out." BENCH_EXIT_STATUS,
		common
	};
	struct both both = {
		.options = { .check = 1, .timeout_s = 120, .n_samples = 7 },
		.measure = { .is_stored = 1 },
	};
	int r;

	both.measure.options = &both.options;
	/* set before the driver opens: with more hardware queues a waiting stream does not block
	 * others */
	(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	r = bench_parse(&command, &both.options, &both, argc, argv);
	if (r)
		return r;
	return run(&both.measure);
}
