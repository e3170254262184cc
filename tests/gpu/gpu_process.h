/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GPU_PROCESS_H
#define CEI_GPU_PROCESS_H

/* Processes that a GPU test starts before it uses CUDA, which does not survive a fork. Each ends
 * when the process that started it does, however that ends. Asserts with Check. */

#include <stdint.h>
#include <sys/types.h>

/* Returns 0 in the new process, which ends by gpu_process_leave() with status 0. */
pid_t gpu_process_fork(void);
_Noreturn void gpu_process_leave(void);

/* Waits for the end of a process, and asserts that it ended with status 0, or by the signal
 * by_signal unless that is 0. Messages call it by `number`, that of its rank for example. */
void gpu_process_end(pid_t process, uint32_t number, int by_signal);

/* Calls body in a process for each rank, and returns when all have ended, with status 0. n_ranks is
 * at most GPU_RANKS_MAX. */
void gpu_process_each(uint32_t n_ranks, void (*body)(uint32_t rank));

#endif /* CEI_GPU_PROCESS_H */
