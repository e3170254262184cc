/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_METRICS_H
#define CEI_DAEMON_METRICS_H

/* Metrics in Prometheus's text format 0.0.4. What labels have is bounded: links, users, classes and
 * errors each by a table of a fixed size, and clients are no label. Front thread. */

#include <stdio.h>

struct cei_server;                      /* daemon/server.h */

void cei_metrics_write(struct cei_server *server, FILE *out);

/* Replaces the text file that the settings name. Raises CEOV_ERR_SYSTEM. */
int  cei_metrics_write_file(struct cei_server *server);

#endif /* CEI_DAEMON_METRICS_H */
