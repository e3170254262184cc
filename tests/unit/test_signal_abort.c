/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests errors of aborted signals, whatever others write to the shared abort word, and raises that
 * meet an abort. */

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "backend/host.h"
#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/abort.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/signal.h"
#include "testing.h"
#include "loopback.h"

#define RANKS 3u

static struct testing_log log_of;
static ceov_context *context;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(RANKS, &log_of);
}

/* Opens a context without engine threads, because these tests replace functions of the backend. */
static void set_up_alone(void)
{
	testing_log_init(&log_of);
	context = testing_open_turned(RANKS, &log_of);
}

static void tear_down(void)
{
	ceov_close(context);
}

/* --- the abort word ------------------------------------------------------ */

START_TEST(test_each_error_and_rank_is_told)
{
	ceov_signal *signal = testing_signal(context, 0, 1);
	uint32_t rank, seen;
	int error;

	ck_assert_int_eq(cei_signal_blame(signal, &seen), 0);
	ck_assert_uint_eq(seen, CEOV_NOBODY);
	for (error = CEOV_ERR_INVALID; error >= CEI_ERROR_LOWEST; error--) {
		for (rank = 0; rank <= RANKS; rank++) {
			cei_signal_raise_abort(signal, error,
					       rank < RANKS ? rank : CEOV_NOBODY);
			cei_signal_raise_abort(signal, CEOV_ERR_ABORTED, 0);
			ck_assert_int_eq(cei_signal_blame(signal, &seen), error);
			ck_assert_uint_eq(seen, rank < RANKS ? rank : CEOV_NOBODY);
			ck_assert_int_eq(cei_signal_aborted(signal), error);
			ck_assert_int_eq(ceov_signal_renew(signal), 0);
		}
	}
}
END_TEST

START_TEST(test_a_word_that_nobody_of_ours_wrote_is_an_abort)
{
	static const uint32_t words[] = { UINT32_MAX, UINT32_MAX - 1, UINT32_C(1) << 31,
					  1 - CEI_ERROR_LOWEST,
					  255, 256, 0x800, (RANKS + 1) << 8 | 8 };
	ceov_signal *signal = testing_signal(context, 0, 1);
	uint64_t random = testing_seed();
	uint32_t i, word, rank;
	int error;

	for (i = 0; i < 100000; i++) {
		word = i < 8 ? words[i] : (uint32_t)testing_random(&random);
		atomic_store(&cei_signal_header(signal)->abort_code, word);
		error = cei_signal_blame(signal, &rank);
		if (i < 8)
			ck_assert_int_eq(error, CEOV_ERR_ABORTED);
		ck_assert(!word == !error);
		ck_assert(error <= 0 && error >= CEI_ERROR_LOWEST);
		ck_assert(rank < RANKS || rank == CEOV_NOBODY);
	}
}
END_TEST

START_TEST(test_strange_words_end_launches_and_waits)
{
	ceov_ticket ticket;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	atomic_store(&cei_signal_header(loop.ready)->abort_code, UINT32_MAX);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 1, 0), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_raise(loop.ready, 0, 1), CEOV_ERR_ABORTED);
	ck_assert_int_eq(loopback_try(&loop, 0, POLLED, NULL), CEOV_ERR_ABORTED);
	loopback_close(&loop);
}
END_TEST

/* What a sharer of a signal may write to its abort word, and the error that waits end with. */
struct hostile_word {
	uint32_t word;
	int      error;
};

