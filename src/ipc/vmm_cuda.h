/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_VMM_CUDA_H
#define CEI_VMM_CUDA_H

/*
 * GPU memory that other processes get as a file descriptor, made by the driver's virtual memory
 * management calls. Unlike memory of cuMemAlloc, which CUDA IPC shares, it stays valid while
 * anybody maps it, and whoever passes descriptors on can pass it on, between containers, too.
 *
 * The memory has one address in a process; each GPU of the process is given access by itself.
 * Calls come from the tables for GPUs, with the context of a GPU current.
 */

#include "ipc/share.h"

/* Whether the driver and the GPU can do this. */
int  cei_vmm_is_supported(const struct cei_site *site, uint32_t gpu);

/* Allocates region->size_bytes, at least, in region->gpu, and exports it: sets device, vmm_bytes,
 * fd and handle. Raises; then cei_vmm_release() undoes what was done. rank: to blame. */
int  cei_vmm_create(struct cei_region *region, uint32_t rank);

/* Maps the memory of a descriptor, which has to be size_bytes, at least, of region->gpu: sets
 * device and vmm_bytes. The descriptor stays the caller's. Raises; likewise. */
int  cei_vmm_import(struct cei_region *region, int fd);

/* Gives the GPU access, which must be able to access region->gpu. Raises. */
int  cei_vmm_give_access(const struct cei_region *region, uint32_t gpu, uint32_t rank);

/* Unmaps the memory, if it is mapped, and closes region->fd. Nothing may access it any more. Where
 * it is not mapped, no driver is needed. */
void cei_vmm_release(struct cei_region *region);

#endif /* CEI_VMM_CUDA_H */
