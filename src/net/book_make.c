/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Makes a book of records in two passes: the first checks every record against this process's
 * own and notes who holds which rank, the second writes the book.
 */

#include "net/book_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_PROCESS UINT32_MAX

/* What the first pass notes of a process. */
struct seen {
	uint64_t node_number;
	uint32_t process;
	uint32_t lowest;                /* of its ranks */
	uint32_t n_ranks;
	uint32_t n_address;
	uint32_t node;                  /* index of its node; set when nodes are numbered */
};

struct making {
	struct cei_report         *report;
	const struct cei_gathered *records;
	struct cei_record          own;
	struct cei_record          other;       /* the one that is looked at */
	struct seen               *seen;        /* by process */
	struct seen              **order;       /* the same, sorted */
	uint32_t                  *process_of;  /* by rank */
	uint32_t                   n_nodes;
	uint64_t                   n_addresses;         /* bytes of all addresses */
};

/* --- the first pass: checks -------------------------------------------------------- */

/* Raises an error that blames the lowest rank of the record that is looked at. */
static int blame(struct making *making, int error, const char *what, const char *theirs,
		 const char *ours)
{
	struct ceov_failure failure = cei_failure(error, 0);

	failure.rank = making->other.ranks[0];
	return cei_raise_failure(making->report, &failure, "rank %u has %s %s, rank %u has %s: "
				 "all processes of a group need the same",
				 making->other.ranks[0], what, theirs, making->own.ranks[0],
				 ours);
}

static int blame_numbers(struct making *making, const char *what, uint64_t theirs,
			 uint64_t ours)
{
	char text[2][24];

	snprintf(text[0], sizeof(text[0]), "%" PRIu64, theirs);
	snprintf(text[1], sizeof(text[1]), "%" PRIu64, ours);
	return blame(making, CEOV_ERR_INVALID, what, text[0], text[1]);
}

/* Compares what has to be equal in all records. */
static int check_equal(struct making *making)
{
	const struct cei_record *own = &making->own, *other = &making->other;

	if (strcmp(other->library, own->library))
		return blame(making, CEOV_ERR_VERSION, "ceoverlap", other->library,
			     own->library);
	if (strcmp(other->transport, own->transport))
		return blame(making, CEOV_ERR_VERSION, "UCX",
			     other->transport[0] ? other->transport : "(none)",
			     own->transport[0] ? own->transport : "(none)");
	if (strcmp(other->job, own->job))
		return blame(making, CEOV_ERR_INVALID, "the job",
			     other->job[0] ? other->job : "(none)",
			     own->job[0] ? own->job : "(none)");
	if (other->n_group_ranks != own->n_group_ranks)
		return blame_numbers(making, "a group of this many ranks:",
				     other->n_group_ranks, own->n_group_ranks);
	return 0;
}

static int decode(struct making *making, uint32_t process, struct cei_record *ret_record)
{
	uint32_t n_bytes;
	const uint8_t *bytes = cei_gathered_part(making->records, process, &n_bytes);
	int r = cei_record_decode(bytes, n_bytes, ret_record);

	if (r == CEOV_ERR_VERSION && ret_record->version)
		return cei_raise(making->report, r, 0, "process %u has records of version %u, "
				 "this process of version %u: install one version of ceoverlap "
				 "on all nodes", process, ret_record->version,
				 CEI_RECORD_VERSION);
	if (r)
		return cei_raise(making->report, CEOV_ERR_INVALID, 0, "the %u bytes that "
				 "process %u sent are no record of ceoverlap: does another "
				 "program take part?", n_bytes, process);
	return 0;
}

/* Notes that the process holds its ranks. */
static int take_ranks(struct making *making, uint32_t process)
{
	const struct cei_record *record = &making->other;
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	uint32_t i, *holder;

	for (i = 0; i < record->n_ranks; i++) {
		failure.rank = record->ranks[i];
		if (failure.rank >= making->own.n_group_ranks)
			return cei_raise_failure(making->report, &failure, "process %u says it "
						 "has rank %u, but the group has %u ranks",
						 process, failure.rank,
						 making->own.n_group_ranks);
		holder = &making->process_of[failure.rank];
		if (*holder != NO_PROCESS)
			return cei_raise_failure(making->report, &failure, "processes %u and %u "
						 "both say they have rank %u: check how ranks "
						 "are given to processes", *holder, process,
						 failure.rank);
		*holder = process;
	}
	return 0;
}

