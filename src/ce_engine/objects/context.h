/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CONTEXT_H
#define CEI_CONTEXT_H

/* Who asks: everything that one ceov_open() holds. Objects are below the engine and plans
 * above them: what they need of each other goes by way of this structure. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backend/copier.h"
#include "base/report.h"
#include "base/site.h"
#include "ce_engine/objects/door.h"
#include "ce_engine/objects/object.h"
#include "ce_engine/objects/tickets.h"
#include "ce_engine/objects/works.h"
#include "ipc/peers/peers.h"
#include "ipc/share.h"

#define CEI_DEADLINE_DEFAULT_NS  UINT64_C(60000000000)

/* How long closing a context waits for peers to release its memory. */
#define CEI_CLOSE_NS             UINT64_C(2000000000)

/* Closing waits for copies in flight until the context's deadline, and at least this long. */
#define CEI_CLOSE_LEAST_NS       UINT64_C(1000000000)

/* A chunk is at most this long unless the caller says otherwise: at 390 GB/s it
 * holds the engine for 170 us, and costs 1 % in gaps (docs/results). */
#define CEI_CHUNK_DEFAULT_BYTES  (UINT64_C(64) << 20)

/* Marks of copies that add up to more than this are raised in several batches. */
#define CEI_MARK_GROUP_DEFAULT_BYTES (UINT64_C(256) << 20)

/* arbitrary values that memory rarely holds */
enum cei_context_state {
	CEI_CONTEXT_OPEN   = 0x6f70656e,
	CEI_CONTEXT_CLOSED = 0x73687574,
};

struct cei_node_roster;                 /* net/node_meet.h */
struct cei_remote;                      /* ce_engine/remote/remote_private.h */
struct cei_unix;                        /* ipc/carrier_unix.h */

struct ceov_context {
	enum cei_context_state state;   /* first member, because object.h keeps the begin of a
					 * closed context */
	const uint64_t       *alive;    /* a page that is zero in forked children */
	const struct cei_door *door;    /* who carries out its plans; from ceov_open() on */
	struct cei_report     report;
	struct cei_site       site;
	struct cei_works      works;    /* what moves its bytes, if it has works of its own */
	struct cei_remote    *remote;   /* the daemon that moves bytes; NULL: none does */
	uint32_t              slot;     /* of the client for which its plans move bytes, in the
					 * works' table (sched/flows.h); 0: this process */
	struct cei_peers     *peers;    /* NULL: this process holds all ranks, and there is no
					 * network */
	struct cei_unix      *mates;    /* carries messages to processes of this node; NULL: there
					 * are none */
	struct cei_node_roster *roster; /* of a group without a network; else NULL */
	struct cei_mappings   mappings;
	uint64_t              max_chunk_bytes;
	uint32_t              urgency;  /* enum ceov_urgency: of plans that say normal */
	int                   is_fifo;  /* transfers go in the order in which they become ready,
					 * regardless of ports: for comparisons */
	uint32_t              rule;     /* enum cei_route_rule: of plans that name none */
	uint64_t              deadline_ns;
	struct cei_tickets    tickets;
	_Atomic uint8_t      *is_lost;  /* by rank: the rank is lost */
	pthread_mutex_t       lock;     /* guards the lists and the objects' links and
					 * users; taken before a plan's lock */
	struct cei_list       buffers;
	struct cei_list       signals;
	struct cei_list       plans;
	struct cei_list       stuck;    /* released plans; see cei_plans_settle() */
	struct cei_list       uppers;   /* objects of layers above; see cei_object_type.destroy */
	struct cei_list       exports;  /* struct cei_local_export */
	struct cei_copier     copier;   /* for rails, of a context that was opened by
					 * ceov_open() */
	pthread_mutex_t       far_lock; /* guards the next list; taken before the context's lock */
	struct cei_list       far;      /* struct cei_far: what was found at other nodes */
	uint32_t              reopen_step;      /* of ceov_reopen(): which part is next */
	uint32_t              last_export;      /* number of an export where there are no peers */
	struct cei_list       quarantine;       /* released objects, oldest first; see object.h */
	uint32_t              n_quarantined;

	/* By member: who carries out the rank's plans; NULL: not open yet. Several contexts may
	 * have the same engine. */
	struct cei_engine    *engines[CEI_MEMBERS_MAX];

	/* By member, for small writes and work on streams, which need no engine. */
	struct cei_backend   *backends[CEI_MEMBERS_MAX];

	/* NULL: launches get their numbers from `tickets`, which keep their results. Else who asks
	 * for a launch numbers it (cei_launch_numbered()), and is told its result here, by the
	 * engine's thread, which must not wait. The launch is in flight until this returns. */
	void                (*ended)(void *ended_arg, uint64_t number, int result);
	void                 *ended_arg;

	/* Ends plans that were kept because of a stuck lane which has come back; returns
	 * how many. Any thread, without locks held. */
	uint32_t            (*settle)(ceov_context *context);
};

/* Returns the member index of a rank of this process, or CEOV_NOBODY. */
uint32_t cei_context_member(const ceov_context *context, uint32_t rank);

/* Returns the backend of a rank of this process. */
struct cei_backend *cei_context_backend(ceov_context *context, uint32_t rank);

/* Finds the member index of a rank. CEOV_ERR_INVALID, raised for the public call of that name: it
 * is no rank of this process. */
int cei_context_own_rank(ceov_context *context, uint32_t rank, const char *call,
			 uint32_t *ret_member);

/* Finds the backend of a rank for work on a caller's stream. CEOV_ERR_INVALID, raised: the rank is
 * not of this process or is on the host, or the stream is NULL. */
int cei_context_stream(ceov_context *context, uint32_t rank, const void *stream,
		       const char *call, struct cei_backend **ret_backend);

static inline int cei_context_is_lost(const ceov_context *context, uint32_t rank)
{
	/* acquire: pairs with cei_peer_gone() */
	return atomic_load_explicit(&context->is_lost[rank], memory_order_acquire);
}

/* The process waits, by as many waits more or less, for counters of its own: while it does, nodes
 * that may raise them and fall silent are lost. Never blocks. */
static inline void cei_context_await(const ceov_context *context, int by)
{
	if (context->peers && context->site.network)
		cei_peers_await_users(context->peers, by);
}

/* settings.c: fills the site and the limits from config and environment. */
int cei_settings_load(ceov_context *context, const struct ceov_config *config,
		      const char **ret_group);

#endif /* CEI_CONTEXT_H */
