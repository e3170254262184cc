/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Simulates programs that are made here, or that one process encodes and another decodes. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/program_wire.h"
#include "sim/sim_program.h"
#include "testing.h"

#define MIB   (UINT64_C(1) << 20)
#define STEPS 4u                        /* transfers in a chain */

/* Makes a program in which GPU 0 copies its buffer to each of the places, all at once or one after
 * the other. */
static void make(struct cei_program *program, const uint32_t *places, uint32_t n, int is_chain)
{
	const struct cei_program_mark none = { CEI_PROGRAM_NONE, 0, 0 };
	struct cei_program_transfer *transfer;
	uint32_t i;

	*program = (struct cei_program){ .n_ranks = n + 1, .max_chunk_bytes = 16 * MIB,
		.mark_group_bytes = 16 * MIB,
		.floating = CEI_PROGRAM_NONE, .n_movers = 1, .n_buffers = n + 1,
		.n_signals = 1, .n_transfers = n };
	ck_assert_int_eq(cei_program_alloc(program), 0);
	program->movers[0] = (struct cei_program_mover){ .moves = CEI_MOVES_AMONG_GPUS,
		.gpu = 0, .place = 0, .may_drive = 0xff };
	program->signals[0].n_counters = n;
	for (i = 0; i <= n; i++)
		program->buffers[i] = (struct cei_program_buffer){ .rank = i,
			.flags = CEI_PROGRAM_MAPPED, .reached = 1,
			.kind = CEOV_PLACE_GPU, .gpu = i ? places[i - 1] : 0,
			.place = i ? places[i - 1] : 0, .start = (i + 1) * 64 * MIB,
			.size_bytes = 64 * MIB };
	for (i = 0; i < n; i++) {
		transfer = &program->transfers[i];
		*transfer = (struct cei_program_transfer){ .source = { 0, 0, 0 },
			.target = { i + 1, 0, 0 }, .row_bytes = 64 * MIB, .n_rows = 1,
			.source_ready = none, .target_free = none, .then = { 0, i, 1 },
			.route = CEI_PROGRAM_NONE };
		if (is_chain && i)
			transfer->source_ready = (struct cei_program_mark){ 0, i - 1, 1 };
	}
	ck_assert_int_eq(cei_program_verify(program), 0);
}

/* Encodes and decodes the program, as if sent to another process. */
static void send(struct cei_program *program)
{
	size_t n = cei_program_bytes(program);
	uint8_t *bytes = malloc(n);

	ck_assert_ptr_nonnull(bytes);
	cei_program_write(program, bytes);
	cei_program_fini(program);
	ck_assert_int_eq(cei_program_read(bytes, n, program), 0);
	free(bytes);
}

/* Returns the makespan; ended_ns, if not NULL, gets the end of each transfer. */
static uint64_t play(const struct cei_machine *machine, struct cei_program *program,
		     uint64_t *ended_ns)
{
	struct sim *sim = sim_create(machine, 1, 1);
	struct sim_play player;
	uint64_t makespan_ns;

	sim_play_init(&player, sim, program);
	sim_play_run(&player);
	makespan_ns = sim_outcome(sim).makespan_ns;
	if (ended_ns)
		memcpy(ended_ns, player.ended_ns, program->n_transfers * sizeof(*ended_ns));
	sim_play_fini(&player);
	sim_destroy(sim);
	return makespan_ns;
}

/* A single transfer takes its link's time; transfers that wait for each other take the sum of
 * theirs. */
START_TEST(test_marks_order_what_is_played)
{
	static const uint32_t places[STEPS] = { 4, 3, 2, 1 };
	struct cei_machine *machine = testing_machine("h200x8-nvswitch");
	uint64_t ended_ns[STEPS], alone_ns, link_ns;
	struct cei_program program;
	uint32_t i;

	link_ns = cei_machine_link_ns(cei_machine_link(machine, 0, 4), 64 * MIB);
	make(&program, places, 1, 0);
	alone_ns = play(machine, &program, NULL);
	ck_assert_uint_ge(alone_ns, link_ns);
	ck_assert_uint_le(alone_ns, link_ns + link_ns / 10);
	cei_program_fini(&program);

	make(&program, places, STEPS, 1);
	ck_assert_uint_ge(play(machine, &program, ended_ns), STEPS * link_ns);
	for (i = 1; i < STEPS; i++)
		ck_assert_uint_ge(ended_ns[i], ended_ns[i - 1] + link_ns);
	cei_program_fini(&program);
	cei_machine_destroy(machine);
}
END_TEST

/* A decoded program takes the same time, with its routes found again. */
START_TEST(test_a_program_plays_the_same_in_another_process)
{
	static const uint32_t places[STEPS] = { 5, 1, 6, 7 };   /* no link to 5, 6 and 7 */
	struct cei_machine *machine = testing_machine("v100x8-mesh");
	struct cei_program program;
	uint64_t here_ns, there_ns;

	make(&program, places, STEPS, 1);
	here_ns = play(machine, &program, NULL);
	ck_assert_uint_ne(program.n_routes, 0);
	ck_assert_uint_ne(program.transfers[0].route, CEI_PROGRAM_NONE);
	ck_assert_uint_eq(program.transfers[1].route, CEI_PROGRAM_NONE);
	cei_program_fini(&program);
	make(&program, places, STEPS, 1);
	send(&program);
	there_ns = play(machine, &program, NULL);
	ck_assert_uint_eq(here_ns, there_ns);
	cei_program_fini(&program);
	cei_machine_destroy(machine);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_program");
	TCase *tcase = tcase_create("program");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_marks_order_what_is_played);
	tcase_add_test(tcase, test_a_program_plays_the_same_in_another_process);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
