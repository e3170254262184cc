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
 *   transfer  waits for two marks, moves a 2-D block of bytes, then raises a third
 *             mark. The runtime may cut a transfer into chunks to move it, but its
 *             mark is raised once, behind the last chunk.
 *   plan      a set of transfers, checked, routed and cut once.
 *   launch    one run of a plan. Its base is added to every mark's value, so
 *             nothing is reset between launches.
 *   ticket    the name of one launch.
 *
 * BASES      The usual numbers: launch k (0, 1, 2, ...) has base k. In its transfers
 *            source_ready has value 1, `then` has value 1, and target_free has value 0:
 *            the consumer of launch k - 1 raises that counter to k.
 *
 * UNITS      The name carries the unit: _bytes, _ns. Ranks and GPUs count from 0.
 * OWNERSHIP  A caller that gets an object through a ret_* argument releases it. Release
 *            functions accept NULL. Calls with a handle that was released, or closed with
 *            its context, are refused (CEOV_ERR_INVALID) while it is one of the last 1024
 *            such handles, or one of the last 16 contexts that were closed.
 *            A ret_* argument is written on success only, unless stated.
 * GROWTH     Structs that begin with struct_bytes grow at their end; a caller
 *            built against an older header goes on working. A caller built against
 *            a newer header must leave fields that the library does not know at 0;
 *            if one is set, the call returns CEOV_ERR_INVALID. Each has a macro, such as
 *            CEOV_LAUNCH_INIT, which sets struct_bytes and, unless stated, all else to 0, in C
 *            and in C++: struct ceov_launch launch = CEOV_LAUNCH_INIT;
 * THREADS    Every call may come from any thread, unless its comment says
 *            "one thread": then the caller serialises calls on that object.
 *            No other thread is in a call with a handle while it is released.
 *            No call may come from a child process made by fork() after
 *            ceov_open(): it gets CEOV_ERR_FORKED.
 * RESULTS    0       done
 *            > 0     enum ceov_condition: named in the call's comment; handle it
 *            < 0     enum ceov_error: pass it up; ceov_last_failure() has details
 * DEADLINES  Every call that waits has one; none is unbounded.
 */

#include <stddef.h>
#include <stdint.h>

/* What the CEOV_..._INIT are made of. C++ had no designated initialisers before C++20, and warns of
 * fields that a list of values leaves out. */
#ifdef __cplusplus
namespace ceoverlap {
template <typename type> inline type sized()
{
	type made = {};

	made.struct_bytes = sizeof(made);
	return made;
}
}
#define CEOV_SIZED(type) ceoverlap::sized<type>()
#else
#define CEOV_SIZED(type) { .struct_bytes = sizeof(type) }
#endif

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
	CEOV_ERR_UNCERTAIN = -14,       /* the target may or may not hold the bytes */
	CEOV_ERR_DAEMON_LOST = -15      /* the daemon that moves the bytes has gone; all processes
					 * of the group call ceov_reopen() to go on */
};

#define CEOV_NOBODY UINT32_MAX

#define CEOV_FAILURE_TEXT_BYTES 256

struct ceov_failure {
	int      error;                 /* enum ceov_error */
	int      native_code;           /* as the layer below reported it, or 0 */
	uint32_t rank;                  /* CEOV_NOBODY where no rank is to blame */
	uint32_t transfer;              /* index in its plan, or CEOV_NOBODY */
	uint64_t chunk;                 /* counts from 0 within the transfer */
	uint64_t mark_value;            /* the value of the mark that was not reached */
	uint64_t seen_value;            /* the value that its counter held; the text names
					 * the signal and the counter. Both 0: no mark was
					 * missing */
	char     text[CEOV_FAILURE_TEXT_BYTES]; /* one line: what, where, what to do */
};

/* Describes a result: 0, a condition or an error. Never returns NULL. */
const char *ceov_strerror(int result);

/* The version of the library that runs, such as "0.1.0"; and as a number, to be compared with that
 * of the headers, CEOV_VERSION_NUMBER in version.h. */
const char *ceov_version(void);
uint32_t    ceov_version_number(void);

/* Takes a failure, which then is forgotten: the next call gets another one. CEOV_NONE: there was
 * none.
 *
 * With a context: the first one since the last call, on whatever thread it was found. Why a launch
 * has failed is known here alone.
 *
 * With context NULL: the last one that the calling thread has raised in any call, also where
 * ceov_open() has failed, or a handle was NULL or released. Ask directly after a call that returned
 * an error: the next failure replaces it, and a call that succeeds may raise one on its way. Other
 * threads neither see it nor replace it; it needs no context, and ends with the thread. */
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

