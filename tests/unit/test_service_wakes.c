/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the rings of a daemon's clients between threads and between processes: an engine that
 * sleeps on its bell, threads that sleep on results, and daemons that come and go meanwhile. */

#include "ipc/service_ring.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"
#include "unit/service_rig.h"

#define N_ROUNDS         20000u         /* an engine dozes in each */
#define N_PROCESS_ROUNDS 20000u
#define N_THREADS        4u
#define N_DAEMONS        40u
#define N_MEETINGS       20000u         /* of a launch and an engine that falls asleep, ... */
#define MEETING_NS       (10 * TESTING_SECOND)  /* ... or fewer, where others keep them apart */
#define LAST_SLOT        UINT32_MAX     /* of the launch behind which an engine ends */

static struct service_rig rig;
static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
	service_rig_init(&rig);
	service_rig_attach(&rig, 1);
}

static void tear_down(void)
{
	service_rig_fini(&rig);
}

static pthread_t start(void *(*function)(void *), void *arg)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, function, arg), 0);
	return thread;
}

/* --- engines ------------------------------------------------------------------------ */

struct engine {
	struct cei_service_reader      reader;
	struct cei_service_up         *up;
	const struct cei_service_down *down;
	int                            bell;
	uint64_t                       n_sleeps;        /* how often it saw an empty ring twice */
	uint64_t                       state;           /* of random pauses */
	const char                    *error;           /* NULL: none */
};

static struct engine engine_of(uint32_t ring)
{
	struct engine engine = { rig.readers[ring], rig.up, rig.down, rig.bells[ring], 0, state,
				 NULL };

	return engine;
}

/* Sleeps until the bell rings; 0, or an error: somebody launched without ringing it. */
static int sleep_on_bell(struct engine *engine)
{
	struct pollfd poll_fd = { engine->bell, POLLIN, 0 };
	uint64_t count;
	int r;

	engine->n_sleeps++;
	do
		r = poll(&poll_fd, 1, (int)(TESTING_PATIENCE / TESTING_MS));
	while (r < 0 && errno == EINTR);
	if (r == 1 && read(engine->bell, &count, sizeof(count)) == sizeof(count))
		return 0;
	engine->error = "the bell was not rung";
	return -1;
}

/* For up to a microsecond or two, so that now and then an engine dozes while a client launches. */
static void pause_shortly(uint64_t *random)
{
	uint64_t n_spins;

	for (n_spins = testing_below(random, 60); n_spins; n_spins--)
		cei_relax();
}

/* Takes and ends launches, with their slots as results, and sleeps whenever there is none. */
static void *run_engine(void *arg)
{
	struct engine *engine = arg;
	struct cei_service_launch launch;
	int r, is_dozing = 0;

	for (;;) {
		r = cei_service_take(&engine->reader, &launch);
		if (r == CEOV_NONE && is_dozing && sleep_on_bell(engine))
			return NULL;
		if (r == CEOV_NONE || is_dozing) {
			is_dozing = !is_dozing;
			pause_shortly(&engine->state);
			cei_service_doze(&engine->reader, is_dozing);
		}
		if (r == CEOV_NONE)
			continue;
		if (r) {
			engine->error = "an entry is not valid";
			return NULL;
		}
		cei_service_took(&engine->reader);
		cei_service_end(engine->up, engine->down, launch.number,
				launch.slot == LAST_SLOT ? 0 : -(int)launch.slot);
		if (launch.slot == LAST_SLOT)
			return NULL;
	}
}

/* Returns whether it ended as it should. Check's own asserts take longer than the engine needs to
 * fall asleep, and are left to the caller. */
static int launch_and_wait(struct cei_service_launcher *launcher, uint32_t slot)
{
	struct cei_service_launch launch = { .slot = slot };
	int result = 1;

	return !cei_service_put(launcher, 0, &launch) &&
		!cei_service_wait(launcher, launch.number, TESTING_PATIENCE, &result) &&
		result == (slot == LAST_SLOT ? 0 : -(int)slot);
}

