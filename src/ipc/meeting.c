/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The meeting's life and its barrier, as application threads call them. They note
 * what has to be said and wait, with deadlines, for what the meeting's thread
 * receives. meeting_private.h has the map of the files.
 */

#include "ipc/meeting_private.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define NS_PER_S UINT64_C(1000000000)

int cei_meeting_wait(struct cei_meeting *meeting, uint64_t deadline_ns)
{
	struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};

	if (cei_now_ns() >= deadline_ns)
		return CEOV_NONE;
	pthread_cond_timedwait(&meeting->changed, &meeting->lock, &until);
	return 0;
}

void cei_meeting_send_owed(struct cei_meeting *meeting, struct cei_link *link)
{
	cei_link_flush(meeting, link);
	if (cei_link_owes(meeting, link))
		cei_meeting_wake(meeting);
}

int cei_meeting_raise_gone(struct cei_meeting *meeting, uint32_t rank,
			   enum cei_link_state state, const char *what)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_PEER_LOST, 0);

	failure.rank = rank;
	return cei_raise_failure(meeting->site->report, &failure, "%s: rank %u %s", what,
				 rank, state == CEI_LINK_DEPARTED ?
				 "has closed its context" :
				 "is lost: its process has ended");
}

/* --- life ---------------------------------------------------------------- */

/* Returns an errno. */
static int init_locks(struct cei_meeting *meeting)
{
	pthread_condattr_t attributes;
	int error;

	error = pthread_condattr_init(&attributes);
	if (error)
		return error;
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	error = pthread_cond_init(&meeting->changed, &attributes);
	pthread_condattr_destroy(&attributes);
	if (error)
		return error;
	error = pthread_mutex_init(&meeting->lock, NULL);
	if (error)
		pthread_cond_destroy(&meeting->changed);
	meeting->has_lock = !error;
	return error;
}

/* The application's signals are none of our thread's business. Returns an errno. */
static int start_thread(struct cei_meeting *meeting)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	error = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (error)
		return error;
	error = pthread_create(&meeting->thread, NULL, cei_meeting_run, meeting);
	meeting->has_thread = !error;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static int has_a_rank_twice(const struct cei_site *site)
{
	struct cei_rank_set seen = { { 0 } };
	uint32_t i;

	for (i = 0; i < site->n_members; i++) {
		if (cei_rank_set_has(&seen, site->members[i].rank))
			return 1;
		cei_rank_set_add(&seen, site->members[i].rank);
	}
	return 0;
}

static int check_site(const struct cei_site *site, const char *path)
{
	uint32_t i;

	if (!site->n_ranks || site->n_ranks > CEI_RANKS_MAX ||
	    !site->n_members || site->n_members > CEI_MEMBERS_MAX)
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "a group has 1 to %u ranks, a process holds 1 to %u of "
				 "them; not %u and %u", CEI_RANKS_MAX, CEI_MEMBERS_MAX,
				 site->n_ranks, site->n_members);
	for (i = 0; i < site->n_members; i++)
		if (site->members[i].rank >= site->n_ranks)
			return cei_raise(site->report, CEOV_ERR_INVALID, 0,
					 "rank %u is out of range: the group has %u "
					 "ranks", site->members[i].rank, site->n_ranks);
	if (path && strlen(path) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return cei_raise(site->report, CEOV_ERR_INVALID, ENAMETOOLONG,
				 "the group's path has %zu bytes and is too long for a "
				 "socket, which takes %zu; choose a shorter one: %s",
				 strlen(path),
				 sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1, path);
	if (has_a_rank_twice(site))
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "a rank is given twice to this process");
	if (site->n_members < site->n_ranks && (!path || !path[0]))
		return cei_raise(site->report, CEOV_ERR_INVALID, 0,
				 "this process holds %u of %u ranks and has no path to "
				 "meet the others at", site->n_members, site->n_ranks);
	return 0;
}

static int meet(struct cei_meeting *meeting)
{
	struct cei_wire_party party;

	cei_party_of_site(meeting->site, &party);
	if (party.n_ranks == meeting->site->n_ranks)
		return 0;       /* nobody else to meet */
	if (cei_party_has(&party, 0))
		return cei_meeting_listen(meeting);
	return cei_meeting_join(meeting);
}

static int build(struct cei_meeting *meeting)
{
	struct cei_report *report = meeting->site->report;
	int error;
	int r;

	error = init_locks(meeting);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "meeting: no lock: %s",
				 strerror(error));
	meeting->links = calloc(CEI_LINKS_MAX, sizeof(*meeting->links));
	if (!meeting->links)
		return cei_raise(report, CEOV_ERR_NO_MEMORY, 0,
				 "meeting: no memory for links");
	meeting->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (meeting->wake_fd < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno, "meeting: eventfd: %s",
				 strerror(errno));
	r = meet(meeting);
	if (r)
		return r;
	error = start_thread(meeting);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error, "meeting: no thread: %s",
				 strerror(error));
	return 0;
}

