/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests groups of real processes on host memory, one rank each, forked before they open. They move
 * bytes, die, are stopped, and release objects that others still use. An assert that fails in a
 * forked rank ends it with status 1, which its parent sees.
 */

#include <check.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ceoverlap/collective.h>

#include "base/clock.h"
#include "testing.h"

#define RANKS    4u
#define PIECES   3u
#define SHARD    UINT64_C(50000)
#define LAUNCHES 200u
#define VICTIM   2u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOSS_NS (1000 * TESTING_MS)
#else
#define LOSS_NS (100 * TESTING_MS)
#endif

struct board {                          /* memory shared by the processes of a test */
	_Atomic uint64_t killed_ns;
	_Atomic uint32_t round;         /* the victim's current round */
	_Atomic uint32_t step;
	uint64_t         ended_ns[RANKS];
};

static struct board *board;
static pid_t ranks[RANKS];

struct party {
	uint32_t      rank;
	uint32_t      n_ranks;
	ceov_context *context;
	ceov_buffer  *source;
	ceov_buffer  *targets[RANKS];
	ceov_signal  *ready;
	ceov_signal  *arrived[RANKS];
	ceov_signal  *free[RANKS];
	ceov_plan    *plan;
};

static void set_up(void)
{
	board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(board, MAP_FAILED);
}

static void tear_down(void)
{
	munmap(board, sizeof(*board));
}

/* Starts `n_ranks` processes; each ends with status 0 when body returns. */
static void start(uint32_t n_ranks, void (*body)(struct party *party))
{
	struct party party;
	uint32_t i;

	for (i = 0; i < n_ranks; i++) {
		ranks[i] = fork();
		ck_assert_int_ge(ranks[i], 0);
		if (ranks[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		memset(&party, 0, sizeof(party));
		party.rank = i;
		party.n_ranks = n_ranks;
		body(&party);
		_exit(0);
	}
}

/* Asserts how the process ended: by itself with status 0, or by the signal that the test sent. */
static void end(uint32_t rank, int by_signal)
{
	int status = 0;

	ck_assert_int_eq(waitpid(ranks[rank], &status, 0), ranks[rank]);
	if (by_signal)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == by_signal);
	else
		ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
			      "rank %u ended with status 0x%x", rank, status);
}

static void wait_for_step(uint32_t step)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);

	while (atomic_load(&board->step) < step) {
		ck_assert_uint_lt(cei_now_ns(), deadline);
		usleep(1000);
	}
}

static void open_party(struct party *party)
{
	struct ceov_member member = { party->rank, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	char path[200];

	testing_path("group", path, sizeof(path));
	config.members = &member;
	config.n_members = 1;
	config.n_ranks = party->n_ranks;
	config.group = path;
	config.deadline_ns = TESTING_PATIENCE;
	ck_assert_int_eq(ceov_open(&config, &party->context), 0);
}

static ceov_buffer *find_buffer(struct party *party, uint32_t rank, const char *name)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_buffer *found = NULL;
	int r;

	while ((r = ceov_buffer_find(party->context, rank, name, &found)) == CEOV_NONE)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	return found;
}

static ceov_signal *find_signal(struct party *party, uint32_t rank, const char *name)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_signal *found = NULL;
	int r;

	while ((r = ceov_signal_find(party->context, rank, name, &found)) == CEOV_NONE)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
	return found;
}

/* --- an all-gather ------------------------------------------------------- */

static void meet(struct party *party)
{
	uint32_t own = party->rank, i;

	party->source = testing_buffer(party->context, own, SHARD);
	party->targets[own] = testing_buffer(party->context, own, party->n_ranks * SHARD);
	party->ready = testing_signal(party->context, own, PIECES);
	party->arrived[own] = testing_signal(party->context, own, party->n_ranks * PIECES);
	party->free[own] = testing_signal(party->context, own, party->n_ranks * PIECES);
	ck_assert_int_eq(ceov_buffer_share(party->targets[own], "target"), 0);
	ck_assert_int_eq(ceov_signal_share(party->arrived[own], "arrived"), 0);
	ck_assert_int_eq(ceov_signal_share(party->free[own], "free"), 0);
	for (i = 0; i < party->n_ranks; i++) {
		if (i == own)
			continue;
		party->targets[i] = find_buffer(party, i, "target");
		party->arrived[i] = find_signal(party, i, "arrived");
		party->free[i] = find_signal(party, i, "free");
	}
}

static void plan(struct party *party)
{
	struct ceov_all_gather gather = { .struct_bytes = sizeof(gather) };

	gather.shard_bytes = SHARD;
	gather.n_pieces = PIECES;
	gather.source = party->source;
	gather.targets = party->targets;
	gather.ready = party->ready;
	gather.arrived = party->arrived;
	gather.free = party->free;
	party->plan = testing_plan(party->context, party->rank);
	ck_assert_int_eq(ceov_plan_add_all_gather(party->plan, &gather), 0);
	ck_assert_int_eq(ceov_plan_commit(party->plan), 0);
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
}

