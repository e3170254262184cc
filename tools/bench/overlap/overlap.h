/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_OVERLAP_H
#define BENCH_OVERLAP_H

/*
 * ceoverlap-bench overlap: operators compared with their parts, and with NCCL followed by
 * cuBLAS.
 *
 *   overlap.c   rows: shapes, samples
 *   set.c       what a row needs: workspaces, ops, memory
 *   methods.c   how each method runs
 *   embedding.c what differs for embeddings, which are no products
 *   experts.c   what differs for dispatch and combine, which are none either
 *   check.c     whether results are right
 *   options.c   the command line
 *   report.c    rows as text and as JSON
 *   models.c    sizes of models' layers
 *   tables.c    lists of shapes
 */

#include <ceoverlap/ops.h>

#include "tools/bench/bench.h"
#include "tools/bench/values.h"

#define OVERLAP_ROWS_MAX 512u
#define OVERLAP_CALLS    5u             /* calls per sample, and per graph */

/* --- options ------------------------------------------------------------- */

/* A shape of a product that was given instead of a model's. Of dispatch and combine: tokens of each
 * rank, values of a token, experts of all ranks. */
struct bench_overlap_mnk {
	uint64_t m;
	uint64_t n;
	uint64_t k;
};

/* What the shape of a dispatch or combine has beside these. */
struct bench_overlap_choices {
	uint32_t top_k;                 /* experts of a token; 0: a shape of something else */
	uint32_t dropped;               /* per cent of these choices that are dropped */
};

#define OVERLAP_SHAPES_MAX 16u

struct bench_overlap_options {
	const char            *models;  /* comma-separated names; NULL: the default set */
	const char            *tokens;
	const char            *tables;  /* comma-separated names; NULL: none */
	struct bench_overlap_mnk shapes[OVERLAP_SHAPES_MAX];    /* instead of models */
	struct bench_overlap_choices choices[OVERLAP_SHAPES_MAX];       /* of each of these */
	uint32_t               n_shapes;
	int                    streams; /* measure calls on a stream */
	int                    graphs;  /* measure replayed graphs */
	int                    without_blas;
	const char            *blas_path;       /* NULL: search for the library */
	int                    gathers; /* the all-gather also stores the gathered A */
	int                    b_is_k_by_n;     /* layout of b, for ours and for cuBLAS */
	int                    by_node; /* sums over nodes in two levels (ceov_reduce.by_node) */
	int                    tunes;   /* calls ceov_op_tune() first */
	int                    explains;
	int                    is_tuned;        /* a tuning option was given */
	struct ceov_op_tuning  tuning;
};

/* Runs the command; argv[0] is "overlap". Returns the program's exit status. */
int bench_overlap_main(int argc, char **argv);

/* --- rows ---------------------------------------------------------------- */

enum bench_overlap_test {
	OVERLAP_AG_GEMM, OVERLAP_GEMM_RS, OVERLAP_REDUCE_SCATTER, OVERLAP_ALL_REDUCE,
	OVERLAP_GEMM_A2A, OVERLAP_A2A_GEMM, OVERLAP_GEMM_AR, OVERLAP_ALL_GATHER,
	OVERLAP_ALL_TO_ALL, OVERLAP_EMBEDDING, OVERLAP_DISPATCH, OVERLAP_COMBINE
};

enum bench_overlap_method {
	OVERLAP_GEMM,                   /* cuBLAS alone */
	OVERLAP_OURS_GEMM,              /* our kernel alone: no waits, nothing sent */
	OVERLAP_COMM,                   /* NCCL alone */
	OVERLAP_COMM_CE,                /* NCCL, zero-CTA: all-gather and all-to-all only */
	OVERLAP_SEQUENCE,               /* NCCL and cuBLAS, one after the other */
	OVERLAP_SEQUENCE_CE,
	OVERLAP_OURS,
	OVERLAP_METHODS
};

/* Modes of bench_sample(). Each method has one for calls on a stream and one for a graph, for each
 * of: its time, the calling thread's CPU time, the other threads' share of a CPU. The modes from
 * ERROR on hold what checks found. */
