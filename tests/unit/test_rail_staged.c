/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* How well the legs of staged bytes overlap: out of a "GPU", over the network, into another one,
 * each with a speed of its own, in virtual time. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/rail.h"
#include "testing.h"
#include "unit/loop_transport.h"

#define BYTES      (UINT64_C(64) << 20)
#define REGION     1u
#define UNIT       0u
#define DELAY_NS   UINT64_C(5000)       /* of a message, and of bytes */
#define COPY_NS    UINT64_C(8000)       /* from the begin of a copy on an idle line to its bytes */
#define TURN_NS    UINT64_C(200)        /* of a rail's thread that has something to do */
#define COPIES_MAX 16u
#define DEVICE     (UINT64_C(1) << 60)  /* in addresses of "GPU" memory, as the network knows it */

struct legs {                           /* bytes in a microsecond; GB/s are thousands of them */
	uint64_t copies;
	uint64_t network;
	int      is_staged_there;       /* the target is on a "GPU", too */
};

static const struct legs legs[] = {
	{ 50000, 50000, 0 }, { 50000, 50000, 1 }, { 55000, 50000, 1 }, { 50000, 25000, 1 },
	{ 25000, 50000, 1 }, { 50000, 12500, 1 },
};

struct copy {
	void       *target;
	const void *source;
	uint64_t    n_bytes;
	uint64_t    due_ns;
};

struct line {
	uint64_t    n_begun;
	uint64_t    n_ended;
	struct copy copies[COPIES_MAX];
	struct line *next;
};

struct side {
	struct cei_report      report;
	struct cei_rail       *rail;
	uint8_t               *bytes;
	uint64_t               words[1];
	struct cei_far_memory *memory;
};

static struct loop_net net;
static struct side sides[2];
static struct line *lines;              /* all that are open */
static const struct legs *now_legs;

/* --- the copies of "GPUs" ----------------------------------------------------------------- */

static int memory_open(void *arg, uint32_t unit, uint64_t n_bytes, void **ret_memory)
{
	(void)arg;
	(void)unit;
	*ret_memory = malloc(n_bytes);
	return *ret_memory ? 0 : CEOV_ERR_NO_MEMORY;
}

static void memory_close(void *arg, uint32_t unit, void *memory)
{
	(void)arg;
	(void)unit;
	free(memory);
}

static int line_open(void *arg, uint32_t unit, enum cei_far_line_direction direction,
		     void **ret_line)
{
	struct line *line = calloc(1, sizeof(*line));

	(void)arg;
	(void)unit;
	(void)direction;
	ck_assert_ptr_nonnull(line);
	line->next = lines;
	lines = line;
	*ret_line = line;
	return 0;
}

static void line_close(void *arg)
{
	struct line **at = &lines, *line = arg;

	while (*at != line)
		at = &(*at)->next;
	*at = line->next;
	free(line);
}

static void *pointer(uint64_t address)
{
	return (void *)(uintptr_t)(address & ~DEVICE);
}

/* Copies of a line follow each other. */
static int copy(void *arg, uint64_t target, uint64_t source, uint64_t n_bytes)
{
	struct line *line = arg;
	const struct copy *last = &line->copies[(line->n_begun + COPIES_MAX - 1) % COPIES_MAX];
	struct copy *made = &line->copies[line->n_begun % COPIES_MAX];
	uint64_t begin_ns = net.now_ns + COPY_NS;

	ck_assert_uint_lt(line->n_begun - line->n_ended, COPIES_MAX);
	if (line->n_begun && begin_ns < last->due_ns)
		begin_ns = last->due_ns;
	made->target = pointer(target);
	made->source = pointer(source);
	made->n_bytes = n_bytes;
	made->due_ns = begin_ns + n_bytes * 1000 / now_legs->copies;
	line->n_begun++;
	return 0;
}

static int reap(void *arg, uint64_t *ret_n_ended)
{
	struct line *line = arg;
	struct copy *first = &line->copies[line->n_ended % COPIES_MAX];

	if (line->n_ended < line->n_begun && first->due_ns <= net.now_ns) {
		memcpy(first->target, first->source, first->n_bytes);
		line->n_ended++;
	}
	*ret_n_ended = line->n_ended;
	return 0;
}

static const struct cei_far_copier_ops copier = {
	.memory_open = memory_open, .memory_close = memory_close, .line_open = line_open,
	.line_close = line_close, .copy = copy, .reap = reap,
};