static void note(struct making *making, uint32_t process)
{
	const struct cei_record *record = &making->other;
	struct seen *seen = &making->seen[process];
	uint32_t i;

	seen->process = process;
	seen->node_number = record->node;
	seen->n_ranks = record->n_ranks;
	seen->n_address = record->n_address;
	seen->lowest = record->ranks[0];
	for (i = 1; i < record->n_ranks; i++)
		if (record->ranks[i] < seen->lowest)
			seen->lowest = record->ranks[i];
	making->n_addresses += record->n_address;
}

static int check_complete(const struct making *making)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_INVALID, 0);
	uint32_t rank, n_missing = 0;

	for (rank = making->own.n_group_ranks; rank-- > 0;) {
		if (making->process_of[rank] != NO_PROCESS)
			continue;
		n_missing++;
		failure.rank = rank;
	}
	if (!n_missing)
		return 0;
	return cei_raise_failure(making->report, &failure, "no process has rank %u, and %u of %u "
				 "ranks are missing in all; %u processes have come",
				 failure.rank, n_missing, making->own.n_group_ranks,
				 making->records->n_processes);
}

static int check_records(struct making *making)
{
	uint32_t process;
	int r = 0;

	for (process = 0; !r && process < making->records->n_processes; process++) {
		r = decode(making, process, &making->other);
		if (!r)
			r = check_equal(making);
		if (!r)
			r = take_ranks(making, process);
		if (!r)
			note(making, process);
	}
	return r ? r : check_complete(making);
}

/* --- nodes ------------------------------------------------------------------------- */

static int by_node(const void *one, const void *other)
{
	const struct seen *a = *(struct seen *const *)one, *b = *(struct seen *const *)other;

	if (a->node_number != b->node_number)
		return a->node_number < b->node_number ? -1 : 1;
	return a->lowest < b->lowest ? -1 : 1;
}

static int by_lowest(const void *one, const void *other)
{
	const struct seen *a = *(struct seen *const *)one, *b = *(struct seen *const *)other;

	return a->lowest < b->lowest ? -1 : 1;
}

/* Numbers the nodes in the order of their lowest ranks. Sorted by node, the first process of
 * each is its leader's; these, sorted by rank, are the nodes in their order. */
static void number_nodes(struct making *making, struct seen **leaders)
{
	uint32_t n = making->records->n_processes, i, node = 0;

	qsort(making->order, n, sizeof(*making->order), by_node);
	for (i = 0; i < n; i++)
		if (!i || making->order[i]->node_number != making->order[i - 1]->node_number)
			leaders[making->n_nodes++] = making->order[i];
	qsort(leaders, making->n_nodes, sizeof(*leaders), by_lowest);
	for (i = 0; i < making->n_nodes; i++)
		leaders[i]->node = i;
	for (i = 0; i < n; i++) {
		if (!i || making->order[i]->node_number != making->order[i - 1]->node_number)
			node = making->order[i]->node;
		making->order[i]->node = node;
	}
}

/* --- the second pass: writing ------------------------------------------------------ */

static void add_to_node(struct cei_book_node *node, const struct seen *seen)
{
	node->number = seen->node_number;
	if (!node->n_processes++ || seen->lowest < node->leader)
		node->leader = seen->lowest;
	node->n_ranks += seen->n_ranks;
}

static int write_processes(struct making *making, struct cei_book *book)
{
	struct cei_book_process row = { .address_at = 0 };
	const struct seen *seen;
	uint32_t process;
	int r;

	for (process = 0; process < book->roster.n_processes; process++) {
		seen = &making->seen[process];
		r = decode(making, process, &making->other);
		if (r)
			return r;
		if (!process)
			book->instance = making->other.instance;
		row.n_ranks = seen->n_ranks;
		row.n_address = seen->n_address;
		book->processes[process] = row;
		memcpy(book->ranks + row.first, making->other.ranks,
		       row.n_ranks * sizeof(*book->ranks));
		memcpy(book->addresses + row.address_at, making->other.address, row.n_address);
		row.first += row.n_ranks;
		row.address_at += row.n_address;
		book->node_of[process] = seen->node;
		book->first_rank[process] = seen->lowest;
		add_to_node(&book->nodes[seen->node], seen);
	}
	return 0;
}

static int raise_memory(const struct making *making)
{
	return cei_raise(making->report, CEOV_ERR_NO_MEMORY, 0,
			 "no memory for the addresses of %u processes",
			 making->records->n_processes);
}

