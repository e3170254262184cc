/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Prints rows as a text table and as JSON, with date, machine and versions. */

#include "tools/bench/bench.h"
#include "tools/common/output.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define SCHEMA_VERSION 1

extern char **environ;

static const char *mode_name(enum bench_mode mode)
{
	switch (mode) {
	case BENCH_OURS:    return "ours";
	case BENCH_RAW:     return "raw";
	case BENCH_NCCL_SM: return "nccl_sm";
	case BENCH_NCCL_CE: return "nccl_ce";
	}
	return "?";
}

void bench_report_head(FILE *out, int is_gpu)
{
	fprintf(out, "# times in us (max over ranks); vs X: time of X / time of ours, above 1: "
		"ours is faster\n# raw: %s\n", is_gpu ? "the driver's calls, by hand"
		: "memcpy in one thread, which hands nothing over and wakes nobody");
	fprintf(out, "%-12s %-8s %-7s %5s %7s %11s %9s %9s %9s %8s %6s %7s %7s  %s\n",
		"case", "mode", "trigger", "ranks", "pair", "bytes", "median", "min", "p99",
		"GB/s", "vs raw", "vs ncSM", "vs ncCE", "data");
}

void bench_report_ratio(char *text, size_t n_bytes, double ratio)
{
	if (ratio >= 0.0995)
		snprintf(text, n_bytes, "%.2f", ratio);
	else if (ratio >= 0.0005)
		snprintf(text, n_bytes, "%.3f", ratio);
	else
		snprintf(text, n_bytes, ratio > 0 ? "<0.001" : "-");
}

/* The time of both levels together, divided by that of the slower one alone. */
static double levels_ratio(const struct bench_row *row)
{
	return row->us_median / (row->us_within > row->us_between ? row->us_within
				 : row->us_between);
}

static void print_levels(FILE *out, const struct bench_row *row)
{
	char within[32] = "nothing";

	if (row->us_within > 0)
		snprintf(within, sizeof(within), "%.2f us", row->us_within);
	fprintf(out, "# alone: within the node %s, between nodes %.2f us; both together take %.2f "
		"of the longer\n", within, row->us_between, levels_ratio(row));
}

void bench_report_row(FILE *out, const struct bench_row *row)
{
	const double us[3] = { row->us_median, row->us_min, row->us_p99 };
	char pair[16] = "-", rate[16] = "-", raw[16], sm[16], ce[16], times[3][16];
	uint32_t i;

	if (row->source >= 0)
		snprintf(pair, sizeof(pair), "%d>%d", row->source, row->target);
	if (row->gb_per_s > 0)
		snprintf(rate, sizeof(rate), "%.1f", row->gb_per_s);
	for (i = 0; i < 3; i++)
		snprintf(times[i], sizeof(times[i]), us[i] > 0 ? "%.2f" : "-", us[i]);
	bench_report_ratio(raw, sizeof(raw), row->ratio_raw);
	bench_report_ratio(sm, sizeof(sm), row->ratio_nccl_sm);
	bench_report_ratio(ce, sizeof(ce), row->ratio_nccl_ce);
	fprintf(out, "%-12s %-8s %-7s %5u %7s %11llu %9s %9s %9s %8s %6s %7s %7s  %s\n",
		row->test, mode_name(row->mode), row->variant[0] ? row->variant : "-",
		row->ranks, pair, (unsigned long long)row->bytes_per_rank, times[0],
		times[1], times[2], rate, raw, sm, ce,
		row->verified > 0 ? "verified" : row->verified ? "unchecked" : "WRONG");
	if (row->us_between > 0)
		print_levels(out, row);
	if (row->cpu_s_per_gib > 0)
		fprintf(out, "# %.3f s of processor time a GiB, source and target together\n",
			row->cpu_s_per_gib);
}

void bench_report_number(struct json_object *object, const char *key, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3f", value);
	json_object_object_add(object, key, json_object_new_double_s(value, text));
}

static void add_ratio(struct json_object *object, const char *key, double value)
{
	if (value > 0)
		bench_report_number(object, key, value);
}

/* Adds a measured value, or null for 0. */
static void add_measured(struct json_object *object, const char *key, double value)
{
	if (value > 0)
		bench_report_number(object, key, value);
	else
		json_object_object_add(object, key, NULL);
}

static struct json_object *row_to_json(const struct bench_row *row)
{
	struct json_object *object = json_object_new_object();

