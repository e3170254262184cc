/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The mover to other nodes: its lanes are far lanes of the rail (net/rail.h). It moves from host
 * memory of this process, and from that of the member's own GPU by way of the rail's slots, to
 * memory of another node. Whether that is host memory, or a GPU's behind slots there, only its
 * owner knows. Host memory goes through slots, too, where the network is not to access it in place.
 *
 * Addresses of this process are pointers. One of another node has bit 63 set, then the number
 * of the region at its owner, and the offset in it; which process that is, the lane knows. One
 * of memory that a launch names is the pointer with bit 62 set and the member's number above the
 * pointer's bits: the rail does not know such memory, so its bytes go through slots, whatever kind
 * of memory it is. A mark may also be one of this process: it is raised when everything before it
 * has arrived.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/lane.h"
#include "base/clock.h"
#include "base/list.h"
#include "ipc/group/roster.h"
#include "net/network.h"
#include "net/rail.h"

extern const struct cei_place_ops cei_backend_net;

#define FAR_BIT      (UINT64_C(1) << 63)
#define REGION_SHIFT 40u
#define OFFSET_MASK  ((UINT64_C(1) << REGION_SHIFT) - 1)

/* Pointers of user space have at most 56 bits on x86-64 and Arm, which leaves 6 for the member. */
#define FLOATING_BIT   (UINT64_C(1) << 62)
#define POINTER_BITS   56u
#define FLOATING_BYTES (UINT64_C(1) << POINTER_BITS)

/* Marks of this process that wait for their submit: one for each chunk that a lane may have. */
#define OWN_POSTS 128u                          /* a power of two */

struct memory {                                 /* registered with the rail */
	struct cei_list        link;
	uint64_t               address;
	uint64_t               n_bytes;
	uint64_t               above;           /* added to the addresses in it */
	int                    is_staged;       /* its bytes go through slots, unless the
						 * rail accesses GPUs directly */
	int                    needs_slots;     /* it is no GPU's, or the rail does not know
						 * it */
	uint32_t               n_opened;        /* by plans */
	struct cei_far_memory *opened;
};

struct net_backend {
	pthread_mutex_t lock;                   /* guards the next one */
	struct cei_list memories;               /* struct memory */
};

struct own_post {
	uint64_t submit;                        /* number of the submit that it belongs to */
	uint64_t counter;
	uint64_t word;
	uint64_t value;
};

struct net_lane {
	struct cei_far_lane *far;
	uint64_t             n_submits;
	uint64_t             n_posted;          /* in own_posts, ever */
	uint64_t             n_raised;          /* and those that were raised */
	struct own_post      own_posts[OWN_POSTS];
};

/* --- opening -------------------------------------------------------------------------- */

static int net_open(struct cei_backend *backend)
{
	struct net_backend *net = backend->private;

	if (!backend->site->network)
		return CEOV_NONE;
	pthread_mutex_init(&net->lock, NULL);
	cei_list_init(&net->memories);
	return 0;
}

static void net_close(struct cei_backend *backend)
{
	struct net_backend *net = backend->private;

	if (backend->site->network)
		pthread_mutex_destroy(&net->lock);
}

/* --- memory ----------------------------------------------------------------------------- */

static int net_memory_reaches(struct cei_backend *backend, const struct cei_memory *memory)
{
	(void)backend;
	if (memory->far_id)
		return memory->size_bytes <= OFFSET_MASK;
	if (memory->is_floating)
		return 1;
	return memory->host != 0 || memory->device != 0;
}

/* With the lock held. */
static struct memory *memory_at(struct net_backend *net, uint64_t address, uint64_t n_bytes)
{
	struct cei_list *node;
	struct memory *memory;

	for (node = net->memories.next; node != &net->memories; node = node->next) {
		memory = CEI_OWNER(node, struct memory, link);
		if (memory->address == address && (!n_bytes || memory->n_bytes == n_bytes))
			return memory;
	}
	return NULL;
}

static void unregister(struct cei_backend *backend, struct memory *memory)
{
	uint64_t deadline_ns = cei_deadline(UINT64_C(1000000000));
	struct cei_rail *rail = cei_network_rail(backend->site->network);
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (memory->opened && cei_now_ns() < deadline_ns &&
	       cei_rail_memory_close(rail, memory->opened) == CEOV_PENDING)
		cei_backoff_step(&backoff);
	free(memory);
}

static int register_at(struct cei_rail *rail, const struct cei_backend *backend,
		       struct memory *memory)
{
	const struct cei_far_memory device = {
		.base = (uint8_t *)(uintptr_t)memory->address,
		.n_bytes = memory->n_bytes,
		.unit = backend->member,
		.above = memory->above,
		.needs_slots = memory->needs_slots,
	};

	return memory->is_staged ? cei_rail_device_memory_open(rail, &device, &memory->opened)
		: cei_rail_memory_open(rail, device.base, device.n_bytes, &memory->opened);
}

