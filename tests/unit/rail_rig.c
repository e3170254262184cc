/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Rails of several processes within one, in virtual time. */

#include "unit/rail_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/far_peer.h"
#include "net/rail_private.h"

struct rails rails;

/* --- what rails tell ------------------------------------------------------- */

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	(void)arg;
	loop_address_of(process, ret_address);
	*ret_n_bytes = LOOP_ADDRESS_BYTES;
	return 0;
}

static void raised(void *arg, uint32_t region, uint32_t index, uint64_t value)
{
	struct rails_process *own = arg;

	ck_assert_uint_eq(region, RAILS_FAR_REGION);
	ck_assert_uint_eq(index, 1);
	own->far_raised = value;
}

static void losing(void *arg, uint32_t process, const char *why, int is_refusal)
{
	struct rails_process *own = arg;

	ck_assert(why[0]);
	snprintf(own->why, sizeof(own->why), "%s", why);
	own->n_refusals += (uint32_t)is_refusal;
	own->n_losing[process]++;
}

static void lost(void *arg, uint32_t process, const char *why, int is_uncertain)
{
	struct rails_process *own = arg;

	ck_assert(why[0]);
	own->n_lost[process]++;
	ck_assert_uint_eq(own->n_lost[process], own->n_losing[process]);
	own->n_uncertain += (uint32_t)is_uncertain;
	own->lost_ns[process] = rails.net.now_ns;
	if (!own->kept)
		own->kept = malloc(RAILS_BYTES);
	memcpy(own->kept, own->target, RAILS_BYTES);
}

static void departed(void *arg, uint32_t process)
{
	struct rails_process *own = arg;

	own->n_departed[process]++;
}

static void heard(void *arg, uint32_t process, const struct cei_far_message *message)
{
	struct rails_process *own = arg;

	(void)process;
	if (message->type == CEI_FAR_NOTE) {
		own->firsts[own->n_heard % RAILS_FIRSTS] = message->note.bytes[0];
		own->n_note = message->note.n_bytes;
		memcpy(own->note, message->note.bytes, own->n_note);
	}
	own->n_heard++;
}

static const struct cei_rail_events events = {
	.find     = find,
	.raised   = raised,
	.losing   = losing,
	.lost     = lost,
	.departed = departed,
	.heard    = heard,
};

/* --- opening and closing --------------------------------------------------- */

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void open_region(struct rails_process *own, uint32_t id, uint32_t uses, void *host,
			uint64_t n_bytes)
{
	struct cei_far_region region = { .id = id, .uses = uses, .host = host,
					 .n_bytes = n_bytes };

	ck_assert_int_eq(cei_rail_region_open(own->rail, &region), 0);
}

static uint64_t source_address(const struct rails_process *own)
{
	return rails.has_device_sources ? device_address(own->source)
		: (uint64_t)(uintptr_t)own->source;
}

static int open_source(struct rails_process *own)
{
	const struct cei_far_memory device = {
		.base = (uint8_t *)(uintptr_t)source_address(own),
		.n_bytes = RAILS_BYTES,
		.unit = DEVICE_UNIT,
	};

	return rails.has_device_sources
		? cei_rail_device_memory_open(own->rail, &device, &own->memory)
		: cei_rail_memory_open(own->rail, own->source, RAILS_BYTES, &own->memory);
}

static void open_target(struct rails_process *own)
{
	const struct cei_far_region region = {
		.id = RAILS_BYTES_REGION,
		.uses = CEI_FAR_BYTES,
		.device = device_address(own->target),
		.unit = DEVICE_UNIT,
		.n_bytes = RAILS_BYTES,
	};

	if (rails.has_device_targets)
		ck_assert_int_eq(cei_rail_region_open(own->rail, &region), 0);
	else
		open_region(own, RAILS_BYTES_REGION, CEI_FAR_BYTES, own->target, RAILS_BYTES);
}

