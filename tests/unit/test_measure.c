/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests how ceoverlap-bench measure interprets times. The mover is a simulated machine with known
 * links and shared ports: it moves nothing, and reports how long copies would have taken.
 */

#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tools/bench/measure/measure.h"

#define GPUS     8u
#define PEER     393e9
#define IN       53e9                   /* rate from the host to one GPU */
#define OUT      55e9
#define ALL_IN   172e9                  /* rate from the host to all GPUs together */
#define HALF_IN  110e9
#define ALL_OUT  92e9
#define T0_NS    2100.0
#define MIB      (UINT64_C(1) << 20)

struct fake {
	uint32_t n_runs;
	uint32_t n_wrong;               /* wrong words that each check reports */
	uint32_t fails_at;              /* number of the call that fails; 0: none */
	uint8_t  refuses[GPUS][GPUS];
};

static struct testing_log log_of;

static int is_gpu(uint32_t place)
{
	return place < GPUS;
}

/* Returns how long all flows take over one shared resource; a rate of 0 means that a flow does not
 * cross it. */
static double shared_ns(const struct measure_flow *flows, uint32_t n,
			int (*is_over)(const struct measure_flow *, uint32_t), uint32_t which,
			double rate)
{
	double bytes = 0;
	uint32_t i;

	for (i = 0; i < n; i++)
		if (is_over(&flows[i], which))
			bytes += (double)flows[i].bytes * flows[i].n_copies;
	return bytes / rate * 1e9;
}

static int is_in(const struct measure_flow *flow, uint32_t which)
{
	(void)which;
	return !is_gpu(flow->from);
}

static int is_in_half(const struct measure_flow *flow, uint32_t which)
{
	return !is_gpu(flow->from) && flow->to / 4 == which;
}

static int is_out(const struct measure_flow *flow, uint32_t which)
{
	(void)which;
	return !is_gpu(flow->to);
}

static int is_to_gpu(const struct measure_flow *flow, uint32_t which)
{
	return is_gpu(flow->from) && flow->to == which;
}

static int is_from_gpu(const struct measure_flow *flow, uint32_t which)
{
	return is_gpu(flow->to) && flow->from == which;
}

static double longer(double a, double b)
{
	return a > b ? a : b;
}

static double all_ns(const struct measure_flow *flows, uint32_t n)
{
	double ns = shared_ns(flows, n, is_in, 0, ALL_IN);
	uint32_t i;

	ns = longer(ns, shared_ns(flows, n, is_out, 0, ALL_OUT));
	for (i = 0; i < 2; i++)
		ns = longer(ns, shared_ns(flows, n, is_in_half, i, HALF_IN));
	for (i = 0; i < GPUS; i++) {
		ns = longer(ns, shared_ns(flows, n, is_to_gpu, i, PEER));
		ns = longer(ns, shared_ns(flows, n, is_from_gpu, i, PEER));
	}
	return ns;
}

static int fake_run(void *private, struct measure_flow *flows, uint32_t n_flows)
{
	struct fake *fake = private;
	double rate, ns, together;
	uint32_t i;

	ck_assert_uint_ge(n_flows, 1);
	ck_assert_uint_le(n_flows, MEASURE_FLOWS_MAX);
	if (++fake->n_runs == fake->fails_at)
		return CEOV_ERR_CUDA;
	together = n_flows > 1 ? all_ns(flows, n_flows) : 0;
	for (i = 0; i < n_flows; i++) {
		ck_assert_uint_ge(flows[i].bytes, 1);
		ck_assert_uint_ge(flows[i].n_copies, 1);
		ck_assert_uint_le(flows[i].n_copies, MEASURE_COPIES_MAX);
		ck_assert_uint_lt(flows[i].slot, MEASURE_LANES);
		rate = !is_gpu(flows[i].from) ? IN : !is_gpu(flows[i].to) ? OUT : PEER;
		ns = flows[i].n_copies * (T0_NS + (double)flows[i].bytes / rate * 1e9);
		flows[i].us = longer(ns, together) / 1e3;
	}
	return 0;
}

