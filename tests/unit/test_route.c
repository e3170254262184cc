/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Routes on artificial machines: known ones, then random ones. */

#include <check.h>
#include <string.h>

#include "machine_fixture.h"
#include "route_rig.h"
#include "testing.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

/* Returns how much faster all allowed paths together are than the direct one. */
static double gain(const struct cei_machine *machine, uint32_t from, uint32_t to,
		   uint64_t bytes)
{
	struct cei_route_request request = route_rig_request(from, to, bytes,
							     CEI_ROUTE_RULE_DIRECT);
	struct cei_route direct = route_rig_get(machine, &request), all;

	request.rule = CEI_ROUTE_RULE_ALL;
	all = route_rig_get(machine, &request);
	return (double)direct.expected_ns / (double)all.expected_ns;
}

static struct cei_route find(const struct cei_machine *machine, uint32_t from, uint32_t to,
			     uint64_t bytes, enum cei_route_rule rule)
{
	struct cei_route_request request = route_rig_request(from, to, bytes, rule);

	return route_rig_get(machine, &request);
}

/* --- machines with switches -------------------------------------------------------- */

START_TEST(test_a_pair_takes_the_host_beside_its_nvlink)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route route = find(machine, 0, 5, 256 * MIB, CEI_ROUTE_RULE_ALL);

	ck_assert_uint_eq(route.n_paths, 2);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_DIRECT);
	ck_assert_uint_eq(route.paths[1].kind, CEI_ROUTE_STAGED);
	ck_assert_uint_eq(route.paths[1].via, 8);
	ck_assert_uint_eq(route.paths[1].engines[0], 0);
	ck_assert_uint_eq(route.paths[1].engines[1], 5);
	ck_assert_double_ge(gain(machine, 0, 5, 256 * MIB), 1.07);
	ck_assert_double_ge(gain(machine, 0, 5, GIB), 1.10);
	ck_assert_double_le(gain(machine, 0, 5, 16 * GIB), 1.15);
	machine_free(machine);
}
END_TEST

START_TEST(test_a_load_takes_all_peers_links)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route route = find(machine, 8, 3, GIB, CEI_ROUTE_RULE_ALL);
	uint32_t i;

	ck_assert_uint_eq(route.n_paths, 8);
	ck_assert_uint_eq(route_rig_count(&route, CEI_ROUTE_RELAYED), 7);
	for (i = 0; i < 8; i++) {
		if (route.paths[i].via == CEOV_NOBODY)
			continue;
		ck_assert_uint_eq(route.paths[i].engines[0], route.paths[i].via);
		ck_assert_uint_eq(route.paths[i].engines[1], route.paths[i].via);
	}
	ck_assert_double_ge(gain(machine, 8, 3, GIB), 2.7);
	ck_assert_double_le(gain(machine, 8, 3, GIB), 172.0 / 55.0);
	machine_free(machine);
}
END_TEST

START_TEST(test_a_store_takes_peers_links)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route route = find(machine, 3, 8, GIB, CEI_ROUTE_RULE_ALL);
	uint32_t i;

	for (i = 0; i < route.n_paths; i++)
		ck_assert_uint_eq(route.paths[i].engines[0], 3);
	ck_assert_double_ge(gain(machine, 3, 8, GIB), 1.4);
	ck_assert_double_le(gain(machine, 3, 8, GIB), 92.0 / 55.0);
	machine_free(machine);
	machine = machine_nvswitch(4);
	ck_assert_double_ge(gain(machine, 4, 0, GIB), 1.8);
	ck_assert_double_ge(gain(machine, 0, 4, GIB), 1.2);
	machine_free(machine);
}
END_TEST

START_TEST(test_little_goes_directly)
{
	struct cei_machine *machine = machine_nvswitch(8);
	static const uint64_t sizes[] = { 0, 1, 4095, 4096, 4097, 65536, MIB,
					  4 * MIB - 1 };
	struct cei_route route;
	uint32_t i;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		route = find(machine, 0, 1, sizes[i], CEI_ROUTE_RULE_ALL);
		ck_assert_uint_eq(route.n_paths, 1);
		ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_DIRECT);
		ck_assert_uint_ge(route.expected_ns, 4000);
	}
	route = find(machine, 8, 0, 65536, CEI_ROUTE_RULE_ALL);
	ck_assert_uint_eq(route.n_paths, 1);
	machine_free(machine);
}
END_TEST

START_TEST(test_needed_is_direct_alone)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route route = find(machine, 0, 1, GIB, CEI_ROUTE_RULE_NEEDED);

	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].bytes_per_s, 395 * MACHINE_GB);
	ck_assert_uint_eq(route.paths[0].t0_ns, 4000);
	ck_assert_uint_eq(route.expected_ns,
			  cei_machine_link_ns(cei_machine_link(machine, 0, 1), GIB) + 1);
	ck_assert_str_eq(route.why, "directly, through NVLink switches");
	route = find(machine, 2, 2, GIB, CEI_ROUTE_RULE_ALL);
	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].engines[0], 2);
	machine_free(machine);
}
END_TEST

