/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests settings from ceov_open()'s config and from the environment, and what is refused. */

#include <check.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/variables.h"
#include "ce_engine/objects/context.h"
#include "ce_engine/objects/plan.h"
#include "testing.h"

static struct testing_log log_of;

static void set_up(void)
{
	testing_log_init(&log_of);
	unsetenv("CEOVERLAP_RANK");
	unsetenv("CEOVERLAP_RANKS");
	unsetenv("CEOVERLAP_GROUP");
	unsetenv("CEOVERLAP_LOG");
	setenv("CEOVERLAP_PLACE", "host", 1);
}

static void refused(const struct ceov_config *config, const char *text, const char *more)
{
	ceov_context *context = NULL;

	testing_log_clear(&log_of);
	ck_assert_int_eq(ceov_open(config, &context), CEOV_ERR_INVALID);
	ck_assert_ptr_null(context);
	testing_log_has(&log_of, text, more, NULL);
}

static struct ceov_config from_environment(void)
{
	struct ceov_member none;
	struct ceov_config config = testing_config(&none, 0, &log_of);

	config.members = NULL;
	config.n_ranks = 1;
	return config;
}

static void refused_value(const char *name, const char *value)
{
	struct ceov_config config = from_environment();

	setenv(name, value, 1);
	refused(&config, name, value);
	unsetenv(name);
}

START_TEST(test_a_group_whose_folder_is_not_there)
{
	struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = testing_config(&member, 1, &log_of);
	ceov_context *context = NULL;

	config.n_ranks = 2;
	config.group = "/nowhere/at/all";
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_SYSTEM);
	testing_log_has(&log_of, "cannot meet at /nowhere/at/all, ", "its folder must exist", NULL);
}
END_TEST

START_TEST(test_environment_is_refused_where_it_makes_no_sense)
{
	struct ceov_config config = from_environment();

	refused_value("CEOVERLAP_RANKS", "four");
	refused_value("CEOVERLAP_RANKS", "-1");
	refused_value("CEOVERLAP_RANKS", "4x");
	refused_value("CEOVERLAP_RANKS", "65537");
	refused_value("CEOVERLAP_RANKS", "18446744073709551617");
	refused_value("CEOVERLAP_RANK", "0x1");
	refused_value("CEOVERLAP_RANK", "99999999999");
	refused_value("CEOVERLAP_HOST_COPY_DELAY_NS", "fast");
	refused_value("CEOVERLAP_HOST_COPY_DELAY_NS", "1ms");
	refused_value("CEOVERLAP_HOST_COPY_FAIL_AT", "-1");
	refused_value("CEOVERLAP_HOST_COPY_FAIL_AT", " 1");
	refused_value("CEOVERLAP_HOST_COPY_LOSE_AT", "18446744073709551616");
	refused_value("CEOVERLAP_PLACE", "gpu");
	refused_value("CEOVERLAP_PLACE", "gpu:");
	refused_value("CEOVERLAP_PLACE", "gpu:x");
	refused_value("CEOVERLAP_PLACE", "gpu:1x");
	refused_value("CEOVERLAP_PLACE", "gpu:-1");
	refused_value("CEOVERLAP_PLACE", "gpu: 1");
	refused_value("CEOVERLAP_PLACE", "cpu");
	setenv("CEOVERLAP_PLACE", "host", 1);
	setenv("CEOVERLAP_RANK", "1", 1);
	refused(&config, "has rank 1 (by CEOVERLAP_RANK), but the group has 1", NULL);
	setenv("CEOVERLAP_RANKS", "2", 1);
	refused(&config, "CEOVERLAP_GROUP", "2 ranks");
	setenv("CEOVERLAP_RANKS", "0", 1);
	refused(&config, "n_ranks is 0", NULL);
}
END_TEST

/* What lies behind the struct of a caller with an older header is not the struct's. */
START_TEST(test_config_of_an_older_header_is_read_to_its_end)
{
	struct ceov_member member;
	struct ceov_config config = testing_config(&member, 1, &log_of);
	const size_t older_bytes = offsetof(struct ceov_config, network);
	ceov_context *context = NULL;

	memset((unsigned char *)&config + older_bytes, 0x5a, sizeof(config) - older_bytes);
	config.struct_bytes = older_bytes;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
}
END_TEST

