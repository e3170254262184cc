/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests words that tell of a process's death: what they say, and when. */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alive_rig.h"
#include "base/clock.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW)
#define BOTH  (PROT_READ | PROT_WRITE)

static struct alive_rig rig;
static struct cei_alive *alive;

static void setup(void)
{
	alive_rig_open(&rig, 3);
	alive = NULL;
}

static void teardown(void)
{
	cei_alive_close(alive);
	alive_rig_close(&rig);
}

static void open_holder(void)
{
	ck_assert_int_eq(cei_alive_open(&rig.report, &alive), 0);
}

static void map(uint32_t i, struct cei_alive_area *ret_area)
{
	ck_assert_int_eq(cei_alive_map(&rig.report, rig.fds[i], ALIVE_RIG_BYTES, BOTH, ret_area),
			 0);
}

static void hold(uint32_t i, struct cei_alive_area *ret_area)
{
	map(i, ret_area);
	ck_assert_int_eq(cei_alive_hold(alive, ret_area), 0);
}

/* --- words and areas ----------------------------------------------------- */

START_TEST(test_every_value_has_a_state)
{
	static const struct {
		uint32_t             value;
		enum cei_alive_state state;
	} cases[] = {
		{ 0, CEI_ALIVE_ENDED },
		{ FUTEX_WAITERS, CEI_ALIVE_ENDED },
		{ 1, CEI_ALIVE },
		{ 1 | FUTEX_WAITERS, CEI_ALIVE },
		{ FUTEX_TID_MASK, CEI_ALIVE },
		{ FUTEX_OWNER_DIED, CEI_ALIVE_DIED },
		{ FUTEX_OWNER_DIED | FUTEX_WAITERS, CEI_ALIVE_DIED },
		{ FUTEX_OWNER_DIED | 1, CEI_ALIVE_DIED },
		{ UINT32_MAX, CEI_ALIVE_DIED },
	};
	_Atomic uint32_t word;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		atomic_init(&word, cases[i].value);
		ck_assert_msg(cei_alive_state(&word) == cases[i].state, "0x%x", cases[i].value);
		ck_assert_msg(cei_alive_wait(&word, 0) == cases[i].state, "0x%x", cases[i].value);
	}
}
END_TEST

/* Asserts that the file is refused, and closes it. */
static void assert_refused(int fd, size_t n_bytes, int prot, const char *why)
{
	struct cei_alive_area area = { 0 };

	testing_log_clear(&rig.log);
	ck_assert_int_eq(cei_alive_map(&rig.report, fd, n_bytes, prot, &area), CEOV_ERR_INVALID);
	ck_assert_ptr_null(area.memory);
	testing_log_has(&rig.log, why, NULL, NULL);
	if (fd >= 0)
		close(fd);
}

START_TEST(test_bad_files_are_refused)
{
	int ends[2], huge = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	int small = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_refused(-1, ALIVE_RIG_BYTES, PROT_READ, "descriptor");
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	assert_refused(ends[0], ALIVE_RIG_BYTES, PROT_READ, "ordinary pages");
	close(ends[1]);
	assert_refused(alive_rig_file(0), ALIVE_RIG_BYTES, PROT_READ, "sealed");
	assert_refused(alive_rig_file(F_SEAL_GROW), ALIVE_RIG_BYTES, BOTH, "sealed");
	assert_refused(alive_rig_file(SEALS), ALIVE_RIG_BYTES - 1, PROT_READ, "size");
	assert_refused(alive_rig_file(SEALS), SIZE_MAX, PROT_READ, "size");
	assert_refused(alive_rig_file(SEALS), ALIVE_RIG_BYTES, PROT_WRITE, "reading");
	assert_refused(alive_rig_file(SEALS), ALIVE_RIG_BYTES, BOTH | PROT_EXEC, "reading");
	ck_assert_int_eq(ftruncate(small, 3), 0);
	ck_assert_int_eq(fcntl(small, F_ADD_SEALS, SEALS), 0);
	assert_refused(small, 3, PROT_READ, "size");
	if (huge < 0) {
		printf("not tested: huge pages: %s\n", strerror(errno));
		return;
	}
	ck_assert_int_eq(fcntl(huge, F_ADD_SEALS, SEALS), 0);
	assert_refused(huge, 0, PROT_READ, "ordinary pages");
}
END_TEST

