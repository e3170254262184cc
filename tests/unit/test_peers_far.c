/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Processes of a group as threads ask and tell them: counters across nodes, what is told upwards
 * and in which order, locks of the layer above, losses at any time. A post between nodes, real
 * sockets within one. Schedules are drawn, see the seed. */

#include <sys/resource.h>

#include "base/clock.h"
#include "base/word.h"
#include "peers_fixture.h"

/* Offices with threads and without, and what is between. */
static const struct world_config pairs[] = {
	{ .n = 2, .node_of = { 0, 1 }, .couriers = 3, .fullness = 4 },
	{ .n = 2, .node_of = { 0, 1 }, .couriers = 0, .fullness = 4 },
	{ .n = 2, .node_of = { 0, 1 }, .couriers = 1 },
};
#define N_PAIRS 3

static uint64_t value_of(uint32_t process, uint32_t index)
{
	/* acquire: pairs with the release of who raised it */
	return atomic_load_explicit(&world.processes[process].words[index], memory_order_acquire);
}

/* Process 1 finds the counters of process 0, and watches them with its own words. */
static uint32_t share_counters(uint64_t *ret_use)
{
	uint32_t id = export_words(0, "signal");

	ck_assert_int_eq(find(1, 0, "signal", ret_use), 0);
	ck_assert_int_eq(cei_peers_watch(peers_of(1), 0, *ret_use, world.processes[1].words,
					 WORDS), 0);
	return id;
}

static void end_use(uint64_t use)
{
	cei_peers_forget(peers_of(1), 0, use);
	cei_peers_drop(peers_of(1), 0, use);
}

static void end_counters(uint32_t id, uint64_t use)
{
	end_use(use);
	withdraw(0, id);
}

/* --- counters ------------------------------------------------------------------------------- */

START_TEST(test_counters_are_raised_and_told)
{
	uint64_t use, value;
	uint32_t id;

	world_open(&pairs[_i]);
	id = share_counters(&use);
	for (value = 1; value <= testing_share(50); value++) {
		ck_assert_int_eq(cei_peers_raise(peers_of(1), 0, use, 1, value), 0);
		cei_peers_ask(peers_of(1), 0, use, 2, value);
		(void)cei_word_raise(&world.processes[0].words[2], value);
		await_value(&world.processes[0].words[1], value);
		await_value(&world.processes[1].words[2], value);
	}
	ck_assert_uint_eq(value_of(1, 1), 0);           /* nobody has asked for it */
	end_counters(id, use);
}
END_TEST

static _Atomic uint64_t raised_use;

static void *raise_and_ask(void *arg)
{
	uint32_t index = (uint32_t)(uintptr_t)arg, i;
	/* seq_cst: was set before this thread began */
	uint64_t use = atomic_load(&raised_use);

	for (i = 1; i <= testing_share(300); i++) {
		ck_assert_int_eq(cei_peers_raise(peers_of(1), 0, use, index, i), 0);
		if (draw(4))
			continue;
		cei_peers_ask(peers_of(1), 0, use, index, i);
		await_value(&world.processes[1].words[index], i);
	}
	return NULL;
}

/* What was raised comes before the drop. */
START_TEST(test_threads_raise_and_ask_at_once)
{
	uint32_t i, id;
	uint64_t use;

	world_open(&pairs[_i]);
	id = share_counters(&use);
	atomic_store(&raised_use, use);
	run_all(WORDS, raise_and_ask);
	end_counters(id, use);
	for (i = 0; i < WORDS; i++)
		ck_assert_uint_eq(value_of(0, i), testing_share(300));
}
END_TEST

static int is_asleep(uint32_t process)
{
	uint32_t before = post_n_turns(&world.post, process);

	rest(100 * TESTING_MS);
	return post_n_turns(&world.post, process) - before < 5;
}

/* How often threads have waited. */
static uint64_t n_waits(void)
{
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
	return (uint64_t)usage.ru_nvcsw;
}

/* Most rounds of its thread come to sleep at last. A back-off yields before, for long where a sleep
 * takes long. */
static void await_naps(uint32_t process)
{
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE), waits;
	uint32_t before;

	do {
		before = post_n_turns(&world.post, process);
		waits = n_waits();
		while (post_n_turns(&world.post, process) - before < 1000) {
			ck_assert_uint_lt(cei_now_ns(), deadline_ns);
			rest(TESTING_MS);
		}
	} while (n_waits() - waits < 600);
}

