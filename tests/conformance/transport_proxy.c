/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the transport that forwards to another one, and tells its events late. */

#include "transport_proxy.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/list.h"
#include "testing.h"

enum told_kind { HEARD, OFFERED, SENT, LANDED };

struct told {                           /* an event that the owner has not been told yet */
	struct cei_list             link;
	enum told_kind              kind;
	uint64_t                    due_ns;
	struct cei_transport_peer  *from;
	struct cei_transport_offer *offer;
	uint64_t                    n_offered;
	uint64_t                    tag;
	int                         error;
	uint32_t                    n_bytes;
	uint8_t                     bytes[];    /* a message or a head */
};

/* Of one transport; the transport that is forwarded to has it as the argument of its events. */
struct state {
	struct cei_transport              *transport;
	const struct cei_transport_events *events;      /* the owner's */
	void                              *arg;
	struct cei_list                    told;
	uint64_t                           random;
};

static struct {
	struct cei_transport_ops        ops;
	const struct cei_transport_ops *under;
	uint64_t                        late_ns;
	int                             is_early;
} proxy;

static struct state *state_of(struct cei_transport *transport)
{
	return transport->config.events_arg;
}

static void keep(struct state *state, const struct told *event, const void *bytes)
{
	struct told *kept = malloc(sizeof(*kept) + event->n_bytes);

	ck_assert_ptr_nonnull(kept);
	memcpy(kept, event, sizeof(*kept));
	memcpy(kept->bytes, bytes, event->n_bytes);
	kept->due_ns = cei_now_ns() + (proxy.late_ns ? testing_below(&state->random,
								     proxy.late_ns) : 0);
	cei_list_append(&state->told, &kept->link);
}

/* --- what the other transport tells --------------------------------------------------------- */

static void heard(void *arg, struct cei_transport_peer *from, const void *message,
		  uint32_t n_bytes)
{
	struct told event = { .kind = HEARD, .from = from, .n_bytes = n_bytes };

	keep(arg, &event, message);
}

static void offered(void *arg, struct cei_transport_peer *from,
		    const struct cei_transport_arrival *arrival)
{
	struct told event = { .kind = OFFERED, .from = from, .n_bytes = arrival->n_head,
			      .offer = arrival->offer, .n_offered = arrival->n_bytes };

	keep(arg, &event, arrival->head);
}

static void sent(void *arg, uint64_t tag, int error)
{
	struct told event = { .kind = SENT, .tag = tag, .error = error };

	keep(arg, &event, "");
}

static void landed(void *arg, uint64_t tag, int error)
{
	struct told event = { .kind = LANDED, .tag = tag, .error = error };

	if (!proxy.is_early)            /* else it was told already */
		keep(arg, &event, "");
}

static void failed(void *arg, struct cei_transport_peer *peer, const char *why)
{
	struct state *state = arg;

	state->events->failed(state->arg, peer, why);
}

static void tell(struct state *state, struct told *event)
{
	const struct cei_transport_arrival arrival = {
		.head = event->bytes, .n_head = event->n_bytes, .n_bytes = event->n_offered,
		.offer = event->offer,
	};

	cei_list_remove(&event->link);
	switch (event->kind) {
	case HEARD:
		state->events->heard(state->arg, event->from, event->bytes, event->n_bytes);
		break;
	case OFFERED:
		state->events->offered(state->arg, event->from, &arrival);
		break;
	case SENT:
		state->events->sent(state->arg, event->tag, event->error);
		break;
	case LANDED:
		state->events->landed(state->arg, event->tag, event->error);
		break;
	}
	free(event);
}

static struct told *first_due(struct state *state, uint64_t now_ns)
{
	struct told *first = NULL, *event;
	struct cei_list *node;

	for (node = state->told.next; node != &state->told; node = node->next) {
		event = CEI_OWNER(node, struct told, link);
		if (event->due_ns <= now_ns && (!first || event->due_ns < first->due_ns))
			first = event;
	}
	return first;
}

/* Handlers may add events, so each look begins anew. */
static int tell_until(struct state *state, uint64_t now_ns)
{
	struct told *event;
	int n = 0;

	while ((event = first_due(state, now_ns))) {
		tell(state, event);
		n++;
	}
	return n;
}

/* The peer's last event: nothing of it may come behind. Which sends and receives are the peer's is
 * not known here, so all are told. */
static void closed(void *arg, struct cei_transport_peer *peer)
{
	struct state *state = arg;

	(void)tell_until(state, UINT64_MAX);
	state->events->closed(state->arg, peer);
}

static const struct cei_transport_events events = {
	.heard = heard, .offered = offered, .sent = sent, .landed = landed, .failed = failed,
	.closed = closed,
};

/* --- the table -------------------------------------------------------------------------------- */

static void proxy_close(struct cei_transport *transport)
{
	struct state *state = state_of(transport);
	struct told *event;

	while (state->told.next != &state->told) {
		event = CEI_OWNER(state->told.next, struct told, link);
		if (event->kind == OFFERED)     /* of a stranger: its owner would have refused it */
			proxy.under->refuse(transport, event->offer);
		cei_list_remove(&event->link);
		free(event);
	}
	proxy.under->close(transport);
	free(state);
}

static int proxy_open(struct cei_transport *transport, const char **ret_why)
{
	struct state *state = calloc(1, sizeof(*state));
	int r;

	if (!state)
		return CEOV_ERR_NO_MEMORY;
	state->transport = transport;
	state->events = transport->config.events;
	state->arg = transport->config.events_arg;
	state->random = proxy.late_ns;
	cei_list_init(&state->told);
	transport->config.events = &events;
	transport->config.events_arg = state;
	cei_log(transport->config.report, CEI_LOG_WARN, "network: a test double is in front of "
		"the transport %s: it may delay, reorder and end early", proxy.under->name);
	r = proxy.under->open(transport, ret_why);
	if (r) {
		transport->config.events = state->events;
		transport->config.events_arg = state->arg;
		free(state);
	}
	return r;
}

static int proxy_accept(struct cei_transport_peer *peer, struct cei_transport_offer *offer,
			const struct cei_transport_span *span, uint64_t tag)
{
	struct told event = { .kind = LANDED, .tag = tag };
	int r = proxy.under->accept(peer, offer, span, tag);

	if (!r && proxy.is_early)
		keep(state_of(peer->transport), &event, "");
	return r;
}

static int proxy_progress(struct cei_transport *transport)
{
	int n = proxy.under->progress(transport);

	return tell_until(state_of(transport), cei_now_ns()) || n;
}

static int proxy_arm(struct cei_transport *transport)
{
	struct state *state = state_of(transport);

	return state->told.next == &state->told ? proxy.under->arm(transport) : CEOV_PENDING;
}

const struct cei_transport_ops *transport_proxy(const struct cei_transport_ops *under,
						uint64_t late_ns, int is_early)
{
	proxy.under = under;
	proxy.late_ns = late_ns;
	proxy.is_early = is_early;
	proxy.ops = *under;
	proxy.ops.open = proxy_open;
	proxy.ops.close = proxy_close;
	proxy.ops.accept = proxy_accept;
	proxy.ops.progress = proxy_progress;
	proxy.ops.arm = proxy_arm;
	return &proxy.ops;
}
