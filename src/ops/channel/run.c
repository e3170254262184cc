/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Takes calls of channels, and tells what became of them. */

#include "ops/channel/channel.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/ranges.h"
#include "base/sized.h"
#include "base/write.h"
#include "ce_engine/objects/context.h"
#include "ops/channel/gpu.h"
#include "ops/channel/waits.h"

/* --- calls ---------------------------------------------------------------------------------- */

static int is_connected(const ceov_channel *channel)
{
	/* acquire: pairs with ceov_channel_connect() */
	return atomic_load_explicit(&channel->is_connected, memory_order_acquire);
}

static int check_connected(const ceov_channel *channel, const char *call)
{
	int r = cei_object_check(channel, &cei_channel_type, call);

	if (r || is_connected(channel))
		return r;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_STATE, 0,
			 "%s: channel '%s' of rank %u is not connected yet", call, channel->name,
			 channel->rank);
}

int cei_channel_error(ceov_channel *channel)
{
	/* acquire: pairs with cei_channel_end() */
	int error = atomic_load_explicit(&channel->error, memory_order_acquire);

	const struct cei_channel_status *found = NULL;

	if (!error && channel->gpu)
		found = cei_gpu_channel_status(channel);
	return found ? cei_gpu_channel_raise(channel, found) : error;
}

static int raise_fault(const ceov_channel *channel, const char *call, const struct ceov_call *of,
		       const char *fault)
{
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "%s: channel '%s', rank %u: %s: %s", call, channel->name, channel->rank,
			 cei_call_kind_name(of->kind), fault);
}

/* Returns what is wrong with call i as a struct, or NULL. */
static const char *struct_fault(const struct cei_calls *calls, uint32_t i)
{
	const struct ceov_call *from = 
		(const void *)((const char *)calls->first + i * calls->struct_bytes);

	if (from->struct_bytes != calls->struct_bytes)
		return "calls of one array have one struct_bytes";
	return cei_sized_fault(from, offsetof(struct ceov_call, stream), sizeof(*from));
}

static int is_message(const struct ceov_call *call)
{
	return call->kind == CEOV_SEND || call->kind == CEOV_RECEIVE;
}

/* What GPUs do not do with messages that host ranks do; of others nothing was found. */
static const char *gpu_fault(const ceov_channel *channel, const struct cei_calls *calls)
{
	struct cei_gpu_own own = { .next_send = 0 };
	void *stream = cei_calls_at(calls, 0).stream;
	uint32_t i;
	int r;

	for (i = 1; i < calls->n; i++)
		if (cei_calls_at(calls, i).stream != stream)
			return "messages that are called together have one stream";
	do
		r = cei_gpu_next_own(calls, channel->rank, &own);
	while (r > 0);
	return r ? "a rank on a GPU receives what it sends to itself in the same call" : NULL;
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
	if (!fault && channel->gpu)
		fault = gpu_fault(channel, calls);
	return fault ? raise_fault(channel, "ceov_channel_run", &call, fault) : 0;
}

/* Kernels do not know that a process has gone, and would wait for it until their deadline. */
static int check_peers(ceov_channel *channel)
{
	struct cei_wait_cause cause = { .end = CEI_WAIT_LOST, .where = "a call on a GPU" };
	uint32_t rank;

	for (rank = 0; rank < channel->n_ranks; rank++) {
		cause.peer = rank;
		if (rank != channel->rank && cei_context_is_lost(channel->object.context, rank))
			return cei_wait_raise(channel, &cause);
	}
	return 0;
}

static int run_on_gpu(ceov_channel *channel, void *stream)
{
	int r = check_peers(channel);

	if (!r && channel->pool) {
		channel->pool_ops->look(channel->pool);
		r = cei_channel_error(channel);
	}
	if (!r && channel->pool && channel->pool_ops->takes(channel->pool, stream))
		return channel->pool_ops->run(channel->pool, stream);
	return r ? r : cei_gpu_channel_run(channel, stream);
}

/* Makes a collective. */
static int run(ceov_channel *channel, const struct ceov_call *call)
{
	const char *fault;
	int r;

	pthread_mutex_lock(&channel->lock);
	r = cei_channel_error(channel);         /* raised where the channel was ended */
	fault = r ? NULL : cei_call_make(call, channel->rank, channel->n_ranks, &channel->call);
	if (!r && !fault && channel->gpu)
		fault = cei_gpu_call_fault(&channel->call);
	if (fault)
		r = raise_fault(channel, "ceov_channel_run", call, fault);
	if (!r)
		r = channel->gpu ? run_on_gpu(channel, call->stream)
			: cei_host_run(channel);
	pthread_mutex_unlock(&channel->lock);
	return r;
}

