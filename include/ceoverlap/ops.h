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
 *   GEMM + all-reduce      C = sum over ranks of A_rank B_rank^T, all of it at all ranks
 *   GEMM + all-to-all      blocks of A B^T go to their ranks
 *   GEMM with marks        C = A B^T of one rank; groups of its rows start other work
 *   all-to-all + GEMM      C = A B^T          A: blocks that come from all ranks
 *   reduce-scatter, all-reduce                without a GEMM
 *   all-gather, all-to-all                    without a GEMM
 *   dispatch and combine                      of a mixture of experts
 *
 * WORDS
 *   workspace  scratch memory and signals of one rank, which its peers reach, too. It
 *              has a fixed size, is allocated once, and is used by any number of
 *              operators, one after another.
 *   op         one operator of fixed shape on a workspace. Any number of them.
 *   run        one execution of an op. The runs of a workspace form one sequence:
 *              every rank makes the same runs (same kind and shape) in the same order,
 *              except those of a GEMM with marks, which are no part of it.
 *              Ops of one shape choose the same at all ranks; where k or n differ from
 *              rank to rank, set n_pieces and mode in their tuning. The call of the first
 *              run of an op, and of the first one after ceov_op_tune(), waits until all
 *              ranks have come to it; GPU ranks of a process that holds several ranks wait
 *              until all have created such an op, since one thread may make their runs. If
 *              ranks come to it with ops that differ in kind, in sizes or dtype that have to
 *              be the same, in mode or in pieces, or in another order, it is refused at all
 *              ranks (CEOV_ERR_INVALID), with what two of them have; nothing has been sent,
 *              and other ops of the workspace can be used.
 *
 * MATRICES   Row-major, rows without gaps: A is rows x k, B is n x k (a Linear layer's
 *            weight as PyTorch keeps it), C is rows x n. With b_is_k_by_n B is k x n
 *            instead and C = A B, so that a backward pass can use a weight without
 *            a transposed copy. Ranks may differ in b_is_k_by_n.
 *            k and n are multiples of 8.
 * ROWS       The rows of the gathered A, or of the product that is scattered, are
 *            divided among the ranks in order: rank r has rows[r] of them; 0 is allowed. Where a
 *            GEMM meets an all-to-all, each pair of ranks has a number of rows, or rows or
 *            columns are divided among ranks: see there.
 * STREAMS    A run on a GPU is ordered in the caller's stream as a kernel is: after the
 *            work queued before it, and before the work queued after it. On host ranks
 *            a run is done when the call returns; each rank calls from its own thread.
 *            If the workspace is capturable (GRAPHS), a run that repeats an earlier one with an
 *            equal struct (so set unused fields to 0) is queued as one CUDA graph, for
 *            which the driver takes some GPU memory at the first repetition. Memory that
 *            was freed and allocated again at the same address is recognised as another.
 * MEMORY     Operands and results are ordinary memory of the rank's place (cudaMalloc;
 *            malloc on the host), aligned to 16 bytes, and nothing has to be
 *            registered. Results must not overlap operands or each other, which a run
 *            refuses (CEOV_ERR_INVALID); an all-gather may be in place.
 * RESULTS    Operands are bf16 or fp16, accumulation is in fp32. The values that a rank
 *            sends to be summed are first rounded to the operands' type. The sum over
 *            ranks is in fp32 and in fixed order: the same operands give the same bits in
 *            every run. Reduce-scatter and all-reduce accept fp32 operands, too, which are
 *            sent unrounded: then only the additions, and the multiplication by a scale,
 *            round.
 * FLIGHT     Runs of one workspace follow each other, whatever their streams; at most 16
 *            are in flight, and a further one waits for the oldest. So do runs of
 *            workspaces of which one follows the other (`follows`). Runs of other
 *            workspaces are independent, but their kernels, which wait for
 *            peers, need SMs at the same time. So do not run two operators, or an
 *            operator and any other kernel that waits for a peer (NCCL's do), side by
 *            side on one GPU unless all ranks give them SMs in the same order: if the first
 *            operator holds the SMs of one rank and the second those of another, both wait
 *            until the deadline. Ranks of one process that share a GPU each need a budget
 *            of SMs (n_sms), so that all have some at the same time. GEMM + reduce-scatter
 *            on a workspace with shares_sms needs only a part of its SMs to proceed.
 *            Do not create or release ops, which allocates and frees GPU memory, while a
 *            peer's run waits for a run that this rank has not called yet.
 * GRAPHS     Workspaces of groups whose ranks are all on GPUs of one node are capturable; behind a
 *            daemon only if all ranks say so (`is_capturable`). The calling thread, not the
 *            engine's, queues what their runs transfer, before the kernels that wait for it. This
 *            does not hold for workspaces whose first op is one of experts (ceov_moe_*), whose rows
 *            the engine counts: these take no other ops but GEMMs with marks, and capturable ones
 *            no ops of experts. Captures count as runs, so all ranks make the
 *            same ones in the same order. Runs follow each other within a graph, too,
 *            whatever its branches. From the first run in a capture until its end, runs
 *            outside of that capture are refused (CEOV_ERR_STATE), of that workspace and
 *            of those that it follows or that follow it. The caller orders replays, among
 *            themselves and with plain runs. A graph uses memory of its ops: capture it again
 *            after ceov_op_tune(), and do not replay it, nor leave it in flight, once one of
 *            its ops or their workspace is released. Runs of workspaces that are not
 *            capturable refuse a stream that is being captured.
 * DEADLINE   Each wait of a run is bounded by it; a run may wait several times.
 * FAILURE    A rank that dies, a deadline that passes or an abort ends a run: its kernels
 *            return, the stream continues, and results are undefined. The next run and
 *            ceov_workspace_status() return the error. The workspace cannot be used
 *            any more: release it.
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
	CEOV_FP32 = 3,                  /* operators with a GEMM refuse it */

	/* Channels alone (channel.h) take the following; all of them move them, and channel.h says
	 * which they add up. */
	CEOV_FP64 = 4,
	CEOV_INT8 = 5,
	CEOV_UINT8 = 6,
	CEOV_INT16 = 7,
	CEOV_UINT16 = 8,
	CEOV_INT32 = 9,
	CEOV_UINT32 = 10,
	CEOV_INT64 = 11,
	CEOV_UINT64 = 12,
	CEOV_BOOL = 13,
	CEOV_FP8_E4M3 = 14,
	CEOV_FP8_E5M2 = 15,
	CEOV_COMPLEX64 = 16,
	CEOV_COMPLEX128 = 17
};

