/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests signals on a GPU as kernels, streams and host threads use them, and memory that can be
 * registered. Two ranks of one process, both on GPU 0.
 */

#include "gpu_rig.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define ROUNDS   1000u
#define COUNTERS 4u
#define MANY     150u           /* marks in one call, more than one driver call takes */
#define SHORT_NS (5 * TESTING_MS)
#define BYTES    (UINT64_C(4) << 20)

static struct gpu gpu;
static ceov_context *context;
static uint32_t n_here;         /* number of GPUs of the machine */

static void set_up(void)
{
	static const uint32_t indices[2] = { 0, 0 };

	context = gpu_context(indices, 2);
	gpu_open(&gpu, 0);
}

static void tear_down(void)
{
	gpu_close(&gpu);
	ceov_close(context);
}

static ceov_signal *visible(uint32_t n_counters)
{
	return gpu_signal(context, 0, 0, n_counters, CEOV_SIGNAL_HOST_VISIBLE);
}

static uint64_t value_of(ceov_signal *signal, uint32_t index)
{
	uint64_t value = 0;

	ck_assert_int_eq(ceov_signal_value(signal, index, &value), 0);
	return value;
}

/* Raises a counter of rank 0 with a kernel of one thread. */
static void kernel_raise(ceov_signal *signal, uint32_t index, uint64_t value)
{
	struct cei_kernel_raise raise;

	memset(&raise, 0, sizeof(raise));
	raise.signal = gpu_view(signal, 0);
	raise.first = index;
	raise.n = 1;
	raise.n_tiles = 1;
	raise.value = value;
	gpu_launch(&gpu, GPU_PRODUCE, "cei_kernel_raise", 1, &raise);
}

/* --- arrivals of tiles --------------------------------------------------- */

static const uint32_t n_tiles[COUNTERS] = { 1, 2, 7, 300 };

/* Makes tiles arrive at every counter: all but the last tiles, or the last ones. */
static void arrive(const struct ceov_device_signal *view, uint64_t value, int is_last)
{
	struct cei_kernel_arrive arrive;
	uint32_t i;

	memset(&arrive, 0, sizeof(arrive));
	arrive.signal = *view;
	arrive.value = value;
	for (i = 0; i < COUNTERS; i++) {
		arrive.index = i;
		arrive.n_tiles = n_tiles[i];
		arrive.n_arrivals = is_last ? 1 : n_tiles[i] - 1;
		if (arrive.n_arrivals)
			gpu_launch(&gpu, GPU_PRODUCE, "cei_kernel_arrive",
				   arrive.n_arrivals < 64 ? arrive.n_arrivals : 64,
				   &arrive);
	}
	gpu_idle(&gpu, GPU_PRODUCE);
}

static void check_counters(const struct ceov_device_signal *view, uint64_t value)
{
	uint64_t counters[COUNTERS];
	uint32_t tallies[COUNTERS], i;

	gpu_move(&gpu, counters, view->counters, sizeof(counters));
	gpu_move(&gpu, tallies, view->arrivals, sizeof(tallies));
	for (i = 0; i < COUNTERS; i++) {
		ck_assert_uint_eq(counters[i], value);
		ck_assert_uint_eq(tallies[i], 0);
	}
}

START_TEST(test_the_last_tile_raises_and_the_tally_wraps)
{
	const uint32_t n_rounds = gpu_setting("CEOVERLAP_GPU_ROUNDS", ROUNDS);
	ceov_signal *signal = visible(COUNTERS);
	struct ceov_device_signal view = gpu_view(signal, 0);
	uint64_t k;
	uint32_t i;

	for (k = 1; k <= n_rounds; k++) {
		arrive(&view, k, 0);
		for (i = 0; i < COUNTERS; i++)
			ck_assert_uint_eq(value_of(signal, i), k - 1);
		arrive(&view, k, 1);
		for (i = 0; i < COUNTERS; i++)
			ck_assert_uint_eq(value_of(signal, i), k);
	}
	check_counters(&view, n_rounds);
}
END_TEST

/* The counters are in host memory; the numbers of arrived tiles are in the GPU's. */
START_TEST(test_kernels_arrive_at_a_host_signal)
{
	ceov_signal *signal = testing_signal(context, 0, COUNTERS);
	struct ceov_device_signal view = gpu_view(signal, 0);
	uint64_t k;
	uint32_t i;

	ck_assert_ptr_null(view.words);
	for (k = 1; k <= 20; k++) {
		arrive(&view, k, 0);
		for (i = 0; i < COUNTERS; i++)
			ck_assert_uint_eq(value_of(signal, i), k - 1);
		arrive(&view, k, 1);
		for (i = 0; i < COUNTERS; i++)
			ck_assert_uint_eq(value_of(signal, i), k);
	}
	check_counters(&view, 20);
}
END_TEST

