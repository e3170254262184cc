/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SERVICE_WIRE_H
#define CEI_SERVICE_WIRE_H

/*
 * Messages between a daemon and its clients, as bytes. Numbers are little-endian, without padding.
 * A message has a head (magic, version, type, number) and a body, and is one datagram of at most
 * CEI_SERVICE_BYTES_MAX. The head, and the body of REFUSED, are the same in every version from 4
 * on. The number of a request, never 0, comes back in its answer, so that an answer which comes
 * after its request was given up is known. Other messages have 0, and so has a REFUSED behind
 * which the daemon ends the connection.
 * Decoding is strict, because the bytes come from another process and are not trusted.
 *
 *   client                     daemon
 *   HELLO                 ->   WELCOME with DOWN, UP and the bells, or REFUSED
 *   READY                 ->   nothing; the client holds the word in DOWN that tells its life
 *   PLAN, PART, ... PART  ->   COMMITTED or REFUSED, after the last part
 *   EXPLAIN               ->   EXPLAINED with a file of text, or REFUSED
 *   DROP                  ->   DROPPED, when the daemon has unmapped what only this plan named,
 *                              or REFUSED
 *   STAYED, BYE           ->   nothing
 *                         <-   FAILURE, at any time
 */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "base/cuda_driver.h"
#include "base/site.h"
#include "base/datagram.h"

#define CEI_SERVICE_MAGIC     UINT32_C(0x44564f43)      /* "COVD" */
#define CEI_SERVICE_VERSION   4u
#define CEI_SERVICE_BYTES_MAX 65536u

/* What a PART carries of a plan: so many bytes of the program, or descriptors. */
#define CEI_SERVICE_PART_BYTES 61440u
#define CEI_SERVICE_PART_FDS   CEI_DATAGRAM_FDS_MAX

enum cei_service_type {
	CEI_SERVICE_HELLO = 1,
	CEI_SERVICE_WELCOME,
	CEI_SERVICE_REFUSED,
	CEI_SERVICE_READY,
	CEI_SERVICE_PLAN,
	CEI_SERVICE_PART,
	CEI_SERVICE_COMMITTED,
	CEI_SERVICE_DROP,
	CEI_SERVICE_DROPPED,
	CEI_SERVICE_EXPLAIN,
	CEI_SERVICE_EXPLAINED,
	CEI_SERVICE_FAILURE,
	CEI_SERVICE_BYE,
	CEI_SERVICE_STAYED,
};

struct cei_service_member {
	uint32_t rank;
	uint32_t kind;                  /* enum ceov_place_kind */
	uint8_t  uuid[CEI_CUDA_UUID_BYTES];     /* of its GPU; zeros on the host */
};

struct cei_service_hello {
	uint32_t n_ranks;               /* of the client's group */
	uint32_t n_members;
	struct cei_service_member members[CEI_MEMBERS_MAX];
	uint64_t deadline_ns;           /* of launches that have none */
	uint64_t max_chunk_bytes;
	uint32_t urgency;               /* enum ceov_urgency: of plans that say normal, for
					 * people; plans say their own */
	char     name[32];              /* of the process, for people; any bytes, ends with NUL */
};

struct cei_service_welcome {
	uint64_t instance[2];           /* of the daemon; another one after it was started anew */
	uint32_t serves;                /* bit i: the daemon has an engine for member i of the
					 * hello; each has a ring, in their order */
	uint32_t n_rings;               /* as many bells come beside, behind DOWN and UP */
	uint32_t n_plans_max;           /* limits of this client: plans at a time, ... */
	uint32_t n_transfers_max;       /* ... transfers of a plan, ... */
	uint64_t n_bytes_max;           /* ... and bytes mapped */
};

struct cei_service_plan {               /* parts follow: first all descriptors, then the bytes */
	uint32_t n_bytes;               /* of the memories (struct cei_service_offer) and of the
					 * program (program_wire.h) behind them */
	uint32_t n_memories;
	uint32_t n_fds;                 /* at most one for each memory */
};

struct cei_service_part {
	uint32_t       n_bytes;         /* 0: descriptors come beside */
	const uint8_t *bytes;           /* in the bytes that were decoded */
};

struct cei_service_handle {             /* a plan that was committed */
	uint32_t slot;
	uint32_t generation;
};

struct cei_service_stayed {
	uint64_t n_plans;               /* so many plans, of all so far, are carried out in the
					 * client's process, since the daemon cannot reach them */
};

struct cei_service_message {
	uint32_t magic;                         /* set by decoding, as received */
	uint32_t version;                       /* set by decoding, as received */
	uint32_t type;                          /* enum cei_service_type */
	uint32_t number;                        /* of a request, in it and in its answer */
	union {
		struct cei_service_hello   hello;
		struct cei_service_welcome welcome;
		struct cei_service_plan    plan;
		struct cei_service_part    part;
		struct cei_service_handle  handle;      /* COMMITTED, DROP, EXPLAIN */
		struct cei_service_stayed  stayed;
		struct ceov_failure        failure;     /* REFUSED, FAILURE */
	};
};

/* Every message fits in CEI_SERVICE_BYTES_MAX. A part that was decoded points into the bytes. */
extern const struct cei_protocol cei_service_protocol;

/* --- offers of memory ---------------------------------------------------------- */

/*
 * The memory that a plan names, as a client offers it to a daemon: a description of each region,
 * and descriptors beside. On the way the descriptions stand in front of the program's bytes.
 *
 *   descriptions   CEI_WIRE_REGION_BYTES each: buffers, then of each signal its control region and,
 *                  of one in a GPU, the region there
 *   descriptors    one for each description that has one, in the same order
 */

struct cei_region;                      /* ipc/share.h */
struct cei_region_wire;

struct cei_service_offer {
	struct cei_region_wire *memories;
	int                    *fds;            /* the regions' */
	uint32_t                n_memories;
	uint32_t                n_fds;
	uint32_t                n_room;         /* of both */
};

/* fini accepts an offer that is zeroed. CEOV_ERR_NO_MEMORY, not raised. */
int  cei_offer_init(struct cei_service_offer *offer, uint32_t n_room);
void cei_offer_fini(struct cei_service_offer *offer);

/* Adds a region, which has to be shareable (cei_region_is_shareable()). Raises. */
int  cei_offer_add(struct cei_service_offer *offer, struct cei_region *region);

/* Size of the descriptions, and writes them. */
size_t cei_offer_bytes(const struct cei_service_offer *offer);
void   cei_offer_write(const struct cei_service_offer *offer, uint8_t *bytes);

/* What came of an offer, read by the daemon one region after the other. */
struct cei_service_taken {
	const uint8_t *bytes;           /* descriptions */
	uint32_t       n_memories;
	int           *fds;             /* those that are taken become -1 */
	uint32_t       n_fds;
	uint32_t       next_memory;
	uint32_t       next_fd;
};

/* Takes the next region. *ret_fd: the caller's, or -1. CEOV_ERR_INVALID, not raised: there is none,
 * it is no description, or a descriptor is missing. */
int  cei_offer_take(struct cei_service_taken *taken, struct cei_region_wire *ret_wire, int *ret_fd);

/* Whether all regions and descriptors were taken. */
int  cei_offer_is_taken(const struct cei_service_taken *taken);

#endif /* CEI_SERVICE_WIRE_H */
