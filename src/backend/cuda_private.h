/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_PRIVATE_H
#define CEI_CUDA_PRIVATE_H

/* Shared by the files cuda*.c of this folder. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/waits.h"
#include "base/cuda_table.h"

/* time limit of small accesses and tests */
#define CEI_CUDA_ACCESS_NS UINT64_C(5000000000)

/* Operations in one driver call; the driver takes less than 256. */
#define CEI_CUDA_OPS_MAX 128u

/* store() moves up to this much as words, in order; more goes by copies. */
#define CEI_CUDA_WORDS_BYTES 1024u

#define CEI_CUDA_BOUNCE_BYTES  65536u
#define CEI_CUDA_SCRATCH_BYTES 4096u
#define CEI_CUDA_LEAD_BYTES    4096u    /* see cei_cuda_lead() */

/* How a lane or stream raises a counter in GPU memory. */
enum cei_cuda_flag_form {
	CEI_CUDA_FLAG_WRITE,            /* a stream memory operation: fastest */
	CEI_CUDA_FLAG_COPY,             /* an 8-byte copy from pinned memory: works
					 * where the driver writes to no peer */
};

/* Slots for values of posts on callers' streams, COPY form. A group serves one
 * driver queue at a time, until its event has passed. */
#define CEI_CUDA_GROUPS      32u
#define CEI_CUDA_GROUP_SLOTS 64u

struct cei_cuda_pinned {                /* host memory at the same address for the GPU */
	uint8_t          bounce[CEI_CUDA_BOUNCE_BYTES];         /* guarded by control_lock */
	uint8_t          lead[CEI_CUDA_LEAD_BYTES];             /* likewise */
	uint64_t         slots[CEI_CUDA_GROUPS][CEI_CUDA_GROUP_SLOTS]; /* guarded by group_lock */
	_Atomic uint64_t seen;          /* written by the gate test's stream */
};

struct cei_cuda_backend {
	struct cei_cuda        *cuda;
	uint32_t                gpu;
	uint32_t                rank;
	CUcontext               context;
	int                     is_begun;       /* the locks exist */
	int                     can_gate;
	int                     is_flag_forced; /* CEOVERLAP_FLAG */
	_Atomic int             flag_form;      /* enum cei_cuda_flag_form */
	unsigned int            wait_flags;     /* of stream waits */
	int                     plain_priority; /* of lanes that never wait */
	int                     gate_priority;

	struct cei_waits       *waits;          /* the count of waiting streams of this GPU */
	uint32_t                waits_bound;    /* most streams that should wait */
	CUdeviceptr             wait_words;     /* cei_waits_words() for the GPU */
	int                     shares_queues;  /* several ranks of this process are on this
						 * GPU, and have few hardware queues */
	_Atomic int             has_warned_of_waits;
	_Atomic int             has_said_many_wait;

	pthread_mutex_t         control_lock;   /* guards the next three, and bounce */
	CUstream                control;        /* small accesses, tests */
	CUdeviceptr             scratch;        /* CEI_CUDA_SCRATCH_BYTES here */
	int                     is_lost;        /* a small access never ended: its stream and
						 * memory must not be freed */
	int                     is_stuck;       /* the gate test never ended: scratch and
						 * pinned must not be freed */
	struct cei_cuda_pinned *pinned;

	pthread_mutex_t         group_lock;     /* guards the next two, and slots */
	uint32_t                next_group;
	CUevent                 group_events[CEI_CUDA_GROUPS];
};

/* In pinned memory. Each post of each submit that is not reaped has a slot of its own, which
 * holds its value. There are never more than CEI_LANE_SUBMITS such submits, so no slot is
 * written while the GPU may still read it. */
struct cei_cuda_lane_page {
	_Atomic uint64_t done;          /* submits done, ever; written by the stream */
	uint64_t         pad[7];
	uint64_t         slots[CEI_LANE_SUBMITS][CEI_LANE_BATCH];
	uint8_t          lead[CEI_CUDA_LEAD_BYTES];
};

/* Pinned memory of a lane for copies within the GPU that go through host memory. */
#define CEI_CUDA_LANE_BOUNCE_BYTES (UINT64_C(1) << 20)

struct cei_cuda_bounce {                /* stream and memory for copies through host memory */
	struct cei_cuda *cuda;
	CUstream         stream;
	void            *memory;        /* pinned; used in the stream's order */
	uint64_t         n_bytes;
};

