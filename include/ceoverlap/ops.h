/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEOVERLAP_OPS_H
#define CEOVERLAP_OPS_H

/*
 * Overlapped operators: collectives and the matrix products around them, in one
 * stream-ordered call. Copy engines move the bytes while the product's tiles run.
 *
 *   all-gather + GEMM      C_i = A B_i^T      A: shards of rows, gathered
 *   GEMM + reduce-scatter  C = sum over ranks of A_rank B_rank^T, own rows of it
 *   reduce-scatter, all-reduce                sums alone
 *   all-gather, all-to-all                    moves alone
 *
 * WORDS
 *   workspace  what operators move through: scratch memory and signals of one rank,
 *              known to its peers. Bounded, allocated once, shared by all operators
 *              that run one after another.
 *   op         one operator of fixed shape on a workspace. Any number of them.
 *   run        one execution of an op. The runs of a workspace form one sequence:
 *              every rank makes the same runs (same kind and shape) in the same order.
 *              Ops of one shape choose the same at all ranks; where k or n differ from
 *              rank to rank, set n_pieces and mode in their tuning.
 *
 * MATRICES   Row-major, rows without gaps: A is rows x k, B is n x k (a Linear layer's
 *            weight as PyTorch keeps it), C is rows x n. With b_is_k_by_n B is k x n
 *            instead, and multiplies as it is, A B: a backward pass takes a weight so,
 *            without a transposed copy. Each rank's own affair.
 *            k and n are multiples of 8.
 * ROWS       The rows of the gathered A, or of the product that is scattered, are
 *            shared out to ranks in order: rank r has rows[r] of them; 0 is allowed.
 * STREAMS    A run on a GPU comes after what is on the caller's stream, and what the
 *            caller queues there next comes after the run: operands may be changed
 *            and results read as with any kernel. On host ranks a run is a plain
 *            call, done when it returns; each rank calls from a thread of its own.
 *            Where the workspace is capturable, runs that come again, with all of the
 *            struct as it was (so zero what is not used), are queued as one graph each,
 *            for which the driver takes some memory of the GPU the second time.
 * MEMORY     Operands and results are ordinary memory of the rank's place (cudaMalloc;
 *            malloc on the host), aligned to 16 bytes, and nothing has to be
 *            registered. Results must not overlap operands or each other, which a run
 *            refuses (CEOV_ERR_INVALID); an all-gather may be in place.
 * RESULTS    bf16 or fp16 operands, fp32 accumulation; what a rank sends to be summed is
 *            rounded to their type first, the sum over ranks is in fp32 and in fixed
 *            order: the same operands give the same bits, run after run. Sums alone take
 *            fp32 operands, too: these are sent as they are, and nothing but the addition,
 *            and the multiplication by a scale, rounds.
 * FLIGHT     Runs of one workspace follow each other, whatever their streams; at most 16
 *            are in flight, and a further one waits for the oldest. Runs of
 *            different workspaces are independent, but their kernels, which wait for
 *            peers, need SMs at the same time. So do not run two operators, or an
 *            operator and any other kernel that waits for a peer (NCCL's do), side by
 *            side on one GPU unless all ranks give them SMs in the same order: where one
 *            rank's first and another rank's second has the SMs, both wait for ever,
 *            which here is the deadline. Ranks of one process that share a GPU get SMs at
 *            the same time by a budget each (n_sms). (GEMM + reduce-scatter of a workspace with
 *            shares_sms gets on with the SMs that it has.)
 *            Creating and releasing ops allocates and frees memory of the GPU: not while
 *            a peer's run waits for a run of this rank that is yet to be made.
 * GRAPHS     Workspaces that are capturable: captures count as runs, so all ranks make the
 *            same ones in the same order, and none else of that workspace between a
 *            capture's begin and end. Who replays orders replays among themselves and
 *            with plain runs. A graph holds memory of its ops: it is captured anew after
 *            ceov_op_tune(), and neither in flight nor replayed any more when an op or
 *            its workspace is released. Other workspaces' runs refuse a stream that is
 *            being captured.
 * DEADLINE   Each wait of a run is bounded by it; a run may wait several times.
 * FAILURE    A rank that dies, a deadline that passes or an abort ends a run: kernels
 *            leave, the stream goes on, results are undefined; the next run and
 *            ceov_workspace_status() yield the error. The workspace is of no use
 *            after that: release it.
 */

