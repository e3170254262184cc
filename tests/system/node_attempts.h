/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef NODE_ATTEMPTS_H
#define NODE_ATTEMPTS_H

/*
 * Runs a case of a fault between nodes in a process of its own. A case that goes wrong on a machine
 * that stalled meanwhile says nothing about the library, and is run again: three times in all.
 */

#include "system/node_cell.h"

/* The number is that of the round. Of a case that went wrong, or whose machine stalled each time,
 * this ends the calling process with the case's exit status. */
void node_attempts_run(enum fault fault, enum phase phase, uint32_t number,
		       struct node_cell_result *ret_result);

#endif /* NODE_ATTEMPTS_H */
