/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "group_rig.h"

#include <string.h>

#include "testing.h"

void rig_make(struct rig *rig, uint32_t n, uint32_t n_nodes, int is_sure)
{
	struct cei_group_config config = {
		.timeout_ns = TESTING_SECOND, .near = { 1, 1, is_sure }, .far = { 0, 0, is_sure } };
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	rig->n = n;
	rig->n_nodes = n_nodes;
	for (i = 0; i < n; i++) {
		rig->process_of[i] = rig->first_rank[i] = rig->in_node[i] = i;
		rig->node_of[i] = i * n_nodes / n;
		rig->node_at[rig->node_of[i] + 1] = i + 1;
	}
	for (i = 0; i < n; i++) {
		rig->rosters[i] = (struct cei_roster){
			.n_ranks = n + 1, .n_processes = n, .n_nodes = n_nodes, .own = i,
			.process_of = rig->process_of, .node_of = rig->node_of,
			.first_rank = rig->first_rank, .in_node = rig->in_node,
			.node_at = rig->node_at };
		config.roster = &rig->rosters[i];
		ck_assert_int_eq(cei_group_make(&config, &rig->groups[i]), 0);
	}
}

void rig_free(struct rig *rig)
{
	uint32_t i;

	for (i = 0; i < rig->n; i++)
		cei_group_free(rig->groups[i]);
}

static void send(struct rig *rig, uint32_t who, const struct cei_group_action *action)
{
	struct rig_flight *flight = &rig->flights[rig->n_flights];
	int r = 0;

	if (rig->is_full[who][action->process])
		r = CEOV_FULL;
	else if (action->fds.n && rig->fds_fail)
		r = CEOV_ERR_SYSTEM;
	cei_group_sent(rig->groups[who], r, r == CEOV_ERR_SYSTEM ? rig->fds_fail : 0);
	if (r)
		return;
	ck_assert_uint_lt(rig->n_flights++, RIG_FLIGHTS);
	*flight = (struct rig_flight){ who, action->process, action->message, action->fds };
	rig->n_sent[who]++;
}

static void act(struct rig *rig, uint32_t who, const struct cei_group_action *action)
{
	switch (action->what) {
	case CEI_GROUP_SEND:
		send(rig, who, action);
		break;
	case CEI_GROUP_GIVE_UP:
		rig->gave_up[who][action->process]++;
		if (!rig->stays_loud)
			cei_group_quiet(rig->groups[who], action->process);
		if (!cei_group_is_expelled(rig->groups[who]))
			cei_group_down(rig->groups[action->process], who, "refused", 1);
		break;
	case CEI_GROUP_PEER_GONE:
		rig->gone[who][action->process] = action->has_departed ? CEI_GROUP_DEPARTED :
			CEI_GROUP_LOST;
		break;
	case CEI_GROUP_RENEWED:
		rig->n_renewed[who]++;
		break;
	case CEI_GROUP_ABORTED:
		rig->n_aborted[who]++;
		rig->aborted[who] = action->message.abort;
		break;
	case CEI_GROUP_CLOSE:
		rig->n_closed[who] += action->fds.n;
		break;
	case CEI_GROUP_ENDED:
		break;
	}
}

static int act_all(struct rig *rig)
{
	struct cei_group_action action;
	int has_worked = 0;
	uint32_t i;

	for (i = 0; i < rig->n; i++)
		while (!cei_group_next(rig->groups[i], &action)) {
			act(rig, i, &action);
			has_worked = 1;
		}
	return has_worked;
}

/* Delivers the first one that is not held. */
static int deliver_one(struct rig *rig)
{
	struct rig_flight flight;
	uint32_t i;

	for (i = 0; i < rig->n_flights; i++)
		if (!rig->is_held[rig->flights[i].from][rig->flights[i].to])
			break;
	if (i == rig->n_flights)
		return 0;
	flight = rig->flights[i];
	memmove(&rig->flights[i], &rig->flights[i + 1],
		(--rig->n_flights - i) * sizeof(flight));
	rig->last[flight.from][flight.to] = flight;
	if (rig->fds_vanish)
		flight.fds.n = 0;
	ck_assert_int_eq(cei_group_reserve(rig->groups[flight.to]), 0);
	cei_group_received(rig->groups[flight.to], flight.from, &flight.message, &flight.fds);
	return 1;
}

void rig_run(struct rig *rig)
{
	while (act_all(rig) || deliver_one(rig))
		;
}

void rig_wait(struct rig *rig, uint64_t ns)
{
	const uint64_t end_ns = rig->now_ns + ns, step_ns = 10 * TESTING_MS;
	uint32_t i;

	while (rig->now_ns < end_ns) {
		rig->now_ns = end_ns - rig->now_ns < step_ns ? end_ns : rig->now_ns + step_ns;
		for (i = 0; i < rig->n; i++)
			cei_group_time(rig->groups[i], rig->now_ns);
		rig_run(rig);
	}
}

void rig_tell(struct rig *rig, uint32_t from, uint32_t to,
	      const struct cei_group_message *message)
{
	cei_group_received(rig->groups[to], from, message, NULL);
	rig_run(rig);
}

uint32_t rig_export(struct rig *rig, uint32_t rank, const char *name)
{
	struct cei_group_export export = { .rank = rank };
	uint32_t id = 0;

	strcpy(export.name, name);
	ck_assert_int_eq(cei_group_export(rig->groups[rig->process_of[rank]], &export, &id), 0);
	return id;
}

void rig_find(struct rig *rig, uint32_t who, struct rig_find *find, uint32_t rank,
	      const char *name)
{
	memset(find, 0, sizeof(*find));
	find->call.deadline_ns = rig->now_ns + 5 * TESTING_SECOND;
	find->call.found = &find->found;
	cei_group_find(rig->groups[who], &find->call, rank, name);
	rig_run(rig);
}

void rig_barrier(struct rig *rig, uint32_t who, struct cei_group_call *call, uint64_t ns)
{
	memset(call, 0, sizeof(*call));
	call->deadline_ns = rig->now_ns + ns;
	cei_group_barrier(rig->groups[who], call);
	rig_run(rig);
}

void rig_kill(struct rig *rig, uint32_t who)
{
	uint32_t i;

	for (i = 0; i < rig->n; i++) {
		rig->is_held[i][who] = rig->is_held[who][i] = 1;
		if (i != who && rig->node_of[i] == rig->node_of[who])
			cei_group_down(rig->groups[i], who, "its process has ended", 0);
	}
	rig_run(rig);
}