#define CEOV_OP_GEMMS_MAX 4u

/* --- workspace ----------------------------------------------------------- */

struct ceov_workspace_config {
	size_t      struct_bytes;
	uint32_t    rank;               /* a rank of this process */
	const char *name;               /* 1 to 40 bytes, the same at all ranks; each
					 * live workspace of the group has its own */
	uint64_t    scratch_bytes;      /* the same at all ranks: the largest
					 * ceov_*_scratch_bytes() of its ops. Twice that is
					 * allocated: a run uses one half while peers finish with
					 * the other one. Between 2 and 8 GPUs of one node 1.7
					 * to 3 MiB more are, for ops of few bytes */
	int         is_capturable;      /* for ranks on GPUs behind a daemon: 0, and its engines
					 * make the copies of runs, as its operator shares them
					 * out; or 1: the calling thread queues them on streams
					 * of this process, and runs may be captured into CUDA
					 * graphs (GRAPHS). No effect without a daemon. 1 is
					 * refused in groups of several nodes, and on host
					 * ranks */
	uint64_t    deadline_ns;        /* of each wait in a run; 0: the context's. If the
					 * workspace is not capturable, it counts from the
					 * call of the run, so it must be long enough for the
					 * work that is on the stream before, too */
	int         shares_sms;         /* 0, or 1: other kernels that wait for peers (NCCL's
					 * on another stream) may hold SMs of any rank while
					 * GEMM + reduce-scatter runs. Clusters of the kernel
					 * then take tiles as they get SMs, so that those
					 * which have SMs can do all tiles. Costs 3 to 15 % at
					 * M 2048, nothing from M 8192 on */
	uint64_t    n_sms;              /* how many SMs of the GPU the kernels of runs use at
					 * most, 2 or more and the same at all ranks; 0, or more
					 * than the GPU has: all.
					 * Copies within a GPU are kernels, and do not start
					 * while kernels of runs, which wait for them, hold all
					 * SMs: where ranks share a GPU, leave 4 SMs or more.
					 * Where these ranks are of one process, the budgets of
					 * all of them must fit on the GPU at once. Without
					 * effect on host ranks */
	ceov_workspace *follows;        /* NULL, or another workspace of the rank: on GPUs, runs of
					 * both then follow each other whatever their streams, as
					 * those of one workspace do, and so those of all others
					 * that follow it. So they never compete for SMs. Peers
					 * make the runs of all of them in the same order. It is
					 * released after those that follow it */
};

#define CEOV_WORKSPACE_CONFIG_INIT CEOV_SIZED(struct ceov_workspace_config)

/* Allocates the workspace and exports it to the group. Does not wait for peers. The first op of a
 * capturable workspace takes some 30 MiB of the GPU's memory for CUDA graphs, and its creation may
 * wait for the kernels that run on the GPU. */
int  ceov_workspace_create(ceov_context *context,
			   const struct ceov_workspace_config *config,
			   ceov_workspace **ret_workspace);

/* Finds the peers' workspaces; afterwards ops can be created. Blocks. CEOV_PENDING:
 * timeout_ns passed and some peer has not created its workspace yet; call again. If one
 * process has several ranks, create the workspaces of all of them first. CEOV_ERR_INVALID: a
 * peer's workspace of that name has another size. */
int  ceov_workspace_connect(ceov_workspace *workspace, uint64_t timeout_ns);

/* Returns 0, or the error that ended a run of the workspace. Never blocks. */
int  ceov_workspace_status(ceov_workspace *workspace);

/* 0: all runs of the workspace are done or have failed; CEOV_PENDING: some are in flight, and
 * ceov_op_release() of their ops would wait for them. Never blocks. */
int  ceov_workspace_idle(ceov_workspace *workspace);

/* Ends the workspace's runs in flight at all ranks, and all later runs, with CEOV_ERR_ABORTED: for
 * callers that cannot wait for a run, for example when a user interrupts. A workspace that
 * failed before keeps its error. Does not block; any thread, also while another one makes a
 * run. CEOV_ERR_STATE: the workspace is not connected yet. */
int  ceov_workspace_abort(ceov_workspace *workspace);

/* Releases the workspace; the caller releases its ops before (else CEOV_ERR_STATE). Blocks
 * until its runs are done, within their deadline. CEOV_PENDING: a peer still maps it; call
 * again, or leave it to ceov_close(). Graphs that contain its runs must not be replayed any
 * more. */
int  ceov_workspace_release(ceov_workspace *workspace);

/* --- settings and calls common to all ops ---------------------------------- */

