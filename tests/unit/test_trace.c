/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests traces: records of every chunk at every stage, in order; the bounded ring; files. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/sched/trace.h"
#include "testing.h"
#include "loopback.h"

static char path[512];

static void set_up(void)
{
	testing_path("trace.json", path, sizeof(path));
	setenv("CEOVERLAP_TRACE", path, 1);
}

static void tear_down(void)
{
	unsetenv("CEOVERLAP_TRACE");
	unlink(path);
}

/* Reads the whole file; the caller frees it. */
static char *file_text(const char *name)
{
	FILE *file = fopen(name, "r");
	char *text;
	long n_bytes;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
	n_bytes = ftell(file);
	rewind(file);
	text = calloc(1, (size_t)n_bytes + 1);
	ck_assert_ptr_nonnull(text);
	ck_assert_uint_eq(fread(text, 1, (size_t)n_bytes, file), (size_t)n_bytes);
	(void)fclose(file);
	return text;
}

/* Counts occurrences in a loop of its own, because sanitizers check the whole text in each call of
 * strstr() or memmem(). */
static uint32_t count_text(const char *text, const char *part)
{
	size_t n_bytes = strlen(part);
	uint32_t n = 0;

	for (; *text; text++)
		n += *text == *part && !strncmp(text, part, n_bytes);
	return n;
}

static void launch_times(struct loopback *loop, uint64_t n_launches)
{
	ceov_ticket ticket;
	uint64_t i;

	for (i = 0; i < n_launches; i++) {
		loopback_ready(loop, i + 1);
		loopback_free(loop, i);
		ticket = loopback_launch(loop, i, POLLED);
		ck_assert_int_eq(loopback_wait(loop, ticket), 0);
	}
}

START_TEST(test_every_chunk_passes_every_stage_in_order)
{
	const struct cei_trace_record *record;
	const struct cei_trace *trace;
	struct loopback loop;
	uint32_t i, stage;

	loopback_open(&loop, 3, 0);
	launch_times(&loop, 2);
	trace = loop.context->works.engines[0].trace;
	ck_assert_ptr_nonnull(trace);
	ck_assert_uint_eq(trace->n_taken, 6);
	for (i = 0; i < 6; i++) {
		record = &trace->records[i];
		ck_assert_uint_gt(record->launch, 0);
		ck_assert_uint_lt(record->transfer, 3);
		ck_assert_uint_eq(record->bytes, LOOPBACK_BYTES / 3);
		ck_assert_uint_eq(record->via, CEOV_NOBODY);
		ck_assert_uint_gt(record->at_ns[CEI_TRACE_ARMED], 0);
		for (stage = 1; stage < CEI_TRACE_STAGES; stage++)
			ck_assert_uint_ge(record->at_ns[stage], record->at_ns[stage - 1]);
	}
	ck_assert_uint_gt(trace->records[3].launch, trace->records[0].launch);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_the_file_has_a_slice_per_stage_and_chunk)
{
	static const char *const stages[] = { "doorbell", "scheduler", "backend", "completion" };
	struct loopback loop;
	char name[64], *text;
	uint32_t i;

	loopback_open(&loop, 4, 0);
	launch_times(&loop, 5);
	loopback_close(&loop);
	text = file_text(path);
	for (i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "{\"name\":\"%s\",\"cat\":\"stage\",\"ph\":\"b\"",
			 stages[i]);
		ck_assert_uint_eq(count_text(text, name), 20);
		snprintf(name, sizeof(name), "{\"name\":\"%s\",\"cat\":\"stage\",\"ph\":\"e\"",
			 stages[i]);
		ck_assert_uint_eq(count_text(text, name), 20);
	}
	ck_assert_uint_eq(count_text(text, "\"dropped_chunks\":0"), 1);
	ck_assert_uint_eq(count_text(text, "\"unfinished_chunks\":0"), 1);
	ck_assert_uint_ge(count_text(text, "\"ph\":\"X\""), 5);
	ck_assert_uint_eq(count_text(text, "process_name"), 2);
	free(text);
}
END_TEST

