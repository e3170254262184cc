/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests exports between processes: how they are found, counted, dropped and withdrawn. */

#include "bootstrap_fixture.h"
#include "testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"

#define MANY_USES 3000
#define N_FINDERS 4
#define N_FINDS   200

/* --- exports -------------------------------------------------------------- */

static struct thing make_export(uint32_t rank, const char *name)
{
	struct thing export = { .rank = rank };

	snprintf(export.name, sizeof(export.name), "%s", name);
	export.n_bytes = 5;
	memcpy(export.bytes, "bytes", 5);
	return export;
}

static int file_with(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	need(fd >= 0);
	need(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static void close_fds(struct thing *export)
{
	uint32_t i;

	for (i = 0; i < export->n_fds; i++)
		close(export->fds[i]);
}

static void offer_to_rank_1(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct thing export = make_export(number, "thing");
	struct party party;
	uint64_t id = 0, other_id = 0;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));    /* rank 1 has not found it */
	need(!party_barrier(&party, 20000));
	export.n_fds = 2;
	export.fds[0] = file_with("one");
	export.fds[1] = file_with("two");
	need(!party_export(&party, &export, &id) && id);
	close_fds(&export);                     /* the export has its own duplicates */
	export.n_fds = 0;
	need(party_export(&party, &export, &other_id) == CEOV_ERR_STATE);
	need(!other_id);
	need(!party_barrier(&party, 20000));    /* rank 1 finds the export twice */
	need(!party_barrier(&party, 20000));
	need(party_withdraw(&party, id) == CEOV_PENDING);
	need(!party_export(&party, &export, &other_id));
	need(party_withdraw(&party, other_id) == 0);
	need(!party_barrier(&party, 20000));    /* rank 1 finds it no more, and drops one use */
	need(!party_barrier(&party, 20000));
	need(party_withdraw(&party, id) == CEOV_PENDING);
	need(!party_barrier(&party, 20000));    /* rank 1 drops the other use */
	need(!party_barrier(&party, 20000));
	need(party_withdraw(&party, id) == 0);
	need(party_withdraw(&party, id) == 0);
	need(party_withdraw(&party, 77) == CEOV_ERR_INVALID);
	party_close(&party);
	need(n_open_fds() == n_fds);
}

static void need_content(int fd, const char *text)
{
	char bytes[8] = "";

	need(pread(fd, bytes, sizeof(bytes) - 1, 0) == (ssize_t)strlen(text));
	need(!strcmp(bytes, text));
	need(fcntl(fd, F_GETFD) & FD_CLOEXEC);
}

static void find_at_rank_0(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct thing export;
	struct party party;
	uint64_t ids[2], none;
	int i;

	party_open(&party, 2, number);
	need(party_find(&party, 0, "thing", &export, &ids[0]) == CEOV_NONE);
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	for (i = 0; i < 2; i++) {
		need(!party_find(&party, 0, "thing", &export, &ids[i]));
		need(export.n_bytes == 5 && !memcmp(export.bytes, "bytes", 5));
		need(export.n_fds == 2);
		need_content(export.fds[0], "one");
		need_content(export.fds[1], "two");
		close_fds(&export);
	}
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	need(party_find(&party, 0, "thing", &export, &none) == CEOV_NONE);
	party_drop(&party, 0, ids[0]);
	party_drop(&party, 0, 9999);            /* a number that was not found here */
	party_drop(&party, 1, ids[1]);
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	party_drop(&party, 0, ids[1]);
	party_drop(&party, 0, ids[1]);          /* dropped once too often */
	need(!party_barrier(&party, 20000));
	party_close(&party);
	need(n_open_fds() == n_fds);
}

START_TEST(test_exports_are_found_counted_and_withdrawn)
{
	start(offer_to_rank_1, 0);
	start(find_at_rank_0, 1);
	assert_all_end_well();
}
END_TEST