/* What it says of the network counts, unless it sets what this library does not know. */
START_TEST(test_network_of_a_newer_header_is_read)
{
	struct {
		struct ceov_network known;
		size_t              more;
	} newer = { .known = CEOV_NETWORK_INIT };
	struct ceov_config config = from_environment();
	ceov_context *context;

	newer.known.struct_bytes = sizeof(newer);
	newer.known.bootstrap = CEOV_BOOTSTRAP_ALONE;
	config.network = &newer.known;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
	newer.more = 1;
	refused(&config, "config.network", "does not know");
}
END_TEST

START_TEST(test_task_of_several_is_alone_if_it_is_told_so)
{
	struct ceov_config config = from_environment();
	ceov_context *context;

	setenv("SLURM_PROCID", "1", 1);
	setenv("SLURM_STEP_NUM_TASKS", "2", 1);
	refused(&config, "to meet the others", "=alone");
	setenv("CEOVERLAP_RANK", "0", 1);
	refused(&config, "to meet the others", "=alone");
	setenv("CEOVERLAP_RANKS", "1", 1);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_environment_is_used)
{
	struct ceov_config config = from_environment();
	ceov_context *context = NULL;
	ceov_buffer *buffer = NULL;

	ck_assert_int_eq(ceov_open(NULL, &context), 0);
	ceov_close(context);
	setenv("CEOVERLAP_RANK", "", 1);
	setenv("CEOVERLAP_RANKS", "1", 1);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ck_assert_int_eq(ceov_buffer_create(context, 0, 10, &buffer), 0);
	ck_assert_ptr_nonnull(ceov_buffer_base(buffer, 0));
	ceov_close(context);
}
END_TEST

static uint32_t urgency_with(const char *class, uint32_t urgency)
{
	struct ceov_plan_options options = { .struct_bytes = sizeof(options),
					     .urgency = urgency };
	struct ceov_config config = from_environment();
	ceov_context *context = NULL;
	ceov_plan *plan = NULL;

	setenv("CEOVERLAP_CLASS", class, 1);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	unsetenv("CEOVERLAP_CLASS");
	ck_assert_int_eq(ceov_plan_create(context, 0, &options, &plan), 0);
	urgency = plan->program.urgency;
	ceov_close(context);
	return urgency;
}

START_TEST(test_a_class_holds_for_plans_that_say_normal)
{
	const uint32_t normal = CEOV_URGENCY_NORMAL, urgent = CEOV_URGENCY_URGENT;
	const uint32_t background = CEOV_URGENCY_BACKGROUND;

	refused_value("CEOVERLAP_CLASS", "high");
	ck_assert_uint_eq(urgency_with("normal", normal), normal);
	ck_assert_uint_eq(urgency_with("urgent", normal), urgent);
	ck_assert_uint_eq(urgency_with("background", normal), background);
	ck_assert_uint_eq(urgency_with("background", urgent), urgent);
	ck_assert_uint_eq(urgency_with("urgent", background), background);
}
END_TEST

static void open_and_close(void)
{
	struct ceov_config config = from_environment();
	ceov_context *context = NULL;

	testing_log_clear(&log_of);
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
}

/* Each unknown name gets one warning, which suggests the name that was probably meant. */
START_TEST(test_names_that_nobody_reads_are_warned_of)
{
	char name[200];
	int i;

	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 0);
	setenv("CEOVERLAP_RUNK", "1", 1);
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 1);
	testing_log_has(&log_of, "warning", "CEOVERLAP_RUNK:", "CEOVERLAP_RANK meant");
	unsetenv("CEOVERLAP_RUNK");
	setenv("CEOVERLAP_FAIL_AT_ALL", "1", 1);
	open_and_close();
	testing_log_has(&log_of, "CEOVERLAP_FAIL_AT_ALL:", "ceoverlap-info", NULL);
	unsetenv("CEOVERLAP_FAIL_AT_ALL");
	for (i = 0; i < 12; i++) {
		snprintf(name, sizeof(name), "CEOVERLAP_%0*d\033", 8 * i + 1, i);
		setenv(name, "1", 1);
	}
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 9);
	testing_log_has(&log_of, "and 4 more variables", NULL, NULL);
	testing_log_has(&log_of, "CEOVERLAP_0?:", NULL, NULL);
}
END_TEST

