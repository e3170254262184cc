/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_REPORT_H
#define CEI_REPORT_H

/*
 * Reports failures: one log line each, and the first one kept for ceov_last_failure(). The
 * function that detects a failure calls cei_raise() once and returns its result; callers
 * only pass it up.
 */

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

#include "base/list.h"
#include "base/repeats.h"

enum cei_log_level { CEI_LOG_ERROR, CEI_LOG_WARN, CEI_LOG_INFO, CEI_LOG_DEBUG };

#define CEI_LINE_BYTES (CEOV_FAILURE_TEXT_BYTES + 160)

/* Holds back the calling thread's log lines while it has one of our locks: the
 * application's log function might wait for a thread that needs that lock. */
#define CEI_HOLD_LINES 4u

struct cei_report_hold {
	struct cei_list link;           /* in the report's list, guarded by its lock */
	pthread_t       thread;
	int             is_open;        /* 0: not begun, or nested in another hold of this
					 * thread */
	uint32_t        n_lines;        /* may exceed CEI_HOLD_LINES; then the last ones were
					 * dropped */
	char            lines[CEI_HOLD_LINES][CEI_LINE_BYTES];
};

struct cei_report {
	pthread_mutex_t     lock;       /* guards the next four; never held while the log
					 * function is called */
	struct ceov_failure first;
	int                 has_first;
	struct cei_repeats  repeats;
	struct cei_list     holds;
	enum cei_log_level  level;      /* lines above it are dropped */
	uint32_t            rank;       /* our lowest rank, printed at each line's begin */
	void              (*log)(void *log_arg, const char *line);
	void               *log_arg;
};

/* Returns the level of that name; -1: there is none. */
int  cei_log_level_of(const char *text);

/* log NULL: stderr. The level comes from CEOVERLAP_LOG (error, warn, info,
 * debug; default warn). */
void cei_report_init(struct cei_report *report, void (*log)(void *, const char *),
		     void *log_arg);

/* Also logs how many repeated lines were held back and not yet reported. */
void cei_report_fini(struct cei_report *report);

/* Between begin and end the calling thread's lines are kept back, and written in their
 * order at the end. Begin before taking the lock, or while holding it but before anything
 * is raised; end after releasing it. Pairs may nest. */
void cei_report_hold_begin(struct cei_report *report, struct cei_report_hold *hold);
void cei_report_hold_end(struct cei_report *report, struct cei_report_hold *hold);

void cei_log(struct cei_report *report, enum cei_log_level level,
	     const char *format, ...) __attribute__((format(printf, 3, 4)));

/* For messages: " (to blame: rank 3)", or nothing. */
struct cei_blame_text {
	char text[40];
};
struct cei_blame_text cei_blame_text(uint32_t rank);

/* Fills a failure that blames nobody. */
struct ceov_failure cei_failure(int error, int native_code);

/* Writes the text into failure, logs it, keeps it if it is the first; returns
 * failure->error. Any thread. */
int cei_raise_failure(struct cei_report *report, struct ceov_failure *failure,
		      const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same for a failure that blames nobody. */
int cei_raise(struct cei_report *report, int error, int native_code,
	      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Takes the first failure out. 0, or CEOV_NONE. */
int cei_report_take(struct cei_report *report, struct ceov_failure *ret_failure);

#endif /* CEI_REPORT_H */
