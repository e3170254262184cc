/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Writes the log to stderr, with priorities where the journal reads it. */

#include "daemon/server/journal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/write.h"

/* JOURNAL_STREAM says which file systemd has given us for stderr; that may have been changed
 * since. */
static int is_journal(void)
{
	const char *text = getenv("JOURNAL_STREAM");
	unsigned long long device, inode;
	struct stat stat;

	return text && sscanf(text, "%llu:%llu", &device, &inode) == 2 &&
		!fstat(STDERR_FILENO, &stat) && stat.st_dev == (dev_t)device &&
		stat.st_ino == (ino_t)inode;
}

static const char *priority_of(enum cei_log_level level)
{
	switch (level) {
	case CEI_LOG_ERROR: return SD_ERR;
	case CEI_LOG_WARN:  return SD_WARNING;
	case CEI_LOG_INFO:  return SD_INFO;
	case CEI_LOG_DEBUG: return SD_DEBUG;
	}
	return SD_NOTICE;
}

/* A line begins with "ceoverlap: LEVEL: "; see base/report.c. */
static enum cei_log_level level_in(const char *line)
{
	static const char *const names[] = { "error:", "warning:", "info:", "debug:" };
	const char *at = strchr(line, ' ');
	int i;

	for (i = 0; at && i < 4; i++)
		if (!strncmp(at + 1, names[i], strlen(names[i])))
			return (enum cei_log_level)i;
	return CEI_LOG_INFO;
}

static void put(enum cei_log_level level, const char *line)
{
	struct cei_pipe_guard guard;

	cei_pipe_guard_begin(&guard);
	fprintf(stderr, "%s%s\n", is_journal() ? priority_of(level) : "", line);
	cei_pipe_guard_end(&guard);
}

void cei_journal_line(void *arg, const char *line)
{
	(void)arg;
	put(level_in(line), line);
}

void cei_journal_write(enum cei_log_level level, const char *format, ...)
{
	char line[CEI_LINE_BYTES];
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	put(level, line);
}
