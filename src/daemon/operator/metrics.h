/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_METRICS_H
#define CEI_DAEMON_METRICS_H

/* Metrics in Prometheus's text format 0.0.4. What labels have is bounded: links, users, classes and
 * errors each by a table of a fixed size, and clients are no label. Front thread. */

#include <stdint.h>
#include <stdio.h>

struct cei_server;                      /* daemon/server/server.h */

/* Renders a text, which the caller frees. NULL: no memory. */
char *cei_metrics_text(struct cei_server *server);

/* The same, rendered at most once in CEI_METRICS_FRESH_NS, so that one who asks again and again
 * costs the front thread no more. The text is the server's until the next call. now_ns: of
 * cei_now_ns(). */
#define CEI_METRICS_FRESH_NS UINT64_C(1000000000)
const char *cei_metrics_scrape(struct cei_server *server, uint64_t now_ns);

/* Frees that text. */
void cei_metrics_forget(struct cei_server *server);

/* Replaces the text file that the settings name. Raises CEOV_ERR_SYSTEM. */
int  cei_metrics_write_file(struct cei_server *server);

#endif /* CEI_DAEMON_METRICS_H */
