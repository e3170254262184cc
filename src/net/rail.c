/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What other layers call of a rail. What touches connections is carried out by its thread. */

#include "net/rail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/rail_private.h"

/* What a process costs on a rail that is connected to, with one lane. */
_Static_assert(sizeof(struct cei_far_peer) + sizeof(struct cei_far_lane) +
	       CEI_FAR_OPS * sizeof(struct cei_far_op) <= 32u << 10,
	       "a connection stays small: a process may have thousands");

/* --- opening and closing --------------------------------------------------- */

static int allocate(struct cei_rail *rail)
{
	struct cei_far_nic *nic = &rail->nic;
	uint32_t n = nic->config.n_processes;

	nic->peers = calloc(n, sizeof(struct cei_far_peer *));
	rail->n_notes = calloc(n, sizeof(*rail->n_notes));
	if (nic->peers && rail->n_notes &&
	    !cei_ring_init(&rail->ready, CEI_RAIL_LANES_MAX) &&
	    !cei_ring_init(&rail->notes, 4 * CEI_RAIL_NOTES_MAX))
		return 0;
	return cei_raise(nic->config.report, CEOV_ERR_NO_MEMORY, 0,
			 "net: no memory for a rail");
}

static void init(struct cei_rail *rail, const struct cei_rail_config *config)
{
	rail->nic.config = *config;
	if (!config->timeout_ns)
		rail->nic.config.timeout_ns = CEI_RAIL_TIMEOUT_NS;
	cei_list_init(&rail->nic.urgent);
	cei_list_init(&rail->nic.connected);
	cei_list_init(&rail->nic.parked);
	cei_list_init(&rail->calls);
	rail->nic.now_ns = config->progress_by_caller ? 0 : cei_now_ns();
	rail->epoll_fd = -1;
	rail->bell.fd = -1;
	pthread_mutex_init(&rail->lock, NULL);
	(void)cei_condition_init(&rail->called);        /* on Linux it cannot fail */
}

static void free_rail(struct cei_rail *rail)
{
	struct cei_far_note_item *item;

	while (rail->notes.cells && (item = cei_ring_take(&rail->notes)))
		free(item);
	cei_ring_fini(&rail->notes);
	cei_ring_fini(&rail->ready);
	cei_bell_fini(&rail->bell);
	free(rail->n_notes);
	free(rail->nic.peers);
	pthread_cond_destroy(&rail->called);
	pthread_mutex_destroy(&rail->lock);
	free(rail);
}

static int open_transport(struct cei_rail *rail, const char **ret_why)
{
	struct cei_transport *transport = &rail->nic.transport;
	const struct cei_rail_config *config = &rail->nic.config;

	transport->ops = config->transport;
	transport->config.report = config->report;
	transport->config.device = config->device;
	transport->config.kinds = config->kinds;
	transport->config.n_peers = config->n_processes - 1;
	transport->config.events = &cei_rail_transport_events;
	transport->config.events_arg = rail;
	cei_far_table_init(&rail->nic.table, transport);
	cei_far_slots_init(&rail->nic.slots, config->copier, config->copier_arg,
			   &rail->nic.table);
	return transport->ops->open(transport, ret_why);
}

static void close_transport(struct cei_rail *rail)
{
	struct cei_far_table *table = &rail->nic.table;
	struct cei_transport *transport = &rail->nic.transport;

	while (table->n_regions)
		(void)cei_far_region_close(table, table->regions[0]->id);
	cei_far_slots_fini(&rail->nic.slots);
	while (table->n_memories)
		(void)cei_far_memory_close(table, table->memories[0]);
	cei_far_table_fini(table);
	transport->ops->close(transport);
}

static int open_all(struct cei_rail *rail, const char **ret_why)
{
	int r = allocate(rail);

	if (!r)
		r = cei_bell_init(&rail->bell, rail->nic.config.report);
	if (!r)
		r = open_transport(rail, ret_why);
	if (r)
		return r;
	r = rail->nic.config.group ? cei_rail_thread_open(rail) : 0;
	if (r) {
		cei_rail_thread_close(rail);
		close_transport(rail);
	}
	return r;
}

int cei_rail_open(const struct cei_rail_config *config, struct cei_rail **ret_rail,
		  const char **ret_why)
{
	struct cei_rail *rail = aligned_alloc(_Alignof(struct cei_rail), sizeof(*rail));
	int r;

	if (!rail)
		return cei_raise(config->report, CEOV_ERR_NO_MEMORY, 0,
				 "net: no memory for a rail");
	memset(rail, 0, sizeof(*rail));
	init(rail, config);
	r = open_all(rail, ret_why);
	if (r) {
		free_rail(rail);
		return r;
	}
	*ret_rail = rail;
	return 0;
}

int cei_rail_begin(struct cei_rail *rail, uint64_t group)
{
	rail->nic.config.group = group;
	return cei_rail_thread_open(rail);
}