/* How the processes of a group of several nodes find each other before anything else. */
enum ceov_bootstrap {
	CEOV_BOOTSTRAP_SHOWN = 0,       /* the first of the following that the environment shows */
	CEOV_BOOTSTRAP_CALLBACK = 1,    /* struct ceov_network's all_gather */
	CEOV_BOOTSTRAP_PMIX = 2,        /* the process manager of mpirun and srun */
	CEOV_BOOTSTRAP_STORE = 3,       /* a TCP server in process 0, as under torchrun */
	CEOV_BOOTSTRAP_FOLDER = 4,      /* refused: earlier versions met by files of a shared
					 * folder; use a store */
	CEOV_BOOTSTRAP_ALONE = 5        /* there are no other nodes, and this process is not to
					 * meet the others that a launcher has started */
};

/* A group of several nodes. What is 0 or NULL comes from the environment: see
 * docs/configuration.md. Networks between the nodes must be trusted. */
struct ceov_network {
	size_t      struct_bytes;       /* set by CEOV_NETWORK_INIT */
	uint32_t    bootstrap;          /* enum ceov_bootstrap */
	uint32_t    process;            /* number of this process, and how many there are; ... */
	uint32_t    n_processes;        /* ... 0: from the environment */
	int       (*all_gather)(void *all_gather_arg, const void *own, size_t n_bytes,
				void *ret_all, uint64_t timeout_ns);
					/* writes the n_bytes of every process, by its number.
					 * 0, or anything else after a failure */
	void       *all_gather_arg;
	const char *where;              /* host:port of the store */
	const char *job;                /* name of the job; who knows it can take a place
					 * in the group */
	const char *node;               /* name of this node; NULL: the machine's boot id */
	const char *nics;               /* the network interface to use; or several, separated by
					 * commas, of which the topology chooses one for the
					 * GPU of the first member, else the first is used.
					 * NULL: CEOVERLAP_NICS, or one of all */
	const void *secret;             /* has no effect any more, but for a warning */
	size_t      secret_bytes;
	uint64_t    peer_timeout_ns;    /* a process from which nothing was heard for so long, while
					 * something is awaited from it, is lost; and one that
					 * answers while no byte under way to or from it moves,
					 * after twice the time; 0: 10 s */
};

#define CEOV_NETWORK_INIT \
	{ sizeof(struct ceov_network), CEOV_BOOTSTRAP_SHOWN, 0, 0, NULL, NULL, NULL, NULL, NULL, \
	  NULL, NULL, 0, 0 }

struct ceov_config {
	size_t                    struct_bytes;   /* set by CEOV_CONFIG_INIT */
	const struct ceov_member *members;        /* NULL: from the environment; a single one with
						   * rank CEOV_NOBODY: likewise, but at this
						   * place */
	uint32_t                  n_members;
	uint32_t                  n_ranks;        /* of the whole group */
	const char               *group;          /* path of the unix socket at which ranks meet;
						   * NULL: from the environment, else the rank is
						   * alone */
	uint64_t                  max_chunk_bytes;/* bounds how long a small transfer waits behind
						   * a large one; 0: chosen by the cost model */
	uint64_t                  deadline_ns;    /* deadline of every wait that has none of its
						   * own; 0: 60 s */
	int                       progress_by_caller; /* 1: the library starts no threads for
						       * launches: they progress only in
						       * ceov_turn(). So does what comes from
						       * other nodes, but for barriers and
						       * finds: a thread in ceov_signal_wait()
						       * does not see it unless another one
						       * calls ceov_turn() */
	void                    (*log)(void *log_arg, const char *line);
						  /* called with each log line; ceov_open()
						   * says what it must not do. NULL: lines
						   * go to stderr */
	void                     *log_arg;
	const struct ceov_network *network;       /* how ranks of several nodes meet; NULL: as the
						   * environment shows, else all ranks are on
						   * one node */
	const char               *daemon;         /* path of the socket of a ceoverlapd that is to
						   * move the data; NULL: CEOVERLAP_DAEMON, else
						   * none */
};

/* n_ranks is 1. */
#define CEOV_CONFIG_INIT \
	{ sizeof(struct ceov_config), NULL, 0, 1, NULL, 0, 0, 0, NULL, NULL, NULL, NULL }

/* Opens the GPUs or host memory of this process's ranks, and connects to the group's
 * other ranks; blocks until all have connected or the deadline passes. config may be
 * freed afterwards: the context copies what it keeps of it.
 *
 * What config leaves out comes from the environment: CEOVERLAP_RANK,
 * CEOVERLAP_RANKS (how many), CEOVERLAP_PLACE ("host" or "gpu:N") and
 * CEOVERLAP_GROUP (socket path). With config NULL and none of them set, the process
 * is rank 0 of a group of one, on GPU 0 if there is one and else on host memory. But a
 * process that a launcher started as one of several (by the variables of torchrun, srun, mpirun,
 * MPICH, Flux, jsrun or PMIx) is refused then: CEOVERLAP_BOOTSTRAP says how they meet, or that each
 * is alone, as config->network->bootstrap does.
 *
 * On failure *ret_context is not written and the log has one line per cause.
 *
 * The log function is called by the library's threads and by threads that are in a call of
 * the library, several at once, until ceov_close() returns. It must not call the library,
 * leave by longjmp() or an exception, or wait for a thread that may be in a call of the
 * library: the thread that logs makes no progress meanwhile, and may hold locks of the CUDA
 * backend. It is best to copy the line into a queue. Most repetitions of a line are not
 * logged but counted; a later line says how many there were. */
