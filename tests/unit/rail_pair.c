/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Two rails with their threads: engines' threads and readers at once. */

#include "unit/rail_pair.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "net/rail.h"
#include "testing.h"
#include "unit/loop_transport.h"

#define SKIPPED  77
#define N_LANES  3u
#define N_ROUNDS 300u
#define N_PARTS  5u              /* submits of a round */
#define BYTES    UINT64_C(20000)

static struct {
	const struct cei_transport_ops *ops;
	const char                     *kinds;
} used;

struct side {
	struct cei_report      report;
	struct cei_rail       *rail;
	uint8_t                address[CEI_TRANSPORT_ADDRESS_MAX];
	uint32_t               n_address;
	uint8_t                source[N_LANES][BYTES];
	uint8_t                target[N_LANES][BYTES];
	_Atomic uint64_t       marks[N_LANES];
	_Atomic uint64_t       free[N_LANES];   /* the last round whose target was read */
	struct cei_far_memory *memory;
	_Atomic uint32_t       n_heard;
};

struct engine {
	struct side *own;
	struct side *other;
	uint32_t     number;
	pthread_t    sender;
	pthread_t    reader;
};

static struct loop_net net;
static struct side sides[2];

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	(void)arg;
	memcpy(ret_address, sides[process].address, sides[process].n_address);
	*ret_n_bytes = sides[process].n_address;
	return 0;
}

static void heard(void *arg, uint32_t process, const struct cei_far_message *message)
{
	struct side *own = arg;

	ck_assert_uint_eq(process, (uint32_t)(own == &sides[0]));
	ck_assert_uint_eq(message->note.n_bytes, 5);
	atomic_fetch_add(&own->n_heard, 1);
}

static void told(void *arg, uint32_t process)
{
	(void)arg;
	(void)process;
}

static void lost(void *arg, uint32_t process, const char *why, int is_uncertain)
{
	(void)arg;
	ck_abort_msg("process %u is lost: %s (%d)", process, why, is_uncertain);
}

static void losing(void *arg, uint32_t process, const char *why, int is_refusal)
{
	(void)is_refusal;
	lost(arg, process, why, 0);
}

static const struct cei_rail_events events = {
	.find = find, .heard = heard, .departed = told, .lost = lost, .losing = losing,
};

static void open_side(uint32_t number)
{
	struct side *own = &sides[number];
	struct cei_rail_config config = { .report = &own->report, .transport = used.ops,
					  .kinds = used.kinds, .group = 1,
					  .process = number, .n_processes = 2,
					  .instance = { 1 + number }, .events = &events,
					  .events_arg = own, .timeout_ns = TESTING_PATIENCE };
	struct cei_far_region bytes = { .id = 1, .uses = CEI_FAR_BYTES, .host = own->target,
					.n_bytes = sizeof(own->target) };
	struct cei_far_region words = { .id = 2, .uses = CEI_FAR_WORDS, .host = own->marks,
					.n_bytes = sizeof(own->marks) };
	const char *why;

	if (!used.ops->devices)         /* the simulated network, or a test double over it */
		config.device = loop_device(&net, number);
	cei_report_init(&own->report, NULL, NULL);
	ck_assert_int_eq(cei_rail_open(&config, &own->rail, &why), 0);
	ck_assert_int_eq(cei_rail_address(own->rail, own->address, &own->n_address), 0);
	ck_assert_int_eq(cei_rail_memory_open(own->rail, own->source, sizeof(own->source),
					      &own->memory), 0);
	ck_assert_int_eq(cei_rail_region_open(own->rail, &bytes), 0);
	ck_assert_int_eq(cei_rail_region_open(own->rail, &words), 0);
}

static void close_side(uint32_t number)
{
	struct side *own = &sides[number];

	ck_assert_int_eq(cei_rail_region_close(own->rail, 1), 0);
	ck_assert_int_eq(cei_rail_memory_close(own->rail, own->memory), 0);
	ck_assert_int_eq(cei_rail_close(own->rail, cei_deadline(TESTING_PATIENCE)), 0);
	cei_report_fini(&own->report);
}

