/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests which rail a network opens, and how bytes of GPUs reach it, over a simulated network
 * whose transports are the machine's NICs. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"
#include "net/network.h"
#include "net/rail_private.h"
#include "topology/machine.h"
#include "unit/device_copier.h"
#include "unit/loop_transport.h"
#include "unit/machine_fixture.h"
#include "testing.h"

#define REGION 3u

static struct {
	struct loop_net          net;
	struct device_copier     copier;
	struct testing_log       log;
	struct cei_report        report;
	struct cei_transport_ops transport;
	struct cei_machine      *machine;
	struct cei_site          site;
	struct cei_network      *network;
} rig;

static struct cei_transport_devices usable;

static int tell_usable(struct cei_report *report, const char *kinds,
		       struct cei_transport_devices *ret_devices)
{
	(void)report;
	(void)kinds;
	*ret_devices = usable;
	return 0;
}

/* The group has one process. */
static int gather_one(void *arg, const void *own, size_t n_bytes, void *ret_all,
		      uint64_t timeout_ns)
{
	(void)arg;
	(void)timeout_ns;
	memcpy(ret_all, own, n_bytes);
	return 0;
}

/* A machine with two GPUs and two NICs, each near one GPU: the second NIC near the first GPU. */
static void open_rig(void)
{
	uint32_t i;

	memset(&rig, 0, sizeof(rig));
	memset(&usable, 0, sizeof(usable));
	loop_net_init(&rig.net, testing_seed(), 1);
	testing_log_init(&rig.log);
	cei_report_init(&rig.report, testing_log_line, &rig.log);
	rig.report.level = CEI_LOG_INFO;
	rig.transport = loop_transport;
	rig.transport.devices = tell_usable;
	rig.machine = machine_made(2, 1);
	rig.machine->n_nics = 2;
	memset(rig.machine->nic_distance, CEI_MACHINE_FAR, sizeof(rig.machine->nic_distance));
	for (i = 0; i < 2; i++) {
		snprintf(rig.machine->nics[i].name, CEI_MACHINE_NAME_BYTES, "%s",
			 loop_device(&rig.net, i));
		snprintf(usable.names[usable.n++], CEI_TRANSPORT_DEVICE_BYTES, "%s",
			 loop_device(&rig.net, i));
		rig.machine->nic_distance[i][1 - i] = CEI_MACHINE_SAME_SWITCH;
	}
}

static void close_rig(void)
{
	cei_network_close(rig.network);
	machine_free(rig.machine);
	loop_net_fini(&rig.net);
	cei_report_fini(&rig.report);
}

/* Opens the network of a process with a rank on each of these places. */
static int open_network(const struct ceov_place *places, uint32_t n, const char *nics)
{
	struct ceov_network public = CEOV_NETWORK_INIT;
	struct cei_network_config config = {
		.public = &public,
		.transport = &rig.transport,
		.copier = &device_copier_ops,
		.copier_arg = &rig.copier,
		.machine = rig.machine,
		.deadline_ns = cei_deadline(TESTING_PATIENCE),
	};
	uint32_t i;

	rig.site.report = &rig.report;
	rig.site.instance[0] = 1;
	rig.site.n_ranks = rig.site.n_members = n;
	for (i = 0; i < n; i++)
		rig.site.members[i] = (struct ceov_member){ i, places[i] };
	public.bootstrap = CEOV_BOOTSTRAP_CALLBACK;
	public.n_processes = 1;
	public.all_gather = gather_one;
	public.job = "test_network_rail";
	public.nics = nics;
	return cei_network_open(&rig.site, &config, &rig.network);
}

static const struct ceov_place on_gpus[] = { { CEOV_PLACE_GPU, 0 }, { CEOV_PLACE_GPU, 1 } };
static const struct ceov_place on_host[] = { { CEOV_PLACE_HOST, 0 }, { CEOV_PLACE_HOST, 0 } };

