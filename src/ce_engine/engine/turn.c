/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The turn, the thread that makes it, start and stop. */

#include "ce_engine/engine/engine.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

#include "backend/lane.h"
#include "base/clock.h"
#include "ce_engine/engine/completion.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/sched/trace.h"

/* More than launches and their lanes that an engine can hold when it stops. */
#define GIVE_UP_LOOKS_MAX 65536u

/* How long an engine that stops waits for lanes of which it does not know whether they move bytes
 * or wait for somebody. */
#define DRAIN_UNKNOWN_NS UINT64_C(100000000)

static uint32_t take_up(struct cei_engine *engine)
{
	struct cei_launch *launch;
	uint32_t n = 0;

	(void)engine->source->take(engine->source);
	cei_admission_begin(&engine->admission);
	for (; (launch = cei_admission_next(&engine->admission)); n++) {
		cei_expiry_put(&engine->expiry, launch, &engine->expiry.in_flight);
		launch->armed_ns = engine->trace ? cei_now_ns() : 0;
		cei_doorbell_arm(&engine->doorbell, launch);
		if (!launch->n_open)    /* a plan without transfers: a group of one */
			cei_completion_retire(engine, launch);
	}
	return n;
}

static uint32_t poll_doorbell(struct cei_engine *engine)
{
	struct cei_ending ending;
	uint32_t n = cei_doorbell_poll(&engine->doorbell, &ending);

	if (ending.launch)
		cei_completion_fail(engine, &ending);
	return n;
}

static void push_picked(struct cei_engine *engine)
{
	struct cei_list *picked = &engine->scheduler.picked;
	const struct cei_chunk *fallen;

	while (!cei_list_is_empty(picked)) {
		fallen = cei_lanes_push(&engine->lanes, picked);
		if (fallen)
			cei_completion_fall(engine, fallen);
		cei_completion_end_broken(engine);
	}
}

static uint32_t turn_set(struct cei_engine *engine, const struct cei_lane_set *set)
{
	struct cei_lane *lane;
	uint32_t i, n = 0;

	for (i = cei_lane_set_next(set, 0); i != CEI_NO_LANE; i = cei_lane_set_next(set, i + 1)) {
		lane = &engine->lanes.states[i]->lane;
		if (lane->ops->turn)
			n += lane->ops->turn(lane) == CEOV_PENDING;
	}
	return n;
}

static uint32_t turn_lanes(struct cei_engine *engine)
{
	if (!engine->site->progress_by_caller)
		return 0;
	return turn_set(engine, &engine->lanes.under_way) +
		turn_set(engine, &engine->lanes.stuck);
}

/* One pass. The stages in the order of the data's way. */
enum cei_turn cei_engine_turn(struct cei_engine *engine)
{
	uint32_t n = take_up(engine);
	uint64_t now_ns;

	if (cei_fence_is_up(&engine->fence))
		cei_completion_end_fenced(engine);
	n += poll_doorbell(engine);
	n += cei_scheduler_pick(&engine->scheduler);
	push_picked(engine);
	n += turn_lanes(engine);
	n += cei_completion_reap(engine);
	if (cei_expiry_is_empty(&engine->expiry))
		return n ? CEI_TURN_WORKED : CEI_TURN_IDLE;
	now_ns = cei_now_ns();
	if (!n)
		cei_fence_look_at(&engine->fence, &engine->movers, now_ns);
	cei_completion_expire(engine, now_ns);
	return n ? CEI_TURN_WORKED : CEI_TURN_WAITING;
}

/* --- the source of an engine whose launches threads of this process bring ------ */

static struct cei_engine *engine_of(struct cei_launch_source *source)
{
	return CEI_OWNER(source, struct cei_engine, threads);
}

static uint32_t threads_take(struct cei_launch_source *source)
{
	(void)source;           /* they have put them into the inbox themselves */
	return 0;
}

static void threads_doze(struct cei_launch_source *source, int is_dozing)
{
	if (is_dozing)          /* seq_cst: see park() */
		engine_of(source)->rung = atomic_load(&engine_of(source)->bell);
}

static int threads_sleep(struct cei_launch_source *source)
{
	cei_futex_wait(&engine_of(source)->bell, engine_of(source)->rung, CEI_FOREVER);
	return 1;
}

static void threads_wake(struct cei_launch_source *source)
{
	cei_futex_wake(&engine_of(source)->bell);
}

/* --- sleeping ------------------------------------------------------------------ */

/* Sleeps until a launch comes or the engine stops. */
static void park(struct cei_engine *engine)
{
	struct cei_launch_source *source = engine->source;

	/* seq_cst: we set is_parked and then read the bell, in doze(); a launcher puts, rings
	 * the bell and then reads is_parked. Either we see its ring, and so what it
	 * put, or it sees us parked and wakes us. */
	atomic_store(&engine->is_parked, 1);
	source->doze(source, 1);
	if (cei_engine_turn(engine) == CEI_TURN_IDLE && !atomic_load(&engine->must_stop)) {
		do
			cei_fence_look_at(&engine->fence, &engine->movers, cei_now_ns());
		while (!source->sleep(source));
	}
	source->doze(source, 0);
	atomic_store(&engine->is_parked, 0);
}

