/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Failure records, their names, and the log line. */

#include "base/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/version.h>

#include "base/write.h"

#define LINE_BYTES (CEOV_FAILURE_TEXT_BYTES + 96)

const char *ceov_version(void)
{
	return CEOV_VERSION;
}

const char *ceov_strerror(int result)
{
	switch (result) {
	case 0:                  return "done";
	case CEOV_PENDING:       return "not finished yet";
	case CEOV_FULL:          return "no room now";
	case CEOV_NONE:          return "there is none";
	case CEOV_ERR_INVALID:   return "invalid argument";
	case CEOV_ERR_STATE:     return "not possible in this state";
	case CEOV_ERR_NO_MEMORY: return "out of memory";
	case CEOV_ERR_NO_ROUTE:  return "no route";
	case CEOV_ERR_SYSTEM:    return "system call failed";
	case CEOV_ERR_CUDA:      return "CUDA driver call failed";
	case CEOV_ERR_UCX:       return "UCX call failed";
	case CEOV_ERR_PEER_LOST: return "a peer was lost";
	case CEOV_ERR_ABORTED:   return "aborted";
	case CEOV_ERR_TIMEOUT:   return "deadline passed";
	case CEOV_ERR_VERSION:   return "version mismatch";
	case CEOV_ERR_STALE:     return "memory behind a registration changed";
	case CEOV_ERR_FORKED:    return "called in a forked child";
	case CEOV_ERR_UNCERTAIN: return "target contents uncertain";
	default:                 return "unknown result";
	}
}

int cei_log_level_of(const char *text)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	int i;

	for (i = 0; i < 4; i++)
		if (!strcmp(text, names[i]))
			return i;
	return -1;
}

/* Any other text is told when a context opens: cei_variables_check(). */
static enum cei_log_level level_from_environment(void)
{
	const char *text = secure_getenv("CEOVERLAP_LOG");
	int level = text ? cei_log_level_of(text) : -1;

	return level < 0 ? CEI_LOG_WARN : (enum cei_log_level)level;
}

void cei_report_init(struct cei_report *report, void (*log)(void *, const char *),
		     void *log_arg)
{
	memset(report, 0, sizeof(*report));
	pthread_mutex_init(&report->lock, NULL);
	report->level = level_from_environment();
	report->rank = CEOV_NOBODY;
	report->log = log;
	report->log_arg = log_arg;
}

void cei_report_fini(struct cei_report *report)
{
	pthread_mutex_destroy(&report->lock);
}

static void write_line(struct cei_report *report, enum cei_log_level level,
		       const char *text)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	struct cei_pipe_guard guard;
	char line[LINE_BYTES];

	if (level > report->level)
		return;
	if (report->rank == CEOV_NOBODY)
		snprintf(line, sizeof(line), "ceoverlap: %s: %s", names[level], text);
	else
		snprintf(line, sizeof(line), "ceoverlap[rank %u]: %s: %s",
			 report->rank, names[level], text);
	if (report->log) {
		report->log(report->log_arg, line);
		return;
	}
	/* nobody may read stderr any more, and the application goes on all the same */
	cei_pipe_guard_begin(&guard);
	fprintf(stderr, "%s\n", line);
	cei_pipe_guard_end(&guard);
}

void cei_log(struct cei_report *report, enum cei_log_level level,
	     const char *format, ...)
{
	char text[CEOV_FAILURE_TEXT_BYTES];
	va_list args;

	if (level > report->level)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	write_line(report, level, text);
}

struct cei_blame_text cei_blame_text(uint32_t rank)
{
	struct cei_blame_text blame = { "" };

	if (rank != CEOV_NOBODY)
		snprintf(blame.text, sizeof(blame.text), " (to blame: rank %u)", rank);
	return blame;
}

struct ceov_failure cei_failure(int error, int native_code)
{
	struct ceov_failure failure;

	memset(&failure, 0, sizeof(failure));
	failure.error = error;
	failure.native_code = native_code;
	failure.rank = CEOV_NOBODY;
	failure.transfer = CEOV_NOBODY;
	return failure;
}

static int keep(struct cei_report *report, const struct ceov_failure *failure)
{
	pthread_mutex_lock(&report->lock);
	if (!report->has_first) {
		report->first = *failure;
		report->has_first = 1;
	}
	pthread_mutex_unlock(&report->lock);
	write_line(report, CEI_LOG_ERROR, failure->text);
	return failure->error;
}

int cei_raise_failure(struct cei_report *report, struct ceov_failure *failure,
		      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(failure->text, sizeof(failure->text), format, args);
	va_end(args);
	return keep(report, failure);
}

int cei_raise(struct cei_report *report, int error, int native_code,
	      const char *format, ...)
{
	struct ceov_failure failure = cei_failure(error, native_code);
	va_list args;

	va_start(args, format);
	vsnprintf(failure.text, sizeof(failure.text), format, args);
	va_end(args);
	return keep(report, &failure);
}

int cei_report_take(struct cei_report *report, struct ceov_failure *ret_failure)
{
	int has;

	pthread_mutex_lock(&report->lock);
	has = report->has_first;
	if (has)
		*ret_failure = report->first;
	report->has_first = 0;
	pthread_mutex_unlock(&report->lock);
	return has ? 0 : CEOV_NONE;
}
