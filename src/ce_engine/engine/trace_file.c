/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes the trace file from the engines' records. */

#include "ce_engine/engine/trace_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "ce_engine/engine/trace_origin.h"
#include "ce_engine/sched/trace.h"

#define ROUTE_BYTES 48u

struct writer {
	FILE                    *out;
	const struct cei_engine *engine;
	int                      has_events;
	uint64_t                 n_dropped;
	uint64_t                 n_unfinished;
};

static const struct slice {
	const char          *name;
	enum cei_trace_stage from;
	enum cei_trace_stage to;
} slices[] = {
	{ "doorbell", CEI_TRACE_ARMED, CEI_TRACE_READY },
	{ "scheduler", CEI_TRACE_READY, CEI_TRACE_PICKED },
	{ "backend", CEI_TRACE_PICKED, CEI_TRACE_DONE },
	{ "completion", CEI_TRACE_DONE, CEI_TRACE_FINISHED },
};

static void comma(struct writer *writer)
{
	fputs(writer->has_events ? ",\n" : "\n", writer->out);
	writer->has_events = 1;
}

static void name_process(struct writer *writer)
{
	const struct cei_engine *engine = writer->engine;

	comma(writer);
	fprintf(writer->out, "{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":"
		"{\"name\":\"rank %u (%s)\"}}", engine->rank, engine->rank,
		engine->backend->ops->name);
}

static const char *lane_name(enum cei_direction direction)
{
	switch (direction) {
	case CEI_DIRECTION_IN:  return "in";
	case CEI_DIRECTION_OUT: return "out";
	case CEI_DIRECTION_ANY: return "gated";
	default:                return "peer";
	}
}

static void name_lane(struct writer *writer, uint32_t lane)
{
	comma(writer);
	fprintf(writer->out, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,"
		"\"args\":{\"name\":\"lane %u (%s)\"}}", writer->engine->rank, lane + 1, lane,
		lane_name(writer->engine->lanes.states[lane]->lane.direction));
}

/* Whether the record has a time for each stage, none earlier than the stage before. */
static int is_whole(const struct cei_trace_record *record)
{
	uint32_t stage;

	for (stage = 0; stage < CEI_TRACE_STAGES; stage++)
		if (!record->at_ns[stage] ||
		    (stage && record->at_ns[stage] < record->at_ns[stage - 1]))
			return 0;
	return 1;
}

/* Microseconds with their nanoseconds, without the rounding of a double. */
static void write_time(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, ",\"%s\":%" PRIu64 ".%03" PRIu64, key, ns / 1000, ns % 1000);
}

/* "peer", or "peer via gpu3"; text has ROUTE_BYTES. */
static const char *route_of(const struct writer *writer, const struct cei_trace_record *record,
			    char *text)
{
	const struct cei_machine *machine = writer->engine->topology->machine;
	const char *path = cei_direction_name((enum cei_direction)record->direction);
	char place[16];

	if (record->via == CEOV_NOBODY || !machine)
		snprintf(text, ROUTE_BYTES, "%s", path);
	else
		snprintf(text, ROUTE_BYTES, "%s via %s", path,
			 cei_machine_place_name(machine, record->via, place));
	return text;
}

/* What the transfer is part of: "all_gather"; "plan" for one of the caller's own. */
static const char *operator_of(const struct cei_trace_record *record)
{
	static const char prefix[] = "ceov_";
	const char *label = record->label ? record->label : "plan";

	return strncmp(label, prefix, sizeof(prefix) - 1) ? label : label + sizeof(prefix) - 1;
}

static void write_rank(FILE *out, const char *key, uint32_t rank)
{
	if (rank != CEOV_NOBODY)
		fprintf(out, ",\"%s\":%u", key, rank);
}

/* The operator, and the ranks that there are. */
static void write_whose(FILE *out, const struct cei_trace_record *record)
{
	fprintf(out, ",\"op\":\"%s\"", operator_of(record));
	write_rank(out, "from", record->from);
	write_rank(out, "to", record->to);
	write_rank(out, "awaited", record->awaited);
}