static void ring(struct cei_engine *engine)
{
	atomic_fetch_add(&engine->bell, 1);             /* seq_cst: see park() */
	if (atomic_load(&engine->is_parked))
		engine->source->wake(engine->source);
}

static void prepare_thread(struct cei_engine *engine)
{
	char name[16];

	snprintf(name, sizeof(name), "ceov-engine%u", engine->rank % 100);
	pthread_setname_np(pthread_self(), name);
	/* Short sleeps of the back-off would else be 50 us longer. */
	prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
	cei_topology_pin(engine->topology, engine->site, engine->backend->member);
}

/* Ends the launches that have not come back. Each call of expire ends one launch, gives up one
 * lane, or ends a pass of expiry. */
static void give_up(struct cei_engine *engine)
{
	uint32_t n;

	for (n = 0; n < GIVE_UP_LOOKS_MAX; n++) {
		if (cei_expiry_is_empty(&engine->expiry))
			return;
		cei_completion_expire(engine, CEI_FOREVER);
	}
}

/* Goes on while lanes move bytes. Whoever has seen a launch's last mark may close the context
 * before the engine has seen that the launch is done; and an abort of its signals would reach
 * peers that have not looked at the mark yet. It takes at most half of the time in which the
 * engine has to stop: aborted copies need the other half to come back. */
static void drain(struct cei_engine *engine)
{
	uint64_t now_ns = cei_now_ns(), until_ns = now_ns + CEI_DRAIN_NS;
	uint64_t guess_until_ns = now_ns + DRAIN_UNKNOWN_NS;
	struct cei_backoff backoff;
	enum cei_turn turn;

	if (engine->stop_by_ns < now_ns)
		return;
	if (until_ns - now_ns > (engine->stop_by_ns - now_ns) / 2)
		until_ns = now_ns + (engine->stop_by_ns - now_ns) / 2;
	cei_backoff_reset(&backoff);
	do {
		turn = cei_engine_turn(engine);
		if (turn == CEI_TURN_WORKED)
			cei_backoff_again(&backoff);
		else
			cei_backoff_step(&backoff);
		now_ns = cei_now_ns();
	} while (now_ns < until_ns && turn != CEI_TURN_IDLE &&
		 (turn == CEI_TURN_WORKED ||
		  cei_completion_moves(engine, now_ns < guess_until_ns)));
}

static void stop(struct cei_engine *engine)
{
	struct cei_backoff backoff;

	drain(engine);
	cei_backoff_reset(&backoff);
	do {
		cei_completion_abort_all(engine);
		if (cei_engine_turn(engine) == CEI_TURN_IDLE)
			return;
		cei_backoff_step(&backoff);
	} while (cei_now_ns() < engine->stop_by_ns);
	give_up(engine);
}

static void *engine_main(void *arg)
{
	struct cei_engine *engine = arg;
	struct cei_backoff backoff;
	uint64_t linger_until = 0;
	enum cei_turn turn;

	prepare_thread(engine);
	cei_backoff_reset(&backoff);
	while (!atomic_load(&engine->must_stop)) {
		turn = cei_engine_turn(engine);
		if (turn == CEI_TURN_WORKED) {
			cei_backoff_again(&backoff);
			linger_until = 0;
			continue;
		}
		if (turn == CEI_TURN_IDLE && !linger_until)
			linger_until = cei_deadline(CEI_LINGER_NS);
		if (turn == CEI_TURN_IDLE && cei_now_ns() >= linger_until) {
			park(engine);
			linger_until = 0;
			continue;
		}
		if (turn == CEI_TURN_IDLE)
			cei_backoff_yield(&backoff);    /* the next launch is to begin at once */
		else if (!cei_expiry_goes_on(&engine->expiry))
			cei_backoff_step(&backoff);
	}
	stop(engine);
	/* release: pairs with thread_ends() */
	atomic_store_explicit(&engine->has_ended, 1, memory_order_release);
	return NULL;
}

/* Blocks all signals in the new thread: they are for the application's threads. */
static int start_thread(struct cei_engine *engine)
{
	sigset_t all, before;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&engine->thread, NULL, engine_main, engine);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		return cei_raise(engine->site->report, CEOV_ERR_SYSTEM, r,
				 "rank %u: cannot start the engine's thread", engine->rank);
	engine->has_thread = 1;
	return 0;
}

/* The place whose ports the rank reserves, or CEOV_NOBODY. A host rank represents a GPU only
 * when the machine is read from a file. Where real GPUs are present it does not: it would
 * reserve their ports without using them. */
static uint32_t place_of(const struct cei_topology *topology, const struct ceov_member *own,
			 const struct cei_place_ops *ops)
{
	int is_device = (ops->caps & CEI_CAP_DEVICE) != 0;
	uint32_t place = is_device ? own->place.index : own->rank;

	if (!topology->machine || place >= topology->machine->n_gpus ||
	    (!is_device && topology->n_gpus))
		return CEOV_NOBODY;
	return place;
}