int  ceov_open(const struct ceov_config *config, ceov_context **ret_context);

/* Lets copies that are under way end, for 5 s at most, and then aborts the launches in flight; on
 * return no engine touches the caller's memory. So who has seen a launch's last mark may close:
 * that launch is not aborted. A launch whose transfers all wait for marks is aborted at once; one
 * whose lane waits for a stream, or for a mark in a GPU that the host does not see, and one that a
 * daemon carries out, within 100 ms. These aborts are what the caller asked for, and no errors:
 * their lines have the level info. Peers that use the same signals are told as by ceov_abort().
 * Releases the objects that the caller did not release. Waits up to 2 s for peers that
 * still use buffers and signals which this process shared; to avoid that, call
 * ceov_barrier() at all ranks first. One thread, while no other one is in a call of the context or
 * of its objects, waits included: ceov_abort() ends these. NULL is allowed.
 *
 * Copies that are under way have the context's deadline, and at least 1 s, to end. A copy
 * that does not end (a hanging GPU, a processor that got no time) cannot be stopped: then
 * an error line says so, and all memory of the context stays allocated until the process
 * ends. The caller must not free registered memory then, either. */
void ceov_close(ceov_context *context);

/* Goes on after CEOV_ERR_DAEMON_LOST, with the next daemon. All processes of the group call it,
 * whether their own daemon was lost or not. Waits until the launches of this process have ended,
 * the lost daemon can no longer write to its memory, a daemon listens at the path again, and all
 * processes have come. Afterwards
 *
 *   - buffers, signals and plans are what they were, by the same handles; the new daemon has
 *     committed the plans that the lost one had. Those of a rank on a GPU that the new one does not
 *     serve are carried out by this process from then on, and ceov_plan_explain() says so;
 *   - signals of plans that a daemon carries out for any process of the group, and signals that
 *     were aborted, count from 0 again, as after ceov_signal_renew() at all ranks, and their plans
 *     may begin again at any base. All other signals keep their counters;
 *   - launches that were in flight at the loss have ended with CEOV_ERR_DAEMON_LOST. Their targets
 *     may hold a part of the bytes;
 *   - workspaces (ops.h) with such a signal have failed, and are created anew.
 *
 * In a process without a daemon, or whose daemon lives, no connection is made, and all else is the
 * same: the call waits for launches, meets the others, and renews signals. Threads that wait for
 * signals of a daemon's plans meanwhile are told CEOV_ERR_DAEMON_LOST.
 *
 * After an error the caller calls again, which goes on with the part that was not done, or closes
 * the context; the other processes wait for it meanwhile. Until a call has returned 0, launch
 * nothing: the loss of a daemon then still ends launches with CEOV_ERR_DAEMON_LOST, but aborts no
 * signals, which others may have renewed already, so a thread that waits for one waits until its
 * timeout. CEOV_ERR_TIMEOUT: timeout_ns passed, or
 * the context's deadline for an answer of the new daemon; the failure says what was waited for.
 * CEOV_ERR_DAEMON_LOST: the next daemon has gone, too; the others are told, and all call again.
 * CEOV_ERR_PEER_LOST: a process of the group has gone: close the context. Other errors: what the
 * new daemon refuses a plan or the process for, such as a limit. The processes meet as by
 * ceov_barrier(), so all must have returned from as many barriers before.
 *
 * One thread; threads may wait for tickets and signals of the context meanwhile, but be in no
 * other call of it. */
int  ceov_reopen(ceov_context *context, uint64_t timeout_ns);

/* Makes one pass of every engine; for contexts opened with progress_by_caller. Never
 * blocks. One thread. CEOV_PENDING: there is more to do. */
int  ceov_turn(ceov_context *context);

/* Returns when every process of the group has called it as often as this one.
 * CEOV_ERR_TIMEOUT: the failure names a rank that did not call; the next call continues
 * the same barrier. CEOV_ERR_PEER_LOST: the failure names the lost rank. One thread.
 * Between nodes, what a process raised or released before the call may take effect behind it: who
 * needs to see a counter waits for it. */
int  ceov_barrier(ceov_context *context, uint64_t timeout_ns);

/* Tell what a launcher or the environment has chosen. ceov_n_ranks(): how many ranks the group
 * has, on all nodes. ceov_members(): how many ranks this process holds, and which they are and
 * where; the first n of them are written to ret_members, which may be NULL if n is 0. */
