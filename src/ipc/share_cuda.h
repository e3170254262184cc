/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SHARE_CUDA_H
#define CEI_SHARE_CUDA_H

/* What share_cuda.c (creates and exports GPU memory) and reach_cuda.c (maps memory for members on
 * GPUs) have in common. */

#include "ipc/share.h"

static inline uint32_t cei_share_cuda_gpu(const struct cei_region *region,
					  uint32_t member)
{
	return region->site->members[member].place.index;
}

static inline uint32_t cei_share_cuda_rank(const struct cei_region *region,
					   uint32_t member)
{
	return region->site->members[member].rank;
}

/* Returns 1 if the memory was allocated by cuMemAlloc or cudaMalloc, which CUDA IPC and peer access
 * cover; 0 if it comes from a pool or the virtual memory calls; < 0: an error. A context must be
 * current. */
int  cei_share_cuda_is_legacy(struct cei_region *region);

/* reach_cuda.c: map and unmap of the table for GPUs. */
int  cei_share_cuda_map(struct cei_region *region, uint32_t member);
void cei_share_cuda_unmap(struct cei_region *region, uint32_t member);

#endif /* CEI_SHARE_CUDA_H */
