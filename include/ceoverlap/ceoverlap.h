/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_CEOVERLAP_H
#define CEOVERLAP_CEOVERLAP_H

/*
 * ceoverlap - move bytes between GPUs on their copy engines while kernels run.
 *
 *   kernel ---> doorbell ---> scheduler ------> backend ---> completion
 *   arrives     sees the      picks the lane,   host or      raises the
 *   at a mark   mark          and what may go   cuda         next mark
 *
 * WORDS
 *   context   everything this process holds: machine, backends, peers, engines.
 *   rank      one GPU (or one host stand-in) of the group. A process holds one
 *             rank or several; ranks of other processes are peers.
 *   buffer    a registered piece of memory of a rank, ours or a peer's.
 *   signal    an array of 64-bit counters that only rise. Each counter has one
 *             raiser at a time: the kernel whose tiles arrive at it, one lane,
 *             one stream, or one thread.
 *   mark      "this counter of this signal has reached this value".
 *   transfer  when its marks are reached, move a 2-D piece, then raise a mark.
 *             Readiness and arrival are per transfer; the runtime may cut one
 *             into chunks for moving it, and raises its mark once, after all.
 *   plan      a set of transfers, checked, routed and cut once.
 *   launch    one run of a plan. Its base is added to every mark's value, so
 *             nothing is reset between launches.
 *   ticket    the name of one launch.
 *
 * ONE LAUNCH, the usual numbers: launch k (0, 1, 2, ...) has base k; its sources
 *             are ready at value 1, its targets were freed at value 0 (by the
 *             consumer of launch k - 1, who raised k), its arrivals raise 1.
 *
 * UNITS      The name carries the unit: _bytes, _ns. Ranks and GPUs count from 0.
 * OWNERSHIP  Who gets an object through ret_* releases it. Release takes NULL. The last
 *            1024 handles that were released or closed with their context, and the last
 *            16 contexts that were closed, are refused (CEOV_ERR_INVALID).
 *            A ret_* argument is written on success only, unless stated.
 * GROWTH     Structs that begin with struct_bytes grow at their end; a caller
 *            built against an older header goes on working. One built against
 *            a newer header may leave fields that the library does not know 0;
 *            CEOV_ERR_INVALID: it set one.
 * THREADS    Every call may come from any thread, unless its comment says
 *            "one thread": then the caller serialises calls on that object.
 *            No call may come from a child process made by fork() after
 *            ceov_open(): it gets CEOV_ERR_FORKED.
 * RESULTS    0       done
 *            > 0     enum ceov_condition: named in the call's comment; handle it
 *            < 0     enum ceov_error: pass it up; ceov_last_failure() has details
 * DEADLINES  Every call that waits has one; none is unbounded.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ceov_context ceov_context;
typedef struct ceov_buffer  ceov_buffer;
typedef struct ceov_signal  ceov_signal;
typedef struct ceov_plan    ceov_plan;

/* --- results ------------------------------------------------------------- */

enum ceov_condition {
	CEOV_PENDING = 1,               /* not finished yet */
	CEOV_FULL    = 2,               /* no room now; try after a completion */
	CEOV_NONE    = 3                /* there is none (yet) */
};

enum ceov_error {
	CEOV_ERR_INVALID   = -1,        /* an argument breaks the call's contract */
	CEOV_ERR_STATE     = -2,        /* valid, but not in the object's present state */
	CEOV_ERR_NO_MEMORY = -3,
	CEOV_ERR_NO_ROUTE  = -4,        /* no backend can copy from source to target */
	CEOV_ERR_SYSTEM    = -5,        /* native_code is an errno */
	CEOV_ERR_CUDA      = -6,        /* native_code is a CUresult */
	CEOV_ERR_UCX       = -7,        /* native_code is a ucs_status_t */
	CEOV_ERR_PEER_LOST = -8,        /* a rank of the group has gone */
	CEOV_ERR_ABORTED   = -9,
	CEOV_ERR_TIMEOUT   = -10,       /* a deadline passed; the failure names what */
	CEOV_ERR_VERSION   = -11,       /* a peer or a driver of another version */
	CEOV_ERR_STALE     = -12,       /* the memory behind a registration changed */
	CEOV_ERR_FORKED    = -13,       /* called in a forked child */
	CEOV_ERR_UNCERTAIN = -14        /* the target may or may not hold the bytes */
};

