/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the thread that watches whether other processes live. */

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "alive_rig.h"
#include "base/clock.h"
#include "ipc/alive_watch.h"

#define ID       1u             /* a word with it seems to be held */
#define DIED     0x40000000u
#define N_TURNS  4              /* turns of the thread in which something would have happened */
#define N_STRESS 2000u

/* A word that is watched, and what the watch called for it. */
struct subject {
	struct cei_alive_watched watched;
	_Atomic uint32_t         word;
	_Atomic uint32_t         n_calls;
	_Atomic int              is_orderly;
	_Atomic uint64_t         told_ns;
	_Atomic uint32_t         may_return;            /* 0: ended() waits for it */
	_Atomic uint32_t         is_running;
};

static struct alive_rig rig;
static struct cei_alive_watch *watch;
static struct subject subjects[ALIVE_RIG_AREAS];

static void note(void *arg, int is_orderly)
{
	struct subject *subject = arg;

	atomic_store(&subject->is_running, 1);
	atomic_store(&subject->is_orderly, is_orderly);
	atomic_store(&subject->told_ns, cei_now_ns());
	alive_rig_await(&subject->may_return);
	atomic_store(&subject->is_running, 0);
	atomic_fetch_add(&subject->n_calls, 1);
}

/* Prepares a subject with a word that seems to be held. */
static void prepare(struct subject *subject)
{
	memset(subject, 0, sizeof(*subject));
	atomic_store(&subject->word, ID);
	atomic_store(&subject->may_return, 1);
	subject->watched.word = &subject->word;
	subject->watched.ended = note;
	subject->watched.arg = subject;
}

static void add(struct subject *subject)
{
	ck_assert_int_eq(cei_alive_watch_add(watch, &subject->watched), 0);
}

static void setup(void)
{
	uint32_t i;

	alive_rig_open(&rig, ALIVE_RIG_AREAS);
	ck_assert_int_eq(cei_alive_watch_open(&rig.report, &watch), 0);
	for (i = 0; i < ALIVE_RIG_AREAS; i++)
		prepare(&subjects[i]);
}

static void teardown(void)
{
	cei_alive_watch_close(watch);
	alive_rig_close(&rig);
}

static void let_turns_pass(void)
{
	usleep(N_TURNS * CEI_ALIVE_WATCH_NS / 1000);
}

/* --- what is told -------------------------------------------------------- */

START_TEST(test_each_end_is_told_once)
{
	struct subject *died = &subjects[0], *ended = &subjects[1], *lives = &subjects[2];

	add(died);
	add(ended);
	add(lives);
	let_turns_pass();
	ck_assert_uint_eq(atomic_load(&died->n_calls) + atomic_load(&ended->n_calls), 0);
	atomic_store(&died->word, DIED);
	atomic_store(&ended->word, 0);
	ck_assert(alive_rig_await(&died->n_calls));
	ck_assert(alive_rig_await(&ended->n_calls));
	ck_assert_int_eq(atomic_load(&died->is_orderly), 0);
	ck_assert_int_eq(atomic_load(&ended->is_orderly), 1);
	/* A word that lies changes nothing. */
	atomic_store(&died->word, ID);
	let_turns_pass();
	atomic_store(&died->word, DIED);
	let_turns_pass();
	ck_assert_uint_eq(atomic_load(&died->n_calls), 1);
	ck_assert_uint_eq(atomic_load(&ended->n_calls), 1);
	ck_assert_uint_eq(atomic_load(&lives->n_calls), 0);
	ck_assert_int_eq(cei_alive_watch_add(watch, &lives->watched), CEOV_ERR_STATE);
}
END_TEST

START_TEST(test_what_has_ended_before_is_told)
{
	atomic_store(&subjects[0].word, DIED);
	add(&subjects[0]);
	ck_assert(alive_rig_await(&subjects[0].n_calls));
	/* It can be watched anew. */
	atomic_store(&subjects[0].n_calls, 0);
	add(&subjects[0]);
	ck_assert(alive_rig_await(&subjects[0].n_calls));
}
END_TEST

/* --- removal ------------------------------------------------------------- */

START_TEST(test_nothing_is_called_after_removal)
{
	cei_alive_watch_remove(watch, &subjects[0].watched);
	add(&subjects[0]);
	cei_alive_watch_remove(watch, &subjects[0].watched);
	cei_alive_watch_remove(watch, &subjects[0].watched);
	atomic_store(&subjects[0].word, DIED);
	let_turns_pass();
	ck_assert_uint_eq(atomic_load(&subjects[0].n_calls), 0);
}
END_TEST

