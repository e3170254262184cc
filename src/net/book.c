/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Looks things up in a book. */

#include "net/book_private.h"

#include <stdlib.h>

void cei_book_free(struct cei_book *book)
{
	if (!book)
		return;
	free(book->nodes);
	free(book->processes);
	free(book->process_of);
	free(book->node_of);
	free(book->first_rank);
	free(book->in_node);
	free(book->node_at);
	free(book->ranks);
	free(book->addresses);
	free(book);
}

uint64_t cei_book_instance(const struct cei_book *book)
{
	return book->instance;
}

const struct cei_roster *cei_book_roster(const struct cei_book *book)
{
	return &book->roster;
}

uint32_t cei_book_n_ranks(const struct cei_book *book)
{
	return book->roster.n_ranks;
}

uint32_t cei_book_n_processes(const struct cei_book *book)
{
	return book->roster.n_processes;
}

uint32_t cei_book_n_nodes(const struct cei_book *book)
{
	return book->roster.n_nodes;
}

uint32_t cei_book_own_process(const struct cei_book *book)
{
	return book->roster.own;
}

void cei_book_node(const struct cei_book *book, uint32_t node, struct cei_book_node *ret_node)
{
	*ret_node = book->nodes[node];
}

const uint32_t *cei_book_ranks_of(const struct cei_book *book, uint32_t process,
				  uint32_t *ret_n_ranks)
{
	*ret_n_ranks = book->processes[process].n_ranks;
	return book->ranks + book->processes[process].first;
}

const void *cei_book_address(const struct cei_book *book, uint32_t process, uint32_t *ret_n_bytes)
{
	*ret_n_bytes = book->processes[process].n_address;
	return book->addresses + book->processes[process].address_at;
}
