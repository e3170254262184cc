/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens files that users name without blocking, checks them, and reads or writes them whole. */

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

#define FRESH_BYTES 20u                 /* room for the suffix of a temporary file's name */
#define FRESH_TRIES 16u

const char *cei_file_fault(int error)
{
	return error == EINVAL ? "it is no regular file" : strerror(error);
}

/* Reads n_bytes, or fewer if the file ends earlier. */
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
	*ret_n_bytes = (uint64_t)about.st_size;
	if (*ret_n_bytes > limit_bytes)
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

/* The file is truncated only after a check that it is a regular file or a character device. */
int cei_file_create(const char *path, FILE **ret_file)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
	struct stat about;
	int error = 0;

	if (fd < 0)                     /* ENXIO: the name is a pipe that nobody reads */
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

/* --- files that are kept -------------------------------------------------------------- */

/* Opens a temporary file beside the one that it will replace. Each thread and process chooses a
 * different name. */
static int open_fresh(const char *path, mode_t mode, char fresh[PATH_MAX], int *ret_fd)
{
	uint64_t seed = cei_now_ns() ^ (uint64_t)gettid() << 32;
	uint32_t i;

	if (strlen(path) + FRESH_BYTES >= PATH_MAX)
		return ENAMETOOLONG;
	for (i = 0; i < FRESH_TRIES; i++) {
		snprintf(fresh, PATH_MAX, "%s.%016llx", path, (unsigned long long)(seed + i));
		*ret_fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
		if (*ret_fd >= 0)
			return 0;
		if (errno != EEXIST)
			break;
	}
	return errno;
}

static int write_bytes(int fd, const char *bytes, uint64_t n_bytes)
{
	uint64_t at = 0;
	ssize_t n;

	while (at < n_bytes) {
		n = write(fd, bytes + at, (size_t)(n_bytes - at));
		if (n < 0 && errno != EINTR)
			return errno;
		at += n > 0 ? (uint64_t)n : 0;
	}
	return 0;
}

int cei_file_replace(const char *path, const void *bytes, uint64_t n_bytes, mode_t mode)
{
	char fresh[PATH_MAX];
	int fd, error = open_fresh(path, mode, fresh, &fd);

	if (error)
		return error;
	error = write_bytes(fd, bytes, n_bytes);
	/* that the disk is full may show only when the file is closed */
	if (close(fd) && !error)
		error = errno;
	if (!error && rename(fresh, path))
		error = errno;
	if (error)
		(void)unlink(fresh);
	return error;
}

int cei_file_cache_folder(const char *below, char *path, uint64_t n_bytes,
			  uint64_t *ret_n_given)
{
	const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
	int is_cache = cache && *cache == '/', n;

	if (!is_cache && (!home || *home != '/'))
		return ENOENT;
	n = snprintf(path, (size_t)n_bytes, "%s%s%s", is_cache ? cache : home,
		     is_cache ? "" : "/.cache", below);
	if (n < 0 || (uint64_t)n >= n_bytes)
		return ENAMETOOLONG;
	*ret_n_given = strlen(is_cache ? cache : home);
	return 0;
}

void cei_file_fill_standard(void)
{
	int fd = open("/dev/null", O_RDWR);

	while (fd >= 0 && fd <= STDERR_FILENO)
		fd = open("/dev/null", O_RDWR);
	if (fd >= 0)
		close(fd);
}

void cei_file_make_folders(const char *path, uint64_t n_given)
{
	char part[PATH_MAX];
	uint64_t n = strlen(path), at;

	if (n >= sizeof(part))
		return;
	memcpy(part, path, n + 1);
	for (at = n_given; at && at <= n; at++) {
		if (path[at] != '/' && path[at])
			continue;
		part[at] = '\0';
		(void)mkdir(part, 0700);
		part[at] = path[at];
	}
}