#define CEOV_NOBODY UINT32_MAX

#define CEOV_FAILURE_TEXT_BYTES 256

struct ceov_failure {
	int      error;                 /* enum ceov_error */
	int      native_code;           /* as the layer below reported it, or 0 */
	uint32_t rank;                  /* CEOV_NOBODY where no rank is to blame */
	uint32_t transfer;              /* index in its plan, or CEOV_NOBODY */
	uint64_t chunk;                 /* counts from 0 within the transfer */
	uint64_t mark_value;            /* what was waited for, and ... */
	uint64_t seen_value;            /* ... what the counter held; the text names the
					 * signal and the counter. Both 0: no mark was
					 * missing */
	char     text[CEOV_FAILURE_TEXT_BYTES]; /* one line: what, where, what to do */
};

/* Never NULL; for conditions too. */
const char *ceov_strerror(int result);

/* "0.1.0" */
const char *ceov_version(void);

/* Takes the first failure since the last call. CEOV_NONE: there was none. */
int ceov_last_failure(ceov_context *context, struct ceov_failure *ret_failure);

/* --- context ------------------------------------------------------------- */

enum ceov_place_kind { CEOV_PLACE_HOST = 0, CEOV_PLACE_GPU = 1 };

struct ceov_place {
	enum ceov_place_kind kind;
	uint32_t             index;     /* GPU ordinal of the CUDA driver; 0 for host */
};

struct ceov_member {                    /* a rank that this process holds */
	uint32_t          rank;
	struct ceov_place place;
};

struct ceov_config {
	size_t                    struct_bytes;   /* set by CEOV_CONFIG_INIT */
	const struct ceov_member *members;        /* NULL: from the environment */
	uint32_t                  n_members;
	uint32_t                  n_ranks;        /* of the whole group */
	const char               *group;          /* path of the unix socket at which ranks meet;
						   * NULL: from the environment, else the rank is
						   * alone */
	uint64_t                  max_chunk_bytes;/* bounds how long a small transfer waits behind
						   * a large one; 0: chosen by the cost model */
	uint64_t                  deadline_ns;    /* deadline of every wait that has none of its
						   * own; 0: 60 s */
	int                       progress_by_caller; /* 1: progress is made only in ceov_turn() */
	void                    (*log)(void *log_arg, const char *line);
						  /* NULL: stderr. What it must not
						   * do: see ceov_open() */
	void                     *log_arg;
};

#define CEOV_CONFIG_INIT \
	{ sizeof(struct ceov_config), NULL, 0, 1, NULL, 0, 0, 0, NULL, NULL }

/* Opens the members' places and meets the group's other ranks; blocks until all
 * have come or the deadline passes. The context copies what it keeps.
 *
 * What config leaves out comes from the environment: CEOVERLAP_RANK,
 * CEOVERLAP_RANKS (how many), CEOVERLAP_PLACE ("host" or "gpu:N") and
 * CEOVERLAP_GROUP (socket path). config NULL and none of them set: rank 0,
 * alone, on GPU 0 where there is one and else on host memory.
 *
 * On failure *ret_context is not written and the log has one line per cause.
 *
 * The log function is called by any thread, ours and those that call the library, several
 * at once, and until ceov_close() returns. It calls no function of the library, does not
 * leave by longjmp() or an exception, and does not wait for a thread that may be in a call
 * of the library: our threads stand still meanwhile, and some locks inside of the CUDA
 * backend may be held. To copy the line into a queue is best. Of lines that come again and
 * again most are only counted: a later line says how many there were. */
int  ceov_open(const struct ceov_config *config, ceov_context **ret_context);

/* Aborts what is in flight; on return no engine touches the caller's memory.
 * Releases what the caller did not; waits up to 2 s for peers that still use what we
 * shared, so let all ranks meet first. One thread; NULL is allowed.
 *
 * Copies that are under way have the context's deadline, and at least 1 s, to come to
 * their end. One that does not (a hanging GPU, a processor that got no time) cannot be
 * stopped: then an error line says so, and all memory of the context stays until the
 * process ends. Memory that was registered must stay, too. */
