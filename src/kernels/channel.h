/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_KERNELS_CHANNEL_H
#define CEI_KERNELS_CHANNEL_H

/*
 * The parameters of the kernels that make the calls of a channel between GPUs of one node. Each
 * rank stores what it gives straight into the channel memory of the peer that gets it. This header
 * is plain C.
 *
 *   cei_channel_packets_copy, _bf16, _fp16, _fp32     few bytes: moves, sums
 *   cei_channel_lines_copy, _bf16, _fp16, _fp32       some more
 *   cei_channel_steps_copy, _bf16, _fp16, _fp32       any number of bytes
 *   cei_channel_messages                              sends and receives
 *
 * RUNS     A run is one kernel of packets or of steps at every rank. Runs of a channel are numbered
 * from 1 on by a word in GPU memory, `epoch`, which the last block of a run advances. So a captured
 * run counts like any other one.
 *
 * HEADS    Each run tells each peer what it is: struct cei_channel_head, as two packets. A rank
 * compares the heads of all peers with its own call, and a run ends well only when all have come
 * and are right. Run e uses the heads and the mail of half e % 2: a rank that begins run e has
 * ended run e - 1, so it has seen the heads of run e - 1 of all peers, so these have ended run
 * e - 2, the last one that used the half.
 *
 * PACKETS  A packet is 8 bytes and the 64-bit number of the run, stored and loaded as one access of
 * 16 bytes: by the instructions with which cuda::atomic_ref of libcu++ stores and loads 16 bytes
 * atomically for all of the system, from sm_70 on. So who loads the number has loaded the bytes,
 * and neither side needs a fence. Stores of 16 bytes arrive whole over NVLink and within a GPU;
 * over PCIe nothing promises that, so channels are not made there. A vector of 16 bytes is two
 * packets. In a half of a rank's mail, what its peer number i sends (cei_channel_index()) begins at
 * i * 2 * span_max: the first packets of all vectors, and span_max bytes behind them the second
 * ones.
 *
 * LINES    A line is 120 bytes and the number of the run, stored by eight threads of a warp as one
 * access of 128 bytes, with the number last. Who loads it as one access and finds the number has
 * its bytes. Nothing but what was seen promises that: over NVLink, and within a GPU, such a store
 * arrives whole or in ascending order, on which NCCL's LL128 rests, too. Lines have a mail of their
 * own, in halves as packets' mail, of what each peer sends one line behind the other. An all-reduce
 * by lines takes two steps: each rank adds up a block, and sends its sums by the second part of the
 * mail, so a block has half of line_span at most.
 *
 * Pairs of a move that have at most span_max bytes go by packets, and up to line_span by lines,
 * also in kernels for more bytes. So both ends know which way a pair's bytes go. Sums go one way at
 * all ranks.
 *
 * STEPS    Bytes of a pair are cut into chunks of CEI_CHANNEL_CHUNK. Of the pair's lanes, whose
 * number follows from its bytes alone (cei_channel_lanes()), lane l has chunks l, l + lanes, ...
 * Each lane of each pair and direction has a ring at the receiver: chunk i of all times lies in
 * slot i % n_slots. `arrived` counts the chunks that have come, and `credit`, at the sender, those
 * that the receiver needs no more. Both count from the channel's beginning, so rings need no
 * halves, and no run waits for another one. An all-reduce sends its sums by rings of their own.
 *
 * MESSAGES have rings of their own, too, and no number: they follow each other in each pair and
 * direction. Each begins with a chunk of one head on lane 0.
 *
 * FAILURES The first thread that finds one sets `failed`, describes it in the status and stores
 * poison at all peers. Who waits looks at `failed`, at the poison of each peer and at the time now
 * and then. The abort word lies in host memory, where an SM's loads follow each other, half a
 * microsecond each on two H200s, while all warps of a run wait together: so one thread of the GPU
 * looks at it for all of them, at most once in CEI_CHANNEL_ABORT_NS. A run that finds `failed` set
 * does nothing.
 *
 * All memory of a channel is zero at first. Any alignment of operands, any number of bytes.
 */

#include <stdint.h>

#define CEI_CHANNEL_RANKS_MAX    8u
#define CEI_CHANNEL_LANES_MAX    32u            /* of a pair */
#define CEI_CHANNEL_ABORT_NS     UINT64_C(20000)        /* between looks at the abort word */
#define CEI_CHANNEL_NO_RUN       (UINT64_C(1) << 62)     /* no run has a higher number */
#define CEI_CHANNEL_CHUNK        16384u
#define CEI_CHANNEL_SENT_MAX     131072u        /* bytes from one rank to all others by packets */
#define CEI_CHANNEL_LINED_MAX    4194304u       /* likewise, by lines */
#define CEI_CHANNEL_LINE         128u           /* bytes of a line ... */
#define CEI_CHANNEL_LINE_BYTES   120u           /* ... and of the pair in it */
#define CEI_CHANNEL_MESSAGES_MAX 128u           /* in one kernel: CEOV_CHANNEL_GPU_CALLS_MAX */

