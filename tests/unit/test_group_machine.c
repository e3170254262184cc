/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Exports, finds and uses in the state machine of a group. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "group_rig.h"
#include "testing.h"

static struct rig rig;

static void make_two_near(void)
{
	rig_make(&rig, 2, 1, 1);
}

static void make_two_far(void)
{
	rig_make(&rig, 2, 2, 0);
}

static void finish(void)
{
	rig_free(&rig);
}

/* What process 1 finds at rank 0. */
static int find_result(const char *name)
{
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, name);
	ck_assert_int_eq(find.call.is_ended, 1);
	return find.call.result;
}

/* --- finding ----------------------------------------------------------------------------- */

START_TEST(test_what_is_exported_is_found_and_nothing_else)
{
	struct cei_group_export export = { .rank = 0, .name = "a", .n_bytes = 3,
					   .bytes = { 7, 8, 9 } };
	struct rig_find find;
	uint32_t id;

	ck_assert_int_eq(find_result("a"), CEOV_NONE);
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_uint_eq(find.found.id, id);
	ck_assert_uint_eq(find.found.generation, 1);
	ck_assert_uint_eq(find.found.n_bytes, 3);
	ck_assert_mem_eq(find.found.bytes, export.bytes, 3);
	ck_assert_int_eq(find_result("b"), CEOV_NONE);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 1);
}
END_TEST

START_TEST(test_ranks_and_names_that_cannot_be_found)
{
	struct rig_find find;
	char longest[CEI_GROUP_NAME_BYTES + 1];

	memset(longest, 'x', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	ck_assert_int_eq(find_result(""), CEOV_ERR_INVALID);
	ck_assert_int_eq(find_result(longest), CEOV_ERR_INVALID);
	rig_find(&rig, 1, &find, 1, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_INVALID);
	rig_find(&rig, 1, &find, 3, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_INVALID);
}
END_TEST

/* Names are a rank's, numbers a process's. */
START_TEST(test_several_ranks_of_a_process_export_the_same_name)
{
	uint32_t first = rig_export(&rig, 0, "a"), second = rig_export(&rig, 2, "a");
	struct rig_find find;

	ck_assert_uint_ne(first, second);
	rig_find(&rig, 1, &find, 2, "a");
	ck_assert_uint_eq(find.found.id, second);
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_uint_eq(find.found.id, first);
}
END_TEST

#define MANY 300u

/* Ranks 0 and 2 are of process 0, and each export is found twice. */
START_TEST(test_many_exports_and_uses_are_told_apart)
{
	static struct rig_find finds[4 * MANY];
	uint32_t i, rank, n_users = 0, ids[2 * MANY];
	char name[CEI_GROUP_NAME_BYTES];

	for (i = 0; i < 2 * MANY; i++) {
		snprintf(name, sizeof(name), "export %u", i / 2);
		ids[i] = rig_export(&rig, i % 2 ? 2 : 0, name);
	}
	for (i = 0; i < 4 * MANY; i++) {
		rank = i % 2 ? 2 : 0;
		snprintf(name, sizeof(name), "export %u", i % (2 * MANY) / 2);
		rig_find(&rig, 1, &finds[i], rank, name);
		ck_assert_uint_eq(finds[i].found.id, ids[i % (2 * MANY)]);
		if (i % 3 == 0)
			cei_group_drop(rig.groups[1], rank, finds[i].call.use);
		ck_assert_uint_eq(cei_group_generation(rig.groups[1], rank, finds[i].call.use),
				  i % 3 != 0);
	}
	rig_run(&rig);
	for (i = 0; i < 2 * MANY; i++)
		n_users += cei_group_n_users(rig.groups[0], ids[i]);
	ck_assert_uint_eq(n_users, 4 * MANY - 4 * MANY / 3);
}
END_TEST

START_TEST(test_an_export_needs_an_own_rank_and_a_free_name)
{
	struct cei_group_export export = { .rank = 1, .name = "a" };
	uint32_t id = 99;

	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), CEOV_ERR_INVALID);
	export.rank = 0;
	export.n_bytes = CEI_GROUP_BYTES_MAX + 1;
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), CEOV_ERR_INVALID);
	export.n_bytes = 0;
	export.fds.n = CEI_GROUP_FDS_MAX + 1;
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), CEOV_ERR_INVALID);
	export.fds.n = 0;
	rig_export(&rig, 0, "a");
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), CEOV_ERR_STATE);
	ck_assert_uint_eq(id, 99);
}
END_TEST