/* --- rails ---------------------------------------------------------------------------------- */

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	(void)arg;
	loop_address_of(process, ret_address);
	*ret_n_bytes = LOOP_ADDRESS_BYTES;
	return 0;
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
	.find = find, .departed = told, .losing = losing, .lost = lost,
};

static void open_rail(uint32_t number)
{
	struct side *own = &sides[number];
	struct cei_rail_config config = {
		.report = &own->report, .transport = &loop_transport,
		.device = loop_device(&net, number), .group = 1, .process = number,
		.n_processes = 2, .instance = { 1 + number }, .progress_by_caller = 1,
		.events = &events, .events_arg = own, .timeout_ns = TESTING_SECOND,
		.copier = &copier,
	};
	const char *why;

	cei_report_init(&own->report, NULL, NULL);
	ck_assert_int_eq(cei_rail_open(&config, &own->rail, &why), 0);
	own->bytes = malloc(BYTES);
	ck_assert_ptr_nonnull(own->bytes);
}

static uint64_t device(const struct side *side)
{
	return (uint64_t)(uintptr_t)side->bytes | DEVICE;
}

static void open_source(void)
{
	const struct cei_far_memory memory = { .base = (uint8_t *)(uintptr_t)device(&sides[0]),
					       .n_bytes = BYTES, .unit = UNIT };

	testing_fill(sides[0].bytes, BYTES, 7);
	ck_assert_int_eq(cei_rail_device_memory_open(sides[0].rail, &memory, &sides[0].memory),
			 0);
}

static void open_target(void)
{
	struct cei_far_region bytes = { .id = REGION, .uses = CEI_FAR_BYTES, .n_bytes = BYTES,
					.unit = UNIT };

	memset(sides[1].bytes, 0, BYTES);
	if (now_legs->is_staged_there)
		bytes.device = device(&sides[1]);
	else
		bytes.host = sides[1].bytes;
	ck_assert_int_eq(cei_rail_region_open(sides[1].rail, &bytes), 0);
}

/* --- time ------------------------------------------------------------------------------------- */

static uint64_t next_copy(void)
{
	uint64_t due = net.now_ns + DELAY_NS;
	const struct line *line;
	uint64_t first;

	for (line = lines; line; line = line->next) {
		first = line->copies[line->n_ended % COPIES_MAX].due_ns;
		if (line->n_ended < line->n_begun && first < due)
			due = first;
	}
	return due > net.now_ns ? due : net.now_ns + 1;
}

static void step(void)
{
	int is_busy = cei_rail_turn(sides[0].rail, net.now_ns);

	is_busy |= cei_rail_turn(sides[1].rail, net.now_ns);
	if (is_busy)                    /* a rail that waits for a copy looks again and again */
		net.now_ns += TURN_NS;
	else
		loop_net_advance(&net, next_copy());
}

/* Sends everything; returns how long it takes until the sender knows that it is there. */
static uint64_t send_all(struct cei_far_lane *lane)
{
	const struct cei_far_copy all = { .region = REGION, .source = device(&sides[0]),
					  .row_bytes = BYTES, .n_rows = 1 };
	uint64_t began_ns = net.now_ns, n_done = 0;
	int r = 0;

	memset(sides[1].bytes, 0, BYTES);
	ck_assert_int_eq(cei_far_lane_copy(lane, &all, 1), 0);
	ck_assert_int_eq(cei_far_lane_submit(lane), 0);
	while (!n_done && net.now_ns - began_ns < TESTING_SECOND) {
		step();
		r |= cei_far_lane_reap(lane, &n_done);
	}
	ck_assert_int_eq(r, 0);
	ck_assert_mem_eq(sides[0].bytes, sides[1].bytes, BYTES);
	return net.now_ns - began_ns;
}

static void close_all(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		cei_rail_leave(sides[i].rail);
	while (!cei_rail_is_quiet(sides[0].rail) || !cei_rail_is_quiet(sides[1].rail))
		step();
	ck_assert_int_eq(cei_rail_memory_close(sides[0].rail, sides[0].memory), 0);
	ck_assert_int_eq(cei_rail_region_close(sides[1].rail, REGION), 0);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(cei_rail_close(sides[i].rail, 0), 0);
		cei_report_fini(&sides[i].report);
		free(sides[i].bytes);
	}
	loop_net_fini(&net);
}

