/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CARRIER_FIXTURE_H
#define CARRIER_FIXTURE_H

/*
 * Three processes of a node in this one, for tests of the carrier between them: sockets are real,
 * what is above the carrier is a double, which only writes down which events came. So programs with
 * this define the calls of ipc/peers/carrier.h themselves.
 */

#include "ipc/carrier_unix.h"
#include "net/node_meet.h"
#include "testing.h"

#define N_SIDES 3u
#define HEARD   512u

struct cei_peers {                      /* what one process was told */
	uint32_t n_heard, n_ready, n_down, n_refusals, n_quiet, n_wakes;
	uint32_t from;                  /* whom the last event was about */
	uint32_t types[HEARD];
	uint64_t numbers[HEARD];
	struct cei_group_message last;
	uint32_t n_fds;                 /* beside the last message, ... */
	int      keeps_fds;             /* ... which are to stay open */
	int      fds[CEI_GROUP_FDS_MAX];
};

struct side {
	struct cei_node_roster     who;
	struct cei_links links;
	struct cei_unix           *carrier;
	struct cei_peers           peers;
};

/* Process 0 holds ranks 0 and 3, process 1 rank 1, process 2 rank 2. All have links, but carriers
 * have them only once they are attached. */
extern struct side sides[N_SIDES];
extern struct testing_log log_lines;

void attach(uint32_t own);
void attach_all(void);

const struct cei_carrier *carrier_of(uint32_t own);

int  say_with(uint32_t own, uint32_t to, const struct cei_group_message *message,
	      const struct cei_group_fds *fds, int *ret_native_code);
int  say(uint32_t own, uint32_t to, uint32_t type, uint64_t number);
void give_up(uint32_t own, uint32_t whom);

/* Does what the thread of the peers does when something is ready. Returns whether anything was
 * done. turn_all(): until its thread would sleep. */
int  turn(uint32_t own);
void turn_all(uint32_t own);

/* Takes the socket to the process from a side that is not attached. */
int  steal(uint32_t own, uint32_t process);
void set_pidfd(uint32_t own, uint32_t process, pid_t pid);

uint32_t n_open_fds(void);

int run_suite(const char *name, void (*add_tests)(TCase *));

#endif /* CARRIER_FIXTURE_H */