static int fake_check(void *private, const struct measure_flow *flow, uint64_t *ret_n_wrong)
{
	struct fake *fake = private;

	(void)flow;
	*ret_n_wrong = fake->n_wrong;
	return 0;
}

static int fake_reaches(void *private, uint32_t from, uint32_t to)
{
	struct fake *fake = private;

	return !is_gpu(from) || !is_gpu(to) || !fake->refuses[from][to];
}

static const struct measure_mover_ops fake_ops = {
	.run = fake_run,
	.check = fake_check,
	.reaches = fake_reaches,
};

/* --- functions of the program that its files need ---------------------------- */

int measure_has_time(struct measure *m)
{
	if (m->deadline_ns)
		return 1;
	m->n_left_out++;
	return 0;
}

void measure_progress(const char *format, ...)
{
	(void)format;
}

/* --- the rig ----------------------------------------------------------------- */

struct rig {
	struct bench_options options;
	struct fake          fake;
	struct measure       m;
};

static void open_rig(struct rig *rig, const char *fixture)
{
	const char *srcdir = getenv("srcdir");
	struct measure *m = &rig->m;
	char path[PATH_MAX];
	uint32_t n;

	memset(rig, 0, sizeof(*rig));
	testing_log_init(&log_of);
	cei_report_init(&m->report, testing_log_line, &log_of);
	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/%s", srcdir ? srcdir : ".",
		 fixture);
	ck_assert_int_eq(cei_machine_read_xml(&m->report, path, &m->machine), 0);
	ck_assert_uint_eq(m->machine->n_gpus, GPUS);
	n = cei_machine_n_places(m->machine);
	rig->options.check = 1;
	m->options = &rig->options;
	m->n_gpus = GPUS;
	m->deadline_ns = 1;
	m->ops = &fake_ops;
	m->mover = &rig->fake;
	m->sizes = (struct measure_sizes){ 512 * MIB, 64 * MIB };
	m->plain_bytes = 512 * MIB;
	m->n_plain_copies = 16;
	m->links = calloc((size_t)n * n, sizeof(*m->links));
	m->sets = calloc(MEASURE_SETS_MAX, sizeof(*m->sets));
	ck_assert(m->links && m->sets);
}

static void close_rig(struct rig *rig)
{
	free(rig->m.links);
	free(rig->m.sets);
	cei_machine_destroy(rig->m.machine);
	cei_report_fini(&rig->m.report);
}

static void near(double value, double wanted, double share)
{
	ck_assert_msg(fabs(value / wanted - 1) <= share, "%g is not near %g", value, wanted);
}

static void link_is(const struct rig *rig, uint32_t from, uint32_t to, double rate)
{
	const struct cei_machine_link *link = cei_machine_link(rig->m.machine, from, to);

	ck_assert_uint_eq(link->origin, CEI_MACHINE_MEASURED);
	near((double)link->bytes_per_s, rate, 0.001);
	near((double)link->t0_ns, T0_NS, 0.01);
}

static const struct measure_set *set_named(const struct rig *rig, const char *name)
{
	uint32_t i;

	for (i = 0; i < rig->m.n_sets; i++)
		if (!strcmp(rig->m.sets[i].name, name))
			return &rig->m.sets[i];
	ck_abort_msg("no set '%s'", name);
	return NULL;
}

static uint32_t n_ports_named(const struct rig *rig, const char *name)
{
	uint32_t i, n = 0;

	for (i = 0; i < rig->m.machine->n_ports; i++)
		n += !strcmp(rig->m.machine->ports[i].name, name);
	return n;
}

/* --- tests ------------------------------------------------------------------- */

