/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the carrier over rails of two processes on a simulated network, which reorders. What the
 * carrier tells goes to a test double of the peers, which notes it and logs that it is none. */

#include "net/carrier_rails.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "testing.h"
#include "unit/loop_transport.h"

#define N_MESSAGES 300u
#define TIMEOUT_NS (1000 * TESTING_MS)

/* --- the test double of the peers ---------------------------------------------------------- */

struct cei_peers {                      /* of one process */
	struct cei_report         report;
	struct cei_carrier_rails *carrier;
	struct cei_rail          *rail;
	struct cei_rail_events    events;
	uint32_t                  n_received;
	uint64_t                  numbers[N_MESSAGES];  /* in the order in which they came */
	struct cei_group_message  last;
	uint32_t                  n_ready;
	uint32_t                  n_down;
	uint32_t                  n_refusals;
	char                      why[256];
	uint32_t                  n_quiet;
	uint32_t                  n_wakes;
	uint32_t                  n_clocks;
	uint32_t                  n_departed;           /* of the rail */
};

static struct cei_peers peers[2];
static struct loop_net net;

void cei_peers_received(struct cei_peers *own, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds)
{
	ck_assert_uint_eq(process, own == &peers[0]);
	ck_assert_ptr_null(fds);
	ck_assert_uint_lt(own->n_received, N_MESSAGES);
	own->numbers[own->n_received++] = message->number;
	own->last = *message;
}

void cei_peers_ready(struct cei_peers *own, uint32_t process)
{
	(void)process;
	own->n_ready++;
}

void cei_peers_down(struct cei_peers *own, uint32_t process, const char *why, int is_refusal)
{
	(void)process;
	own->n_down++;
	own->n_refusals += is_refusal != 0;
	snprintf(own->why, sizeof(own->why), "%s", why);
}

void cei_peers_quiet(struct cei_peers *own, uint32_t process)
{
	(void)process;
	own->n_quiet++;
}

void cei_peers_wake(struct cei_peers *own)
{
	own->n_wakes++;
}

/* --- the rig ------------------------------------------------------------------------------- */

static int find(void *arg, uint32_t process, uint8_t *ret_address, uint32_t *ret_n_bytes)
{
	(void)arg;
	loop_address_of(process, ret_address);
	*ret_n_bytes = LOOP_ADDRESS_BYTES;
	return 0;
}

static void heard(void *arg, uint32_t process, const struct cei_far_message *message)
{
	struct cei_peers *own = arg;

	if (message->type == CEI_FAR_NOTE)
		cei_carrier_rails_heard(own->carrier, process, &message->note);
	else
		own->n_clocks++;
}

static void losing(void *arg, uint32_t process, const char *why, int is_refusal)
{
	cei_carrier_rails_losing(((struct cei_peers *)arg)->carrier, process, why, is_refusal);
}

static void lost(void *arg, uint32_t process, const char *why, int is_uncertain)
{
	(void)why;
	ck_assert(!is_uncertain);
	cei_carrier_rails_lost(((struct cei_peers *)arg)->carrier, process);
}

static void departed(void *arg, uint32_t process)
{
	((struct cei_peers *)arg)->n_departed++;
	cei_carrier_rails_departed(((struct cei_peers *)arg)->carrier, process);
}

static void drop_line(void *arg, const char *line)
{
	(void)arg;
	(void)line;
}

static void open_process(uint32_t number)
{
	static const struct cei_rail_events events = {
		.find = find, .losing = losing, .lost = lost, .departed = departed, .heard = heard,
	};
	struct cei_peers *own = &peers[number];
	struct cei_rail_config config = {
		.report = &own->report, .transport = &loop_transport,
		.device = loop_device(&net, number), .process = number, .n_processes = 2,
		.instance = { 1, number }, .timeout_ns = TIMEOUT_NS, .progress_by_caller = 1,
		.events = &events, .events_arg = own,
	};
	const char *why;

	cei_report_init(&own->report, drop_line, NULL);
	cei_log(&own->report, CEI_LOG_WARN, "a test double stands for the peers");
	ck_assert_int_eq(cei_carrier_rails_open(2, 1, &own->carrier), 0);
	ck_assert_int_eq(cei_rail_open(&config, &own->rail, &why), 0);
	cei_carrier_rails_attach(own->carrier, own->rail);
}

