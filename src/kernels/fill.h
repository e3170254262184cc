/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILL_H
#define CEI_FILL_H

/* The parameters of the kernel cei_fill, for the host that launches it and the device code. */

#include <stdint.h>

/* Values for operands of operators: in (-1, 1), bell-shaped about 0, never NaN; value i is
 * made from a hash of seed + first + i. bf16 and fp16 values keep the bits that the type
 * has room for. fp32 values are others, with bits in all places, so that sums and narrower
 * types round them. */
enum cei_fill_kind {
	CEI_FILL_BF16,                          /* p is bf16 */
	CEI_FILL_FLOAT,                         /* p is float: the same values, stored ... */
	CEI_FILL_ADD,                           /* ... or added to what is there */
	CEI_FILL_FP16,                          /* p is fp16 */
	CEI_FILL_FP32                           /* p is float */
};

/* Taken by the kernel cei_fill, on any grid. */
struct cei_fill {
	void    *p;
	uint64_t n;                             /* values */
	uint64_t seed;
	uint64_t first;
	uint32_t kind;                          /* enum cei_fill_kind */
};

#endif /* CEI_FILL_H */
