/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NODE_CELL_H
#define NODE_CELL_H

/*
 * A fault between two nodes that are network namespaces with two network interfaces each, at one
 * phase of a group's life. The calling process becomes the hub of the namespaces, so each case has
 * a process of its own, and cases may run beside each other.
 */

#include <stdint.h>

enum fault {
	FAULT_KILL, FAULT_STOP, FAULT_CABLE, FAULT_ONE_RAIL, FAULT_DEAF, FAULT_SLOW, FAULT_VERSION,
	FAULTS,
};
enum phase { IN_MEETING, IN_IDLE, IN_BUSY, IN_CLOSING, PHASES };

extern const char *const fault_names[FAULTS];
extern const char *const phase_names[PHASES];

/* UCX before 1.14 aborts a process by an assertion when it closes a connection whose other side is
 * lost between the two messages by which UCX makes it. Whether that is forgiven. */
extern int node_cell_ucx_aborts;

/* Runs the case; the number is that of the round, which changes its random choices. Prints one line
 * if it went well; else says what was wrong, and ends the process. */
void node_cell_run(enum fault fault, enum phase phase, uint32_t number);

#endif /* NODE_CELL_H */
