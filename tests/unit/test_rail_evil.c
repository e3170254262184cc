/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what a rail does with a process that lies: the other end of the simulated network is driven
 * by hand. Nothing outside a region is written, wrong things are refused and counted, and the
 * connection ends where something wrong was said over it. */

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "net/far_peer.h"
#include "unit/rail_rig.h"

/* The process that is driven by hand. Its number in the group and in the net is 1. */
struct evil {
	struct cei_transport         transport;
	struct cei_transport_peer   *peer;
	struct cei_transport_memory *memory;
	uint8_t                      bytes[RAILS_BYTES + 64];
	int                          has_heard; /* something of the rail */
	uint32_t                     n_refusals;
	uint32_t                     n_acks;
	uint32_t                     n_byes;
	uint32_t                     n_sent;
	struct cei_report            report;
};

static struct evil evil;

static void evil_heard(void *arg, struct cei_transport_peer *from, const void *bytes,
		       uint32_t n_bytes)
{
	struct cei_far_message message;

	(void)arg;
	(void)from;
	ck_assert_int_eq(cei_decode(&cei_far_protocol, bytes, n_bytes, &message), 0);
	evil.has_heard = 1;
	evil.n_refusals += message.type == CEI_FAR_REFUSE;
	evil.n_acks += message.type == CEI_FAR_ACK;
	evil.n_byes += message.type == CEI_FAR_BYE;
}

static void evil_offered(void *arg, struct cei_transport_peer *from,
			 const struct cei_transport_arrival *arrival)
{
	(void)arg;
	(void)from;
	evil.transport.ops->refuse(&evil.transport, arrival->offer);
}

static void evil_sent(void *arg, uint64_t tag, int error)
{
	(void)arg;
	(void)tag;
	(void)error;
	evil.n_sent++;
}

static void evil_failed(void *arg, struct cei_transport_peer *peer, const char *why)
{
	(void)arg;
	(void)peer;
	(void)why;
}

static void evil_closed(void *arg, struct cei_transport_peer *peer)
{
	(void)arg;
	(void)peer;
	evil.peer = NULL;
}

static const struct cei_transport_events evil_events = {
	.heard   = evil_heard,
	.offered = evil_offered,
	.sent    = evil_sent,
	.landed  = evil_sent,
	.failed  = evil_failed,
	.closed  = evil_closed,
};

static void step_both(uint32_t n)
{
	while (n--) {
		(void)evil.transport.ops->progress(&evil.transport);
		rails_step();
	}
}

/* The head of a message that an honest process would send now. */
static struct cei_far_message honest(uint32_t type)
{
	struct cei_far_message message;

	memset(&message, 0, sizeof(message));
	message.type = type;
	message.group = RAILS_GROUP;
	message.source = 1;
	message.target = 0;
	message.one = 1;
	message.has_heard = (uint64_t)evil.has_heard;
	return message;
}

static void say(const struct cei_far_message *message)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	uint32_t n_bytes = (uint32_t)cei_encode(&cei_far_protocol, message, bytes);

	ck_assert_int_eq(evil.transport.ops->say(evil.peer, bytes, n_bytes), 0);
	step_both(3);
}

static void offer(const struct cei_far_message *message, uint64_t n_bytes)
{
	struct cei_transport_send send = { .span = { evil.memory, (uintptr_t)evil.bytes,
						     n_bytes } };
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];

	send.head = bytes;
	send.n_head = (uint32_t)cei_encode(&cei_far_protocol, message, bytes);
	ck_assert_int_eq(evil.transport.ops->send(evil.peer, &send), 0);
	step_both(5);
}

/* Opens the rail of process 0 and the evil one, and connects them. */
static void begin(void)
{
	uint8_t address[LOOP_ADDRESS_BYTES];
	struct cei_far_message hello;
	const char *why;

	memset(&evil, 0, sizeof(evil));
	rails_open_some(1, 3, testing_seed());
	evil.transport.ops = &loop_transport;
	evil.transport.config.device = loop_device(&rails.net, 1);
	evil.transport.config.events = &evil_events;
	cei_report_init(&evil.report, NULL, NULL);
	evil.transport.config.report = &evil.report;
	ck_assert_int_eq(loop_transport.open(&evil.transport, &why), 0);
	ck_assert_int_eq(loop_transport.memory_open(&evil.transport, evil.bytes,
						    sizeof(evil.bytes), &evil.memory), 0);
	loop_address_of(0, address);
	ck_assert_int_eq(loop_transport.peer_open(&evil.transport, address, sizeof(address), NULL,
						  &evil.peer), 0);
	testing_fill(evil.bytes, sizeof(evil.bytes), 99);
	hello = honest(CEI_FAR_HELLO);
	hello.has_heard = 0;
	say(&hello);
	say((hello = honest(CEI_FAR_HELLO), &hello));
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
}