static int leave(struct cei_rail *rail, void *arg)
{
	struct cei_list *connected = &rail->nic.connected, *at;

	(void)cei_rail_take_notes(rail);        /* said before: the farewell is behind them */
	rail->is_leaving = 1;
	for (at = connected->next; at != connected; at = at->next)
		cei_far_peer_leave(CEI_OWNER(at, struct cei_far_peer, connected), arg != NULL);
	return 0;
}

void cei_rail_leave(struct cei_rail *rail)
{
	(void)cei_rail_run(rail, leave, NULL);
}

static int is_quiet(struct cei_rail *rail, void *arg)
{
	(void)arg;
	return cei_list_is_empty(&rail->nic.connected);
}

int cei_rail_is_quiet(struct cei_rail *rail)
{
	return cei_rail_run(rail, is_quiet, NULL) == 1;
}

/* Waits until no connection is open, making progress if nobody else does. */
static int await_quiet(struct cei_rail *rail, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (!cei_rail_is_quiet(rail)) {
		if (cei_now_ns() >= deadline_ns)
			return CEOV_ERR_TIMEOUT;
		if (!rail->has_thread)
			(void)cei_rail_turn(rail, cei_now_ns());
		cei_backoff_step(&backoff);
	}
	return 0;
}

static int stays_open(struct cei_rail *rail)
{
	return cei_raise(rail->nic.config.report, CEOV_ERR_TIMEOUT, 0,
			 "net: the rail has connections that do not close; its memory stays "
			 "registered, since bytes may still land there");
}

int cei_rail_close(struct cei_rail *rail, uint64_t deadline_ns)
{
	uint32_t i;

	if (!rail)
		return 0;
	cei_rail_leave(rail);
	if (await_quiet(rail, deadline_ns)) {
		(void)cei_rail_run(rail, leave, rail);
		if (await_quiet(rail, cei_deadline(CEI_RAIL_CLOSE_NS))) {
			cei_rail_thread_close(rail);
			return stays_open(rail);
		}
	}
	cei_rail_thread_close(rail);
	if (rail->has_thread)
		return CEOV_ERR_TIMEOUT;        /* raised: its thread does not answer */
	for (i = 0; i < rail->nic.config.n_processes; i++)
		cei_far_peer_free(rail->nic.peers[i]);
	close_transport(rail);
	free_rail(rail);
	return 0;
}

struct address {
	uint8_t  *bytes;
	uint32_t *n_bytes;
};

static int address(struct cei_rail *rail, void *arg)
{
	struct address *wanted = arg;
	struct cei_transport *transport = &rail->nic.transport;

	return transport->ops->address(transport, wanted->bytes, wanted->n_bytes);
}

int cei_rail_address(struct cei_rail *rail, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	struct address wanted = { ret_address, ret_n_bytes };

	return cei_rail_run(rail, address, &wanted);
}

const char *cei_rail_describe(struct cei_rail *rail)
{
	return rail->nic.transport.ops->describe(&rail->nic.transport);
}

/* --- memory ---------------------------------------------------------------- */

struct memory_call {
	const struct cei_far_memory *device;    /* of a unit's memory: what it is */
	void                        *base;      /* of host memory */
	uint64_t                     n_bytes;   /* of host memory */
	struct cei_far_memory       *memory;
};

static int memory_open(struct cei_rail *rail, void *arg)
{
	struct memory_call *call = arg;

	return cei_far_memory_open(&rail->nic.table, call->base, call->n_bytes, &call->memory);
}

static int device_memory_open(struct cei_rail *rail, void *arg)
{
	struct memory_call *call = arg;
	int r = cei_rail_use_unit(rail, call->device->unit, call->device->needs_slots);

	return r ? r : cei_far_memory_open_device(&rail->nic.table, call->device, &call->memory);
}

static int memory_close(struct cei_rail *rail, void *arg)
{
	return cei_far_memory_close(&rail->nic.table, arg);
}

static int region_open(struct cei_rail *rail, void *arg)
{
	const struct cei_far_region *region = arg;
	int r = region->device ? cei_rail_use_unit(rail, region->unit, region->needs_slots) : 0;

	return r ? r : cei_far_region_open(&rail->nic.table, region);
}

static int region_close(struct cei_rail *rail, void *arg)
{
	return cei_far_region_close(&rail->nic.table, *(uint32_t *)arg);
}

int cei_rail_memory_open(struct cei_rail *rail, void *base, uint64_t n_bytes,
			 struct cei_far_memory **ret_memory)
{
	struct memory_call call = { .base = base, .n_bytes = n_bytes };
	int r = cei_rail_run(rail, memory_open, &call);

	if (!r)
		*ret_memory = call.memory;
	return r;
}

int cei_rail_device_memory_open(struct cei_rail *rail, const struct cei_far_memory *described,
				struct cei_far_memory **ret_memory)
{
	struct memory_call call = { .device = described };
	int r = cei_rail_run(rail, device_memory_open, &call);

	if (!r)
		*ret_memory = call.memory;
	return r;
}

int cei_rail_memory_close(struct cei_rail *rail, struct cei_far_memory *memory)
{
	return cei_rail_run(rail, memory_close, memory);
}

