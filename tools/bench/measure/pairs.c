/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Measures single links. Each round covers all links and sizes, so that slow drifts affect all of
 * them alike. The line T = t0 + bytes / rate is then fitted to each link's medians.
 */

#include <stdlib.h>
#include <string.h>

#include "tools/bench/measure/measure.h"
#include "topology/cost_fit.h"

#define ROUNDS       7u
#define ROUNDS_QUICK 3u
#define PLAIN_ROUNDS 3u                 /* nvbandwidth's testSamples */
#define CHECK_BYTES  (UINT64_C(16) << 20)

static int compare(const void *a, const void *b)
{
	const float *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

double measure_median(const float *values, uint32_t n)
{
	float sorted[MEASURE_ROUNDS_MAX];

	if (!n || n > MEASURE_ROUNDS_MAX)
		return 0;
	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), compare);
	return ((double)sorted[(n - 1) / 2] + (double)sorted[n / 2]) / 2;
}

void measure_sizes_up_to(uint64_t largest, uint64_t bytes[MEASURE_SIZES],
			 uint32_t n_copies[MEASURE_SIZES])
{
	const uint64_t least = UINT64_C(1) << 20;
	uint64_t middle = least;

	while (middle * middle < least * largest)
		middle *= 2;
	bytes[0] = largest / 4 < least ? largest / 4 : least;
	bytes[1] = largest < 4 * least ? largest / 2 : middle;
	bytes[2] = largest;
	n_copies[0] = 16;               /* many short copies, so that the cost of the events is
					 * negligible */
	n_copies[1] = 4;
	n_copies[2] = 1;
}

uint64_t measure_largest(const struct measure *m, int n_gpus)
{
	const uint64_t most = UINT64_C(256) << 20;
	uint64_t part = m->sizes.gpu_bytes / MEASURE_LANES;

	if (!n_gpus)
		return m->node_bytes;
	if (n_gpus == 1)
		return m->sizes.host_bytes < part ? m->sizes.host_bytes : part;
	return m->sizes.gpu_bytes < most ? m->sizes.gpu_bytes : most;
}

void measure_conclude(struct measure *m, uint32_t from, uint32_t to,
		      const uint64_t bytes[MEASURE_SIZES])
{
	struct measure_link *link = measure_link(m, from, to);
	struct cei_cost_sample points[MEASURE_SIZES];
	uint64_t bytes_per_s, t0_ns;
	uint32_t size;

	if (!link->n_rounds)
		return;
	for (size = 0; size < MEASURE_SIZES; size++) {
		link->median_us[size] = measure_median(link->us[size], link->n_rounds);
		points[size].bytes = bytes[size];
		points[size].ns = link->median_us[size] * 1e3;
	}
	if (cei_cost_fit(points, MEASURE_SIZES, &bytes_per_s, &t0_ns)) {
		fprintf(stderr, "ceoverlap-bench: place %u to place %u: times of %.1f, %.1f "
			"and %.1f us give no line: left out\n", from, to, link->median_us[0],
			link->median_us[1], link->median_us[2]);
		return;
	}
	cei_machine_set_measured(m->machine, from, to, bytes_per_s, t0_ns);
	link->is_measured = 1;
}

static int one_flow(struct measure *m, struct measure_flow *flow)
{
	return m->ops->run(m->mover, flow, 1);
}

/* Takes one sample of each of the link's three sizes. */
static int sample(struct measure *m, uint32_t from, uint32_t to, uint64_t largest)
{
	struct measure_link *link = measure_link(m, from, to);
	uint64_t bytes[MEASURE_SIZES];
	uint32_t size, n_copies[MEASURE_SIZES];
	struct measure_flow flow;
	int r = 0;

	measure_sizes_up_to(largest, bytes, n_copies);
	for (size = 0; !r && size < MEASURE_SIZES; size++) {
		flow = (struct measure_flow){ .from = from, .to = to, .bytes = bytes[size],
			.n_copies = n_copies[size] };
		r = one_flow(m, &flow);
		link->us[size][link->n_rounds] = (float)(flow.us / n_copies[size]);
	}
	link->n_rounds += !r;
	return r;
}

