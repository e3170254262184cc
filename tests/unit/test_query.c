/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what contexts, buffers, signals, plans and channels tell of themselves. */

#include <check.h>
#include <string.h>

#include <ceoverlap/channel.h>

#include "loopback.h"
#include "testing.h"

static struct ceov_buffer_info ask_buffer(const ceov_buffer *buffer)
{
	struct ceov_buffer_info info = CEOV_BUFFER_INFO_INIT;

	ck_assert_int_eq(ceov_buffer_query(buffer, &info), 0);
	ck_assert_uint_eq(info.struct_bytes, sizeof(info));
	return info;
}

static struct ceov_signal_info ask_signal(const ceov_signal *signal)
{
	struct ceov_signal_info info = CEOV_SIGNAL_INFO_INIT;

	ck_assert_int_eq(ceov_signal_query(signal, &info), 0);
	return info;
}

static struct ceov_plan_info ask_plan(const ceov_plan *plan)
{
	struct ceov_plan_info info = CEOV_PLAN_INFO_INIT;

	ck_assert_int_eq(ceov_plan_query(plan, &info), 0);
	return info;
}

static struct ceov_channel_info ask_channel(ceov_channel *channel)
{
	struct ceov_channel_info info = CEOV_CHANNEL_INFO_INIT;

	ck_assert_int_eq(ceov_channel_query(channel, &info), 0);
	return info;
}

START_TEST(test_a_context)
{
	struct ceov_context_info info = CEOV_CONTEXT_INFO_INIT;
	struct ceov_member members[3];
	struct ceov_config config = testing_config(members, 3, NULL);
	ceov_context *context;

	config.deadline_ns = 7 * TESTING_SECOND;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	ck_assert_int_eq(ceov_context_query(context, &info), 0);
	ck_assert_uint_eq(info.n_ranks, 3);
	ck_assert_uint_eq(info.n_members, 3);
	ck_assert_uint_eq(info.n_processes, 1);
	ck_assert_uint_eq(info.n_nodes, 1);
	ck_assert_uint_eq(info.node, 0);
	ck_assert_uint_eq(info.bootstrap, CEOV_BOOTSTRAP_ALONE);
	ck_assert_uint_eq(info.deadline_ns, config.deadline_ns);
	ck_assert_int_eq(info.has_daemon, 0);
	ceov_close(context);
}
END_TEST

START_TEST(test_buffers)
{
	ceov_context *context = testing_open(2, NULL);
	ceov_buffer *made = testing_buffer(context, 1, 5000), *found, *floating;
	struct ceov_buffer_info info = ask_buffer(made);

	ck_assert_uint_eq(info.size_bytes, 5000);
	ck_assert_uint_eq(info.rank, 1);
	ck_assert_int_eq(info.place.kind, CEOV_PLACE_HOST);
	ck_assert_uint_eq(info.place.index, 0);
	ck_assert_int_eq(info.is_found, 0);
	ck_assert_int_eq(info.is_floating, 0);
	ck_assert_str_eq(info.name, "");
	ck_assert_int_eq(ceov_buffer_share(made, "inbox"), 0);
	ck_assert_str_eq(ask_buffer(made).name, "inbox");

	ck_assert_int_eq(ceov_buffer_find(context, 1, "inbox", &found), 0);
	info = ask_buffer(found);
	ck_assert_uint_eq(info.size_bytes, 5000);
	ck_assert_uint_eq(info.rank, 1);
	ck_assert_int_eq(info.is_found, 1);
	ck_assert_str_eq(info.name, "inbox");

	ck_assert_int_eq(ceov_buffer_float(context, 0, 123, &floating), 0);
	info = ask_buffer(floating);
	ck_assert_uint_eq(info.size_bytes, 123);
	ck_assert_int_eq(info.is_found, 0);
	ck_assert_int_eq(info.is_floating, 1);
	ceov_close(context);
}
END_TEST

