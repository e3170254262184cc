/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Predicts times of ops, and chooses by them. */

#include "ops/tuning/selector.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/sized.h"
#include "ops/compute/dtype.h"
#include "ops/kind.h"
#include "topology/link.h"

/* The smallest piece that is worth its mark, which costs about as much time as a small copy
 * (docs/results/4xh200.md, "Pieces"). */
#define PIECE_BYTES_MIN (UINT64_C(4) << 20)

#define REDUCE_BLOCKS_MAX 128u

/* What a mark adds to the t0 of a copy: the runs of products on eight H200 that begin together gave
 * 4200 ns for both, beside ALL_AT_ONCE, and the longest t0 was measured as 2.8 us
 * (docs/results/8xh200.md). */
#define MARK_NS 1400.0

/* What is left of a link's rate when all GPUs send and receive. Of two it is all (docs/results,
 * "What the links carry" of 2026-11-21, and the collectives of eight H200 of 2026-11-26). */
#define ALL_AT_ONCE 0.93

/* An explanation lists the sizes of so many pieces; of more, it says the first and last ones. */
#define LISTED_PIECES 8u

/* A page: smaller chunks would be many. */
#define CHUNK_BYTES_MIN 4096u

/* The tile shapes of our own kernels. The list ends with 0 x 0. */
static const struct cei_tile_shape gpu_shapes[] = {
	{ 128, 256 }, { 128, 192 }, { 128, 128 }, { 0, 0 }
};
static const struct cei_tile_shape host_shapes[] = { { 32, 32 }, { 64, 64 }, { 0, 0 } };

struct cei_rates cei_rates_gpu(void)
{
	/* math_flops_per_ns is H200's data sheet's 989 TFLOP/s divided by 132 SMs;
	 * load_bytes_per_ns is 64 bytes a clock from the L2 cache into an SM. tile_ns is an
	 * estimate: the latency of a few steps, and the store. gate_ns is by how much copies that
	 * wait for tiles ended later than others. A gate that is open takes 1.5 us; the rest is
	 * that tiles end later than this model predicts. It and mark_ns are from runs of products
	 * on eight H200, with 2048 to 8192 rows (docs/results/8xh200.md). */
	struct cei_rates rates = {
		.n_sms = 132, .pair = 2, .has_tiles = 1, .all_have_kernels = 1,
		.has_packets = 1,
		.math_flops_per_ns = 7490, .load_bytes_per_ns = 110, .tile_ns = 1000,
		.mark_ns = 4200, .gate_ns = 5000,
	};

	cei_rates_take(&rates, 0, cei_link_default(CEI_DIRECTION_PEER)->bytes_per_s, 0);
	return rates;
}

void cei_rates_take(struct cei_rates *rates, uint64_t n_sms, uint64_t copy_bytes_per_s,
		    uint64_t copy_t0_ns)
{
	if (n_sms)
		rates->n_sms = n_sms < UINT32_MAX ? (uint32_t)n_sms : UINT32_MAX;
	if (copy_bytes_per_s)
		rates->copy_bytes_per_ns = (double)copy_bytes_per_s * 1e-9;
	if (copy_t0_ns)
		rates->mark_ns = (double)copy_t0_ns + MARK_NS;
}

struct cei_rates cei_rates_host(void)
{
	/* These rates mean nothing: the host computes only for tests, where speed does not
	 * matter. */
	struct cei_rates rates = {
		.pair = 1, .has_tiles = 1, .math_flops_per_ns = 1, .load_bytes_per_ns = 1,
		.copy_bytes_per_ns = 1, .mark_ns = 1000,
	};

	return rates;
}

double cei_rates_all_send(const struct cei_rates *rates, uint32_t n_ranks)
{
	return rates->copy_bytes_per_ns * (n_ranks > 2 ? ALL_AT_ONCE : 1);
}

struct cei_tile_shape cei_selector_shape(const struct cei_rates *rates, uint32_t i)
{
	const struct cei_tile_shape *shapes = rates->n_sms ? gpu_shapes : host_shapes;
	uint32_t at = 0;

	while (at < i && shapes[at].rows)
		at++;
	return shapes[at];
}

int cei_selector_lists(const struct cei_rates *rates, struct cei_tile_shape shape)
{
	struct cei_tile_shape own;
	uint32_t i;

	for (i = 0; own = cei_selector_shape(rates, i), own.rows; i++)
		if (own.rows == shape.rows && own.columns == shape.columns)
			return 1;
	return 0;
}

int cei_selector_has_kernel(const struct cei_rates *rates, struct cei_tile_shape shape)
{
	if (!rates->n_sms)
		return 1;               /* the host computes tiles of any shape */
	return rates->has_tiles && cei_selector_lists(rates, shape);
}

/* --- the caller's tuning --------------------------------------------------- */