static void end(void)
{
	if (evil.peer)
		loop_transport.peer_close(evil.peer);
	step_both(5);
	ck_assert_ptr_null(evil.peer);
	loop_transport.memory_close(&evil.transport, evil.memory);
	rails_leave();
	loop_transport.close(&evil.transport);
	cei_report_fini(&evil.report);
	rails_close();
}

static struct cei_far_message piece(uint64_t sequence, uint64_t offset, uint64_t n_bytes)
{
	struct cei_far_message message = honest(CEI_FAR_PIECE);

	message.piece.sequence = sequence;
	message.piece.region = RAILS_BYTES_REGION;
	message.piece.offset = offset;
	message.piece.row_bytes = message.piece.pitch_bytes = n_bytes;
	message.piece.n_rows = 1;
	return message;
}

static struct cei_far_message mark(uint64_t sequence)
{
	struct cei_far_message message = honest(CEI_FAR_MARK);

	message.mark.sequence = sequence;
	message.mark.region = RAILS_WORDS_REGION;
	message.mark.index = 3;
	message.mark.value = 1;
	return message;
}

/* The connection has ended with a refusal, and nothing was written. */
static void check_refused(void)
{
	static const uint8_t zeros[RAILS_BYTES];

	step_both(3);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_refused, 1);
	ck_assert_uint_eq(evil.n_refusals, 1);
	rails_pass(RAILS_TIMEOUT_NS / 5);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_mem_eq(rails.processes[0].target, zeros, RAILS_BYTES);
	ck_assert_uint_eq(rails_arrived(0), 0);
}

START_TEST(test_honest_pieces_and_marks_are_taken)
{
	struct cei_far_message message = piece(1, 8, 100);

	begin();
	message.has_heard = (uint64_t)evil.has_heard;
	offer(&message, 100);
	ck_assert_mem_eq(rails.processes[0].target + 8, evil.bytes, 100);
	ck_assert_uint_ge(evil.n_acks, 1);
	end();
}
END_TEST

/* Each of these is refused. */
static void spoil_piece(struct cei_far_piece *spoilt, int which)
{
	switch (which) {
	case 0: spoilt->region = 1000; break;
	case 1: spoilt->region = RAILS_WORDS_REGION; break;
	case 2: spoilt->region = RAILS_FAR_REGION; break;
	case 3: spoilt->offset = RAILS_BYTES - 99; break;
	case 4: spoilt->offset = UINT64_MAX / 2; break;
	case 5: spoilt->row_bytes = spoilt->pitch_bytes = 101; break;
	case 6: spoilt->row_bytes = spoilt->pitch_bytes = 99; break;
	case 7: spoilt->n_rows = 2; spoilt->row_bytes = 50; break;
	default: spoilt->sequence = 1 + CEI_FAR_SPAN; break;
	}
}

START_TEST(test_wrong_pieces_end_the_connection)
{
	struct cei_far_message message;

	begin();
	message = piece(1, 0, 100);
	spoil_piece(&message.piece, _i);
	offer(&message, 100);
	check_refused();
	end();
}
END_TEST

static void spoil_mark(struct cei_far_mark *spoilt, int which)
{
	switch (which) {
	case 0: spoilt->region = 1000; break;
	case 1: spoilt->region = RAILS_BYTES_REGION; break;
	case 2: spoilt->index = RAILS_BLOCKS; break;
	case 3: spoilt->index = UINT32_MAX; break;
	default: spoilt->sequence = 1 + CEI_FAR_SPAN; break;
	}
}

START_TEST(test_wrong_marks_end_the_connection)
{
	struct cei_far_message message;

	begin();
	message = mark(1);
	spoil_mark(&message.mark, _i);
	say(&message);
	check_refused();
	end();
}
END_TEST

START_TEST(test_acks_of_nothing_end_the_connection)
{
	struct cei_far_message message;

	begin();
	message = honest(CEI_FAR_ACK);
	message.ack = 1;
	say(&message);
	rails_pass(RAILS_TIMEOUT_NS / 5);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	end();
}
END_TEST

static struct cei_far_message note(uint64_t number, const uint8_t *byte)
{
	struct cei_far_message message = honest(CEI_FAR_NOTE);