enum ceov_op_mode {
	CEOV_MODE_CHOOSE = 0,           /* the cost model; see ceov_op_tune(), too */
	CEOV_MODE_OVERLAP = 1,          /* tiles start copies, copies release tiles */
	CEOV_MODE_SEQUENCE = 2,         /* communication and GEMM one after another,
					 * each at its own best */
	/* For few bytes, for which a copy engine takes longer to begin than they take to
	 * arrive: SMs store to the memory of peers, at most 32 ranks of one node. A reduce-scatter,
	 * all-reduce, all-gather or all-to-all without a GEMM is one kernel then, as is the
	 * all-reduce behind the product of a GEMM + all-reduce of at most 1 MiB. For larger ones
	 * that divide rows, for an all-gather + GEMM and for a GEMM + reduce-scatter a second
	 * kernel makes the transfers on SMs that the product leaves to it, on GPUs of compute
	 * capability 9.0, if all ranks have rows. Others have no such mode.
	 *
	 * The model chooses it for a GEMM + all-reduce of at most 256 rows and 4 MiB, and for a
	 * GEMM with a gather, a reduce-scatter or an all-reduce, where it predicts 3 % less time
	 * than by copy engines, for sums, which need SMs anyway, where it predicts 2 % less, and
	 * for an all-gather or all-to-all whose largest block is, times the number of other ranks,
	 * at most 1 MiB;
	 * ceov_op_tune() does where it measured that it is faster, of sums up to 256 MiB.
	 * CEOV_MODE_OVERLAP keeps to copy engines.
	 * The same at all ranks, and with the same n_reduce_blocks: ranks wait for each
	 * other in the kernel, so these SMs must be free at all of them, as FLIGHT says. An
	 * all-reduce is made in one step, in which each rank gets the operands of all: for
	 * operands of at most 1 MiB. */
	CEOV_MODE_DIRECT = 3,
	/* As CEOV_MODE_DIRECT, but in two steps. Of an all-reduce, and of that behind the product
	 * of a GEMM + all-reduce of at most 4 MiB: each rank adds up its part and sends the sums to
	 * all others. One more wait, but each byte is sent twice and not to every rank.
	 *
	 * Of the other products of which at most 4 MiB go from rank to rank, and whose columns are
	 * not divided: the product of all rows at once, by cuBLAS if it is there, and the
	 * transfers, by one kernel on SMs, one after the other. It needs GPU memory for the
	 * gathered A, or for all rows of the product, as long as the op lives. The model chooses it
	 * where it predicts 8 % less time than by an overlap, as for few hundred rows. */
	CEOV_MODE_TWO_SHOT = 4
};

/* Into which pieces the rows of a rank are cut. Sizes are multiples of 64 rows where these suffice,
 * and only the last pieces may have no rows. Operators with a product can cut unequally. */
enum ceov_op_cut {
	CEOV_CUT_CHOOSE = 0,            /* equal pieces, unless ceov_op_tune() measures that others
					 * are faster */
	CEOV_CUT_EQUAL = 1,
	/* A piece ends where a wave of the product's tiles ends: as many tiles as the GPU with the
	 * fewest SMs computes at once, so that SMs are not left over at the end of a piece. Waves
	 * are counted from the rank's first row. The shape of tiles, and n, have to be the same at
	 * all ranks then. */
	CEOV_CUT_WAVES = 2,
	CEOV_CUT_SHRINKING = 3,         /* as n_pieces to n_pieces - 1 to ... to 1: for products
					 * whose last copy nothing hides */
	CEOV_CUT_GROWING = 4,           /* as 1 to 2 to ... to n_pieces: for products that wait for
					 * the first piece */
	/* GEMM + reduce-scatter and GEMM + all-reduce only: a piece is a range of columns of all of
	 * a rank's rows, and its copies have gaps between rows. For ranks with few rows of many
	 * columns. Ranges are about equal, and begin at multiples of 768 columns on GPUs; on host
	 * ranks of 64, which tile_columns must divide. With several pieces only by the library's
	 * kernels, not by cuBLAS; n at most 2^30 - 8. */
	CEOV_CUT_COLUMNS = 5
};

/* The order in which a product computes its tiles. In every order the tiles of one piece of a
 * rank's rows follow each other; own rows come first where rows are gathered, and last where the
 * product leaves, but for CEOV_ORDER_TURNS of a GEMM + all-reduce. Results are the same in every
 * bit. Ranks may differ in it, except in ceov_op_tune(): no tile waits for one that waits for it.
 * But bytes then leave in another order than that in which the peer uses them. Without effect on
 * operators without a product. */
enum ceov_op_order {
	/* CEOV_ORDER_BANDS, or what ceov_op_tune() measured. A GEMM + all-reduce takes
	 * CEOV_ORDER_TURNS where the model expects it to be at least 3 % faster. Its number of
	 * pieces is that of the order which the model prefers, even if tile_order is set. */
	CEOV_ORDER_CHOOSE = 0,
	/* Rank after rank, and of each rank piece after piece, as bytes come or leave. A piece is
	 * cut into bands of rows (band_rows), and a band is computed column by column, so that
	 * tiles that run at the same time share operands in the L2 cache. */
	CEOV_ORDER_BANDS = 1,
	CEOV_ORDER_COLUMNS = 2,         /* the same, but a piece is one band, however high: column
					 * by column of tiles */
	/* All ranks' first pieces, then all second ones, and so on; each in bands. Bytes to ranks
	 * of this node leave in the same order, and those of a GEMM + all-reduce to all ranks. With
	 * one piece, or one rank, it is CEOV_ORDER_BANDS. In a GEMM + all-reduce by the library's
	 * kernels each own piece comes behind the next pieces of peers, so that its sums leave
	 * while the product goes on; by cuBLAS own rows stay last. */
	CEOV_ORDER_TURNS = 3
};

/* A field that is 0 is chosen by the library; any other value is used as it is. A struct that ends
 * before a field counts as 0 there. */
