/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOK_PRIVATE_H
#define CEI_BOOK_PRIVATE_H

/*
 * The layout of a book: one piece of memory without pointers, which is written to a memfd as it
 * is. It begins at a page of its own. Processes that map it are on one machine, so numbers are in
 * its byte order.
 *
 *   struct cei_book_head
 *   struct cei_book_node_row      by node
 *   struct cei_book_process_row   by process
 *   uint32_t process_of           by rank
 *   uint32_t ranks                those of process 0, then those of process 1, ...
 *   rails                         of process 0, then of process 1, ...: for each its length as
 *                                 uint32_t, its bytes, and zeros up to a multiple of 4
 */

#include <stddef.h>
#include <stdint.h>

#include "net/book.h"

#define CEI_BOOK_MAGIC   UINT32_C(0x4b424543)   /* "CEBK" */
#define CEI_BOOK_VERSION 2u

struct cei_book_head {
	uint32_t magic;
	uint32_t version;
	uint64_t n_bytes;               /* of the whole book */
	uint64_t instance;
	uint32_t n_ranks;
	uint32_t n_processes;
	uint32_t n_nodes;
	uint32_t zero;
};

struct cei_book_node_row {
	uint64_t number;
	uint32_t leader;
	uint32_t n_ranks;
	uint32_t n_processes;
	uint32_t zero;
};

struct cei_book_process_row {
	uint64_t rails_at;              /* offset of its rails, from the book's begin */
	uint32_t node;
	uint32_t first;                 /* index of its first rank in ranks */
	uint32_t n_ranks;
	uint32_t n_rails;
};

struct cei_book {
	uint8_t                     *bytes;     /* the piece of memory, by mmap(), read-only once
						 * made; the next five are where its parts
						 * begin */
	struct cei_book_head        *head;
	struct cei_book_node_row    *nodes;
	struct cei_book_process_row *processes;
	uint32_t                    *process_of;
	uint32_t                    *ranks;
	uint32_t                     own;       /* this process */
};

/* Returns the offset of the rails, from the head's three numbers; they are within the limits. */
uint64_t cei_book_rails_begin(const struct cei_book_head *head);

/* Sets the pointers from book->bytes, whose head is valid. */
void cei_book_point(struct cei_book *book);

/* Bytes that a rail of this length takes in the book. */
uint64_t cei_book_rail_bytes(uint32_t n_bytes);

#endif /* CEI_BOOK_PRIVATE_H */