void ceov_close(ceov_context *context);

/* One pass of every engine, for progress_by_caller. Never blocks. One thread.
 * CEOV_PENDING: there is more to do. */
int  ceov_turn(ceov_context *context);

/* Returns when every process of the group has called it as often as this one.
 * Errors: TIMEOUT names a missing rank, and the next call goes on with the same
 * round; PEER_LOST names a dead one. One thread. */
int  ceov_barrier(ceov_context *context, uint64_t timeout_ns);

/* --- buffers ------------------------------------------------------------- */

/* Registers memory of the caller: host memory for a rank on the host, memory of
 * that GPU (cudaMalloc) for a rank on a GPU. It stays the caller's: allocated
 * before, freed after the release. Ordinary host memory can be used by all ranks
 * of this process but not shared with others: see ceov_buffer_create().
 * Where a rank of this process is on a GPU, host memory is pinned in whole pages. CUDA then
 * refuses copies of other memory that begins or ends in these pages and is not pinned itself:
 * register whole pages, or memory that cudaHostAlloc() gave. */
int  ceov_buffer_register(ceov_context *context, uint32_t rank,
			  void *base, uint64_t size_bytes,
			  ceov_buffer **ret_buffer);

/* Allocates memory at the rank's place: its GPU's memory, or host memory. It can always be
 * shared with other processes. ceov_buffer_release() frees it. Contents are undefined. */
int  ceov_buffer_create(ceov_context *context, uint32_t rank,
			uint64_t size_bytes, ceov_buffer **ret_buffer);

/* A stand-in for memory that each launch names (ceov_launch.floating): size_bytes in the
 * place of our rank `rank`, which is host memory for a rank on the host. It is the source
 * of transfers in plans of that rank only, one such buffer per plan, and cannot be shared. */
int  ceov_buffer_float(ceov_context *context, uint32_t rank,
		       uint64_t size_bytes, ceov_buffer **ret_buffer);

/* The address at which this process (host memory) or the GPU of our rank `rank`
 * (GPU memory) reaches the first byte. NULL: not reachable from there, or floating. */
void *ceov_buffer_base(const ceov_buffer *buffer, uint32_t rank);

/* Exports the buffer to the group under a name (1 to 63 bytes); finds a buffer that `rank`
 * exported. Find: CEOV_NONE while that rank has not exported it yet; CEOV_ERR_TIMEOUT where
 * its process does not answer within the context's deadline, or 10 s. */
int  ceov_buffer_share(ceov_buffer *buffer, const char *name);
int  ceov_buffer_find(ceov_context *context, uint32_t rank, const char *name,
		      ceov_buffer **ret_buffer);

/* CEOV_PENDING: a plan uses it, another rank of this process has found it, a peer still
 * maps it, or a copy that was given up (CEOV_ERR_UNCERTAIN) may still touch it; nothing was
 * released, the memory must not be freed yet, call again. */
int  ceov_buffer_release(ceov_buffer *buffer);

/* --- signals ------------------------------------------------------------- */

struct ceov_mark {
	ceov_signal *signal;            /* NULL: always reached; raises nothing */
	uint32_t     index;             /* which counter of it */
	uint64_t     value;             /* relative to a base, where one is given */
};

/* Values, base included, stay below this: counters at or above it are poisoned
 * (their signal was aborted). */
#define CEOV_VALUE_LIMIT (UINT64_C(1) << 62)

/* What a kernel needs to arrive at a signal or await it: pass it by value.
 * See ceoverlap/device.cuh. */
struct ceov_device_signal {
	uint64_t       *counters;       /* in the asking GPU's address space */
	uint32_t       *arrivals;       /* tiles counted so far; NULL: await only */
	uint64_t       *words;          /* host copy of counters, or NULL */
	const uint32_t *abort_word;     /* not 0: aborted, leave at once */
	uint64_t        reserved[4];    /* zero */
};

enum ceov_signal_flags {
	CEOV_SIGNAL_HOST_VISIBLE = 1    /* host threads and polling engines can read
					 * the counters: every raiser writes a word
					 * of host memory too. Host signals always
					 * are. */
};

/* place is where the counters live; waiting is cheapest near them. `rank` is one of ours,
 * and place the host or that rank's GPU. Counters begin at 0. */
