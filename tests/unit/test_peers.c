/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Processes of a group as threads ask and tell them: exports, finds, barriers, farewells. Real
 * sockets within a node, a post between nodes. Schedules are drawn, see the seed. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "peers_fixture.h"

/* One node; three; two. With and without threads of carriers, and with sends that are refused. */
static const struct world_config shapes[] = {
	{ .n = 3, .node_of = { 0, 0, 0 } },
	{ .n = 3, .node_of = { 0, 1, 2 }, .couriers = 7, .fullness = 3 },
	{ .n = 3, .node_of = { 0, 1, 2 }, .fullness = 3 },
	{ .n = 4, .node_of = { 0, 0, 1, 1 }, .couriers = 5, .fullness = 5 },
};
#define N_SHAPES 4

/* --- exports and finds -------------------------------------------------------------------- */

START_TEST(test_a_find_brings_what_is_exported)
{
	uint64_t use, again;
	uint32_t id;

	world_open(&shapes[_i]);
	ck_assert_int_eq(find(1, 0, "thing", &use), CEOV_NONE);
	id = world.node_of[1] == world.node_of[0] ? export_file(0, "thing") :
		export_words(0, "thing");
	ck_assert_int_eq(find(1, 0, "thing", &use), 0);
	ck_assert_int_eq(find(2, 0, "other", &again), CEOV_NONE);
	ck_assert_int_eq(cei_peers_withdraw(peers_of(0), id, 0), CEOV_PENDING);
	ck_assert_int_eq(find(1, 0, "thing", &again), CEOV_NONE);
	cei_peers_drop(peers_of(1), 0, use);
	withdraw(0, id);
}
END_TEST

START_TEST(test_what_is_hidden_is_found_when_it_is_shown)
{
	struct cei_group_export export = { .rank = 0, .name = "thing", .is_hidden = 1 };
	struct cei_group_found found;
	const struct cei_lookup lookup = { 0, "thing", cei_deadline(TESTING_PATIENCE) };
	uint64_t use;
	uint32_t id;

	world_open(&shapes[_i]);
	ck_assert_int_eq(cei_peers_export(peers_of(0), &export, &id), 0);
	ck_assert_int_eq(cei_peers_export(peers_of(0), &export, &id), CEOV_ERR_STATE);
	ck_assert_int_eq(cei_peers_find(peers_of(1), &lookup, &found, &use), CEOV_NONE);
	cei_peers_show(peers_of(0), id);
	ck_assert_int_eq(cei_peers_find(peers_of(1), &lookup, &found, &use), 0);
	ck_assert_uint_eq(found.id, id);
	ck_assert_int_eq(cei_peers_withdraw(peers_of(0), id, 1), 0);
}
END_TEST

#define CALLERS 3u                      /* threads of each process */
#define HELD    8u

struct held {
	uint32_t rank;
	uint64_t use;
};

static void find_any(uint32_t process, struct held *held)
{
	uint32_t rank = draw(world.n);
	char name[64];
	int r;

	if (held->use || rank == process)
		return;
	snprintf(name, sizeof(name), "of %u.%u", rank, draw(CALLERS));
	held->rank = rank;
	r = find(process, rank, name, &held->use);
	ck_assert(!r || r == CEOV_NONE);
	if (r)
		held->use = 0;
}

static void drop(uint32_t process, struct held *held)
{
	if (held->use)
		cei_peers_drop(peers_of(process), held->rank, held->use);
	held->use = 0;
}

static void *export_and_find(void *arg)
{
	uint32_t caller = (uint32_t)(uintptr_t)arg, process = caller / CALLERS, id = 0, i;
	struct held held[HELD] = { { 0, 0 } };
	char name[64];

	snprintf(name, sizeof(name), "of %u.%u", process, caller % CALLERS);
	for (i = 0; i < testing_share(300); i++) {
		if (draw(4) == 0) {
			if (id)
				ck_assert_int_ge(cei_peers_withdraw(peers_of(process), id,
								    draw(2)), 0);
			id = id ? 0 : export_words(process, name);
		} else if (draw(3)) {
			find_any(process, &held[draw(HELD)]);
		} else {
			drop(process, &held[draw(HELD)]);
		}
	}
	for (i = 0; i < HELD; i++)
		drop(process, &held[i]);
	if (id)
		withdraw(process, id);
	return NULL;
}

START_TEST(test_threads_export_and_find_at_once)
{
	world_open(&shapes[_i]);
	run_all(world.n * CALLERS, export_and_find);
}
END_TEST

