/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests how plans are lowered to a stream: which operations it gets, and in which order. */

#include <check.h>
#include <sys/mman.h>

#include "ce_engine/engine/engine.h"
#include "ce_engine/exec/lower.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "ce_engine/program/program_cut.h"
#include "stream_rig.h"

/* As in an all-gather by pulling: the own part, two parts behind each peer's mark, then the
 * final mark. */
START_TEST(test_waits_copies_and_raises_stand_in_the_plans_order)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	testing_add(rig.plan, &transfer);
	for (i = 1; i < 5; i++) {
		transfer = stream_rig_part_behind(&rig, i, (i - 1) / 2);
		testing_add(rig.plan, &transfer);
	}
	stream_rig_add_raise(&rig, 0);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "c1 w1 c2 w1 c2 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(rig.target, 0), 5 * STREAM_RIG_BYTES,
					testing_seed()), 5 * STREAM_RIG_BYTES);
	ck_assert_uint_eq(stream_rig_arrived(&rig, 0), STREAM_RIG_BASE + 1);
	stream_rig_close(&rig);
}
END_TEST

/* A transfer without marks stands between those that wait, and in their order. */
START_TEST(test_both_marks_are_waited_for)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part_behind(&rig, 0, 0);
	transfer.target_free = testing_mark(rig.ready, 1, 1);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part(&rig, 1);
	transfer.then = testing_mark(rig.arrived, 1, 1);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part_behind(&rig, 2, 0);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part_behind(&rig, 3, 0);
	transfer.target_free = testing_mark(rig.ready, 2, 1);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "w2 c1 c1 r1 c1 w1 c1 ");
	stream_rig_close(&rig);
}
END_TEST

/* As in an all-gather that copies the own part when peers' parts have been copied. */
START_TEST(test_what_has_no_marks_is_copied_behind_what_waits)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	for (i = 0; i < 6; i++) {
		transfer = i < 4 ? stream_rig_part_behind(&rig, i, i / 2)
			: stream_rig_part(&rig, i);
		testing_add(rig.plan, &transfer);
	}
	stream_rig_add_raise(&rig, 0);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "w1 c2 w1 c2 c2 r1 ");
	stream_rig_close(&rig);
}
END_TEST

/* As in an all-gather that begins when all peers are ready: their marks are waited for at once, and
 * not again for the copies, which are a batch for each peer all the same. A later value of one of
 * the counters is another mark. */
START_TEST(test_a_mark_is_waited_for_once)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	for (i = 0; i < 3; i++) {
		transfer.source_ready = testing_mark(rig.ready, i, 1);
		testing_add(rig.plan, &transfer);
	}
	for (i = 0; i < 6; i++) {
		transfer = stream_rig_part_behind(&rig, i, i / 2);
		testing_add(rig.plan, &transfer);
	}
	transfer = stream_rig_part_behind(&rig, 6, 0);
	transfer.source_ready.value = 2;
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part_behind(&rig, 7, 0);
	testing_add(rig.plan, &transfer);
	stream_rig_add_raise(&rig, 0);
	stream_rig_commit(&rig);
	ck_assert_int_eq(ceov_signal_raise(rig.ready, 0, STREAM_RIG_BASE + 2), 0);
	for (i = 1; i < 3; i++)
		ck_assert_int_eq(ceov_signal_raise(rig.ready, i, STREAM_RIG_BASE + 1), 0);
	ck_assert_int_eq(stream_rig_queue(&rig), 0);
	ck_assert_str_eq(rig.stream.log, "w3 c2 c2 c2 w1 c1 c1 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(rig.target, 0), 8 * STREAM_RIG_BYTES,
					testing_seed()), 8 * STREAM_RIG_BYTES);
	stream_rig_close(&rig);
}
END_TEST

/* Whether it was waited for as source_ready or as target_free. */
START_TEST(test_a_mark_is_waited_for_once_in_either_place)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	transfer.target_free = testing_mark(rig.ready, 0, 1);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part_behind(&rig, 1, 0);
	transfer.target_free = testing_mark(rig.ready, 1, 1);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part_behind(&rig, 2, 1);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "w1 c1 w1 c1 c1 ");
	stream_rig_close(&rig);
}
END_TEST