int      ceov_signal_create(ceov_context *context, uint32_t rank,
			    struct ceov_place place, uint32_t n_counters,
			    uint32_t flags, ceov_signal **ret_signal);
int      ceov_signal_share(ceov_signal *signal, const char *name);
int      ceov_signal_find(ceov_context *context, uint32_t rank,
			  const char *name, ceov_signal **ret_signal);

/* The view of our GPU rank `rank`. Only kernels on that GPU may use it. Kernels
 * of one rank at a time may arrive at a counter. */
int      ceov_signal_for_device(ceov_signal *signal, uint32_t rank,
				struct ceov_device_signal *ret_device_signal);

/* For host threads. Raising to less than the counter's value is refused where the host sees
 * the counter (CEOV_ERR_INVALID). arrive counts one tile of n_tiles, and the last one
 * raises to value, as in kernels; a refused arrival is not counted. A raise that meets an
 * abort returns the abort's error, and the counter stays poisoned. */
int      ceov_signal_raise(ceov_signal *signal, uint32_t index, uint64_t value);
int      ceov_signal_arrive(ceov_signal *signal, uint32_t index,
			    uint32_t n_tiles, uint64_t value);

/* CEOV_ERR_STATE: the counters live in a GPU and are not host visible. */
int      ceov_signal_value(ceov_signal *signal, uint32_t index,
			   uint64_t *ret_value);

/* Blocks until the counter has reached value. CEOV_PENDING: timeout_ns passed first; 0 only
 * checks. An aborted signal returns the abort's error, even where the value was reached
 * before. */
int      ceov_signal_wait(ceov_signal *signal, uint32_t index,
			  uint64_t value, uint64_t timeout_ns);

/* Stream-ordered raise and wait on our GPU rank `rank`, for marks between kernels, streams
 * and peers; stream is a CUstream, never the NULL stream. base is added to every value; all
 * marks go in one driver call where possible. Queue a wait only after the work that raises
 * the mark was queued, here or at the peer. An abort releases the waits: check the signal
 * after the stream went on. INVALID: a counter that the host sees is above the value to
 * raise to. NO_ROUTE: a wait for counters in the GPU of another process, which nobody could
 * release if that process ended. */
int      ceov_stream_raise(ceov_context *context, uint32_t rank, void *stream,
			   const struct ceov_mark *marks, uint32_t n_marks,
			   uint64_t base);
int      ceov_stream_wait(ceov_context *context, uint32_t rank, void *stream,
			  const struct ceov_mark *marks, uint32_t n_marks,
			  uint64_t base);

/* Resets a signal after an abort: every rank that uses it calls this, then all meet (for
 * example in ceov_barrier()), then counters are 0 again. CEOV_PENDING: a launch that uses
 * the signal is still in flight, or a copy of one that was given up (CEOV_ERR_UNCERTAIN)
 * has not ended; wait for it first. */
int      ceov_signal_renew(ceov_signal *signal);

/* CEOV_PENDING: as ceov_buffer_release(). */
int      ceov_signal_release(ceov_signal *signal);

/* --- plans --------------------------------------------------------------- */

struct ceov_spot {
	ceov_buffer *buffer;
	uint64_t     offset_bytes;
	uint64_t     pitch_bytes;       /* from row to row; unused for one row */
};

/* A transfer with row_bytes 0 has no buffers. It goes when its marks are reached and all
 * transfers before it in the plan have gone, on the lane of the one directly before it. So
 * it raises `then` after the bytes of all of them have arrived, if they move in one
 * direction (within GPUs and to peers, from host memory to a GPU, or from a GPU to host
 * memory; on host ranks there is only one) or the launch names after_stream. It does not
 * order marks: earlier transfers' marks may be raised later. None of them may wait for its
 * mark, directly or through others. */
struct ceov_transfer {
	size_t           struct_bytes;  /* sizeof(struct ceov_transfer) */
	struct ceov_mark source_ready;  /* the bytes are there, and ... */
	struct ceov_mark target_free;   /* ... nobody reads the target any more */
	struct ceov_spot source;
	struct ceov_spot target;
	uint64_t         row_bytes;     /* 0: moves nothing, only raises */
	uint64_t         n_rows;        /* at least 1, unless row_bytes is 0 */
	struct ceov_mark then;          /* raised when the target can be read. Where the host sees
					 * that the counter is above this value, the launch fails
					 * (CEOV_ERR_INVALID): counters never fall */
};

