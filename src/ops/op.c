/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What all operators have in common: shapes, creation, explanation, release. */

#include "ops/op.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "base/write.h"
#include "ce_engine/context.h"
#include "ops/capture_cuda.h"

#define LEGACY_STREAM ((const void *)(uintptr_t)1)      /* CU_STREAM_LEGACY */

/* Sizes whose products, in bytes, still fit 64 bits. */
#define EXTENT_MAX   (UINT64_C(1) << 31)
#define ELEMENTS_MAX (UINT64_C(1) << 48)

/* Columns, and elements of sums, come in 16 bytes. */
#define COLUMN_STEP  8u

static struct cei_report *report_of(const ceov_op *op)
{
	return &op->workspace->object.context->report;
}

/* --- shapes ---------------------------------------------------------------- */

uint64_t cei_op_rows_before(const struct cei_op_shape *shape, uint32_t rank)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < rank; i++)
		sum += shape->rows[i];
	return sum;
}

uint64_t cei_op_all_rows(const struct cei_op_shape *shape)
{
	return cei_op_rows_before(shape, shape->n_ranks);
}

uint64_t cei_op_most_rows(const struct cei_op_shape *shape)
{
	uint64_t most = 0;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++)
		if (shape->rows[i] > most)
			most = shape->rows[i];
	return most;
}

void cei_op_take_rows(struct cei_op_shape *shape, const uint64_t *rows, uint32_t n_ranks)
{
	if (!rows || !n_ranks || n_ranks > CEI_RANKS_MAX)
		return;
	shape->n_ranks = n_ranks;
	memcpy(shape->rows, rows, n_ranks * sizeof(*rows));
}

static const char *rows_fault(const struct cei_op_shape *shape)
{
	uint64_t max = cei_op_has_gemm(shape) ? EXTENT_MAX : ELEMENTS_MAX, sum = 0;
	uint32_t i;

	for (i = 0; i < shape->n_ranks; i++) {
		if (shape->rows[i] > max - sum)
			return "there are too many rows or elements";
		if (!cei_op_has_gemm(shape) && shape->rows[i] % COLUMN_STEP)
			return "counts must be multiples of 8";
		sum += shape->rows[i];
	}
	return sum ? NULL : "all ranks together have no rows or elements";
}

static const char *columns_fault(const struct cei_op_shape *shape)
{
	uint64_t most = shape->k;
	uint32_t i;

	if (!shape->n_products || shape->n_products > CEOV_OP_GEMMS_MAX)
		return "n_gemms must be 1 to 4";
	if (!shape->k || shape->k % COLUMN_STEP)
		return "k must be a multiple of 8, and not 0";
	for (i = 0; i < shape->n_products; i++)
		if (!shape->n[i] || shape->n[i] % COLUMN_STEP)
			return "n must be a multiple of 8, and not 0";
	for (i = 0; i < shape->n_products; i++)
		most = shape->n[i] > most ? shape->n[i] : most;
	if (most > EXTENT_MAX)
		return shape->k > EXTENT_MAX ? "k is above 2^31" : "n is above 2^31";
	if (shape->b_is_k_by_n != 0 && shape->b_is_k_by_n != 1)
		return "b_is_k_by_n must be 0 or 1";
	if (cei_op_all_rows(shape) > ELEMENTS_MAX / most)
		return "a matrix has too many elements";
	/* The kernel sees all sources' partial sums as one matrix, and counts its rows in
	 * 31 bits. */
	if (shape->sort == CEI_OP_GEMM_RS &&
	    cei_op_most_rows(shape) > EXTENT_MAX / shape->n_ranks)
		return "a rank has too many rows for the number of ranks";
	return NULL;
}

const char *cei_op_shape_fault(const struct cei_op_shape *shape)
{
	const char *fault;

	if (shape->fault)
		return shape->fault;
	if (!shape->n_ranks)
		return "no rows or counts or bytes";
	if (cei_op_is_move(shape))
		return cei_move_fault(shape);
	if (shape->dtype == CEOV_FP32 && cei_op_has_gemm(shape))
		return "dtype is CEOV_FP32, which only sums take; products take CEOV_BF16 or "
			"CEOV_FP16";
	if (shape->dtype != CEOV_BF16 && shape->dtype != CEOV_FP16 &&
	    shape->dtype != CEOV_FP32)
		return "dtype is none of enum ceov_dtype";
	fault = rows_fault(shape);
	if (fault)
		return fault;
	return cei_op_has_gemm(shape) ? columns_fault(shape) : cei_reduce_fault(shape);
}

