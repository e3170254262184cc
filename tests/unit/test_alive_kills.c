/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests that a process's death is told whenever it comes: while much memory is mapped, at random
 * moments, between any two instructions of the thread that holds the words, and after private
 * memory was taken from the dying process.
 */

#include <check.h>
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alive_rig.h"
#include "base/clock.h"

#ifndef SYS_process_mrelease
#define SYS_process_mrelease 448
#endif

#define GIB      (UINT64_C(1) << 30)
#define N_ROUNDS 7
#define N_KILLS  100
#define N_LOOPED 8u             /* areas that are held and let go in a loop, by two threads */

static struct alive_rig rig;

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static int compare_times(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* --- much memory --------------------------------------------------------- */

static int ends[2];             /* a socket between the test and its child */

/* Returns the memory that is available, in bytes. */
static uint64_t available(void)
{
	unsigned long long kib = 0;
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

static void hold_with_a_gigabyte(struct alive_rig *of)
{
	static struct cei_alive_area area;
	void *much;

	close(ends[0]);
	/* The kernel touches the pages, since a sanitizer would keep books of each of them, and
	 * makes them small ones, as these take longest to be torn down. */
	alive_rig_must(!prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), "prctl");
	much = mmap(NULL, GIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
		    -1, 0);
	alive_rig_must(much != MAP_FAILED, "mmap");
	alive_rig_hold(of, alive_rig_holder(of), 0, &area);
}

/* Kills a child. Returns after how long the word told so, and whether the socket did before. */
static uint64_t kill_a_large_one(int *ret_is_late, uint64_t *ret_socket_ns, uint64_t *ret_gone_ns)
{
	struct pollfd end = { .events = POLLIN };
	uint64_t begin, told;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	alive_rig_open(&rig, 1);
	alive_rig_fork(&rig, hold_with_a_gigabyte);
	close(ends[1]);
	end.fd = ends[0];
	usleep(20000);
	begin = cei_now_ns();
	ck_assert_int_eq(kill(rig.child, SIGKILL), 0);
	ck_assert_int_eq(alive_rig_end(&rig, 0), CEI_ALIVE_DIED);
	told = cei_now_ns() - begin;
	*ret_is_late = poll(&end, 1, 0) == 1;
	ck_assert_int_eq(poll(&end, 1, 60000), 1);
	*ret_socket_ns = cei_now_ns() - begin;
	alive_rig_kill(&rig);
	*ret_gone_ns = cei_now_ns() - begin;
	close(ends[0]);
	alive_rig_close(&rig);
	return told;
}

START_TEST(test_a_death_with_much_memory_is_told_at_once)
{
	uint64_t told[N_ROUNDS], socket[N_ROUNDS], gone[N_ROUNDS];
	int i, is_late, n_late = 0;

	if (available() < 3 * GIB) {
		printf("not tested: deaths with 1 GiB: less than 3 GiB of memory are available\n");
		return;
	}
	for (i = 0; i < N_ROUNDS; i++) {
		told[i] = kill_a_large_one(&is_late, &socket[i], &gone[i]);
		n_late += is_late;
	}
	qsort(told, N_ROUNDS, sizeof(told[0]), compare_times);
	qsort(socket, N_ROUNDS, sizeof(socket[0]), compare_times);
	qsort(gone, N_ROUNDS, sizeof(gone[0]), compare_times);
	printf("killed with 1 GiB, %d times: the word after %.2f ms (median; worst %.2f), the "
	       "socket after %.2f (%.2f), the process gone after %.2f (%.2f)\n", N_ROUNDS,
	       ms(told[N_ROUNDS / 2]), ms(told[N_ROUNDS - 1]), ms(socket[N_ROUNDS / 2]),
	       ms(socket[N_ROUNDS - 1]), ms(gone[N_ROUNDS / 2]), ms(gone[N_ROUNDS - 1]));
	/* Half of the rounds, because other work may keep the dying thread from its processor. */
	ck_assert_uint_lt(told[N_ROUNDS / 2], TESTING_SECOND);
	ck_assert_int_lt(n_late, N_ROUNDS / 2);
}
END_TEST

/* --- at random moments --------------------------------------------------- */

/* What the child does with an area; told before a call and after it. */
enum step { STEP_FREE, STEP_TAKING, STEP_HELD, STEP_LEAVING };

struct looper {
	struct alive_rig *of;
	struct cei_alive *alive;
	uint32_t          first;        /* of its areas, of which it has half of N_LOOPED */
	uint64_t          state;        /* of random numbers */
};

static void say(struct alive_rig *of, uint32_t i, enum step step)
{
	atomic_store(&of->shared->step[i], step);
}

static void *loop(void *arg)
{
	struct looper *looper = arg;
	struct alive_rig *of = looper->of;
	struct cei_alive_area areas[N_LOOPED / 2] = { { 0 } };
	uint32_t k, i;

	for (;;) {
		k = (uint32_t)testing_below(&looper->state, N_LOOPED / 2);
		i = looper->first + k;
		if (!areas[k].memory) {
			say(of, i, STEP_TAKING);
			alive_rig_hold(of, looper->alive, i, &areas[k]);
			say(of, i, STEP_HELD);
		} else {
			say(of, i, STEP_LEAVING);
			cei_alive_unmap(&areas[k]);
			say(of, i, STEP_FREE);
		}
	}
	return NULL;
}

static uint64_t seed_of_round;

/* Holds the last area all the time, and the others now and then. */
static void hold_in_a_loop(struct alive_rig *of)
{
	static struct looper loopers[2];
	static struct cei_alive_area always;
	struct cei_alive *alive = alive_rig_holder(of);
	pthread_t thread;
	uint32_t i;

	alive_rig_hold(of, alive, N_LOOPED, &always);
	say(of, N_LOOPED, STEP_HELD);
	for (i = 0; i < 2; i++)
		loopers[i] = (struct looper){ of, alive, i * N_LOOPED / 2, seed_of_round + i };
	alive_rig_must(!pthread_create(&thread, NULL, loop, &loopers[0]), "pthread_create");
	alive_rig_set(&of->shared->is_ready);
	loop(&loopers[1]);
}

/* Asserts that a dead process's area says so if it was held. Counts what was seen. */
static void assert_told(uint32_t i, uint32_t *n_died)
{
	const enum step step = atomic_load(&rig.shared->step[i]);
	const enum cei_alive_state state = alive_rig_state(&rig, i);

	ck_assert_msg(state != CEI_ALIVE, "area %u, step %d", i, step);
	ck_assert_msg(step != STEP_HELD || state == CEI_ALIVE_DIED, "area %u is lost", i);
	ck_assert_msg(step != STEP_FREE || state == CEI_ALIVE_ENDED, "area %u", i);
	*n_died += state == CEI_ALIVE_DIED;
}

START_TEST(test_a_kill_at_any_moment_loses_no_word)
{
	uint64_t state = testing_seed();
	uint32_t i, k, n_died = 0;

	for (i = 0; i < N_KILLS; i++) {
		seed_of_round = testing_random(&state);
		alive_rig_open(&rig, N_LOOPED + 1);
		alive_rig_fork(&rig, hold_in_a_loop);
		usleep((useconds_t)testing_below(&state, 3000));
		alive_rig_kill(&rig);
		for (k = 0; k <= N_LOOPED; k++)
			assert_told(k, &n_died);
		ck_assert_int_eq(alive_rig_state(&rig, N_LOOPED), CEI_ALIVE_DIED);
		alive_rig_close(&rig);
	}
	printf("%d kills at random moments: %u words said that their holder had died\n", N_KILLS,
	       n_died);
}
END_TEST

/* --- between any two instructions ---------------------------------------- */

/* Holds area 0 all the time. Told to go on, it takes area 1 and lets go of it. */
static void take_and_leave_when_told(struct alive_rig *of)
{
	static struct cei_alive_area always, now_and_then;
	struct cei_alive *alive = alive_rig_holder(of);

	alive_rig_hold(of, alive, 0, &always);
	alive_rig_must(!cei_alive_map(&of->report, of->fds[1], ALIVE_RIG_BYTES,
				      PROT_READ | PROT_WRITE, &now_and_then), "map");
	alive_rig_set(&of->shared->is_ready);
	alive_rig_await(&of->shared->go);
	say(of, 1, STEP_TAKING);
	alive_rig_must(!cei_alive_hold(alive, &now_and_then), "hold");
	say(of, 1, STEP_HELD);
	say(of, 1, STEP_LEAVING);
	alive_rig_must(!cei_alive_let_go(alive, &now_and_then), "let go");
	say(of, 1, STEP_FREE);
	alive_rig_set(&of->shared->step[2]);
}

/* Stops the holder's thread, whose id is in the word. Returns it, or 0 where tracing is not
 * permitted. */
static pid_t trace_holder(long options)
{
	const pid_t tid = (pid_t)(atomic_load(cei_alive_word(&rig.seen[0])) & FUTEX_TID_MASK);
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, options)) {
		printf("not tested: a traced holder: %s\n", strerror(errno));
		return 0;
	}
	ck_assert_int_eq((int)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL), 0);
	ck_assert_int_eq(waitpid(tid, &status, __WALL), tid);
	ck_assert(WIFSTOPPED(status));
	return tid;
}