START_TEST(test_a_thread_that_looks_at_counters_does_not_spin)
{
	uint64_t use;
	uint32_t id;

	world_open(&pairs[0]);
	id = share_counters(&use);
	while (!is_asleep(0))
		;
	cei_peers_ask(peers_of(1), 0, use, 0, 1);
	await_naps(0);
	(void)cei_word_raise(&world.processes[0].words[0], 1);
	await_value(&world.processes[1].words[0], 1);
	while (!is_asleep(0))
		;
	end_counters(id, use);
}
END_TEST

START_TEST(test_a_thread_does_not_spin_for_a_carrier_that_is_to_be_called_again)
{
	struct world_config config = pairs[_i];
	uint64_t use;

	config.busy = 1;
	world_open(&config);
	await_naps(0);
	ck_assert_int_eq(find(1, 0, "thing", &use), CEOV_NONE);
}
END_TEST

/* --- renewals and aborts ---------------------------------------------------------------------- */

static uint32_t n_said(uint32_t from, uint32_t to)
{
	uint32_t type, n = 0;

	for (type = 0; type < POST_TYPES; type++)
		n += post_n_sent(&world.post, from, to, type);
	return n;
}

/* Zeroes the image, slowly; nothing is sent meanwhile, for it would be said with the new one. */
static void zero_image(struct process *process, const struct news *news)
{
	uint32_t n = n_said(1, 0), i;

	if (news->kind != RENEWED)
		return;
	rest(draw(2000) * 1000);
	for (i = 0; i < WORDS; i++)
		/* release: pairs with value_of() */
		atomic_store_explicit(&process->words[i], 0, memory_order_release);
	ck_assert_uint_eq(n_said(1, 0), n);
}

static _Atomic int must_end;

/* Seeks what it does not find, and raises, and asks. */
static void *disturb(void *arg)
{
	uint64_t use = atomic_load(&raised_use), other;
	uint32_t i;

	(void)arg;
	for (i = 1; !atomic_load(&must_end); i++) {
		ck_assert_int_eq(find(1, 0, "thing", &other), CEOV_NONE);
		ck_assert_int_eq(cei_peers_raise(peers_of(1), 0, use, 3, i), 0);
		cei_peers_ask(peers_of(1), 0, use, 3, 1);
	}
	return NULL;
}

START_TEST(test_a_renewal_is_told_before_anything_else_is_said)
{
	pthread_t thread;
	uint64_t use;
	uint32_t id, i, n = testing_share(30);

	world_open(&pairs[_i]);
	id = share_counters(&use);
	world.processes[1].hook = zero_image;
	atomic_store(&raised_use, use);
	atomic_store(&must_end, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, disturb, NULL), 0);
	for (i = 1; i <= n; i++) {
		cei_peers_ask(peers_of(1), 0, use, 0, i);
		(void)cei_word_raise(&world.processes[0].words[0], i);
		await_value(&world.processes[1].words[0], i);
		ck_assert_int_eq(cei_peers_renew(peers_of(0), id,
						 cei_deadline(TESTING_PATIENCE)), 0);
		ck_assert_uint_eq(n_news_of(1), i);     /* it is over */
		ck_assert_uint_eq(value_of(1, 0), 0);
		ck_assert(has_news(1, RENEWED, 0));
	}
	atomic_store(&must_end, 1);
	pthread_join(thread, NULL);
	end_counters(id, use);
}
END_TEST

static struct cei_group_abort abort_of(uint32_t id, uint32_t blame)
{
	struct cei_group_abort abort = { .error = CEOV_ERR_TIMEOUT, .blame = blame, .n = 1 };

	abort.signals[0].id = id;
	return abort;
}

/* The renewal behind it does not overtake it; and then it concerns nobody any more. */
START_TEST(test_aborts_and_renewals_are_told_in_order)
{
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
	struct process *user;
	struct cei_group_abort abort;
	uint32_t id, i, n = testing_share(20);
	uint64_t use;

	world_open(&pairs[_i]);
	user = &world.processes[1];
	id = share_counters(&use);
	for (i = 0; i < n; i++) {
		abort = abort_of(id, i);
		cei_peers_abort(peers_of(0), &abort);
		await_news(1, ABORTED, i);
		ck_assert_uint_eq(cei_peers_still_aborted(peers_of(1), &user->news[2 * i].abort,
							  signals), 1);
		ck_assert_uint_eq(signals[0].id, id);
		ck_assert_int_eq(cei_peers_renew(peers_of(0), id,
						 cei_deadline(TESTING_PATIENCE)), 0);
		ck_assert_uint_eq(n_news_of(1), 2 * i + 2);
		ck_assert_int_eq(user->news[2 * i + 1].kind, RENEWED);
		ck_assert_uint_eq(user->news[2 * i + 1].use, use);
		ck_assert_uint_eq(cei_peers_still_aborted(peers_of(1), &user->news[2 * i].abort,
							  signals), 0);
	}
	end_counters(id, use);
}
END_TEST