/* --- creation -------------------------------------------------------------- */

static void fini_list(ceov_op *op, struct cei_tile_list *list)
{
	struct cei_executor *executor = &op->workspace->executor;

	if (list->held)
		executor->ops->drop_tiles(executor, list->held);
	list->held = NULL;
}

static void bury(struct cei_object *object)
{
	ceov_op *op = CEI_OWNER(object, ceov_op, object);

	cei_object_end(object);
	fini_list(op, &op->others);     /* these two are parts of list */
	fini_list(op, &op->own);
	fini_list(op, &op->list);
	fini_list(op, &op->alone);
	cei_tiles_fini(&op->list.tiles);
	cei_tiles_fini(&op->alone.tiles);
	free(op->blocks);
	cei_object_unuse(&op->workspace->object);
	cei_object_bury(&op->object);
}

/* Runs have ended. Accepts what is half built. */
static void destroy(ceov_op *op)
{
	uint32_t i;

	for (i = 0; i < op->kind->n_phases; i++)
		cei_phase_fini(&op->phases[i]);
	bury(&op->object);
}

static int make_tiles(const ceov_op *op, int waits, struct cei_tiles *tiles)
{
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_tiles_question question = { .rank = op->workspace->rank };
	int r;

	question.n_ranks = op->shape.n_ranks;
	question.rows = op->shape.rows;
	question.n_pieces = op->choice.n_pieces;
	question.n_products = op->shape.n_products;
	question.columns = op->shape.n;
	question.shape = op->choice.shape;
	question.pair = executor->ops->pair(executor, op->choice.shape);
	question.waits = waits;
	question.scatters = op->shape.sort == CEI_OP_GEMM_RS;
	r = cei_tiles_init(tiles, &question);
	return r ? cei_raise(report_of(op), r, 0, "%s: rank %u: no tiles of %u x %u can be "
			     "listed for this shape: %s", op->kind->name,
			     op->workspace->rank, op->choice.shape.rows,
			     op->choice.shape.columns, ceov_strerror(r)) : 0;
}

static int hold(ceov_op *op, struct cei_tile_list *list)
{
	struct cei_executor *executor = &op->workspace->executor;

	if (!list->tiles.n_tiles)
		return 0;
	return executor->ops->hold_tiles(executor, &list->tiles, &list->held);
}

/* Of a scattered product the tiles of own rows come last. */
static void split_list(ceov_op *op)
{
	const struct cei_tiles *all = &op->list.tiles;
	uint32_t n = 0;

	while (n < all->n_tiles && all->tile[n].c == CEI_GEMM_C_PARTIAL)
		n++;
	op->others.tiles.tile = all->tile;
	op->others.tiles.n_tiles = n;
	op->own.tiles.tile = all->tile + n;
	op->own.tiles.n_tiles = all->n_tiles - n;
}

static int list_tiles(ceov_op *op)
{
	int r;

	if (!cei_op_has_gemm(&op->shape))
		return 0;
	r = make_tiles(op, 1, &op->list.tiles);
	if (r || op->shape.sort != CEI_OP_GEMM_RS || op->choice.way != CEOV_WAY_SEQUENCE)
		return r ? r : hold(op, &op->list);
	split_list(op);
	r = hold(op, &op->others);
	return r ? r : hold(op, &op->own);
}

int cei_op_alone(ceov_op *op, const struct cei_tile_list **ret_list)
{
	int r = 0;

	if (!op->alone.tiles.n_tiles) {
		r = make_tiles(op, 0, &op->alone.tiles);
		if (!r)
			r = hold(op, &op->alone);
		if (r)
			cei_tiles_fini(&op->alone.tiles);
	}
	if (!r)
		*ret_list = &op->alone;
	return r;
}

