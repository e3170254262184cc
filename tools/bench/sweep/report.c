/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The sweep's rows as text and JSON. */

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/program.h"
#include "tools/bench/sweep/sweep.h"
#include "tools/common/cells.h"
#include "tools/common/output.h"

#define SCHEMA_VERSION 1

const char *sweep_size(uint64_t bytes, char *text)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	double value = (double)bytes;
	uint32_t unit = 0;

	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	snprintf(text, 24, "%.4g %s", value, units[unit]);
	return text;
}

/* --- rows ----------------------------------------------------------------- */

void sweep_print_head(FILE *out)
{
	fprintf(out, "# us a launch, by the host's clock: medians of samples; fl: launches in "
		"flight; model: what the cost model expects\n# vs raw, vs dir: their time / "
		"this, above 1 is faster; bound: what the busiest port needs, of random plans\n");
}

static void add_shares(struct cells *cells, const struct sweep_row *row)
{
	struct json_object *list = json_object_new_array();
	struct cells share;
	char column[64];
	uint32_t i;

	for (i = 0; i < row->n_shares; i++) {
		cells_begin(&share);
		cells_text(&share, "path", NULL, row->shares[i].path);
		cells_integer(&share, "bytes", NULL, row->shares[i].bytes);
		json_object_array_add(list, cells_take(&share));
		snprintf(column, sizeof(column), "bytes %s", row->shares[i].path);
		if (row->n_shares > 1)
			cells_integer(cells, NULL, column, row->shares[i].bytes);
	}
	cells_add(cells, "shares", list);
}

static void fill(struct cells *cells, const struct sweep *sweep,
		 const struct sweep_row *row)
{
	char pair[64] = "-", chunk[24] = "default";

	if (row->source >= 0)
		snprintf(pair, sizeof(pair), "%s>%s", sweep_place(sweep, row->source),
			 sweep_place(sweep, row->target));
	if (row->chunk_bytes)
		snprintf(chunk, sizeof(chunk), "%" PRIu64, row->chunk_bytes);
	cells_begin(cells);
	cells_text(cells, "test", "test:-10", row->test);
	cells_text(cells, "method", "method:-13", row->method);
	cells_text(cells, NULL, "pair:-13", pair);
	if (row->source >= 0) {
		cells_text(cells, "source", NULL, sweep_place(sweep, row->source));
		cells_text(cells, "target", NULL, sweep_place(sweep, row->target));
	}
	cells_integer(cells, "bytes", "bytes:10", row->bytes);
	cells_integer(cells, "chunk_bytes", NULL, row->chunk_bytes);
	cells_text(cells, NULL, "chunk:8", strcmp(row->method, "raw") ? chunk : NULL);
	cells_integer(cells, "in_flight", "fl:2", row->in_flight);
	cells_integer(cells, "samples", NULL, row->n_samples);
	cells_optional(cells, "us_median", "median:9.2", row->us_median);
	cells_optional(cells, "us_min", NULL, row->us_min);
	cells_optional(cells, "us_p99", "p99:8.2", row->us_p99);
	cells_optional(cells, "gb_per_s", "GB/s:6.2", row->gb_per_s);
	cells_optional(cells, "expected_us", "model:8.2", row->expected_us);
	cells_optional(cells, "ratio_raw", "vs raw:6.3", row->ratio_raw);
	cells_optional(cells, "ratio_direct", "vs dir:6.3", row->ratio_direct);
	cells_verified(cells, "verified", "data:-9", row->verified);
	cells_optional(cells, "bound_median", "of the bound, median:.3",
			     row->bound_median);
	cells_optional(cells, "bound_max", "of the bound, worst:.3", row->bound_max);
	if (row->n_shares)
		add_shares(cells, row);
}

void sweep_print_row(FILE *out, const struct sweep *sweep, const struct sweep_row *row)
{
	struct cells cells;

	fill(&cells, sweep, row);
	cells_print(out, &cells, sweep->n_rows == 1);
	cells_end(&cells);
}

/* --- matrix --------------------------------------------------------------- */

struct method {
	const struct sweep *sweep;
	const char         *name;
};

static const char *place_name(const void *method, uint32_t place, char *text)
{
	(void)text;
	return sweep_place(((const struct method *)method)->sweep, (int32_t)place);
}

static double rate(const void *arg, uint32_t from, uint32_t to)
{
	const struct method *method = arg;
	const struct sweep_key key = { .method = method->name, .source = (int32_t)from,
				       .target = (int32_t)to };
	const struct sweep_row *row = sweep_find(method->sweep, &key);

	return row && row->gb_per_s > 0 ? row->gb_per_s : NAN;
}

