/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NODE_PROCESS_H
#define NODE_PROCESS_H

/*
 * The parts of a process on a node, see node_life.h:
 *
 *   node_life.c   opens the group, sends, and closes
 *   node_loss.c   what it does after a failure
 */

#include "system/node_life.h"
#include "testing.h"

struct way {                            /* of a rank: to the next node, and from the one before */
	ceov_buffer *source;
	ceov_buffer *target;
	ceov_signal *arrived;
	ceov_signal *free;
	ceov_signal *arrived_there;
	ceov_signal *free_there;
	ceov_plan   *plan;
	ceov_ticket  ticket;
};

struct node_process {
	const struct life_plan *plan;
	struct life            *life;
	ceov_context           *context;
	struct testing_log      log;
	uint32_t                n_gathered;
	struct way              ways[LIFE_RANKS];
};

/* Waits for a flag of the test, which has deadlines of its own. */
void node_await_flag(_Atomic uint32_t *flag);

/* Deadline of a call. */
uint64_t node_call_ns(void);

/* Returns whether the log says so. */
int node_has_logged(struct node_process *process, const char *text);

/* Returns whether the target i holds what is sent in the pass. */
int node_holds(struct node_process *process, uint32_t i, uint64_t pass);

/* Sends and receives on all ways. Returns the first error; all launches have ended. */
int node_run_pass(struct node_process *process, uint64_t pass);

/* After a failure: looks for bytes that come late. */
void node_end_failed(struct node_process *process);

#endif /* NODE_PROCESS_H */
