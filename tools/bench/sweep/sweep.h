/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_SWEEP_H
#define BENCH_SWEEP_H

/*
 * ceoverlap-bench sweep: what a machine's links carry, over sizes, pairs, routes, chunk
 * sizes and launches in flight, and what plans of many transfers take.
 *
 *   sweep.c     which jobs there are, in which order
 *   world.c     contexts, devices, memory
 *   plans.c     plans of moves
 *   job.c       one job: its variants in turn, its rows
 *   random.c    plans of random transfers beside their bound
 *   load.c      the host and one GPU by relays, and what that costs kernels
 *   urgent.c    small urgent transfers beside a background
 *   trace.c     one all-gather with a trace, for the timeline
 *   options.c   the command line
 *   report.c    text and JSON, of which ceoverlap-plot makes CSV and pictures
 *
 * One process with one thread holds all ranks: one per GPU (or some on host memory), and
 * one more whose memory is the host's.
 */

#include "tools/bench/bench.h"

#define SWEEP_PLACES_MAX   17u          /* ranks and one place for the host */
#define SWEEP_ROWS_MAX     32768u
#define SWEEP_LIST_MAX     8u
#define SWEEP_PATHS_MAX    16u
#define SWEEP_VARIANTS_MAX 64u
#define SWEEP_MOVES_MAX    256u
#define SWEEP_SEEDS_MAX    100u
#define SWEEP_FLIGHT_MAX   16u

#define SWEEP_WAIT_NS      UINT64_C(60000000000)

/* --- options -------------------------------------------------------------- */

struct sweep_list {
	uint32_t n;
	uint64_t values[SWEEP_LIST_MAX];
};

struct sweep_options {
	struct sweep_list chunks;       /* chunk sizes in bytes; 0: the library's choice */
	struct sweep_list in_flight;    /* numbers of launches in flight */
	const char       *html_path;    /* path; NULL: no HTML report */
	const char       *csv_path;
	int               is_quick;
	uint32_t          n_seeds;      /* number of random plans */
	uint64_t          random_bytes; /* size of the largest random transfer */
	uint32_t          urgent_ms;    /* how long each part of "urgent" takes */
};

/* Runs the command; argv[0] is "sweep". Returns the program's exit status. */
int bench_sweep_main(int argc, char **argv);
int bench_sweep_run(const struct bench_options *options, const struct sweep_options *own);

/* Returns the first unknown name in a list of tests, or NULL. */
const char *bench_sweep_unknown(const char *list);

/* --- results -------------------------------------------------------------- */

struct sweep_share {                    /* one path's share of a transfer's bytes */
	char     path[40];
	uint64_t bytes;
};

struct sweep_row {
	char     test[16];
	char     method[16];            /* "direct", "all", "raw", ... */
	int32_t  source;                /* index of a place, or -1 */
	int32_t  target;
	uint64_t bytes;                 /* size of a transfer, shard or block */
	uint64_t chunk_bytes;           /* as requested; 0: the library's choice */
	uint32_t in_flight;
	uint32_t n_samples;
	double   us_median;             /* time of a launch; 0: this row has no time */
	double   us_min;
	double   us_p99;
	double   gb_per_s;              /* 0: this row has no bandwidth */
	double   expected_us;           /* predicted by the cost model; 0: not known */
	double   ratio_raw;             /* raw's time / this time; 0: not measured */
	double   ratio_direct;
	double   bound_median;          /* random plans: median over seeds of time / bound */
	double   bound_max;
	int      verified;              /* 1: right, 0: wrong, -1: not checked */
	uint32_t n_shares;
	struct sweep_share shares[SWEEP_PATHS_MAX];
};

struct sweep_seed {                     /* one random plan */
	uint64_t seed;
	double   bound_us;
	double   us[2];                 /* with the scheduler, and without */
};

/* --- the ranks and their memory ------------------------------------------- */

struct sweep_area {                     /* memory of every place, in one context */
	ceov_buffer *source[SWEEP_PLACES_MAX];
	ceov_buffer *target[SWEEP_PLACES_MAX];
	ceov_signal *arrived[SWEEP_PLACES_MAX];
	uint32_t     n_places;          /* set by the caller before open, as are the next two */
	uint64_t     source_bytes;
	uint64_t     target_bytes;
	uint64_t     base;              /* base of the next launch; it rises because counters only
					 * rise */
};

struct sweep {
	const struct bench_options *options;
	const struct sweep_options *own;
	int                         is_gpu;
	uint32_t                    n_ranks;    /* places 0 to n_ranks - 1 are ranks */
	uint32_t                    n_places;   /* all ranks and the host, which is the last
						 * place */
	char                        machine[256];
	char                        place_names[SWEEP_PLACES_MAX][24];
	const char                 *folder;     /* where temporary files are created */
	uint64_t                    deadline_ns;
	ceov_context               *context;    /* with all places */
	ceov_context               *group;      /* with the ranks but without the host */
	struct bench_device        *devices[SWEEP_PLACES_MAX];
	struct sweep_row           *rows;
	uint32_t                    n_rows;
	uint32_t                    n_bad_rows;
	uint32_t                    n_jobs;     /* jobs done so far, for progress messages */
	int                         is_complete;        /* all tests have ended well */
	struct sweep_seed           seeds[SWEEP_SEEDS_MAX];
	uint32_t                    n_seeds;
	struct json_object         *timeline;   /* events of lanes; NULL: not measured */
	uint64_t                    timeline_bytes;     /* size of a shard */
	double                      t0_us;      /* median t0 of all pairs, measured for random
						 * plans */
};

/* Prints one line to stderr, with the context's first failure. Returns `result`. */
int  sweep_fail(const struct sweep *sweep, ceov_context *context, int result,
		const char *what);