	json_object_object_add(object, "case", json_object_new_string(row->test));
	json_object_object_add(object, "mode", json_object_new_string(mode_name(row->mode)));
	if (row->variant[0])
		json_object_object_add(object, "trigger",
				       json_object_new_string(row->variant));
	json_object_object_add(object, "ranks", json_object_new_int64(row->ranks));
	if (row->source >= 0) {
		json_object_object_add(object, "source", json_object_new_int(row->source));
		json_object_object_add(object, "target", json_object_new_int(row->target));
	}
	json_object_object_add(object, "bytes_per_rank",
			       json_object_new_int64((int64_t)row->bytes_per_rank));
	json_object_object_add(object, "chunk_bytes",
			       json_object_new_int64((int64_t)row->chunk_bytes));
	add_measured(object, "us_median", row->us_median);
	add_measured(object, "us_min", row->us_min);
	add_measured(object, "us_p99", row->us_p99);
	add_measured(object, "gb_per_s", row->gb_per_s);
	add_ratio(object, "cpu_s_per_gib", row->cpu_s_per_gib);
	if (row->us_between > 0) {
		add_measured(object, "us_within_node", row->us_within);
		add_measured(object, "us_between_nodes", row->us_between);
		add_ratio(object, "ratio_longer_level", levels_ratio(row));
	}
	json_object_object_add(object, "verified", row->verified < 0 ? NULL
			       : json_object_new_boolean(row->verified));
	add_ratio(object, "ratio_raw", row->ratio_raw);
	add_ratio(object, "ratio_nccl_sm", row->ratio_nccl_sm);
	add_ratio(object, "ratio_nccl_ce", row->ratio_nccl_ce);
	return object;
}

/* Lists the environment variables of this library, the driver and NCCL; the rest of the environment
 * is private, and so is the secret of a group. */
static struct json_object *environment(void)
{
	static const char *const prefixes[] = { "CEOVERLAP_", "CUDA_", "NCCL_" };
	struct json_object *object = json_object_new_object();
	char name[64];
	size_t i, k, length;

	for (i = 0; environ[i]; i++) {
		for (k = 0; k < 3; k++) {
			if (strncmp(environ[i], prefixes[k], strlen(prefixes[k])))
				continue;
			if (!strncmp(environ[i], "CEOVERLAP_SECRET=", 17))
				continue;
			length = strcspn(environ[i], "=");
			if (length >= sizeof(name) || environ[i][length] != '=')
				continue;
			memcpy(name, environ[i], length);
			name[length] = '\0';
			json_object_object_add(object, name, json_object_new_string(
				environ[i] + length + 1));
		}
	}
	return object;
}

const char *bench_report_nvls(const struct bench_options *options)
{
	const char *text = getenv("NCCL_NVLS_ENABLE");
	char *end;

	if (options->force_host || options->without_nccl)
		return NULL;
	if (!text || !*text)
		return "as NCCL chooses";
	if (!strtol(text, &end, 0) && end != text)
		return "off (NCCL_NVLS_ENABLE=0)";
	return "as NCCL_NVLS_ENABLE says";
}

struct json_object *bench_report_provenance(const struct bench_options *options,
					    const char *machine)
{
	struct json_object *object = json_object_new_object();
	struct utsname host;
	char now[32];
	time_t seconds = time(NULL);
	const char *nvls;
	struct tm utc;

	gmtime_r(&seconds, &utc);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &utc);
	json_object_object_add(object, "time", json_object_new_string(now));
	json_object_object_add(object, "ceoverlap", json_object_new_string(ceov_version()));
	json_object_object_add(object, "machine", json_object_new_string(machine));
	if (!uname(&host))
		json_object_object_add(object, "kernel",
				       json_object_new_string(host.release));
	json_object_object_add(object, "cpus",
			       json_object_new_int64(sysconf(_SC_NPROCESSORS_ONLN)));
	json_object_object_add(object, "seed",
			       json_object_new_int64((int64_t)options->seed));
	json_object_object_add(object, "samples", json_object_new_int64(options->n_samples));
	json_object_object_add(object, "warmup", json_object_new_int64(options->n_warmup));
	json_object_object_add(object, "nodes", json_object_new_int64(
			       options->n_nodes ? options->n_nodes : 1));
	json_object_object_add(object, "one_process",
			       json_object_new_boolean(options->one_process));
	nvls = bench_report_nvls(options);
	json_object_object_add(object, "nccl_nvls",
			       nvls ? json_object_new_string(nvls) : NULL);
	json_object_object_add(object, "environment", environment());
	return object;
}

int bench_report_write(const struct bench_options *options, struct json_object *report)
{
	const char *text = json_object_to_json_string_ext(report, JSON_C_TO_STRING_PRETTY);
	int r = -1;

	if (text)
		r = output_write(options->json_path, text);
	else
		fprintf(stderr, "ceoverlap-bench: no memory for the text of %s\n",
			options->json_path);
	json_object_put(report);
	return r;
}

int bench_report_json(const struct bench_options *options, const struct bench_row *rows,
		      uint32_t n_rows, const char *machine, int is_complete)
{
	struct json_object *report = json_object_new_object();
	struct json_object *list = json_object_new_array();
	struct json_object *origin = bench_report_provenance(options, machine);
	uint32_t i;

	json_object_object_add(origin, "mark_group_bytes",
			       json_object_new_int64((int64_t)options->mark_group_bytes));
	json_object_object_add(origin, "n_targets",
			       json_object_new_int64((int64_t)options->n_targets));
	json_object_object_add(report, "schema_version", json_object_new_int(SCHEMA_VERSION));
	json_object_object_add(report, "provenance", origin);
	json_object_object_add(report, "complete", json_object_new_boolean(is_complete));
	for (i = 0; i < n_rows; i++)
		json_object_array_add(list, row_to_json(&rows[i]));
	json_object_object_add(report, "rows", list);
	return bench_report_write(options, report);
}