int  ceov_n_ranks(ceov_context *context, uint32_t *ret_n_ranks);
int  ceov_members(ceov_context *context, struct ceov_member *ret_members, uint32_t n,
		  uint32_t *ret_n_members);

/* What is known of a context. */
struct ceov_context_info {
	size_t   struct_bytes;
	uint32_t n_ranks;               /* as ceov_n_ranks() and ceov_members() say */
	uint32_t n_members;
	uint32_t n_processes;           /* of the group */
	uint32_t n_nodes;
	uint32_t node;                  /* of this process, as ceov_rank_node() numbers them */
	uint32_t bootstrap;             /* enum ceov_bootstrap: how the processes have found each
					 * other. CEOV_BOOTSTRAP_ALONE: the group knows of no other
					 * nodes; its processes, where there are several, have met
					 * at the group's path */
	uint64_t deadline_ns;           /* of waits that have none of their own */
	int      has_daemon;            /* 1: a ceoverlapd moves the data of this process, or some
					 * of it: see struct ceov_plan_info. 0: there is none, or
					 * it has gone by now */
};

#define CEOV_CONTEXT_INFO_INIT CEOV_SIZED(struct ceov_context_info)

/* The calls ceov_..._query() fill a struct whose struct_bytes the caller has set: as many of its
 * fields as the library knows, and all others with 0. They never block. Where nothing is said, what
 * they tell does not change. CEOV_ERR_INVALID: struct_bytes is no size of this struct. */
int  ceov_context_query(ceov_context *context, struct ceov_context_info *ret_info);

/* Finds the number of the rank's node. Nodes are numbered from 0 on, in the order of their lowest
 * ranks. */
int  ceov_rank_node(ceov_context *context, uint32_t rank, uint32_t *ret_node);

/* --- buffers ------------------------------------------------------------- */

/* Registers memory of the caller: host memory, or for a rank on a GPU memory of
 * that GPU (cudaMalloc). The caller frees it, after
 * ceov_buffer_release(). Ordinary host memory can be used by all ranks of this process
 * but not shared with other processes: see ceov_buffer_create(). It is refused if it is not mapped,
 * or its first or last byte cannot be read.
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

/* Creates a buffer without memory of its own: each launch names the memory
 * (ceov_launch.floating), size_bytes at the place of `rank`, a rank of this process. Only
 * plans of that rank can use the buffer, as a source, one such buffer per plan. It cannot
 * be shared. */
int  ceov_buffer_float(ceov_context *context, uint32_t rank,
		       uint64_t size_bytes, ceov_buffer **ret_buffer);

/* The address of the first byte: for this process if it is host memory, or else for the
 * GPU of `rank`, a rank of this process. NULL: not reachable from there, or a buffer of
 * ceov_buffer_float(). */
void *ceov_buffer_base(const ceov_buffer *buffer, uint32_t rank);

/* Room for the name of a buffer or a signal, and the NUL behind it. */
#define CEOV_NAME_BYTES 64

/* The first exports the buffer to the group under a name (1 to 63 bytes). The second finds
 * a buffer that `rank` exported. It returns CEOV_NONE if that rank has not exported it yet,
 * and CEOV_ERR_TIMEOUT if that rank's process does not answer within the context's
 * deadline, or 10 s. */
int  ceov_buffer_share(ceov_buffer *buffer, const char *name);
int  ceov_buffer_find(ceov_context *context, uint32_t rank, const char *name,
		      ceov_buffer **ret_buffer);

/* What is known of a buffer, also of one that was found. */
struct ceov_buffer_info {
	size_t            struct_bytes;
	uint64_t          size_bytes;
	uint32_t          rank;         /* whose memory it is */
	struct ceov_place place;        /* where it is. index CEOV_NOBODY: in a GPU that this
					 * process does not see; kind CEOV_PLACE_HOST with index
					 * CEOV_NOBODY: on another node, wherever it is there */
	int               is_found;     /* 1: by ceov_buffer_find() */
	int               is_floating;  /* 1: of ceov_buffer_float(); place is the rank's */
	char              name[CEOV_NAME_BYTES];        /* under which it was shared or found; "":
							 * it was not, so far */
};

#define CEOV_BUFFER_INFO_INIT CEOV_SIZED(struct ceov_buffer_info)

int  ceov_buffer_query(const ceov_buffer *buffer, struct ceov_buffer_info *ret_info);

/* CEOV_PENDING: a plan uses the buffer, another rank of this process has found it, a peer
 * still maps it, or a copy that was given up (CEOV_ERR_UNCERTAIN) may still touch it. Nothing
 * was released then: the memory must not be freed yet, and the caller calls again. */
int  ceov_buffer_release(ceov_buffer *buffer);

/* --- signals ------------------------------------------------------------- */

