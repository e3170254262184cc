/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FILE_H
#define CEI_FILE_H

/*
 * Files that environment variables name, and files kept in the user's cache. A name may belong to a
 * file of any kind, even to a pipe that nobody writes to. So no function here waits, and every read
 * has a bound. Programs that the application starts do not inherit descriptors of these files.
 *
 * A cached file is read whole, checked by its caller, and replaced as a whole: readers find
 * either the old or the new contents, and the later of two writers wins.
 */

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* Reads all of a regular file and adds a NUL; the caller frees the text. Returns 0 or an errno.
 * EINVAL: it is not a regular file. EFBIG: it has more than limit_bytes; then *ret_n_bytes is its
 * size. */
int cei_file_read(const char *path, uint64_t limit_bytes, char **ret_text,
		  uint64_t *ret_n_bytes);

/* Opens a file for writing: creates or truncates a regular file, or opens a character device
 * (/dev/null). Returns 0 or an errno. EINVAL: the path leads to something else. */
int cei_file_create(const char *path, FILE **ret_file);

/* Writes a new file with these bytes, which replaces an existing file of that name (but not a
 * folder). `mode` is reduced by the process's umask. Returns 0 or an errno; on failure the old file
 * stays as it was, and no temporary file is left. */
int cei_file_replace(const char *path, const void *bytes, uint64_t n_bytes, mode_t mode);

/* Builds the path of a folder in the user's cache: $XDG_CACHE_HOME, or else ~/.cache, followed by
 * `below`, which begins with a slash. *ret_n_given is how many of its first characters come from
 * the environment. Returns 0 or an errno. ENOENT: neither variable gives an absolute path.
 * ENAMETOOLONG: path has no room. */
int cei_file_cache_folder(const char *below, char *path, uint64_t n_bytes,
			  uint64_t *ret_n_given);

/* Creates the missing folders of the path, accessible to this user only; the folders in its first
 * n_given characters must exist. Errors are not reported, because creating a file there will
 * fail. */
void cei_file_make_folders(const char *path, uint64_t n_given);

/* Opens /dev/null as those of the descriptors 0 to 2 that a process was started without, so that
 * nothing opened later has these numbers: a line for stderr would be written into a memory file, or
 * sent to a peer. If that fails, the next call that opens something fails as well. */
void cei_file_fill_standard(void);

/* Returns the text of an errno from the calls above; EINVAL means "no regular file" here. */
const char *cei_file_fault(int error);

#endif /* CEI_FILE_H */
