/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The sweep's rows as text, CSV and JSON. */

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#include "tools/bench/sweep/sweep.h"
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

/* --- text ----------------------------------------------------------------- */

void sweep_print_head(FILE *out)
{
	fprintf(out, "# us a launch, by the host's clock: medians of samples; model: what the "
		"cost model expects; vs X: time of X / this, above 1 is faster\n");
	fprintf(out, "%-11s %-13s %-12s %11s %9s %6s %10s %10s %10s %8s %10s %6s %6s  %s\n",
		"test", "method", "pair", "bytes", "chunk", "flight", "median", "min", "p99",
		"GB/s", "model", "vs raw", "vs dir", "data");
}

static const char *figure(char *text, const char *format, double value)
{
	if (value > 0)
		snprintf(text, 24, format, value);
	else
		snprintf(text, 24, "-");
	return text;
}

static void print_shares(FILE *out, const struct sweep_row *row)
{
	uint32_t i;

	for (i = 0; row->n_shares > 1 && i < row->n_shares; i++)
		fprintf(out, "%s%s %" PRIu64, i ? ", " : "#   bytes by path: ",
			row->shares[i].path, row->shares[i].bytes);
	if (row->n_shares > 1)
		fputc('\n', out);
}

void sweep_print_row(FILE *out, const struct sweep *sweep, const struct sweep_row *row)
{
	char pair[64] = "-", chunk[24] = "default", rate[24], model[24], raw[24], direct[24];
	char times[3][24];

	if (row->source >= 0)
		snprintf(pair, sizeof(pair), "%s>%s", sweep_place(sweep, row->source),
			 sweep_place(sweep, row->target));
	if (!strcmp(row->method, "raw"))
		snprintf(chunk, sizeof(chunk), "-");
	else if (row->chunk_bytes)
		snprintf(chunk, sizeof(chunk), "%" PRIu64, row->chunk_bytes);
	bench_report_ratio(raw, sizeof(raw), row->ratio_raw);
	bench_report_ratio(direct, sizeof(direct), row->ratio_direct);
	fprintf(out, "%-11s %-13s %-12s %11" PRIu64 " %9s %6u %10s %10s %10s %8s %10s "
		"%6s %6s  %s\n", row->test, row->method, pair, row->bytes, chunk,
		row->in_flight, figure(times[0], "%.2f", row->us_median),
		figure(times[1], "%.2f", row->us_min), figure(times[2], "%.2f", row->us_p99),
		figure(rate, "%.2f", row->gb_per_s), figure(model, "%.2f", row->expected_us),
		raw, direct,
		row->verified > 0 ? "verified" : row->verified ? "unchecked" : "WRONG");
	print_shares(out, row);
	if (row->bound_median > 0)
		fprintf(out, "#   of the bound: median %.3f, worst %.3f\n",
			row->bound_median, row->bound_max);
}

static void print_one_matrix(FILE *out, const struct sweep *sweep, const char *method)
{
	struct sweep_key key = { .method = method };
	const struct sweep_row *row;
	uint32_t source, target;
	char text[24];

	fprintf(out, "# GB/s of the largest size, %s; from (down) to (across)\n# %-8s", method,
		"");
	for (target = 0; target < sweep->n_places; target++)
		fprintf(out, " %8s", sweep->place_names[target]);
	fputc('\n', out);
	for (source = 0; source < sweep->n_places; source++) {
		fprintf(out, "# %-8s", sweep->place_names[source]);
		for (target = 0; target < sweep->n_places; target++) {
			key.source = (int32_t)source;
			key.target = (int32_t)target;
			row = sweep_find(sweep, &key);
			fprintf(out, " %8s", figure(text, "%.1f",
						    row ? row->gb_per_s : 0));
		}
		fputc('\n', out);
	}
}

void sweep_print_matrix(FILE *out, const struct sweep *sweep)
{
	static const char *const methods[] = { "direct", "all", "raw" };
	uint32_t i, k;

	for (i = 0; i < 3; i++) {
		for (k = 0; k < sweep->n_rows; k++)
			if (!strcmp(sweep->rows[k].method, methods[i]) &&
			    sweep->rows[k].source >= 0)
				break;
		if (k < sweep->n_rows)
			print_one_matrix(out, sweep, methods[i]);
	}
	fflush(out);
}

/* --- CSV ------------------------------------------------------------------ */

/* Prints a figure, or nothing if it was not measured. */
static void csv_figure(FILE *out, const char *format, double value)
{
	if (value > 0)
		fprintf(out, format, value);
	fputc(',', out);
}

