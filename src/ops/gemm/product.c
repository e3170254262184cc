/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What operators with a product share: checks, lists of tiles, and measuring the product
 * alone. */

#include "ops/gemm/product.h"

#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/core/op.h"
#include "ops/core/run.h"
#include "ops/gemm/product_lane.h"
#include "ops/gemm/cost_sim.h"

/* The numbers of columns must be multiples of 8, because rows must be multiples of 16 bytes. */
#define COLUMN_STEP 8u

/* Drivers copy rows that are less than 2^31 bytes apart. */
#define PITCH_COLUMNS_MAX ((UINT64_C(1) << 30) - COLUMN_STEP)

/* --- the shape ------------------------------------------------------------- */

void cei_product_take(struct cei_op_shape *shape, enum ceov_dtype dtype, uint64_t k, uint64_t n,
		      int b_is_k_by_n)
{
	shape->dtype = dtype;
	shape->product.k = k;
	shape->product.n_products = 1;
	shape->product.n[0] = n;
	shape->product.b_is_k_by_n = b_is_k_by_n;
}

uint64_t cei_product_row_bytes(const struct cei_op_shape *shape)
{
	return shape->product.n[0] * CEI_DTYPE16_BYTES;
}

/* --- checks ---------------------------------------------------------------- */

static const char *columns_fault(const struct cei_op_shape *shape)
{
	uint64_t most = shape->product.k;
	uint32_t i;

	if (!shape->product.n_products || shape->product.n_products > CEOV_OP_GEMMS_MAX)
		return "n_gemms must be 1 to 4";
	if (!shape->product.k || shape->product.k % COLUMN_STEP)
		return "k must be a multiple of 8, and not 0";
	for (i = 0; i < shape->product.n_products; i++)
		if (!shape->product.n[i] || shape->product.n[i] % COLUMN_STEP)
			return "n must be a multiple of 8, and not 0";
	for (i = 0; i < shape->product.n_products; i++)
		most = shape->product.n[i] > most ? shape->product.n[i] : most;
	if (most > CEI_EXTENT_MAX)
		return shape->product.k > CEI_EXTENT_MAX ? "k is above 2^31" : "n is above 2^31";
	if (shape->product.b_is_k_by_n != 0 && shape->product.b_is_k_by_n != 1)
		return "b_is_k_by_n must be 0 or 1";
	if (cei_op_all_rows(shape) > CEI_ELEMENTS_MAX / most)
		return "a matrix has too many elements";
	return NULL;
}

const char *cei_product_fault(const struct cei_op_shape *shape)
{
	const char *fault;

	if (shape->dtype == CEOV_FP32)
		return "dtype is CEOV_FP32, which only sums take; products take CEOV_BF16 or "
			"CEOV_FP16";
	fault = cei_op_dtype_fault(shape);
	if (!fault)
		fault = cei_op_rows_fault(shape, CEI_EXTENT_MAX, 1);
	return fault ? fault : columns_fault(shape);
}

/* Returns what stands against pieces of columns, or NULL, also if the tuning asks for none. One
 * piece has all columns, so nothing does. */
static const char *columns_lack(const struct cei_executor *executor,
				const struct cei_op_shape *shape,
				const struct ceov_op_tuning *tuning, const struct cei_rates *rates)
{
	struct cei_cost_sim_args model = { .shape = shape, .rates = rates };
	struct ceov_op_tuning given;
	struct cei_row_cut cut;

	cei_sized_take(&given, tuning, sizeof(given));
	if (given.cut != CEOV_CUT_COLUMNS || given.n_pieces == 1 ||
	    given.mode == CEOV_MODE_SEQUENCE ||
	    (cei_selector_is_direct(given.mode) && !cei_kind_has_sm_lane(shape, given.mode)))
		return NULL;
	if (shape->product.n[0] > PITCH_COLUMNS_MAX)
		return "tuning: n is too large for CEOV_CUT_COLUMNS; set another cut";
	if (!rates->has_tiles)
		return "tuning: CEOV_CUT_COLUMNS needs kernels of this library, and there is none "
			"for this GPU; set another cut";
	if (!given.tile_rows)
		return NULL;
	model.cut = given.cut;
	model.tile = (struct cei_tile_shape){ given.tile_rows, given.tile_columns };
	cut = cei_cost_sim_cut(&model);
	if (executor->ops->pair(executor, model.tile) != rates->pair)
		return "tuning: with CEOV_CUT_COLUMNS kernels of this library have to compute, and "
			"there is none for tiles of that shape; set another one";
	return cei_cut_takes(&cut, CEI_OP_PIECES_MAX, model.tile) ? NULL
		: "tuning: with CEOV_CUT_COLUMNS tile_columns must divide 64, where pieces begin";
}

