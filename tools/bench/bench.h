/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_H
#define BENCH_H

/*
 * ceoverlap-bench: what all test cases share.
 *
 *   world    starts one process (or thread) per rank; shared memory between them
 *   device   a rank's memory, streams and kernels: GPU or host stand-in
 *   case     measures; every mode of one table row in the same run, interleaved
 *   report   rows as text, and as JSON at the end
 */

#include <stdint.h>
#include <stdio.h>

#include <ceoverlap/ceoverlap.h>

#define BENCH_RANKS_MAX   256u
#define BENCH_TARGETS_MAX 8u                    /* that launches of a collective take turns with */
#define BENCH_SAMPLES_MAX 1000u
#define BENCH_ROWS_MAX    16384u
#define BENCH_MODES       48u

struct cells;
struct bench_compare;
struct bench_overlap_options;
struct bench_overlap_row;
struct bench_values;

/* --- options ------------------------------------------------------------- */

enum bench_trigger { BENCH_POLLED = 1, BENCH_GATED = 2, BENCH_FOLLOW = 4 };

struct bench_options {
	const char *tests;              /* comma-separated names; NULL: the default set */
	uint64_t    begin_bytes;
	uint64_t    end_bytes;
	uint32_t    factor;             /* from size to size */
	int         has_factor;         /* -f was given, which counts for more than -i */
	uint64_t    step_bytes;         /* added from size to size; 0: they grow by factor */
	uint32_t    n_samples;
	uint32_t    n_warmup;
	int         check;
	int         is_brief;           /* the table and the lines around it fit into 80 columns */
	const char *json_path;          /* NULL: none */
	char        output[32];         /* the path of standard output, if JSON goes there */
	uint32_t    n_ranks;            /* 0: one for each GPU, or 4 on host memory */
	int         force_host;
	int         names_sources;      /* --named was given */
	uint32_t    signal_flags;       /* of marks on GPUs: enum ceov_signal_flags, or 0 */
	int         one_process;        /* --one-process was given. If ranks share GPUs, the bench
					 * decides itself */
	int         processes;          /* one process for each rank, also if ranks share GPUs */
	uint32_t    triggers;           /* enum bench_trigger, or-ed */
	uint32_t    n_pieces;
	uint64_t    chunk_bytes;        /* 0: the library chooses */
	uint64_t    mark_group_bytes;   /* of plans of collectives; 0: the library chooses */
	uint32_t    n_targets;          /* that launches of collectives take turns with */
	uint32_t    n_nodes;            /* the ranks act as so many nodes; 0: as one */
	uint32_t    timeout_s;
	const char *nccl_path;          /* NULL: search for the library */
	int         without_nccl;
	uint64_t    seed;
	const char *trace_path;         /* NULL: none */
	char        command[1024];      /* as typed */
	int         has_sizes;          /* -b or -e was given */
	uint64_t    host_end_bytes;     /* the largest size where ranks are on host memory; 0: as
					 * on GPUs */
	const struct bench_overlap_options *overlap;    /* NULL: another test than "overlap" */
};

/* --- rows ---------------------------------------------------------------- */

enum bench_mode { BENCH_OURS, BENCH_RAW, BENCH_NCCL_SM, BENCH_NCCL_CE };

struct bench_row {
	char            test[24];
	enum bench_mode mode;
	char            variant[16];    /* "polled" or "gated", or another way to make the same;
					 * "" where the test has no such variants */
	uint32_t        ranks;
	int32_t         source;         /* of tests of one pair of ranks; else -1 */
	int32_t         target;
	uint64_t        bytes_per_rank;
	uint64_t        chunk_bytes;    /* 0: not cut, or not known */
	double          us_median;      /* 0 here and below: not measured */
	double          us_min;
	double          us_p99;
	double          gb_per_s;       /* the bus bandwidth; 0: the test has no bandwidth */
	double          algorithm_gb_per_s;     /* see bench_set_bandwidths() */
	int             verified;       /* 1: checked and right, 0: wrong, -1: not checked */
	double          us_within;      /* of gathers over nodes: the time of what each rank sends
					 * to its own node, alone; 0: nothing, or not measured */
	double          us_between;     /* the same for what it sends to other nodes */
	double          cpu_s_per_gib;  /* processor time of source and target together; 0: not
					 * measured */
	double          us_call;        /* of the calling thread, for a call that it queues alone;
					 * 0: not measured */
	double          ratio_raw;      /* NCCL's or raw's time / our time; 0: not measured */
	double          ratio_nccl_sm;
	double          ratio_nccl_ce;
};