static void csv_row(FILE *out, const struct sweep *sweep, const struct sweep_row *row)
{
	uint32_t i;

	fprintf(out, "%s,%s,%s,%s,%" PRIu64 ",%" PRIu64 ",%u,%u,", row->test, row->method,
		sweep_place(sweep, row->source), sweep_place(sweep, row->target), row->bytes,
		row->chunk_bytes, row->in_flight, row->n_samples);
	csv_figure(out, "%.3f", row->us_median);
	csv_figure(out, "%.3f", row->us_min);
	csv_figure(out, "%.3f", row->us_p99);
	csv_figure(out, "%.4f", row->gb_per_s);
	csv_figure(out, "%.3f", row->expected_us);
	csv_figure(out, "%.4f", row->ratio_raw);
	csv_figure(out, "%.4f", row->ratio_direct);
	csv_figure(out, "%.4f", row->bound_median);
	csv_figure(out, "%.4f", row->bound_max);
	fprintf(out, "%s,", row->verified > 0 ? "yes" : row->verified ? "unchecked" : "no");
	for (i = 0; i < row->n_shares; i++)
		fprintf(out, "%s%s:%" PRIu64, i ? ";" : "", row->shares[i].path,
			row->shares[i].bytes);
	fputc('\n', out);
}

int sweep_write_csv(const struct sweep *sweep, const char *path)
{
	struct output output;
	uint32_t i;

	if (output_open(&output, path))
		return -1;
	fprintf(output.stream, "test,method,source,target,bytes,chunk_bytes,in_flight,samples,"
		"us_median,us_min,us_p99,gb_per_s,expected_us,ratio_raw,ratio_direct,"
		"bound_median,bound_max,verified,shares\n");
	for (i = 0; i < sweep->n_rows; i++)
		csv_row(output.stream, sweep, &sweep->rows[i]);
	return output_close(&output);
}

/* --- JSON ----------------------------------------------------------------- */

static void add_text(struct json_object *object, const char *key, const char *text)
{
	json_object_object_add(object, key, json_object_new_string(text));
}

static void add_count(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_int64((int64_t)value));
}

static void add_positive(struct json_object *object, const char *key, double value)
{
	if (value > 0)
		bench_report_number(object, key, value);
}

static struct json_object *shares_of(const struct sweep_row *row)
{
	struct json_object *list = json_object_new_array(), *share;
	uint32_t i;

	for (i = 0; i < row->n_shares; i++) {
		share = json_object_new_object();
		add_text(share, "path", row->shares[i].path);
		add_count(share, "bytes", row->shares[i].bytes);
		json_object_array_add(list, share);
	}
	return list;
}

static struct json_object *row_to_json(const struct sweep *sweep, const struct sweep_row *row)
{
	struct json_object *object = json_object_new_object();

	add_text(object, "test", row->test);
	add_text(object, "method", row->method);
	if (row->source >= 0) {
		add_text(object, "source", sweep_place(sweep, row->source));
		add_text(object, "target", sweep_place(sweep, row->target));
	}
	add_count(object, "bytes", row->bytes);
	add_count(object, "chunk_bytes", row->chunk_bytes);
	add_count(object, "in_flight", row->in_flight);
	add_count(object, "samples", row->n_samples);
	add_positive(object, "us_median", row->us_median);
	add_positive(object, "us_min", row->us_min);
	add_positive(object, "us_p99", row->us_p99);
	add_positive(object, "gb_per_s", row->gb_per_s);
	add_positive(object, "expected_us", row->expected_us);
	add_positive(object, "ratio_raw", row->ratio_raw);
	add_positive(object, "ratio_direct", row->ratio_direct);
	add_positive(object, "bound_median", row->bound_median);
	add_positive(object, "bound_max", row->bound_max);
	json_object_object_add(object, "verified", row->verified < 0 ? NULL
			       : json_object_new_boolean(row->verified));
	if (row->n_shares)
		json_object_object_add(object, "shares", shares_of(row));
	return object;
}

static struct json_object *seeds_of(const struct sweep *sweep)
{
	struct json_object *list = json_object_new_array(), *object;
	uint32_t i;

	for (i = 0; i < sweep->n_seeds; i++) {
		object = json_object_new_object();
		add_count(object, "seed", sweep->seeds[i].seed);
		bench_report_number(object, "bound_us", sweep->seeds[i].bound_us);
		bench_report_number(object, "scheduler_us", sweep->seeds[i].us[0]);
		bench_report_number(object, "fifo_us", sweep->seeds[i].us[1]);
		json_object_array_add(list, object);
	}
	return list;
}

int sweep_write_json(const struct sweep *sweep)
{
	struct json_object *report = json_object_new_object();
	struct json_object *list = json_object_new_array(), *provenance, *places;
	char text[512];
	uint32_t i;

	provenance = bench_report_provenance(sweep->options, sweep->machine);
	sweep_machine(sweep, text, sizeof(text));
	add_text(provenance, "model_machine", text);
	places = json_object_new_array();
	for (i = 0; i < sweep->n_places; i++)
		json_object_array_add(places, json_object_new_string(sweep->place_names[i]));
	json_object_object_add(report, "schema_version", json_object_new_int(SCHEMA_VERSION));
	json_object_object_add(report, "provenance", provenance);
	json_object_object_add(report, "complete", json_object_new_boolean(sweep->is_complete));
	json_object_object_add(report, "places", places);
	for (i = 0; i < sweep->n_rows; i++)
		json_object_array_add(list, row_to_json(sweep, &sweep->rows[i]));
	json_object_object_add(report, "rows", list);
	if (sweep->n_seeds)
		json_object_object_add(report, "random_plans", seeds_of(sweep));
	return bench_report_write(sweep->options, report);
}
