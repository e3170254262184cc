/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Reads the caller's config and the environment, checks them, and stores them in the context:
 * its limits, and the ranks that this process holds, with their places. Opens nothing.
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "backend/host.h"
#include "base/launcher.h"
#include "base/urgency.h"
#include "base/variables.h"
#include "ce_engine/objects/context.h"
#include "net/network.h"
#include "topology/route.h"

#define TRACE_PATHS_MAX 16u

/* Longest path of a trace file that leaves room for a context's number. */
#define TRACE_PATH_MAX (sizeof(((struct cei_site *)NULL)->trace_path) - sizeof(".4294967295"))

/* No driver counts further. */
#define GPU_MAX 1023u

/* strtoul() alone would take signs and spaces. */
static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static int number_from(struct cei_report *report, const char *name, uint32_t fallback,
		       uint32_t *ret_number)
{
	uint64_t number = fallback;
	int r = cei_variable_number(report, name, CEI_RANKS_MAX, &number);

	*ret_number = (uint32_t)number;
	return r;
}

/* "host" or "gpu:N"; unset: decided by who asks for NULL members. */
static int place_from(struct cei_report *report, struct ceov_place *ret_place,
		      int *ret_is_set)
{
	const char *text = secure_getenv("CEOVERLAP_PLACE");
	unsigned long number;
	char *end;

	*ret_is_set = text && *text;
	if (!*ret_is_set)
		return 0;
	ret_place->kind = CEOV_PLACE_HOST;
	ret_place->index = 0;
	if (!strcmp(text, "host"))
		return 0;
	errno = 0;
	number = strncmp(text, "gpu:", 4) ? 0 : strtoul(text + 4, &end, 10);
	if (strncmp(text, "gpu:", 4) || !is_digit(text[4]) || *end || errno ||
	    number > GPU_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "CEOVERLAP_PLACE is '%s', must be 'host' or 'gpu:N'", text);
	ret_place->kind = CEOV_PLACE_GPU;
	ret_place->index = (uint32_t)number;
	return 0;
}

/* CEOVERLAP_ROUTES: "direct" or "all"; unset: what is needed. */
static int rule_from(struct cei_report *report, uint32_t *ret_rule)
{
	const char *text = secure_getenv("CEOVERLAP_ROUTES");

	*ret_rule = CEI_ROUTE_RULE_NEEDED;
	if (!text || !*text)
		return 0;
	if (strcmp(text, "direct") && strcmp(text, "all"))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "CEOVERLAP_ROUTES is '%s', must be 'direct' or 'all'", text);
	*ret_rule = *text == 'd' ? CEI_ROUTE_RULE_DIRECT : CEI_ROUTE_RULE_ALL;
	return 0;
}

/* CEOVERLAP_SCHEDULER: "fifo"; unset: by what links share. */
static int order_from(struct cei_report *report, int *ret_is_fifo)
{
	const char *text = secure_getenv("CEOVERLAP_SCHEDULER");

	*ret_is_fifo = text && *text;
	if (!*ret_is_fifo || !strcmp(text, "fifo"))
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "CEOVERLAP_SCHEDULER is '%s', must be 'fifo' or unset", text);
}

/* CEOVERLAP_CLASS: "urgent", "normal" or "background", for plans that say normal. */
static int class_from(struct cei_report *report, uint32_t *ret_urgency)
{
	const char *text = secure_getenv("CEOVERLAP_CLASS");

	*ret_urgency = CEOV_URGENCY_NORMAL;
	if (!text || !*text || cei_urgency_read(text, ret_urgency))
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "CEOVERLAP_CLASS is '%s', must be 'urgent', 'normal' or 'background'",
			 text);
}

/* Whether the environment says which rank this process has. */
static int is_unnamed(const struct ceov_config *config)
{
	return !config->members ||
	       (config->n_members == 1 && config->members[0].rank == CEOV_NOBODY);
}

