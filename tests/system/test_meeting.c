/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests that processes meet by each means that needs no other program, and what they say when they
 * cannot. */

#include "meeting_fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define SHORT_MS 1000u

/* --- success ------------------------------------------------------------------------ */

START_TEST(test_a_group_meets)
{
	static const uint32_t sizes[] = { 1, 2, 5, 16 };
	size_t i;

	meeting.set = set_torchrun;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		memset(outcomes, 0, MEETING_MAX * sizeof(*outcomes));
		meeting.n_processes = sizes[i];
		start_all();
		await_all();
		assert_all_met();
		}
}
END_TEST

START_TEST(test_64_processes)
{
	uint64_t longest_ns = 0;
	uint32_t i;

	meeting.set = set_torchrun;
	meeting.n_processes = 64;
	start_all();
	await_all();
	assert_all_met();
	for (i = 0; i < 64; i++)
		if (outcomes[i].ns > longest_ns)
			longest_ns = outcomes[i].ns;
	printf("64 processes over the store: %.3f s\n", (double)longest_ns / 1e9);
}
END_TEST

/* Nobody takes a message of one meeting for one of the next. */
START_TEST(test_meeting_again_and_again)
{
	meeting.set = set_torchrun;
	meeting.n_processes = 6;
	meeting.n_times = 20;
	start_all();
	await_all();
	assert_all_met();
}
END_TEST

/* --- the application's own all-gather, over shared memory ---------------------------- */

static struct {
	pthread_barrier_t barrier;
	uint8_t           bytes[16 * CEI_RECORD_BYTES_MAX];
} *shared;

static int gather_shared(void *arg, const void *own, size_t n_bytes, void *ret_all,
			 uint64_t timeout_ns)
{
	uint32_t number = *(uint32_t *)arg;

	if (!timeout_ns)
		return 3;
	memcpy(shared->bytes + number * n_bytes, own, n_bytes);
	pthread_barrier_wait(&shared->barrier);
	memcpy(ret_all, shared->bytes, n_bytes * meeting.n_processes);
	pthread_barrier_wait(&shared->barrier);
	return 0;
}

static int gather_fails(void *arg, const void *own, size_t n_bytes, void *ret_all,
			uint64_t timeout_ns)
{
	(void)arg;
	(void)own;
	(void)ret_all;
	return n_bytes && timeout_ns ? 17 : 0;
}

static void set_callback(uint32_t number, struct cei_book_config *config)
{
	static uint32_t own;

	own = number;
	config->process = number;
	config->n_processes = meeting.n_processes;
	config->all_gather = gather_shared;
	config->all_gather_arg = &own;
}

static void set_failing_callback(uint32_t number, struct cei_book_config *config)
{
	set_callback(number, config);
	config->all_gather = gather_fails;
}

START_TEST(test_callback)
{
	pthread_barrierattr_t for_processes;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	pthread_barrierattr_init(&for_processes);
	pthread_barrierattr_setpshared(&for_processes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&shared->barrier, &for_processes, 8);
	setenv("CEOVERLAP_STORE", "localhost:1", 1);    /* the callback comes first */
	meeting.set = set_callback;
	meeting.n_processes = 8;
	start_all();
	await_all();
	assert_all_met();
	munmap(shared, sizeof(*shared));
}
END_TEST

START_TEST(test_callback_that_fails)
{
	meeting.set = set_failing_callback;
	meeting.n_processes = 1;
	start_all();
	await_all();
	assert_failed(0, CEOV_ERR_SYSTEM, "all-gather", "it returned 17");
}
END_TEST

/* --- faults ------------------------------------------------------------------------- */

static void assert_in_time(uint32_t number)
{
	ck_assert_msg(outcomes[number].ns < (SHORT_MS + 4000) * TESTING_MS,
		      "process %u took %.3f s", number, (double)outcomes[number].ns / 1e9);
}

START_TEST(test_missing_processes_are_named)
{
	uint32_t i;

	meeting.set = set_torchrun;
	meeting.n_processes = 6;
	meeting.timeout_ms = SHORT_MS;
	for (i = 0; i < 6; i++)
		if (i != 2 && i != 4)
			start(i);
	await_all();
	for (i = 0; i < 6; i++) {
		if (i == 2 || i == 4)
			continue;
		assert_failed(i, CEOV_ERR_TIMEOUT, "processes 2, 4 missing", NULL);
		assert_in_time(i);
	}
}
END_TEST

START_TEST(test_process_0_is_missing)
{
	meeting.set = set_torchrun;
	meeting.n_processes = 3;
	meeting.timeout_ms = SHORT_MS;
	start(1);
	start(2);
	await_all();
	assert_failed(1, CEOV_ERR_TIMEOUT, "process 0 has not come", NULL);
	assert_failed(2, CEOV_ERR_TIMEOUT, "process 0 has not come", NULL);
	assert_in_time(1);
}
END_TEST

static void set_other_job(uint32_t number, struct cei_book_config *config)
{
	set_torchrun(number, config);
	if (number == 1)
		config->job = "another job";
}

/* Process 1 of 3 is of another group than processes 0 and 2. */
static void assert_apart(void)
{
	meeting.n_processes = 3;
	meeting.timeout_ms = SHORT_MS;
	start_all();
	await_all();
	assert_failed(0, CEOV_ERR_TIMEOUT, "process 1 missing", NULL);
	assert_failed(2, CEOV_ERR_TIMEOUT, "process 1 missing", NULL);
	assert_failed(1, CEOV_ERR_INVALID, "process 1 is of another job", NULL);
}

