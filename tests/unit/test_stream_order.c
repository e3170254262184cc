/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests that runs follow each other, on streams and in graphs that are being captured. The driver
 * is a model that knows, for each stream, which runs come before what is queued on it next, and
 * in which capture it takes part. A run is a bit.
 */

#include <check.h>
#include <string.h>

#include "base/cuda_table.h"
#include "ops/exec_cuda/order_cuda.h"
#include "testing.h"

#define N_STREAMS 4u
#define ROUNDS    2000u

struct fake_stream {
	unsigned long long id;          /* 0: the driver does not tell it */
	cuuint64_t         capture;     /* 0: none */
	uint64_t           before[2];   /* runs outside of graphs, and in the capture */
	uint32_t           n_waits;
};

struct fake_event {
	cuuint64_t capture;
	uint64_t   before;
};

static struct cei_report report;
static struct cei_cuda cuda;
static struct cei_gpu_order orders[2];          /* the first one leads the second one */
static struct fake_stream streams[N_STREAMS], inside;
static struct fake_event events[4];             /* two marks, and one of captured runs */
static cuuint64_t n_captures, invalid;          /* the last capture; the invalid one */
static uint32_t n_events, n_runs;
static uint64_t queued[2];                      /* as before of struct fake_stream */

/* --- the driver ----------------------------------------------------------- */

static CUresult error_text(CUresult result, const char **text)
{
	(void)result;
	*text = "an error";
	return CUDA_SUCCESS;
}

static CUresult info(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id)
{
	const struct fake_stream *stream = (const struct fake_stream *)handle;

	*status = !stream->capture ? CU_STREAM_CAPTURE_STATUS_NONE
		: stream->capture == invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
		: CU_STREAM_CAPTURE_STATUS_ACTIVE;
	*id = stream->capture;
	return CUDA_SUCCESS;
}

