/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOK_PRIVATE_H
#define CEI_BOOK_PRIVATE_H

/* The parts of a book, for the files that make it and look things up in it. */

#include <stdint.h>

#include "net/book.h"

struct cei_book_process {
	uint64_t rails_at;              /* index of its first rail's first byte in rails */
	uint32_t node;
	uint32_t first;                 /* index of its first rank in ranks */
	uint32_t n_ranks;
	uint32_t n_rails;
};

struct cei_book {
	uint64_t                 instance;
	uint32_t                 n_ranks;
	uint32_t                 n_processes;
	uint32_t                 n_nodes;
	uint32_t                 own;           /* this process */
	struct cei_book_node    *nodes;
	struct cei_book_process *processes;
	uint32_t                *process_of;    /* by rank */
	uint32_t                *ranks;         /* those of process 0, then of process 1, ... */
	uint8_t                 *rails;         /* of process 0, then of process 1, ...: for each
						 * its length as uint32_t, its bytes, and what is
						 * missing to a multiple of 4 */
};

/* Bytes that a rail of this length takes in rails. */
uint64_t cei_book_rail_bytes(uint32_t n_bytes);

#endif /* CEI_BOOK_PRIVATE_H */
