/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOTSTRAP_H
#define CEI_BOOTSTRAP_H

/*
 * The bootstrap: how a group's processes of one node find each other, exchange what they
 * export, and notice that one has gone.
 *
 * The process that holds the first rank, the lowest one of the node, listens on a unix socket
 * (mode 0600, same user only). The other processes connect and name their ranks. When all
 * ranks of the node have come, the first rank's process sends every pair of processes a
 * socket pair of their own, unlinks the path and stops listening: afterwards all processes
 * are equal and nothing is left in the file system. One thread per process serves its
 * links. If a link ends without a farewell message, the thread at once reports the other
 * process as lost.
 *
 *   export    publishes bytes and descriptors of a rank under a name
 *   find      asks the process that holds a rank for an export
 *   use       keeps an export from a successful find until its drop; the owner counts
 *             the uses of each export
 */

#include <stdint.h>

#include "base/site.h"
#include "ipc/peers/peers.h"          /* struct cei_lookup */

#define CEI_NAME_BYTES        64u       /* including the NUL */
#define CEI_EXPORT_BYTES_MAX  1024u
#define CEI_EXPORT_FDS_MAX    4u

struct cei_bootstrap;

struct cei_export {
	uint32_t rank;                          /* the exporting rank */
	char     name[CEI_NAME_BYTES];
	uint32_t n_fds;
	uint32_t n_bytes;
	uint8_t  bytes[CEI_EXPORT_BYTES_MAX];
	int      fds[CEI_EXPORT_FDS_MAX];
};

struct cei_bootstrap_config {
	const char *path;                       /* of the socket file */
	uint64_t    deadline_ns;                /* a time of cei_now_ns() */
	/* Called by the bootstrap thread, once for each rank of a process that was lost, or (with
	 * departed 1) that closed its context in order. It may be called before
	 * cei_bootstrap_open() has returned, but not after cei_bootstrap_close() has. */
	void      (*gone)(void *arg, uint32_t rank, int departed);
	/* A process of the node says that this rank of another node is lost, by the bootstrap
	 * thread; here and below NULL: all ranks are on this node. */
	void      (*lost)(void *arg, uint32_t rank);
	/* A rank elsewhere without which the group's barriers cannot complete; CEOV_NOBODY: none is
	 * known. Asked again and again while a barrier waits, and at the close, by the caller's
	 * thread. */
	uint32_t  (*missing)(void *arg);
	/* A process of the node says that its barriers cannot complete without this rank, by the
	 * bootstrap thread. */
	void      (*missed)(void *arg, uint32_t rank);
	void       *arg;                        /* of all of them */
};

/* Connects the processes of the node. Blocks until all ranks of the node have come, or until the
 * deadline (CEOV_ERR_TIMEOUT; the failure names the missing ranks). It also fails if the processes
 * differ in version or number of ranks, if two processes hold the same rank, or if the path belongs
 * to another user or group; the failure then names the values of both sides. */
int  cei_bootstrap_open(struct cei_site *site, const struct cei_bootstrap_config *config,
			struct cei_bootstrap **ret_bootstrap);

/* Says farewell to all peers, joins the thread and frees everything. */
void cei_bootstrap_close(struct cei_bootstrap *bootstrap);

/* Publishes an export, whose descriptors are duplicated. CEOV_ERR_STATE: that rank already has an
 * export of this name. *ret_id identifies the export for withdrawal. */
int  cei_bootstrap_export(struct cei_bootstrap *bootstrap, const struct cei_export *export,
			  uint64_t *ret_id);

/* Withdraws an export, so that peers cannot find it any more. CEOV_PENDING: it is withdrawn, but
 * other processes still use it. May be called again. */
int  cei_bootstrap_withdraw(struct cei_bootstrap *bootstrap, uint64_t id);

/* Asks the process that holds the rank for an export. The caller closes the descriptors in
 * *ret_export, and passes *ret_id, the owner's number of the export, to cei_bootstrap_drop().
 * CEOV_NONE: the rank has not exported it yet. CEOV_ERR_PEER_LOST. CEOV_ERR_TIMEOUT. */
int  cei_bootstrap_find(struct cei_bootstrap *bootstrap, const struct cei_lookup *lookup,
			struct cei_export *ret_export, uint64_t *ret_id);

/* Ends this process's use of an export that it found. */
void cei_bootstrap_drop(struct cei_bootstrap *bootstrap, uint32_t rank, uint64_t id);

/* Tells the processes of the node that a rank of another node is lost. Any thread. */
void cei_bootstrap_tell_lost(struct cei_bootstrap *bootstrap, uint32_t rank);

/* Tells the processes of the node which rank is missing, if one is: the group's barrier cannot
 * complete. Closing does so, too. */
void cei_bootstrap_tell_missing(struct cei_bootstrap *bootstrap);

/* Passes when all processes of the node have called it as often as this one. After CEOV_ERR_TIMEOUT
 * the next call continues the same barrier. CEOV_ERR_PEER_LOST: a process that has not called it is
 * lost or has closed, or says that a rank is missing, or one elsewhere is. */
int  cei_bootstrap_barrier(struct cei_bootstrap *bootstrap, uint64_t deadline_ns);

#endif /* CEI_BOOTSTRAP_H */