struct ceov_op_tuning {
	size_t            struct_bytes;
	enum ceov_op_mode mode;
	uint32_t          n_pieces;     /* pieces that a rank's rows are cut into; at most 32, and
					 * 1 in a sequence */
	uint32_t          tile_rows;    /* shape of the GEMM's tiles; set this and the next, or
					 * neither. ceov_op_explain() shows the chosen shape */
	uint32_t          tile_columns;
	uint32_t          n_reduce_blocks; /* SMs that a sum may use, at most 128; 0: 16. In a
					 * direct mode SMs that move the bytes, also without a
					 * sum, at most 32; 0: one for each 8 KiB that go to a
					 * peer, or, of few bytes that travel with the
					 * number of their run, to all peers, at most 16;
					 * 16 or 24 beside a GEMM, where the even
					 * number below counts, and at most half of the SMs. Where
					 * the model chooses a direct mode it has no effect, since
					 * ranks may differ in it: set the mode as well */
	uint64_t          chunk_bytes;  /* the largest chunk of the op's copies, 4096 or more; 0, or
					 * more than max_chunk_bytes of the context: that. A
					 * daemon's limit holds, too. No effect in capturable
					 * workspaces, whose copies are whole. Ranks may differ
					 * in it, except in ceov_op_tune() */
	enum ceov_op_cut  cut;          /* the same at all ranks, as n_pieces */
	enum ceov_op_order tile_order;
	uint32_t          band_rows;    /* how many rows a band of the order has at most. Bands
					 * consist of whole pairs of tiles, one at least, and those
					 * of a piece are about equally high. 0: rows of 8 pairs,
					 * or what ceov_op_tune() measured. With
					 * CEOV_ORDER_COLUMNS only 0. Ranks may differ in it, as in
					 * tile_order */
	uint32_t          n_gemm_blocks; /* how many SMs the product uses at most, 2 or more, so
					 * that other kernels find SMs beside it; the library's
					 * kernels use pairs of SMs, so an odd number counts as the
					 * even one below. More than the workspace's n_sms: as many
					 * as that. 0: likewise, or what ceov_op_tune() measured.
					 * The same at all ranks, unless n_pieces
					 * and mode are set, which are chosen for that many SMs;
					 * with CEOV_CUT_WAVES always.
					 * cuBLAS does not keep to it, so with any value but 0 the
					 * library chooses its own kernels where there are any.
					 * Without effect on host ranks */
};

#define CEOV_OP_TUNING_INIT CEOV_SIZED(struct ceov_op_tuning)

/* Writes what was chosen, and why, in a few lines to fd. Fails as ceov_plan_explain() does. */
int  ceov_op_explain(const ceov_op *op, int fd);

/* Writes what was chosen, for programs: each field as a caller's tuning would have it, so that an
 * op of the same arguments and this tuning runs alike. mode, n_pieces and cut are never 0;
 * tile_order is not where there is a product; other fields that do not matter to the op, and limits
 * that were not set, are 0. The caller sets ret_tuning->struct_bytes, which stays; a struct of an
 * older header gets the fields that it has. Not while ceov_op_tune() of the op is at work. */
int  ceov_op_chosen(const ceov_op *op, struct ceov_op_tuning *ret_tuning);

/* Measures the modes and shapes that may suit this op, with scratch operands of its
 * own, keeps the fastest, and remembers it per machine and shape (in
 * $XDG_CACHE_HOME/ceoverlap). The first call measures; later ones, in other processes
 * too, find what is remembered and take it without measuring, if all ranks find the
 * same. What the op's tuning sets stays as it is, and then nothing is remembered.
 * All ranks call it, as they would make a run; it blocks for up to some seconds, waits
 * for peers within the workspace's deadline, and allocates operands for its time. A
 * failing call leaves the op as it was. GPU ranks only; not while the stream is being
 * captured. INVALID: ranks differ in k, n or tuning, so that they would not measure the
 * same. Where there is only one way to make the op nothing is measured: it stays as it is,
 * at once, and no peer is waited for. Moves alone have a second way only where
 * CEOV_MODE_DIRECT may be faster: on one node, with at most 4 MiB from rank to rank.
 * Reduce-scatter and all-reduce on one node are measured in direct modes, too, with up to 256 MiB
 * of a rank's operand, and above 4 MiB with at most 16 SMs. ceov_op_explain() says "moved by: SMs"
 * where one of them was the fastest; a mode of the caller's tuning is kept. */
int  ceov_op_tune(ceov_op *op, void *stream);

/* Waits for the op's runs in flight, within their deadline, and releases it. If they have not ended
 * by then, memory that their kernels may still write stays until ceov_close(), with a warning in
 * the log; freeing the op's other memory of a GPU may take until they have. NULL is allowed. */
void ceov_op_release(ceov_op *op);

/* --- all-gather + GEMM ---------------------------------------------------- */

struct ceov_ag_gemm {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows;      /* by rank, n_ranks entries */
	uint64_t                     k;
	uint32_t                     n_gemms;   /* how many products of the gathered A */
	uint64_t                     n[CEOV_OP_GEMMS_MAX];
	const struct ceov_op_tuning *tuning;    /* NULL: the library chooses all */
	int                          b_is_k_by_n;       /* 1: every b is k x n[i], and C = A B.
						 * A struct that ends before this field
						 * counts as 0 */
};

#define CEOV_AG_GEMM_INIT CEOV_SIZED(struct ceov_ag_gemm)

/* The scratch_bytes that the op needs of its workspace. 0: ceov_ag_gemm_create() would refuse
 * these arguments. n_ranks is the group's. */
uint64_t ceov_ag_gemm_scratch_bytes(const struct ceov_ag_gemm *shape, uint32_t n_ranks);

/* Creates the op for an all-gather + GEMM of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_ag_gemm_create(ceov_workspace *workspace, const struct ceov_ag_gemm *shape,
			 ceov_op **ret_op);

struct ceov_ag_gemm_run {
	size_t      struct_bytes;
	void       *stream;                     /* CUstream, never NULL; CU_STREAM_LEGACY where
						 * the workspace is capturable */
	const void *a;                          /* rows[rank] x k */
	const void *b[CEOV_OP_GEMMS_MAX];       /* n[i] x k, or k x n[i] */
	void       *c[CEOV_OP_GEMMS_MAX];       /* all rows x n[i] */
	void       *gathered;                   /* if not NULL, receives the gathered A, all
						 * rows x k, for example for a backward pass */
};