static void *remove_it(void *arg)
{
	struct subject *subject = arg;

	cei_alive_watch_remove(watch, &subject->watched);
	/* The call has returned, so nothing of it runs. */
	return (void *)(uintptr_t)atomic_load(&subject->is_running);
}

START_TEST(test_removal_waits_for_a_call_that_runs)
{
	struct subject *subject = &subjects[0];
	void *was_running = subject;
	pthread_t thread;

	atomic_store(&subject->may_return, 0);
	add(subject);
	atomic_store(&subject->word, DIED);
	ck_assert(alive_rig_await(&subject->is_running));
	ck_assert_int_eq(pthread_create(&thread, NULL, remove_it, subject), 0);
	let_turns_pass();
	/* Another word's removal waits for nothing. */
	add(&subjects[1]);
	cei_alive_watch_remove(watch, &subjects[1].watched);
	ck_assert_uint_eq(atomic_load(&subject->n_calls), 0);
	alive_rig_set(&subject->may_return);
	ck_assert_int_eq(pthread_join(thread, &was_running), 0);
	ck_assert_ptr_null(was_running);
	ck_assert(alive_rig_await(&subject->n_calls));
}
END_TEST

/* Removes itself and the next subject, and adds the one behind that. */
static void change_others(void *arg, int is_orderly)
{
	struct subject *subject = arg;

	cei_alive_watch_remove(watch, &subject->watched);
	cei_alive_watch_remove(watch, &subject[1].watched);
	if (cei_alive_watch_add(watch, &subject[2].watched))
		return;
	note(arg, is_orderly);
}

START_TEST(test_a_call_may_add_and_remove)
{
	subjects[0].watched.ended = change_others;
	add(&subjects[0]);
	add(&subjects[1]);
	atomic_store(&subjects[0].word, DIED);
	ck_assert(alive_rig_await(&subjects[0].n_calls));
	atomic_store(&subjects[1].word, DIED);
	atomic_store(&subjects[2].word, DIED);
	ck_assert(alive_rig_await(&subjects[2].n_calls));
	let_turns_pass();
	ck_assert_uint_eq(atomic_load(&subjects[1].n_calls), 0);
}
END_TEST

/* The function owns the struct, and frees it. */
static void free_it(void *arg, int is_orderly)
{
	(void)is_orderly;
	free(arg);
	alive_rig_set(&rig.shared->go);
}

START_TEST(test_a_call_may_free_what_was_watched)
{
	struct subject *subject = malloc(sizeof(*subject));

	ck_assert_ptr_nonnull(subject);
	prepare(subject);
	subject->watched.ended = free_it;
	atomic_store(&subject->word, DIED);
	add(subject);
	ck_assert(alive_rig_await(&rig.shared->go));
	let_turns_pass();
}
END_TEST