enum ceov_routes {                       /* which ways a plan's bytes may take */
	CEOV_ROUTES_DEFAULT = 0,        /* as CEOVERLAP_ROUTES says ("direct" or "all");
					 * else direct where there is a direct way, and
					 * the best other one where there is none */
	CEOV_ROUTES_DIRECT  = 1,        /* direct ways only */
	CEOV_ROUTES_ALL     = 2         /* several at once where that is faster: through
					 * host memory, and by other GPUs' PCIe links. It
					 * takes contexts, copy engines and staging
					 * memory on GPUs that need not be ours, from the
					 * commit until the context closes. Such
					 * transfers take those ways when the engine
					 * polls; gated launches and those with
					 * after_stream go directly, and so do templates,
					 * which all ranks run at once */
};

/* For polled launches; gated ones, and those with after_stream, are normal: their lanes
 * take them in the order of launches. Copies that have begun are never interrupted. */
enum ceov_urgency {
	CEOV_URGENCY_NORMAL     = 0,
	CEOV_URGENCY_URGENT     = 1,    /* goes before all copies that have not begun */
	CEOV_URGENCY_BACKGROUND = 2     /* leaves room: only a few of its chunks are in flight at
					 * a time, so max_chunk_bytes bounds how long others wait
					 * for them */
};

struct ceov_plan_options {
	size_t   struct_bytes;
	uint64_t max_chunk_bytes;       /* 0: the context's; through staging memory 4 MiB
					 * at most */
	uint64_t mark_group_bytes;      /* copies of up to this many bytes may go
					 * before their marks are raised in one
					 * batch; more: throughput, less: earlier
					 * marks; 0: the default, 256 MiB. Background
					 * chunks and legs through staging memory always
					 * go alone */
	uint32_t routes;                /* enum ceov_routes */
	uint32_t urgency;               /* enum ceov_urgency */
};

/* Create, add and commit: one thread. After commit a plan never changes.
 * A plan belongs to one rank of this process: the one whose engine moves; every
 * transfer's source or target is memory of that rank. options may be NULL. */
int  ceov_plan_create(ceov_context *context, uint32_t rank,
		      const struct ceov_plan_options *options,
		      ceov_plan **ret_plan);
int  ceov_plan_add(ceov_plan *plan, const struct ceov_transfer *transfer);

/* Declares that the mark will be raised from outside of the plan. */
int  ceov_plan_expect(ceov_plan *plan, const struct ceov_mark *mark);

/* Checks bounds, overlap without order, and that every mark waited for is raised
 * by the plan or expected; fixes routes, and makes what they need (staging memory,
 * contexts on GPUs that help); cuts chunks. Each refusal names the transfer and the
 * cause and leaves the plan as it was. */
int  ceov_plan_commit(ceov_plan *plan);

/* Waits for its launches in flight, which are bounded by their deadlines. Memory that a
 * copy which was given up (CEOV_ERR_UNCERTAIN) may still touch stays in use until that copy
 * has ended. */
void ceov_plan_release(ceov_plan *plan);

/* 0: none of its launches is in flight, and ceov_plan_release() does not wait;
 * CEOV_PENDING: some are. Never blocks. */
int  ceov_plan_idle(const ceov_plan *plan);

/* Writes a description of a committed plan to fd: one line for the plan and one for each
 * transfer (backend, route, trigger, chunks, expected time). If a transfer does not simply take
 * the direct path, one more line for each path gives its share of the bytes. The routes shown
 * are those of polled launches. CEOV_ERR_SYSTEM: fd cannot be written; a pipe that nobody reads
 * gives this error, too, and no SIGPIPE. */
int  ceov_plan_explain(const ceov_plan *plan, int fd);

/* --- launches ------------------------------------------------------------ */

