/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reads what a trace file says of itself, and checks its events against it. */

#include "tools/common/trace_part.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/common/trace_scan.h"

struct reading {
	struct trace_part *part;
	uint32_t           n_pids;      /* that events have: ranks, each once */
	uint32_t           pids[CEI_MEMBERS_MAX];
};

int trace_event_times(struct json_object *event, int *ret_is_timed, uint64_t *ret_begin_ns,
		      uint64_t *ret_end_ns)
{
	const char *phase = json_object_get_string(json_object_object_get(event, "ph"));
	uint64_t ns = 0;

	*ret_is_timed = phase && strcmp(phase, "M");
	if (!*ret_is_timed)
		return phase ? 0 : -1;
	if (trace_time(event, "ts", ret_begin_ns))
		return -1;
	if (json_object_object_get(event, "dur") && trace_time(event, "dur", &ns))
		return -1;
	*ret_end_ns = *ret_begin_ns + ns;
	return 0;
}

static const char *take_event(void *arg, struct json_object *event)
{
	struct reading *reading = arg;
	struct trace_part *part = reading->part;
	uint64_t pid, begin_ns = 0, end_ns = 0;
	int is_timed;
	uint32_t i;

	if (trace_number(event, "pid", CEI_RANKS_MAX - 1, &pid))
		return "its pid is no rank";
	for (i = 0; i < reading->n_pids && reading->pids[i] != pid; i++)
		continue;
	if (i == CEI_MEMBERS_MAX)
		return "it is of one more rank than a process can have";
	reading->pids[i] = (uint32_t)pid;
	reading->n_pids += i == reading->n_pids;
	if (trace_event_times(event, &is_timed, &begin_ns, &end_ns))
		return "it has no phase, or no time that makes sense";
	if (!is_timed)
		return NULL;
	if (!part->n_timed || begin_ns < part->first_ns)
		part->first_ns = begin_ns;
	if (end_ns > part->last_ns)
		part->last_ns = end_ns;
	part->n_timed++;
	return NULL;
}

/* A number of 32 bits. */
static int take_u32(struct json_object *object, const char *key, uint64_t most,
		    uint32_t *ret_number)
{
	uint64_t number;

	if (trace_number(object, key, most, &number))
		return -1;
	*ret_number = (uint32_t)number;
	return 0;
}

static int take_ranks(struct trace_part *part, struct json_object *list)
{
	struct json_object *rank;
	size_t i, n;

	if (!json_object_is_type(list, json_type_array))
		return -1;
	n = json_object_array_length(list);
	if (n < 1 || n > CEI_MEMBERS_MAX)
		return -1;
	for (i = 0; i < n; i++) {
		rank = json_object_array_get_idx(list, i);
		if (!json_object_is_type(rank, json_type_int) ||
		    json_object_get_int64(rank) < 0 ||
		    json_object_get_int64(rank) >= part->n_group_ranks)
			return -1;
		part->ranks[i] = (uint32_t)json_object_get_int64(rank);
	}
	part->n_ranks = (uint32_t)n;
	return 0;
}

static int take_offset(struct json_object *object, struct cei_clock_offset *ret_offset)
{
	struct json_object *ahead = json_object_object_get(object, "ahead_ns");

	if (!json_object_is_type(object, json_type_object) ||
	    trace_number(object, "at_ns", INT64_MAX, &ret_offset->at_ns) ||
	    trace_number(object, "within_ns", INT64_MAX, &ret_offset->within_ns) ||
	    !json_object_is_type(ahead, json_type_int))
		return -1;
	ret_offset->ahead_ns = json_object_get_int64(ahead);
	return cei_clock_offset_is_valid(ret_offset) ? 0 : -1;
}

