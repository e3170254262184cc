/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ALIVE_WATCH_H
#define CEI_ALIVE_WATCH_H

/*
 * Watches the words of many processes (ipc/alive.h), and calls a function for each one whose
 * holder has died or let go. One thread looks at all of them every CEI_ALIVE_WATCH_NS; it sleeps
 * while there are none.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "base/list.h"
#include "base/report.h"

/* The time between two looks at a word. */
#define CEI_ALIVE_WATCH_NS UINT64_C(5000000)

/* The most words that one thread watches. */
#define CEI_ALIVE_WATCHED_MAX 1024u

struct cei_alive_watch;

/* One watched word. The caller owns the struct, zeroes it before its first use, and sets word,
 * ended and arg before it adds it. word may lie in memory that is mapped for reading only; it has
 * to stay mapped while it is watched. */
struct cei_alive_watched {
	const _Atomic uint32_t *word;
	void                  (*ended)(void *arg, int is_orderly);
	void                   *arg;
	struct cei_list         link;           /* the watch's */
	int                     is_watched;     /* the watch's */
};

/* CEOV_ERR_NO_MEMORY, CEOV_ERR_SYSTEM. The report must outlive the watch. */
int  cei_alive_watch_open(struct cei_report *report, struct cei_alive_watch **ret_watch);

/*
 * Watches the word, until it has ended, or until it is removed. At its end the thread calls
 * ended(arg, is_orderly) once; is_orderly is 0 if the holder has died. The struct then is the
 * caller's again, and the function may free it, or add it anew. A word that nobody holds yet has
 * ended, so add it when its holder says that it has taken it.
 *
 * The function should not block, as all other words wait for it, and must not take a lock that is
 * held during a call of cei_alive_watch_remove(). Any thread, and from within ended(). Not from a
 * forked child, which has no thread that looks.
 *
 * CEOV_ERR_STATE: it is watched already, or CEI_ALIVE_WATCHED_MAX words are.
 */
int  cei_alive_watch_add(struct cei_alive_watch *watch, struct cei_alive_watched *watched);

/* Ends the watch of a word. When it returns, ended() is not running for it, and will not run; from
 * within ended() it returns at once. Does nothing for a struct that is not watched. Any thread, and
 * from within ended(). */
void cei_alive_watch_remove(struct cei_alive_watch *watch, struct cei_alive_watched *watched);

/* Ends the thread. Words that are still watched are no longer; nothing is called for them. Not from
 * within ended(). NULL does nothing. */
void cei_alive_watch_close(struct cei_alive_watch *watch);

#endif /* CEI_ALIVE_WATCH_H */