static uint64_t pattern_of(const struct engine *engine, uint64_t round)
{
	return (uint64_t)(engine->own == &sides[0]) << 40 | (uint64_t)engine->number << 32 |
		round;
}

/* A round goes as N_PARTS submits, and its mark with the last of them. */
static void send_round(const struct engine *engine, struct cei_far_lane *lane, uint64_t round)
{
	struct cei_far_copy copy = { .region = 1, .row_bytes = BYTES / N_PARTS, .n_rows = 1 };
	struct cei_far_post post = { .region = 2, .index = engine->number, .value = round };
	uint32_t i;

	copy.source = (uint64_t)(uintptr_t)engine->own->source[engine->number];
	copy.offset = engine->number * BYTES;
	for (i = 0; i < N_PARTS; i++) {
		ck_assert_int_eq(cei_far_lane_copy(lane, &copy, 1), 0);
		if (i + 1 == N_PARTS)
			ck_assert_int_eq(cei_far_lane_post(lane, &post, 1), 0);
		ck_assert_int_eq(cei_far_lane_submit(lane), 0);
		copy.source += copy.row_bytes;
		copy.offset += copy.row_bytes;
	}
}

static void await_done(struct cei_far_lane *lane, uint64_t wanted)
{
	uint64_t n_done = 0;

	while (n_done != wanted) {
		ck_assert_int_eq(cei_far_lane_reap(lane, &n_done), 0);
		sched_yield();
	}
}

static void *send_all(void *arg)
{
	struct engine *engine = arg;
	uint8_t *source = engine->own->source[engine->number];
	struct cei_far_lane *lane;
	uint64_t round;

	ck_assert_int_eq(cei_rail_lane_open(engine->own->rail, engine->other == &sides[1],
					    &lane), 0);
	for (round = 1; round <= N_ROUNDS; round++) {
		/* nothing but reap() says that the source may be filled again */
		testing_fill(source, BYTES, pattern_of(engine, round));
		while (atomic_load_explicit(&engine->other->free[engine->number],
					    memory_order_acquire) + 1 != round)
			sched_yield();
		send_round(engine, lane, round);
		if (round != N_ROUNDS)
			await_done(lane, round * N_PARTS);
	}
	while (!cei_far_lane_is_idle(lane))
		sched_yield();
	memset(source, 0, BYTES);       /* nor anything but is_idle() of the last one */
	cei_far_lane_stop(lane);
	cei_rail_lane_close(engine->own->rail, lane);
	return NULL;
}

static void *read_all(void *arg)
{
	struct engine *engine = arg;
	struct side *at = engine->other;
	uint64_t round;

	for (round = 1; round <= N_ROUNDS; round++) {
		/* acquire: pairs with cei_word_raise() */
		while (atomic_load_explicit(&at->marks[engine->number],
					    memory_order_acquire) != round)
			sched_yield();
		ck_assert_uint_eq(testing_check(at->target[engine->number], BYTES,
						pattern_of(engine, round)), BYTES);
		atomic_store_explicit(&at->free[engine->number], round, memory_order_release);
	}
	return NULL;
}

static void say_notes(void)
{
	struct cei_far_message note = { .type = CEI_FAR_NOTE };
	uint32_t n[2] = { 0, 0 };
	uint32_t i;
	int r;

	note.note.bytes = (const uint8_t *)"hello";
	note.note.n_bytes = 5;
	while (n[0] < N_ROUNDS || n[1] < N_ROUNDS)
		for (i = 0; i < 2; i++) {
			r = n[i] < N_ROUNDS ? cei_rail_say(sides[i].rail, !i, &note) : CEOV_FULL;
			ck_assert(!r || r == CEOV_FULL);
			n[i] += !r;
			sched_yield();
		}
}

