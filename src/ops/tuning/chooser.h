/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHOOSER_H
#define CEI_CHOOSER_H

/*
 * Which way, tile shape and cut an op takes: by a cost model, or as a tuning on this
 * machine found. The model is pure and sees only what all ranks have in common but for
 * tile shapes, which no other rank notices: all ranks choose the same cut.
 */

#include <stddef.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/compute/tiles.h"
#include "ops/shape.h"

/* What a machine can do. */
struct cei_rates {
	uint32_t n_sms;                 /* 0: the host computes */
	uint32_t pair;                  /* tiles that go together, see tiles.h */
	int      has_tiles;             /* there are kernels for small tiles ... */
	int      has_library;           /* ... or a library for tiles of whole rows */
	double   math_flops_per_ns;     /* one SM's matrix units */
	double   load_bytes_per_ns;     /* operands into one SM */
	double   tile_ns;               /* besides: fill, drain, store of a tile */
	double   copy_bytes_per_ns;     /* to one peer at a time */
	double   mark_ns;               /* of a copy and its mark, besides its bytes */
};

/* Of one H200 behind NVSwitch. Marks are measured (docs/results/2026-11-21-4xh200.md,
 * pieces), copies are the default of links to peers (topology/link.h); the SMs' come from
 * the vendor's sheet, and only order the tile shapes. */
struct cei_rates cei_rates_gpu(void);

/* Takes what the machine tells of all ranks' GPUs, the same at each rank; 0: not known. */
void cei_rates_take(struct cei_rates *rates, uint64_t n_sms, uint64_t copy_bytes_per_s);

struct cei_rates cei_rates_host(void);

#define CEI_CHOICE_TEXT_BYTES 640u

struct cei_choice {
	enum ceov_op_way      way;      /* never CHOOSE */
	uint32_t              n_pieces;
	struct cei_tile_shape shape;    /* sums alone: 0 */
	uint32_t              n_reduce_blocks;
	double                gemm_ns;  /* as the model expects it */
	double                copy_ns;  /* likewise, of all copies of one rank */
	double                run_ns;   /* both together, played through; 0: not played */
	char                  text[CEI_CHOICE_TEXT_BYTES]; /* why; lines */
};

struct cei_choose_args {
	const struct cei_op_shape   *shape;
	const struct cei_rates      *rates;
	const struct ceov_op_tuning *told;      /* by the caller; zeros: nothing */
};

/* What tuning sets is taken, the rest is found by the model. tuning may be NULL; it
 * has passed cei_chooser_fault(). */
void cei_chooser_choose(const struct cei_op_shape *shape, const struct cei_rates *rates,
			const struct ceov_op_tuning *tuning,
			struct cei_choice *ret_choice);

/* What is wrong with a tuning of the caller's, or NULL. Which tiles can be executed the
 * executor knows. */
const char *cei_chooser_fault(const struct ceov_op_tuning *tuning);

/* The i-th of the small tiles to choose from, or 0 x 0: no more. */
struct cei_tile_shape cei_chooser_shape(const struct cei_rates *rates, uint32_t i);

/* --- for kinds --- */

/* Pieces of at least 4 MiB, of what moves to one rank; at least 1. */
uint32_t cei_chooser_pieces(const struct cei_op_shape *shape, uint32_t most);

/* How long all copies of the busiest rank take in a run. */
double cei_chooser_copy_ns(const struct cei_choose_args *args, uint32_t n_pieces);

/* Adds to the choice's text. */
void cei_choice_say(struct cei_choice *choice, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The lines of the way and of the cut, which are told by the caller or chosen. */
void cei_choice_say_way(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_choice_say_pieces(const struct cei_choose_args *args, struct cei_choice *choice);

/* "as told", or "by the model". */
const char *cei_choice_by(uint64_t is_told);

#endif /* CEI_CHOOSER_H */