static const struct hostile_word hostile_words[] = {
	{ UINT32_MAX, CEOV_ERR_ABORTED },               /* as if -CEOV_PENDING had been an error */
	{ (uint32_t)-CEOV_FULL, CEOV_ERR_ABORTED },
	{ (uint32_t)-CEOV_NONE, CEOV_ERR_ABORTED },
	{ CEOV_PENDING, CEOV_ERR_INVALID },             /* words hold negated errors */
	{ CEOV_FULL, CEOV_ERR_STATE },
	{ CEOV_NONE, CEOV_ERR_NO_MEMORY },
	{ (uint32_t)CEOV_ERR_ABORTED, CEOV_ERR_ABORTED },
	{ (uint32_t)CEI_ERROR_LOWEST, CEOV_ERR_ABORTED },
	{ UINT32_C(1) << 31, CEOV_ERR_ABORTED },        /* INT_MIN */
	{ INT32_MAX, CEOV_ERR_ABORTED },
	{ 1 - CEI_ERROR_LOWEST, CEOV_ERR_ABORTED },   /* one beyond the last error */
	{ UINT32_C(1) << 8, CEOV_ERR_ABORTED },         /* a rank to blame, but no error */
};

#define N_HOSTILE (sizeof(hostile_words) / sizeof(hostile_words[0]))

/* Waits end at once or at their deadline; this only keeps a test that fails from hanging. */
#define LONG_NS UINT64_C(30000000000)

/* A process that shares a signal, played by a thread: it writes while others wait. */
struct sharer {
	ceov_signal *signal;
	uint32_t     word;
	uint64_t     seed;
	atomic_int   must_stop;
};

static void *write_word(void *arg)
{
	struct sharer *sharer = arg;
	uint64_t until = cei_deadline(UINT64_C(1000000));

	while (cei_now_ns() < until)
		sched_yield();
	atomic_store(&cei_signal_header(sharer->signal)->abort_code, sharer->word);
	return NULL;
}

static void *rewrite_word(void *arg)
{
	struct sharer *sharer = arg;
	_Atomic uint32_t *word = &cei_signal_header(sharer->signal)->abort_code;

	while (!atomic_load(&sharer->must_stop)) {
		atomic_store(word, hostile_words[testing_below(&sharer->seed, N_HOSTILE)].word);
		atomic_store(word, (uint32_t)testing_random(&sharer->seed));
		atomic_store(word, 0);
		sched_yield();
	}
	return NULL;
}

static void renew_all(struct loopback *loop)
{
	ck_assert_int_eq(ceov_signal_renew(loop->ready), 0);
	ck_assert_int_eq(ceov_signal_renew(loop->free), 0);
	ck_assert_int_eq(ceov_signal_renew(loop->arrived), 0);
}

/* The word is written while one thread waits for a counter of the signal, and an engine or a lane
 * for the launch's marks. No raise comes: nothing but the word can end them. */
static void a_word_ends_waits(struct loopback *loop, const struct hostile_word *hostile,
			      enum loopback_gate gate)
{
	struct sharer sharer = { .signal = loop->ready, .word = hostile->word };
	ceov_ticket ticket = loopback_launch(loop, 0, gate);
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, write_word, &sharer), 0);
	ck_assert_int_eq(ceov_signal_wait(loop->ready, 0, 1, LONG_NS), hostile->error);
	ck_assert_int_eq(ceov_wait(loop->context, ticket, LONG_NS), hostile->error);
	ck_assert_int_eq(ceov_wait(loop->context, ticket, 0), hostile->error);
	ck_assert_int_eq(ceov_abort(loop->context, ticket), CEOV_NONE);
	/* the abort has spread to the plan's other signals */
	ck_assert_int_eq(ceov_signal_wait(loop->arrived, 0, 1, LONG_NS), hostile->error);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	renew_all(loop);
}

START_TEST(test_each_hostile_word_ends_waits_that_are_under_way)
{
	struct loopback loop;
	size_t i;

	loopback_open(&loop, 1, 0);
	for (i = 0; i < N_HOSTILE; i++) {
		a_word_ends_waits(&loop, &hostile_words[i], POLLED);
		a_word_ends_waits(&loop, &hostile_words[i], GATED);
	}
	loopback_close(&loop);
}
END_TEST

