/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_NUMBERS_H
#define CEI_NUMBERS_H

/*
 * bf16 and fp16 as the host computes with them: widened to float, which holds each of
 * their values, and rounded back to the nearest, ties to even. What is too large
 * becomes infinite; a NaN stays one, quiet, with its sign and what fits of its bits.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#define CEI_NUMBER_BYTES 2u             /* of either */

/* n of them; `to` and `from` do not overlap. */
void cei_widen(enum ceov_dtype dtype, float *to, const void *from, uint64_t n);
void cei_narrow(enum ceov_dtype dtype, void *to, const float *from, uint64_t n);

#endif /* CEI_NUMBERS_H */
