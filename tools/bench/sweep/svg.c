/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Draws charts of the sweep's report: the matrix of bandwidths, the shares of paths, the timeline.
 * Colours are CSS classes of the page, for light and dark; everything that a colour says is also
 * text. */

#include <inttypes.h>
#include <string.h>

#include "tools/bench/sweep/sweep.h"

#define CELL_WIDTH  66u
#define CELL_HEIGHT 34u
#define LABEL       72u
#define COLOURS     8u

void sweep_svg_begin(FILE *out, const char *class, uint32_t width, uint32_t height,
		     const char *title)
{
	fprintf(out, "<svg class=\"%s\" role=\"img\" viewBox=\"0 0 %u %u\" width=\"%u\" "
		"height=\"%u\" xmlns=\"http://www.w3.org/2000/svg\">\n<title>%s</title>\n",
		class, width, height, width, height, title);
}

/* --- matrix --------------------------------------------------------------- */

static const struct sweep_row *row_of(const struct sweep *sweep, const char *method,
				      uint32_t source, uint32_t target)
{
	struct sweep_key key = { .method = method, .source = (int32_t)source,
				 .target = (int32_t)target };

	return sweep_find(sweep, &key);
}

/* Returns the largest rate of both matrices, so that they share one scale. */
static double largest_rate(const struct sweep *sweep)
{
	static const char *const methods[] = { "direct", "all" };
	const struct sweep_row *row;
	double largest = 0;
	uint32_t i, n = sweep->n_places;

	for (i = 0; i < 2 * n * n; i++) {
		row = row_of(sweep, methods[i % 2], i / 2 / n, i / 2 % n);
		if (row && row->gb_per_s > largest)
			largest = row->gb_per_s;
	}
	return largest;
}

static void cell(FILE *out, const struct sweep *sweep, const struct sweep_row *row,
		 double share)
{
	char size[24];

	fprintf(out, "<rect class=\"heat\" width=\"%u\" height=\"%u\" rx=\"3\" "
		"fill-opacity=\"%.3f\"><title>%s to %s: %.2f GB/s; %s at a time, median "
		"%.1f us, %s</title></rect>", CELL_WIDTH - 3, CELL_HEIGHT - 3,
		0.06 + 0.94 * share, sweep_place(sweep, row->source),
		sweep_place(sweep, row->target), row->gb_per_s,
		sweep_size(row->bytes, size), row->us_median,
		row->verified > 0 ? "data verified" : row->verified ? "data not checked"
		: "DATA WRONG");
	fprintf(out, "<text class=\"%s\" x=\"%u\" y=\"21\">%s%.*f</text>",
		share > 0.7 ? "strong" : "value", (CELL_WIDTH - 3) / 2,
		row->verified ? "" : "! ", row->gb_per_s < 100 ? 1 : 0, row->gb_per_s);
}

static void matrix_line(FILE *out, const struct sweep *sweep, const char *method,
			uint32_t source, double largest)
{
	const struct sweep_row *row;
	uint32_t target;

	fprintf(out, "<text class=\"label end\" x=\"%u\" y=\"%u\">%s</text>\n", LABEL - 8,
		(source + 1) * CELL_HEIGHT + 21, sweep->place_names[source]);
	for (target = 0; target < sweep->n_places; target++) {
		row = row_of(sweep, method, source, target);
		fprintf(out, "<g class=\"cell\" transform=\"translate(%u,%u)\">",
			LABEL + target * CELL_WIDTH, (source + 1) * CELL_HEIGHT);
		if (row && largest > 0)
			cell(out, sweep, row, row->gb_per_s / largest);
		else
			fprintf(out, "<rect class=\"none\" width=\"%u\" height=\"%u\" "
				"rx=\"3\"><title>%s to %s: not measured</title></rect>",
				CELL_WIDTH - 3, CELL_HEIGHT - 3, sweep->place_names[source],
				sweep->place_names[target]);
		fputs("</g>\n", out);
	}
}

