/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_OPERATION_H
#define CEI_DAEMON_OPERATION_H

/*
 * What the daemon does for its operator, beside serving clients: answers ceoverlapctl, shows
 * metrics, feeds systemd's watchdog. Front thread.
 */

#include <stdint.h>

#include "base/site.h"
#include "daemon/operator/outlet.h"
#include "daemon/server/settings.h"

struct cei_server;                      /* daemon/server/server.h */

struct cei_operation {                  /* zeroed before */
	struct cei_server *server;
	struct cei_outlet control;
	struct cei_outlet http;
	char              control_path[CEI_SETTINGS_PATH_BYTES];
	int               made_control; /* the control socket's file is ours to remove */
	uint64_t          sample_at_ns; /* rates of clients are computed again */
	uint64_t          sampled_ns;
	uint64_t          textfile_at_ns;
	/* the text file that was written last; "": none is there */
	char              textfile[CEI_SETTINGS_TEXT_BYTES];
	uint64_t          no_flight_until_ns;   /* see daemon/operator/flight.h */
	uint64_t          feed_ns;      /* the watchdog is fed so often; 0: there is none */
	uint64_t          feed_at_ns;
	uint64_t          turns[CEI_MEMBERS_MAX];       /* of engines, when it was fed last */
};

/* Between cei_server_open() and cei_server_run(): hooks itself into the server's loop. Raises. */
int  cei_operation_open(struct cei_operation *operation, struct cei_server *server);

/* Does what is due. */
void cei_operation_look(struct cei_operation *operation, uint64_t now_ns);

/* Before cei_server_close(). Accepts an operation that was not opened, or failed to. */
void cei_operation_close(struct cei_operation *operation);

#endif /* CEI_DAEMON_OPERATION_H */
