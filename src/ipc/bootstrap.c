/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Opens and closes a bootstrap, and runs its barrier. These functions run in application threads:
 * they queue messages, and wait with deadlines for messages that the bootstrap thread receives.
 * bootstrap_private.h lists the other files.
 */

#include "ipc/bootstrap_private.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/condition.h"

/* How often a barrier asks whether a rank of another node is missing. */
#define LOOK_NS UINT64_C(20000000)

int cei_bootstrap_wait(struct cei_bootstrap *bootstrap, uint64_t deadline_ns)
{
	if (cei_now_ns() >= deadline_ns)
		return CEOV_NONE;
	cei_condition_wait(&bootstrap->changed, &bootstrap->lock, deadline_ns);
	return 0;
}

void cei_bootstrap_send_owed(struct cei_bootstrap *bootstrap, struct cei_link *link)
{
	cei_link_flush(bootstrap, link);
	if (cei_link_owes(bootstrap, link))
		cei_bootstrap_wake(bootstrap);
}

int cei_bootstrap_raise_gone(struct cei_bootstrap *bootstrap, uint32_t rank,
			     enum cei_link_state state, const char *what)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_PEER_LOST, 0);

	failure.rank = rank;
	return cei_raise_failure(bootstrap->site->report, &failure, "%s: rank %u %s", what,
				 rank, state == CEI_LINK_DEPARTED ?
				 "has closed its context" :
				 "is lost: its process has ended");
}

static uint32_t missing_elsewhere(const struct cei_bootstrap *bootstrap)
{
	const struct cei_bootstrap_config *config = &bootstrap->config;

	return config->missing ? config->missing(config->arg) : CEOV_NOBODY;
}

/* --- opening and closing ------------------------------------------------- */

/* Initialises the lock and the condition. Returns an errno. */
static int init_locks(struct cei_bootstrap *bootstrap)
{
	int error = cei_condition_init(&bootstrap->changed);

	if (error)
		return error;
	error = pthread_mutex_init(&bootstrap->lock, NULL);
	if (error)
		pthread_cond_destroy(&bootstrap->changed);
	bootstrap->has_lock = !error;
	return error;
}

/* Starts the thread with all signals blocked, so that only the application's threads handle
 * signals. Returns an errno. */
static int start_thread(struct cei_bootstrap *bootstrap)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	error = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (error)
		return error;
	error = pthread_create(&bootstrap->thread, NULL, cei_bootstrap_run, bootstrap);
	bootstrap->has_thread = !error;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static void add_link(struct cei_bootstrap *bootstrap, const struct cei_bootstrap_link *from)
{
	struct cei_link *link = &bootstrap->links[bootstrap->n_links++];

	link->party = from->party;
	link->fd = from->fd;
	link->pidfd = from->pidfd;
	link->missing = CEOV_NOBODY;
	cei_list_init(&link->uses);
	cei_list_init(&link->drops_owed);
}

static int meet(struct cei_bootstrap *bootstrap)
{
	struct cei_bootstrap_links links;
	uint32_t i;
	int r;

	r = cei_bootstrap_meet(bootstrap->site, bootstrap->config.path,
			       bootstrap->config.deadline_ns, &links);
	for (i = 0; !r && i < links.n_links; i++)
		add_link(bootstrap, &links.links[i]);
	return r;
}

static int build(struct cei_bootstrap *bootstrap)
{
	struct cei_report *report = bootstrap->site->report;
	int error;
	int r;

	error = init_locks(bootstrap);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "bootstrap: no lock: %s",
				 strerror(error));
	bootstrap->links = calloc(CEI_LINKS_MAX, sizeof(*bootstrap->links));
	if (!bootstrap->links)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "bootstrap: no memory for links");
	bootstrap->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (bootstrap->wake_fd < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno, "bootstrap: eventfd: %s",
				 strerror(errno));
	r = meet(bootstrap);
	if (r)
		return r;
	error = start_thread(bootstrap);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "bootstrap: no thread: %s",
				 strerror(error));
	return 0;
}

