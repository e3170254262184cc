/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads and merges trace files. */

#include "tools/bench/trace.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/output.h"

static void part_path(char *text, size_t n_bytes, const char *path, uint32_t rank)
{
	snprintf(text, n_bytes, "%s.rank%u", path, rank);
}

/* Appends the events of `from` to the target, and adds up both counts of dropped events. */
static void take_over(struct json_object *target, struct json_object *from)
{
	static const char *const sums[] = { "dropped_chunks", "unfinished_chunks" };
	struct json_object *events = json_object_object_get(target, "traceEvents");
	struct json_object *more = json_object_object_get(from, "traceEvents");
	struct json_object *data = json_object_object_get(target, "otherData");
	struct json_object *added = json_object_object_get(from, "otherData");
	int64_t sum;
	size_t i;

	for (i = 0; more && i < json_object_array_length(more); i++)
		json_object_array_add(events, json_object_get(
			json_object_array_get_idx(more, i)));
	for (i = 0; data && added && i < 2; i++) {
		sum = json_object_get_int64(json_object_object_get(data, sums[i])) +
			json_object_get_int64(json_object_object_get(added, sums[i]));
		json_object_object_add(data, sums[i], json_object_new_int64(sum));
	}
}

static struct json_object *read_part(const char *path, uint32_t rank)
{
	char part[4096];
	struct json_object *object;

	part_path(part, sizeof(part), path, rank);
	if (access(part, F_OK))
		return NULL;
	object = json_object_from_file(part);
	if (!object)
		fprintf(stderr, "ceoverlap-bench: cannot read the trace %s: %s\n", part,
			json_util_get_last_err());
	return object;
}

int bench_trace_merge(const char *path, uint32_t n_ranks)
{
	struct json_object *whole = NULL, *object;
	const char *text;
	char part[4096];
	uint32_t i;
	int r;

	for (i = 0; i < n_ranks; i++) {
		object = read_part(path, i);
		if (whole && object) {
			take_over(whole, object);
			json_object_put(object);
		} else if (object) {
			whole = object;
		}
	}
	if (!whole)
		return 0;
	text = json_object_to_json_string_ext(whole, JSON_C_TO_STRING_PLAIN);
	if (!text)
		fprintf(stderr, "ceoverlap-bench: no memory for the trace %s\n", path);
	r = text ? output_write(path, text) : -1;
	json_object_put(whole);
	for (i = 0; !r && i < n_ranks; i++) {
		part_path(part, sizeof(part), path, i);
		(void)unlink(part);
	}
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
