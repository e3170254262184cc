/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef MEETING_FIXTURE_H
#define MEETING_FIXTURE_H

/*
 * Fixture of the tests in which processes of a group exchange their records: real processes, each
 * of which opens the book of the group, looks everything up in it, and tells the test how that
 * ended. Process p holds rank p, is on node p / 4, and has one rail, whose address is made of p.
 */

#include <check.h>
#include <stdint.h>
#include <sys/types.h>

#include "net/book_open.h"

#define MEETING_MAX 64u

struct meeting_outcome {                /* in shared memory */
	int                 has_ended;  /* the process has opened the book, or failed to */
	int                 result;
	struct ceov_failure failure;
	uint64_t            ns;         /* time that the call took */
};

/* How the processes of a test meet. */
struct meeting {
	uint32_t n_processes;
	uint64_t timeout_ms;
	uint32_t n_times;               /* how often, one after the other */
	void   (*set)(uint32_t number, struct cei_book_config *config); /* changes the config or
								         * the environment of one
								         * process; or NULL */
	void   (*run)(uint32_t number); /* what a process does instead; or NULL */
};

extern struct meeting meeting;                  /* as 0 processes before each test */
extern struct meeting_outcome *outcomes;        /* by the number with which it was started */
extern uint16_t port;                           /* free when the test began */

/* Opens the book and fills the outcome; in a process of its own. */
void meet(uint32_t number);

pid_t start(uint32_t number);
void  start_all(void);
void  kill_one(uint32_t number);
void  await_all(void);                  /* those that were started and not killed */
void  assert_all_met(void);
void  assert_failed(uint32_t number, int error, const char *text, const char *and_text);
void  pause_ms(uint64_t ms);

/* For meeting.set: torchrun's variables. */
void set_torchrun(uint32_t number, struct cei_book_config *config);

void meeting_set_up(void);
void meeting_tear_down(void);

#endif /* MEETING_FIXTURE_H */
