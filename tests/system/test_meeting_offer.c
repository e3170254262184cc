/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Offers between processes: found, counted, dropped, withdrawn. */

#include "meeting_parts.h"
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

/* --- offers -------------------------------------------------------------- */

static struct cei_offer make_offer(uint32_t rank, const char *name)
{
	struct cei_offer offer = { .rank = rank };

	snprintf(offer.name, sizeof(offer.name), "%s", name);
	offer.n_bytes = 5;
	memcpy(offer.bytes, "bytes", 5);
	return offer;
}

static int file_with(const char *text)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	need(fd >= 0);
	need(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	return fd;
}

static void close_fds(struct cei_offer *offer)
{
	uint32_t i;

	for (i = 0; i < offer->n_fds; i++)
		close(offer->fds[i]);
}

static void offer_to_rank_1(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct cei_offer offer = make_offer(number, "thing");
	struct part part;
	uint64_t id = 0, other_id = 0;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));      /* rank 1 found nothing */
	need(!part_barrier(&part, 20000));
	offer.n_fds = 2;
	offer.fds[0] = file_with("one");
	offer.fds[1] = file_with("two");
	need(!cei_meeting_offer(part.meeting, &offer, &id) && id);
	close_fds(&offer);                      /* they were duplicated */
	offer.n_fds = 0;
	need(cei_meeting_offer(part.meeting, &offer, &other_id) == CEOV_ERR_STATE);
	need(!other_id);
	need(!part_barrier(&part, 20000));      /* rank 1 finds it, twice */
	need(!part_barrier(&part, 20000));
	need(cei_meeting_withdraw(part.meeting, id) == CEOV_PENDING);
	need(!cei_meeting_offer(part.meeting, &offer, &other_id));
	need(cei_meeting_withdraw(part.meeting, other_id) == 0);
	need(!part_barrier(&part, 20000));      /* rank 1 finds none, drops one */
	need(!part_barrier(&part, 20000));
	need(cei_meeting_withdraw(part.meeting, id) == CEOV_PENDING);
	need(!part_barrier(&part, 20000));      /* rank 1 drops the other */
	need(!part_barrier(&part, 20000));
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	need(cei_meeting_withdraw(part.meeting, 77) == CEOV_ERR_INVALID);
	part_close(&part);
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
	struct cei_offer offer;
	struct part part;
	uint64_t ids[2];
	int i;

	part_open(&part, 2, number);
	need(part_find(&part, 0, "thing", &offer, &ids[0]) == CEOV_NONE);
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	for (i = 0; i < 2; i++) {
		need(!part_find(&part, 0, "thing", &offer, &ids[i]));
		need(offer.rank == 0 && !strcmp(offer.name, "thing"));
		need(offer.n_bytes == 5 && !memcmp(offer.bytes, "bytes", 5));
		need(offer.n_fds == 2);
		need_content(offer.fds[0], "one");
		need_content(offer.fds[1], "two");
		close_fds(&offer);
	}
	need(ids[0] == ids[1]);
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	need(part_find(&part, 0, "thing", &offer, &ids[1]) == CEOV_NONE);
	cei_meeting_drop(part.meeting, 0, ids[0]);
	cei_meeting_drop(part.meeting, 0, 9999);        /* not ours to drop */
	cei_meeting_drop(part.meeting, 1, ids[0]);
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	cei_meeting_drop(part.meeting, 0, ids[0]);
	cei_meeting_drop(part.meeting, 0, ids[0]);      /* once too often */
	need(!part_barrier(&part, 20000));
	part_close(&part);
	need(n_open_fds() == n_fds);
}

START_TEST(test_offers_are_found_counted_and_withdrawn)
{
	start(offer_to_rank_1, 0);
	start(find_at_rank_0, 1);
	assert_all_end_well();
}
END_TEST

static void misuse_offers(uint32_t number)
{
	struct cei_offer offer = make_offer(number, "x");
	char name[CEI_NAME_BYTES + 1];
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	memset(name, 'n', sizeof(name));
	name[CEI_NAME_BYTES] = 0;
	need(part_find(&part, 1 - number, name, &offer, &id) == CEOV_ERR_INVALID);
	need(part_find(&part, 1 - number, "", &offer, &id) == CEOV_ERR_INVALID);
	need(part_find(&part, number, "x", &offer, &id) == CEOV_ERR_INVALID);
	need(part_find(&part, 2, "x", &offer, &id) == CEOV_ERR_INVALID);
	name[CEI_NAME_BYTES - 1] = 0;
	need(part_find(&part, 1 - number, name, &offer, &id) == CEOV_NONE);
	offer.rank = 1 - number;
	need(cei_meeting_offer(part.meeting, &offer, &id) == CEOV_ERR_INVALID);
	offer = make_offer(number, "");
	need(cei_meeting_offer(part.meeting, &offer, &id) == CEOV_ERR_INVALID);
	offer = make_offer(number, "x");
	offer.n_bytes = CEI_OFFER_BYTES_MAX + 1;
	need(cei_meeting_offer(part.meeting, &offer, &id) == CEOV_ERR_INVALID);
	offer.n_bytes = CEI_OFFER_BYTES_MAX;
	offer.n_fds = 1;
	offer.fds[0] = -1;
	need(cei_meeting_offer(part.meeting, &offer, &id) == CEOV_ERR_SYSTEM);
	need(!part_barrier(&part, 20000));
	part_close(&part);
}