int cei_rail_region_open(struct cei_rail *rail, const struct cei_far_region *region)
{
	struct cei_far_region copy = *region;

	return cei_rail_run(rail, region_open, &copy);
}

int cei_rail_region_close(struct cei_rail *rail, uint32_t id)
{
	return cei_rail_run(rail, region_close, &id);
}

/* --- lanes ----------------------------------------------------------------- */

struct lane_call {
	uint32_t             process;
	struct cei_far_lane *lane;
};

static int make_lane(struct cei_rail *rail, struct cei_far_peer *peer,
		     struct cei_far_lane **ret_lane)
{
	struct cei_far_lane *lane = calloc(1, sizeof(*lane));

	if (!lane || cei_far_lane_init(lane, peer->process, &rail->ready, &rail->bell)) {
		free(lane);
		return cei_raise(rail->nic.config.report, CEOV_ERR_NO_MEMORY, 0,
				 "net: no memory for a lane to process %u", peer->process);
	}
	lane->vitals = &peer->pulse.vitals;
	cei_list_append(&peer->idle, &lane->link);
	rail->n_lanes++;
	*ret_lane = lane;
	return 0;
}

static int lane_open(struct cei_rail *rail, void *arg)
{
	struct lane_call *call = arg;
	struct cei_far_peer *peer;
	int r;

	if (rail->n_lanes == CEI_RAIL_LANES_MAX)
		return cei_raise(rail->nic.config.report, CEOV_ERR_INVALID, 0,
				 "net: the rail has %u lanes already, and takes no more",
				 rail->n_lanes);
	peer = cei_far_peer_get(&rail->nic, call->process);
	if (!peer)
		return CEOV_ERR_INVALID;        /* raised */
	r = cei_far_peer_use(peer);
	return r ? r : make_lane(rail, peer, &call->lane);
}

static int lane_close(struct cei_rail *rail, void *arg)
{
	struct cei_far_lane *lane = arg;

	(void)cei_rail_take_lanes(rail);        /* it may be among them */
	cei_far_lane_fini(lane);
	free(lane);
	rail->n_lanes--;
	return 0;
}

int cei_rail_lane_open(struct cei_rail *rail, uint32_t process, struct cei_far_lane **ret_lane)
{
	struct lane_call call = { .process = process };
	int r = cei_rail_run(rail, lane_open, &call);

	if (!r)
		*ret_lane = call.lane;
	return r;
}

void cei_rail_lane_close(struct cei_rail *rail, struct cei_far_lane *lane)
{
	(void)cei_rail_run(rail, lane_close, lane);
}

/* --- processes ------------------------------------------------------------- */

struct peer_call {
	uint32_t                process;
	struct cei_rail_status *status;
};

static int look(struct cei_rail *rail, void *arg)
{
	struct peer_call *call = arg;
	const struct cei_far_peer *peer = rail->nic.peers[call->process];
	struct cei_rail_status *status = call->status;

	memset(status, 0, sizeof(*status));
	status->counts = rail->nic.counts;
	if (!peer)
		return 0;
	status->connection = peer->state;
	status->health = peer->health;
	if (!peer->out.next)
		return 0;               /* it was never connected to */
	status->n_under_way = (uint32_t)(peer->out.next - 1 - peer->out.acked);
	status->n_parked = peer->their_parked;
	status->n_acked_bytes = peer->out.n_acked_bytes;
	status->n_landed_bytes = peer->in.n_landed_bytes;
	status->piece_bytes = peer->out.piece_bytes;
	return 0;
}

struct expected_call {
	uint32_t                  process;
	uint64_t                  n_bytes;
	struct cei_rail_expected *ret_expected;
};

static int expected(struct cei_rail *rail, void *arg)
{
	const struct cei_transport_ops *ops = rail->nic.transport.ops;
	struct expected_call *call = arg;
	const struct cei_far_peer *peer = rail->nic.peers[call->process];

	double rate;

	if (!peer || peer->state != CEI_FAR_UP || !peer->open)
		return CEOV_NONE;
	rate = cei_far_out_rate(&peer->out);
	call->ret_expected->is_measured = rate > 0;
	if (rate > 0) {
		call->ret_expected->ns = (uint64_t)((double)call->n_bytes / rate * 1e9);
		return 0;
	}
	return ops->expected ? ops->expected(peer->open, call->n_bytes, &call->ret_expected->ns)
		: CEOV_NONE;
}

int cei_rail_expected(struct cei_rail *rail, uint32_t process, uint64_t n_bytes,
		      struct cei_rail_expected *ret_expected)
{
	struct expected_call call = { process, n_bytes, ret_expected };

	if (process >= rail->nic.config.n_processes)
		return CEOV_ERR_INVALID;
	return cei_rail_run(rail, expected, &call);
}

int cei_rail_look(struct cei_rail *rail, uint32_t process, struct cei_rail_status *ret_status)
{
	struct peer_call call = { .process = process, .status = ret_status };

	if (process >= rail->nic.config.n_processes)
		return CEOV_ERR_INVALID;
	return cei_rail_run(rail, look, &call);
}
