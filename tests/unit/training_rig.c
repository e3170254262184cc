/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates the memory, plans and programs of ranks. */

#include "training_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "backend/host.h"

/* --- streams and lanes ------------------------------------------------------- */

static int event_record(struct cei_backend *backend, void *event, void *token)
{
	struct stream *stream = token;
	struct fake_event *fake = event;
	struct step step = { .kind = REACH, .event = fake };

	(void)backend;
	atomic_store(&fake->is_reached, 0);
	stream->steps[stream->n_queued++] = step;
	return 0;
}

/* Lanes make progress at random times. */
static int turn(struct cei_lane *lane)
{
	struct world *world = CEI_OWNER(lane->backend->ops, struct world, ops);
	struct rank *rank = &world->ranks[lane->backend->member];

	if (testing_below(&rank->random, 100) < world->lane_pause)
		return 0;
	return cei_backend_host.lanes->turn(lane);
}

/* --- plans ------------------------------------------------------------------ */

static ceov_plan *new_plan(struct rank *rank, uint64_t group_bytes, uint32_t urgency)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options) };
	ceov_plan *plan = NULL;

	options.routes = CEOV_ROUTES_DIRECT;
	options.mark_group_bytes = group_bytes;
	options.urgency = urgency;
	ck_assert_int_eq(ceov_plan_create(rank->world->context, rank->index, &options, &plan),
			 0);
	return plan;
}

static struct ceov_transfer move(ceov_buffer *source, uint64_t from, ceov_buffer *target,
				 uint64_t to)
{
	struct ceov_transfer transfer = testing_transfer(source, target, 0);

	transfer.source.offset_bytes = from;
	transfer.target.offset_bytes = to;
	return transfer;
}

static void add_shard(struct rank *rank, ceov_plan *plan, uint32_t slot, uint32_t layer,
		      uint32_t peer)
{
	struct world *world = rank->world;
	uint64_t bytes = world->part_bytes, i;
	struct ceov_transfer transfer;

	for (i = 0; i < PARTS; i++) {
		transfer = move(world->ranks[peer].slots[slot], i * bytes,
				rank->gathered[layer], (peer * PARTS + i) * bytes);
		transfer.row_bytes = bytes;
		if (peer != rank->index)
			transfer.source_ready = testing_mark(rank->ready, peer, 1);
		testing_add(plan, &transfer);
	}
}

/* Makes the plan of a gather: the own shard at once, each peer's shard behind its mark, then the
 * final mark. */
