/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CUDA_PLACE_H
#define CEI_CUDA_PLACE_H

/* What the files cuda*.c of this folder share. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "backend/lane.h"
#include "backend/waits.h"
#include "base/cuda_table.h"

/* How long a small access or a test may take. */
#define CEI_CUDA_ACCESS_NS UINT64_C(5000000000)

/* The most operations in one driver call; the driver accepts fewer than 256. */
#define CEI_CUDA_OPS_MAX 128u

/* Up to this many bytes are stored as words, in order; more bytes are copied. */
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

/* On streams of callers the COPY form copies values of posts from these slots. The slots of a group
 * are used by one driver call at a time, and are free again when the group's event has passed. */
#define CEI_CUDA_GROUPS      32u
#define CEI_CUDA_GROUP_SLOTS 64u

struct cei_cuda_pinned {                /* host memory at the same address for the GPU */
	uint8_t          bounce[CEI_CUDA_BOUNCE_BYTES];         /* guarded by control_lock */
	uint8_t          lead[CEI_CUDA_LEAD_BYTES];             /* guarded by control_lock */
	uint64_t         slots[CEI_CUDA_GROUPS][CEI_CUDA_GROUP_SLOTS]; /* guarded by group_lock */
	_Atomic uint64_t seen;          /* the stream of the gate test writes it */
	_Atomic uint64_t go;            /* the control stream waits for 1 in the gate test */
};

struct cei_cuda_backend {
	struct cei_cuda        *cuda;
	uint32_t                gpu;
	uint32_t                rank;
	CUcontext               context;
	int                     is_begun;       /* 1: the locks are initialised */
	int                     can_gate;       /* 1: streams that wait can be released */
	int                     is_flag_forced; /* 1: CEOVERLAP_FLAG sets the form */
	_Atomic int             flag_form;      /* enum cei_cuda_flag_form */
	unsigned int            wait_flags;     /* flags of stream waits */
	int                     plain_priority; /* priority of lanes that never wait */
	int                     gate_priority;  /* priority of lanes that wait */

	struct cei_waits       *waits;          /* counts the streams of this GPU that wait */
	uint32_t                waits_bound;    /* how many streams may wait at the same time */
	CUdeviceptr             wait_words;     /* address of cei_waits_words() for the GPU */
	int                     shares_queues;  /* 1: several ranks of this process are on this
						 * GPU, and it has few hardware queues */
	_Atomic int             has_warned_of_waits;
	_Atomic int             has_said_many_wait;

	pthread_mutex_t         control_lock;   /* guards control, scratch, is_lost, and bounce
						 * and lead in pinned */
	CUstream                control;        /* for small accesses and tests */
	CUdeviceptr             scratch;        /* CEI_CUDA_SCRATCH_BYTES in this GPU's memory */
	int                     is_lost;        /* 1: a small access never ended, so its stream
						 * and memory must not be freed */
	int                     is_stuck;       /* 1: the gate test never ended, so scratch and
						 * pinned must not be freed */
	struct cei_cuda_pinned *pinned;

	pthread_mutex_t         group_lock;     /* guards next_group, group_events, and slots in
						 * pinned */
	uint32_t                next_group;
	CUevent                 group_events[CEI_CUDA_GROUPS];
};

/* Pinned memory of a lane. Each post of each submit that is not reaped has a slot to itself, which
 * holds the post's value. There are never more than CEI_LANE_SUBMITS such submits, so no slot is
 * written while the GPU may still read it. */
struct cei_cuda_lane_page {
	_Atomic uint64_t done;          /* number of the last submit that is done; the stream
					 * writes it */
	_Atomic uint64_t done_aside;    /* likewise, of submits whose number goes aside */
	uint64_t         pad[6];
	uint64_t         slots[CEI_LANE_SUBMITS][CEI_LANE_BATCH];
	uint8_t          lead[CEI_CUDA_LEAD_BYTES];
};

/* Size of the pinned memory that a lane has for copies within the GPU that go through host
 * memory. */
#define CEI_CUDA_LANE_BOUNCE_BYTES (UINT64_C(1) << 20)

struct cei_cuda_bounce {                /* stream and memory for copies through host memory */
	struct cei_cuda *cuda;
	CUstream         stream;
	void            *memory;        /* pinned; the order of the stream guards it */
	uint64_t         n_bytes;
};

/* Copies of one row each. They have no order. */
struct cei_cuda_copies {
	size_t      n;
	CUdeviceptr targets[CEI_LANE_BATCH];
	CUdeviceptr sources[CEI_LANE_BATCH];
	size_t      sizes[CEI_LANE_BATCH];
};

struct cei_cuda_aside {                 /* see cuda_aside.c; zeroes: the lane has none */
	CUstream stream;
	CUevent  event;
};

