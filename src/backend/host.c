/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The host backend: one worker thread per lane moves host memory with memcpy. The
 * engine's thread writes operations into the lane's ring and publishes them with
 * submit; the worker executes them in order. With progress_by_caller there is no
 * worker and turn() does its work.
 */

#include "backend/host.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

/* Room for all submits that may be in flight, each with a full batch and a SUBMIT operation. */
#define OPERATIONS (CEI_LANE_SUBMITS * (CEI_LANE_BATCH + 1u))

enum kind { WAIT, COPY, POST, SUBMIT };

struct operation {
	enum kind kind;
	union {
		struct cei_await await;
		struct cei_piece piece;
		struct cei_post  post;
	};
};

struct host_backend {
	struct cei_host_faults faults;
	int                    has_faults;      /* else the script says nothing */
};

struct host_lane {
	struct operation *operations;           /* a ring of OPERATIONS */
	uint64_t          appended;             /* operations that the engine's thread wrote */
	_Atomic uint64_t  submitted;            /* operations that it published to the worker */
	_Atomic uint64_t  executed;             /* operations that the worker has done */
	_Atomic uint64_t  n_done;               /* submits that the worker has done */
	_Atomic int       error;                /* the worker's first error; stays */
	uint64_t          n_copies;             /* copies that the worker began */
	pthread_t         thread;
	int               has_thread;
	_Atomic uint32_t  bell;
	_Atomic uint32_t  is_parked;
	_Atomic uint32_t  must_stop;            /* the worker must begin no further operation */
	_Atomic uint32_t  has_ended;            /* the worker touches no memory any more */
};

static uint32_t rank_of(const struct cei_backend *backend)
{
	return backend->site->members[backend->member].rank;
}

void cei_host_set_script(struct cei_backend *backend, const struct cei_host_script *script)
{
	static const struct cei_host_script none;
	struct host_backend *host = backend->private;

	host->faults.script = *script;
	host->has_faults = memcmp(script, &none, sizeof(none)) != 0;
}

static int host_open(struct cei_backend *backend)
{
	struct host_backend *host = backend->private;
	struct cei_host_script script;
	int r = cei_host_script_from_environment(backend->site->report, rank_of(backend), &script);

	host->faults.opened_ns = cei_now_ns();
	if (!r)
		cei_host_set_script(backend, &script);
	return r;
}

static int host_lost(struct cei_backend *backend, char ret_text[CEI_LOST_BYTES])
{
	const struct host_backend *host = backend->private;

	if (!host->has_faults)
		return 0;
	return cei_host_faults_tell(&host->faults, rank_of(backend), ret_text);
}

static void host_close(struct cei_backend *backend)
{
	(void)backend;
}

/* --- the worker ---------------------------------------------------------- */

static void sleep_ns(uint64_t ns)
{
	struct timespec left = { (time_t)(ns / 1000000000u), (long)(ns % 1000000000u) };

	if (ns)
		nanosleep(&left, NULL);
}

static void copy_now(const struct cei_piece *piece)
{
	const char *source = (const char *)(uintptr_t)piece->source;
	char *target = (char *)(uintptr_t)piece->target;
	uint64_t i;

	for (i = 0; i < piece->n_rows; i++)
		memcpy(target + i * piece->target_pitch_bytes,
		       source + i * piece->source_pitch_bytes, piece->row_bytes);
}

/* CEOV_PENDING: the copy never ends, because the script says so or the lane was stopped. */
static int execute_copy(struct cei_lane *lane, const struct cei_piece *piece)
{
	struct host_backend *host = lane->backend->private;
	struct host_lane *own = lane->private;
	int r = 0;

	if (own->n_copies + 1 == host->faults.script.copy_lose_at)
		return CEOV_PENDING;    /* at each further try, too */
	own->n_copies++;
	sleep_ns(host->faults.script.copy_delay_ns);
	if (atomic_load(&own->must_stop))       /* stopped during the delay: copies nothing */
		return CEOV_PENDING;
	if (host->has_faults)
		r = cei_host_faults_copy(&host->faults, lane, own->n_copies);
	if (!r)
		copy_now(piece);
	return r;
}