START_TEST(test_engines_and_readers_at_once)
{
	static struct engine engines[2 * N_LANES];
	uint32_t i;

	loop_net_init(&net, testing_seed(), 1);
	net.links[0][1].sends_early = 1;
	net.links[1][0].full_every = 7;
	net.links[0][1].bytes_ns = net.links[1][0].bytes_ns = 20000;
	open_side(0);
	open_side(1);
	for (i = 0; i < 2 * N_LANES; i++) {
		engines[i].own = &sides[i % 2];
		engines[i].other = &sides[!(i % 2)];
		engines[i].number = i / 2;
		ck_assert_int_eq(pthread_create(&engines[i].sender, NULL, send_all,
						&engines[i]), 0);
		ck_assert_int_eq(pthread_create(&engines[i].reader, NULL, read_all,
						&engines[i]), 0);
	}
	say_notes();
	for (i = 0; i < 2 * N_LANES; i++) {
		ck_assert_int_eq(pthread_join(engines[i].sender, NULL), 0);
		ck_assert_int_eq(pthread_join(engines[i].reader, NULL), 0);
	}
	while (atomic_load(&sides[0].n_heard) + atomic_load(&sides[1].n_heard) < 2 * N_ROUNDS)
		sched_yield();
	for (i = 0; i < 2; i++)
		cei_rail_leave(sides[i].rail);
	close_side(0);
	close_side(1);
	loop_net_fini(&net);
}
END_TEST

/* One lane that is full most of the time: its places are used again as soon as the rail is through
 * with them. */
START_TEST(test_a_full_lane_is_used_again_and_again)
{
	struct cei_far_copy copies[8];
	struct cei_far_lane *lane;
	uint64_t n_submits = 0;
	uint32_t i;

	loop_net_init(&net, testing_seed(), 1);
	open_side(0);
	open_side(1);
	testing_fill(sides[0].source, sizeof(sides[0].source), 1);
	memset(copies, 0, sizeof(copies));
	ck_assert_int_eq(cei_rail_lane_open(sides[0].rail, 1, &lane), 0);
	while (n_submits < N_ROUNDS) {
		for (i = 0; i < 8; i++) {
			copies[i].region = 1;
			copies[i].row_bytes = 8;
			copies[i].n_rows = 1;
			copies[i].offset = (8 * n_submits + i) * 8 % sizeof(sides[0].source);
			copies[i].source = (uint64_t)(uintptr_t)sides[0].source +
				copies[i].offset;
		}
		while (cei_far_lane_copy(lane, copies, 8))
			sched_yield();
		while (cei_far_lane_submit(lane))
			sched_yield();
		n_submits++;
	}
	await_done(lane, n_submits);
	ck_assert_uint_eq(testing_check(sides[1].target, 8 * 8 * N_ROUNDS, 1), 8 * 8 * N_ROUNDS);
	cei_far_lane_stop(lane);
	while (!cei_far_lane_is_idle(lane))
		sched_yield();
	cei_rail_lane_close(sides[0].rail, lane);
	for (i = 0; i < 2; i++)
		cei_rail_leave(sides[i].rail);
	close_side(0);
	close_side(1);
	loop_net_fini(&net);
}
END_TEST

void rail_pair_add_cases(Suite *suite, const struct cei_transport_ops *ops, const char *kinds)
{
	TCase *made = tcase_create("rail_pair");

	used.ops = ops;
	used.kinds = kinds;
	tcase_set_timeout(made, 120);
	tcase_add_test(made, test_engines_and_readers_at_once);
	tcase_add_test(made, test_a_full_lane_is_used_again_and_again);
	suite_add_tcase(suite, made);
}

static const struct cei_transport_events no_events;

int rail_pair_is_absent(const struct cei_transport_ops *ops, const char *kinds)
{
	struct cei_report report;
	struct cei_transport transport = { .ops = ops };
	const char *why = "";
	int r;

	if (!ops->devices)
		return 0;
	cei_report_init(&report, NULL, NULL);
	transport.config.report = &report;
	transport.config.kinds = kinds;
	transport.config.n_peers = 1;
	transport.config.events = &no_events;
	r = ops->open(&transport, &why);
	if (r)
		printf("%s: %s: skipped\n", ops->name, why);
	else
		ops->close(&transport);
	cei_report_fini(&report);
	return r;
}

int rail_pair_run(const struct cei_transport_ops *ops, const char *kinds)
{
	Suite *suite;

	if (rail_pair_is_absent(ops, kinds))
		return SKIPPED;
	suite = suite_create(ops->name);
	rail_pair_add_cases(suite, ops, kinds);
	return testing_run(suite);
}
