/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Decides whether host memory is accessed in place (net/in_place.h), and how bytes of this
 * process's GPUs reach the network: the network reads and writes their memory itself (directly),
 * or they are copied through slots in host memory (staged). Directly only if the network says that
 * it can, a test in a process of its own has passed, and that was faster.
 * docs/decisions/0115-memory-of-gpus-directly.md says why.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/far_slots.h"
#include "net/gpu_trial.h"
#include "net/network_private.h"

#define TRIAL_NS UINT64_C(60000000000)

enum mode {
	MODE_AUTO,
	MODE_STAGED,
	MODE_DIRECT,                    /* even if staged is faster */
	MODE_UNTESTED,                  /* directly, without the test: this is the test */
};

static int read_mode(struct cei_report *report, enum mode *ret_mode)
{
	const char *const names[] = { "auto", "staged", "direct", "untested" };
	const char *text = secure_getenv("CEOVERLAP_GPU_DIRECT");
	uint32_t i;

	*ret_mode = MODE_AUTO;
	if (!text || !*text)
		return 0;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strcmp(text, names[i])) {
			*ret_mode = (enum mode)i;
			return 0;
		}
	return cei_raise(report, CEOV_ERR_INVALID, 0, "ceov_open: CEOVERLAP_GPU_DIRECT is '%s', "
			 "and must be auto, staged, direct or untested", text);
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

/* Threads of rails are bound to one GPU. */
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
	uint32_t i;

	if (network->site->progress_by_caller)
		return "the rails have no threads of their own (progress_by_caller)";
	if (network->in_place.is_staged)
		return "not even host memory is accessed in place (CEOVERLAP_IN_PLACE)";
	if (!is_on_one_gpu(network->site, unit))
		return "this process has ranks on several GPUs";
	for (i = 0; i < network->n_rails; i++)
		if (!cei_rail_takes_gpu_memory(network->rails[i].rail, &why))
			return why;
	return NULL;
}

static int stage(struct cei_network *network, const char *why)
{
	snprintf(network->gpu_bytes, sizeof(network->gpu_bytes), "pass through %u slots of %u MiB "
		 "in host memory: %s", CEI_FAR_SLOTS, (unsigned)(CEI_FAR_SLOT_BYTES >> 20), why);
	return 0;
}

static int go_direct(struct cei_network *network, uint32_t unit, const char *why)
{
	uint32_t i;
	int r = 0;

	snprintf(network->gpu_bytes, sizeof(network->gpu_bytes), "are read and written by the "
		 "network itself: %s", why);
	for (i = 0; !r && i < network->n_rails; i++)
		r = cei_rail_go_direct(network->rails[i].rail, unit);
	return r;
}

/* Runs the test over the first rail's network interface. */
static int try(const struct cei_network *network, uint32_t unit,
	       struct cei_gpu_trial_result *ret_result)
{
	const char *program = secure_getenv("CEOVERLAP_GPU_DIRECT_TEST");
	const struct cei_gpu_trial trial = {
		.program = program && *program ? program : CEI_GPU_TRIAL_PROGRAM,
		.gpu = network->site->members[unit].place.index,
		.nic = network->first_nic[0] ? network->first_nic : NULL,
		.deadline_ns = cei_deadline(TRIAL_NS),
	};

	return cei_gpu_trial_run(&trial, ret_result);
}

static int choose(struct cei_network *network, uint32_t unit, enum mode mode)
{
	struct cei_gpu_trial_result result;
	char why[CEI_GPU_TRIAL_WHY_BYTES];
	int r = try(network, unit, &result);

	if (r && mode == MODE_DIRECT)
		return cei_raise(network->site->report, CEOV_ERR_NO_ROUTE, 0, "ceov_open: "
				 "CEOVERLAP_GPU_DIRECT is 'direct', but the network cannot access "
				 "the memory of GPU %u: %s",
				 network->site->members[unit].place.index, result.why);
	if (r) {
		cei_log(network->site->report, CEI_LOG_WARN, "network: bytes of GPU %u go through "
			"host memory, though the network says that it can access them: %s. "
			"CEOVERLAP_GPU_DIRECT=staged tests nothing",
			network->site->members[unit].place.index, result.why);
		return stage(network, result.why);
	}
	snprintf(why, sizeof(why), "its test had %.2f GB/s, through host memory %.2f",
		 result.direct_bytes_per_s / 1e9, result.staged_bytes_per_s / 1e9);
	return mode == MODE_DIRECT || result.direct_bytes_per_s > result.staged_bytes_per_s
		? go_direct(network, unit, why) : stage(network, why);
}

static int decide(struct cei_network *network, uint32_t unit, enum mode mode)
{
	const char *why = mode == MODE_STAGED ? "CEOVERLAP_GPU_DIRECT says so"
		: obstacle(network, unit);

	if (why && mode != MODE_STAGED && mode != MODE_AUTO)
		return cei_raise(network->site->report, CEOV_ERR_NO_ROUTE, 0, "ceov_open: "
				 "CEOVERLAP_GPU_DIRECT wants the network to access the memory of "
				 "GPU %u, and it cannot: %s",
				 network->site->members[unit].place.index, why);
	if (why)
		return stage(network, why);
	return mode == MODE_UNTESTED ? go_direct(network, unit, "untested")
		: choose(network, unit, mode);
}

/* Returns what stands against access in place on one of the rails; NULL: nothing. */
static const char *host_obstacle(const struct cei_network *network)
{
	const char *why;
	uint32_t i;

	for (i = 0; i < network->n_rails; i++)
		if (!cei_rail_is_tried_in_place(network->rails[i].rail, &why))
			return why;
	return NULL;
}

int cei_network_choose_in_place(struct cei_network *network)
{
	return cei_in_place_choose(network->site->report, host_obstacle(network),
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
	enum mode mode;
	int r = read_mode(network->site->report, &mode);

	if (r || unit == CEOV_NOBODY)
		return r;
	r = decide(network, unit, mode);
	if (!r)
		cei_log(network->site->report, CEI_LOG_INFO, "network: bytes of GPU %u %s",
			network->site->members[unit].place.index, network->gpu_bytes);
	return r;
}

const char *cei_network_gpu_bytes(const struct cei_network *network)
{
	return network->gpu_bytes;
}
