/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests programs made without a plan or a context: checks, routes, chunks. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/program_explain.h"
#include "ce_engine/program/program_order.h"
#include "testing.h"

#define BYTES UINT64_C(4096)

/* --- programs alone ------------------------------------------------------------------ */

#define TRANSFERS 2u

static struct testing_log  log_of;
static struct cei_report   report;
static struct cei_program  alone;

static struct cei_program_transfer row(uint64_t from, uint64_t to, uint64_t n_bytes)
{
	struct cei_program_mark none = { CEI_PROGRAM_NONE, 0, 0 };

	return (struct cei_program_transfer){
		.source = { 0, from, 0 }, .target = { 0, to, 0 }, .row_bytes = n_bytes,
		.n_rows = 1, .source_ready = none, .target_free = none, .then = none,
		.route = CEI_PROGRAM_NONE };
}

/* Makes one buffer of rank 0 and one signal with two counters. */
static void set_up(void)
{
	uint32_t i;

	testing_log_init(&log_of);
	cei_report_init(&report, testing_log_line, &log_of);
	memset(&alone, 0, sizeof(alone));
	alone.n_ranks = 2;
	alone.max_chunk_bytes = alone.mark_group_bytes = BYTES;
	alone.floating = CEI_PROGRAM_NONE;
	alone.n_buffers = alone.n_signals = 1;
	alone.n_transfers = TRANSFERS;
	alone.n_movers = 1;
	ck_assert_int_eq(cei_program_alloc(&alone), 0);
	alone.movers[0] = (struct cei_program_mover){ .moves = CEI_MOVES_WITHIN_HOST,
		.gpu = CEOV_NOBODY, .place = CEOV_NOBODY };
	alone.buffers[0] = (struct cei_program_buffer){ .start = BYTES, .size_bytes = BYTES,
		.flags = CEI_PROGRAM_MAPPED, .reached = 1, .kind = CEOV_PLACE_HOST,
		.gpu = CEOV_NOBODY, .place = CEOV_NOBODY };
	alone.signals[0].n_counters = 2;
	for (i = 0; i < TRANSFERS; i++)
		alone.transfers[i] = row(0, 100 * (i + 1), 10);
}

static void tear_down(void)
{
	cei_program_fini(&alone);
	cei_report_fini(&report);
}

static int check_order(void)
{
	struct cei_order order;
	int r = cei_order_init(&order, &alone, &report);

	if (!r)
		r = cei_overlap_check(&order);
	cei_order_fini(&order);
	return r;
}

