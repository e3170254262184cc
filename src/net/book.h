/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOK_H
#define CEI_BOOK_H

/*
 * The book of a group: which process holds which rank, which node each process is on, and the
 * address of its rail. It is made of the records of all processes and never changes, so any
 * thread may look things up. All look-ups take a time that does not depend on the group's size.
 *
 * Memory: 8 bytes a rank, 36 a process, 28 a node, and the addresses, in each process. So 65,536
 * processes of one rank and an address of 79 bytes, 8 on each node, take 7.9 MiB each, and the
 * 128 of 16 such nodes 16 KiB.
 */

#include <stdint.h>

#include "base/report.h"
#include "ipc/group/roster.h"
#include "net/gathered.h"
#include "net/record.h"

#define CEI_BOOK_RANKS_MAX 65536u

struct cei_book;

/* Makes the book of all records, in the order of processes. own is the number of this process,
 * whose record the others are compared with. Raised: CEOV_ERR_VERSION if versions of the
 * library or of the transport differ, CEOV_ERR_INVALID if a record is none, if groups or numbers of
 * ranks differ, or if a rank is held twice or not at all. The failure names both sides' values
 * and ranks. */
int  cei_book_make(struct cei_report *report, const struct cei_gathered *records, uint32_t own,
		   struct cei_book **ret_book);

/* NULL is allowed. */
void cei_book_free(struct cei_book *book);

/* --- look-ups: numbers have to be in range, and results are -------------------------- */

/* Process 0's instance, which tells groups of one job apart that run at the same time or one after
 * the other. */
uint64_t cei_book_instance(const struct cei_book *book);

/* Who is who; valid as long as the book. Nodes are numbered from 0 on, in the order of their lowest
 * ranks. */
const struct cei_roster *cei_book_roster(const struct cei_book *book);

uint32_t cei_book_n_ranks(const struct cei_book *book);
uint32_t cei_book_n_processes(const struct cei_book *book);
uint32_t cei_book_n_nodes(const struct cei_book *book);
uint32_t cei_book_own_process(const struct cei_book *book);

struct cei_book_node {
	uint64_t number;                /* as its processes' records have it */
	uint32_t leader;                /* its lowest rank */
	uint32_t n_ranks;
	uint32_t n_processes;
};
void cei_book_node(const struct cei_book *book, uint32_t node, struct cei_book_node *ret_node);

/* Returns the ranks of a process, in the order of its record; valid as long as the book. */
const uint32_t *cei_book_ranks_of(const struct cei_book *book, uint32_t process,
				  uint32_t *ret_n_ranks);

/* Returns the address of a process's rail; valid as long as the book. 0 bytes: other nodes cannot
 * reach it. */
const void *cei_book_address(const struct cei_book *book, uint32_t process,
			     uint32_t *ret_n_bytes);

#endif /* CEI_BOOK_H */