/* One-row copies without order among them. */
struct cei_cuda_copies {
	size_t      n;
	CUdeviceptr targets[CEI_LANE_BATCH];
	CUdeviceptr sources[CEI_LANE_BATCH];
	size_t      sizes[CEI_LANE_BATCH];
};

struct cei_cuda_lane {
	CUstream                   stream;
	struct cei_cuda_lane_page *page;
	uint64_t                   n_submitted;
	uint64_t                   n_reaped;
	uint32_t                   n_batch;     /* operations appended since the last submit */
	uint32_t                   n_posts;     /* posts among them */
	uint32_t                   n_ops;       /* recorded operations that the driver does not
						 * have yet */
	int                        error;       /* error of a broken lane, else 0 */
	uint64_t                   look_at_ns;  /* when to query the driver for errors next */
	uint64_t                   waits_until; /* the last submit with a wait that is not known
						 * to be over; 0: there is none */
	void                      *bounce;      /* CEI_CUDA_LANE_BOUNCE_BYTES of pinned memory;
						 * NULL: this kind of lane needs none */
	CUstreamBatchMemOpParams   ops[2 * CEI_LANE_BATCH + 1];
	struct cei_cuda_copies     copies;      /* copies of the present copy call */
};

static inline struct cei_cuda_backend *
cei_cuda_backend_of(const struct cei_backend *backend)
{
	return backend->private;
}

/* --- cuda_lane.c: the lane verbs ------------------------------------------------- */

int  cei_cuda_lane_open(struct cei_lane *lane);
void cei_cuda_lane_close(struct cei_lane *lane);
int  cei_cuda_lane_follow(struct cei_lane *lane, void *event);
int  cei_cuda_lane_wait(struct cei_lane *lane, const struct cei_await *await);
int  cei_cuda_lane_copy(struct cei_lane *lane, const struct cei_piece *pieces,
			uint32_t n_pieces);
int  cei_cuda_lane_post(struct cei_lane *lane, const struct cei_post *posts,
			uint32_t n_posts);
int  cei_cuda_lane_submit(struct cei_lane *lane);
int  cei_cuda_lane_reap(struct cei_lane *lane, uint64_t *ret_n_done);
int  cei_cuda_lane_drain(struct cei_lane *lane, uint64_t deadline_ns);
void cei_cuda_lane_stop(struct cei_lane *lane);
int  cei_cuda_lane_is_idle(struct cei_lane *lane);

/* Returns whether the piece is one row, or rows without gaps in source and target. */
int cei_cuda_piece_is_flat(const struct cei_piece *piece);

/* Queues one piece whose rows have gaps. */
CUresult cei_cuda_copy_rows(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_piece *piece);

/* Queues all copies, in one driver call that asks for copy engines if the driver has it. */
CUresult cei_cuda_copy_batch(struct cei_cuda *cuda, CUstream stream,
			     struct cei_cuda_copies *copies);

/* Queues each copy by a driver call of its own, which can be captured, too. */
CUresult cei_cuda_copy_each(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_cuda_copies *copies);

/* Queues those of the pieces (at most CEI_LANE_BATCH) that have gaps between rows, and puts
 * the other ones into *ret_copies, to be queued as a batch. */
CUresult cei_cuda_copy_gapped(struct cei_cuda *cuda, CUstream stream,
			      const struct cei_piece *pieces, uint32_t n_pieces,
			      struct cei_cuda_copies *ret_copies);

/* --- cuda_bounce.c: copies within the GPU through host memory ---------------------- */

/* Returns whether source and target are both in this GPU's memory. Such a piece is copied
 * through host memory if cei_cuda_queues_may_block(). A context is current. */
int cei_cuda_piece_bounces(const struct cei_cuda_backend *own, const struct cei_piece *piece);

/* Queues a copy within the GPU, in two steps through host memory. */
CUresult cei_cuda_copy_bouncing(const struct cei_cuda_bounce *bounce,
				const struct cei_piece *piece);

/* --- cuda_queues.c: copies and writes that avoid the hardware queues of kernels ------ */

/* Returns whether waiting streams may hold up the hardware queues of kernels, which some of
 * our copies and writes need. */
int cei_cuda_queues_may_block(struct cei_cuda_backend *own);

/* Returns whether a plain copy of the piece would use a hardware queue of kernels. A context
 * is current. */
int cei_cuda_piece_needs_queue(const struct cei_cuda_backend *own,
			       const struct cei_piece *piece);