#define CEOV_AG_GEMM_RUN_INIT CEOV_SIZED(struct ceov_ag_gemm_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_ag_gemm_run(ceov_op *op, const struct ceov_ag_gemm_run *run);

/* --- GEMM + reduce-scatter ------------------------------------------------ */

struct ceov_gemm_rs {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows;      /* by rank: how many rows of the sum it gets */
	uint64_t                     k;         /* of this rank's product */
	uint64_t                     n;
	const struct ceov_op_tuning *tuning;
	int                          b_is_k_by_n;       /* as in struct ceov_ag_gemm */
};

#define CEOV_GEMM_RS_INIT CEOV_SIZED(struct ceov_gemm_rs)

/* The scratch_bytes that the op needs of its workspace. 0: ceov_gemm_rs_create() would refuse
 * these arguments. n_ranks is the group's. */
uint64_t ceov_gemm_rs_scratch_bytes(const struct ceov_gemm_rs *shape, uint32_t n_ranks);

/* Creates the op for a GEMM + reduce-scatter of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_gemm_rs_create(ceov_workspace *workspace, const struct ceov_gemm_rs *shape,
			 ceov_op **ret_op);

struct ceov_gemm_rs_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *a;                          /* all rows x k */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* rows[rank] x n */
};

#define CEOV_GEMM_RS_RUN_INIT CEOV_SIZED(struct ceov_gemm_rs_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_gemm_rs_run(ceov_op *op, const struct ceov_gemm_rs_run *run);

/* --- GEMM + all-reduce ------------------------------------------------------ */

/* Each rank multiplies, C = A B^T, and all ranks get the sum of these products. The library divides
 * the sum among the ranks, each of which adds up its part and sends it to all others: rows, or, if
 * there are fewer than 128 for each rank, columns. Of at most 256 rows and 4 MiB on one node SMs
 * make the sums (CEOV_MODE_DIRECT, CEOV_MODE_TWO_SHOT), unless the tuning says otherwise. */
struct ceov_gemm_ar {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	uint64_t                     m;         /* rows of A and C, the same at all ranks */
	uint64_t                     k;         /* of this rank's product */
	uint64_t                     n;         /* the same at all ranks */
	const struct ceov_op_tuning *tuning;    /* as in struct ceov_ag_gemm. Who sets tile_order
						 * should set n_pieces, too: CEOV_ORDER_CHOOSE
						 * says why */
	int                          b_is_k_by_n;
	int                          by_rows;   /* 1: rows are divided, however few there are: for
						 * GPUs without kernels of this library, on which
						 * ops with divided columns are refused. The same
						 * at all ranks */
};

#define CEOV_GEMM_AR_INIT CEOV_SIZED(struct ceov_gemm_ar)

/* As ceov_ag_gemm_scratch_bytes(). It is about three times the bytes of C, and of a C of at
 * most 1 MiB, if that is more, as many times as there are ranks. */
uint64_t ceov_gemm_ar_scratch_bytes(const struct ceov_gemm_ar *shape, uint32_t n_ranks);

/* Creates the op for a GEMM + all-reduce of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_gemm_ar_create(ceov_workspace *workspace, const struct ceov_gemm_ar *shape,
			 ceov_op **ret_op);

struct ceov_gemm_ar_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *a;                          /* m x k */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* m x n */
};

#define CEOV_GEMM_AR_RUN_INIT CEOV_SIZED(struct ceov_gemm_ar_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_gemm_ar_run(ceov_op *op, const struct ceov_gemm_ar_run *run);

/* --- GEMM with marks -------------------------------------------------------- */

/*
 * One rank multiplies, C = A B^T, and tells which rows of C are stored while it computes further
 * ones. So whatever the caller queues on another stream, NCCL's calls for example, begins with the
 * first rows. The rows of C form groups, in order and as equal as tiles allow, unless the tuning's
 * cut says otherwise; each group has a mark.
 *
 *   ceov_gemm_marks_run(op, &run);                  on one stream
 *   for each group:
 *       ceov_gemm_marks_wait(op, 0, group, other);  then queue what the group's rows are for
 *   order the first stream behind the other one     before C or the op is used again
 *
 * A run waits for nothing and uses no scratch: ranks need not make the same runs, and these are no
 * part of the workspace's sequence, except that they follow its other runs on streams. While
 * kernels beside a run hold SMs until a peer sends something, as NCCL's do, tiles need SMs all the
 * same: set n_sms or shares_sms of the workspace, or n_gemm_blocks of the tuning
 * (docs/operators.md, "Beside NCCL").
 *
 * GRAPHS     In capturable workspaces runs may be captured. Waits for the last captured run take
 *            other streams into its graph, in which they must be joined to the first one.
 *            Runs are not made graphs by the library.
 */
struct ceov_gemm_marks {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	uint64_t                     m;         /* rows of A and C; ranks may differ in all sizes */
	uint64_t                     k;
	uint64_t                     n;
	const struct ceov_op_tuning *tuning;    /* n_pieces is the number of groups; fewer are made
						 * where rows do not suffice. cut says how large
						 * they are. A sequence has one */
	int                          b_is_k_by_n;
};

#define CEOV_GEMM_MARKS_INIT CEOV_SIZED(struct ceov_gemm_marks)

/* As ceov_ag_gemm_scratch_bytes(). No scratch is needed, but a workspace has some. */
uint64_t ceov_gemm_marks_scratch_bytes(const struct ceov_gemm_marks *shape, uint32_t n_ranks);

/* ceov_op_tune() leaves the op as it is: the best number of groups depends on what follows. */
int  ceov_gemm_marks_create(ceov_workspace *workspace, const struct ceov_gemm_marks *shape,
			    ceov_op **ret_op);

/* Returns how many groups the op has, from 1 to 32; 0: the op is NULL or no GEMM with marks. */
uint32_t ceov_gemm_marks_groups(const ceov_op *op);

/* The rows of C that a group covers, never none. The groups in order cover all rows. */
int  ceov_gemm_marks_rows(const ceov_op *op, uint32_t group, uint64_t *ret_first,
			  uint64_t *ret_n_rows);

