/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests processes that are killed, that leave in order, or that leave while others wait for them;
 * and the barrier, which all ranks must reach. */

#include "bootstrap_fixture.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

/* Limit for noticing a death. Sanitizers take a multiple of all times, more so under load. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOSS_NS  (UINT64_C(1000) * NS_PER_MS)
#else
#define LOSS_NS  (UINT64_C(100) * NS_PER_MS)
#endif
#define BARRIERS 300

/* --- loss ---------------------------------------------------------------- */

static void wait_to_be_killed(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	step_done(0);
	for (;;)
		pause();
}

static void see_rank_2_lost(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	step_done(0);
	need(wait_gone(number, 2));
	need(!shared->seen[number][2].departed);
	need(party_barrier(&party, 20000) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 2 && says(&party, "rank 2"));
	step_done(1);
	need(step_reached(1, 2));
	need(!shared->seen[number][1 - number].gone_ns ||
	     shared->seen[number][1 - number].departed);
	need(shared->seen[number][2].n_gone == 1);
	party_close(&party);
}

static void assert_loss_is_seen(uint64_t killed_ns, uint32_t who, uint32_t whom)
{
	uint64_t gone_ns = wait_gone(who, whom);

	ck_assert_uint_gt(gone_ns, killed_ns);
	ck_assert_uint_lt(gone_ns - killed_ns, LOSS_NS);
}

START_TEST(test_killed_process_is_lost_at_once)
{
	uint64_t killed_ns;
	pid_t victim;

	start(see_rank_2_lost, 0);
	start(see_rank_2_lost, 1);
	victim = start(wait_to_be_killed, 2);
	ck_assert(step_reached(0, 3));
	killed_ns = kill_party(victim);
	assert_loss_is_seen(killed_ns, 0, 2);
	assert_loss_is_seen(killed_ns, 1, 2);
	assert_all_end_well();
}
END_TEST

static void leave_child_behind(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	if (!fork()) {
		step_done(2);
		step_reached(3, 1);
		_exit(0);
	}
	step_done(0);
	for (;;)
		pause();
}

/* A forked child of the dead process keeps its sockets open. */
START_TEST(test_killed_process_is_lost_though_its_child_lives)
{
	uint64_t killed_ns;
	pid_t victim;

	start(see_rank_2_lost, 0);
	start(see_rank_2_lost, 1);
	victim = start(leave_child_behind, 2);
	ck_assert(step_reached(0, 3) && step_reached(2, 1));
	killed_ns = kill_party(victim);
	assert_loss_is_seen(killed_ns, 0, 2);
	assert_loss_is_seen(killed_ns, 1, 2);
	assert_all_end_well();
	step_done(3);
}
END_TEST

static void lose_rank_0(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	step_done(0);
	need(wait_gone(number, 0));
	need(!shared->seen[number][0].departed);
	party_close(&party);
}

START_TEST(test_rank_0_is_a_peer_like_any_other)
{
	uint64_t killed_ns;
	pid_t victim = start(wait_to_be_killed, 0);

	start(lose_rank_0, 1);
	start(lose_rank_0, 2);
	ck_assert(step_reached(0, 3));
	killed_ns = kill_party(victim);
	assert_loss_is_seen(killed_ns, 1, 0);
	assert_loss_is_seen(killed_ns, 2, 0);
	assert_all_end_well();
}
END_TEST

static void see_departure(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	need(!party_barrier(&party, 20000));
	if (number == 2) {
		party_close(&party);
		return;
	}
	need(wait_gone(number, 2));
	need(shared->seen[number][2].departed);
	need(party_barrier(&party, 20000) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 2 && says(&party, "closed its context"));
	step_done(1);
	need(step_reached(1, 2));
	party_close(&party);
}

START_TEST(test_farewell_is_a_departure_and_no_loss)
{
	uint32_t rank;

	for (rank = 0; rank < 3; rank++)
		start(see_departure, rank);
	assert_all_end_well();
}
END_TEST

static void close_at_once(uint32_t number)
{
	struct party party;
	uint32_t rank;
	int i;

	for (i = 0; i < 40; i++) {
		party_open(&party, 3, number);
		need(!party_barrier(&party, 20000));
		party_close(&party);
		for (rank = 0; rank < 3; rank++)
			need(!shared->seen[number][rank].gone_ns ||
			     shared->seen[number][rank].departed);
	}
}

START_TEST(test_closing_at_the_same_time_is_no_loss)
{
	uint32_t rank;

	for (rank = 0; rank < 3; rank++)
		start(close_at_once, rank);
	assert_all_end_well();
}
END_TEST

