/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SELECTOR_H
#define CEI_SELECTOR_H

/*
 * Chooses mode, tile shape and number of pieces of an op, by a cost model, or as a stored tuning of
 * this machine says. Except for tile shapes, which other ranks do not notice, the model uses only
 * facts that all ranks share, so all ranks choose the same number of pieces.
 */

#include <stddef.h>
#include <stdint.h>

#include <ceoverlap/ops.h>

#include "ops/compute/tiles.h"
#include "ops/shape.h"

/* The speed of a machine. */
struct cei_rates {
	uint32_t n_sms;                 /* SMs of a GPU; 0: the host computes */
	uint32_t pair;                  /* how many tiles are executed together (tiles.h) */
	int      has_tiles;             /* 1: there are kernels that compute small tiles */
	int      has_library;           /* 1: cuBLAS can compute tiles of whole rows */
	int      has_direct;            /* 1: all ranks are on one node, and reach each other's
					 * memory */
	int      all_have_kernels;      /* 1: the GPUs of all ranks have the library's kernels, as
					 * has_tiles says of this rank's */
	int      has_lanes;             /* 1: has_direct, and all ranks have kernels, and SMs of
					 * their own: so the model may choose SMs in place of copy
					 * engines */
	int      has_packets;           /* 1: between all ranks, stores of 16 bytes arrive whole, as
					 * over NVLink. A bus may divide them: PCIe promises 8
					 * bytes at most */
	double   math_flops_per_ns;     /* one SM's matrix units */
	double   load_bytes_per_ns;     /* rate of loading operands into one SM */
	double   tile_ns;               /* time of a tile beyond loads and products: fill, drain,
					 * store */
	double   copy_bytes_per_ns;     /* rate of copies to one peer at a time */
	double   mark_ns;               /* time that a copy of no bytes and its mark take */
	double   gate_ns;               /* time that a copy takes longer if it awaits a mark of its
					 * own rank's kernel */
};

/* Returns the rates of one H200 behind NVSwitch. mark_ns and gate_ns were measured, the rate of
 * copies is the default of links between GPUs (topology/link.h). The rates of SMs are from the data
 * sheet, and serve only to compare tile shapes. */
struct cei_rates cei_rates_gpu(void);

/* Sets the rates on which all ranks agreed about their GPUs. A value of 0 is not known and leaves
 * the rate as it is. copy_t0_ns, of measured links, is the time of a copy beyond that of its bytes,
 * without a mark; mark_ns becomes so much, and what a mark adds on H200. */
void cei_rates_take(struct cei_rates *rates, uint64_t n_sms, uint64_t copy_bytes_per_s,
		    uint64_t copy_t0_ns);

struct cei_rates cei_rates_host(void);

/* Returns the rate, in bytes per ns, at which each of n_ranks ranks copies while all of them do. */
double cei_rates_all_send(const struct cei_rates *rates, uint32_t n_ranks);

#define CEI_CHOICE_TEXT_BYTES 768u

struct cei_choice {
	enum ceov_op_mode     mode;     /* never CEOV_MODE_CHOOSE */
	uint32_t              n_pieces;
	struct cei_row_cut    cut;      /* equal pieces, unless there is a product */
	struct cei_tile_shape shape;    /* 0 x 0 for sums and moves */
	uint32_t              n_reduce_blocks;
	uint32_t              direct_each;      /* for direct modes: see struct cei_direct */
	uint32_t              direct_ll;        /* 1: each 8 bytes travel with the number of the
						 * run (kernels/direct_ll.h) */
	uint32_t              direct_steps;     /* of a sum in steps; 0: it is made in one */
	uint32_t              direct_step_rows; /* as step_rows of struct cei_direct */
	uint64_t              chunk_bytes;      /* the largest chunk of copies; 0: the context's */
	enum ceov_op_order    order;    /* for products; never CEOV_ORDER_CHOOSE */
	uint32_t              band_rows;        /* the next two as in struct ceov_op_tuning */
	uint32_t              n_gemm_blocks;
	double                gemm_ns;  /* predicted time of the product */
	double                copy_ns;  /* predicted time of all copies of one rank */
	double                run_ns;   /* predicted time of the run by simulation; 0: it was
					 * not simulated */
	char                  text[CEI_CHOICE_TEXT_BYTES]; /* the explanation, in lines */
};

struct cei_choose_args {
	const struct cei_op_shape   *shape;
	const struct cei_rates      *rates;
	const struct ceov_op_tuning *given;     /* the caller's tuning; a field of 0 was left
						 * open */
};

/* Keeps the fields that tuning sets, and finds all others by the model. tuning may be NULL; it has
 * its full size (cei_sized_take()), and cei_selector_fault() must have accepted it. */
void cei_selector_choose(const struct cei_op_shape *shape, const struct cei_rates *rates,
			 const struct ceov_op_tuning *tuning,
			 struct cei_choice *ret_choice);

/* Returns the tuning that asks for all that was chosen. */
struct ceov_op_tuning cei_choice_tuning(const struct cei_choice *choice);

/* Returns what is wrong with a caller's tuning, which may be of an older size, or NULL. It does not
 * check whether there is a kernel for the tile shape, because only the executor knows. */
const char *cei_selector_fault(const struct ceov_op_tuning *from);

/* Returns the i-th of the tile shapes of our own kernels; 0 x 0: there are no more. */
struct cei_tile_shape cei_selector_shape(const struct cei_rates *rates, uint32_t i);

/* Returns whether it is one of these shapes. */
int cei_selector_lists(const struct cei_rates *rates, struct cei_tile_shape shape);

/* Returns whether our own kernels compute tiles of that shape. */
int cei_selector_has_kernel(const struct cei_rates *rates, struct cei_tile_shape shape);

/* Returns whether kernels move the bytes in this mode, and not copy engines. */
int cei_selector_is_direct(enum ceov_op_mode mode);

/* --- for kinds of operators --- */

/* Returns into how many pieces of at least 4 MiB the rows of the rank with most rows can be cut: at
 * least 1, at most `most`. */
uint32_t cei_selector_pieces(const struct cei_op_shape *shape, uint32_t most);

/* Returns how long the copies of a run take at the rank that copies most. */
double cei_selector_copy_ns(const struct cei_choose_args *args, uint32_t n_pieces);

/* Appends a line to the text that explains the choice. */
void cei_choice_say(struct cei_choice *choice, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* Append the lines that say which mode and which number of pieces were chosen, and whether the
 * caller set them. */
void cei_choice_say_mode(const struct cei_choose_args *args, struct cei_choice *choice);
void cei_choice_say_pieces(const struct cei_choose_args *args, struct cei_choice *choice);

/* Appends a line with the rows of the pieces of the rank that has most rows, or with the columns of
 * pieces, if there are several pieces that are not cut equally. */
void cei_choice_say_cut(const struct cei_choose_args *args, struct cei_choice *choice);

/* Returns "as given" if the caller or a stored tuning set the value, else "by the model". */
const char *cei_choice_by(uint64_t is_given);

#endif /* CEI_SELECTOR_H */
