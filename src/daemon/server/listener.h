/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_LISTENER_H
#define CEI_DAEMON_LISTENER_H

/* Sockets that the daemon listens at. All of them are non-blocking, and close on exec. */

#include <stdint.h>

#include "base/report.h"

#define CEI_LISTENER_NO_GROUP UINT32_MAX

struct cei_listener_path {
	const char *path;
	int         type;               /* SOCK_SEQPACKET or SOCK_STREAM */
	uint32_t    mode;               /* of the socket's file */
	uint32_t    group;              /* likewise; CEI_LISTENER_NO_GROUP: as it is made */
};

/* Makes a unix socket in place of one that nobody listens at. The caller removes its file. Raises
 * CEOV_ERR_STATE: somebody listens there, or something else is there; CEOV_ERR_SYSTEM. */
int cei_listener_bind(struct cei_report *report, const struct cei_listener_path *ask,
		      int *ret_fd);

/* Takes the one socket that systemd has opened. Raises CEOV_ERR_INVALID: there is none. */
int cei_listener_take_passed(struct cei_report *report, int *ret_fd);

/* Listens at a port of 127.0.0.1. Raises CEOV_ERR_SYSTEM. */
int cei_listener_loopback(struct cei_report *report, uint32_t port, int *ret_fd);

#endif /* CEI_DAEMON_LISTENER_H */