START_TEST(test_a_file_sealed_against_writing_is_read)
{
	struct cei_alive_area own = { 0 }, other = { 0 };

	open_holder();
	hold(0, &own);
	ck_assert_int_eq(fcntl(rig.fds[0], F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL), 0);
	ck_assert_int_eq(cei_alive_map(&rig.report, rig.fds[0], ALIVE_RIG_BYTES, BOTH, &other),
			 CEOV_ERR_SYSTEM);
	ck_assert_int_eq(cei_alive_map(&rig.report, rig.fds[0], ALIVE_RIG_BYTES, PROT_READ, &other),
			 0);
	ck_assert_int_eq(cei_alive_wait(cei_alive_word(&other), TESTING_MS), CEI_ALIVE);
	ck_assert_int_eq(cei_alive_let_go(alive, &own), 0);
	ck_assert_int_eq(cei_alive_wait(cei_alive_word(&other), TESTING_PATIENCE), CEI_ALIVE_ENDED);
	cei_alive_unmap(&other);
	cei_alive_unmap(&own);
}
END_TEST

/* --- the holder ---------------------------------------------------------- */

START_TEST(test_a_word_is_held_and_let_go)
{
	struct cei_alive_area own = { 0 };
	uint32_t i, word;

	open_holder();
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_ENDED);
	map(0, &own);
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(cei_alive_hold(alive, &own), 0);
		word = atomic_load(cei_alive_word(&rig.seen[0]));
		ck_assert_uint_ne(word & FUTEX_WAITERS, 0);
		ck_assert_int_eq((int)syscall(SYS_tgkill, getpid(), word & FUTEX_TID_MASK, 0), 0);
		ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE);
		ck_assert_int_eq(cei_alive_let_go(alive, &own), 0);
		ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_ENDED);
	}
	cei_alive_unmap(&own);
	cei_alive_unmap(&own);
}
END_TEST

START_TEST(test_closing_lets_go_of_all)
{
	struct cei_alive_area own[3] = { { 0 } };
	uint32_t i;

	open_holder();
	for (i = 0; i < 3; i++)
		hold(i, &own[i]);
	cei_alive_close(alive);
	alive = NULL;
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(alive_rig_state(&rig, i), CEI_ALIVE_ENDED);
		cei_alive_unmap(&own[i]);
	}
}
END_TEST

START_TEST(test_wrong_calls_are_refused)
{
	struct cei_alive_area own = { 0 }, again = { 0 }, none = { 0 };

	open_holder();
	hold(0, &own);
	map(0, &again);
	ck_assert_int_eq(cei_alive_hold(alive, &own), CEOV_ERR_STATE);
	ck_assert_int_eq(cei_alive_hold(alive, &again), CEOV_ERR_STATE);
	ck_assert_int_eq(cei_alive_let_go(alive, &again), CEOV_ERR_STATE);
	ck_assert_int_eq(cei_alive_hold(alive, &rig.seen[1]), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_alive_hold(alive, &none), CEOV_ERR_INVALID);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE);
	cei_alive_unmap(&own);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_ENDED);
	/* Whoever took the word would hide that its holder has died. */
	atomic_store(cei_alive_word(&again), FUTEX_OWNER_DIED);
	testing_log_clear(&rig.log);
	ck_assert_int_eq(cei_alive_hold(alive, &again), CEOV_ERR_STATE);
	testing_log_has(&rig.log, "0x40000000", NULL, NULL);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_DIED);
	cei_alive_unmap(&again);
}
END_TEST

START_TEST(test_the_number_of_areas_is_bounded)
{
	static struct cei_alive_area own[CEI_ALIVE_AREAS_MAX + 1];
	uint32_t i;
	int fd;

	open_holder();
	for (i = 0; i <= CEI_ALIVE_AREAS_MAX; i++) {
		fd = alive_rig_file(SEALS);
		ck_assert_int_eq(cei_alive_map(&rig.report, fd, ALIVE_RIG_BYTES, BOTH, &own[i]), 0);
		close(fd);
		ck_assert_int_eq(cei_alive_hold(alive, &own[i]),
				 i < CEI_ALIVE_AREAS_MAX ? 0 : CEOV_ERR_STATE);
	}
	for (i = 0; i <= CEI_ALIVE_AREAS_MAX; i += 2)
		cei_alive_unmap(&own[i]);
	hold(0, &own[0]);
	for (i = 0; i <= CEI_ALIVE_AREAS_MAX; i++)
		cei_alive_unmap(&own[i]);
}
END_TEST

/* --- readers ------------------------------------------------------------- */

static void *let_go_soon(void *arg)
{
	struct cei_alive_area *area = arg;

	usleep(20000);
	((uint32_t *)area->memory)[1] = 7;
	cei_alive_let_go(alive, area);
	return NULL;
}

