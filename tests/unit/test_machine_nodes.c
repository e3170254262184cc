/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what machine files say of devices on the PCI bus (what recorders and hypervisors leave
 * out), and shared ports up to the largest number. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "testing.h"
#include "topology/machine.h"
#include "topology/machine_builder.h"

#define CPU     " cpuset=\"0x1\" complete_cpuset=\"0x1\""
#define NODE_0  " nodeset=\"0x1\" complete_nodeset=\"0x1\""
#define MEMORY  "<object type=\"NUMANode\" os_index=\"0\"" CPU NODE_0 \
	" gp_index=\"5\" local_memory=\"1000000000\"/>"

static struct testing_log lines;
static struct cei_report report;

static void set_up(void)
{
	testing_log_init(&lines);
	cei_report_init(&report, testing_log_line, &lines);
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

/* --- ports that links share ----------------------------------------------------- */

static int add_port(struct cei_machine_builder *builder, const char *name)
{
	struct cei_machine_link link = { .n_ports = 0 };
	struct cei_machine_port port = { .bytes_per_s = 1 };
	int r;

	snprintf(port.name, sizeof(port.name), "%s", name);
	r = cei_builder_path_named(builder, &link, &port);
	ck_assert_uint_eq(link.n_ports, r ? 0 : 1);
	if (!r)
		ck_assert_str_eq(builder->machine->ports[link.ports[0]].name, name);
	return r;
}

/* --- devices on the bus ----------------------------------------------------------------- */

#define MODEL "NVIDIA A100-SXM4-40GB"
#define DEVICE(index, subtype, address, ids, speed, below) \
	"<object type=\"PCIDev\" gp_index=\"" index "\"" subtype " pci_busid=\"" address \
	"\" pci_type=\"" ids " a1\" pci_link_speed=\"" speed "\">" below "</object>"
#define GPU(index, address, speed) DEVICE(index "0", "", address, "0302 [10de:20b0] [10de:134f]", \
	speed, "<object type=\"OSDev\" gp_index=\"" index "1\" name=\"nvml\" osdev_type=\"1\">" \
	"<info name=\"GPUModel\" value=\"" MODEL "\"/></object>")
#define SWITCH_IDS "0680 [10de:1af1] [10de:1af1]"
#define UNREAD_IDS "0000 [0000:0000] [0000:0000]"
#define NVSWITCH(index, address, ids) \
	DEVICE(index, " subtype=\"NVSwitch\"", address, ids, "1.0", "")
#define HOST_BRIDGE "<object type=\"Bridge\" gp_index=\"90\" bridge_type=\"0-1\" depth=\"0\" " \
	"bridge_pci=\"0000:[00-ff]\">"
#define BRIDGE(index, depth, address, buses, speed) "<object type=\"Bridge\" gp_index=\"" index \
	"\" bridge_type=\"1-1\" depth=\"" depth "\" bridge_pci=\"0000:[" buses "]\" pci_busid=\"" \
	address "\" pci_type=\"0604 [104c:8232] [0000:0000] 02\" pci_link_speed=\"" speed "\">"
#define NVLINKS "<distances2hetero nbobjs=\"4\" kind=\"25\" name=\"NVLinkBandwidth\">" \
	"<indexes length=\"36\">OSDev:11 OSDev:21 PCIDev:3 PCIDev:4 </indexes><u64values " \
	"length=\"72\">0 0 100000 100000 0 0 100000 100000 100000 100000 0 0 100000 100000 0 0 " \
	"</u64values></distances2hetero>"

/* Reads the file of a machine with one node, these objects on its bus and what stands behind the
 * machine. */
static struct cei_machine *bus_of(const char *objects, const char *behind)
{
	struct cei_machine *machine = NULL;
	char text[8192], path[256];
	int n;

	n = snprintf(text, sizeof(text), "<topology version=\"2.0\"><object type=\"Machine\" "
		     "os_index=\"0\" cpuset=\"0x1\" complete_cpuset=\"0x1\" "
		     "allowed_cpuset=\"0x1\"" NODE_0 " allowed_nodeset=\"0x1\" gp_index=\"1\">"
		     MEMORY "<object type=\"PU\" os_index=\"0\"" CPU NODE_0 " gp_index=\"6\"/>"
		     HOST_BRIDGE "%s</object></object>%s</topology>", objects, behind);
	ck_assert_int_lt(n, (int)sizeof(text));
	testing_path("bus.xml", path, sizeof(path));
	ck_assert_int_eq(cei_file_replace(path, text, (uint64_t)n, 0600), 0);
	ck_assert_int_eq(cei_machine_read_xml(&report, path, &machine), 0);
	unlink(path);
	return machine;
}