START_TEST(test_a_single_engine_does_one_thing_at_a_time)
{
	struct cei_machine *machine = machine_nvswitch(8);

	machine->gpus[0].n_copy_engines = 1;
	ck_assert_uint_eq(find(machine, 0, 1, GIB, CEI_ROUTE_RULE_ALL).n_paths, 1);
	ck_assert_uint_eq(find(machine, 1, 0, GIB, CEI_ROUTE_RULE_ALL).n_paths, 2);
	machine_free(machine);
}
END_TEST

START_TEST(test_load_of_others_moves_shares)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route_request request = route_rig_request(8, 0, GIB, CEI_ROUTE_RULE_ALL);
	uint64_t load[CEI_MACHINE_PORTS_MAX] = { 0 };
	struct cei_route route;
	uint32_t i, busy = cei_machine_link(machine, 8, 1)->ports[1];

	request.port_load = load;
	load[busy] = 54 * MACHINE_GB;   /* GPU 1's PCIe link into it is busy */
	load[0] = 60 * MACHINE_GB;      /* the node's output is busy as well */
	route = route_rig_get(machine, &request);
	for (i = 0; i < route.n_paths; i++)
		if (route.paths[i].via == 1)
			ck_assert_uint_lt(route.paths[i].bytes, GIB / 16);
	ck_assert_double_ge((double)route.expected_ns, (double)GIB / 112.0);
	load[busy] = UINT64_MAX;        /* more load than the link carries: a small rest always
					 * remains */
	load[0] = UINT64_MAX;
	route = route_rig_get(machine, &request);
	ck_assert_double_le((double)route.expected_ns, (double)GIB / 17.2 * 1.05);
	machine_free(machine);
}
END_TEST

START_TEST(test_only_engines_that_may_be_driven)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route_request request = route_rig_request(0, 1, GIB, CEI_ROUTE_RULE_ALL);
	struct cei_route route;

	request.may_drive = 1u << 1;    /* may only use the receiver's engines: the route pulls */
	route = route_rig_get(machine, &request);
	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].engines[0], 1);
	ck_assert_uint_gt(route.paths[0].t0_ns, 4000);
	request.may_drive = 1u << 2;    /* may only use a third GPU's engines, which pull and
					 * push */
	route = route_rig_get(machine, &request);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_MIDDLE);
	ck_assert_uint_le(route.paths[0].bytes_per_s, 395 * MACHINE_GB / 2);
	request.may_drive = 0;
	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	ck_assert_ptr_nonnull(strstr(route.why, "may not be used"));
	request = route_rig_request(8, 0, GIB, CEI_ROUTE_RULE_NEEDED);
	request.may_drive = 1u << 6;    /* loads are the same, but the target's engines may not be
					 * used */
	route = route_rig_get(machine, &request);
	ck_assert_uint_eq(route.paths[0].via, 6);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_RELAYED);
	machine_free(machine);
}
END_TEST

/* --- machines without switches ----------------------------------------------------- */

START_TEST(test_a_tree_gains_nothing_by_detours)
{
	struct cei_machine *machine = machine_pcie_tree();
	uint32_t from, to;

	for (from = 0; from < 4; from++)
		for (to = 0; to < 4; to++)
			if (from != to)
				ck_assert_uint_eq(find(machine, from, to, GIB,
						       CEI_ROUTE_RULE_ALL).n_paths, 1);
	ck_assert_uint_eq(find(machine, 4, 0, GIB, CEI_ROUTE_RULE_ALL).n_paths, 1);
	ck_assert_uint_eq(find(machine, 0, 5, GIB, CEI_ROUTE_RULE_ALL).n_paths, 1);
	machine_free(machine);
}
END_TEST

START_TEST(test_a_mesh_goes_over_a_gpu_in_the_middle)
{
	struct cei_machine *machine = machine_cube_mesh();
	struct cei_route route = find(machine, 0, 5, GIB, CEI_ROUTE_RULE_NEEDED);

	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_MIDDLE);
	ck_assert(route.paths[0].via == 1 || route.paths[0].via == 4);
	ck_assert_ptr_nonnull(strstr(route.why, "no copy goes directly; over gpu"));
	route = find(machine, 0, 5, GIB, CEI_ROUTE_RULE_ALL);
	ck_assert_uint_eq(route_rig_count(&route, CEI_ROUTE_MIDDLE), 2);
	ck_assert_double_ge(gain(machine, 0, 1, GIB), 2.5);
	machine_free(machine);
}
END_TEST