START_TEST(test_signals)
{
	struct loopback loop;
	ceov_signal *found;
	struct ceov_signal_info info;
	ceov_ticket ticket;

	loopback_open_turned(&loop, 3, 0);
	info = ask_signal(loop.arrived);
	ck_assert_uint_eq(info.n_counters, 3);
	ck_assert_uint_eq(info.rank, 1);
	ck_assert_int_eq(info.place.kind, CEOV_PLACE_HOST);
	ck_assert_int_eq(info.is_found, 0);
	ck_assert_int_eq(info.is_visible, 1);
	ck_assert_int_eq(info.error, 0);
	ck_assert_uint_eq(info.blamed, CEOV_NOBODY);
	ck_assert_str_eq(info.name, "");
	ck_assert_int_eq(ceov_signal_share(loop.arrived, "arrived"), 0);
	ck_assert_int_eq(ceov_signal_find(loop.context, 1, "arrived", &found), 0);
	info = ask_signal(found);
	ck_assert_uint_eq(info.n_counters, 3);
	ck_assert_uint_eq(info.rank, 1);
	ck_assert_int_eq(info.is_found, 1);
	ck_assert_str_eq(info.name, "arrived");

	ticket = loopback_launch(&loop, 0, POLLED);
	ck_assert_int_eq(ceov_abort(loop.context, ticket), 0);
	ck_assert_int_eq(ask_signal(loop.arrived).error, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ask_signal(found).error, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_signal_release(found), 0);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_plans)
{
	struct ceov_plan_info info;
	struct loopback loop;
	ceov_plan *plan;
	struct ceov_transfer transfer;

	loopback_open_turned(&loop, 3, 0);
	plan = testing_plan(loop.context, 1);
	info = ask_plan(plan);
	ck_assert_uint_eq(info.rank, 1);
	ck_assert_uint_eq(info.n_transfers, 0);
	ck_assert_uint_eq(info.bytes, 0);
	ck_assert_int_eq(info.is_committed, 0);
	transfer = testing_transfer(loop.source, loop.target, 100);
	transfer.n_rows = 3;
	transfer.source.pitch_bytes = transfer.target.pitch_bytes = 128;
	ck_assert_int_eq(ceov_plan_add(plan, &transfer), 0);
	info = ask_plan(plan);
	ck_assert_uint_eq(info.n_transfers, 1);
	ck_assert_uint_eq(info.bytes, 300);
	ceov_plan_release(plan);

	info = ask_plan(loop.plan);
	ck_assert_uint_eq(info.rank, 0);
	ck_assert_uint_eq(info.n_transfers, 3);
	ck_assert_uint_eq(info.bytes, LOOPBACK_BYTES);
	ck_assert_int_eq(info.is_committed, 1);
	ck_assert_int_eq(info.is_by_daemon, 0);
	ck_assert_uint_eq(info.n_in_flight, 0);
	loopback_launch(&loop, 0, POLLED);
	loopback_launch(&loop, 1, POLLED);
	ck_assert_uint_eq(ask_plan(loop.plan).n_in_flight, 2);
	loopback_ready(&loop, 1);
	while (ceov_plan_idle(loop.plan) && ask_plan(loop.plan).n_in_flight == 2)
		(void)ceov_turn(loop.context);
	ck_assert_uint_eq(ask_plan(loop.plan).n_in_flight, 1);
	loopback_close(&loop);
}
END_TEST

START_TEST(test_channels)
{
	struct ceov_channel_config config = CEOV_CHANNEL_CONFIG_INIT;
	ceov_context *context = testing_open(1, NULL);
	struct ceov_channel_info info;
	ceov_channel *channel;

	config.name = "calls";
	config.deadline_ns = 3 * TESTING_SECOND;
	ck_assert_int_eq(ceov_channel_create(context, &config, &channel), 0);
	info = ask_channel(channel);
	ck_assert_uint_eq(info.rank, 0);
	ck_assert_uint_eq(info.n_ranks, 1);
	ck_assert_int_eq(info.place.kind, CEOV_PLACE_HOST);
	ck_assert_uint_eq(info.ring_bytes, UINT64_C(1) << 20);
	ck_assert_uint_eq(info.deadline_ns, config.deadline_ns);
	ck_assert_int_eq(info.is_connected, 0);
	ck_assert_int_eq(info.error, 0);
	ck_assert_str_eq(info.name, "calls");
	ck_assert_int_eq(ceov_channel_connect(channel, TESTING_PATIENCE), 0);
	ck_assert_int_eq(ask_channel(channel).is_connected, 1);
	ck_assert_int_eq(ceov_channel_abort(channel), 0);
	ck_assert_int_eq(ask_channel(channel).error, CEOV_ERR_ABORTED);
	ck_assert_int_eq(ceov_channel_release(channel), 0);
	ceov_close(context);
}
END_TEST

