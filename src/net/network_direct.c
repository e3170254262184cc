/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Decides whether host memory is accessed in place (net/in_place.h), and how bytes of this
 * process's GPUs reach the network: they are copied through slots in host memory (staged), or the
 * network reads and writes their memory itself (directly), where the user says so.
 * docs/internals/between-nodes.md says why.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/far_slots.h"
#include "net/network.h"
#include "net/network_private.h"

static int read_direct(struct cei_report *report, int *ret_is_direct)
{
	const char *text = secure_getenv("CEOVERLAP_GPU_DIRECT");

	*ret_is_direct = text && !strcmp(text, "direct");
	if (!text || !*text || *ret_is_direct || !strcmp(text, "staged"))
		return 0;
	return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_open: CEOVERLAP_GPU_DIRECT is '%s', "
			 "and must be staged or direct", text);
}

/* The first member on a GPU; CEOV_NOBODY: there is none. */
static uint32_t first_unit(const struct cei_site *site)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU)
			return i;
	return CEOV_NOBODY;
}

/* The rail's thread is bound to one GPU. */
static int is_on_one_gpu(const struct cei_site *site, uint32_t unit)
{
	uint32_t i;

	for (i = 0; i < site->n_members; i++)
		if (site->members[i].place.kind == CEOV_PLACE_GPU &&
		    site->members[i].place.index != site->members[unit].place.index)
			return 0;
	return 1;
}

/* Returns what stands against direct access; NULL: nothing is known. */
static const char *obstacle(const struct cei_network *network, uint32_t unit)
{
	const char *why;

	if (network->site->progress_by_caller)
		return "the rail has no thread of its own (progress_by_caller)";
	if (!is_on_one_gpu(network->site, unit))
		return "this process has ranks on several GPUs";
	return cei_rail_takes_gpu_memory(network->rail, &why) ? NULL : why;
}

/* Errors are raised. */
static int go_direct(struct cei_network *network, uint32_t unit)
{
	const char *why = obstacle(network, unit);

	if (why)
		return cei_raise(network->site->report, CEOV_ERR_NO_ROUTE, 0, "ceov_open: "
				 "CEOVERLAP_GPU_DIRECT is 'direct', but the network cannot access "
				 "the memory of GPU %u: %s. With 'staged' its bytes go through "
				 "host memory", network->site->members[unit].place.index, why);
	return cei_rail_go_direct(network->rail, unit);
}

int cei_network_choose_in_place(struct cei_network *network)
{
	const char *why;
	int is_tried = cei_rail_is_tried_in_place(network->rail, &why);

	return cei_in_place_choose(network->site->report, is_tried ? NULL : why,
				   &network->in_place);
}

int cei_network_stages_host(const struct cei_network *network)
{
	return network->in_place.is_staged;
}

const char *cei_network_host_bytes(const struct cei_network *network)
{
	return network->in_place.text;
}

int cei_network_choose_direct(struct cei_network *network)
{
	uint32_t unit = first_unit(network->site);
	int is_direct, r = read_direct(network->site->report, &is_direct);

	if (r || unit == CEOV_NOBODY)
		return r;
	if (is_direct)
		snprintf(network->gpu_bytes, sizeof(network->gpu_bytes),
			 "are read and written by the network itself");
	else
		snprintf(network->gpu_bytes, sizeof(network->gpu_bytes), "pass through %u slots of "
			 "%u MiB in host memory", CEI_FAR_SLOTS,
			 (unsigned)(CEI_FAR_SLOT_BYTES >> 20));
	r = is_direct ? go_direct(network, unit) : 0;
	if (!r)
		cei_log(network->site->report, CEI_LOG_INFO, "network: bytes of GPU %u %s",
			network->site->members[unit].place.index, network->gpu_bytes);
	return r;
}

const char *cei_network_gpu_bytes(const struct cei_network *network)
{
	return network->gpu_bytes;
}
