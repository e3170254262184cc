/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPORT_H
#define CEI_REPORT_H

/*
 * Reports failures: each becomes one log line, and the first one of a context, and the last one of
 * each thread, is kept for ceov_last_failure().
 * The function that detects a failure calls cei_raise() once and returns its result; its callers
 * only pass the result on.
 */

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "base/list.h"
#include "base/repeats.h"

/* The lowest of enum ceov_error: what another process says is checked against it. */
#define CEI_ERROR_LOWEST CEOV_ERR_DAEMON_LOST

enum cei_log_level { CEI_LOG_ERROR, CEI_LOG_WARN, CEI_LOG_INFO, CEI_LOG_DEBUG };

#define CEI_LINE_BYTES (CEOV_FAILURE_TEXT_BYTES + 160)

/* A hold keeps back the log lines of one thread while it has one of the library's locks. Otherwise
 * the application's log function could wait for a thread that needs that lock. */
#define CEI_HOLD_LINES 4u

struct cei_report_hold {
	struct cei_list link;           /* in cei_report.holds */
	pthread_t       thread;
	int             is_open;        /* 0: not begun, or within another hold of this thread */
	uint32_t        n_lines;        /* lines kept back; only the first CEI_HOLD_LINES are
					 * stored */
	char            lines[CEI_HOLD_LINES][CEI_LINE_BYTES];
};

struct cei_report {
	pthread_mutex_t     lock;       /* guards first to holds, and is_ending;
					 * never held while the log function is called */
	struct ceov_failure first;
	int                 has_first;
	struct cei_repeats  repeats;
	struct cei_list     holds;
	enum cei_log_level  level;      /* lines of a higher level are dropped */
	int                 is_ending;  /* see cei_report_end() */
	uint32_t            rank;       /* lowest rank of this process; each line begins with
					 * it */
	void              (*log)(void *log_arg, const char *line);
	void               *log_arg;
};

/* Returns the level with that name; -1: there is none. */
int  cei_log_level_of(const char *text);

/* Initialises a report. log NULL: lines go to stderr. CEOVERLAP_LOG sets the level (error, warn,
 * info or debug; warn if unset). */
void cei_report_init(struct cei_report *report, void (*log)(void *, const char *),
		     void *log_arg);

/* The context closes: from now on aborts (CEOV_ERR_ABORTED) are what its owner asked for, so their
 * lines are no errors, and have the level info. Any thread. */
void cei_report_end(struct cei_report *report);

/* Frees the report. If repeated lines were held back and not reported yet, it logs their number. */
void cei_report_fini(struct cei_report *report);

/* Between begin and end the calling thread's lines are kept back; at the end they are written in
 * their order, by let_go. Call begin before taking the lock, or while holding the lock but before
 * anything is raised. Call end after releasing the lock. Pairs may nest. */
void cei_report_hold_begin(struct cei_report *report, struct cei_report_hold *hold);
void cei_report_let_go(struct cei_report *report, struct cei_report_hold *hold);

/* Ends a hold without writing its lines, which stay in it: let_go writes them later, in any thread
 * that has no lock which the application's log function might wait for. */
void cei_report_hold_keep(struct cei_report *report, struct cei_report_hold *hold);

static inline void cei_report_hold_end(struct cei_report *report, struct cei_report_hold *hold)
{
	if (hold->is_open)
		cei_report_let_go(report, hold);
}

void cei_log(struct cei_report *report, enum cei_log_level level,
	     const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Returns " (to blame: rank 3)", or "" for CEOV_NOBODY, as a part of a message. */
struct cei_blame_text {
	char text[40];
};
struct cei_blame_text cei_blame_text(uint32_t rank);

/* Returns a failure with this error that no rank is to blame for. */
static inline struct ceov_failure cei_failure(int error, int native_code)
{
	return (struct ceov_failure){ .error = error, .native_code = native_code,
				      .rank = CEOV_NOBODY, .transfer = CEOV_NOBODY };
}

/* Writes the text into failure, logs it, and keeps it if it is the first. Returns failure->error.
 * Any thread. */
int cei_raise_failure(struct cei_report *report, struct ceov_failure *failure,
		      const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Does the same for a failure that no rank is to blame for. */
int cei_raise(struct cei_report *report, int error, int native_code,
	      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Raises an error where there is no context whose log could be told, such as for a NULL handle: one
 * line on stderr, as far as there are not too many of its kind (repeats.h). */
int  cei_raise_unlogged(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Raises CEOV_ERR_FORKED in a forked child, where nothing may be written and no lock taken: the
 * thread alone can ask what it was. */
int  cei_raise_forked(const char *call);

/* Returns the first failure, and forgets it, so that the next one is kept. CEOV_NONE: there is
 * none. */
int cei_report_take(struct cei_report *report, struct ceov_failure *ret_failure);

/* Does the same for the last failure that the calling thread has raised in whatever report. */
int cei_report_take_own(struct ceov_failure *ret_failure);

/* Whether there is a failure to take. Any thread. */
int cei_report_has(struct cei_report *report);

#endif /* CEI_REPORT_H */