#include <ceoverlap/ceoverlap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ceov_workspace ceov_workspace;
typedef struct ceov_op        ceov_op;

enum ceov_dtype {
	CEOV_BF16 = 1,
	CEOV_FP16 = 2,
	CEOV_FP32 = 3                   /* sums alone; products refuse it */
};

#define CEOV_OP_GEMMS_MAX 4u

/* --- workspace ----------------------------------------------------------- */

struct ceov_workspace_config {
	size_t      struct_bytes;
	uint32_t    rank;               /* one of ours */
	const char *name;               /* 1 to 40 bytes, the same at all ranks; each
					 * live workspace of the group has its own */
	uint64_t    scratch_bytes;      /* the same at all ranks: the largest
					 * ceov_*_scratch_bytes() of its ops. Twice that is
					 * allocated: a run uses one half while peers finish with
					 * the other one */
	int         is_capturable;      /* 0, or 1: runs may be captured into CUDA graphs
					 * (and made outside, too). Copies are then queued by
					 * the calling thread instead of the engine's, and
					 * in front of the kernels that wait for them: right
					 * for processes that load kernels or free memory of
					 * the GPU meanwhile, which holds up what is queued
					 * later */
	uint64_t    deadline_ns;        /* of what a run waits for; 0: the context's. Where
					 * the engine launches, it counts from the call: it
					 * has to cover what is on the stream before */
	int         shares_sms;         /* 0, or 1: other kernels that wait for peers (NCCL's
					 * on another stream) may hold SMs of any rank while
					 * GEMM + reduce-scatter runs. Tiles are then done
					 * by whoever has an SM, so that some clusters are
					 * enough. Costs 3 to 15 % at M 2048, nothing from M
					 * 8192 on */
	uint64_t    n_sms;              /* how many SMs of the GPU the kernels of runs take at
					 * most, 2 or more and the same at all ranks; 0, or more
					 * than there are: all.
					 * Copies within a GPU are kernels, and do not start
					 * while kernels of runs, which wait for them, hold all
					 * SMs: where ranks share a GPU, leave 4 SMs or more.
					 * Where these ranks are of one process, the budgets of
					 * all of them must fit on the GPU at once. Without
					 * effect on host ranks */
};

/* Allocates the workspace and exports it to the group. Does not wait for peers. */
int  ceov_workspace_create(ceov_context *context,
			   const struct ceov_workspace_config *config,
			   ceov_workspace **ret_workspace);

/* Finds the peers' workspaces; afterwards ops can be created. Blocks; CEOV_PENDING:
 * timeout_ns passed and some peer has not created its workspace yet; call again. Where one
 * process has several ranks, create all of them first. INVALID: a peer's workspace of that
 * name has another size or mode. */
int  ceov_workspace_connect(ceov_workspace *workspace, uint64_t timeout_ns);

/* 0, or the error that ended one of its runs. Never blocks. */
int  ceov_workspace_status(ceov_workspace *workspace);

/* 0: all its runs are done, or have failed; CEOV_PENDING: some are in flight, and
 * ceov_op_release() of its ops would wait for them. Never blocks. */
int  ceov_workspace_idle(ceov_workspace *workspace);

/* Ends its runs in flight, at all ranks, and all later runs, with CEOV_ERR_ABORTED: for
 * callers that cannot wait for a run, for example when a user interrupts. A workspace that
 * failed before keeps its error. Does not block; any thread, also while another one makes a
 * run. CEOV_ERR_STATE: the workspace is not connected yet. */
int  ceov_workspace_abort(ceov_workspace *workspace);

/* Its ops are released first (CEOV_ERR_STATE). Blocks until its runs are done, within
 * their deadline. CEOV_PENDING: a peer still maps it; call again, or leave it to
 * ceov_close(). Graphs that hold its runs must not be replayed any more. */
