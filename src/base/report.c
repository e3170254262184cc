/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Records failures, names errors, and writes log lines. */

#include "base/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/version.h>

#include "base/clock.h"
#include "base/write.h"

const char *ceov_version(void)
{
	return CEOV_VERSION;
}

uint32_t ceov_version_number(void)
{
	return CEOV_VERSION_NUMBER;
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
	case CEOV_ERR_NO_MEMORY: return "out of memory, or a limit is reached";
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
	case CEOV_ERR_DAEMON_LOST: return "the daemon was lost";
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

/* Reads CEOVERLAP_LOG. A text that names no level is not reported here, but when a context opens,
 * by cei_variables_check(). */
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
	cei_list_init(&report->holds);
	report->level = level_from_environment();
	report->rank = CEOV_NOBODY;
	report->log = log;
	report->log_arg = log_arg;
}

/* --- lines --------------------------------------------------------------- */

static void emit(struct cei_report *report, const char *line)
{
	struct cei_pipe_guard guard;

	if (report->log) {
		report->log(report->log_arg, line);
		return;
	}
	/* stderr may be a pipe that nobody reads any more. The application must not be ended by
	 * that. */
	cei_pipe_guard_begin(&guard);
	fprintf(stderr, "%s\n", line);
	cei_pipe_guard_end(&guard);
}

/* Returns the hold of the calling thread, or NULL. The caller holds the report's lock. */
static struct cei_report_hold *hold_of_this_thread(struct cei_report *report)
{
	struct cei_report_hold *hold;
	struct cei_list *node;

	for (node = report->holds.next; node != &report->holds; node = node->next) {
		hold = CEI_OWNER(node, struct cei_report_hold, link);
		if (pthread_equal(hold->thread, pthread_self()))
			return hold;
	}
	return NULL;
}

void cei_report_hold_begin(struct cei_report *report, struct cei_report_hold *hold)
{
	cei_list_init(&hold->link);
	hold->thread = pthread_self();
	hold->n_lines = 0;
	pthread_mutex_lock(&report->lock);
	hold->is_open = !hold_of_this_thread(report);
	if (hold->is_open)
		cei_list_append(&report->holds, &hold->link);
	pthread_mutex_unlock(&report->lock);
}

void cei_report_hold_keep(struct cei_report *report, struct cei_report_hold *hold)
{
	pthread_mutex_lock(&report->lock);
	cei_list_remove(&hold->link);
	pthread_mutex_unlock(&report->lock);
	hold->is_open = 0;
}

void cei_report_let_go(struct cei_report *report, struct cei_report_hold *hold)
{
	char line[CEI_LINE_BYTES];
	uint32_t i;

	cei_report_hold_keep(report, hold);
	for (i = 0; i < hold->n_lines && i < CEI_HOLD_LINES; i++)
		emit(report, hold->lines[i]);
	if (hold->n_lines <= CEI_HOLD_LINES)
		return;
	snprintf(line, sizeof(line), "ceoverlap: warning: %u more lines came with these and "
		 "were not kept", hold->n_lines - CEI_HOLD_LINES);
	emit(report, line);
}

/* If the calling thread holds lines back, keeps this one; returns whether it did. */
static int keep_back(struct cei_report *report, const char *line)
{
	struct cei_report_hold *hold;

	pthread_mutex_lock(&report->lock);
	hold = hold_of_this_thread(report);
	if (hold && hold->n_lines++ < CEI_HOLD_LINES)
		snprintf(hold->lines[hold->n_lines - 1], CEI_LINE_BYTES, "%s", line);
	pthread_mutex_unlock(&report->lock);
	return hold != NULL;
}

static void write_line(struct cei_report *report, enum cei_log_level level,
		       const char *text, uint64_t n_held)
{
	static const char *const names[] = { "error", "warning", "info", "debug" };
	char line[CEI_LINE_BYTES], rank[24] = "", held[64] = "";

	if (report->rank != CEOV_NOBODY)
		snprintf(rank, sizeof(rank), "[rank %u]", report->rank);
	if (n_held)
		snprintf(held, sizeof(held), " (and %" PRIu64 " lines like this one before)",
			 n_held);
	snprintf(line, sizeof(line), "ceoverlap%s: %s: %s%s", rank, names[level], text, held);
	if (!keep_back(report, line))
		emit(report, line);
}

static enum cei_log_level level_of(int code)
{
	return code == CEI_LOG_WARN ? CEI_LOG_WARN : CEI_LOG_ERROR;
}