START_TEST(test_a_program_is_checked_alone)
{
	ck_assert_int_eq(cei_program_verify(&alone), 0);
	ck_assert_int_eq(cei_program_check_spots(&alone, &report), 0);
	ck_assert_int_eq(check_order(), 0);
	alone.transfers[1].source.offset_bytes = 109;
	ck_assert_int_eq(check_order(), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 1 reads what transfer 0 writes", NULL, NULL);
	alone.transfers[0].then = (struct cei_program_mark){ 0, 1, 5 };
	alone.transfers[1].source_ready = (struct cei_program_mark){ 0, 1, 6 };
	ck_assert_int_eq(check_order(), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "source_ready waits for counter 1", NULL, NULL);
	alone.transfers[1].source_ready.value = 5;
	ck_assert_int_eq(check_order(), 0);
	alone.transfers[1].target.offset_bytes = BYTES - 9;
	ck_assert_int_eq(cei_program_check_spots(&alone, &report), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 1: target", "outside of the buffer's 4096", NULL);
	ck_assert_int_eq(cei_program_verify(&alone), CEOV_ERR_INVALID);
}
END_TEST

/* --- routes, on a machine from a file ------------------------------------------------- */

#define MIB (UINT64_C(1) << 20)

/* Replaces the one buffer by two, on GPUs at these places. Transfer 0 copies from the first to the
 * second, by the mover of the first place. */
static void place_ends(uint32_t from, uint32_t to, uint64_t n_bytes)
{
	struct cei_program_buffer like = {
		.flags = CEI_PROGRAM_MAPPED, .reached = 1, .kind = CEOV_PLACE_GPU,
		.start = MIB, .size_bytes = n_bytes };

	free(alone.buffers);
	alone.buffers = calloc(2, sizeof(*alone.buffers));
	ck_assert_ptr_nonnull(alone.buffers);
	alone.n_buffers = 2;
	alone.n_transfers = 1;
	alone.max_chunk_bytes = 64 * MIB;
	alone.buffers[0] = alone.buffers[1] = like;
	alone.buffers[0].gpu = alone.buffers[0].place = from;
	alone.buffers[1].gpu = alone.buffers[1].place = to;
	alone.buffers[1].rank = 1;
	alone.buffers[1].start += n_bytes;
	alone.movers[0].moves = CEI_MOVES_AMONG_GPUS;
	alone.movers[0].gpu = alone.movers[0].place = from;
	alone.movers[0].may_drive = 0xff;
	alone.transfers[0] = row(0, 0, n_bytes);
	alone.transfers[0].target.buffer = 1;
}

/* Asserts that the chunks cover the transfer, each byte once and in order; returns how many there
 * are. */
static uint32_t check_cuts(uint64_t n_bytes)
{
	struct cei_cut *cuts = calloc(alone.n_chunks, sizeof(*cuts));
	uint64_t at = 0;
	uint32_t i, n = 0;

	ck_assert_ptr_nonnull(cuts);
	cei_program_cut(&alone, 0, cuts);
	for (i = 0; i < alone.n_chunks; i++) {
		if (!cuts[i].piece.n_rows)
			continue;
		ck_assert_uint_eq(cuts[i].piece.source, alone.buffers[0].start + at);
		ck_assert_uint_eq(cuts[i].piece.target, alone.buffers[1].start + at);
		at += cuts[i].piece.row_bytes;
		n++;
	}
	ck_assert_uint_eq(at, n_bytes);
	free(cuts);
	return n;
}

static void check_text(const struct cei_machine *machine, const char *text)
{
	static const char *const movers[] = { "robot" };
	struct cei_explain explain = { .program = &alone, .machine = machine, .movers = movers,
				       .trigger = "never", .report = &report };
	char told[2048] = "";
	FILE *file = tmpfile();

	ck_assert_ptr_nonnull(file);
	explain.fd = fileno(file);
	ck_assert_int_eq(cei_explain_transfer(&explain, 0), 0);
	rewind(file);
	ck_assert_uint_gt(fread(told, 1, sizeof(told) - 1, file), 0);
	ck_assert_msg(strstr(told, text), "%s is not in %s", text, told);
	fclose(file);
}

START_TEST(test_a_program_is_routed_alone)
{
	struct cei_machine *machine = testing_machine("v100x8-mesh");
	const struct cei_machine_link *link;

	place_ends(0, 1, 100 * MIB);            /* places 0 and 1 have a link */
	ck_assert_int_eq(cei_program_verify(&alone), 0);
	ck_assert_int_eq(cei_program_route(&alone, machine, &report), 0);
	ck_assert_int_eq(cei_program_keep_routes(&alone, &report), 0);
	ck_assert_int_eq(cei_program_count(&alone, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].has_direct, 1);
	ck_assert_uint_eq(alone.transfers[0].route, CEI_PROGRAM_NONE);
	ck_assert_uint_eq(alone.transfers[0].direction, CEI_DIRECTION_PEER);
	ck_assert_uint_eq(check_cuts(100 * MIB), 2);
	link = cei_machine_link(machine, 0, 1);
	ck_assert_uint_eq(cei_program_expected_ns(&alone, machine, 0), link->t0_ns +
			  cei_machine_link_ns(link, 100 * MIB));
	check_text(machine, "backend robot, route direct peer; trigger: at launch; 2 chunks");

	place_ends(0, 5, 100 * MIB);            /* places 0 and 5 have none */
	ck_assert_int_eq(cei_program_route(&alone, machine, &report), 0);
	ck_assert_int_eq(cei_program_keep_routes(&alone, &report), 0);
	ck_assert_int_eq(cei_program_count(&alone, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].has_direct, 0);
	ck_assert_uint_eq(alone.transfers[0].route, 0);
	ck_assert_uint_eq(alone.n_routes, 1);
	ck_assert_uint_ne(alone.routes[0].route.n_paths, 0);
	ck_assert_uint_eq(cei_program_expected_ns(&alone, machine, 0),
			  alone.routes[0].route.expected_ns);
	check_text(machine, "moved by gpu0 then");
	ck_assert_int_eq(cei_program_verify(&alone), 0);
	ck_assert_uint_ge(check_cuts(100 * MIB), 25);   /* at least one chunk per staging slot */
	ck_assert_uint_eq(check_cuts(100 * MIB) + 1, alone.n_chunks);   /* the other transfer is one
									 * more chunk */

	alone.routes[0].route.n_paths = 0;              /* as if no route had been found */
	ck_assert_int_eq(cei_program_keep_routes(&alone, &report), CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "transfer 0: no route from rank 0 to rank 1", NULL, NULL);
	alone.transfers[0].has_direct = 1;
	ck_assert_int_eq(cei_program_keep_routes(&alone, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].route, CEI_PROGRAM_NONE);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_what_has_no_route_is_refused)
{
	struct cei_machine *machine = testing_machine("v100x8-mesh");

	place_ends(0, 5, MIB);
	alone.rule = CEI_ROUTE_RULE_DIRECT;
	ck_assert_int_eq(cei_program_route(&alone, machine, &report), CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "the machine has no direct link between them", NULL, NULL);
	alone.buffers[1].reached = 0;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "target is not reachable from there", NULL, NULL);
	alone.buffers[0].reached = 0;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "source is not reachable from there", NULL, NULL);
	place_ends(0, 1, MIB);
	alone.movers[0].moves = CEI_MOVES_HOST_TO_GPU;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "does not move between these kinds of memory", NULL, NULL);
	cei_machine_destroy(machine);
}
END_TEST