	message.note.number = number;
	message.note.bytes = byte;
	message.note.n_bytes = 1;
	return message;
}

/* A note that comes again is dropped, whether it waits for others or was told. */
START_TEST(test_notes_are_told_by_their_numbers)
{
	static const uint64_t numbers[] = { 5, 2, 5, 4, 2, 1, 1, 4, 3, 3 };
	struct cei_far_message message;
	uint8_t byte;
	uint32_t i;

	begin();
	for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		byte = (uint8_t)numbers[i];
		message = note(numbers[i], &byte);
		say(&message);
		ck_assert_uint_eq(rails.processes[0].n_heard, i < 5 ? 0 : i < 8 ? 2 : 5);
	}
	for (i = 0; i < 5; i++)
		ck_assert_uint_eq(rails.processes[0].firsts[i], i + 1);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_duplicates, 5);
	message = note(5 + CEI_FAR_EARLY_MAX, &byte);
	say(&message);
	ck_assert_uint_eq(evil.n_refusals, 0);
	end();
}
END_TEST

START_TEST(test_notes_without_order_end_the_connection)
{
	const uint8_t byte = 1;
	struct cei_far_message message;

	begin();
	message = note(1, &byte), say(&message);
	message = note(2 + CEI_FAR_EARLY_MAX, &byte);
	if (_i)
		message = honest(CEI_FAR_BYE);  /* behind none */
	say(&message);
	step_both(3);
	ck_assert_uint_eq(evil.n_refusals, 1);
	rails_pass(RAILS_TIMEOUT_NS / 5);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_uint_eq(rails.processes[0].n_departed[1], 0);
	end();
}
END_TEST

/* A rail that leaves says no farewell while it holds a mark: the other side still has to send what
 * is before that. If the connection breaks meanwhile, that was not in order. */
START_TEST(test_no_farewell_while_a_mark_is_held)
{
	struct cei_far_message message;
	struct loop_link *link;

	begin();
	message = mark(2);
	message.mark.after = 1;
	say(&message);
	cei_rail_leave(rails.processes[0].rail);
	step_both(5);
	ck_assert_uint_eq(evil.n_byes, 0);
	link = &rails.net.links[1][0];
	link->fail_at = link->n_arrivals + 1;
	message = honest(CEI_FAR_BEAT);
	say(&message);
	step_both(5);
	ck_assert_uint_eq(rails.processes[0].n_losing[1], 1);
	ck_assert_uint_eq(rails.processes[0].n_departed[1], 0);
	end();
}
END_TEST

/* Strangers and liars about who they are: dropped, and the connection stays. */
START_TEST(test_strange_messages_are_dropped_and_do_no_harm)
{
	struct cei_far_message message;
	uint8_t noise[64];

	begin();
	message = mark(1), message.group++, say(&message);
	message = mark(1), message.target = 2, say(&message);
	message = mark(1), message.source = 0, say(&message);
	message = mark(1), message.source = 3, say(&message);
	message = piece(1, 0, 100), message.group++, offer(&message, 100);
	message = piece(1, 0, 100), say(&message);      /* as a message */
	message = mark(1), offer(&message, 100);        /* as the head of an offer */
	testing_fill(noise, sizeof(noise), testing_seed());
	ck_assert_int_eq(loop_transport.say(evil.peer, noise, sizeof(noise)), 0);
	step_both(3);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_strange, 8);
	ck_assert_uint_eq(rails_arrived(0), 0);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
	end();
}
END_TEST

START_TEST(test_messages_in_the_name_of_another_process_are_dropped)
{
	struct cei_far_message message;

	begin();
	message = honest(CEI_FAR_HELLO);
	message.source = 2;
	message.has_heard = 0;
	say(&message);
	ck_assert_uint_eq(rails_status(0, 2).connection, CEI_FAR_UNUSED);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_strange, 1);
	end();
}
END_TEST

START_TEST(test_who_has_heard_no_greeting_may_only_greet)
{
	struct cei_far_message message;

	begin();
	message = piece(1, 0, 100), message.has_heard = 0, offer(&message, 100);
	message = mark(1), message.has_heard = 0, say(&message);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_old, 2);
	message = piece(1, 0, 100), message.one = 2, offer(&message, 100);
	message = mark(1), message.one = 0, say(&message);
	message = honest(CEI_FAR_HELLO), message.one = 2, say(&message);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_strange, 3);
	message = honest(CEI_FAR_HELLO), message.has_heard = 0, say(&message);
	ck_assert_uint_eq(rails_arrived(0), 0);
	ck_assert_uint_eq(rails.processes[0].target[0], 0);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
	end();
}
END_TEST

