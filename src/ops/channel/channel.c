/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates channels, connects them with those of peers, and releases them. */

#include "ops/channel/channel.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/site.h"
#include "base/sized.h"
#include "base/write.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/core/find_peers.h"

#define RING_BYTES     (UINT64_C(1) << 20)
#define RING_BYTES_MIN (UINT64_C(64) << 10)
#define RING_BYTES_MAX (UINT64_C(1) << 30)
#define SLOT_ALIGN     UINT64_C(4096)
#define MESSAGE_BYTES_MIN UINT64_C(4096)

_Static_assert(CEI_LOCAL_MAX <= CEI_OP_RANKS_MAX, "channels have room for all ranks of a node");

/* --- creation ------------------------------------------------------------------------------- */

static const char *fault_of(const ceov_context *context, const struct ceov_channel_config *config,
			    int is_host)
{
	size_t length = config->name ? strnlen(config->name, CEI_CHANNEL_NAME_BYTES) : 0;

	if (!length || length == CEI_CHANNEL_NAME_BYTES)
		return "the name must have 1 to 40 bytes";
	if (config->ring_bytes && (config->ring_bytes < RING_BYTES_MIN ||
				   config->ring_bytes > RING_BYTES_MAX))
		return "ring_bytes must be 0, or 64 KiB to 1 GiB";
	if (cei_site_n_local(&context->site) != context->site.n_ranks)
		return "channels are for groups of one node";
	if (!is_host)
		return "channels are for ranks on the host; use operators on GPUs";
	return NULL;
}

static int take_config(ceov_context *context, const struct ceov_channel_config *from,
		       struct ceov_channel_config *ret_config)
{
	static const char call[] = "ceov_channel_create";
	const char *fault;
	uint32_t member = 0;
	int r = cei_context_check(context, call);

	if (!r)
		r = cei_sized_check(&context->report, from, sizeof(*from), sizeof(*from),
				    "ceov_channel_create: config");
	if (r)
		return r;
	cei_sized_take(ret_config, from, sizeof(*ret_config));
	r = cei_context_own_rank(context, ret_config->rank, call, &member);
	if (r)
		return r;
	fault = fault_of(context, ret_config, context->site.members[member].place.kind ==
			 CEOV_PLACE_HOST);
	return fault ? cei_raise(&context->report, CEOV_ERR_INVALID, 0, "%s: rank %u: %s", call,
				 ret_config->rank, fault) : 0;
}

static const char *name_of(const ceov_channel *channel, char *buffer)
{
	snprintf(buffer, CEI_GROUP_NAME_BYTES, "ch.%s", channel->name);
	return buffer;
}

/* All of a rank's messages together have as much as one slot. */
static uint64_t message_bytes(const ceov_channel *channel)
{
	uint64_t bytes = channel->slot_bytes / channel->n_ranks / CEI_CACHE_LINE * CEI_CACHE_LINE;

	return bytes > MESSAGE_BYTES_MIN ? bytes : MESSAGE_BYTES_MIN;
}

static uint64_t ring_bytes(const ceov_channel *channel)
{
	return sizeof(struct cei_ring) + CEI_RING_SLOTS * channel->slot_bytes +
		channel->n_ranks * channel->message_bytes;
}

static int make_ring(ceov_channel *channel)
{
	ceov_context *context = channel->object.context;
	ceov_buffer **buffer = &channel->buffers[channel->rank];
	char name[CEI_GROUP_NAME_BYTES];
	int r = ceov_buffer_create(context, channel->rank, ring_bytes(channel), buffer);

	if (r)
		return r;
	channel->rings[channel->rank] = ceov_buffer_base(*buffer, channel->rank);
	memset(channel->rings[channel->rank], 0, sizeof(struct cei_ring));
	return ceov_buffer_share(*buffer, name_of(channel, name));
}

/* First what was found at peers, because they may wait for that. */
static int release_rings(ceov_channel *channel)
{
	uint32_t i, rank;
	int r = 0;

	for (i = 1; !r && i <= channel->n_ranks; i++) {
		rank = (channel->rank + i) % channel->n_ranks;
		r = ceov_buffer_release(channel->buffers[rank]);
		if (!r)
			channel->buffers[rank] = NULL;
	}
	return r;
}