static void raise_counter(uint64_t address, uint64_t value)
{
	/* release: pairs with the acquire of readers, who then see the copies before */
	if (address)
		atomic_store_explicit((_Atomic uint64_t *)(uintptr_t)address, value,
				      memory_order_release);
}

/* CEOV_PENDING: the mark is not reached yet. */
static int execute_wait(const struct cei_await *await)
{
	const _Atomic uint64_t *counter =
		(const _Atomic uint64_t *)(uintptr_t)await->counter;
	const _Atomic uint32_t *abort_word = (const _Atomic uint32_t *)await->abort_word;

	/* acquire: pairs with the raiser's release, and with open_gates() (signal_abort.c) */
	if (atomic_load_explicit(counter, memory_order_acquire) >= await->value)
		return 0;
	if (abort_word &&
	    (atomic_load_explicit(abort_word, memory_order_acquire) & CEI_ABORT_OPENS))
		return 0;
	return CEOV_PENDING;
}

/* Executes one operation. CEOV_PENDING: it cannot end yet, and must be tried again. */
static int execute(struct cei_lane *lane, const struct operation *operation)
{
	struct host_lane *own = lane->private;
	/* relaxed: only this thread writes it */
	int broken = atomic_load_explicit(&own->error, memory_order_relaxed);
	int r = 0;

	switch (operation->kind) {
	case WAIT:
		return broken ? 0 : execute_wait(&operation->await);
	case COPY:
		if (!broken)
			r = execute_copy(lane, &operation->piece);
		if (r < 0)      /* release: pairs with host_reap() */
			atomic_store_explicit(&own->error, r, memory_order_release);
		return r > 0 ? r : 0;
	case POST:
		if (broken)
			return 0;
		raise_counter(operation->post.counter, operation->post.value);
		raise_counter(operation->post.word, operation->post.value);
		return 0;
	case SUBMIT:
		if (!broken)    /* release: pairs with host_reap() */
			atomic_fetch_add_explicit(&own->n_done, 1, memory_order_release);
		return 0;
	}
	return 0;
}

/* Executes the next operation. CEOV_PENDING: it did; CEOV_NONE: there is no operation, or the
 * lane was stopped; CEOV_FULL: the next operation cannot end yet. */
static int step(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;
	uint64_t next = atomic_load_explicit(&own->executed, memory_order_relaxed);

	/* acquire: pairs with host_submit() */
	if (atomic_load(&own->must_stop) ||
	    next == atomic_load_explicit(&own->submitted, memory_order_acquire))
		return CEOV_NONE;
	if (execute(lane, &own->operations[next % OPERATIONS]))
		return CEOV_FULL;
	/* release: pairs with room() in the engine's thread, which writes there */
	atomic_store_explicit(&own->executed, next + 1, memory_order_release);
	return CEOV_PENDING;
}

static void park(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;
	uint32_t bell;

	/* seq_cst: we set is_parked and then read the bell; submit publishes, rings
	 * the bell and then reads is_parked. Either we see its ring, and so what it
	 * published, or it sees us parked and wakes us. */
	atomic_store(&own->is_parked, 1);
	bell = atomic_load(&own->bell);
	if (atomic_load(&own->submitted) ==
	    atomic_load_explicit(&own->executed, memory_order_relaxed) &&
	    !atomic_load(&own->must_stop))
		cei_futex_wait(&own->bell, bell, CEI_FOREVER);
	atomic_store(&own->is_parked, 0);
}

static void *worker_main(void *arg)
{
	struct cei_lane *lane = arg;
	struct host_lane *own = lane->private;
	struct cei_backoff backoff;
	uint64_t sleep_at = 0;
	char name[16];
	int r;

	snprintf(name, sizeof(name), "ceov-host%u.%u",
		 rank_of(lane->backend) % 100, lane->index % 10);
	pthread_setname_np(pthread_self(), name);
	cei_backoff_reset(&backoff);
	while (!atomic_load(&own->must_stop)) {
		r = step(lane);
		if (r == CEOV_PENDING) {
			cei_backoff_reset(&backoff);
			sleep_at = 0;
			continue;
		}
		if (r == CEOV_NONE && !sleep_at)
			sleep_at = cei_now_ns() + CEI_SLEEP_AFTER_NS;
		if (r == CEOV_NONE && cei_now_ns() >= sleep_at) {
			park(lane);
			sleep_at = 0;
			continue;
		}
		cei_backoff_step(&backoff);
	}
	/* release: pairs with host_is_idle(): what was copied comes before */
	atomic_store_explicit(&own->has_ended, 1, memory_order_release);
	return NULL;
}

