/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_STORE_PATH_H
#define CEI_STORE_PATH_H

/* The path of a unix socket at which one process of a node listens for the others of its group. */

#include <stdint.h>
#include <sys/types.h>

#include "base/report.h"

struct cei_store_path {
	const char *path;               /* short enough for a socket, and stays until the close */
	int         fd;                 /* -1: it does not listen */
	int         is_bound;           /* 1: we created the file and must remove it */
	dev_t       device;             /* with inode: identifies the file that we created, so
					 * that no other file is removed */
	ino_t       inode;
};

/* Creates the socket file and listens. CEOV_NONE: another process listens there. Call the close
 * after a failure, too. */
int  cei_store_path_open(struct cei_store_path *at, struct cei_report *report, const char *path,
			 uint64_t deadline_ns);
void cei_store_path_close(struct cei_store_path *at, struct cei_report *report);

#endif /* CEI_STORE_PATH_H */
