/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SHARE_CUDA_H
#define CEI_SHARE_CUDA_H

/* Functions that share_cuda.c (creates and exports GPU memory) and reach_cuda.c (maps memory for
 * GPU members) have in common. */

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

/* 1: allocated by cuMemAlloc or cudaMalloc, which CUDA IPC and peer access cover. 0: from a
 * pool or the virtual memory calls. < 0: an error. A context is pushed. */
int  cei_share_cuda_is_legacy(struct cei_region *region);

/* reach_cuda.c: the table's map and unmap. */
int  cei_share_cuda_map(struct cei_region *region, uint32_t member);
void cei_share_cuda_unmap(struct cei_region *region, uint32_t member);

#endif /* CEI_SHARE_CUDA_H */
