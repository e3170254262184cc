/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_INTAKE_H
#define CEI_INTAKE_H

/*
 * What brings launches to an engine besides its inbox: rings in memory that other processes share,
 * which the engine has to look at itself. Who makes such an intake puts this struct at its begin.
 * All functions but wake() are called by the engine's thread.
 */

#include <stdatomic.h>
#include <stdint.h>

struct cei_intake {
	/* Launches what has come, a bounded number. Returns how many launches. Once a turn. */
	uint32_t (*take)(struct cei_intake *intake);

	/* Tells those who bring launches that from now on they have to wake the engine (1), or need
	 * not any more (0). After 1 the engine looks once more before it sleeps. */
	void     (*doze)(struct cei_intake *intake, int is_dozing);

	/* Sleeps until somebody who brings launches wakes the engine, or until wake() has been
	 * called since doze(). May return early without a reason. 0: a second has passed, and
	 * nobody has woken the engine. */
	int      (*sleep)(struct cei_intake *intake);

	/* Ends the sleep, or the next one if none has begun. Any thread. */
	void     (*wake)(struct cei_intake *intake);
};

#endif /* CEI_INTAKE_H */
