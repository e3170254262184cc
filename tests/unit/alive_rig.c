/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Areas whose words a child process holds. */

#include "alive_rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

int alive_rig_file(int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, ALIVE_RIG_BYTES), 0);
	if (seals)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

void alive_rig_open(struct alive_rig *rig, uint32_t n_areas)
{
	uint32_t i;

	memset(rig, 0, sizeof(*rig));
	testing_log_init(&rig->log);
	cei_report_init(&rig->report, testing_log_line, &rig->log);
	rig->n_areas = n_areas;
	for (i = 0; i < n_areas; i++) {
		rig->fds[i] = alive_rig_file(F_SEAL_SHRINK | F_SEAL_GROW);
		ck_assert_int_eq(cei_alive_map(&rig->report, rig->fds[i], ALIVE_RIG_BYTES,
					       PROT_READ, &rig->seen[i]), 0);
	}
	rig->shared = mmap(NULL, sizeof(*rig->shared), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert(rig->shared != MAP_FAILED);
}

void alive_rig_fork(struct alive_rig *rig, void (*body)(struct alive_rig *rig))
{
	const pid_t parent = getpid();

	rig->child = fork();
	ck_assert_int_ge(rig->child, 0);
	if (!rig->child) {
		alive_rig_must(!prctl(PR_SET_PDEATHSIG, SIGKILL) && getppid() == parent, "parent");
		body(rig);
		alive_rig_set(&rig->shared->is_ready);
		for (;;)
			pause();
	}
	ck_assert_msg(alive_rig_await(&rig->shared->is_ready), "the child is not ready");
}

void alive_rig_kill(struct alive_rig *rig)
{
	if (!rig->child)
		return;
	ck_assert_int_eq(kill(rig->child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(rig->child, NULL, __WALL), rig->child);
	rig->child = 0;
}

void alive_rig_close(struct alive_rig *rig)
{
	uint32_t i;

	alive_rig_kill(rig);
	for (i = 0; i < rig->n_areas; i++) {
		cei_alive_unmap(&rig->seen[i]);
		close(rig->fds[i]);
	}
	munmap(rig->shared, sizeof(*rig->shared));
	cei_report_fini(&rig->report);
}

void alive_rig_must(int is_true, const char *what)
{
	if (is_true)
		return;
	fprintf(stderr, "child: failed: %s\n", what);
	_exit(1);
}

struct cei_alive *alive_rig_holder(struct alive_rig *rig)
{
	struct cei_alive *alive = NULL;

	alive_rig_must(!cei_alive_open(&rig->report, &alive), "open");
	return alive;
}

void alive_rig_hold(struct alive_rig *rig, struct cei_alive *alive, uint32_t i,
		    struct cei_alive_area *ret_area)
{
	alive_rig_must(!cei_alive_map(&rig->report, rig->fds[i], ALIVE_RIG_BYTES,
				      PROT_READ | PROT_WRITE, ret_area), "map");
	alive_rig_must(!cei_alive_hold(alive, ret_area), "hold");
}

void alive_rig_set(_Atomic uint32_t *word)
{
	/* release, acquire: what was done before, for the other process */
	atomic_store_explicit(word, 1, memory_order_release);
}

int alive_rig_await(_Atomic uint32_t *word)
{
	const uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (!atomic_load_explicit(word, memory_order_acquire)) {
		if (cei_now_ns() > deadline)
			return 0;
		usleep(100);
	}
	return 1;
}

enum cei_alive_state alive_rig_state(const struct alive_rig *rig, uint32_t i)
{
	return cei_alive_state(cei_alive_word(&rig->seen[i]));
}

enum cei_alive_state alive_rig_end(const struct alive_rig *rig, uint32_t i)
{
	return cei_alive_wait(cei_alive_word(&rig->seen[i]), TESTING_PATIENCE);
}
