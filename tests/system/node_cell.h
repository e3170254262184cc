/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NODE_CELL_H
#define NODE_CELL_H

/*
 * A fault between two nodes that are network namespaces, at one phase of a group's life. The
 * calling process becomes the hub of the namespaces, so each case has a process of its own, and
 * cases may run beside each other: see node_attempts.h.
 */

#include <stdint.h>

enum fault {
	FAULT_KILL, FAULT_STOP, FAULT_CABLE, FAULT_DEAF, FAULT_SLOW, FAULT_VERSION, FAULTS,
};
enum phase { IN_MEETING, IN_IDLE, IN_BUSY, IN_CLOSING, PHASES };

extern const char *const fault_names[FAULTS];
extern const char *const phase_names[PHASES];

/* What this machine lacks to run cases, one line; NULL: nothing. Before anything else. */
const char *node_cell_lacks(void);

/* Another version is noticed while processes meet, or never. */
int node_cell_is_there(enum fault fault, enum phase phase);

struct node_cell_order {
	enum fault  fault;
	enum phase  phase;
	uint32_t    number;             /* of the round; it changes the random choices */
	const char *folder;             /* is made, and removed if all goes well */
};

struct node_cell_result {
	int      error;                 /* of the survivor's first call that failed; 0: none has */
	uint64_t failed_ms;             /* from the fault to that */
	uint64_t closed_ms;             /* that its closing took */
	uint32_t n_aborted;             /* processes that UCX aborted: before 1.14 it does so when
					 * it closes a connection whose other side is lost between
					 * the two messages by which UCX makes it */
	uint32_t n_stalled;             /* attempts before, on a machine that stalled */
};

/* Runs the case. Prints one line if it went well; else says what was wrong, and ends the process
 * with one of these exit statuses. The folder stays then. */
#define NODE_CELL_WRONG   95
#define NODE_CELL_STALLED 96            /* the machine stalled, so the case says nothing */
void node_cell_run(const struct node_cell_order *order, struct node_cell_result *ret_result);

#endif /* NODE_CELL_H */