/* --- kernels and threads ------------------------------------------------- */

START_TEST(test_await_is_reached_or_times_out)
{
	ceov_signal *signal = visible(2);
	struct ceov_device_signal view = gpu_view(signal, 1);
	struct ceov_mark mark = testing_mark(signal, 1, 5);

	gpu_await(&gpu, view, &mark, SHORT_NS, 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	gpu_reset(&gpu, 0);
	gpu_await(&gpu, view, &mark, GPU_AWAIT_NS, 0);
	kernel_raise(signal, 1, 5);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
	mark.value = 0;
	mark.index = 0;
	gpu_await(&gpu, view, &mark, 0, 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
}
END_TEST

START_TEST(test_threads_and_kernels_wait_for_each_other)
{
	ceov_signal *from_host = visible(1), *from_gpu = visible(1);
	struct ceov_device_signal view = gpu_view(from_host, 0);
	struct ceov_mark mark = testing_mark(from_host, 0, 0);
	uint64_t k;

	for (k = 1; k <= 50; k++) {
		mark.value = k;
		gpu_await(&gpu, view, &mark, GPU_AWAIT_NS, 0);
		ck_assert_int_eq(ceov_signal_raise(from_host, 0, k), 0);
		gpu_idle(&gpu, GPU_CONSUME);
		ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
		ck_assert_int_eq(ceov_signal_wait(from_gpu, 0, k, 0), CEOV_PENDING);
		kernel_raise(from_gpu, 0, k);
		ck_assert_int_eq(ceov_signal_wait(from_gpu, 0, k, TESTING_PATIENCE), 0);
	}
	ck_assert_int_eq(ceov_signal_raise(from_host, 0, 3), CEOV_ERR_INVALID);
}
END_TEST

/* Makes a launch that never becomes ready, to be aborted. */
static ceov_ticket launch_in_vain(ceov_signal *ready, ceov_signal *then)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	ceov_plan *plan = testing_plan(context, 0);
	ceov_ticket ticket = { 0 };

	transfer.source_ready = testing_mark(ready, 0, 1);
	transfer.then = testing_mark(then, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), 0);
	return ticket;
}

static void renew(ceov_signal *signal)
{
	uint64_t deadline = cei_deadline(TESTING_PATIENCE);
	int r;

	while ((r = ceov_signal_renew(signal)) == CEOV_PENDING)
		ck_assert_uint_lt(cei_now_ns(), deadline);
	ck_assert_int_eq(r, 0);
}

START_TEST(test_an_abort_ends_await_and_a_renewal_begins_anew)
{
	ceov_signal *ready = visible(1), *then = visible(2);
	struct ceov_device_signal view = gpu_view(then, 0);
	struct ceov_mark mark = testing_mark(then, 0, 1);
	ceov_ticket ticket = launch_in_vain(ready, then);

	gpu_await(&gpu, view, &mark, GPU_AWAIT_NS, 0);
	ck_assert_int_eq(ceov_wait(context, ticket, 20 * TESTING_MS), CEOV_PENDING);
	ck_assert_int_eq(gpu_is_idle(&gpu, GPU_CONSUME), 0);
	ck_assert_int_eq(ceov_abort(context, ticket), 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_ABORTED);
	ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), CEOV_ERR_ABORTED);
	mark.value = 0;                 /* this value was reached before, but the signal was
					 * aborted */
	gpu_reset(&gpu, 0);
	gpu_await(&gpu, view, &mark, GPU_AWAIT_NS, 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_ABORTED);
	ck_assert_int_eq(ceov_signal_wait(then, 0, 0, 0), CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_raise(then, 0, 1), CEOV_ERR_ABORTED);

	renew(ready);
	renew(then);
	ck_assert_uint_eq(value_of(then, 0), 0);
	mark.value = 1;
	gpu_reset(&gpu, 0);
	gpu_await(&gpu, view, &mark, SHORT_NS, 0);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_TIMEOUT);
	gpu_reset(&gpu, 0);
	gpu_await(&gpu, view, &mark, GPU_AWAIT_NS, 0);
	kernel_raise(then, 0, 1);
	gpu_idle(&gpu, GPU_CONSUME);
	ck_assert_uint_eq(gpu_result(&gpu, 0).status, GPU_REACHED);
}
END_TEST

/* --- streams ------------------------------------------------------------- */

