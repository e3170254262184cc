/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Rings of clients become launches of an engine. */

#include "daemon/server/intake.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/plan/plan_launch.h"

/* Launches that one turn takes, of one client and of all: a client with a full ring delays others
 * by no more, and marks wait no longer for the look at rings. */
#define TAKE_OF_ONE 8u
#define TAKE_OF_ALL 64u

#define EVENTS 16
#define SLEEP_MS 1000

/* --- launches --------------------------------------------------------------- */

static int is_of_a_plan(const struct cei_mouth *mouth, const struct cei_service_launch *ask)
{
	const struct cei_intake_plan *slot;

	if (ask->slot >= CEI_CLIENT_PLANS_MAX)
		return 0;
	slot = &mouth->plans[ask->slot];
	return slot->plan && slot->generation == ask->generation && slot->mouth == mouth;
}

/* Launches the ring's next entry. 0; CEOV_NONE: there is none. CEOV_FULL: it has to wait.
 * CEOV_ERR_INVALID: the client writes what no client writes. */
static int launch_next(struct cei_mouth *mouth)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct cei_service_launch ask;
	int r = cei_service_take(&mouth->reader, &ask);

	if (r)
		return r;
	if (!is_of_a_plan(mouth, &ask))
		return CEOV_ERR_INVALID;
	launch.base = ask.base;
	launch.deadline_ns = ask.deadline_ns;
	r = cei_launch_numbered(mouth->plans[ask.slot].plan, &launch, ask.number);
	if (r == CEOV_ERR_NO_MEMORY)
		return CEOV_FULL;
	if (r)
		return r;
	cei_service_took(&mouth->reader);
	mouth->n_launches++;
	return 0;
}

static uint32_t take_from(struct cei_mouth *mouth)
{
	uint32_t n = 0;
	int r = 0;

	/* relaxed: only this thread sets it */
	if (atomic_load_explicit(mouth->is_faulty, memory_order_relaxed))
		return 0;
	for (; n < TAKE_OF_ONE; n++) {
		r = launch_next(mouth);
		if (r)
			break;
	}
	if (r >= 0)
		return n;
	/* release: pairs with cei_client_look() */
	atomic_store_explicit(mouth->is_faulty, 1, memory_order_release);
	mouth->faulty(mouth->arg);
	return n;
}

static struct cei_intake *of(struct cei_launch_source *source)
{
	return CEI_OWNER(source, struct cei_intake, source);
}

uint64_t cei_intake_turns(const struct cei_intake *intake)
{
	return atomic_load_explicit(&intake->n_turns, memory_order_relaxed);
}

/* Begins with another ring in each turn. */
static uint32_t take(struct cei_launch_source *source)
{
	struct cei_intake *intake = of(source);
	struct cei_list *mouths = &intake->mouths, *node, *first;
	uint32_t n = 0;

	/* relaxed, and by the engine's thread alone: somebody looks whether it rises */
	atomic_store_explicit(&intake->n_turns, cei_intake_turns(intake) + 1,
			      memory_order_relaxed);
	pthread_mutex_lock(&intake->lock);
	for (node = mouths->next; node != mouths && n < TAKE_OF_ALL; node = node->next)
		n += take_from(CEI_OWNER(node, struct cei_mouth, link));
	first = mouths->next;
	if (n && first != mouths) {
		cei_list_remove(first);
		cei_list_append(mouths, first);
	}
	pthread_mutex_unlock(&intake->lock);
	return n;
}

/* --- sleeping --------------------------------------------------------------- */

static void doze(struct cei_launch_source *source, int is_dozing)
{
	struct cei_intake *intake = of(source);
	struct cei_list *mouths = &intake->mouths, *node;

	pthread_mutex_lock(&intake->lock);
	for (node = mouths->next; node != mouths; node = node->next)
		cei_service_doze(&CEI_OWNER(node, struct cei_mouth, link)->reader, is_dozing);
	pthread_mutex_unlock(&intake->lock);
}

/* Bells are told at each ring (EPOLLET), so nobody has to read them. */
static int sleep_on(struct cei_launch_source *source)
{
	struct epoll_event events[EVENTS];

	return epoll_wait(of(source)->epoll, events, EVENTS, SLEEP_MS);
}

static void wake(struct cei_launch_source *source)
{
	cei_ring_eventfd(of(source)->bell);
}

void cei_intake_nudge(struct cei_intake *intake)
{
	wake(&intake->source);
}

static int listen_to(struct cei_intake *intake, int bell)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLET };

	return epoll_ctl(intake->epoll, EPOLL_CTL_ADD, bell, &event) ? CEOV_ERR_SYSTEM : 0;
}

/* --- life ------------------------------------------------------------------- */

int cei_intake_init(struct cei_intake *intake, struct cei_report *report)
{
	intake->source = (struct cei_launch_source){ take, doze, sleep_on, wake, 1 };
	pthread_mutex_init(&intake->lock, NULL);
	cei_list_init(&intake->mouths);
	intake->epoll = epoll_create1(EPOLL_CLOEXEC);
	intake->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (intake->epoll >= 0 && intake->bell >= 0 && !listen_to(intake, intake->bell))
		return 0;
	return cei_raise(report, CEOV_ERR_SYSTEM, errno, "an engine's bells: %s", strerror(errno));
}

void cei_intake_fini(struct cei_intake *intake)
{
	if (!intake->source.take)
		return;
	if (intake->bell >= 0)
		close(intake->bell);
	if (intake->epoll >= 0)
		close(intake->epoll);
	pthread_mutex_destroy(&intake->lock);
}

/* The engine may be asleep without having told this client; it is woken, and tells. */
int cei_intake_add(struct cei_intake *intake, struct cei_mouth *mouth)
{
	int r = listen_to(intake, mouth->bell);

	if (r)
		return r;
	pthread_mutex_lock(&intake->lock);
	cei_list_append(&intake->mouths, &mouth->link);
	pthread_mutex_unlock(&intake->lock);
	wake(&intake->source);
	return 0;
}

void cei_intake_remove(struct cei_intake *intake, struct cei_mouth *mouth)
{
	pthread_mutex_lock(&intake->lock);
	cei_list_remove(&mouth->link);
	pthread_mutex_unlock(&intake->lock);
	(void)epoll_ctl(intake->epoll, EPOLL_CTL_DEL, mouth->bell, NULL);
}

void cei_intake_put_plan(struct cei_intake *intake, struct cei_intake_plan *slot,
			 struct ceov_plan *plan, struct cei_mouth *mouth)
{
	pthread_mutex_lock(&intake->lock);
	slot->plan = plan;
	slot->mouth = mouth;
	pthread_mutex_unlock(&intake->lock);
}

struct ceov_plan *cei_intake_take_plan(struct cei_intake *intake,
				       struct cei_intake_plan *slot)
{
	struct ceov_plan *plan;

	pthread_mutex_lock(&intake->lock);
	plan = slot->plan;
	slot->plan = NULL;
	slot->generation++;
	pthread_mutex_unlock(&intake->lock);
	return plan;
}
