/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

/*
 * ceoverlap-bench overlap: operators compared with their parts, and with NCCL followed by
 * cuBLAS.
 *
 *   bench_overlap.c          rows: shapes, samples
 *   bench_overlap_set.c      what a row needs: workspaces, ops, memory
 *   bench_overlap_methods.c  how each method runs
 *   bench_overlap_check.c    whether results are right
 *   bench_overlap_options.c  the command line
 *   bench_overlap_report.c   rows as text and as JSON
 */

#include <ceoverlap/ops.h>

#include "bench.h"
#include "bench_values.h"

#define OVERLAP_ROWS_MAX 512u
#define OVERLAP_CALLS    5u             /* calls per sample, and per graph */

/* --- options ------------------------------------------------------------- */

struct bench_overlap_options {
	const char            *models;  /* comma list; NULL: the default set */
	const char            *tokens;
	int                    streams; /* measure calls on a stream */
	int                    graphs;  /* measure replayed graphs */
	int                    without_blas;
	const char            *blas_path;       /* NULL: searched */
	int                    gathers; /* the gathered A is requested, too */
	int                    b_is_k_by_n;     /* layout of b, for ours and for cuBLAS */
	int                    tunes;   /* calls ceov_op_tune() first */
	int                    explains;
	int                    is_tuned;        /* a tuning option was given */
	struct ceov_op_tuning  tuning;
	char                   command[1024];   /* the command as typed */
};

/* argv[0] is "overlap". Exit status of the program. */
int bench_overlap_main(int argc, char **argv);

/* --- rows ---------------------------------------------------------------- */

enum bench_overlap_test {
	OVERLAP_AG_GEMM, OVERLAP_GEMM_RS, OVERLAP_REDUCE_SCATTER, OVERLAP_ALL_REDUCE
};

enum bench_overlap_method {
	OVERLAP_GEMM,                   /* cuBLAS alone */
	OVERLAP_OURS_GEMM,              /* our kernel alone: no waits, nothing sent */
	OVERLAP_COMM,                   /* NCCL alone */
	OVERLAP_COMM_CE,                /* NCCL, zero-CTA: all-gather only */
	OVERLAP_SEQUENCE,               /* NCCL and cuBLAS, one after the other */
	OVERLAP_SEQUENCE_CE,
	OVERLAP_OURS,
	OVERLAP_METHODS
};

/* Modes of bench_sample(): for each method, in a stream and in a graph, its time, the
 * calling thread's CPU time, and the other threads' share; then differences. */
enum bench_overlap_mode {
	OVERLAP_MODE_US = 0,
	OVERLAP_MODE_THREAD = 2 * OVERLAP_METHODS,
	OVERLAP_MODE_PROCESS = 4 * OVERLAP_METHODS,
	OVERLAP_MODE_ERROR = 6 * OVERLAP_METHODS,
	OVERLAP_MODE_ERROR_NCCL = OVERLAP_MODE_ERROR + 2,
	OVERLAP_MODE_UNLIKE = OVERLAP_MODE_ERROR_NCCL + 2,
	OVERLAP_MODES = OVERLAP_MODE_UNLIKE + 2
};

struct bench_overlap_times {            /* of one method; median 0: not measured */
	double us_median;
	double us_min;
	double us_p99;
	double thread_us;               /* CPU time of the caller, a call */
	double process_percent;         /* CPU time of other threads, in percent of one CPU */
};

struct bench_overlap_row {
	enum bench_overlap_test    test;
	char                       model[16];   /* "": sums */
	int                        is_graph;
	uint32_t                   ranks;
	uint64_t                   m;           /* of a rank's product; 0: sums */
	uint64_t                   n;
	uint64_t                   k;
	uint64_t                   bytes;       /* sums: of the input of a rank */
	struct bench_overlap_times methods[OVERLAP_METHODS];
	int                        verified;    /* as in struct bench_row */
	int                        same_bits;   /* two runs gave the same bits, and the gathered A
						 * is right */
	double                     error;       /* largest difference from fp32 sums, relative to
						 * the largest value */
	double                     error_nccl;  /* the same of NCCL's result; < 0: not checked */
	double                     tolerance;
};

/* Figures that follow from a row's times; 0: a time is missing. */
struct bench_overlap_derived {
	double speedup;                 /* sequence / ours */
	double speedup_ce;              /* the same of zero-CTA NCCL */
	double ideal_us;                /* max(cuBLAS, the faster NCCL) */
	double fraction;                /* the part of the ideal's speed-up that ours reaches */
	double exposed_us;              /* ours - cuBLAS: may be below 0 */
	double gemm_ratio;              /* cuBLAS / our kernel */
	double over_ideal;              /* ours / ideal */
};

