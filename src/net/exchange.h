/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXCHANGE_H
#define CEI_EXCHANGE_H

/*
 * The first exchange of a group's processes, before they can reach each other: an all-gather of
 * a few bytes of each, over what launched the job. There are several means of it; each is a
 * table of functions. They are tried in this order, and the first that the environment shows is
 * taken:
 *
 *   callback  a function of the application, such as one that calls MPI_Allgather()
 *   pmix      the process manager of mpirun and srun, by libpmix.so.2
 *   store     a TCP server in process 0, at an address that all know; torchrun's variables name it
 *
 * Processes are numbered from 0 on. Ranks are not known here.
 *
 * All calls on one exchange come from one thread. Each waits until its deadline at most, and a
 * quarter of a second more where process 0 may say then who is missing. The failure names
 * processes that have not come.
 */

#include "net/means.h"

/* Chooses a means and opens it. deadline_ns is a point in time of cei_now_ns(). *exchange may
 * not move in memory until it is closed. Errors are raised, and leave nothing to close. */
int  cei_exchange_open(struct cei_exchange *exchange, const struct cei_exchange_config *config,
		       uint64_t deadline_ns);

/* Gathers up to CEI_GATHERED_BYTES_MAX bytes of each process; they may be differently many, and
 * none. All processes call it, in the same order. The caller frees *ret_gathered with
 * cei_gathered_fini(). CEOV_ERR_TIMEOUT, CEOV_ERR_PEER_LOST, CEOV_ERR_VERSION,
 * CEOV_ERR_INVALID, CEOV_ERR_STATE, CEOV_ERR_SYSTEM, raised; then only close remains. */
int  cei_exchange_all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
			     uint64_t deadline_ns, struct cei_gathered *ret_gathered);

void cei_exchange_close(struct cei_exchange *exchange);

#endif /* CEI_EXCHANGE_H */
