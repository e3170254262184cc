/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Several clients on 8 GPUs behind an NVLink switch, simulated with the product's scheduler. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/sim_client.h"
#include "testing.h"

#define GPUS    8u
#define RATE    UINT64_C(392000000000)
#define T0_NS   4000u
#define MIB     (UINT64_C(1) << 20)
#define CHUNK   CEI_FLOWS_CHUNK_BYTES
#define SHARD   4u                      /* chunks: 64 MiB */
#define SEEDS   4u
#define CLIENTS 4u

#define WARM_NS (10 * TESTING_MS)       /* until what was launched first is done */
#define RUN_NS  (50 * TESTING_MS)

struct fixture {
	struct cei_machine *machine;
	struct sim         *sim;
	struct sim_client   clients[CLIENTS];
	uint32_t            n;
};

static void set_up(struct fixture *f, uint64_t seed)
{
	memset(f, 0, sizeof(*f));
	f->machine = sim_machine_switch(GPUS, RATE, T0_NS);
	f->sim = sim_create(f->machine, 1, testing_seed() + seed);
	sim_share(f->sim);
}

static void tear_down(struct fixture *f)
{
	sim_destroy(f->sim);
	cei_machine_destroy(f->machine);
	while (f->n)
		sim_client_fini(&f->clients[--f->n]);
}

/* Connects a client without copies. */
static struct sim_client *join(struct fixture *f, uint32_t weight, uint64_t bytes_per_s)
{
	const struct cei_flows_limits limits = { weight, bytes_per_s };
	struct sim_client *client = &f->clients[f->n++];

	ck_assert_uint_le(f->n, CLIENTS);
	client->sim = f->sim;
	client->slot = sim_open_client(f->sim, &limits);
	client->chunk_bytes = CHUNK;
	return client;
}

/* Connects a client that has all-gathers in flight, in the order of the template. */
static struct sim_client *join_gather(struct fixture *f, uint32_t weight, uint8_t urgency,
				      uint32_t n_launches)
{
	struct sim_client *client = join(f, weight, 0);

	client->urgency = urgency;
	client->keeps_order = 1;
	sim_client_add_gather(client, SHARD);
	sim_client_launch(client, n_launches);
	return client;
}

/* Runs, and counts what each client moves after a while. */
static void run(struct fixture *f, uint64_t ns)
{
	uint32_t i;

	(void)sim_run(f->sim, f->sim->now_ns + WARM_NS);
	for (i = 0; i < f->n; i++)
		f->clients[i].n_bytes = 0;
	(void)sim_run(f->sim, f->sim->now_ns + ns);
}

static double share(const struct fixture *f, const struct sim_client *client)
{
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < f->n; i++)
		sum += f->clients[i].n_bytes;
	return (double)client->n_bytes / (double)sum;
}

/* What all clients moved within that time, of what n_ports ports carry in chunks. */
static double filled(const struct fixture *f, uint64_t ns, uint32_t n_ports)
{
	uint64_t chunk_ns = cei_machine_link_ns(cei_machine_link(f->machine, 0, 1), CHUNK);
	uint64_t sum = 0;
	uint32_t i;

	for (i = 0; i < f->n; i++)
		sum += f->clients[i].n_bytes;
	return (double)sum / CHUNK * (double)chunk_ns / (double)(ns * n_ports);
}

/* What a client with all-gathers moves while another one is connected and idle, likewise. */
static double alone(uint64_t seed, uint8_t urgency)
{
	struct fixture f;
	double part;

	set_up(&f, seed);
	join_gather(&f, 1, urgency, 8);
	join(&f, 1, 0);
	run(&f, RUN_NS);
	part = filled(&f, RUN_NS, GPUS);
	tear_down(&f);
	return part;
}

static void ck_near(double value, double wanted, double by)
{
	ck_assert_double_ge(value, wanted - by);
	ck_assert_double_le(value, wanted + by);
}

/* --- one client --------------------------------------------------------------- */

