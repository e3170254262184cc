/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Routes between all places of every machine in tests/fixtures/machines, written to the
 * log, with properties that must hold. */

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/report.h"
#include "route_rig.h"
#include "testing.h"

#define MIB (UINT64_C(1) << 20)

static struct cei_machine *read_machine(const char *name)
{
	const char *folder = getenv("srcdir") ? getenv("srcdir") : ".";
	struct cei_machine *machine;
	struct cei_report report;
	char path[600];

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines/%s", folder, name);
	cei_report_init(&report, NULL, NULL);
	ck_assert_msg(cei_machine_read_xml(&report, path, &machine) == 0, "%s", path);
	cei_report_fini(&report);
	return machine;
}

static void describe_path(const struct cei_machine *machine, const struct cei_route_path *path)
{
	char name[16];

	printf("    %s%s%s: %.1f MiB, %.1f GB/s, t0 %.1f us\n", cei_route_kind_name(path->kind),
	       path->via == CEOV_NOBODY ? "" : " over ",
	       path->via == CEOV_NOBODY ? "" : cei_machine_place_name(machine, path->via, name),
	       (double)path->bytes / (double)MIB, (double)path->bytes_per_s / 1e9,
	       (double)path->t0_ns / 1e3);
}

static int describe(const struct cei_machine *machine, uint32_t from, uint32_t to,
		    enum cei_route_rule rule)
{
	struct cei_route_request request = route_rig_request(from, to, 256 * MIB, rule);
	struct cei_route route;
	char from_name[16], to_name[16];
	int r = route_rig_find(machine, &request, &route);
	uint32_t i;

	printf("  %s -> %s, %s: %.1f us; %s\n",
	       cei_machine_place_name(machine, from, from_name),
	       cei_machine_place_name(machine, to, to_name),
	       rule == CEI_ROUTE_RULE_ALL ? "all" : "needed",
	       (double)route.expected_ns / 1e3, route.why);
	for (i = 0; i < route.n_paths; i++)
		describe_path(machine, &route.paths[i]);
	return r;
}

static void describe_machine(const char *name)
{
	struct cei_machine *machine = read_machine(name);
	uint32_t n = cei_machine_n_places(machine), from, to;

	printf("%s: %u GPUs, %u nodes\n", name, machine->n_gpus, machine->n_nodes);
	for (from = 0; from < n; from++) {
		for (to = 0; to < n; to++) {
			if (from == to)
				continue;
			/* GPUs reach each other on every machine, at least over the host */
			if (describe(machine, from, to, CEI_ROUTE_RULE_NEEDED))
				ck_assert(!cei_machine_is_gpu(machine, from) ||
					  !cei_machine_is_gpu(machine, to));
			describe(machine, from, to, CEI_ROUTE_RULE_ALL);
		}
	}
	cei_machine_destroy(machine);
}

START_TEST(test_every_pair_of_every_machine)
{
	const char *srcdir = getenv("srcdir") ? getenv("srcdir") : ".";
	struct dirent *entry;
	char path[600];
	uint32_t n = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "%s/tests/fixtures/machines", srcdir);
	folder = opendir(path);
	ck_assert_ptr_nonnull(folder);
	while ((entry = readdir(folder))) {
		if (!strstr(entry->d_name, ".xml") || strstr(entry->d_name, ".measured"))
			continue;
		describe_machine(entry->d_name);
		n++;
	}
	closedir(folder);
	ck_assert_uint_ge(n, 8);
}
END_TEST

static struct cei_route find(const struct cei_machine *machine, uint32_t from, uint32_t to,
			     enum cei_route_rule rule)
{
	struct cei_route_request request = route_rig_request(from, to, 256 * MIB, rule);

	return route_rig_get(machine, &request);
}

START_TEST(test_switches_use_the_host_beside_nvlink)
{
	struct cei_machine *machine = read_machine("h200x8-nvswitch.xml");
	struct cei_route route = find(machine, 6, 7, CEI_ROUTE_RULE_ALL);
	uint32_t i;

	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_DIRECT);
	ck_assert_uint_ge(route_rig_count(&route, CEI_ROUTE_STAGED), 1);
	ck_assert_uint_eq(route_rig_count(&route, CEI_ROUTE_MIDDLE), 0);
	for (i = 0; i < route.n_paths; i++)
		if (route.paths[i].kind == CEI_ROUTE_STAGED)
			ck_assert_uint_eq(route.paths[i].via,
					  cei_machine_near_host(machine, 7));
	route = find(machine, cei_machine_near_host(machine, 0), 0, CEI_ROUTE_RULE_ALL);
	ck_assert_uint_ge(route_rig_count(&route, CEI_ROUTE_RELAYED), 2);
	route = find(machine, 0, cei_machine_near_host(machine, 0), CEI_ROUTE_RULE_ALL);
	ck_assert_uint_ge(route_rig_count(&route, CEI_ROUTE_RELAYED), 2);
	cei_machine_destroy(machine);
}
END_TEST

/* Over PCIe a relay would use the same links twice. */
START_TEST(test_pcie_gains_nothing_by_relays)
{
	static const char *const names[] = { "pcie4-two-nodes.xml",
					     "pcie8-switches-nics.xml" };
	struct cei_machine *machine;
	struct cei_route route;
	uint32_t i, gpu;

	for (i = 0; i < 2; i++) {
		machine = read_machine(names[i]);
		for (gpu = 0; gpu < machine->n_gpus; gpu++) {
			route = find(machine, cei_machine_near_host(machine, gpu), gpu,
				     CEI_ROUTE_RULE_ALL);
			ck_assert_uint_eq(route.n_paths, 1);
		}
		cei_machine_destroy(machine);
	}
}
END_TEST

START_TEST(test_the_mesh_has_gpus_in_the_middle)
{
	struct cei_machine *machine = read_machine("v100x8-mesh.xml");
	uint32_t from, to, n_middle = 0, n_direct = 0;
	struct cei_route route;

	for (from = 0; from < 8; from++) {
		for (to = 0; to < 8; to++) {
			if (from == to)
				continue;
			route = find(machine, from, to, CEI_ROUTE_RULE_NEEDED);
			ck_assert_uint_eq(route.n_paths, 1);
			n_middle += route.paths[0].kind == CEI_ROUTE_MIDDLE;
			n_direct += route.paths[0].kind == CEI_ROUTE_DIRECT;
		}
	}
	ck_assert_uint_eq(n_middle + n_direct, 56);
	ck_assert_uint_gt(n_middle, 0);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_no_p2p_is_staged)
{
	struct cei_machine *machine = read_machine("two-no-p2p.xml");
	struct cei_route route = find(machine, 0, 1, CEI_ROUTE_RULE_NEEDED);

	ck_assert_uint_eq(route.n_paths, 1);
	ck_assert_uint_eq(route.paths[0].kind, CEI_ROUTE_STAGED);
	ck_assert_uint_eq(route.paths[0].via, cei_machine_near_host(machine, 0));
	cei_machine_destroy(machine);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("route fixtures");
	TCase *all = tcase_create("route fixtures");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_every_pair_of_every_machine);
	tcase_add_test(all, test_switches_use_the_host_beside_nvlink);
	tcase_add_test(all, test_pcie_gains_nothing_by_relays);
	tcase_add_test(all, test_the_mesh_has_gpus_in_the_middle);
	tcase_add_test(all, test_no_p2p_is_staged);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