/* --- lanes --------------------------------------------------------------- */

static int host_lane_open(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;

	own->operations = calloc(OPERATIONS, sizeof(*own->operations));
	if (own->operations)
		return 0;
	return cei_raise(lane->backend->site->report, CEOV_ERR_NO_MEMORY, 0,
			 "host: lane %u: no memory for %u operations", lane->index,
			 OPERATIONS);
}

/* Starts the worker at the lane's first submit, so that an unused lane has no thread. */
static int start(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;
	sigset_t all, before;
	int r;

	if (own->has_thread || lane->backend->site->progress_by_caller)
		return 0;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&own->thread, NULL, worker_main, lane);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return cei_raise(lane->backend->site->report, CEOV_ERR_SYSTEM, r,
				 "host: lane %u: cannot start its worker", lane->index);
	own->has_thread = 1;
	return 0;
}

static int room(const struct host_lane *own, uint32_t n)
{
	/* acquire: pairs with the worker's release in step() */
	return own->appended + n <=
		atomic_load_explicit(&own->executed, memory_order_acquire) + OPERATIONS;
}

static struct operation *append(struct host_lane *own, enum kind kind)
{
	struct operation *operation = &own->operations[own->appended++ % OPERATIONS];

	operation->kind = kind;
	return operation;
}

static int host_wait(struct cei_lane *lane, const struct cei_await *await)
{
	struct host_lane *own = lane->private;

	if (!room(own, 1))
		return CEOV_FULL;
	append(own, WAIT)->await = *await;
	return 0;
}

static int host_copy(struct cei_lane *lane, const struct cei_piece *pieces,
		     uint32_t n_pieces)
{
	struct host_lane *own = lane->private;
	uint32_t i;

	if (!room(own, n_pieces))
		return CEOV_FULL;
	for (i = 0; i < n_pieces; i++)
		append(own, COPY)->piece = pieces[i];
	return 0;
}

static int host_post(struct cei_lane *lane, const struct cei_post *posts, uint32_t n_posts)
{
	struct host_lane *own = lane->private;
	uint32_t i;

	if (!room(own, n_posts))
		return CEOV_FULL;
	for (i = 0; i < n_posts; i++)
		append(own, POST)->post = posts[i];
	return 0;
}

/* If the worker cannot be started, nothing is published: nobody would execute it. */
static int host_submit(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;
	int r = room(own, 1) ? start(lane) : CEOV_FULL;

	if (r)
		return r;
	append(own, SUBMIT);
	/* release: pairs with step() */
	atomic_store_explicit(&own->submitted, own->appended, memory_order_release);
	atomic_fetch_add(&own->bell, 1);                /* seq_cst: see park() */
	if (atomic_load(&own->is_parked))
		cei_futex_wake(&own->bell);
	return 0;
}

/* Without a worker nothing has begun. What a worker was given may have failed in the middle. */
static int host_mend(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;

	if (own->has_thread || lane->backend->site->progress_by_caller)
		return CEOV_ERR_STATE;
	/* relaxed, all: there is no worker yet, and pthread_create() orders what it will see */
	own->appended = atomic_load_explicit(&own->submitted, memory_order_relaxed);
	atomic_store_explicit(&own->n_done, lane->n_submitted, memory_order_relaxed);
	atomic_store_explicit(&own->must_stop, 0, memory_order_relaxed);
	return 0;
}

