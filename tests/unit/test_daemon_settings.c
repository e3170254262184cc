/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the daemon's configuration file: what is read, that a wrong line is named and changes
 * nothing, and whose limits hold. */

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "daemon/server/account.h"
#include "daemon/server/settings.h"
#include "testing.h"

static char path[200];

static void write_file(const char *text)
{
	FILE *file;

	testing_path("d.conf", path, sizeof(path));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	ck_assert_int_ge(fputs(text, file), 0);
	ck_assert_int_eq(fclose(file), 0);
}

static struct cei_settings reads(const char *text)
{
	struct cei_settings settings;
	struct cei_settings_fault fault = { "" };
	int r;

	write_file(text);
	r = cei_settings_read(path, &settings, &fault);
	ck_assert_msg(!r, "%s", fault.text);
	unlink(path);
	return settings;
}

/* The message names the line, and has the words. */
static void refuses(const char *text, int line, const char *words)
{
	struct cei_settings settings;
	struct cei_settings_fault fault = { "" };
	char place[240];

	memset(&settings, 0x5a, sizeof(settings));
	write_file(text);
	ck_assert_int_eq(cei_settings_read(path, &settings, &fault), CEOV_ERR_INVALID);
	snprintf(place, sizeof(place), "%s:%d: ", path, line);
	ck_assert_msg(!strncmp(fault.text, place, strlen(place)), "'%s' is not at line %d",
		      fault.text, line);
	ck_assert_msg(strstr(fault.text, words) != NULL, "'%s' has no '%s'", fault.text, words);
	ck_assert_uint_eq(settings.mode, 0x5a5a5a5au);
	unlink(path);
}

START_TEST(test_lines_may_be_indented)
{
	struct cei_settings settings = reads("[daemon]\n  mode = 0660\n\tdrain_seconds = 5\n");

	ck_assert_uint_eq(settings.mode, 0660);
	ck_assert_uint_eq(settings.drain_ns, 5 * TESTING_SECOND);
}
END_TEST

START_TEST(test_values_are_read)
{
	struct cei_settings settings = reads(
		"# a comment\n[daemon]\nsocket = /tmp/x ; another\nmode = 0660\ngroup = 7\n"
		"drain_seconds=3\n[limits]\nbytes = 3G\nplans = 5\nclass = background\n"
		"bytes_per_second = 2K\n[classes]\nnormal = 9\nurgent_us = 20\nslo_urgent_us = 7\n"
		"[metrics]\nhttp_port = 9000\ntextfile = /tmp/y\n");

	ck_assert_str_eq(settings.socket, "/tmp/x");
	ck_assert_uint_eq(settings.mode, 0660);
	ck_assert_uint_eq(settings.group, 7);
	ck_assert_uint_eq(settings.drain_ns, 3 * TESTING_SECOND);
	ck_assert_uint_eq(settings.limits.all.n_bytes, UINT64_C(3) << 30);
	ck_assert_uint_eq(settings.limits.all.n_plans, 5);
	ck_assert_uint_eq(settings.limits.all.most_urgent, CEOV_URGENCY_BACKGROUND);
	ck_assert_uint_eq(settings.limits.all.bytes_per_s, 2048);
	ck_assert_uint_eq(settings.classes.normal, 9);
	ck_assert_uint_eq(settings.classes.background, CEI_FLOWS_BACKGROUND);
	ck_assert_uint_eq(settings.classes.urgent_ns, 20000);
	ck_assert_uint_eq(settings.slo_ns[CEOV_URGENCY_URGENT], 7000);
	ck_assert_uint_eq(settings.http_port, 9000);
	ck_assert_str_eq(settings.textfile, "/tmp/y");
}
END_TEST