static const struct cei_carrier *carrier_of(uint32_t number)
{
	return cei_carrier_rails_base(peers[number].carrier);
}

static int turn(uint32_t number)
{
	const struct cei_carrier *carrier = carrier_of(number);

	return carrier->ops->turn(carrier->state, NULL);
}

static void begin(uint32_t number)
{
	cei_carrier_rails_begin(peers[number].carrier, &peers[number]);
	ck_assert_int_eq(cei_rail_begin(peers[number].rail, 7), 0);
}

static void set_up(void)
{
	memset(peers, 0, sizeof(peers));
	loop_net_init(&net, testing_seed(), 1);
	open_process(0);
	open_process(1);
	begin(0);
	begin(1);
}

static void pass(uint64_t ns)
{
	uint64_t until_ns = cei_now_ns() + ns;

	while (cei_now_ns() < until_ns) {
		(void)turn(0);
		(void)turn(1);
	}
}

/* Turns both until the number is reached, which has to happen soon. */
static void await(const uint32_t *number, uint32_t wanted)
{
	uint64_t deadline_ns = cei_now_ns() + 20 * TESTING_SECOND;

	while (*number < wanted) {
		ck_assert_uint_lt(cei_now_ns(), deadline_ns);
		(void)turn(0);
		(void)turn(1);
	}
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; i < 2; i++)
		cei_rail_leave(peers[i].rail);
	pass(20 * TESTING_MS);
	for (i = 0; i < 2; i++) {
		ck_assert_int_eq(cei_rail_close(peers[i].rail, cei_now_ns()), 0);
		cei_carrier_rails_close(peers[i].carrier);
		cei_report_fini(&peers[i].report);
	}
	loop_net_fini(&net);
}

static int send(uint32_t from, const struct cei_group_message *message)
{
	const struct cei_carrier *carrier = carrier_of(from);
	int native_code = 0;

	return carrier->ops->send(carrier->state, !from, message, NULL, &native_code);
}

static struct cei_group_message beat(uint64_t number)
{
	return (struct cei_group_message){ .type = CEI_GROUP_BEAT, .number = number };
}

/* Both have heard of each other. */
static void connect(void)
{
	struct cei_group_message message = beat(1);

	ck_assert_int_eq(send(0, &message), 0);
	ck_assert_int_eq(send(1, &message), 0);
	await(&peers[0].n_received, 1);
	await(&peers[1].n_received, 1);
}

static void give_up(uint32_t number)
{
	const struct cei_carrier *carrier = carrier_of(number);

	carrier->ops->give_up(carrier->state, !number, "it was silent");
}

static void say_clock(uint32_t from)
{
	struct cei_far_message message = { .type = CEI_FAR_CLOCK };

	message.clock = (struct cei_far_clock){ CEI_FAR_CLOCK_ASK, 1, 0, 0 };
	ck_assert_int_eq(cei_rail_say(peers[from].rail, !from, &message), 0);
}

/* --- cases --------------------------------------------------------------------------------- */

/* Small messages and the largest one in turn. */
START_TEST(test_messages_arrive_once_and_in_order)
{
	struct cei_group_message message;
	uint64_t i;
	int r;

	net.links[0][1].jitter_ns = 2 * TESTING_MS;
	net.links[0][1].full_every = 5;
	for (i = 0; i < N_MESSAGES;) {
		message = beat(i + 1);
		if (i % 2) {
			message.type = CEI_GROUP_REPLY;
			message.reply.use = message.reply.id = message.reply.generation = 1;
			message.reply.n_bytes = CEI_GROUP_BYTES_MAX;
		}
		r = send(0, &message);
		i += r == 0;
		if (!r)
			continue;
		ck_assert_int_eq(r, CEOV_FULL);
		ck_assert_uint_gt(peers[0].n_wakes, 0);
		peers[0].n_ready = 0;
		await(&peers[0].n_ready, 1);
	}
	await(&peers[1].n_received, N_MESSAGES);
	for (i = 0; i < N_MESSAGES; i++)
		ck_assert_uint_eq(peers[1].numbers[i], i + 1);
	ck_assert_uint_eq(peers[1].last.reply.n_bytes, CEI_GROUP_BYTES_MAX);
	ck_assert_uint_eq(peers[0].n_down + peers[1].n_down, 0);
}
END_TEST