static int stream_raise(enum gpu_stream stream, const struct ceov_mark *marks, uint32_t n,
			uint64_t base)
{
	return ceov_stream_raise(context, 0, gpu.streams[stream], marks, n, base);
}

START_TEST(test_streams_wait_for_streams_kernels_and_threads)
{
	ceov_signal *signal = visible(2);
	struct ceov_mark mark = testing_mark(signal, 0, 1), after = testing_mark(signal, 1, 1);
	uint64_t base;

	for (base = 0; base < 30; base++) {
		ck_assert_int_eq(ceov_stream_wait(context, 0, gpu.streams[GPU_WAIT], &mark, 1,
						  base), 0);
		ck_assert_int_eq(stream_raise(GPU_WAIT, &after, 1, base), 0);
		ck_assert_int_eq(ceov_signal_wait(signal, 1, base + 1, 2 * TESTING_MS),
				 CEOV_PENDING);
		if (base % 3 == 0)
			ck_assert_int_eq(stream_raise(GPU_PRODUCE, &mark, 1, base), 0);
		else if (base % 3 == 1)
			kernel_raise(signal, 0, base + 1);
		else
			ck_assert_int_eq(ceov_signal_raise(signal, 0, base + 1), 0);
		ck_assert_int_eq(ceov_signal_wait(signal, 1, base + 1, TESTING_PATIENCE), 0);
	}
	gpu_idle(&gpu, GPU_WAIT);
}
END_TEST

START_TEST(test_one_call_raises_and_waits_for_many_marks)
{
	ceov_signal *signal = visible(MANY), *done = visible(1);
	struct ceov_mark marks[MANY], last = testing_mark(done, 0, 1);
	uint32_t i, k;

	for (i = 0; i < MANY; i++)
		marks[i] = testing_mark(signal, i, i);
	for (k = 1; k <= 10; k++) {
		ck_assert_int_eq(stream_raise(GPU_PRODUCE, marks, MANY, k * 1000), 0);
		ck_assert_int_eq(ceov_stream_wait(context, 0, gpu.streams[GPU_WAIT], marks,
						  MANY, k * 1000), 0);
		ck_assert_int_eq(stream_raise(GPU_WAIT, &last, 1, k), 0);
		ck_assert_int_eq(ceov_signal_wait(done, 0, k + 1, TESTING_PATIENCE), 0);
		for (i = 0; i < MANY; i++)
			ck_assert_uint_eq(value_of(signal, i), k * 1000 + i);
	}
}
END_TEST

