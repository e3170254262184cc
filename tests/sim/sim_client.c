/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Keeps launches of a client in flight. */

#include "sim/sim_client.h"

#include <stdlib.h>
#include <string.h>

#include "testing.h"

struct part {                           /* a copy of a launch */
	struct sim_copy           copy;
	struct sim_client_launch *launch;
};

struct sim_client_launch {
	struct sim_client *client;
	uint32_t           n_open;      /* copies that have not ended */
	struct part        parts[SIM_CLIENT_COPIES];
};

void sim_client_add(struct sim_client *client, uint32_t from, uint32_t to)
{
	ck_assert_uint_lt(client->n_copies, SIM_CLIENT_COPIES);
	client->copies[client->n_copies].from = from;
	client->copies[client->n_copies++].to = to;
}

void sim_client_add_gather(struct sim_client *client, uint32_t n_chunks)
{
	uint32_t n = client->sim->machine->n_gpus;
	uint32_t step, from, i;

	for (step = 1; step < n; step++)
		for (from = 0; from < n; from++)
			for (i = 0; i < n_chunks; i++)
				sim_client_add(client, from, (from + step) % n);
}

static void start(struct sim_client_launch *launch);

static void end(struct sim *sim, struct sim_copy *copy)
{
	struct part *part = CEI_OWNER(copy, struct part, copy);
	struct sim_client *client = part->launch->client;
	uint64_t took = copy->done_ns - copy->job.ready_ns;

	(void)sim;
	client->n_bytes += copy->job.bytes;
	client->n_ended++;
	client->slowest_ns = took > client->slowest_ns ? took : client->slowest_ns;
	if (--part->launch->n_open)
		return;
	client->n_open--;
	if (!client->is_paused)
		start(part->launch);
}

static void start(struct sim_client_launch *launch)
{
	struct sim_client *client = launch->client;
	struct part *part;
	uint32_t i;

	client->n_open++;
	launch->n_open = client->n_copies;
	for (i = 0; i < client->n_copies; i++) {
		part = &launch->parts[i];
		memset(part, 0, sizeof(*part));
		part->launch = launch;
		part->copy.done = end;
		sim_ask(client->sim, &part->copy, client->copies[i].from, client->copies[i].to);
		part->copy.job.bytes = client->chunk_bytes;
		part->copy.job.gap_bytes = client->gap_bytes;
		if (client->hides_links)
			part->copy.job.link = NULL;
		part->copy.job.client = (uint16_t)client->slot;
		part->copy.job.urgency = client->urgency;
		part->copy.job.keeps_order = client->keeps_order;
		sim_add(client->sim, &part->copy);
	}
}

void sim_client_launch(struct sim_client *client, uint32_t n)
{
	struct sim_client_launch *launch;

	for (; n; n--) {
		launch = calloc(1, sizeof(*launch));
		ck_assert_ptr_nonnull(launch);
		ck_assert_uint_lt(client->n_launches, SIM_CLIENT_LAUNCHES);
		launch->client = client;
		client->launches[client->n_launches++] = launch;
		start(launch);
	}
}

void sim_client_resume(struct sim_client *client)
{
	uint32_t i;

	ck_assert_uint_eq(client->n_open, 0);
	client->is_paused = 0;
	for (i = 0; i < client->n_launches; i++)
		start(client->launches[i]);
}

void sim_client_fini(struct sim_client *client)
{
	while (client->n_launches)
		free(client->launches[--client->n_launches]);
}