/* A caller whose header is newer gets what the library knows, and 0 behind it. */
START_TEST(test_callers_of_another_header)
{
	struct {
		struct ceov_buffer_info known;
		uint64_t                later[2];
	} newer = { .known = CEOV_BUFFER_INFO_INIT, .later = { 1, 2 } };
	struct testing_log log;
	ceov_context *context;
	ceov_buffer *buffer;

	testing_log_init(&log);
	context = testing_open(1, &log);
	buffer = testing_buffer(context, 0, 64);
	newer.known.struct_bytes = sizeof(newer);
	ck_assert_int_eq(ceov_buffer_query(buffer, &newer.known), 0);
	ck_assert_uint_eq(newer.known.struct_bytes, sizeof(newer));
	ck_assert_uint_eq(newer.known.size_bytes, 64);
	ck_assert_uint_eq(newer.later[0], 0);
	ck_assert_uint_eq(newer.later[1], 0);
	newer.known.struct_bytes = 8;
	ck_assert_int_eq(ceov_buffer_query(buffer, &newer.known), CEOV_ERR_INVALID);
	testing_log_has(&log, "ceov_buffer_query: ret_info: struct_bytes is too small", NULL, NULL);
	ceov_close(context);
}
END_TEST

static void refused(int result, const char *text)
{
	struct ceov_failure failure;

	ck_assert_int_eq(result, CEOV_ERR_INVALID);
	ck_assert_int_eq(ceov_last_failure(NULL, &failure), 0);
	ck_assert_msg(strstr(failure.text, text) != NULL, "'%s' is not in '%s'", text,
		      failure.text);
}

START_TEST(test_handles_that_are_none)
{
	struct ceov_context_info context_info = CEOV_CONTEXT_INFO_INIT;
	struct ceov_buffer_info buffer_info = CEOV_BUFFER_INFO_INIT;
	struct ceov_signal_info signal_info = CEOV_SIGNAL_INFO_INIT;
	struct ceov_plan_info plan_info = CEOV_PLAN_INFO_INIT;
	struct ceov_channel_info channel_info = CEOV_CHANNEL_INFO_INIT;
	ceov_context *context = testing_open(1, NULL);
	ceov_buffer *buffer = testing_buffer(context, 0, 64);
	ceov_signal *signal = testing_signal(context, 0, 1);
	ceov_plan *plan = testing_plan(context, 0);

	refused(ceov_context_query(NULL, &context_info), "ceov_context_query: the context is NULL");
	refused(ceov_buffer_query(NULL, &buffer_info), "ceov_buffer_query: the buffer is NULL");
	refused(ceov_signal_query(NULL, &signal_info), "ceov_signal_query: the signal is NULL");
	refused(ceov_plan_query(NULL, &plan_info), "ceov_plan_query: the plan is NULL");
	refused(ceov_channel_query(NULL, &channel_info), "ceov_channel_query: the channel is NULL");
	refused(ceov_context_query(context, NULL), "_context_query: ret_info: there is no struct");
	refused(ceov_signal_query(signal, NULL), "_signal_query: ret_info: there is no struct");
	refused(ceov_plan_query(plan, NULL), "_plan_query: ret_info: there is no struct");
	refused(ceov_signal_query((void *)buffer, &signal_info), "wants a signal and got a buffer");
	ck_assert_int_eq(ceov_buffer_release(buffer), 0);
	refused(ceov_buffer_query(buffer, &buffer_info), "the buffer was released before");
	ceov_close(context);
	refused(ceov_plan_query(plan, &plan_info), "its context was closed");
	refused(ceov_context_query(context, &context_info), "the context was closed");
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("query");
	TCase *all = tcase_create("query");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_a_context);
	tcase_add_test(all, test_buffers);
	tcase_add_test(all, test_signals);
	tcase_add_test(all, test_plans);
	tcase_add_test(all, test_channels);
	tcase_add_test(all, test_callers_of_another_header);
	tcase_add_test(all, test_handles_that_are_none);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
