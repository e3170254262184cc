/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests machines built from recorded trees and from hints: which devices exist, where they are
 * attached, kinds of links, shared ports, and what a measurement changes. */

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "topology/machine.h"

#define GB UINT64_C(1000000000)

static struct cei_report report;
static struct testing_log lines;

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

static struct cei_machine *made(const struct cei_machine_hints *hints)
{
	struct cei_machine *machine = NULL;

	ck_assert_int_eq(cei_machine_from_hwloc(&report, NULL, hints, &machine), 0);
	return machine;
}

static enum cei_machine_link_kind kind(const struct cei_machine *machine, uint32_t from,
				       uint32_t to)
{
	return (enum cei_machine_link_kind)cei_machine_link(machine, from, to)->kind;
}

/* Returns how many ports two links share. */
static uint32_t n_shared(const struct cei_machine_link *a, const struct cei_machine_link *b)
{
	uint32_t i, j, n = 0;

	for (i = 0; i < a->n_ports; i++)
		for (j = 0; j < b->n_ports; j++)
			n += a->ports[i] == b->ports[j];
	return n;
}

static int goes_over(const struct cei_machine *machine, uint32_t from, uint32_t to,
		     const char *port)
{
	const struct cei_machine_link *link = cei_machine_link(machine, from, to);
	uint32_t i;

	for (i = 0; i < link->n_ports; i++)
		if (!strcmp(machine->ports[link->ports[i]].name, port))
			return 1;
	return 0;
}

/* Asserts what must hold for every machine. */
static void check_sane(const struct cei_machine *machine)
{
	uint32_t n = cei_machine_n_places(machine);
	const struct cei_machine_link *link;
	uint32_t from, to, i;

	for (i = 0; i < machine->n_ports; i++) {
		ck_assert_uint_gt(machine->ports[i].bytes_per_s, 0);
		ck_assert_uint_gt(strlen(machine->ports[i].name), 0);
	}
	for (from = 0; from < n; from++) {
		for (to = 0; to < n; to++) {
			link = cei_machine_link(machine, from, to);
			ck_assert_int_eq(link->kind == CEI_MACHINE_SELF, from == to);
			ck_assert_int_eq(link->kind == CEI_MACHINE_NONE, !link->bytes_per_s);
			for (i = 0; i < link->n_ports; i++) {
				ck_assert_uint_lt(link->ports[i], machine->n_ports);
				ck_assert_uint_ge(machine->ports[link->ports[i]].bytes_per_s,
						  link->bytes_per_s);
				ck_assert(!i || link->ports[i - 1] < link->ports[i]);
			}
		}
	}
}

/* --- fixtures ------------------------------------------------------------------------- */