static uint64_t seed_of(uint32_t rank, uint32_t launch)
{
	return rank * UINT64_C(1000000) + launch;
}

static int await_arrivals(struct party *party, uint32_t k)
{
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < party->n_ranks * PIECES; i++)
		r = ceov_signal_wait(party->arrived[party->rank], i, k + 1,
				     TESTING_PATIENCE);
	return r;
}

static int launch(struct party *party, uint32_t k, ceov_ticket *ret_ticket)
{
	struct ceov_launch run = { .struct_bytes = sizeof(run), .base = k };
	uint32_t i;
	int r;

	run.producer_stream = k % 3 == 1 ? party : NULL;
	r = ceov_launch(party->plan, &run, ret_ticket);
	testing_fill(ceov_buffer_base(party->source, party->rank), SHARD,
		     seed_of(party->rank, k));
	for (i = 0; !r && i < PIECES; i++)
		r = ceov_signal_raise(party->ready, i, k + 1);
	return r;
}

/* Plays one round: produces, gathers, checks the data that arrived, frees. Returns the first
 * error. */
static int round_of(struct party *party, uint32_t k, ceov_ticket *ret_ticket)
{
	const char *target = ceov_buffer_base(party->targets[party->rank], party->rank);
	int r = launch(party, k, ret_ticket);
	uint32_t i;

	if (!r)
		r = await_arrivals(party, k);
	if (r)
		return r;
	for (i = 0; i < party->n_ranks; i++)
		ck_assert_uint_eq(testing_check(target + i * SHARD, SHARD, seed_of(i, k)),
				  SHARD);
	r = ceov_wait(party->context, *ret_ticket, TESTING_PATIENCE);
	for (i = 0; !r && i < party->n_ranks * PIECES; i++)
		r = ceov_signal_raise(party->free[party->rank], i, k + 1);
	return r;
}

static void gather_all(struct party *party)
{
	ceov_ticket ticket;
	uint32_t k;

	open_party(party);
	meet(party);
	plan(party);
	for (k = 0; k < LAUNCHES; k++)
		ck_assert_int_eq(round_of(party, k, &ticket), 0);
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
	ceov_close(party->context);
}

START_TEST(test_four_processes_gather)
{
	uint32_t i;

	start(RANKS, gather_all);
	for (i = 0; i < RANKS; i++)
		end(i, 0);
}
END_TEST

/* --- death of a process -------------------------------------------------- */

static void expect_loss(struct party *party, int r, const char *what)
{
	struct ceov_failure failure;

	ck_assert_msg(r == CEOV_ERR_PEER_LOST, "rank %u: %s: %s", party->rank, what,
		      ceov_strerror(r));
	failure = testing_failure(party->context);
	ck_assert_int_eq(failure.error, CEOV_ERR_PEER_LOST);
	ck_assert_msg(failure.rank == VICTIM, "rank %u: %s blames rank %d: %s", party->rank,
		      what, (int)failure.rank, failure.text);
}

static void expect_end(struct party *party, ceov_ticket ticket)
{
	ceov_signal *found;
	int r = ceov_wait(party->context, ticket, TESTING_PATIENCE);

	/* 0: the launch had already ended when the round failed */
	ck_assert(!r || r == CEOV_ERR_PEER_LOST);
	board->ended_ns[party->rank] = cei_now_ns();
	expect_loss(party, CEOV_ERR_PEER_LOST, "launch");
	expect_loss(party, ceov_signal_wait(party->arrived[party->rank], 0, 1000000,
					    TESTING_PATIENCE), "ceov_signal_wait");
	expect_loss(party, ceov_barrier(party->context, TESTING_PATIENCE), "ceov_barrier");
	expect_loss(party, ceov_signal_find(party->context, VICTIM, "later", &found),
		    "ceov_signal_find");
	ck_assert_int_eq(ceov_launch(party->plan, NULL, NULL), CEOV_ERR_PEER_LOST);
}

static void gather_until_death(struct party *party)
{
	ceov_ticket ticket = { 0 };
	uint32_t k;
	int r = 0;

	open_party(party);
	meet(party);
	plan(party);
	for (k = 0; !r; k++) {
		r = round_of(party, k, &ticket);
		if (party->rank == VICTIM)
			atomic_store(&board->round, k);
	}
	ck_assert_msg(r == CEOV_ERR_PEER_LOST, "rank %u: %s", party->rank,
		      ceov_strerror(r));
	expect_end(party, ticket);
	ceov_close(party->context);
}

