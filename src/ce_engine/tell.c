/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tells what a new context is. */

#include "ce_engine/tell.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "backend/place.h"
#include "base/urgency.h"
#include "base/variables.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/remote/remote.h"
#include "topology/route.h"

#include "config.h"

#define PLACE_BYTES 128u

#if HAVE_CUDA
#define CUDA_WORDS "with GPUs"
#else
#define CUDA_WORDS "without GPUs"
#endif
#if HAVE_UCX
#define UCX_WORDS "with UCX"
#else
#define UCX_WORDS "without UCX"
#endif

static void tell_version(struct cei_report *report)
{
	char host[256] = "";

	if (gethostname(host, sizeof(host) - 1))
		host[0] = '\0';
	cei_log(report, CEI_LOG_INFO, "ceoverlap %s, built " CUDA_WORDS " and " UCX_WORDS
		", in process %ld on %s", ceov_version(), (long)getpid(), host);
}

/* "host memory", or "GPU 3: NVIDIA H200 at 0000:19:00.0"; text has PLACE_BYTES. */
static const char *place_words(const ceov_context *context, const struct ceov_place *place,
			       char *text)
{
	const struct cei_machine *machine = context->works.topology->machine;

	if (place->kind != CEOV_PLACE_GPU)
		return "host memory";
	if (machine && place->index < machine->n_gpus)
		snprintf(text, PLACE_BYTES, "GPU %u: %s at %s", place->index,
			 machine->gpus[place->index].name, machine->gpus[place->index].bus_id);
	else
		snprintf(text, PLACE_BYTES, "GPU %u", place->index);
	return text;
}

static void tell_members(const ceov_context *context)
{
	const struct cei_site *site = &context->site;
	char text[PLACE_BYTES];
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		cei_log(site->report, CEI_LOG_INFO, "rank %u of %u is on %s; copies by %s",
			site->members[i].rank, site->n_ranks,
			place_words(context, &site->members[i].place, text),
			context->backends[i]->ops->name);
}

static void tell_group(const ceov_context *context)
{
	const struct cei_site *site = &context->site;
	const struct cei_roster *roster = context->peers ? cei_peers_roster(context->peers) : NULL;

	cei_log(site->report, CEI_LOG_INFO, "group: ranks: %u, processes: %u, nodes: %u; ranks on "
		"this node: %u", site->n_ranks, roster ? roster->n_processes : 1,
		roster ? roster->n_nodes : 1, cei_site_n_local(site));
}

/* How many links of the machine were measured, between any two of its places. */
static uint32_t count_measured(const struct cei_machine *machine)
{
	uint32_t i, n = cei_machine_n_places(machine), n_measured = 0;

	for (i = 0; i < n * n; i++)
		n_measured += machine->links[i].origin == CEI_MACHINE_MEASURED;
	return n_measured;
}

static void tell_machine(const ceov_context *context)
{
	const struct cei_machine *machine = context->works.topology->machine;
	struct cei_report *report = context->site.report;

	if (!machine) {
		cei_log(report, CEI_LOG_INFO, "machine: not looked at, or not known, so all links "
			"count as equal");
		return;
	}
	cei_log(report, CEI_LOG_INFO, "machine %s: %u GPUs%s%s%s, %u NUMA nodes, %u NICs; %u links "
		"were measured", machine->name, machine->n_gpus,
		machine->has_nvswitch ? " behind NVSwitch" : "",
		machine->driver[0] ? ", driver " : "", machine->driver, machine->n_nodes,
		machine->n_nics, count_measured(machine));
}

static const char *rule_words(uint32_t rule)
{
	switch (rule) {
	case CEI_ROUTE_RULE_DIRECT: return "direct";
	case CEI_ROUTE_RULE_ALL:    return "all that gain";
	default:                    return "direct where there are, else the best others";
	}
}

/* Who drives the copies. */
static const char *driver_words(const ceov_context *context)
{
	if (cei_remote_is_connected(context))
		return "a daemon, as far as it reaches";
	return context->site.progress_by_caller ? "the caller's threads" : "a thread for each rank";
}

static void tell_ways(const ceov_context *context)
{
	cei_log(context->site.report, CEI_LOG_INFO, "transfers by %s: paths: %s; chunks up to %"
		PRIu64 " bytes; order: %s, class %s; deadline %" PRIu64 " ms",
		driver_words(context), rule_words(context->rule), context->max_chunk_bytes,
		context->is_fifo ? "as they come" : "by what links share",
		cei_urgency_name(context->urgency), context->deadline_ns / 1000000);
}

void cei_context_tell(const ceov_context *context)
{
	struct cei_report *report = context->site.report;

	if (report->level < CEI_LOG_INFO)
		return;
	tell_version(report);
	tell_members(context);
	tell_group(context);
	tell_machine(context);
	tell_ways(context);
	cei_variables_tell(report);
}