/* A word of 0 is no abort, also where somebody writes it. */
START_TEST(test_a_word_of_zero_ends_nothing)
{
	ceov_ticket ticket;
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	atomic_store(&cei_signal_header(loop.ready)->abort_code, 0);
	ck_assert_int_eq(ceov_signal_wait(loop.ready, 0, 1, UINT64_C(2000000)), CEOV_PENDING);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_PENDING);
	loopback_ready(&loop, 1);
	ck_assert_int_eq(ceov_wait(loop.context, ticket, LONG_NS), 0);
	loopback_close(&loop);
}
END_TEST

/* The sharer goes on writing, 0 included, while the engine reads the word again and again. */
START_TEST(test_a_word_that_changes_all_the_time_ends_launches)
{
	struct sharer sharer = { .seed = testing_seed() };
	struct loopback loop;
	ceov_ticket ticket;
	pthread_t thread;
	int i, r;

	loopback_open(&loop, 1, 0);
	sharer.signal = loop.ready;
	for (i = 0; i < 50; i++) {
		ticket = loopback_launch(&loop, 0, POLLED);
		atomic_store(&sharer.must_stop, 0);
		ck_assert_int_eq(pthread_create(&thread, NULL, rewrite_word, &sharer), 0);
		r = ceov_wait(loop.context, ticket, LONG_NS);
		atomic_store(&sharer.must_stop, 1);
		ck_assert_int_eq(pthread_join(thread, NULL), 0);
		ck_assert_int_lt(r, 0);
		ck_assert_int_ge(r, CEI_ERROR_LOWEST);
		renew_all(&loop);
	}
	loopback_close(&loop);
}
END_TEST

/* --- the rank that is blamed ---------------------------------------------- */

