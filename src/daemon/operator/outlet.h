/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_OUTLET_H
#define CEI_DAEMON_OUTLET_H

/*
 * A socket at which others ask once, are answered once, and are done: ceoverlapctl, and those who
 * scrape metrics. Neither blocks the front thread, whatever they do: requests are short, there are
 * few connections at once, and each has a deadline. Nor do they keep others out: when there are as
 * many as may be, the oldest one that dawdles is ended. Front thread.
 */

#include <stdint.h>
#include <stdio.h>

#include "base/list.h"
#include "base/report.h"

#define CEI_OUTLET_REQUEST_BYTES 4096u
#define CEI_OUTLET_CONNECTIONS   16u

struct sd_event;
struct sd_event_source;

struct cei_outlet {                     /* filled by its owner, as far as the blank line */
	struct cei_report *report;
	struct sd_event   *event;
	const char        *what;        /* for messages */
	const char        *end;         /* a request is complete with this */
	int                is_private;  /* only root and the daemon's own user may ask */
	/* What is sent to who is refused, before the connection is closed. text: why. NULL:
	 * nothing is. */
	void             (*refuse)(const char *text, FILE *out);
	/* Answers a request, a text without its end. CEOV_PENDING: not yet; it is asked again with
	 * each look, and *note, which is 0 first, is kept for it. */
	int              (*answer)(void *arg, const char *request, uint64_t *note, FILE *out);
	void              *arg;

	int                     fd;     /* listens; -1: closed */
	struct sd_event_source *source;
	struct cei_list         connections;
	uint32_t                n_connections;
};

/* Answers at fd, which is the outlet's from now on, even if this fails. Raises CEOV_ERR_SYSTEM. */
int  cei_outlet_open(struct cei_outlet *outlet, int fd);

/* Answers who could not be answered before, and ends connections whose time is over. */
void cei_outlet_look(struct cei_outlet *outlet, uint64_t now_ns);

/* Accepts a zeroed outlet, and one that did not open. */
void cei_outlet_close(struct cei_outlet *outlet);

#endif /* CEI_DAEMON_OUTLET_H */