struct cei_cuda_lane {
	CUstream                   stream;
	struct cei_cuda_aside      aside;
	struct cei_cuda_lane_page *page;
	uint64_t                   n_submitted;
	uint64_t                   n_reaped;
	uint32_t                   n_batch;     /* operations appended since the last submit */
	uint32_t                   n_posts;     /* how many of these are posts */
	uint64_t                   n_bytes;     /* of the copies among these */
	uint32_t                   n_ops;       /* operations in ops that the driver has not
						 * been given yet */
	int                        error;       /* of a lane that has failed, else 0 */
	uint64_t                   look_at_ns;  /* when to query the driver for errors next */
	uint64_t                   waits_until; /* number of the last submit with a wait, if
						 * that wait may not be over; else 0 */
	void                      *bounce;      /* CEI_CUDA_LANE_BOUNCE_BYTES of pinned memory;
						 * NULL: this kind of lane needs none */
	CUstreamBatchMemOpParams   ops[2 * CEI_LANE_BATCH + 1];
	struct cei_cuda_copies     copies;      /* of the call of copy that is under way */
};

static inline struct cei_cuda_backend *
cei_cuda_backend_of(const struct cei_backend *backend)
{
	return backend->private;
}

/* What the sections below offer uses only what those above it do: first what the place is made of,
 * then callers' streams, then lanes. */

/* --- cuda_copies.c: copies of pieces on any stream ----------------------------------- */

/* Returns whether the address is in the memory of any GPU. The CUDA context must be current. */
int cei_cuda_is_gpu_memory(const struct cei_cuda_backend *own, uint64_t address);

/* Returns whether the piece is one row, or rows without gaps in source and target. */
int cei_cuda_piece_is_flat(const struct cei_piece *piece);

/* Queues one piece whose rows have gaps. */
CUresult cei_cuda_copy_rows(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_piece *piece);

/* Queues all copies in one driver call, which prefers copy engines; older drivers get a call for
 * each. */
CUresult cei_cuda_copy_batch(struct cei_cuda *cuda, CUstream stream,
			     struct cei_cuda_copies *copies);

/* Queues each copy by a driver call of its own, which can be captured, too. */
CUresult cei_cuda_copy_each(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_cuda_copies *copies);

/* Queues those of the pieces (at most CEI_LANE_BATCH) whose rows have gaps. Puts all other pieces
 * into *ret_copies, which the caller queues as a batch. */
CUresult cei_cuda_copy_gapped(struct cei_cuda *cuda, CUstream stream,
			      const struct cei_piece *pieces, uint32_t n_pieces,
			      struct cei_cuda_copies *ret_copies);

/* --- cuda_flag.c: how counters are raised ------------------------------------------ */

/* Returns how counters are raised now. That may change while a peer is warmed up, so a caller calls
 * this once and uses the same form throughout. */
enum cei_cuda_flag_form cei_cuda_flag_form(struct cei_cuda_backend *own);
void cei_cuda_flag_set(struct cei_cuda_backend *own, enum cei_cuda_flag_form form);

/* Returns whether the counter at this address must be raised by a copy: it is in GPU memory, and
 * the form is CEI_CUDA_FLAG_COPY. The CUDA context must be current. */
int  cei_cuda_flag_copies(const struct cei_cuda_backend *own,
			  enum cei_cuda_flag_form form, uint64_t address);

/* Each fills one stream memory operation: a write of value, or a wait. */
void cei_cuda_write_op(CUstreamBatchMemOpParams *op, uint64_t address, uint64_t value);
void cei_cuda_wait_op(const struct cei_cuda_backend *own, CUstreamBatchMemOpParams *op,
		      const struct cei_await *await);

/* --- cuda_queues.c: copies and writes that avoid the hardware queues of kernels ------ */

/* Returns whether streams that wait may block the hardware queues of kernels, which some of our
 * copies and writes need. */
int cei_cuda_queues_may_block(struct cei_cuda_backend *own);

/* Returns whether a plain copy of the piece would use a hardware queue of kernels. The CUDA context
 * must be current. */
int cei_cuda_piece_needs_queue(const struct cei_cuda_backend *own,
			       const struct cei_piece *piece);

/* The smallest size that cei_cuda_copy_as_rows() can divide into two copies of two rows. */
#define CEI_CUDA_ROWS_BYTES_MIN 8u

/* Queues a piece as rows with gaps, which need no hardware queue of kernels. */
CUresult cei_cuda_copy_as_rows(struct cei_cuda *cuda, CUstream stream,
			       const struct cei_piece *piece);

/* Queues a copy of consecutive bytes from pinned host memory to the GPU, as rows where a plain copy
 * would use a hardware queue of kernels. Fewer than CEI_CUDA_ROWS_BYTES_MIN bytes are copied
 * plainly. */
CUresult cei_cuda_copy_past_queues(struct cei_cuda *cuda, CUstream stream, uint64_t target,
				   uint64_t source, uint64_t n_bytes);

/* If cei_cuda_queues_may_block(), queues a copy of CEI_CUDA_LEAD_BYTES from scratch to pinned
 * memory that belongs to the stream. Memory operations directly behind that copy need no hardware
 * queue of kernels. */