START_TEST(test_an_orderly_end_wakes_and_shows_what_was_written)
{
	struct cei_alive_area own = { 0 };
	uint64_t begin, took, least = UINT64_MAX;
	pthread_t thread;
	uint32_t i;

	open_holder();
	map(0, &own);
	for (i = 0; i < 10; i++) {
		((uint32_t *)own.memory)[1] = 0;
		ck_assert_int_eq(cei_alive_hold(alive, &own), 0);
		ck_assert_int_eq(pthread_create(&thread, NULL, let_go_soon, &own), 0);
		begin = cei_now_ns();
		ck_assert_int_eq(cei_alive_wait(cei_alive_word(&own), TESTING_PATIENCE),
				 CEI_ALIVE_ENDED);
		took = cei_now_ns() - begin;
		ck_assert_uint_eq(((uint32_t *)own.memory)[1], 7);
		least = took < least ? took : least;
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
	}
	/* A waiter that nobody wakes looks again after this time only. */
	ck_assert_uint_lt(least, CEI_ALIVE_NAP_NS);
	cei_alive_unmap(&own);
}
END_TEST

START_TEST(test_a_wait_ends_in_time)
{
	_Atomic uint32_t word = 1 | FUTEX_WAITERS;
	uint64_t begin = cei_now_ns();

	ck_assert_int_eq(cei_alive_wait(&word, 0), CEI_ALIVE);
	ck_assert_uint_lt(cei_now_ns() - begin, TESTING_SECOND);
	begin = cei_now_ns();
	ck_assert_int_eq(cei_alive_wait(&word, 250 * TESTING_MS), CEI_ALIVE);
	ck_assert_uint_ge(cei_now_ns() - begin, 250 * TESTING_MS);
}
END_TEST

/* --- other processes ----------------------------------------------------- */

static void hold_all(struct alive_rig *of)
{
	static struct cei_alive_area areas[ALIVE_RIG_AREAS];
	struct cei_alive *own = alive_rig_holder(of);
	uint32_t i;

	for (i = 0; i < of->n_areas; i++)
		alive_rig_hold(of, own, i, &areas[i]);
}

static void hold_all_and_die_soon(struct alive_rig *of)
{
	hold_all(of);
	alive_rig_set(&of->shared->is_ready);
	usleep(30000);
	kill(getpid(), SIGKILL);
}

START_TEST(test_a_killed_process_wakes_its_waiter)
{
	uint64_t begin, took, least = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < 10; i++) {
		alive_rig_close(&rig);
		alive_rig_open(&rig, 3);
		alive_rig_fork(&rig, hold_all_and_die_soon);
		begin = cei_now_ns();
		ck_assert_int_eq(alive_rig_end(&rig, 1), CEI_ALIVE_DIED);
		took = cei_now_ns() - begin;
		least = took < least ? took : least;
		alive_rig_kill(&rig);
		ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_DIED);
		ck_assert_int_eq(alive_rig_state(&rig, 2), CEI_ALIVE_DIED);
	}
	ck_assert_uint_lt(least, CEI_ALIVE_NAP_NS);
}
END_TEST

static void hold_all_and_exit(struct alive_rig *of)
{
	hold_all(of);
	alive_rig_set(&of->shared->is_ready);
	_exit(0);
}

START_TEST(test_exit_without_letting_go_is_death)
{
	alive_rig_fork(&rig, hold_all_and_exit);
	ck_assert_int_eq(alive_rig_end(&rig, 0), CEI_ALIVE_DIED);
}
END_TEST

START_TEST(test_a_stopped_process_lives)
{
	alive_rig_fork(&rig, hold_all);
	testing_stop(rig.child);
	ck_assert_int_eq(cei_alive_wait(cei_alive_word(&rig.seen[0]), 150 * TESTING_MS), CEI_ALIVE);
	ck_assert_int_eq(kill(rig.child, SIGCONT), 0);
	ck_assert_int_eq(cei_alive_wait(cei_alive_word(&rig.seen[0]), 50 * TESTING_MS), CEI_ALIVE);
	testing_stop(rig.child);
	alive_rig_kill(&rig);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_DIED);
}
END_TEST

/* In a forked child of the holder's process. */
static int n_wrong(struct cei_alive_area *held, struct cei_alive_area *free)
{
	int n = cei_alive_hold(alive, free) != CEOV_ERR_FORKED;

	n += cei_alive_let_go(alive, held) != CEOV_ERR_FORKED;
	cei_alive_close(alive);
	cei_alive_unmap(held);
	cei_alive_unmap(free);
	n += alive_rig_state(&rig, 0) != CEI_ALIVE;
	n += alive_rig_state(&rig, 1) != CEI_ALIVE_ENDED;
	return n;
}