START_TEST(test_a_process_has_no_more_than_4096_exports)
{
	struct cei_group_export export = { .rank = 0 };
	uint32_t i, id;

	for (i = 0; i < CEI_GROUP_EXPORTS_MAX; i++) {
		snprintf(export.name, sizeof(export.name), "%u", i);
		ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	}
	strcpy(export.name, "one more");
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), CEOV_ERR_NO_MEMORY);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], 1, 0), 0);
	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	ck_assert_uint_eq(id, CEI_GROUP_EXPORTS_MAX + 1);
}
END_TEST

START_TEST(test_a_hidden_export_is_found_when_it_is_shown)
{
	struct cei_group_export export = { .rank = 0, .name = "a", .is_hidden = 1 };
	uint32_t id;

	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	ck_assert_int_eq(find_result("a"), CEOV_NONE);
	cei_group_show(rig.groups[0], id);
	ck_assert_int_eq(find_result("a"), 0);
}
END_TEST

/* --- withdrawing --------------------------------------------------------------------------- */

START_TEST(test_a_withdrawal_waits_for_users_but_its_name_is_free)
{
	uint32_t id = rig_export(&rig, 0, "a"), other;
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), CEOV_PENDING);
	ck_assert_int_eq(find_result("a"), CEOV_NONE);
	other = rig_export(&rig, 0, "a");
	ck_assert_uint_ne(other, id);
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), 0);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], other, 0), 0);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], 77, 0), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_a_forced_withdrawal_forgets_users_whose_drops_still_come)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 1), 0);
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
}
END_TEST

/* Its reply waits for room. */
START_TEST(test_a_find_is_answered_in_spite_of_a_forced_withdrawal)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig.is_full[0][1] = 1;
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, _i), _i ? 0 : CEOV_PENDING);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 1), 0);
	rig.is_full[0][1] = 0;
	cei_group_ready(rig.groups[0], 1);
	rig_run(&rig);
	ck_assert_int_eq(find.call.is_ended, 1);
	ck_assert_int_eq(find.call.result, CEOV_NONE);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[0]), 0);
}
END_TEST

START_TEST(test_the_uses_of_a_lost_process_end)
{
	uint32_t id = rig_export(&rig, 0, "a");

	ck_assert_int_eq(find_result("a"), 0);
	rig_kill(&rig, 1);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), 0);
}
END_TEST

/* --- descriptors ------------------------------------------------------------------------------ */

static uint32_t export_with_fds(void)
{
	struct cei_group_export export = { .rank = 0, .name = "a",
					   .fds = { 2, { 50, 51 } } };
	uint32_t id;

	ck_assert_int_eq(cei_group_export(rig.groups[0], &export, &id), 0);
	return id;
}

START_TEST(test_descriptors_go_to_processes_of_the_node)
{
	uint32_t id = export_with_fds();
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_uint_eq(find.found.fds.n, 2);
	ck_assert_int_eq(find.found.fds.fds[1], 51);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), CEOV_PENDING);
	ck_assert_uint_eq(rig.n_closed[0], 0);
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	ck_assert_uint_eq(rig.n_closed[0], 2);  /* given back at the last drop */
}
END_TEST

START_TEST(test_a_forced_withdrawal_gives_descriptors_back)
{
	uint32_t id = export_with_fds();

	ck_assert_int_eq(find_result("a"), 0);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), CEOV_PENDING);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 1), 0);
	rig_run(&rig);
	ck_assert_uint_eq(rig.n_closed[0], 2);
}
END_TEST

/* Also of what others still use, and when they do not hear the farewell, for which time is short or
 * over. */
START_TEST(test_who_has_left_gets_all_descriptors_back)
{
	struct cei_group_call call = { .deadline_ns = rig.now_ns + (uint64_t)_i * TESTING_MS };
	uint32_t id = export_with_fds();

	rig_wait(&rig, 50 * TESTING_MS);
	rig_export(&rig, 0, "b");
	ck_assert_int_eq(find_result("a"), 0);
	rig.is_full[0][1] = _i != 1000;
	cei_group_leave(rig.groups[0], &call);
	rig_wait(&rig, 200 * TESTING_MS);
	ck_assert_int_eq(call.is_ended, 1);
	ck_assert_int_eq(call.result, _i == 1000 ? 0 : CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(rig.n_closed[0], 2);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 0), 0);
}
END_TEST