START_TEST(test_who_is_given_up_is_refused)
{
	struct cei_group_message message = beat(2);

	connect();
	ck_assert_int_eq(send(1, &message), 0);
	give_up(0);
	ck_assert_uint_eq(peers[0].n_quiet, 0);
	await(&peers[1].n_refusals, 1);
	ck_assert_str_eq(peers[1].why, "it refuses: it was silent");
	await(&peers[0].n_quiet, 1);
	ck_assert_uint_eq(peers[0].n_received, 1);      /* nothing is accepted any more */
	ck_assert_uint_eq(peers[0].n_down, 0);
	await(&peers[1].n_quiet, 1);
}
END_TEST

START_TEST(test_who_is_given_up_and_does_not_answer_is_quiet_soon)
{
	connect();
	loop_net_cut(&net, 0, 1, 1);
	give_up(0);
	await(&peers[0].n_quiet, 1);
	ck_assert_uint_eq(peers[1].n_down, 0);
	give_up(1);
	await(&peers[1].n_quiet, 1);
	loop_net_cut(&net, 0, 1, 0);
}
END_TEST

START_TEST(test_who_was_never_talked_to_is_quiet_at_once)
{
	give_up(0);
	await(&peers[0].n_quiet, 1);
	ck_assert_int_eq(send(0, &(struct cei_group_message){ .type = CEI_GROUP_BEAT,
			 .number = 1 }), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(peers[0].n_down, 0);          /* not within the call */
}
END_TEST

/* Given up by the group after the connection has ended: it is quiet then and there. */
START_TEST(test_a_connection_that_ended_before)
{
	connect();
	give_up(1);
	await(&peers[0].n_down, 1);
	await(&peers[0].n_quiet, 1);
	give_up(0);
	ck_assert_uint_eq(peers[0].n_quiet, 2);
}
END_TEST

/* Bytes may land until the rail has said farewell, too. */
START_TEST(test_a_farewell_is_told_when_nothing_lands_any_more)
{
	struct cei_group_message bye = { .type = CEI_GROUP_BYE, .number = 9 };

	connect();
	bye.said = (struct cei_group_rank_said){ 3, 0 };
	ck_assert_int_eq(send(0, &bye), 0);
	pass(20 * TESTING_MS);
	ck_assert_uint_eq(peers[1].n_received, 1);
	cei_rail_leave(peers[0].rail);
	await(&peers[1].n_received, 2);
	ck_assert_uint_eq(peers[1].last.type, CEI_GROUP_BYE);
	ck_assert_uint_eq(peers[1].last.number, 9);
	ck_assert_uint_eq(peers[1].last.said.n_calls, 3);
	ck_assert_uint_eq(peers[1].n_departed, 1);
	ck_assert_uint_eq(peers[1].n_down, 0);
}
END_TEST

START_TEST(test_who_departs_without_a_farewell_is_lost)
{
	connect();
	cei_rail_leave(peers[0].rail);
	await(&peers[1].n_down, 1);
	ck_assert_uint_eq(peers[1].n_refusals, 0);
	ck_assert_ptr_nonnull(strstr(peers[1].why, "without a farewell"));
	give_up(1);
	ck_assert_uint_eq(peers[1].n_quiet, 1);
}
END_TEST

/* It was asked for the time, and belongs to nobody's business until somebody has something to
 * say to it. */
START_TEST(test_who_was_only_asked_for_the_time_may_leave)
{
	struct cei_group_message message = beat(1);

	say_clock(1);
	await(&peers[0].n_clocks, 1);
	cei_rail_leave(peers[0].rail);
	await(&peers[1].n_departed, 1);
	pass(5 * TESTING_MS);
	ck_assert_uint_eq(peers[1].n_down, 0);
	ck_assert_int_eq(send(1, &message), CEOV_ERR_PEER_LOST);
	ck_assert_uint_eq(peers[1].n_down, 0);
	await(&peers[1].n_down, 1);
}
END_TEST

START_TEST(test_a_message_that_makes_no_sense)
{
	struct cei_far_message note = { .type = CEI_FAR_NOTE };

	note.note.bytes = (const uint8_t *)"nonsense";
	note.note.n_bytes = 8;
	ck_assert_int_eq(cei_rail_say(peers[0].rail, 1, &note), 0);
	await(&peers[1].n_down, 1);
	ck_assert_ptr_nonnull(strstr(peers[1].why, "makes no sense"));
	give_up(1);
	await(&peers[0].n_refusals, 1);
}
END_TEST

START_TEST(test_a_process_that_does_not_answer_is_lost)
{
	struct cei_group_message message = beat(1);
	uint64_t begun_ns = cei_now_ns();

	loop_net_cut(&net, 0, 1, 1);
	ck_assert_int_eq(send(0, &message), 0);
	await(&peers[0].n_down, 1);
	ck_assert_uint_ge(cei_now_ns() - begun_ns, TIMEOUT_NS / 2);
	ck_assert_uint_eq(peers[0].n_refusals, 0);
}
END_TEST

/* Messages that are said before the rail begins wait; with a thread of the rail there is nothing to
 * do, unless there was no room. */
START_TEST(test_what_is_said_early_waits)
{
	struct cei_group_message message = beat(1);
	struct cei_carrier_rails *other;
	const struct cei_carrier *carrier;

	ck_assert_int_eq(cei_carrier_rails_open(2, 0, &other), 0);
	carrier = cei_carrier_rails_base(other);
	ck_assert_uint_eq(carrier->ops->due(carrier->state), CEI_FOREVER);
	ck_assert_int_eq(carrier->ops->turn(carrier->state, NULL), 0);
	cei_carrier_rails_attach(other, peers[0].rail);
	ck_assert(carrier->promises.is_sure && !carrier->promises.has_fds &&
		  !carrier->promises.tells_death);
	while (!carrier->ops->send(carrier->state, 1, &message, NULL, NULL))
		;
	ck_assert_uint_ne(carrier->ops->due(carrier->state), CEI_FOREVER);
	cei_carrier_rails_begin(other, &peers[0]);
	await(&peers[1].n_received, 1);
	ck_assert_int_eq(carrier->ops->turn(carrier->state, NULL), 1);
	ck_assert_uint_eq(peers[0].n_ready, 1);
	ck_assert_uint_eq(carrier->ops->due(carrier->state), CEI_FOREVER);
	ck_assert_uint_eq(carrier_of(0)->ops->due(carrier_of(0)->state), 0);
	cei_carrier_rails_close(other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("carrier_rails");
	TCase *all = tcase_create("carrier_rails");

	tcase_set_timeout(all, 60);
	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_messages_arrive_once_and_in_order);
	tcase_add_test(all, test_who_is_given_up_is_refused);
	tcase_add_test(all, test_who_is_given_up_and_does_not_answer_is_quiet_soon);
	tcase_add_test(all, test_who_was_never_talked_to_is_quiet_at_once);
	tcase_add_test(all, test_a_connection_that_ended_before);
	tcase_add_test(all, test_a_farewell_is_told_when_nothing_lands_any_more);
	tcase_add_test(all, test_who_departs_without_a_farewell_is_lost);
	tcase_add_test(all, test_who_was_only_asked_for_the_time_may_leave);
	tcase_add_test(all, test_a_message_that_makes_no_sense);
	tcase_add_test(all, test_a_process_that_does_not_answer_is_lost);
	tcase_add_test(all, test_what_is_said_early_waits);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
