/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Checks that trace files belong together, decides how each node's times are converted, and writes
 * them into one file. */

#include "tools/common/trace_merge.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <ceoverlap/ceoverlap.h>

#include "tools/common/output.h"
#include "tools/common/trace_part.h"
#include "tools/common/trace_scan.h"

enum clock {
	CLOCK_REFERENCE,                /* times stay: of rank 0's node, or of the only node */
	CLOCK_MEASURED,
	CLOCK_UNKNOWN,                  /* times stay, and mean something else than others */
};

struct node {
	const struct trace_part *any;           /* NULL: no file is of this node */
	const struct trace_part *measured;      /* has the offsets; NULL: none has */
	enum clock               clock;
};

struct merge {
	struct trace_part *parts;
	uint32_t           n_parts;
	struct node       *nodes;
	uint32_t           n_nodes;
	uint32_t          *of_rank;     /* 1 + the number of the part that has it; 0: none */
	FILE              *out;
	int                has_events;
	const struct trace_part *part;  /* the one that is written */
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
	va_list arguments;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

/* --- what belongs together ---------------------------------------------------------------- */

static int check_group(const struct trace_part *first, const struct trace_part *part)
{
	if (strcmp(part->group, first->group) || part->n_group_ranks != first->n_group_ranks ||
	    part->n_nodes != first->n_nodes) {
		say("%s: it is of another group than %s: %u ranks on %u nodes, group %s, not %u "
		    "on %u, group %s", part->path, first->path, part->n_group_ranks,
		    part->n_nodes, part->group, first->n_group_ranks, first->n_nodes,
		    first->group);
		return -1;
	}
	return 0;
}

static int enter_ranks(struct merge *merge, uint32_t number)
{
	const struct trace_part *part = &merge->parts[number];
	uint32_t i, *owner;

	for (i = 0; i < part->n_ranks; i++) {
		owner = &merge->of_rank[part->ranks[i]];
		if (*owner) {
			say("%s: rank %u is in %s, too", part->path, part->ranks[i],
			    merge->parts[*owner - 1].path);
			return -1;
		}
		*owner = number + 1;
	}
	return 0;
}

static int enter_node(struct merge *merge, const struct trace_part *part)
{
	struct node *node = &merge->nodes[part->node];

	node->any = node->any ? node->any : part;
	if (!part->n_offsets)
		return 0;
	if (node->measured) {
		say("%s: it has offsets of the clock of node %u, and so has %s", part->path,
		    part->node, node->measured->path);
		return -1;
	}
	node->measured = part;
	return 0;
}

static int read_parts(struct merge *merge, const char *const *paths)
{
	uint32_t i;

	for (i = 0; i < merge->n_parts; i++)
		if (trace_part_read(paths[i], &merge->parts[i]) ||
		    check_group(&merge->parts[0], &merge->parts[i]))
			return -1;
	merge->n_nodes = merge->parts[0].n_nodes;
	merge->nodes = calloc(merge->n_nodes, sizeof(*merge->nodes));
	if (!merge->nodes) {
		say("no memory for %u nodes", merge->n_nodes);
		return -1;
	}
	for (i = 0; i < merge->n_parts; i++)
		if (enter_ranks(merge, i) || enter_node(merge, &merge->parts[i]))
			return -1;
	return 0;
}

/* --- clocks --------------------------------------------------------------------------------- */

static const struct cei_clock_offset *last_offset(const struct trace_part *part)
{
	return &part->offsets[part->n_offsets - 1];
}

static void warn(const struct merge *merge, const struct node *node, const char *why)
{
	const struct trace_part *part = node->any;

	say("warning: node %u (%s): how far its clock is from that of rank 0's node is not known: "
	    "%s%s; its times are of its own clock and cannot be compared with those of other nodes",
	    part->node, part->node_name, why,
	    merge->of_rank[part->measurer] ? "" : " (it is not among the files)");
}

static enum clock clock_of(const struct merge *merge, const struct node *node, int is_alone)
{
	char why[80];