/* Plays random copies of a client, or of the process itself where there are no flows. */
static void play(const struct cei_machine *machine, int has_flows, struct sim_copy *copies,
		 uint32_t n)
{
	const struct cei_flows_limits limits = { 7, 0 };
	struct sim *sim = sim_create(machine, 1, 1);
	uint64_t seed = testing_seed();
	uint32_t i, from, slot = 0;

	if (has_flows) {
		sim_share(sim);
		slot = sim_open_client(sim, &limits);
	}
	memset(copies, 0, n * sizeof(*copies));
	for (i = 0; i < n; i++) {
		from = (uint32_t)testing_below(&seed, GPUS);
		sim_ask(sim, &copies[i], from,
			(from + 1 + (uint32_t)testing_below(&seed, GPUS - 1)) % GPUS);
		copies[i].job.bytes = (1 + testing_below(&seed, 64)) * MIB;
		copies[i].job.urgency = (uint8_t)testing_below(&seed, 3);
		copies[i].job.keeps_order = testing_below(&seed, 4) == 0;
		copies[i].job.client = (uint16_t)slot;
		sim_add(sim, &copies[i]);
	}
	ck_assert(sim_run(sim, SIM_PATIENCE_NS));
	sim_destroy(sim);
}

START_TEST(test_one_client_goes_as_without_flows)
{
	struct cei_machine *machine = sim_machine_switch(GPUS, RATE, T0_NS);
	static struct sim_copy with[500], without[500];
	uint32_t i;

	play(machine, 0, without, 500);
	play(machine, 1, with, 500);
	for (i = 0; i < 500; i++)
		ck_assert_uint_eq(with[i].done_ns, without[i].done_ns);
	cei_machine_destroy(machine);
}
END_TEST

/* --- shares of a machine -------------------------------------------------------- */

START_TEST(test_equal_clients_get_half)
{
	struct sim_client *a;
	struct fixture f;
	uint32_t seed;
	double sum;

	for (seed = 0; seed < testing_share(SEEDS); seed++) {
		set_up(&f, seed);
		a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 8);
		join_gather(&f, 1, CEOV_URGENCY_NORMAL, 8);
		run(&f, RUN_NS);
		sum = filled(&f, RUN_NS, GPUS) / alone(seed, CEOV_URGENCY_NORMAL);
		printf("1:1: share %.3f, sum %.3f of one alone\n", share(&f, a), sum);
		ck_near(share(&f, a), 0.5, 0.02);
		ck_assert_double_ge(sum, 0.95);
		tear_down(&f);
	}
}
END_TEST

START_TEST(test_launching_ahead_gains_nothing)
{
	struct sim_client *a;
	struct fixture f;
	uint32_t seed;

	for (seed = 0; seed < testing_share(SEEDS); seed++) {
		set_up(&f, seed);
		a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 16);
		join_gather(&f, 1, CEOV_URGENCY_NORMAL, 2);
		run(&f, RUN_NS);
		printf("16 launches ahead against 2: share %.3f\n", share(&f, a));
		ck_near(share(&f, a), 0.5, 0.02);
		ck_assert_double_ge(filled(&f, RUN_NS, GPUS), 0.95);
		tear_down(&f);
	}
}
END_TEST

START_TEST(test_weights_divide_the_machine)
{
	static const uint32_t weights[][CLIENTS] = { { 3, 1 }, { 1, 2, 3, 5 } };
	struct fixture f;
	uint32_t seed, i, k, sum;

	for (seed = 0; seed < 2 * SEEDS; seed++) {
		set_up(&f, seed);
		k = seed % 2;
		for (sum = i = 0; i < CLIENTS && weights[k][i]; i++) {
			join_gather(&f, weights[k][i], CEOV_URGENCY_NORMAL, 8);
			sum += weights[k][i];
		}
		run(&f, RUN_NS);
		for (i = 0; i < f.n; i++)
			ck_near(share(&f, &f.clients[i]), (double)weights[k][i] / sum, 0.02);
		printf("%u clients, weights %u:%u...: first one's share %.3f, ports filled %.3f\n",
		       f.n, weights[k][0], weights[k][1], share(&f, &f.clients[0]),
		       filled(&f, RUN_NS, GPUS));
		/* 0.65 is what is asked for; lanes that let the next flow go while the one
		 * whose turn it is waits for its ports reach 0.75 */
		ck_assert_double_ge(filled(&f, RUN_NS, GPUS), 0.85);
		tear_down(&f);
	}
}
END_TEST

