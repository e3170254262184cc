/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests plans that are queued on a stream: which operations the stream gets, and in which order.
 * Host ranks have no streams, so the test plays one: it executes operations at once and records
 * them. */

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/host.h"
#include "ce_engine/engine/engine.h"
#include "ce_engine/exec/lower.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/program/split.h"
#include "testing.h"

#define BYTES  UINT64_C(96)
#define PARTS  8u
#define MANY   150u                     /* more than two batches hold */
#define BASE   UINT64_C(40)
#define LOG_BYTES 512u

struct stream {
	char     log[LOG_BYTES];        /* for each call its operations: a letter for their kind,
					 * and how many */
	int      is_capturing;
	int      is_dry;                /* copies are recorded but not made */
	uint64_t n_pieces;
};

struct stand {
	ceov_context          *context;
	struct cei_backend_ops ops;     /* the host's table with streams */
	struct stream          stream;
	ceov_signal           *ready;   /* has PARTS counters */
	ceov_signal           *arrived; /* has MANY counters */
	ceov_buffer           *source;  /* buffer of rank 1 */
	ceov_buffer           *target;  /* of rank 0, which owns the plan */
	ceov_plan             *plan;
	unsigned char          bytes[MANY * BYTES];     /* copy of the source's content */
};

/* --- playing the stream ---------------------------------------------------- */

static void note(struct stream *stream, char what, uint32_t n)
{
	size_t used = strlen(stream->log);

	if (n)
		(void)snprintf(stream->log + used, LOG_BYTES - used, "%c%u ", what, n);
}

static void do_copies(const struct cei_stream_work *work)
{
	const struct cei_piece *piece;
	uint64_t row;
	uint32_t i;

	for (i = 0; i < work->n_pieces; i++) {
		piece = &work->pieces[i];
		for (row = 0; row < piece->n_rows; row++)
			memcpy((void *)(uintptr_t)(piece->target +
						   row * piece->target_pitch_bytes),
			       (const void *)(uintptr_t)(piece->source +
							 row * piece->source_pitch_bytes),
			       piece->row_bytes);
	}
}

static void do_posts(const struct cei_stream_work *work)
{
	uint64_t *counter;
	uint32_t i;

	for (i = 0; i < work->n_posts; i++) {
		counter = (uint64_t *)(uintptr_t)work->posts[i].counter;
		*counter = work->value_at ? *(const uint64_t *)(uintptr_t)work->value_at
			: work->posts[i].value;
	}
}

static int stream_queue(struct cei_backend *backend, void *token,
			const struct cei_stream_work *work)
{
	struct stream *stream = token;
	uint32_t i;

	if (stream->is_capturing)
		return cei_raise(backend->site->report, CEOV_ERR_INVALID, 0, "captured");
	ck_assert_uint_le(work->n_pieces, CEI_LANE_BATCH);
	for (i = 0; i < work->n_awaits; i++)
		ck_assert_uint_ge(*(const uint64_t *)(uintptr_t)work->awaits[i].counter,
				  work->awaits[i].value);
	if (!stream->is_dry)
		do_copies(work);
	do_posts(work);
	stream->n_pieces += work->n_pieces;
	note(stream, 'w', work->n_awaits);
	note(stream, 'c', work->n_pieces);
	note(stream, 'r', work->n_posts);
	return 0;
}

/* --- opening and closing --------------------------------------------------- */

static void stand_open(struct stand *stand)
{
	memset(stand, 0, sizeof(*stand));
	stand->context = testing_open_turned(2, NULL);
	stand->ops = cei_backend_host;
	stand->ops.caps |= CEI_CAP_STREAMS;
	stand->ops.stream_queue = stream_queue;
	stand->context->works.engines[0].backend->ops = &stand->ops;
	stand->ready = testing_signal(stand->context, 0, PARTS);
	stand->arrived = testing_signal(stand->context, 0, MANY);
	stand->source = testing_buffer(stand->context, 1, MANY * BYTES);
	stand->target = testing_buffer(stand->context, 0, MANY * BYTES);
	testing_fill(ceov_buffer_base(stand->source, 1), MANY * BYTES, testing_seed());
	testing_fill(stand->bytes, MANY * BYTES, testing_seed());
	stand->plan = testing_plan(stand->context, 0);
}

