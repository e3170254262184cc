/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BUFFER_H
#define CEI_BUFFER_H

/* A registered, created, floating or found piece of memory: a handle on a region. */

#include <stdint.h>

#include "ce_engine/objects/object.h"
#include "ipc/peers/peers.h"
#include "ipc/share.h"

extern const struct cei_object_type cei_buffer_type;

struct ceov_buffer {
	struct cei_object   object;
	uint32_t            rank;       /* whose memory it is */
	struct cei_region  *region;     /* own, the original's, in the mappings cache, or that
					 * of `far` */
	struct cei_region   own;
	struct cei_far     *far;        /* found at another node; else NULL */
	struct ceov_buffer *original;   /* found in this process: who owns the region */
	int                 is_floating;/* own has place and size, and no address: that
					 * comes with each launch */
	uint32_t            export_id;  /* 0: not shared */
	uint64_t            found_use;  /* of the owner's export, where found at a process of this
					 * node; else 0 */
	struct cei_shared_name name;
};

/* ceov_buffer_find() without its checks, by the lookup's deadline. */
int  cei_buffer_find(ceov_context *context, const struct cei_lookup *lookup,
		     ceov_buffer **ret_buffer);

/* Makes a buffer of a rank's memory that came as a description with a descriptor, which it takes
 * in any case. Memory that the context has mapped already is not mapped again. Raises. */
int  cei_buffer_import(ceov_context *context, uint32_t rank, const struct cei_region_wire *wire,
		       int fd, ceov_buffer **ret_buffer);

/* Allocates host memory, also for a rank on a GPU, which reaches it at cei_buffer_address(). In all
 * else as ceov_buffer_create(). */
int  cei_buffer_create_on_host(ceov_context *context, uint32_t rank, uint64_t size_bytes,
			       ceov_buffer **ret_buffer);

/* Returns the address at which a rank of this process, or a kernel on its GPU, reaches the buffer's
 * first byte; NULL: it does not. ceov_buffer_base() returns where the host reaches host memory. */
void *cei_buffer_address(const ceov_buffer *buffer, uint32_t rank);

/* Ends the buffer at ceov_close(). */
void cei_buffer_destroy(struct ceov_buffer *buffer);

#endif /* CEI_BUFFER_H */