/* One member, as the environment says. */
static int member_from_environment(ceov_context *context, const struct ceov_config *config)
{
	struct cei_site *site = &context->site;
	struct ceov_member *own = &site->members[0];
	int r, is_set = config->members != NULL;

	site->n_members = 1;
	/* A launcher that starts one process for each rank says how many: 0 until then. */
	r = number_from(&context->report, "CEOVERLAP_RANKS",
			config->n_ranks == 1 && cei_network_is_wanted(config->network) ?
			0 : config->n_ranks, &site->n_ranks);
	if (!r)
		r = number_from(&context->report, "CEOVERLAP_RANK", 0, &own->rank);
	if (is_set)
		own->place = config->members[0].place;
	else if (!r)
		r = place_from(&context->report, &own->place, &is_set);
	if (r)
		return r;
	if (!is_set)                    /* settled when it is known if there is a GPU */
		own->place.index = CEOV_NOBODY;
	return 0;
}

/* says_rank: what said which rank a single member has, for messages; "" where the caller did. */
static int check_members(const ceov_context *context, const char *says_rank)
{
	const struct cei_site *site = &context->site;
	struct cei_report *report = site->report;
	uint32_t i, k;

	if (!site->n_ranks || site->n_ranks > CEI_RANKS_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "ceov_open: n_ranks is %u, must be 1 to %u", site->n_ranks,
				 CEI_RANKS_MAX);
	for (i = 0; i < site->n_members; i++) {
		if (site->members[i].rank >= site->n_ranks)
			return cei_raise(report, CEOV_ERR_INVALID, 0,
					 "ceov_open: member %u has rank %u%s, but the group "
					 "has %u ranks", i, site->members[i].rank, says_rank,
					 site->n_ranks);
		for (k = 0; k < i; k++)
			if (site->members[k].rank == site->members[i].rank)
				return cei_raise(report, CEOV_ERR_INVALID, 0,
						 "ceov_open: members %u and %u are both rank "
						 "%u", k, i, site->members[i].rank);
	}
	return 0;
}

/* Checks the places that the caller names; one from the environment may not be known yet. */
static int check_places(ceov_context *context)
{
	const struct ceov_place *place;
	uint32_t i;

	for (i = 0; i < context->site.n_members; i++) {
		place = &context->site.members[i].place;
		if (place->kind != CEOV_PLACE_HOST && place->kind != CEOV_PLACE_GPU)
			return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
					 "ceov_open: member %u has no valid place", i);
		if (place->kind == CEOV_PLACE_HOST && place->index)
			return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
					 "ceov_open: member %u is on the host and has "
					 "place.index %u, must be 0", i, place->index);
		if (place->kind == CEOV_PLACE_GPU && place->index > GPU_MAX)
			return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
					 "ceov_open: member %u wants GPU %u, must be 0 to %u",
					 i, place->index, GPU_MAX);
	}
	return 0;
}

static int members_from_config(ceov_context *context, const struct ceov_config *config)
{
	struct cei_site *site = &context->site;

	if (!config->n_members || config->n_members > CEI_MEMBERS_MAX)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_open: n_members is %u, must be 1 to %u",
				 config->n_members, CEI_MEMBERS_MAX);
	site->n_ranks = config->n_ranks;
	site->n_members = config->n_members;
	memcpy(site->members, config->members,
	       config->n_members * sizeof(*config->members));
	return 0;
}

/* Counts the contexts of this process, this one included, that have used the path for their traces.
 * After TRACE_PATHS_MAX paths all others share one count, so that no file is written twice. The
 * table is static, because nothing else knows all contexts of the process. */
static uint32_t count_trace(const char *path)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct {
		char     path[sizeof(((struct cei_site *)NULL)->trace_path)];
		uint32_t n;
	} traced[TRACE_PATHS_MAX + 1];
	uint32_t i, number;

	pthread_mutex_lock(&lock);
	for (i = 0; i < TRACE_PATHS_MAX && traced[i].n; i++)
		if (!strcmp(traced[i].path, path))
			break;
	if (!traced[i].n)
		strcpy(traced[i].path, path);
	number = ++traced[i].n;
	pthread_mutex_unlock(&lock);
	return number;
}

/* Sets the path of the trace file, if a trace is wanted. Several contexts of a process with one
 * path have a file each: FILE, FILE.2, FILE.3. */
