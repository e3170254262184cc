/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes whose events a trace file has. */

#include "ce_engine/engine/trace_origin.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "net/network_clock.h"

/* A JSON string. What is not printable ASCII, or would need an escape, becomes a question mark. */
static void write_text(FILE *out, const char *key, const char *text)
{
	fprintf(out, "\"%s\":\"", key);
	for (; *text; text++)
		fputc(*text < ' ' || *text > '~' || *text == '"' || *text == '\\' ? '?' : *text,
		      out);
	fputc('"', out);
}

static void write_offsets(FILE *out, const struct cei_network_clock_view *view)
{
	uint32_t i;

	fputs(",\"offsets\":[", out);
	for (i = 0; i < view->n_offsets; i++)
		fprintf(out, "%s{\"at_ns\":%" PRIu64 ",\"ahead_ns\":%" PRId64 ",\"within_ns\":%"
			PRIu64 "}", i ? "," : "", view->offsets[i].at_ns,
			view->offsets[i].ahead_ns, view->offsets[i].within_ns);
	fputs("]", out);
}

static void write_pair(FILE *out, const struct cei_clock_pair *pair)
{
	fprintf(out, "{\"realtime_ns\":%" PRIu64 ",\"monotonic_ns\":%" PRIu64 ",\"within_ns\":%"
		PRIu64 "}", pair->realtime_ns, pair->monotonic_ns, pair->within_ns);
}

static void write_clocks(FILE *out, const struct cei_site *site)
{
	struct cei_clock_pair now = cei_clock_pair_now();

	fputs(",\"clocks\":[", out);
	write_pair(out, &site->opened);
	fputc(',', out);
	write_pair(out, &now);
	fputc(']', out);
}

void cei_trace_write_origin(const struct cei_site *site, FILE *out)
{
	struct cei_network_clock_view view = { .n_nodes = 1 };
	char host[256] = "";
	uint32_t i;

	if (gethostname(host, sizeof(host) - 1))
		host[0] = '\0';
	if (site->network)
		cei_network_clock_look(site->network, &view);
	fputc('{', out);
	write_text(out, "host", host);
	fputc(',', out);
	write_text(out, "node_name", site->network ? view.node_name : host);
	fprintf(out, ",\"node\":%u,\"nodes\":%u,\"process\":%u,\"processes\":%u,\"ranks\":[",
		view.node, view.n_nodes, view.process, view.n_processes);
	for (i = 0; i < site->n_members; i++)
		fprintf(out, "%s%u", i ? "," : "", site->members[i].rank);
	fprintf(out, "],\"group_ranks\":%u,\"group\":\"%016" PRIx64 "\",\"measurer\":%u",
		site->n_ranks, view.group, view.measurer);
	write_offsets(out, &view);
	fprintf(out, ",\"pid\":%ld,", (long)getpid());
	write_text(out, "group_name", site->group_name);
	write_clocks(out, site);
	fputc('}', out);
}
