/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the assignment of NICs to GPUs, and the choice of a process's rails. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "machine_fixture.h"
#include "testing.h"
#include "topology/rails.h"

static struct cei_machine *with_nics(uint32_t n_gpus, uint32_t n_nics)
{
	struct cei_machine *machine = machine_made(n_gpus, 1);
	uint32_t i;

	machine->n_nics = n_nics;
	for (i = 0; i < n_nics; i++)
		machine->nics[i].is_rdma = 1;
	memset(machine->nic_distance, CEI_MACHINE_SAME_NODE, sizeof(machine->nic_distance));
	return machine;
}

START_TEST(test_no_nic_no_rail)
{
	struct cei_machine *machine = with_nics(3, 0);
	uint32_t nics[3] = { 0 }, i;

	cei_rails_assign(machine, nics);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(nics[i], CEOV_NOBODY);
	machine_free(machine);
}
END_TEST

START_TEST(test_equally_near_ones_are_taken_in_turn)
{
	struct cei_machine *machine = with_nics(8, 4);
	uint32_t nics[8], i;

	cei_rails_assign(machine, nics);
	for (i = 0; i < 8; i++)
		ck_assert_uint_eq(nics[i], i % 4);
	machine_free(machine);
}
END_TEST

START_TEST(test_the_nearest_first)
{
	struct cei_machine *machine = with_nics(2, 5);
	uint32_t nics[2], distance;

	for (distance = 0; distance < 5; distance++) {
		machine->nic_distance[0][4 - distance] = (uint8_t)distance;
		machine->nic_distance[1][distance] = (uint8_t)distance;
	}
	cei_rails_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 4);
	ck_assert_uint_eq(nics[1], 0);
	memset(machine->nic_distance, CEI_MACHINE_UNKNOWN, sizeof(machine->nic_distance));
	machine->nic_distance[0][2] = CEI_MACHINE_FAR;
	cei_rails_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 2);
	ck_assert_uint_eq(nics[1], 0);
	machine_free(machine);
}
END_TEST

START_TEST(test_rdma_before_net)
{
	struct cei_machine *machine = with_nics(2, 3);
	uint32_t nics[2];

	machine->nics[0].is_rdma = machine->nics[2].is_rdma = 0;
	machine->nic_distance[0][0] = CEI_MACHINE_SAME_SWITCH;
	machine->nic_distance[0][1] = CEI_MACHINE_FAR;
	cei_rails_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 1);
	ck_assert_uint_eq(nics[1], 1);
	machine->nics[1].is_rdma = 0;
	cei_rails_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 0);
	ck_assert_uint_eq(nics[1], 1);
	machine_free(machine);
}
END_TEST

/* GPU 0 must leave to GPU 1 the only NIC that is near GPU 1. */
START_TEST(test_choice_gives_way)
{
	struct cei_machine *machine = with_nics(2, 2);
	uint32_t nics[2];

	machine->nic_distance[1][0] = CEI_MACHINE_SAME_SWITCH;
	cei_rails_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 1);
	ck_assert_uint_eq(nics[1], 0);
	machine_free(machine);
}
END_TEST

/* Returns the distance of a NIC: the level of the tree at which the paths of the NIC and the GPU
 * meet. */
static uint8_t level(uint32_t gpu, uint32_t nic)
{
	if (gpu / 2 == nic / 2)
		return CEI_MACHINE_SAME_SWITCH;
	if (gpu / 4 == nic / 4)
		return CEI_MACHINE_SAME_TREE;
	return CEI_MACHINE_FAR;
}

