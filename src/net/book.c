/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Looks things up in a book. */

#include "net/book_private.h"

#include <stdlib.h>
#include <string.h>

uint64_t cei_book_rail_bytes(uint32_t n_bytes)
{
	return sizeof(uint32_t) + ((uint64_t)n_bytes + 3) / 4 * 4;
}

void cei_book_free(struct cei_book *book)
{
	if (!book)
		return;
	free(book->nodes);
	free(book->processes);
	free(book->process_of);
	free(book->ranks);
	free(book->rails);
	free(book);
}

uint64_t cei_book_instance(const struct cei_book *book)
{
	return book->instance;
}

uint32_t cei_book_n_ranks(const struct cei_book *book)
{
	return book->n_ranks;
}

uint32_t cei_book_n_processes(const struct cei_book *book)
{
	return book->n_processes;
}

uint32_t cei_book_n_nodes(const struct cei_book *book)
{
	return book->n_nodes;
}

uint32_t cei_book_own_process(const struct cei_book *book)
{
	return book->own;
}

uint32_t cei_book_process_of(const struct cei_book *book, uint32_t rank)
{
	return book->process_of[rank];
}

uint32_t cei_book_node_of(const struct cei_book *book, uint32_t process)
{
	return book->processes[process].node;
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

uint32_t cei_book_n_rails(const struct cei_book *book, uint32_t process)
{
	return book->processes[process].n_rails;
}

/* Walks over at most CEI_RECORD_RAILS_MAX rails. */
const void *cei_book_rail(const struct cei_book *book, uint32_t process, uint32_t rail,
			  uint32_t *ret_n_bytes)
{
	const uint8_t *at = book->rails + book->processes[process].rails_at;

	for (;;) {
		memcpy(ret_n_bytes, at, sizeof(*ret_n_bytes));
		if (!rail--)
			return at + sizeof(*ret_n_bytes);
		at += cei_book_rail_bytes(*ret_n_bytes);
	}
}
