/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Mixes polled launches, launches that follow a stream, and plans in any order. Chance decides who
 * takes the next step: nothing may get stuck, and no rank may read bytes of another run.
 * CEOVERLAP_TEST_MIXED_MS: how long each test runs.
 */

#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "training_rig.h"

#define STALL    (5 * TESTING_SECOND)
#define DEADLINE (60 * TESTING_SECOND)  /* longer than a test waits, so that a stall is reported
					 * by the test */
#define PLAY_MS  500u

/* --- running ------------------------------------------------------------------ */

static int is_raised(const struct step *step)
{
	uint64_t value = 0;

	return !ceov_signal_value(step->signal, step->index, &value) && value >= step->value;
}

/* Takes one step of a stream. Returns 0 if the stream cannot go on yet. */
static int take_step(struct rank *rank, struct step *step)
{
	switch (step->kind) {
	case SPEND:
		return !step->value || !--step->value;
	case FILL:
		*step->word = step->value;
		return 1;
	case CHECK:
		rank->n_wrong += *step->word != step->value;
		return 1;
	case RAISE:
		rank->n_wrong += ceov_signal_raise(step->signal, step->index, step->value) != 0;
		return 1;
	case AWAIT:
		return is_raised(step);
	case FOLLOW:
		return rank->streams[step->index].n_done >= step->value;
	case REACH:
		atomic_store(&step->event->is_reached, 1);
		return 1;
	}
	return 0;
}

static int move_stream(struct rank *rank, struct stream *stream)
{
	if (stream->n_done == stream->n_queued ||
	    !take_step(rank, &stream->steps[stream->n_done]))
		return 0;
	stream->n_done++;
	return 1;
}

static int launch(struct rank *rank, const struct action *action)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	int r;

	launch.base = action->base;
	launch.deadline_ns = DEADLINE;
	if (action->stream < STREAMS)
		launch.after_stream = &rank->streams[action->stream];
	r = ceov_launch(action->plan, &launch, &rank->tickets[rank->n_launched]);
	rank->n_wrong += r < 0;
	rank->n_launched += r <= 0;
	return r <= 0;
}

static int move_host(struct rank *rank)
{
	const struct action *action = &rank->actions[rank->n_acted];
	struct stream *stream;
	int r;

	if (rank->n_acted == rank->n_actions)
		return 0;
	switch (action->kind) {
	case QUEUE:
		stream = &rank->streams[action->stream];
		stream->steps[stream->n_queued++] = action->step;
		break;
	case LAUNCH:
		if (!launch(rank, action))
			return 0;
		break;
	case HOLD:
		r = ceov_wait(rank->world->context, rank->tickets[action->launch], 0);
		if (r == CEOV_PENDING)
			return 0;
		rank->n_wrong += r != 0;
		break;
	}
	rank->n_acted++;
	return 1;
}

/* Lets a random part of the rank take a step, if that part can. */
static void move_rank(struct rank *rank)
{
	struct world *world = rank->world;
	uint64_t dice = testing_below(&rank->random, 100);
	int moved;

	if (dice < world->host_weight)
		moved = move_host(rank);
	else if (dice < world->host_weight + 30)
		moved = move_stream(rank, &rank->streams[dice % STREAMS]);
	else
		moved = cei_engine_turn(world->context->engines[rank->index]) ==
			CEI_TURN_WORKED;
	if (moved)
		atomic_fetch_add(&world->n_moved, 1);
}

static int is_finished(const struct rank *rank)
{
	uint64_t i;

	if (rank->n_acted < rank->n_actions)
		return 0;
	for (i = 0; i < STREAMS; i++)
		if (rank->streams[i].n_done < rank->streams[i].n_queued)
			return 0;
	for (i = 0; i < rank->n_launches; i++)
		if (ceov_wait(rank->world->context, rank->tickets[i], 0) == CEOV_PENDING)
			return 0;
	return 1;
}