enum bench_overlap_mode {
	OVERLAP_MODE_US = 0,
	OVERLAP_MODE_THREAD = 2 * OVERLAP_METHODS,
	OVERLAP_MODE_PROCESS = 4 * OVERLAP_METHODS,
	OVERLAP_MODE_ERROR = 6 * OVERLAP_METHODS,
	OVERLAP_MODE_ERROR_NCCL = OVERLAP_MODE_ERROR + 2,
	OVERLAP_MODE_UNLIKE = OVERLAP_MODE_ERROR_NCCL + 2,
	OVERLAP_MODES = OVERLAP_MODE_UNLIKE + 2
};

struct bench_overlap_times {            /* times of one method; us_median 0: not measured */
	double us_median;
	double us_min;
	double us_p99;
	double thread_us;               /* CPU time of the calling thread per call */
	double process_percent;         /* CPU time of other threads, in percent of one CPU */
};

struct bench_overlap_row {
	enum bench_overlap_test    test;
	char                       model[16];   /* "": a sum or a move, which has no model */
	struct bench_overlap_mnk   named;       /* as a table has the shape; m 0: it is of no
						 * table */
	int                        is_graph;
	int                        by_node;     /* a sum over nodes in two levels */
	struct ceov_op_tuning      chosen;      /* what ours was made with, by rank 0 */
	uint32_t                   ranks;
	uint64_t                   m;           /* rows of a rank's product; 0: a sum or move */
	uint64_t                   n;
	uint64_t                   k;
	struct bench_overlap_choices choices;
	uint64_t                   bytes;       /* of sums: size of a rank's input; of an
						 * all-gather: of what a rank gets; of an
						 * all-to-all: of what it sends, also to
						 * itself; of dispatch and combine: of what
						 * the busiest rank sends to others or gets
						 * from them */
	struct bench_overlap_times methods[OVERLAP_METHODS];
	int                        verified;    /* same values as in struct bench_row */
	int                        same_bits;   /* two runs gave the same bits; if A was gathered,
						 * it was right as well, and so were a dispatch's
						 * numbers of rows */
	double                     error;       /* largest difference from fp32 sums, relative to
						 * the largest value */
	double                     error_nccl;  /* the same for NCCL's result; < 0: not checked */
	double                     tolerance;
};

const char *bench_overlap_name(enum bench_overlap_test test);

/* Words of the command line and of reports for values of struct ceov_op_tuning; 0: "chosen". NULL
 * stands behind the last one. */
enum bench_overlap_words { OVERLAP_WORDS_MODE, OVERLAP_WORDS_CUT, OVERLAP_WORDS_ORDER };
const char *bench_overlap_word(enum bench_overlap_words which, unsigned value);

void bench_overlap_report_head(FILE *out, int is_brief);
void bench_overlap_fill_row(struct cells *cells, const struct bench_overlap_row *row,
			    const struct bench_options *options);

/* The test cases. Each is run on every rank. */
int bench_overlap_ag_gemm(struct bench_rank *rank);
int bench_overlap_gemm_rs(struct bench_rank *rank);
int bench_overlap_reduce_scatter(struct bench_rank *rank);
int bench_overlap_all_reduce(struct bench_rank *rank);
int bench_overlap_gemm_a2a(struct bench_rank *rank);
int bench_overlap_a2a_gemm(struct bench_rank *rank);
int bench_overlap_gemm_ar(struct bench_rank *rank);
int bench_overlap_all_gather(struct bench_rank *rank);
int bench_overlap_all_to_all(struct bench_rank *rank);
int bench_overlap_embedding(struct bench_rank *rank);
int bench_overlap_experts(struct bench_rank *rank);

/* --- an operator's rows, on one rank -------------------------------------- */

/*
 * Memory of a row, bf16 unless stated; what a test does not need is NULL. n x k may be
 * k x n, as the options say.
 *
 *             a                 whole       b      c, other       product  reference
 *   ag_gemm   own rows x k      all x k     n x k  all x n        -        all x n
 *   gemm_rs   all x k           -           n x k  own rows x n   all x n  own rows x n
 *   gemm_ar   all x k           -           n x k  all x n        all x n  all x n
 *   gemm_a2a  all x k           -           n x k  got x n        all x n  got x n
 *   a2a_gemm  all x k           got x k     n x k  got x n        -        got x n
 *   sums      all               -           -      own or all     -        own or all
 *   gather    own               -           -      all            -        all
 *   a2a       all               -           -      got            -        got
 *
 * Values of a sum or a move are divided among the ranks. In an all-to-all alone each rank sends
 * to another one as many as that one's share has.
 *
 * Of embeddings, product has what a rank looks up for all samples, peer_a takes results that nobody
 * reads, b and peer_b are tables, and reference is bf16.
 *
 * In an all-to-all with a product every rank has m rows, and shares them out like the others; a
 * rank gets as many from each: "got" is its own rows times the number of ranks.
 */