static void stand_close(struct stand *stand)
{
	ceov_close(stand->context);
}

/* Makes the transfer that moves part i of the buffers. */
static struct ceov_transfer part(const struct stand *stand, uint32_t i)
{
	struct ceov_transfer transfer = testing_transfer(stand->source, stand->target, BYTES);

	transfer.source.offset_bytes = transfer.target.offset_bytes = i * BYTES;
	return transfer;
}

static struct ceov_transfer part_behind(const struct stand *stand, uint32_t i,
					uint32_t ready)
{
	struct ceov_transfer transfer = part(stand, i);

	transfer.source_ready = testing_mark(stand->ready, ready, 1);
	return transfer;
}

static void add_raise(const struct stand *stand, uint32_t index)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);

	transfer.then = testing_mark(stand->arrived, index, 1);
	testing_add(stand->plan, &transfer);
}

static void commit(const struct stand *stand)
{
	ck_assert_int_eq(ceov_plan_commit(stand->plan), 0);
}

static int queue(struct stand *stand)
{
	stand->stream.log[0] = 0;
	return ceov_plan_queue(stand->plan, &stand->stream, BASE);
}

/* Raises all marks that the plan waits for, queues the plan, and asserts what the stream
 * recorded. */
static void queue_ready(struct stand *stand, const char *log)
{
	uint32_t i;

	for (i = 0; i < PARTS; i++)
		ck_assert_int_eq(ceov_signal_raise(stand->ready, i, BASE + 1), 0);
	ck_assert_int_eq(queue(stand), 0);
	ck_assert_str_eq(stand->stream.log, log);
}

static uint64_t arrived(const struct stand *stand, uint32_t index)
{
	uint64_t value;

	ck_assert_int_eq(ceov_signal_value(stand->arrived, index, &value), 0);
	return value;
}

static void refused(struct stand *stand, int error, const char *text)
{
	struct ceov_failure failure;

	(void)ceov_last_failure(stand->context, &failure);
	ck_assert_int_eq(queue(stand), error);
	ck_assert_str_eq(stand->stream.log, "");
	failure = testing_failure(stand->context);
	ck_assert_msg(strstr(failure.text, text) != NULL, "'%s': no '%s'", failure.text, text);
}

/* --- tests ----------------------------------------------------------------- */

/* As in an all-gather by pulling: the own part, two parts behind each peer's mark, then the
 * final mark. */
START_TEST(test_waits_copies_and_raises_stand_in_the_plans_order)
{
	struct ceov_transfer transfer;
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	transfer = part(&stand, 0);
	testing_add(stand.plan, &transfer);
	for (i = 1; i < 5; i++) {
		transfer = part_behind(&stand, i, (i - 1) / 2);
		testing_add(stand.plan, &transfer);
	}
	add_raise(&stand, 0);
	commit(&stand);
	queue_ready(&stand, "c1 w1 c2 w1 c2 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(stand.target, 0), 5 * BYTES,
					testing_seed()), 5 * BYTES);
	ck_assert_uint_eq(arrived(&stand, 0), BASE + 1);
	stand_close(&stand);
}
END_TEST

START_TEST(test_both_marks_are_waited_for_and_what_has_none_joins)
{
	struct ceov_transfer transfer;
	struct stand stand;

	stand_open(&stand);
	transfer = part_behind(&stand, 0, 0);
	transfer.target_free = testing_mark(stand.ready, 1, 1);
	testing_add(stand.plan, &transfer);
	transfer = part(&stand, 1);
	transfer.then = testing_mark(stand.arrived, 1, 1);
	testing_add(stand.plan, &transfer);
	transfer = part_behind(&stand, 2, 0);
	testing_add(stand.plan, &transfer);
	transfer = part_behind(&stand, 3, 0);
	transfer.target_free = testing_mark(stand.ready, 2, 1);
	testing_add(stand.plan, &transfer);
	commit(&stand);
	queue_ready(&stand, "w2 c3 r1 w1 c1 ");
	stand_close(&stand);
}
END_TEST