/* Lets the thread carry out so many instructions, or until it has let go. Returns how many. */
static uint64_t make_steps(pid_t tid, uint64_t n_steps)
{
	uint64_t i;
	int status;

	for (i = 0; i < n_steps && !atomic_load(&rig.shared->step[2]); i++) {
		ck_assert_int_eq((int)ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL), 0);
		/* In a system call that sleeps, the thread makes no step until it is woken. */
		while (waitpid(tid, &status, __WALL | WNOHANG) == 0)
			if (atomic_load(&rig.shared->step[2]))
				return i;
		ck_assert_msg(WIFSTOPPED(status), "0x%x", status);
	}
	return i;
}

/* Kills the child after so many instructions of the holder's thread. Returns how many it made, or
 * 0 where tracing is not permitted. */
static uint64_t kill_after(uint64_t n_steps, uint32_t *n_died)
{
	uint64_t n_made = 0;
	pid_t tid;

	alive_rig_open(&rig, 3);
	say(&rig, 0, STEP_HELD);
	alive_rig_fork(&rig, take_and_leave_when_told);
	tid = trace_holder(0);
	if (tid) {
		alive_rig_set(&rig.shared->go);
		while (atomic_load(&rig.shared->step[1]) == STEP_FREE)
			sched_yield();
		n_made = make_steps(tid, n_steps);
		kill(rig.child, SIGKILL);
		waitpid(tid, NULL, __WALL);
		alive_rig_kill(&rig);
		assert_told(0, n_died);
		assert_told(1, n_died);
	}
	alive_rig_close(&rig);
	return n_made;
}

