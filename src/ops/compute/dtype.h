/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DTYPE_H
#define CEI_DTYPE_H

/*
 * Conversions of numbers on the host: bf16 and fp16 are widened to float, which can hold
 * all of their values, and rounded to nearest, ties to even. Values that are too large
 * become infinite; a NaN becomes a quiet NaN with the same sign and as many of its bits as
 * fit. fp32 is float and is copied.
 */

#include <stdint.h>

#include <ceoverlap/ops.h>

#define CEI_DTYPE16_BYTES 2u            /* bytes of a bf16 or fp16, the types of products */

/* Returns the bytes of one number; 0: there is no such type. */
uint64_t cei_dtype_bytes(enum ceov_dtype dtype);

/* "bf16", "fp16", "int64", ...: a part of messages, of kernels' names and of tunings' keys. "?":
 * there is no such type. */
const char *cei_dtype_name(enum ceov_dtype dtype);

/* Convert n numbers of bf16, fp16 or fp32; `to` and `from` must not overlap. */
void cei_dtype_widen(enum ceov_dtype dtype, float *to, const void *from, uint64_t n);
void cei_dtype_narrow(enum ceov_dtype dtype, void *to, const float *from, uint64_t n);

#endif /* CEI_DTYPE_H */
