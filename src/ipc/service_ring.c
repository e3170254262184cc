/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Puts launches into rings that a daemon reads, and takes them out there; tells and awaits their
 * ends. */

#include "ipc/service_ring.h"

#include <sched.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"

#define NUMBER_SHIFT 8u
#define RESULT_MASK  0xffu

/* A sleeper looks again so often, in case that the daemon has died or lost a wake-up: a lost one
 * costs no more than this. */
#define NAP_NS UINT64_C(10000000)

/* Who waits looks so many times before it yields: the most takes about SPIN_NS. */
#define SPINS_LEAST 4u
#define SPINS_MAX   256u
#define SPIN_NS     UINT64_C(10000)

static uint64_t pack(uint64_t number, int result)
{
	return number << NUMBER_SHIFT | ((uint32_t)-result & RESULT_MASK);
}

static uint64_t number_of(uint64_t done)
{
	return done >> NUMBER_SHIFT;
}

static int result_of(uint64_t done)
{
	return -(int)(done & RESULT_MASK);
}

/* --- the launcher ----------------------------------------------------------- */

void cei_service_launcher_init(struct cei_service_launcher *launcher)
{
	pthread_mutex_init(&launcher->lock, NULL);
	atomic_init(&launcher->is_lost, 1);
	atomic_init(&launcher->n_waiting, 0);
	atomic_init(&launcher->n_spins, SPINS_MAX);
}

void cei_service_launcher_fini(struct cei_service_launcher *launcher)
{
	pthread_mutex_destroy(&launcher->lock);
}

void cei_service_launcher_attach(struct cei_service_launcher *launcher,
				 const struct cei_service_areas *areas)
{
	pthread_mutex_lock(&launcher->lock);
	launcher->down = areas->down;
	launcher->up = areas->up;
	launcher->n_rings = areas->n_rings;
	memcpy(launcher->bells, areas->bells, areas->n_rings * sizeof(*areas->bells));
	memset(launcher->n_put, 0, sizeof(launcher->n_put));
	/* release: pairs with enter(), after which `up` is read */
	atomic_store_explicit(&launcher->is_lost, 0, memory_order_release);
	pthread_mutex_unlock(&launcher->lock);
}

void cei_service_launcher_lose(struct cei_service_launcher *launcher)
{
	/* seq_cst: pairs with n_waiting in enter() */
	atomic_store(&launcher->is_lost, 1);
}

/* With the lock held. */
static void remember(struct cei_service_launcher *launcher, uint64_t number, int result)
{
	struct cei_service_failure *failure;

	failure = &launcher->failed[launcher->n_failed++ % CEI_SERVICE_FAILURES];
	if (failure->number > launcher->forgotten)
		launcher->forgotten = failure->number;
	failure->number = number;
	failure->result = result;
}

static uint64_t look(const struct cei_service_launcher *launcher, uint64_t number)
{
	/* acquire: pairs with cei_service_end(); what the launch moved before its result */
	return atomic_load_explicit(&launcher->up->done[number % CEI_SERVICE_TICKETS],
				    memory_order_acquire);
}

void cei_service_launcher_detach(struct cei_service_launcher *launcher)
{
	struct cei_backoff backoff;
	uint64_t number, done;
	uint32_t i;

	cei_service_launcher_lose(launcher);
	cei_backoff_reset(&backoff);
	while (atomic_load(&launcher->n_waiting))       /* seq_cst: see enter() */
		cei_backoff_step(&backoff);
	pthread_mutex_lock(&launcher->lock);
	for (i = 0; launcher->up && i < CEI_SERVICE_TICKETS; i++) {
		number = launcher->holders[i];
		done = look(launcher, i);
		if (number && number_of(done) != number)
			remember(launcher, number, CEOV_ERR_DAEMON_LOST);
		else if (number && result_of(done))
			remember(launcher, number, result_of(done));
		launcher->holders[i] = 0;
	}
	launcher->down = NULL;
	launcher->up = NULL;
	pthread_mutex_unlock(&launcher->lock);
}