START_TEST(test_the_first_member_decides)
{
	const struct cei_network_left *left;

	open_rig();
	ck_assert_int_eq(open_network(on_gpus, 2, NULL), 0);
	testing_log_has(&rig.log, "info", "the rail is on", rig.machine->nics[1].name);
	testing_log_has(&rig.log, "info", "no rail is on", "run a process for each GPU");
	ck_assert_ptr_nonnull(strstr(cei_network_rail_why(rig.network), "with GPU 0"));
	left = cei_network_left_out(rig.network, 0);
	ck_assert_ptr_nonnull(left);
	ck_assert_str_eq(left->name, rig.machine->nics[0].name);
	ck_assert_ptr_null(cei_network_left_out(rig.network, 1));
	close_rig();
}
END_TEST

/* _i: NICs that are named. */
START_TEST(test_what_is_named_is_opened)
{
	char nics[256];

	open_rig();
	snprintf(nics, sizeof(nics), "%s%s%s", rig.machine->nics[0].name, _i ? "," : "",
		 _i ? rig.machine->nics[1].name : "");
	ck_assert_int_eq(open_network(on_gpus, 2, nics), 0);
	testing_log_has(&rig.log, "info", "the rail is on", rig.machine->nics[_i].name);
	ck_assert_ptr_nonnull(strstr(cei_network_rail_why(rig.network),
				     _i ? "with GPU 0" : "it was named"));
	close_rig();
}
END_TEST

START_TEST(test_a_wrong_setting_is_refused)
{
	open_rig();
	ck_assert_int_eq(setenv("CEOVERLAP_IN_PLACE", "perhaps", 1), 0);
	ck_assert_int_eq(open_network(on_host, 2, rig.machine->nics[0].name), CEOV_ERR_INVALID);
	testing_log_has(&rig.log, "CEOVERLAP_IN_PLACE is 'perhaps'", "auto, on or off", NULL);
	ck_assert_int_eq(unsetenv("CEOVERLAP_IN_PLACE"), 0);
	close_rig();
}
END_TEST

/* Rank DEVICE_UNIT is on a GPU, the others are not. */
static const struct ceov_place on_one_gpu[] = {
	{ CEOV_PLACE_HOST, 0 }, { CEOV_PLACE_HOST, 0 }, { CEOV_PLACE_HOST, 0 },
	{ CEOV_PLACE_GPU, 1 },
};

/* Opens the network with this value of CEOVERLAP_GPU_DIRECT; NULL: unset. */
static int open_set(const char *value, const struct ceov_place *places, uint32_t n)
{
	int r;

	if (value)
		ck_assert_int_eq(setenv("CEOVERLAP_GPU_DIRECT", value, 1), 0);
	r = open_network(places, n, NULL);
	ck_assert_int_eq(unsetenv("CEOVERLAP_GPU_DIRECT"), 0);
	return r;
}

static const char *const staged[] = { NULL, "", "staged" };

/* _i: of staged. The network says that it can access the memory of GPUs, and is not to. */
START_TEST(test_bytes_of_gpus_are_staged)
{
	open_rig();
	rig.net.takes_gpu_memory = 1;
	ck_assert_int_eq(open_set(staged[_i], on_one_gpu, 4), 0);
	ck_assert_uint_eq(rig.copier.n_bound, 0);
	testing_log_has(&rig.log, "info", "bytes of GPU 1 pass through 8 slots of 4 MiB", NULL);
	close_rig();
}
END_TEST

START_TEST(test_direct_is_taken_at_its_word)
{
	open_rig();
	rig.net.takes_gpu_memory = 1;
	ck_assert_int_eq(open_set("direct", on_one_gpu, 4), 0);
	ck_assert_uint_eq(rig.copier.n_bound, 1);
	ck_assert_str_eq(cei_network_gpu_bytes(rig.network),
			 "are read and written by the network itself");
	close_rig();
}
END_TEST