START_TEST(test_any_tree)
{
	uint32_t nics[CEI_MACHINE_GPUS_MAX], served[CEI_MACHINE_NICS_MAX], i, j, k;
	uint64_t random = testing_seed();
	struct cei_machine *machine;
	uint8_t nearest;

	for (k = 0; k < 300; k++) {
		machine = with_nics((uint32_t)testing_below(&random, 65),
				    1 + (uint32_t)testing_below(&random, 64));
		memset(served, 0, sizeof(served));
		for (i = 0; i < machine->n_gpus; i++)
			for (j = 0; j < machine->n_nics; j++)
				machine->nic_distance[i][j] = level(i, j);
		cei_rails_assign(machine, nics);
		for (i = 0; i < machine->n_gpus; i++) {
			ck_assert_uint_lt(nics[i], machine->n_nics);
			nearest = CEI_MACHINE_UNKNOWN;
			for (j = 0; j < machine->n_nics; j++)
				if (level(i, j) < nearest)
					nearest = level(i, j);
			ck_assert_uint_eq(level(i, nics[i]), nearest);
			served[nics[i]]++;
		}
		/* of two NICs below one switch neither serves over one GPU more than the other */
		for (j = 0; j + 1 < machine->n_nics; j += 2)
			ck_assert_uint_le(served[j] > served[j + 1] ? served[j] - served[j + 1]
					  : served[j + 1] - served[j], 1);
		machine_free(machine);
	}
}
END_TEST

/* --- the rails of a process --------------------------------------------------------- */

#define DEVICES_MAX 16u

/* Chooses for members on the GPUs, with these devices, whose names commas separate. */
static struct cei_rails_choice chosen(const struct cei_machine *machine, const uint32_t *gpus,
				      uint32_t n_gpus, const char *devices)
{
	char names[DEVICES_MAX][CEI_RAIL_DEVICE_BYTES], list[256], *rest = list, *name;
	struct cei_rails_request request = { .gpus = gpus, .n_gpus = n_gpus, .devices = names };
	struct cei_rails_choice choice;

	snprintf(list, sizeof(list), "%s", devices);
	while ((name = strsep(&rest, ",")) && *name && request.n_devices < DEVICES_MAX)
		snprintf(names[request.n_devices++], CEI_RAIL_DEVICE_BYTES, "%s", name);
	cei_rails_choose(machine, &request, &choice);
	return choice;
}

static void check_rails(const struct cei_rails_choice *choice, const char *wanted)
{
	char list[256] = "";
	size_t at = 0;
	uint32_t i;

	for (i = 0; i < choice->n; i++)
		at += (size_t)snprintf(list + at, sizeof(list) - at, "%s%s", i ? "," : "",
				       choice->rails[i].device);
	ck_assert_str_eq(list, wanted);
	ck_assert_int_eq(!choice->n, choice->why[0] != 0);
}

static const uint32_t first_four[] = { 0, 1, 2, 3 };

/* Two packages with two GPUs and an RDMA device each: a process opens those of its members. */
START_TEST(test_a_process_takes_the_nics_of_its_gpus)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	const char *devices = "memory,lo,eth0,mlx5_0:1,mlx5_1:1,mlx5_1:2";
	struct cei_rails_choice choice = chosen(machine, first_four, 4, devices);
	char why[CEI_RAIL_WHY_BYTES_MAX];

	check_rails(&choice, "mlx5_0:1,mlx5_1:1");
	ck_assert_uint_eq(choice.own[1], 0);
	ck_assert_uint_eq(choice.own[3], 1);
	cei_rails_explain(machine, &choice.rails[1], why);
	ck_assert_str_eq(why, "RDMA device, at the NUMA node of GPU 2");
	choice = chosen(machine, first_four, 2, devices);
	check_rails(&choice, "mlx5_0:1");
	choice = chosen(machine, first_four + 3, 1, devices);
	check_rails(&choice, "mlx5_1:1");
	ck_assert_uint_eq(choice.own[3], 0);
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_one_nic_serves_all)
{
	struct cei_machine *machine = testing_machine("two-no-p2p");
	struct cei_rails_choice choice = chosen(machine, first_four, 2, "lo,enp1s0");

	check_rails(&choice, "enp1s0");
	ck_assert_uint_eq(choice.own[0], 0);
	ck_assert_uint_eq(choice.own[1], 0);
	cei_machine_destroy(machine);
}
END_TEST

