/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_SETTINGS_H
#define CEI_DAEMON_SETTINGS_H

/* The daemon's configuration file: what an operator says, see ceoverlapd.conf(5). */

#include <stdint.h>

#include "ce_engine/sched/flows.h"
#include "daemon/server/limits.h"

#define CEI_SETTINGS_PATH_BYTES 108u    /* as in struct sockaddr_un */
#define CEI_SETTINGS_TEXT_BYTES 256u

struct cei_settings {
	/* at the start alone */
	char     socket[CEI_SETTINGS_PATH_BYTES];       /* "": it is passed by systemd */
	char     control[CEI_SETTINGS_PATH_BYTES];      /* ""; beside the socket */
	uint32_t mode;                  /* of the socket's file */
	uint32_t group;                 /* likewise; CEI_LISTENER_NO_GROUP: as it is made */
	uint32_t n_host_engines;        /* for ranks on host memory, at least 1 */
	uint64_t gpus;                  /* that are served: a bit for each, or CEI_GPUS_ALL */
	uint32_t http_port;             /* of 127.0.0.1, for metrics; 0: none */

	/* whenever the file is read */
	uint64_t drain_ns;              /* at the end: launches in flight have so long */
	char     textfile[CEI_SETTINGS_TEXT_BYTES];     /* for metrics; "": none */
	uint64_t textfile_ns;           /* it is written so often */
	uint64_t slo_ns[CEI_FLOWS_URGENCIES];   /* a copy should be done in so long after it became
						 * ready; 0: no matter */
	struct cei_flows_classes classes;
	struct cei_limits_table  limits;
};

struct cei_settings_fault {             /* what is wrong, in words */
	char text[512];                 /* "PATH:LINE: ..." */
};

/* What holds where a file says nothing. */
struct cei_settings cei_settings_default(void);

/* Reads a file over the defaults. CEOV_ERR_INVALID: *ret_fault says which line is wrong, and why;
 * CEOV_ERR_SYSTEM: the file cannot be read. *ret_settings is written on success only. Names of
 * users and groups are looked up, which may take as long as the system's name services do. */
int cei_settings_read(const char *path, struct cei_settings *ret_settings,
		      struct cei_settings_fault *ret_fault);

/* The name of a setting that differs and holds at the start alone, or NULL. */
const char *cei_settings_at_start(const struct cei_settings *old, const struct cei_settings *new);

#endif /* CEI_DAEMON_SETTINGS_H */
