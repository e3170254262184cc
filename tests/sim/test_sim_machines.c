/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* All-gather and all-to-all on every machine of tests/fixtures/machines/. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim.h"
#include "testing.h"
#include "topology/route.h"

#define MIB    (UINT64_C(1) << 20)
#define COPIES 16384u
#define RUNS   5u

struct line {
	const char *name;
	uint64_t    bytes;              /* bytes from each rank to each other one; transfers
					 * through host memory must be large enough to fill their
					 * pipeline */
};

static const struct line machines[] = {
	{ "h200x8-nvswitch", 64 * MIB },
	{ "vm-flat", 64 * MIB },
	{ "pcie4-two-nodes", 64 * MIB },
	{ "pcie8-switches-nics", 64 * MIB },
	{ "v100x8-mesh", 512 * MIB },
	{ "grace-hopper", 64 * MIB },
	{ "two-no-p2p", 512 * MIB },
};

#define MACHINES (sizeof(machines) / sizeof(machines[0]))

struct fixture {
	struct cei_machine *machine;
	struct sim         *sim;
	struct sim_copy    *copies;
	uint32_t            n;
	int                 keeps_order;
};

static void set_up(struct fixture *f, const char *name, int keeps_order, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	f->keeps_order = keeps_order;
	f->machine = testing_machine(name);
	f->sim = sim_create(f->machine, 1, seed);
	f->copies = calloc(COPIES, sizeof(*f->copies));
	ck_assert_ptr_nonnull(f->copies);
}

static void tear_down(struct fixture *f)
{
	sim_destroy(f->sim);
	cei_machine_destroy(f->machine);
	free(f->copies);
}

static struct sim_copy *one(struct fixture *f, uint32_t from, uint32_t to, uint64_t n_bytes)
{
	struct sim_copy *copy = &f->copies[f->n++];

	ck_assert_uint_le(f->n, COPIES);
	sim_ask(f->sim, copy, from, to);
	copy->job.bytes = n_bytes;
	copy->job.keeps_order = (uint8_t)f->keeps_order;
	return copy;
}

/* Adds a transfer over two legs, piece by piece through a few slots. Its links are unknown, as in
 * the engine. */
static void add_staged(struct fixture *f, uint32_t from, uint32_t to, uint64_t n_bytes)
{
	uint32_t host = cei_machine_near_host(f->machine, from);
	struct sim_copy *first, *second;
	uint32_t i;

	ck_assert_uint_eq(n_bytes % CEI_ROUTE_SLOT_BYTES, 0);
	for (i = 0; i < n_bytes / CEI_ROUTE_SLOT_BYTES; i++) {
		first = one(f, from, host, CEI_ROUTE_SLOT_BYTES);
		second = one(f, host, to, CEI_ROUTE_SLOT_BYTES);
		first->job.link = second->job.link = NULL;
		first->behind = second;
		if (i < CEI_ROUTE_SLOTS)
			sim_add(f->sim, first);
		else                    /* the slot is free when the second leg of this piece has
					 * ended */
			(second - 2 * CEI_ROUTE_SLOTS)->behind = first;
	}
}

static void add(struct fixture *f, uint32_t from, uint32_t to, uint64_t n_bytes)
{
	if (cei_machine_link(f->machine, from, to)->kind == CEI_MACHINE_NONE)
		add_staged(f, from, to, n_bytes);
	else
		sim_add(f->sim, one(f, from, to, n_bytes));
}

static void add_all(struct fixture *f, uint64_t n_bytes)
{
	uint32_t step, from, to, n = f->machine->n_gpus;

	for (step = 1; step < n; step++) {
		for (from = 0; from < n; from++) {
			to = f->keeps_order ? (from + step) % n : step - (from >= step);
			add(f, from, to, n_bytes);
		}
	}
}

/* Sends the same number of bytes from each rank to each other one, as all-gather and all-to-all do.
 * Returns the worst time of several runs relative to the bound. */
static double play(const char *name, uint64_t n_bytes, int keeps_order)
{
	struct sim_outcome outcome;
	struct fixture f;
	double ratio, worst = 0;
	uint64_t seed;
	uint32_t n = 0;

	for (seed = 1; seed <= testing_share(RUNS); seed++) {
		set_up(&f, name, keeps_order, seed);
		add_all(&f, n_bytes);
		ck_assert(sim_run(f.sim, SIM_PATIENCE_NS));
		outcome = sim_outcome(f.sim);
		ratio = (double)outcome.makespan_ns /
			(double)sim_bound_ns(f.sim, f.copies, f.n);
		worst = ratio > worst ? ratio : worst;
		n = f.machine->n_gpus;
		tear_down(&f);
	}
	printf("%-20s %3llu MiB between all %u, %s: %.3f of the bound\n", name,
	       (unsigned long long)(n_bytes / MIB), n, keeps_order ? "templates" : "plain    ",
	       worst);
	return worst;
}

START_TEST(test_exchanges_come_near_their_bound)
{
	const char *name = machines[_i].name;
	uint64_t bytes = machines[_i].bytes;

	ck_assert_double_le(play(name, bytes, 0), 1.1);
	ck_assert_double_le(play(name, bytes / 4, 0), 1.1);
	ck_assert_double_le(play(name, bytes, 1), 1.1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_machines");
	TCase *tests = tcase_create("exchanges");

	tcase_set_timeout(tests, 120);
	tcase_add_loop_test(tests, test_exchanges_come_near_their_bound, 0, (int)MACHINES);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
