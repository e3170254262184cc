/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_open, ceov_close: builds the parts of a context and tears them down in
 * reverse. Everything below knows the context, and nothing knows this file. */

#include "ce_engine/open.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/place.h"
#include "base/clock.h"
#include "base/cuda_driver.h"
#include "base/file.h"
#include "base/ranges.h"
#include "base/sized.h"
#include "ce_engine/context_life.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/engine/trace_file.h"
#include "ce_engine/engine/works_open.h"
#include "ce_engine/meet.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/remote/remote.h"
#include "ce_engine/tell.h"
#include "ce_engine/warm.h"
#include "net/network.h"
#include "net/network_clock.h"

/* The first member that is placed on a GPU; NULL: none is. */
static const struct ceov_member *first_on_gpu(const struct cei_site *site)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU)
			return &site->members[i];
	return NULL;
}

static int raise_no_gpu(const struct cei_site *site, const char *why)
{
	char who[24] = "this process's rank";   /* a launcher that starts one process for each rank
						 * says later which it is */

	if (site->n_ranks)
		snprintf(who, sizeof(who), "rank %u", first_on_gpu(site)->rank);
	return cei_raise(site->report, CEOV_ERR_INVALID, 0,
			 "ceov_open: %s is placed on a GPU, but there is none: %s; place it on "
			 "the host (CEOVERLAP_PLACE=host, unless the program names places)",
			 who, why);
}

static int check_gpus(const ceov_context *context)
{
	const struct cei_site *site = &context->site;
	uint32_t i, n_gpus = site->cuda ? cei_cuda_n_gpus(site->cuda) : 0;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU &&
		    site->members[i].place.index >= n_gpus)
			return cei_raise(site->report, CEOV_ERR_INVALID, 0,
					 "ceov_open: rank %u wants GPU %u, but this process "
					 "sees %u", site->members[i].rank,
					 site->members[i].place.index, n_gpus);
	return 0;
}

/* Opens the driver where a member is on a GPU, or may be. The members' GPUs are checked later, when
 * their ranks are known: see check_gpus(). */
static int open_gpus(ceov_context *context)
{
	struct cei_site *site = &context->site;
	struct ceov_member *first = &site->members[0];
	int is_open_place = first->place.index == CEOV_NOBODY;
	const char *why = "";
	int r;

	if (!first_on_gpu(site) && !is_open_place)
		return 0;
	r = cei_cuda_open(&context->report, &site->cuda, &why);
	if (r < 0)
		return r;
	if (is_open_place) {
		first->place.kind = r ? CEOV_PLACE_HOST : CEOV_PLACE_GPU;
		first->place.index = 0;
	} else if (r) {
		return raise_no_gpu(site, why);
	}
	return 0;
}

/* Meets the other nodes, where there are any. */
static int open_network(ceov_context *context, const struct ceov_config *config,
			const struct cei_transport_ops *transport)
{
	struct cei_network_config network = {
		.transport = transport,
		.deadline_ns = cei_deadline(context->deadline_ns),
		.copier = &cei_copier_ops,
		.copier_arg = &context->copier,
		.machine = context->works.topology->machine,
	};
	uint32_t n_ranks = context->site.n_ranks ? context->site.n_ranks : CEI_RANKS_MAX;
	int r;

	context->is_lost = calloc(n_ranks, sizeof(*context->is_lost));
	if (!context->is_lost)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_open: no memory for %u ranks", n_ranks);
	network.public = config ? config->network : NULL;
	r = cei_network_open(&context->site, &network, &context->site.network);
	return r == CEOV_NONE ? 0 : r;
}

static int start_works(ceov_context *context)
{
	uint32_t i;
	int r = cei_works_start(&context->works, !context->is_fifo);

	for (i = 0; context->works.engines && i < context->site.n_members; i++) {
		context->engines[i] = &context->works.engines[i];
		context->backends[i] = context->engines[i]->backend;
	}
	return r;
}

/* After warming up, which is for the engines of this process. */
static int connect_to_daemon(ceov_context *context, const struct ceov_config *config)
{
	const char *path = config && config->daemon ? config->daemon
		: secure_getenv("CEOVERLAP_DAEMON");

	if (!path || !*path)
		return 0;
	return cei_remote_open(context, path, cei_deadline(context->deadline_ns));
}