/* One launch at a time. */
static void launch_again_and_again(struct cei_service_launcher *launcher, uint32_t n_rounds)
{
	uint32_t i;

	for (i = 0; i < n_rounds && launch_and_wait(launcher, i % 15); i++)
		pause_shortly(&state);
	ck_assert_uint_eq(i, n_rounds);
	ck_assert(launch_and_wait(launcher, LAST_SLOT));
}

START_TEST(test_an_engine_that_dozes_is_not_slept_through)
{
	struct engine engine = engine_of(0);
	pthread_t thread = start(run_engine, &engine);

	launch_again_and_again(&rig.launcher, N_ROUNDS);
	pthread_join(thread, NULL);
	ck_assert_ptr_null(engine.error);
	printf("the engine slept %llu times\n", (unsigned long long)engine.n_sleeps);
	ck_assert_uint_gt(engine.n_sleeps, N_ROUNDS / 100);
}
END_TEST

/* A launch and an engine that falls asleep can miss each other for a few dozen nanoseconds. Both
 * begin each round together, so that they often meet, also where others leave them little time. */
struct meeting {
	_Atomic uint32_t n_arrived;     /* of both, in all rounds; odd: one waits for the other */
	_Atomic uint32_t must_end;
	uint64_t         state;         /* of random pauses of the engine's */
	uint32_t         n_missed;      /* rounds in which neither noticed the other */
};

/* For less than a microsecond, in steps of a nanosecond: so either of the two may be the first. */
static void pause_finely(uint64_t *random)
{
	uint64_t n;

	for (n = testing_below(random, 512); n; n--)
		atomic_signal_fence(memory_order_seq_cst);
}

/* Waits until both have come so often. Returns whether that was soon. */
static int meet(struct meeting *meeting, uint32_t n)
{
	uint32_t n_spins;

	atomic_fetch_add(&meeting->n_arrived, 1);
	for (n_spins = 0; atomic_load(&meeting->n_arrived) < n; n_spins++)
		if (n_spins % 1000 == 999)
			sched_yield();
	return n_spins < 1000;
}

/* Falls asleep while the other thread launches. The launch must be seen, or the bell be rung. */
static void *fall_asleep(void *arg)
{
	struct cei_service_reader reader = rig.readers[0];
	struct cei_service_launch launch;
	struct meeting *meeting = arg;
	uint32_t n = 0;
	int is_seen;

	for (;;) {
		meet(meeting, n += 2);
		if (atomic_load(&meeting->must_end))
			return NULL;
		pause_finely(&meeting->state);
		cei_service_doze(&reader, 1);
		is_seen = !cei_service_take(&reader, &launch);
		meet(meeting, n += 2);
		meeting->n_missed += !service_bell_count(rig.bells[0]) && !is_seen;
		if (!is_seen)
			(void)cei_service_take(&reader, &launch);
		cei_service_took(&reader);
		service_rig_end(&rig, launch.number, 0);
		cei_service_doze(&reader, 0);
	}
}

START_TEST(test_a_launch_and_an_engine_that_falls_asleep_notice_each_other)
{
	struct meeting meeting = { .state = testing_seed() + 1 };
	uint64_t end_ns = cei_deadline(MEETING_NS);
	pthread_t thread = start(fall_asleep, &meeting);
	struct cei_service_launch launch = { 0 };
	uint32_t n = 0, n_close = 0;
	int r = 0, is_close;

	while (!r && n_close < N_MEETINGS && cei_now_ns() < end_ns) {
		is_close = meet(&meeting, n += 2);
		pause_finely(&state);
		r = cei_service_put(&rig.launcher, 0, &launch);
		n_close += meet(&meeting, n += 2) && is_close;
	}
	atomic_store(&meeting.must_end, 1);
	meet(&meeting, n += 2);
	pthread_join(thread, NULL);
	printf("%u rounds missed, in %u both ran at once\n", meeting.n_missed, n_close);
	ck_assert_int_eq(r, 0);
	ck_assert_uint_eq(meeting.n_missed, 0);
}
END_TEST

/* --- processes ---------------------------------------------------------------------- */