static int trace_from(struct cei_report *report, struct cei_site *site, const char *group)
{
	const char *path = secure_getenv("CEOVERLAP_TRACE");
	size_t n_bytes = group ? strlen(group) : 0;
	uint32_t number;

	if (!path || !*path)
		return 0;
	if (strlen(path) > TRACE_PATH_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "CEOVERLAP_TRACE is a path of %zu bytes, at most %zu",
				 strlen(path), TRACE_PATH_MAX);
	number = count_trace(path);
	if (number == 1)
		strcpy(site->trace_path, path);
	else
		snprintf(site->trace_path, sizeof(site->trace_path), "%s.%u", path, number);
	if (n_bytes)                    /* names differ at their ends */
		snprintf(site->group_name, sizeof(site->group_name), "%s",
			 group + (n_bytes < sizeof(site->group_name) ? 0 :
				  n_bytes - sizeof(site->group_name) + 1));
	site->opened = cei_clock_pair_now();
	return 0;
}

/* Whether the network will say which rank this process has, and how many there are. */
static int is_left_to_launcher(const ceov_context *context, const struct ceov_config *config)
{
	return is_unnamed(config) && !context->site.n_ranks &&
	       cei_network_is_wanted(config->network);
}

static int has_value(const char *name)
{
	const char *text = secure_getenv(name);

	return text && *text;
}

/* Whether somebody has said that this process, a group of one rank, is alone. */
static int is_said_to_be_alone(const struct ceov_network *network)
{
	return has_value("CEOVERLAP_RANKS") ||
	       (!cei_network_is_wanted(network) && (network || has_value("CEOVERLAP_BOOTSTRAP")));
}

/* Refuses one of several tasks of a launcher that nobody gave a rank: it would be taken for a group
 * of its own. */
static int check_launcher(const ceov_context *context, const struct ceov_config *config)
{
	const struct cei_launcher *launcher = cei_launcher_of_several();

	if (!launcher || !is_unnamed(config) || context->site.n_ranks != 1 ||
	    is_said_to_be_alone(config->network))
		return 0;
	return cei_launcher_refuse(context->site.report, launcher);
}

int cei_settings_load(ceov_context *context, const struct ceov_config *config,
		      const char **ret_group)
{
	static const struct ceov_config none = CEOV_CONFIG_INIT;
	struct cei_site *site = &context->site;
	struct cei_host_script script;
	int r;

	if (!config)
		config = &none;
	*ret_group = config->group ? config->group : secure_getenv("CEOVERLAP_GROUP");
	site->report = &context->report;
	if (config->progress_by_caller != 0 && config->progress_by_caller != 1)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_open: progress_by_caller is %d, must be 0 or 1",
				 config->progress_by_caller);
	site->progress_by_caller = config->progress_by_caller;
	context->max_chunk_bytes = config->max_chunk_bytes ? config->max_chunk_bytes
		: CEI_CHUNK_DEFAULT_BYTES;
	context->deadline_ns = config->deadline_ns ? config->deadline_ns
		: CEI_DEADLINE_DEFAULT_NS;
	r = is_unnamed(config) ? member_from_environment(context, config)
		: members_from_config(context, config);
	if (!r && config->members)
		r = check_places(context);
	if (!r && !is_left_to_launcher(context, config))
		r = check_members(context, is_unnamed(config) && secure_getenv("CEOVERLAP_RANK") ?
				  " (by CEOVERLAP_RANK)" : "");
	if (!r)
		r = check_launcher(context, config);
	if (!r)
		r = rule_from(&context->report, &context->rule);
	if (!r)
		r = order_from(&context->report, &context->is_fifo);
	if (!r)
		r = class_from(&context->report, &context->urgency);
	if (!r)
		r = trace_from(&context->report, site, *ret_group);
	if (!r)                         /* read again by each backend of the host */
		r = cei_host_script_from_environment(&context->report, 0, &script);
	if (r)
		return r;
	cei_variables_check(&context->report);
	if (getrandom(site->instance, sizeof(site->instance), 0) !=
	    (ssize_t)sizeof(site->instance))
		return cei_raise(&context->report, CEOV_ERR_SYSTEM, errno,
				 "ceov_open: getrandom");
	return 0;
}
