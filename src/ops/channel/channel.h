/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_H
#define CEI_CHANNEL_H

/*
 * A channel of host ranks. Each rank has a ring in shared memory that all peers map: it puts there
 * chunk by chunk what it gives to them, and each peer reads what is its own. All of a rank's ring
 * is written by that rank, but for the counters by which peers give chunks back.
 *
 * WHY NOBODY WAITS UNTIL A HEAD IS FREE
 * Run e uses head e % 2 of every rank. A rank that begins run e has ended run e - 1, so it has seen
 * the heads of run e - 1 of all peers. So all peers have begun run e - 1, and ended run e - 2, in
 * which that head was read last.
 *
 * WHY NO CIRCLE OF RANKS WAITS
 * A rank puts chunk c when all peers have given back chunk c - CEI_RING_SLOTS. A peer gives a chunk
 * back when it has read it, and gives back all the rest of a run as soon as it needs no more of
 * them: at its own end would be too late, since the rank may have to go on before the peer can end.
 * Each rank puts its next chunk before it awaits those of its peers. model/channel.pml leaves each
 * rule out once.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include <ceoverlap/pool.h>

#include "base/clock.h"
#include "ce_engine/objects/object.h"
#include "ops/channel/call.h"
#include "ops/shape.h"

#define CEI_RING_SLOTS         4u
#define CEI_CHANNEL_NAME_BYTES 41u      /* including the NUL */
#define CEI_CACHE_LINE         64u

struct cei_ring_pair {                  /* bytes between the head's rank and another one */
	uint64_t gives;
	uint64_t gets;
};

struct cei_ring_head {                  /* what a rank calls in a run */
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t     run;       /* its number, from 1 on; stored last */
	uint64_t             what;      /* cei_call_text() */
	uint64_t             n_chunks;  /* that the rank will put */
	struct cei_ring_pair pairs[CEI_OP_RANKS_MAX];
};

struct cei_ring_credit {
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t n_taken;       /* written by the peer: how many chunks it needs no more */
};

/* Messages from one rank to another: a ring of bytes, each message a head and what it carries. */
struct cei_ring_messages {
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t n_sent;        /* bytes since the channel was made */
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t n_read;        /* likewise; written by the receiver */
};

/* The memory of one rank. Peers may write anything there, so each value is checked where it is
 * read, and no address follows from it. Behind it lie CEI_RING_SLOTS slots, and behind these the
 * bytes of messages to each rank. */
struct cei_ring {
	struct cei_ring_head   heads[2];
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint64_t       n_ready; /* chunks put in all runs; chunk c lies in slot c %
					 * CEI_RING_SLOTS */
	struct cei_ring_credit credits[CEI_OP_RANKS_MAX];       /* [peer] */
	struct cei_ring_messages messages[CEI_OP_RANKS_MAX];    /* [receiver] */
	_Alignas(CEI_CACHE_LINE)
	_Atomic uint32_t       poison;  /* 0, or minus the error that ended the channel here */
	_Alignas(CEI_CACHE_LINE)
	char                   slots[];
};

extern const struct cei_object_type cei_channel_type;

/* Messages of one pair and direction follow each other in the order of their calls, from whatever
 * threads. */
struct cei_turns {
	uint64_t n_given;               /* turns that messages have drawn */
	uint64_t n_ended;               /* the message whose turn it is has drawn this number */
	uint64_t n_bytes;               /* sent or read since the channel was made */
};

/* What the channel calls of its pool (ops/pool), all with the lock held. */
struct cei_channel_pool_ops {
	/* Whether all ranks look for the targets of channel->call in their pools. */
	int  (*takes)(ceov_pool *pool, void *stream);
	/* Makes channel->call on the stream. Raises. */
	int  (*run)(ceov_pool *pool, void *stream);
	/* Says in a line how channel->call would go, or nothing. */
	void (*explain)(ceov_pool *pool, char *text, size_t n);
	/* Ends the channel if a peer has failed: streams may have gone on for that. */
	void (*look)(ceov_pool *pool);
};

struct ceov_channel {
	struct cei_object   object;
	char                name[CEI_CHANNEL_NAME_BYTES];
	uint32_t            rank;
	uint32_t            n_ranks;
	uint64_t            ring_bytes;                 /* of the configuration, or the usual
							 * ones */
	struct cei_gpu_channel *gpu;                    /* of a rank on a GPU (gpu.h). NULL: the
							 * rank is on the host, which what
							 * follows is for, but for names,
							 * buffers and locks */
	ceov_pool          *pool;                       /* of a rank on a GPU; NULL: it has none.
							 * Guarded by the lock, as the next */
	const struct cei_channel_pool_ops *pool_ops;
	uint64_t            slot_bytes;
	uint64_t            message_bytes;              /* that a ring of messages holds */
	uint64_t            deadline_ns;
	ceov_buffer        *buffers[CEI_OP_RANKS_MAX];  /* [rank]; a peer's is NULL until found */
	struct cei_ring    *rings[CEI_OP_RANKS_MAX];    /* their memory */
	_Atomic int         is_connected;
	_Atomic int         error;                      /* the first one that ended the channel */

	pthread_mutex_t     lock;                       /* held in a call; guards what follows */
	struct cei_call     call;
	uint64_t            run;                        /* number of the last one */
	uint64_t            n_put;                      /* chunks of this rank, in all runs */
	uint64_t            base[CEI_OP_RANKS_MAX];     /* [peer]: its chunks in earlier runs */
	uint64_t            n_chunks[CEI_OP_RANKS_MAX]; /* [peer]: its chunks in this run */
	struct cei_backoff  backoff;

	pthread_mutex_t     turns_lock;                 /* held for a step of messages; guards
							 * what follows */
	struct cei_turns    sends[CEI_OP_RANKS_MAX];    /* [receiver] */
	struct cei_turns    receives[CEI_OP_RANKS_MAX]; /* [sender] */
};

static inline struct cei_report *cei_channel_report(const ceov_channel *channel)
{
	return cei_object_report(&channel->object);
}

/* Makes channel->call, which was checked, and returns when it is complete at this rank. A failure
 * is raised and ends the channel. The caller holds the lock. */
int  cei_host_run(ceov_channel *channel);

/* Calls as a program has them: structs of its header's size behind each other. */
struct cei_calls {
	const void *first;
	size_t      struct_bytes;       /* of each */
	uint32_t    n;
};

/* Copies call i, whose size was checked. */
struct ceov_call cei_calls_at(const struct cei_calls *calls, uint32_t i);

/* Sends and receives messages, which were checked, and returns when all are complete at this rank.
 * A failure is raised and ends the channel. Any thread, without the lock. */
int  cei_messages_run(ceov_channel *channel, const struct cei_calls *calls);

/* Returns how many bytes of a pair one chunk holds at most for that call. */
uint64_t cei_host_step(const ceov_channel *channel, const struct cei_call *call);

/* Returns 0, or the error that ended the channel, which is raised if kernels have found it. Any
 * thread. */
int  cei_channel_error(ceov_channel *channel);

/* Ends the channel with an error that was raised: it is kept if it is the first, and peers that
 * wait for this rank see it. Any thread. Returns error. */
int  cei_channel_end(ceov_channel *channel, int error);

#endif /* CEI_CHANNEL_H */
