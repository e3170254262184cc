/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILE_H
#define CEI_FILE_H

/*
 * Files by names that the environment gives. Behind a name may be anything, also a pipe
 * that nobody writes to: nothing here waits, and nothing is read without a bound.
 * Descriptors do not reach programs that the application starts.
 */

#include <stdint.h>
#include <stdio.h>

/* All of the regular file, with a 0 behind it; the caller frees it. An errno, or 0:
 * EINVAL for what is no regular file, EFBIG beyond limit_bytes. */
int cei_file_read(const char *path, uint64_t limit_bytes, char **ret_text,
		  uint64_t *ret_n_bytes);

/* An empty file of that name for writing, or a character device (/dev/null); an errno, or
 * 0: EINVAL for a pipe. */
int cei_file_create(const char *path, FILE **ret_file);

/* strerror(), with EINVAL for what it means here. */
const char *cei_file_fault(int error);

#endif /* CEI_FILE_H */