/* The plan raises one counter twice, and waits for each value. */
START_TEST(test_each_value_of_a_counter_is_a_mark)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	uint64_t value;

	stream_rig_open(&rig);
	for (value = 0; value < 3; value++) {
		transfer = stream_rig_part(&rig, (uint32_t)value);
		if (value)
			transfer.source_ready = testing_mark(rig.arrived, 0, value);
		transfer.then = testing_mark(rig.arrived, 0, value + 1);
		ck_assert_int_eq(ceov_plan_add(rig.plan, &transfer), 0);
	}
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "c1 r1 w1 c1 r1 w1 c1 r1 ");
	ck_assert_uint_eq(stream_rig_arrived(&rig, 0), STREAM_RIG_BASE + 3);
	stream_rig_close(&rig);
}
END_TEST

/* More marks than a batch can wait for, and than are remembered. */
START_TEST(test_many_marks_are_waited_for)
{
	struct ceov_transfer transfer = testing_transfer(NULL, NULL, 0);
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	for (i = 0; i < STREAM_RIG_MARKS; i++) {
		transfer.source_ready = testing_mark(rig.arrived, i, 1);
		testing_add(rig.plan, &transfer);
		ck_assert_int_eq(ceov_signal_raise(rig.arrived, i, STREAM_RIG_BASE + 1), 0);
	}
	for (i = 0; i < STREAM_RIG_MARKS; i += STREAM_RIG_MARKS - 1) {
		transfer = stream_rig_part(&rig, i);
		transfer.source_ready = testing_mark(rig.arrived, i, 1);
		testing_add(rig.plan, &transfer);
	}
	stream_rig_commit(&rig);
	ck_assert_int_eq(stream_rig_queue(&rig), 0);
	ck_assert_str_eq(rig.stream.log, "w63 w63 w24 c1 w1 c1 ");
	stream_rig_close(&rig);
}
END_TEST

/* The plan raises a mark and then waits for it on the same stream. */
START_TEST(test_a_transfer_behind_the_plans_own_mark)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;

	stream_rig_open(&rig);
	transfer = stream_rig_part(&rig, 0);
	transfer.then = testing_mark(rig.arrived, 0, 1);
	testing_add(rig.plan, &transfer);
	transfer = stream_rig_part(&rig, 1);
	transfer.source_ready = testing_mark(rig.arrived, 0, 1);
	ck_assert_int_eq(ceov_plan_add(rig.plan, &transfer), 0);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "c1 r1 w1 c1 ");
	stream_rig_close(&rig);
}
END_TEST

START_TEST(test_batches_are_bounded)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	for (i = 0; i < STREAM_RIG_MARKS; i++) {
		transfer = stream_rig_part(&rig, i);
		transfer.then = testing_mark(rig.arrived, i, 1);
		testing_add(rig.plan, &transfer);
	}
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "c64 r64 c64 r64 c22 r22 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(rig.target, 0), STREAM_RIG_SIZE,
					testing_seed()), STREAM_RIG_SIZE);
	for (i = 0; i < STREAM_RIG_MARKS; i++)
		ck_assert_uint_eq(stream_rig_arrived(&rig, i), STREAM_RIG_BASE + 1);
	stream_rig_close(&rig);
}
END_TEST