struct ceov_mark {
	ceov_signal *signal;            /* NULL: the mark is always reached, and raising it
					 * has no effect */
	uint32_t     index;             /* of the counter within the signal */
	uint64_t     value;             /* in launches and stream calls the base is added */
};

/* A mark's value, base included, must be below this limit. An abort of a signal writes
 * values at or above it to the signal's counters. */
#define CEOV_VALUE_LIMIT (UINT64_C(1) << 62)

/* A signal as kernels of one GPU use it; passed to them by value. The functions that a
 * kernel calls with it are in ceoverlap/device.cuh. */
struct ceov_device_signal {
	uint64_t       *counters;       /* in that GPU's address space */
	uint32_t       *arrivals;       /* for each counter, the tiles that have arrived in
					 * this round; NULL: the kernel can only await */
	uint64_t       *words;          /* host copy of counters, or NULL */
	const uint32_t *abort_word;     /* holds 0 unless the signal was aborted; kernels that
					 * wait return when it is not 0 */
	uint64_t        reserved[4];    /* zero */
};

enum ceov_signal_flags {
	CEOV_SIGNAL_HOST_VISIBLE = 1    /* host threads and polling engines can read
					 * the counters: whatever raises a counter also
					 * writes a word of host memory. Signals with
					 * counters in host memory are always visible */
};

/* ceov_signal_create() puts the counters, all 0, in the memory of `place`: the host, or the
 * GPU of `rank`, a rank of this process. Waiting is cheapest for kernels and threads near the
 * counters. The other two export and find signals as ceov_buffer_share() and
 * ceov_buffer_find() do for buffers. */
int      ceov_signal_create(ceov_context *context, uint32_t rank,
			    struct ceov_place place, uint32_t n_counters,
			    uint32_t flags, ceov_signal **ret_signal);
int      ceov_signal_share(ceov_signal *signal, const char *name);
int      ceov_signal_find(ceov_context *context, uint32_t rank,
			  const char *name, ceov_signal **ret_signal);

/* What is known of a signal, also of one that was found. */
struct ceov_signal_info {
	size_t            struct_bytes;
	uint32_t          n_counters;
	uint32_t          rank;         /* who created it */
	struct ceov_place place;        /* of the counters; also of another node. index CEOV_NOBODY:
					 * in a GPU that this process does not see */
	int               is_found;     /* 1: by ceov_signal_find() */
	int               is_visible;   /* 1: host threads can read the counters */
	int               error;        /* with which it was aborted, so far; 0: it was not */
	uint32_t          blamed;       /* the rank to blame for that, or CEOV_NOBODY */
	char              name[CEOV_NAME_BYTES];        /* under which it was shared or found; "":
							 * it was not, so far */
};

#define CEOV_SIGNAL_INFO_INIT CEOV_SIZED(struct ceov_signal_info)

int      ceov_signal_query(const ceov_signal *signal, struct ceov_signal_info *ret_info);

/* Fills *ret_device_signal for kernels on the GPU of `rank`, a rank of this process; no other
 * GPU's kernels may use it. At any time only kernels of one rank may arrive at a counter. */
int      ceov_signal_for_device(ceov_signal *signal, uint32_t rank,
				struct ceov_device_signal *ret_device_signal);

/* For host threads: raise a counter to value. ceov_signal_arrive() counts one tile of n_tiles,
 * and only the last tile raises, as in kernels. Raising to less than the counter's value is
 * refused where the host sees the counter (CEOV_ERR_INVALID); a refused arrival is not
 * counted. If the signal was aborted, the call returns the abort's error, and the counter
 * keeps the value that the abort wrote. */
int      ceov_signal_raise(ceov_signal *signal, uint32_t index, uint64_t value);
int      ceov_signal_arrive(ceov_signal *signal, uint32_t index,
			    uint32_t n_tiles, uint64_t value);

/* Reads a counter. CEOV_ERR_STATE: the counters are in GPU memory and not host visible. */
int      ceov_signal_value(ceov_signal *signal, uint32_t index,
			   uint64_t *ret_value);

/* Blocks until the counter has reached value. CEOV_PENDING: timeout_ns passed first;
 * timeout_ns 0 only checks. If the signal was aborted, the call returns the abort's error,
 * even if the value had been reached before. */
int      ceov_signal_wait(ceov_signal *signal, uint32_t index,
			  uint64_t value, uint64_t timeout_ns);

/* Queue on a stream of the GPU of `rank`, a rank of this process, a raise of all marks, or
 * waits for all of them; for ordering between kernels, streams and peers. stream is a CUstream,
 * never the NULL stream. base is added to every value; all marks go in one driver call where
 * possible. Queue a wait only after the work that raises the mark was queued, here or at the
 * peer. An abort ends the waits, so check the signal when the stream has passed them.
 * CEOV_ERR_INVALID: a counter that the host sees is above the value to raise to.
 * CEOV_ERR_NO_ROUTE: a wait for counters in the memory of another process's GPU, which could
 * not be released if that process ended; a signal of another node. */
