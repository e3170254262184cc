/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ROUTE_H
#define CEI_ROUTE_H

/*
 * Which paths bytes take from one place to another, and how much goes over which path: a
 * pure function of machine, request and load.
 *
 *   direct     one copy
 *   staged     through pinned host memory, GPU -> host -> GPU
 *   relayed    through a peer GPU and its own PCIe link: host -> peer -> GPU, or
 *              GPU -> peer -> host
 *   middle     GPU -> GPU -> GPU, where there is no direct link
 *
 * Paths of two legs are pipelined through bounded staging slots in the memory between.
 * Several paths at once take shares such that all are done at the same time.
 */

#include <stdint.h>

#include "topology/machine.h"

#define CEI_ROUTE_PATHS_MAX   16u
#define CEI_ROUTE_SLOT_BYTES  (UINT64_C(4) << 20)       /* of one staging slot */
#define CEI_ROUTE_SLOTS       4u                        /* of one path */
#define CEI_ROUTE_WHY_BYTES   160u

enum cei_route_kind {
	CEI_ROUTE_DIRECT,
	CEI_ROUTE_STAGED,
	CEI_ROUTE_RELAYED,
	CEI_ROUTE_MIDDLE,
};

enum cei_route_rule {                    /* what the asker allows */
	CEI_ROUTE_RULE_NEEDED,          /* direct where there is a direct link, else the
					 * best other path */
	CEI_ROUTE_RULE_DIRECT,          /* direct or none */
	CEI_ROUTE_RULE_ALL,             /* several paths at once where that is faster */
};

struct cei_route_path {
	uint8_t  kind;                  /* enum cei_route_kind */
	uint32_t via;                   /* place between; CEOV_NOBODY: direct */
	uint32_t engines[2];            /* place (a GPU) whose copy engines move each leg:
					 * the first and the second; a leg between two
					 * GPUs is pushed by its source, or pulled by its
					 * end where only that may be driven; CEOV_NOBODY:
					 * no leg, or processors (within the host) */
	uint64_t bytes;                 /* its share */
	uint64_t bytes_per_s;           /* what it is expected to carry beside the others */
	uint64_t t0_ns;                 /* T = t0 + bytes / bytes_per_s; over two legs that is
					 * both legs' t0 and a slot's time on the faster */
};

struct cei_route_request {
	uint32_t from;                  /* places */
	uint32_t to;
	uint64_t bytes;
	uint64_t slot_bytes;            /* 0: CEI_ROUTE_SLOT_BYTES */
	uint8_t  rule;                  /* enum cei_route_rule */
	uint8_t  no_direct;             /* the direct path cannot be taken, though the machine
					 * has a link: memory is not mapped there */
	uint64_t may_drive;             /* bit i: GPU i's copy engines may be used and staging
					 * memory be taken there */
	const uint64_t *port_load;      /* [n_ports] bytes per second that others take from
					 * each port now; NULL: none */
};

struct cei_route {
	uint32_t n_paths;               /* the largest share first */
	struct cei_route_path paths[CEI_ROUTE_PATHS_MAX];
	uint64_t expected_ns;
	char     why[CEI_ROUTE_WHY_BYTES];      /* one line for people: why these paths, or
						 * what others would have needed */
};

/* 0; CEOV_ERR_NO_ROUTE (not raised) with *ret_route's why: no path is allowed or exists.
 * The shares' sum is bytes; each but the last is a multiple of 4 KiB; none is 0 unless
 * bytes is. No path uses a link of kind NONE or engines that may not be driven. Staging
 * is at most CEI_ROUTE_PATHS_MAX * CEI_ROUTE_SLOTS * slot_bytes. */
int cei_route_find(const struct cei_machine *machine, const struct cei_route_request *request,
		   struct cei_route *ret_route);

const char *cei_route_kind_name(enum cei_route_kind kind);

/* --- another node (rails.c) ------------------------------------------------------------
 *
 * The NIC of each GPU: any RDMA device before any net device, then nearest first (same
 * switch, same tree, same node, same package), among equally near ones those that serve
 * the fewest GPUs so far, so that rails are spread evenly. GPUs with fewer equally near
 * ones choose first. ret_nics: [n_gpus], CEOV_NOBODY where the machine has no NIC. */
void cei_rails_assign(const struct cei_machine *machine, uint32_t *ret_nics);

#endif /* CEI_ROUTE_H */
