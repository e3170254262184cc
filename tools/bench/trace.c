/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads and merges trace files. */

#include "tools/bench/trace.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/program.h"

#define PART_BYTES 4096u

static void part_path(char *text, size_t n_bytes, const char *path, uint32_t rank)
{
	snprintf(text, n_bytes, "%s.rank%u", path, rank);
}

int bench_trace_merge(const char *path, uint32_t n_ranks)
{
	const char *arguments[BENCH_RANKS_MAX + 4] = { "ceoverlap-trace", "-o", path };
	char parts[BENCH_RANKS_MAX][PART_BYTES];
	uint32_t i, n = 0;
	int r;

	for (i = 0; i < n_ranks; i++) {
		part_path(parts[n], sizeof(parts[n]), path, i);
		if (access(parts[n], F_OK))
			continue;
		arguments[3 + n] = parts[n];
		n++;
	}
	if (!n)
		return 0;
	r = bench_program_run(arguments, stderr);
	for (i = 0; !r && i < n; i++)
		(void)unlink(parts[i]);
	if (r)
		fprintf(stderr, "ceoverlap-bench: the traces of the ranks are left in %s.rank*\n",
			path);
	return r;
}

/* --- spans ---------------------------------------------------------------- */

static int64_t number(struct json_object *object, const char *key)
{
	return json_object_get_int64(json_object_object_get(object, key));
}

static int read_span(struct json_object *event, struct bench_trace_span *span)
{
	struct json_object *args = json_object_object_get(event, "args");
	const char *phase = json_object_get_string(json_object_object_get(event, "ph"));
	const char *route;

	if (!args || !phase || strcmp(phase, "X"))
		return 0;
	memset(span, 0, sizeof(*span));
	span->rank = (uint32_t)number(event, "pid");
	span->lane = (uint32_t)number(event, "tid");
	span->launch = (uint64_t)number(args, "launch");
	span->transfer = (uint32_t)number(args, "transfer");
	span->bytes = (uint64_t)number(args, "bytes");
	span->begin_us = json_object_get_double(json_object_object_get(event, "ts"));
	span->end_us = span->begin_us +
		json_object_get_double(json_object_object_get(event, "dur"));
	route = json_object_get_string(json_object_object_get(args, "route"));
	snprintf(span->route, sizeof(span->route), "%s", route ? route : "?");
	return 1;
}

/* Keeps the span if it belongs to the newest launch of its rank; spans of older ones are
 * dropped. */
static void keep(struct bench_trace *trace, const struct bench_trace_span *span)
{
	uint32_t i, n = 0;

	for (i = 0; i < trace->n; i++)
		if (trace->spans[i].rank == span->rank &&
		    trace->spans[i].launch > span->launch)
			return;
	for (i = 0; i < trace->n; i++)
		if (trace->spans[i].rank != span->rank ||
		    trace->spans[i].launch == span->launch)
			trace->spans[n++] = trace->spans[i];
	trace->n = n;
	if (trace->n < BENCH_TRACE_SPANS_MAX)
		trace->spans[trace->n++] = *span;
}

int bench_trace_read_last(const char *path, struct bench_trace *ret_trace)
{
	struct json_object *file = json_object_from_file(path), *events;
	struct bench_trace_span span;
	size_t i;

	ret_trace->n = 0;
	events = file ? json_object_object_get(file, "traceEvents") : NULL;
	if (!events) {
		fprintf(stderr, "ceoverlap-bench: cannot read the trace %s\n", path);
		json_object_put(file);
		return -1;
	}
	for (i = 0; i < json_object_array_length(events); i++)
		if (read_span(json_object_array_get_idx(events, i), &span))
			keep(ret_trace, &span);
	json_object_put(file);
	return 0;
}