int cei_bootstrap_open(struct cei_site *site, const struct cei_bootstrap_config *config,
		       struct cei_bootstrap **ret_bootstrap)
{
	struct cei_bootstrap *bootstrap;
	int r;

	bootstrap = calloc(1, sizeof(*bootstrap));
	if (!bootstrap)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "bootstrap: no memory");
	bootstrap->site = site;
	bootstrap->config = *config;
	bootstrap->wake_fd = -1;
	bootstrap->missing = CEOV_NOBODY;
	r = build(bootstrap);
	bootstrap->config.path = NULL;
	if (r) {
		cei_bootstrap_close(bootstrap);
		return r;
	}
	*ret_bootstrap = bootstrap;
	return 0;
}

/* Each rank is told once, so the list grows a few times in the life of a group. */
void cei_bootstrap_tell_lost(struct cei_bootstrap *bootstrap, uint32_t rank)
{
	uint32_t *lost, i;

	pthread_mutex_lock(&bootstrap->lock);
	lost = realloc(bootstrap->lost, (bootstrap->n_lost + 1) * sizeof(*lost));
	if (lost) {
		bootstrap->lost = lost;
		lost[bootstrap->n_lost++] = rank;
	}
	for (i = 0; i < bootstrap->n_links; i++)
		cei_bootstrap_send_owed(bootstrap, &bootstrap->links[i]);
	pthread_mutex_unlock(&bootstrap->lock);
	if (!lost)
		cei_log(bootstrap->site->report, CEI_LOG_ERROR,
			"no memory to tell this node's processes that rank %u is lost", rank);
}

void cei_bootstrap_tell_missing(struct cei_bootstrap *bootstrap)
{
	uint32_t missing = missing_elsewhere(bootstrap), i;

	pthread_mutex_lock(&bootstrap->lock);
	bootstrap->missing = missing;
	for (i = 0; i < bootstrap->n_links; i++)
		cei_bootstrap_send_owed(bootstrap, &bootstrap->links[i]);
	pthread_mutex_unlock(&bootstrap->lock);
}

static int all_heard_bye(const struct cei_bootstrap *bootstrap)
{
	const struct cei_link *link;
	uint32_t i;

	for (i = 0; i < bootstrap->n_links; i++) {
		link = &bootstrap->links[i];
		if (link->state == CEI_LINK_UP && !link->is_mute && !link->bye_told)
			return 0;
	}
	return 1;
}

static void say_bye(struct cei_bootstrap *bootstrap)
{
	uint64_t deadline_ns = cei_deadline(CEI_BYE_WAIT_NS);
	uint32_t i;

	cei_bootstrap_tell_missing(bootstrap);
	pthread_mutex_lock(&bootstrap->lock);
	bootstrap->is_closing = 1;
	for (i = 0; i < bootstrap->n_links; i++) {
		bootstrap->links[i].bye_owed = 1;
		cei_bootstrap_send_owed(bootstrap, &bootstrap->links[i]);
	}
	while (!all_heard_bye(bootstrap) && !cei_bootstrap_wait(bootstrap, deadline_ns))
		;
	bootstrap->must_stop = 1;
	pthread_mutex_unlock(&bootstrap->lock);
	cei_bootstrap_wake(bootstrap);
}

/* Also cleans up after a cei_bootstrap_open() that failed. */
void cei_bootstrap_close(struct cei_bootstrap *bootstrap)
{
	uint32_t i;

	if (!bootstrap)
		return;
	if (bootstrap->has_thread) {
		say_bye(bootstrap);
		pthread_join(bootstrap->thread, NULL);
	}
	for (i = 0; i < bootstrap->n_links; i++)
		cei_link_end(bootstrap, &bootstrap->links[i], CEI_LINK_DEPARTED);
	while (bootstrap->n_exports)
		cei_export_entry_free(bootstrap, bootstrap->n_exports - 1);
	cei_fd_close(bootstrap->wake_fd);
	free(bootstrap->links);
	free(bootstrap->lost);
	if (bootstrap->has_lock) {
		pthread_mutex_destroy(&bootstrap->lock);
		pthread_cond_destroy(&bootstrap->changed);
	}
	free(bootstrap);
}

