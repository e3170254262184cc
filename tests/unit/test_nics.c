/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the assignment of NICs to GPUs, and the choice of a process's NIC. */

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "machine_fixture.h"
#include "testing.h"
#include "topology/nics.h"

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

START_TEST(test_no_nic_no_assignment)
{
	struct cei_machine *machine = with_nics(3, 0);
	uint32_t nics[3] = { 0 }, i;

	cei_nics_assign(machine, nics);
	for (i = 0; i < 3; i++)
		ck_assert_uint_eq(nics[i], CEOV_NOBODY);
	machine_free(machine);
}
END_TEST

START_TEST(test_equally_near_ones_are_taken_in_turn)
{
	struct cei_machine *machine = with_nics(8, 4);
	uint32_t nics[8], i;

	cei_nics_assign(machine, nics);
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
	cei_nics_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 4);
	ck_assert_uint_eq(nics[1], 0);
	memset(machine->nic_distance, CEI_MACHINE_UNKNOWN, sizeof(machine->nic_distance));
	machine->nic_distance[0][2] = CEI_MACHINE_FAR;
	cei_nics_assign(machine, nics);
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
	cei_nics_assign(machine, nics);
	ck_assert_uint_eq(nics[0], 1);
	ck_assert_uint_eq(nics[1], 1);
	machine->nics[1].is_rdma = 0;
	cei_nics_assign(machine, nics);
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
	cei_nics_assign(machine, nics);
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
		cei_nics_assign(machine, nics);
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

/* --- the NIC of a process ----------------------------------------------------------- */

#define DEVICES_MAX 16u

/* What the process asks for. */
struct asked {
	const struct cei_machine *machine;
	const uint32_t           *gpus;
	uint32_t                  n_gpus;
	const char               *devices;      /* which commas separate */
	const char               *named;
};

/* Chooses, and asserts which device it is. NIC: if that is not CEOV_NOBODY, writes why it is
 * not used. */
static struct cei_nic_choice check(const struct asked *asked, const char *wanted, uint32_t nic,
				   char ret_why[CEI_NIC_WHY_BYTES])
{
	char names[DEVICES_MAX][CEI_NIC_DEVICE_BYTES], list[256], *rest = list, *name;
	struct cei_nic_request request = { .gpus = asked->gpus, .n_gpus = asked->n_gpus,
					   .devices = names, .named = asked->named };
	struct cei_nic_choice choice;

	snprintf(list, sizeof(list), "%s", asked->devices);
	while ((name = strsep(&rest, ",")) && *name && request.n_devices < DEVICES_MAX)
		snprintf(names[request.n_devices++], CEI_NIC_DEVICE_BYTES, "%s", name);
	cei_nic_choose(asked->machine, &request, &choice);
	ck_assert_str_eq(choice.device, wanted);
	ck_assert(choice.why[0]);
	if (nic != CEOV_NOBODY && !cei_nic_explain_left(asked->machine, &request, &choice, nic,
							ret_why))
		snprintf(ret_why, CEI_NIC_WHY_BYTES, "it is used");
	return choice;
}

/* Asserts which device a process with ranks on these GPUs uses, and why. */
static void chooses(const struct asked *asked, const char *wanted, const char *why)
{
	struct cei_nic_choice choice = check(asked, wanted, CEOV_NOBODY, NULL);

	ck_assert_msg(strstr(choice.why, why) != NULL, "'%s' is not in '%s'", why, choice.why);
}

/* Asserts why the NIC is not used. */
static void leaves(const struct asked *asked, const char *wanted, uint32_t nic, const char *reason)
{
	char why[CEI_NIC_WHY_BYTES] = "";

	(void)check(asked, wanted, nic, why);
	ck_assert_msg(strstr(why, reason) != NULL, "'%s' is not in '%s'", reason, why);
}

static const uint32_t first_four[] = { 0, 1, 2, 3 };