/* --- world --------------------------------------------------------------- */

struct bench_shared;
struct bench_device;
struct bench_launched;

struct bench_rank {                     /* what the code of one rank works with */
	const struct bench_options *options;
	struct bench_shared        *shared;
	struct bench_launched      *launched;   /* a launcher started the ranks, which share no
						 * memory; NULL: the bench did */
	uint32_t                    rank;
	uint32_t                    n_ranks;
	int                         is_gpu;
	uint32_t                    gpu;        /* several ranks may share one */
	uint32_t                    n_nodes;    /* 1 or more */
	uint32_t                    nodes[BENCH_RANKS_MAX];     /* the node of each rank */
	uint32_t                    n_on_gpu;   /* the largest number of ranks on one GPU; 1: no GPU
						 * is shared */
	ceov_context               *context;
	struct bench_device        *device;
	uint64_t                    n_names;    /* counts the names given to shared objects */
	uint32_t                    n_turns;    /* calls of bench_any() so far */
};

struct bench_case {
	const char *name;
	const char *help;
	int         in_default;         /* runs when -t is not given */
	uint32_t    n_ranks_min;
	int         needs_gpu;
	int         over_nodes;         /* it can run between ranks of several nodes */
	int       (*run)(struct bench_rank *rank);
};

/* Runs the named cases on all ranks. Exit status of the program. */
int  bench_world_run(const struct bench_options *options,
		     const struct bench_case *const *cases, uint32_t n_cases);

/* Barrier of all ranks. CEOV_ERR_TIMEOUT / CEOV_ERR_ABORTED when a rank failed. */
int  bench_meet(struct bench_rank *rank);

/* Records a sample of this rank. After all ranks have recorded theirs and bench_collect() has
 * handed them to rank 0, it computes the row's times from the maximum over ranks of each sample. */
void bench_sample(struct bench_rank *rank, uint32_t mode, uint32_t sample, double us);
void bench_statistics(struct bench_rank *rank, uint32_t mode, uint32_t n_samples,
		      struct bench_row *row);

/* Sets both bandwidths of a row by its median, as nccl-tests defines them (doc/PERFORMANCE.md of
 * github.com/NVIDIA/nccl-tests, "Bandwidth"), so that the columns can be laid side by side:
 *
 *   algbw   S / time, where S is the size that nccl-tests tells for the call: a rank's whole
 *           target of an all-gather, its whole source of a reduce-scatter and an all-to-all, what
 *           is summed of an all-reduce, the message else
 *   busbw   algbw * factor: what the busiest link carries. The factor for n ranks is (n - 1) / n
 *           for all-gather, reduce-scatter and all-to-all, 2 (n - 1) / n for all-reduce, and 1 for
 *           broadcast and for a transfer between two ranks
 */
void bench_set_bandwidths(struct bench_row *row, double size_bytes, double factor);

/* Sorts the values. Returns their median; 0: there are none. */
double bench_median(double *values, uint32_t n);

/* Barrier of all ranks, after which rank 0 has the mode's samples of all. Cases that run within a
 * node may use bench_meet() instead. */
int  bench_collect(struct bench_rank *rank, uint32_t mode, uint32_t n_samples);

/* How long a wait may take: what is left of the run's time, and a minute at most. */
uint64_t bench_patience_ns(const struct bench_rank *rank);

/* Clears this rank's samples before a row: ranks that record none count as 0. */
void bench_forget(struct bench_rank *rank);

/* Reports that this rank found n_wrong words of wrong data in that mode. For cases that run within
 * a node; others use bench_any(). */