struct ceov_gemm_marks_run {
	size_t      struct_bytes;
	void       *stream;                     /* CUstream, neither NULL nor CU_STREAM_LEGACY */
	const void *a;                          /* m x k */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* m x n */
};

#define CEOV_GEMM_MARKS_RUN_INIT CEOV_SIZED(struct ceov_gemm_marks_run)

/* Makes one run of the op, in the order of run->stream, without any other rank. */
int  ceov_gemm_marks_run(ceov_op *op, const struct ceov_gemm_marks_run *run);

/*
 * Waits until a run of the op has stored the rows of a group. run: the op's runs are numbered from
 * 1; 0 means the last one that was begun.
 *
 * On GPUs it makes the stream wait and returns at once. The run must have been queued before
 * (CEOV_ERR_STATE). A captured run can be awaited only while it is the last one, and only by
 * streams of its graph. A run waits for nothing, so what is queued behind such a wait has no
 * deadline of its own; if the workspace has failed, the call returns its error. A stream must
 * have passed its waits before the op is released, and before a graph with a run of this op is
 * replayed: a replay counts from 0 again, so a wait for a run that was not captured would not end.
 *
 * On host ranks, where stream is ignored, it blocks, also before the run is made: another thread
 * makes it. CEOV_ERR_TIMEOUT: the workspace's deadline has passed. If the workspace fails
 * meanwhile: its error. CEOV_ERR_STATE: run is 0, and none was begun.
 */
int  ceov_gemm_marks_wait(ceov_op *op, uint64_t run, uint32_t group, void *stream);

/* --- GEMM + all-to-all, all-to-all + GEMM ----------------------------------- */

/*
 * Each rank has a block for every rank, its own included. Set either rows_of, or both rows and
 * columns; what is not set is NULL. All ranks give the same numbers, and 0 is allowed.
 *
 *   rows_of   rows are divided. n_ranks x n_ranks entries: the block from rank r to rank t has
 *             [r * n_ranks + t] rows, and all columns. Blocks lie one below the other: at the
 *             rank that sends them in the order of targets, at the rank that gets them in the
 *             order of sources. For example tokens that go to experts, or come back from them.
 *   columns   columns are divided. n_ranks entries, multiples of 8. Each block has the rows of
 *             one of its two ranks and the columns of the other one. For example the heads of
 *             attention over a sequence that is divided among ranks before and after it.
 */

/* Each rank multiplies, C = A B^T, and sends blocks of the product: the rows for each target, or,
 * where columns are divided, the target's columns of all rows. k may differ from rank to rank. */
struct ceov_gemm_a2a {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows_of;
	const uint64_t              *rows;      /* by rank: rows of its A */
	const uint64_t              *columns;   /* by rank: columns of the product that it gets */
	uint64_t                     k;
	uint64_t                     n;         /* of the product: the sum of columns */
	const struct ceov_op_tuning *tuning;    /* as in struct ceov_ag_gemm */
	int                          b_is_k_by_n;
};

#define CEOV_GEMM_A2A_INIT CEOV_SIZED(struct ceov_gemm_a2a)

/* The scratch_bytes that the op needs of its workspace. 0: ceov_gemm_a2a_create() would refuse
 * these arguments. n_ranks is the group's. */
uint64_t ceov_gemm_a2a_scratch_bytes(const struct ceov_gemm_a2a *shape, uint32_t n_ranks);

/* Creates the op for a GEMM + all-to-all of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_gemm_a2a_create(ceov_workspace *workspace, const struct ceov_gemm_a2a *shape,
			  ceov_op **ret_op);

struct ceov_gemm_a2a_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *a;                          /* as many rows as its blocks have, or
						 * rows[rank]; x k */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* as many rows as the blocks that it gets
						 * have x n, or all rows x columns[rank] */
};

#define CEOV_GEMM_A2A_RUN_INIT CEOV_SIZED(struct ceov_gemm_a2a_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_gemm_a2a_run(ceov_op *op, const struct ceov_gemm_a2a_run *run);

/* Each rank sends blocks of its A: the rows for each target, of which, where columns are divided,
 * every rank has some columns. Then it multiplies what it got, C = A B^T. n may differ from rank to
 * rank. */
struct ceov_a2a_gemm {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;
	const uint64_t              *rows_of;
	const uint64_t              *rows;      /* by rank: rows of its product */
	const uint64_t              *columns;   /* by rank: columns of the A that it sends from */
	uint64_t                     k;         /* of the product: the sum of columns */
	uint64_t                     n;
	const struct ceov_op_tuning *tuning;    /* as in struct ceov_ag_gemm */
	int                          b_is_k_by_n;
};

#define CEOV_A2A_GEMM_INIT CEOV_SIZED(struct ceov_a2a_gemm)

/* The scratch_bytes that the op needs of its workspace. 0: ceov_a2a_gemm_create() would refuse
 * these arguments. n_ranks is the group's. */
uint64_t ceov_a2a_gemm_scratch_bytes(const struct ceov_a2a_gemm *shape, uint32_t n_ranks);

/* Creates the op for an all-to-all + GEMM of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_a2a_gemm_create(ceov_workspace *workspace, const struct ceov_a2a_gemm *shape,
			  ceov_op **ret_op);

struct ceov_a2a_gemm_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *a;                          /* as many rows as its blocks have x k, or all
						 * rows x columns[rank] */
	const void *b;                          /* n x k, or k x n */
	void       *c;                          /* as many rows as the blocks that it gets
						 * have, or rows[rank]; x n */
};

#define CEOV_A2A_GEMM_RUN_INIT CEOV_SIZED(struct ceov_a2a_gemm_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_a2a_gemm_run(ceov_op *op, const struct ceov_a2a_gemm_run *run);

/* --- reduce-scatter and all-reduce ----------------------------------------- */

