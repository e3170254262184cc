/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOTSTRAP_H
#define CEI_BOOTSTRAP_H

/*
 * The bootstrap: how a group's processes find each other, exchange what they export,
 * and notice that one has gone.
 *
 * The process that holds rank 0 listens on a unix socket (mode 0600, same user
 * only). The others connect and say who they are. When all ranks have come, rank
 * 0 hands every pair of processes a socket pair of their own, unlinks the path and
 * stops listening: afterwards all are equal and nothing is left in the file
 * system. One thread per process serves its links; a link that ends without a
 * farewell is a lost process, which that thread reports at once.
 *
 *   export    publishes bytes and descriptors of a rank under a name
 *   find      asks the process that holds a rank for an export
 *   use       one find's hold on an export, until it is dropped; the owner counts them
 */

#include <stdint.h>

#include "base/site.h"

#define CEI_NAME_BYTES        64u       /* with the final 0 */
#define CEI_EXPORT_BYTES_MAX  1024u
#define CEI_EXPORT_FDS_MAX    4u

struct cei_bootstrap;

struct cei_export {
	uint32_t rank;                          /* the exporting rank */
	char     name[CEI_NAME_BYTES];
	uint32_t n_bytes;
	uint32_t n_fds;
	uint8_t  bytes[CEI_EXPORT_BYTES_MAX];
	int      fds[CEI_EXPORT_FDS_MAX];
};

struct cei_bootstrap_config {
	const char *path;
	uint64_t    deadline_ns;                /* point in time, cei_now_ns() */
	/* From the bootstrap thread, once per lost or departed process and rank of
	 * it; departed: it closed its context in order. May come before
	 * cei_bootstrap_open() has returned; never after cei_bootstrap_close(). */
	void      (*gone)(void *gone_arg, uint32_t rank, int departed);
	void       *gone_arg;
};

/* Blocks until all ranks have come or the deadline passes (TIMEOUT names the
 * missing ranks). Refusals name both sides' values: other version, other number
 * of ranks, a rank that is taken, another user, another group on the path. */
int  cei_bootstrap_open(struct cei_site *site, const struct cei_bootstrap_config *config,
			struct cei_bootstrap **ret_bootstrap);

/* Says farewell and joins the thread. */
void cei_bootstrap_close(struct cei_bootstrap *bootstrap);

/* Publishes the export; its descriptors are duplicated. CEOV_ERR_STATE: that rank uses the
 * name already. *ret_id identifies the export for withdrawal. */
int  cei_bootstrap_export(struct cei_bootstrap *bootstrap, const struct cei_export *export,
			  uint64_t *ret_id);

/* Ends the export for finds to come. CEOV_PENDING: living processes still use it; it is
 * withdrawn all the same. 0 again where it was withdrawn before. */
int  cei_bootstrap_withdraw(struct cei_bootstrap *bootstrap, uint64_t id);

struct cei_lookup {
	uint32_t    rank;                       /* not of this process */
	const char *name;
	uint64_t    deadline_ns;                /* point in time, cei_now_ns() */
};

/* Asks the process that holds the rank. ret_export's descriptors become the
 * caller's. CEOV_NONE: not exported yet. PEER_LOST, TIMEOUT. *ret_id is the owner's
 * id, for cei_bootstrap_drop(). */
int  cei_bootstrap_find(struct cei_bootstrap *bootstrap, const struct cei_lookup *lookup,
			struct cei_export *ret_export, uint64_t *ret_id);

/* Ends this process's use of the export. */
void cei_bootstrap_drop(struct cei_bootstrap *bootstrap, uint32_t rank, uint64_t id);

/* See ceov_barrier(). After a TIMEOUT the next call goes on with the same round. */
int  cei_bootstrap_barrier(struct cei_bootstrap *bootstrap, uint64_t deadline_ns);

#endif /* CEI_BOOTSTRAP_H */