struct bench_overlap_memory {
	void *a;
	void *whole;                    /* the gathered A */
	void *b;
	void *c;                        /* result of our operator */
	void *other;                    /* result of cuBLAS, or of another run of ours */
	void *gathered;                 /* A as our operator gathered it, if wanted */
	void *product;
	void *reference;                /* the expected result, in fp32 */
	void *peer_a;                   /* gemm_rs, gemm_ar, gemm_a2a: another rank's rows of a */
	void *peer_b;                   /* and the same rank's b */
};

struct bench_overlap_shape {
	const char *model;              /* NULL: a sum or a move; or "shape", or a table's name */
	const struct bench_overlap_mnk *named;  /* as a table has it; NULL: of no table */
	uint64_t    m;
	uint64_t    n;
	uint64_t    k;
	struct bench_overlap_choices choices;
	uint64_t    bytes;
};

struct bench_overlap {
	struct bench_rank                  *rank;
	const struct bench_overlap_options *options;
	enum bench_overlap_test             test;
	struct bench_overlap_shape          shape;
	uint64_t                            rows[BENCH_RANKS_MAX];      /* rows of each rank; for
									 * sums and moves counts
									 * of values */
	uint64_t                           *rows_of;            /* of an all-to-all: rows from
								 * each rank to each; of moves
								 * bytes; NULL: none */
	uint64_t                            first_row;          /* first of this rank's rows among
								 * the rows of all ranks */
	int                                 is_even;            /* all ranks have the same number
								 * of rows */
	ceov_workspace                     *workspaces[2];      /* for calls on a stream, for
								 * graphs */
	ceov_op                            *ops[2];
	struct bench_blas                  *blas;               /* NULL: cuBLAS is not available */
	struct bench_nccl                  *nccl[2];            /* default, zero-CTA; NULL: not
								 * available */
	struct bench_overlap_memory         memory;
	uint64_t                            n_result;           /* number of values in c */
	int                                 runs[2][OVERLAP_METHODS];
	void                               *graphs[OVERLAP_METHODS];
	uint64_t                            seed;               /* seed of the row's data */
	struct bench_embedding             *embedding;          /* embedding.c; NULL: none */
	struct bench_experts               *experts;            /* experts.c; NULL: none */
};

static inline int bench_overlap_is_sum(const struct bench_overlap *o)
{
	return o->test == OVERLAP_REDUCE_SCATTER || o->test == OVERLAP_ALL_REDUCE;
}

static inline int bench_overlap_is_move(const struct bench_overlap *o)
{
	return o->test == OVERLAP_ALL_GATHER || o->test == OVERLAP_ALL_TO_ALL;
}

/* Whether the operator has no product. */
static inline int bench_overlap_is_plain(const struct bench_overlap *o)
{
	return bench_overlap_is_sum(o) || bench_overlap_is_move(o);
}

/* Whether the operator is a product with an all-to-all. */
static inline int bench_overlap_is_a2a(const struct bench_overlap *o)
{
	return o->test == OVERLAP_GEMM_A2A || o->test == OVERLAP_A2A_GEMM;
}

/* Whether the test is a dispatch or a combine of a mixture of experts. */
static inline int bench_overlap_is_experts(enum bench_overlap_test test)
{
	return test == OVERLAP_DISPATCH || test == OVERLAP_COMBINE;
}

/* Which rows of all ranks' products count for the result at this rank: all, or its own. */
static inline uint64_t bench_overlap_first_row(const struct bench_overlap *o)
{
	return o->test == OVERLAP_GEMM_AR ? 0 : o->first_row;
}