static const char *cut_fault(const struct ceov_op_tuning *tuning)
{
	if (tuning->chunk_bytes && tuning->chunk_bytes < CHUNK_BYTES_MIN)
		return "tuning->chunk_bytes is neither 0 nor 4096 or more";
	if ((unsigned)tuning->cut > CEOV_CUT_COLUMNS)
		return "tuning->cut is none of enum ceov_op_cut";
	return NULL;
}

static const char *order_fault(const struct ceov_op_tuning *tuning)
{
	if ((unsigned)tuning->tile_order > CEOV_ORDER_TURNS)
		return "tuning->tile_order is none of enum ceov_op_order";
	if (tuning->tile_order == CEOV_ORDER_COLUMNS && tuning->band_rows)
		return "tuning: CEOV_ORDER_COLUMNS has no bands, so band_rows must be 0";
	if (tuning->n_gemm_blocks == 1)
		return "tuning->n_gemm_blocks is 1, but products run on pairs of SMs";
	return NULL;
}

const char *cei_selector_fault(const struct ceov_op_tuning *from)
{
	struct ceov_op_tuning taken;
	const struct ceov_op_tuning *tuning = &taken;
	const char *fault;

	if (!from)
		return NULL;
	if (cei_sized_fault(from, offsetof(struct ceov_op_tuning, chunk_bytes), sizeof(taken)))
		return "tuning: its struct_bytes is not the size of struct ceov_op_tuning, or "
			"it sets fields that this library does not know";
	cei_sized_take(&taken, from, sizeof(taken));
	if ((unsigned)tuning->mode > CEOV_MODE_TWO_SHOT)
		return "tuning->mode is none of enum ceov_op_mode";
	if (tuning->n_pieces > CEI_OP_PIECES_MAX)
		return "tuning->n_pieces is above 32";
	if (tuning->mode == CEOV_MODE_SEQUENCE && tuning->n_pieces > 1)
		return "tuning: a sequence has one piece";
	if (tuning->n_reduce_blocks > REDUCE_BLOCKS_MAX)
		return "tuning->n_reduce_blocks is above 128";
	if (!tuning->tile_rows != !tuning->tile_columns)
		return "tuning: one of tile_rows and tile_columns is 0, the other is not";
	fault = cut_fault(tuning);
	return fault ? fault : order_fault(tuning);
}

int cei_selector_is_direct(enum ceov_op_mode mode)
{
	return mode == CEOV_MODE_DIRECT || mode == CEOV_MODE_TWO_SHOT;
}

/* --- the model ------------------------------------------------------------- */

uint32_t cei_selector_pieces(const struct cei_op_shape *shape, uint32_t most)
{
	uint64_t n = cei_op_most_rows(shape) * shape->kind->row_bytes(shape) / PIECE_BYTES_MIN;

	if (n > most)
		n = most;
	return n ? (uint32_t)n : 1;
}

double cei_selector_copy_ns(const struct cei_choose_args *args, uint32_t n_pieces)
{
	const struct cei_op_shape *shape = args->shape;
	uint64_t most_bytes = cei_op_most_rows(shape) * shape->kind->row_bytes(shape);

	return (double)shape->kind->n_stages * (double)(shape->n_ranks - 1) *
		((double)most_bytes / args->rates->copy_bytes_per_ns +
		 n_pieces * args->rates->mark_ns);
}

struct ceov_op_tuning cei_choice_tuning(const struct cei_choice *choice)
{
	struct ceov_op_tuning tuning = { .struct_bytes = sizeof(tuning) };

	tuning.mode = choice->mode;
	tuning.n_pieces = choice->n_pieces;
	tuning.tile_rows = choice->shape.rows;
	tuning.tile_columns = choice->shape.columns;
	tuning.n_reduce_blocks = choice->n_reduce_blocks;
	tuning.chunk_bytes = choice->chunk_bytes;
	tuning.cut = choice->cut.kind;
	tuning.tile_order = choice->order;
	tuning.band_rows = choice->band_rows;
	tuning.n_gemm_blocks = choice->n_gemm_blocks;
	return tuning;
}

/* --- explanations ---------------------------------------------------------- */

void cei_choice_say(struct cei_choice *choice, const char *format, ...)
{
	size_t at = strlen(choice->text);
	va_list args;

	va_start(args, format);
	vsnprintf(choice->text + at, sizeof(choice->text) - at, format, args);
	va_end(args);
}

const char *cei_choice_by(uint64_t is_given)
{
	return is_given ? "as given" : "by the model";
}

static const char *name_of(enum ceov_op_mode mode)
{
	switch (mode) {
	case CEOV_MODE_SEQUENCE: return "sequence";
	case CEOV_MODE_DIRECT:   return "direct";
	case CEOV_MODE_TWO_SHOT: return "direct, two-shot";
	case CEOV_MODE_CHOOSE:
	case CEOV_MODE_OVERLAP:  break;
	}
	return "overlap";
}