/* A transfer gets the first mover that moves between the two kinds of memory, reaches both ends and
 * can raise the mark. A transfer without bytes gets the mover of the transfer before it. */
START_TEST(test_each_transfer_gets_a_mover)
{
	struct cei_program_mover *movers = calloc(3, sizeof(*movers));
	struct cei_triggers triggers;
	uint32_t i;

	ck_assert_ptr_nonnull(movers);
	for (i = 0; i < 3; i++)
		movers[i] = alone.movers[0];
	free(alone.movers);
	alone.movers = movers;
	alone.n_movers = 3;
	movers[0].flags = CEI_PROGRAM_CAN_WAIT;
	movers[1].moves = CEI_MOVES_AMONG_GPUS;
	alone.buffers[0].reached = 7;
	alone.signals[0].flags = CEI_PROGRAM_SEEN;
	alone.signals[0].reached = 6;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].mover, 0);
	alone.transfers[0].then = (struct cei_program_mark){ 0, 0, 1 };
	alone.transfers[1].row_bytes = alone.transfers[1].n_rows = 0;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].mover, 2);
	ck_assert_uint_eq(alone.transfers[1].mover, 2);
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers), 0);
	ck_assert(!triggers.is_direct && !triggers.is_gateable && triggers.is_pollable);
	ck_assert_str_eq(triggers.why_polled,
			 "the rank's first mover does not move all transfers");
	alone.signals[0].reached = 0;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), 0);
	ck_assert_uint_eq(alone.transfers[0].mover, 0);
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers),
			 CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "does not reach the counters of then", NULL, NULL);
	alone.buffers[0].reached = 2;
	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), CEOV_ERR_NO_ROUTE);
}
END_TEST

START_TEST(test_marks_that_nobody_sees_or_raises)
{
	struct cei_program_transfer *transfer = &alone.transfers[1];
	struct cei_program_mark mark = { 0, 1, 7 };
	struct cei_triggers triggers;

	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), 0);
	transfer->source_ready = mark;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers),
			 CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 1: source_ready, of a signal, cannot be polled",
			"lanes cannot wait here", NULL);
	alone.movers[0].flags = CEI_PROGRAM_CAN_WAIT;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers), 0);
	ck_assert(triggers.is_gateable && !triggers.is_pollable && !triggers.why_polled);
	ck_assert_uint_eq(triggers.largest_value, 7);
	transfer->then = mark;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers),
			 CEOV_ERR_NO_ROUTE);
	testing_log_has(&log_of, "does not reach the counters of then", NULL, NULL);
	transfer->target_free = mark;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers),
			 CEOV_ERR_INVALID);
	testing_log_has(&log_of, "target_free, of a signal, cannot be seen", NULL, NULL);
	alone.signals[0].flags = CEI_PROGRAM_SEEN;
	alone.signals[0].reached = 1;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers), 0);
	ck_assert(triggers.is_gateable && triggers.is_pollable);
	transfer->has_direct = 0;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers), 0);
	ck_assert(!triggers.is_gateable);
	ck_assert_str_eq(triggers.why_polled, "a transfer has no direct path");
}
END_TEST

