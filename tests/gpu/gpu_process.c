/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "gpu_process.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu_rig.h"

pid_t gpu_process_fork(void)
{
	pid_t process;

	fflush(stdout);                 /* else both processes print what is in the buffer */
	process = fork();
	ck_assert_int_ge(process, 0);
	if (!process)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	return process;
}

_Noreturn void gpu_process_leave(void)
{
	fflush(stdout);
	_exit(0);
}

void gpu_process_end(pid_t process, uint32_t number, int by_signal)
{
	int status = 0, is_good;

	ck_assert_int_eq(waitpid(process, &status, 0), process);
	is_good = by_signal ? WIFSIGNALED(status) && WTERMSIG(status) == by_signal
		: WIFEXITED(status) && !WEXITSTATUS(status);
	ck_assert_msg(is_good, "process %u ended with status 0x%x", number, (unsigned)status);
}

void gpu_process_each(uint32_t n_ranks, void (*body)(uint32_t rank))
{
	pid_t processes[GPU_RANKS_MAX];
	uint32_t i;

	ck_assert_uint_le(n_ranks, GPU_RANKS_MAX);
	for (i = 0; i < n_ranks; i++) {
		processes[i] = gpu_process_fork();
		if (processes[i])
			continue;
		body(i);
		gpu_process_leave();
	}
	for (i = 0; i < n_ranks; i++)
		gpu_process_end(processes[i], i, 0);
}