static int take_offsets(struct trace_part *part, struct json_object *list)
{
	size_t i, n;

	if (!json_object_is_type(list, json_type_array))
		return -1;
	n = json_object_array_length(list);
	if (n > CEI_NETWORK_CLOCK_OFFSETS_MAX)
		return -1;
	for (i = 0; i < n; i++)
		if (take_offset(json_object_array_get_idx(list, i), &part->offsets[i]))
			return -1;
	part->n_offsets = (uint32_t)n;
	return n == 2 && part->offsets[0].at_ns > part->offsets[1].at_ns ? -1 : 0;
}

static const char *take_origin(struct trace_part *part, struct json_object *origin)
{
	if (take_u32(origin, "group_ranks", CEI_RANKS_MAX, &part->n_group_ranks) ||
	    take_ranks(part, json_object_object_get(origin, "ranks")) ||
	    take_u32(origin, "nodes", CEI_RANKS_MAX, &part->n_nodes) ||
	    take_u32(origin, "node", CEI_RANKS_MAX - 1, &part->node) ||
	    take_u32(origin, "process", CEI_RANKS_MAX - 1, &part->process) ||
	    take_u32(origin, "measurer", CEI_RANKS_MAX - 1, &part->measurer) ||
	    trace_text(origin, "node_name", part->node_name, sizeof(part->node_name)) ||
	    trace_text(origin, "group", part->group, sizeof(part->group)) ||
	    part->node >= part->n_nodes || part->measurer >= part->n_group_ranks)
		return "what it says of its ranks and its node makes no sense";
	if (take_offsets(part, json_object_object_get(origin, "offsets")))
		return "what it says of its node's clock makes no sense";
	return NULL;
}

static const char *take_data(void *arg, struct json_object *data)
{
	struct trace_part *part = ((struct reading *)arg)->part;
	struct json_object *origin = json_object_object_get(data, "origin");
	char clock[16];

	if (trace_text(data, "clock", clock, sizeof(clock)))
		return "it does not say what its clock is: ceoverlap has not written it";
	if (!strcmp(clock, "merged"))
		return "it is joined already: name the files that it was made of";
	if (strcmp(clock, "monotonic") ||
	    trace_number(data, "dropped_chunks", INT64_MAX, &part->n_dropped) ||
	    trace_number(data, "unfinished_chunks", INT64_MAX, &part->n_unfinished))
		return "ceoverlap has not written it";
	if (!json_object_is_type(origin, json_type_object))
		return "it does not say of which ranks it is: an older ceoverlap has written it";
	return take_origin(part, origin);
}

static int is_own(const struct trace_part *part, uint32_t rank)
{
	uint32_t i;

	for (i = 0; i < part->n_ranks; i++)
		if (part->ranks[i] == rank)
			return 1;
	return 0;
}

/* Events of another process's ranks would get among its own. */
static int check_pids(const struct reading *reading)
{
	const struct trace_part *part = reading->part;
	uint32_t i;

	for (i = 0; i < reading->n_pids; i++)
		if (!is_own(part, reading->pids[i])) {
			fprintf(stderr, "%s: %s: it has events of rank %u, which its process does "
				"not have\n", program_invocation_short_name, part->path,
				reading->pids[i]);
			return -1;
		}
	if (!part->n_offsets || is_own(part, part->measurer))
		return 0;
	fprintf(stderr, "%s: %s: it has offsets of a clock that rank %u measures\n",
		program_invocation_short_name, part->path, part->measurer);
	return -1;
}

int trace_part_read(const char *path, struct trace_part *ret_part)
{
	struct reading reading = { .part = ret_part };
	struct trace_scan_calls calls = { take_event, take_data, &reading };
	struct stat status;

	memset(ret_part, 0, sizeof(*ret_part));
	ret_part->path = path;
	if (trace_scan(path, &calls))
		return -1;
	if (stat(path, &status)) {
		fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, path,
			strerror(errno));
		return -1;
	}
	ret_part->device = status.st_dev;
	ret_part->inode = status.st_ino;
	return check_pids(&reading);
}