static inline uint64_t bench_overlap_result_rows(const struct bench_overlap *o)
{
	return o->test == OVERLAP_GEMM_AR ? o->shape.m : o->rows[o->rank->rank];
}

/* How many rows the rank's product has. */
static inline uint64_t bench_overlap_product_rows(const struct bench_overlap *o)
{
	return o->test == OVERLAP_A2A_GEMM ? o->rank->n_ranks * o->rows[o->rank->rank]
		: o->shape.m;
}

/* Open and close what all rows of a case need (set.c). bench_overlap_close() also
 * cleans up after a failed open. */
int  bench_overlap_open(struct bench_overlap *o, const struct bench_overlap_shape *shapes,
			uint32_t n_shapes);
int  bench_overlap_close(struct bench_overlap *o);

/* Open and close what one row needs. Close also cleans up after a failed open. */
int  bench_overlap_open_row(struct bench_overlap *o,
			    const struct bench_overlap_shape *shape);
int  bench_overlap_close_row(struct bench_overlap *o);

/* Whether the row is a sum over several nodes in two levels. */
int  bench_overlap_is_by_node(const struct bench_overlap *o);

/* Returns the seed of a rank's operand 0 (a) or 1 (b). */
uint64_t bench_overlap_seed(const struct bench_overlap *o, uint32_t rank, uint32_t operand);

/* The stream of the row's runs; NULL: the rank has none. */
void *bench_overlap_stream(const struct bench_overlap *o);

/* Prepare the row's methods and their graphs, release them, and make one call of a method
 * (methods.c). On a GPU the call is queued; on the host it is done on return. */
int  bench_overlap_open_methods(struct bench_overlap *o);
void bench_overlap_close_methods(struct bench_overlap *o);
int  bench_overlap_once(struct bench_overlap *o, enum bench_overlap_method method, int is_graph);

/* Makes OVERLAP_CALLS calls, or launches one graph of them. */
int  bench_overlap_calls(struct bench_overlap *o, enum bench_overlap_method method, int is_graph);

/* Compute the expected result of the row's data, then compare ours with it (check.c).
 * Checks record their findings by bench_sample() as sample `slot`. */
int  bench_overlap_refer(struct bench_overlap *o);
int  bench_overlap_check(struct bench_overlap *o, int is_graph, uint32_t slot);
double bench_overlap_tolerance(const struct bench_overlap *o);

/* Embeddings (embedding.c), in place of what the other operators do. bench_embedding_open() opens
 * what a row needs but its op, which is there; close also cleans up after a failed open, and comes
 * before the op is released. */
uint64_t bench_embedding_scratch_bytes(const struct bench_overlap *o);
int  bench_embedding_create(const struct bench_overlap *o, ceov_workspace *workspace,
			    ceov_op **ret_op);
int  bench_embedding_open(struct bench_overlap *o);
void bench_embedding_close(struct bench_overlap *o);
int  bench_embedding_is_there(enum bench_overlap_method method);
int  bench_embedding_once(struct bench_overlap *o, enum bench_overlap_method method, int is_graph);
int  bench_embedding_refer(struct bench_overlap *o);

/* The same for dispatch and combine (experts.c). bench_experts_spoil() writes other data where a
 * dispatch writes numbers of rows, before a run that is checked; bench_experts_check() adds to
 * *n_unlike how many of these were wrong after it. */
uint64_t bench_experts_scratch_bytes(const struct bench_overlap *o);
uint64_t bench_experts_nccl_bytes(const struct bench_overlap *o);
int  bench_experts_create(const struct bench_overlap *o, ceov_workspace *workspace,
			  ceov_op **ret_op);
int  bench_experts_open(struct bench_overlap *o);
void bench_experts_close(struct bench_overlap *o);
int  bench_experts_is_there(const struct bench_overlap *o, enum bench_overlap_method method);
int  bench_experts_once(struct bench_overlap *o, enum bench_overlap_method method);
int  bench_experts_refer(struct bench_overlap *o);
int  bench_experts_spoil(struct bench_overlap *o);
int  bench_experts_check(struct bench_overlap *o, uint64_t *n_unlike);

/* Synchronises the caller's stream, then waits until all ranks have done so. */
int  bench_overlap_settle(struct bench_overlap *o);

#endif /* BENCH_OVERLAP_H */
