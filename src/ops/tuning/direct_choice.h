/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DIRECT_CHOICE_H
#define CEI_DIRECT_CHOICE_H

/* What is chosen for ops whose mode is direct, in which SMs move the bytes. Such a
 * mode was measured, or the caller sets it, or the model of the kind chooses it. */

#include <stdint.h>

#include "ops/tuning/candidates.h"
#include "ops/tuning/selector.h"

/* Returns why no shape of so many ranks has a direct mode, or NULL. */
const char *cei_direct_ranks_fault(const struct cei_op_shape *shape);

/* Returns the faster direct mode of an all-reduce in which each rank has n_bytes: CEOV_MODE_DIRECT,
 * which takes one step, or CEOV_MODE_TWO_SHOT, which takes two and sends fewer bytes. */
enum ceov_op_mode cei_direct_all_reduce_mode(uint64_t n_bytes, uint32_t n_ranks);

/* Returns whether a model may choose SMs for an op that only moves or adds up: its caller leaves
 * open who does, all ranks have kernels and SMs of their own, and links are as fast as those with
 * which such ops were measured. Pieces are said for copy engines, since direct modes have one.
 * Numbers of SMs have no part in it: without a mode they are each rank's own. */
int cei_direct_is_open(const struct cei_choose_args *args);

/* Completes a choice whose mode is direct, as struct cei_op_kind says of choose(). span_bytes: the
 * most that one rank sends to another one in a step; the same at all ranks. The caller's number
 * of SMs counts only beside its mode: it has to be the same at all ranks then, and need not be
 * without. */
void cei_direct_choose(const struct cei_choose_args *args, uint64_t span_bytes,
		       struct cei_choice *choice);

/* The same for sums, which are made in steps if they have many bytes and GPUs have the kernels. */
void cei_direct_choose_sum(const struct cei_choose_args *args, uint64_t span_bytes,
			   struct cei_choice *choice);

/* Decides, in a choice that one of these two has completed, whether bytes travel together with the
 * number of the run (kernels/direct_ll.h): few bytes in CEOV_MODE_DIRECT, unless they are added up
 * in steps. all_send: 1: each rank sends something to every other one. span_bytes: as above. */
void cei_direct_choose_ll(const struct cei_choose_args *args, int all_send, uint64_t span_bytes,
			  struct cei_choice *choice);

/* Returns how long a run takes in which a rank sends n_bytes to all others together by 16 SMs, or
 * by all if there are fewer, as the completed choice says. The rates are those of GPUs. */
double cei_direct_ns(const struct cei_choose_args *args, const struct cei_choice *choice,
		     uint64_t n_bytes);

/* Appends the line that says how many SMs make the transfers, and whether the caller gave the
 * number. */
void cei_direct_say_moved(struct cei_choice *choice, int is_given);

/* Appends the lines that explain such a choice. */
void cei_direct_explain(const struct cei_choose_args *args, struct cei_choice *choice);

/* Adds candidates of a direct mode, unless the kind refuses the shape in it, ranks are on several
 * nodes, or span_bytes is so large that copy engines should have the bytes, to leave SMs to other
 * kernels. */
void cei_direct_list(const struct cei_listing *listing, enum ceov_op_mode mode,
		     uint64_t span_bytes);

/* The same for sums, for which copy engines need SMs, too: up to 256 MiB of operands of a rank,
 * all_bytes, and with at most 16 SMs above 4 MiB. */
void cei_direct_list_sum(const struct cei_listing *listing, enum ceov_op_mode mode,
			 uint64_t span_bytes, uint64_t all_bytes);

#endif /* CEI_DIRECT_CHOICE_H */