static void misuse_exports(uint32_t number)
{
	struct thing export = make_export(number, "x");
	char name[NAME_BYTES + 1];
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	memset(name, 'n', sizeof(name));
	name[NAME_BYTES] = 0;
	need(party_find(&party, 1 - number, name, &export, &id) == CEOV_ERR_INVALID);
	need(party_find(&party, 1 - number, "", &export, &id) == CEOV_ERR_INVALID);
	need(party_find(&party, number, "x", &export, &id) == CEOV_ERR_INVALID);
	need(party_find(&party, 2, "x", &export, &id) == CEOV_ERR_INVALID);
	name[NAME_BYTES - 1] = 0;
	need(party_find(&party, 1 - number, name, &export, &id) == CEOV_NONE);
	export.rank = 1 - number;
	need(party_export(&party, &export, &id) == CEOV_ERR_INVALID);
	export = make_export(number, "");
	need(party_export(&party, &export, &id) == CEOV_ERR_INVALID);
	export = make_export(number, "x");
	export.n_bytes = THING_BYTES + 1;
	need(party_export(&party, &export, &id) == CEOV_ERR_INVALID);
	export.n_bytes = THING_BYTES;
	export.n_fds = 1;
	export.fds[0] = -1;
	need(party_export(&party, &export, &id) == CEOV_ERR_SYSTEM);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

START_TEST(test_misused_exports_are_refused)
{
	start(misuse_exports, 0);
	start(misuse_exports, 1);
	assert_all_end_well();
}
END_TEST

static void export_too_much(uint32_t number)
{
	struct thing export;
	struct party party;
	uint64_t id, first_id = 0;
	char name[16];
	int i;

	party_open(&party, 2, number);
	for (i = 0; number == 0 && i < 4096; i++) {
		snprintf(name, sizeof(name), "%d", i);
		export = make_export(0, name);
		need(!party_export(&party, &export, &id));
		if (!i)
			first_id = id;
	}
	if (!number) {
		export = make_export(0, "one more");
		need(party_export(&party, &export, &id) == CEOV_ERR_NO_MEMORY);
		need(party_withdraw(&party, first_id) == 0);
		need(!party_export(&party, &export, &id));
	}
	need(!party_barrier(&party, 20000));
	if (number) {
		need(!party_find(&party, 0, "4095", &export, &id));
		need(!party_find(&party, 0, "one more", &export, &id));
		need(party_find(&party, 0, "0", &export, &id) == CEOV_NONE);
	}
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

START_TEST(test_exports_are_bounded)
{
	start(export_too_much, 0);
	start(export_too_much, 1);
	assert_all_end_well();
}
END_TEST

static void export_a_file(uint32_t number)
{
	struct thing export = make_export(number, "thing");
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	export.n_fds = 1;
	export.fds[0] = file_with("one");
	need(!party_export(&party, &export, &id));
	close_fds(&export);
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	need(party_withdraw(&party, id) == 0);
	party_close(&party);
}

static void find_without_room(uint32_t number)
{
	struct rlimit limit, tight;
	struct thing export;
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	need(!getrlimit(RLIMIT_NOFILE, &limit));
	tight = limit;
	tight.rlim_cur = (rlim_t)dup(0);        /* no descriptor above the lowest free number may be
						 * opened */
	close((int)tight.rlim_cur);
	need(!setrlimit(RLIMIT_NOFILE, &tight));
	need(party_find(&party, 0, "thing", &export, &id) == CEOV_ERR_SYSTEM);
	need(party.failure.rank == 0 && says(&party, "ulimit"));
	need(!setrlimit(RLIMIT_NOFILE, &limit));
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

START_TEST(test_find_without_free_descriptors_fails_and_holds_nothing)
{
	start(export_a_file, 0);
	start(find_without_room, 1);
	assert_all_end_well();
}
END_TEST

static void find_and_be_killed(uint32_t number)
{
	struct thing export;
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	need(!party_find(&party, 0, "thing", &export, &id));
	need(!party_find(&party, 0, "thing", &export, &id));
	step_done(0);
	for (;;)
		pause();
}

static void lose_a_user(uint32_t number)
{
	struct thing export = make_export(number, "thing");
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	need(!party_export(&party, &export, &id));
	need(!party_barrier(&party, 20000));
	need(step_reached(0, 1));
	need(party_withdraw(&party, id) == CEOV_PENDING);
	step_done(1);
	need(wait_gone(0, 1));
	need(party_withdraw(&party, id) == 0);
	need(party_find(&party, 1, "thing", &export, &id) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 1);
	party_close(&party);
}

START_TEST(test_lost_users_are_dropped)
{
	pid_t victim;

	start(lose_a_user, 0);
	victim = start(find_and_be_killed, 1);
	ck_assert(step_reached(1, 1));
	kill_party(victim);
	assert_all_end_well();
}
END_TEST

static void stop_yourself(uint32_t number)
{
	struct party party;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	step_done(0);
	for (;;)
		raise(SIGSTOP);
}

static void ask_a_stopped_peer(uint32_t number)
{
	struct thing export;
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	need(step_reached(0, 1));
	pause_ms(100);
	need(party_barrier(&party, 100) == CEOV_ERR_TIMEOUT);
	need(party.failure.rank == 1 && says(&party, "rank 1"));
	step_done(1);
	need(party_find(&party, 1, "thing", &export, &id) == CEOV_ERR_PEER_LOST);
	need(party.failure.rank == 1);
	party_close(&party);
}

START_TEST(test_find_ends_when_the_stopped_peer_is_killed)
{
	uint64_t killed_ns;
	pid_t victim;

	start(ask_a_stopped_peer, 0);
	victim = start(stop_yourself, 1);
	ck_assert(step_reached(1, 1));
	pause_ms(100);
	killed_ns = kill_party(victim);
	assert_all_end_well();
	ck_assert_uint_lt(cei_now_ns() - killed_ns, 2000 * NS_PER_MS);
}
END_TEST

static void use_often_then_drop_all(uint32_t number)
{
	static uint64_t ids[MANY_USES];
	struct thing export;
	struct party party;
	uint64_t begin_ns;
	int i;

	party_open(&party, 2, number);
	need(!party_barrier(&party, 20000));
	for (i = 0; i < MANY_USES; i++)
		need(!party_find(&party, 0, "thing", &export, &ids[i]));
	step_done(0);
	need(step_reached(1, 1));               /* rank 0 is stopped now */
	begin_ns = cei_now_ns();
	for (i = 0; i < MANY_USES; i++)
		party_drop(&party, 0, ids[i]);
	need(cei_now_ns() - begin_ns < 5000 * NS_PER_MS);
	step_done(2);
	need(!party_barrier(&party, 20000));
	party_close(&party);
}

static void be_used_often(uint32_t number)
{
	struct thing export = make_export(number, "thing");
	struct party party;
	uint64_t id;

	party_open(&party, 2, number);
	need(!party_export(&party, &export, &id));
	need(!party_barrier(&party, 20000));
	need(!party_barrier(&party, 20000));
	need(party_withdraw(&party, id) == 0);
	party_close(&party);
}

/* More messages than a socket holds are queued, and the barrier's message comes after them. */
START_TEST(test_dropping_never_waits_for_a_stopped_owner)
{
	pid_t owner = start(be_used_often, 0);

	start(use_often_then_drop_all, 1);
	ck_assert(step_reached(0, 1));
	testing_stop(owner);
	step_done(1);
	ck_assert(step_reached(2, 1));
	ck_assert_int_eq(kill(owner, SIGCONT), 0);
	assert_all_end_well();
}
END_TEST

static void *find_often(void *arg)
{
	struct party *party = arg;
	uint32_t own = party->site.members[0].rank;
	struct thing export;
	uint64_t id, none;
	uint32_t rank;
	int i;

	for (i = 0; i < N_FINDS; i++)
		for (rank = 0; rank < 3; rank++) {
			if (rank == own)
				continue;
			need(!party_find(party, rank, "thing", &export, &id));
			need(export.n_fds == 1);
			close_fds(&export);
			need(party_find(party, rank, "none", &export, &none) == CEOV_NONE);
			party_drop(party, rank, id);
		}
	return NULL;
}

static void find_from_threads(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct thing export = make_export(number, "thing");
	pthread_t threads[N_FINDERS];
	struct party party;
	uint64_t id;
	int i;

	party_open(&party, 3, number);
	export.n_fds = 1;
	export.fds[0] = file_with("one");
	need(!party_export(&party, &export, &id));
	close_fds(&export);
	need(!party_barrier(&party, 20000));
	for (i = 0; i < N_FINDERS; i++)
		need(!pthread_create(&threads[i], NULL, find_often, &party));
	for (i = 0; i < N_FINDERS; i++)
		need(!pthread_join(threads[i], NULL));
	need(!party_barrier(&party, 40000));
	need(party_withdraw(&party, id) == 0);
	need(!party_barrier(&party, 20000));
	party_close(&party);
	need(n_open_fds() == n_fds);
}

START_TEST(test_threads_of_all_processes_find_at_once)
{
	uint32_t rank;

	for (rank = 0; rank < 3; rank++)
		start(find_from_threads, rank);
	assert_all_end_well();
}
END_TEST

/* --- the suite ----------------------------------------------------------- */

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_exports_are_found_counted_and_withdrawn);
	tcase_add_test(tcase, test_misused_exports_are_refused);
	tcase_add_test(tcase, test_exports_are_bounded);
	tcase_add_test(tcase, test_find_without_free_descriptors_fails_and_holds_nothing);
	tcase_add_test(tcase, test_lost_users_are_dropped);
	tcase_add_test(tcase, test_find_ends_when_the_stopped_peer_is_killed);
	tcase_add_test(tcase, test_dropping_never_waits_for_a_stopped_owner);
	tcase_add_test(tcase, test_threads_of_all_processes_find_at_once);
}

int main(void)
{
	return run_suite("bootstrap_export", add_tests);
}