static int host_reap(struct cei_lane *lane, uint64_t *ret_n_done)
{
	const struct host_backend *host = lane->backend->private;
	struct host_lane *own = lane->private;
	/* acquire: pairs with execute(); the error first: nothing is done after it */
	int error = atomic_load_explicit(&own->error, memory_order_acquire);

	if (!error && host->has_faults && cei_host_faults_lost(&host->faults))
		error = CEOV_ERR_SYSTEM;
	*ret_n_done = atomic_load_explicit(&own->n_done, memory_order_acquire);
	return error;
}

static int host_turn(struct cei_lane *lane)
{
	return step(lane) == CEOV_PENDING ? CEOV_PENDING : 0;
}

static int host_drain(struct cei_lane *lane, uint64_t deadline_ns)
{
	struct host_lane *own = lane->private;
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	/* acquire: pairs with step() */
	while (atomic_load_explicit(&own->executed, memory_order_acquire) !=
	       atomic_load_explicit(&own->submitted, memory_order_relaxed)) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(lane->backend->site->report, CEOV_ERR_TIMEOUT, 0,
					 "host: lane %u does not come to its end",
					 lane->index);
		if (!own->has_thread)
			(void)step(lane);
		cei_backoff_step(&backoff);
	}
	return 0;
}

static void host_stop(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;

	atomic_store(&own->must_stop, 1);
	atomic_fetch_add(&own->bell, 1);                /* seq_cst: see park() */
	cei_futex_wake(&own->bell);
}

/* The lane is idle when its worker has ended, when a copy failed (the worker skips all copies
 * and posts behind it), or when all published operations were executed. With
 * progress_by_caller there is no worker. */
static int host_is_idle(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;

	/* acquire, all three: pair with the worker's releases, behind its copies */
	if (atomic_load_explicit(&own->has_ended, memory_order_acquire) ||
	    atomic_load_explicit(&own->error, memory_order_acquire) ||
	    atomic_load_explicit(&own->executed, memory_order_acquire) ==
	    atomic_load_explicit(&own->submitted, memory_order_relaxed))
		return 1;
	return !own->has_thread && atomic_load(&own->must_stop);
}

/* Joins the worker: it was stopped and is idle, so it ends at once. */
static void host_lane_close(struct cei_lane *lane)
{
	struct host_lane *own = lane->private;

	if (own->has_thread)
		pthread_join(own->thread, NULL);
	free(own->operations);
}

/* --- staging and the tables ---------------------------------------------- */

static int host_staging_open(struct cei_backend *backend, enum ceov_place_kind kind,
			     uint64_t n_bytes, uint64_t *ret_address)
{
	void *memory = malloc(n_bytes);

	(void)kind;
	if (!memory)
		return cei_raise(backend->site->report, CEOV_ERR_NO_MEMORY, 0,
				 "host: no memory for %llu bytes of staging",
				 (unsigned long long)n_bytes);
	*ret_address = (uint64_t)(uintptr_t)memory;
	return 0;
}

static void host_staging_close(struct cei_backend *backend, enum ceov_place_kind kind,
			       uint64_t address)
{
	(void)backend;
	(void)kind;
	free((void *)(uintptr_t)address);
}

static const struct cei_lane_ops lanes = {
	.lane_bytes    = sizeof(struct host_lane),
	.open          = host_lane_open,
	.close         = host_lane_close,
	.wait          = host_wait,
	.copy          = host_copy,
	.post          = host_post,
	.submit        = host_submit,
	.reap          = host_reap,
	.turn          = host_turn,
	.drain         = host_drain,
	.stop          = host_stop,
	.is_idle       = host_is_idle,
	.mend          = host_mend,
};

const struct cei_place_ops cei_backend_host = {
	.name          = "host",
	.serves        = 1u << CEOV_PLACE_HOST,
	.moves         = CEI_MOVES_WITHIN_HOST,
	.caps          = CEI_CAP_LANE_WAIT | CEI_CAP_ORDERED | CEI_CAP_DELIVERED,
	.backend_bytes = sizeof(struct host_backend),
	.lanes         = &lanes,
	.open          = host_open,
	.close         = host_close,
	.lost          = host_lost,
	.staging_open  = host_staging_open,
	.staging_close = host_staging_close,
	.store         = cei_host_store,
	.load          = cei_host_load,
};
