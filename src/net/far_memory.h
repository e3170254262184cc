/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_MEMORY_H
#define CEI_FAR_MEMORY_H

/*
 * What a rail may read and write: memory of this process, host memory being registered with its
 * transport, and the regions of it that other processes name in pieces and marks. Only the rail's
 * thread uses it. What peers say is checked here: nothing outside a region is ever named to the
 * transport.
 */

#include <stdint.h>

#include "net/far_wire.h"

#define CEI_FAR_MEMORIES_MAX 65536u
#define CEI_FAR_REGIONS_MAX  65536u

/* The largest piece for memory that the transport does not access (net/far_slots.h). */
#define CEI_FAR_SLOT_BYTES   (UINT64_C(4) << 20)

/* What the sender copies through slots goes in pieces of this size at most. The first piece has
 * the copy out of the GPU to itself, and the last one that into the other GPU: at 64 MiB and equal
 * speeds of all three that is a twelfth with pieces of 4 MiB. With 1 MiB a window is too short for
 * the copies' delays. See tests/unit/test_rail_staged.c. */
#define CEI_FAR_STAGED_BYTES (UINT64_C(2) << 20)

/* What peers may do with a region. */
enum cei_far_use {
	CEI_FAR_BYTES = 1u << 0,        /* pieces land in it */
	CEI_FAR_WORDS = 1u << 1,        /* it is 64-bit counters, which marks raise */
};

/* Registered memory. What the transport does not access itself is not registered with it, only
 * known here: its bytes go through slots (net/far_slots.h). */
struct cei_far_memory {
	uint8_t                     *base;
	uint64_t                     n_bytes;
	int                          is_device; /* it goes through slots */
	uint32_t                     unit;      /* of such memory, see net/far_copier.h */
	uint64_t                     above;     /* of such memory: base and the addresses in it are
						 * larger by this than those of the unit */
	int                          needs_slots;       /* such memory that the transport must not
						 * access, whatever it takes of units */
	uint32_t                     n_opened;  /* by how many it is opened */
	uint32_t                     n_busy;    /* sends and receives under way */
	struct cei_transport_memory *registered;
};

struct cei_far_region {
	uint32_t               id;              /* the same number at all processes */
	uint32_t               uses;            /* enum cei_far_use */
	void                  *host;            /* NULL: words that live elsewhere, whose marks
						 * the owner raises */
	uint64_t               device;          /* of bytes in a unit's memory: their address,
						 * host is NULL; else 0 */
	uint32_t               unit;            /* of such bytes, see net/far_copier.h */
	int                    needs_slots;     /* such bytes that the transport must not access,
						 * whatever it takes of units */
	uint64_t               n_bytes;         /* of words: a multiple of 8, 8-byte aligned */
	struct cei_far_memory *memory;          /* of bytes that the transport writes in place;
						 * NULL: they go through slots. This and the
						 * next one are the table's */
	uint32_t               n_busy;          /* receives under way */
};

struct cei_far_table {
	struct cei_transport   *transport;
	int                     is_direct;      /* the transport accesses the memory of units, too,
						 * but for that which needs slots */
	struct cei_far_memory **memories;       /* by rising base; those that overlap in any
						 * order of size */
	uint32_t                n_memories;
	struct cei_far_region **regions;        /* by rising id */
	uint32_t                n_regions;
};

void cei_far_table_init(struct cei_far_table *table, struct cei_transport *transport);

/* Everything in it is closed, or leaks: memory in use by the transport stays registered. */
void cei_far_table_fini(struct cei_far_table *table);

/* Registers memory, or opens it once more if exactly it is registered. Errors are raised. */
int  cei_far_memory_open(struct cei_far_table *table, void *base, uint64_t n_bytes,
			 struct cei_far_memory **ret_memory);

/* The same for memory of a unit. Base, n_bytes, unit, above and needs_slots are
 * described. */
int  cei_far_memory_open_device(struct cei_far_table *table,
				const struct cei_far_memory *described,
				struct cei_far_memory **ret_memory);

/* CEOV_PENDING: a send or receive still uses it, and nothing was done. */
int  cei_far_memory_close(struct cei_far_table *table, struct cei_far_memory *memory);

/* Returns registered memory that holds all these bytes; NULL: there is none. */
struct cei_far_memory *cei_far_memory_of(const struct cei_far_table *table, uint64_t address,
					 uint64_t n_bytes);

/* Copies the description. Errors are raised: an id that is there, words that are not aligned. */
int  cei_far_region_open(struct cei_far_table *table, const struct cei_far_region *region);

/* CEOV_PENDING: a receive into it is under way, and nothing was done. CEOV_NONE: there is none of
 * that id. */
int  cei_far_region_close(struct cei_far_table *table, uint32_t id);

struct cei_far_region *cei_far_region_of(const struct cei_far_table *table, uint32_t id);

/* Why a piece or a mark must not be carried out, in words; NULL: it may be. *ret_region is set
 * then. */
const char *cei_far_check_piece(const struct cei_far_table *table,
				const struct cei_far_piece *piece, uint64_t n_offered,
				struct cei_far_region **ret_region);
const char *cei_far_check_mark(const struct cei_far_table *table,
			       const struct cei_far_mark *mark,
			       struct cei_far_region **ret_region);

#endif /* CEI_FAR_MEMORY_H */