START_TEST(test_links_alone)
{
	struct rig rig;
	uint32_t a, b, host;

	open_rig(&rig, "vm-flat.xml");
	host = cei_machine_host_place(rig.m.machine, 0);
	ck_assert_int_eq(measure_pairs(&rig.m), 0);
	ck_assert_int_eq(measure_host_links(&rig.m), 0);
	for (a = 0; a < GPUS; a++) {
		for (b = 0; b < GPUS; b++) {
			if (a == b)
				continue;
			link_is(&rig, a, b, PEER);
			near(measure_link(&rig.m, a, b)->plain_gb_per_s, PEER / 1e9, 0.01);
		}
		link_is(&rig, host, a, IN);
		link_is(&rig, a, host, OUT);
	}
	ck_assert_uint_eq(rig.m.n_checked, GPUS * (GPUS - 1) + 2 * GPUS);
	ck_assert_uint_eq(rig.m.n_left_out, 0);
	close_rig(&rig);
}
END_TEST

static void port_carries(const struct rig *rig, const char *set, double rate)
{
	const struct measure_set *found = set_named(rig, set);
	uint32_t i;

	ck_assert_msg(found->port[0], "%s share nothing", set);
	for (i = 0; i < rig->m.machine->n_ports; i++)
		if (!strcmp(rig->m.machine->ports[i].name, found->port))
			break;
	ck_assert_uint_lt(i, rig->m.machine->n_ports);
	ck_assert_uint_eq(rig->m.machine->ports[i].origin, CEI_MACHINE_MEASURED);
	near((double)rig->m.machine->ports[i].bytes_per_s, rate, 0.02);
	ck_assert_uint_eq(n_ports_named(rig, found->port), 1);
}

START_TEST(test_what_links_share_is_found)
{
	struct rig rig;

	open_rig(&rig, "vm-flat.xml");
	ck_assert_int_eq(measure_pairs(&rig.m), 0);
	ck_assert_int_eq(measure_host_links(&rig.m), 0);
	ck_assert_int_eq(measure_sets(&rig.m), 0);
	port_carries(&rig, "host to GPUs 0-7", ALL_IN);
	port_carries(&rig, "host to GPUs 0-3", HALF_IN);
	port_carries(&rig, "host to GPUs 4-7", HALF_IN);
	port_carries(&rig, "GPUs 0-7 to host", ALL_OUT);
	port_carries(&rig, "GPUs 0-1 to host", ALL_OUT);
	/* neither two GPUs at once nor both directions of one GPU reach a limit */
	ck_assert_str_eq(set_named(&rig, "host to GPUs 0-1")->port, "");
	ck_assert_str_eq(set_named(&rig, "host and GPU 5, both ways")->port, "");
	port_carries(&rig, "GPU 3 and 4 to GPU 2", PEER);
	port_carries(&rig, "GPU 2 to GPU 3 and 4", PEER);
	near(set_named(&rig, "each GPU to the next")->gb_per_s, GPUS * PEER / 1e9, 0.06);
	near(set_named(&rig, "each GPU to the next two")->gb_per_s, GPUS * PEER / 1e9, 0.06);
	near(measure_link(&rig.m, 0, 1)->both_gb_per_s, 2 * PEER / 1e9, 0.06);
	near(set_named(&rig, "GPU 0 to GPU 1, beside both and the host")->gb_per_s,
	     (PEER + IN + OUT) / 1e9, 0.1);
	close_rig(&rig);
}
END_TEST

START_TEST(test_pairs_that_are_refused_are_left_out)
{
	struct rig rig;

	open_rig(&rig, "vm-flat.xml");
	rig.fake.refuses[2][3] = 1;
	ck_assert_int_eq(measure_pairs(&rig.m), 0);
	ck_assert_int_eq(measure_host_links(&rig.m), 0);
	ck_assert_int_eq(measure_sets(&rig.m), 0);
	ck_assert(!measure_link(&rig.m, 2, 3)->is_measured);
	ck_assert(measure_link(&rig.m, 3, 2)->is_measured);
	ck_assert_uint_ne(cei_machine_link(rig.m.machine, 2, 3)->origin,
			  CEI_MACHINE_MEASURED);
	close_rig(&rig);
}
END_TEST

