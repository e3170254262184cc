/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FOLDER_FILE_H
#define CEI_FOLDER_FILE_H

/*
 * The files of an exchange in a shared folder: written whole under another name, then renamed,
 * so that whoever finds one finds all of it. Decoding is strict: a folder may hold anything.
 */

#include <stdint.h>

#include "base/report.h"

#define CEI_FOLDER_NAME_BYTES 128u
#define CEI_FOLDER_VERSION    1u

/* What every file begins with. */
struct cei_folder_head {
	uint32_t version;               /* set by reading: as received */
	int32_t  error;                 /* 0; else the contents are a text that says what failed */
	uint64_t group;
	uint64_t run;                   /* random, chosen by process 0 of this run */
	uint64_t instance;              /* random, chosen by the process that wrote the file */
	uint32_t process;
	uint32_t n_processes;
	uint32_t round;
};

struct cei_folder_file {
	struct cei_folder_head head;
	uint8_t               *bytes;   /* the contents; the reader frees them */
	uint64_t               n_bytes;
};

/* Writes a file into the folder. Returns 0 or an errno; then no file is left. */
int cei_folder_write(int folder_fd, const char *name, const struct cei_folder_file *file);

/* Reads a file of at most limit bytes of contents. CEOV_NONE: it is not there. CEOV_ERR_VERSION:
 * it is of another version, which is in ret_file->head.version. CEOV_ERR_INVALID: it is no such
 * file, or of another user. CEOV_ERR_SYSTEM, with errno set. Not raised. Contents are to be freed
 * only after 0. */
int cei_folder_read(int folder_fd, const char *name, uint64_t limit,
		    struct cei_folder_file *ret_file);

#endif /* CEI_FOLDER_FILE_H */