/* Rows are further apart than the driver's copies allow. The memory is never written to. */
START_TEST(test_rows_too_far_apart_go_one_by_one)
{
	const uint64_t pitch = (uint64_t)CEI_PITCH_MAX_BYTES + 1, rows = 70;
	const size_t size = rows * pitch;
	struct ceov_transfer transfer;
	struct stream_rig rig;
	ceov_buffer *far;
	void *memory = mmap(NULL, size, PROT_READ,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert(memory != MAP_FAILED);
	stream_rig_open(&rig);
	ck_assert_int_eq(ceov_buffer_register(rig.context, 1, memory, size, &far), 0);
	transfer = testing_transfer(far, rig.target, 8);
	transfer.n_rows = rows;
	transfer.source.pitch_bytes = pitch;
	transfer.target.pitch_bytes = 16;
	transfer.then = testing_mark(rig.arrived, 0, 1);
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	rig.stream.is_dry = 1;
	stream_rig_queue_ready(&rig, "c64 c6 r1 ");
	ck_assert_uint_eq(rig.stream.n_pieces, rows);
	stream_rig_close(&rig);
	ck_assert_int_eq(munmap(memory, size), 0);
}
END_TEST

START_TEST(test_rows_with_gaps)
{
	const uint64_t rows = 5;
	struct ceov_transfer transfer;
	struct stream_rig rig;
	const char *source, *target;
	uint64_t i;

	stream_rig_open(&rig);
	transfer = testing_transfer(rig.source, rig.target, STREAM_RIG_BYTES);
	transfer.n_rows = rows;
	transfer.source.pitch_bytes = 2 * STREAM_RIG_BYTES;
	transfer.target.pitch_bytes = 3 * STREAM_RIG_BYTES;
	testing_add(rig.plan, &transfer);
	transfer.target.offset_bytes = STREAM_RIG_BYTES;   /* in the gap between the rows */
	testing_add(rig.plan, &transfer);
	stream_rig_commit(&rig);
	stream_rig_queue_ready(&rig, "c2 ");
	source = ceov_buffer_base(rig.source, 1);
	target = ceov_buffer_base(rig.target, 0);
	for (i = 0; i < rows; i++) {
		ck_assert_mem_eq(target + 3 * i * STREAM_RIG_BYTES,
				 source + 2 * i * STREAM_RIG_BYTES, STREAM_RIG_BYTES);
		ck_assert_mem_eq(target + (3 * i + 1) * STREAM_RIG_BYTES,
				 source + 2 * i * STREAM_RIG_BYTES, STREAM_RIG_BYTES);
	}
	stream_rig_close(&rig);
}
END_TEST

/* Marks are raised after at most mark_group_bytes. */
START_TEST(test_marks_are_raised_before_more_bytes_go)
{
	struct ceov_transfer transfer;
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	for (i = 0; i < 5; i++) {
		transfer = stream_rig_part(&rig, i);
		transfer.then = testing_mark(rig.arrived, i, 1);
		testing_add(rig.plan, &transfer);
	}
	stream_rig_commit(&rig);
	rig.plan->program.mark_group_bytes = 2 * STREAM_RIG_BYTES;
	stream_rig_queue_ready(&rig, "c2 r2 c2 r2 c1 r1 ");
	stream_rig_close(&rig);
}
END_TEST

/* Queues a run as operators do when a graph may capture it: waits are for 1, the run gives the
 * source, raised values are copied from a word, and a transfer that only raises queues nothing. */
START_TEST(test_a_run_that_takes_its_marks_from_memory)
{
	uint64_t word = STREAM_RIG_BASE + 7;
	struct ceov_transfer transfer;
	struct cei_stream_run run;
	struct stream_rig rig;
	uint32_t i;

	stream_rig_open(&rig);
	ck_assert_int_eq(ceov_buffer_float(rig.context, 0, STREAM_RIG_SIZE, &rig.source), 0);
	for (i = 0; i < 4; i++) {       /* all but transfer 2 wait for ready[0] */
		transfer = stream_rig_part_behind(&rig, i, i == 2);
		transfer.then = testing_mark(rig.arrived, i, 1);
		testing_add(rig.plan, &transfer);
		stream_rig_add_raise(&rig, 4 + i);
	}
	stream_rig_commit(&rig);
	rig.plan->program.mark_group_bytes = 1;
	run = (struct cei_stream_run){
		.plan = rig.plan,
		.backend = rig.context->works.engines[0].backend,
		.stream = &rig.stream,
		.floating = (uint64_t)(uintptr_t)rig.bytes,
		.value_at = (uint64_t)(uintptr_t)&word,
	};
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(ceov_signal_raise(rig.ready, i, 1), 0);
	ck_assert_int_eq(cei_lower_to_stream(&run), 0);
	ck_assert_str_eq(rig.stream.log, "w1 c1 r1 c1 r1 w1 c1 r1 c1 r1 ");
	ck_assert_uint_eq(testing_check(ceov_buffer_base(rig.target, 0), 4 * STREAM_RIG_BYTES,
					testing_seed()), 4 * STREAM_RIG_BYTES);
	for (i = 0; i < 8; i++)
		ck_assert_uint_eq(stream_rig_arrived(&rig, i), i < 4 ? word : 0);
	stream_rig_close(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("lower");
	TCase *all = tcase_create("lower");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_waits_copies_and_raises_stand_in_the_plans_order);
	tcase_add_test(all, test_both_marks_are_waited_for);
	tcase_add_test(all, test_what_has_no_marks_is_copied_behind_what_waits);
	tcase_add_test(all, test_a_mark_is_waited_for_once);
	tcase_add_test(all, test_a_mark_is_waited_for_once_in_either_place);
	tcase_add_test(all, test_each_value_of_a_counter_is_a_mark);
	tcase_add_test(all, test_many_marks_are_waited_for);
	tcase_add_test(all, test_a_transfer_behind_the_plans_own_mark);
	tcase_add_test(all, test_batches_are_bounded);
	tcase_add_test(all, test_rows_too_far_apart_go_one_by_one);
	tcase_add_test(all, test_rows_with_gaps);
	tcase_add_test(all, test_marks_are_raised_before_more_bytes_go);
	tcase_add_test(all, test_a_run_that_takes_its_marks_from_memory);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
