/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const char *path, int error)
{
	fprintf(stderr, "%s: cannot write %s: %s\n", program_invocation_short_name, path,
		strerror(error));
	return -1;
}

/* Returns whether the path names an open descriptor (/dev/fd/N). Such a file is written directly,
 * not replaced. */
static int is_descriptor(const char *path)
{
	return !strncmp(path, "/dev/std", 8) || !strncmp(path, "/dev/fd/", 8) ||
		!strncmp(path, "/proc/", 6);
}

/* Resolves links. A name that does not exist yet is kept as it is. */
static int resolve(const char *path, char *ret_path, size_t n_bytes)
{
	char *real = is_descriptor(path) ? NULL : realpath(path, NULL);
	int n = snprintf(ret_path, n_bytes, "%s", real ? real : path);

	free(real);
	return n > 0 && (size_t)n < n_bytes ? 0 : ENAMETOOLONG;
}

/* Creates the temporary file in the same folder. *ret_fd -1: not possible there, so the final path
 * will be written directly. Returns an errno. */
static int create_beside(struct output *output, int *ret_fd)
{
	struct stat old;
	int exists = !stat(output->path, &old);
	int n = snprintf(output->beside, sizeof(output->beside), "%s.%ld.new", output->path,
			 (long)getpid());

	*ret_fd = -1;
	if (exists && S_ISDIR(old.st_mode))
		return EISDIR;
	if (exists && access(output->path, W_OK))
		return errno;
	if (!exists || (S_ISREG(old.st_mode) && !is_descriptor(output->path))) {
		if (n < 1 || (size_t)n >= sizeof(output->beside))
			return ENAMETOOLONG;
		*ret_fd = open(output->beside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
			       0666);
		if (*ret_fd < 0 && !exists)
			return errno;
	}
	if (*ret_fd < 0)
		output->beside[0] = '\0';
	else if (exists)
		(void)fchmod(*ret_fd, old.st_mode & 0777);      /* takes over the old file's
								 * permissions */
	return 0;
}

static int begin(struct output *output, const char *path, int *ret_fd)
{
	int error = resolve(path, output->path, sizeof(output->path));

	output->stream = NULL;
	output->beside[0] = '\0';
	*ret_fd = -1;
	return error ? error : create_beside(output, ret_fd);
}

int output_check(const char *path)
{
	struct output output;
	int fd, error;

	if (!path)
		return 0;
	error = begin(&output, path, &fd);
	if (error)
		return fail(path, error);
	if (fd >= 0) {
		close(fd);
		unlink(output.beside);
	}
	return 0;
}

/* An open descriptor is not opened anew: a file behind it would be truncated, though others may
 * have written to it. */
static int open_directly(const char *path)
{
	int number, n = 0;

	if (sscanf(path, "/dev/fd/%9d%n", &number, &n) == 1 && !path[n])
		return fcntl(number, F_DUPFD_CLOEXEC, 0);
	return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

int output_open(struct output *output, const char *path)
{
	int fd, error = begin(output, path, &fd);

	if (!error && fd < 0) {
		fd = open_directly(output->path);
		error = fd < 0 ? errno : 0;
	}
	if (error)
		return fail(path, error);
	output->stream = fdopen(fd, "w");
	if (output->stream)
		return 0;
	error = errno;
	close(fd);
	if (output->beside[0])
		unlink(output->beside);
	return fail(path, error);
}

int output_close(struct output *output)
{
	int had_failed = ferror(output->stream);
	int error = 0;

	if (fclose(output->stream))
		error = errno;
	else if (had_failed)
		error = EIO;            /* the errno of the failed write is not known any more */
	if (!error && output->beside[0] && rename(output->beside, output->path))
		error = errno;
	if (error && output->beside[0])
		unlink(output->beside);
	return error ? fail(output->path, error) : 0;
}

void output_drop(struct output *output)
{
	(void)fclose(output->stream);
	if (output->beside[0])
		unlink(output->beside);
}

int output_write(const char *path, const char *text)
{
	struct output output;

	if (output_open(&output, path))
		return -1;
	fputs(text, output.stream);
	return output_close(&output);
}