/* Two packages with two GPUs and an RDMA device each: of several GPUs the first one decides. */
START_TEST(test_a_process_takes_the_nic_of_its_first_gpu)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	static const uint32_t other_order[] = { 3, 0 };
	struct asked asked = { machine, first_four, 4,
			       "memory,lo,eth0,mlx5_0:1,mlx5_1:1,mlx5_1:2", NULL };

	chooses(&asked, "mlx5_0:1", "RDMA device, at the NUMA node of GPU 0");
	leaves(&asked, "mlx5_0:1", 1, "it is GPU 3's, but a process uses one NIC: run a process "
	       "for each GPU");
	asked.gpus = other_order;
	asked.n_gpus = 2;
	chooses(&asked, "mlx5_1:1", "RDMA device, at the NUMA node of GPU 3");
	asked.gpus = first_four + 2;
	asked.n_gpus = 1;
	chooses(&asked, "mlx5_1:1", "GPU 2");
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_one_nic_serves_all)
{
	struct cei_machine *machine = testing_machine("two-no-p2p");
	struct asked asked = { machine, first_four, 2, "lo,enp1s0", NULL };

	chooses(&asked, "enp1s0", "net device");
	asked.gpus = first_four + 1;
	asked.n_gpus = 1;
	chooses(&asked, "enp1s0", "net device");
	cei_machine_destroy(machine);
}
END_TEST

/* The transport does not list what is down or has no address. */
START_TEST(test_a_nic_that_cannot_be_used_is_not_chosen)
{
	struct cei_machine *machine = testing_machine("two-no-p2p");
	struct asked asked = { machine, first_four, 2, "lo,eth7", NULL };

	chooses(&asked, "", "the transport can use none");
	cei_machine_destroy(machine);
	asked.machine = machine = testing_machine("pcie4-two-nodes");
	asked.devices = "mlx5_1:2";
	chooses(&asked, "mlx5_1:2", "GPU 0");           /* the far one serves it, too */
	asked.devices = "mlx5_10:1,mlx5_0,mlx5_0:";
	chooses(&asked, "", "the transport can use none");
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_host_members_alone_choose_nothing)
{
	struct cei_machine *machine = testing_machine("h200x8-nvswitch");
	struct asked asked = { machine, NULL, 0, "eth0,mlx5_0:1", NULL };

	chooses(&asked, "", "no rank is on a GPU");
	leaves(&asked, "", 0, "no rank of the process is on a GPU");
	cei_machine_destroy(machine);
	asked.machine = NULL;
	chooses(&asked, "", "the machine's topology is not known");
	asked = (struct asked){ machine = machine_made(2, 1), first_four, 2, "eth0", NULL };
	chooses(&asked, "", "the machine shows no network card");
	machine_free(machine);
}
END_TEST

/* One name is taken as it is; of several the topology chooses, and the first one is taken where it
 * cannot. */
START_TEST(test_names_are_candidates)
{
	struct cei_machine *machine = testing_machine("pcie4-two-nodes");
	struct asked asked = { machine, first_four, 1, "eth0,mlx5_0:1,mlx5_1:1", "nosuch0" };

	chooses(&asked, "nosuch0", "it was named");
	asked.named = "mlx5_1:1,mlx5_0:1";
	chooses(&asked, "mlx5_0:1", "RDMA device, at the NUMA node of GPU 0");
	leaves(&asked, "mlx5_0:1", 1, "GPU 0 has mlx5_0, which is nearer");
	asked.named = "nosuch0,mlx5_1:1";
	chooses(&asked, "mlx5_1:1", "RDMA device");
	leaves(&asked, "mlx5_1:1", 0, "or it was not named");
	asked.named = "nosuch1,nosuch2,mlx5";
	chooses(&asked, "nosuch1", "the first that was named: none of those that are named");
	asked.named = "mlx5_1:1,mlx5_0:1";
	asked.n_gpus = 0;
	chooses(&asked, "mlx5_1:1", "the first that was named: no rank is on a GPU");
	cei_machine_destroy(machine);
}
END_TEST

/* --- NICs that are not used ------------------------------------------------------------------ */

/* NICs of these names, all as near to all GPUs. */
static struct cei_machine *with_named_nics(uint32_t n_gpus, uint32_t n_nics)
{
	struct cei_machine *machine = with_nics(n_gpus, n_nics);
	uint32_t i;

	for (i = 0; i < n_nics; i++)
		snprintf(machine->nics[i].name, CEI_MACHINE_NAME_BYTES, "nic%u", i);
	return machine;
}

