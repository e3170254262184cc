/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILE_H
#define CEI_FILE_H

/*
 * Files by names that the environment gives, and those that are kept in the user's cache.
 * Behind a name may be anything, also a pipe that nobody writes to: nothing here waits, and
 * nothing is read without a bound. Descriptors do not reach programs that the application
 * starts.
 *
 * A file that is kept is read whole, checked by who knows its format, and replaced as a
 * whole: readers find the old one or the new one, and of two writers the later wins.
 */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* All of the regular file, with a 0 behind it; the caller frees it. An errno, or 0:
 * EINVAL for what is no regular file, EFBIG beyond limit_bytes; then *ret_n_bytes is what
 * it has. */
int cei_file_read(const char *path, uint64_t limit_bytes, char **ret_text,
		  uint64_t *ret_n_bytes);

/* An empty file of that name for writing, or a character device (/dev/null); an errno, or
 * 0: EINVAL for a pipe. */
int cei_file_create(const char *path, FILE **ret_file);

/* Puts a file with these bytes in place of what has that name, if anything: all but a folder.
 * Its mode is the given one less the umask. An errno, or 0. On failure what was there stays
 * as it is, and nothing is left beside it. */
int cei_file_replace(const char *path, const void *bytes, uint64_t n_bytes, mode_t mode);

/* A folder in the user's cache: $XDG_CACHE_HOME, else ~/.cache, and `below` behind it, which
 * begins with a slash. The first *ret_n_given characters are what the environment gave. An
 * errno, or 0: ENOENT where neither is named by its whole path, ENAMETOOLONG. */
int cei_file_cache_folder(const char *below, char *path, uint64_t n_bytes,
			  uint64_t *ret_n_given);

/* Makes the folders of the path that are missing, from the one that ends at n_given on, for
 * this user alone. What is missing then is found when a file is made there. */
void cei_file_make_folders(const char *path, uint64_t n_given);

/* The text of an errno from above; EINVAL means "no regular file" here. */
const char *cei_file_fault(int error);

#endif /* CEI_FILE_H */