START_TEST(test_relays_over_one_switch_are_no_use)
{
	struct cei_machine *machine = machine_cube_mesh();
	struct cei_route route = find(machine, 8, 0, GIB, CEI_ROUTE_RULE_ALL);
	uint32_t i;

	/* GPU 1 is below GPU 0's switch, so it is not a helper; GPUs 2 and 3 are below another one.
	 * Of these two the second can only use the gaps between the first one's slots. */
	for (i = 0; i < route.n_paths; i++)
		ck_assert_uint_ne(route.paths[i].via, 1);
	ck_assert_uint_ge(route_rig_count(&route, CEI_ROUTE_RELAYED), 1);
	machine_free(machine);
}
END_TEST

START_TEST(test_no_p2p_goes_through_the_host)
{
	struct cei_machine *machine = machine_no_peers();
	struct cei_route_request request = route_rig_request(0, 1, 64 * MIB + 5,
							     CEI_ROUTE_RULE_NEEDED);
	struct cei_route route = route_rig_get(machine, &request);

	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_STAGED);
	ck_assert_str_eq(route.why, "no copy goes directly; over node0, the fastest of 1 path");
	/* two legs in a pipeline: the bytes and one slot more on one link, and at most t0 for
	 * each copy */
	ck_assert_double_ge((double)route.expected_ns, (64.0 + 4) * MIB / 25.0);
	ck_assert_double_le((double)route.expected_ns, (64.0 + 4) * MIB / 25.0 + 19 * 16000);
	request.slot_bytes = 64 * MIB;
	ck_assert_uint_gt(route_rig_get(machine, &request).expected_ns, route.expected_ns);
	request.rule = CEI_ROUTE_RULE_DIRECT;
	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	request.rule = CEI_ROUTE_RULE_ALL;
	request.may_drive = 1;
	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	machine_free(machine);
}
END_TEST

START_TEST(test_memory_that_is_not_mapped_for_a_direct_copy)
{
	struct cei_machine *machine = machine_nvswitch(8);
	struct cei_route_request request = route_rig_request(0, 1, GIB,
							     CEI_ROUTE_RULE_NEEDED);
	struct cei_route route;

	request.no_direct = 1;
	route = route_rig_get(machine, &request);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_MIDDLE);
	ck_assert_ptr_nonnull(strstr(route.why, "not mapped"));
	request.rule = CEI_ROUTE_RULE_ALL;
	route = route_rig_get(machine, &request);
	ck_assert_uint_eq(route_rig_count(&route, CEI_ROUTE_DIRECT), 0);
	request.rule = CEI_ROUTE_RULE_DIRECT;
	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	machine_free(machine);
}
END_TEST

START_TEST(test_host_memory_is_moved_by_processors)
{
	struct cei_machine *machine = machine_pcie_tree();
	struct cei_route route = find(machine, 4, 5, GIB, CEI_ROUTE_RULE_ALL);

	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].engines[0], CEOV_NOBODY);
	machine_free(machine);
}
END_TEST

START_TEST(test_places_that_are_not_there)
{
	struct cei_machine *machine = machine_no_peers();
	struct cei_route_request request = route_rig_request(0, 3, MIB,
							     CEI_ROUTE_RULE_NEEDED);
	struct cei_route route;

	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	request = route_rig_request(CEOV_NOBODY, 0, MIB, CEI_ROUTE_RULE_NEEDED);
	ck_assert_int_eq(route_rig_find(machine, &request, &route), CEOV_ERR_NO_ROUTE);
	machine_free(machine);
}
END_TEST

START_TEST(test_the_largest_machine)
{
	struct cei_machine *machine = machine_nvswitch(64);
	struct cei_route route = find(machine, 64, 63, GIB, CEI_ROUTE_RULE_ALL);

	ck_assert_uint_eq(route.n_paths, CEI_ROUTE_PATHS_MAX);
	route = find(machine, 0, 63, GIB, CEI_ROUTE_RULE_ALL);
	ck_assert_uint_eq(route.n_paths, 2);
	machine_free(machine);
}
END_TEST

/* --- random machines --------------------------------------------------------------- */

static struct cei_route_request random_request(const struct cei_machine *machine,
					       uint64_t *load, uint64_t *random)
{
	uint32_t n = cei_machine_n_places(machine), i;
	struct cei_route_request request = {
		.from = (uint32_t)testing_below(random, n),
		.to = (uint32_t)testing_below(random, n),
		.bytes = testing_random(random) >>
			(28 + testing_below(random, testing_below(random, 4) ? 20 : 36)),
		.may_drive = testing_random(random) | testing_random(random),
		.rule = (uint8_t)testing_below(random, 3),
		.no_direct = !testing_below(random, 8),
	};

	if (testing_below(random, 2))
		request.slot_bytes = 1 + testing_below(random, 64 * MIB);
	for (i = 0; i < machine->n_ports; i++)
		load[i] = testing_below(random, 400 * MACHINE_GB);
	if (!testing_below(random, 3))
		request.port_load = load;
	return request;
}