/* Maps a file of the client and of the daemon; the client's process only reads what is UP. */
static void *map(int fd, size_t n_bytes, int protection)
{
	void *area = mmap(NULL, n_bytes, protection, MAP_SHARED, fd, 0);

	ck_assert_ptr_ne(area, MAP_FAILED);
	return area;
}

static int memory_file(size_t n_bytes)
{
	int fd = memfd_create("service", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)n_bytes), 0);
	return fd;
}

/* The daemon's process. */
static _Noreturn void be_engine(int down_fd, int up_fd, int bell)
{
	struct engine engine = { .bell = bell };

	engine.down = map(down_fd, cei_service_down_bytes(1), PROT_READ);
	engine.up = map(up_fd, sizeof(*engine.up), PROT_READ | PROT_WRITE);
	engine.reader = service_reader(engine.down, engine.up, 0);
	run_engine(&engine);
	_exit(engine.error ? EXIT_FAILURE : EXIT_SUCCESS);
}

START_TEST(test_processes)
{
	int down_fd = memory_file(cei_service_down_bytes(1)), status;
	int up_fd = memory_file(sizeof(struct cei_service_up));
	int bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct cei_service_areas areas = { .n_rings = 1, .bells = &bell };
	pid_t child;

	service_rig_detach(&rig);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		be_engine(down_fd, up_fd, bell);
	areas.down = map(down_fd, cei_service_down_bytes(1), PROT_READ | PROT_WRITE);
	areas.up = map(up_fd, sizeof(*areas.up), PROT_READ);
	cei_service_launcher_attach(&rig.launcher, &areas);
	launch_again_and_again(&rig.launcher, N_PROCESS_ROUNDS);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	cei_service_launcher_detach(&rig.launcher);
	munmap(areas.down, cei_service_down_bytes(1));
	munmap((void *)areas.up, sizeof(*areas.up));
	close(down_fd);
	close(up_fd);
	close(bell);
}
END_TEST

/* --- threads that wait -------------------------------------------------------------- */

struct waiter {
	pthread_t thread;
	uint64_t  number;
	uint64_t  timeout_ns;
	int       r;
	int       result;
};

static void *wait_once(void *arg)
{
	struct waiter *own = arg;

	own->r = cei_service_wait(&rig.launcher, own->number, own->timeout_ns, &own->result);
	return NULL;
}

static void start_waiters(struct waiter *waiters, uint64_t number)
{
	uint32_t i;

	for (i = 0; i < N_THREADS; i++) {
		waiters[i] = (struct waiter){ .number = number, .timeout_ns = CEI_FOREVER };
		waiters[i].thread = start(wait_once, &waiters[i]);
	}
}

static void join_waiters(struct waiter *waiters, int result)
{
	uint32_t i;

	for (i = 0; i < N_THREADS; i++) {
		pthread_join(waiters[i].thread, NULL);
		ck_assert_int_eq(waiters[i].r, 0);
		ck_assert_int_eq(waiters[i].result, result);
	}
	ck_assert_uint_eq(atomic_load(&rig.launcher.n_waiting), 0);
}

/* Returns when all of them sleep on the word. */
static void await_sleepers(void)
{
	while (atomic_load(&rig.down->n_waiters) < N_THREADS)
		usleep(100);
}

START_TEST(test_all_who_sleep_are_woken)
{
	struct waiter waiters[N_THREADS];
	uint64_t number;
	uint32_t i;

	for (i = 0; i < 20; i++) {
		number = service_rig_put(&rig, 0);
		start_waiters(waiters, number);
		await_sleepers();
		usleep((useconds_t)testing_below(&state, 2000));
		service_rig_end(&rig, service_rig_take(&rig, 0), CEOV_ERR_TIMEOUT);
		join_waiters(waiters, CEOV_ERR_TIMEOUT);
		ck_assert_uint_eq(atomic_load(&rig.down->n_waiters), 0);
	}
}
END_TEST