static int run_messages(ceov_channel *channel, const struct cei_calls *calls, void *stream)
{
	int r;

	if (!channel->gpu)
		return cei_messages_run(channel, calls);
	pthread_mutex_lock(&channel->lock);
	r = cei_gpu_channel_messages(channel, calls, stream);
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
	uint32_t most = channel->gpu ? CEI_CHANNEL_MESSAGES_MAX : CEOV_CHANNEL_CALLS_MAX;

	if (n && n <= most)
		return 0;
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_run: channel '%s', rank %u: %u calls; 1 to %u can be made "
			 "at once", channel->name, channel->rank, n, most);
}

/* Makes the calls, of which the first one is given. */
static int make(ceov_channel *channel, const struct cei_calls *calls, const struct ceov_call *first)
{
	int r;

	if (calls->n == 1 && !is_message(first))
		return run(channel, first);
	r = check_messages(channel, calls);
	if (!r)
		r = cei_channel_error(channel);
	return r ? r : run_messages(channel, calls, first->stream);
}

int ceov_channel_run(ceov_channel *channel, const struct ceov_call *from, uint32_t n)
{
	static const char name[] = "ceov_channel_run";
	struct cei_calls calls = { .first = from, .n = n };
	struct cei_ranges *ranges;
	struct ceov_call call;
	int r = check_connected(channel, name);

	if (!r)
		r = check_n(channel, n);
	if (!r)
		r = take_calls(channel, name, &calls, &call);
	if (r)
		return r;
	ranges = channel->object.context->site.ranges;
	cei_range_begin(ranges, cei_call_kind_name(call.kind), call.count);
	r = make(channel, &calls, &call);
	cei_range_end(ranges);
	return r;
}

int ceov_channel_status(ceov_channel *channel)
{
	int r = cei_object_check(channel, &cei_channel_type, "ceov_channel_status");

	if (!r)
		r = cei_channel_error(channel);
	/* Who holds the lock makes a call, and looks itself. */
	if (r || pthread_mutex_trylock(&channel->lock))
		return r;
	if (channel->pool)
		channel->pool_ops->look(channel->pool);
	pthread_mutex_unlock(&channel->lock);
	return cei_channel_error(channel);
}

int ceov_channel_query(ceov_channel *channel, struct ceov_channel_info *ret_info)
{
	struct ceov_channel_info info = CEOV_CHANNEL_INFO_INIT;
	const struct cei_site *site;
	int r = cei_object_check(channel, &cei_channel_type, "ceov_channel_query");

	if (r)
		return r;
	site = &channel->object.context->site;
	info.rank = channel->rank;
	info.n_ranks = channel->n_ranks;
	info.place = site->members[cei_context_member(channel->object.context,
						      channel->rank)].place;
	info.ring_bytes = channel->ring_bytes;
	info.deadline_ns = channel->deadline_ns;
	info.is_connected = is_connected(channel);
	info.error = cei_channel_error(channel);
	snprintf(info.name, sizeof(info.name), "%s", channel->name);
	return cei_sized_answer(cei_channel_report(channel), ret_info, &info, sizeof(info),
				"ceov_channel_query: ret_info");
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

static void explain_host(const ceov_channel *channel, const struct cei_call *call, char *text,
			 size_t n)
{
	char what[CEI_CALL_TEXT_BYTES];
	size_t at;

	at = (size_t)snprintf(text, n, "channel '%s' of rank %u: %u ranks on the host; each puts "
			      "what it gives into %u slots of %" PRIu64 " bytes, and peers read "
			      "theirs\n", channel->name, channel->rank, channel->n_ranks,
			      CEI_RING_SLOTS, channel->slot_bytes);
	if (!call)
		return;
	cei_call_text(call->what, what);
	snprintf(text + at, n - at, "%s: %s, at most %" PRIu64 " bytes of it at a time\n", what,
		 call->is_shared ? "all peers read the same bytes" :
		 "each peer reads its own block of a slot", cei_host_step(channel, call));
}

/* call: NULL, or the one to explain. The caller holds the lock. */
static const char *explain(ceov_channel *channel, const struct ceov_call *call, char *text,
			   size_t n)
{
	struct cei_call *made = call ? &channel->call : NULL;
	const char *fault = NULL;

	if (call)
		fault = cei_call_make(call, channel->rank, channel->n_ranks, made);
	if (!fault && call && channel->gpu)
		fault = cei_gpu_call_fault(made);
	if (fault)
		return fault;
	if (channel->gpu) {
		cei_gpu_explain(channel, made, text, n);
		if (call && channel->pool)
			channel->pool_ops->explain(channel->pool, text + strlen(text),
						    n - strlen(text));
	} else {
		explain_host(channel, made, text, n);
	}
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