START_TEST(test_any_route_on_any_machine)
{
	static uint64_t load[CEI_MACHINE_PORTS_MAX];
	uint64_t random = testing_seed();
	struct cei_route_request request;
	struct cei_machine *machine;
	struct cei_route route;
	uint32_t i, j, n_paths = 0, n_none = 0;

	for (i = 0; i < testing_share(1500); i++) {
		machine = machine_random(&random);
		for (j = 0; j < 30; j++) {
			request = random_request(machine, load, &random);
			n_none += route_rig_find(machine, &request, &route) != 0;
			n_paths += route.n_paths > 2;
		}
		machine_free(machine);
	}
	ck_assert_uint_gt(n_paths, 100);
	ck_assert_uint_gt(n_none, 100);
}
END_TEST

/* Returns how much slower than the optimum a route may be: 2 % for using fewer paths, 0.5 % for
 * spreading, and the rounding of shares to pages. */
static double allowance(const struct cei_route *route)
{
	return (double)route->expected_ns * 1.0252 +
		CEI_ROUTE_PATHS_MAX * 4096 / ((double)route->paths[0].bytes_per_s * 1e-9) + 2;
}

START_TEST(test_all_is_never_slower_than_needed)
{
	static uint64_t load[CEI_MACHINE_PORTS_MAX];
	uint64_t random = testing_seed();
	struct cei_route_request request;
	struct cei_route all, needed;
	struct cei_machine *machine;
	uint32_t i, j;
	int r;

	for (i = 0; i < testing_share(1000); i++) {
		machine = machine_random(&random);
		for (j = 0; j < 20; j++) {
			request = random_request(machine, load, &random);
			request.rule = CEI_ROUTE_RULE_NEEDED;
			r = route_rig_find(machine, &request, &needed);
			request.rule = CEI_ROUTE_RULE_ALL;
			ck_assert_int_eq(route_rig_find(machine, &request, &all), r);
			ck_assert_uint_le(all.expected_ns, needed.expected_ns);
		}
		machine_free(machine);
	}
}
END_TEST

/* Holds if the source pushes, so that its engine is the same in both cases. */
START_TEST(test_more_engines_are_never_slower)
{
	static uint64_t load[CEI_MACHINE_PORTS_MAX];
	uint64_t random = testing_seed();
	struct cei_route_request request;
	struct cei_route fewer, more;
	struct cei_machine *machine;
	uint32_t i, j;

	for (i = 0; i < testing_share(1500); i++) {
		machine = machine_random(&random);
		for (j = 0; j < 20; j++) {
			request = random_request(machine, load, &random);
			request.rule = CEI_ROUTE_RULE_ALL;
			request.may_drive = testing_random(&random);
			if (cei_machine_is_gpu(machine, request.from))
				request.may_drive |= UINT64_C(1) << request.from;
			if (route_rig_find(machine, &request, &fewer))
				continue;
			request.may_drive |= testing_random(&random);
			more = route_rig_get(machine, &request);
			ck_assert_double_le((double)more.expected_ns, allowance(&fewer));
		}
		machine_free(machine);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("route");
	TCase *known = tcase_create("known"), *any = tcase_create("any");

	tcase_add_test(known, test_a_pair_takes_the_host_beside_its_nvlink);
	tcase_add_test(known, test_a_load_takes_all_peers_links);
	tcase_add_test(known, test_a_store_takes_peers_links);
	tcase_add_test(known, test_little_goes_directly);
	tcase_add_test(known, test_needed_is_direct_alone);
	tcase_add_test(known, test_a_single_engine_does_one_thing_at_a_time);
	tcase_add_test(known, test_load_of_others_moves_shares);
	tcase_add_test(known, test_only_engines_that_may_be_driven);
	tcase_add_test(known, test_a_tree_gains_nothing_by_detours);
	tcase_add_test(known, test_a_mesh_goes_over_a_gpu_in_the_middle);
	tcase_add_test(known, test_relays_over_one_switch_are_no_use);
	tcase_add_test(known, test_no_p2p_goes_through_the_host);
	tcase_add_test(known, test_memory_that_is_not_mapped_for_a_direct_copy);
	tcase_add_test(known, test_host_memory_is_moved_by_processors);
	tcase_add_test(known, test_places_that_are_not_there);
	tcase_add_test(known, test_the_largest_machine);
	suite_add_tcase(made, known);
	tcase_set_timeout(any, 60);
	tcase_add_test(any, test_any_route_on_any_machine);
	tcase_add_test(any, test_all_is_never_slower_than_needed);
	tcase_add_test(any, test_more_engines_are_never_slower);
	suite_add_tcase(made, any);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