START_TEST(test_the_ring_keeps_the_newest_and_tells_what_it_lost)
{
	enum { N_TRANSFERS = 600 };
	uint64_t n_launches = CEI_TRACE_RECORDS / N_TRANSFERS + 2;
	char wanted[64], *text;
	struct loopback loop;

	loopback_open(&loop, N_TRANSFERS, 16);
	launch_times(&loop, n_launches);
	ck_assert_uint_eq(loop.context->works.engines[0].trace->n_taken, n_launches * N_TRANSFERS);
	loopback_close(&loop);
	text = file_text(path);
	snprintf(wanted, sizeof(wanted), "\"dropped_chunks\":%llu,", (unsigned long long)
		 (n_launches * N_TRANSFERS - CEI_TRACE_RECORDS));
	ck_assert_uint_eq(count_text(text, wanted), 1);
	ck_assert_uint_eq(count_text(text, "{\"name\":\"backend\",\"cat\":\"stage\","
				     "\"ph\":\"b\""), CEI_TRACE_RECORDS);
	free(text);
}
END_TEST

/* Launches the plan of one transfer, from rank 0 to rank 1, and reaches its two marks so that the
 * engine has seen the second one missing alone. Returns the rank that the trace says it awaited. */
static uint32_t awaited_of(struct loopback *loop, uint64_t n, int is_target_last)
{
	const struct cei_trace *trace = loop->context->works.engines[0].trace;
	ceov_ticket ticket = loopback_launch(loop, n, POLLED);

	usleep(20000);
	if (is_target_last)
		loopback_ready(loop, n + 1);
	else
		loopback_free(loop, n);
	usleep(20000);
	if (is_target_last)
		loopback_free(loop, n);
	else
		loopback_ready(loop, n + 1);
	ck_assert_int_eq(loopback_wait(loop, ticket), 0);
	return trace->records[trace->n_taken - 1].awaited;
}

START_TEST(test_the_rank_that_came_last_is_told)
{
	struct loopback loop;
	char *text;

	loopback_open(&loop, 1, 0);
	launch_times(&loop, 1);
	ck_assert_uint_eq(loop.context->works.engines[0].trace->records[0].awaited, CEOV_NOBODY);
	ck_assert_uint_eq(awaited_of(&loop, 1, 0), 0);
	ck_assert_uint_eq(awaited_of(&loop, 2, 1), 1);
	loopback_close(&loop);
	text = file_text(path);
	/* four slices and one line of a lane */
	ck_assert_uint_eq(count_text(text,
				     "\"op\":\"plan\",\"from\":0,\"to\":1,\"awaited\":0}"), 5);
	ck_assert_uint_eq(count_text(text,
				     "\"op\":\"plan\",\"from\":0,\"to\":1,\"awaited\":1}"), 5);
	free(text);
}
END_TEST

