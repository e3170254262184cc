/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Draws the charts of the sweep's report that have two axes: bandwidth over size, and random plans
 * beside their bound. Series differ in their markers as well as in their colours. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/group.h"
#include "tools/bench/sweep/sweep.h"

#define LEFT   56.0
#define TOP    14.0
#define WIDTH  400.0
#define HEIGHT 210.0
#define SIZES  48u

struct axes {                           /* the axes of a chart */
	double x_first;
	double x_last;
	double y_first;
	double y_last;
};

static double x_of(const struct axes *axes, double value)
{
	if (axes->x_last <= axes->x_first)
		return LEFT + WIDTH / 2;
	return LEFT + WIDTH * (value - axes->x_first) / (axes->x_last - axes->x_first);
}

static double y_of(const struct axes *axes, double value)
{
	return TOP + HEIGHT * (axes->y_last - value) / (axes->y_last - axes->y_first);
}

/* Rounds up to the next of four round figures per decade. */
static double round_up(double value)
{
	static const double steps[] = { 1, 2, 2.5, 5, 10 };
	double unit, scale = pow(10, floor(log10((value > 0 ? value : 1) / 4)));
	uint32_t i;

	for (i = 0; i < 5; i++) {
		unit = steps[i] * scale;
		if (4 * unit >= value)
			return 4 * unit;
	}
	return 40 * scale;
}

static void y_axis(FILE *out, const struct axes *axes, const char *name)
{
	uint32_t i;
	double value, y;

	for (i = 0; i <= 4; i++) {
		value = axes->y_first + (axes->y_last - axes->y_first) * i / 4;
		y = y_of(axes, value);
		fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" "
			"y2=\"%.1f\"/><text class=\"tick end\" x=\"%.1f\" y=\"%.1f\">%.4g"
			"</text>\n", LEFT, LEFT + WIDTH, y, y, LEFT - 8, y + 4, value);
	}
	fprintf(out, "<text class=\"tick mid\" transform=\"rotate(-90)\" x=\"%.1f\" "
		"y=\"14\">%s</text>\n", -(TOP + HEIGHT / 2), name);
}

/* --- shapes --------------------------------------------------------------- */

struct point {
	double x;
	double y;
	char   title[160];
};

static void mark(FILE *out, const char *class, double x, double y, const char *title)
{
	fprintf(out, "<g class=\"point %s\"><title>%s</title>", class, title);
	if (!strcmp(class, "all") || !strcmp(class, "fifo"))
		fprintf(out, "<rect x=\"%.2f\" y=\"%.2f\" width=\"8\" height=\"8\"/>", x - 4,
			y - 4);
	else if (!strcmp(class, "raw"))
		fprintf(out, "<path d=\"M%.2f %.2fl5 9h-10z\"/>", x, y - 6);
	else
		fprintf(out, "<circle cx=\"%.2f\" cy=\"%.2f\" r=\"4.2\"/>", x, y);
	fputs("</g>\n", out);
}

static void line(FILE *out, const char *class, const struct point *points, uint32_t n)
{
	uint32_t i;

	if (n < 2)
		return;
	fprintf(out, "<polyline class=\"line %s\" points=\"", class);
	for (i = 0; i < n; i++)
		fprintf(out, "%s%.2f,%.2f", i ? " " : "", points[i].x, points[i].y);
	fputs("\"/>\n", out);
}

static void series(FILE *out, const char *class, const struct point *points, uint32_t n)
{
	uint32_t i;

	line(out, class, points, n);
	for (i = 0; i < n; i++)
		mark(out, class, points[i].x, points[i].y, points[i].title);
}

/* --- bandwidth over size -------------------------------------------------- */

static double expected_rate(const struct sweep *sweep, const struct sweep_row *row)
{
	uint64_t bytes = row->source < 0 ? row->bytes * (sweep->n_ranks - 1) : row->bytes;

	return row->expected_us > 0 ? (double)bytes / row->expected_us / 1e3 : 0;
}

static double largest_of(const struct sweep *sweep, struct sweep_key key)
{
	static const char *const methods[] = { "direct", "all", "raw" };
	const struct sweep_row *row;
	double largest = 0, rate;
	uint64_t bytes;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		for (bytes = sweep->options->begin_bytes; bytes;
		     bytes = bench_next_size(sweep->options, bytes)) {
			key.method = methods[i];
			key.bytes = bytes;
			row = sweep_find(sweep, &key);
			if (!row)
				continue;
			rate = fmax(row->gb_per_s, i ? 0 : expected_rate(sweep, row));
			largest = fmax(largest, rate);
		}
	}
	return largest;
}

/* Lists the points of one curve. is_model: take the cost model's values instead of measured
 * ones. */
static uint32_t points_of(const struct sweep *sweep, struct sweep_key *key,
			  const struct axes *axes, int is_model, struct point *points)
{
	const struct sweep_row *row;
	uint64_t bytes;
	uint32_t n = 0;
	char size[24];
	double rate;

	for (bytes = sweep->options->begin_bytes; bytes && n < SIZES;
	     bytes = bench_next_size(sweep->options, bytes)) {
		key->bytes = bytes;
		row = sweep_find(sweep, key);
		rate = !row ? 0 : is_model ? expected_rate(sweep, row) : row->gb_per_s;
		if (rate <= 0)
			continue;
		points[n].x = x_of(axes, log2((double)bytes));
		points[n].y = y_of(axes, rate);
		snprintf(points[n].title, sizeof(points[n].title), "%s, %s: %.2f GB/s, "
			 "median %.1f us of %u samples, min %.1f, p99 %.1f", key->method,
			 sweep_size(bytes, size), rate, row->us_median, row->n_samples,
			 row->us_min, row->us_p99);
		n++;
	}
	return n;
}