/* All memory that a member's launches can name is registered once, as one. */
static uint64_t address_of(const struct cei_backend *backend, const struct cei_memory *memory)
{
	if (memory->is_floating)
		return FLOATING_BIT | (uint64_t)backend->member << POINTER_BITS;
	return memory->host ? memory->host : memory->device;
}

static uint64_t bytes_of(const struct cei_memory *memory)
{
	return memory->is_floating ? FLOATING_BYTES : memory->size_bytes;
}

static int register_memory(struct cei_backend *backend, const struct cei_memory *described,
			   struct memory **ret_memory)
{
	struct cei_rail *rail = cei_network_rail(backend->site->network);
	struct memory *memory = calloc(1, sizeof(*memory));
	int r;

	if (!memory)
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "net: no memory to register %llu bytes",
				 (unsigned long long)described->size_bytes);
	memory->is_staged = !described->host ||
		cei_network_stages_host(backend->site->network);
	memory->address = address_of(backend, described);
	memory->needs_slots = described->host || described->is_floating;
	memory->above = described->is_floating ? memory->address : 0;
	memory->n_bytes = bytes_of(described);
	r = rail ? register_at(rail, backend, memory) : 0;
	if (r)
		unregister(backend, memory);
	else
		*ret_memory = memory;
	return r;
}

static int net_memory_open(struct cei_backend *backend, const struct cei_memory *memory,
			   uint64_t *ret_address)
{
	struct net_backend *net = backend->private;
	struct memory *known;
	uint64_t address;
	int r = 0;

	if (memory->far_id) {
		*ret_address = FAR_BIT | (uint64_t)memory->far_id << REGION_SHIFT;
		return 0;
	}
	address = address_of(backend, memory);
	pthread_mutex_lock(&net->lock);
	known = memory_at(net, address, bytes_of(memory));
	if (!known) {
		r = register_memory(backend, memory, &known);
		if (!r)
			cei_list_append(&net->memories, &known->link);
	}
	if (!r)
		known->n_opened++;
	pthread_mutex_unlock(&net->lock);
	if (!r)
		*ret_address = address;
	return r;
}

static void net_memory_close(struct cei_backend *backend, uint64_t address)
{
	struct net_backend *net = backend->private;
	struct memory *memory;

	if (address & FAR_BIT)
		return;
	pthread_mutex_lock(&net->lock);
	memory = memory_at(net, address, 0);
	if (memory && !--memory->n_opened) {
		cei_list_remove(&memory->link);
		unregister(backend, memory);
	}
	pthread_mutex_unlock(&net->lock);
}

/* --- lanes --------------------------------------------------------------------------------- */

static int net_lane_open(struct cei_lane *lane)
{
	struct cei_network *network = lane->backend->site->network;
	struct net_lane *net = lane->private;

	return cei_rail_lane_open(cei_network_rail(network),
				  cei_network_roster(network)->process_of[lane->peer], &net->far);
}

static void net_lane_close(struct cei_lane *lane)
{
	struct net_lane *net = lane->private;

	cei_rail_lane_close(cei_network_rail(lane->backend->site->network), net->far);
}

static struct cei_far_copy far_copy(const struct cei_piece *piece)
{
	uint64_t target = piece->target & ~FAR_BIT;
	struct cei_far_copy copy = {
		.source = piece->source,
		.offset = target & OFFSET_MASK,
		.row_bytes = piece->row_bytes,
		.n_rows = piece->n_rows,
		.source_pitch_bytes = piece->source_pitch_bytes,
		.target_pitch_bytes = piece->target_pitch_bytes,
		.region = (uint32_t)(target >> REGION_SHIFT),
	};

	return copy;
}

static int net_copy(struct cei_lane *lane, const struct cei_piece *pieces, uint32_t n_pieces)
{
	struct cei_far_copy copies[CEI_LANE_BATCH];
	struct net_lane *net = lane->private;
	uint32_t i, n = 0;

	for (i = 0; i < n_pieces; i++)
		if (pieces[i].n_rows)
			copies[n++] = far_copy(&pieces[i]);
	return n ? cei_far_lane_copy(net->far, copies, n) : 0;
}

static void keep_own(struct net_lane *net, const struct cei_post *post)
{
	net->own_posts[net->n_posted++ % OWN_POSTS] = (struct own_post){
		net->n_submits + 1, post->counter, post->word, post->value };
}

static int net_post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n_posts)
{
	struct cei_far_post far[CEI_LANE_BATCH];
	struct net_lane *net = lane->private;
	uint32_t i, n = 0, n_own;
	int r;

	for (i = 0; i < n_posts; i++) {
		if (!(posts[i].counter & FAR_BIT))
			continue;
		far[n++] = (struct cei_far_post){
			.value = posts[i].value,
			.region = (uint32_t)((posts[i].counter & ~FAR_BIT) >> REGION_SHIFT),
			.index = (uint32_t)((posts[i].counter & OFFSET_MASK) /
					    sizeof(uint64_t)),
		};
	}
	n_own = n_posts - n;
	if (net->n_posted - net->n_raised + n_own > OWN_POSTS)
		return CEOV_FULL;
	r = n ? cei_far_lane_post(net->far, far, n) : 0;
	for (i = 0; !r && i < n_posts; i++)
		if (!(posts[i].counter & FAR_BIT))
			keep_own(net, &posts[i]);
	return r;
}

