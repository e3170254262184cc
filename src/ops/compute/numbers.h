/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NUMBERS_H
#define CEI_NUMBERS_H

/*
 * Numbers as the host computes with them: bf16 and fp16 are widened to float, which holds
 * each of their values, and rounded back to the nearest, ties to even. What is too large
 * becomes infinite; a NaN stays one, quiet, with its sign and what fits of its bits. fp32
 * is float: its bits stay as they are.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#define CEI_NUMBER_BYTES 2u             /* of bf16 and fp16, which products take */

/* One number's; dtype is one of the enum. */
uint64_t cei_number_bytes(enum ceov_dtype dtype);

/* "bf16", "fp16" or "fp32": a part of kernels' names and of tunings' keys. */
const char *cei_number_name(enum ceov_dtype dtype);

/* n of them; `to` and `from` do not overlap. */
void cei_widen(enum ceov_dtype dtype, float *to, const void *from, uint64_t n);
void cei_narrow(enum ceov_dtype dtype, void *to, const float *from, uint64_t n);

#endif /* CEI_NUMBERS_H */
