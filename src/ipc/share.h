/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SHARE_H
#define CEI_SHARE_H

/*
 * A region is memory of one rank that is made addressable for the members of this process. It is
 * created (this process allocates the memory), adopted (the application did) or imported (it
 * belongs to a peer), and then mapped for each member. No bytes are moved here. The address that a
 * member gets:
 *
 *   memory on   for a member on the host   for a member on a GPU
 *   host        its host address           its device address, after registration with the driver
 *   GPU         0 (not reachable)          its address, by peer access, a CUDA IPC mapping, or a
 *                                          mapping of a descriptor
 *
 * There are two tables of functions, for host and GPU. create, adopt, export, import and release
 * are called in the table of the memory's kind of place, map and unmap in the table of the member's
 * kind of place. All calls come from application threads at set-up; the caller serialises calls on
 * one region.
 */

#include <pthread.h>
#include <stdint.h>

#include "base/cuda_driver.h"
#include "base/list.h"
#include "base/site.h"

#define CEI_SHARE_HANDLE_BYTES 64u      /* sizeof(CUipcMemHandle), checked there */

struct cei_layout;                      /* base/codec.h */

enum cei_region_origin {
	CEI_REGION_NONE,                /* it has no memory: it was not made, or each launch of a
					 * plan names memory for it */
	CEI_REGION_CREATED,
	CEI_REGION_ADOPTED,
	CEI_REGION_IMPORTED,
	CEI_REGION_FAR,                 /* memory of another node: mapped for nobody here */
};

struct cei_region {
	struct cei_site       *site;
	enum cei_region_origin origin;
	enum ceov_place_kind   kind;            /* where the memory is */
	uint32_t               gpu;             /* GPU memory: the GPU's ordinal in this process;
						 * CEOV_NOBODY if the GPU is not visible here */
	uint64_t               size_bytes;      /* of the part that is exported */
	void                  *host;            /* host memory: where this process mapped it */
	int                    fd;              /* its memfd or, of GPU memory that is shared as
						 * a descriptor, that; -1: none */
	uint32_t               n_host_users;    /* host memory: how many members on GPUs use the
						 * driver's registration */
	int                    is_pinned;       /* host memory: it is in reach_cuda.c's list of
						 * pinned ranges */
	uint64_t               device;          /* GPU memory that belongs to this process, even
						 * if it was imported, or came as a descriptor:
						 * its address; else 0 */
	uint64_t               vmm_bytes;       /* GPU memory that is shared as a descriptor: so
						 * many bytes are mapped at `device`, or are to be;
						 * else 0 */
	int                    is_open;         /* GPU memory of this process: other GPUs of the
						 * process need only peer access */
	uint32_t               far_id;          /* of another node: the number of its export
						 * there; else 0 */
	uint64_t               buffer_id;       /* the driver's id of the allocation, or the
						 * inode of the memfd */
	uint64_t               file_device;     /* imported host memory: the device that has the
						 * inode */
	uint64_t               instance[2];     /* of the process that owns the memory */
	uint64_t               offset_bytes;    /* from the base of the exported allocation */
	uint8_t                handle[CEI_SHARE_HANDLE_BYTES];
	uint8_t                uuid[CEI_CUDA_UUID_BYTES];
	uint64_t               mapped_base[CEI_MEMBERS_MAX]; /* [member]: base of the mapping
							      * that unmap closes; 0: none */
	uint64_t               address[CEI_MEMBERS_MAX];     /* [member]: where its backend and
							      * kernels reach byte 0; 0:
							      * they cannot */
};

/* The description of a region that is sent to a peer. Descriptors are sent beside it. */
struct cei_region_wire {
	uint32_t kind;                  /* enum ceov_place_kind */
	uint32_t has_fd;                /* 0 or 1; host memory has one, GPU memory may */
	uint64_t size_bytes;
	uint64_t offset_bytes;
	uint64_t device;                /* the address in the owner's process, for an import in
					 * that same process */
	uint64_t buffer_id;
	uint64_t instance[2];
	uint64_t pid;                   /* of GPU memory: identifies the owner's process, also
					 * across pid namespaces (share_cuda.c) */
	uint8_t  handle[CEI_SHARE_HANDLE_BYTES];
	uint8_t  uuid[CEI_CUDA_UUID_BYTES];
};

/* Its bytes. Values that no owner sends are refused: an unknown kind, a size of 0, an offset or a
 * size that wraps around. */
extern const struct cei_layout cei_region_layout;

#define CEI_WIRE_REGION_BYTES 144u