START_TEST(test_without_time_all_is_left_out)
{
	struct rig rig;

	open_rig(&rig, "vm-flat.xml");
	rig.m.deadline_ns = 0;
	ck_assert_int_eq(measure_pairs(&rig.m), 0);
	ck_assert_int_eq(measure_host_links(&rig.m), 0);
	ck_assert_int_eq(measure_sets(&rig.m), 0);
	ck_assert_uint_gt(rig.m.n_left_out, 0);
	ck_assert_uint_eq(rig.fake.n_runs, 0);
	ck_assert_uint_eq(rig.m.n_sets, 0);
	close_rig(&rig);
}
END_TEST

static int measure_everything(struct rig *rig)
{
	int r = measure_pairs(&rig->m);

	if (!r)
		r = measure_host_links(&rig->m);
	return r ? r : measure_sets(&rig->m);
}

START_TEST(test_failures_are_passed_on)
{
	struct rig rig;
	uint32_t n_runs, i;

	open_rig(&rig, "vm-flat.xml");
	ck_assert_int_eq(measure_everything(&rig), 0);
	n_runs = rig.fake.n_runs;
	close_rig(&rig);
	for (i = 1; i <= n_runs; i += 1 + n_runs / 50) {
		open_rig(&rig, "vm-flat.xml");
		rig.fake.fails_at = i;
		ck_assert_int_eq(measure_everything(&rig), CEOV_ERR_CUDA);
		ck_assert_uint_eq(rig.fake.n_runs, i);
		close_rig(&rig);
	}
}
END_TEST

START_TEST(test_wrong_data_is_counted)
{
	struct rig rig;

	open_rig(&rig, "vm-flat.xml");
	rig.fake.n_wrong = 3;
	ck_assert_int_eq(measure_host_links(&rig.m), 0);
	ck_assert_uint_eq(rig.m.n_wrong, 2 * GPUS * 3);
	close_rig(&rig);
}
END_TEST

/* Measures machines with two nodes and trees of ports: every link gets a cost. */
START_TEST(test_other_machines)
{
	static const char *const names[] = {
		"h200x8-nvswitch.xml", "pcie8-switches-nics.xml", "v100x8-mesh.xml",
	};
	struct rig rig;
	uint32_t i, k, n;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		open_rig(&rig, names[i]);
		ck_assert_int_eq(measure_everything(&rig), 0);
		n = cei_machine_n_places(rig.m.machine);
		for (k = 0; k < GPUS * n; k++)
			if (rig.m.machine->links[k].kind != CEI_MACHINE_NONE &&
			    rig.m.machine->links[k].kind != CEI_MACHINE_SELF)
				ck_assert_uint_eq(rig.m.machine->links[k].origin,
						  CEI_MACHINE_MEASURED);
		ck_assert_uint_gt(rig.m.n_sets, 2 * GPUS);
		close_rig(&rig);
	}
}
END_TEST

START_TEST(test_sizes)
{
	uint64_t bytes[MEASURE_SIZES], largest;
	uint32_t n_copies[MEASURE_SIZES];

	measure_sizes_up_to(256 * MIB, bytes, n_copies);
	ck_assert_uint_eq(bytes[0], MIB);
	ck_assert_uint_eq(bytes[1], 16 * MIB);
	ck_assert_uint_eq(bytes[2], 256 * MIB);
	for (largest = MIB; largest <= 1024 * MIB; largest *= 2) {
		measure_sizes_up_to(largest, bytes, n_copies);
		ck_assert_uint_gt(bytes[0], 0);
		ck_assert_uint_lt(bytes[0], bytes[1]);
		ck_assert_uint_lt(bytes[1], bytes[2]);
		ck_assert_uint_eq(bytes[2], largest);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("measure");
	TCase *tests = tcase_create("measure");

	tcase_add_test(tests, test_sizes);
	tcase_add_test(tests, test_links_alone);
	tcase_add_test(tests, test_what_links_share_is_found);
	tcase_add_test(tests, test_pairs_that_are_refused_are_left_out);
	tcase_add_test(tests, test_without_time_all_is_left_out);
	tcase_add_test(tests, test_failures_are_passed_on);
	tcase_add_test(tests, test_wrong_data_is_counted);
	tcase_add_test(tests, test_other_machines);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
