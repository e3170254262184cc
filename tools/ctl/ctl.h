/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CTL_H
#define CTL_H

/* ceoverlapctl: what its files share. */

#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

/* Exit statuses. */
#define CTL_REFUSED 1                   /* by the daemon, or output failed */
#define CTL_USAGE   2
#define CTL_ABSENT  3                   /* no daemon answers there */

struct ctl_ask {
	const char *path;               /* of the control socket */
	int         is_json;
	uint64_t    interval_ms;        /* of monitor, ... */
	uint64_t    n_frames;           /* ... which ends after so many; 0: never */
};

/* --- ask.c --------------------------------------------------------------------- */

struct ctl_command {
	const char *name;               /* for the daemon */
	const char *yields;             /* what its answer has; NULL: nothing more than "ok" */
};

/* Sends a command, and returns the answer, in which "ok" is true; the caller puts it. NULL: failed,
 * reported on stderr, and *ret_status is an exit status. */
struct json_object *ctl_ask(const char *path, const struct ctl_command *command,
			    int *ret_status);

/* --- fields.c: reading answers; what is missing or of another type is 0 or "" ------ */

struct json_object *ctl_object(struct json_object *from, const char *name);
uint64_t            ctl_number(struct json_object *from, const char *name);
double              ctl_real(struct json_object *from, const char *name);
const char         *ctl_text(struct json_object *from, const char *name);
size_t              ctl_length(struct json_object *list);

/* The names of classes, in the order in which they are shown. */
#define CTL_CLASSES 3u
extern const char *const ctl_classes[CTL_CLASSES];

/* The sum of a field over the classes of a link or of a client's bytes. */
uint64_t ctl_sum(struct json_object *classes, const char *name);

struct ctl_words {
	char text[32];
};

/* "1.5 GB/s", "12.0 GiB", "2 h 5 min", "alice", "85 us". */
struct ctl_words ctl_rate(uint64_t bytes_per_s);
struct ctl_words ctl_bytes(uint64_t n_bytes);
struct ctl_words ctl_duration(uint64_t seconds);
struct ctl_words ctl_user(uint64_t uid);
struct ctl_words ctl_us(uint64_t us);

/* --- show.c: answers as text ------------------------------------------------------ */

void ctl_show_status(struct json_object *answer);
void ctl_show_clients(struct json_object *answer);
void ctl_show_routes(struct json_object *answer);
void ctl_show_limits(struct json_object *answer);
void ctl_show_dump(struct json_object *answer);

/* --- monitor.c -------------------------------------------------------------------- */

/* Returns an exit status. */
int ctl_monitor(const struct ctl_ask *ask);

#endif /* CTL_H */
