/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Simulates programs. */

#include "sim/sim_program.h"

#include <stdlib.h>

#include "testing.h"

static void *zeroes(size_t n, size_t n_bytes)
{
	void *memory = calloc(n + 1, n_bytes);

	ck_assert_ptr_nonnull(memory);
	return memory;
}

static const struct cei_program_transfer *transfer_of(const struct sim_play *play, uint32_t i)
{
	return &play->program->transfers[i];
}

static void begin(struct sim_play *play, uint32_t i);

/* Ends a transfer and raises its mark: transfers that waited only for it begin. */
static void end(struct sim_play *play, uint32_t i)
{
	uint32_t k;

	play->ended_ns[i] = play->sim->now_ns;
	for (k = 0; k < 2 * play->program->n_transfers; k++)
		if (play->order.before[k] == i && !--play->n_waits[k / 2])
			begin(play, k / 2);
}

static void copy_done(struct sim *sim, struct sim_copy *copy)
{
	struct sim_play_copy *of = CEI_OWNER(copy, struct sim_play_copy, copy);

	(void)sim;
	if (!--of->play->n_left[of->transfer])
		end(of->play, of->transfer);
}

/* Adds one leg of a chunk: a copy between two places by a third place's copy engines. */
static struct sim_copy *add_leg(struct sim_play *play, const struct cei_cut *cut, uint32_t leg,
				const uint32_t places[3])
{
	struct sim_play_copy *of = &play->copies[2 * (cut - play->cuts) + leg];

	of->play = play;
	of->transfer = cut->step;
	of->copy.done = copy_done;
	of->copy.job.bytes = cut->piece.row_bytes * cut->piece.n_rows;
	of->copy.job.keeps_order = (uint8_t)(play->program->has_template ||
						play->program->keeps_order);
	sim_ask(play->sim, &of->copy, places[0], places[1]);
	of->copy.engine = places[2];
	play->n_left[cut->step]++;
	return &of->copy;
}

/* Adds a chunk as one copy, or as the legs of its path. */
static struct sim_copy *add_chunk(struct sim_play *play, const struct cei_cut *cut)
{
	const struct cei_program *program = play->program;
	const struct cei_program_transfer *transfer = transfer_of(play, cut->step);
	uint32_t from = program->buffers[transfer->source.buffer].place;
	uint32_t to = program->buffers[transfer->target.buffer].place;
	uint32_t mover = program->movers[transfer->mover].place;
	const struct cei_route_path *path;
	struct sim_copy *first, *second;

	if (transfer->route == CEI_PROGRAM_NONE || program->routes[transfer->route].route
	    .paths[cut->path].kind == CEI_ROUTE_DIRECT)
		return add_leg(play, cut, 0, (const uint32_t[3]){ from, to, mover });
	path = &program->routes[transfer->route].route.paths[cut->path];
	first = add_leg(play, cut, 0, (const uint32_t[3]){ from, path->via, path->engines[0] });
	second = add_leg(play, cut, 1, (const uint32_t[3]){ path->via, to, path->engines[1] });
	first->job.link = second->job.link = NULL;      /* links of staged legs are unknown, as in
							 * the engine */
	first->behind = second;
	return first;
}

/* Begins a transfer; all of its chunks are added before the first one starts. */
static void begin(struct sim_play *play, uint32_t i)
{
	const struct cei_program_transfer *transfer = transfer_of(play, i);
	struct cei_cut *cuts = &play->cuts[transfer->first_chunk];
	uint32_t k;

	for (k = 0; k < transfer->n_chunks; k++)
		if (cuts[k].piece.n_rows)
			sim_add(play->sim, add_chunk(play, &cuts[k]));
	if (!play->n_left[i])
		end(play, i);
}

void sim_play_init(struct sim_play *play, struct sim *sim, struct cei_program *program)
{
	uint32_t i, n = program->n_transfers;

	*play = (struct sim_play){ .program = program, .sim = sim };
	cei_report_init(&play->report, NULL, NULL);
	ck_assert_int_eq(cei_program_check_spots(program, &play->report), 0);
	ck_assert_int_eq(cei_program_route(program, sim->machine, &play->report), 0);
	ck_assert_int_eq(cei_program_keep_routes(program, &play->report), 0);
	ck_assert_int_eq(cei_order_init(&play->order, program, &play->report), 0);
	ck_assert_int_eq(cei_overlap_check(&play->order), 0);
	ck_assert_int_eq(cei_program_count(program, &play->report), 0);
	play->cuts = zeroes(program->n_chunks, sizeof(*play->cuts));
	play->copies = zeroes(2 * (size_t)program->n_chunks, sizeof(*play->copies));
	play->n_left = zeroes(n, sizeof(*play->n_left));
	play->n_waits = zeroes(n, sizeof(*play->n_waits));
	play->ended_ns = zeroes(n, sizeof(*play->ended_ns));
	for (i = 0; i < n; i++)
		cei_program_cut(program, i, &play->cuts[program->transfers[i].first_chunk]);
	for (i = 0; i < 2 * n; i++)
		play->n_waits[i / 2] += play->order.before[i] != CEOV_NOBODY;
}

void sim_play_fini(struct sim_play *play)
{
	cei_order_fini(&play->order);
	cei_report_fini(&play->report);
	free(play->cuts);
	free(play->copies);
	free(play->n_left);
	free(play->n_waits);
	free(play->ended_ns);
}

void sim_play_run(struct sim_play *play)
{
	uint32_t i;

	for (i = 0; i < play->program->n_transfers; i++)
		if (!play->n_waits[i] && !play->n_left[i] && !play->ended_ns[i])
			begin(play, i);
	ck_assert(sim_run(play->sim, SIM_PATIENCE_NS));
	for (i = 0; i < play->program->n_transfers; i++)
		ck_assert_uint_ne(play->ended_ns[i], 0);
}