/* --- barrier ------------------------------------------------------------- */

/* Returns a link whose process has not called this barrier yet; NULL: all have. Lost processes are
 * returned before late ones. A process that called the barrier and closed its context afterwards
 * counts as having called. */
static struct cei_link *link_not_here(struct cei_bootstrap *bootstrap)
{
	struct cei_link *missing = NULL;
	struct cei_link *link;
	uint32_t i;

	for (i = 0; i < bootstrap->n_links; i++) {
		link = &bootstrap->links[i];
		if (link->n_calls_seen >= bootstrap->n_calls)
			continue;
		if (link->state != CEI_LINK_UP)
			return link;
		if (!missing)
			missing = link;
	}
	return missing;
}

/* Waits until all have called the barrier, one is gone that has not, or a rank elsewhere is
 * missing (*ret_missing, else CEOV_NOBODY); or until the deadline. Returns what link_not_here()
 * does. The caller holds the lock. */
static struct cei_link *await_all(struct cei_bootstrap *bootstrap, uint64_t deadline_ns,
				  uint32_t *ret_missing)
{
	struct cei_link *link;
	uint64_t look_ns;

	for (;;) {
		pthread_mutex_unlock(&bootstrap->lock);
		*ret_missing = missing_elsewhere(bootstrap);
		look_ns = bootstrap->config.missing ? cei_deadline(LOOK_NS) : CEI_FOREVER;
		pthread_mutex_lock(&bootstrap->lock);
		link = link_not_here(bootstrap);
		if (link && link->missing != CEOV_NOBODY)
			*ret_missing = link->missing;
		if (!link || link->state != CEI_LINK_UP || *ret_missing != CEOV_NOBODY ||
		    cei_now_ns() >= deadline_ns)
			return link;
		cei_condition_wait(&bootstrap->changed, &bootstrap->lock,
				   look_ns < deadline_ns ? look_ns : deadline_ns);
	}
}

/* Rather blames the rank that was known to be missing than one that has closed,
 * maybe because of it. */
static int raise_barrier(struct cei_bootstrap *bootstrap, const struct cei_link *link,
			 enum cei_link_state state, uint32_t missing)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);

	if (missing != CEOV_NOBODY && !cei_party_has(&link->party, missing)) {
		failure.error = CEOV_ERR_PEER_LOST;
		failure.rank = missing;
		return cei_raise_failure(bootstrap->site->report, &failure,
					 "barrier: rank %u is lost or has closed", missing);
	}
	failure.rank = link->party.ranks[0];
	if (state != CEI_LINK_UP)
		return cei_bootstrap_raise_gone(bootstrap, failure.rank, state, "barrier");
	return cei_raise_failure(bootstrap->site->report, &failure,
				 "barrier: rank %u has not come in time", failure.rank);
}

/* A call that times out does not end the barrier: the next call continues it. Otherwise this
 * process would count one barrier more than the other processes. */
int cei_bootstrap_barrier(struct cei_bootstrap *bootstrap, uint64_t deadline_ns)
{
	enum cei_link_state state;
	struct cei_link *link;
	uint32_t missing, i;

	pthread_mutex_lock(&bootstrap->lock);
	if (!bootstrap->in_barrier)
		bootstrap->n_calls++;
	bootstrap->in_barrier = 1;
	for (i = 0; i < bootstrap->n_links; i++)
		cei_bootstrap_send_owed(bootstrap, &bootstrap->links[i]);
	link = await_all(bootstrap, deadline_ns, &missing);
	bootstrap->in_barrier = link != NULL;
	state = link ? link->state : CEI_LINK_UP;
	pthread_mutex_unlock(&bootstrap->lock);
	return link ? raise_barrier(bootstrap, link, state, missing) : 0;
}