START_TEST(test_streams_and_views_that_cannot_be_used_are_refused)
{
	ceov_signal *signal = visible(2);
	struct ceov_mark mark = testing_mark(signal, 0, 1), outside = testing_mark(signal, 2, 1);
	struct ceov_device_signal view;
	struct gpu other;

	ck_assert_int_eq(ceov_stream_raise(context, 0, NULL, &mark, 1, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_stream_wait(context, 0, NULL, &mark, 1, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_stream_raise(context, 0, (void *)(uintptr_t)1, &mark, 1, 0),
			 CEOV_ERR_INVALID);     /* CUDA's other handle of the legacy stream */
	ck_assert_int_eq(stream_raise(GPU_PRODUCE, &outside, 1, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(stream_raise(GPU_PRODUCE, &mark, 1, CEOV_VALUE_LIMIT - 1),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_stream_raise(context, 2, gpu.streams[GPU_WAIT], &mark, 1, 0),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_signal_for_device(signal, 2, &view), CEOV_ERR_INVALID);
	ck_assert_uint_eq(value_of(signal, 0), 0);
	if (n_here < 2)
		return;
	gpu_open(&other, 1);
	ck_assert_int_eq(ceov_stream_raise(context, 0, other.streams[GPU_WAIT], &mark, 1, 0),
			 CEOV_ERR_INVALID);
	gpu_close(&other);
	ck_assert_uint_eq(value_of(signal, 0), 0);
}
END_TEST

/* --- signals without host words ------------------------------------------ */

START_TEST(test_a_mark_without_host_words_is_gated_only)
{
	ceov_signal *hidden = gpu_signal(context, 0, 0, 1, 0), *then = visible(1);
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	ceov_plan *plan = testing_plan(context, 0), *refused = testing_plan(context, 0);
	ceov_ticket ticket;
	uint64_t value;

	ck_assert_int_eq(ceov_signal_value(hidden, 0, &value), CEOV_ERR_STATE);
	ck_assert_int_eq(ceov_signal_wait(hidden, 0, 1, 0), CEOV_ERR_STATE);
	transfer.then = testing_mark(then, 0, 1);
	transfer.target_free = testing_mark(hidden, 0, 0);
	testing_add(refused, &transfer);
	ck_assert_int_eq(ceov_plan_commit(refused), CEOV_ERR_INVALID);
	ceov_plan_release(refused);

	transfer.target_free.signal = NULL;
	transfer.source_ready = testing_mark(hidden, 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_launch(plan, NULL, &ticket), CEOV_ERR_INVALID);
	launch.producer_stream = gpu.streams[GPU_PRODUCE];
	for (launch.base = 0; launch.base < 10; launch.base++) {
		kernel_raise(hidden, 0, launch.base + 1);
		ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
		ck_assert_int_eq(ceov_wait(context, ticket, TESTING_PATIENCE), 0);
		ck_assert_uint_eq(value_of(then, 0), launch.base + 1);
	}
	ceov_plan_release(plan);
}
END_TEST

/* --- memory -------------------------------------------------------------- */

START_TEST(test_memory_of_others_is_refused_and_ours_is_not)
{
	char *memory = gpu_allocate(&gpu, BYTES), *host = malloc(BYTES);
	ceov_buffer *buffer = NULL;
	struct gpu other;
	void *foreign;

	ck_assert_ptr_nonnull(host);
	ck_assert_int_eq(ceov_buffer_register(context, 0, memory + 4096, BYTES - 4096,
					      &buffer), 0);
	ck_assert_ptr_eq(ceov_buffer_base(buffer, 1), memory + 4096);
	ck_assert_int_eq(ceov_buffer_release(buffer), 0);
	ck_assert_int_eq(ceov_buffer_register(context, 0, memory + 4096, BYTES, &buffer),
			 CEOV_ERR_INVALID);     /* ends beyond its allocation */
	ck_assert_int_eq(ceov_buffer_register(context, 0, NULL, BYTES, &buffer),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_buffer_register(context, 0, host + 8, BYTES - 8, &buffer), 0);
	ck_assert_ptr_eq(ceov_buffer_base(buffer, 0), host + 8);
	ck_assert_int_eq(ceov_buffer_release(buffer), 0);
	free(host);
	gpu_free(&gpu, memory);
	if (n_here < 2)
		return;
	gpu_open(&other, 1);
	foreign = gpu_allocate(&other, BYTES);
	ck_assert_int_eq(ceov_buffer_register(context, 0, foreign, BYTES, &buffer),
			 CEOV_ERR_INVALID);
	gpu_free(&other, foreign);
	gpu_close(&other);
}
END_TEST

/* Passes whether or not the driver returns the same address for new memory. */
START_TEST(test_memory_freed_since_its_registration_is_stale)
{
	void *memory = gpu_allocate(&gpu, BYTES), *again = NULL;
	ceov_buffer *target = testing_buffer(context, 1, BYTES), *source = NULL;
	struct ceov_transfer transfer;
	ceov_plan *plan = testing_plan(context, 0);

	ck_assert_int_eq(ceov_buffer_register(context, 0, memory, BYTES, &source), 0);
	transfer = testing_transfer(source, target, BYTES);
	testing_add(plan, &transfer);
	gpu_free(&gpu, memory);
	if (_i)
		again = gpu_allocate(&gpu, BYTES);
	ck_assert_int_eq(ceov_plan_commit(plan), CEOV_ERR_STALE);
	ck_assert_int_eq(testing_failure(context).error, CEOV_ERR_STALE);
	ceov_plan_release(plan);
	ck_assert_int_eq(ceov_buffer_release(source), 0);
	if (again)
		gpu_free(&gpu, again);
}
END_TEST

static Suite *suite(uint32_t n_gpus)
{
	Suite *made = suite_create("gpu verbs");
	TCase *all = tcase_create("verbs");

	n_here = n_gpus;
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_the_last_tile_raises_and_the_tally_wraps);
	tcase_add_test(all, test_kernels_arrive_at_a_host_signal);
	tcase_add_test(all, test_await_is_reached_or_times_out);
	tcase_add_test(all, test_threads_and_kernels_wait_for_each_other);
	tcase_add_test(all, test_an_abort_ends_await_and_a_renewal_begins_anew);
	tcase_add_test(all, test_streams_wait_for_streams_kernels_and_threads);
	tcase_add_test(all, test_one_call_raises_and_waits_for_many_marks);
	tcase_add_test(all, test_streams_and_views_that_cannot_be_used_are_refused);
	tcase_add_test(all, test_a_mark_without_host_words_is_gated_only);
	tcase_add_test(all, test_memory_of_others_is_refused_and_ours_is_not);
	tcase_add_loop_test(all, test_memory_freed_since_its_registration_is_stale, 0, 2);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return gpu_main(1, suite);
}