/* Returns why SMs cannot make the transfers, or NULL. */
static const char *lane_lack(const ceov_workspace *workspace, const struct ceov_op_tuning *tuning,
			     const struct cei_rates *rates)
{
	const struct cei_tile_shape tile = { tuning->tile_rows, tuning->tile_columns };

	if (workspace->is_host || !rates->has_tiles)
		return "tuning->mode: SMs make the transfers only on GPUs of compute capability "
			"9.0";
	if (workspace->shares_sms)
		return "tuning->mode: the workspace shares SMs with others (shares_sms), so none "
			"are sure to be there for the transfers";
	if (rates->n_sms < CEI_PRODUCT_LANE_SMS)
		return "tuning->mode: the workspace has fewer than 4 SMs, too few for a product "
			"and its transfers";
	if (tile.rows && !cei_selector_has_kernel(rates, tile))
		return "tuning: SMs make the transfers only beside the library's own kernels, "
			"which have no tiles of that shape";
	return NULL;
}

const char *cei_product_lacks(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			      const struct ceov_op_tuning *tuning,
			      const struct cei_rates *rates)
{
	const struct cei_executor *executor = &workspace->executor;
	const char *lack;
	struct cei_tile_shape given;

	if (!rates->has_tiles && !rates->has_library)
		return "there is neither a kernel for this GPU nor cuBLAS";
	if (!tuning)
		return NULL;
	lack = cei_kind_has_sm_lane(shape, tuning->mode) ? lane_lack(workspace, tuning, rates)
		: NULL;
	if (!lack)
		lack = columns_lack(executor, shape, tuning, rates);
	if (lack || !tuning->tile_rows)
		return lack;
	given.rows = tuning->tile_rows;
	given.columns = tuning->tile_columns;
	return executor->ops->is_fit(executor, given) ? NULL
		: "tuning: there is no kernel for tiles of that shape";
}

/* --- lists of tiles -------------------------------------------------------- */

static void fini_list(ceov_op *op, struct cei_tile_list *list)
{
	struct cei_executor *executor = &op->workspace->executor;

	if (list->held)
		executor->ops->drop(executor, list->held);
	list->held = NULL;
}

void cei_product_fini(ceov_op *op)
{
	uint32_t i;

	for (i = 0; op->product.pieces && i < op->choice.n_pieces; i++)
		fini_list(op, &op->product.pieces[i]);
	free(op->product.pieces);
	op->product.pieces = NULL;
	fini_list(op, &op->product.others);     /* before `all`, of which it is a part */
	fini_list(op, &op->product.own);
	fini_list(op, &op->product.all);
	fini_list(op, &op->product.alone);
	cei_tiles_fini(&op->product.all.tiles);
	cei_tiles_fini(&op->product.alone.tiles);
	op->workspace->executor.ops->drop(&op->workspace->executor, op->product.whole);
	op->product.whole = NULL;
}