/* Checks the data of one copy over the link, which also warms it up. */
static int check(struct measure *m, uint32_t from, uint32_t to, uint64_t largest)
{
	struct measure_flow flow = { .from = from, .to = to, .n_copies = 1,
		.bytes = largest < CHECK_BYTES ? largest : CHECK_BYTES };
	uint64_t n_wrong = 0;
	int r;

	if (!m->options->check)
		return one_flow(m, &flow);
	r = m->ops->check(m->mover, &flow, &n_wrong);
	if (!r && n_wrong)
		fprintf(stderr, "ceoverlap-bench: place %u to place %u: %llu words wrong\n",
			from, to, (unsigned long long)n_wrong);
	m->n_wrong += n_wrong;
	m->n_checked += !r;
	return r;
}

/* A step to carry out for each link between GPUs (hosts 0) or between GPUs and nodes (hosts 1),
 * until time is up. */
struct visit {
	int    (*call)(struct measure *m, uint32_t from, uint32_t to, uint64_t largest);
	int      hosts;
	uint64_t largest;
	int      is_free;               /* takes no time, so it is carried out even when time is
					 * up */
};

static int is_visited(const struct measure *m, const struct visit *visit, uint32_t from,
		      uint32_t to)
{
	uint32_t n_gpus = m->machine->n_gpus;
	int from_gpu = cei_machine_is_gpu(m->machine, from);
	int to_gpu = cei_machine_is_gpu(m->machine, to);
	uint32_t node = from_gpu ? to - n_gpus : from - n_gpus;

	if (from == to || (from_gpu && from >= m->n_gpus) || (to_gpu && to >= m->n_gpus) ||
	    cei_machine_link(m->machine, from, to)->kind == CEI_MACHINE_NONE)
		return 0;
	if (visit->hosts ? from_gpu == to_gpu : !from_gpu || !to_gpu)
		return 0;
	return (!visit->hosts || !m->machine->nodes[node].is_gpu_memory) &&
		m->ops->reaches(m->mover, from, to);
}

static int visit_all(struct measure *m, const struct visit *visit)
{
	uint32_t from, to, n = cei_machine_n_places(m->machine);
	int r = 0;

	for (from = 0; !r && from < n; from++)
		for (to = 0; !r && to < n; to++)
			if (is_visited(m, visit, from, to) &&
			    (visit->is_free || measure_has_time(m)))
				r = visit->call(m, from, to, visit->largest);
	return r;
}

static int conclude(struct measure *m, uint32_t from, uint32_t to, uint64_t largest)
{
	uint64_t bytes[MEASURE_SIZES];
	uint32_t n_copies[MEASURE_SIZES];

	measure_sizes_up_to(largest, bytes, n_copies);
	measure_conclude(m, from, to, bytes);
	return 0;
}

static int measure_links(struct measure *m, int hosts, uint64_t largest, const char *what)
{
	uint32_t round, n_rounds = m->is_quick ? ROUNDS_QUICK : ROUNDS;
	struct visit visit = { check, hosts, largest, 0 };
	int r;

	measure_progress("%s: data", what);
	r = visit_all(m, &visit);
	visit.call = sample;
	for (round = 0; !r && round < n_rounds; round++) {
		measure_progress("%s: round %u of %u", what, round + 1, n_rounds);
		r = visit_all(m, &visit);
	}
	visit.call = conclude;
	visit.is_free = 1;
	return r ? r : visit_all(m, &visit);
}

/* --- as nvbandwidth counts ----------------------------------------------------------
 *
 * Its device_to_device_memcpy_write_ce: cuMemcpyAsync of one buffer, loopCount times back
 * to back on a stream of the source's, between two events, behind a gate that opens when
 * all is queued; bytes of all over the time between the events; the median of three. */

static int plain(struct measure *m, uint32_t from, uint32_t to, uint64_t largest)
{
	struct measure_link *link = measure_link(m, from, to);
	struct measure_flow flow = { .from = from, .to = to, .bytes = largest,
		.n_copies = m->n_plain_copies };
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < PLAIN_ROUNDS; i++) {
		r = one_flow(m, &flow);
		link->plain_us[i] = (float)flow.us;
	}
	if (!r)
		link->plain_gb_per_s = (double)largest * m->n_plain_copies /
			measure_median(link->plain_us, PLAIN_ROUNDS) / 1e3;
	return r;
}

int measure_pairs(struct measure *m)
{
	struct visit visit = { plain, 0, m->plain_bytes, 0 };
	int r = measure_links(m, 0, measure_largest(m, 2), "GPU to GPU");

	if (r || m->n_gpus < 2)
		return r;
	measure_progress("GPU to GPU: as nvbandwidth");
	return visit_all(m, &visit);
}

int measure_host_links(struct measure *m)
{
	return measure_links(m, 1, measure_largest(m, 1), "host and GPU");
}
