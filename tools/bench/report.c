/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Rows of the cases, and what all reports have: date, machine, versions. */

#include "tools/bench/bench.h"
#include "tools/common/cells.h"
#include "tools/common/output.h"

#include <json-c/json.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#define BRIEF_COLUMNS 80u

extern char **environ;

const char *bench_mode_name(enum bench_mode mode)
{
	switch (mode) {
	case BENCH_OURS:    return "ours";
	case BENCH_RAW:     return "raw";
	case BENCH_NCCL_SM: return "nccl_sm";
	case BENCH_NCCL_CE: return "nccl_ce";
	}
	return "?";
}

void bench_report_head(FILE *out, int is_gpu, int has_nccl)
{
	fprintf(out, "# times in us (max over ranks); vs X: time of X / time of ours, above 1: "
		"ours is faster; algbw, busbw: GB/s\n# raw: %s%s\n",
		is_gpu ? "the driver's calls, by hand"
		: "memcpy in one thread, which hands nothing over and wakes nobody",
		has_nccl ? "; SM, CE: NCCL's default and zero-CTA collectives" : "");
}

void bench_note(const struct bench_options *options, const char *format, ...)
{
	size_t width = options->is_brief ? BRIEF_COLUMNS - 2 : SIZE_MAX, n, used = 0;
	char text[512], *word = text;
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	putchar('#');
	for (; *word; word += n + (word[n] != '\0')) {
		n = strcspn(word, " ");
		if (used && used + 1 + n > width) {
			fputs("\n#  ", stdout);
			used = 2;
		}
		used += (size_t)printf(" %.*s", (int)n, word);
	}
	putchar('\n');
}

/* Adds how long the two levels of a gather over nodes took, each alone. */
static void add_levels(struct cells *cells, const struct bench_row *row)
{
	double longer = row->us_within > row->us_between ? row->us_within : row->us_between;

	if (row->us_between <= 0)
		return;
	cells_measured(cells, "us_within_node", "alone within the node, us:.2",
			     row->us_within);
	cells_measured(cells, "us_between_nodes", "alone between nodes, us:.2",
			     row->us_between);
	cells_optional(cells, "ratio_longer_level", "both together / the longer one:.2",
			     row->us_median / longer);
}

/* A brief table has the pair of ranks behind the case. */
static void add_subject(struct cells *cells, const struct bench_row *row)
{
	const char *variant = row->variant[0] ? row->variant : NULL;
	char pair[32] = "-", brief[64];

	snprintf(brief, sizeof(brief), "%s", row->test);
	if (row->source >= 0) {
		snprintf(pair, sizeof(pair), "%d>%d", row->source, row->target);
		snprintf(brief, sizeof(brief), "%s %s", row->test, pair);
	}
	cells_text(cells, NULL, cells->is_brief ? "case:-14!" : NULL, brief);
	cells_text(cells, "case", "case:-14", row->test);
	cells_text(cells, "mode", "mode:-7!", bench_mode_name(row->mode));
	cells_text(cells, variant ? "trigger" : NULL, "trigger:-8!", variant);
	cells_integer(cells, "ranks", "ranks:5", row->ranks);
	cells_text(cells, NULL, "pair:7", pair);
	if (row->source >= 0) {
		cells_integer(cells, "source", NULL, (uint64_t)row->source);
		cells_integer(cells, "target", NULL, (uint64_t)row->target);
	}
	cells_integer(cells, "bytes_per_rank", "bytes:10!", row->bytes_per_rank);
}

void bench_fill_row(struct cells *cells, const struct bench_row *row, int is_brief)
{
	cells_begin(cells);
	cells->is_brief = is_brief;
	add_subject(cells, row);
	cells_integer(cells, "chunk_bytes", NULL, row->chunk_bytes);
	cells_measured(cells, "us_median", "median:8.2!", row->us_median);
	cells_measured(cells, "us_min", NULL, row->us_min);
	cells_measured(cells, "us_p99", "p99:8.2", row->us_p99);
	cells_measured(cells, "algbw_gb_per_s", "algbw:6.2!", row->algorithm_gb_per_s);
	cells_measured(cells, "gb_per_s", "busbw:6.2!", row->gb_per_s);
	cells_optional(cells, "ratio_raw", "vs raw:6.3", row->ratio_raw);
	cells_optional(cells, "ratio_nccl_sm", "vs SM:6.3", row->ratio_nccl_sm);
	cells_optional(cells, "ratio_nccl_ce", "vs CE:6.3", row->ratio_nccl_ce);
	cells_verified(cells, "verified", "data:-9!", row->verified);
	cells_optional(cells, "cpu_s_per_gib", "processor time, s a GiB:.3",
			     row->cpu_s_per_gib);
	cells_optional(cells, "us_call", "the thread's time of a call, us:.2", row->us_call);
	add_levels(cells, row);
}

/* Lists the environment variables of this library, the driver and NCCL; the rest of the environment
 * is private, and so is the secret that earlier versions read. */
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

static struct json_object *provenance(const struct bench_options *options, const char *machine)
{
	struct cells cells;
	struct utsname host;
	char now[32];
	time_t seconds = time(NULL);
	struct tm utc;

	gmtime_r(&seconds, &utc);
	strftime(now, sizeof(now), "%Y-%m-%dT%H:%M:%SZ", &utc);
	cells_begin(&cells);
	cells_text(&cells, "time", NULL, now);
	cells_text(&cells, "ceoverlap", NULL, ceov_version());
	cells_text(&cells, "command", NULL, options->command);
	cells_text(&cells, "machine", NULL, machine);
	if (!uname(&host))
		cells_text(&cells, "kernel", NULL, host.release);
	cells_integer(&cells, "cpus", NULL, (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	cells_integer(&cells, "seed", NULL, options->seed);
	cells_integer(&cells, "samples", NULL, options->n_samples);
	cells_integer(&cells, "warmup", NULL, options->n_warmup);
	cells_integer(&cells, "nodes", NULL, options->n_nodes ? options->n_nodes : 1);
	cells_add(&cells, "one_process", json_object_new_boolean(options->one_process));
	cells_text(&cells, "nccl_nvls", NULL, bench_report_nvls(options));
	cells_integer(&cells, "mark_group_bytes", NULL, options->mark_group_bytes);
	cells_integer(&cells, "n_targets", NULL, options->n_targets);
	cells_add(&cells, "environment", environment());
	return cells_take(&cells);
}

struct json_object *bench_report_begin(struct cells *report,
				       const struct bench_options *options, const char *machine,
				       int version)
{
	struct json_object *origin = provenance(options, machine);

	cells_begin(report);
	cells_integer(report, "schema_version", NULL, (uint64_t)version);
	cells_add(report, "provenance", origin);
	return origin;
}

int bench_report_end(struct cells *report, const struct bench_options *options)
{
	const char *text = json_object_to_json_string_ext(report->object,
							  JSON_C_TO_STRING_PRETTY);
	int r = 0;

	if (options->json_path && text)
		r = output_write(options->json_path, text);
	else if (options->json_path)
		r = -1;
	if (!text)
		fprintf(stderr, "ceoverlap-bench: no memory for the report\n");
	cells_end(report);
	return r;
}
