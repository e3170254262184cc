/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SITE_H
#define CEI_SITE_H

/*
 * What all layers know of this process: its ranks, their places, and what they need to log and to
 * reach a GPU. ceov_open() fills it; after that it is read-only.
 */

#include <stdint.h>

#include "base/clock.h"
#include "base/report.h"

#define CEI_RANKS_MAX   65536u  /* ranks of a group */
#define CEI_LOCAL_MAX   64u     /* ranks of a group on one node */
#define CEI_MEMBERS_MAX 16u     /* ranks that one process holds */

struct cei_cuda;                /* base/cuda_driver.h */
struct cei_network;                     /* net/network.h */
struct cei_ranges;                      /* base/ranges.h */
struct cei_place_ops;         /* backend/place.h */

/* A process and the ranks that it holds. */
struct cei_party {
	uint32_t n_ranks;
	uint32_t ranks[CEI_MEMBERS_MAX];
};

struct cei_site {
	struct cei_report *report;
	struct cei_cuda   *cuda;        /* NULL: no member is on a GPU */
	uint64_t           instance[2]; /* random, new for each ceov_open(): identifies this
					 * process to peers */
	struct cei_network *network;    /* NULL: all ranks are on this node */
	uint32_t           n_ranks;
	uint32_t           n_members;
	struct ceov_member members[CEI_MEMBERS_MAX];
	const uint64_t    *nodes;       /* [rank]: the number of its node, never 0; NULL: all
					 * ranks are on this node. Valid as long as the site */
	int                keeps_files; /* 1: memory keeps the descriptor that it came with, and
					 * GPU memory is made so that it has one, since the daemon
					 * is to map it, too; set before any is made or found */
	int                has_clients; /* 1: this is a daemon, whose engines move the data of other
					 * processes; set before backends are opened */
	int                progress_by_caller;  /* 1: the caller's threads drive the engines */
	/* The movers that engines open; NULL ends the table. */
	const struct cei_place_ops *const *movers;
	struct cei_ranges *ranges;      /* CEOVERLAP_NVTX; NULL: none */
	char               trace_path[256];     /* CEOVERLAP_TRACE; "": no trace. Only with one
						 * are the next two filled */
	char               group_name[64];      /* the end of the name or path by which the ranks
						 * met; "": they have none */
	struct cei_clock_pair opened;           /* when the context was opened */
};

/* Returns a number, never 0, for the node that this process is on. It changes when the machine
 * restarts. Processes on one kernel get the same number, even in different containers. */
uint64_t cei_site_own_node(void);

/* Answer questions about the ranks of this process's node. cei_site_is_local() accepts any number;
 * a number that is no rank is not local. cei_site_local_index() returns how many ranks of this node
 * are lower than rank. */
int      cei_site_is_local(const struct cei_site *site, uint32_t rank);
uint32_t cei_site_n_local(const struct cei_site *site);
uint32_t cei_site_first_local(const struct cei_site *site);
uint32_t cei_site_local_index(const struct cei_site *site, uint32_t rank);

/* Fills in the ranks of this process; returns whether a rank is in a party, and whether one is in
 * it twice. */
void cei_party_of_site(const struct cei_site *site, struct cei_party *ret_party);
int  cei_party_has(const struct cei_party *party, uint32_t rank);
int  cei_party_has_twice(const struct cei_party *party);

/* Returns how many ranks of this process are on the GPU. They share its CUDA context, so a driver
 * call that waits for the context waits for the kernels of all of them. */
uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu);

#endif /* CEI_SITE_H */