static void open_process(uint32_t number)
{
	struct rails_process *own = &rails.processes[number];
	struct cei_rail_config config = rails.config;
	const char *why;

	cei_report_init(&own->report, drop_line, NULL);
	config.report = &own->report;
	config.transport = &loop_transport;
	config.device = loop_device(&rails.net, number);
	config.group = RAILS_GROUP;
	config.process = number;
	config.n_processes = rails.n_processes;
	config.instance[0] = 100 + number;
	config.progress_by_caller = 1;
	config.events = &events;
	config.events_arg = own;
	config.copier = &device_copier_ops;
	config.copier_arg = &rails.copier;
	ck_assert_int_eq(cei_rail_open(&config, &own->rail, &why), 0);
	if (rails.is_direct) {
		ck_assert_int_eq(cei_rail_takes_gpu_memory(own->rail, &why), 1);
		ck_assert_int_eq(cei_rail_go_direct(own->rail, DEVICE_UNIT), 0);
	}
	own->source = malloc(RAILS_BYTES);
	own->target = calloc(1, RAILS_BYTES);
	own->words = calloc(RAILS_BLOCKS, sizeof(*own->words));
	testing_fill(own->source, RAILS_BYTES, number + 1);
	ck_assert_int_eq(open_source(own), 0);
	open_target(own);
	open_region(own, RAILS_WORDS_REGION, CEI_FAR_WORDS, own->words,
		    RAILS_BLOCKS * sizeof(uint64_t));
	open_region(own, RAILS_FAR_REGION, CEI_FAR_WORDS, NULL, 2 * sizeof(uint64_t));
}

void rails_open_some(uint32_t n, uint32_t n_processes, uint64_t seed)
{
	struct rails kept = rails;
	uint32_t i;

	memset(&rails, 0, sizeof(rails));
	rails.config = kept.config;
	rails.has_device_sources = kept.has_device_sources;
	rails.has_device_targets = kept.has_device_targets;
	rails.is_direct = kept.is_direct;
	rails.copier = kept.copier;
	if (!rails.config.timeout_ns)
		rails.config.timeout_ns = RAILS_TIMEOUT_NS;
	rails.n = n;
	rails.n_processes = n_processes;
	loop_net_init(&rails.net, seed, 0);
	rails.net.takes_gpu_memory = rails.is_direct;
	for (i = 0; i < n; i++)
		open_process(i);
}

void rails_open(uint32_t n, uint64_t seed)
{
	rails_open_some(n, n, seed);
}

static int all_quiet(void)
{
	uint32_t i;

	for (i = 0; i < rails.n; i++)
		if (!cei_rail_is_quiet(rails.processes[i].rail))
			return 0;
	return 1;
}

static void close_lane(struct rails_process *own, struct cei_far_lane *lane)
{
	if (!lane)
		return;
	cei_far_lane_stop(lane);
	ck_assert(cei_far_lane_is_idle(lane));
	cei_rail_lane_close(own->rail, lane);
}

static void close_process(struct rails_process *own)
{
	uint32_t k;

	for (k = 0; k < RAILS_MAX; k++)
		close_lane(own, own->lanes[k]);
	ck_assert_int_eq(cei_rail_region_close(own->rail, RAILS_BYTES_REGION), 0);
	ck_assert_int_eq(cei_rail_memory_close(own->rail, own->memory), 0);
	ck_assert_int_eq(cei_rail_close(own->rail, 0), 0);
	cei_report_fini(&own->report);
	free(own->source);
	free(own->target);
	free(own->kept);
	free(own->words);
}

void rails_leave(void)
{
	uint32_t i;

	for (i = 0; i < rails.n; i++) {
		rails.processes[i].is_stopped = 0;
		cei_rail_leave(rails.processes[i].rail);
	}
	ck_assert(rails_until(all_quiet, 4 * rails.config.timeout_ns + 2 * CEI_RAIL_CLOSE_NS));
}

void rails_close(void)
{
	uint32_t i;

	rails_leave();
	for (i = 0; i < rails.n; i++)
		close_process(&rails.processes[i]);
	loop_net_fini(&rails.net);
	ck_assert_uint_eq(rails.copier.n_opened, 0);
	memset(&rails.config, 0, sizeof(rails.config));
	memset(&rails.copier, 0, sizeof(rails.copier));
	rails.has_device_sources = rails.has_device_targets = 0;
}

/* --- time ------------------------------------------------------------------ */

/* Which process sent the block that has come: each sender has a pattern of its own. */
static int is_complete(const struct rails_process *own, uint32_t block)
{
	uint32_t from;

	for (from = 0; from < rails.n; from++)
		if (!memcmp(own->target + block * RAILS_BLOCK_BYTES,
			    rails.processes[from].source + block * RAILS_BLOCK_BYTES,
			    RAILS_BLOCK_BYTES))
			return 1;
	return 0;
}

static void check_process(struct rails_process *own)
{
	uint32_t b;

	for (b = 0; b < RAILS_BLOCKS; b++) {
		if (own->is_seen[b] || !atomic_load(&own->words[b]))
			continue;
		ck_assert_msg(is_complete(own, b), "counter %u stands for bytes that are not "
			      "there", b);
		own->is_seen[b] = 1;
	}
	if (own->kept && memcmp(own->kept, own->target, RAILS_BYTES)) {
		ck_assert_msg(rails.expects_late, "bytes landed after a process was told lost");
		rails.saw_late = 1;
	}
}

