/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What users of a daemon may have together. */

#include <check.h>
#include <string.h>

#include "daemon/server/account.h"
#include "testing.h"

#define UID   1000u
#define OTHER 1001u
#define FDS   100u

static struct cei_limits_table limits;
static struct cei_accounts accounts;

static void set_up(void)
{
	memset(&limits, 0, sizeof(limits));
	limits.all = cei_limits_default();
	limits.all.n_clients = 3;
	limits.all.n_clients_uid = 2;
	limits.all.n_bytes = 70;
	limits.all.n_bytes_uid = 100;
	cei_accounts_init(&accounts, &limits);
	cei_accounts_limit_fds(&accounts, FDS);
}

static void tear_down(void)
{
	cei_accounts_fini(&accounts);
}

static struct cei_account *enter(uint32_t uid)
{
	struct cei_account *account = NULL;

	ck_assert_ptr_null(cei_account_enter(&accounts, uid, &account));
	return account;
}

START_TEST(test_clients_are_counted)
{
	struct cei_account *account = enter(UID), *other;

	ck_assert_ptr_eq(enter(UID), account);
	ck_assert_str_eq(cei_account_enter(&accounts, UID, &other), "clients_per_user");
	other = enter(OTHER);
	ck_assert_ptr_ne(other, account);
	ck_assert_str_eq(cei_account_enter(&accounts, OTHER + 1, &other), "clients");
	cei_account_leave(&accounts, account);
	ck_assert_ptr_eq(enter(UID), account);
	cei_account_leave(&accounts, account);
	cei_account_leave(&accounts, account);
	cei_account_leave(&accounts, other);
}
END_TEST

START_TEST(test_bytes_come_back_to_the_user)
{
	struct cei_account *account = enter(UID);
	uint64_t first = 0, second = 0;
	uint32_t i;

	(void)enter(UID);
	for (i = 0; i < 3; i++) {
		ck_assert_ptr_null(cei_account_take(&accounts, account, &first, 70));
		ck_assert_str_eq(cei_account_take(&accounts, account, &first, 1), "bytes");
		ck_assert_str_eq(cei_account_take(&accounts, account, &second, 31),
				 "bytes_per_user");
		ck_assert_ptr_null(cei_account_take(&accounts, account, &second, 30));
		ck_assert_uint_eq(account->n_bytes, 100);
		cei_account_give_back(&accounts, account, &first, 70);
		cei_account_give_back(&accounts, account, &second, 30);
		ck_assert_uint_eq(first | second | account->n_bytes, 0);
	}
	ck_assert_str_eq(cei_account_take(&accounts, account, &first, UINT64_MAX), "bytes");
	cei_account_leave(&accounts, account);
	cei_account_leave(&accounts, account);
}
END_TEST

START_TEST(test_descriptors_are_counted_by_user)
{
	struct cei_account *account = enter(UID), *other = enter(OTHER);
	uint64_t first = 0, second = 0;
	uint32_t i;

	for (i = 0; i < 3; i++) {
		ck_assert_str_eq(cei_account_take_fds(&accounts, account, &first, FDS / 2 + 1),
				 "descriptors_per_user");
		ck_assert_ptr_null(cei_account_take_fds(&accounts, account, &first, FDS / 2));
		ck_assert_str_eq(cei_account_take_fds(&accounts, account, &first, 1),
				 "descriptors_per_user");
		ck_assert_ptr_null(cei_account_take_fds(&accounts, other, &second, FDS / 2));
		cei_account_give_back_fds(&accounts, account, &first, FDS / 2);
		cei_account_give_back_fds(&accounts, other, &second, FDS / 2);
		ck_assert_uint_eq(first | second | accounts.n_fds, 0);
	}
	cei_account_leave(&accounts, account);
	cei_account_leave(&accounts, other);
}
END_TEST

START_TEST(test_all_descriptors_are_bounded_whatever_the_users_limits)
{
	struct cei_account *account, *other;
	uint64_t first = 0, second = 0;

	limits.all.n_fds_uid = 2 * FDS;
	cei_accounts_limit(&accounts, &limits);
	account = enter(UID);
	other = enter(OTHER);
	ck_assert_ptr_null(cei_account_take_fds(&accounts, account, &first, FDS - 10));
	ck_assert_str_eq(cei_account_take_fds(&accounts, other, &second, 11), "LimitNOFILE=");
	ck_assert_ptr_null(cei_account_take_fds(&accounts, other, &second, 10));
	ck_assert_str_eq(cei_account_take_fds(&accounts, account, &first, 11),
			 "descriptors_per_user");
	cei_account_give_back_fds(&accounts, account, &first, first);
	cei_account_give_back_fds(&accounts, other, &second, second);
	cei_account_leave(&accounts, account);
	cei_account_leave(&accounts, other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("daemon account");
	TCase *tests = tcase_create("account");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_test(tests, test_clients_are_counted);
	tcase_add_test(tests, test_bytes_come_back_to_the_user);
	tcase_add_test(tests, test_descriptors_are_counted_by_user);
	tcase_add_test(tests, test_all_descriptors_are_bounded_whatever_the_users_limits);
	suite_add_tcase(suite, tests);
	return testing_run(suite);
}