static void stop(struct cei_object *object)
{
	(void)cei_channel_end(CEI_OWNER(object, ceov_channel, object), CEOV_ERR_ABORTED);
}

static void quarantine(struct cei_object *object)
{
	ceov_channel *channel = CEI_OWNER(object, ceov_channel, object);

	cei_object_end(object);
	pthread_mutex_destroy(&channel->turns_lock);
	pthread_mutex_destroy(&channel->lock);
	cei_object_quarantine(object);
}

const struct cei_object_type cei_channel_type = {
	"channel", offsetof(ceov_context, uppers), stop, quarantine, NULL
};

int ceov_channel_create(ceov_context *context, const struct ceov_channel_config *from,
			ceov_channel **ret_channel)
{
	struct ceov_channel_config config;
	ceov_channel *channel;
	int r = take_config(context, from, &config);

	if (r)
		return r;
	if (!ret_channel)
		return cei_raise(&context->report, CEOV_ERR_INVALID, 0,
				 "ceov_channel_create: no ret_channel");
	channel = calloc(1, sizeof(*channel));
	if (!channel)
		return cei_raise(&context->report, CEOV_ERR_NO_MEMORY, 0,
				 "ceov_channel_create: no memory for a handle");
	strcpy(channel->name, config.name);     /* checked to fit */
	channel->rank = config.rank;
	channel->n_ranks = context->site.n_ranks;
	channel->slot_bytes = (config.ring_bytes ? config.ring_bytes : RING_BYTES) /
		CEI_RING_SLOTS / SLOT_ALIGN * SLOT_ALIGN;
	channel->deadline_ns = config.deadline_ns ? config.deadline_ns : context->deadline_ns;
	channel->message_bytes = message_bytes(channel);
	cei_backoff_reset(&channel->backoff);
	pthread_mutex_init(&channel->lock, NULL);
	pthread_mutex_init(&channel->turns_lock, NULL);
	cei_object_init(&channel->object, context, &cei_channel_type);
	r = make_ring(channel);
	if (!r) {
		*ret_channel = channel;
		return 0;
	}
	(void)release_rings(channel);           /* what a peer has found stays until ceov_close() */
	quarantine(&channel->object);
	return r;
}

/* --- connection ----------------------------------------------------------------------------- */

static int find_ring(void *arg, uint32_t rank, uint64_t by_ns)
{
	ceov_channel *channel = arg;
	char name[CEI_GROUP_NAME_BYTES];
	struct cei_lookup lookup = { rank, name_of(channel, name), by_ns };
	uint64_t bytes;
	int r = 0;

	if (!channel->buffers[rank])
		r = cei_buffer_find(channel->object.context, &lookup, &channel->buffers[rank]);
	if (r)
		return r;
	bytes = channel->buffers[rank]->region->size_bytes;
	channel->rings[rank] = ceov_buffer_base(channel->buffers[rank], channel->rank);
	if (bytes == ring_bytes(channel) && channel->rings[rank])
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_connect: '%s': rank %u shares %" PRIu64 " bytes, rank %u %"
			 PRIu64 "; give all ranks the same ring_bytes", channel->name,
			 channel->rank, ring_bytes(channel), rank, bytes);
}

int ceov_channel_connect(ceov_channel *channel, uint64_t timeout_ns)
{
	static const char call[] = "ceov_channel_connect";
	struct cei_find_peers peers = { .call = call, .arg = channel, .find = find_ring };
	uint64_t deadline_ns = cei_deadline(timeout_ns);
	int r = cei_object_check(channel, &cei_channel_type, call);

	if (r)
		return r;
	peers.context = channel->object.context;
	peers.rank = channel->rank;
	peers.name = channel->name;
	pthread_mutex_lock(&channel->lock);
	r = cei_find_peers(&peers, deadline_ns);
	pthread_mutex_unlock(&channel->lock);
	if (r)
		return r == CEOV_NONE ? CEOV_PENDING : r;
	/* release: pairs with the acquire in check_connected(); the peers' rings are seen then */
	atomic_store_explicit(&channel->is_connected, 1, memory_order_release);
	return 0;
}