int  ceov_workspace_release(ceov_workspace *workspace);

/* --- what is common to ops ------------------------------------------------ */

enum ceov_op_mode {
	CEOV_MODE_CHOOSE = 0,           /* the cost model; see ceov_op_tune(), too */
	CEOV_MODE_OVERLAP = 1,          /* tiles start copies, copies release tiles */
	CEOV_MODE_SEQUENCE = 2          /* communication and GEMM one after another,
					 * each at its own best */
};

/* Zero: the chooser's. A caller who sets a field has it. */
struct ceov_op_tuning {
	size_t            struct_bytes;
	enum ceov_op_mode mode;
	uint32_t          n_pieces;     /* pieces that a rank's rows are cut into; at most 32, and
					 * 1 in a sequence */
	uint32_t          tile_rows;    /* of the GEMM's tiles, both or none: see
					 * ceov_op_explain() */
	uint32_t          tile_columns;
	uint32_t          n_reduce_blocks; /* SMs that a sum may use, at most 128; 0: 16 */
};

/* Writes what was chosen, and why, in a few lines to fd. Fails as ceov_plan_explain() does. */
int  ceov_op_explain(const ceov_op *op, int fd);

/* Measures the modes and shapes that may suit this op, with scratch operands of its
 * own, keeps the fastest, and remembers it per machine and shape (in
 * $XDG_CACHE_HOME/ceoverlap). The first call measures; later ones, in other processes
 * too, find what is remembered and take it without measuring, if all ranks find the
 * same. What the op's tuning sets stays as it is, and then nothing is remembered.
 * All ranks call it, as they would make a run; it blocks for up to some seconds, waits
 * for peers within the workspace's deadline, and allocates operands for its time. A
 * failing call leaves the op as it was. GPU ranks only; not while the stream is being
 * captured. INVALID: ranks differ in k, n or tuning, so that they would not measure the
 * same. Moves alone leave nothing to measure: they stay as they are, at once, and no peer
 * is waited for. */
int  ceov_op_tune(ceov_op *op, void *stream);

/* Waits for its runs in flight. NULL is allowed. */
void ceov_op_release(ceov_op *op);

/* --- all-gather + GEMM ---------------------------------------------------- */

struct ceov_ag_gemm {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows;      /* n_ranks of them */
	uint64_t                     k;
	uint32_t                     n_gemms;   /* products of one gathered A */
	uint64_t                     n[CEOV_OP_GEMMS_MAX];
	const struct ceov_op_tuning *tuning;    /* NULL: all chosen */
	int                          b_is_k_by_n;       /* 1: every b is k x n[i]: C = A B.
						 * struct_bytes up to here: as 0 */
};

/* 0: create would refuse these arguments. n_ranks is the group's. */
uint64_t ceov_ag_gemm_scratch_bytes(const struct ceov_ag_gemm *shape, uint32_t n_ranks);

int  ceov_ag_gemm_create(ceov_workspace *workspace, const struct ceov_ag_gemm *shape,
			 ceov_op **ret_op);

struct ceov_ag_gemm_run {
	size_t      struct_bytes;
	void       *stream;                     /* CUstream, never NULL; CU_STREAM_LEGACY where
						 * the workspace is capturable */
	const void *a;                          /* rows[rank] x k */
	const void *b[CEOV_OP_GEMMS_MAX];       /* n[i] x k, or k x n[i] */
	void       *c[CEOV_OP_GEMMS_MAX];       /* all rows x n[i] */
	void       *gathered;                   /* all rows x k, for the backward pass; NULL: not
						 * wanted */
};

int  ceov_ag_gemm_run(ceov_op *op, const struct ceov_ag_gemm_run *run);

/* --- GEMM + reduce-scatter ------------------------------------------------ */

struct ceov_gemm_rs {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows;      /* n_ranks: who gets how many */
	uint64_t                     k;         /* of this rank's product */
	uint64_t                     n;
	const struct ceov_op_tuning *tuning;
	int                          b_is_k_by_n;       /* as in struct ceov_ag_gemm */
};