START_TEST(test_another_job_does_not_join)
{
	meeting.set = set_other_job;
	assert_apart();
}
END_TEST

static void set_one_rank(uint32_t number, struct cei_book_config *config)
{
	static const uint32_t rank = 1;

	set_torchrun(number, config);
	if (number == 2)
		config->ranks = &rank;
}

START_TEST(test_two_processes_with_one_rank)
{
	uint32_t i;

	meeting.set = set_one_rank;
	meeting.n_processes = 3;
	start_all();
	await_all();
	for (i = 0; i < 3; i++) {
		assert_failed(i, CEOV_ERR_INVALID, "processes 1 and 2", "rank 1");
		ck_assert_uint_eq(outcomes[i].failure.rank, 1);
	}
}
END_TEST

static void set_other_version(uint32_t number, struct cei_book_config *config)
{
	set_torchrun(number, config);
	if (number == 2)
		config->transport = "1.22.0";
}

START_TEST(test_versions_are_compared)
{
	meeting.set = set_other_version;
	meeting.n_processes = 3;
	start_all();
	await_all();
	assert_failed(0, CEOV_ERR_VERSION, "rank 2 has UCX 1.22.0", "rank 0 has 1.13.1");
	assert_failed(1, CEOV_ERR_VERSION, "rank 2 has UCX 1.22.0", "rank 1 has 1.13.1");
	assert_failed(2, CEOV_ERR_VERSION, "rank 0 has UCX 1.13.1", "rank 2 has 1.22.0");
}
END_TEST

static void set_other_size(uint32_t number, struct cei_book_config *config)
{
	set_torchrun(number, config);
	if (number == 1) {
		config->n_processes = 5;
		config->process = 1;
		setenv("WORLD_SIZE", "5", 1);
	}
}

START_TEST(test_sizes_are_compared)
{
	meeting.set = set_other_size;
	meeting.n_processes = 2;
	meeting.timeout_ms = SHORT_MS;
	start_all();
	await_all();
	assert_failed(1, CEOV_ERR_INVALID, "process 1 says the group has 5", "says 2");
	ck_assert_int_lt(outcomes[0].result, 0);
	ck_assert_int_lt(outcomes[1].result, 0);
}
END_TEST

/* Processes 1 and 2 both say that they are process 1. */
static void set_one_number(uint32_t number, struct cei_book_config *config)
{
	if (number == 2)
		pause_ms(SHORT_MS / 4);
	set_torchrun(number ? 1 : 0, config);
}

START_TEST(test_two_processes_with_one_number)
{
	meeting.set = set_one_number;
	meeting.n_processes = 3;
	meeting.timeout_ms = SHORT_MS;
	start_all();
	await_all();
	assert_failed(0, CEOV_ERR_TIMEOUT, "process 2 missing", NULL);
	assert_failed(2, CEOV_ERR_STATE, "two processes say that they are process 1", NULL);
	ck_assert_int_lt(outcomes[1].result, 0);
	ck_assert_int_lt(outcomes[2].result, 0);
}
END_TEST

START_TEST(test_process_0_is_killed)
{
	meeting.set = set_torchrun;
	meeting.n_processes = 4;
	meeting.timeout_ms = 2 * SHORT_MS;
	start(0);
	start(1);
	start(2);
	pause_ms(SHORT_MS / 2);
	kill_one(0);
	await_all();
	assert_failed(1, CEOV_ERR_PEER_LOST, "process 0 has ended", NULL);
	assert_failed(2, CEOV_ERR_PEER_LOST, "process 0 has ended", NULL);
	ck_assert_uint_lt(outcomes[1].ns, 2 * SHORT_MS * TESTING_MS);
}
END_TEST

/* A process that is killed before all have come is missing; one that takes its place is welcome. */
START_TEST(test_a_killed_process_may_come_again)
{
	meeting.set = set_torchrun;
	meeting.n_processes = 3;
	start(0);
	start(1);
	pause_ms(SHORT_MS / 2);
	kill_one(1);
	start(2);
	start(1);
	await_all();
	assert_all_met();
}
END_TEST

static void add_tests(TCase *tcase)
{
	tcase_add_test(tcase, test_a_group_meets);
	tcase_add_test(tcase, test_64_processes);
	tcase_add_test(tcase, test_meeting_again_and_again);
	tcase_add_test(tcase, test_callback);
	tcase_add_test(tcase, test_callback_that_fails);
	tcase_add_test(tcase, test_missing_processes_are_named);
	tcase_add_test(tcase, test_process_0_is_missing);
	tcase_add_test(tcase, test_another_job_does_not_join);
	tcase_add_test(tcase, test_two_processes_with_one_rank);
	tcase_add_test(tcase, test_versions_are_compared);
	tcase_add_test(tcase, test_sizes_are_compared);
	tcase_add_test(tcase, test_two_processes_with_one_number);
	tcase_add_test(tcase, test_process_0_is_killed);
	tcase_add_test(tcase, test_a_killed_process_may_come_again);
}

int main(void)
{
	Suite *suite = suite_create("meeting");
	TCase *tcase = tcase_create("meeting");

	tcase_add_checked_fixture(tcase, meeting_set_up, meeting_tear_down);
	add_tests(tcase);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
