/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Files by name: opened without waiting, looked at, then read or written. */

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *cei_file_fault(int error)
{
	return error == EINVAL ? "it is no regular file" : strerror(error);
}

/* Up to n_bytes: a file that is written meanwhile may end early. */
static int read_bytes(int fd, char *text, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
	uint64_t at = 0;
	ssize_t n = 1;

	while (at < n_bytes && n) {
		n = read(fd, text + at, (size_t)(n_bytes - at));
		if (n < 0 && errno != EINTR)
			return errno;
		at += n > 0 ? (uint64_t)n : 0;
	}
	text[at] = '\0';
	*ret_n_bytes = at;
	return 0;
}

static int read_all(int fd, uint64_t limit_bytes, char **ret_text, uint64_t *ret_n_bytes)
{
	struct stat about;
	char *text;
	int error;

	if (fstat(fd, &about))
		return errno;
	if (!S_ISREG(about.st_mode))
		return EINVAL;
	if ((uint64_t)about.st_size > limit_bytes)
		return EFBIG;
	text = malloc((size_t)about.st_size + 1);
	if (!text)
		return ENOMEM;
	error = read_bytes(fd, text, (uint64_t)about.st_size, ret_n_bytes);
	if (error)
		free(text);
	else
		*ret_text = text;
	return error;
}

int cei_file_read(const char *path, uint64_t limit_bytes, char **ret_text,
		  uint64_t *ret_n_bytes)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int error;

	if (fd < 0)
		return errno;
	error = read_all(fd, limit_bytes, ret_text, ret_n_bytes);
	close(fd);
	return error;
}

/* Emptied only when it is known what it is. */
int cei_file_create(const char *path, FILE **ret_file)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
	struct stat about;
	int error = 0;

	if (fd < 0)                     /* ENXIO: a pipe that nobody reads */
		return errno == ENXIO ? EINVAL : errno;
	if (fstat(fd, &about))
		error = errno;
	else if (!S_ISREG(about.st_mode) && !S_ISCHR(about.st_mode))
		error = EINVAL;
	else if (S_ISREG(about.st_mode) && ftruncate(fd, 0))
		error = errno;
	*ret_file = error ? NULL : fdopen(fd, "w");
	if (!error && !*ret_file)
		error = errno;
	if (error)
		close(fd);
	return error;
}