/* Queues such a piece as rows with gaps, which needs no hardware queue of kernels. */
CUresult cei_cuda_copy_as_rows(struct cei_cuda *cuda, CUstream stream,
			       const struct cei_piece *piece);

/* If cei_cuda_queues_may_block(): queues a copy of CEI_CUDA_LEAD_BYTES from scratch to pinned
 * memory that belongs to the stream, so that memory operations right behind it need no
 * hardware queue of kernels. */
CUresult cei_cuda_lead(struct cei_cuda_backend *own, CUstream stream, void *pinned);

/* --- cuda_waits.c: counting the streams that wait ------------------------------------ */

/* Called at open, with the context pushed: sets up the count for this GPU. */
int  cei_cuda_waits_open(struct cei_backend *backend);

/* Implements waits_left of backend.h. */
uint32_t cei_cuda_waits_left(struct cei_backend *backend);

/* The first counts a stream of the application that is about to wait. If its result has
 * wants_mark, the caller queues, behind the waits, the operation that the second one fills. */
struct cei_wait cei_cuda_waits_begin(struct cei_cuda_backend *own, CUstream stream);
void cei_cuda_waits_mark_op(const struct cei_cuda_backend *own, const struct cei_wait *wait,
			    CUstreamBatchMemOpParams *op);

/* The first records that the submit being filled has a wait; the second, that n_done submits
 * are done, so that their waits are over. */
void cei_cuda_lane_waits(const struct cei_lane *lane);
void cei_cuda_lane_went_on(const struct cei_lane *lane, uint64_t n_done);

/* --- cuda_flag.c: how counters are raised, and tests of what works ---------------- */

/* Returns how counters are raised now. This may change while a peer is warmed, so a function
 * calls it once and uses the same form throughout. */
enum cei_cuda_flag_form cei_cuda_flag_form(struct cei_cuda_backend *own);

/* Returns whether the counter at this address must be raised by a copy: it is in GPU memory,
 * and the form is COPY. A context is current. */
int  cei_cuda_flag_copies(const struct cei_cuda_backend *own,
			  enum cei_cuda_flag_form form, uint64_t address);

/* Returns whether the address is in the memory of any GPU. A context is current. */
int cei_cuda_is_gpu_memory(const struct cei_cuda_backend *own, uint64_t address);

/* Fill one stream memory operation. */
void cei_cuda_write_op(CUstreamBatchMemOpParams *op, uint64_t address, uint64_t value);
void cei_cuda_wait_op(const struct cei_cuda_backend *own, CUstreamBatchMemOpParams *op,
		      const struct cei_await *await);

/* Called at open, after small accesses are set up and with the CUDA context pushed: decides how
 * counters are raised (by a stream memory operation or by a copy; CEOVERLAP_FLAG overrides),
 * tests that on our own memory, and tests whether lanes can wait. */
int  cei_cuda_flag_open(struct cei_cuda_backend *own);

/* Implements warm of backend.h. */
int  cei_cuda_warm(struct cei_backend *backend, uint64_t address);

/* --- cuda_access.c: small accesses ------------------------------------------------ */

int  cei_cuda_store(struct cei_backend *backend, uint64_t address, const void *bytes,
		    uint64_t n_bytes);
int  cei_cuda_load(struct cei_backend *backend, uint64_t address, void *ret_bytes,
		   uint64_t n_bytes);

/* Takes control_lock and pushes the context; refuses after an access was lost. */
int  cei_cuda_begin_access(struct cei_cuda_backend *own, struct cei_cuda_hold *ret_hold);
void cei_cuda_end_access(struct cei_cuda_backend *own, const struct cei_cuda_hold *hold);

/* As cei_cuda_store(), for a caller that is between begin_access and end_access. */
int  cei_cuda_store_locked(struct cei_cuda_backend *own, uint64_t address,
			   const void *bytes, uint64_t n_bytes);

/* Waits, at most CEI_CUDA_ACCESS_NS, for the control stream. */
int  cei_cuda_control_idle(struct cei_cuda_backend *own, const char *what);

/* --- cuda_stream.c: callers' streams ----------------------------------------------- */

int  cei_cuda_stream_queue(struct cei_backend *backend, void *stream,
			   const struct cei_stream_work *work);
int  cei_cuda_event_open(struct cei_backend *backend, void **ret_event);
void cei_cuda_event_close(struct cei_backend *backend, void *event);
int  cei_cuda_event_record(struct cei_backend *backend, void *event, void *stream);

#endif /* CEI_CUDA_PRIVATE_H */