START_TEST(test_an_empty_file_and_the_example_say_the_defaults)
{
	const char *srcdir = getenv("srcdir");
	struct cei_settings defaults = cei_settings_default(), settings = reads("");
	struct cei_settings_fault fault = { "" };
	char example[300];
	int r;

	ck_assert_int_eq(memcmp(&settings, &defaults, sizeof(settings)), 0);
	snprintf(example, sizeof(example), "%s/examples/ceoverlapd.conf", srcdir ? srcdir : "..");
	r = cei_settings_read(example, &settings, &fault);
	ck_assert_msg(!r, "%s", fault.text);
	ck_assert_int_eq(memcmp(&settings, &defaults, sizeof(settings)), 0);
}
END_TEST

START_TEST(test_users_have_limits_of_their_own)
{
	/* the user's section comes before what holds for everybody */
	struct cei_settings settings = reads("[user 77]\nweight = 3\nclass = normal\n"
		"[limits]\nplans = 9\nweight = 2\n[user root]\nbytes = 1M\n[user 77]\nplans = 4\n");
	const struct cei_limits *limits = cei_limits_of(&settings.limits, 77);

	ck_assert_uint_eq(settings.limits.n_users, 2);
	ck_assert_uint_eq(limits->weight, 3);
	ck_assert_uint_eq(limits->n_plans, 4);
	ck_assert_uint_eq(limits->most_urgent, CEOV_URGENCY_NORMAL);
	limits = cei_limits_of(&settings.limits, 0);
	ck_assert_uint_eq(limits->weight, 2);
	ck_assert_uint_eq(limits->n_plans, 9);
	ck_assert_uint_eq(limits->n_bytes, 1 << 20);
	ck_assert_ptr_eq(cei_limits_of(&settings.limits, 5), &settings.limits.all);
}
END_TEST

START_TEST(test_wrong_lines_are_named)
{
	char text[6000], more[400];
	uint32_t i;

	refuses("[limits]\nplans = 0\n", 2, "from 1 to 1024");
	refuses("[limits]\nplans = 5x\n", 2, "plans is '5x'");
	refuses("[limits]\nplans = -5\n", 2, "must be a number");
	refuses("[limits]\nbytes = 1KK\n", 2, "K, M, G or T");
	refuses("[limits]\nbytes = 99999999T\n", 2, "bytes is");
	refuses("[limits]\n\n\nplan = 5\n", 4, "plan is no setting");
	refuses("[limits]\nplans = 5\nplans = 5\n", 3, "set twice");
	refuses("[limits]\nclass = low\n", 2, "urgent, normal or background");
	refuses("plans = 5\n", 1, "is no section");
	refuses("[limit]\nplans = 5\n", 2, "limit is no section");
	refuses("[user nobody-at-all]\nplans = 5\n", 2, "names a user that there is not");
	refuses("[user 5]\nclients = 5\n", 2, "clients is no setting");
	refuses("[daemon]\nmode = 0777\n", 2, "octal number from 0600 to 0666");
	refuses("[daemon]\nmode = 0690\n", 2, "octal");
	refuses("[daemon]\nsocket = x\n", 2, "absolute path");
	refuses("[daemon]\ngroup = nothing-at-all\n", 2, "a group that there is not");
	refuses("[daemon\nmode = 0600\n", 1, "neither");
	refuses("[daemon]\nwhat is this\nmode = 0999\n", 2, "neither");
	memset(more, 'x', sizeof(more));
	more[sizeof(more) - 1] = 0;
	snprintf(text, sizeof(text), "[daemon]\n#%s\nmode = 1\n", more);
	refuses(text, 2, "too long");
	for (i = 0, text[0] = 0; i < 65; i++)
		sprintf(text + strlen(text), "[user %u]\nplans = 5\n", i);
	refuses(text, 130, "one user too many");
}
END_TEST

START_TEST(test_any_bytes_are_read_or_refused)
{
	static const char letters[] = "[]=;# \n\n\t0129KMGTabcdeilmnoprstuw_/user limits daemon";
	uint64_t seed = testing_seed();
	struct cei_settings settings;
	struct cei_settings_fault fault;
	char text[400];
	uint32_t i, k;

	for (i = 0; i < 2000; i++) {
		for (k = 0; k < sizeof(text) - 1; k++)
			text[k] = letters[testing_below(&seed, sizeof(letters) - 1)];
		text[sizeof(text) - 1] = 0;
		write_file(text);
		(void)cei_settings_read(path, &settings, &fault);
	}
	unlink(path);
}
END_TEST