START_TEST(test_every_fixture_is_sane)
{
	static const struct {
		const char *name;
		uint32_t    n_gpus, n_nodes, n_nics;
	} all[] = {
		{ "h200x8-nvswitch", 8, 2, 9 }, { "pcie4-two-nodes", 4, 2, 2 },
		{ "pcie8-switches-nics", 8, 2, 5 }, { "v100x8-mesh", 8, 2, 5 },
		{ "grace-hopper", 4, 8, 4 }, { "laptop", 0, 1, 1 }, { "vm-flat", 8, 1, 1 },
		{ "two-no-p2p", 2, 1, 1 },
	};
	struct cei_machine *machine = testing_machine(all[_i].name);

	ck_assert_uint_eq(machine->n_gpus, all[_i].n_gpus);
	ck_assert_uint_eq(machine->n_nodes, all[_i].n_nodes);
	ck_assert_uint_eq(machine->n_nics, all[_i].n_nics);
	ck_assert_str_eq(machine->name, all[_i].name);
	check_sane(machine);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_a_switch_is_shared_by_sender_and_by_receiver)
{
	struct cei_machine *machine = testing_machine("h200x8-nvswitch");
	const struct cei_machine_link *link = cei_machine_link(machine, 0, 1);

	ck_assert_int_eq(machine->has_nvswitch, 1);
	ck_assert_int_eq(link->kind, CEI_MACHINE_NVSWITCH);
	ck_assert_int_eq(link->origin, CEI_MACHINE_REPORTED);
	/* 82 % of NVLink's 450 GB/s */
	ck_assert_uint_eq(link->bytes_per_s, 369 * GB);
	ck_assert(goes_over(machine, 0, 1, "GPU 0 NVLink out"));
	ck_assert(goes_over(machine, 0, 1, "GPU 1 NVLink in"));
	ck_assert_uint_eq(n_shared(link, cei_machine_link(machine, 0, 2)), 1);
	ck_assert_uint_eq(n_shared(link, cei_machine_link(machine, 2, 1)), 1);
	ck_assert_uint_eq(n_shared(link, cei_machine_link(machine, 1, 0)), 0);
	ck_assert_uint_eq(n_shared(link, cei_machine_link(machine, 2, 3)), 0);
	/* 85 % of PCIe's 63 GB/s */
	ck_assert_uint_eq(cei_machine_link(machine, 0, 8)->bytes_per_s / GB, 53);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_pcie_switches_share_their_uplink)
{
	struct cei_machine *machine = testing_machine("pcie8-switches-nics");
	uint32_t host = cei_machine_near_host(machine, 0);

	/* GPUs 0 and 1 are below one switch, GPUs 2 and 3 below the next one */
	ck_assert_int_eq(kind(machine, 0, 1), CEI_MACHINE_PCIE);
	ck_assert(!goes_over(machine, 0, 1, "0000:05:00.0 up"));
	ck_assert(goes_over(machine, 0, 2, "0000:05:00.0 up"));
	ck_assert(goes_over(machine, 0, 2, "0000:45:00.0 down"));
	ck_assert(!goes_over(machine, 0, 2, "package 0 to 1"));
	ck_assert(goes_over(machine, 0, 4, "package 0 to 1"));
	ck_assert_uint_eq(n_shared(cei_machine_link(machine, 0, host),
				   cei_machine_link(machine, 1, host)), 2);
	ck_assert_uint_eq(n_shared(cei_machine_link(machine, 0, host),
				   cei_machine_link(machine, 2, host)), 1);
	ck_assert(goes_over(machine, host, 0, "node 0 out"));
	ck_assert(goes_over(machine, 0, host + 1, "package 0 to 1"));
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_nics_are_as_near_as_the_tree_says)
{
	struct cei_machine *machine = testing_machine("pcie8-switches-nics");
	uint32_t i;

	ck_assert_str_eq(machine->nics[1].name, "mlx5_0");      /* the InfiniBand device, not its
								 * network device ib0 */
	ck_assert_int_eq(machine->nics[1].is_rdma, 1);
	for (i = 0; i < 8; i++)
		ck_assert_uint_eq(machine->nic_distance[i][1],
				  i < 2 ? CEI_MACHINE_SAME_SWITCH :
				  i < 4 ? CEI_MACHINE_SAME_NODE : CEI_MACHINE_FAR);
	cei_machine_destroy(machine);
	machine = testing_machine("vm-flat");
	ck_assert_uint_eq(machine->nic_distance[0][0], CEI_MACHINE_SAME_TREE);
	ck_assert_int_eq(machine->nics[0].is_rdma, 0);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_a_mesh_has_links_of_two_widths_and_none)
{
	struct cei_machine *machine = testing_machine("v100x8-mesh");

	ck_assert_int_eq(machine->has_nvswitch, 0);
	ck_assert_int_eq(kind(machine, 0, 1), CEI_MACHINE_NVLINK);
	ck_assert_uint_eq(cei_machine_link(machine, 0, 1)->bytes_per_s, 20500000000);
	ck_assert_uint_eq(cei_machine_link(machine, 0, 3)->bytes_per_s, 41 * GB);
	ck_assert_int_eq(kind(machine, 0, 5), CEI_MACHINE_NONE);
	ck_assert_uint_eq(cei_machine_link_ns(cei_machine_link(machine, 0, 5), 1), UINT64_MAX);
	ck_assert_uint_eq(n_shared(cei_machine_link(machine, 0, 1),
				   cei_machine_link(machine, 0, 2)), 0);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_coherent_gpus_show_their_memory_as_nodes)
{
	struct cei_machine *machine = testing_machine("grace-hopper");
	uint32_t host = cei_machine_near_host(machine, 1);

	ck_assert_int_eq(machine->gpus[1].is_coherent, 1);
	ck_assert_int_eq(machine->nodes[host - 4].is_gpu_memory, 0);
	ck_assert_uint_eq(machine->nodes[host - 4].package, 1);
	ck_assert_int_eq(kind(machine, 1, host), CEI_MACHINE_C2C);
	ck_assert_int_eq(machine->nodes[host + 1 - 4].is_gpu_memory, 1);
	ck_assert_int_eq(kind(machine, 1, host + 1), CEI_MACHINE_NONE);
	ck_assert_int_eq(kind(machine, 0, 1), CEI_MACHINE_NVLINK);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_a_file_can_say_that_there_is_no_link)
{
	struct cei_machine *machine = testing_machine("two-no-p2p");

	ck_assert_int_eq(kind(machine, 0, 1), CEI_MACHINE_NONE);
	ck_assert_int_eq(kind(machine, 0, 2), CEI_MACHINE_HOST);
	cei_machine_destroy(machine);
}
END_TEST

