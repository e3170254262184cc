/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the assignment of NICs to GPUs. */

#include <check.h>
#include <string.h>

#include "machine_fixture.h"
#include "testing.h"
#include "topology/route.h"

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
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