void bench_wrong(struct bench_rank *rank, uint32_t mode, uint64_t n_wrong);
uint64_t bench_take_wrong(struct bench_rank *rank, uint32_t mode);

/* Rank 0: prints the row and stores it for the JSON report. */
void bench_add_row(struct bench_rank *rank, const struct bench_row *row);
void bench_add_overlap_row(struct bench_rank *rank, const struct bench_overlap_row *row);

/* As bench_any(), whether any rank has found n_wrong values that are not what they have to be,
 * which it counts for the line at the run's end. A value is a word of
 * 8 bytes, of 2 in what channels bring. */
int  bench_any_wrong(struct bench_rank *rank, uint64_t n_wrong, int *ret_any);

/* Barrier of all ranks, which also tells whether any of them passed yes. */
int  bench_any(struct bench_rank *rank, int yes, int *ret_any);

/* Broadcasts 128 bytes from rank 0 (NCCL's unique id). */
void *bench_blob(struct bench_rank *rank);

/* Prints one line to stderr with the rank. Returns result, so that a case can
 * return it. */
int  bench_fail(const struct bench_rank *rank, int result, const char *what);

/* --- report -------------------------------------------------------------- */

struct json_object;

/* Says what the columns of the table mean; those of NCCL only if it can have rows. */
void bench_report_head(FILE *out, int is_gpu, int has_nccl);

/* Prints a line that begins with '#', of at most 511 characters; for a brief table in several lines
 * where it is wider than 80 columns. */
