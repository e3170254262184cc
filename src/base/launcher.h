/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LAUNCHER_H
#define CEI_LAUNCHER_H

/* What a launcher tells the processes that it starts, its tasks, by environment variables. */

#include <stdint.h>

#include "base/report.h"

struct cei_launcher {
	const char *name;
	const char *task;       /* variables: this task's number, ... */
	const char *n_tasks;    /* ... how many there are; NULL: only its server says so */
	const char *local;      /* its number on its machine; NULL: none */
};

/* Returns the launcher that started this process, the innermost one where several did; NULL: none
 * did. */
const struct cei_launcher *cei_launcher_find(void);

/* Returns the launcher if this process is one of several tasks, or may be; else NULL. */
const struct cei_launcher *cei_launcher_of_several(void);

/* Raises that nothing says how the launcher's tasks find each other, and what to set. Returns
 * CEOV_ERR_INVALID. */
int cei_launcher_refuse(struct cei_report *report, const struct cei_launcher *launcher);

#endif /* CEI_LAUNCHER_H */