/* The transport does not list what is down or has no address. */
START_TEST(test_a_nic_that_cannot_be_used_is_no_rail)
{
	struct cei_machine *machine = testing_machine("two-no-p2p");
	struct cei_rails_choice choice = chosen(machine, first_four, 2, "lo,eth7");

	check_rails(&choice, "");
	cei_machine_destroy(machine);
	machine = testing_machine("pcie4-two-nodes");
	choice = chosen(machine, first_four, 4, "mlx5_1:2");
	check_rails(&choice, "mlx5_1:2");
	ck_assert_uint_eq(choice.own[0], 0);            /* the far one serves it, too */
	choice = chosen(machine, first_four, 4, "mlx5_10:1,mlx5_0,mlx5_0:");
	check_rails(&choice, "");
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_host_members_alone_choose_nothing)
{
	struct cei_machine *machine = testing_machine("h200x8-nvswitch");
	struct cei_rails_choice choice = chosen(machine, NULL, 0, "eth0,mlx5_0:1");

	check_rails(&choice, "");
	ck_assert_ptr_nonnull(strstr(choice.why, "no rank is on a GPU"));
	cei_machine_destroy(machine);
	machine = machine_made(2, 1);
	choice = chosen(machine, first_four, 2, "eth0");
	check_rails(&choice, "");
	machine_free(machine);
}
END_TEST

/* --- NICs without a rail --------------------------------------------------------------------- */

/* Asserts why the NIC gets no rail in that choice; NULL: it gets one. */
static void check_left(const struct cei_machine *machine, uint32_t n_gpus, const char *devices,
		       uint32_t nic, const char *reason)
{
	char names[DEVICES_MAX][CEI_RAIL_DEVICE_BYTES], list[256], *rest = list, *name;
	struct cei_rails_request request = { .gpus = first_four, .n_gpus = n_gpus,
					     .devices = names };
	char why[CEI_RAIL_WHY_BYTES_MAX] = "";
	struct cei_rails_choice choice;

	snprintf(list, sizeof(list), "%s", devices);
	while ((name = strsep(&rest, ",")) && *name && request.n_devices < DEVICES_MAX)
		snprintf(names[request.n_devices++], CEI_RAIL_DEVICE_BYTES, "%s", name);
	cei_rails_choose(machine, &request, &choice);
	ck_assert_int_eq(cei_rails_explain_left(machine, &request, &choice, nic, why),
			 reason != NULL);
	ck_assert_msg(!reason || strstr(why, reason), "'%s' is not in '%s'", reason, why);
}

/* NICs of these names, all as near to all GPUs. */
static struct cei_machine *with_named_nics(uint32_t n_gpus, uint32_t n_nics)
{
	struct cei_machine *machine = with_nics(n_gpus, n_nics);
	uint32_t i;

	for (i = 0; i < n_nics; i++)
		snprintf(machine->nics[i].name, CEI_MACHINE_NAME_BYTES, "nic%u", i);
	return machine;
}

START_TEST(test_a_nic_without_a_rail_has_a_reason)
{
	static const char all[] = "nic0:1,nic1:1,nic2:1,nic3:1,nic4:1,nic5:1,nic6:1,nic7:1,nic8:1";
	struct cei_machine *machine = with_named_nics(2, 2);

	check_left(machine, 2, all, 0, NULL);
	check_left(machine, 2, all, 1, NULL);
	check_left(machine, 1, all, 1, "as near to GPU 0, but is GPU 1's");
	check_left(machine, 2, "nic0:1", 1, "the transport cannot use it");
	check_left(machine, 0, all, 1, "no rank of the process is on a GPU");
	machine->nic_distance[0][0] = machine->nic_distance[1][0] = CEI_MACHINE_SAME_SWITCH;
	check_left(machine, 2, all, 1, "GPU 0 has nic0, which is nearer");
	machine->nics[0].is_rdma = 0;
	check_left(machine, 2, "nic0,nic1:1", 0, "GPU 0 has nic1, which is an RDMA device");
	machine_free(machine);
	machine = with_named_nics(1, 2);
	machine->nics[0].bytes_per_s = 1000;
	machine->nics[1].bytes_per_s = 2002;
	check_left(machine, 1, all, 0, "GPU 0 has nic1, which is as near, and more than twice");
	machine_free(machine);
	machine = with_named_nics(1, 9);
	check_left(machine, 1, all, 7, NULL);
	check_left(machine, 1, all, 8, "8 rails at most");
	machine_free(machine);
}
END_TEST