/* Each stage knows the next one. */
static int init_stages(struct cei_engine *engine)
{
	int r;

	engine->doorbell.scheduler = &engine->scheduler;
	engine->doorbell.staging = &engine->staging;
	engine->doorbell.trace = engine->trace;
	cei_parking_init(&engine->doorbell.parking);
	engine->staging.movers = &engine->movers;
	engine->staging.backend = engine->backend;
	engine->staging.lanes = &engine->lanes;
	engine->staging.topology = engine->topology;
	engine->staging.place = engine->place;
	engine->staging.scheduler = &engine->scheduler;
	engine->staging.trace = engine->trace;
	engine->scheduler.tally = engine->tally;
	r = cei_scheduler_init(&engine->scheduler, engine->ports, engine->flows, engine->trace);
	if (!r)
		r = cei_admission_init(&engine->admission, engine->backend, &engine->expiry);
	return r ? cei_raise(engine->site->report, r, 0,
			     "rank %u: no memory for queues and the inbox", engine->rank) : 0;
}

int cei_engine_open(struct cei_engine *engine, struct cei_site *site,
		    struct cei_topology *topology, uint32_t member)
{
	const struct ceov_member *own = &site->members[member];
	int r;

	engine->site = site;
	engine->topology = topology;
	engine->rank = own->rank;
	engine->threads = (struct cei_launch_source){ threads_take, threads_doze, threads_sleep,
						      threads_wake, 0 };
	if (!engine->source)
		engine->source = &engine->threads;
	cei_expiry_init(&engine->expiry);
	cei_fence_init(&engine->fence, engine->source->watches_place);
	r = cei_trace_open(site, &engine->trace);
	if (!r)
		r = cei_movers_open(&engine->movers, site, member);
	if (r)
		return r;
	engine->backend = &engine->movers.mover[0].backend;
	engine->place = place_of(topology, own, engine->backend->ops);
	r = init_stages(engine);
	if (!r)
		r = cei_lanes_init(&engine->lanes, engine->backend, &engine->scheduler,
				   engine->trace);
	if (!r && !site->progress_by_caller)
		r = start_thread(engine);
	return r;
}

void cei_engine_ask_stop(struct cei_engine *engine, uint64_t stop_by_ns)
{
	engine->stop_by_ns = stop_by_ns;
	/* seq_cst: see park(); and the release that pairs with engine_main() */
	atomic_store(&engine->must_stop, 1);
	ring(engine);
}

/* Waits for the end of the thread, which may be kept by a call of a driver, and joins it. */
static int thread_ends(struct cei_engine *engine, uint64_t deadline_ns)
{
	struct cei_backoff backoff;

	cei_backoff_reset(&backoff);
	/* acquire: pairs with engine_main() */
	while (!atomic_load_explicit(&engine->has_ended, memory_order_acquire)) {
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(engine->site->report, CEOV_ERR_TIMEOUT, 0,
					 "rank %u: the engine's thread does not end",
					 engine->rank);
		cei_backoff_step(&backoff);
	}
	pthread_join(engine->thread, NULL);
	engine->has_thread = 0;
	return 0;
}

int cei_engine_stop(struct cei_engine *engine, uint64_t deadline_ns)
{
	if (!engine->site || engine->is_stopped)
		return 0;
	if (engine->has_thread) {
		if (thread_ends(engine, deadline_ns))
			return CEOV_ERR_TIMEOUT;
	} else if (cei_lanes_n(&engine->lanes) >= CEI_LANES) {
		stop(engine);
	}
	if (cei_lanes_stop(&engine->lanes, deadline_ns))
		return CEOV_ERR_TIMEOUT;
	engine->is_stopped = 1;
	return 0;
}

void cei_engine_close(struct cei_engine *engine)
{
	if (!engine->site)
		return;
	cei_lanes_fini(&engine->lanes);
	cei_staging_fini(&engine->staging);
	cei_movers_close(&engine->movers);
	cei_admission_fini(&engine->admission);
	cei_queues_fini(&engine->scheduler.queues);
	cei_fence_fini(&engine->fence);
	free(engine->trace);
	engine->site = NULL;
}

int cei_engine_submit(struct cei_engine *engine, struct cei_launch *launch)
{
	int r = cei_ring_put(&engine->admission.inbox, launch);

	if (!r)
		ring(engine);
	return r;
}

int ceov_turn(ceov_context *context)
{
	uint32_t i;
	int r = cei_context_check(context, "ceov_turn");

	if (r)
		return r;
	if (!context->site.progress_by_caller)
		return cei_raise(&context->report, CEOV_ERR_STATE, 0,
				 "ceov_turn: the context's own threads turn the engines; "
				 "open it with progress_by_caller");
	if (context->peers && cei_peers_turn(context->peers))
		r = CEOV_PENDING;
	for (i = 0; i < context->site.n_members; i++)
		if (cei_engine_turn(context->engines[i]) != CEI_TURN_IDLE)
			r = CEOV_PENDING;
	return r;
}