static void blames(struct loopback *loop, uint32_t rank)
{
	struct ceov_failure failure = testing_failure(loop->context);

	ck_assert_int_eq(failure.error, CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(failure.rank, rank);
	ck_assert_ptr_nonnull(strstr(failure.text, "to blame: rank 1"));
}

START_TEST(test_a_launch_that_is_refused_names_who_is_to_blame)
{
	struct loopback loop;

	loopback_open(&loop, 1, 0);
	cei_abort_unlocked(&loop.free, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(loopback_try(&loop, 0, POLLED, NULL), CEOV_ERR_PEER_LOST);
	blames(&loop, 1);
	loopback_close(&loop);
}
END_TEST

/* One signal of a plan is aborted; afterwards all its signals report the same error and
 * rank. */
START_TEST(test_an_abort_that_spreads_blames_the_same_rank)
{
	ceov_ticket ticket;
	struct loopback loop;
	uint32_t rank;

	loopback_open(&loop, 1, 0);
	ticket = loopback_launch(&loop, 0, POLLED);
	cei_abort_unlocked(&loop.free, 1, CEOV_ERR_PEER_LOST, 1);
	ck_assert_int_eq(loopback_wait(&loop, ticket), CEOV_ERR_PEER_LOST);
	blames(&loop, 1);
	ck_assert_int_eq(cei_signal_blame(loop.ready, &rank), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(rank, 1);
	ck_assert_int_eq(cei_signal_blame(loop.arrived, &rank), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(rank, 1);
	loopback_close(&loop);
}
END_TEST

/* The copy succeeds although an abort came meanwhile, which is found only when the launch
 * ends. */
START_TEST(test_an_abort_found_at_the_end_blames_the_same_rank)
{
	ceov_ticket ticket;
	struct loopback loop;
	uint32_t rank;

	loopback_open_turned(&loop, 1, 0);
	loopback_ready(&loop, 1);
	ticket = loopback_launch(&loop, 0, GATED);
	while (!atomic_load(cei_signal_word(loop.arrived, 0)))
		ck_assert_int_ge(ceov_turn(loop.context), 0);
	if (ceov_wait(loop.context, ticket, 0) == CEOV_PENDING) {
		cei_abort_unlocked(&loop.free, 1, CEOV_ERR_PEER_LOST, 1);
		while (ceov_turn(loop.context) == CEOV_PENDING)
			;
		ck_assert_int_eq(ceov_wait(loop.context, ticket, 0), CEOV_ERR_PEER_LOST);
		ck_assert_int_eq(cei_signal_blame(loop.ready, &rank), CEOV_ERR_PEER_LOST);
		ck_assert_uint_eq(rank, 1);
	}
	loopback_close(&loop);
}
END_TEST

/* A peer was lost, and the context closes before an engine has noticed. */
START_TEST(test_closing_does_not_take_the_blame)
{
	struct loopback loop;

	loopback_open_turned(&loop, 1, 0);
	loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(ceov_turn(loop.context), CEOV_PENDING);
	cei_abort_unlocked(&loop.free, 1, CEOV_ERR_PEER_LOST, 1);
	loopback_close(&loop);
	testing_log_has(&loop.log, "a peer was lost (to blame: rank 1)", NULL, NULL);
}
END_TEST

/* --- raises that meet an abort -------------------------------------------- */

/* The abort comes between a raise's check of the abort word and its check of the counter. */
START_TEST(test_a_poisoned_counter_is_no_wrong_argument)
{
	ceov_signal *signal = testing_signal(context, 0, 2);

	cei_signal_poison(signal);
	ck_assert_int_eq(ceov_signal_raise(signal, 1, 5), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_arrive(signal, 1, 1, 5), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(signal, 1, 5, 0), CEOV_ERR_ABORTED);
	testing_log_has(&log_of, "counter 1 of", "poisoned", "renew");
}
END_TEST

#define ROUNDS 2000

struct raiser {
	ceov_signal *signal;
	atomic_int   round;             /* number of the round in which the thread raises */
	atomic_int   n_ended;           /* rounds that ended by an abort */
	int          n_wrong;           /* rounds that ended in any other way */
};

static void *raise_until_aborted(void *arg)
{
	struct raiser *raiser = arg;
	uint64_t value;
	int i, r;

	for (i = 0; i < ROUNDS; i++) {
		while (atomic_load(&raiser->round) <= i)
			sched_yield();
		for (r = 0, value = 1; !r; value++)
			r = ceov_signal_raise(raiser->signal, 0, value);
		raiser->n_wrong += r != CEOV_ERR_STATE;
		atomic_fetch_add(&raiser->n_ended, 1);
	}
	return NULL;
}

/* An abort may come at any point of a raise: the raise returns the abort's error, and the counter
 * is poisoned. */
START_TEST(test_a_raise_that_meets_an_abort)
{
	struct raiser raiser = { .signal = testing_signal(context, 0, 1) };
	uint64_t random = testing_seed(), until;
	pthread_t thread;
	int i;

	ck_assert_int_eq(pthread_create(&thread, NULL, raise_until_aborted, &raiser), 0);
	for (i = 0; i < ROUNDS; i++) {
		atomic_store(&raiser.round, i + 1);
		while (!atomic_load(cei_signal_word(raiser.signal, 0)))
			sched_yield();
		until = cei_deadline(testing_below(&random, 3000));
		while (cei_now_ns() < until)
			;
		cei_abort_unlocked(&raiser.signal, 1, CEOV_ERR_STATE, 1);
		while (atomic_load(&raiser.n_ended) <= i)
			sched_yield();
		ck_assert_uint_eq(atomic_load(cei_signal_word(raiser.signal, 0)),
				  CEOV_VALUE_LIMIT);
		ck_assert_int_eq(ceov_signal_renew(raiser.signal), 0);
	}
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
	ck_assert_int_eq(raiser.n_wrong, 0);
}
END_TEST

/* --- counters in a GPU ---------------------------------------------------- */

/* A fake GPU's memory: counters, abort word, arrivals. */
struct gpu_double {
	struct cei_place_ops ops;     /* the host's table with our store */
	struct cei_region      region;
	uint64_t               memory[8];
};

static struct gpu_double gpu;
static ceov_signal *victim;             /* the signal to abort during the next store, or NULL */

/* Stores late: the value arrives after the abort's poison. */
static int store(struct cei_backend *backend, uint64_t address, const void *bytes,
		 uint64_t n_bytes)
{
	ceov_signal *signal = victim;

	(void)backend;
	victim = NULL;
	if (signal)
		cei_abort_unlocked(&signal, 1, CEOV_ERR_TIMEOUT, 2);
	memcpy((void *)(uintptr_t)address, bytes, n_bytes);
	return 0;
}

static ceov_signal *signal_in_gpu(uint32_t flags)
{
	ceov_signal *signal = testing_signal(context, 0, 3);

	memset(&gpu, 0, sizeof(gpu));
	gpu.ops = cei_backend_host;
	gpu.ops.store = store;
	gpu.region.address[0] = (uintptr_t)gpu.memory;
	context->works.engines[0].backend->ops = &gpu.ops;
	signal->place.kind = CEOV_PLACE_GPU;
	signal->flags = flags;
	signal->gpu = &gpu.region;
	return signal;
}

static void leave_gpu(ceov_signal *signal)
{
	signal->gpu = NULL;
	context->works.engines[0].backend->ops = &cei_backend_host;
}

START_TEST(test_a_raise_does_not_cover_poison_in_a_gpu)
{
	ceov_signal *signal = signal_in_gpu(_i ? CEOV_SIGNAL_HOST_VISIBLE : 0);

	ck_assert_int_eq(ceov_signal_raise(signal, 1, 4), 0);
	ck_assert_uint_eq(gpu.memory[1], 4);
	victim = signal;
	ck_assert_int_eq(ceov_signal_raise(signal, 1, 5), CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(gpu.memory[0], CEOV_VALUE_LIMIT);
	ck_assert_uint_eq(gpu.memory[1], CEOV_VALUE_LIMIT);
	ck_assert_uint_eq(gpu.memory[2], CEOV_VALUE_LIMIT);
	ck_assert_uint_ne(gpu.memory[3], 0);
	ck_assert_uint_eq(atomic_load(cei_signal_word(signal, 1)), CEOV_VALUE_LIMIT);
	leave_gpu(signal);
}
END_TEST

START_TEST(test_an_arrival_does_not_cover_poison_in_a_gpu)
{
	ceov_signal *signal = signal_in_gpu(_i ? CEOV_SIGNAL_HOST_VISIBLE : 0);

	ck_assert_int_eq(ceov_signal_arrive(signal, 2, 2, 4), 0);
	victim = signal;
	ck_assert_int_eq(ceov_signal_arrive(signal, 2, 2, 4), CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(gpu.memory[2], CEOV_VALUE_LIMIT);
	leave_gpu(signal);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("signal_abort");
	TCase *all = tcase_create("signal_abort");
	TCase *gpus = tcase_create("counters in a GPU");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_each_error_and_rank_is_told);
	tcase_add_test(all, test_a_word_that_nobody_of_ours_wrote_is_an_abort);
	tcase_add_test(all, test_strange_words_end_launches_and_waits);
	tcase_add_test(all, test_each_hostile_word_ends_waits_that_are_under_way);
	tcase_add_test(all, test_a_word_of_zero_ends_nothing);
	tcase_add_test(all, test_a_word_that_changes_all_the_time_ends_launches);
	tcase_add_test(all, test_a_launch_that_is_refused_names_who_is_to_blame);
	tcase_add_test(all, test_an_abort_that_spreads_blames_the_same_rank);
	tcase_add_test(all, test_an_abort_found_at_the_end_blames_the_same_rank);
	tcase_add_test(all, test_closing_does_not_take_the_blame);
	tcase_add_test(all, test_a_poisoned_counter_is_no_wrong_argument);
	tcase_add_test(all, test_a_raise_that_meets_an_abort);
	suite_add_tcase(made, all);
	tcase_add_checked_fixture(gpus, set_up_alone, tear_down);
	tcase_add_loop_test(gpus, test_a_raise_does_not_cover_poison_in_a_gpu, 0, 2);
	tcase_add_loop_test(gpus, test_an_arrival_does_not_cover_poison_in_a_gpu, 0, 2);
	suite_add_tcase(made, gpus);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