static ceov_plan *gather_plan(struct rank *rank, uint32_t slot, uint32_t layer)
{
	struct ceov_transfer last = testing_transfer(NULL, NULL, 0);
	ceov_plan *plan = new_plan(rank, 0, CEOV_URGENCY_NORMAL);
	uint32_t n = rank->world->n_ranks, i;

	for (i = 0; i < n; i++)
		add_shard(rank, plan, slot, layer, (rank->index + i) % n);
	last.n_rows = 0;
	last.then = testing_mark(rank->arrived, 0, 1);
	testing_add(plan, &last);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Makes a plan that sends a part to each peer after the start mark, which the engine polls, and
 * then raises the mark that tells that all were sent. */
static ceov_plan *sum_plan(struct rank *rank, uint32_t half)
{
	struct ceov_transfer transfer, last = testing_transfer(NULL, NULL, 0);
	struct world *world = rank->world;
	uint64_t bytes = world->part_bytes;
	ceov_plan *plan = new_plan(rank, 1, CEOV_URGENCY_NORMAL);
	uint32_t n = world->n_ranks, i, peer;

	plan->triggers.keeps_order = 1;
	for (i = 1; i < n; i++) {
		peer = (rank->index + i) % n;
		transfer = move(rank->sources[half], peer * bytes, world->ranks[peer].scratch,
				(half * n + rank->index) * bytes);
		transfer.row_bytes = bytes;
		transfer.source_ready = testing_mark(rank->start, 0, 1);
		transfer.then = testing_mark(world->ranks[peer].landed[half], rank->index, 1);
		testing_add(plan, &transfer);
	}
	last.n_rows = 0;
	last.source_ready = testing_mark(rank->start, 0, 1);
	last.then = testing_mark(rank->sent, 0, 1);
	testing_add(plan, &last);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

/* Makes a plan that sends the own part, which is never written, to each peer. */
static ceov_plan *other_plan(struct rank *rank)
{
	struct world *world = rank->world;
	uint64_t at = rank->index * world->part_bytes;
	ceov_plan *plan = new_plan(rank, 0, world->urgency);
	struct ceov_transfer transfer;
	uint32_t i;

	for (i = 0; i < world->n_ranks; i++) {
		if (i == rank->index)
			continue;
		transfer = move(rank->inbox, at, world->ranks[i].inbox, at);
		transfer.row_bytes = world->part_bytes;
		testing_add(plan, &transfer);
	}
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	return plan;
}

static void make_memory(struct rank *rank)
{
	struct world *world = rank->world;
	uint64_t bytes = world->part_bytes;
	uint32_t n = world->n_ranks, i;

	for (i = 0; i < SLOTS; i++)
		rank->slots[i] = testing_buffer(world->context, rank->index, PARTS * bytes);
	for (i = 0; i < world->n_layers; i++)
		rank->gathered[i] = testing_buffer(world->context, rank->index,
						   n * PARTS * bytes);
	for (i = 0; i < HALVES; i++) {
		rank->sources[i] = testing_buffer(world->context, rank->index, n * bytes);
		rank->landed[i] = testing_signal(world->context, rank->index, n);
	}
	rank->scratch = testing_buffer(world->context, rank->index, HALVES * n * bytes);
	rank->inbox = testing_buffer(world->context, rank->index, n * bytes);
	rank->ready = testing_signal(world->context, rank->index, n);
	rank->arrived = testing_signal(world->context, rank->index, 1);
	rank->start = testing_signal(world->context, rank->index, 1);
	rank->sent = testing_signal(world->context, rank->index, 1);
}

static void make_plans(struct rank *rank)
{
	uint32_t i, k;

	for (i = 0; i < SLOTS; i++)
		for (k = 0; k < rank->world->n_layers; k++)
			rank->gathers[i][k] = gather_plan(rank, i, k);
	for (i = 0; i < OPS; i++)
		for (k = 0; k < HALVES; k++)
			rank->sums[i][k] = sum_plan(rank, k);
	rank->others = other_plan(rank);
}

/* --- the host's program ------------------------------------------------------ */

static void plan_action(struct rank *rank, struct action action)
{
	if (!(rank->n_actions & (rank->n_actions - 1))) {       /* n_actions is 0 or a power of two:
								 * the array is full */
		rank->actions = realloc(rank->actions, (2 * rank->n_actions + 1) *
					sizeof(*rank->actions));
		ck_assert_ptr_nonnull(rank->actions);
	}
	rank->actions[rank->n_actions++] = action;
}

static void plan_step(struct rank *rank, uint32_t stream, struct step step)
{
	struct action action = { .kind = QUEUE, .stream = stream, .step = step };

	rank->streams[stream].n_planned++;
	plan_action(rank, action);
}

static void plan_spend(struct rank *rank, uint32_t stream, uint64_t limit)
{
	struct step step = { .kind = SPEND };

	step.value = testing_below(&rank->random, limit) + 1;
	plan_step(rank, stream, step);
}

static void plan_mark(struct rank *rank, uint32_t stream, enum step_kind kind,
		      struct ceov_mark mark)
{
	struct step step = { .kind = kind, .signal = mark.signal, .index = mark.index };

	step.value = mark.value;
	plan_step(rank, stream, step);
}

static void plan_word(struct rank *rank, uint32_t stream, struct step step,
		      const struct ceov_spot *spot)
{
	char *base = ceov_buffer_base(spot->buffer, rank->index);

	step.word = (uint64_t *)(void *)(base + spot->offset_bytes);
	plan_step(rank, stream, step);
}

/* Makes the stream wait for all work that the other one has so far. */
static void plan_follow(struct rank *rank, uint32_t stream, uint32_t other)
{
	struct step step = { .kind = FOLLOW, .index = other };

	step.value = rank->streams[other].n_planned;
	plan_step(rank, stream, step);
}

static void plan_launch(struct rank *rank, uint32_t stream, ceov_plan *plan, uint64_t base)
{
	struct action action = { .kind = LAUNCH, .stream = stream, .plan = plan, .base = base };

	if (stream < STREAMS)           /* the event that the launch waits for */
		rank->streams[stream].n_planned++;
	rank->n_launches++;
	plan_action(rank, action);
}

static void plan_gather(struct rank *rank, uint32_t layer)
{
	uint64_t run = rank->n_gathers++, bytes = rank->world->part_bytes, i;
	struct step fill = { .kind = FILL, .value = run + 1 };
	struct step check = { .kind = CHECK, .value = run + 1 };
	uint32_t n = rank->world->n_ranks, peer;
	struct ceov_spot spot = { .buffer = rank->slots[run % SLOTS] };

	if (run >= AHEAD)
		plan_mark(rank, GATHER, AWAIT, testing_mark(rank->arrived, 0, run - AHEAD + 1));
	for (i = 0; i < PARTS; i++) {
		spot.offset_bytes = i * bytes;
		plan_word(rank, GATHER, fill, &spot);
	}
	for (i = 1; i < n; i++) {
		peer = (rank->index + (uint32_t)i) % n;
		plan_mark(rank, GATHER, RAISE, testing_mark(rank->world->ranks[peer].ready,
							    rank->index, run + 1));
	}
	plan_launch(rank, GATHER, rank->gathers[run % SLOTS][layer], run);
	plan_mark(rank, GATHER, AWAIT, testing_mark(rank->arrived, 0, run + 1));
	spot.buffer = rank->gathered[layer];
	for (i = 0; i < n * PARTS; i++) {
		spot.offset_bytes = i * bytes;
		plan_word(rank, GATHER, check, &spot);
	}
}

/* Makes the host wait for the oldest run before more than FLIGHTS runs are queued. */
static void plan_flight(struct rank *rank, uint64_t run)
{
	struct action hold = { .kind = HOLD, .launch = rank->sum_launch[run % FLIGHTS] };

	if (run > FLIGHTS)
		plan_action(rank, hold);
	rank->sum_launch[run % FLIGHTS] = rank->n_launches;
}

/* Plans a sum of the gradients in the run's source slot, which the run before the previous one used
 * last. */
static void plan_sum(struct rank *rank, uint32_t op)
{
	uint64_t run = ++rank->n_sums, bytes = rank->world->part_bytes, i;
	struct step fill = { .kind = FILL, .value = run }, check = { .kind = CHECK };
	uint32_t n = rank->world->n_ranks, half = (uint32_t)(run % HALVES);
	struct ceov_spot spot = { .buffer = rank->sources[half] };

	check.value = run;
	for (i = 0; i < n; i++) {
		spot.offset_bytes = i * bytes;
		plan_word(rank, COMPUTE, fill, &spot);
	}
	plan_flight(rank, run);
	plan_follow(rank, SUM, COMPUTE);
	plan_mark(rank, SUM, RAISE, testing_mark(rank->start, 0, run));
	plan_launch(rank, STREAMS, rank->sums[op][half], run - 1);
	spot.buffer = rank->scratch;
	for (i = 0; i < n; i++) {
		if (i == rank->index)
			continue;
		plan_mark(rank, SUM, AWAIT, testing_mark(rank->landed[half], (uint32_t)i, run));
		spot.offset_bytes = (half * n + i) * bytes;
		plan_word(rank, SUM, check, &spot);
	}
	plan_mark(rank, SUM, AWAIT, testing_mark(rank->sent, 0, run));
	plan_spend(rank, SUM, 8);
}

/* Plans the forward pass; each gather is queued one layer before it is needed. */
static void plan_forward(struct rank *rank)
{
	uint32_t n = rank->world->n_layers, i;

	plan_follow(rank, GATHER, COMPUTE);     /* gathers wait until the parameters are updated */
	for (i = 0; i < n; i++) {
		plan_gather(rank, i);
		plan_follow(rank, COMPUTE, GATHER);
		plan_spend(rank, COMPUTE, 32);
		if (testing_below(&rank->random, 2))
			plan_launch(rank, STREAMS, rank->others, 0);
	}
}

/* Plans a layer's backward pass, which waits for the sum of the layer two before it. */
static void plan_backward(struct rank *rank)
{
	struct step gathered = { .kind = FOLLOW, .index = GATHER };
	struct step summed = { .kind = FOLLOW, .index = SUM };
	uint32_t n = rank->world->n_layers, i;
	uint64_t last;

	gathered.value = rank->streams[GATHER].n_planned;
	summed.value = last = rank->streams[SUM].n_planned;
	for (i = n; i-- > 0;) {
		if (i && rank->world->reshards)
			plan_gather(rank, i - 1);
		plan_step(rank, COMPUTE, gathered);
		gathered.value = rank->streams[GATHER].n_planned;
		plan_step(rank, COMPUTE, summed);
		plan_spend(rank, COMPUTE, 32);
		plan_sum(rank, i ? 0 : OPS - 1);
		summed.value = last;
		last = rank->streams[SUM].n_planned;
	}
	plan_follow(rank, COMPUTE, SUM);
	plan_spend(rank, COMPUTE, 32);
}

static void make_program(struct rank *rank)
{
	uint32_t i;

	for (i = 0; i < rank->world->n_steps; i++) {
		plan_forward(rank);
		plan_backward(rank);
	}
	for (i = 0; i < STREAMS; i++) {
		rank->streams[i].steps = calloc(rank->streams[i].n_planned + 1,
						sizeof(struct step));
		ck_assert_ptr_nonnull(rank->streams[i].steps);
	}
	rank->tickets = calloc(rank->n_launches, sizeof(*rank->tickets));
	ck_assert_ptr_nonnull(rank->tickets);
}

/* --- worlds --------------------------------------------------------------------- */

static void choose(struct world *world, uint64_t *random)
{
	static const uint64_t sizes[] = { 64, 4096, 65536 };

	world->n_ranks = 2 + (uint32_t)testing_below(random, RANKS_MAX - 1);
	world->n_layers = 2 + (uint32_t)testing_below(random, LAYERS_MAX - 1);
	world->n_steps = 2 + (uint32_t)testing_below(random, 3);
	world->reshards = (int)testing_below(random, 2);
	world->part_bytes = sizes[testing_below(random, 3)];
	world->host_weight = 1 + testing_below(random, 50);
	world->lane_pause = testing_below(random, 100);
	world->urgency = (uint32_t)testing_below(random, 3);
}

void training_open(struct world *world, uint64_t random)
{
	struct ceov_member members[RANKS_MAX];
	struct ceov_config config;
	struct rank *rank;
	uint32_t i;

	memset(world, 0, sizeof(*world));
	choose(world, &random);
	config = testing_config(members, world->n_ranks, NULL);
	config.progress_by_caller = 1;
	ck_assert_int_eq(ceov_open(&config, &world->context), 0);
	world->ops = cei_backend_host;
	fake_event_install(&world->ops, &world->lanes, event_record);
	world->lanes.turn = turn;
	for (i = 0; i < world->n_ranks; i++) {
		rank = &world->ranks[i];
		rank->world = world;
		rank->index = i;
		rank->random = testing_random(&random);
		fake_table_use(&world->context->works.engines[i], &world->ops);
		make_memory(rank);
	}
	for (i = 0; i < world->n_ranks; i++) {
		make_plans(&world->ranks[i]);
		make_program(&world->ranks[i]);
	}
}

void training_close(struct world *world)
{
	struct rank *rank;
	uint32_t i, k;

	ceov_close(world->context);
	for (i = 0; i < world->n_ranks; i++) {
		rank = &world->ranks[i];
		for (k = 0; k < STREAMS; k++)
			free(rank->streams[k].steps);
		free(rank->actions);
		free(rank->tickets);
	}
}