int      ceov_stream_raise(ceov_context *context, uint32_t rank, void *stream,
			   const struct ceov_mark *marks, uint32_t n_marks,
			   uint64_t base);
int      ceov_stream_wait(ceov_context *context, uint32_t rank, void *stream,
			  const struct ceov_mark *marks, uint32_t n_marks,
			  uint64_t base);

/* Resets a signal after an abort. Every rank that uses the signal calls this; when all have
 * returned (ceov_barrier() makes sure of it), the counters are 0 again. CEOV_PENDING: a launch
 * that uses the signal is still in flight, or a copy that was given up (CEOV_ERR_UNCERTAIN)
 * has not ended; wait for it first. */
int      ceov_signal_renew(ceov_signal *signal);

/* CEOV_PENDING: the signal is still in use, for the reasons that ceov_buffer_release() lists;
 * nothing was released, and the caller calls again. */
int      ceov_signal_release(ceov_signal *signal);

/* --- plans --------------------------------------------------------------- */

struct ceov_spot {
	ceov_buffer *buffer;
	uint64_t     offset_bytes;
	uint64_t     pitch_bytes;       /* from the begin of one row to the next one's; unused
					 * for one row */
};

/* A transfer with row_bytes 0 has no buffers and only raises `then`. It is submitted when its
 * marks are reached and all earlier transfers of the plan have been submitted, on the lane of
 * the transfer directly before it. So it raises `then` after the bytes of all earlier transfers
 * have arrived, provided that these all move in one direction (within GPUs and to peers, from
 * host memory to a GPU, or from a GPU to host memory; on host ranks there is one direction
 * only; what goes to another node goes to one rank only, and stands in no order with the rest)
 * or that the launch names after_stream. It does not order marks: those of earlier
 * transfers may be raised later than `then`. No earlier transfer may wait for `then`,
 * directly or through other transfers. */
struct ceov_transfer {
	size_t           struct_bytes;  /* sizeof(struct ceov_transfer) */
	struct ceov_mark source_ready;  /* waited for: the source's bytes are written */
	struct ceov_mark target_free;   /* waited for: nobody reads the target any more */
	struct ceov_spot source;
	struct ceov_spot target;
	uint64_t         row_bytes;     /* 0: moves nothing, only raises */
	uint64_t         n_rows;        /* at least 1, unless row_bytes is 0 */
	struct ceov_mark then;          /* raised when the target can be read. If the host sees
					 * that the counter is above this value already, the launch
					 * fails (CEOV_ERR_INVALID): counters never fall */
	struct ceov_spot n_rows_at;     /* buffer NULL: all rows are moved. Else a uint64_t, aligned
					 * to 8 bytes, in host memory of the plan's rank: how many
					 * of the n_rows rows a launch moves, from the first on. It
					 * is read once, when source_ready and target_free are
					 * reached, so whoever raises source_ready writes it before,
					 * and keeps it until `then` is raised. More than n_rows
					 * fails the launch (CEOV_ERR_INVALID). Needs source_ready,
					 * which the engine polls: ceov_plan_queue() and captures
					 * refuse such a plan.
					 * A struct that ends before this field moves all rows */
};

#define CEOV_TRANSFER_INIT CEOV_SIZED(struct ceov_transfer)

enum ceov_routes {                       /* which paths a plan's bytes may take */
	CEOV_ROUTES_DEFAULT = 0,        /* as CEOVERLAP_ROUTES says ("direct" or "all");
					 * else direct where there is a direct path, and
					 * the best other one where there is none */
	CEOV_ROUTES_DIRECT  = 1,        /* direct paths only */
	CEOV_ROUTES_ALL     = 2         /* several at once where that is faster: through
					 * host memory, and by other GPUs' PCIe links. It
					 * takes contexts, copy engines and staging
					 * memory on GPUs that need not be ours, from the
					 * commit until the context closes. Such
					 * transfers take those paths when the engine
					 * polls; gated launches and those with
					 * after_stream go directly, and so do templates,
					 * which all ranks run at once */
};

/* Which polled launches are served first. Gated launches, and those with after_stream, always
 * count as normal: their lanes serve them in the order of launches. Copies that have begun are
 * never interrupted. */
enum ceov_urgency {
	CEOV_URGENCY_NORMAL     = 0,
	CEOV_URGENCY_URGENT     = 1,    /* goes before all copies that have not begun */
	CEOV_URGENCY_BACKGROUND = 2     /* only a few chunks of the launch are in flight at a
					 * time, so max_chunk_bytes bounds how long copies of
					 * other launches wait for them */
};