/* --- launches --------------------------------------------------------------- */

/* Finds a number whose slot is free. Slots of launches in flight are skipped, so that a long launch
 * delays no other. */
static int take_number(struct cei_service_launcher *launcher, uint64_t *ret_number)
{
	uint64_t number = launcher->last, holder, done;
	uint32_t i;

	for (i = 0; i < CEI_SERVICE_TICKETS; i++) {
		holder = launcher->holders[++number % CEI_SERVICE_TICKETS];
		done = look(launcher, number);
		if (holder && number_of(done) != holder)
			continue;
		if (holder && result_of(done))
			remember(launcher, holder, result_of(done));
		*ret_number = number;
		return 0;
	}
	return CEOV_FULL;
}

/* Wakes the engine if it sleeps, or is about to. */
static void ring_bell(const struct cei_service_launcher *launcher, uint32_t ring)
{
	/* seq_cst: the entry was published before, and cei_service_doze() has the same fence
	 * between is_asleep and the engine's last look at the ring */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&launcher->up->lines[ring].is_asleep, memory_order_relaxed))
		return;
	cei_ring_eventfd(launcher->bells[ring]);
}

static void write_entry(struct cei_service_entry *entry, const struct cei_service_launch *launch,
			uint64_t turn)
{
	atomic_store_explicit(&entry->plan, launch->slot | (uint64_t)launch->generation << 32,
			      memory_order_relaxed);
	atomic_store_explicit(&entry->number, launch->number, memory_order_relaxed);
	atomic_store_explicit(&entry->base, launch->base, memory_order_relaxed);
	atomic_store_explicit(&entry->deadline_ns, launch->deadline_ns, memory_order_relaxed);
	/* release: pairs with cei_service_take() */
	atomic_store_explicit(&entry->turn, turn, memory_order_release);
}

/* With the lock held. */
static int put(struct cei_service_launcher *launcher, uint32_t ring,
	       struct cei_service_launch *launch)
{
	uint64_t n_put = launcher->n_put[ring];
	int r;

	if (atomic_load_explicit(&launcher->is_lost, memory_order_relaxed))
		return CEOV_ERR_DAEMON_LOST;    /* relaxed: it may be lost a moment later */
	if (ring >= launcher->n_rings)
		return CEOV_ERR_INVALID;
	/* acquire: pairs with cei_service_took(), which has read the entry before */
	if (n_put - atomic_load_explicit(&launcher->up->lines[ring].taken, memory_order_acquire) >=
	    CEI_SERVICE_ENTRIES)
		return CEOV_FULL;
	r = take_number(launcher, &launch->number);
	if (r)
		return r;
	launcher->last = launch->number;
	launcher->holders[launch->number % CEI_SERVICE_TICKETS] = launch->number;
	launcher->n_put[ring] = n_put + 1;
	write_entry(&launcher->down->rings[ring].entries[n_put % CEI_SERVICE_ENTRIES], launch,
		    n_put + 1);
	ring_bell(launcher, ring);
	return 0;
}

int cei_service_put(struct cei_service_launcher *launcher, uint32_t ring,
		    struct cei_service_launch *launch)
{
	int r;

	pthread_mutex_lock(&launcher->lock);
	r = put(launcher, ring, launch);
	pthread_mutex_unlock(&launcher->lock);
	return r;
}

/* --- waiting ---------------------------------------------------------------- */

/* Keeps the areas mapped until leave(). Returns whether there are any. */
static int enter(struct cei_service_launcher *launcher)
{
	/* seq_cst: detach() first sets is_lost and then looks at n_waiting, this first counts and
	 * then looks at is_lost; so either detach() waits, or no area is touched */
	atomic_fetch_add(&launcher->n_waiting, 1);
	return !atomic_load(&launcher->is_lost);
}

static void leave(struct cei_service_launcher *launcher)
{
	/* release: pairs with detach() */
	atomic_fetch_sub_explicit(&launcher->n_waiting, 1, memory_order_release);
}