/* As in an all-gather that begins when all peers are ready: their marks are waited for at once, and
 * not again for the copies, which are a batch for each peer all the same. A later value of one of
 * the counters is another mark. */
START_TEST(test_a_mark_is_waited_for_once)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	for (i = 0; i < 3; i++) {
		transfer.source_ready = testing_mark(stand.ready, i, 1);
		testing_add(stand.plan, &transfer);
	}
	for (i = 0; i < 6; i++) {
		transfer = part_behind(&stand, i, i / 2);
		testing_add(stand.plan, &transfer);
	}
	transfer = part_behind(&stand, 6, 0);
	transfer.source_ready.value = 2;
	testing_add(stand.plan, &transfer);
	transfer = part_behind(&stand, 7, 0);
	testing_add(stand.plan, &transfer);
	add_raise(&stand, 0);
	commit(&stand);
	ck_assert_int_eq(ceov_signal_raise(stand.ready, 0, BASE + 2), 0);
	for (i = 1; i < 3; i++)
		ck_assert_int_eq(ceov_signal_raise(stand.ready, i, BASE + 1), 0);
	ck_assert_int_eq(queue(&stand), 0);
	ck_assert_str_eq(stand.stream.log, "w3 c2 c2 c2 w1 c1 c1 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(stand.target, 0), 8 * BYTES,
					testing_seed()), 8 * BYTES);
	stand_close(&stand);
}
END_TEST

/* More marks than a batch can wait for, and than are remembered. */
START_TEST(test_many_marks_are_waited_for)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	for (i = 0; i < MANY; i++) {
		transfer.source_ready = testing_mark(stand.arrived, i, 1);
		testing_add(stand.plan, &transfer);
		ck_assert_int_eq(ceov_signal_raise(stand.arrived, i, BASE + 1), 0);
	}
	for (i = 0; i < MANY; i += MANY - 1) {
		transfer = part(&stand, i);
		transfer.source_ready = testing_mark(stand.arrived, i, 1);
		testing_add(stand.plan, &transfer);
	}
	commit(&stand);
	ck_assert_int_eq(queue(&stand), 0);
	ck_assert_str_eq(stand.stream.log, "w63 w63 w24 c1 w1 c1 ");
	stand_close(&stand);
}
END_TEST

/* The plan raises a mark and then waits for it on the same stream. */
START_TEST(test_a_transfer_behind_the_plans_own_mark)
{
	struct ceov_transfer transfer;
	struct stand stand;

	stand_open(&stand);
	transfer = part(&stand, 0);
	transfer.then = testing_mark(stand.arrived, 0, 1);
	testing_add(stand.plan, &transfer);
	transfer = part(&stand, 1);
	transfer.source_ready = testing_mark(stand.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(stand.plan, &transfer), 0);
	commit(&stand);
	queue_ready(&stand, "c1 r1 w1 c1 ");
	stand_close(&stand);
}
END_TEST

START_TEST(test_batches_are_bounded)
{
	struct ceov_transfer transfer;
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	for (i = 0; i < MANY; i++) {
		transfer = part(&stand, i);
		transfer.then = testing_mark(stand.arrived, i, 1);
		testing_add(stand.plan, &transfer);
	}
	commit(&stand);
	queue_ready(&stand, "c64 r64 c64 r64 c22 r22 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(stand.target, 0), MANY * BYTES,
					testing_seed()), MANY * BYTES);
	for (i = 0; i < MANY; i++)
		ck_assert_uint_eq(arrived(&stand, i), BASE + 1);
	stand_close(&stand);
}
END_TEST

