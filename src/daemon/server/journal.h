/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_JOURNAL_H
#define CEI_DAEMON_JOURNAL_H

/* The daemon's log: lines on stderr. Where systemd's journal reads them, each begins with its
 * priority, as sd-daemon(3) has it. */

#include "base/report.h"

/* For cei_report_init(); arg is not used. Any thread. */
void cei_journal_line(void *arg, const char *line);

/* Writes one line, of any level, without the report's rules of which lines are kept back. */
void cei_journal_write(enum cei_log_level level, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* CEI_DAEMON_JOURNAL_H */