void bench_note(const struct bench_options *options, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Begins the cells of a row: of a brief table or of the whole one. */
void bench_fill_row(struct cells *cells, const struct bench_row *row, int is_brief);
const char *bench_mode_name(enum bench_mode mode);

/* Whether NCCL could use NVLS (sums and copies by NVLink multicast) in this run, in words;
 * NULL: without NCCL. */
const char *bench_report_nvls(const struct bench_options *options);

/* Begins a report with its provenance (date, machine, versions, options), which it returns and
 * which stays the report's. bench_report_end() writes it, if JSON was asked for, and releases it;
 * it returns 0, or -1, reported. */
struct json_object *bench_report_begin(struct cells *report,
				       const struct bench_options *options, const char *machine,
				       int version);
int  bench_report_end(struct cells *report, const struct bench_options *options);

/* --- device -------------------------------------------------------------- */

enum bench_stream { BENCH_STREAM_MAIN, BENCH_STREAM_SIDE, BENCH_STREAM_COPY,
		    BENCH_STREAMS };

/* Counts the GPUs in a child process, because a process that opened the driver must not
 * fork. */
uint32_t bench_count_gpus(char *ret_machine, size_t n_bytes);

int   bench_device_open(struct bench_device **ret_device, int is_gpu, uint32_t gpu);
void  bench_device_close(struct bench_device *device);

/* Access to memory that this rank's copies reach; n_bytes is a multiple of 8. bench_fill() writes
 * the pattern of (seed, word index), bench_verify() counts the words that differ from it. */
int   bench_fill(struct bench_device *device, void *at, uint64_t n_bytes, uint64_t seed);
int   bench_verify(struct bench_device *device, const void *at, uint64_t n_bytes,
		   uint64_t seed, uint64_t *ret_n_wrong);

/* Allocates ordinary memory at the rank's place, as an application does. */
int   bench_allocate(struct bench_device *device, uint64_t n_bytes, void **ret_at);
void  bench_release(struct bench_device *device, void *at);

/* Work as described in values.h. They return when the work is done; the caller's streams must
 * be idle. */
int   bench_make_values(struct bench_device *device, const struct bench_values *values);
int   bench_compare(struct bench_device *device, struct bench_compare *compare);

/* The calls from here on are for GPU ranks only. */
void *bench_stream(struct bench_device *device, enum bench_stream which);
int   bench_stream_sync(struct bench_device *device, enum bench_stream which);
int   bench_stream_follow(struct bench_device *device, enum bench_stream later,
			  enum bench_stream earlier);
int   bench_time_begin(struct bench_device *device);    /* on the main stream */
int   bench_time_end(struct bench_device *device);
int   bench_time_us(struct bench_device *device, double *ret_us); /* synchronises with the end
								   * event */

/* Captures what is called between begin and end on the main stream into a graph. Call end
 * after every begin, with ret_graph NULL where a call between them failed. */
int   bench_capture_begin(struct bench_device *device);
int   bench_capture_end(struct bench_device *device, void **ret_graph);
int   bench_graph_launch(struct bench_device *device, void *graph);
void  bench_graph_drop(struct bench_device *device, void *graph);

struct bench_copy {
	void       *target;
	const void *source;
	uint64_t    row_bytes;
	uint64_t    n_rows;
	uint64_t    pitch_bytes;
};

/* Makes the hand-written driver calls that the library is compared with. */
int   bench_raw_copies(struct bench_device *device, enum bench_stream which,
		       const struct bench_copy *copies, uint32_t n_copies);
int   bench_raw_flags(struct bench_device *device, enum bench_stream which,
		      void *const *flags, uint32_t n_flags, uint64_t value);
int   bench_raw_waits(struct bench_device *device, enum bench_stream which,
		      void *const *flags, uint32_t n_flags, uint64_t value);

struct bench_pingpong {
	struct ceov_device_signal raised;
	struct ceov_device_signal awaited;
	uint64_t                  first_value;
	uint32_t                  n_rounds;
};

/* Starts the kernel of the ping-pong on the main stream. bench_pingpong_wait() waits for its end
 * and returns the time of each round. */
int   bench_pingpong_start(struct bench_device *device, const struct bench_pingpong *game);
int   bench_pingpong_wait(struct bench_device *device, uint32_t n_rounds, double *ret_us);

/* Returns the number of SMs of the rank's GPU; 0 on the host. */
uint32_t bench_n_sms(struct bench_device *device);

/* Start and stop a kernel that holds every SM of the GPU, for 20 s at most. */
int   bench_spin_start(struct bench_device *device);
int   bench_spin_stop(struct bench_device *device);

/* --- NCCL, opened at run time -------------------------------------------- */

struct bench_nccl;

/* CEOV_NONE: NCCL is not available, cannot run between these ranks or is left out as asked, and
 * *ret_why says why. ce: use zero-CTA collectives on symmetric windows. */
int   bench_nccl_open(struct bench_rank *rank, int ce, uint64_t n_bytes_max,
		      struct bench_nccl **ret_nccl, const char **ret_why);
void  bench_nccl_close(struct bench_nccl *nccl);
void *bench_nccl_source(struct bench_nccl *nccl);
void *bench_nccl_target(struct bench_nccl *nccl);
int   bench_nccl_all_gather(struct bench_nccl *nccl, uint64_t shard_bytes, void *stream);
int   bench_nccl_all_to_all(struct bench_nccl *nccl, uint64_t block_bytes, void *stream);

/* Bytes that the rank sends to each rank and gets from each, also from itself; the lists are the
 * caller's. A block follows the one before it, in NCCL's source and target. */
struct bench_nccl_blocks {
	uint32_t        n_ranks;
	const uint64_t *sent;
	const uint64_t *got;
};

/* Sends and receives the blocks as one group; those of 0 bytes are left out. */
int   bench_nccl_send_blocks(struct bench_nccl *nccl, const struct bench_nccl_blocks *blocks,
			     void *stream);

enum bench_nccl_type { BENCH_NCCL_FLOAT = 7, BENCH_NCCL_BF16 = 9 };      /* NCCL's numbers */

/* Sum values from NCCL's source to its target. count: values of each rank's part for the
 * reduce-scatter, of the whole input for the all-reduce. */
int   bench_nccl_reduce_scatter(struct bench_nccl *nccl, uint64_t count, enum bench_nccl_type type,
				void *stream);
int   bench_nccl_all_reduce(struct bench_nccl *nccl, uint64_t count, enum bench_nccl_type type,
			    void *stream);

#endif /* BENCH_H */