/* Threads of a block. Packets: at most so many, of which the last warp handles heads. Steps: 16
 * adders, and one warp for each other task. */
#define CEI_CHANNEL_PACKET_THREADS 384u
#define CEI_CHANNEL_ADDERS         16u
#define CEI_CHANNEL_STEP_THREADS   ((CEI_CHANNEL_ADDERS + 8u) * 32u)

/* Shared memory of steps: barriers and counters, then slots of a chunk each. What is pushed to
 * peers has most of them, since the links depend on it; together they fit into an SM. */
#define CEI_CHANNEL_BARS_BYTES 3072u
#define CEI_CHANNEL_PUSH_SLOTS 6u
#define CEI_CHANNEL_COPY_SLOTS 4u
#define CEI_CHANNEL_SUM_SLOTS  4u
#define CEI_CHANNEL_SHARED \
	(CEI_CHANNEL_BARS_BYTES + CEI_CHANNEL_CHUNK * \
	 (CEI_CHANNEL_PUSH_SLOTS + CEI_CHANNEL_COPY_SLOTS + CEI_CHANNEL_SUM_SLOTS))

enum cei_channel_ring { CEI_CHANNEL_MOVES, CEI_CHANNEL_SUMS, CEI_CHANNEL_MESSAGES,
			CEI_CHANNEL_RINGS };

struct cei_channel_head {
	uint64_t what;                  /* of struct cei_call: the same at all ranks */
	uint64_t bytes;                 /* from the head's rank to the one that reads it */
};

/* What a rank found in the head of a call or message of another one, and what it expected. */
struct cei_channel_note {
	struct cei_channel_head found;
	struct cei_channel_head expected;
};

struct cei_channel_packet {
	uint64_t bytes;
	uint64_t number;                /* of the run */
};

/* What peers write at this rank by remote stores, each at its own index. */
struct cei_channel_words {
	struct cei_channel_packet heads[2][CEI_CHANNEL_RANKS_MAX][2];   /* [half][peer] */
	uint64_t poison[CEI_CHANNEL_RANKS_MAX];         /* 0, or enum cei_channel_end | rank << 8:
							 * why that peer has ended the channel, and
							 * because of whom; CEI_CHANNEL_DIFFERS: see
							 * `notes`, too */
	struct cei_channel_note notes[CEI_CHANNEL_RANKS_MAX];
	uint64_t arrived[CEI_CHANNEL_RINGS][CEI_CHANNEL_RANKS_MAX][CEI_CHANNEL_LANES_MAX];
	uint64_t credit[CEI_CHANNEL_RINGS][CEI_CHANNEL_RANKS_MAX][CEI_CHANNEL_LANES_MAX];
};

/* What kernels of this rank alone write. */
struct cei_channel_state {
	uint64_t epoch;                 /* runs that have ended */
	unsigned long long order;       /* runs that have begun */
	uint64_t ended;                 /* blocks of the run under way that have ended, and 256
					 * times the sum of the run's number in each of them */
	unsigned long long looked_ns;   /* when a thread last looked at the abort word */
	uint32_t failed;                /* 1: the channel has ended */
	uint64_t sent[CEI_CHANNEL_RINGS][CEI_CHANNEL_RANKS_MAX][CEI_CHANNEL_LANES_MAX];
	uint64_t taken[CEI_CHANNEL_RINGS][CEI_CHANNEL_RANKS_MAX][CEI_CHANNEL_LANES_MAX];
};

/* What a rank's channel memory begins with; mail and rings lie behind it. */
struct cei_channel_memory {
	struct cei_channel_words words;
	struct cei_channel_state state;
};

/* Where mail and rings lie in each rank's memory, and the sizes of both; the same at all ranks. */
struct cei_channel_layout {
	uint64_t mail_at;
	uint64_t ring_at[CEI_CHANNEL_RINGS];
	uint32_t n_lanes[CEI_CHANNEL_RINGS];    /* that a pair has */
	uint32_t n_slots[CEI_CHANNEL_RINGS];    /* that a lane has; a power of 2 */
	uint32_t span_max;              /* bytes of a pair that go by packets at most; a multiple
					 * of 16 */
	uint32_t line_span;             /* likewise, by packets or lines: more than span_max, and
					 * a multiple of what eight lines hold; or span_max, and
					 * there are no lines */
	uint64_t lines_at;
};

enum cei_channel_end {
	CEI_CHANNEL_GOOD,
	CEI_CHANNEL_DIFFERS,            /* the head of `peer` is of another call */
	CEI_CHANNEL_LATE,               /* `peer` has not done what is awaited by the deadline */
	CEI_CHANNEL_UNORDERED,          /* two runs of this rank were under way at once */
	CEI_CHANNEL_POISONED,           /* `peer` has ended the channel; `cause` is its poison */
	CEI_CHANNEL_ABORTED,            /* by the host */
	CEI_CHANNEL_RELEASED            /* poison alone: the rank has made its last call, and has
					 * released the channel */
};

