/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef TRIAL_H
#define TRIAL_H

/*
 * Sends random bytes between host memory and the memory of a GPU, over the network and back, and
 * compares them. Two contexts of this process act as two nodes:
 *
 *   node a   rank 0, host memory        out  --network-->  in       rank 1, the GPU       node b
 *                                       back <--network--
 *                                                          in   --copy engine--> seen     rank 2,
 *                                                          in  <--copy engine--  seed     host
 *
 * So what the network wrote to the GPU is read by a copy engine, and what a copy engine wrote there
 * is read by the network.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct trial {
	struct ceov_place place;        /* of rank 1 */
	const char       *nic;          /* NULL: as CEOVERLAP_NICS says, or any */
	uint64_t          n_bytes;      /* of each transfer */
	uint32_t          n_rounds;
};

/* Runs the trial with this value of CEOVERLAP_GPU_DIRECT. Returns 0 and the rate of the transfers
 * over the network, or a negative value and in *ret_why the reason. */
int trial_run(const struct trial *trial, const char *mode, double *ret_bytes_per_s,
	      const char **ret_why);

#endif /* TRIAL_H */