/* Takes making->process_of. NULL: no memory. */
static struct cei_book *allocate(struct making *making)
{
	uint32_t n_ranks = making->own.n_group_ranks, n = making->records->n_processes;
	struct cei_book *book = calloc(1, sizeof(*book));

	if (!book)
		return NULL;
	book->nodes = calloc(making->n_nodes, sizeof(*book->nodes));
	book->processes = calloc(n, sizeof(*book->processes));
	book->ranks = calloc(n_ranks, sizeof(*book->ranks));
	book->addresses = calloc(1, (size_t)making->n_addresses + 1);   /* there may be none */
	book->process_of = making->process_of;
	making->process_of = NULL;
	book->node_of = calloc(n, sizeof(*book->node_of));
	book->first_rank = calloc(n, sizeof(*book->first_rank));
	book->in_node = calloc(n, sizeof(*book->in_node));
	book->node_at = calloc(making->n_nodes + 1u, sizeof(*book->node_at));
	book->roster = (struct cei_roster){
		.n_ranks = n_ranks, .n_processes = n, .n_nodes = making->n_nodes,
		.process_of = book->process_of, .node_of = book->node_of,
		.first_rank = book->first_rank,
		.in_node = book->in_node, .node_at = book->node_at,
	};
	if (book->nodes && book->processes && book->ranks && book->addresses && book->node_of &&
	    book->first_rank && book->in_node && book->node_at)
		return book;
	cei_book_free(book);
	return NULL;
}

/* Sorts the processes by nodes, in the order of their lowest ranks. */
static void sort_into_nodes(struct cei_book *book)
{
	const struct cei_roster *roster = &book->roster;
	uint32_t node, rank, process;

	for (node = 0; node < roster->n_nodes; node++)
		book->node_at[node + 1] = book->node_at[node] + book->nodes[node].n_processes;
	for (rank = 0; rank < roster->n_ranks; rank++) {
		process = roster->process_of[rank];
		if (roster->first_rank[process] == rank)
			book->in_node[book->node_at[roster->node_of[process]]++] = process;
	}
	for (node = roster->n_nodes; node > 0; node--)
		book->node_at[node] = book->node_at[node - 1];
	book->node_at[0] = 0;
}

static int write_book(struct making *making, uint32_t own, struct cei_book **ret_book)
{
	struct cei_book *book = allocate(making);
	int r;

	if (!book)
		return raise_memory(making);
	book->roster.own = own;
	r = write_processes(making, book);
	if (r) {
		cei_book_free(book);
		return r;
	}
	sort_into_nodes(book);
	*ret_book = book;
	return 0;
}

/* --- both -------------------------------------------------------------------------- */

static int make(struct making *making, uint32_t own, struct cei_book **ret_book)
{
	uint32_t n_processes = making->records->n_processes;
	struct seen **leaders;
	uint32_t i;
	int r;

	making->seen = calloc(n_processes, sizeof(*making->seen));
	making->order = calloc(2 * (size_t)n_processes, sizeof(struct seen *));
	making->process_of = malloc(making->own.n_group_ranks * sizeof(*making->process_of));
	if (!making->seen || !making->order || !making->process_of)
		return raise_memory(making);
	memset(making->process_of, 0xff,
	       making->own.n_group_ranks * sizeof(*making->process_of));
	r = check_records(making);
	if (r)
		return r;
	for (i = 0; i < n_processes; i++)
		making->order[i] = &making->seen[i];
	leaders = making->order + n_processes;
	number_nodes(making, leaders);
	return write_book(making, own, ret_book);
}

static int check_own(struct making *making)
{
	uint32_t n_ranks = making->own.n_group_ranks;

	if (n_ranks && n_ranks <= CEI_BOOK_RANKS_MAX)
		return 0;
	return cei_raise(making->report, CEOV_ERR_INVALID, 0,
			 "a group of %u ranks: it must have 1 to %u", n_ranks,
			 CEI_BOOK_RANKS_MAX);
}

int cei_book_make(struct cei_report *report, const struct cei_gathered *records, uint32_t own,
		  struct cei_book **ret_book)
{
	struct making *making = calloc(1, sizeof(*making));
	int r;

	if (!making)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to compare the group's processes");
	making->report = report;
	making->records = records;
	r = decode(making, own, &making->own);
	if (!r)
		r = check_own(making);
	if (!r)
		r = make(making, own, ret_book);
	free(making->seen);
	free(making->order);
	free(making->process_of);
	free(making);
	return r;
}