/* When something is to be done next though nothing arrives. */
static uint64_t next_due(void)
{
	uint64_t due = CEI_FOREVER, one;
	uint32_t i;

	for (i = 0; i < rails.n; i++) {
		one = rails.processes[i].is_stopped ? CEI_FOREVER
			: cei_rail_due(rails.processes[i].rail);
		if (one < due)
			due = one;
	}
	return due > rails.net.now_ns ? due : rails.net.now_ns + 1;
}

static void step_until(uint64_t limit_ns)
{
	uint64_t due;
	int is_busy = 0;
	uint32_t i;

	for (i = 0; i < rails.n; i++)
		if (!rails.processes[i].is_stopped &&
		    cei_rail_turn(rails.processes[i].rail, rails.net.now_ns))
			is_busy = 1;
	for (i = 0; i < rails.n; i++)
		check_process(&rails.processes[i]);
	rails.n_steps++;
	if (is_busy) {
		rails.net.now_ns += rails.copier.is_hung ? TESTING_MS : 1;
		return;
	}
	due = next_due();
	loop_net_advance(&rails.net, due < limit_ns ? due : limit_ns);
}

void rails_step(void)
{
	step_until(rails.net.now_ns + rails.config.timeout_ns);
}

int rails_until(int (*holds)(void), uint64_t within_ns)
{
	uint64_t limit_ns = rails.net.now_ns + within_ns;

	while (!holds()) {
		if (rails.net.now_ns >= limit_ns)
			return 0;
		step_until(limit_ns);
	}
	return 1;
}

void rails_pass(uint64_t ns)
{
	uint64_t limit_ns = rails.net.now_ns + ns;

	while (rails.net.now_ns < limit_ns)
		step_until(limit_ns);
	step_until(limit_ns + 1);       /* what is due just now */
}

/* --- lanes ----------------------------------------------------------------- */

void rails_give_up(uint32_t at, uint32_t of)
{
	struct cei_far_peer *peer = cei_far_peer_get(&rails.processes[at].rail->nic, of);

	if (peer->state == CEI_FAR_UNUSED)
		cei_far_peer_give_up(peer, "the test says so");
	else
		cei_far_peer_lose(peer, "the test says so");
}

struct cei_far_lane *rails_lane(uint32_t from, uint32_t to)
{
	struct rails_process *own = &rails.processes[from];

	if (!own->lanes[to])
		ck_assert_int_eq(cei_rail_lane_open(own->rail, to, &own->lanes[to]), 0);
	return own->lanes[to];
}

void rails_send(uint32_t from, uint32_t to, uint32_t first, uint32_t n_blocks)
{
	struct cei_far_lane *lane = rails_lane(from, to);
	struct cei_far_copy copy = { .region = RAILS_BYTES_REGION, .row_bytes = RAILS_BLOCK_BYTES,
				     .n_rows = 1 };
	struct cei_far_post post = { .region = RAILS_WORDS_REGION, .value = 1 };
	uint32_t b;

	for (b = first; b < first + n_blocks; b++) {
		copy.offset = (uint64_t)b * RAILS_BLOCK_BYTES;
		copy.source = source_address(&rails.processes[from]) + copy.offset;
		post.index = b;
		ck_assert_int_eq(cei_far_lane_copy(lane, &copy, 1), 0);
		ck_assert_int_eq(cei_far_lane_post(lane, &post, 1), 0);
	}
	ck_assert_int_eq(cei_far_lane_submit(lane), 0);
}

uint64_t rails_done(uint32_t from, uint32_t to)
{
	uint64_t n_done = 0;

	ck_assert_int_eq(cei_far_lane_reap(rails.processes[from].lanes[to], &n_done), 0);
	return n_done;
}

int rails_error(uint32_t from, uint32_t to)
{
	uint64_t n_done;

	return cei_far_lane_reap(rails.processes[from].lanes[to], &n_done);
}

uint32_t rails_arrived(uint32_t at)
{
	uint32_t b, n = 0;

	for (b = 0; b < RAILS_BLOCKS; b++)
		n += atomic_load(&rails.processes[at].words[b]) != 0;
	return n;
}

int rails_all_arrived(void)
{
	return rails_arrived(1) == rails.wanted && rails_done(0, 1) == 1;
}

int rails_has_ended(void)
{
	return rails_error(0, 1) || rails_done(0, 1) == 1;
}

struct cei_rail_status rails_status(uint32_t at, uint32_t of)
{
	struct cei_rail_status status;

	ck_assert_int_eq(cei_rail_look(rails.processes[at].rail, of, &status), 0);
	return status;
}