/* Sleeps on the result of launch 1 as cei_service_wait() does, but looks again only when woken. */
static void *sleep_without_naps(void *arg)
{
	const _Atomic uint64_t *done = &rig.up->done[1];
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int *is_woken = arg;

	atomic_fetch_add(&rig.down->n_waiters, N_THREADS);
	while (!atomic_load(done) && cei_now_ns() < deadline)
		cei_futex_wait_shared((const _Atomic uint32_t *)done, 0, deadline);
	*is_woken = cei_now_ns() < deadline;
	atomic_fetch_sub(&rig.down->n_waiters, N_THREADS);
	return NULL;
}

START_TEST(test_an_end_wakes_who_sleeps)
{
	int is_woken = 0;
	pthread_t thread;

	ck_assert_uint_eq(service_rig_put(&rig, 0), 1);
	thread = start(sleep_without_naps, &is_woken);
	await_sleepers();
	usleep(20000);                          /* until it sleeps, mostly */
	service_rig_end(&rig, service_rig_take(&rig, 0), 0);
	pthread_join(thread, NULL);
	ck_assert(is_woken);
}
END_TEST

START_TEST(test_who_spins_is_answered)
{
	struct waiter waiters[N_THREADS];
	uint32_t i;

	for (i = 0; i < 100; i++) {
		start_waiters(waiters, service_rig_put(&rig, 0));
		service_rig_end(&rig, service_rig_take(&rig, 0), 0);
		join_waiters(waiters, 0);
	}
}
END_TEST

START_TEST(test_a_loss_ends_all_waits)
{
	struct waiter waiters[N_THREADS];
	uint32_t i;

	for (i = 0; i < 20; i++) {
		start_waiters(waiters, service_rig_put(&rig, 0));
		if (i % 2)
			await_sleepers();
		cei_service_launcher_lose(&rig.launcher);
		join_waiters(waiters, CEOV_ERR_DAEMON_LOST);
		service_rig_detach(&rig);
		service_rig_attach(&rig, 1);
	}
}
END_TEST

/* --- daemons come and go ------------------------------------------------------------ */

struct client {
	pthread_t    thread;
	_Atomic int *must_end;
	uint64_t     state;
	uint64_t     n_ended;
	uint64_t     n_lost;
	const char  *error;
};

/* Counts a result; returns whether it is no possible one. */
static int is_wrong(struct client *own, int r, int result)
{
	own->n_ended += !r && !result;
	own->n_lost += !r && result == CEOV_ERR_DAEMON_LOST;
	return r ? r != CEOV_NONE : result && result != CEOV_ERR_DAEMON_LOST;
}

/* Launches and waits, whatever happens to the daemon; and asks for older launches. */
static void *be_client(void *arg)
{
	struct client *own = arg;
	struct cei_service_launch launch = { 0 };
	int r, result;

	while (!atomic_load(own->must_end) && !own->error) {
		r = cei_service_put(&rig.launcher, 0, &launch);
		if (r == CEOV_FULL || r == CEOV_ERR_DAEMON_LOST) {
			usleep(100);
			continue;
		}
		result = CEOV_NONE;
		if (!r)
			r = cei_service_wait(&rig.launcher, launch.number, CEI_FOREVER, &result);
		if (is_wrong(own, r, result))
			own->error = "a launch has another result";
		r = cei_service_wait(&rig.launcher, 1 + testing_below(&own->state, launch.number),
				     TESTING_MS, &result);
		if (r == CEOV_ERR_INVALID)
			own->error = "an older launch is not known";
	}
	return NULL;
}

/* One daemon's life: some launches, and some that stay in flight. */
static void be_daemon(uint64_t n_launches)
{
	uint64_t deadline = cei_deadline(20 * TESTING_MS);
	struct cei_service_launch launch;

	while (n_launches && cei_now_ns() < deadline) {
		if (cei_service_take(&rig.readers[0], &launch)) {
			usleep(50);
			continue;
		}
		cei_service_took(&rig.readers[0]);
		service_rig_end(&rig, launch.number, 0);
		n_launches--;
	}
}