/* Here, and not by the first run, whose kernels wait for peers. */
static int load(ceov_op *op)
{
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_gemm_job job;
	uint32_t i;
	int r;

	if (!cei_op_has_gemm(&op->shape))
		return 0;
	memset(&job, 0, sizeof(job));
	job.dtype = op->shape.dtype;
	job.shape = op->choice.shape;
	job.k = op->shape.k;
	job.b_is_k_by_n = op->shape.b_is_k_by_n;
	job.tiles = &op->list.tiles;
	for (i = 0; i < CEI_GEMM_C_MAX; i++)    /* partial sums are as wide as C */
		job.c[i].columns = op->shape.n[i < op->shape.n_products ? i : 0];
	pthread_mutex_lock(&op->workspace->lock);
	r = executor->ops->load(executor, &job);
	pthread_mutex_unlock(&op->workspace->lock);
	return r;
}

static int build(ceov_op *op)
{
	uint32_t i;
	int r = list_tiles(op);

	if (!r)
		r = load(op);
	if (!r)
		r = op->kind->build(op);
	for (i = 0; !r && i < op->kind->n_phases; i++)
		r = cei_phase_close(&op->phases[i]);
	return r;
}

static int refuse(const ceov_workspace *workspace, const struct cei_op_kind *kind,
		  const char *fault)
{
	return cei_raise(&workspace->object.context->report, CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: %s", kind->name, workspace->rank, fault);
}

static int refuse_tiles(const ceov_workspace *workspace, const struct cei_op_kind *kind,
			const char *fault)
{
	const char *lacks = workspace->executor.lacks;

	return cei_raise(&workspace->object.context->report, CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: %s%s%s", kind->name, workspace->rank, fault,
			 lacks ? "; cuBLAS cannot be used: " : "", lacks ? lacks : "");
}

struct cei_rates cei_op_rates(const ceov_workspace *workspace)
{
	const struct cei_executor *executor = &workspace->executor;
	struct cei_rates rates = workspace->is_host ? cei_rates_host() : cei_rates_gpu();
	struct cei_tile_shape small = cei_chooser_shape(&rates, 0), whole = { 1, 8 };

	if (workspace->is_host)
		return rates;
	if (executor->n_sms && executor->n_sms < rates.n_sms)
		rates.n_sms = (uint32_t)executor->n_sms;
	/* only kernels of our own pair tiles */
	rates.has_tiles = executor->ops->pair(executor, small) == rates.pair;
	rates.has_library = executor->ops->is_fit(executor, whole);
	return rates;
}

static const char *tiles_fault(const ceov_workspace *workspace,
			       const struct ceov_op_tuning *tuning,
			       const struct cei_rates *rates)
{
	const struct cei_executor *executor = &workspace->executor;
	struct cei_tile_shape told;

	if (!rates->has_tiles && !rates->has_library)
		return "there is neither a kernel for this GPU nor cuBLAS";
	if (!tuning || !tuning->tile_rows)
		return NULL;
	told.rows = tuning->tile_rows;
	told.columns = tuning->tile_columns;
	return executor->ops->is_fit(executor, told) ? NULL
		: "tuning: there is no kernel for tiles of that shape";
}

int cei_op_says_nothing(const struct ceov_op_tuning *tuning)
{
	return !tuning || (tuning->way == CEOV_WAY_CHOOSE && !tuning->n_pieces &&
			   !tuning->tile_rows && !tuning->n_reduce_blocks);
}

int cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
	       char key[CEI_TUNING_KEY_BYTES])
{
	const char *machine = workspace->executor.machine;
	char text[CEI_MACHINE_BYTES + 8];

	if (!machine[0])
		return CEOV_NONE;
	/* marks cost more in one than in the other */
	snprintf(text, sizeof(text), "%s%s", workspace->is_capturable ? "graph-" : "", machine);
	cei_tuning_key(text, shape, key);
	return 0;
}

int cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		  struct ceov_op_tuning *ret_tuning)
{
	struct cei_rates rates = cei_op_rates(workspace);
	char key[CEI_TUNING_KEY_BYTES];
	struct ceov_op_tuning tuning;
	int r = cei_op_key(workspace, shape, key);

	if (!r)
		r = cei_tunings_recall(key, &tuning);
	if (!r && cei_op_has_gemm(shape) && tiles_fault(workspace, &tuning, &rates))
		r = CEOV_NONE;
	if (!r)
		*ret_tuning = tuning;
	return r;
}