static void write_what(struct writer *writer, const struct cei_trace_record *record)
{
	char route[ROUTE_BYTES];

	fprintf(writer->out, ",\"args\":{\"launch\":%" PRIu64 ",\"transfer\":%u,\"chunk\":%u,"
		"\"leg\":%u,\"bytes\":%" PRIu64 ",\"route\":\"%s\",\"lane\":%u",
		record->launch, record->transfer, record->chunk, record->leg, record->bytes,
		route_of(writer, record, route), record->lane);
	write_whose(writer->out, record);
	fputc('}', writer->out);
}

static void write_slice(struct writer *writer, const struct cei_trace_record *record,
			uint64_t number, const struct slice *slice)
{
	uint32_t is_end;

	for (is_end = 0; is_end < 2; is_end++) {
		comma(writer);
		fprintf(writer->out, "{\"name\":\"%s\",\"cat\":\"stage\",\"ph\":\"%c\","
			"\"id\":\"%u.%" PRIu64 ".%c\",\"pid\":%u,\"tid\":%u", slice->name,
			is_end ? 'e' : 'b', writer->engine->rank, number, slice->name[0],
			writer->engine->rank, record->lane + 1);
		write_time(writer->out, "ts",
			   record->at_ns[is_end ? slice->to : slice->from]);
		if (!is_end)
			write_what(writer, record);
		fputc('}', writer->out);
	}
}

/* One submit of a lane, shown from when the lane began it until it was done. */
struct line {
	uint64_t submit;
	uint64_t begin_ns;
	uint64_t end_ns;
	uint64_t bytes;
	uint32_t n_chunks;
	struct cei_trace_record first;
};

static void write_line(struct writer *writer, uint32_t lane, const struct line *line)
{
	char more[40] = "", route[ROUTE_BYTES];

	if (!line->n_chunks)
		return;
	route_of(writer, &line->first, route);
	if (line->n_chunks > 1)
		snprintf(more, sizeof(more), " + %u more", line->n_chunks - 1);
	comma(writer);
	fprintf(writer->out, "{\"name\":\"transfer %u%s, %" PRIu64 " bytes, %s\",\"cat\":"
		"\"lane\",\"ph\":\"X\",\"pid\":%u,\"tid\":%u", line->first.transfer, more,
		line->bytes, route, writer->engine->rank, lane + 1);
	write_time(writer->out, "ts", line->begin_ns);
	write_time(writer->out, "dur", line->end_ns - line->begin_ns);
	fprintf(writer->out, ",\"args\":{\"launch\":%" PRIu64 ",\"transfer\":%u,\"chunk\":%u,"
		"\"chunks\":%u,\"bytes\":%" PRIu64 ",\"leg\":%u,\"route\":\"%s\"",
		line->first.launch, line->first.transfer, line->first.chunk, line->n_chunks,
		line->bytes, line->first.leg, route);
	write_whose(writer->out, &line->first);
	fputs("}}", writer->out);
}

/* A lane moves in order: a submit begins when it is handed over or the one before it
 * is done. */
static void add_to_line(struct writer *writer, uint32_t lane, struct line *line,
			const struct cei_trace_record *record)
{
	uint64_t before_ns = line->end_ns;

	if (line->submit != record->submit || !line->n_chunks) {
		write_line(writer, lane, line);
		line->submit = record->submit;
		line->first = *record;
		line->begin_ns = record->at_ns[CEI_TRACE_SUBMITTED];
		if (line->begin_ns < before_ns)
			line->begin_ns = before_ns;
		line->bytes = line->n_chunks = 0;
		line->end_ns = line->begin_ns;
	}
	line->n_chunks++;
	line->bytes += record->bytes;
	if (line->end_ns < record->at_ns[CEI_TRACE_DONE])
		line->end_ns = record->at_ns[CEI_TRACE_DONE];
}