void bench_overlap_derive(const struct bench_overlap_row *row,
			  struct bench_overlap_derived *ret_derived);
const char *bench_overlap_name(enum bench_overlap_test test);

void bench_overlap_report_head(FILE *out);
void bench_overlap_report_row(FILE *out, const struct bench_overlap_row *row);
int  bench_overlap_report_json(const struct bench_options *options,
			       const struct bench_overlap_row *rows, uint32_t n_rows,
			       const char *machine);

/* Cases: run on each rank. */
int bench_overlap_ag_gemm(struct bench_rank *rank);
int bench_overlap_gemm_rs(struct bench_rank *rank);
int bench_overlap_reduce_scatter(struct bench_rank *rank);
int bench_overlap_all_reduce(struct bench_rank *rank);

/* --- one operator's rows, on one rank ------------------------------------- */

/*
 * Memory of a row, bf16 unless stated; what a test does not need is NULL. n x k may be
 * k x n, as the options say.
 *
 *             a                 whole       b      c, other       product  reference
 *   ag_gemm   own rows x k      all x k     n x k  all x n        -        all x n
 *   gemm_rs   all x k           -           n x k  own rows x n   all x n  own rows x n
 *   sums      all               -           -      own or all     -        own or all
 */
struct bench_overlap_memory {
	void *a;
	void *whole;                    /* the gathered A */
	void *b;
	void *c;                        /* ours */
	void *other;                    /* cuBLAS's, or ours of another run */
	void *gathered;                 /* ours, if wanted */
	void *product;
	void *reference;                /* fp32 */
	void *peer_a;                   /* gemm_rs: another rank's rows of a, ... */
	void *peer_b;                   /* ... and its b */
};

struct bench_overlap_shape {
	const char *model;              /* NULL: sums */
	uint64_t    m;
	uint64_t    n;
	uint64_t    k;
	uint64_t    bytes;
};

struct bench_overlap {
	struct bench_rank                  *rank;
	const struct bench_overlap_options *options;
	enum bench_overlap_test             test;
	struct bench_overlap_shape          shape;
	uint64_t                            rows[BENCH_RANKS_MAX];      /* sums: counts */
	uint64_t                            first_row;          /* of ours, in all */
	int                                 is_even;            /* all ranks have the same number
								 * of rows */
	ceov_workspace                     *workspaces[2];      /* stream's, graph's */
	ceov_op                            *ops[2];
	struct bench_blas                  *blas;               /* NULL: not there */
	struct bench_nccl                  *nccl[2];            /* default, zero-CTA */
	struct bench_overlap_memory         memory;
	uint64_t                            n_result;           /* values in c */
	int                                 runs[2][OVERLAP_METHODS];
	void                               *graphs[OVERLAP_METHODS];
	uint64_t                            seed;               /* of the row's data */
};

static inline int bench_overlap_is_sum(const struct bench_overlap *o)
{
	return o->test == OVERLAP_REDUCE_SCATTER || o->test == OVERLAP_ALL_REDUCE;
}

/* bench_overlap_set.c: opens and closes what all rows of a case need. close also cleans up
 * after a failed open. */
int  bench_overlap_open(struct bench_overlap *o, const struct bench_overlap_shape *shapes,
			uint32_t n_shapes);
int  bench_overlap_close(struct bench_overlap *o);

/* The same for one row. */
int  bench_overlap_open_row(struct bench_overlap *o,
			    const struct bench_overlap_shape *shape);
int  bench_overlap_close_row(struct bench_overlap *o);

/* The seed of a rank's operand 0 (a) or 1 (b). */
uint64_t bench_overlap_seed(const struct bench_overlap *o, uint32_t rank, uint32_t operand);

/* bench_overlap_methods.c: prepares the methods and their graphs for the row. Makes one call
 * of a method: queued (GPU) or done (host). */
int  bench_overlap_open_methods(struct bench_overlap *o);
void bench_overlap_close_methods(struct bench_overlap *o);
int  bench_overlap_once(struct bench_overlap *o, enum bench_overlap_method method, int is_graph);

/* Makes OVERLAP_CALLS calls, or launches one graph of them. */
int  bench_overlap_calls(struct bench_overlap *o, enum bench_overlap_method method, int is_graph);

/* bench_overlap_check.c: computes the right result of the row's data, then compares ours
 * with it; findings go to bench_sample() as sample `slot`. */
int  bench_overlap_refer(struct bench_overlap *o);
int  bench_overlap_check(struct bench_overlap *o, int is_graph, uint32_t slot);
double bench_overlap_tolerance(const struct bench_overlap *o);

/* Synchronises the caller's stream, then all ranks meet. */
int  bench_overlap_settle(struct bench_overlap *o);

#endif /* BENCH_OVERLAP_H */
