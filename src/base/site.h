/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SITE_H
#define CEI_SITE_H

/*
 * This process: its ranks, their places, and what all layers need to log and to reach a
 * GPU. Filled by ceov_open(), read-only afterwards.
 */

#include <stdint.h>

#include "base/report.h"

#define CEI_RANKS_MAX   65536u  /* of a group */
#define CEI_LOCAL_MAX   64u     /* of them on one node */
#define CEI_MEMBERS_MAX 16u     /* ranks that one process holds */

struct cei_cuda;                /* base/cuda_driver.h */
struct cei_backend_ops;         /* backend/backend.h */

struct cei_site {
	struct cei_report *report;
	struct cei_cuda   *cuda;        /* NULL: no member is on a GPU */
	uint64_t           instance[2]; /* random, new for each ceov_open(): identifies this
					 * process to peers */
	uint32_t           n_ranks;
	uint32_t           n_members;
	struct ceov_member members[CEI_MEMBERS_MAX];
	const uint64_t    *nodes;       /* by rank: the number of its node, never 0; NULL: all
					 * ranks are on this one. Stays as long as the site */
	int                progress_by_caller;
	const struct cei_backend_ops *const *movers;    /* the movers that engines open; NULL
							 * ends the table */
	char               trace_path[256];     /* CEOVERLAP_TRACE; "": no trace */
};

/* Returns a number, never 0, for the machine that this process is on; it changes when the
 * machine restarts. Processes on one kernel get the same number, even in different
 * containers. */
uint64_t cei_site_own_node(void);

/* Queries about the ranks of this process's node. is_local takes any number and says no to one
 * that is no rank. local_index: how many ranks of this node are lower. */
int      cei_site_is_local(const struct cei_site *site, uint32_t rank);
uint32_t cei_site_n_local(const struct cei_site *site);
uint32_t cei_site_first_local(const struct cei_site *site);
uint32_t cei_site_local_index(const struct cei_site *site, uint32_t rank);

/* Returns how many ranks of this process are on the GPU. They share its CUDA context, so a
 * driver call that waits for the context waits for the kernels of all these ranks. */
uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu);

#endif /* CEI_SITE_H */
