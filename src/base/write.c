/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "base/write.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

int cei_write(struct cei_report *report, int fd, const char *text, const char *call)
{
	size_t n_bytes = strlen(text), at;
	ssize_t n;

	for (at = 0; at < n_bytes; at += (size_t)n) {
		n = write(fd, text + at, n_bytes - at);
		if (n < 0 && errno == EINTR)
			n = 0;
		if (n < 0)
			return cei_raise(report, CEOV_ERR_SYSTEM, errno,
					 "%s: cannot write to descriptor %d", call, fd);
	}
	return 0;
}
