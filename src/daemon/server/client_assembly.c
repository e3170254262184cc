/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Puts together the plan that a client sends in parts, as far as its limits let it. */

#include "daemon/server/client_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "daemon/server/server.h"

/* A program has at most so many bytes for each transfer and each piece of memory, beside a head:
 * more than program_wire.h writes. */
#define PROGRAM_HEAD_BYTES 65536u
#define PROGRAM_PART_BYTES 512u

/* An open client has to send the rest of a plan, whose descriptors are kept meanwhile, within this
 * time, and the next part of it. */
#define PLAN_PATIENCE_NS UINT64_C(30000000000)
#define PART_PATIENCE_NS UINT64_C(5000000000)

int cei_client_take_fds(struct cei_client *client, uint32_t n, char text[CEOV_FAILURE_TEXT_BYTES])
{
	const char *limit = cei_account_take_fds(&client->server->accounts, client->account,
						 &client->n_fds, n);

	if (limit)
		snprintf(text, CEOV_FAILURE_TEXT_BYTES, LIMIT_TEXT, limit);
	return !limit;
}

/* Refuses the plan that comes, or is about to, and drops its parts. The client goes on. */
static void refuse_plan(struct cei_client *client, int error, const char *text)
{
	uint32_t number = client->assembly.number;

	cei_client_clear_assembly(client);
	client->assembly.is_refused = 1;
	client->asked_number = number;
	cei_client_refuse(client, error, text);
	cei_client_answer(client);
}

/* Returns whether the client may have a plan of that size; else says in text what it may not. */
static int may_plan(struct cei_client *client, const struct cei_service_plan *plan,
		    char text[CEOV_FAILURE_TEXT_BYTES])
{
	struct cei_limits limits = cei_client_limits(client);
	const char *limit = NULL;

	if (plan->n_memories > limits.n_regions)
		limit = "regions";
	else if (plan->n_bytes > PROGRAM_HEAD_BYTES +
		 PROGRAM_PART_BYTES * (limits.n_transfers + (uint64_t)plan->n_memories))
		limit = "transfers_per_plan";
	if (limit)
		snprintf(text, CEOV_FAILURE_TEXT_BYTES, LIMIT_TEXT, limit);
	return !limit && cei_client_take_fds(client, plan->n_fds, text);
}

void cei_client_plan_comes(struct cei_client *client, const struct cei_service_plan *plan,
			   uint32_t number)
{
	struct cei_assembly *assembly = &client->assembly;
	char text[CEOV_FAILURE_TEXT_BYTES];

	cei_client_clear_assembly(client);
	assembly->number = number;
	if (client->server->is_draining) {
		refuse_plan(client, CEOV_ERR_STATE, "ceoverlapd: the daemon is about to end and "
			    "takes no new plans");
		return;
	}
	if (!may_plan(client, plan, text)) {
		refuse_plan(client, CEOV_ERR_NO_MEMORY, text);
		return;
	}
	assembly->n_promised = plan->n_fds;
	assembly->bytes = malloc(plan->n_bytes);
	assembly->fds = malloc(((size_t)plan->n_fds + 1) * sizeof(*assembly->fds));
	if (!assembly->bytes || !assembly->fds) {
		refuse_plan(client, CEOV_ERR_NO_MEMORY, "ceoverlapd: no memory for a plan");
		return;
	}
	client->since_ns = assembly->heard_ns = cei_now_ns();
	assembly->head = *plan;
	assembly->is_open = 1;
}

/* Takes descriptors first and then bytes. Returns 0 if this is no part of the plan. */
static int take_part(struct cei_assembly *assembly, const struct cei_service_part *part,
		     struct cei_datagram *datagram)
{
	uint32_t n_wanted = assembly->head.n_fds;

	if (!assembly->is_open)
		return 0;
	if (datagram->n_fds) {
		if (part->n_bytes || datagram->n_fds > n_wanted - assembly->n_fds)
			return 0;
		memcpy(assembly->fds + assembly->n_fds, datagram->fds,
		       datagram->n_fds * sizeof(*datagram->fds));
		assembly->n_fds += datagram->n_fds;
		datagram->n_fds = 0;
		return 1;
	}
	if (!part->n_bytes || assembly->n_fds < n_wanted ||
	    part->n_bytes > assembly->head.n_bytes - assembly->n_bytes)
		return 0;
	memcpy(assembly->bytes + assembly->n_bytes, part->bytes, part->n_bytes);
	assembly->n_bytes += part->n_bytes;
	return 1;
}

int cei_client_part_comes(struct cei_client *client, const struct cei_service_part *part,
			  struct cei_datagram *datagram)
{
	struct cei_assembly *assembly = &client->assembly;

	if (assembly->is_refused)
		return 0;
	/* Descriptors that did not come: this process, or the system, has too many open. */
	if (assembly->is_open && !part->n_bytes && !datagram->n_fds) {
		refuse_plan(client, CEOV_ERR_SYSTEM, "ceoverlapd: the daemon has too many files "
			    "open for another plan (LimitNOFILE=)");
		return 0;
	}
	assembly->heard_ns = cei_now_ns();
	if (!take_part(assembly, part, datagram)) {
		cei_client_turn_away(client, CEOV_ERR_INVALID, "ceoverlapd: a part that belongs to "
				     "no plan");
		return 0;
	}
	return assembly->n_bytes == assembly->head.n_bytes;
}

/* What lies unread was said in time, even if this process was stopped meanwhile. */
int cei_client_plan_is_late(const struct cei_client *client, uint64_t now_ns)
{
	const struct cei_assembly *assembly = &client->assembly;
	char byte;

	if (!assembly->is_open || client->has_task)
		return 0;
	if (now_ns >= client->since_ns + PLAN_PATIENCE_NS)
		return 1;
	return now_ns >= assembly->heard_ns + PART_PATIENCE_NS &&
		recv(client->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT) <= 0;
}
