/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SHARE_H
#define CEI_SHARE_H

/*
 * Regions: memory of one rank, made addressable for this process's members. This layer
 * moves no bytes. A region is created (memory allocated here), adopted (memory of the
 * application) or imported (memory of a peer), and then mapped for each member.
 *
 *              host member             GPU member
 *   host       its host address        registered with the driver, device address
 *   GPU        0 (not reachable)       local, peer access, or an IPC mapping
 *
 * There are two tables of functions, for host and GPU. create, adopt, export, import and
 * release are called in the table for the memory's kind of place, map and unmap in that for
 * the member's. All calls come from application threads at set-up; the caller serialises
 * calls on one region.
 */

#include <stdint.h>

#include "base/site.h"

#define CEI_SHARE_HANDLE_BYTES 64u      /* sizeof(CUipcMemHandle), checked there */
#define CEI_SHARE_UUID_BYTES   16u

enum cei_region_origin {
	CEI_REGION_CREATED = 1,
	CEI_REGION_ADOPTED,
	CEI_REGION_IMPORTED,
};

struct cei_region {
	struct cei_site       *site;
	enum cei_region_origin origin;
	enum ceov_place_kind   kind;            /* of the memory */
	uint32_t               gpu;             /* GPU memory: ordinal here; CEOV_NOBODY
						 * where the GPU is not visible here */
	uint64_t               size_bytes;      /* of the part that is exported */
	void                  *host;            /* host memory: where it is mapped here */
	int                    fd;              /* host memory: its memfd, or -1 */
	uint32_t               n_host_users;    /* GPU members that use the driver's registration
						 * of this host memory */
	int                    is_pinned;       /* host memory: it is in reach_cuda.c's list of
						 * pinned ranges */
	uint64_t               device;          /* address of GPU memory that belongs to this
						 * process, even if it was imported; else 0 */
	int                    is_open;         /* GPU memory of this process: peer access is
						 * enough for other GPUs here */
	uint64_t               buffer_id;       /* driver's id of the allocation, or memfd inode */
	uint64_t               file_device;     /* imported host memory: the device of that
						 * inode */
	uint64_t               instance[2];     /* of the process that owns the memory */
	uint64_t               offset_bytes;    /* from the exported allocation's base */
	uint8_t                handle[CEI_SHARE_HANDLE_BYTES];
	uint8_t                uuid[CEI_SHARE_UUID_BYTES];
	uint64_t               mapped_base[CEI_MEMBERS_MAX]; /* base of the mapping that unmap
							      * closes; 0: none */
	uint64_t               address[CEI_MEMBERS_MAX];     /* of byte 0 for member m's
							      * backend and kernels; 0:
							      * not reachable */
};

/* The description that is sent to a peer, encoded by wire.c; descriptors travel beside it. */
struct cei_region_wire {
	uint32_t kind;                  /* enum ceov_place_kind */
	uint32_t has_fd;                /* 0 or 1 */
	uint64_t size_bytes;
	uint64_t offset_bytes;
	uint64_t device;                /* the owner's own address, for a finder in
					 * the owner's process */
	uint64_t buffer_id;
	uint64_t instance[2];
	uint64_t pid;                   /* of GPU memory: names the process across pid
					 * namespaces too, see share_cuda.c */
	uint8_t  handle[CEI_SHARE_HANDLE_BYTES];
	uint8_t  uuid[CEI_SHARE_UUID_BYTES];
};

struct cei_share_ops {
	/* Each fills a zeroed region whose site is set. member: index in the site.
	 * On failure the region accepts release(). */
	int  (*create)(struct cei_region *region, uint32_t member, uint64_t size_bytes);
	/* Makes a region of the application's memory. CEOV_NONE, region untouched: it is not
	 * memory of this kind. */
	int  (*adopt)(struct cei_region *region, uint32_t member, void *base,
		      uint64_t size_bytes);
	/* Describes the region for peers. *ret_fd: a descriptor to send along, owned by the
	 * region, or -1. CEOV_ERR_INVALID, raised with the reason: the memory cannot be
	 * shared. */
	int  (*export)(struct cei_region *region, struct cei_region_wire *ret_wire,
		       int *ret_fd);
	/* Makes a region of an export. Takes ownership of fd, also on failure. */
	int  (*import)(struct cei_region *region, const struct cei_region_wire *wire,
		       int fd);
	/* Returns whether a new export, which has the same description as this imported
	 * region, is the same memory: a peer could send a copied description. Does not keep
	 * fd. */
	int  (*is_same)(const struct cei_region *region, int fd);
	/* Unmap every member first. Frees what create allocated. NULL-safe on a
	 * zeroed region. */
	void (*release)(struct cei_region *region);
	/* CEOV_ERR_STALE: the memory of an adopted region is no longer the allocation that
	 * was registered. */
	int  (*check)(struct cei_region *region);

	/* Sets region->address[member], or leaves it 0 if that member cannot reach the
	 * memory. May be repeated. */
	int  (*map)(struct cei_region *region, uint32_t member);
	void (*unmap)(struct cei_region *region, uint32_t member);
};

extern const struct cei_share_ops cei_share_host;       /* share_host.c */
extern const struct cei_share_ops cei_share_cuda;       /* share_cuda.c, with CUDA */

/* NULL: this build has no support for that kind. */
const struct cei_share_ops *cei_share_for(enum ceov_place_kind kind);

/* Maps for, and unmaps from, every member of the site. */
int  cei_region_map_all(struct cei_region *region);
void cei_region_unmap_all(struct cei_region *region);

/* Unmaps and releases the region, and zeroes it. */
void cei_region_fini(struct cei_region *region);

#endif /* CEI_SHARE_H */