static int is_over(const struct cei_service_launcher *launcher, uint64_t number)
{
	return number_of(look(launcher, number)) >= number;
}

/* The lower half of the word, which changes with each launch of the slot. */
static const _Atomic uint32_t *futex_of(const struct cei_service_up *up, uint64_t number)
{
	_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the lower half comes first");
	return (const _Atomic uint32_t *)&up->done[number % CEI_SERVICE_TICKETS];
}

static void sleep_until(struct cei_service_launcher *launcher, uint64_t number, uint64_t deadline)
{
	const _Atomic uint32_t *word = futex_of(launcher->up, number);
	uint64_t until, now;
	uint32_t seen;

	/* seq_cst: counted before the word is looked at; cei_service_end() writes the word and then
	 * looks at the count */
	atomic_fetch_add(&launcher->down->n_waiters, 1);
	for (;;) {
		now = cei_now_ns();
		seen = atomic_load(word);
		if (is_over(launcher, number) || now >= deadline ||
		    atomic_load(&launcher->is_lost))
			break;
		until = deadline - now < NAP_NS ? deadline : now + NAP_NS;
		cei_futex_wait_shared(word, seen, until);
	}
	atomic_fetch_sub(&launcher->down->n_waiters, 1);
}

/* Looks again and again, so many times. Returns whether there is nothing to wait for. */
static int spin(const struct cei_service_launcher *launcher, uint64_t number, uint32_t n)
{
	for (; n; n--) {
		if (is_over(launcher, number) || atomic_load(&launcher->is_lost))
			return 1;
		cei_relax();
	}
	return 0;
}

/* Yields for a while, and then sleeps. */
static void yield_and_sleep(struct cei_service_launcher *launcher, uint64_t number,
			    uint64_t deadline)
{
	uint64_t now, sleep_at = cei_deadline(CEI_SLEEP_AFTER_NS);

	while (!is_over(launcher, number) && !atomic_load(&launcher->is_lost)) {
		now = cei_now_ns();
		if (now >= deadline)
			return;
		if (now >= sleep_at) {
			sleep_until(launcher, number, deadline);
			return;
		}
		sched_yield();
	}
}

/*
 * Spins, since most launches are short, and then leaves the processor to others. Where more threads
 * want to run than there are processors, spinning keeps the engine from its own: then waits last
 * longer than all spinning, and the next ones spin less.
 */
static void wait_until(struct cei_service_launcher *launcher, uint64_t number, uint64_t deadline)
{
	/* relaxed, both: any value is right, and threads may overwrite each other's */
	uint32_t n = atomic_load_explicit(&launcher->n_spins, memory_order_relaxed), next;
	uint64_t begin = cei_now_ns();

	if (!spin(launcher, number, n))
		yield_and_sleep(launcher, number, deadline);
	next = cei_now_ns() - begin < SPIN_NS ? n * 2 : n / 2;
	next = next > SPINS_MAX ? SPINS_MAX : next < SPINS_LEAST ? SPINS_LEAST : next;
	if (next != n)
		atomic_store_explicit(&launcher->n_spins, next, memory_order_relaxed);
}

/* With the lock held: the result of a launch that is not in its slot any more. */
static int find_failure(const struct cei_service_launcher *launcher, uint64_t number,
			int *ret_result)
{
	uint64_t i, n = launcher->n_failed;
	const struct cei_service_failure *failure;

	for (i = 0; i < n && i < CEI_SERVICE_FAILURES; i++) {
		failure = &launcher->failed[(n - 1 - i) % CEI_SERVICE_FAILURES];
		if (failure->number == number) {
			*ret_result = failure->result;
			return 0;
		}
	}
	/* Failures are not kept in the order of their numbers: a launch may last long. */
	if (number <= launcher->forgotten)
		return CEOV_NONE;
	*ret_result = 0;
	return 0;
}