/* A virtual machine reports no link widths: defaults from measurements are used. */
START_TEST(test_what_is_not_told_has_defaults)
{
	struct cei_machine *machine = testing_machine("vm-flat");

	ck_assert_int_eq(cei_machine_link(machine, 0, 8)->origin, CEI_MACHINE_DEFAULT);
	ck_assert_uint_eq(cei_machine_link(machine, 0, 8)->bytes_per_s, 55 * GB);
	ck_assert_uint_eq(cei_machine_link(machine, 8, 0)->bytes_per_s, 53 * GB);
	ck_assert_uint_eq(cei_machine_link(machine, 8, 0)->t0_ns, 4000);
	cei_machine_destroy(machine);
}
END_TEST

/* --- hints ---------------------------------------------------------------------------- */

static struct cei_machine_hints hints;

static void hint(uint32_t n_gpus)
{
	uint32_t i;

	memset(&hints, 0, sizeof(hints));
	hints.n_gpus = n_gpus;
	for (i = 0; i < n_gpus; i++) {
		snprintf(hints.gpus[i].name, sizeof(hints.gpus[i].name), "NVIDIA H200");
		snprintf(hints.gpus[i].bus_id, sizeof(hints.gpus[i].bus_id),
			 "0000:%02X:00.0", 0xa0 + i);
		hints.gpus[i].n_copy_engines = 3;
		memset(hints.peer[i], 1, n_gpus);
	}
}

START_TEST(test_hints_alone_make_a_machine)
{
	struct cei_machine *machine;

	hint(3);
	hints.gpus[0].is_on_switch = hints.gpus[1].is_on_switch = 1;
	hints.gpus[0].n_nvlinks = hints.gpus[1].n_nvlinks = 18;
	hints.gpus[0].nvlink_bytes_per_s = 26600000000;
	hints.n_direct[1][2] = 2;
	hints.peer[2][0] = 0;
	machine = made(&hints);
	check_sane(machine);
	ck_assert_uint_eq(machine->n_nodes, 1);
	ck_assert_str_eq(machine->gpus[0].bus_id, "0000:a0:00.0");
	ck_assert_uint_eq(machine->gpus[0].n_copy_engines, 3);
	ck_assert_uint_eq(machine->gpus[0].node, CEOV_NOBODY);
	ck_assert_uint_eq(cei_machine_near_host(machine, 0), 3);
	ck_assert_int_eq(kind(machine, 0, 1), CEI_MACHINE_NVSWITCH);
	/* 82 % of 18 links of 26.6 GB/s; GPU 1's links are not reported */
	ck_assert_uint_eq(cei_machine_link(machine, 0, 1)->bytes_per_s / GB, 392);
	ck_assert_int_eq(kind(machine, 1, 2), CEI_MACHINE_NVLINK);
	ck_assert_uint_eq(cei_machine_link(machine, 1, 2)->bytes_per_s, 43800000000);
	ck_assert_int_eq(kind(machine, 2, 1), CEI_MACHINE_PCIE);
	ck_assert_int_eq(kind(machine, 2, 0), CEI_MACHINE_NONE);
	cei_machine_destroy(machine);
}
END_TEST

/* The tree may lack a hinted GPU, or show its first function where the driver names another one
 * (with MIG, or a virtual function). */