void cei_choice_say_mode(const struct cei_choose_args *args, struct cei_choice *choice)
{
	cei_choice_say(choice, "mode: %s (%s)\n", name_of(choice->mode),
		       cei_choice_by(args->given->mode));
}

/* Returns a piece of the rank that has most rows. */
static struct cei_cut_piece piece_of(const struct cei_choose_args *args,
				 const struct cei_choice *choice, uint32_t piece)
{
	return cei_piece_of(&choice->cut, cei_op_most_rows(args->shape), args->shape->product.n[0],
			    choice->n_pieces, piece);
}

void cei_choice_say_pieces(const struct cei_choose_args *args, struct cei_choice *choice)
{
	const struct cei_op_shape *shape = args->shape;
	uint64_t bytes = cei_op_most_rows(shape) * shape->kind->row_bytes(shape);
	uint64_t most = cei_ceiling(bytes, choice->n_pieces);

	if (choice->cut.kind == CEOV_CUT_COLUMNS)       /* the first pieces are the widest */
		most = cei_op_most_rows(shape) * CEI_DTYPE16_BYTES *
			piece_of(args, choice, 0).n_columns;
	else if (choice->cut.kind != CEOV_CUT_EQUAL)
		most = cei_cut_most_rows(&choice->cut, cei_op_most_rows(shape), choice->n_pieces) *
			shape->kind->row_bytes(shape);
	cei_choice_say(choice, "pieces: %u of at most %llu bytes (%s)\n", choice->n_pieces,
		       (unsigned long long)most, cei_choice_by(args->given->n_pieces));
}

static const char *cut_name(enum ceov_op_cut cut)
{
	switch (cut) {
	case CEOV_CUT_WAVES:     return "waves";
	case CEOV_CUT_SHRINKING: return "shrinking";
	case CEOV_CUT_GROWING:   return "growing";
	case CEOV_CUT_COLUMNS:   return "columns";
	case CEOV_CUT_CHOOSE:
	case CEOV_CUT_EQUAL:     break;
	}
	return "equal";
}

void cei_choice_say_cut(const struct cei_choose_args *args, struct cei_choice *choice)
{
	int by_columns = choice->cut.kind == CEOV_CUT_COLUMNS;
	uint32_t i, n = choice->n_pieces;
	struct cei_cut_piece of;

	if (n == 1 || choice->cut.kind == CEOV_CUT_EQUAL)
		return;
	cei_choice_say(choice, "cut: %s (%s), %s", cut_name(choice->cut.kind),
		       cei_choice_by(args->given->cut), by_columns ? "all rows, columns" : "rows");
	for (i = 0; i < n; i++) {
		of = piece_of(args, choice, i);
		if (n <= LISTED_PIECES || i < 2 || i == n - 1)
			cei_choice_say(choice, " %llu", (unsigned long long)
				       (by_columns ? of.n_columns : of.n_rows));
		else if (i == 2)
			cei_choice_say(choice, " ...");
	}
	cei_choice_say(choice, "\n");
}

static void explain(const struct cei_choose_args *args, struct cei_choice *choice)
{
	args->shape->kind->explain(args, choice);
	if (cei_selector_is_direct(choice->mode) && choice->run_ns <= 0 &&
	    !cei_kind_has_sm_lane(args->shape, choice->mode))
		return;                 /* the model says nothing of it */
	if (!args->rates->n_sms) {
		cei_choice_say(choice, "expected: nothing, the host computes\n");
		return;
	}
	cei_choice_say(choice, "expected: product %.1f us, copies %.1f us",
		       choice->gemm_ns / 1e3, choice->copy_ns / 1e3);
	if (choice->run_ns > 0 && choice->mode != CEOV_MODE_SEQUENCE)
		cei_choice_say(choice, ", together %.1f us", choice->run_ns / 1e3);
	cei_choice_say(choice, "\n");
}

/* --- the choice ------------------------------------------------------------ */

void cei_selector_choose(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *tuning,
			 struct cei_choice *ret_choice)
{
	static const struct ceov_op_tuning open = { .struct_bytes = sizeof(open) };
	struct cei_choose_args args = { shape, rates, tuning ? tuning : &open };
	struct cei_choice choice;

	memset(&choice, 0, sizeof(choice));
	choice.n_pieces = args.given->n_pieces ? args.given->n_pieces
		: shape->kind->pieces(shape);
	choice.mode = args.given->mode;
	choice.cut.kind = CEOV_CUT_EQUAL;
	choice.chunk_bytes = args.given->chunk_bytes;
	shape->kind->choose(&args, &choice);
	if (choice.mode == CEOV_MODE_CHOOSE)
		choice.mode = CEOV_MODE_OVERLAP;
	explain(&args, &choice);
	*ret_choice = choice;
}