START_TEST(test_misused_offers_are_refused)
{
	start(misuse_offers, 0);
	start(misuse_offers, 1);
	assert_all_end_well();
}
END_TEST

static void offer_too_much(uint32_t number)
{
	struct cei_offer offer;
	struct part part;
	uint64_t id, first_id = 0;
	char name[16];
	int i;

	part_open(&part, 2, number);
	for (i = 0; number == 0 && i < 4096; i++) {
		snprintf(name, sizeof(name), "%d", i);
		offer = make_offer(0, name);
		need(!cei_meeting_offer(part.meeting, &offer, &id));
		if (!i)
			first_id = id;
	}
	if (!number) {
		offer = make_offer(0, "one more");
		need(cei_meeting_offer(part.meeting, &offer, &id) == CEOV_ERR_NO_MEMORY);
		need(cei_meeting_withdraw(part.meeting, first_id) == 0);
		need(!cei_meeting_offer(part.meeting, &offer, &id));
	}
	need(!part_barrier(&part, 20000));
	if (number) {
		need(!part_find(&part, 0, "4095", &offer, &id));
		need(!part_find(&part, 0, "one more", &offer, &id));
		need(part_find(&part, 0, "0", &offer, &id) == CEOV_NONE);
	}
	need(!part_barrier(&part, 20000));
	part_close(&part);
}

START_TEST(test_offers_are_bounded)
{
	start(offer_too_much, 0);
	start(offer_too_much, 1);
	assert_all_end_well();
}
END_TEST

static void offer_a_file(uint32_t number)
{
	struct cei_offer offer = make_offer(number, "thing");
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	offer.n_fds = 1;
	offer.fds[0] = file_with("one");
	need(!cei_meeting_offer(part.meeting, &offer, &id));
	close_fds(&offer);
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	part_close(&part);
}

static void find_without_room(uint32_t number)
{
	struct rlimit limit, tight;
	struct cei_offer offer;
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));
	need(!getrlimit(RLIMIT_NOFILE, &limit));
	tight = limit;
	tight.rlim_cur = (rlim_t)dup(0);        /* the lowest free number */
	close((int)tight.rlim_cur);
	need(!setrlimit(RLIMIT_NOFILE, &tight));
	need(part_find(&part, 0, "thing", &offer, &id) == CEOV_ERR_SYSTEM);
	need(part.failure.rank == 0 && says(&part, "ulimit"));
	need(!setrlimit(RLIMIT_NOFILE, &limit));
	need(!part_barrier(&part, 20000));
	part_close(&part);
}

START_TEST(test_find_without_free_descriptors_fails_and_holds_nothing)
{
	start(offer_a_file, 0);
	start(find_without_room, 1);
	assert_all_end_well();
}
END_TEST

static void find_and_be_killed(uint32_t number)
{
	struct cei_offer offer;
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));
	need(!part_find(&part, 0, "thing", &offer, &id));
	need(!part_find(&part, 0, "thing", &offer, &id));
	step_done(0);
	for (;;)
		pause();
}

static void lose_a_user(uint32_t number)
{
	struct cei_offer offer = make_offer(number, "thing");
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	need(!cei_meeting_offer(part.meeting, &offer, &id));
	need(!part_barrier(&part, 20000));
	need(step_reached(0, 1));
	need(cei_meeting_withdraw(part.meeting, id) == CEOV_PENDING);
	step_done(1);
	need(wait_gone(0, 1));
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	need(part_find(&part, 1, "thing", &offer, &id) == CEOV_ERR_PEER_LOST);
	need(part.failure.rank == 1);
	part_close(&part);
}

START_TEST(test_lost_users_are_dropped)
{
	pid_t victim;

	start(lose_a_user, 0);
	victim = start(find_and_be_killed, 1);
	ck_assert(step_reached(1, 1));
	kill_part(victim);
	assert_all_end_well();
}
END_TEST

static void stop_yourself(uint32_t number)
{
	struct part part;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));
	step_done(0);
	for (;;)
		raise(SIGSTOP);
}