int cei_meeting_open(struct cei_site *site, const struct cei_meeting_config *config,
		     struct cei_meeting **ret_meeting)
{
	struct cei_meeting *meeting;
	int r;

	r = check_site(site, config->path);
	if (r)
		return r;
	meeting = calloc(1, sizeof(*meeting));
	if (!meeting)
		return cei_raise(site->report, CEOV_ERR_NO_MEMORY, 0,
				 "meeting: no memory");
	meeting->site = site;
	meeting->config = *config;
	meeting->wake_fd = -1;
	r = build(meeting);
	meeting->config.path = NULL;
	if (r) {
		cei_meeting_close(meeting);
		return r;
	}
	*ret_meeting = meeting;
	return 0;
}

static int all_heard_bye(const struct cei_meeting *meeting)
{
	const struct cei_link *link;
	uint32_t i;

	for (i = 0; i < meeting->n_links; i++) {
		link = &meeting->links[i];
		if (link->state == CEI_LINK_UP && !link->is_mute && !link->bye_told)
			return 0;
	}
	return 1;
}

static void say_bye(struct cei_meeting *meeting)
{
	uint64_t deadline_ns = cei_deadline(CEI_BYE_WAIT_NS);
	uint32_t i;

	pthread_mutex_lock(&meeting->lock);
	meeting->is_closing = 1;
	for (i = 0; i < meeting->n_links; i++) {
		meeting->links[i].bye_owed = 1;
		cei_meeting_send_owed(meeting, &meeting->links[i]);
	}
	while (!all_heard_bye(meeting) && !cei_meeting_wait(meeting, deadline_ns))
		;
	meeting->must_stop = 1;
	pthread_mutex_unlock(&meeting->lock);
	cei_meeting_wake(meeting);
}

/* Accepts what cei_meeting_open() left half built. */
void cei_meeting_close(struct cei_meeting *meeting)
{
	uint32_t i;

	if (!meeting)
		return;
	if (meeting->has_thread) {
		say_bye(meeting);
		pthread_join(meeting->thread, NULL);
	}
	for (i = 0; i < meeting->n_links; i++)
		cei_link_end(meeting, &meeting->links[i], CEI_LINK_DEPARTED);
	while (meeting->n_offerings)
		cei_offering_free(meeting, meeting->n_offerings - 1);
	cei_fd_close(meeting->wake_fd);
	free(meeting->links);
	if (meeting->has_lock) {
		pthread_mutex_destroy(&meeting->lock);
		pthread_cond_destroy(&meeting->changed);
	}
	free(meeting);
}

/* --- barrier ------------------------------------------------------------- */

/* A peer that was here in this round and went since counts as here. Returns the
 * link that is gone, else one that is missing, else NULL. */
static struct cei_link *link_not_here(struct cei_meeting *meeting)
{
	struct cei_link *missing = NULL;
	struct cei_link *link;
	uint32_t i;

	for (i = 0; i < meeting->n_links; i++) {
		link = &meeting->links[i];
		if (link->n_calls_seen >= meeting->n_calls)
			continue;
		if (link->state != CEI_LINK_UP)
			return link;
		if (!missing)
			missing = link;
	}
	return missing;
}

/* A call that timed out is not over: the next one goes on with the same round, so
 * that who tries again does not run ahead of the group. */
int cei_meeting_barrier(struct cei_meeting *meeting, uint64_t deadline_ns)
{
	struct ceov_failure failure = cei_failure(CEOV_ERR_TIMEOUT, 0);
	struct cei_link *link;
	enum cei_link_state state;
	uint64_t n_calls;
	uint32_t i;

	pthread_mutex_lock(&meeting->lock);
	if (!meeting->in_barrier)
		meeting->n_calls++;
	meeting->in_barrier = 1;
	n_calls = meeting->n_calls;
	for (i = 0; i < meeting->n_links; i++)
		cei_meeting_send_owed(meeting, &meeting->links[i]);
	do
		link = link_not_here(meeting);
	while (link && link->state == CEI_LINK_UP &&
	       !cei_meeting_wait(meeting, deadline_ns));
	meeting->in_barrier = link != NULL;
	state = link ? link->state : CEI_LINK_UP;
	pthread_mutex_unlock(&meeting->lock);
	if (!link)
		return 0;
	if (state != CEI_LINK_UP)
		return cei_meeting_raise_gone(meeting, link->party.ranks[0], state,
					      "barrier");
	failure.rank = link->party.ranks[0];
	return cei_raise_failure(meeting->site->report, &failure,
				 "barrier %llu: rank %u has not come in time",
				 (unsigned long long)n_calls, failure.rank);
}