/* Of what was tuned here, what no other rank notices: tiles and blocks, and only where
 * the model cuts rows as they were cut when these were measured. Cut and way have to be
 * the same at all ranks, who may not read the same file: see ceov_op_tune(). */
static void refine(ceov_op *op, const struct cei_rates *rates)
{
	struct ceov_op_tuning tuning;

	if (!cei_op_says_nothing(&op->told) ||
	    cei_op_recall(op->workspace, &op->shape, &tuning) ||
	    tuning.way != op->choice.way || tuning.n_pieces != op->choice.n_pieces)
		return;
	cei_chooser_choose(&op->shape, rates, &tuning, &op->choice);
	op->is_tuned = 1;
}

static int check_create(const ceov_workspace *workspace, const struct cei_op_kind *kind,
			const struct cei_op_shape *shape,
			const struct ceov_op_tuning *tuning, const struct cei_rates *rates)
{
	const char *fault = cei_op_shape_fault(shape);
	uint64_t needed;

	if (!fault)
		fault = cei_chooser_fault(tuning);
	if (fault)
		return refuse(workspace, kind, fault);
	if (cei_op_has_gemm(shape))
		fault = tiles_fault(workspace, tuning, rates);
	if (fault)
		return refuse_tiles(workspace, kind, fault);
	needed = kind->scratch_bytes(shape);
	if (needed <= workspace->half_bytes)
		return 0;
	return cei_raise(&workspace->object.context->report, CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: needs scratch of %" PRIu64 " bytes, workspace "
			 "'%s' has %" PRIu64 "; create it with %s_scratch_bytes()", kind->name,
			 workspace->rank, needed, workspace->name, workspace->half_bytes,
			 kind->name);
}

int cei_op_create(ceov_workspace *workspace, const struct cei_op_kind *kind,
		  const struct cei_op_shape *shape, const struct ceov_op_tuning *tuning,
		  ceov_op **ret_op)
{
	struct cei_rates rates = cei_op_rates(workspace);
	ceov_op *op;
	int r;

	if (!ret_op)
		return refuse(workspace, kind, "no ret_op");
	r = check_create(workspace, kind, shape, tuning, &rates);
	if (r)
		return r;
	op = calloc(1, sizeof(*op));
	if (!op)
		return cei_raise(&workspace->object.context->report, CEOV_ERR_NO_MEMORY, 0,
				 "%s_create: no memory for a handle", kind->name);
	op->workspace = workspace;
	op->kind = kind;
	op->shape = *shape;
	if (tuning)
		op->told = *tuning;
	cei_chooser_choose(shape, &rates, tuning, &op->choice);
	refine(op, &rates);
	cei_object_use(&workspace->object);
	op->object.destroy = bury;
	cei_object_init(&op->object, workspace->object.context, CEI_OBJECT_OP);
	r = build(op);
	if (r) {
		destroy(op);
		return r;
	}
	*ret_op = op;
	return 0;
}

/* What was built. The rest of an op, its place in the context's list above all, is not
 * ours to read: others link and unlink beside it. */
static void take_built(ceov_op *to, const ceov_op *from)
{
	to->choice = from->choice;
	to->n_sent = from->n_sent;
	to->list = from->list;
	to->others = from->others;
	to->own = from->own;
	to->alone = from->alone;
	memcpy(to->phases, from->phases, sizeof(to->phases));
}

void cei_op_swap(ceov_op *op, ceov_op *other)
{
	ceov_op kept;

	cei_capture_forget(op->workspace->capture, op);
	cei_capture_forget(op->workspace->capture, other);
	take_built(&kept, op);
	take_built(op, other);
	take_built(other, &kept);
}

/* --- runs ------------------------------------------------------------------ */

/* Both sums have one, and both moves. */
static enum cei_op_sort run_call(enum cei_op_sort sort)
{
	if (sort == CEI_OP_ALL_TO_ALL)
		return CEI_OP_ALL_GATHER;
	return sort == CEI_OP_ALL_REDUCE ? CEI_OP_REDUCE_SCATTER : sort;
}