uint64_t ceov_gemm_rs_scratch_bytes(const struct ceov_gemm_rs *shape, uint32_t n_ranks);

int  ceov_gemm_rs_create(ceov_workspace *workspace, const struct ceov_gemm_rs *shape,
			 ceov_op **ret_op);

struct ceov_gemm_rs_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *a;                          /* all rows x k */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* rows[rank] x n */
};

int  ceov_gemm_rs_run(ceov_op *op, const struct ceov_gemm_rs_run *run);

/* --- sums alone ------------------------------------------------------------ */

struct ceov_reduce {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;     /* any, CEOV_FP32 too; of source and target */
	const uint64_t              *counts;    /* n_ranks: elements of each rank's part,
						 * multiples of 8 */
	const struct ceov_op_tuning *tuning;
	uint64_t                     stride;    /* reduce_scatter: elements of source from
						 * the begin of one part to the next one's,
						 * a multiple of 8 and no less than any count,
						 * each rank's own affair; 0: no gaps.
						 * all_reduce: 0. struct_bytes up to here:
						 * as 0 */
	float                        scale;     /* reduce_scatter: what the fp32 sums of the
						 * own part are multiplied by, in fp32,
						 * before they are rounded to dtype; finite,
						 * each rank's own affair; 0: as 1.
						 * all_reduce: 0 or 1. struct_bytes up to
						 * here: as 0 */
};

/* Elements of rank 0's part come first. all_reduce leaves all parts at all ranks.
 * Scratch is a part of each rank's, as long as the longest: what shall take less runs
 * column by column, with a stride. */
uint64_t ceov_reduce_scatter_scratch_bytes(const struct ceov_reduce *shape,
					   uint32_t n_ranks);
uint64_t ceov_all_reduce_scratch_bytes(const struct ceov_reduce *shape, uint32_t n_ranks);

int  ceov_reduce_scatter_create(ceov_workspace *workspace, const struct ceov_reduce *shape,
				ceov_op **ret_op);
int  ceov_all_reduce_create(ceov_workspace *workspace, const struct ceov_reduce *shape,
			    ceov_op **ret_op);

struct ceov_reduce_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *source;                     /* all parts; gaps are not read */
	void       *target;                     /* own part; all parts (all_reduce); may
						 * not be source, nor lie in its gaps */
};

int  ceov_reduce_run(ceov_op *op, const struct ceov_reduce_run *run);

/* --- moves alone ----------------------------------------------------------- */

/* Unlike the plan templates of collective.h: any memory, in the order of a stream, and
 * captured where the workspace is capturable; for that, bytes go through scratch. */
struct ceov_move {
	size_t                       struct_bytes;
	const uint64_t              *bytes;     /* multiples of 16, 0 is allowed, all of them
						 * at each rank. all_gather: n_ranks, of
						 * each rank's shard; all_to_all: n_ranks x
						 * n_ranks, of the block from rank r to rank
						 * t in [r * n_ranks + t] */
	const struct ceov_op_tuning *tuning;    /* only n_pieces counts: into how many pieces
						 * the largest block is cut. NULL: the library
						 * chooses */
};

/* 0: create would refuse these arguments, or no rank has a byte. */
uint64_t ceov_all_gather_scratch_bytes(const struct ceov_move *shape, uint32_t n_ranks);
uint64_t ceov_all_to_all_scratch_bytes(const struct ceov_move *shape, uint32_t n_ranks);

int  ceov_all_gather_create(ceov_workspace *workspace, const struct ceov_move *shape,
			    ceov_op **ret_op);
int  ceov_all_to_all_create(ceov_workspace *workspace, const struct ceov_move *shape,
			    ceov_op **ret_op);

/* Without gaps, in the order of ranks. An all_gather's source may be its own place in
 * target, and is not copied then; else the two do not overlap. */
struct ceov_move_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *source;                     /* own shard; the blocks for all ranks */
	void       *target;                     /* all shards; the blocks of all ranks */
};

int  ceov_move_run(ceov_op *op, const struct ceov_move_run *run);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_OPS_H */