START_TEST(test_a_nic_that_is_not_used_has_a_reason)
{
	struct cei_machine *machine = with_named_nics(2, 2);
	struct asked asked = { machine, first_four, 1, "nic0:1,nic1:1", NULL };

	leaves(&asked, "nic0:1", 0, "it is used");
	leaves(&asked, "nic0:1", 1, "as near to GPU 0, but is GPU 1's");
	asked.devices = "nic0:1";
	leaves(&asked, "nic0:1", 1, "the transport cannot use it");
	asked.devices = "nic0:1,nic1:1";
	machine->nic_distance[0][0] = machine->nic_distance[1][0] = CEI_MACHINE_SAME_SWITCH;
	leaves(&asked, "nic0:1", 1, "GPU 0 has nic0, which is nearer");
	machine->nics[0].is_rdma = 0;
	asked.devices = "nic0,nic1:1";
	leaves(&asked, "nic1:1", 0, "GPU 0 has nic1, which is an RDMA device");
	machine_free(machine);
	asked = (struct asked){ machine = with_named_nics(1, 2), first_four, 1, "nic0:1,nic1:1",
				NULL };
	leaves(&asked, "nic0:1", 1, "as near to GPU 0, but a process uses one NIC");
	machine->nics[0].bytes_per_s = 1000;
	machine->nics[1].bytes_per_s = 2002;
	leaves(&asked, "nic1:1", 0, "GPU 0 has nic1, which is as near, and more than twice");
	machine_free(machine);
}
END_TEST

/* A net device is taken where no RDMA device can be used. */
START_TEST(test_rdma_is_preferred)
{
	struct cei_machine *machine = testing_machine("pcie8-switches-nics");
	struct asked asked = { machine, first_four, 4,
			       "eth0,mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1", NULL };

	chooses(&asked, "mlx5_0:1", "RDMA device");
	asked.devices = "eth0,mlx5_3:1";
	chooses(&asked, "mlx5_3:1", "RDMA device");
	asked.devices = "eth0";
	chooses(&asked, "eth0", "net device");
	/* the same card as a net device */
	asked.devices = "ib0,ib1,ib2,ib3,eth0";
	chooses(&asked, "ib0", "net device");
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

/* Processes with a GPU each spread over equally good NICs. */
START_TEST(test_processes_spread_over_equal_nics)
{
	struct cei_machine *machine = with_net_devices(2, 4);
	struct asked asked = { machine, first_four, 1, "eth0,eth1,eth2,eth3", NULL };

	chooses(&asked, "eth0", "GPU 0");
	asked.gpus = first_four + 1;
	chooses(&asked, "eth1", "GPU 1");
	asked.devices = "eth3,eth2,eth1";
	chooses(&asked, "eth2", "GPU 1");
	machine_free(machine);
}
END_TEST

/* Ports for management are often as near as others. */
START_TEST(test_a_slow_nic_beside_a_fast_one_is_left_out)
{
	struct cei_machine *machine = with_net_devices(1, 2);
	struct asked asked = { machine, first_four, 1, "eth0,eth1", NULL };

	machine->nics[0].bytes_per_s = 500 * UINT64_C(1000000);
	machine->nics[1].bytes_per_s = 16 * UINT64_C(1000000000);
	chooses(&asked, "eth1", "net device");
	asked.devices = "eth0";
	chooses(&asked, "eth0", "net device");
	machine_free(machine);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nics");
	TCase *all = tcase_create("nics");

	tcase_add_test(all, test_no_nic_no_assignment);
	tcase_add_test(all, test_equally_near_ones_are_taken_in_turn);
	tcase_add_test(all, test_the_nearest_first);
	tcase_add_test(all, test_rdma_before_net);
	tcase_add_test(all, test_choice_gives_way);
	tcase_add_test(all, test_any_tree);
	tcase_add_test(all, test_a_process_takes_the_nic_of_its_first_gpu);
	tcase_add_test(all, test_one_nic_serves_all);
	tcase_add_test(all, test_a_nic_that_cannot_be_used_is_not_chosen);
	tcase_add_test(all, test_host_members_alone_choose_nothing);
	tcase_add_test(all, test_names_are_candidates);
	tcase_add_test(all, test_rdma_is_preferred);
	tcase_add_test(all, test_a_nic_that_is_not_used_has_a_reason);
	tcase_add_test(all, test_processes_spread_over_equal_nics);
	tcase_add_test(all, test_a_slow_nic_beside_a_fast_one_is_left_out);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