START_TEST(test_duplicates_are_dropped)
{
	struct cei_far_message message;

	begin();
	message = piece(1, 0, 100), offer(&message, 100);
	evil.bytes[0] ^= 0xff;
	offer(&message, 100);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_duplicates, 1);
	ck_assert_uint_ne(rails.processes[0].target[0], evil.bytes[0]);
	ck_assert_uint_eq(rails_status(0, 1).connection, CEI_FAR_UP);
	end();
}
END_TEST

START_TEST(test_another_version_is_told_why)
{
	uint8_t bytes[CEI_TRANSPORT_MESSAGE_MAX];
	struct cei_far_message message;
	uint32_t n_bytes;

	begin();
	message = honest(CEI_FAR_HELLO);
	n_bytes = (uint32_t)cei_encode(&cei_far_protocol, &message, bytes);
	bytes[4]++;
	ck_assert_int_eq(loop_transport.say(evil.peer, bytes, n_bytes), 0);
	step_both(5);
	ck_assert_uint_eq(evil.n_refusals, 1);
	rails_pass(RAILS_TIMEOUT_NS / 5);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	end();
}
END_TEST

START_TEST(test_another_process_of_the_same_number_is_refused)
{
	struct cei_far_message message;

	begin();
	message = honest(CEI_FAR_HELLO);
	message.hello.instance[0] = 5;          /* the first HELLO's was 0: none */
	say(&message);
	message.hello.instance[0] = 6;
	say(&message);
	ck_assert_uint_eq(evil.n_refusals, 1);
	end();
}
END_TEST

/* A mark whose bytes never come is not raised, and does not hold the rail up. */
START_TEST(test_a_mark_without_its_bytes_is_never_raised)
{
	struct cei_far_message message;

	begin();
	message = mark(2), message.mark.after = 1, say(&message);
	rails_pass(RAILS_TIMEOUT_NS / 2);
	ck_assert_uint_eq(rails_arrived(0), 0);
	rails_pass(RAILS_TIMEOUT_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	ck_assert_uint_eq(rails_arrived(0), 0);
	end();
}
END_TEST

/* The first of two marks is wrong when it is due, since its region has closed: the second one,
 * which may count on the first, is not raised either. */
START_TEST(test_no_mark_is_raised_behind_a_refused_one)
{
	struct cei_far_message message;

	begin();
	message = mark(2), message.mark.after = 1, message.mark.index = 1;
	message.mark.region = RAILS_FAR_REGION, say(&message);
	message = mark(3), message.mark.after = 1, say(&message);
	ck_assert_int_eq(cei_rail_region_close(rails.processes[0].rail, RAILS_FAR_REGION), 0);
	message = piece(1, 0, 100), offer(&message, 100);
	rails_pass(TESTING_MS);
	ck_assert_uint_eq(rails_status(0, 1).counts.n_refused, 1);
	ck_assert_uint_eq(rails_arrived(0), 0);
	rails_pass(RAILS_TIMEOUT_NS);
	ck_assert_uint_eq(rails.processes[0].n_lost[1], 1);
	end();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("rail_evil");
	TCase *all = tcase_create("rail_evil");

	tcase_add_test(all, test_honest_pieces_and_marks_are_taken);
	tcase_add_loop_test(all, test_wrong_pieces_end_the_connection, 0, 9);
	tcase_add_loop_test(all, test_wrong_marks_end_the_connection, 0, 5);
	tcase_add_test(all, test_notes_are_told_by_their_numbers);
	tcase_add_loop_test(all, test_notes_without_order_end_the_connection, 0, 2);
	tcase_add_test(all, test_no_farewell_while_a_mark_is_held);
	tcase_add_test(all, test_acks_of_nothing_end_the_connection);
	tcase_add_test(all, test_strange_messages_are_dropped_and_do_no_harm);
	tcase_add_test(all, test_messages_in_the_name_of_another_process_are_dropped);
	tcase_add_test(all, test_who_has_heard_no_greeting_may_only_greet);
	tcase_add_test(all, test_duplicates_are_dropped);
	tcase_add_test(all, test_another_version_is_told_why);
	tcase_add_test(all, test_another_process_of_the_same_number_is_refused);
	tcase_add_test(all, test_a_mark_without_its_bytes_is_never_raised);
	tcase_add_test(all, test_no_mark_is_raised_behind_a_refused_one);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