void sweep_svg_matrix(FILE *out, const struct sweep *sweep, const char *method)
{
	double largest = largest_rate(sweep);
	uint32_t i, n = sweep->n_places;
	char title[96];

	snprintf(title, sizeof(title), "GB/s from each place to each, %s", method);
	sweep_svg_begin(out, "matrix", LABEL + n * CELL_WIDTH, (n + 1) * CELL_HEIGHT, title);
	for (i = 0; i < n; i++)
		fprintf(out, "<text class=\"label mid\" x=\"%u\" y=\"22\">%s</text>\n",
			LABEL + i * CELL_WIDTH + (CELL_WIDTH - 3) / 2,
			sweep->place_names[i]);
	for (i = 0; i < n; i++)
		matrix_line(out, sweep, method, i, largest);
	fputs("</svg>\n", out);
}

/* --- shares --------------------------------------------------------------- */

#define BAR_X      150u
#define BAR_WIDTH  640u
#define BAR_STEP   46u

static void bar(FILE *out, const struct sweep *sweep, const struct sweep_row *row, uint32_t y)
{
	double x = BAR_X, width;
	uint64_t whole = 0;
	char size[24];
	uint32_t i;

	for (i = 0; i < row->n_shares; i++)
		whole += row->shares[i].bytes;
	fprintf(out, "<text class=\"label end\" x=\"%u\" y=\"%u\">%s to %s</text>\n",
		BAR_X - 10, y + 19, sweep_place(sweep, row->source),
		sweep_place(sweep, row->target));
	for (i = 0; whole && i < row->n_shares; i++) {
		width = BAR_WIDTH * (double)row->shares[i].bytes / (double)whole;
		fprintf(out, "<g class=\"share\"><rect class=\"c%u\" x=\"%.2f\" y=\"%u\" "
			"width=\"%.2f\" height=\"28\" rx=\"2\"><title>%s: %s, %.1f %%"
			"</title></rect>", i % COLOURS, x, y, width > 2 ? width - 1.5
			: width, row->shares[i].path, sweep_size(row->shares[i].bytes, size),
			100 * (double)row->shares[i].bytes / (double)whole);
		if (width > 9.0 * (double)strlen(row->shares[i].path) + 50)
			fprintf(out, "<text class=\"on\" x=\"%.2f\" y=\"%u\">%s %.1f %%"
				"</text>", x + 8, y + 19, row->shares[i].path,
				100 * (double)row->shares[i].bytes / (double)whole);
		else if (width > 30)
			fprintf(out, "<text class=\"on\" x=\"%.2f\" y=\"%u\">%.0f</text>",
				x + 4, y + 19, 100 * (double)row->shares[i].bytes /
				(double)whole);
		fputs("</g>\n", out);
		x += width;
	}
}

/* Draws the shares of one pair of ranks, and of a rank and the host in both directions. */
void sweep_svg_shares(FILE *out, const struct sweep *sweep)
{
	const struct sweep_row *rows[3], *row;
	uint32_t host = sweep->n_ranks, i, n = 0;
	const uint32_t pairs[3][2] = { { 0, 1 }, { host, 0 }, { 0, host } };

	for (i = 0; i < 3; i++) {
		row = row_of(sweep, "all", pairs[i][0], pairs[i][1]);
		if (row && row->n_shares)
			rows[n++] = row;
	}
	if (!n) {
		fputs("<p class=\"missing\">Not measured: no pair was run with all routes."
		      "</p>\n", out);
		return;
	}
	sweep_svg_begin(out, "shares", BAR_X + BAR_WIDTH + 10, n * BAR_STEP,
			"Shares of a transfer's bytes that take each path");
	for (i = 0; i < n; i++)
		bar(out, sweep, rows[i], i * BAR_STEP + 6);
	fputs("</svg>\n", out);
}