static int build(ceov_context *context, const struct ceov_config *config,
		 const struct cei_transport_ops *transport)
{
	const char *group = NULL;
	int r = cei_context_make_alive(context);

	if (!r)
		r = cei_settings_load(context, config, &group);
	if (r)
		return r;
	r = cei_ranges_open(&context->report, &context->site.ranges);
	if (!r)
		r = open_gpus(context);
	if (!r)
		r = cei_works_open(&context->works, &context->site);
	if (!r)
		r = open_network(context, config, transport);
	context->report.rank = context->site.members[0].rank;
	if (!r)
		r = check_gpus(context);
	if (!r)
		r = cei_mappings_init(&context->mappings, &context->site);
	if (!r)
		r = start_works(context);
	if (!r)
		r = cei_context_meet(context, group);
	if (!r)
		r = cei_warm_up(context, cei_deadline(context->deadline_ns));
	if (!r)
		r = connect_to_daemon(context, config);
	if (!r && context->site.network && context->site.trace_path[0])
		cei_network_clock_begin(context->site.network);
	if (!r)
		cei_context_tell(context);
	return r;
}

/* Checks the config's size and copies what the caller's header knows of it. Errors go to stderr:
 * the log function of a wrong config cannot be trusted. */
static int take_config(const struct ceov_config *config, struct ceov_config *ret_config)
{
	struct cei_report report;
	int r;

	cei_report_init(&report, NULL, NULL);
	r = cei_sized_check(&report, config, offsetof(struct ceov_config, network),
			    sizeof(*config), "ceov_open: config");
	if (!r)
		cei_sized_take(ret_config, config, sizeof(*ret_config));
	cei_report_fini(&report);
	return r;
}

int cei_context_open(const struct ceov_config *config,
		     const struct cei_place_ops *const *movers,
		     const struct cei_transport_ops *transport, ceov_context **ret_context)
{
	struct ceov_config taken;
	ceov_context *context;
	int r;

	if (!ret_context)
		return cei_raise_unlogged(CEOV_ERR_INVALID, "ceov_open: no ret_context");
	cei_file_fill_standard();
	if (config && take_config(config, &taken))
		return CEOV_ERR_INVALID;
	config = config ? &taken : NULL;
	context = calloc(1, sizeof(*context));
	if (!context)
		return cei_raise_unlogged(CEOV_ERR_NO_MEMORY, "ceov_open: no memory for a context");
	cei_context_begin(context, config ? config->log : NULL, config ? config->log_arg : NULL);
	cei_copier_init(&context->copier, &context->site);
	context->site.movers = movers;
	r = build(context, config, transport);
	if (r) {
		ceov_close(context);
		return r;
	}
	*ret_context = context;
	return 0;
}

int ceov_open(const struct ceov_config *config, ceov_context **ret_context)
{
	return cei_context_open(config, cei_backends, NULL, ret_context);
}

/* Stops objects of upper layers while the engines still turn: kernels on GPUs may wait for data. */
static void stop_uppers(ceov_context *context)
{
	struct cei_object *upper;
	struct cei_list *node;

	for (node = context->uppers.next; node != &context->uppers; node = node->next) {
		upper = CEI_OWNER(node, struct cei_object, link);
		if (upper->type->stop)
			upper->type->stop(upper);
	}
}

/* Stops all engines; returns how many did not end. */
static uint32_t stop_works(ceov_context *context)
{
	uint64_t timeout_ns = context->deadline_ns > CEI_CLOSE_LEAST_NS
		? context->deadline_ns : CEI_CLOSE_LEAST_NS;

	return cei_works_stop(&context->works, timeout_ns);
}

/* Closes a context while copies do not end. The memory that they access, and the engines and lanes
 * that move them, stay until the process ends. */
static void abandon(ceov_context *context)
{
	(void)cei_raise(&context->report, CEOV_ERR_UNCERTAIN, 0,
			"ceov_close: copies are still under way that cannot be stopped; all "
			"buffers, signals and lanes of the context stay until the process "
			"ends: do not free memory that was registered");
	cei_peers_leave(context->peers);
	/* The caller's log function may be gone after the close; later lines go to stderr. */
	context->report.log = NULL;
	context->state = CEI_CONTEXT_CLOSED;
}

static void write_trace(const ceov_context *context)
{
	if (context->site.network)
		cei_network_clock_end(context->site.network);
	if (context->works.engines)
		cei_trace_write(&context->site, context->works.engines);
}

void ceov_close(ceov_context *context)
{
	if (!context || context->state != CEI_CONTEXT_OPEN ||
	    (context->alive && !*context->alive))
		return;                 /* in a forked child nothing here may be touched */
	cei_report_end(&context->report);
	stop_uppers(context);
	if (stop_works(context)) {
		abandon(context);
		return;
	}
	cei_remote_close(context);
	write_trace(context);
	cei_context_destroy_objects(context);
	cei_peers_leave(context->peers);
	cei_works_close_engines(&context->works);
	cei_network_leave(context->site.network);
	cei_context_part(context);
	cei_network_close(context->site.network);
	cei_copier_fini(&context->copier);
	cei_mappings_fini(&context->mappings);
	cei_works_close(&context->works);
	if (context->site.cuda)
		cei_cuda_close(context->site.cuda);
	cei_ranges_close(context->site.ranges);
	cei_context_end(context);
}