static int net_submit(struct cei_lane *lane)
{
	struct net_lane *net = lane->private;
	int r = cei_far_lane_submit(net->far);

	net->n_submits += !r;
	return r;
}

static void raise_counter(uint64_t address, uint64_t value)
{
	/* release: pairs with the acquire of readers; the bytes that the mark stands behind were
	 * read from their source, and arrived, before the lane's reap() said so */
	if (address)
		atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)address, value,
				      memory_order_release);
}

static int net_reap(struct cei_lane *lane, uint64_t *ret_n_done)
{
	struct net_lane *net = lane->private;
	const struct own_post *post;
	int r = cei_far_lane_reap(net->far, ret_n_done);

	for (; net->n_raised < net->n_posted; net->n_raised++) {
		post = &net->own_posts[net->n_raised % OWN_POSTS];
		if (post->submit > *ret_n_done)
			break;
		raise_counter(post->counter, post->value);
		raise_counter(post->word, post->value);
	}
	return r;
}

static int net_turn(struct cei_lane *lane)
{
	return cei_rail_turn(cei_network_rail(lane->backend->site->network), cei_now_ns());
}

static void net_stop(struct cei_lane *lane)
{
	struct net_lane *net = lane->private;

	cei_far_lane_stop(net->far);
}

static int net_is_idle(struct cei_lane *lane)
{
	struct net_lane *net = lane->private;

	return cei_far_lane_is_idle(net->far);
}

/* How the other side does for submits that are not done, and for how long. */
static enum cei_far_health health_of(const struct net_lane *net, uint64_t *ret_since_ns)
{
	uint64_t n_done;

	*ret_since_ns = 0;
	(void)cei_far_lane_reap(net->far, &n_done);
	if (!net->far->vitals || n_done == net->n_submits)
		return CEI_FAR_IDLE;
	return cei_far_vitals_judge(net->far->vitals, cei_now_ns(), ret_since_ns);
}

static void net_describe_peer(struct cei_lane *lane, char *ret_text, uint32_t n_bytes)
{
	struct net_lane *net = lane->private;
	uint64_t since_ns;
	enum cei_far_health health = health_of(net, &since_ns);
	double seconds = (double)since_ns / 1e9;

	if (health == CEI_FAR_GONE)
		snprintf(ret_text, n_bytes, "is gone or stopped: nothing was heard of it for "
			 "%.1f s", seconds);
	else if (health == CEI_FAR_STUCK)
		snprintf(ret_text, n_bytes, "is stuck: it answers, but no bytes have landed for "
			 "%.1f s", seconds);
	else if (health == CEI_FAR_MOVING)
		snprintf(ret_text, n_bytes, "is slow: bytes were landing %.1f s ago", seconds);
	else
		snprintf(ret_text, n_bytes, "has not answered: too little time has passed to say "
			 "whether it is slow, stuck or gone");
}

static int net_drain(struct cei_lane *lane, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	while (!net_is_idle(lane)) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(lane->backend->site->report, CEOV_ERR_TIMEOUT, 0,
					 "net: lane %u to rank %u does not come to its end",
					 lane->index, lane->peer);
		if (lane->backend->site->progress_by_caller)
			(void)net_turn(lane);
		cei_backoff_step(&backoff);
	}
	return 0;
}

static const struct cei_lane_ops lanes = {
	.lane_bytes    = sizeof(struct net_lane),
	.open          = net_lane_open,
	.close         = net_lane_close,
	.copy          = net_copy,
	.post          = net_post,
	.submit        = net_submit,
	.reap          = net_reap,
	.turn          = net_turn,
	.drain         = net_drain,
	.stop          = net_stop,
	.is_idle       = net_is_idle,
	.describe_peer = net_describe_peer,
};

const struct cei_place_ops cei_backend_net = {
	.name           = "net",
	.serves         = 1u << CEOV_PLACE_HOST | 1u << CEOV_PLACE_GPU,
	.moves          = CEI_MOVES_WITHIN_HOST | CEI_MOVES_GPU_TO_HOST,
	.caps           = CEI_CAP_ORDERED | CEI_CAP_DELIVERED | CEI_CAP_PEER_LANES |
			  CEI_CAP_LEAVES_MACHINE,
	.backend_bytes  = sizeof(struct net_backend),
	.lanes          = &lanes,
	.open           = net_open,
	.close          = net_close,
	.memory_reaches = net_memory_reaches,
	.memory_open    = net_memory_open,
	.memory_close   = net_memory_close,
};
