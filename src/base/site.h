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

#define CEI_RANKS_MAX   64u     /* of a group */
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
	uint64_t           nodes[CEI_RANKS_MAX];        /* by rank: the machine that it is on;
							 * never 0, equal on one machine */
	int                progress_by_caller;
	const struct cei_backend_ops *const *movers;    /* the movers that engines open; NULL
							 * ends the table */
	char               trace_path[256];     /* CEOVERLAP_TRACE; "": no trace */
};

/* Returns a number, never 0, for the machine that this process is on; it changes when the
 * machine restarts. Processes on one kernel get the same number, even in different
 * containers. */
uint64_t cei_site_own_node(void);

/* Returns how many ranks of this process are on the GPU. They share its CUDA context, so a
 * driver call that waits for the context waits for the kernels of all these ranks. */
uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu);

#endif /* CEI_SITE_H */