START_TEST(test_what_replaces_a_variable_is_said)
{
	setenv("CEOVERLAP_GPU_DIRECT_TEST", "/a/program", 1);
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 1);
	testing_log_has(&log_of, "CEOVERLAP_GPU_DIRECT_TEST any more:",
			"CEOVERLAP_GPU_DIRECT=direct", NULL);
	setenv("CEOVERLAP_FOLDER", "/a/folder", 1);
	open_and_close();
	testing_log_has(&log_of, "CEOVERLAP_FOLDER any more:", "CEOVERLAP_STORE", NULL);
	setenv("CEOVERLAP_SECRET", "guess", 1);
	open_and_close();
	testing_log_has(&log_of, "CEOVERLAP_SECRET any more:", "CEOVERLAP_JOB", NULL);
}
END_TEST

static void assert_meant(const char *name, const char *wanted)
{
	const char *nearest = cei_variable_nearest(name, strlen(name));

	if (wanted)
		ck_assert_pstr_eq(nearest, wanted);
	else
		ck_assert_ptr_null(nearest);
}

START_TEST(test_what_is_meant_is_guessed)
{
	assert_meant("CEOVERLAP_GRUP", "CEOVERLAP_GROUP");
	assert_meant("CEOVERLAP_TRACES", "CEOVERLAP_TRACE");
	assert_meant("CEOVERLAP_HOST_FAIL_AT", NULL);
	assert_meant("CEOVERLAP_HOST_COPY_FAILS", "CEOVERLAP_HOST_COPY_FAIL_AT");
	assert_meant("CEOVERLAP_HOSTCOPY_FAILAT", "CEOVERLAP_HOST_COPY_FAIL_AT");
}
END_TEST

START_TEST(test_names_that_others_read_are_known)
{
	setenv("CEOVERLAP_LIBRARY", "x", 1);
	setenv("CEOVERLAP_LIBRARY_DIR", "x", 1);
	setenv("CEOVERLAP_CONFIGURE_FLAGS", "x", 1);
	setenv("CEOVERLAP_TEST_ANYTHING", "x", 1);
	setenv("CEOVERLAP_LITMUS_ROUNDS", "x", 1);
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 0);
}
END_TEST

START_TEST(test_a_level_that_is_none_is_said)
{
	setenv("CEOVERLAP_LOG", "foo", 1);
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 1);
	testing_log_has(&log_of, "CEOVERLAP_LOG is 'foo'", "warn holds", NULL);
	setenv("CEOVERLAP_LOG", "error", 1);
	open_and_close();
	ck_assert_uint_eq(log_of.n_lines, 0);
}
END_TEST

START_TEST(test_config_is_refused_where_it_makes_no_sense)
{
	struct ceov_member members[17];
	struct ceov_config config = testing_config(members, 16, &log_of);
	ceov_context *context = NULL;

	ck_assert_int_eq(ceov_open(&config, NULL), CEOV_ERR_INVALID);
	config.struct_bytes--;
	ck_assert_int_eq(ceov_open(&config, &context), CEOV_ERR_INVALID);
	config = testing_config(members, 17, &log_of);
	refused(&config, "n_members is 17", "1 to 16");
	config = testing_config(members, 2, &log_of);
	config.n_members = 0;
	refused(&config, "n_members is 0", NULL);
	config.n_members = 2;
	config.n_ranks = 65537;
	refused(&config, "n_ranks is 65537", "1 to 65536");
	config.group = "/nowhere/at/all";
	config.n_ranks = 65;
	refused(&config, "the node has 65 ranks", "more than 64");
	config.group = NULL;
	config.n_ranks = 1;
	refused(&config, "member 1 has rank 1,", NULL);
	config.n_ranks = 3;
	refused(&config, "3 ranks and this process 2", NULL);
	config.n_ranks = 2;
	members[1].rank = 0;
	refused(&config, "members 0 and 1 are both rank 0", NULL);
	members[1].rank = 1;
	members[1].place.kind = (enum ceov_place_kind)7;
	refused(&config, "member 1 has no valid place", NULL);
	members[1].place.kind = CEOV_PLACE_GPU;
	members[1].place.index = CEOV_NOBODY;
	refused(&config, "member 1 wants GPU", "0 to 1023");
	members[1].place.kind = CEOV_PLACE_HOST;
	members[1].place.index = 3;
	refused(&config, "member 1 is on the host", "place.index 3");
	members[1].place.index = 0;
	members[0].place.index = CEOV_NOBODY;   /* an invalid index, which is not the same as no
						 * member */
	refused(&config, "member 0 is on the host", NULL);
	members[0].place.index = 0;
	config.progress_by_caller = 7;
	refused(&config, "progress_by_caller is 7", "0 or 1");
	config.progress_by_caller = -1;
	refused(&config, "progress_by_caller is -1", "0 or 1");
	config.progress_by_caller = 0;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_sixteen_members_open)
{
	ceov_context *context = testing_open(16, NULL);
	uint32_t i;

	for (i = 0; i < 16; i++)
		(void)testing_signal(context, i, 1);
	ceov_close(context);
	ceov_close(NULL);
}
END_TEST

