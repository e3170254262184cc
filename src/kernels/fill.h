/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILL_H
#define CEI_FILL_H

/* What the kernel cei_fill takes: for the host that launches it and the device code. */

#include <stdint.h>

/* Operands of operators: bf16 values in (-1, 1), bell-shaped about 0, number i a hash
 * of seed + first + i; none is a NaN. As fp16 they keep the bits that fp16 has; as fp32
 * they have other bits in all places, so that sums and other types round them. */
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
