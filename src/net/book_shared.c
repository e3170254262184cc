/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A book in a memfd, which one process of a node makes and the others map. They check every
 * number in it first: the memfd comes from another process. Its seals keep it as it was checked.
 */

#include "net/book_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* No valid book is longer. */
#define BYTES_MAX (sizeof(struct cei_book_head) + \
		   (uint64_t)CEI_GATHERED_PROCESSES_MAX * (CEI_RECORD_BYTES_MAX + 64u) + \
		   (uint64_t)CEI_BOOK_RANKS_MAX * 8u)

/* --- sealing ----------------------------------------------------------------------- */

int cei_book_seal(struct cei_report *report, const struct cei_book *book, int *ret_fd)
{
	int fd = memfd_create("ceoverlap-book", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int error = fd < 0 ? errno : cei_write_all(fd, book->bytes, book->head->n_bytes);

	if (!error && fcntl(fd, F_ADD_SEALS, SEALS))
		error = errno;
	if (!error) {
		*ret_fd = fd;
		return 0;
	}
	if (fd >= 0)
		close(fd);
	return cei_raise(report, CEOV_ERR_SYSTEM, error,
			 "the group's addresses (%llu bytes) cannot be put into a memfd: %s",
			 (unsigned long long)book->head->n_bytes, strerror(error));
}

/* --- checking ---------------------------------------------------------------------- */

static int is_head_sound(const struct cei_book_head *head, uint64_t n_bytes)
{
	return n_bytes >= sizeof(*head) && head->magic == CEI_BOOK_MAGIC &&
	       head->version == CEI_BOOK_VERSION && head->n_bytes == n_bytes && !head->zero &&
	       head->n_ranks && head->n_ranks <= CEI_BOOK_RANKS_MAX &&
	       head->n_processes && head->n_processes <= head->n_ranks &&
	       head->n_nodes && head->n_nodes <= head->n_processes &&
	       cei_book_rails_begin(head) <= n_bytes;
}

/* Returns whether the process's ranks are distinct and all said to be held by it. */
static int are_ranks_sound(const struct cei_book *book, uint32_t process)
{
	const struct cei_book_process_row *row = &book->processes[process];
	const uint32_t *ranks = book->ranks + row->first;
	uint32_t i, k;

	for (i = 0; i < row->n_ranks; i++) {
		if (ranks[i] >= book->head->n_ranks || book->process_of[ranks[i]] != process)
			return 0;
		for (k = 0; k < i; k++)
			if (ranks[k] == ranks[i])
				return 0;
	}
	return 1;
}

/* Returns where the process's rails end; 0: they are not valid. */
static uint64_t rails_end(const struct cei_book *book, uint32_t process)
{
	const struct cei_book_process_row *row = &book->processes[process];
	uint64_t at = row->rails_at, end = book->head->n_bytes;
	uint32_t i, n_bytes;

	for (i = 0; i < row->n_rails; i++) {
		if (end - at < sizeof(n_bytes))
			return 0;
		memcpy(&n_bytes, book->bytes + at, sizeof(n_bytes));
		if (!n_bytes || n_bytes > CEI_RECORD_ADDRESS_BYTES ||
		    cei_book_rail_bytes(n_bytes) > end - at)
			return 0;
		at += cei_book_rail_bytes(n_bytes);
	}
	return at;
}

static int are_processes_sound(const struct cei_book *book)
{
	uint64_t rails_at = cei_book_rails_begin(book->head);
	const struct cei_book_process_row *row;
	uint32_t process, first = 0;

	for (process = 0; process < book->head->n_processes; process++) {
		row = &book->processes[process];
		if (row->node >= book->head->n_nodes || row->first != first ||
		    !row->n_ranks || row->n_ranks > CEI_MEMBERS_MAX ||
		    row->n_ranks > book->head->n_ranks - first ||
		    row->n_rails > CEI_RECORD_RAILS_MAX || row->rails_at != rails_at ||
		    !are_ranks_sound(book, process))
			return 0;
		first += row->n_ranks;
		rails_at = rails_end(book, process);
		if (!rails_at)
			return 0;
	}
	return first == book->head->n_ranks && rails_at == book->head->n_bytes;
}

/* Counts the nodes' ranks and processes anew; rows has room for all nodes, zeroed. Ranks are
 * gone through in ascending order, so that the first one of a node is its leader. */
static int are_nodes_sound(const struct cei_book *book, struct cei_book_node_row *rows)
{
	const struct cei_book_node_row *row;
	uint32_t i, node;

	for (i = 0; i < book->head->n_processes; i++)
		rows[book->processes[i].node].n_processes++;
	for (i = 0; i < book->head->n_ranks; i++) {
		node = book->processes[book->process_of[i]].node;
		if (!rows[node].n_ranks++)
			rows[node].leader = i;
	}
	for (i = 0; i < book->head->n_nodes; i++) {
		row = &book->nodes[i];
		if (!row->number || row->zero || !row->n_ranks ||
		    row->leader != rows[i].leader || row->n_ranks != rows[i].n_ranks ||
		    row->n_processes != rows[i].n_processes ||
		    (i && row->leader <= book->nodes[i - 1].leader))
			return 0;
	}
	return 1;
}

/* Returns whether the contents of a mapped book, which has n_bytes, are valid. */
static int is_sound(struct cei_book *book, uint64_t n_bytes)
{
	struct cei_book_node_row *rows;
	int is_valid;

	book->head = (void *)book->bytes;
	if (!is_head_sound(book->head, n_bytes))
		return 0;
	cei_book_point(book);
	if (!are_processes_sound(book))
		return 0;
	rows = calloc(book->head->n_nodes, sizeof(*rows));
	is_valid = rows && are_nodes_sound(book, rows);
	free(rows);
	return is_valid;
}

/* --- mapping ----------------------------------------------------------------------- */

/* Returns whether the descriptor is a memfd with all seals, and its size. */
static int is_sealed(int fd, uint64_t *ret_n_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat about;

	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &about))
		return 0;
	*ret_n_bytes = (uint64_t)about.st_size;
	return *ret_n_bytes >= sizeof(struct cei_book_head) && *ret_n_bytes <= BYTES_MAX;
}

static int raise_unsound(struct cei_report *report)
{
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "the memfd that a process of this node offers as the group's addresses "
			 "is not sealed, or does not hold them");
}

int cei_book_map(struct cei_report *report, int fd, uint32_t own_rank,
		 struct cei_book **ret_book)
{
	struct cei_book *book;
	uint64_t n_bytes;
	void *bytes;

	if (!is_sealed(fd, &n_bytes))
		return raise_unsound(report);
	book = calloc(1, sizeof(*book));
	if (!book)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory for the group's addresses");
	bytes = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (bytes == MAP_FAILED) {
		free(book);
		return cei_raise(report, CEOV_ERR_SYSTEM, errno,
				 "the group's addresses (%llu bytes) cannot be mapped: %s",
				 (unsigned long long)n_bytes, strerror(errno));
	}
	book->bytes = bytes;
	if (!is_sound(book, n_bytes) || own_rank >= book->head->n_ranks) {
		munmap(bytes, (size_t)n_bytes);
		free(book);
		return raise_unsound(report);
	}
	book->is_mapped = 1;
	book->own = book->process_of[own_rank];
	*ret_book = book;
	return 0;
}