static int read_result(struct cei_service_launcher *launcher, uint64_t number, int *ret_result)
{
	uint64_t done;
	int is_lost;

	if (!number || number > launcher->last)
		return CEOV_ERR_INVALID;
	if (launcher->holders[number % CEI_SERVICE_TICKETS] != number)
		return find_failure(launcher, number, ret_result);
	/* Before the look: a dead daemon's results do not change any more, so that every later
	 * call finds the same. */
	is_lost = (int)atomic_load(&launcher->is_lost);
	done = look(launcher, number);
	if (number_of(done) == number)
		*ret_result = result_of(done);
	else
		*ret_result = is_lost ? CEOV_ERR_DAEMON_LOST : CEOV_PENDING;
	return 0;
}

/* Between enter() and leave(): whether the daemon at hand will tell the result. It does not of
 * launches of an earlier daemon, and of numbers that nothing has. */
static int is_in_flight(struct cei_service_launcher *launcher, uint64_t number)
{
	int r, result;

	if (is_over(launcher, number))
		return 0;               /* mostly, and without the lock */
	pthread_mutex_lock(&launcher->lock);
	r = read_result(launcher, number, &result);
	pthread_mutex_unlock(&launcher->lock);
	return !r && result == CEOV_PENDING;
}

int cei_service_wait(struct cei_service_launcher *launcher, uint64_t number, uint64_t timeout_ns,
		     int *ret_result)
{
	int r;

	if (enter(launcher) && timeout_ns && is_in_flight(launcher, number))
		wait_until(launcher, number, cei_deadline(timeout_ns));
	leave(launcher);
	pthread_mutex_lock(&launcher->lock);
	r = read_result(launcher, number, ret_result);
	pthread_mutex_unlock(&launcher->lock);
	return r;
}

/* --- the daemon's end ------------------------------------------------------- */

static uint64_t copy(const _Atomic uint64_t *field)
{
	return atomic_load_explicit(field, memory_order_relaxed);
}

int cei_service_take(struct cei_service_reader *reader, struct cei_service_launch *ret_launch)
{
	const struct cei_service_entry *entry =
		&reader->ring->entries[reader->n_taken % CEI_SERVICE_ENTRIES];
	/* acquire: pairs with write_entry() */
	uint64_t plan, turn = atomic_load_explicit(&entry->turn, memory_order_acquire);
	uint64_t wanted = reader->n_taken + 1;

	if (turn == (wanted > CEI_SERVICE_ENTRIES ? wanted - CEI_SERVICE_ENTRIES : 0))
		return CEOV_NONE;
	if (turn != wanted || copy(&entry->zero[0]) || copy(&entry->zero[1]) ||
	    copy(&entry->zero[2]))
		return CEOV_ERR_INVALID;
	plan = copy(&entry->plan);
	ret_launch->slot = (uint32_t)plan;
	ret_launch->generation = (uint32_t)(plan >> 32);
	ret_launch->number = copy(&entry->number);
	ret_launch->base = copy(&entry->base);
	ret_launch->deadline_ns = copy(&entry->deadline_ns);
	if (!ret_launch->number || ret_launch->number > UINT64_MAX >> NUMBER_SHIFT)
		return CEOV_ERR_INVALID;
	return 0;
}

void cei_service_took(struct cei_service_reader *reader)
{
	/* release: the entry was read before the client writes it again in put() */
	atomic_store_explicit(&reader->line->taken, ++reader->n_taken, memory_order_release);
}

void cei_service_doze(struct cei_service_reader *reader, int is_dozing)
{
	atomic_store_explicit(&reader->line->is_asleep, (uint32_t)is_dozing,
			      memory_order_relaxed);
	/* seq_cst: see ring_bell() */
	atomic_thread_fence(memory_order_seq_cst);
}

void cei_service_end(struct cei_service_up *up, const struct cei_service_down *down,
		     uint64_t number, int result)
{
	/* release: pairs with look(). seq_cst: see sleep_until() */
	atomic_store(&up->done[number % CEI_SERVICE_TICKETS], pack(number, result));
	if (atomic_load(&down->n_waiters))
		cei_futex_wake_shared(futex_of(up, number));
}