START_TEST(test_the_number_of_words_is_bounded)
{
	static struct subject many[CEI_ALIVE_WATCHED_MAX + 1];
	struct timespec begin, end;
	uint32_t i;

	for (i = 0; i <= CEI_ALIVE_WATCHED_MAX; i++) {
		prepare(&many[i]);
		ck_assert_int_eq(cei_alive_watch_add(watch, &many[i].watched),
				 i < CEI_ALIVE_WATCHED_MAX ? 0 : CEOV_ERR_STATE);
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
	usleep(500000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
	printf("%u words watched for half a second: %.2f ms of a processor\n",
	       CEI_ALIVE_WATCHED_MAX, (double)(end.tv_sec - begin.tv_sec) * 1e3 +
	       (double)(end.tv_nsec - begin.tv_nsec) / 1e6);
	cei_alive_watch_remove(watch, &many[0].watched);
	ck_assert_int_eq(cei_alive_watch_add(watch, &many[i - 1].watched), 0);
	atomic_store(&many[i - 1].word, DIED);
	ck_assert(alive_rig_await(&many[i - 1].n_calls));
	/* The rest is still watched when the watch is closed. */
}
END_TEST

/* --- many at once -------------------------------------------------------- */

/* Adds and removes its half of the subjects, whose words end now and then. */
static void *change_at_random(void *arg)
{
	struct subject *own = arg, *subject;
	uint64_t state = testing_seed() + (uint64_t)(own - subjects);
	uint32_t i, n_before;

	for (i = 0; i < N_STRESS; i++) {
		subject = &own[testing_below(&state, ALIVE_RIG_AREAS / 2)];
		if (testing_below(&state, 2))
			atomic_store(&subject->word, testing_below(&state, 2) ? DIED : 0);
		cei_alive_watch_remove(watch, &subject->watched);
		ck_assert_uint_eq(atomic_load(&subject->is_running), 0);
		n_before = atomic_load(&subject->n_calls);
		atomic_store(&subject->word, ID);
		if (testing_below(&state, 100) == 0)
			usleep(2000);
		ck_assert_uint_eq(atomic_load(&subject->n_calls), n_before);
		ck_assert_int_eq(cei_alive_watch_add(watch, &subject->watched), 0);
	}
	return NULL;
}

START_TEST(test_threads_add_and_remove_beside_each_other)
{
	pthread_t thread;
	uint32_t i, n_before;

	ck_assert_int_eq(pthread_create(&thread, NULL, change_at_random, subjects), 0);
	change_at_random(&subjects[ALIVE_RIG_AREAS / 2]);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	for (i = 0; i < ALIVE_RIG_AREAS; i++) {
		cei_alive_watch_remove(watch, &subjects[i].watched);
		n_before = atomic_load(&subjects[i].n_calls);
		atomic_store(&subjects[i].n_calls, 0);
		atomic_store(&subjects[i].word, DIED);
		add(&subjects[i]);
		ck_assert_msg(alive_rig_await(&subjects[i].n_calls), "%u: %u", i, n_before);
	}
}
END_TEST

static int compare_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static uint32_t n_forked;

/* In child i: holds area i. */
static void hold_own(struct alive_rig *of)
{
	static struct cei_alive_area area;

	alive_rig_hold(of, alive_rig_holder(of), n_forked, &area);
}

START_TEST(test_the_deaths_of_many_processes_are_told)
{
	uint64_t begin, took[ALIVE_RIG_AREAS];
	pid_t children[ALIVE_RIG_AREAS];
	uint32_t i;

	/* A thread sanitizer refuses new threads in children of a process that has several. */
	cei_alive_watch_close(watch);
	for (n_forked = 0; n_forked < ALIVE_RIG_AREAS; n_forked++) {
		atomic_store(&rig.shared->is_ready, 0);
		alive_rig_fork(&rig, hold_own);
		children[n_forked] = rig.child;
	}
	ck_assert_int_eq(cei_alive_watch_open(&rig.report, &watch), 0);
	for (i = 0; i < ALIVE_RIG_AREAS; i++) {
		subjects[i].watched.word = cei_alive_word(&rig.seen[i]);
		add(&subjects[i]);
	}
	let_turns_pass();
	begin = cei_now_ns();
	for (i = 0; i < ALIVE_RIG_AREAS; i++)
		ck_assert_int_eq(kill(children[i], SIGKILL), 0);
	for (i = 0; i < ALIVE_RIG_AREAS; i++) {
		ck_assert(alive_rig_await(&subjects[i].n_calls));
		ck_assert_int_eq(atomic_load(&subjects[i].is_orderly), 0);
		took[i] = atomic_load(&subjects[i].told_ns) - begin;
		rig.child = children[i];
		alive_rig_kill(&rig);
	}
	qsort(took, ALIVE_RIG_AREAS, sizeof(took[0]), compare_times);
	printf("%u processes killed: told after %.2f ms (median), the last one after %.2f ms\n",
	       ALIVE_RIG_AREAS, (double)took[ALIVE_RIG_AREAS / 2] / 1e6,
	       (double)took[ALIVE_RIG_AREAS - 1] / 1e6);
	/* Half of them, because other work may keep the dying threads from their processor. */
	ck_assert_uint_lt(took[ALIVE_RIG_AREAS / 2], TESTING_SECOND);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alive_watch");
	TCase *tcase = tcase_create("alive_watch");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_each_end_is_told_once);
	tcase_add_test(tcase, test_what_has_ended_before_is_told);
	tcase_add_test(tcase, test_nothing_is_called_after_removal);
	tcase_add_test(tcase, test_removal_waits_for_a_call_that_runs);
	tcase_add_test(tcase, test_a_call_may_add_and_remove);
	tcase_add_test(tcase, test_a_call_may_free_what_was_watched);
	tcase_add_test(tcase, test_the_number_of_words_is_bounded);
	tcase_add_test(tcase, test_threads_add_and_remove_beside_each_other);
	tcase_add_test(tcase, test_the_deaths_of_many_processes_are_told);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