static CUresult id_of(CUstream handle, unsigned long long *id)
{
	const struct fake_stream *stream = (const struct fake_stream *)handle;

	ck_assert_uint_eq(stream->capture, 0);  /* it would be an error of the driver's */
	*id = stream->id;
	return stream->id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

static CUresult make_event(CUevent *event, unsigned int flags)
{
	(void)flags;
	*event = (CUevent)&events[n_events++];
	return CUDA_SUCCESS;
}

static CUresult make_stream(CUstream *stream, unsigned int flags, int priority)
{
	(void)flags;
	(void)priority;
	*stream = (CUstream)&inside;
	return CUDA_SUCCESS;
}

static CUresult drop_event(CUevent event)
{
	(void)event;
	n_events--;
	return CUDA_SUCCESS;
}

static CUresult drop_stream(CUstream stream)
{
	ck_assert_ptr_eq(stream, &inside);
	return CUDA_SUCCESS;
}

static CUresult record(CUevent handle, CUstream of)
{
	struct fake_event *event = (struct fake_event *)handle;
	const struct fake_stream *stream = (const struct fake_stream *)of;

	event->capture = stream->capture;
	event->before = stream->before[stream->capture != 0];
	return CUDA_SUCCESS;
}

/* A stream that waits for an event of a capture joins it. A stream in a capture must not wait for
 * anything else, which makes its capture invalid. */
static CUresult await(CUstream of, CUevent handle, unsigned int flags)
{
	const struct fake_event *event = (const struct fake_event *)handle;
	struct fake_stream *stream = (struct fake_stream *)of;

	(void)flags;
	stream->n_waits++;
	if (!stream->capture && event->capture) {
		stream->capture = event->capture;
		stream->before[1] = 0;
	}
	if (stream->capture != event->capture) {
		invalid = stream->capture;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	stream->before[stream->capture != 0] |= event->before;
	return CUDA_SUCCESS;
}

/* --- the rig -------------------------------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

static void fill_calls(struct cei_cuda_calls *calls)
{
	calls->error_string = calls->error_name = error_text;
	calls->capture_info = info;
	calls->stream_id = id_of;
	calls->event_create = make_event;
	calls->event_destroy = drop_event;
	calls->event_record = record;
	calls->stream_create = make_stream;
	calls->stream_destroy = drop_stream;
	calls->stream_wait_event = await;
}

static void set_up(void)
{
	uint32_t i;

	cei_report_init(&report, drop_line, NULL);
	fill_calls(&cuda.calls);
	cuda.report = &report;
	for (i = 0; i < N_STREAMS; i++)
		streams[i].id = i + 1;
	orders[1].leader = &orders[0];
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(cei_gpu_order_open(&orders[i], &cuda, 0, 0, "a test"), 0);
}

static void tear_down(void)
{
	cei_gpu_order_close(&orders[1]);
	cei_gpu_order_close(&orders[0]);
	ck_assert_uint_eq(n_events, 0);
	cei_report_fini(&report);
}

/* Makes a run, and asserts that all earlier ones of its capture, or outside of graphs, come before
 * it on its stream. Returns what the order says to it. */
static int run(uint32_t order, struct fake_stream *stream)
{
	uint64_t bit = UINT64_C(1) << n_runs % 64;
	int is_inside = stream->capture != 0;
	struct ceov_failure failure;
	int r = cei_gpu_order_follow(&orders[order], (CUstream)stream);

	ck_assert_int_eq(cei_report_take(&report, &failure), r ? 0 : CEOV_NONE);
	if (r)
		return r;
	ck_assert_uint_eq(queued[is_inside] & ~stream->before[is_inside], 0);
	if (++n_runs % 64 == 0)                 /* the bits come again */
		queued[0] = queued[1] = 0;
	stream->before[is_inside] |= bit;
	queued[is_inside] |= bit;
	return cei_gpu_order_mark(&orders[order], (CUstream)stream);
}

static void begin_capture(struct fake_stream *stream)
{
	stream->capture = ++n_captures;
	stream->before[1] = queued[1] = 0;
}

/* Another stream joins the capture of `from`, as a branch. */
static void branch(const struct fake_stream *from, struct fake_stream *to)
{
	to->capture = from->capture;
	to->before[1] = from->before[1];
}

static void end_capture(cuuint64_t capture)
{
	uint32_t i;

	for (i = 0; i < N_STREAMS; i++)
		if (streams[i].capture == capture)
			streams[i].capture = 0;
	if (inside.capture == capture)
		inside.capture = 0;
	invalid = 0;
}

/* --- cases ---------------------------------------------------------------- */

START_TEST(test_streams)
{
	uint32_t i;

	for (i = 0; i < 60; i++)
		ck_assert_int_eq(run(i / 3 % 2, &streams[i % N_STREAMS]), 0);
}
END_TEST

START_TEST(test_branches_of_a_capture)
{
	uint32_t i;

	ck_assert_int_eq(run(0, &streams[0]), 0);
	begin_capture(&streams[0]);
	branch(&streams[0], &streams[1]);
	ck_assert_int_eq(run(0, &streams[1]), 0);
	branch(&streams[0], &streams[2]);
	for (i = 0; i < 30; i++)
		ck_assert_int_eq(run(i / 3 % 2, &streams[i % 3]), 0);
	end_capture(1);
	ck_assert_int_eq(run(1, &streams[3]), 0);
}
END_TEST

/* On one stream runs are in order without waits, which would be edges in the graph. */
START_TEST(test_one_stream_has_no_edges)
{
	uint32_t i;

	begin_capture(&streams[0]);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(run(0, &streams[0]), 0);
	ck_assert_uint_eq(streams[0].n_waits, 0);
	ck_assert_uint_eq(inside.n_waits, 1);
}
END_TEST

START_TEST(test_another_capture_is_refused)
{
	begin_capture(&streams[0]);
	ck_assert_int_eq(run(0, &streams[0]), 0);
	begin_capture(&streams[1]);
	ck_assert_int_eq(run(1, &streams[1]), CEOV_ERR_STATE);
	ck_assert_int_eq(run(0, &streams[2]), CEOV_ERR_STATE);
	ck_assert_uint_eq(streams[1].n_waits + streams[2].n_waits, 0);
	ck_assert_uint_eq(invalid, 0);
	end_capture(1);
	ck_assert_int_eq(run(1, &streams[1]), 0);
	end_capture(2);
	ck_assert_int_eq(run(0, &streams[2]), 0);
}
END_TEST

START_TEST(test_an_invalid_capture_is_refused)
{
	begin_capture(&streams[0]);
	ck_assert_int_eq(run(0, &streams[0]), 0);
	invalid = 1;
	ck_assert_int_eq(run(0, &streams[0]), CEOV_ERR_STATE);
	ck_assert_int_eq(run(0, &streams[1]), CEOV_ERR_STATE);
	end_capture(1);
	ck_assert_int_eq(run(0, &streams[0]), 0);
}
END_TEST

/* Outside of graphs as well, whichever order made the run before. */
START_TEST(test_one_stream_has_no_waits)
{
	uint32_t i;

	for (i = 0; i < 10; i++)
		ck_assert_int_eq(run(i / 3 % 2, &streams[0]), 0);
	ck_assert_uint_eq(streams[0].n_waits, 0);
	ck_assert_int_eq(run(0, &streams[1]), 0);
	ck_assert_int_eq(run(0, &streams[0]), 0);
	ck_assert_uint_eq(streams[1].n_waits, 1);
	ck_assert_uint_eq(streams[0].n_waits, 1);
}
END_TEST

/* A new stream may have the handle of one that was destroyed. */
START_TEST(test_a_handle_comes_again)
{
	ck_assert_int_eq(run(0, &streams[0]), 0);
	streams[0] = (struct fake_stream){ .id = 99 };
	ck_assert_int_eq(run(0, &streams[0]), 0);
	ck_assert_uint_eq(streams[0].n_waits, 1);
}
END_TEST

/* Without an id the driver might mean any stream. */
START_TEST(test_streams_without_ids)
{
	uint32_t i;

	for (i = 0; i < N_STREAMS; i++)
		streams[i].id = 0;
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(run(0, &streams[0]), 0);
	ck_assert_uint_eq(streams[0].n_waits, 9);
}
END_TEST

/* What an order that has closed ran last has ended. */
START_TEST(test_the_last_order_closes)
{
	ck_assert_int_eq(run(1, &streams[0]), 0);
	ck_assert_ptr_eq(orders[0].last, &orders[1]);
	cei_gpu_order_close(&orders[1]);
	orders[1] = (struct cei_gpu_order){ 0 };
	ck_assert_ptr_null(orders[0].last);
	queued[0] = 0;
	ck_assert_int_eq(run(0, &streams[1]), 0);
	ck_assert_uint_eq(streams[1].n_waits, 0);
}
END_TEST

/* Captures begin, branch and end at random; run() asserts the order. */
START_TEST(test_at_random)
{
	uint64_t random = testing_seed();
	uint32_t i, at;

	for (i = 0; i < ROUNDS; i++) {
		at = (uint32_t)testing_below(&random, N_STREAMS);
		switch (testing_below(&random, 8)) {
		case 0:
			if (!inside.capture && !streams[0].capture)
				begin_capture(&streams[0]);
			break;
		case 1:
			if (streams[0].capture)
				end_capture(streams[0].capture);
			break;
		case 2:
			if (streams[0].capture && !streams[at].capture)
				branch(&streams[0], &streams[at]);
			break;
		default:
			if (run(i % 2, &streams[at]))
				ck_assert(inside.capture && !streams[at].capture);
		}
	}
}
END_TEST

int main(void)
{
	Suite *made = suite_create("stream order");
	TCase *all = tcase_create("order");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_streams);
	tcase_add_test(all, test_branches_of_a_capture);
	tcase_add_test(all, test_one_stream_has_no_edges);
	tcase_add_test(all, test_another_capture_is_refused);
	tcase_add_test(all, test_an_invalid_capture_is_refused);
	tcase_add_test(all, test_one_stream_has_no_waits);
	tcase_add_test(all, test_a_handle_comes_again);
	tcase_add_test(all, test_streams_without_ids);
	tcase_add_test(all, test_the_last_order_closes);
	tcase_add_test(all, test_at_random);
	suite_add_tcase(made, all);
	return testing_run(made);
}
