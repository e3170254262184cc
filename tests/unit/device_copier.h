/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DEVICE_COPIER_H
#define CEI_DEVICE_COPIER_H

/*
 * A test double of what copies between host memory and the memory of a GPU (net/far_copier.h). The
 * "GPU memory" is host memory under other addresses, at which whoever accesses them directly
 * crashes. A copy moves its bytes when it ends, which is after a random number of looks.
 */

#include "net/far_copier.h"

#define DEVICE_UNIT 3u                  /* the only unit that has memory */
#define DEVICE_BIT  (UINT64_C(1) << 60) /* of its addresses, and of no other of a process */

struct device_copier {
	uint64_t random;                /* state of random numbers */
	uint32_t looks_max;             /* a copy ends after 1 to so many looks */
	uint32_t fail_at;               /* this copy, counted from 1, breaks its line; 0: none */
	uint32_t refuse_at;             /* this copy cannot be begun; 0: none */
	uint32_t hide_at;               /* of bytes that landed directly, these, counted from 1,
					 * cannot be made visible; 0: none */
	int      is_hung;               /* no copy ends while this is set */
	int      fails_to_bind;
	uint32_t n_bound;               /* calls of bind */
	uint32_t n_landed;              /* pieces that landed directly */
	uint32_t n_copies;
	uint32_t n_under_way;
	uint32_t n_opened;              /* lines and memories that are open */
};

extern const struct cei_far_copier_ops device_copier_ops;      /* arg: struct device_copier */

/* The address of this memory on the "GPU". */
uint64_t device_address(const void *memory);

#endif /* CEI_DEVICE_COPIER_H */