START_TEST(test_background_gets_a_sixteenth_of_normal)
{
	struct sim_client *a;
	struct fixture f;
	uint32_t seed;

	for (seed = 0; seed < testing_share(SEEDS); seed++) {
		set_up(&f, seed);
		a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 8);
		join_gather(&f, 1, CEOV_URGENCY_BACKGROUND, 8);
		run(&f, RUN_NS);
		printf("normal beside background: share %.3f, ports filled %.3f\n", share(&f, a),
		       filled(&f, RUN_NS, GPUS));
		ck_near(share(&f, a), 16.0 / 17, 0.02);
		ck_assert_double_ge(filled(&f, RUN_NS, GPUS), 0.85);
		tear_down(&f);
	}
}
END_TEST

/* --- shares of a port ----------------------------------------------------------- */

/* 7 GPUs of one client and 1 of another one send to one GPU. Returns the latter's share. */
static double play_incast(uint64_t seed, uint32_t weight, uint64_t chunk_bytes)
{
	struct sim_client *a, *b;
	struct fixture f;
	uint32_t from;
	double part;

	set_up(&f, seed);
	a = join(&f, 1, 0);
	b = join(&f, weight, 0);
	a->chunk_bytes = b->chunk_bytes = chunk_bytes;
	for (from = 1; from < GPUS; from++)
		sim_client_add(a, from, 0);
	sim_client_add(b, 1, 0);
	sim_client_launch(a, 4);
	sim_client_launch(b, 4);
	run(&f, RUN_NS);
	part = share(&f, b);
	printf("7 to 1, weights 1:%u, chunks of %llu MiB: share %.3f, port filled %.3f\n", weight,
	       (unsigned long long)(chunk_bytes / MIB), part, filled(&f, RUN_NS, 1));
	ck_assert_double_ge(filled(&f, RUN_NS, 1), chunk_bytes == CHUNK ? 0.95 : 0.75);
	tear_down(&f);
	return part;
}

START_TEST(test_many_senders_gain_nothing_at_one_receiver)
{
	uint32_t seed;

	for (seed = 0; seed < testing_share(SEEDS); seed++) {
		ck_near(play_incast(seed, 1, seed % 2 ? CHUNK : 4 * MIB), 0.5, 0.02);
		ck_near(play_incast(seed, 3, seed % 2 ? CHUNK : 4 * MIB), 0.75, 0.02);
	}
}
END_TEST

/* Client b received less than a at GPU 0, where both send, but cannot use that: its copies go in
 * their order, and most of its time they wait for GPU 3, which c keeps busy. */
START_TEST(test_ports_do_not_idle_for_who_cannot_use_them)
{
	struct sim_client *a, *b, *c;
	struct fixture f;
	uint32_t from;

	set_up(&f, 0);
	a = join(&f, 1, 0);
	b = join(&f, 1, 0);
	c = join(&f, 8, 0);
	sim_client_add(a, 2, 0);
	sim_client_add(b, 1, 0);
	sim_client_add(b, 1, 3);
	for (from = 4; from < GPUS; from++)
		sim_client_add(c, from, 3);
	a->keeps_order = b->keeps_order = c->keeps_order = 1;
	sim_client_launch(a, 4);
	sim_client_launch(b, 4);
	sim_client_launch(c, 4);
	run(&f, RUN_NS);
	printf("two receivers: both ports filled %.3f\n", filled(&f, RUN_NS, 2));
	ck_assert_double_ge(filled(&f, RUN_NS, 2), 0.95);
	tear_down(&f);
}
END_TEST

/* --- clients that come and go ---------------------------------------------------- */

