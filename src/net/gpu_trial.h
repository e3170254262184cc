/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_TRIAL_H
#define CEI_GPU_TRIAL_H

/*
 * Runs the program ceoverlap-gpu-direct (tools/gpu-direct/), which tests whether the network can
 * access the memory of a GPU itself. It is a process of its own, since it may crash or hang.
 */

#include <stdint.h>

#define CEI_GPU_TRIAL_WHY_BYTES 128u

struct cei_gpu_trial {
	const char *program;            /* its path */
	uint32_t    gpu;
	const char *nic;                /* the network interface; NULL: any */
	uint64_t    deadline_ns;        /* point in time, cei_now_ns() */
};

struct cei_gpu_trial_result {
	double direct_bytes_per_s;
	double staged_bytes_per_s;      /* through slots in host memory */
	char   why[CEI_GPU_TRIAL_WHY_BYTES];    /* the trial did not pass */
};

/* Runs the program and waits until it has ended, which it has by about a second after the deadline,
 * if need be by SIGKILL. Any thread. Returns 0: it passed, with both rates; CEOV_NONE, not raised:
 * it did not, or could not be run, and `why` says the reason. */
int cei_gpu_trial_run(const struct cei_gpu_trial *trial,
		      struct cei_gpu_trial_result *ret_result);

#endif /* CEI_GPU_TRIAL_H */