START_TEST(test_descriptors_do_not_go_to_other_nodes)
{
	struct rig_find find;

	export_with_fds();
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_uint_eq(find.found.fds.n, 0);
}
END_TEST

START_TEST(test_a_find_without_its_descriptors_fails_and_is_dropped)
{
	uint32_t id = export_with_fds();
	struct rig_find find;

	rig.fds_vanish = 1;
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_SYSTEM);
	ck_assert_int_eq(find.call.native_code, EMFILE);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
}
END_TEST

START_TEST(test_who_cannot_send_descriptors_says_why)
{
	uint32_t id = export_with_fds();
	struct rig_find find;

	rig.fds_fail = ETOOMANYREFS;
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_int_eq(find.call.result, CEOV_ERR_SYSTEM);
	ck_assert_int_eq(find.call.native_code, ETOOMANYREFS);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
}
END_TEST

/* --- deadlines, late and repeated messages --------------------------------------------------- */

START_TEST(test_a_find_ends_after_10_seconds_at_most)
{
	struct rig_find find = { .call.deadline_ns = UINT64_MAX };

	rig.is_held[1][0] = 1;
	find.call.found = &find.found;
	cei_group_find(rig.groups[1], &find.call, 0, "a");
	rig_run(&rig);
	rig_wait(&rig, CEI_GROUP_FIND_NS - TESTING_MS);
	ck_assert_int_eq(find.call.is_ended, 0);
	rig_wait(&rig, TESTING_MS);
	ck_assert_int_eq(find.call.result, CEOV_ERR_TIMEOUT);
	ck_assert_uint_eq(find.call.blame, 0);
}
END_TEST

START_TEST(test_what_a_late_reply_brings_is_dropped)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig.is_held[0][1] = 1;
	rig_find(&rig, 1, &find, 0, "a");
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 1);
	rig_wait(&rig, 6 * TESTING_SECOND);
	ck_assert_int_eq(find.call.result, CEOV_ERR_TIMEOUT);
	rig.is_held[0][1] = 0;
	rig_run(&rig);
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
}
END_TEST

START_TEST(test_a_find_that_comes_twice_is_counted_once)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	rig_tell(&rig, 1, 0, &(struct cei_group_message){
		.type = CEI_GROUP_FIND, .number = find.call.use, .find = { 0, "a" } });
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 1);
}
END_TEST

START_TEST(test_a_find_repeated_behind_its_drop_leaves_no_use)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	rig_tell(&rig, 1, 0, &(struct cei_group_message){
		.type = CEI_GROUP_FIND, .number = find.call.use, .find = { 0, "a" } });
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 0);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[0]) + cei_group_n_owed(rig.groups[1]), 0);
}
END_TEST

/* While the DROP is under way, an answer that comes again begins nothing, and what acknowledges the
 * first DROP does not count for the second. */
START_TEST(test_an_unwanted_answer_is_dropped_again_under_a_new_number)
{
	struct cei_group_message reply;
	struct rig_find find;
	uint64_t number;

	rig_export(&rig, 0, "a");
	rig_find(&rig, 1, &find, 0, "a");
	reply = rig.last[0][1].message;
	ck_assert_uint_eq(reply.type, CEI_GROUP_REPLY);
	rig.is_held[1][0] = 1;
	cei_group_drop(rig.groups[1], 0, find.call.use);
	rig_run(&rig);
	number = rig.flights[rig.n_flights - 1].message.number;
	rig_tell(&rig, 0, 1, &reply);
	rig_tell(&rig, 0, 1, &(struct cei_group_message){ .type = CEI_GROUP_ACK,
							  .number = number });
	ck_assert_uint_gt(cei_group_n_owed(rig.groups[1]), 0);
	rig.is_held[1][0] = 0;
	rig_run(&rig);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[1]), 0);
}
END_TEST

/* --- renewing ------------------------------------------------------------------------------- */

static void renew(struct cei_group_call *call, uint32_t id)
{
	memset(call, 0, sizeof(*call));
	call->deadline_ns = rig.now_ns + 5 * TESTING_SECOND;
	cei_group_renew(rig.groups[0], call, id);
	rig_run(&rig);
}