START_TEST(test_a_file_that_is_not_there_is_said)
{
	struct cei_settings settings;
	struct cei_settings_fault fault = { "" };

	ck_assert_int_eq(cei_settings_read("/nowhere/d.conf", &settings, &fault),
			 CEOV_ERR_SYSTEM);
	ck_assert_ptr_nonnull(strstr(fault.text, "/nowhere/d.conf: it cannot be read: No such"));
	ck_assert_int_eq(cei_settings_read("/tmp", &settings, &fault), CEOV_ERR_SYSTEM);
}
END_TEST

START_TEST(test_what_holds_at_the_start_alone_is_named)
{
	struct cei_settings old = cei_settings_default(), new = old;

	new.limits.all.n_plans = 3;
	ck_assert_ptr_null(cei_settings_at_start(&old, &new));
	new.http_port = 9;
	ck_assert_str_eq(cei_settings_at_start(&old, &new), "http_port");
	strcpy(new.socket, "/x");
	ck_assert_str_eq(cei_settings_at_start(&old, &new), "socket");
}
END_TEST

START_TEST(test_accounts_follow_their_users_limits)
{
	struct cei_settings settings = reads("[limits]\nclients_per_user = 1\nbytes = 10\n");
	struct cei_account *account = NULL, *second;
	struct cei_accounts accounts;
	uint64_t n_bytes = 0;

	cei_accounts_init(&accounts, &settings.limits);
	ck_assert_ptr_null(cei_account_enter(&accounts, 7, &account));
	ck_assert_str_eq(cei_account_enter(&accounts, 7, &second), "clients_per_user");
	ck_assert_str_eq(cei_account_take(&accounts, account, &n_bytes, 11), "bytes");
	settings = reads("[user 7]\nclients_per_user = 2\nbytes = 11\nweight = 5\n");
	cei_accounts_limit(&accounts, &settings.limits);
	ck_assert_uint_eq(cei_account_limits(&accounts, account).weight, 5);
	ck_assert_ptr_null(cei_account_enter(&accounts, 7, &second));
	ck_assert_ptr_null(cei_account_take(&accounts, account, &n_bytes, 11));
	cei_account_give_back(&accounts, account, &n_bytes, 11);
	cei_account_leave(&accounts, second);
	cei_account_leave(&accounts, account);
	cei_accounts_fini(&accounts);
}
END_TEST

START_TEST(test_classes_are_capped)
{
	const uint32_t normal = CEOV_URGENCY_NORMAL, urgent = CEOV_URGENCY_URGENT;
	const uint32_t background = CEOV_URGENCY_BACKGROUND;

	ck_assert_uint_eq(cei_limits_cap(urgent, urgent), urgent);
	ck_assert_uint_eq(cei_limits_cap(normal, urgent), normal);
	ck_assert_uint_eq(cei_limits_cap(normal, background), background);
	ck_assert_uint_eq(cei_limits_cap(background, urgent), background);
	ck_assert_uint_eq(cei_limits_cap(background, normal), background);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("daemon settings");
	TCase *cases = tcase_create("daemon settings");

	tcase_add_test(cases, test_values_are_read);
	tcase_add_test(cases, test_lines_may_be_indented);
	tcase_add_test(cases, test_an_empty_file_and_the_example_say_the_defaults);
	tcase_add_test(cases, test_users_have_limits_of_their_own);
	tcase_add_test(cases, test_wrong_lines_are_named);
	tcase_add_test(cases, test_any_bytes_are_read_or_refused);
	tcase_add_test(cases, test_a_file_that_is_not_there_is_said);
	tcase_add_test(cases, test_what_holds_at_the_start_alone_is_named);
	tcase_add_test(cases, test_accounts_follow_their_users_limits);
	tcase_add_test(cases, test_classes_are_capped);
	tcase_set_timeout(cases, 60);           /* thousands of files are written */
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