struct ceov_plan_options {
	size_t   struct_bytes;
	uint64_t max_chunk_bytes;       /* 0: the context's value. Chunks that go through
					 * staging memory have 4 MiB at most */
	uint64_t mark_group_bytes;      /* copies of up to this many bytes together may be
					 * made before their marks are raised in one
					 * batch. A larger value gives more throughput, a
					 * smaller one earlier marks. 0: the default, 256
					 * MiB. Background chunks, and copies to and from
					 * staging memory, are never batched */
	uint32_t routes;                /* enum ceov_routes */
	uint32_t urgency;               /* enum ceov_urgency; normal: as CEOVERLAP_CLASS says */
};

#define CEOV_PLAN_OPTIONS_INIT CEOV_SIZED(struct ceov_plan_options)

/* Create, add and commit: one thread. After commit a plan never changes.
 * A plan belongs to `rank`, a rank of this process, whose engine makes the copies; every
 * transfer's source or target is memory of that rank. options may be NULL. */
int  ceov_plan_create(ceov_context *context, uint32_t rank,
		      const struct ceov_plan_options *options,
		      ceov_plan **ret_plan);
int  ceov_plan_add(ceov_plan *plan, const struct ceov_transfer *transfer);

/* Declares that the mark will be raised from outside of the plan. */
int  ceov_plan_expect(ceov_plan *plan, const struct ceov_mark *mark);

/* Checks that transfers stay within their buffers, that those which overlap are ordered by
 * marks, and that every mark that a transfer waits for is raised by the plan or declared by
 * ceov_plan_expect(). Chooses routes, allocates what they need (staging memory, contexts on
 * other GPUs), and cuts transfers into chunks. If it refuses, the failure names the transfer
 * and the cause, and the plan stays as it was. CEOV_ERR_NO_ROUTE: a transfer has no route, as
 * one whose source is memory of another node, which only its own rank's plans send. */
int  ceov_plan_commit(ceov_plan *plan);

/* Waits for the plan's launches in flight, which end by their deadlines at the latest, and
 * releases the plan. Memory that a copy which was given up (CEOV_ERR_UNCERTAIN) may still
 * touch stays in use until that copy has ended. If a daemon carries the plan out, also waits
 * until the daemon has unmapped the memory that no other plan names, at most for the context's
 * deadline; after that ceov_last_failure() yields CEOV_ERR_TIMEOUT. */
void ceov_plan_release(ceov_plan *plan);

/* 0: none of the plan's launches is in flight, and ceov_plan_release() would not wait;
 * CEOV_PENDING: some are in flight. Never blocks. */
int  ceov_plan_idle(const ceov_plan *plan);

/* What is known of a plan. */
struct ceov_plan_info {
	size_t   struct_bytes;
	uint32_t rank;
	uint32_t n_transfers;           /* until the commit: so far, as the next one */
	uint64_t bytes;                 /* that a launch moves; with n_rows_at: at most */
	uint32_t n_in_flight;           /* launches now; others begin and end meanwhile */
	int      is_committed;
	int      is_by_daemon;          /* 1: a ceoverlapd carries it out now. 0: this process
					 * does */
};

#define CEOV_PLAN_INFO_INIT CEOV_SIZED(struct ceov_plan_info)

/* Before the commit: on the thread that adds transfers. */
int  ceov_plan_query(const ceov_plan *plan, struct ceov_plan_info *ret_info);

/* Writes a description of a committed plan to fd: one line for the plan and one for each
 * transfer (backend, route, trigger, chunks, expected time). If a transfer does not simply take
 * the direct path, one more line for each path gives its share of the bytes. After an all-gather
 * over several nodes one line says how its shards go from node to node. The time of a
 * transfer to another node is, as the line says, measured, or what the network library expects;
 * one line for each rail follows at the end. The routes shown are those of polled launches.
 * CEOV_ERR_SYSTEM: fd cannot be written; a pipe that nobody reads gives this error, too, and no
 * SIGPIPE. */
int  ceov_plan_explain(const ceov_plan *plan, int fd);

/* --- launches ------------------------------------------------------------ */

struct ceov_launch {
	size_t   struct_bytes;          /* sizeof(struct ceov_launch) */
	uint64_t base;                  /* added to every mark's value; never falls
					 * from one launch of a plan to the next */
	uint64_t deadline_ns;           /* from now; 0: the context's */
	void    *producer_stream;       /* the CUstream on which all work that raises the
					 * plan's source_ready marks is queued already
					 * (host ranks: any token that names the
					 * producing thread). The lanes then wait for
					 * the marks themselves (a gated launch).
					 * NULL: the engine polls the marks */
	void    *after_stream;          /* a CUstream: besides waiting for the marks, the
					 * copies wait, without the engine, for all work
					 * that is queued on it so far. For collectives
					 * that follow a kernel as a whole this costs less
					 * than a mark. All transfers of earlier launches
					 * that name this stream, here or as
					 * producer_stream, go before this launch, so no
					 * mark that they wait for may depend on it.
					 * Such launches take direct paths;
					 * CEOV_ERR_INVALID: a transfer has none, or goes
					 * to another node.
					 * NULL: nothing; GPU ranks only */
	const void *floating;           /* address of the plan's floating buffer in this
					 * launch: memory of the plan's rank, at any
					 * alignment, which stays allocated and untouched
					 * by others until the launch is done; not
					 * registered. NULL where the plan has none */
};

