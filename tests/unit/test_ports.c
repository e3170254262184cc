/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reservation of ports that engines share. */

#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "ce_engine/sched/ports.h"
#include "sim/sim.h"
#include "testing.h"

#define MIB     (UINT64_C(1) << 20)
#define THREADS 4u
#define ROUNDS  20000u
#define SLICE   1000u                   /* ns that each reservation takes */

static struct cei_ports *create(const struct cei_machine *machine)
{
	struct cei_report report;
	struct cei_ports *ports;

	cei_report_init(&report, NULL, NULL);
	ck_assert_int_eq(cei_ports_create(&report, machine, &ports), 0);
	cei_report_fini(&report);
	return ports;
}

static struct cei_ports_ask ask(const struct cei_machine *machine, uint32_t from, uint32_t to)
{
	struct cei_ports_ask made = { cei_machine_link(machine, from, to), 1000, 1000, 100 };

	return made;
}

START_TEST(test_a_link_needs_all_of_its_ports)
{
	struct cei_machine *machine = sim_machine_switch(4, 1000000000, 0);
	struct cei_ports *ports = create(machine);
	struct cei_ports_ask a = ask(machine, 0, 1), b = ask(machine, 2, 1);
	struct cei_ports_ask c = ask(machine, 2, 3), d = ask(machine, 0, 3);
	uint64_t ends = 0;

	ck_assert_int_eq(cei_ports_take(ports, &a, &ends), 0);
	ck_assert_uint_eq(ends, 1100);
	ck_assert_int_eq(cei_ports_take(ports, &b, &ends), CEOV_PENDING);       /* the receiver's
										 * port is taken */
	ck_assert_int_eq(cei_ports_take(ports, &d, &ends), CEOV_PENDING);       /* the sender's port
										 * is taken */
	ck_assert_uint_eq(ends, 1100);
	/* a refused call reserves nothing */
	ck_assert_int_eq(cei_ports_take(ports, &c, &ends), 0);
	ck_assert(!cei_ports_are_free(ports, b.link, 1099));
	ck_assert(cei_ports_are_free(ports, b.link, 1100));
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_who_comes_a_little_early_ends_after_the_holder)
{
	struct cei_machine *machine = sim_machine_switch(4, 1000000000, 0);
	struct cei_ports *ports = create(machine);
	struct cei_ports_ask a = ask(machine, 0, 1), b = ask(machine, 2, 1);
	uint64_t ends = 0;

	ck_assert_int_eq(cei_ports_take(ports, &a, &ends), 0);
	b.start_ns = 1095;
	b.by_ns = 1100;
	ck_assert_int_eq(cei_ports_take(ports, &b, &ends), 0);
	ck_assert_uint_eq(ends, 1200);
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_times_move_and_others_keep_theirs)
{
	struct cei_machine *machine = sim_machine_switch(4, 1000000000, 0);
	struct cei_ports *ports = create(machine);
	struct cei_ports_ask a = ask(machine, 0, 1), b = ask(machine, 2, 1);
	uint64_t ends = 0, other;

	ck_assert_int_eq(cei_ports_take(ports, &a, &ends), 0);
	cei_ports_move(ports, a.link, ends, 1500);      /* the copy ended late */
	ck_assert(!cei_ports_are_free(ports, a.link, 1499));
	cei_ports_move(ports, a.link, 1500, 1050);      /* the copy ended early */
	ck_assert(cei_ports_are_free(ports, a.link, 1050));
	other = cei_ports_book(ports, &b);
	ck_assert_uint_eq(other, 1150);
	cei_ports_move(ports, a.link, 1050, 9000);      /* only at the sender: b is booked behind it
							 * at the receiver */
	ck_assert(cei_ports_are_free(ports, b.link, 1150));
	ck_assert(!cei_ports_are_free(ports, a.link, 8999));
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

/* Makes GPUs 0 to 3 with links to one host memory whose port carries two and a half of them. */
static struct cei_machine *wide_machine(void)
{
	struct cei_machine *machine = sim_machine_empty(4, 1, 5);
	struct cei_machine_link *link;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		machine->ports[i].bytes_per_s = 1000000000;
		link = &machine->links[i * 5 + 4];
		link->kind = CEI_MACHINE_HOST;
		link->bytes_per_s = 1000000000;
		link->n_ports = 2;
		link->ports[0] = (uint16_t)i;
		link->ports[1] = 4;
	}
	machine->ports[4].bytes_per_s = 2500000000;
	return machine;
}