START_TEST(test_a_renewal_waits_until_far_users_have_heard_it)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct cei_group_call call;
	struct rig_find find;

	rig_find(&rig, 1, &find, 0, "a");
	rig.is_held[1][0] = 1;
	renew(&call, id);
	ck_assert_uint_eq(rig.n_renewed[1], 1);
	ck_assert_uint_eq(cei_group_generation(rig.groups[1], 0, find.call.use), 2);
	ck_assert_int_eq(call.is_ended, 0);
	rig.is_held[1][0] = 0;
	rig_run(&rig);
	ck_assert_int_eq(call.is_ended, 1);
	ck_assert_int_eq(call.result, 0);
	renew(&call, 4711);
	ck_assert_int_eq(call.result, 0);
}
END_TEST

START_TEST(test_a_renewal_fails_with_a_user_that_is_lost)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct cei_group_call call;

	ck_assert_int_eq(find_result("a"), 0);
	rig.is_held[1][0] = 1;
	renew(&call, id);
	cei_group_down(rig.groups[0], 1, "the test says so", 0);
	rig_run(&rig);
	ck_assert_int_eq(call.result, CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(call.blame, 1);
}
END_TEST

START_TEST(test_a_renewal_ends_with_a_forced_withdrawal)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct cei_group_call call;

	ck_assert_int_eq(find_result("a"), 0);
	rig.is_held[1][0] = 1;
	renew(&call, id);
	ck_assert_int_eq(call.is_ended, 0);
	ck_assert_int_eq(cei_group_withdraw(rig.groups[0], id, 1), 0);
	ck_assert_int_eq(call.is_ended, 1);
	ck_assert_int_eq(call.result, 0);
}
END_TEST

START_TEST(test_nobody_near_is_told_of_a_renewal)
{
	uint32_t id = rig_export(&rig, 0, "a");
	struct cei_group_call call;

	ck_assert_int_eq(find_result("a"), 0);
	rig.is_held[0][1] = 1;
	renew(&call, id);
	ck_assert_int_eq(call.is_ended, 1);
	ck_assert_uint_eq(rig.n_flights, 0);
}
END_TEST

/* A RENEW may overtake the REPLY: the older generation of that does not win. */
START_TEST(test_a_late_reply_does_not_bring_an_older_generation_back)
{
	struct cei_group_message reply, renewed;
	struct cei_group_call call;
	struct rig_find find;
	uint32_t id = rig_export(&rig, 0, "a");

	rig.is_held[0][1] = 1;
	rig_find(&rig, 1, &find, 0, "a");
	reply = rig.flights[0].message;
	renew(&call, id);
	renewed = rig.flights[1].message;
	ck_assert_uint_eq(renewed.type, CEI_GROUP_RENEW);
	rig.n_flights = 0;
	rig_tell(&rig, 0, 1, &renewed);
	rig_tell(&rig, 0, 1, &reply);
	ck_assert_int_eq(find.call.result, 0);
	ck_assert_uint_eq(find.found.generation, 2);
}
END_TEST

/* --- bounds ----------------------------------------------------------------------------------- */

START_TEST(test_questions_beyond_64_without_an_answer_are_dropped)
{
	struct cei_group_message find = { .type = CEI_GROUP_FIND, .find = { 0, "a" } };
	uint32_t i;

	rig.is_full[0][1] = 1;
	for (i = 1; i <= 80; i++) {
		find.number = i;
		cei_group_received(rig.groups[0], 1, &find, NULL);
	}
	rig_run(&rig);
	ck_assert_uint_eq(cei_group_n_dropped(rig.groups[0], 1), 16);
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[0]), 64);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
	rig_export(&rig, 0, "a");
	for (i = 81; i <= 200; i++) {
		find.number = i;
		cei_group_received(rig.groups[0], 1, &find, NULL);
		rig_run(&rig);
	}
	ck_assert_uint_eq(cei_group_n_owed(rig.groups[0]), 128);
}
END_TEST

START_TEST(test_a_process_has_no_more_than_65536_uses)
{
	struct cei_group_message find = { .type = CEI_GROUP_FIND, .find = { 0, "a" } };
	uint32_t id = rig_export(&rig, 0, "a");

	rig.is_held[0][1] = 1;
	for (find.number = 1; find.number <= 65537; find.number++) {
		rig.n_flights = 0;
		ck_assert_int_eq(cei_group_reserve(rig.groups[0]), 0);
		rig_tell(&rig, 1, 0, &find);
	}
	ck_assert_uint_eq(cei_group_n_users(rig.groups[0], id), 65536);
	ck_assert_int_eq(rig.flights[0].message.reply.result, CEOV_ERR_NO_MEMORY);
	ck_assert_int_eq(cei_group_life(rig.groups[0], 1), CEI_GROUP_UP);
}
END_TEST