enum cei_channel_wait { CEI_CHANNEL_FOR_HEAD, CEI_CHANNEL_FOR_BYTES, CEI_CHANNEL_FOR_ROOM };

/* In pinned memory of the host. */
struct cei_channel_status {
	uint32_t abort;                 /* written by the host: 1: end */
	uint32_t end;                   /* enum cei_channel_end; written last */
	uint32_t peer;
	uint32_t wait;                  /* enum cei_channel_wait */
	uint64_t run;                   /* 0: messages */
	uint64_t cause;
	uint64_t what;                  /* that this rank calls */
	uint64_t has_head;              /* 1: the peer's head of the run has come */
	struct cei_channel_note note;   /* where a call or message differs: here or, if this rank is
					 * poisoned, at `peer` */
};

/* What all kernels of a rank's channel know. */
struct cei_channel_place {
	char                      *memory[CEI_CHANNEL_RANKS_MAX];       /* [rank]: its struct
									 * cei_channel_memory */
	struct cei_channel_layout  layout;
	struct cei_channel_status *status;
	uint64_t                   timeout_ns;  /* of each wait */
	uint32_t                   n_ranks;
	uint32_t                   own;
};

/* Data of a run between this rank and another one, in bytes. Moves: `source` and `to` are what goes
 * there, `target` and `from` what comes; own: what stays. Sums: `source` and `to` are this rank's
 * addends of that rank's sum, `target` and `from` that sum itself, if it comes here; own: the own
 * addends and the own sum. */
struct cei_channel_part {
	const char *source;
	char       *target;
	uint64_t    to;
	uint64_t    from;
};

struct cei_channel_run {
	struct cei_channel_place place;
	struct cei_channel_part  parts[CEI_CHANNEL_RANKS_MAX];  /* [rank] */
	uint64_t                 what;
	uint64_t                 gives[CEI_CHANNEL_RANKS_MAX];  /* bytes, as heads say */
	uint64_t                 gets[CEI_CHANNEL_RANKS_MAX];
	uint32_t                 reduction;     /* enum ceov_reduction */
	float                    scale;         /* what sums are multiplied by, if is_scaled */
	uint32_t                 is_scaled;     /* 1: a sum, or a mean of a number of ranks whose
						 * inverse is exact; no other reduction needs less
						 * than a division or a choice for each number */
	uint32_t                 is_plain;      /* packets: 1: all addresses and sizes are multiples
						 * of 16, and sums are scaled */
	uint32_t                 gathers;       /* lines, steps: 1: sums come from all ranks */
	uint32_t                 n_lanes;       /* steps: that a pair has at most; the same at all
						 * ranks */
	uint32_t                 blocks_each;   /* steps that move: so many blocks serve each peer.
						 * Sums: 0: each block serves all */
};

struct cei_channel_message {
	char    *memory;                /* source, or target */
	uint64_t bytes;
	uint32_t what;                  /* as in a head; the same at both ends */
	uint16_t peer;
	uint16_t is_receive;
};

/* Messages; those of a pair and direction follow each other in this order. */
struct cei_channel_messages {
	struct cei_channel_place   place;
	uint32_t                   n;
	uint32_t                   n_lanes;             /* as in a run, as is the next */
	uint32_t                   blocks_each;
	uint32_t                   served[CEI_CHANNEL_RANKS_MAX];       /* these peers */
	struct cei_channel_message messages[CEI_CHANNEL_MESSAGES_MAX];
};

#ifdef __CUDACC__
#define CEI_CHANNEL_INLINE static __device__ __forceinline__
#else
#define CEI_CHANNEL_INLINE static inline
#endif

/* Returns how many of a pair's lanes its bytes take: one for each two chunks. */
CEI_CHANNEL_INLINE uint32_t cei_channel_lanes(uint64_t bytes, uint32_t n_lanes)
{
	const uint64_t n = (bytes + 2 * CEI_CHANNEL_CHUNK - 1) / (2 * CEI_CHANNEL_CHUNK);

	if (n > n_lanes)
		return n_lanes;
	return n ? (uint32_t)n : 1;
}

/* Returns how much mail line_span bytes of a pair take. */
CEI_CHANNEL_INLINE uint32_t cei_channel_line_mail(uint32_t line_span)
{
	return line_span / CEI_CHANNEL_LINE_BYTES * CEI_CHANNEL_LINE;
}

/* Returns the number of `peer` among the peers of a rank. */
CEI_CHANNEL_INLINE uint32_t cei_channel_index(uint32_t peer, uint32_t rank)
{
	return peer > rank ? peer - 1 : peer;
}

#endif /* CEI_KERNELS_CHANNEL_H */