#define CEOV_LAUNCH_INIT CEOV_SIZED(struct ceov_launch)

/* Rises with every launch and is never reused. Nothing has to be released. */
typedef struct ceov_ticket { uint64_t number; } ceov_ticket;

/* Starts a launch of a committed plan. launch may be NULL: base 0, polled, no floating
 * buffer. CEOV_FULL: too many launches are in flight, 32 of the plan or 4096 of the context,
 * or the engine has not taken up enough of the earlier ones yet. Launches that have ended do
 * not count, even if an older one is still in flight. With a daemon also: the launch names an
 * after_stream, and earlier launches of the plan that named none are in flight. */
int ceov_launch(ceov_plan *plan, const struct ceov_launch *launch,
		ceov_ticket *ret_ticket);

/* Queues all of a committed plan on a CUstream from the calling thread, in the order of
 * the plan: source_ready and target_free become waits of the stream, bytes become copies on
 * copy engines, and `then` becomes a raise. Consecutive transfers that wait for the same
 * marks, or for none, go as one batch, within mark_group_bytes. The stream waits for a mark
 * once, before the first transfer that names it. The engine is not involved:
 * work that this process submits later cannot delay these copies and raises. Call it only
 * after the work that raises the marks from outside of the plan was queued, here or at the
 * peer. base is as in struct ceov_launch; the stream must not be NULL.
 *
 * There is no ticket and no deadline: waits end when their marks are reached or by an abort,
 * so check the signals when the stream has passed them. A late raise can overwrite the value
 * that an abort wrote and
 * block waiters again. A launch with after_stream that uses the signal, and was in flight
 * at the abort, repeats the abort until it has ended, for 5 s at most. Until the stream has
 * executed all that was queued, memory must stay allocated, and signals must not be released
 * or renewed; the plan may be released. One thread for each plan. A plan must not be queued
 * while a launch of it is in flight (CEOV_ERR_STATE), nor launched until the stream has
 * executed all that was queued.
 *
 * CEOV_ERR_INVALID: the rank is on the host, the stream is NULL, of another GPU or being
 * captured, the base falls or is too large, a counter that the host sees would fall, the
 * plan has a floating buffer, a transfer has no direct path or waits for a mark of a later
 * one. CEOV_ERR_NO_ROUTE: a mark to wait for is in the GPU of another process, as in
 * ceov_stream_wait(), or of another node; a transfer goes to another node. CEOV_ERR_STATE:
 * the plan is not committed. CEOV_ERR_PEER_LOST, and
 * an abort's error: as from ceov_launch(). After all these errors nothing was queued. After
 * CEOV_ERR_CUDA and CEOV_ERR_TIMEOUT a part of the plan may have been queued. The latter
 * occurs only where counters are raised by copies: 32 batches of raises may be queued at a
 * time, and a further one waits 5 s for the oldest. */
int ceov_plan_queue(ceov_plan *plan, void *stream, uint64_t base);

/* Waits until the launch has ended. CEOV_PENDING: it has not after timeout_ns; timeout_ns 0
 * only checks. For a launch that failed, every call returns its error: results are kept until
 * the context closes, unless more than 4096 launches that ended later have failed. Then, and
 * for a ticket that was never issued, the call returns CEOV_ERR_INVALID. */
int ceov_wait(ceov_context *context, ceov_ticket ticket, uint64_t timeout_ns);

/* Aborts every signal that the launch's plan names, here and at every rank that uses them:
 * launches that use these signals end with CEOV_ERR_ABORTED, and waits of kernels and streams
 * end. Launches in flight in this context that use one of them end at once, with all signals of
 * their plans, and so do launches that use one of those; those of other processes end when their
 * engines see the abort. Chunks that have not begun are dropped, except those that a lane already
 * waits to begin: these are copied, and marks raised behind them mean nothing. Marks of launches
 * in flight here are not taken for good, since their signals are aborted before a lane goes on.
 * That is not so where a thread holds this context or a plan for 100 ms, for plans that
 * ceov_plan_queue() has queued, and for launches of other processes whose lanes wait for a signal
 * that is aborted here: look at the tickets, or at the signals after the stream has passed them.
 * Before they can be used again, the signals need ceov_signal_renew(). CEOV_NONE: the launch had
 * ended before. */
int ceov_abort(ceov_context *context, ceov_ticket ticket);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_CEOVERLAP_H */