static void size_axis(FILE *out, const struct sweep *sweep, const struct axes *axes)
{
	uint64_t bytes;
	char size[24];

	for (bytes = sweep->options->begin_bytes; bytes;
	     bytes = bench_next_size(sweep->options, bytes))
		fprintf(out, "<text class=\"tick mid\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
			x_of(axes, log2((double)bytes)), TOP + HEIGHT + 20,
			sweep_size(bytes, size));
}

void sweep_svg_curve(FILE *out, const struct sweep *sweep, const struct sweep_key *of)
{
	static const char *const methods[] = { "raw", "direct", "all" };
	struct sweep_key key = *of;
	struct point points[SIZES];
	struct axes axes = { .y_first = 0 };
	char title[160];
	uint32_t i, n;

	axes.x_first = log2((double)sweep->options->begin_bytes);
	axes.x_last = log2((double)sweep->options->end_bytes);
	axes.y_last = round_up(largest_of(sweep, key));
	snprintf(title, sizeof(title), "Bandwidth over size: %s %s%s%s",
		 of->test ? of->test : "", of->source < 0 ? "" : sweep_place(sweep, of->source),
		 of->source < 0 ? "" : " to ",
		 of->source < 0 ? "" : sweep_place(sweep, of->target));
	sweep_svg_begin(out, "curve", (uint32_t)(LEFT + WIDTH + 30),
			(uint32_t)(TOP + HEIGHT + 32), title);
	y_axis(out, &axes, "GB/s");
	size_axis(out, sweep, &axes);
	key.method = "direct";
	n = points_of(sweep, &key, &axes, 1, points);
	line(out, "model", points, n);
	for (i = 0; i < 3; i++) {
		key.method = methods[i];
		n = points_of(sweep, &key, &axes, 0, points);
		series(out, methods[i], points, n);
	}
	fputs("</svg>\n", out);
}

/* --- random plans --------------------------------------------------------- */

static int by_ratio(const void *left, const void *right)
{
	const struct sweep_seed *a = left, *b = right;
	double x = a->us[0] / a->bound_us, y = b->us[0] / b->bound_us;

	return x < y ? -1 : x > y;
}

static double most_ratio(const struct sweep *sweep)
{
	double most = 1.2;
	uint32_t i;

	for (i = 0; i < sweep->n_seeds; i++) {
		most = fmax(most, sweep->seeds[i].us[0] / sweep->seeds[i].bound_us);
		most = fmax(most, sweep->seeds[i].us[1] / sweep->seeds[i].bound_us);
	}
	return most;
}

static void bound_line(FILE *out, const struct axes *axes)
{
	double y = y_of(axes, 1);

	fprintf(out, "<line class=\"bound\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
		"<text class=\"tick\" x=\"%.1f\" y=\"%.1f\">bound</text>\n", LEFT,
		LEFT + WIDTH, y, y, LEFT + WIDTH + 6, y + 4);
}

void sweep_svg_random(FILE *out, const struct sweep *sweep)
{
	static const char *const names[] = { "direct", "fifo" };
	struct sweep_seed sorted[SWEEP_SEEDS_MAX];
	struct axes axes = { 0, sweep->n_seeds > 1 ? sweep->n_seeds - 1 : 1, 0, 0 };
	char title[160];
	uint32_t i, side;

	memcpy(sorted, sweep->seeds, sizeof(sorted));
	qsort(sorted, sweep->n_seeds, sizeof(sorted[0]), by_ratio);
	axes.y_first = 0.9;
	axes.y_last = most_ratio(sweep) > 1.3 ? 1.7 : 1.3;
	if (most_ratio(sweep) > 1.7 || sorted[0].us[0] < 0.9 * sorted[0].bound_us) {
		axes.y_first = 0;
		axes.y_last = round_up(most_ratio(sweep));
	}
	sweep_svg_begin(out, "random", (uint32_t)(LEFT + WIDTH + 60),
			(uint32_t)(TOP + HEIGHT + 32),
			"Time of random plans over their bound, sorted");
	y_axis(out, &axes, "time / bound");
	bound_line(out, &axes);
	for (side = 2; side-- > 0;) {
		for (i = 0; i < sweep->n_seeds; i++) {
			snprintf(title, sizeof(title), "%s, seed %llu: %.1f us, bound %.1f "
				 "us", side ? "plan's order" : "scheduler",
				 (unsigned long long)sorted[i].seed, sorted[i].us[side],
				 sorted[i].bound_us);
			mark(out, names[side], x_of(&axes, i), y_of(&axes, sorted[i].us[side] /
				sorted[i].bound_us), title);
		}
	}
	fprintf(out, "<text class=\"tick mid\" x=\"%.1f\" y=\"%.1f\">plans, the best first"
		"</text>\n</svg>\n", LEFT + WIDTH / 2, TOP + HEIGHT + 22);
}
