/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Whether the network accesses the application's host memory itself, and that bytes arrive if it
 * does not; that what was exported is closed when it is withdrawn. The network is simulated, and
 * notes which memory is registered with it. */

#include <stdlib.h>
#include <string.h>

#include "ce_engine/objects/context.h"
#include "net/far_slots.h"
#include "net/network_private.h"
#include "net/network.h"
#include "net/rail_private.h"
#include "unit/nodes_rig.h"

#define BYTES (9 * CEI_FAR_SLOT_BYTES + 12345)

static struct nodes nodes;
static struct cei_transport_ops transport;
static _Atomic uint32_t n_large;        /* registrations of memory of exactly BYTES bytes */

static int count_memory(struct cei_transport *of, void *base, uint64_t n_bytes,
			struct cei_transport_memory **ret_memory)
{
	n_large += n_bytes == BYTES;
	return loop_transport.memory_open(of, base, n_bytes, ret_memory);
}

static int is_untried(struct cei_transport *of, const char **ret_why)
{
	(void)of;
	*ret_why = "it may use rc_test";
	return 0;
}

/* Opens two nodes of one rank each. mode: of CEOVERLAP_IN_PLACE, NULL: unset. */
static void open_nodes(const char *mode, int is_tried)
{
	static const uint32_t node_of[] = { 0, 1 };
	const struct nodes_map map = { .n_nodes = 2, .n_ranks = 2, .node_of = node_of,
				       .transport = &transport, .is_loop = 1 };

	if (mode)
		ck_assert_int_eq(setenv("CEOVERLAP_IN_PLACE", mode, 1), 0);
	else
		ck_assert_int_eq(unsetenv("CEOVERLAP_IN_PLACE"), 0);
	transport = loop_transport;
	transport.memory_open = count_memory;
	if (!is_tried)
		transport.is_tried_in_place = is_untried;
	n_large = 0;
	nodes_open_map(&nodes, &map);
}

/* Sends three times from rank 0 to rank 1, and asserts that the plan says the text. */
static void send_all(const char *said)
{
	ceov_buffer *source = nodes_buffer(&nodes, 0, "source", BYTES);
	ceov_buffer *target = nodes_buffer(&nodes, 1, "target", BYTES);
	ceov_plan *plan = testing_plan(nodes_context(&nodes, 0), 0);
	struct ceov_launch launch = { .struct_bytes = sizeof(launch) };
	ceov_signal *arrived = nodes_signal(&nodes, 1, "arrived", 1);
	struct ceov_transfer transfer;
	ceov_ticket ticket;

	transfer = testing_transfer(source, nodes_find_buffer(&nodes, 0, 1, "target"), BYTES);
	transfer.then = testing_mark(nodes_find_signal(&nodes, 0, 1, "arrived"), 0, 1);
	testing_add(plan, &transfer);
	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	testing_explained(plan, said);
	for (launch.base = 0; launch.base < 3; launch.base++) {
		testing_fill(ceov_buffer_base(source, 0), BYTES, testing_seed() + launch.base);
		ck_assert_int_eq(ceov_launch(plan, &launch, &ticket), 0);
		nodes_await(arrived, 0, launch.base + 1);
		ck_assert_uint_eq(testing_check(ceov_buffer_base(target, 1), BYTES,
						testing_seed() + launch.base), BYTES);
		ck_assert_int_eq(ceov_wait(nodes_context(&nodes, 0), ticket, TESTING_PATIENCE),
				 0);
	}
	nodes_close(&nodes);
}

START_TEST(test_what_was_tried_goes_in_place)
{
	open_nodes(NULL, 1);
	send_all("come from there, are read and written in place\n");
	ck_assert_uint_eq(n_large, 2);
}
END_TEST

START_TEST(test_what_was_not_tried_goes_through_slots)
{
	open_nodes(NULL, 0);
	send_all("pass through 8 slots of 4 MiB: it may use rc_test\n");
	ck_assert_uint_eq(n_large, 0);
}
END_TEST

START_TEST(test_a_setting_turns_it_on)
{
	open_nodes("on", 0);
	send_all("in place, because CEOVERLAP_IN_PLACE says so: it may use rc_test\n");
	ck_assert_uint_eq(n_large, 2);
}
END_TEST

START_TEST(test_a_setting_turns_it_off)
{
	open_nodes("off", 1);
	send_all("pass through 8 slots of 4 MiB: CEOVERLAP_IN_PLACE says so\n");
	ck_assert_uint_eq(n_large, 0);
}
END_TEST

/* That the network accesses the memory of GPUs says nothing of host memory. */
START_TEST(test_host_memory_goes_through_slots_beside_a_gpu)
{
	uint32_t i;

	open_nodes(NULL, 0);
	for (i = 0; i < 2; i++)
		ck_assert_int_eq(cei_rail_go_direct(nodes_context(&nodes, i)->site.network
						    ->rail, 0), 0);
	send_all("pass through 8 slots of 4 MiB: it may use rc_test\n");
	ck_assert_uint_eq(n_large, 0);
}
END_TEST

/* Opens the memory as a region and closes that; the rail has it meanwhile, and not behind. */
static void open_once(struct cei_network *network, const struct cei_network_region *memory)
{
	const struct cei_far_table *table = &network->rail->nic.table;
	uint32_t n_before = table->n_regions;

	ck_assert_int_eq(cei_network_region_open(network, 77, memory), 0);
	ck_assert_uint_eq(table->n_regions, n_before + 1);
	ck_assert_int_eq(cei_network_region_close(network, 77), 0);
	ck_assert_uint_eq(table->n_regions, n_before);
	ck_assert_int_eq(cei_network_region_close(network, 77), 0);     /* there is none */
}

START_TEST(test_what_is_withdrawn_is_closed)
{
	static uint8_t bytes[4096];
	const struct cei_network_region host = { .kind = CEI_NETWORK_BYTES, .base = bytes,
						 .size_bytes = sizeof(bytes) };
	const struct cei_network_region gpu = { .kind = CEI_NETWORK_BYTES, .device = 0x10000,
						.size_bytes = sizeof(bytes) };
	const struct cei_network_region unreached = { .kind = CEI_NETWORK_BYTES,
						      .size_bytes = sizeof(bytes) };
	struct cei_network *network;

	nodes_open(&nodes, 2, 1);
	network = nodes_context(&nodes, 0)->site.network;
	open_once(network, &host);
	open_once(network, &gpu);
	ck_assert_int_eq(cei_network_region_open(network, 77, &unreached), 0);
	ck_assert_int_eq(cei_network_region_close(network, 77), 0);
	nodes_close(&nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("nodes_in_place");
	TCase *all = tcase_create("nodes_in_place");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_what_was_tried_goes_in_place);
	tcase_add_test(all, test_what_was_not_tried_goes_through_slots);
	tcase_add_test(all, test_a_setting_turns_it_on);
	tcase_add_test(all, test_a_setting_turns_it_off);
	tcase_add_test(all, test_host_memory_goes_through_slots_beside_a_gpu);
	tcase_add_test(all, test_what_is_withdrawn_is_closed);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
