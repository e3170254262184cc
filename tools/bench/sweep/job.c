/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs one job of the sweep in all its variants: direct paths only, all paths, and the driver's
 * own copies; each with every chunk size and number of launches in flight. A sample is the time of
 * one series of launches by the host's clock, from the first call until the last launch is seen to
 * have ended, divided by their number. Variants alternate sample by sample, and each round begins
 * with another one.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tools/bench/sweep/sweep.h"

struct variant {
	const char        *method;
	int                is_raw;
	uint32_t           routes;      /* enum ceov_routes */
	uint64_t           chunk_bytes;
	uint32_t           in_flight;
	struct sweep_plans plans;
	double             samples[BENCH_SAMPLES_MAX];
	int                is_wrong;
};

struct measured {
	struct sweep           *sweep;
	ceov_context           *context;
	struct sweep_area      *area;
	const struct sweep_job *job;
	uint32_t                n;
	struct variant         *variants;
};

/* --- variants ------------------------------------------------------------- */

static void add_variant(struct measured *m, const struct variant *made)
{
	if (m->n < SWEEP_VARIANTS_MAX)
		m->variants[m->n++] = *made;
}

static int list_variants(struct measured *m)
{
	const struct sweep_options *own = m->sweep->own;
	struct variant *made = calloc(1, sizeof(*made));
	uint32_t c, f;

	if (!made)
		return CEOV_ERR_NO_MEMORY;
	for (f = 0; f < own->in_flight.n; f++) {
		for (c = 0; c < own->chunks.n; c++) {
			made->chunk_bytes = own->chunks.values[c];
			made->in_flight = (uint32_t)own->in_flight.values[f];
			made->is_raw = 0;
			made->method = "direct";
			made->routes = CEOV_ROUTES_DIRECT;
			add_variant(m, made);
			made->method = "all";
			made->routes = CEOV_ROUTES_ALL;
			add_variant(m, made);
		}
		made->method = "raw";
		made->is_raw = 1;
		made->chunk_bytes = 0;
		add_variant(m, made);
	}
	free(made);
	return 0;
}

static int run_variant(struct measured *m, struct variant *variant, uint32_t n_launches)
{
	int r;

	if (variant->is_raw)
		return sweep_raw_run(m->sweep, m->area, m->job, n_launches);
	r = sweep_plans_run(m->area, &variant->plans, n_launches);
	return r ? sweep_fail(m->sweep, m->context, r, m->job->test) : 0;
}

/* Runs one launch into poisoned memory and checks the data. */
static int check_variant(struct measured *m, struct variant *variant)
{
	uint64_t seed = m->sweep->options->seed + m->sweep->n_rows * UINT64_C(0x9e3779b9) +
		(uint64_t)(variant - m->variants) * UINT64_C(0x1000193), n_wrong = 0;
	int r;

	if (!m->sweep->options->check)
		return 0;
	r = sweep_prepare(m->sweep, m->area, m->job, seed);
	if (!r)
		r = run_variant(m, variant, 1);
	if (!r)
		r = sweep_verify(m->sweep, m->area, m->job, seed, &n_wrong);
	variant->is_wrong |= n_wrong != 0;
	return r;
}

/* Opens a variant. If no plan can be made with its routes (there is no direct path), the variant
 * has no row. */
static int open_variant(struct measured *m, struct variant *variant)
{
	struct ceov_plan_options options = {
		.struct_bytes = sizeof(options),
		.max_chunk_bytes = variant->chunk_bytes,
		.routes = variant->routes,
	};
	int r;

	if (variant->is_raw)
		return 0;
	r = sweep_plans_open(m->sweep, m->context, m->area, m->job, &options,
			     &variant->plans);
	if (r != CEOV_ERR_NO_ROUTE)
		return r ? sweep_fail(m->sweep, m->context, r, "making a plan") : 0;
	sweep_plans_close(&variant->plans);
	printf("# %s %s>%s: no path by %s routes\n", m->job->test,
	       sweep_place(m->sweep, m->job->source), sweep_place(m->sweep, m->job->target),
	       variant->method);
	return CEOV_NONE;
}

static int open_all(struct measured *m)
{
	uint32_t i, n = 0;
	int r = list_variants(m);

	for (i = 0; r >= 0 && i < m->n; i++) {
		r = open_variant(m, &m->variants[i]);
		if (!r && n != i) {
			m->variants[n] = m->variants[i];
			m->variants[i].plans.n = 0;
		}
		n += !r;
	}
	if (r < 0)
		return r;
	m->n = n;
	return 0;
}