START_TEST(test_idle_clients_save_up_nothing)
{
	struct sim_client *a, *b;
	struct fixture f;

	set_up(&f, 0);
	a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 4);
	b = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 4);
	b->is_paused = 1;
	run(&f, RUN_NS);
	ck_assert_double_ge(share(&f, a), 0.8);
	sim_client_resume(b);
	a->n_bytes = b->n_bytes = 0;
	(void)sim_run(f.sim, f.sim->now_ns + 10 * TESTING_MS);
	printf("10 ms after a pause of the other: share %.3f\n", share(&f, a));
	ck_near(share(&f, a), 0.5, 0.03);
	tear_down(&f);
}
END_TEST

START_TEST(test_closed_slots_are_used_again_at_once)
{
	struct sim_client *a, *b, *c;
	struct fixture f;
	uint32_t slot;

	set_up(&f, 0);
	a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 4);
	b = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 4);
	run(&f, RUN_NS);
	b->is_paused = 1;
	(void)sim_run(f.sim, f.sim->now_ns + RUN_NS);
	ck_assert_uint_eq(b->n_open, 0);
	slot = b->slot;
	ck_assert_int_eq(cei_flows_close(f.sim->flows, slot), 0);
	c = join_gather(&f, 3, CEOV_URGENCY_NORMAL, 4);
	ck_assert_uint_eq(c->slot, slot);
	ck_assert_uint_eq(cei_flows_read(f.sim->flows, CEI_FLOWS_ALL_PORTS, slot,
					 CEOV_URGENCY_NORMAL).bytes, 0);
	run(&f, RUN_NS);
	ck_near(share(&f, a), 0.25, 0.02);
	ck_assert_uint_ge(cei_flows_read(f.sim->flows, CEI_FLOWS_ALL_PORTS, slot,
					 CEOV_URGENCY_NORMAL).bytes, c->n_bytes);
	tear_down(&f);
}
END_TEST

/* --- urgent ----------------------------------------------------------------------- */

#define URGENT 100u                     /* transfers, one a ms */

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* Adds an urgent 2 MiB transfer each ms between random GPUs. Returns the 99th percentile of their
 * times. */
static uint64_t play_urgent(struct fixture *f, uint32_t slot)
{
	static struct sim_copy copies[URGENT];
	uint64_t times[URGENT], seed = testing_seed(), at = f->sim->now_ns;
	uint32_t i, from;

	memset(copies, 0, sizeof(copies));
	for (i = 0; i < URGENT; i++) {
		from = (uint32_t)testing_below(&seed, GPUS);
		sim_ask(f->sim, &copies[i], from,
			(from + 1 + (uint32_t)testing_below(&seed, GPUS - 1)) % GPUS);
		copies[i].job.bytes = 2 * MIB;
		copies[i].job.urgency = CEOV_URGENCY_URGENT;
		copies[i].job.client = (uint16_t)slot;
		sim_add(f->sim, &copies[i]);
		at += TESTING_MS;
		(void)sim_run(f->sim, at);
		ck_assert_uint_ne(copies[i].done_ns, 0);
		times[i] = copies[i].done_ns - copies[i].job.ready_ns;
	}
	qsort(times, URGENT, sizeof(*times), compare);
	return times[URGENT * 99 / 100 - 1];
}

START_TEST(test_urgent_waits_for_one_chunk)
{
	const struct cei_machine_link *link;
	uint64_t most_ns, took_ns, begin_ns;
	struct sim_client *a, *b;
	struct fixture f;
	uint8_t urgency;
	uint32_t seed;
	double part;

	for (seed = 0; seed < testing_share(SEEDS); seed++) {
		urgency = seed % 2 ? CEOV_URGENCY_BACKGROUND : CEOV_URGENCY_NORMAL;
		set_up(&f, seed);
		a = join_gather(&f, 1, urgency, 2);
		b = join(&f, 1, 0);
		link = cei_machine_link(f.machine, 0, 1);
		most_ns = cei_machine_link_ns(link, 2 * MIB) + cei_machine_link_ns(link, CHUNK) +
			20000;
		run(&f, TESTING_MS);
		a->n_bytes = 0;
		begin_ns = f.sim->now_ns;
		took_ns = play_urgent(&f, b->slot);
		part = filled(&f, f.sim->now_ns - begin_ns, GPUS) / alone(seed, urgency);
		printf("urgent 2 MiB each ms beside %s: 99th percentile %llu ns of %llu allowed; "
		       "all-gather at %.3f of its rate\n", seed % 2 ? "background" : "normal",
		       (unsigned long long)took_ns, (unsigned long long)most_ns, part);
		ck_assert_uint_le(took_ns, most_ns);
		ck_assert_double_ge(part, 0.95);
		tear_down(&f);
	}
}
END_TEST