/* Rows are further apart than the driver's copies allow. The memory is never touched. */
START_TEST(test_rows_too_far_apart_go_one_by_one)
{
	const uint64_t pitch = (uint64_t)CEI_PITCH_MAX_BYTES + 1, rows = 70;
	const size_t size = rows * pitch;
	struct ceov_transfer transfer;
	struct stand stand;
	ceov_buffer *far;
	void *memory = mmap(NULL, size, PROT_NONE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert(memory != MAP_FAILED);
	stand_open(&stand);
	ck_assert_int_eq(ceov_buffer_register(stand.context, 1, memory, size, &far), 0);
	transfer = testing_transfer(far, stand.target, 8);
	transfer.n_rows = rows;
	transfer.source.pitch_bytes = pitch;
	transfer.target.pitch_bytes = 16;
	transfer.then = testing_mark(stand.arrived, 0, 1);
	testing_add(stand.plan, &transfer);
	commit(&stand);
	stand.stream.is_dry = 1;
	queue_ready(&stand, "c64 c6 r1 ");
	ck_assert_uint_eq(stand.stream.n_pieces, rows);
	stand_close(&stand);
	ck_assert_int_eq(munmap(memory, size), 0);
}
END_TEST

START_TEST(test_rows_with_gaps)
{
	const uint64_t rows = 5;
	struct ceov_transfer transfer;
	struct stand stand;
	const char *source, *target;
	uint64_t i;

	stand_open(&stand);
	transfer = testing_transfer(stand.source, stand.target, BYTES);
	transfer.n_rows = rows;
	transfer.source.pitch_bytes = 2 * BYTES;
	transfer.target.pitch_bytes = 3 * BYTES;
	testing_add(stand.plan, &transfer);
	transfer.target.offset_bytes = BYTES;   /* in the gap between the rows */
	testing_add(stand.plan, &transfer);
	commit(&stand);
	queue_ready(&stand, "c2 ");
	source = ceov_buffer_base(stand.source, 1);
	target = ceov_buffer_base(stand.target, 0);
	for (i = 0; i < rows; i++) {
		ck_assert_mem_eq(target + 3 * i * BYTES, source + 2 * i * BYTES, BYTES);
		ck_assert_mem_eq(target + (3 * i + 1) * BYTES, source + 2 * i * BYTES, BYTES);
	}
	stand_close(&stand);
}
END_TEST

START_TEST(test_counters_do_not_fall)
{
	struct ceov_transfer transfer;
	struct ceov_mark mark;
	struct stand stand;

	stand_open(&stand);
	transfer = part(&stand, 0);
	testing_add(stand.plan, &transfer);
	add_raise(&stand, 3);
	commit(&stand);
	ck_assert_int_eq(ceov_signal_raise(stand.arrived, 3, BASE + 2), 0);
	refused(&stand, CEOV_ERR_INVALID, "transfer 1 would lower counter 3 of");
	mark = testing_mark(stand.arrived, 3, 1);
	ck_assert_int_eq(ceov_stream_raise(stand.context, 0, &stand.stream, &mark, 1, BASE),
			 CEOV_ERR_INVALID);
	ck_assert_str_eq(stand.stream.log, "");
	ck_assert_int_eq(ceov_stream_raise(stand.context, 0, &stand.stream, &mark, 1,
					   BASE + 1), 0);
	ck_assert_int_eq(ceov_stream_wait(stand.context, 0, &stand.stream, &mark, 1, BASE), 0);
	ck_assert_str_eq(stand.stream.log, "r1 w1 ");
	ck_assert_int_eq(ceov_stream_raise(stand.context, 0, &stand.stream, NULL, 1, 0),
			 CEOV_ERR_INVALID);
	stand_close(&stand);
}
END_TEST

START_TEST(test_streams_that_cannot_be_used_are_refused)
{
	struct ceov_transfer transfer;
	struct stand stand;

	stand_open(&stand);
	transfer = part_behind(&stand, 0, 0);
	testing_add(stand.plan, &transfer);
	refused(&stand, CEOV_ERR_STATE, "not committed");
	commit(&stand);
	ck_assert_int_eq(ceov_plan_queue(stand.plan, NULL, 0), CEOV_ERR_INVALID);
	stand.stream.is_capturing = 1;
	refused(&stand, CEOV_ERR_INVALID, "captured");
	stand.stream.is_capturing = 0;
	stand.context->works.engines[0].backend->ops = &cei_backend_host;
	refused(&stand, CEOV_ERR_INVALID, "no streams");
	stand_close(&stand);
}
END_TEST

/* Makes a signal look as if it were in a GPU of another process, or no longer so. */
static void found_in_a_gpu(ceov_signal *signal, int is_so)
{
	signal->gpu = is_so ? &signal->own_gpu : NULL;
	signal->own_gpu.address[0] = is_so ? (uintptr_t)signal : 0;
	signal->found_id = (uint64_t)is_so;
	signal->rank = (uint32_t)is_so;
}

START_TEST(test_plans_that_cannot_be_queued_are_refused)
{
	struct ceov_transfer transfer;
	struct ceov_failure failure;
	struct ceov_mark ready;
	struct stand stand;
	ceov_ticket ticket;

	stand_open(&stand);
	transfer = part_behind(&stand, 0, 0);
	ready = transfer.source_ready;
	testing_add(stand.plan, &transfer);
	commit(&stand);
	ck_assert_int_eq(ceov_plan_queue(stand.plan, &stand.stream, CEOV_VALUE_LIMIT - 1),
			 CEOV_ERR_INVALID);
	stand.plan->program.transfers[0].has_direct = 0;
	refused(&stand, CEOV_ERR_INVALID, "transfer 0 has no direct path");
	stand.plan->program.transfers[0].has_direct = 1;
	stand.plan->steps[0].source_ready.address = 0;
	refused(&stand, CEOV_ERR_NO_ROUTE, "transfer 0: source_ready");
	stand.plan->steps[0].source_ready.address =
		(uintptr_t)stand.plan->steps[0].source_ready.seen;
	found_in_a_gpu(stand.ready, 1);
	refused(&stand, CEOV_ERR_NO_ROUTE, "rank 1's signal, which are in another process' GPU");
	ck_assert_int_eq(ceov_stream_wait(stand.context, 0, &stand.stream, &ready, 1, 0),
			 CEOV_ERR_NO_ROUTE);
	failure = testing_failure(stand.context);
	ck_assert_msg(strstr(failure.text, "in another process"), "\"%s\"", failure.text);
	found_in_a_gpu(stand.ready, 0);
	ck_assert_int_eq(ceov_launch(stand.plan, NULL, &ticket), 0);
	refused(&stand, CEOV_ERR_STATE, "a launch of the plan is in flight");
	ck_assert_int_eq(ceov_abort(stand.context, ticket), 0);
	while (ceov_wait(stand.context, ticket, 0) == CEOV_PENDING)
		(void)ceov_turn(stand.context);
	refused(&stand, CEOV_ERR_ABORTED, "renew it");
	stand_close(&stand);
}
END_TEST

/* Bases may not fall, whether the last run was launched or queued. */
START_TEST(test_a_base_never_falls)
{
	struct ceov_launch launch = { .struct_bytes = sizeof(launch), .base = BASE };
	struct ceov_transfer transfer;
	struct stand stand;
	ceov_ticket ticket;

	stand_open(&stand);
	transfer = part(&stand, 0);
	testing_add(stand.plan, &transfer);
	commit(&stand);
	ck_assert_int_eq(ceov_plan_queue(stand.plan, &stand.stream, BASE + 1), 0);
	ck_assert_int_eq(ceov_plan_queue(stand.plan, &stand.stream, BASE), CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_launch(stand.plan, &launch, &ticket), CEOV_ERR_INVALID);
	launch.base = BASE + 2;
	ck_assert_int_eq(ceov_launch(stand.plan, &launch, &ticket), 0);
	while (ceov_wait(stand.context, ticket, 0) == CEOV_PENDING)
		(void)ceov_turn(stand.context);
	ck_assert_int_eq(ceov_plan_queue(stand.plan, &stand.stream, BASE + 1),
			 CEOV_ERR_INVALID);
	stand_close(&stand);
}
END_TEST

/* Marks are raised after at most mark_group_bytes. */
START_TEST(test_marks_are_raised_before_more_bytes_go)
{
	struct ceov_transfer transfer;
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	for (i = 0; i < 5; i++) {
		transfer = part(&stand, i);
		transfer.then = testing_mark(stand.arrived, i, 1);
		testing_add(stand.plan, &transfer);
	}
	commit(&stand);
	stand.plan->program.mark_group_bytes = 2 * BYTES;
	queue_ready(&stand, "c2 r2 c2 r2 c1 r1 ");
	stand_close(&stand);
}
END_TEST

/* Queues a run as operators do when a graph may capture it: waits are for 1, the run gives the
 * source, raised values are copied from a word, and a transfer that only raises queues nothing. */
START_TEST(test_a_run_that_takes_its_marks_from_memory)
{
	uint64_t word = BASE + 7;
	struct ceov_transfer transfer;
	struct cei_stream_run run;
	struct stand stand;
	uint32_t i;

	stand_open(&stand);
	ck_assert_int_eq(ceov_buffer_float(stand.context, 0, MANY * BYTES, &stand.source), 0);
	for (i = 0; i < 4; i++) {
		transfer = part_behind(&stand, i, i / 2);
		transfer.then = testing_mark(stand.arrived, i, 1);
		testing_add(stand.plan, &transfer);
		add_raise(&stand, 4 + i);
	}
	commit(&stand);
	stand.plan->program.mark_group_bytes = 1;
	run = (struct cei_stream_run){
		.plan = stand.plan,
		.backend = stand.context->works.engines[0].backend,
		.stream = &stand.stream,
		.floating = (uint64_t)(uintptr_t)stand.bytes,
		.value_at = (uint64_t)(uintptr_t)&word,
	};
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(stand.ready, i, 1), 0);
	ck_assert_int_eq(cei_lower_to_stream(&run), 0);
	ck_assert_str_eq(stand.stream.log, "w1 c1 r1 c1 r1 w1 c1 r1 c1 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(stand.target, 0), 4 * BYTES,
					testing_seed()), 4 * BYTES);
	for (i = 0; i < 8; i++)
		ck_assert_uint_eq(arrived(&stand, i), i < 4 ? word : 0);
	stand_close(&stand);
}
END_TEST