START_TEST(test_a_switch_whose_ids_were_not_read_counts)
{
	static const char *const switches[] = {
		NVSWITCH("3", "0000:20:00.0", SWITCH_IDS) NVSWITCH("4", "0000:21:00.0", SWITCH_IDS),
		NVSWITCH("3", "0000:20:00.0", SWITCH_IDS) NVSWITCH("4", "0000:21:00.0", UNREAD_IDS),
	};
	struct cei_machine *machine;
	char objects[4096];

	snprintf(objects, sizeof(objects), "%s%s", GPU("1", "0000:10:00.0", "15.753846")
		 GPU("2", "0000:11:00.0", "15.753846"), switches[_i]);
	machine = bus_of(objects, NVLINKS);
	ck_assert_uint_eq(machine->n_gpus, 2);
	ck_assert_str_eq(machine->gpus[0].name, MODEL);
	/* two links of 100 GB/s, of which copies reach 82 % */
	ck_assert_uint_eq(cei_machine_link(machine, 0, 1)->bytes_per_s, UINT64_C(164000000000));
	cei_machine_destroy(machine);
}
END_TEST

/* The rate of the port with this name; 0: there is no such port. */
static uint64_t port_rate(const struct cei_machine *machine, const char *name)
{
	uint32_t i;

	for (i = 0; i < machine->n_ports; i++)
		if (!strcmp(machine->ports[i].name, name))
			return machine->ports[i].bytes_per_s;
	return 0;
}

START_TEST(test_a_rate_that_no_gpu_has_is_not_believed)
{
	struct cei_machine *machine = bus_of(GPU("1", "0000:10:00.0", "1.969231")
					     GPU("2", "0000:11:00.0", "7.876923"), "");
	uint64_t assumed = cei_link_default(CEI_DIRECTION_OUT)->bytes_per_s;

	ck_assert_uint_eq(port_rate(machine, "0000:10:00.0 up"), assumed);
	ck_assert_uint_eq(port_rate(machine, "0000:11:00.0 up"), UINT64_C(6695000000));
	cei_machine_destroy(machine);
}
END_TEST

START_TEST(test_ports_of_an_emulated_switch_are_functions_of_one_device)
{
	struct cei_machine *machine =
		bus_of(BRIDGE("91", "1", "0000:00:01.0", "01-04", "15.753846")
		       BRIDGE("92", "2", "0000:02:00.0", "03-03", "15.753846")
		       GPU("1", "0000:03:00.0", "15.753846") "</object>"
		       BRIDGE("93", "2", "0000:02:00.1", "04-04", "15.753846")
		       GPU("2", "0000:04:00.0", "15.753846") "</object></object>", "");

	ck_assert_uint_ne(port_rate(machine, "0000:00:01.0 up"), 0);
	cei_machine_destroy(machine);
}
END_TEST

/* --- ports ------------------------------------------------------------------------------ */

START_TEST(test_the_last_port_fits_and_no_more)
{
	struct cei_machine *machine = calloc(1, sizeof(*machine));
	struct cei_machine_builder builder = { .report = &report, .where = "here" };
	uint32_t i;

	ck_assert_ptr_nonnull(machine);
	builder.machine = machine;
	for (i = 0; i + 1 < CEI_MACHINE_PORTS_MAX; i++)
		snprintf(machine->ports[i].name, sizeof(machine->ports[i].name), "p%u", i);
	machine->n_ports = CEI_MACHINE_PORTS_MAX - 1;
	ck_assert_int_eq(add_port(&builder, "last"), 0);
	ck_assert_uint_eq(machine->n_ports, CEI_MACHINE_PORTS_MAX);
	ck_assert_int_eq(add_port(&builder, "one more"), CEOV_ERR_INVALID);
	ck_assert_uint_eq(machine->n_ports, CEI_MACHINE_PORTS_MAX);
	testing_log_has(&lines, "here: more than 2048 ports", NULL, NULL);
	ck_assert_int_eq(add_port(&builder, "p0"), 0);          /* ports that exist can still be
								 * used */
	ck_assert_int_eq(add_port(&builder, "last"), 0);
	free(machine);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("machine nodes");
	TCase *all = tcase_create("nodes");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_the_last_port_fits_and_no_more);
	tcase_add_loop_test(all, test_a_switch_whose_ids_were_not_read_counts, 0, 2);
	tcase_add_test(all, test_a_rate_that_no_gpu_has_is_not_believed);
	tcase_add_test(all, test_ports_of_an_emulated_switch_are_functions_of_one_device);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