/* --- timeline ------------------------------------------------------------- */

#define TIME_X     110u
#define TIME_WIDTH 800u
#define TIME_STEP  32u

struct window {
	double begin_us;
	double end_us;
};

static struct window window_of(const struct bench_trace *trace)
{
	struct window window = { trace->spans[0].begin_us, trace->spans[0].end_us };
	uint32_t i;

	for (i = 1; i < trace->n; i++) {
		if (trace->spans[i].begin_us < window.begin_us)
			window.begin_us = trace->spans[i].begin_us;
		if (trace->spans[i].end_us > window.end_us)
			window.end_us = trace->spans[i].end_us;
	}
	if (window.end_us <= window.begin_us)
		window.end_us = window.begin_us + 1;
	return window;
}

static void span(FILE *out, const struct bench_trace_span *at, const struct window *window,
		 double scale)
{
	double x = TIME_X + (at->begin_us - window->begin_us) * scale;
	double width = (at->end_us - at->begin_us) * scale;
	char size[24];

	fprintf(out, "<rect class=\"span c%u\" x=\"%.2f\" y=\"%u\" width=\"%.2f\" "
		"height=\"%u\" rx=\"2\"><title>rank %u, transfer %u: %s, %s; from %.1f to "
		"%.1f us</title></rect>\n", at->transfer % COLOURS, x,
		at->rank * TIME_STEP + 5, width > 1 ? width - 0.6 : width, TIME_STEP - 10,
		at->rank, at->transfer, sweep_size(at->bytes, size), at->route,
		at->begin_us - window->begin_us, at->end_us - window->begin_us);
	if (width > 24)
		fprintf(out, "<text class=\"on\" x=\"%.2f\" y=\"%u\">%u</text>\n", x + 5,
			at->rank * TIME_STEP + 21, at->transfer);
}

/* Returns the largest round figure up to this length, as the step of an axis. */
static double step_of(double length)
{
	double step = 1;

	while (step * 10 <= length)
		step *= 10;
	if (step * 5 <= length)
		return step * 5;
	return step * 2 <= length ? step * 2 : step;
}

static void time_axis(FILE *out, const struct sweep *sweep, const struct window *window,
		      double scale)
{
	double length = window->end_us - window->begin_us, at;
	double step = step_of(length / 4);
	uint32_t y = sweep->n_ranks * TIME_STEP;

	for (at = 0; at <= length; at += step) {
		fprintf(out, "<line class=\"grid\" x1=\"%.2f\" x2=\"%.2f\" y1=\"0\" "
			"y2=\"%u\"/>\n", TIME_X + at * scale, TIME_X + at * scale, y);
		fprintf(out, "<text class=\"tick mid\" x=\"%.2f\" y=\"%u\">%g us</text>\n",
			TIME_X + at * scale, y + 16, at);
	}
}

void sweep_svg_timeline(FILE *out, const struct sweep *sweep)
{
	const struct bench_trace *trace = &sweep->timeline;
	struct window window;
	double scale;
	uint32_t i;

	if (!trace->n) {
		fputs("<p class=\"missing\">Not measured: there is no trace of an all-gather."
		      "</p>\n", out);
		return;
	}
	window = window_of(trace);
	scale = TIME_WIDTH / (window.end_us - window.begin_us);
	sweep_svg_begin(out, "timeline", TIME_X + TIME_WIDTH + 40,
			sweep->n_ranks * TIME_STEP + 24, "What each rank's lane moved when");
	time_axis(out, sweep, &window, scale);
	for (i = 0; i < sweep->n_ranks; i++)
		fprintf(out, "<text class=\"label end\" x=\"%u\" y=\"%u\">%s</text>\n",
			TIME_X - 10, i * TIME_STEP + 21, sweep->place_names[i]);
	for (i = 0; i < trace->n; i++)
		span(out, &trace->spans[i], &window, scale);
	fputs("</svg>\n", out);
}