static void *find_files(void *arg)
{
	uint32_t caller = (uint32_t)(uintptr_t)arg, process = caller / CALLERS, i;
	uint64_t use;

	for (i = 0; i < testing_share(200); i++) {
		ck_assert_int_eq(find(process, (process + 1) % world.n, "file", &use), 0);
		cei_peers_drop(peers_of(process), (process + 1) % world.n, use);
	}
	return NULL;
}

START_TEST(test_descriptors_come_to_who_asked)
{
	uint32_t ids[WORLD_MAX], n_fds, i;

	world_open(&shapes[0]);
	n_fds = n_open_fds();
	for (i = 0; i < world.n; i++)
		ids[i] = export_file(i, "file");
	ck_assert_uint_eq(n_open_fds(), n_fds + world.n);
	run_all(world.n * CALLERS, find_files);
	for (i = 0; i < world.n; i++)
		withdraw(i, ids[i]);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

/* The end of the test counts them. */
START_TEST(test_descriptors_of_exports_that_stay_are_given_back)
{
	uint64_t use;

	world_open(&shapes[0]);
	(void)export_file(0, "file");
	(void)export_file(1, "file");
	ck_assert_int_eq(find(1, 0, "file", &use), 0);
}
END_TEST

/* Before and after a farewell. The message, of lost processes, names none. */
START_TEST(test_descriptors_that_nobody_takes_are_closed)
{
	const struct cei_group_message message = { .type = CEI_GROUP_GONE };
	struct cei_group_fds fds;
	int i;

	world_open(&shapes[0]);
	for (i = 0; i < 2; i++) {
		fds = (struct cei_group_fds){ 1, { dup(STDERR_FILENO) } };
		ck_assert_int_ge(fds.fds[0], 0);
		cei_peers_received(peers_of(0), 1, &message, &fds);
		ck_assert_int_eq(fcntl(fds.fds[0], F_GETFD), -1);
		cei_peers_leave(peers_of(0));
	}
}
END_TEST

/* --- barriers ----------------------------------------------------------------------------- */

static _Atomic uint64_t n_come[WORLD_MAX];

static void *pass_barriers(void *arg)
{
	uint32_t process = (uint32_t)(uintptr_t)arg, i, other;
	uint64_t deadline_ns;
	int r;

	for (i = 1; i <= testing_share(60); i++) {
		rest(draw(3) ? 0 : draw(2000) * 1000);
		/* seq_cst: to be seen by whoever has passed */
		atomic_store(&n_come[process], i);
		do {
			deadline_ns = draw(3) ? cei_deadline(draw(2000) * 1000) :
				cei_deadline(TESTING_PATIENCE);
			r = cei_peers_barrier(peers_of(process), deadline_ns);
		} while (r == CEOV_ERR_TIMEOUT);
		ck_assert_int_eq(r, 0);
		for (other = 0; other < world.n; other++)
			ck_assert_uint_ge(atomic_load(&n_come[other]), i);
	}
	return NULL;
}

START_TEST(test_barriers_go_on_after_a_deadline)
{
	world_open(&shapes[_i]);
	run_all(world.n, pass_barriers);
}
END_TEST

static struct ceov_failure failure_of(uint32_t process)
{
	struct ceov_failure failure;

	ck_assert_int_eq(cei_report_take(&world.processes[process].report, &failure), 0);
	return failure;
}

START_TEST(test_a_barrier_names_who_has_not_come)
{
	world_open(&shapes[0]);
	ck_assert_int_eq(cei_peers_barrier(peers_of(0), cei_deadline(TESTING_MS)),
			 CEOV_ERR_TIMEOUT);
	ck_assert_uint_ne(failure_of(0).rank, 0);
}
END_TEST

/* --- progress by the caller ----------------------------------------------------------------- */

static uint32_t n_threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	uint32_t n = 0;

	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

START_TEST(test_callers_make_progress)
{
	struct world_config config = shapes[_i];
	uint32_t n = n_threads(), i;
	struct turner turner;
	uint64_t use;

	config.turned = 255;
	config.couriers = 0;
	world_open(&config);
	ck_assert_uint_eq(n_threads(), n);
	turner_start(&turner, 0);
	(void)export_words(0, "thing");
	ck_assert_int_eq(find(1, 0, "thing", &use), 0);
	turner_stop(&turner);
	run_all(world.n, pass_barriers);
	for (i = 0; i < 100 && cei_peers_turn(peers_of(0)); i++)
		;
	ck_assert_uint_lt(i, 100);
}
END_TEST

/* How often the calling thread has slept. */
static long n_sleeps(void)
{
	struct rusage usage;

	ck_assert_int_eq(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_nvcsw;
}

/* The sleeps of one wait are few where each takes long. */
START_TEST(test_callers_that_make_progress_do_not_spin)
{
	const struct world_config config = { .n = 2, .node_of = { 0, (uint32_t)_i }, .turned = 3 };
	uint64_t deadline_ns = cei_deadline(TESTING_PATIENCE);
	long before;

	world_open(&config);
	before = n_sleeps();
	do {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		ck_assert_int_eq(cei_peers_barrier(peers_of(0), cei_deadline(100 * TESTING_MS)),
				 CEOV_ERR_TIMEOUT);
	} while (n_sleeps() - before < 20);
}
END_TEST

START_TEST(test_threads_without_one_export_and_find_at_once)
{
	struct world_config config = shapes[_i];
	struct turner turners[WORLD_MAX];
	uint32_t i;

	config.turned = 255;
	world_open(&config);
	for (i = 0; i < world.n; i++)
		turner_start(&turners[i], i);
	run_all(world.n * CALLERS, export_and_find);
	for (i = 0; i < world.n; i++)
		turner_stop(&turners[i]);
}
END_TEST

/* --- who stands still, and who leaves -------------------------------------------------------- */

START_TEST(test_who_stands_still_on_the_node_is_lost_when_it_ends)
{
	const struct world_config config = { .n = 3, .node_of = { 0, 0, 0 }, .turned = 2 };
	struct cei_lookup lookup = { 1, "thing", 0 };
	struct cei_group_found found;
	uint64_t use, since_ns;

	world_open(&config);
	since_ns = cei_now_ns();
	lookup.deadline_ns = since_ns + 50 * TESTING_MS;
	ck_assert_int_eq(find_within(0, &lookup, &found, &use), CEOV_ERR_TIMEOUT);
	ck_assert_uint_ge(cei_now_ns(), lookup.deadline_ns);
	ck_assert_uint_lt(cei_now_ns(), since_ns + TESTING_PATIENCE);
	ck_assert_uint_eq(failure_of(0).rank, 1);
	process_cut(1);
	await_news(0, LOST, 1);
	await_news(2, LOST, 1);
	ck_assert_int_eq(find(0, 1, "thing", &use), CEOV_ERR_PEER_LOST);
	ck_assert_int_eq(cei_peers_barrier(peers_of(0), CEI_FOREVER), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(failure_of(0).rank, 1);
}
END_TEST

START_TEST(test_who_stands_still_on_another_node_is_lost)
{
	const struct world_config config = { .n = 3, .node_of = { 0, 1, 2 },
					     .couriers = (uint32_t)_i,
					     .timeout_ns = 300 * TESTING_MS };
	const struct cei_lookup lookup = { 1, "thing", cei_deadline(20 * TESTING_MS) };
	struct cei_group_found found;
	uint64_t use;

	world_open(&config);
	post_hold(&world.post, 1, 1);
	ck_assert_int_eq(find_within(0, &lookup, &found, &use), CEOV_ERR_TIMEOUT);
	ck_assert_int_eq(find(0, 1, "thing", &use), CEOV_ERR_PEER_LOST);
	await_news(0, LOST, 1);
	await_news(2, LOST, 1);
	ck_assert_uint_eq(n_news_of(0), 1);
	post_hold(&world.post, 1, 0);
	await_news(1, LOST, 0);
}
END_TEST

static void *wait_in_barrier(void *arg)
{
	uint32_t process = 1 + (uint32_t)(uintptr_t)arg;

	if (process == world.n) {
		rest(draw(5000) * 1000);
		process_close(0);
		return NULL;
	}
	ck_assert_int_eq(cei_peers_barrier(peers_of(process), cei_deadline(TESTING_PATIENCE)),
			 CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(failure_of(process).rank, 0);
	return NULL;
}

START_TEST(test_who_leaves_ends_the_barriers_of_others)
{
	uint64_t use;
	uint32_t i;

	world_open(&shapes[_i]);
	for (i = 1; i < world.n; i++)           /* farewells go to whom one has talked to */
		ck_assert_int_eq(find(i, 0, "thing", &use), CEOV_NONE);
	run_all(world.n, wait_in_barrier);
	for (i = 1; i < world.n; i++) {
		await_news(i, DEPARTED, 0);
		await_news(i, DEPARTED, world.n);
		ck_assert_uint_eq(n_news_of(i), 2);
	}
}
END_TEST

static _Atomic int leaves, was_told;

/* Until the process leaves, and longer. */
static void rest_long(struct process *process, const struct news *news)
{
	(void)process;
	(void)news;
	while (!atomic_load(&leaves))
		rest(TESTING_MS / 10);
	rest(20 * TESTING_MS);
	atomic_store(&was_told, 1);
}

START_TEST(test_leaving_waits_for_what_is_being_told)
{
	uint64_t use;
	uint32_t n;

	world_open(&shapes[_i]);
	ck_assert_int_eq(find(0, 1, "thing", &use), CEOV_NONE);
	world.processes[0].hook = rest_long;
	process_close(1);
	while (!atomic_load(&world.processes[0].n_in_event))
		rest(TESTING_MS / 10);
	atomic_store(&leaves, 1);
	cei_peers_leave(peers_of(0));
	ck_assert_int_eq(atomic_load(&was_told), 1);
	n = n_news_of(0);
	process_close(2);
	rest(TESTING_MS);
	ck_assert_uint_eq(n_news_of(0), n);
}
END_TEST

static void *find_or_leave(void *arg)
{
	uint64_t use, since_ns = cei_now_ns();

	if (!arg) {
		ck_assert_int_eq(find(0, 1, "thing", &use), CEOV_ERR_STATE);
		ck_assert_uint_lt(cei_now_ns(), since_ns + CEI_GROUP_FIND_NS / 2);
		return NULL;
	}
	rest(draw(1000) * 1000);
	cei_peers_leave(peers_of(0));
	return NULL;
}

/* Nobody should find meanwhile. The process that is asked does not answer. */
START_TEST(test_a_find_ends_at_once_when_its_process_leaves)
{
	const struct world_config config = { .n = 2, .node_of = { 0, 0 }, .turned = 2 };

	world_open(&config);
	run_all(2, find_or_leave);
}
END_TEST

/* What is still owed to a third process holds no call up. */
START_TEST(test_callers_wait_for_nobody_else)
{
	const struct world_config config = { .n = 3, .node_of = { 0, 1, 2 }, .turned = 1,
					     .couriers = 6 };
	const struct cei_lookup late = { 2, "thing", cei_deadline(20 * TESTING_MS) };
	struct cei_lookup lookup = { 1, "thing", 0 };
	struct cei_group_found found;
	uint64_t use, since_ns;

	world_open(&config);
	post_hold(&world.post, 2, 1);
	ck_assert_int_eq(find_within(0, &late, &found, &use), CEOV_ERR_TIMEOUT);
	since_ns = cei_now_ns();
	lookup.deadline_ns = cei_deadline(TESTING_PATIENCE / 2);
	ck_assert_int_eq(find_within(0, &lookup, &found, &use), CEOV_NONE);
	ck_assert_uint_lt(cei_now_ns(), since_ns + TESTING_PATIENCE / 4);
	post_hold(&world.post, 2, 0);
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_callers_wait_for_nobody_else);
	tcase_add_loop_test(tcase, test_a_find_brings_what_is_exported, 0, N_SHAPES);
	tcase_add_loop_test(tcase, test_what_is_hidden_is_found_when_it_is_shown, 0, N_SHAPES);
	tcase_add_loop_test(tcase, test_threads_export_and_find_at_once, 0, N_SHAPES);
	tcase_add_test(tcase, test_descriptors_come_to_who_asked);
	tcase_add_test(tcase, test_descriptors_of_exports_that_stay_are_given_back);
	tcase_add_test(tcase, test_descriptors_that_nobody_takes_are_closed);
	tcase_add_loop_test(tcase, test_barriers_go_on_after_a_deadline, 0, N_SHAPES);
	tcase_add_test(tcase, test_a_barrier_names_who_has_not_come);
	tcase_add_loop_test(tcase, test_callers_make_progress, 0, N_SHAPES);
	tcase_add_loop_test(tcase, test_callers_that_make_progress_do_not_spin, 0, 2);
	tcase_add_loop_test(tcase, test_threads_without_one_export_and_find_at_once, 0, N_SHAPES);
	tcase_add_test(tcase, test_who_stands_still_on_the_node_is_lost_when_it_ends);
	tcase_add_loop_test(tcase, test_who_stands_still_on_another_node_is_lost, 0, 2);
	tcase_add_loop_test(tcase, test_who_leaves_ends_the_barriers_of_others, 0, N_SHAPES);
	tcase_add_loop_test(tcase, test_leaving_waits_for_what_is_being_told, 0, N_SHAPES);
	tcase_add_test(tcase, test_a_find_ends_at_once_when_its_process_leaves);
}

int main(void)
{
	return run_suite("peers", add_tests);
}