START_TEST(test_a_renewal_ends_when_its_user_stands_still)
{
	uint64_t use;
	uint32_t id;

	world_open(&pairs[_i]);
	id = share_counters(&use);
	post_hold(&world.post, 1, 1);
	ck_assert_int_eq(cei_peers_renew(peers_of(0), id, cei_deadline(30 * TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	process_cut(1);
	await_news(0, LOST, 1);
	ck_assert_int_eq(cei_peers_renew(peers_of(0), id, cei_deadline(TESTING_PATIENCE)), 0);
	end_counters(id, use);
}
END_TEST

/* --- locks of the layer above ----------------------------------------------------------------- */

/* All calls that have no deadline. */
static void call_all(uint32_t process, uint64_t use)
{
	const struct cei_group_export export = { .rank = process, .name = "own" };
	struct cei_group_signal signals[CEI_GROUP_SIGNALS_MAX];
	struct cei_group_abort abort = abort_of(1, CEOV_NOBODY);
	uint32_t id;

	ck_assert_int_eq(cei_peers_export(peers_of(process), &export, &id), 0);
	cei_peers_show(peers_of(process), id);
	cei_peers_ask(peers_of(process), 0, use, 0, 1);
	(void)cei_peers_raise(peers_of(process), 0, use, 0, 1);
	cei_peers_abort(peers_of(process), &abort);
	(void)cei_peers_still_aborted(peers_of(process), &abort, signals);
	cei_peers_await_users(peers_of(process), 1);
	cei_peers_await_users(peers_of(process), -1);
	cei_peers_drop(peers_of(process), 0, 1000);
	ck_assert_int_eq(cei_peers_withdraw(peers_of(process), id, 0), 0);
	cei_peers_wake(peers_of(process));
}

/* A handler waits for the lock that a thread holds while it calls. */
START_TEST(test_calls_do_not_wait_for_what_is_being_told)
{
	const struct world_config config = { .n = 4, .node_of = { 0, 1, 1, 2 },
					     .couriers = (uint32_t)_i };
	struct process *process;
	struct cei_group_found found;
	struct cei_lookup lookup = { 0, "signal", 0 };
	uint64_t use, other;

	world_open(&config);
	process = &world.processes[1];
	(void)share_counters(&use);
	ck_assert_int_eq(find(1, 3, "thing", &other), CEOV_NONE);
	pthread_mutex_lock(&process->upper);
	process_close(3);
	while (!atomic_load(&process->n_in_event))
		rest(TESTING_MS / 10);
	call_all(1, use);
	lookup.deadline_ns = cei_deadline(20 * TESTING_MS);
	ck_assert_int_eq(find_within(1, &lookup, &found, &other), CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(n_news_of(1), 0);
	pthread_mutex_unlock(&process->upper);
	await_news(1, DEPARTED, 3);
	ck_assert_int_eq(find(1, 0, "signal", &other), 0);
	end_use(use);
}
END_TEST

/* Time tells a caller that a process is lost, and the carrier is told so; but not the layer
 * above, whose lock it may hold. */
START_TEST(test_calls_without_a_deadline_tell_nothing_upwards)
{
	const struct world_config config = { .n = 2, .node_of = { 0, 1 }, .couriers = 3,
					     .turned = 2, .timeout_ns = 300 * TESTING_MS,
					     .gives_up_slowly = 1 };
	struct process *process;
	uint64_t use;
	uint32_t i;

	world_open(&config);
	process = &world.processes[1];
	(void)share_counters(&use);
	cei_peers_ask(peers_of(1), 0, use, 0, 1);
	post_hold(&world.post, 0, 1);
	pthread_mutex_lock(&process->upper);
	for (i = 2; !post_is_quiet(&world.post, 1, 0); i++) {
		cei_peers_ask(peers_of(1), 0, use, 0, i);
		rest(TESTING_MS);
	}
	ck_assert_uint_eq(n_news_of(1), 0);
	call_all(1, use);
	ck_assert_uint_eq(n_news_of(1), 0);
	pthread_mutex_unlock(&process->upper);
	(void)cei_peers_turn(peers_of(1));
	ck_assert(has_news(1, LOST, 0));
	post_hold(&world.post, 0, 0);
	end_use(use);
}
END_TEST

static void *hold_and_call(void *arg)
{
	struct process *process = &world.processes[1];
	uint64_t use = atomic_load(&raised_use);

	(void)arg;
	while (!atomic_load(&must_end)) {
		pthread_mutex_lock(&process->upper);
		call_all(1, use);
		pthread_mutex_unlock(&process->upper);
		rest(draw(2000) * 1000);
	}
	return NULL;
}

/* Renewals, aborts and losses come while a thread calls with the lock that their handlers take. */
START_TEST(test_calls_and_events_share_a_lock)
{
	const struct world_config config = { .n = 6, .node_of = { 0, 1, 1, 2, 3, 3 },
					     .couriers = _i ? 63 : 0, .fullness = 4 };
	struct cei_group_abort abort;
	pthread_t thread;
	uint64_t use;
	uint32_t id, i;

	world_open(&config);
	id = share_counters(&use);
	atomic_store(&raised_use, use);
	atomic_store(&must_end, 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_and_call, NULL), 0);
	for (i = 0; i < 16; i++) {
		abort = abort_of(id, i);
		cei_peers_abort(peers_of(0), &abort);
		if (i == 5)
			process_cut(2);
		else if (i == 10)
			process_close(5);
		ck_assert_int_eq(cei_peers_renew(peers_of(0), id,
						 cei_deadline(TESTING_PATIENCE)), 0);
	}
	await_news(1, LOST, 2);
	atomic_store(&must_end, 1);
	pthread_join(thread, NULL);
	end_counters(id, use);
}
END_TEST

/* --- losses at any time ----------------------------------------------------------------------- */

static uint32_t victim;

static void check_result(uint32_t process, uint32_t rank, int r)
{
	if (process == victim || rank % world.n == victim)
		ck_assert(!r || r == CEOV_NONE || r == CEOV_ERR_PEER_LOST);
	else
		ck_assert(!r || r == CEOV_NONE);
}

static void *live(void *arg)
{
	uint32_t process = (uint32_t)(uintptr_t)arg, rank;
	uint64_t use;
	int r;

	while (!atomic_load(&must_end)) {
		rank = draw(world.n + 1);
		if (draw(3) == 0) {
			r = cei_peers_barrier(peers_of(process),
					      cei_deadline(draw(3) * TESTING_MS));
			ck_assert(!r || r == CEOV_ERR_TIMEOUT || r == CEOV_ERR_PEER_LOST);
		} else if (rank % world.n != process) {
			r = find(process, rank, "thing", &use);
			check_result(process, rank, r);
			if (!r)
				cei_peers_drop(peers_of(process), rank, use);
		}
	}
	return NULL;
}

static void *lose_one(void *arg)
{
	if ((uintptr_t)arg < world.n)
		return live(arg);
	rest(draw(20000) * 1000);
	process_cut(victim);
	rest(20 * TESTING_MS);
	atomic_store(&must_end, 1);
	return NULL;
}

START_TEST(test_others_go_on_when_one_is_lost_at_any_time)
{
	struct world_config config = { .n = 6, .node_of = { 0, 0, 1, 1, 2, 2 },
				       .fullness = 5 };
	uint32_t i;

	config.couriers = _i & 1 ? 63 : 21;
	world_open(&config);
	victim = draw(world.n);
	atomic_store(&must_end, 0);
	for (i = 0; i < world.n; i++)
		(void)export_words(i, "thing");
	run_all(world.n + 1, lose_one);
	for (i = 0; i < world.n; i++) {
		if (i == victim)
			continue;
		await_news(i, LOST, victim);
		if (!victim)
			await_news(i, LOST, world.n);
		ck_assert_uint_eq(n_news_of(i), victim ? 1 : 2);
	}
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_loop_test(tcase, test_counters_are_raised_and_told, 0, N_PAIRS);
	tcase_add_loop_test(tcase, test_threads_raise_and_ask_at_once, 0, N_PAIRS);
	tcase_add_test(tcase, test_a_thread_that_looks_at_counters_does_not_spin);
	tcase_add_loop_test(tcase,
			    test_a_thread_does_not_spin_for_a_carrier_that_is_to_be_called_again,
			    0, N_PAIRS);
	tcase_add_loop_test(tcase, test_a_renewal_is_told_before_anything_else_is_said, 0, N_PAIRS);
	tcase_add_loop_test(tcase, test_aborts_and_renewals_are_told_in_order, 0, N_PAIRS);
	tcase_add_loop_test(tcase, test_a_renewal_ends_when_its_user_stands_still, 0, N_PAIRS);
	tcase_add_loop_test(tcase, test_calls_do_not_wait_for_what_is_being_told, 0, 2);
	tcase_add_test(tcase, test_calls_without_a_deadline_tell_nothing_upwards);
	tcase_add_loop_test(tcase, test_calls_and_events_share_a_lock, 0, 2);
	tcase_add_loop_test(tcase, test_others_go_on_when_one_is_lost_at_any_time, 0, 10);
}

int main(void)
{
	return run_suite("peers_far", add_tests);
}
