/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* ceov_plan_explain(): the plan as a whole; program_explain.c has its transfers. */

#include "ce_engine/plan/plan_explain.h"

#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/plan/plan_builder.h"
#include "ce_engine/program/program_explain.h"
#include "net/network.h"
#include "net/rail.h"

static const char *trigger_of(const struct cei_triggers *triggers)
{
	if (!triggers->is_gateable)
		return "polled";
	return triggers->is_pollable ? "gated where the launch names its producer, else polled"
		: "gated";
}

static int explain_whole(const struct cei_explain *explain, const struct cei_triggers *triggers)
{
	const struct cei_program *program = explain->program;

	return cei_say(explain, "plan of rank %u: %u transfers, %u chunks, %s%s\n",
		       program->rank, program->n_transfers, program->n_chunks,
		       triggers->is_gateable ? "can be gated" : "always polled: ",
		       triggers->is_gateable ? "" : triggers->why_polled);
}

/* Waiting streams hold hardware queues that kernels need, see backend/waits.h. */
static int explain_waits(const struct cei_explain *explain, const struct cei_triggers *triggers,
			 struct cei_backend *backend)
{
	uint32_t n;

	if (!triggers->is_gateable || !triggers->is_pollable ||
	    !(backend->ops->caps & CEI_CAP_DEVICE))
		return 0;
	n = cei_backend_waits_left(backend);
	if (n)
		return cei_say(explain, "%u more streams of GPU %u can be left waiting; beyond "
			       "that launches of this plan are polled and not gated\n", n,
			       backend->place.index);
	return cei_say(explain, "as many streams of GPU %u wait as may: launches of this plan "
		       "are polled and not gated\n", backend->place.index);
}

/* Tells over which network interface transfers go to other nodes, if they can, and which of the
 * machine's NICs are not used. */
static int explain_rail(const struct cei_explain *explain, const struct cei_engine *engine)
{
	struct cei_network *network = engine->site->network;
	const struct cei_network_left *left;
	uint32_t i;
	int r;

	if (!network || cei_network_roster(network)->n_nodes == 1 || !cei_network_rail(network))
		return 0;
	r = cei_say(explain, "rail to other nodes: %s; why this one: %s\n",
		    cei_rail_describe(cei_network_rail(network)),
		    cei_network_rail_why(network));
	for (i = 0; !r && (left = cei_network_left_out(network, i)); i++)
		r = cei_say(explain, "no rail is on %s: %s\n", left->name, left->why);
	if (!r)
		r = cei_say(explain, "bytes of host memory that go to other nodes, or come from "
			    "there, %s\n", cei_network_host_bytes(network));
	if (!r && explain->program->floating != CEI_PROGRAM_NONE)
		r = cei_say(explain, "bytes of memory that launches name pass through slots of the "
			    "rail, which does not know it\n");
	if (r || engine->backend->place.kind != CEOV_PLACE_GPU)
		return r;
	return cei_say(explain, "bytes of GPUs that go to other nodes %s\n",
		       cei_network_gpu_bytes(network));
}

/* Bytes that pass through slots do so meanwhile. */
static int far(const struct cei_explain *explain, uint32_t rank, uint64_t n_bytes,
	       struct cei_rail_expected *ret_expected)
{
	const struct cei_engine *engine = explain->arg;
	struct cei_network *network = engine->site->network;

	return cei_rail_expected(cei_network_rail(network),
				 cei_network_roster(network)->process_of[rank],
				 n_bytes, ret_expected);
}

int cei_plan_explain_kept(const struct ceov_plan *plan, int fd, const char *why_here)
{
	const struct cei_engine *engine = plan->object.context->engines[plan->member];
	const char *names[CEI_MOVERS_OWN_MAX];
	const struct cei_explain explain = {
		&plan->program, engine->topology->machine, names, trigger_of(&plan->triggers),
		&plan->object.context->report, fd, far, engine };
	uint32_t i;
	int r;

	for (i = 0; i < engine->movers.n_own; i++)
		names[i] = engine->movers.mover[i].backend.ops->name;
	r = explain_whole(&explain, &plan->triggers);
	if (!r && why_here)
		r = cei_say(&explain, "carried out in this process and not by the daemon: %s\n",
			    why_here);
	if (!r && plan->between_nodes)
		r = cei_say(&explain, "shards go from node to node %s\n", plan->between_nodes);
	if (!r)
		r = explain_waits(&explain, &plan->triggers, engine->backend);
	for (i = 0; !r && i < plan->program.n_transfers; i++)
		r = cei_explain_transfer(&explain, i);
	return r ? r : explain_rail(&explain, engine);
}

int cei_plan_explain(const struct ceov_plan *plan, int fd)
{
	return cei_plan_explain_kept(plan, fd, NULL);
}

int ceov_plan_explain(const ceov_plan *plan, int fd)
{
	int r = cei_object_check(plan, &cei_plan_type, "ceov_plan_explain");

	if (r)
		return r;
	if (plan->builder)
		return cei_raise(&plan->object.context->report, CEOV_ERR_STATE, 0,
				 "ceov_plan_explain: the plan is not committed");
	return plan->object.context->door->explain(plan, fd);
}