START_TEST(test_direct_that_cannot_be_is_refused)
{
	open_rig();
	ck_assert_int_eq(open_set("direct", on_one_gpu, 4), CEOV_ERR_NO_ROUTE);
	testing_log_has(&rig.log, "CEOVERLAP_GPU_DIRECT is 'direct'", "GPU 1: the simulated", NULL);
	rig.net.takes_gpu_memory = 1;
	ck_assert_int_eq(open_set("direct", on_gpus, 2), CEOV_ERR_NO_ROUTE);
	testing_log_has(&rig.log, "GPU 0: this process has ranks on several GPUs", "'staged'",
			NULL);
	ck_assert_uint_eq(rig.copier.n_bound, 0);
	close_rig();
}
END_TEST

static int is_untried(struct cei_transport *of, const char **ret_why)
{
	(void)of;
	*ret_why = "this is a test";
	return 0;
}

/* Opens the memory to others. Returns whether the rail's transport knows it. */
static int is_written_in_place(void *host, uint64_t device)
{
	const struct cei_network_region region = {
		.kind = CEI_NETWORK_BYTES, .base = host, .device = device, .unit = DEVICE_UNIT,
		.size_bytes = 4096,
	};
	int is_known;

	ck_assert_int_eq(cei_network_region_open(rig.network, REGION, &region), 0);
	is_known = cei_far_region_of(&cei_network_rail(rig.network)->nic.table,
				     REGION)->memory != NULL;
	ck_assert_int_eq(cei_network_region_close(rig.network, REGION), 0);
	return is_known;
}

/* Host memory stays what it is over a network where nobody has tried it in place. */
START_TEST(test_direct_says_nothing_of_host_memory)
{
	static uint8_t bytes[4096];

	open_rig();
	rig.net.takes_gpu_memory = 1;
	rig.transport.is_tried_in_place = is_untried;
	ck_assert_int_eq(open_set("direct", on_one_gpu, 4), 0);
	ck_assert_int_eq(is_written_in_place(bytes, 0), 0);
	ck_assert_int_eq(is_written_in_place(NULL, device_address(bytes)), 1);
	close_rig();
}
END_TEST

static const char *const wrong[] = { "auto", "untested", "directly", "1" };

/* _i: of wrong */
START_TEST(test_other_words_are_refused)
{
	char said[64];

	open_rig();
	ck_assert_int_eq(open_set(wrong[_i], on_one_gpu, 4), CEOV_ERR_INVALID);
	snprintf(said, sizeof(said), "CEOVERLAP_GPU_DIRECT is '%s'", wrong[_i]);
	testing_log_has(&rig.log, said, "must be staged or direct", NULL);
	close_rig();
}
END_TEST

static int open_any(struct cei_transport *transport, const char **ret_why)
{
	ck_assert_ptr_null(transport->config.device);
	*ret_why = "this is a test";
	return CEOV_NONE;
}

/* _i: why nothing is chosen. Then one rail is opened without a name; that it does not open harms no
 * group of one node. */
START_TEST(test_without_a_choice_the_transport_chooses)
{
	open_rig();
	rig.transport.open = open_any;
	if (_i == 1)
		usable.n = 0;
	if (_i == 2)
		rig.machine->n_nics = 0;
	if (_i == 3)
		rig.transport.devices = NULL;
	ck_assert_int_eq(open_network(_i ? on_gpus : on_host, 2, NULL), 0);
	testing_log_has(&rig.log, "info", "the rail is on any network interface", NULL);
	ck_assert_ptr_null(cei_network_rail(rig.network));
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("network_rail");
	TCase *tcase = tcase_create("rail");

	tcase_add_test(tcase, test_the_first_member_decides);
	tcase_add_loop_test(tcase, test_what_is_named_is_opened, 0, 2);
	tcase_add_test(tcase, test_a_wrong_setting_is_refused);
	tcase_add_loop_test(tcase, test_bytes_of_gpus_are_staged, 0, 3);
	tcase_add_test(tcase, test_direct_is_taken_at_its_word);
	tcase_add_test(tcase, test_direct_that_cannot_be_is_refused);
	tcase_add_test(tcase, test_direct_says_nothing_of_host_memory);
	tcase_add_loop_test(tcase, test_other_words_are_refused, 0, 4);
	tcase_add_loop_test(tcase, test_without_a_choice_the_transport_chooses, 0, 4);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