/* Returns the share of the slower leg's speed that is reached. */
static double measure(const struct legs *wanted)
{
	uint64_t slower = wanted->copies < wanted->network ? wanted->copies : wanted->network;
	struct cei_far_lane *lane;
	uint64_t took_ns;

	now_legs = wanted;
	loop_net_init(&net, testing_seed(), 0);
	net.links[0][1].delay_ns = net.links[1][0].delay_ns = DELAY_NS;
	net.links[0][1].bytes_per_us = wanted->network;
	open_rail(0);
	open_rail(1);
	open_source();
	open_target();
	ck_assert_int_eq(cei_rail_lane_open(sides[0].rail, 1, &lane), 0);
	took_ns = send_all(lane);
	cei_far_lane_stop(lane);
	ck_assert(cei_far_lane_is_idle(lane));
	cei_rail_lane_close(sides[0].rail, lane);
	close_all();
	return (double)BYTES * 1000 / (double)slower / (double)took_ns;
}

START_TEST(test_staged_bytes_reach_the_slower_leg)
{
	double share = measure(&legs[_i]);

	printf("copies of %.1f GB/s, network of %.1f GB/s%s: %.3f of the slower one\n",
	       (double)legs[_i].copies / 1000, (double)legs[_i].network / 1000,
	       legs[_i].is_staged_there ? ", copies at both ends" : "", share);
	fflush(stdout);
	ck_assert_double_ge(share, 0.90);
}
END_TEST

/* --- both ways at once ------------------------------------------------------------------- */

/* Each half of its memory: what it sends, and what it receives. */
static void open_both(uint32_t number)
{
	struct side *own = &sides[number];
	struct cei_far_region bytes = { .id = REGION, .uses = CEI_FAR_BYTES,
					.n_bytes = BYTES / 2 };

	open_rail(number);
	bytes.host = own->bytes + BYTES / 2;
	testing_fill(own->bytes, BYTES / 2, number);
	ck_assert_int_eq(cei_rail_memory_open(own->rail, own->bytes, BYTES / 2, &own->memory), 0);
	ck_assert_int_eq(cei_rail_region_open(own->rail, &bytes), 0);
}

static struct cei_far_lane *send_half(uint32_t number)
{
	struct side *own = &sides[number];
	const struct cei_far_copy half = { .region = REGION, .row_bytes = BYTES / 2, .n_rows = 1,
					   .source = (uint64_t)(uintptr_t)own->bytes };
	struct cei_far_lane *lane;

	ck_assert_int_eq(cei_rail_lane_open(own->rail, !number, &lane), 0);
	ck_assert_int_eq(cei_far_lane_copy(lane, &half, 1), 0);
	ck_assert_int_eq(cei_far_lane_submit(lane), 0);
	return lane;
}

/* A network carries both directions at once, and neither waits for the other. */
START_TEST(test_both_ways_at_once_take_no_longer_than_one)
{
	struct cei_far_lane *lanes[2];
	uint64_t n_done[2] = { 0, 0 }, alone_ns = BYTES / 2 * 1000 / 50000;
	uint32_t i;

	loop_net_init(&net, testing_seed(), 0);
	net.links[0][1].delay_ns = net.links[1][0].delay_ns = DELAY_NS;
	net.links[0][1].bytes_per_us = net.links[1][0].bytes_per_us = 50000;
	for (i = 0; i < 2; i++)
		open_both(i);
	for (i = 0; i < 2; i++)
		lanes[i] = send_half(i);
	while ((!n_done[0] || !n_done[1]) && net.now_ns < TESTING_SECOND) {
		step();
		for (i = 0; i < 2; i++)
			(void)cei_far_lane_reap(lanes[i], &n_done[i]);
	}
	ck_assert_uint_lt(net.now_ns, alone_ns + alone_ns / 10);
	for (i = 0; i < 2; i++) {
		ck_assert_mem_eq(sides[i].bytes + BYTES / 2, sides[!i].bytes, BYTES / 2);
		cei_far_lane_stop(lanes[i]);
		cei_rail_lane_close(sides[i].rail, lanes[i]);
	}
	ck_assert_int_eq(cei_rail_memory_close(sides[1].rail, sides[1].memory), 0);
	ck_assert_int_eq(cei_rail_region_close(sides[0].rail, REGION), 0);
	close_all();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rail_staged");
	TCase *all = tcase_create("legs");

	tcase_set_timeout(all, 60);
	tcase_add_loop_test(all, test_staged_bytes_reach_the_slower_leg, 0,
			    sizeof(legs) / sizeof(legs[0]));
	tcase_add_test(all, test_both_ways_at_once_take_no_longer_than_one);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