/* The kills are spread, as there may be no time for all on a machine that does other work, too. */
START_TEST(test_a_kill_between_any_two_instructions_loses_no_word)
{
	const uint64_t deadline = cei_deadline(30 * TESTING_SECOND), stride = 7919;
	uint32_t n_died = 0;
	uint64_t i, n_made = kill_after(UINT64_MAX, &n_died);

	if (!n_made)
		return;
	n_died = 0;
	for (i = 0; i < n_made && cei_now_ns() < deadline; i++)
		kill_after(i * stride % n_made, &n_died);
	printf("a word is taken and let go in %llu instructions; %llu kills between them: "
	       "%u words said that their holder had died\n", (unsigned long long)n_made,
	       (unsigned long long)i, n_died);
	ck_assert_uint_ge(n_died, i);
}
END_TEST

/* --- private memory is taken away ---------------------------------------- */

static void hold_both(struct alive_rig *of)
{
	static struct cei_alive_area areas[2];
	struct cei_alive *alive = alive_rig_holder(of);

	alive_rig_hold(of, alive, 0, &areas[0]);
	alive_rig_hold(of, alive, 1, &areas[1]);
}

/* What the OOM reaper does, and what daemons do that end processes before memory lacks: when the
 * process is killed, its private pages go before its threads have ended. */
START_TEST(test_the_list_outlives_private_memory)
{
	int status, pidfd, r;
	pid_t tid;

	alive_rig_open(&rig, 2);
	alive_rig_fork(&rig, hold_both);
	pidfd = (int)syscall(SYS_pidfd_open, rig.child, 0);
	ck_assert_int_ge(pidfd, 0);
	tid = trace_holder(PTRACE_O_TRACEEXIT);
	if (tid) {
		ck_assert_int_eq(kill(rig.child, SIGKILL), 0);
		ck_assert_int_eq(waitpid(tid, &status, __WALL), tid);
		ck_assert_int_eq(status >> 8, SIGTRAP | PTRACE_EVENT_EXIT << 8);
		r = (int)syscall(SYS_process_mrelease, pidfd, 0);
		if (r)
			printf("not tested: process_mrelease: %s\n", strerror(errno));
		ck_assert_int_eq((int)ptrace(PTRACE_CONT, tid, NULL, NULL), 0);
		waitpid(tid, NULL, __WALL);
		ck_assert_int_eq(waitpid(rig.child, NULL, __WALL), rig.child);
		rig.child = 0;
		ck_assert_int_eq(alive_rig_state(&rig, 0), CEI_ALIVE_DIED);
		ck_assert_int_eq(alive_rig_state(&rig, 1), CEI_ALIVE_DIED);
	}
	close(pidfd);
	alive_rig_close(&rig);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("alive_kills");
	TCase *tcase = tcase_create("alive_kills");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, test_a_death_with_much_memory_is_told_at_once);
	tcase_add_test(tcase, test_a_kill_at_any_moment_loses_no_word);
#ifndef __SANITIZE_THREAD__     /* it makes each instruction many, and there is one thread */
	tcase_add_test(tcase, test_a_kill_between_any_two_instructions_loses_no_word);
#else
	(void)test_a_kill_between_any_two_instructions_loses_no_word;
#endif
	tcase_add_test(tcase, test_the_list_outlives_private_memory);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