START_TEST(test_a_wide_port_carries_several)
{
	struct cei_machine *machine = wide_machine();
	struct cei_ports *ports = create(machine);
	struct cei_ports_ask one;
	uint64_t ends = 0;
	uint32_t i;

	for (i = 0; i < 4; i++) {
		one = ask(machine, i, 4);
		ck_assert_int_eq(cei_ports_take(ports, &one, &ends), i < 3 ? 0
				 : CEOV_PENDING);
	}
	/* a wait for the wide port, which would be too much for a narrow one */
	cei_ports_wait(ports, cei_machine_link(machine, 0, 4), 10 * MIB);
	cei_ports_wait(ports, cei_machine_link(machine, 1, 4), 40 * MIB);
	ck_assert_uint_eq(cei_ports_weight_ns(ports, cei_machine_link(machine, 0, 4)) / 1000000,
			  50 * MIB * 1000 / 2500000000);
	ck_assert_uint_eq(cei_ports_weight_ns(ports, cei_machine_link(machine, 1, 4)) / 1000000,
			  40 * MIB * 1000 / 1000000000);
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

/* Up to a tenth of a copy more is no slot; a port for more copies than there are slots has none,
 * and is always free. */
START_TEST(test_how_many_copies_a_port_carries)
{
	static const struct {
		uint64_t rate;
		uint32_t n;
	} wanted[] = {
		{ 0, 0 }, { 1, 1 }, { 500, 1 }, { 1000, 1 }, { 1100, 1 }, { 1101, 2 },
		{ 2000, 2 }, { 2100, 2 }, { 2101, 3 }, { CEI_PORT_SLOTS * 1000, CEI_PORT_SLOTS },
		{ CEI_PORT_SLOTS * 1000 + 100, CEI_PORT_SLOTS },
		{ CEI_PORT_SLOTS * 1000 + 101, 0 }, { (CEI_PORT_SLOTS + 1) * 1000, 0 },
	};
	struct cei_machine *machine = wide_machine();
	struct cei_ports *ports;
	uint32_t i;

	for (i = 0; i < 4; i++)
		machine->links[i * 5 + 4].bytes_per_s = 1000;
	for (i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		machine->ports[4].bytes_per_s = wanted[i].rate;
		ports = create(machine);
		ck_assert_msg(ports->ports[4].n_slots == wanted[i].n, "rate %llu: %u slots",
			      (unsigned long long)wanted[i].rate, ports->ports[4].n_slots);
		cei_ports_destroy(ports);
	}
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_what_waits_is_counted)
{
	struct cei_machine *machine = sim_machine_switch(4, 1000000000, 0);
	struct cei_ports *ports = create(machine);
	const struct cei_machine_link *a = cei_machine_link(machine, 0, 1);
	const struct cei_machine_link *b = cei_machine_link(machine, 2, 1);

	ck_assert(cei_ports_are_quiet(ports));
	cei_ports_wait(ports, a, 5);
	ck_assert(!cei_ports_are_quiet(ports));
	ck_assert(cei_ports_wait_is(ports, a, 5));
	cei_ports_wait(ports, b, 7);
	ck_assert(!cei_ports_wait_is(ports, a, 5));
	ck_assert(cei_ports_wait_is(ports, a, 12));
	cei_ports_unwait(ports, b, 7);
	cei_ports_unwait(ports, a, 5);
	ck_assert(cei_ports_are_quiet(ports));
	ck_assert(cei_ports_wait_is(ports, a, 0));
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

struct taker {
	struct cei_ports         *ports;
	const struct cei_machine *machine;
	pthread_t                 thread;
	uint32_t                  number;
	_Atomic uint32_t         *holders;      /* reservations of receiver 0 in each slice of
						 * time */
	uint32_t                  n_taken;
};

/* Thread function: reserves receiver 0, one slice of time after another. */
static void *take(void *arg)
{
	struct taker *taker = arg;
	struct cei_ports_ask one = ask(taker->machine, taker->number + 1, 0);
	uint64_t ends;
	uint32_t i;

	one.takes_ns = SLICE;
	for (i = 1; i < ROUNDS; i++) {
		one.start_ns = one.by_ns = (uint64_t)i * SLICE;
		cei_ports_wait(taker->ports, one.link, MIB);
		(void)cei_ports_weight_ns(taker->ports, one.link);
		if (!cei_ports_take(taker->ports, &one, &ends)) {
			/* relaxed: read after the threads have been joined */
			atomic_fetch_add_explicit(&taker->holders[i], 1,
						  memory_order_relaxed);
			taker->n_taken++;
		}
		cei_ports_unwait(taker->ports, one.link, MIB);
	}
	return NULL;
}

START_TEST(test_threads_never_hold_a_port_together)
{
	struct cei_machine *machine = sim_machine_switch(THREADS + 1, 1000000000, 0);
	struct cei_ports *ports = create(machine);
	_Atomic uint32_t *holders = calloc(ROUNDS, sizeof(*holders));
	struct taker takers[THREADS];
	uint32_t i, n = 0;

	ck_assert_ptr_nonnull(holders);
	for (i = 0; i < THREADS; i++) {
		takers[i] = (struct taker){ ports, machine, 0, i, holders, 0 };
		ck_assert_int_eq(pthread_create(&takers[i].thread, NULL, take, &takers[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(takers[i].thread, NULL);
		n += takers[i].n_taken;
	}
	for (i = 0; i < ROUNDS; i++)
		ck_assert_uint_le(holders[i], 1);
	ck_assert_uint_gt(n, 0);
	ck_assert(cei_ports_are_quiet(ports));
	ck_assert(cei_ports_wait_is(ports, cei_machine_link(machine, 1, 0), 0));
	free(holders);
	cei_ports_destroy(ports);
	cei_machine_destroy(machine);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ports");
	TCase *tests = tcase_create("times");

	tcase_set_timeout(tests, 60);
	tcase_add_test(tests, test_a_link_needs_all_of_its_ports);
	tcase_add_test(tests, test_who_comes_a_little_early_ends_after_the_holder);
	tcase_add_test(tests, test_times_move_and_others_keep_theirs);
	tcase_add_test(tests, test_a_wide_port_carries_several);
	tcase_add_test(tests, test_how_many_copies_a_port_carries);
	tcase_add_test(tests, test_what_waits_is_counted);
	tcase_add_test(tests, test_threads_never_hold_a_port_together);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
