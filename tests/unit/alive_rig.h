/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ALIVE_RIG_H
#define CEI_ALIVE_RIG_H

/*
 * Areas whose words a child process holds, for tests of what tells of its death: the memfds, this
 * process's read-only mappings of them, and words by which the two agree on when.
 */

#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/report.h"
#include "ipc/alive.h"
#include "testing.h"

#define ALIVE_RIG_AREAS 64u
#define ALIVE_RIG_BYTES 8192u

/* In memory that the test and its child share. */
struct alive_shared {
	_Atomic uint32_t is_ready;                      /* set by the child */
	_Atomic uint32_t go;                            /* set by the test */
	_Atomic uint32_t step[ALIVE_RIG_AREAS];         /* what the child does with an area */
};

struct alive_rig {
	struct cei_report     report;
	struct testing_log    log;
	uint32_t              n_areas;
	int                   fds[ALIVE_RIG_AREAS];
	struct cei_alive_area seen[ALIVE_RIG_AREAS];    /* mapped for reading only */
	struct alive_shared  *shared;
	pid_t                 child;                    /* 0: none */
};

/* A memfd of ALIVE_RIG_BYTES with these seals. */
int  alive_rig_file(int seals);

/* Prepares the areas. */
void alive_rig_open(struct alive_rig *rig, uint32_t n_areas);

/* Forks a child that calls body(rig), is ready then, and sleeps until it is killed. Returns when
 * it is ready; body may say so earlier, and need not return. */
void alive_rig_fork(struct alive_rig *rig, void (*body)(struct alive_rig *rig));

/* Kills the child if there is one, and returns when it is gone. */
void alive_rig_kill(struct alive_rig *rig);

/* Unmaps and closes everything, after alive_rig_kill(). */
void alive_rig_close(struct alive_rig *rig);

/* For body: ends the child with a message if it is not true. */
void alive_rig_must(int is_true, const char *what);

/* For body: opens a holder; maps area i for writing and holds it. */
struct cei_alive *alive_rig_holder(struct alive_rig *rig);
void alive_rig_hold(struct alive_rig *rig, struct cei_alive *alive, uint32_t i,
		    struct cei_alive_area *ret_area);

/* Sets a word, or waits until it is set, not for longer than TESTING_PATIENCE. */
void alive_rig_set(_Atomic uint32_t *word);
int  alive_rig_await(_Atomic uint32_t *word);

/* The state of area i. */
enum cei_alive_state alive_rig_state(const struct alive_rig *rig, uint32_t i);

/* Waits until the state of area i is no longer CEI_ALIVE, or for TESTING_PATIENCE. */
enum cei_alive_state alive_rig_end(const struct alive_rig *rig, uint32_t i);

#endif /* CEI_ALIVE_RIG_H */