START_TEST(test_death_ends_all_waits_of_the_others)
{
	uint64_t took, random = testing_seed();
	uint32_t i;

	start(RANKS, gather_until_death);
	while (atomic_load(&board->round) < 20)
		usleep(1000);
	usleep((useconds_t)testing_below(&random, 20000));
	atomic_store(&board->killed_ns, cei_now_ns());
	ck_assert_int_eq(kill(ranks[VICTIM], SIGKILL), 0);
	for (i = 0; i < RANKS; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
	for (i = 0; i < RANKS; i++) {
		if (i == VICTIM)
			continue;
		took = board->ended_ns[i] - atomic_load(&board->killed_ns);
		ck_assert_msg(took < LOSS_NS, "rank %u: its wait ended after %llu us", i,
			      (unsigned long long)(took / 1000));
	}
}
END_TEST

/* Blocks in a barrier, in a find, and in a launch that waits only for the victim. */
static void wait_for_victim(struct party *party)
{
	struct ceov_launch run = { .struct_bytes = sizeof(run), .base = 1 };
	ceov_ticket ticket;

	open_party(party);
	meet(party);
	plan(party);
	if (party->rank == VICTIM) {
		atomic_fetch_add(&board->step, 1);
		pause();
	}
	atomic_fetch_add(&board->step, 1);
	if (party->rank == 0) {
		expect_loss(party, ceov_barrier(party->context, TESTING_PATIENCE), "barrier");
	} else if (party->rank == 1) {
		ck_assert_int_eq(ceov_launch(party->plan, &run, &ticket), 0);
		expect_loss(party, ceov_wait(party->context, ticket, TESTING_PATIENCE),
			    "wait");
	} else {
		expect_loss(party, ceov_signal_wait(party->arrived[VICTIM], 0, 1,
						    TESTING_PATIENCE), "signal wait");
	}
	board->ended_ns[party->rank] = cei_now_ns();
	ceov_close(party->context);
}

START_TEST(test_death_ends_each_kind_of_wait)
{
	uint32_t i;

	start(RANKS, wait_for_victim);
	wait_for_step(RANKS);
	usleep(50000);
	atomic_store(&board->killed_ns, cei_now_ns());
	ck_assert_int_eq(kill(ranks[VICTIM], SIGKILL), 0);
	for (i = 0; i < RANKS; i++)
		end(i, i == VICTIM ? SIGKILL : 0);
	for (i = 0; i < RANKS; i++)
		if (i != VICTIM)
			ck_assert_uint_lt(board->ended_ns[i] - board->killed_ns, LOSS_NS);
}
END_TEST

/* --- a stopped process --------------------------------------------------- */

static void wait_for_stopped(struct party *party)
{
	struct ceov_launch run = { .struct_bytes = sizeof(run) };
	struct ceov_failure failure;
	ceov_ticket ticket;
	uint32_t i;

	open_party(party);
	meet(party);
	plan(party);
	if (party->rank == 1) {
		atomic_fetch_add(&board->step, 1);      /* the parent stops it at this point */
		wait_for_step(3);
		ck_assert_int_eq(ceov_signal_wait(party->free[1], 0, 1, 0),
				 CEOV_ERR_TIMEOUT);
		ceov_close(party->context);
		return;
	}
	wait_for_step(2);
	run.base = 1;                   /* waits for a free mark that rank 1 never raises */
	run.deadline_ns = 300 * TESTING_MS;
	for (i = 0; i < PIECES; i++) {
		ck_assert_int_eq(ceov_signal_raise(party->ready, i, 2), 0);
		ck_assert_int_eq(ceov_signal_raise(party->free[0], i, 1), 0);
	}
	ck_assert_int_eq(ceov_launch(party->plan, &run, &ticket), 0);
	ck_assert_int_eq(ceov_wait(party->context, ticket, TESTING_PATIENCE),
			 CEOV_ERR_TIMEOUT);
	failure = testing_failure(party->context);
	ck_assert_int_eq(failure.error, CEOV_ERR_TIMEOUT);
	ck_assert_msg(failure.rank == 1, "blames rank %d: %s", (int)failure.rank,
		      failure.text);
	ck_assert_uint_eq(failure.mark_value, 1);
	ck_assert_uint_eq(failure.seen_value, 0);
	atomic_fetch_add(&board->step, 1);
	ceov_close(party->context);
}

START_TEST(test_a_stopped_rank_is_named_when_the_deadline_passes)
{
	start(2, wait_for_stopped);
	wait_for_step(1);
	testing_stop(ranks[1]);
	atomic_fetch_add(&board->step, 1);
	wait_for_step(3);
	ck_assert_int_eq(kill(ranks[1], SIGCONT), 0);
	end(0, 0);
	end(1, 0);
}
END_TEST

/* --- exported handles ---------------------------------------------------- */

static void barrier(struct party *party)
{
	ck_assert_int_eq(ceov_barrier(party->context, TESTING_PATIENCE), 0);
}

static void own_and_release(struct party *party)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	ceov_buffer *buffer = testing_buffer(party->context, 0, 10000);
	ceov_signal *signal = testing_signal(party->context, 0, 4);
	ceov_buffer *other = testing_buffer(party->context, 0, 16);

	testing_fill(ceov_buffer_base(buffer, 0), 10000, 5);
	ck_assert_int_eq(ceov_buffer_share(buffer, "x"), 0);
	ck_assert_int_eq(ceov_buffer_share(other, "x"), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_buffer_share(buffer, "y"), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_buffer_share(other, ""), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_share(signal, "s"), 0);
	barrier(party);                 /* step 1: the other rank has found both */
	barrier(party);
	ck_assert_int_eq(ceov_buffer_release(buffer), CEOV_PENDING);
	ck_assert_int_eq(ceov_signal_release(signal), CEOV_PENDING);
	barrier(party);                 /* step 2: the other rank finds them no more */
	barrier(party);
	while (ceov_buffer_release(buffer) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	while (ceov_signal_release(signal) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(ceov_buffer_release(buffer), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_share(other, "x"), 0);     /* the name is free again */
	barrier(party);
	barrier(party);
}

static void find_and_release(struct party *party)
{
	ceov_buffer *one, *two, *third;
	ceov_signal *signal, *wrong;

	barrier(party);
	one = find_buffer(party, 0, "x");
	two = find_buffer(party, 0, "x");
	signal = find_signal(party, 0, "s");
	ck_assert_ptr_eq(ceov_buffer_base(one, 1), ceov_buffer_base(two, 1));
	ck_assert_int_eq(ceov_signal_find(party->context, 0, "x", &wrong), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_find(party->context, 9, "x", &third), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_find(party->context, 0, "no", &third), CEOV_NONE);
	ck_assert_int_eq(ceov_buffer_share(one, "mine"), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_release(one), 0);
	ck_assert_int_eq(ceov_buffer_release(one), CEOV_ERR_INVALID);
	barrier(party);
	barrier(party);
	ck_assert_int_eq(ceov_buffer_find(party->context, 0, "x", &third), CEOV_NONE);
	ck_assert_uint_eq(testing_check(ceov_buffer_base(two, 1), 10000, 5), 10000);
	ck_assert_int_eq(ceov_signal_raise(signal, 3, 9), 0);
	ck_assert_int_eq(ceov_buffer_release(two), 0);
	ck_assert_int_eq(ceov_signal_release(signal), 0);
	barrier(party);
	barrier(party);
	third = find_buffer(party, 0, "x");
	ck_assert_ptr_nonnull(third);
	barrier(party);
}

static void share_and_release(struct party *party)
{
	open_party(party);
	if (party->rank == 0)
		own_and_release(party);
	else
		find_and_release(party);
	ceov_close(party->context);
}

START_TEST(test_a_buffer_lives_while_a_peer_uses_it)
{
	start(2, share_and_release);
	end(0, 0);
	end(1, 0);
}
END_TEST

/* --- closing a context --------------------------------------------------- */

#define USE_MS 200u

/* Rank 0 closes while rank 1 uses its buffer, which rank 1 drops later. */
static void close_while_used(struct party *party)
{
	ceov_buffer *shared;
	uint64_t begin;

	open_party(party);
	if (party->rank) {
		shared = find_buffer(party, 0, "shared");
		atomic_store(&board->step, 1);
		usleep(USE_MS * 1000);
		ck_assert_int_eq(ceov_buffer_release(shared), 0);
		wait_for_step(2);
		ceov_close(party->context);
		return;
	}
	shared = testing_buffer(party->context, 0, SHARD);
	ck_assert_int_eq(ceov_buffer_share(shared, "shared"), 0);
	wait_for_step(1);
	begin = cei_now_ns();
	ceov_close(party->context);
	ck_assert_uint_ge(cei_now_ns() - begin, USE_MS / 2 * TESTING_MS);
	atomic_store(&board->step, 2);
}

START_TEST(test_closing_waits_for_peers_that_use_our_memory)
{
	start(2, close_while_used);
	end(0, 0);
	end(1, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("processes");
	TCase *all = tcase_create("processes");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 100);
	tcase_add_test(all, test_four_processes_gather);
	tcase_add_test(all, test_death_ends_all_waits_of_the_others);
	tcase_add_test(all, test_death_ends_each_kind_of_wait);
	tcase_add_test(all, test_a_stopped_rank_is_named_when_the_deadline_passes);
	tcase_add_test(all, test_a_buffer_lives_while_a_peer_uses_it);
	tcase_add_test(all, test_closing_waits_for_peers_that_use_our_memory);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
