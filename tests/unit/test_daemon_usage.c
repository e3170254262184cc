/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what is shown of users: so many are told apart, all others are added up, nothing is lost,
 * and who has a row keeps it. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/operator/metrics.h"
#include "daemon/server/server.h"
#include "daemon/server/usage.h"
#include "testing.h"

#define MORE 30u

static struct cei_usage random_usage(uint64_t *state)
{
	struct cei_usage usage;
	uint32_t i;

	memset(&usage, 0, sizeof(usage));
	for (i = 0; i < CEI_FLOWS_URGENCIES; i++)
		usage.bytes[i] = testing_below(state, UINT64_C(1) << 40);
	usage.n_launches = testing_below(state, 1000);
	usage.n_failed = testing_below(state, 10);
	usage.n_stayed = testing_below(state, 10);
	usage.n_clients = (uint32_t)testing_below(state, 10);
	usage.n_mapped = testing_below(state, UINT64_C(1) << 40);
	return usage;
}

START_TEST(test_users_beyond_the_table_are_added_up)
{
	struct cei_usage given[CEI_USAGE_USERS + 1], all, usage;
	uint64_t state = testing_seed(), n_bytes = 0;
	struct cei_usage_table table;
	uint32_t i, at, uid;

	memset(&table, 0, sizeof(table));
	memset(given, 0, sizeof(given));
	for (i = 0; i < CEI_USAGE_USERS + MORE; i++) {  /* who comes first has a row */
		usage = (struct cei_usage){ .n_launches = 0 };
		cei_usage_add(&table, 1000 + i, &usage);
	}
	ck_assert_uint_eq(table.n, CEI_USAGE_USERS + 1);
	for (i = 0; i < 5000; i++) {
		uid = (uint32_t)testing_below(&state, CEI_USAGE_USERS + MORE);
		at = uid < CEI_USAGE_USERS ? uid : CEI_USAGE_USERS;
		usage = random_usage(&state);
		cei_usage_add(&table, 1000 + uid, &usage);
		given[at].bytes[0] += usage.bytes[0];
		given[at].n_launches += usage.n_launches;
		n_bytes += usage.bytes[0];
	}
	ck_assert_uint_eq(table.n, CEI_USAGE_USERS + 1);
	for (i = 0; i <= CEI_USAGE_USERS; i++) {
		ck_assert_uint_eq(table.users[i].uid,
				  i < CEI_USAGE_USERS ? 1000 + i : CEI_USAGE_OTHERS);
		ck_assert_uint_eq(table.users[i].usage.bytes[0], given[i].bytes[0]);
		ck_assert_uint_eq(table.users[i].usage.n_launches, given[i].n_launches);
	}
	all = cei_usage_sum(&table);
	ck_assert_uint_eq(all.bytes[0], n_bytes);
}
END_TEST

/* As many rows as users are told apart, and one for all others, which has what they had. */
START_TEST(test_metrics_have_a_row_for_all_others)
{
	struct cei_server *server = calloc(1, sizeof(*server));
	struct cei_usage usage = { .n_clients = 1, .n_mapped = 5 };
	uint32_t i, n = 0;
	const char *at;
	char *text;

	ck_assert_ptr_nonnull(server);
	cei_list_init(&server->clients);
	server->works.site = &server->site;
	for (i = 0; i < CEI_USAGE_USERS + MORE; i++)
		cei_usage_add(&server->usage, 1000 + i, &usage);
	text = cei_metrics_text(server);
	ck_assert_ptr_nonnull(text);
	for (at = text; (at = strstr(at, "\nceoverlap_user_mapped_bytes{")); at++)
		n++;
	ck_assert_uint_eq(n, CEI_USAGE_USERS + 1);
	ck_assert_ptr_nonnull(strstr(text, "user_mapped_bytes{uid=\"1063\"} 5\n"));
	ck_assert_ptr_null(strstr(text, "uid=\"1064\""));
	ck_assert_ptr_nonnull(strstr(text, "user_mapped_bytes{uid=\"other\"} 150\n"));
	ck_assert_ptr_nonnull(strstr(text, "\nceoverlap_clients 94\n"));
	free(text);
	free(server);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("daemon_usage");
	TCase *cases = tcase_create("usage");

	tcase_add_test(cases, test_users_beyond_the_table_are_added_up);
	tcase_add_test(cases, test_metrics_have_a_row_for_all_others);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
