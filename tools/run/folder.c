/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The folder in which the processes of a run meet. */

#include "tools/run/run.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME "ceoverlap-run-XXXXXX"
#define OPEN_MAX_WALK 16                /* folders that the walk holds open */

int run_folder_make(struct run *run)
{
	const char *where = getenv("TMPDIR");

	if (!where || !*where)
		where = "/tmp";
	if (strlen(where) + strlen("/" NAME) >= sizeof(run->folder)) {
		fprintf(stderr, "ceoverlap-run: the path in TMPDIR is too long: /tmp instead\n");
		where = "/tmp";
	}
	snprintf(run->folder, sizeof(run->folder), "%s/" NAME, where);
	if (!mkdtemp(run->folder)) {
		fprintf(stderr, "ceoverlap-run: cannot make a folder in %s: %s\n", where,
			strerror(errno));
		return -1;
	}
	run->job = strrchr(run->folder, '/') + 1;
	return 0;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *walk)
{
	(void)about;
	(void)kind;
	(void)walk;
	if (remove(path) && errno != ENOENT)
		fprintf(stderr, "ceoverlap-run: cannot remove %s: %s\n", path, strerror(errno));
	return 0;
}

void run_folder_remove(const struct run *run)
{
	if (nftw(run->folder, remove_one, OPEN_MAX_WALK, FTW_DEPTH | FTW_PHYS))
		fprintf(stderr, "ceoverlap-run: cannot look into %s: %s\n", run->folder,
			strerror(errno));
}