/* --- calls ---------------------------------------------------------------------------------- */

static int check_connected(const ceov_channel *channel, const char *call)
{
	int r = cei_object_check(channel, &cei_channel_type, call);

	/* acquire: pairs with ceov_channel_connect() */
	if (r || atomic_load_explicit(&channel->is_connected, memory_order_acquire))
		return r;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_STATE, 0,
			 "%s: channel '%s' of rank %u is not connected yet", call, channel->name,
			 channel->rank);
}

static int error_of(const ceov_channel *channel)
{
	/* acquire: pairs with cei_channel_end() */
	return atomic_load_explicit(&channel->error, memory_order_acquire);
}

int cei_channel_end(ceov_channel *channel, int error)
{
	int none = 0;

	/* acq_rel: pairs with error_of() and cei_wait_look() */
	if (!atomic_compare_exchange_strong_explicit(&channel->error, &none, error,
						     memory_order_acq_rel, memory_order_acquire))
		return none;
	/* release: pairs with cei_wait_look() of peers, which then see this rank's head */
	atomic_store_explicit(&channel->rings[channel->rank]->poison, (uint32_t)-error,
			      memory_order_release);
	return error;
}

static int raise_fault(const ceov_channel *channel, const char *call, const struct ceov_call *of,
		       const char *fault)
{
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "%s: channel '%s', rank %u: %s: %s", call, channel->name, channel->rank,
			 cei_call_kind_name(of->kind), fault);
}

static const char *call_at(const struct cei_calls *calls, uint32_t i)
{
	return (const char *)calls->first + i * calls->struct_bytes;
}

struct ceov_call cei_calls_at(const struct cei_calls *calls, uint32_t i)
{
	struct ceov_call call;

	cei_sized_take(&call, call_at(calls, i), sizeof(call));
	call.struct_bytes = sizeof(call);
	return call;
}

/* Returns what is wrong with call i as a struct, or NULL. */
static const char *struct_fault(const struct cei_calls *calls, uint32_t i)
{
	const struct ceov_call *from = (const void *)call_at(calls, i);

	if (from->struct_bytes != calls->struct_bytes)
		return "calls of one array have one struct_bytes";
	return cei_sized_fault(from, offsetof(struct ceov_call, stream), sizeof(*from));
}

static int is_message(const struct ceov_call *call)
{
	return call->kind == CEOV_SEND || call->kind == CEOV_RECEIVE;
}

/* Checks all calls but a single collective, which run() checks. */
static int check_messages(const ceov_channel *channel, const struct cei_calls *calls)
{
	struct ceov_call call = { .kind = CEOV_SEND };
	struct cei_call made;
	const char *fault = NULL;
	uint32_t i;

	for (i = 0; !fault && i < calls->n; i++) {
		fault = struct_fault(calls, i);
		if (fault)
			break;
		call = cei_calls_at(calls, i);
		fault = is_message(&call) ?
			cei_call_make(&call, channel->rank, channel->n_ranks, &made) :
			"only sends and receives can be called together";
	}
	return fault ? raise_fault(channel, "ceov_channel_run", &call, fault) : 0;
}

/* Makes a collective. */
static int run(ceov_channel *channel, const struct ceov_call *call)
{
	const char *fault;
	int r;

	pthread_mutex_lock(&channel->lock);
	r = error_of(channel);                  /* raised where the channel was ended */
	fault = r ? NULL : cei_call_make(call, channel->rank, channel->n_ranks, &channel->call);
	if (fault)
		r = raise_fault(channel, "ceov_channel_run", call, fault);
	if (!r)
		r = cei_host_run(channel);
	pthread_mutex_unlock(&channel->lock);
	return r;
}

/* Finds out where calls lie, if the first one is a call, which *ret_first is then. */
static int take_calls(const ceov_channel *channel, const char *call, struct cei_calls *calls,
		      struct ceov_call *ret_first)
{
	static const struct ceov_call none;
	const struct ceov_call *first = calls->first;
	const char *fault = cei_sized_fault(first, offsetof(struct ceov_call, stream),
					    sizeof(*first));

