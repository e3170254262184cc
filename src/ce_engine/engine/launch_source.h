/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_LAUNCH_SOURCE_H
#define CEI_LAUNCH_SOURCE_H

/*
 * How launches come to an engine, and how the engine sleeps until they do. Every launch goes
 * through the engine's inbox. An engine of an application has threads of its own process put them
 * there, and sleeps on a futex (turn.c); the engine of a daemon has rings in memory that other
 * processes share, which it looks at itself, and sleeps on an epoll (daemon/server/intake.c).
 *
 * Who makes such a source puts this struct at its begin, and fills it in before the engine is
 * opened. All functions but wake() are called by the engine's thread.
 */

#include <stdatomic.h>
#include <stdint.h>

struct cei_launch_source {
	/* Puts what has come into the inbox, a bounded number. Returns how many launches. Once a
	 * turn. */
	uint32_t (*take)(struct cei_launch_source *source);

	/* Tells those who bring launches that from now on they have to wake the engine (1), or need
	 * not any more (0). After 1 the engine looks once more before it sleeps. */
	void     (*doze)(struct cei_launch_source *source, int is_dozing);

	/* Sleeps until somebody who brings launches wakes the engine, or until wake() has been
	 * called since doze(). May return early without a reason. 0: a second has passed, and
	 * nobody has woken the engine. */
	int      (*sleep)(struct cei_launch_source *source);

	/* Ends the sleep, or the next one if none has begun. Any thread. */
	void     (*wake)(struct cei_launch_source *source);

	/* Whether the engine asks now and then, while it has nothing else to do, whether its
	 * member's place is lost: a daemon's place may be lost while no lane is there to break. The
	 * engines of other processes do not ask: the driver may make them wait for what other
	 * threads of the process do. */
	int        watches_place;
};

#endif /* CEI_LAUNCH_SOURCE_H */