struct cei_share_ops {
	/* create, adopt and import each fill a zeroed region whose site is set. member: index in
	 * the site. If they fail, the region may be passed to release(). */
	int  (*create)(struct cei_region *region, uint32_t member, uint64_t size_bytes);
	/* Makes a region of the application's memory. CEOV_NONE: it is not memory of this kind,
	 * and the region is unchanged. */
	int  (*adopt)(struct cei_region *region, uint32_t member, void *base,
		      uint64_t size_bytes);
	/* Describes the region for peers. *ret_fd: a descriptor to send along, owned by the
	 * region, or -1. CEOV_ERR_INVALID, raised with the reason: the memory cannot be
	 * shared. */
	int  (*export)(struct cei_region *region, struct cei_region_wire *ret_wire,
		       int *ret_fd);
	/* Makes a region of a peer's export. Takes ownership of fd, also on failure. */
	int  (*import)(struct cei_region *region, const struct cei_region_wire *wire,
		       int fd);
	/* Returns whether a new export is the same memory as this imported region, whose
	 * description it has. The description alone does not show that, because a peer could
	 * send a copy of it. fd stays the caller's. */
	int  (*is_same)(const struct cei_region *region, int fd);
	/* Whether export() can describe the region, or could if this process owned it. */
	int  (*is_shareable)(struct cei_region *region);
	/* Frees what create() allocated or import() opened. Every member must be unmapped. Does
	 * nothing for a zeroed region. */
	void (*release)(struct cei_region *region);
	/* Checks an adopted region. CEOV_ERR_STALE: its memory is no longer the allocation that
	 * was registered. */
	int  (*check)(struct cei_region *region);

	/* Sets region->address[member], or leaves it 0 if that member cannot reach the
	 * memory. May be repeated. */
	int  (*map)(struct cei_region *region, uint32_t member);
	void (*unmap)(struct cei_region *region, uint32_t member);
};

struct stat;

/* Says why a file that another process offers as host memory is refused, in words; NULL: it is
 * not, and *ret_stat says what it is. It must be a file of tmpfs, since pages of hugetlbfs may be
 * missing when they are touched, be sealed, so that it keeps its size, and have all of its memory
 * already: else this process would pay for what it touches first. */
const char *cei_share_host_fault(int fd, struct stat *ret_stat);

extern const struct cei_share_ops cei_share_host;       /* share_host.c */
extern const struct cei_share_ops cei_share_cuda;       /* share_cuda.c, with CUDA */

/* Returns the table for a kind of place. NULL: this build does not support that kind. */
const struct cei_share_ops *cei_share_for(enum ceov_place_kind kind);

/* Fills a description in from the region, but for `device` and `pid`, which its owner adds. */
void cei_region_fill_wire(const struct cei_region *region, struct cei_region_wire *ret_wire);

/* Whether another process of this node can map the region's memory. */
int  cei_region_is_shareable(struct cei_region *region);

/* Describes a shareable region, also one of a peer, for a process that is to map it, too. *ret_fd:
 * as of export(). Raises. */
int  cei_region_describe(struct cei_region *region, struct cei_region_wire *ret_wire, int *ret_fd);

/* Map the region for every member of the site, and unmap it. */
int  cei_region_map_all(struct cei_region *region);
void cei_region_unmap_all(struct cei_region *region);

/* Unmaps and releases the region, and zeroes it. */
void cei_region_fini(struct cei_region *region);

/* --- regions of peers ---------------------------------------------------------- */

/*
 * The regions of peers that are mapped in this process. Each is mapped once and counts its users:
 * memory that is found twice, or under two names, is imported only once. A region is identified by
 * its whole description and, for host memory, by the file that came with it, because a description
 * alone could be forged. Any thread may call these functions.
 */

/* The most regions that a context maps at the same time. */
#define CEI_MAPPINGS_MAX 16384u

struct cei_mappings {
	struct cei_site *site;          /* NULL: not initialised; fini then does nothing */
	pthread_mutex_t  lock;          /* guards list and n_mappings; held while mapping */
	struct cei_list  list;          /* of struct mapping */
	uint32_t         n_mappings;
};

int  cei_mappings_init(struct cei_mappings *mappings, struct cei_site *site);

/* Unmaps all regions, even if they are still referenced. */
void cei_mappings_fini(struct cei_mappings *mappings);

/* Maps the region for all members, or returns the mapping that exists. Takes ownership of fd (which
 * may be -1) in any case. */
int  cei_mapping_get(struct cei_mappings *mappings, const struct cei_region_wire *wire,
		     int fd, struct cei_region **ret_region);

/* Drops one reference; the last one unmaps. NULL is allowed. */
void cei_mapping_put(struct cei_mappings *mappings, struct cei_region *region);

#endif /* CEI_SHARE_H */