static void tell_rest(struct cei_report *report, const struct cei_repeat *kind)
{
	char text[CEOV_FAILURE_TEXT_BYTES + 64];

	if (!kind->n_held)
		return;
	snprintf(text, sizeof(text), "%" PRIu64 " more lines were like this one: %s",
		 kind->n_held, kind->text);
	write_line(report, level_of(kind->code), text, 0);
}

/* Writes an error or a warning, unless too many of its kind were written. code: the error, or the
 * level. */
static void write_repeat(struct cei_report *report, const char *format, int code,
			 const char *text)
{
	struct cei_repeat line = { .format = format, .code = code }, gone;
	uint64_t n_held = 0;
	int passes;

	if (level_of(code) > report->level)
		return;
	snprintf(line.text, sizeof(line.text), "%s", text);
	pthread_mutex_lock(&report->lock);
	passes = cei_repeats_pass(&report->repeats, &line, cei_now_ns(), &n_held, &gone);
	pthread_mutex_unlock(&report->lock);
	tell_rest(report, &gone);
	if (passes)
		write_line(report, level_of(code), text, n_held);
}

void cei_report_fini(struct cei_report *report)
{
	uint32_t i;

	for (i = 0; i < CEI_REPEATS_KINDS; i++)
		tell_rest(report, &report->repeats.kinds[i]);
	pthread_mutex_destroy(&report->lock);
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
	if (level > CEI_LOG_WARN)
		write_line(report, level, text, 0);
	else
		write_repeat(report, format, (int)level, text);
}

/* --- failures ------------------------------------------------------------ */

struct cei_blame_text cei_blame_text(uint32_t rank)
{
	struct cei_blame_text blame = { "" };

	if (rank != CEOV_NOBODY)
		snprintf(blame.text, sizeof(blame.text), " (to blame: rank %u)", rank);
	return blame;
}

void cei_report_end(struct cei_report *report)
{
	pthread_mutex_lock(&report->lock);
	report->is_ending = 1;
	pthread_mutex_unlock(&report->lock);
}

/* The last failure that this thread has raised, whatever the context. It has no destructor, and the
 * loader frees it when the thread ends. */
static _Thread_local struct {
	struct ceov_failure last;
	int                 has_last;
} own;

static void keep_own(const struct ceov_failure *failure)
{
	own.last = *failure;
	own.has_last = 1;
}

static int keep(struct cei_report *report, const char *format,
		const struct ceov_failure *failure)
{
	int is_asked_for;

	keep_own(failure);
	pthread_mutex_lock(&report->lock);
	if (!report->has_first) {
		report->first = *failure;
		report->has_first = 1;
	}
	is_asked_for = report->is_ending && failure->error == CEOV_ERR_ABORTED;
	pthread_mutex_unlock(&report->lock);
	if (is_asked_for)
		cei_log(report, CEI_LOG_INFO, "closing: %s", failure->text);
	else
		write_repeat(report, format, failure->error, failure->text);
	return failure->error;
}

int cei_raise_failure(struct cei_report *report, struct ceov_failure *failure,
		      const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(failure->text, sizeof(failure->text), format, args);
	va_end(args);
	return keep(report, format, failure);
}

int cei_raise(struct cei_report *report, int error, int native_code,
	      const char *format, ...)
{
	struct ceov_failure failure = cei_failure(error, native_code);
	va_list args;

	va_start(args, format);
	vsnprintf(failure.text, sizeof(failure.text), format, args);
	va_end(args);
	return keep(report, format, &failure);
}

/* One for all such calls of the process, so that lines of a loop are counted together. */
static struct cei_report unlogged;
static pthread_once_t    unlogged_once = PTHREAD_ONCE_INIT;

static void init_unlogged(void)
{
	cei_report_init(&unlogged, NULL, NULL);
}

int cei_raise_unlogged(int error, const char *format, ...)
{
	struct ceov_failure failure = cei_failure(error, 0);
	va_list args;

	pthread_once(&unlogged_once, init_unlogged);
	va_start(args, format);
	vsnprintf(failure.text, sizeof(failure.text), format, args);
	va_end(args);
	return keep(&unlogged, format, &failure);
}

int cei_raise_forked(const char *call)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_FORKED, 0);

	snprintf(failure.text, sizeof(failure.text), "%s: the context was opened before this "
		 "process was forked: open one here", call);
	keep_own(&failure);
	return failure.error;
}

int cei_report_take_own(struct ceov_failure *ret_failure)
{
	if (!own.has_last)
		return CEOV_NONE;
	*ret_failure = own.last;
	own.has_last = 0;
	return 0;
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

int cei_report_has(struct cei_report *report)
{
	int has;

	pthread_mutex_lock(&report->lock);
	has = report->has_first;
	pthread_mutex_unlock(&report->lock);
	return has;
}
