/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOK_PRIVATE_H
#define CEI_BOOK_PRIVATE_H

/* The parts of a book, for the files that make it and look things up in it. */

#include <stdint.h>

#include "net/book.h"

struct cei_book_process {
	uint64_t address_at;            /* index of its address's first byte in addresses */
	uint32_t first;                 /* index of its first rank in ranks */
	uint32_t n_ranks;
	uint32_t n_address;
};

struct cei_book {
	uint64_t                 instance;
	struct cei_roster        roster;        /* of the five arrays below that it names */
	struct cei_book_node    *nodes;
	struct cei_book_process *processes;
	uint32_t                *process_of;
	uint32_t                *node_of;
	uint32_t                *first_rank;
	uint32_t                *in_node;
	uint32_t                *node_at;
	uint32_t                *ranks;         /* those of process 0, then of process 1, ... */
	uint8_t                 *addresses;     /* that of process 0, then of process 1, ... */
};

#endif /* CEI_BOOK_PRIVATE_H */