static void tell(const struct rank *rank)
{
	const struct stream *stream;
	uint32_t i;

	fprintf(stderr, "rank %u: %llu of %llu actions\n", rank->index,
		(unsigned long long)rank->n_acted, (unsigned long long)rank->n_actions);
	for (i = 0; i < STREAMS; i++) {
		stream = &rank->streams[i];
		fprintf(stderr, "  stream %u: %llu of %llu steps, then one of kind %d\n", i,
			(unsigned long long)stream->n_done,
			(unsigned long long)stream->n_queued,
			stream->n_done < stream->n_queued
			? (int)stream->steps[stream->n_done].kind : -1);
	}
}

/* Runs ranks in one thread until all ranks of the world have finished. */
static void run_ranks(struct rank *ranks, uint32_t n)
{
	struct world *world = ranks->world;
	uint64_t stalls_at = cei_deadline(STALL), n_moved = 0, i;

	while (atomic_load(&world->n_finished) < world->n_ranks &&
	       !atomic_load(&world->is_stuck)) {
		for (i = 0; i < 256 * n; i++)
			move_rank(&ranks[testing_below(&ranks->random, n)]);
		for (i = 0; i < n; i++)
			if (ranks[i].n_actions && is_finished(&ranks[i])) {
				ranks[i].n_actions = ranks[i].n_acted = 0;
				atomic_fetch_add(&world->n_finished, 1);
			}
		if (n_moved != atomic_load(&world->n_moved))
			stalls_at = cei_deadline(STALL);
		n_moved = atomic_load(&world->n_moved);
		if (cei_now_ns() >= stalls_at)
			atomic_store(&world->is_stuck, 1);
	}
}

static void *run_one(void *arg)
{
	run_ranks(arg, 1);
	return NULL;
}

static void check_rank(const struct rank *rank)
{
	uint64_t i;

	ck_assert_msg(!rank->n_wrong, "rank %u: %llu wrong words, calls or launches",
		      rank->index, (unsigned long long)rank->n_wrong);
	for (i = 0; i < rank->n_launches; i++)
		ck_assert_int_eq(ceov_wait(rank->world->context, rank->tickets[i], 0), 0);
}

static void run_threads(struct world *world)
{
	pthread_t threads[RANKS_MAX];
	uint32_t i;

	for (i = 0; i < world->n_ranks; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_one,
						&world->ranks[i]), 0);
	for (i = 0; i < world->n_ranks; i++)
		pthread_join(threads[i], NULL);
}

static void play(uint64_t random, int has_threads)
{
	static struct world world;
	uint32_t i;

	training_open(&world, random);
	if (has_threads)
		run_threads(&world);
	else
		run_ranks(world.ranks, world.n_ranks);
	for (i = 0; atomic_load(&world.is_stuck) && i < world.n_ranks; i++)
		tell(&world.ranks[i]);
	ck_assert_msg(!atomic_load(&world.is_stuck), "stands still");
	for (i = 0; i < world.n_ranks; i++)
		check_rank(&world.ranks[i]);
	training_close(&world);
}

/* Runs random worlds for as long as the test may take. */
static void play_many(int has_threads)
{
	const char *text = getenv("CEOVERLAP_TEST_MIXED_MS");
	uint64_t until = cei_deadline((text ? strtoull(text, NULL, 10) : PLAY_MS) * TESTING_MS);
	uint64_t random = testing_seed(), n = 0;

	do {
		play(testing_random(&random), has_threads);
		n++;
	} while (cei_now_ns() < until);
	if (text)
		printf("%llu worlds\n", (unsigned long long)n);
}

START_TEST(test_nothing_stands_still)
{
	play_many(_i);
}
END_TEST

/* Uses a machine with shared ports, for which copies have to wait. */
START_TEST(test_nothing_stands_still_at_ports)
{
	const char *srcdir = getenv("srcdir");
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/h200x8-nvswitch.xml",
		 srcdir ? srcdir : ".");
	setenv("CEOVERLAP_MACHINE", path, 1);
	play_many(_i);
	unsetenv("CEOVERLAP_MACHINE");
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("mixed");
	TCase *all = tcase_create("mixed");

	tcase_set_timeout(all, 600);
	tcase_add_loop_test(all, test_nothing_stands_still, 0, 2);
	tcase_add_loop_test(all, test_nothing_stands_still_at_ports, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