static int make_tiles(const ceov_op *op, int waits, struct cei_tiles *tiles)
{
	struct cei_executor *executor = &op->workspace->executor;
	struct cei_tiles_args args = { .rank = op->workspace->rank };
	uint64_t rows[CEI_OP_RANKS_MAX];
	int r;

	args.n_ranks = op->shape.n_ranks;
	args.rows = op->shape.rows;
	args.n_pieces = op->choice.n_pieces;
	args.cut = op->choice.cut;
	args.n_products = op->shape.product.n_products;
	args.columns = op->shape.product.n;
	args.shape = op->choice.shape;
	args.pair = executor->ops->pair(executor, op->choice.shape);
	args.waits = waits;
	args.scatters = op->kind->product->scatters;
	args.order = op->choice.order;
	args.band_rows = op->choice.band_rows;
	if (op->kind->product->ask)
		op->kind->product->ask(op, &args, rows);
	r = cei_tiles_init(tiles, &args);
	return r ? cei_raise(cei_object_report(&op->object), r, 0,
			     "%s: rank %u: no tiles of %u x %u can be listed for this "
			     "shape: %s", op->kind->name, op->workspace->rank,
			     op->choice.shape.rows,
			     op->choice.shape.columns, ceov_strerror(r)) : 0;
}

static int hold(ceov_op *op, struct cei_tile_list *list)
{
	struct cei_executor *executor = &op->workspace->executor;

	if (!list->tiles.n_tiles)
		return 0;
	return executor->ops->hold(executor, list->tiles.tile,
				   (uint64_t)list->tiles.n_tiles * sizeof(*list->tiles.tile),
				   &list->held);
}

/* Splits the list of all tiles into `others`, whose rows are sent, and `own`. In a product whose
 * rows are scattered, the tiles of own rows come last. */
static void split_list(ceov_op *op)
{
	const struct cei_tiles *all = &op->product.all.tiles;
	uint32_t n = 0;

	while (n < all->n_tiles && all->tile[n].c == CEI_GEMM_C_PARTIAL)
		n++;
	op->product.others.tiles.tile = all->tile;
	op->product.others.tiles.n_tiles = op->product.others.tiles.n_free = n;
	op->product.own.tiles.tile = all->tile + n;
	op->product.own.tiles.n_tiles = all->n_tiles - n;
}

int cei_product_list(ceov_op *op)
{
	int r = make_tiles(op, 1, &op->product.all.tiles);

	if (r || !op->kind->product->scatters || op->choice.mode != CEOV_MODE_SEQUENCE)
		return r ? r : hold(op, &op->product.all);
	split_list(op);
	r = hold(op, &op->product.others);
	return r ? r : hold(op, &op->product.own);
}

int cei_product_cut(ceov_op *op, uint64_t n_rows)
{
	const struct cei_tiles *all = &op->product.all.tiles;
	uint32_t n_pieces = op->choice.n_pieces, piece, n, at = 0;
	uint64_t end, n_piece;
	struct cei_tiles *tiles;
	int r = 0;

	op->product.pieces = calloc(n_pieces, sizeof(*op->product.pieces));
	if (!op->product.pieces)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_NO_MEMORY, 0,
				 "%s: rank %u: no memory for lists of tiles", op->kind->name,
				 op->workspace->rank);
	for (piece = 0; !r && piece < n_pieces; piece++) {
		tiles = &op->product.pieces[piece].tiles;
		end = cei_piece_rows(&op->choice.cut, n_rows, n_pieces, piece, &n_piece);
		end += n_piece;
		for (n = 0; at + n < all->n_tiles && all->tile[at + n].c_row < end; n++)
			;
		tiles->tile = all->tile + at;
		tiles->n_tiles = tiles->n_free = n;     /* none adds partial sums */
		r = hold(op, &op->product.pieces[piece]);
		at += n;
	}
	return r;
}

struct cei_gemm_job cei_product_job(const ceov_op *op, const struct cei_tile_list *list)
{
	const struct cei_op_shape *shape = &op->shape;
	struct cei_gemm_job job;