/* --- rows ----------------------------------------------------------------- */

void sweep_statistics(double *us, uint32_t n, struct sweep_row *row)
{
	row->n_samples = n;
	row->us_median = bench_median(us, n);
	row->us_min = n ? us[0] : 0;
	row->us_p99 = n ? us[(n * 99 + 99) / 100 - 1] : 0;
}

/* Returns the median of the variant that differs only in its routes; 0: there is none. */
static double median_beside(const struct measured *m, const struct variant *variant,
			    const char *method)
{
	const struct variant *other;
	uint32_t i;

	for (i = 0; i < m->n; i++) {
		other = &m->variants[i];
		if (strcmp(other->method, method) || other->in_flight != variant->in_flight)
			continue;
		if (other->is_raw || other->chunk_bytes == variant->chunk_bytes)
			return other->samples[m->sweep->options->n_samples / 2];
	}
	return 0;
}

static int add_row(const struct measured *m, const struct variant *variant)
{
	const struct sweep_job *job = m->job;
	struct sweep_row row;
	double raw, direct;

	memset(&row, 0, sizeof(row));
	snprintf(row.test, sizeof(row.test), "%s", job->test);
	snprintf(row.method, sizeof(row.method), "%s", variant->method);
	row.source = job->source;
	row.target = job->target;
	row.bytes = job->bytes;
	row.chunk_bytes = variant->chunk_bytes;
	row.in_flight = variant->in_flight;
	sweep_statistics((double *)variant->samples, m->sweep->options->n_samples, &row);
	if (row.us_median > 0)
		row.gb_per_s = (double)job->rate_bytes / row.us_median / 1e3;
	row.verified = m->sweep->options->check ? !variant->is_wrong : -1;
	raw = median_beside(m, variant, "raw");
	direct = median_beside(m, variant, "direct");
	if (!variant->is_raw && row.us_median > 0) {
		row.ratio_raw = raw / row.us_median;
		row.ratio_direct = direct / row.us_median;
		row.expected_us = sweep_plans_expected_us(&variant->plans);
		row.n_shares = sweep_plans_shares(&variant->plans, row.shares);
	}
	return sweep_add_row(m->sweep, &row);
}

static int add_rows(struct measured *m)
{
	uint32_t i, n = m->sweep->options->n_samples;
	int r = 0;

	for (i = 0; i < m->n; i++)      /* all medians first, because the ratios use them */
		(void)bench_median(m->variants[i].samples, n);
	for (i = 0; !r && i < m->n; i++)
		r = add_row(m, &m->variants[i]);
	return r;
}

/* --- running the job ------------------------------------------------------ */

static int sample(struct measured *m, struct variant *variant, uint32_t number)
{
	uint64_t begin = cei_now_ns();
	int r = run_variant(m, variant, variant->in_flight);

	variant->samples[number] = (double)(cei_now_ns() - begin) / 1e3 / variant->in_flight;
	return r;
}

static int measure(struct measured *m)
{
	const struct bench_options *options = m->sweep->options;
	uint32_t i, k;
	int r = 0;

	for (i = 0; !r && i < m->n; i++)
		r = check_variant(m, &m->variants[i]);
	for (i = 0; !r && i < options->n_warmup + options->n_samples; i++) {
		r = sweep_late(m->sweep);
		for (k = 0; !r && k < m->n; k++)
			r = sample(m, &m->variants[(i + k) % m->n], i < options->n_warmup
				   ? 0 : i - options->n_warmup);
	}
	for (i = 0; !r && i < m->n; i++)
		r = check_variant(m, &m->variants[i]);
	return r ? r : add_rows(m);
}

int sweep_job_run(struct sweep *sweep, ceov_context *context, struct sweep_area *area,
		  const struct sweep_job *job)
{
	struct measured m = { sweep, context, area, job, 0, NULL };
	uint32_t i;
	int r;

	m.variants = calloc(SWEEP_VARIANTS_MAX, sizeof(*m.variants));
	if (!m.variants)
		return CEOV_ERR_NO_MEMORY;
	r = open_all(&m);
	if (!r && m.n)
		r = measure(&m);
	for (i = 0; i < m.n; i++)
		sweep_plans_close(&m.variants[i].plans);
	free(m.variants);
	return r;
}
