/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Opens a descriptor for a closed standard stream. open() returns the lowest free number, which is
 * fd because all lower ones are open. Reading from 1 or writing to 0 still fails, as on a closed
 * stream. */
static void open_missing(int fd)
{
	if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
	    open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
		_exit(EXIT_FAILURE);
}

int streams_flush(void)
{
	int had_failed = ferror(stdout);

	errno = 0;
	if (!fflush(stdout) && !had_failed)
		return 0;
	fprintf(stderr, "%s: cannot write to standard output: %s\n",
		program_invocation_short_name, errno ? strerror(errno) : "a write failed");
	return -1;
}

static void at_end(void)
{
	if (streams_flush())
		_exit(EXIT_FAILURE);
}

void streams_begin(void)
{
	int fd;

	for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		open_missing(fd);
	if (atexit(at_end))
		_exit(EXIT_FAILURE);
}