START_TEST(test_daemons_come_and_go)
{
	struct client clients[N_THREADS] = { { 0 } };
	uint64_t n_ended = 0, n_lost = 0;
	_Atomic int must_end = 0;
	uint32_t i;

	for (i = 0; i < N_THREADS; i++) {
		clients[i].must_end = &must_end;
		clients[i].state = testing_random(&state);
		clients[i].thread = start(be_client, &clients[i]);
	}
	for (i = 0; i < N_DAEMONS; i++) {
		be_daemon(testing_below(&state, 200));
		usleep((useconds_t)testing_below(&state, 5000));
		if (testing_below(&state, 2))
			cei_service_launcher_lose(&rig.launcher);
		service_rig_detach(&rig);
		usleep((useconds_t)testing_below(&state, 1000));
		if (i + 1 < N_DAEMONS)
			service_rig_attach(&rig, 1);
	}
	atomic_store(&must_end, 1);
	for (i = 0; i < N_THREADS; i++) {
		pthread_join(clients[i].thread, NULL);
		ck_assert_msg(!clients[i].error, "%s", clients[i].error);
		n_ended += clients[i].n_ended;
		n_lost += clients[i].n_lost;
	}
	printf("%llu launches ended, %llu were lost\n", (unsigned long long)n_ended,
	       (unsigned long long)n_lost);
	ck_assert(n_ended && n_lost);
}
END_TEST

/* --- who rewrites an entry while it is read ------------------------------------------ */

struct scribbler {
	_Atomic int must_end;
	uint64_t    state;
};

static void *scribble(void *arg)
{
	struct scribbler *own = arg;
	struct cei_service_entry *entry;

	while (!atomic_load_explicit(&own->must_end, memory_order_relaxed)) {
		entry = &rig.down->rings[0].entries[testing_below(&own->state, 4)];
		atomic_store(&entry->number, testing_random(&own->state) >>
			     testing_below(&own->state, 64));
		atomic_store(&entry->plan, testing_random(&own->state));
		atomic_store(&entry->zero[testing_below(&own->state, 3)],
			     !testing_below(&own->state, 4));
		atomic_store(&entry->turn, testing_below(&own->state, 6));
	}
	return NULL;
}

START_TEST(test_an_entry_is_rewritten_while_it_is_read)
{
	struct scribbler scribbler = { .state = testing_random(&state) };
	pthread_t thread = start(scribble, &scribbler);
	struct cei_service_launch launch;
	uint64_t n[3] = { 0 };
	uint32_t i;
	int r;

	for (i = 0; i < 2000000 && (!n[0] || !n[1] || !n[2] || i < 200000); i++) {
		r = cei_service_take(&rig.readers[0], &launch);
		ck_assert(!r || r == CEOV_NONE || r == CEOV_ERR_INVALID);
		n[r == CEOV_NONE ? 1 : r ? 2 : 0]++;
		if (r)
			continue;
		ck_assert(launch.number && launch.number < UINT64_C(1) << 56);
		service_rig_end(&rig, launch.number, 0);
		if (!testing_below(&state, 16))
			rig.readers[0].n_taken = testing_below(&state, 4);
	}
	atomic_store(&scribbler.must_end, 1);
	pthread_join(thread, NULL);
	printf("%llu taken, %llu none, %llu refused\n", (unsigned long long)n[0],
	       (unsigned long long)n[1], (unsigned long long)n[2]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("service_wakes");
	TCase *tcase = tcase_create("service_wakes");

	tcase_set_timeout(tcase, 100);
	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_an_engine_that_dozes_is_not_slept_through);
	tcase_add_test(tcase,
		       test_a_launch_and_an_engine_that_falls_asleep_notice_each_other);
	tcase_add_test(tcase, test_processes);
	tcase_add_test(tcase, test_all_who_sleep_are_woken);
	tcase_add_test(tcase, test_an_end_wakes_who_sleeps);
	tcase_add_test(tcase, test_who_spins_is_answered);
	tcase_add_test(tcase, test_a_loss_ends_all_waits);
	tcase_add_test(tcase, test_daemons_come_and_go);
	tcase_add_test(tcase, test_an_entry_is_rewritten_while_it_is_read);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
