/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BOOTSTRAP_FIXTURE_H
#define BOOTSTRAP_FIXTURE_H

/*
 * Fixture of the bootstrap's tests, which run real processes. A test starts a process for each
 * party, lets them run, kills some, and asserts how the others end. Parties share a page of memory
 * for steps and times. They check conditions by need(), which ends the process with a message.
 */

#include <check.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/carrier_unix.h"
#include "ipc/peers/peers.h"
#include "net/node_meet.h"
#include "tools/common/port.h"

#define NS_PER_MS   UINT64_C(1000000)
#define PATIENCE_MS UINT64_C(20000)             /* limit for a wait that should be short */
#define FIND_MS     UINT64_C(10000)             /* time limit of a find */
#define N_STEPS     5
#define ALL_RANKS   16

struct seen {                           /* what one process has learned about the loss of one
					 * rank */
	_Atomic uint64_t gone_ns;       /* 0: the rank is still there */
	_Atomic uint32_t n_gone;
	_Atomic int      departed;
};

struct shared {
	_Atomic uint32_t steps[N_STEPS];
	struct seen      seen[ALL_RANKS][ALL_RANKS];    /* [the process that noticed][the lost
							 * rank] */
	_Atomic uint64_t rounds[ALL_RANKS];
};

#define NAME_BYTES  64u                         /* of a thing, with the final 0 */
#define THING_BYTES 1024u
#define THING_FDS   4u

struct thing {                          /* what a rank exports or finds; finds fill in no name */
	uint32_t rank;
	char     name[NAME_BYTES];
	uint32_t n_fds;
	uint32_t n_bytes;
	uint8_t  bytes[THING_BYTES];
	int      fds[THING_FDS];
};

struct party {                          /* a process of the group */
	struct cei_report   report;
	struct cei_site     site;
	struct cei_node_roster who;
	struct cei_unix    *carrier;
	struct cei_peers   *peers;
	struct ceov_failure failure;    /* of the last call that failed */
};

extern struct shared *shared;
extern char directory[96];              /* created for each test */
extern char path[104];                   /* path of the group's socket */
extern char store[PORT_STORE_BYTES];     /* where processes of several nodes can meet */

/* --- called in any process ----------------------------------------------- */

void pause_ms(uint64_t ms);
void step_done(int step);
int  step_reached(int step, uint32_t n);        /* 0: not reached in time */

/* Returns the time at which `who` learned that `whom` is gone; 0: it did not in time. */
uint64_t wait_gone(uint32_t who, uint32_t whom);

uint32_t n_open_fds(void);

/* --- called in a party --------------------------------------------------- */

#define need(condition) \
	do { \
		if (!(condition)) \
			give_up(__LINE__, #condition); \
	} while (0)

void give_up(int line, const char *condition) __attribute__((noreturn));

void party_init(struct party *party, uint32_t n_ranks);
void party_hold(struct party *party, uint32_t rank);
int  party_open_by(struct party *party, uint64_t timeout_ms);
void party_open(struct party *party, uint32_t n_ranks, uint32_t rank);
void party_close(struct party *party);
int  party_barrier(struct party *party, uint64_t timeout_ms);
int  party_export(struct party *party, const struct thing *thing, uint64_t *ret_id);
int  party_withdraw(struct party *party, uint64_t id);

/* *ret_use is dropped once. From several threads, too. */
int  party_find(struct party *party, uint32_t rank, const char *name, struct thing *ret_thing,
		uint64_t *ret_use);
void party_drop(struct party *party, uint32_t rank, uint64_t use);

/* Returns whether the last failure's text contains these words. */
int  says(const struct party *party, const char *words);

/* --- called in the test's own process ------------------------------------ */

/* Starts a process that calls run(number). */
pid_t    start(void (*run)(uint32_t), uint32_t number);
void     assert_ends_well(pid_t pid);
void     assert_all_end_well(void);
uint64_t kill_party(pid_t pid);         /* returns the time of the kill */
int      is_directory_empty(void);

/* Runs the tests, each with a new directory; returns main()'s exit status. */
int run_suite(const char *name, void (*add_tests)(TCase *));

#endif /* BOOTSTRAP_FIXTURE_H */