/* Transfer 0 waits for the mark of transfer 1. */
START_TEST(test_what_follows_from_the_order)
{
	struct cei_program_mark mark = { 0, 1, 7 };
	struct cei_triggers triggers;
	struct cei_order order;

	ck_assert_int_eq(cei_program_route(&alone, NULL, &report), 0);
	alone.movers[0].flags = CEI_PROGRAM_CAN_WAIT;
	alone.signals[0].flags = CEI_PROGRAM_SEEN;
	alone.signals[0].reached = 1;
	alone.transfers[0].source_ready = mark;
	alone.transfers[1].then = mark;
	ck_assert_int_eq(cei_program_check_triggers(&alone, &report, &triggers), 0);
	ck_assert(triggers.is_gateable && triggers.is_direct);
	ck_assert_int_eq(cei_order_init(&order, &alone, &report), 0);
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), 0);
	ck_assert(!triggers.is_gateable);
	ck_assert_str_eq(triggers.why_polled, "the plan itself raises a source_ready mark");
	ck_assert_uint_eq(triggers.waits_ahead, 0);
	ck_assert(!triggers.keeps_order);
	alone.keeps_order = 1;
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), 0);
	ck_assert(triggers.keeps_order);
	alone.keeps_order = 0;
	alone.has_template = 1;
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), 0);
	ck_assert(triggers.keeps_order);
	alone.has_template = 0;
	triggers.is_gateable = 1;
	triggers.is_pollable = 0;
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), CEOV_ERR_INVALID);
	testing_log_has(&log_of, "transfer 0: source_ready, of a signal, is raised by the plan "
			"and cannot be polled", NULL, NULL);
	cei_order_fini(&order);

	alone.transfers[0].source_ready.signal = CEI_PROGRAM_NONE;      /* no transfer waits for the
									 * mark now */
	ck_assert_int_eq(cei_order_init(&order, &alone, &report), 0);
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), 0);
	ck_assert_uint_eq(triggers.waits_ahead, CEOV_NOBODY);
	ck_assert(!triggers.keeps_order);
	alone.transfers[0].row_bytes = 0;
	ck_assert_int_eq(cei_triggers_follow(&triggers, &order), 0);
	ck_assert(triggers.keeps_order);
	cei_order_fini(&order);
}
END_TEST

