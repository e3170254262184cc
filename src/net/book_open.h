/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_BOOK_OPEN_H
#define CEI_BOOK_OPEN_H

/* Makes the book of a group: all its processes exchange their records, and each makes its book
 * of them. Afterwards nothing is left of the exchange. */

#include "net/book.h"
#include "net/exchange.h"

/* Zeroes are the defaults. Nothing of it is used after the call. */
struct cei_book_config {
	/* the exchange: as in struct cei_exchange_config */
	uint32_t            means;
	uint32_t            process;
	uint32_t            n_processes;
	cei_all_gather_call all_gather;
	void               *all_gather_arg;
	const char         *where;
	const char         *job;
	uint64_t            deadline_ns;        /* a point in time, cei_now_ns() */

	/* this process */
	const char         *node;       /* name of the machine; NULL: CEOVERLAP_NODE, or a number
					 * that the kernel makes when it starts */
	uint64_t            instance;   /* random, new for each context that opens */
	const char         *transport;  /* UCX's version, below CEI_RECORD_TEXT_BYTES; NULL: none */
	uint32_t            n_group_ranks;      /* 0: each process has one rank, of its number */
	uint32_t            n_ranks;    /* 1 to CEI_MEMBERS_MAX */
	const uint32_t     *ranks;
	uint32_t            n_address;  /* of its rail, up to CEI_RECORD_ADDRESS_BYTES; 0: none */
	const void         *address;

	/* Completes the record, if not NULL, by what needs the numbers of the group and of this
	 * process: its rail, which is opened then. Errors are raised, and end the opening. */
	int               (*complete)(void *arg, const struct cei_exchange *exchange,
				      struct cei_record *record);
	void               *complete_arg;
};

/* All processes of the group call it. Errors are raised: those of cei_exchange_open(),
 * cei_exchange_all_gather() and cei_book_make(). The caller frees *ret_book with
 * cei_book_free(). */
int cei_book_open(const struct cei_book_config *config, struct cei_report *report,
		  struct cei_book **ret_book);

#endif /* CEI_BOOK_OPEN_H */