static void meet_as_three(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static void join_and_hang(uint32_t number)
{
	struct party party;

	party_init(&party, 3);
	party_hold(&party, number);
	step_done(0);
	party_open_by(&party, 20000);
}

START_TEST(test_joiner_that_dies_early_frees_its_rank)
{
	pid_t victim;

	start(meet_as_three, 0);
	victim = start(join_and_hang, 1);
	ck_assert(step_reached(0, 1));
	pause_ms(100);
	kill_party(victim);
	start(meet_as_three, 1);
	start(meet_as_three, 2);
	assert_all_end_well();
}
END_TEST

static void lose_rank_0_while_joining(uint32_t number)
{
	struct party party;

	party_init(&party, 3);
	party_hold(&party, number);
	step_done(0);
	need(party_open_by(&party, 20000) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 0);
	cei_report_fini(&party.report);
}

START_TEST(test_rank_0_that_dies_early_ends_the_joiners)
{
	pid_t victim = start(meet_as_three, 0);
	uint64_t killed_ns;

	start(lose_rank_0_while_joining, 1);
	ck_assert(step_reached(0, 1));
	pause_ms(200);
	killed_ns = kill_party(victim);
	assert_all_end_well();
	ck_assert_uint_lt(cei_now_ns() - killed_ns, 2000 * NS_PER_MS);
}
END_TEST

static void burn_nothing(uint32_t number)
{
	struct rusage before, after;
	struct party party;
	uint64_t us;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	getrusage(RUSAGE_SELF, &before);
	pause_ms(500);
	getrusage(RUSAGE_SELF, &after);
	us = (uint64_t)(after.ru_utime.tv_sec - before.ru_utime.tv_sec +
			after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000 +
	     (uint64_t)(after.ru_utime.tv_usec - before.ru_utime.tv_usec) +
	     (uint64_t)(after.ru_stime.tv_usec - before.ru_stime.tv_usec);
	need(us < 10000);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

START_TEST(test_an_idle_bootstrap_uses_no_cpu)
{
	start(burn_nothing, 0);
	start(burn_nothing, 1);
	assert_all_end_well();
}
END_TEST

/* --- barrier ------------------------------------------------------------- */

static void run_rounds(uint32_t number)
{
	struct party party;
	uint64_t round;
	uint32_t rank;

	party_open(&party, 4, number);
	for (round = 1; round <= BARRIERS; round++) {
		/* relaxed: the barrier itself is what is tested */
		atomic_store_explicit(&shared->rounds[number], round,
				      memory_order_relaxed);
		need(!party_barrier(&party, 20000));
		for (rank = 0; rank < 4; rank++)
			need(atomic_load_explicit(&shared->rounds[rank],
						  memory_order_relaxed) >= round);
	}
	party_close(&party);
}

START_TEST(test_barrier_lets_nobody_through_early)
{
	uint32_t rank;

	for (rank = 0; rank < 4; rank++)
		start(run_rounds, rank);
	assert_all_end_well();
}
END_TEST

static void come_late(uint32_t number)
{
	struct party party;
	uint64_t begin_ns;

	party_open(&party, 2, number);
	if (number) {
		need(step_reached(0, 1));
	} else {
		begin_ns = cei_now_ns();
		need(party_barrier(&party, 50) == CEOV_ERR_TIMEOUT);
		need(cei_now_ns() - begin_ns >= 50 * NS_PER_MS);
		need(party.failure.rank == 1 && says(&party, "rank 1"));
		need(party_barrier(&party, 0) == CEOV_ERR_TIMEOUT);
		step_done(0);
	}
	need(!party_barrier(&party, 20000));    /* rank 0 is in the same round again */
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

START_TEST(test_barrier_names_who_is_missing_and_can_be_tried_again)
{
	start(come_late, 0);
	start(come_late, 1);
	assert_all_end_well();
}
END_TEST

static void wait_for_the_dead(uint32_t number)
{
	struct party party;

	party_open(&party, 3, number);
	step_done(0);
	need(party_barrier(&party, 20000) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 2);
	step_done(1);
	need(step_reached(1, 2));
	party_close(&party);
}

START_TEST(test_barrier_ends_when_one_dies)
{
	uint64_t killed_ns;
	pid_t victim;

	start(wait_for_the_dead, 0);
	start(wait_for_the_dead, 1);
	victim = start(wait_to_be_killed, 2);
	ck_assert(step_reached(0, 3));
	pause_ms(50);
	killed_ns = kill_party(victim);
	assert_all_end_well();
	ck_assert_uint_lt(cei_now_ns() - killed_ns, 2000 * NS_PER_MS);
}
END_TEST

/* --- the suite ----------------------------------------------------------- */

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_killed_process_is_lost_at_once);
	tcase_add_test(tcase, test_killed_process_is_lost_though_its_child_lives);
	tcase_add_test(tcase, test_rank_0_is_a_peer_like_any_other);
	tcase_add_test(tcase, test_farewell_is_a_departure_and_no_loss);
	tcase_add_test(tcase, test_closing_at_the_same_time_is_no_loss);
	tcase_add_test(tcase, test_joiner_that_dies_early_frees_its_rank);
	tcase_add_test(tcase, test_rank_0_that_dies_early_ends_the_joiners);
	tcase_add_test(tcase, test_an_idle_bootstrap_uses_no_cpu);
	tcase_add_test(tcase, test_barrier_lets_nobody_through_early);
	tcase_add_test(tcase, test_barrier_names_who_is_missing_and_can_be_tried_again);
	tcase_add_test(tcase, test_barrier_ends_when_one_dies);
}

int main(void)
{
	return run_suite("bootstrap_loss", add_tests);
}