START_TEST(test_hinted_gpus_take_their_place_in_the_tree)
{
	struct cei_machine *machine = testing_machine("pcie8-switches-nics");
	struct hwloc_topology *tree;

	hint(3);
	snprintf(hints.gpus[0].bus_id, sizeof(hints.gpus[0].bus_id), "0000:C8:00.0");
	snprintf(hints.gpus[1].bus_id, sizeof(hints.gpus[1].bus_id), "0000:07:00.4");
	ck_assert_int_eq(hwloc_topology_dup(&tree, machine->hwloc), 0);
	cei_machine_destroy(machine);
	ck_assert_int_eq(cei_machine_from_hwloc(&report, tree, &hints, &machine), 0);
	check_sane(machine);
	ck_assert_uint_eq(machine->n_gpus, 3);
	ck_assert_uint_eq(machine->gpus[0].node, 1);
	ck_assert_uint_eq(machine->gpus[1].node, 0);
	ck_assert_uint_eq(machine->gpus[2].node, CEOV_NOBODY);
	ck_assert_uint_eq(machine->nic_distance[1][1], CEI_MACHINE_SAME_SWITCH);
	ck_assert_uint_eq(machine->nic_distance[2][1], CEI_MACHINE_UNKNOWN);
	ck_assert(goes_over(machine, 1, 0, "package 0 to 1"));
	ck_assert(!goes_over(machine, 2, 0, "package 0 to 1"));
	ck_assert(goes_over(machine, 2, 0, "0000:a2:00.0 up"));
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_more_gpus_than_there_is_room_for_are_refused)
{
	struct cei_machine *machine = NULL;

	hint(1);
	hints.n_gpus = CEI_MACHINE_GPUS_MAX + 1;
	ck_assert_int_eq(cei_machine_from_hwloc(&report, NULL, &hints, &machine),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(machine);
	testing_log_has(&lines, "65 GPUs", "at most 64", NULL);
	/* a direct link for each pair needs more ports than a machine can have */
	hint(CEI_MACHINE_GPUS_MAX);
	memset(hints.n_direct, 1, sizeof(hints.n_direct));
	ck_assert_int_eq(cei_machine_from_hwloc(&report, NULL, &hints, &machine),
			 CEOV_ERR_INVALID);
	testing_log_has(&lines, "more than 2048 ports", NULL, NULL);
}
END_TEST

/* --- hash and measurements ------------------------------------------------------------ */

START_TEST(test_the_hash_is_of_what_there_is)
{
	struct cei_machine *machine, *other;

	hint(4);
	machine = made(&hints);
	other = made(&hints);
	ck_assert(machine->hash == other->hash);
	cei_machine_set_measured(other, 0, 1, 10 * GB, 5000);
	cei_machine_destroy(other);
	hints.peer[0][1] = 0;
	other = made(&hints);
	ck_assert(machine->hash != other->hash);
	cei_machine_destroy(other);
	hint(4);
	snprintf(hints.gpus[3].name, sizeof(hints.gpus[3].name), "NVIDIA H100");
	other = made(&hints);
	ck_assert(machine->hash != other->hash);
	cei_machine_destroy(other);
	cei_machine_destroy(machine);
}
END_TEST

/* --- single functions ----------------------------------------------------------------- */

START_TEST(test_directions_are_those_of_both_ends)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	uint32_t host = cei_machine_host_place(machine, 0);

	ck_assert_int_eq(cei_machine_direction(machine, 1, 1), CEI_DIRECTION_LOCAL);
	ck_assert_int_eq(cei_machine_direction(machine, 1, 0), CEI_DIRECTION_PEER);
	ck_assert_int_eq(cei_machine_direction(machine, 1, host), CEI_DIRECTION_OUT);
	ck_assert_int_eq(cei_machine_direction(machine, host, 1), CEI_DIRECTION_IN);
	ck_assert_int_eq(cei_machine_direction(machine, host, host), CEI_DIRECTION_HOST);
	ck_assert_int_eq(cei_machine_direction(machine, host, host + 1), CEI_DIRECTION_HOST);
	cei_machine_destroy(machine);
}
END_TEST

/* In the mesh each GPU has NVLinks to some of the others. The virtual machine's are not known. */
START_TEST(test_which_gpus_nvlinks_join_to_all_others)
{
	static const struct { const char *name; uint32_t gpu; int joins; } cases[] = {
		{ "h200x8-nvswitch", 0, 1 }, { "h200x8-nvswitch", 7, 1 },
		{ "h200x8-nvswitch", 8, 0 }, { "vm-flat", 0, 0 }, { "v100x8-mesh", 0, 0 },
		{ "pcie4-two-nodes", 0, 0 }, { "two-no-p2p", 0, 0 }, { "laptop", 0, 0 },
	};
	struct cei_machine *machine;
	size_t i;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		machine = testing_machine(cases[i].name);
		ck_assert_int_eq(cei_machine_nvlinks_all(machine, cases[i].gpu), cases[i].joins);
		cei_machine_destroy(machine);
	}
}
END_TEST

