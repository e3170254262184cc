/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The thread that looks at words that tell of a process's death. It looks every few milliseconds
 * because no call before Linux 5.16 waits for several words in shared memory.
 */

#include "ipc/alive_watch.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ipc/alive.h"

struct cei_alive_watch {
	struct cei_report              *report;
	pthread_t                       thread;
	pthread_mutex_t                 lock;           /* guards the rest; not held in ended() */
	pthread_cond_t                  changed;        /* a first word, or the end of the thread */
	pthread_cond_t                  told;           /* an ended() has returned */
	struct cei_list                 all;            /* struct cei_alive_watched.link */
	uint32_t                        n_watched;
	const struct cei_alive_watched *running;        /* whose ended() runs; NULL: none. Compared
							 * alone, as the caller may have freed it */
	uint64_t                        n_told;         /* returns of ended() */
	int                             must_stop;
};

/* --- the thread ---------------------------------------------------------- */

static void forget(struct cei_alive_watch *watch, struct cei_alive_watched *watched)
{
	cei_list_remove(&watched->link);
	watched->is_watched = 0;
	watch->n_watched--;
}

/* Calls ended() for a word; the lock is released meanwhile. */
static void tell(struct cei_alive_watch *watch, struct cei_alive_watched *watched,
		 enum cei_alive_state state)
{
	void (*ended)(void *arg, int is_orderly) = watched->ended;
	void *arg = watched->arg;

	forget(watch, watched);
	watch->running = watched;
	pthread_mutex_unlock(&watch->lock);
	ended(arg, state == CEI_ALIVE_ENDED);
	pthread_mutex_lock(&watch->lock);
	watch->running = NULL;
	watch->n_told++;
	pthread_cond_broadcast(&watch->told);
}

/*
 * Looks once at each word that is watched now. Each goes to the end of the list, so that it does
 * not matter what is added or removed while a function runs; a word that such a function adds waits
 * for the next turn.
 */
static void look_at_all(struct cei_alive_watch *watch)
{
	struct cei_alive_watched *watched;
	enum cei_alive_state state;
	uint32_t n_left = watch->n_watched;

	for (; n_left && !watch->must_stop && !cei_list_is_empty(&watch->all); n_left--) {
		watched = CEI_OWNER(watch->all.next, struct cei_alive_watched, link);
		cei_list_remove(&watched->link);
		cei_list_append(&watch->all, &watched->link);
		state = cei_alive_state(watched->word);
		if (state != CEI_ALIVE)
			tell(watch, watched, state);
	}
}

static void *watch_main(void *arg)
{
	struct cei_alive_watch *watch = arg;

	pthread_setname_np(pthread_self(), "ceov-watch");
	pthread_mutex_lock(&watch->lock);
	while (!watch->must_stop) {
		look_at_all(watch);
		if (watch->must_stop)
			break;
		if (cei_list_is_empty(&watch->all))
			pthread_cond_wait(&watch->changed, &watch->lock);
		else
			cei_condition_wait(&watch->changed, &watch->lock,
					   cei_deadline(CEI_ALIVE_WATCH_NS));
	}
	pthread_mutex_unlock(&watch->lock);
	return NULL;
}

/* --- the callers --------------------------------------------------------- */

/* Initialises the lock and the conditions. Returns an errno. */
static int init_locks(struct cei_alive_watch *watch)
{
	int error = cei_condition_init(&watch->changed);

	if (!error)
		error = pthread_cond_init(&watch->told, NULL);
	if (!error)
		error = pthread_mutex_init(&watch->lock, NULL);
	return error;           /* on Linux neither takes anything that would have to be freed */
}

/* Starts the thread with all signals blocked, so that only the application's threads handle
 * signals. Returns an errno. */
static int start_thread(struct cei_alive_watch *watch)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	error = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (error)
		return error;
	error = pthread_create(&watch->thread, NULL, watch_main, watch);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

int cei_alive_watch_open(struct cei_report *report, struct cei_alive_watch **ret_watch)
{
	struct cei_alive_watch *watch = calloc(1, sizeof(*watch));
	int error;

	if (!watch)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "no memory to watch whether other processes live");
	watch->report = report;
	cei_list_init(&watch->all);
	error = init_locks(watch);
	if (!error)
		error = start_thread(watch);
	if (error) {
		free(watch);
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "starting the thread that watches "
				 "whether other processes live: %s", strerror(error));
	}
	*ret_watch = watch;
	return 0;
}

int cei_alive_watch_add(struct cei_alive_watch *watch, struct cei_alive_watched *watched)
{
	const char *fault = NULL;

	pthread_mutex_lock(&watch->lock);
	if (watched->is_watched)
		fault = "its word is watched already";
	else if (watch->n_watched == CEI_ALIVE_WATCHED_MAX)
		fault = "too many others are watched";
	if (!fault) {
		cei_list_append(&watch->all, &watched->link);
		watched->is_watched = 1;
		watch->n_watched++;
		if (watch->n_watched == 1)
			pthread_cond_signal(&watch->changed);
	}
	pthread_mutex_unlock(&watch->lock);
	return fault ? cei_raise(watch->report, CEOV_ERR_STATE, 0,
				 "a process whose death is to be noticed is not watched: %s", fault)
		     : 0;
}

void cei_alive_watch_remove(struct cei_alive_watch *watch, struct cei_alive_watched *watched)
{
	uint64_t n_told;

	pthread_mutex_lock(&watch->lock);
	if (watched->is_watched)
		forget(watch, watched);
	n_told = watch->n_told;
	if (!pthread_equal(pthread_self(), watch->thread))
		while (watch->running == watched && watch->n_told == n_told)
			pthread_cond_wait(&watch->told, &watch->lock);
	pthread_mutex_unlock(&watch->lock);
}

void cei_alive_watch_close(struct cei_alive_watch *watch)
{
	if (!watch)
		return;
	pthread_mutex_lock(&watch->lock);
	watch->must_stop = 1;
	pthread_cond_signal(&watch->changed);
	pthread_mutex_unlock(&watch->lock);
	pthread_join(watch->thread, NULL);
	while (!cei_list_is_empty(&watch->all))
		forget(watch, CEI_OWNER(watch->all.next, struct cei_alive_watched, link));
	pthread_cond_destroy(&watch->told);
	pthread_cond_destroy(&watch->changed);
	pthread_mutex_destroy(&watch->lock);
	free(watch);
}