int cei_op_check_run(const ceov_op *op, enum cei_op_sort sort, const void *run,
		     size_t run_bytes)
{
	const char *fault;
	int r = cei_object_check(op, CEI_OBJECT_OP, "ceov_*_run");

	if (r)
		return r;
	if (run_call(op->shape.sort) != run_call(sort))
		return cei_raise(report_of(op), CEOV_ERR_INVALID, 0,
				 "ceov_*_run: the op is a %s, which has another run call",
				 op->kind->name);
	fault = cei_sized_fault(run, run_bytes, run_bytes);
	if (!fault)
		return 0;
	return cei_raise(report_of(op), CEOV_ERR_INVALID, 0, "%s_run: %s", op->kind->name,
			 fault);
}

/* Without a graph marks would be waited for on it, which the legacy stream cannot. */
int cei_op_check_stream(const ceov_op *op, const void *stream)
{
	if (op->workspace->is_host || (stream && stream != LEGACY_STREAM))
		return 0;
	if (stream && op->workspace->capture)
		return 0;
	if (stream)
		return cei_raise(report_of(op), CEOV_ERR_INVALID, 0,
				 "%s: rank %u: the legacy stream takes runs of capturable "
				 "workspaces only", op->kind->name, op->workspace->rank);
	return cei_raise(report_of(op), CEOV_ERR_INVALID, 0,
			 "%s: rank %u: the NULL stream cannot be used", op->kind->name,
			 op->workspace->rank);
}

struct cei_matrix cei_op_matrix(const void *base, uint64_t rows, uint64_t columns)
{
	struct cei_matrix matrix = { rows ? base : NULL, rows, columns };

	return matrix;
}

struct cei_matrix cei_op_b(const struct cei_op_shape *shape, uint32_t i, const void *base)
{
	return shape->b_is_k_by_n ? cei_op_matrix(base, shape->k, shape->n[i])
				  : cei_op_matrix(base, shape->n[i], shape->k);
}

static int refuse_alone(const ceov_op *op, int r)
{
	const ceov_workspace *workspace = op->workspace;

	return cei_raise(report_of(op), r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r, 0,
			 "%s: runs of workspace '%s' of rank %u %s; the product cannot be "
			 "measured", op->kind->name, workspace->name, workspace->rank,
			 r == CEOV_PENDING ? "are not done within their deadline"
			 : "have failed");
}

int cei_op_gemm_alone(ceov_op *op, const void *run)
{
	int r = cei_object_check(op, CEI_OBJECT_OP, "cei_op_gemm_alone");

	if (r)
		return r;
	pthread_mutex_lock(&op->workspace->lock);
	r = cei_workspace_finish(op->workspace);
	if (r)
		r = refuse_alone(op, r);
	else if (op->shape.sort == CEI_OP_AG_GEMM)
		r = cei_ag_gemm_alone(op, run);
	else if (op->shape.sort == CEI_OP_GEMM_RS)
		r = cei_gemm_rs_alone(op, run);
	else
		r = cei_raise(report_of(op), CEOV_ERR_INVALID, 0,
			      "%s: has no product to measure", op->kind->name);
	pthread_mutex_unlock(&op->workspace->lock);
	return r;
}

/* --- the rest -------------------------------------------------------------- */

static int say(const ceov_op *op, int fd, const char *text)
{
	return cei_write(report_of(op), fd, text, "ceov_op_explain");
}

int ceov_op_explain(const ceov_op *op, int fd)
{
	int r = cei_object_check(op, CEI_OBJECT_OP, "ceov_op_explain");

	if (!r)
		r = say(op, fd, op->kind->name);
	if (!r)
		r = say(op, fd, op->is_tuned
			      ? ", told by what was tuned on this machine\n" : "\n");
	return r ? r : say(op, fd, op->choice.text);
}

void ceov_op_release(ceov_op *op)
{
	ceov_workspace *workspace;

	if (!op || cei_object_check(op, CEI_OBJECT_OP, "ceov_op_release"))
		return;
	workspace = op->workspace;
	pthread_mutex_lock(&workspace->lock);
	(void)cei_workspace_land(workspace);    /* errors are in its status */
	(void)workspace->executor.ops->idle(&workspace->executor, workspace->deadline_ns);
	cei_capture_forget(workspace->capture, op);
	pthread_mutex_unlock(&workspace->lock);
	destroy(op);
}