START_TEST(test_the_least_rate_to_a_peer)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");

	cei_machine_set_measured(machine, 1, 0, 20 * GB, 4000);
	cei_machine_set_measured(machine, 1, 2, 7 * GB, 4000);
	cei_machine_set_measured(machine, 1, 3, 11 * GB, 4000);
	/* links to itself and to the host do not count as peer links */
	cei_machine_set_measured(machine, 1, 1, 1 * GB, 4000);
	cei_machine_set_measured(machine, 1, cei_machine_host_place(machine, 0), 2 * GB, 4000);
	ck_assert_uint_eq(cei_machine_peer_rate(machine, 1), 7 * GB);
	ck_assert_uint_eq(cei_machine_peer_rate(machine, 4), 0);
	cei_machine_destroy(machine);
	machine = testing_machine("two-no-p2p");
	ck_assert_uint_eq(cei_machine_peer_rate(machine, 0), 0);
	cei_machine_destroy(machine);
}
END_TEST

/* Defaults are not measured, so the longest t0 is known only if all links were measured. */
START_TEST(test_the_longest_t0_to_a_peer)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	uint32_t i;

	ck_assert_uint_eq(cei_machine_peer_t0(machine, 1), 0);
	for (i = 0; i < machine->n_gpus; i++) {
		ck_assert_uint_eq(cei_machine_peer_t0(machine, 1), 0);
		if (i != 1)
			cei_machine_set_measured(machine, 1, i, 20 * GB, 3000 - 100 * i);
	}
	ck_assert_uint_eq(cei_machine_peer_t0(machine, 1), 3000);
	ck_assert_uint_eq(cei_machine_peer_t0(machine, machine->n_gpus), 0);
	cei_machine_destroy(machine);
	machine = testing_machine("two-no-p2p");
	ck_assert_uint_eq(cei_machine_peer_t0(machine, 0), 0);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_everything_has_a_name)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	char text[16];
	int i;

	ck_assert_str_eq(cei_machine_place_name(machine, 3, text), "gpu3");
	ck_assert_str_eq(cei_machine_place_name(machine, 5, text), "node1");
	for (i = CEI_MACHINE_SAME_SWITCH; i < CEI_MACHINE_UNKNOWN; i++)
		ck_assert_str_ne(cei_machine_distance_name((enum cei_machine_distance)i),
				 "unknown");
	cei_machine_destroy(machine);
	cei_machine_destroy(NULL);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("machine");
	TCase *trees = tcase_create("fixtures");
	TCase *told = tcase_create("hints");
	TCase *rest = tcase_create("the rest");

	tcase_add_checked_fixture(trees, set_up, tear_down);
	tcase_add_loop_test(trees, test_every_fixture_is_sane, 0, 8);
	tcase_add_test(trees, test_a_switch_is_shared_by_sender_and_by_receiver);
	tcase_add_test(trees, test_pcie_switches_share_their_uplink);
	tcase_add_test(trees, test_nics_are_as_near_as_the_tree_says);
	tcase_add_test(trees, test_a_mesh_has_links_of_two_widths_and_none);
	tcase_add_test(trees, test_coherent_gpus_show_their_memory_as_nodes);
	tcase_add_test(trees, test_a_file_can_say_that_there_is_no_link);
	tcase_add_test(trees, test_what_is_not_told_has_defaults);
	suite_add_tcase(all, trees);
	tcase_add_checked_fixture(told, set_up, tear_down);
	tcase_add_test(told, test_hints_alone_make_a_machine);
	tcase_add_test(told, test_hinted_gpus_take_their_place_in_the_tree);
	tcase_add_test(told, test_more_gpus_than_there_is_room_for_are_refused);
	suite_add_tcase(all, told);
	tcase_add_checked_fixture(rest, set_up, tear_down);
	tcase_add_test(rest, test_the_hash_is_of_what_there_is);
	tcase_add_test(rest, test_directions_are_those_of_both_ends);
	tcase_add_test(rest, test_which_gpus_nvlinks_join_to_all_others);
	tcase_add_test(rest, test_the_least_rate_to_a_peer);
	tcase_add_test(rest, test_the_longest_t0_to_a_peer);
	tcase_add_test(rest, test_everything_has_a_name);
	suite_add_tcase(all, rest);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