	if (!(node - merge->nodes) || (is_alone && !node->measured))
		return CLOCK_REFERENCE;
	if (!node->measured) {
		snprintf(why, sizeof(why), "the file of rank %u has to tell, and does not",
			 node->any->measurer);
		warn(merge, node, why);
		return CLOCK_UNKNOWN;
	}
	if (!cei_clock_offsets_agree(&node->measured->offsets[0], last_offset(node->measured))) {
		warn(merge, node, "what was measured at the open and at the close contradict each "
		     "other");
		return CLOCK_UNKNOWN;
	}
	if (node->measured->n_offsets == 1)
		say("warning: node %u (%s): how its clock drifts is not known, since it was "
		    "measured only once; times that are far from then are inexact",
		    node->any->node, node->any->node_name);
	return CLOCK_MEASURED;
}

static void choose_clocks(struct merge *merge)
{
	uint32_t i, n = 0;

	for (i = 0; i < merge->n_nodes; i++)
		n += merge->nodes[i].any != NULL;
	for (i = 0; i < merge->n_nodes; i++)
		if (merge->nodes[i].any)
			merge->nodes[i].clock = clock_of(merge, &merge->nodes[i], n == 1);
}

static int convert(const struct merge *merge, const struct trace_part *part, uint64_t *ns)
{
	const struct node *node = &merge->nodes[part->node];

	if (node->clock != CLOCK_MEASURED)
		return 0;
	return cei_clock_convert(&node->measured->offsets[0], last_offset(node->measured), *ns,
				 ns);
}

/* Whether the earliest and the latest time can be converted; then all between can. */
static int check_times(const struct merge *merge)
{
	const struct trace_part *part;
	uint64_t first_ns, last_ns;
	uint32_t i;

	for (i = 0; i < merge->n_parts; i++) {
		part = &merge->parts[i];
		first_ns = part->first_ns;
		last_ns = part->last_ns;
		if (!part->n_timed || (!convert(merge, part, &first_ns) &&
				       !convert(merge, part, &last_ns)))
			continue;
		say("%s: by the offset of its node's clock, its events were before the clock of "
		    "rank 0's node began", part->path);
		return -1;
	}
	return 0;
}

/* --- writing -------------------------------------------------------------------------------- */

static void comma(struct merge *merge)
{
	fputs(merge->has_events ? ",\n" : "\n", merge->out);
	merge->has_events = 1;
}

static const char *write_event(void *arg, struct json_object *event)
{
	struct merge *merge = arg;
	uint64_t begin_ns = 0, end_ns = 0;
	const char *text;
	int is_timed;

	if (trace_event_times(event, &is_timed, &begin_ns, &end_ns) ||
	    (is_timed && (convert(merge, merge->part, &begin_ns) ||
			  convert(merge, merge->part, &end_ns))))
		return "it has changed since it was checked";
	if (is_timed) {
		trace_set_time(event, "ts", begin_ns);
		if (json_object_object_get(event, "dur"))
			trace_set_time(event, "dur", end_ns - begin_ns);
	}
	text = json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN |
					      JSON_C_TO_STRING_NOSLASHESCAPE);
	if (!text)
		return "no memory to write it";
	comma(merge);
	fputs(text, merge->out);
	return NULL;
}

static const char *skip_data(void *arg, struct json_object *data)
{
	(void)arg;
	(void)data;
	return NULL;
}

/* Between two offsets a time is at most as wrong as the worse of them. */
static uint64_t bound_of(const struct trace_part *part)
{
	uint64_t first_ns = part->offsets[0].within_ns, last_ns = last_offset(part)->within_ns;

	return first_ns > last_ns ? first_ns : last_ns;
}

/* Names the node beside each rank, and what is known of its clock. */
static void label_ranks(struct merge *merge)
{
	const struct trace_part *part = merge->part;
	const struct node *node = &merge->nodes[part->node];
	struct json_object *text;
	char label[160];
	uint32_t i;

	if (node->clock == CLOCK_MEASURED)
		snprintf(label, sizeof(label), "node %u, %s, clock within %" PRIu64 " ns%s",
			 part->node, part->node_name, bound_of(node->measured),
			 node->measured->n_offsets == 1 ? " when it was measured" : "");
	else
		snprintf(label, sizeof(label), "node %u, %s%s", part->node, part->node_name,
			 node->clock == CLOCK_UNKNOWN ? ", clock unknown" : "");
	text = json_object_new_string(label);
	for (i = 0; i < part->n_ranks; i++) {
		comma(merge);
		fprintf(merge->out, "{\"name\":\"process_labels\",\"ph\":\"M\",\"pid\":%u,"
			"\"args\":{\"labels\":%s}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\","
			"\"pid\":%u,\"args\":{\"sort_index\":%u}}", part->ranks[i],
			json_object_to_json_string_ext(text, JSON_C_TO_STRING_PLAIN),
			part->ranks[i], part->ranks[i]);
	}
	json_object_put(text);
}