/* Clients that call everything urgent get no more than their shares. */
START_TEST(test_all_urgent_is_not_urgent)
{
	struct sim_client *a;
	struct fixture f;
	uint32_t n, i;

	for (n = 1; n < CLIENTS; n++) {
		set_up(&f, n);
		a = join_gather(&f, 1, CEOV_URGENCY_NORMAL, 4);
		for (i = 0; i < n; i++)
			join_gather(&f, 1, CEOV_URGENCY_URGENT, 4);
		run(&f, RUN_NS);
		printf("normal beside %u all urgent: share %.3f, ports filled %.3f\n", n,
		       share(&f, a), filled(&f, RUN_NS, GPUS));
		ck_assert_double_ge(share(&f, a), 1.0 / (n + 1) - 0.02);
		tear_down(&f);
	}
}
END_TEST

/* --- limits ------------------------------------------------------------------------ */

START_TEST(test_limits_hold_and_idle_nobody_else)
{
	const uint64_t limit = 20 * UINT64_C(1000000000), ns = 200 * TESTING_MS;
	const struct cei_flows_limits none = { 1, 0 };
	struct sim_client *a, *b;
	struct fixture f;

	set_up(&f, 0);
	a = join(&f, 1, 0);
	b = join(&f, 1, limit);
	sim_client_add(a, 2, 0);
	sim_client_add(b, 1, 0);
	sim_client_launch(a, 4);
	sim_client_launch(b, 4);
	run(&f, ns);
	printf("limit of 20 GB/s: %.2f GB/s, port filled %.3f\n",
	       (double)b->n_bytes / (double)ns, filled(&f, ns, 1));
	ck_near((double)b->n_bytes * 1e9 / (double)ns, (double)limit, 0.02 * (double)limit);
	ck_assert_double_ge(filled(&f, ns, 1), 0.95);
	/* without the limit the client gets its share, and not what it did not get before */
	ck_assert_int_eq(cei_flows_change(f.sim->flows, b->slot, &none), 0);
	run(&f, RUN_NS);
	ck_near(share(&f, a), 0.5, 0.02);
	tear_down(&f);
}
END_TEST

START_TEST(test_limits_hold_for_one_client)
{
	const uint64_t limit = 20 * UINT64_C(1000000000), ns = 200 * TESTING_MS;
	struct sim_client *a;
	struct fixture f;

	set_up(&f, 0);
	a = join(&f, 1, limit);
	sim_client_add_gather(a, 1);
	sim_client_launch(a, 4);
	run(&f, ns);
	ck_near((double)a->n_bytes * 1e9 / (double)ns, (double)limit, 0.02 * (double)limit);
	tear_down(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_flows");
	TCase *tests = tcase_create("clients");

	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, test_one_client_goes_as_without_flows);
	tcase_add_test(tests, test_equal_clients_get_half);
	tcase_add_test(tests, test_launching_ahead_gains_nothing);
	tcase_add_test(tests, test_weights_divide_the_machine);
	tcase_add_test(tests, test_background_gets_a_sixteenth_of_normal);
	tcase_add_test(tests, test_many_senders_gain_nothing_at_one_receiver);
	tcase_add_test(tests, test_ports_do_not_idle_for_who_cannot_use_them);
	tcase_add_test(tests, test_idle_clients_save_up_nothing);
	tcase_add_test(tests, test_closed_slots_are_used_again_at_once);
	tcase_add_test(tests, test_urgent_waits_for_one_chunk);
	tcase_add_test(tests, test_all_urgent_is_not_urgent);
	tcase_add_test(tests, test_limits_hold_and_idle_nobody_else);
	tcase_add_test(tests, test_limits_hold_for_one_client);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