struct ceov_reduce {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;     /* of source and target; may be CEOV_FP32 */
	const uint64_t              *counts;    /* by rank: elements of its part, multiples
						 * of 8 */
	const struct ceov_op_tuning *tuning;
	uint64_t                     stride;    /* reduce_scatter: elements of source from
						 * the begin of one part to the next one's,
						 * a multiple of 8 and no less than any count;
						 * 0: no gaps. Ranks may differ in it.
						 * all_reduce: 0. A struct that ends before
						 * this field counts as 0 */
	float                        scale;     /* reduce_scatter: a finite factor by which
						 * the fp32 sums of the own part are
						 * multiplied, in fp32, before they are
						 * rounded to dtype; 0 counts as 1. Ranks may
						 * differ in it. all_reduce: 0 or 1. A struct
						 * that ends before this field counts as 0 */
	uint32_t                     by_node;   /* 1: in a group of several nodes, the ranks of a
						 * node first add up what they have for a rank
						 * of another one, and send that as one sum, so
						 * a node with n ranks sends an n-th of the
						 * bytes. This sum is rounded to dtype once
						 * more, and scratch is three times as large.
						 * 0: each rank sends its own addend, and all
						 * bits are those of a group on one node. The
						 * same at all ranks. A struct that ends before
						 * this field counts as 0 */
};

#define CEOV_REDUCE_INIT CEOV_SIZED(struct ceov_reduce)

/* The parts lie in source in the order of ranks. all_reduce leaves all parts at all ranks.
 * Scratch has room for one part from each rank, all as long as the longest. To need less,
 * divide the parts into columns and reduce these one after another, with a stride. */
uint64_t ceov_reduce_scatter_scratch_bytes(const struct ceov_reduce *shape,
					   uint32_t n_ranks);
uint64_t ceov_all_reduce_scratch_bytes(const struct ceov_reduce *shape, uint32_t n_ranks);

/* Create the op for a reduce-scatter, or an all-reduce, of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
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

#define CEOV_REDUCE_RUN_INIT CEOV_SIZED(struct ceov_reduce_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_reduce_run(ceov_op *op, const struct ceov_reduce_run *run);

/* --- all-gather and all-to-all --------------------------------------------- */

/* These differ from the plan templates of collective.h: they take memory that is not
 * registered, are ordered in a stream, and can be captured if the workspace is capturable.
 * In return, bytes go through scratch memory. */
struct ceov_move {
	size_t                       struct_bytes;
	const uint64_t              *bytes;     /* sizes, multiples of 16 (0 is allowed); the
						 * same array at all ranks. all_gather:
						 * n_ranks entries, of each rank's shard.
						 * all_to_all: n_ranks x n_ranks entries, of
						 * the block from rank r to rank t in
						 * [r * n_ranks + t] */
	const struct ceov_op_tuning *tuning;    /* n_pieces: into how many pieces the largest
						 * block is cut. Of modes only
						 * CEOV_MODE_DIRECT has an effect, and
						 * n_reduce_blocks has one only there. NULL: the
						 * library chooses */
};

#define CEOV_MOVE_INIT CEOV_SIZED(struct ceov_move)

/* 0: the create function would refuse these arguments, or all sizes are 0. */
uint64_t ceov_all_gather_scratch_bytes(const struct ceov_move *shape, uint32_t n_ranks);
uint64_t ceov_all_to_all_scratch_bytes(const struct ceov_move *shape, uint32_t n_ranks);

/* Create the op for an all-gather, or an all-to-all, of this shape, in a workspace that is
 * connected. It is released by ceov_op_release(). */
int  ceov_all_gather_create(ceov_workspace *workspace, const struct ceov_move *shape,
			    ceov_op **ret_op);
int  ceov_all_to_all_create(ceov_workspace *workspace, const struct ceov_move *shape,
			    ceov_op **ret_op);

/* Shards and blocks lie in the order of ranks, without gaps. The source of an all_gather may
 * be its own place in target, and is not copied then; else source and target must not
 * overlap. */
struct ceov_move_run {
	size_t      struct_bytes;
	void       *stream;                     /* as in struct ceov_ag_gemm_run */
	const void *source;                     /* own shard; the blocks for all ranks */
	void       *target;                     /* all shards; the blocks of all ranks */
};

#define CEOV_MOVE_RUN_INIT CEOV_SIZED(struct ceov_move_run)

int  ceov_move_run(ceov_op *op, const struct ceov_move_run *run);

/* --- mixture of experts: dispatch and combine -------------------------------- */

#define CEOV_MOE_TOP_K_MAX 64u

/*
 * The experts are divided among the ranks in order: rank r has n_experts / n_ranks of them, from
 * expert r * n_experts / n_ranks on. A dispatch sends a copy of each token to each of its top_k
 * experts; a combine brings what the experts made of the copies back and adds it up.
 *
 *   dispatch   tokens [n_tokens][hidden] -> received: rows of the own experts, one after another;
 *              within an expert in the order of ranks, and then of tokens
 *   experts    whatever the caller makes of the received rows, row by row
 *   combine    rows in the order of `received` -> sums [n_tokens][hidden], of each token's copies
 *              in the order of its experts, in fp32
 *
 * How many rows go where is read when a run comes to it, and only these are sent; the shape says
 * how many there can be at most. So nothing is set up when the routing changes. Both operators
 * may serve the same layer's backward pass: a combine without weights is the gradient of a dispatch
 * and the other way round, with the same routing. Gradients of weights are the caller's.
 *
 * A number of an expert, a slot or a number of rows that cannot be is found during the run, and
 * ends it with CEOV_ERR_INVALID, as other failures end runs. On host ranks a number of an expert
 * does not: all ranks' dispatches return CEOV_ERR_INVALID, nothing has come, the routing says that
 * nothing goes anywhere, and the workspace can be used further.
 *
 * GROUPS Each rank's experts may be divided into n_groups equal parts, in order. Then a run serves
 * one group, the same one at all ranks, so that the experts of a group work while the next group's
 * tokens come, and while results of the last one go back. One routing serves all groups:
 *
 *   dispatch of group 0, is_routed 0   chooses the places of all groups' copies, and sends those of
 *                                      group 0
 *   dispatch of group g, is_routed 1   sends those of group g
 *   combine of group g                 adds up each token's copies for experts of group g; what a
 *                                      token gets in all is the sum over all groups
 *
 * capacity, n_received, received, ends, rows and sums are those of one run, so of one group.
 */