static void ask_a_stopped_peer(uint32_t number)
{
	struct cei_offer offer;
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));
	need(step_reached(0, 1));
	pause_ms(100);
	need(part_barrier(&part, 100) == CEOV_ERR_TIMEOUT);
	need(part.failure.rank == 1 && says(&part, "rank 1"));
	step_done(1);
	need(part_find(&part, 1, "thing", &offer, &id) == CEOV_ERR_PEER_LOST);
	need(part.failure.rank == 1);
	part_close(&part);
}

START_TEST(test_find_ends_when_the_stopped_peer_is_killed)
{
	uint64_t killed_ns;
	pid_t victim;

	start(ask_a_stopped_peer, 0);
	victim = start(stop_yourself, 1);
	ck_assert(step_reached(1, 1));
	pause_ms(100);
	killed_ns = kill_part(victim);
	assert_all_end_well();
	ck_assert_uint_lt(cei_now_ns() - killed_ns, 2000 * NS_PER_MS);
}
END_TEST

static void use_often_then_drop_all(uint32_t number)
{
	struct cei_offer offer;
	struct part part;
	uint64_t id, begin_ns;
	int i;

	part_open(&part, 2, number);
	need(!part_barrier(&part, 20000));
	for (i = 0; i < MANY_USES; i++)
		need(!part_find(&part, 0, "thing", &offer, &id));
	step_done(0);
	need(step_reached(1, 1));               /* rank 0 is stopped */
	begin_ns = cei_now_ns();
	for (i = 0; i < MANY_USES; i++)
		cei_meeting_drop(part.meeting, 0, id);
	need(cei_now_ns() - begin_ns < 5000 * NS_PER_MS);
	step_done(2);
	need(!part_barrier(&part, 20000));
	part_close(&part);
}

static void be_used_often(uint32_t number)
{
	struct cei_offer offer = make_offer(number, "thing");
	struct part part;
	uint64_t id;

	part_open(&part, 2, number);
	need(!cei_meeting_offer(part.meeting, &offer, &id));
	need(!part_barrier(&part, 20000));
	need(!part_barrier(&part, 20000));
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	part_close(&part);
}

/* More than a socket holds; and the barrier comes after all of it. */
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
	struct part *part = arg;
	uint32_t own = part->site.members[0].rank;
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);
	struct cei_question question;
	struct cei_offer offer;
	uint64_t id;
	uint32_t rank;
	int i;

	for (i = 0; i < N_FINDS; i++)
		for (rank = 0; rank < 3; rank++) {
			if (rank == own)
				continue;
			question = (struct cei_question){ rank, "thing", deadline_ns };
			need(!cei_meeting_find(part->meeting, &question, &offer, &id));
			need(offer.n_fds == 1);
			close_fds(&offer);
			question.name = "none";
			need(cei_meeting_find(part->meeting, &question, &offer, &id) ==
			     CEOV_NONE);
			cei_meeting_drop(part->meeting, rank, id);
		}
	return NULL;
}

static void find_from_threads(uint32_t number)
{
	uint32_t n_fds = n_open_fds();
	struct cei_offer offer = make_offer(number, "thing");
	pthread_t threads[N_FINDERS];
	struct part part;
	uint64_t id;
	int i;

	part_open(&part, 3, number);
	offer.n_fds = 1;
	offer.fds[0] = file_with("one");
	need(!cei_meeting_offer(part.meeting, &offer, &id));
	close_fds(&offer);
	need(!part_barrier(&part, 20000));
	for (i = 0; i < N_FINDERS; i++)
		need(!pthread_create(&threads[i], NULL, find_often, &part));
	for (i = 0; i < N_FINDERS; i++)
		need(!pthread_join(threads[i], NULL));
	need(!part_barrier(&part, 40000));
	need(cei_meeting_withdraw(part.meeting, id) == 0);
	need(!part_barrier(&part, 20000));
	part_close(&part);
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
	tcase_add_test(tcase, test_offers_are_found_counted_and_withdrawn);
	tcase_add_test(tcase, test_misused_offers_are_refused);
	tcase_add_test(tcase, test_offers_are_bounded);
	tcase_add_test(tcase, test_find_without_free_descriptors_fails_and_holds_nothing);
	tcase_add_test(tcase, test_lost_users_are_dropped);
	tcase_add_test(tcase, test_find_ends_when_the_stopped_peer_is_killed);
	tcase_add_test(tcase, test_dropping_never_waits_for_a_stopped_owner);
	tcase_add_test(tcase, test_threads_of_all_processes_find_at_once);
}

int main(void)
{
	return run_suite("meeting_offer", add_tests);
}
