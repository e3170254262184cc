/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILL_H
#define CEI_FILL_H

/* The parameters of the kernel cei_fill, for host code and device code. */

#include <stdint.h>

/* What to fill memory with: numbers for operands of operators. They are in (-1, 1), bell-shaped
 * about 0, and never NaN; number i is made from a hash of seed + first + i. The bf16 and fp16 kinds
 * cut the number to the bits of their type. CEI_FILL_FP32 makes other numbers, which use all bits,
 * so that sums and narrower types must round them. */
enum cei_fill_kind {
	CEI_FILL_BF16,                          /* p is bf16 */
	CEI_FILL_FLOAT,                         /* p is float; stores the numbers of BF16 */
	CEI_FILL_ADD,                           /* p is float; adds the numbers of BF16 to it */
	CEI_FILL_FP16,                          /* p is fp16 */
	CEI_FILL_FP32                           /* p is float; see above */
};

/* Parameters of the kernel cei_fill, which runs on any grid. */
struct cei_fill {
	void    *p;
	uint64_t n;                             /* how many numbers */
	uint64_t seed;
	uint64_t first;
	uint32_t kind;                          /* enum cei_fill_kind */
};

#endif /* CEI_FILL_H */