START_TEST(test_a_forked_child_holds_nothing)
{
	struct cei_alive_area held = { 0 }, free = { 0 };
	int status = -1;
	pid_t child;

	open_holder();
	hold(0, &held);
	map(1, &free);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(n_wrong(&held, &free));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status), "status 0x%x", status);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE);
	ck_assert_int_eq(cei_alive_hold(alive, &free), 0);
	cei_alive_unmap(&held);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_ENDED);
	cei_alive_unmap(&free);
}
END_TEST

/* The child of this child outlives it, and has its areas mapped. */
static void hold_all_and_fork(struct alive_rig *of)
{
	pid_t child;

	hold_all(of);
	child = fork();
	alive_rig_must(child >= 0, "fork");
	if (child)
		return;
	alive_rig_set(&of->shared->step[0]);
	alive_rig_await(&of->shared->go);
	_exit(0);
}

START_TEST(test_a_forked_child_does_not_hold_for_its_parent)
{
	alive_rig_fork(&rig, hold_all_and_fork);
	ck_assert(alive_rig_await(&rig.shared->step[0]));
	alive_rig_kill(&rig);
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_DIED);
	alive_rig_set(&rig.shared->go);
}
END_TEST

static void hold_all_and_exec(struct alive_rig *of)
{
	hold_all(of);
	alive_rig_set(&of->shared->is_ready);
	execlp("sleep", "sleep", "60", (char *)NULL);
	_exit(1);
}

START_TEST(test_exec_is_death)
{
	int status;

	alive_rig_fork(&rig, hold_all_and_exec);
	ck_assert_int_eq(alive_rig_end(&rig, 0), CEI_ALIVE_DIED);
	ck_assert_int_eq(waitpid(rig.child, &status, WNOHANG), 0);
}
END_TEST

/* Becomes the parent of a process with another PID namespace, which holds. */
static void hold_all_elsewhere(struct alive_rig *of)
{
	pid_t child;

	if (unshare(CLONE_NEWUSER | CLONE_NEWPID)) {
		printf("not tested: PID namespaces: %s\n", strerror(errno));
		fflush(stdout);
		return;
	}
	child = fork();
	alive_rig_must(child >= 0, "fork");
	if (!child) {
		alive_rig_must(getpid() == 1, "another PID namespace");
		hold_all(of);
		alive_rig_set(&of->shared->step[0]);
		for (;;)
			pause();
	}
	alive_rig_must(alive_rig_await(&of->shared->step[0]), "the child is not ready");
	alive_rig_set(&of->shared->is_ready);
	if (alive_rig_await(&of->shared->go))
		kill(child, SIGKILL);
}

START_TEST(test_a_holder_in_another_pid_namespace_dies)
{
	alive_rig_fork(&rig, hold_all_elsewhere);
	if (!atomic_load(&rig.shared->step[0]))
		return;
	ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE);
	alive_rig_set(&rig.shared->go);
	ck_assert_int_eq(alive_rig_end(&rig, 0), CEI_ALIVE_DIED);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alive");
	TCase *tcase = tcase_create("alive");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_every_value_has_a_state);
	tcase_add_test(tcase, test_bad_files_are_refused);
	tcase_add_test(tcase, test_a_file_sealed_against_writing_is_read);
	tcase_add_test(tcase, test_a_word_is_held_and_let_go);
	tcase_add_test(tcase, test_closing_lets_go_of_all);
	tcase_add_test(tcase, test_wrong_calls_are_refused);
	tcase_add_test(tcase, test_the_number_of_areas_is_bounded);
	tcase_add_test(tcase, test_an_orderly_end_wakes_and_shows_what_was_written);
	tcase_add_test(tcase, test_a_wait_ends_in_time);
	tcase_add_test(tcase, test_a_killed_process_wakes_its_waiter);
	tcase_add_test(tcase, test_exit_without_letting_go_is_death);
	tcase_add_test(tcase, test_a_stopped_process_lives);
	tcase_add_test(tcase, test_a_forked_child_holds_nothing);
	tcase_add_test(tcase, test_a_forked_child_does_not_hold_for_its_parent);
	tcase_add_test(tcase, test_exec_is_death);
	tcase_add_test(tcase, test_a_holder_in_another_pid_namespace_dies);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
