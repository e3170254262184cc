/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A book in a memfd, which one process of a node makes and all of them map in place of their own
 * copies. Each has made its own before, so it compares the bytes and trusts nobody; the seals keep
 * them as they were compared.
 */

#include "net/book_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/write.h"

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

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

/* --- mapping ----------------------------------------------------------------------- */

/* Returns whether the descriptor is a memfd of that size with all seals. */
static int is_sealed(int fd, uint64_t n_bytes)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat about;

	return seals >= 0 && (seals & SEALS) == SEALS && !fstat(fd, &about) &&
		(uint64_t)about.st_size == n_bytes;
}

static int raise_map(struct cei_report *report, uint64_t n_bytes, int error)
{
	return cei_raise(report, CEOV_ERR_SYSTEM, error,
			 "the group's addresses (%llu bytes) cannot be mapped: %s",
			 (unsigned long long)n_bytes, strerror(error));
}

int cei_book_share(struct cei_report *report, struct cei_book *book, int fd)
{
	size_t n_bytes = (size_t)book->head->n_bytes;
	void *theirs;
	int is_same;

	if (!is_sealed(fd, n_bytes))
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "what a process of this node offers as the group's addresses is "
				 "not sealed, or not of %zu bytes", n_bytes);
	theirs = mmap(NULL, n_bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (theirs == MAP_FAILED)
		return raise_map(report, n_bytes, errno);
	is_same = !memcmp(theirs, book->bytes, n_bytes);
	(void)munmap(theirs, n_bytes);
	if (!is_same)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "what a process of this node offers as the group's addresses "
				 "differs from what this process was told");
	/* Who reads the book meanwhile sees the old bytes or the new ones, which are the same. */
	theirs = mmap(book->bytes, n_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
	return theirs == MAP_FAILED ? raise_map(report, n_bytes, errno) : 0;
}