void sweep_print_matrix(FILE *out, const struct sweep *sweep)
{
	static const char *const methods[] = { "direct", "all", "raw" };
	struct cells_matrix matrix = { .n = sweep->n_places, .name = place_name, .value = rate };
	struct method method = { .sweep = sweep };
	char head[80];
	uint32_t i;

	for (i = 0; i < 3; i++) {
		method.name = methods[i];
		matrix.arg = &method;
		snprintf(head, sizeof(head), "# GB/s of the largest size, %s; from (down) to "
			 "(across)", methods[i]);
		matrix.head = head;
		cells_matrix_print(out, &matrix);
	}
	fflush(out);
}

/* --- JSON ----------------------------------------------------------------- */

static struct json_object *seeds_of(const struct sweep *sweep)
{
	struct json_object *list = json_object_new_array();
	struct cells cells;
	uint32_t i;

	for (i = 0; i < sweep->n_seeds; i++) {
		cells_begin(&cells);
		cells_integer(&cells, "seed", NULL, sweep->seeds[i].seed);
		cells_number(&cells, "bound_us", NULL, sweep->seeds[i].bound_us);
		cells_number(&cells, "scheduler_us", NULL, sweep->seeds[i].us[0]);
		cells_number(&cells, "fifo_us", NULL, sweep->seeds[i].us[1]);
		json_object_array_add(list, cells_take(&cells));
	}
	return list;
}

/* Of the events of lanes; takes them over. */
static struct json_object *timeline_of(const struct sweep *sweep)
{
	struct cells cells;

	cells_begin(&cells);
	cells_integer(&cells, "bytes", NULL, sweep->timeline_bytes);
	cells_add(&cells, "events", json_object_get(sweep->timeline));
	return cells_take(&cells);
}

static void fill_report(struct cells *report, const struct sweep *sweep)
{
	struct json_object *list = json_object_new_array(), *origin;
	struct json_object *places = json_object_new_array();
	struct cells cells;
	char text[512];
	uint32_t i;

	origin = bench_report_begin(report, sweep->options, sweep->machine, SCHEMA_VERSION);
	sweep_machine(sweep, text, sizeof(text));
	json_object_object_add(origin, "model_machine", json_object_new_string(text));
	cells_add(report, "complete", json_object_new_boolean(sweep->is_complete));
	cells_add(report, "on_gpus", json_object_new_boolean(sweep->is_gpu));
	for (i = 0; i < sweep->n_places; i++)
		json_object_array_add(places, json_object_new_string(sweep->place_names[i]));
	cells_add(report, "places", places);
	for (i = 0; i < sweep->n_rows; i++) {
		fill(&cells, sweep, &sweep->rows[i]);
		json_object_array_add(list, cells_take(&cells));
	}
	cells_add(report, "rows", list);
	cells_integer(report, "urgent_ms", NULL, sweep->own->urgent_ms);
	if (sweep->n_seeds) {
		cells_add(report, "random_plans", seeds_of(sweep));
		cells_integer(report, "random_transfers", NULL, SWEEP_MOVES_MAX);
		cells_number(report, "t0_us", NULL, sweep->t0_us);
	}
	if (sweep->timeline)
		cells_add(report, "timeline", timeline_of(sweep));
}

/* Has ceoverlap-plot make a file of the report. */
static int plot(const char *report, const char *option, const char *path)
{
	const char *const arguments[] = { "ceoverlap-plot", report, option, NULL };
	struct output output;

	if (!path)
		return 0;
	if (output_open(&output, path))
		return -1;
	if (!bench_program_run(arguments, output.stream))
		return output_close(&output);
	output_drop(&output);
	return -1;
}

int sweep_write(const struct sweep *sweep)
{
	const struct sweep_options *own = sweep->own;
	struct bench_options options = *sweep->options;
	struct cells report;
	char path[128];
	int r;

	fill_report(&report, sweep);
	r = bench_report_end(&report, &options);
	if (!own->csv_path && !own->html_path)
		return r;
	snprintf(path, sizeof(path), "%s/report", sweep->folder);
	options.json_path = path;
	fill_report(&report, sweep);
	if (bench_report_end(&report, &options))
		return -1;
	r |= plot(path, "--csv", own->csv_path);
	r |= plot(path, NULL, own->html_path);
	(void)unlink(path);
	return r;
}