CUresult cei_cuda_lead(struct cei_cuda_backend *own, CUstream stream, void *pinned);

/* --- cuda_bounce.c: copies within the GPU through host memory ---------------------- */

/* Returns whether source and target are both in this GPU's memory. Such a piece is copied through
 * host memory if cei_cuda_queues_may_block(). The CUDA context must be current. */
int cei_cuda_piece_bounces(const struct cei_cuda_backend *own, const struct cei_piece *piece);

/* Queues a copy within the GPU, in two steps through host memory. */
CUresult cei_cuda_copy_bouncing(const struct cei_cuda_bounce *bounce,
				const struct cei_piece *piece);

/* --- cuda_access.c: small accesses ------------------------------------------------ */

/* Implement store and load of struct cei_place_ops. */
int  cei_cuda_store(struct cei_backend *backend, uint64_t address, const void *bytes,
		    uint64_t n_bytes);
int  cei_cuda_load(struct cei_backend *backend, uint64_t address, void *ret_bytes,
		   uint64_t n_bytes);

/* Between these a thread may use the control stream: begin takes control_lock and makes the CUDA
 * context current, end undoes both. begin refuses if an earlier access never ended. */
int  cei_cuda_begin_access(struct cei_cuda_backend *own, struct cei_cuda_hold *ret_hold);
void cei_cuda_end_access(struct cei_cuda_backend *own, const struct cei_cuda_hold *hold);

/* Queues a store of at most CEI_CUDA_BOUNCE_BYTES on the control stream, between begin_access and
 * end_access. */
CUresult cei_cuda_queue_store(struct cei_cuda_backend *own, uint64_t address,
			      const void *bytes, uint64_t n_bytes);

/* Does the same as cei_cuda_store(), between begin_access and end_access. */
int  cei_cuda_store_locked(struct cei_cuda_backend *own, uint64_t address,
			   const void *bytes, uint64_t n_bytes);

/* Waits until the control stream is idle, for at most CEI_CUDA_ACCESS_NS. */
int  cei_cuda_control_idle(struct cei_cuda_backend *own, const char *what);

/* --- cuda_probe.c: tests of what works ------------------------------------------------ */

/* Decides how counters are raised: by a stream memory operation or by a copy; CEOVERLAP_FLAG
 * overrides that. Tests the form on our own memory, and tests whether lanes can wait. Called at
 * open after small accesses are set up; the CUDA context must be current. */
int  cei_cuda_probe(struct cei_cuda_backend *own);

/* Implements warm of struct cei_place_ops. */
int  cei_cuda_warm(struct cei_backend *backend, uint64_t address);

/* --- cuda_waits.c: counting the streams that wait ------------------------------------ */

/* Sets up the count for this GPU. Called at open; the CUDA context must be current. */
int  cei_cuda_waits_open(struct cei_backend *backend);

/* Implements waits_left of struct cei_place_ops. */
uint32_t cei_cuda_waits_left(struct cei_backend *backend);

/* cei_cuda_waits_begin() counts a stream of the application that is about to wait. If wants_mark of
 * the result is set, the caller queues behind the waits the operation that cei_cuda_waits_mark_op()
 * fills; it says that they are over. */
struct cei_wait cei_cuda_waits_begin(struct cei_cuda_backend *own, CUstream stream);
void cei_cuda_waits_mark_op(const struct cei_cuda_backend *own, const struct cei_wait *wait,
			    CUstreamBatchMemOpParams *op);

/* --- cuda_stream.c: callers' streams ----------------------------------------------- */

int  cei_cuda_stream_queue(struct cei_backend *backend, void *stream,
			   const struct cei_stream_work *work);
int  cei_cuda_event_open(struct cei_backend *backend, void **ret_event);
void cei_cuda_event_close(struct cei_backend *backend, void *event);
int  cei_cuda_event_record(struct cei_backend *backend, void *event, void *stream);

/* --- cuda_aside.c: ends of copies, told from another stream ------------------------- */

/* All below: in the thread that uses the lane, with its CUDA context current. After a failed open
 * call close, which accepts zeroes; close while both streams are idle. */
CUresult cei_cuda_aside_open(struct cei_cuda_backend *own, struct cei_cuda_aside *aside);
void     cei_cuda_aside_close(struct cei_cuda_backend *own, struct cei_cuda_aside *aside);

/* Whether the number of the submit that is being made should go aside. */
int      cei_cuda_aside_suits(struct cei_cuda_backend *own, const struct cei_cuda_lane *state);

/* Queues the write of that number to the page's done_aside. */
CUresult cei_cuda_aside_tell(struct cei_cuda_backend *own, struct cei_cuda_lane *state);

/* --- cuda_lane.c ------------------------------------------------------------------- */

extern const struct cei_lane_ops cei_cuda_lanes;

#endif /* CEI_CUDA_PLACE_H */