/* A net device is taken where no RDMA device can be used. */
START_TEST(test_rdma_is_preferred)
{
	struct cei_machine *machine = testing_machine("pcie8-switches-nics");
	struct cei_rails_choice choice;

	choice = chosen(machine, first_four, 4, "eth0,mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1");
	check_rails(&choice, "mlx5_0:1,mlx5_1:1");
	choice = chosen(machine, first_four, 4, "eth0,mlx5_3:1");
	check_rails(&choice, "mlx5_3:1");
	choice = chosen(machine, first_four, 4, "eth0");
	check_rails(&choice, "eth0");
	/* the same card as a net device */
	choice = chosen(machine, first_four, 4, "ib0,ib1,ib2,ib3,eth0");
	check_rails(&choice, "ib0,ib1");
	cei_machine_destroy(machine);
}
END_TEST

static struct cei_machine *with_net_devices(uint32_t n_gpus, uint32_t n_nics)
{
	struct cei_machine *machine = with_nics(n_gpus, n_nics);
	uint32_t i;

	for (i = 0; i < n_nics; i++) {
		machine->nics[i].is_rdma = 0;
		snprintf(machine->nics[i].name, sizeof(machine->nics[i].name), "eth%u", i);
	}
	return machine;
}

/* NICs that would serve no GPU are given to those that they suit. */
START_TEST(test_equally_good_nics_are_all_used)
{
	struct cei_machine *machine = with_net_devices(2, 4);
	struct cei_rails_choice choice = chosen(machine, first_four, 1, "eth0,eth1,eth2,eth3");

	check_rails(&choice, "eth0,eth2");
	ck_assert_uint_eq(choice.own[0], 0);
	choice = chosen(machine, first_four + 1, 1, "eth0,eth1,eth2,eth3");
	check_rails(&choice, "eth1,eth3");
	choice = chosen(machine, first_four, 2, "eth3,eth2,eth1");
	check_rails(&choice, "eth1,eth2,eth3");
	machine_free(machine);
	machine = with_net_devices(1, 12);
	choice = chosen(machine, first_four, 1, "eth0,eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8");
	check_rails(&choice, "eth0,eth1,eth2,eth3,eth4,eth5,eth6,eth7");
	machine_free(machine);
}
END_TEST

/* Parts of a copy are equal, so a slow card would decide when it ends. */
START_TEST(test_a_slow_nic_beside_a_fast_one_is_left_out)
{
	struct cei_machine *machine = with_net_devices(1, 2);
	struct cei_rails_choice choice;

	machine->nics[0].bytes_per_s = 500 * UINT64_C(1000000);
	machine->nics[1].bytes_per_s = 16 * UINT64_C(1000000000);
	choice = chosen(machine, first_four, 1, "eth0,eth1");
	check_rails(&choice, "eth1");
	choice = chosen(machine, first_four, 1, "eth0");
	check_rails(&choice, "eth0");
	machine_free(machine);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rails");
	TCase *all = tcase_create("rails");

	tcase_add_test(all, test_no_nic_no_rail);
	tcase_add_test(all, test_equally_near_ones_are_taken_in_turn);
	tcase_add_test(all, test_the_nearest_first);
	tcase_add_test(all, test_rdma_before_net);
	tcase_add_test(all, test_choice_gives_way);
	tcase_add_test(all, test_any_tree);
	tcase_add_test(all, test_a_process_takes_the_nics_of_its_gpus);
	tcase_add_test(all, test_one_nic_serves_all);
	tcase_add_test(all, test_a_nic_that_cannot_be_used_is_no_rail);
	tcase_add_test(all, test_host_members_alone_choose_nothing);
	tcase_add_test(all, test_rdma_is_preferred);
	tcase_add_test(all, test_a_nic_without_a_rail_has_a_reason);
	tcase_add_test(all, test_equally_good_nics_are_all_used);
	tcase_add_test(all, test_a_slow_nic_beside_a_fast_one_is_left_out);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