START_TEST(test_a_mark_of_a_later_transfer_is_refused)
{
	struct ceov_transfer transfer;
	struct stand stand;

	stand_open(&stand);
	transfer = part(&stand, 0);
	testing_add(stand.plan, &transfer);
	transfer = part(&stand, 1);
	transfer.target_free = testing_mark(stand.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(stand.plan, &transfer), 0);
	transfer = part(&stand, 2);
	transfer.then = testing_mark(stand.arrived, 0, 1);
	testing_add(stand.plan, &transfer);
	commit(&stand);
	refused(&stand, CEOV_ERR_INVALID, "transfer 1 waits for a mark of one behind it");
	stand_close(&stand);
}
END_TEST

START_TEST(test_a_floating_buffer_is_refused)
{
	struct ceov_transfer transfer;
	struct stand stand;
	ceov_buffer *floating;

	stand_open(&stand);
	ck_assert_int_eq(ceov_buffer_float(stand.context, 0, BYTES, &floating), 0);
	transfer = testing_transfer(floating, stand.source, BYTES);
	testing_add(stand.plan, &transfer);
	commit(&stand);
	refused(&stand, CEOV_ERR_INVALID, "floating");
	stand_close(&stand);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("queue");
	TCase *all = tcase_create("queue");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_waits_copies_and_raises_stand_in_the_plans_order);
	tcase_add_test(all, test_both_marks_are_waited_for_and_what_has_none_joins);
	tcase_add_test(all, test_a_mark_is_waited_for_once);
	tcase_add_test(all, test_many_marks_are_waited_for);
tcase_add_test(all, test_a_transfer_behind_the_plans_own_mark);
	tcase_add_test(all, test_batches_are_bounded);
	tcase_add_test(all, test_rows_too_far_apart_go_one_by_one);
	tcase_add_test(all, test_rows_with_gaps);
	tcase_add_test(all, test_counters_do_not_fall);
	tcase_add_test(all, test_streams_that_cannot_be_used_are_refused);
	tcase_add_test(all, test_plans_that_cannot_be_queued_are_refused);
	tcase_add_test(all, test_a_base_never_falls);
	tcase_add_test(all, test_marks_are_raised_before_more_bytes_go);
	tcase_add_test(all, test_a_run_that_takes_its_marks_from_memory);
	tcase_add_test(all, test_a_mark_of_a_later_transfer_is_refused);
	tcase_add_test(all, test_a_floating_buffer_is_refused);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