static int compare(const void *left, const void *right)
{
	const struct cei_trace_record *a = *(const struct cei_trace_record *const *)left;
	const struct cei_trace_record *b = *(const struct cei_trace_record *const *)right;

	if (a->lane != b->lane)
		return a->lane < b->lane ? -1 : 1;
	if (a->submit != b->submit)
		return a->submit < b->submit ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static void write_lanes(struct writer *writer, const struct cei_trace_record **records,
			uint32_t n)
{
	struct line line = { .n_chunks = 0 };
	uint32_t i;

	qsort(records, n, sizeof(*records), compare);
	for (i = 0; i < n; i++) {
		if (!i || records[i]->lane != records[i - 1]->lane) {
			name_lane(writer, records[i]->lane);
			memset(&line, 0, sizeof(line));
		}
		add_to_line(writer, records[i]->lane, &line, records[i]);
		if (i + 1 == n || records[i + 1]->lane != records[i]->lane)
			write_line(writer, records[i]->lane, &line);
	}
}

static int write_engine(struct writer *writer)
{
	const struct cei_trace *trace = writer->engine->trace;
	const struct cei_trace_record **whole;
	uint64_t first = 0, number;
	uint32_t i, n = 0;

	whole = calloc(CEI_TRACE_RECORDS, sizeof(*whole));
	if (!whole)
		return CEOV_ERR_NO_MEMORY;
	name_process(writer);
	if (trace->n_taken > CEI_TRACE_RECORDS)
		first = trace->n_taken - CEI_TRACE_RECORDS;
	writer->n_dropped += first;
	for (number = first; number < trace->n_taken; number++) {
		const struct cei_trace_record *record =
			&trace->records[number % CEI_TRACE_RECORDS];

		if (!is_whole(record)) {
			writer->n_unfinished++;
			continue;
		}
		whole[n++] = record;
		for (i = 0; i < sizeof(slices) / sizeof(slices[0]); i++)
			write_slice(writer, record, number, &slices[i]);
	}
	write_lanes(writer, whole, n);
	free(whole);
	return 0;
}

static int write_all(struct writer *writer, const struct cei_site *site,
		     const struct cei_engine *engines)
{
	uint32_t i;
	int r = 0;

	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", writer->out);
	for (i = 0; !r && i < site->n_members; i++) {
		writer->engine = &engines[i];
		if (engines[i].trace)
			r = write_engine(writer);
	}
	fprintf(writer->out, "\n],\"otherData\":{\"ceoverlap\":\"%s\",\"clock\":\"monotonic\","
		"\"dropped_chunks\":%" PRIu64 ",\"unfinished_chunks\":%" PRIu64 ",\"origin\":",
		ceov_version(), writer->n_dropped, writer->n_unfinished);
	cei_trace_write_origin(site, writer->out);
	fputs("}}\n", writer->out);
	return r;
}

void cei_trace_write(const struct cei_site *site, const struct cei_engine *engines)
{
	char path[sizeof(site->trace_path) + 16];
	struct writer writer = { .out = NULL };
	int r, error;

	if (!site->trace_path[0])
		return;
	if (site->n_members == site->n_ranks)
		snprintf(path, sizeof(path), "%s", site->trace_path);
	else
		snprintf(path, sizeof(path), "%s.rank%u", site->trace_path,
			 site->members[0].rank);
	error = cei_file_create(path, &writer.out);
	if (error) {
		cei_log(site->report, CEI_LOG_ERROR, "the trace cannot be written to %s: %s",
			path, cei_file_fault(error));
		return;
	}
	r = write_all(&writer, site, engines);
	error = ferror(writer.out);
	if (fclose(writer.out) || error || r)
		cei_log(site->report, CEI_LOG_ERROR, "the trace in %s is not complete: %s",
			path, r ? ceov_strerror(r) : strerror(errno));
}