/* Else the other side would drop some, and a sure carrier does not ask again. */
START_TEST(test_no_more_questions_are_sent_than_the_other_side_stores)
{
	struct rig_find finds[40];
	uint32_t i;

	rig_export(&rig, 0, "a");
	rig.is_held[1][0] = 1;
	for (i = 0; i < 40; i++)
		rig_find(&rig, 1, &finds[i], 0, "a");
	ck_assert_uint_eq(rig.n_flights, 32);
	rig.is_held[1][0] = 0;
	rig_run(&rig);
	for (i = 0; i < 40; i++)
		ck_assert_int_eq(finds[i].call.result, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("group_machine");
	TCase *near = tcase_create("near"), *far = tcase_create("far");
	const int lefts[3] = { 0, 200, 1000 };  /* ms */
	uint32_t i;

	tcase_add_checked_fixture(near, make_two_near, finish);
	tcase_add_checked_fixture(far, make_two_far, finish);
	tcase_add_test(near, test_what_is_exported_is_found_and_nothing_else);
	tcase_add_test(far, test_what_is_exported_is_found_and_nothing_else);
	tcase_add_test(near, test_ranks_and_names_that_cannot_be_found);
	tcase_add_test(near, test_several_ranks_of_a_process_export_the_same_name);
	tcase_add_test(near, test_many_exports_and_uses_are_told_apart);
	tcase_add_test(far, test_many_exports_and_uses_are_told_apart);
	tcase_add_test(near, test_an_export_needs_an_own_rank_and_a_free_name);
	tcase_add_test(near, test_a_process_has_no_more_than_4096_exports);
	tcase_add_test(near, test_a_hidden_export_is_found_when_it_is_shown);
	tcase_add_test(near, test_a_withdrawal_waits_for_users_but_its_name_is_free);
	tcase_add_test(near, test_a_forced_withdrawal_forgets_users_whose_drops_still_come);
	tcase_add_loop_test(near, test_a_find_is_answered_in_spite_of_a_forced_withdrawal, 0,
			    2);
	tcase_add_test(near, test_the_uses_of_a_lost_process_end);
	tcase_add_test(near, test_descriptors_go_to_processes_of_the_node);
	tcase_add_test(near, test_a_forced_withdrawal_gives_descriptors_back);
	for (i = 0; i < 3; i++)
		tcase_add_loop_test(near, test_who_has_left_gets_all_descriptors_back, lefts[i],
				    lefts[i] + 1);
	tcase_add_test(far, test_descriptors_do_not_go_to_other_nodes);
	tcase_add_test(near, test_a_find_without_its_descriptors_fails_and_is_dropped);
	tcase_add_test(near, test_who_cannot_send_descriptors_says_why);
	tcase_add_test(near, test_a_find_ends_after_10_seconds_at_most);
	tcase_add_test(near, test_what_a_late_reply_brings_is_dropped);
	tcase_add_test(far, test_a_find_that_comes_twice_is_counted_once);
	tcase_add_test(far, test_a_find_repeated_behind_its_drop_leaves_no_use);
	tcase_add_test(far, test_an_unwanted_answer_is_dropped_again_under_a_new_number);
	tcase_add_test(far, test_a_renewal_waits_until_far_users_have_heard_it);
	tcase_add_test(far, test_a_renewal_fails_with_a_user_that_is_lost);
	tcase_add_test(far, test_a_renewal_ends_with_a_forced_withdrawal);
	tcase_add_test(near, test_nobody_near_is_told_of_a_renewal);
	tcase_add_test(far, test_a_late_reply_does_not_bring_an_older_generation_back);
	tcase_add_test(near, test_questions_beyond_64_without_an_answer_are_dropped);
	tcase_add_test(near, test_a_process_has_no_more_than_65536_uses);
	tcase_add_test(near, test_no_more_questions_are_sent_than_the_other_side_stores);
	suite_add_tcase(made, near);
	suite_add_tcase(made, far);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