/* How many nanoseconds past 1970 the clock of the time says now. */
static uint64_t real_ns(void)
{
	struct timespec now;

	ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

START_TEST(test_the_file_tells_the_time_twice)
{
	static const char part[] = "\"clocks\":[{\"realtime_ns\":";
	unsigned long long real[2], own[2], within[2];
	uint64_t begun = real_ns();
	struct loopback loop;
	char *text, *at;

	loopback_open(&loop, 1, 0);
	usleep(1000);
	loopback_close(&loop);
	text = file_text(path);
	at = strstr(text, part);
	ck_assert_ptr_nonnull(at);
	ck_assert_int_eq(sscanf(at, "\"clocks\":[{\"realtime_ns\":%llu,\"monotonic_ns\":%llu,"
				"\"within_ns\":%llu},{\"realtime_ns\":%llu,\"monotonic_ns\":%llu,"
				"\"within_ns\":%llu}]", &real[0], &own[0], &within[0], &real[1],
				&own[1], &within[1]), 6);
	ck_assert_uint_ge(real[0], begun);
	ck_assert_uint_ge(real[1], real[0] + 1000000);
	ck_assert_uint_le(real[1], real_ns());
	ck_assert_uint_ge(own[1], own[0] + 1000000);
	ck_assert_uint_le(own[1], cei_now_ns());
	ck_assert_uint_lt(within[0] + within[1], 1000000000);
	free(text);
}
END_TEST

START_TEST(test_without_the_variable_there_is_no_trace)
{
	struct loopback loop;

	unsetenv("CEOVERLAP_TRACE");
	loopback_open(&loop, 2, 0);
	launch_times(&loop, 1);
	ck_assert_ptr_null(loop.context->works.engines[0].trace);
	loopback_close(&loop);
	ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

START_TEST(test_chunks_that_do_not_end_are_counted_and_left_out)
{
	struct loopback loop;
	char *text;

	loopback_open(&loop, 2, 0);
	loopback_ready(&loop, 1);
	(void)loopback_launch(&loop, 1, POLLED); /* its marks are never reached */
	loopback_close(&loop);
	text = file_text(path);
	ck_assert_uint_eq(count_text(text, "\"ph\":\"b\""), 0);
	ck_assert_uint_eq(count_text(text, "\"traceEvents\":["), 1);
	free(text);
}
END_TEST

START_TEST(test_paths_that_cannot_be_used)
{
	struct testing_log log;
	struct ceov_member member = { 0, testing_host };
	struct ceov_config config;
	ceov_context *context = NULL;
	char longer[400];

	testing_log_init(&log);
	config = testing_config(&member, 1, &log);
	memset(longer, 'x', sizeof(longer));
	longer[sizeof(longer) - 1] = '\0';
	setenv("CEOVERLAP_TRACE", longer, 1);
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_INVALID);
	testing_log_has(&log, "CEOVERLAP_TRACE", "at most", NULL);
	setenv("CEOVERLAP_TRACE", "/nonexistent/trace.json", 1);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
	testing_log_has(&log, "trace", "/nonexistent/trace.json", NULL);
}
END_TEST

/* A named pipe without a reader would block the writer. */
START_TEST(test_a_pipe_is_not_written)
{
	struct testing_log log;
	struct ceov_member member = { 0, testing_host };
	struct ceov_config config;
	ceov_context *context = NULL;

	testing_log_init(&log);
	config = testing_config(&member, 1, &log);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
	testing_log_has(&log, "trace", path, "no regular file");
}
END_TEST

/* Contexts open one after another and at the same time; each writes its own file. */
START_TEST(test_each_context_has_a_file)
{
	static const char *const behind[] = { "", ".2", ".3" };
	char name[560], *text;
	struct loopback ways[3];
	uint32_t i;

	for (i = 0; i < 3; i++) {
		loopback_open(&ways[i], 2, 0);
		launch_times(&ways[i], i + 1);
		if (!i)
			loopback_close(&ways[i]);
	}
	loopback_close(&ways[2]);
	loopback_close(&ways[1]);
	testing_path("other.json", name, sizeof(name));
	setenv("CEOVERLAP_TRACE", name, 1);     /* a new name starts with no suffix */
	loopback_open(&ways[0], 2, 0);
	loopback_close(&ways[0]);
	ck_assert_int_eq(unlink(name), 0);
	for (i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s%s", path, behind[i]);
		text = file_text(name);
		ck_assert_uint_eq(count_text(text, "{\"name\":\"backend\",\"cat\":\"stage\","
					     "\"ph\":\"b\""), (i + 1) * 2);
		free(text);
		unlink(name);
	}
}
END_TEST

/* --- lanes ------------------------------------------------------------------ */

#define LANES   4u
#define SUBMITS 8u                      /* submits of a lane */
#define CHUNKS  3u                      /* chunks of a submit */
#define RECORDS (LANES * SUBMITS * CHUNKS)

/* Makes the n-th record in the order of lanes. A submit is queued when the one before it is half
 * done. */
static void make_record(struct cei_trace_record *record, uint32_t n)
{
	uint32_t stage, submit = n / CHUNKS % SUBMITS;

	memset(record, 0, sizeof(*record));
	record->launch = 1;
	record->bytes = 10;
	record->lane = (uint16_t)(n / CHUNKS / SUBMITS);
	record->submit = submit;
	record->index = record->transfer = n;
	record->via = CEOV_NOBODY;
	for (stage = 0; stage <= CEI_TRACE_SUBMITTED; stage++)
		record->at_ns[stage] = 1000000 + submit * 1000;
	record->at_ns[CEI_TRACE_DONE] = record->at_ns[CEI_TRACE_FINISHED] =
		record->at_ns[CEI_TRACE_SUBMITTED] + 2000 - CHUNKS + n % CHUNKS + 1;
}

static void shuffle_records(struct cei_trace *trace)
{
	uint64_t random = testing_seed();
	struct cei_trace_record record;
	uint32_t i, k;

	trace->n_taken = RECORDS;
	for (i = 0; i < RECORDS; i++)
		make_record(&trace->records[i], i);
	for (i = RECORDS; i-- > 1;) {
		k = (uint32_t)testing_below(&random, i + 1);
		record = trace->records[i];
		trace->records[i] = trace->records[k];
		trace->records[k] = record;
	}
}

/* Asserts that each lane is named once, in order, followed by its submits in order, each beginning
 * where the one before ended. */
static void check_lane_events(const char *text)
{
	uint32_t lane, submit, first, more, bytes, tid;
	unsigned long long us, ns, length_us, length_ns;
	char name[64];

	for (lane = 0; lane < LANES; lane++) {
		snprintf(name, sizeof(name), "\"pid\":0,\"tid\":%u,\"args\":{\"name\":\"lane %u ",
			 lane + 1, lane);
		text = strstr(text, "{\"name\":\"thread_name\"");
		ck_assert_ptr_nonnull(text);
		ck_assert_ptr_nonnull(strstr(text, name));
		ck_assert_ptr_eq(strchr(strstr(text, name), '\n'), strchr(text, '\n'));
		for (submit = 0; submit < SUBMITS; submit++) {
			text = strchr(text, '\n') + 1;
			ck_assert_int_eq(sscanf(text, "{\"name\":\"transfer %u + %u more, %u "
				"bytes, %*[^\"]\",\"cat\":\"lane\",\"ph\":\"X\",\"pid\":0,"
				"\"tid\":%u,\"ts\":%llu.%llu,\"dur\":%llu.%llu", &first, &more,
				&bytes, &tid, &us, &ns, &length_us, &length_ns), 8);
			ck_assert_uint_eq(first, (lane * SUBMITS + submit) * CHUNKS);
			ck_assert_uint_eq(more, CHUNKS - 1);
			ck_assert_uint_eq(bytes, 10 * CHUNKS);
			ck_assert_uint_eq(tid, lane + 1);
			ck_assert_uint_eq(us * 1000 + ns, 1000000 + (submit ? submit + 1 : 0) *
					  1000);
			ck_assert_uint_eq(length_us * 1000 + length_ns, submit ? 1000 : 2000);
		}
		text = strchr(text, '\n');
	}
	ck_assert_ptr_null(strstr(text, "thread_name"));
}

START_TEST(test_lanes_are_told_in_order_and_one_after_the_other)
{
	struct loopback loop;
	char *text;

	loopback_open(&loop, 2, 0);
	shuffle_records(loop.context->works.engines[0].trace);
	loopback_close(&loop);
	text = file_text(path);
	check_lane_events(text);
	free(text);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("trace");
	TCase *all = tcase_create("trace");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_every_chunk_passes_every_stage_in_order);
	tcase_add_test(all, test_the_file_has_a_slice_per_stage_and_chunk);
	tcase_add_test(all, test_the_ring_keeps_the_newest_and_tells_what_it_lost);
	tcase_add_test(all, test_the_rank_that_came_last_is_told);
	tcase_add_test(all, test_the_file_tells_the_time_twice);
	tcase_add_test(all, test_without_the_variable_there_is_no_trace);
	tcase_add_test(all, test_chunks_that_do_not_end_are_counted_and_left_out);
	tcase_add_test(all, test_paths_that_cannot_be_used);
	tcase_add_test(all, test_a_pipe_is_not_written);
	tcase_add_test(all, test_each_context_has_a_file);
	tcase_add_test(all, test_lanes_are_told_in_order_and_one_after_the_other);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