/* Returns CEOV_ERR_TIMEOUT, reported, if the time limit of -T has passed. */
int  sweep_late(const struct sweep *sweep);

void sweep_progress(struct sweep *sweep, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Opens a context of the first places, with or without the host, which writes a trace to
 * that path when it closes (NULL: none). The caller closes it. */
int  sweep_open_context(const struct sweep *sweep, uint32_t n_places, const char *trace_path,
			ceov_context **ret_context);

/* Opens devices and the sweep's own context. close also cleans up after a failed open. */
int  sweep_open(struct sweep *sweep);
void sweep_close(struct sweep *sweep);

/* Open and close an area. After a failed open close it, too. */
int  sweep_area_open(struct sweep *sweep, ceov_context *context, struct sweep_area *area);
int  sweep_area_close(struct sweep *sweep, struct sweep_area *area);

/* --- moves and plans ------------------------------------------------------ */

struct sweep_move {
	uint32_t source;
	uint32_t target;
	uint64_t source_offset;         /* multiples of 8 */
	uint64_t target_offset;
	uint64_t bytes;
};

enum sweep_pattern { SWEEP_MOVES, SWEEP_GATHER, SWEEP_EXCHANGE };

struct sweep_job {                      /* values common to all variants of a job */
	const char        *test;
	enum sweep_pattern pattern;     /* GATHER and EXCHANGE use the library's templates */
	int32_t            source;      /* source and target as shown in the row */
	int32_t            target;
	uint64_t           bytes;
	uint64_t           rate_bytes;  /* bytes that one launch moves, from which GB/s is
					 * computed */
	uint32_t           n_moves;     /* in the order of the plans */
	struct sweep_move  moves[SWEEP_MOVES_MAX];
};

struct sweep_plans {                    /* one plan for each rank that moves something */
	ceov_context *context;
	uint32_t      n;
	ceov_plan    *plans[SWEEP_PLACES_MAX];
};

/* Returns the place whose engine makes the move. */
uint32_t sweep_owner(const struct sweep *sweep, const struct sweep_move *move);

int  sweep_plans_open(struct sweep *sweep, ceov_context *context,
		      const struct sweep_area *area, const struct sweep_job *job,
		      const struct ceov_plan_options *options, struct sweep_plans *plans);
void sweep_plans_close(struct sweep_plans *plans);

/* Launches all plans n_launches times, then waits for all of them. */
int  sweep_plans_run(struct sweep_area *area, struct sweep_plans *plans, uint32_t n_launches);

/* Describes the machine in one line as the library knows it: names of GPUs and origins of link
 * costs. "" if the library knows none. */
void sweep_machine(const struct sweep *sweep, char *text, size_t n_bytes);

/* Returns the largest expected time of all plans, taken from ceov_plan_explain(); 0: not known. */
double sweep_plans_expected_us(const struct sweep_plans *plans);

/* Returns how the first transfer's bytes are divided among paths. */
uint32_t sweep_plans_shares(const struct sweep_plans *plans, struct sweep_share *shares);

/* Makes the job's moves n_times by driver calls (on the host by memcpy()), then waits for them. */
int  sweep_raw_run(struct sweep *sweep, const struct sweep_area *area,
		   const struct sweep_job *job, uint32_t n_times);

/* sweep_prepare() writes random data into the sources and different data into the targets;
 * sweep_verify() checks the data that arrived. */
int  sweep_prepare(struct sweep *sweep, const struct sweep_area *area,
		   const struct sweep_job *job, uint64_t seed);
int  sweep_verify(struct sweep *sweep, const struct sweep_area *area,
		  const struct sweep_job *job, uint64_t seed, uint64_t *ret_n_wrong);

/* --- jobs ----------------------------------------------------------------- */

/* Measures every variant of the job, alternating sample by sample, and adds rows. The area belongs
 * to that context. */
int  sweep_job_run(struct sweep *sweep, ceov_context *context, struct sweep_area *area,
		   const struct sweep_job *job);
int  sweep_random(struct sweep *sweep);
int  sweep_urgent(struct sweep *sweep);
int  sweep_load(struct sweep *sweep);
int  sweep_timeline(struct sweep *sweep);

/* Fills the job with the moves of a collective; bytes: size of a shard or block. */
void sweep_collective(const struct sweep *sweep, enum sweep_pattern pattern,
		      uint64_t bytes, struct sweep_job *job);

int  sweep_add_row(struct sweep *sweep, const struct sweep_row *row);

/* Sorts the samples and writes their median, minimum and 99th percentile to the row. */
void sweep_statistics(double *us, uint32_t n, struct sweep_row *row);

/* --- reports -------------------------------------------------------------- */

void sweep_print_head(FILE *out);
void sweep_print_row(FILE *out, const struct sweep *sweep, const struct sweep_row *row);
void sweep_print_matrix(FILE *out, const struct sweep *sweep);

/* Writes the files that were asked for. Returns 0, or -1, reported. */
int  sweep_write(const struct sweep *sweep);

const char *sweep_place(const struct sweep *sweep, int32_t place);

/* Selects a row of a pair of places, or of a collective (source and target -1). bytes 0: the
 * largest size. Of several rows sweep_find() returns the one with the first chunk size and the most
 * launches in flight; NULL if nothing was measured. */
struct sweep_key {
	const char *test;               /* NULL: the tests of pairs and of the host */
	const char *method;
	int32_t     source;
	int32_t     target;
	uint64_t    bytes;
};

const struct sweep_row *sweep_find(const struct sweep *sweep, const struct sweep_key *key);

/* Formats a size, as in "4 MiB"; text has at least 24 bytes. */
const char *sweep_size(uint64_t bytes, char *text);

#endif /* BENCH_SWEEP_H */