/* "offsets" is what the measuring process wrote; null: unknown, or not needed. */
static void write_node(struct merge *merge, const struct node *node)
{
	static const char *const clocks[] = { "reference", "measured", "unknown" };
	struct json_object *name = json_object_new_string(node->any->node_name);
	uint32_t i;

	fprintf(merge->out, "{\"node\":%u,\"node_name\":%s,\"clock\":\"%s\",\"offsets\":[",
		node->any->node, json_object_to_json_string_ext(name, JSON_C_TO_STRING_PLAIN),
		clocks[node->clock]);
	for (i = 0; node->measured && i < node->measured->n_offsets; i++)
		fprintf(merge->out, "%s{\"at_ns\":%" PRIu64 ",\"ahead_ns\":%" PRId64
			",\"within_ns\":%" PRIu64 "}", i ? "," : "",
			node->measured->offsets[i].at_ns, node->measured->offsets[i].ahead_ns,
			node->measured->offsets[i].within_ns);
	fputs("]}", merge->out);
	json_object_put(name);
}

static void write_data(struct merge *merge)
{
	uint64_t n_dropped = 0, n_unfinished = 0;
	const char *between = "";
	uint32_t i;

	for (i = 0; i < merge->n_parts; i++) {
		n_dropped += merge->parts[i].n_dropped;
		n_unfinished += merge->parts[i].n_unfinished;
	}
	fprintf(merge->out, "\n],\"otherData\":{\"ceoverlap\":\"%s\",\"clock\":\"merged\","
		"\"dropped_chunks\":%" PRIu64 ",\"unfinished_chunks\":%" PRIu64 ",\"files\":%u,"
		"\"nodes\":[", ceov_version(), n_dropped, n_unfinished, merge->n_parts);
	for (i = 0; i < merge->n_nodes; i++) {
		if (!merge->nodes[i].any)
			continue;
		fputs(between, merge->out);
		between = ",";
		write_node(merge, &merge->nodes[i]);
	}
	fputs("]}}\n", merge->out);
}

static int write_all(struct merge *merge)
{
	struct trace_scan_calls calls = { write_event, skip_data, merge };
	uint32_t i;

	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", merge->out);
	for (i = 0; i < merge->n_parts; i++) {
		merge->part = &merge->parts[i];
		if (trace_scan(merge->part->path, &calls))
			return -1;
		label_ranks(merge);
	}
	write_data(merge);
	return 0;
}

/* --- all of it ------------------------------------------------------------------------------ */

/* The new file must not take the place of one that it is made of: it would be lost. */
static int check_target(const struct merge *merge, const char *path)
{
	struct stat status;
	uint32_t i;

	if (stat(path, &status))
		return 0;
	for (i = 0; i < merge->n_parts; i++)
		if (merge->parts[i].device == status.st_dev &&
		    merge->parts[i].inode == status.st_ino) {
			say("%s: it is one of the files to join", path);
			return -1;
		}
	return 0;
}

static int read_and_write(struct merge *merge, const char *const *paths, const char *path)
{
	struct output output;

	if (read_parts(merge, paths))
		return -1;
	choose_clocks(merge);
	if (check_times(merge) || check_target(merge, path) || output_open(&output, path))
		return -1;
	merge->out = output.stream;
	if (write_all(merge)) {
		output_drop(&output);
		return -1;
	}
	return output_close(&output);
}

int trace_merge(const char *const *paths, uint32_t n_paths, const char *path)
{
	struct merge merge = { .n_parts = n_paths };
	int r = -1;

	merge.parts = calloc(n_paths, sizeof(*merge.parts));
	merge.of_rank = calloc(CEI_RANKS_MAX, sizeof(*merge.of_rank));
	if (!n_paths)
		say("no file to join");
	else if (!merge.parts || !merge.of_rank)
		say("no memory for %u files", n_paths);
	else
		r = read_and_write(&merge, paths, path);
	free(merge.parts);
	free(merge.of_rank);
	free(merge.nodes);
	return r;
}
