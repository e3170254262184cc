/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Clients with copies or rows of one byte, which take time all the same, beside others on one lane.
 * The copies' links are known to the scheduler, or unknown, as those within the host and over
 * staged paths are. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "ce_engine/program/program_cut.h"
#include "sim/sim_client.h"
#include "testing.h"

#define GPUS   2u
#define RATE   UINT64_C(8000000000)
#define T0_NS  4000u
#define MIB    (UINT64_C(1) << 20)
#define CHUNK  CEI_FLOWS_CHUNK_BYTES
#define RUN_NS (300 * TESTING_MS)

struct fixture {
	struct cei_machine *machine;
	struct sim         *sim;
	struct sim_client   one;        /* with short copies or rows */
	struct sim_client   other;
};

static void join(struct fixture *f, struct sim_client *client, uint64_t bytes_per_s)
{
	const struct cei_flows_limits limits = { 1, bytes_per_s };

	client->sim = f->sim;
	client->slot = sim_open_client(f->sim, &limits);
	client->chunk_bytes = CHUNK;
	client->keeps_order = 1;
}

/* All copies are made by GPU 0's engine. A client of hidden links is predicted by the default link
 * of copies between GPUs, so the machine has that one. */
static void set_up(struct fixture *f, uint8_t hides_links, uint64_t bytes_per_s)
{
	const struct cei_machine_link *usual = cei_link_default(CEI_DIRECTION_PEER);

	memset(f, 0, sizeof(*f));
	f->machine = sim_machine_switch(GPUS, hides_links ? usual->bytes_per_s : RATE,
					hides_links ? usual->t0_ns : T0_NS);
	f->sim = sim_create(f->machine, 1, testing_seed());
	sim_share(f->sim);
	join(f, &f->one, bytes_per_s);
	join(f, &f->other, 0);
	f->one.hides_links = f->other.hides_links = hides_links;
}

static void tear_down(struct fixture *f)
{
	sim_destroy(f->sim);
	cei_machine_destroy(f->machine);
	sim_client_fini(&f->one);
	sim_client_fini(&f->other);
}

static void launch(struct sim_client *client, uint32_t n_copies, uint32_t n)
{
	while (n_copies--)
		sim_client_add(client, 0, 1);
	sim_client_launch(client, n);
}

/* The time that the client's copies took on the lane. */
static double busy_ns(const struct fixture *f, const struct sim_client *client)
{
	const struct cei_machine_link *link = cei_machine_link(f->machine, 0, 1);

	return (double)client->n_ended *
		(double)cei_machine_link_ns(link, client->chunk_bytes + client->gap_bytes);
}

static void check_half(struct fixture *f, const char *what)
{
	double one, other;

	(void)sim_run(f->sim, f->sim->now_ns + RUN_NS);
	one = busy_ns(f, &f->one);
	other = busy_ns(f, &f->other);
	printf("%s, links %s: share of the lane's time %.3f, filled %.3f\n", what,
	       f->one.hides_links ? "unknown" : "known", one / (one + other),
	       (one + other) / (double)RUN_NS);
	ck_assert_double_ge(one / (one + other), 0.47);
	ck_assert_double_le(one / (one + other), 0.53);
}

START_TEST(test_short_copies_get_half_of_the_time)
{
	struct fixture f;

	set_up(&f, (uint8_t)_i, 0);
	f.one.chunk_bytes = 1;
	launch(&f.one, 256, 16);
	launch(&f.other, 1, 4);
	check_half(&f, "copies of one byte");
	tear_down(&f);
}
END_TEST

START_TEST(test_short_rows_get_half_of_the_time)
{
	struct cei_piece piece = { .row_bytes = 1, .n_rows = UINT64_C(4) << 20,
				   .source_pitch_bytes = 64, .target_pitch_bytes = 64 };
	struct fixture f;

	set_up(&f, (uint8_t)_i, 0);
	piece = cei_split_at(&piece, CHUNK, 0);
	f.one.chunk_bytes = piece.n_rows;
	f.one.gap_bytes = cei_split_gap_bytes(&piece, piece.n_rows);
	launch(&f.one, 128, 4);
	launch(&f.other, 1, 4);
	check_half(&f, "rows of one byte");
	tear_down(&f);
}
END_TEST

/* Who is urgent waits for what the lane has got already: one long copy, or few short ones. */
START_TEST(test_urgent_copies_go_before_short_ones)
{
	struct fixture f;

	set_up(&f, (uint8_t)_i, 0);
	f.one.chunk_bytes = 1;
	f.other.chunk_bytes = 4096;
	f.other.urgency = CEOV_URGENCY_URGENT;
	launch(&f.one, 256, 16);
	launch(&f.other, 1, 1);
	(void)sim_run(f.sim, f.sim->now_ns + RUN_NS);
	printf("urgent beside copies of one byte: %llu copies, at most %llu ns\n",
	       (unsigned long long)f.other.n_ended, (unsigned long long)f.other.slowest_ns);
	ck_assert_uint_ge(f.other.n_ended, RUN_NS / 50000);
	ck_assert_double_ge(busy_ns(&f, &f.one), 0.4 * (double)RUN_NS);
	tear_down(&f);
}
END_TEST

/* On a lane without ports, too, calling everything urgent gains nothing. */
START_TEST(test_all_urgent_is_not_urgent_without_ports)
{
	struct fixture f;

	set_up(&f, 1, 0);
	f.other.urgency = CEOV_URGENCY_URGENT;
	launch(&f.one, 1, 4);
	launch(&f.other, 1, 4);
	check_half(&f, "beside one that is all urgent");
	tear_down(&f);
}
END_TEST

START_TEST(test_a_limit_in_bytes_bounds_short_copies)
{
	const uint64_t limit = 20000000;
	struct fixture f;

	set_up(&f, (uint8_t)_i, limit);
	f.one.chunk_bytes = 1;
	launch(&f.one, 256, 4);
	(void)sim_run(f.sim, f.sim->now_ns + RUN_NS);
	ck_assert_uint_le(f.one.n_ended * CEI_FLOWS_COPY_BYTES * 1000 / 300, limit * 102 / 100);
	ck_assert_uint_ge(f.one.n_ended * CEI_FLOWS_COPY_BYTES * 1000 / 300, limit * 98 / 100);
	tear_down(&f);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("sim_short");
	TCase *tests = tcase_create("short");

	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, test_short_copies_get_half_of_the_time, 0, 2);
	tcase_add_loop_test(tests, test_short_rows_get_half_of_the_time, 0, 2);
	tcase_add_loop_test(tests, test_urgent_copies_go_before_short_ones, 0, 2);
	tcase_add_test(tests, test_all_urgent_is_not_urgent_without_ports);
	tcase_add_loop_test(tests, test_a_limit_in_bytes_bounds_short_copies, 0, 2);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