struct ceov_moe {
	size_t                       struct_bytes;
	enum ceov_dtype              dtype;     /* of tokens, rows and sums */
	uint64_t                     n_tokens;  /* that a rank has in a run at most; the same
						 * at all ranks, as all fields are */
	uint64_t                     hidden;    /* elements of a token, a multiple of 8 */
	uint32_t                     n_experts; /* of all ranks; a multiple of n_ranks */
	uint32_t                     top_k;     /* experts of a token, at most
						 * CEOV_MOE_TOP_K_MAX */
	uint64_t                     capacity;  /* rows that a rank sends to another one in a
						 * run at most; later copies, in the order of
						 * experts and then of tokens, are dropped. 0: as
						 * many as there can be where a token's experts
						 * differ; repeated ones may be dropped then */
	uint64_t                     n_received;        /* rows for which `received` has room;
						 * a run to which more come fails. 0:
						 * n_ranks * capacity */
	const struct ceov_op_tuning *tuning;    /* of which chunk_bytes has an effect; a mode or
						 * a number of pieces has none so far. An unequal
						 * cut is refused. NULL: the library chooses */
	uint64_t                     total_capacity;    /* as capacity, of the runs of all groups
						 * together, so that the same copies are dropped
						 * for any number of groups, unless a block of
						 * one group is full before. 0: no such limit */
	uint32_t                     n_groups;  /* see above; divides n_experts / n_ranks. 0: 1 */
};

#define CEOV_MOE_INIT CEOV_SIZED(struct ceov_moe)

/* Where the copies of one batch went, in the runs of all groups: memory of the rank's place, which
 * belongs to the caller. A dispatch writes it, and the combines and dispatches of the same layer
 * and batch read it. */
struct ceov_moe_routing {
	int32_t  *slots;                /* [n_tokens][top_k]: where a copy lies among what the rank
					 * sends, of all groups, or -1: it goes nowhere */
	uint32_t *arrived;              /* [n_ranks][n_experts / n_ranks]: how many rows come from
					 * each rank for each own expert, of all groups */
};

uint64_t ceov_moe_dispatch_scratch_bytes(const struct ceov_moe *shape, uint32_t n_ranks);
uint64_t ceov_moe_combine_scratch_bytes(const struct ceov_moe *shape, uint32_t n_ranks);

/* CEOV_ERR_INVALID in capturable workspaces that have had other ops: see GRAPHS. */
int  ceov_moe_dispatch_create(ceov_workspace *workspace, const struct ceov_moe *shape,
			      ceov_op **ret_op);
int  ceov_moe_combine_create(ceov_workspace *workspace, const struct ceov_moe *shape,
			     ceov_op **ret_op);

struct ceov_moe_dispatch_run {
	size_t                  struct_bytes;
	void                   *stream;         /* as in struct ceov_ag_gemm_run */
	uint64_t                n_tokens;       /* of this run, at most the shape's; ranks may
						 * differ in it */
	const void             *tokens;         /* [n_tokens][hidden] */
	int                     is_routed;      /* 0: copies go where `experts` says. 1: where they
						 * went at an earlier dispatch, whose routing is
						 * given. The same at all ranks in a run */
	const int32_t          *experts;        /* [n_tokens][top_k], numbers of experts; -1:
						 * none. Not read where is_routed is 1 */
	struct ceov_moe_routing routing;        /* results; where is_routed is 1, operands */
	void                   *received;       /* [n_received][hidden]; rows behind the last one
						 * that came are not written */
	int32_t                *ends;           /* [n_experts / n_ranks / n_groups]: the row of
						 * `received` behind the last one of each own
						 * expert of the group. Of a run that has failed
						 * it is undefined, and kernels behind it must
						 * not take it for rows of `received` unchecked */
	uint32_t               *sent;           /* NULL, or [n_ranks][n_experts / n_ranks]: how many
						 * rows this rank sends to each rank for each of
						 * its experts, of all groups. A result; where
						 * is_routed is 1, an operand, as the routing's
						 * dispatch has written it, which spares a pass
						 * over all slots and is not compared with them */
	uint32_t                group;          /* 0 where is_routed is 0 */
};

#define CEOV_MOE_DISPATCH_RUN_INIT CEOV_SIZED(struct ceov_moe_dispatch_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_moe_dispatch_run(ceov_op *op, const struct ceov_moe_dispatch_run *run);

struct ceov_moe_combine_run {
	size_t                  struct_bytes;
	void                   *stream;
	uint64_t                n_tokens;       /* as at the dispatch */
	const void             *rows;           /* [n_received][hidden], in the order of
						 * `received` */
	const float            *weights;        /* [n_tokens][top_k], by which copies are
						 * multiplied; NULL: all are 1 */
	struct ceov_moe_routing routing;        /* as the dispatch has written it */
	void                   *sums;           /* [n_tokens][hidden] */
	uint32_t                group;          /* as at the dispatch whose rows come back; `sums`
						 * adds up this group's copies alone */
};

#define CEOV_MOE_COMBINE_RUN_INIT CEOV_SIZED(struct ceov_moe_combine_run)

/* Makes one run of the op, in the order of run->stream. */
int  ceov_moe_combine_run(ceov_op *op, const struct ceov_moe_combine_run *run);

#ifdef __cplusplus
}
#endif

#endif /* CEOVERLAP_OPS_H */