	if (fault)
		return raise_fault(channel, call, &none, fault);
	calls->struct_bytes = first->struct_bytes;
	*ret_first = cei_calls_at(calls, 0);
	return 0;
}

static int check_n(const ceov_channel *channel, uint32_t n)
{
	if (n && n <= CEOV_CHANNEL_CALLS_MAX)
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_run: channel '%s', rank %u: %u calls; 1 to %u can be made "
			 "at once", channel->name, channel->rank, n, CEOV_CHANNEL_CALLS_MAX);
}

int ceov_channel_run(ceov_channel *channel, const struct ceov_call *from, uint32_t n)
{
	static const char name[] = "ceov_channel_run";
	struct cei_calls calls = { .first = from, .n = n };
	struct ceov_call call;
	int r = check_connected(channel, name);

	if (!r)
		r = check_n(channel, n);
	if (!r)
		r = take_calls(channel, name, &calls, &call);
	if (r)
		return r;
	if (n == 1 && !is_message(&call))
		return run(channel, &call);
	r = check_messages(channel, &calls);
	if (!r)
		r = error_of(channel);
	return r ? r : cei_messages_run(channel, &calls);
}

int ceov_channel_status(ceov_channel *channel)
{
	int r = cei_object_check(channel, &cei_channel_type, "ceov_channel_status");

	return r ? r : error_of(channel);
}

int ceov_channel_abort(ceov_channel *channel)
{
	int r = cei_object_check(channel, &cei_channel_type, "ceov_channel_abort");

	if (r)
		return r;
	(void)cei_channel_end(channel, CEOV_ERR_ABORTED);
	return 0;
}

/* --- explanations --------------------------------------------------------------------------- */

/* call: NULL, or the one to explain. The caller holds the lock. */
static const char *explain(ceov_channel *channel, const struct ceov_call *call, char *text,
			   size_t n)
{
	const struct cei_call *made = &channel->call;
	char what[CEI_CALL_TEXT_BYTES];
	const char *fault = NULL;
	size_t at;

	at = (size_t)snprintf(text, n, "channel '%s' of rank %u: %u ranks on the host; each puts "
			      "what it gives into %u slots of %" PRIu64 " bytes, and peers read "
			      "theirs\n", channel->name, channel->rank, channel->n_ranks,
			      CEI_RING_SLOTS, channel->slot_bytes);
	if (call)
		fault = cei_call_make(call, channel->rank, channel->n_ranks, &channel->call);
	if (!call || fault)
		return fault;
	cei_call_text(made->what, what);
	snprintf(text + at, n - at, "%s: %s, at most %" PRIu64 " bytes of it at a time\n", what,
		 made->is_shared ? "all peers read the same bytes" :
		 "each peer reads its own block of a slot", cei_host_step(channel, made));
	return NULL;
}

int ceov_channel_explain(ceov_channel *channel, const struct ceov_call *from, int fd)
{
	static const char name[] = "ceov_channel_explain";
	struct cei_calls calls = { .first = from, .n = 1 };
	struct ceov_call call;
	const char *fault;
	char text[640];
	int r = check_connected(channel, name);

	if (!r && from)
		r = take_calls(channel, name, &calls, &call);
	if (r)
		return r;
	pthread_mutex_lock(&channel->lock);
	fault = explain(channel, from ? &call : NULL, text, sizeof(text));
	if (fault)
		r = raise_fault(channel, name, &call, fault);
	pthread_mutex_unlock(&channel->lock);
	return r ? r : cei_write(cei_channel_report(channel), fd, text, name);
}

/* --- release -------------------------------------------------------------------------------- */

int ceov_channel_release(ceov_channel *channel)
{
	int r;

	if (!channel)
		return 0;
	r = cei_object_check(channel, &cei_channel_type, "ceov_channel_release");
	if (r)
		return r;
	/* A channel of which something was released makes no more calls. */
	(void)cei_channel_end(channel, CEOV_ERR_STATE);
	pthread_mutex_lock(&channel->lock);
	r = release_rings(channel);
	pthread_mutex_unlock(&channel->lock);
	if (!r)
		quarantine(&channel->object);
	return r;
}