	memset(&job, 0, sizeof(job));
	job.dtype = shape->dtype;
	job.shape = op->choice.shape;
	job.k = shape->product.k;
	job.b_is_k_by_n = shape->product.b_is_k_by_n;
	job.tiles = &list->tiles;
	job.held_tiles = list->held;
	job.n_sources = shape->n_ranks;
	job.own = op->workspace->rank;
	job.n_pieces = op->choice.n_pieces;
	job.cut = op->choice.cut;
	job.n_blocks = op->choice.n_gemm_blocks;
	return job;
}

int cei_product_load(ceov_op *op, const struct cei_gemm_job *job)
{
	struct cei_executor *executor = &op->workspace->executor;
	int r;

	pthread_mutex_lock(&op->workspace->lock);
	r = executor->ops->load(executor, job);
	pthread_mutex_unlock(&op->workspace->lock);
	return r;
}

int cei_product_prepare(ceov_op *op)
{
	struct cei_gemm_job job;
	int r = cei_product_list(op);
	uint32_t i;

	if (r)
		return r;
	job = cei_product_job(op, &op->product.all);
	for (i = 0; i < CEI_GEMM_C_MAX; i++)    /* as partial sums, unless columns are divided */
		job.c[i].columns = op->shape.product.n[i < op->shape.product.n_products ? i : 0];
	return cei_product_load(op, &job);
}

/* Makes the list of tiles for measuring the product alone, unless it was made before. The caller
 * holds the workspace's lock. */
static int list_alone(ceov_op *op, const struct cei_tile_list **ret_list)
{
	int r = 0;

	if (!op->product.alone.tiles.n_tiles) {
		r = make_tiles(op, 0, &op->product.alone.tiles);
		if (!r)
			r = hold(op, &op->product.alone);
		if (r)
			cei_tiles_fini(&op->product.alone.tiles);
	}
	if (!r)
		*ret_list = &op->product.alone;
	return r;
}

/* --- jobs ------------------------------------------------------------------ */

struct cei_matrix cei_product_matrix(const void *base, uint64_t rows, uint64_t columns)
{
	struct cei_matrix matrix = { rows ? base : NULL, rows, columns, 0 };

	return matrix;
}

struct cei_matrix cei_product_b(const struct cei_op_shape *shape, uint32_t i,
				const void *base)
{
	const struct cei_product_shape *product = &shape->product;

	return product->b_is_k_by_n ? cei_product_matrix(base, product->k, product->n[i])
				    : cei_product_matrix(base, product->n[i], product->k);
}

static int refuse_alone(const ceov_op *op, int r)
{
	const ceov_workspace *workspace = op->workspace;

	return cei_raise(cei_object_report(&op->object),
			 r == CEOV_PENDING ? CEOV_ERR_TIMEOUT : r, 0,
			 "%s: runs of workspace '%s' of rank %u %s; the product cannot be "
			 "measured", op->kind->name, workspace->name, workspace->rank,
			 r == CEOV_PENDING ? "are not done within their deadline"
			 : "have failed");
}

static int queue_alone(ceov_op *op, const void *operands)
{
	struct cei_run run = { .op = op, .operands = operands };
	struct cei_executor *executor = &op->workspace->executor;
	const struct cei_tile_list *list;
	struct cei_gemm_job job;
	int r = cei_run_take(&run, op->kind->run_call);

	if (!r)
		r = list_alone(op, &list);
	if (r)
		return r;
	job = op->kind->product->job(op, operands, cei_workspace_half(op->workspace, 0), list);
	return executor->ops->gemm(executor, run.stream, &job);
}

int cei_op_gemm_alone(ceov_op *op, const void *run)
{
	int r = cei_object_check(op, &cei_op_type, "cei_op_gemm_alone");

	if (r)
		return r;
	pthread_mutex_lock(&op->workspace->lock);
	r = cei_workspace_finish(op->workspace);
	if (r)
		r = refuse_alone(op, r);
	else if (op->kind->product)
		r = queue_alone(op, run);
	else
		r = cei_raise(cei_object_report(&op->object), CEOV_ERR_INVALID, 0,
			      "%s: has no product to measure", op->kind->name);
	pthread_mutex_unlock(&op->workspace->lock);
	return r;
}