/* Each case is one change away from a valid program. */
START_TEST(test_what_is_no_program)
{
	struct cei_program_transfer *transfer = &alone.transfers[1];

	switch (_i) {
	case 0: alone.rank = 2; break;
	case 1: alone.n_ranks = 0; break;
	case 2: alone.max_chunk_bytes = 0; break;
	case 3: alone.has_template = 2; break;
	case 4: alone.floating = 0; break;
	case 5: alone.floating = 1; break;
	case 6: alone.buffers[0].rank = 2; break;
	case 7: alone.buffers[0].flags = 16; break;
	case 8: alone.buffers[0].flags = CEI_PROGRAM_FLOATING; break;
	case 9: alone.buffers[0].start = UINT64_MAX; break;
	case 10: alone.buffers[0].size_bytes = 0; break;
	case 11: alone.signals[0].rank = 2; break;
	case 12: alone.signals[0].n_counters = 0; break;
	case 13: transfer->source.buffer = 1; break;
	case 14: transfer->target.buffer = CEI_PROGRAM_NONE; break;
	case 15: transfer->row_bytes = 0; break;
	case 16: transfer->n_rows = 0; break;
	case 17: transfer->n_rows = 2; break;
	case 18: transfer->source.pitch_bytes = 1; break;
	case 19: transfer->source.offset_bytes = BYTES; break;
	case 20: transfer->row_bytes = UINT64_MAX; break;
	case 21: transfer->then.value = 1; break;
	case 22: transfer->then = (struct cei_program_mark){ 1, 0, 0 }; break;
	case 23: transfer->then = (struct cei_program_mark){ 0, 2, 0 }; break;
	case 24: transfer->target_free = (struct cei_program_mark){ 0, 0, CEOV_VALUE_LIMIT };
		break;
	case 25: transfer->source_ready.counter = 1; break;
	case 26: alone.rank = 1; break;         /* neither end belongs to the plan's rank */
	case 27: alone.rule = CEI_ROUTE_RULE_ALL + 1; break;
	case 28: alone.movers[0].moves = 0; break;
	case 29: alone.movers[0].moves = 16; break;
	case 30: alone.movers[0].place = CEI_MACHINE_GPUS_MAX; break;
	case 31: alone.buffers[0].kind = CEOV_PLACE_GPU + 1; break;
	case 32: alone.buffers[0].gpu = 0; break;
	case 33: alone.buffers[0].place = 1000; break;
	case 34: transfer->mover = 1; break;
	case 35: transfer->has_direct = 2; break;
	case 36: transfer->direction = CEI_DIRECTION_ANY; break;
	case 37: transfer->route = 0; break;
	case 38: alone.signals[0].flags = 8; break;
	case 39: alone.movers[0].flags = 4; break;
	case 40: alone.keeps_order = 2; break;
	case 41: alone.mark_group_bytes = 0; break;
	case 43: alone.buffers[0].reached = 2; break;
	case 44: alone.signals[0].reached = 2; break;
	case 42: alone.urgency = CEOV_URGENCY_BACKGROUND + 1; break;
	default: ck_abort();
	}
	ck_assert_int_eq(cei_program_verify(&alone), CEOV_ERR_INVALID);
}
END_TEST

/* Likewise, of a transfer whose launches read how many rows they move. */
START_TEST(test_what_is_no_count)
{
	struct cei_program_transfer *transfer = &alone.transfers[1];

	transfer->source_ready = (struct cei_program_mark){ 0, 0, 1 };
	transfer->is_counted = 1;
	transfer->count.offset_bytes = BYTES - 8;
	ck_assert_int_eq(cei_program_verify(&alone), 0);
	switch (_i) {
	case 0: transfer->is_counted = 2; break;
	case 1: transfer->is_counted = 0; break;
	case 2: transfer->count.buffer = 1; break;
	case 3: transfer->count.offset_bytes = BYTES; break;
	case 4: transfer->count.offset_bytes = 4; break;
	case 5: transfer->count.offset_bytes = UINT64_MAX - 7; break;
	case 6: transfer->count.pitch_bytes = 8; break;
	case 7: transfer->source_ready = (struct cei_program_mark){ CEI_PROGRAM_NONE, 0, 0 };
		break;
	case 8: alone.buffers[0].kind = CEOV_PLACE_GPU; break;
	case 9: alone.buffers[0].size_bytes = 7; break;
	default: ck_abort();
	}
	ck_assert_int_eq(cei_program_verify(&alone), CEOV_ERR_INVALID);
}
END_TEST

/* As an engine of a process with a network has one: its programs go to a daemon, too. */
START_TEST(test_a_mover_may_leave_the_machine)
{
	alone.movers[0].flags = CEI_PROGRAM_CAN_WAIT | CEI_PROGRAM_LEAVES_MACHINE;
	ck_assert_int_eq(cei_program_verify(&alone), 0);
}
END_TEST

#define BROKEN 45

int main(void)
{
	Suite *suite = suite_create("program");
	TCase *tcase = tcase_create("alone");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_a_program_is_checked_alone);
	tcase_add_test(tcase, test_a_program_is_routed_alone);
	tcase_add_test(tcase, test_what_has_no_route_is_refused);
	tcase_add_test(tcase, test_each_transfer_gets_a_mover);
	tcase_add_test(tcase, test_marks_that_nobody_sees_or_raises);
	tcase_add_test(tcase, test_what_follows_from_the_order);
	tcase_add_loop_test(tcase, test_what_is_no_program, 0, BROKEN);
	tcase_add_loop_test(tcase, test_what_is_no_count, 0, 10);
	tcase_add_test(tcase, test_a_mover_may_leave_the_machine);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
