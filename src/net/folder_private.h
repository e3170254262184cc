/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FOLDER_PRIVATE_H
#define CEI_FOLDER_PRIVATE_H

/*
 * An exchange by files in a folder that all nodes share. For a group of number G:
 *
 *   ceoverlap-G.call        by process 0: the random number R of this run
 *   ceoverlap-G.R.N.P       by process P: its bytes in all-gather N
 *   ceoverlap-G.R.N.all     by process 0: the bytes of all, or why it failed
 *
 * Process 0 replaces a call that an earlier run left behind. A process that has read the old one
 * notices that it has changed, and writes its file anew under the new number; it takes an answer
 * only if that holds the random number of its own file. So nothing of an earlier run is taken for
 * something of this one.
 *
 * Process 0 removes the call before it answers, so that a process that is already in the next
 * exchange does not find the call of this one. Processes remove their files when they have read
 * the answer; when all have, process 0 removes what is left.
 *
 * Everything here raises its errors, where nothing else is said.
 */

#include <dirent.h>

#include "net/means.h"
#include "net/folder_file.h"

#define CEI_FOLDER_PAUSE_NS UINT64_C(500000)    /* first pause between two looks */

struct cei_folder {
	int      fd;
	uint64_t instance;              /* random, of this process */
	uint64_t run;                   /* 0: not known yet */
	int      has_failed;
	uint64_t deadline_ns;           /* of the exchange, point in time */
	char     part[CEI_FOLDER_NAME_BYTES];   /* name of the file that this process has written,
						 * or tried to, and has to remove; "": none */
	uint64_t foreign_instance;      /* of an answer to another process of this number; 0:
					 * none was seen */
	uint32_t foreign_version;       /* of a call of another version; 0: none was seen */
};

/* The names of files; name_run()'s is the begin of all names of this run. */
void cei_folder_name_call(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES]);
void cei_folder_name_run(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES]);
void cei_folder_name_part(const struct cei_exchange *exchange, uint32_t process,
			  char name[CEI_FOLDER_NAME_BYTES]);
void cei_folder_name_all(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES]);

int cei_folder_raise(const struct cei_exchange *exchange, int error, const char *what);

/* Writes a file of this process, run and round. failure: the head's error. */
int cei_folder_write_as(const struct cei_exchange *exchange, const char *name,
			const void *bytes, uint64_t n_bytes, int failure);

/* Writes this process's file of this round. */
int cei_folder_write_part(struct cei_exchange *exchange, const void *own, uint32_t n_bytes);
void cei_folder_remove_part(struct cei_exchange *exchange);

/* Reads a file, and checks that it is of this group, run and round, and of that process.
 * CEOV_NONE: it is not there. */
int cei_folder_read_as(const struct cei_exchange *exchange, const char *name, uint32_t process,
		       uint64_t limit, struct cei_folder_file *ret_file);

/* Sleeps for *pause_ns, which then doubles, but not beyond the deadline. */
void cei_folder_pause(uint64_t deadline_ns, uint64_t *pause_ns);

/* Opens the folder anew for reading. On NFS this makes files of other nodes visible that were
 * looked for in vain before. NULL, with errno set, not raised. */
DIR *cei_folder_open_list(const struct cei_folder *folder);

/* --- what an answer holds: for each process these, then the bytes of all, or a text of at most
 * CEI_FOLDER_TEXT_BYTES that says what failed ------------------------------------------- */

#define CEI_FOLDER_ENTRY_BYTES 12u      /* instance, 0: it has not come; length, 0 in a failure */
#define CEI_FOLDER_TEXT_BYTES  200u

/* --- folder_gather.c: process 0 -------------------------------------------------------- */

int  cei_folder_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		       uint64_t deadline_ns, struct cei_gathered *ret_gathered);

/* Waits until the others have read the last answer, or long enough; removes all files. */
void cei_folder_clear(struct cei_exchange *exchange);

#endif /* CEI_FOLDER_PRIVATE_H */