struct ceov_launch {
	size_t   struct_bytes;          /* sizeof(struct ceov_launch) */
	uint64_t base;                  /* added to every mark's value; never falls
					 * from one launch of a plan to the next */
	uint64_t deadline_ns;           /* from now; 0: the context's */
	void    *producer_stream;       /* everything that raises our source_ready
					 * marks is queued already on this CUstream
					 * (host ranks: any token that names the
					 * producing thread). Lanes then wait for
					 * the marks by themselves ("gated");
					 * NULL: the engine polls them */
	void    *after_stream;          /* what is queued so far on this CUstream comes
					 * first, besides the marks: the copies wait for
					 * it by themselves. For collectives that follow
					 * a kernel as a whole it costs less than a mark.
					 * Earlier launches that name the stream, here or
					 * gated, go first, all of their transfers: no
					 * mark that they wait for may wait for this one.
					 * Such launches go by direct ways;
					 * CEOV_ERR_INVALID: a transfer has none.
					 * NULL: nothing; GPU ranks only */
	const void *floating;           /* address of the plan's floating buffer in this
					 * launch: memory of the plan's rank, at any
					 * alignment, which stays allocated and untouched
					 * by others until the launch is done; not
					 * registered. NULL where the plan has none */
};

/* Rises with every launch and is never reused. Nothing has to be released. */
typedef struct ceov_ticket { uint64_t number; } ceov_ticket;

/* launch may be NULL: base 0, polled, no floating buffer. CEOV_FULL: too many launches
 * are in flight: 32 of the plan, 4096 of the context, or more than its engine has taken up
 * yet. What has ended does not count, however long an older one lasts. */
int ceov_launch(ceov_plan *plan, const struct ceov_launch *launch,
		ceov_ticket *ret_ticket);

/* Queues all of a committed plan on a CUstream from the calling thread, in the order of
 * the plan: source_ready and target_free become waits of the stream, bytes copies on copy
 * engines, `then` a raise. Transfers next to each other that wait for the same marks, or
 * for none, go as one batch, in the bounds of mark_group_bytes. The engine has no part in
 * it: what this process submits later cannot hold up its copies and raises. Queue it only
 * after the work that raises its other marks was queued, here or at the peer. base as in
 * struct ceov_launch; the stream never NULL.
 *
 * There is no ticket and no deadline: waits end by their marks, or by an abort, so check
 * the signals after the stream went on. A late raise can overwrite an abort's poison and
 * block waiters again. A launch with after_stream that uses the signal, and was in flight
 * at the abort, repeats the abort until it has ended, for 5 s at most. Until the stream has
 * executed all of it, memory must stay allocated, and signals must not be released or
 * renewed; the plan may be released. One thread for each plan; launches and queues of it are not in
 * flight together (CEOV_ERR_STATE, where it is the launch).
 *
 * CEOV_ERR_INVALID: the rank is on the host, the stream is NULL, of another GPU or being
 * captured, the base falls or is too large, a counter that the host sees would fall, the
 * plan has a floating buffer, a transfer has no direct way or waits for a mark of a later
 * one. CEOV_ERR_NO_ROUTE: a mark to wait for is in the GPU of another process, as in
 * ceov_stream_wait(). CEOV_ERR_STATE: the plan is not committed. CEOV_ERR_PEER_LOST, and
 * an abort's error: as from ceov_launch(). All these come before anything is queued; after
 * CEOV_ERR_CUDA some of it may be, and after CEOV_ERR_TIMEOUT: where counters are raised by
 * copies, 32 batches of raises may stand on streams at a time, and a further one waits 5 s
 * for the oldest. */
int ceov_plan_queue(ceov_plan *plan, void *stream, uint64_t base);

/* CEOV_PENDING: still moving after timeout_ns. 0 only looks. A launch that
 * failed yields its error, however late and often it is asked for: a result is kept until
 * the context closes, unless more than 4096 launches that ended later have failed; then,
 * and for a ticket that was never issued, CEOV_ERR_INVALID. */
int ceov_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns);

/* Aborts every signal that the launch's plan names, here and at every rank that
 * knows them: launches on them end with CEOV_ERR_ABORTED, kernels and streams
 * that wait on them leave. Chunks not begun are dropped; what is gated already
 * runs to its end behind the abort word, and its marks must not be trusted.
 * Afterwards signals want ceov_signal_renew(). CEOV_NONE: it had ended. */
int ceov_abort(ceov_context *context, ceov_ticket ticket);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_CEOVERLAP_H */