/* The node's number comes from the kernel and is the same for every process on the machine. */
START_TEST(test_a_group_at_one_socket_is_one_node)
{
	ceov_context *context = testing_open(3, NULL);
	const struct cei_site *site = &context->site;

	ck_assert_uint_ne(cei_site_own_node(), 0);
	ck_assert_uint_eq(cei_site_own_node(), cei_site_own_node());
	ck_assert_uint_eq(cei_site_n_local(site), 3);
	ck_assert_uint_eq(cei_site_first_local(site), 0);
	ck_assert(cei_site_is_local(site, 2));
	ck_assert(!cei_site_is_local(site, 3));
	ck_assert_uint_eq(cei_site_local_index(site, 2), 2);
	ceov_close(context);
}
END_TEST

/* What such a process writes to stderr must not go into a buffer, which is a file. */
START_TEST(test_process_without_standard_descriptors)
{
	const char line[] = "a line that somebody writes";
	const uint64_t n_bytes = 4096;
	ceov_context *context;
	ceov_buffer *buffers[3];
	uint64_t same = 0;
	int fd, kept[3];
	uint32_t i;

	for (fd = 0; fd < 3; fd++) {
		kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
		close(fd);
	}
	context = testing_open(1, &log_of);
	for (i = 0; i < 3; i++) {
		buffers[i] = testing_buffer(context, 0, n_bytes);
		memset(ceov_buffer_base(buffers[i], 0), 7, n_bytes);
	}
	for (fd = 0; fd < 3; fd++) {
		(void)!write(fd, line, sizeof(line));
		dup2(kept[fd], fd);
	}
	for (i = 0; i < 3; i++)
		same += testing_check_same(ceov_buffer_base(buffers[i], 0), n_bytes, 7);
	ck_assert_uint_eq(same, 3 * n_bytes);
	ceov_close(context);
}
END_TEST

START_TEST(test_ranks_of_several_nodes)
{
	static const uint64_t nodes[] = { 7, 9, 7, 9, 9 };
	struct cei_site site = { .n_ranks = 5, .n_members = 1, .nodes = nodes };

	site.members[0].rank = 4;
	ck_assert_uint_eq(cei_site_n_local(&site), 3);
	ck_assert_uint_eq(cei_site_first_local(&site), 1);
	ck_assert(cei_site_is_local(&site, 3));
	ck_assert(!cei_site_is_local(&site, 2));
	ck_assert(!cei_site_is_local(&site, 5));
	ck_assert_uint_eq(cei_site_local_index(&site, 1), 0);
	ck_assert_uint_eq(cei_site_local_index(&site, 4), 2);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("settings");
	TCase *all = tcase_create("settings");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_group_whose_folder_is_not_there);
	tcase_add_test(all, test_environment_is_refused_where_it_makes_no_sense);
	tcase_add_test(all, test_config_of_an_older_header_is_read_to_its_end);
	tcase_add_test(all, test_network_of_a_newer_header_is_read);
	tcase_add_test(all, test_task_of_several_is_alone_if_it_is_told_so);
	tcase_add_test(all, test_environment_is_used);
	tcase_add_test(all, test_a_class_holds_for_plans_that_say_normal);
	tcase_add_test(all, test_names_that_nobody_reads_are_warned_of);
	tcase_add_test(all, test_what_replaces_a_variable_is_said);
	tcase_add_test(all, test_what_is_meant_is_guessed);
	tcase_add_test(all, test_names_that_others_read_are_known);
	tcase_add_test(all, test_a_level_that_is_none_is_said);
	tcase_add_test(all, test_config_is_refused_where_it_makes_no_sense);
	tcase_add_test(all, test_sixteen_members_open);
	tcase_add_test(all, test_a_group_at_one_socket_is_one_node);
	tcase_add_test(all, test_process_without_standard_descriptors);
	tcase_add_test(all, test_ranks_of_several_nodes);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
