/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Ends and links of the transport conformance cases, and the records of their events. */

#include "transport_rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"

#define ENDS_MAX 64u

static struct {
	struct net_end *ends[ENDS_MAX];         /* open ones */
	uint32_t        n_ends;
	uint64_t        deadline_ns;
} rig;

/* --- events ------------------------------------------------------------------------------ */

static struct net_link *link_of(struct cei_transport_peer *peer)
{
	return peer ? peer->owner : NULL;
}

static void heard(void *arg, struct cei_transport_peer *from, const void *message,
		  uint32_t n_bytes)
{
	struct net_end *end = arg;
	struct net_heard *record = &end->heard[end->n_heard++ % NET_HEARD];

	ck_assert_uint_ge(n_bytes, 1);
	ck_assert_uint_le(n_bytes, CEI_TRANSPORT_MESSAGE_MAX);
	record->from = link_of(from);
	record->n_bytes = n_bytes;
	memcpy(record->bytes, message, n_bytes);
	if (record->from) {
		ck_assert_ptr_eq(record->from->end, end);
		ck_assert_ptr_eq(record->from->peer, from);
		record->from->n_heard++;
	}
	if (end->on_heard)
		end->on_heard(end, record);
}

static struct net_offer *unused_offer(struct net_end *end)
{
	uint32_t i;

	for (i = 0; i < end->n_offers; i++)
		if (!end->offers[i].offer)
			return &end->offers[i];
	ck_assert_uint_lt(end->n_offers, NET_OFFERS);
	return &end->offers[end->n_offers++];
}

static void offered(void *arg, struct cei_transport_peer *from,
		    const struct cei_transport_arrival *arrival)
{
	struct net_end *end = arg;
	struct net_offer *record = unused_offer(end);

	ck_assert_uint_eq(arrival->n_head, sizeof(record->head));
	record->offer = arrival->offer;
	record->from = link_of(from);
	record->n_bytes = arrival->n_bytes;
	memcpy(&record->head, arrival->head, sizeof(record->head));
	if (end->on_offer)
		end->on_offer(end, record);
}

static void sent(void *arg, uint64_t tag, int error)
{
	struct net_end *end = arg;

	ck_assert_uint_lt(tag, NET_TAGS);
	ck_assert_uint_eq(end->sent[tag]++, 0);
	end->n_sent++;
	end->n_sent_well += !error;
}

static void landed(void *arg, uint64_t tag, int error)
{
	struct net_end *end = arg;

	ck_assert_uint_lt(tag, NET_TAGS);
	ck_assert_uint_eq(end->landed[tag]++, 0);
	end->landed_error[tag] = error;
	end->n_landed++;
	end->n_landed_well += !error;
}

static void failed(void *arg, struct cei_transport_peer *peer, const char *why)
{
	struct net_link *link = link_of(peer);

	ck_assert_ptr_eq(link->end, arg);
	ck_assert(why && *why && !strchr(why, '\n'));
	ck_assert_uint_eq(link->n_failed++, 0);
	snprintf(link->why, sizeof(link->why), "%s", why);
}

static void closed(void *arg, struct cei_transport_peer *peer)
{
	struct net_link *link = link_of(peer);

	ck_assert_ptr_eq(link->end, arg);
	ck_assert_uint_eq(link->n_closed++, 0);
	link->peer = NULL;
}

static const struct cei_transport_events events = {
	.heard = heard, .offered = offered, .sent = sent, .landed = landed, .failed = failed,
	.closed = closed,
};

/* --- ends -------------------------------------------------------------------------------- */

static void set_up(struct net_end *end, const struct cei_transport_ops *ops, const char *kinds)
{
	testing_log_init(&end->log);
	cei_report_init(&end->report, testing_log_line, &end->log);
	end->transport.ops = ops;
	end->transport.config.report = &end->report;
	end->transport.config.kinds = kinds;
	end->transport.config.n_peers = NET_LINKS;
	end->transport.config.events = &events;
	end->transport.config.events_arg = end;
}

struct net_end *net_open(const struct cei_transport_ops *ops, const char *kinds,
			 uint64_t n_bytes)
{
	struct net_end *end = calloc(1, sizeof(*end));
	const char *why = NULL;

	ck_assert_ptr_nonnull(end);
	ck_assert_uint_lt(rig.n_ends, ENDS_MAX);
	end->heard = calloc(NET_HEARD, sizeof(*end->heard));
	ck_assert_ptr_nonnull(end->heard);
	set_up(end, ops, kinds);
	ck_assert_int_eq(ops->open(&end->transport, &why), 0);
	ck_assert_int_eq(ops->address(&end->transport, end->address, &end->n_address), 0);
	end->n_bytes = n_bytes;
	end->bytes = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			  -1, 0);
	ck_assert_ptr_ne(end->bytes, MAP_FAILED);
	ck_assert_int_eq(ops->memory_open(&end->transport, end->bytes, n_bytes, &end->memory), 0);
	rig.ends[rig.n_ends++] = end;
	net_patience();
	return end;
}

int net_try(const struct cei_transport_ops *ops, const char *kinds)
{
	struct net_end *end = calloc(1, sizeof(*end));
	const char *why = "it says an error";
	int r;

	if (!end)
		return -1;
	set_up(end, ops, kinds);
	r = ops->open(&end->transport, &why);
	if (r)
		printf("skipped: %s, %s: %s\n", ops->name, kinds ? kinds : "all kinds", why);
	else
		ops->close(&end->transport);
	cei_report_fini(&end->report);
	free(end);
	return r;
}

void net_close(struct net_end *end)
{
	const struct cei_transport_ops *ops = end->transport.ops;
	uint32_t i;

	net_patience();
	for (i = 0; i < end->n_links; i++)
		if (end->links[i].peer)
			net_unlink(&end->links[i]);
	for (i = 0; i < end->n_offers; i++)
		if (end->offers[i].offer)
			net_refuse(end, &end->offers[i]);
	for (i = 0; rig.ends[i] != end; i++)
		;
	rig.ends[i] = rig.ends[--rig.n_ends];
	ops->memory_close(&end->transport, end->memory);
	ops->close(&end->transport);
	munmap(end->bytes, end->n_bytes);
	cei_report_fini(&end->report);
	free(end->heard);
	free(end);
}

void net_patience(void)
{
	rig.deadline_ns = cei_deadline(TESTING_PATIENCE);
}

/* Says what the ends have seen, for a test that waits for something else. */
static void print_ends(void)
{
	const struct net_link *link;
	const struct net_end *end;
	uint32_t i, k;

	for (i = 0; i < rig.n_ends; i++) {
		end = rig.ends[i];
		printf("end %u: %u messages, %u places of offers, %u sent, %u landed\n", i,
		       end->n_heard, end->n_offers, end->n_sent, end->n_landed);
		for (k = 0; k < end->n_links; k++) {
			link = &end->links[k];
			printf("  link %u: %s, failed %u, closed %u\n", k,
			       link->peer ? "open" : "not open", link->n_failed, link->n_closed);
		}
	}
	fflush(stdout);
}

void net_turn(void)
{
	uint32_t i;
	int n = 0;

	for (i = 0; i < rig.n_ends; i++)
		n += rig.ends[i]->transport.ops->progress(&rig.ends[i]->transport);
	if (n)
		return;
	if (cei_now_ns() >= rig.deadline_ns) {
		print_ends();
		ck_abort_msg("what is waited for has not come in time");
	}
	sched_yield();
}

/* --- links ------------------------------------------------------------------------------- */

struct net_link *net_link(struct net_end *end, const uint8_t *address, uint32_t n_address)
{
	struct net_link *link = &end->links[end->n_links++];

	ck_assert_uint_le(end->n_links, NET_LINKS);
	link->end = end;
	ck_assert_int_eq(end->transport.ops->peer_open(&end->transport, address, n_address, link,
						       &link->peer), 0);
	ck_assert_ptr_eq(link->peer->owner, link);
	ck_assert_ptr_eq(link->peer->transport, &end->transport);
	return link;
}

void net_join(struct net_end *a, struct net_end *b, struct net_link **ret_a,
	      struct net_link **ret_b)
{
	struct net_link *from_a = net_link(a, b->address, b->n_address);
	struct net_link *from_b = net_link(b, a->address, a->n_address);

	net_patience();
	net_say(from_a, "hello", 5);
	net_say(from_b, "hello", 5);
	while (!a->n_heard || !b->n_heard || !from_a->n_heard || !from_b->n_heard)
		net_turn();
	*ret_a = from_a;
	*ret_b = from_b;
}

void net_unlink(struct net_link *link)
{
	link->end->transport.ops->peer_close(link->peer);
	ck_assert_uint_eq(link->n_closed, 0);
	while (!link->n_closed)
		net_turn();
}

/* --- bytes ------------------------------------------------------------------------------- */

void net_say(struct net_link *link, const void *message, uint32_t n_bytes)
{
	int r;

	while ((r = link->end->transport.ops->say(link->peer, message, n_bytes)) == CEOV_FULL)
		net_turn();
	ck_assert_int_eq(r, 0);
}

struct cei_transport_span net_span(struct net_end *end, uint64_t offset, uint64_t n_bytes)
{
	struct cei_transport_span span = { end->memory, (uintptr_t)end->bytes + offset, n_bytes };

	return span;
}

int net_send(struct net_link *link, uint64_t offset, uint64_t n_bytes, uint64_t seed,
	     uint64_t tag)
{
	struct net_end *end = link->end;
	struct net_head head = { seed, tag };
	struct cei_transport_send send = { &head, sizeof(head), net_span(end, offset, n_bytes),
					   tag };
	uint32_t n_sent = end->n_sent;
	int r;

	testing_fill(end->bytes + offset, n_bytes, seed);
	r = end->transport.ops->send(link->peer, &send);
	ck_assert_uint_eq(end->n_sent, n_sent);
	return r;
}

int net_accept(struct net_end *end, struct net_offer *offer, struct net_link *link,
	       uint64_t offset, uint64_t tag)
{
	struct cei_transport_span span = net_span(end, offset, offer->n_bytes);
	struct cei_transport_offer *open = offer->offer;
	uint32_t n_landed = end->n_landed;
	int r;

	offer->offer = NULL;
	r = end->transport.ops->accept((link ? link : offer->from)->peer, open, &span, tag);
	ck_assert_uint_eq(end->n_landed, n_landed);
	return r;
}

void net_refuse(struct net_end *end, struct net_offer *offer)
{
	struct cei_transport_offer *open = offer->offer;

	offer->offer = NULL;
	end->transport.ops->refuse(&end->transport, open);
}

void net_check(struct net_end *end, uint64_t offset, uint64_t n_bytes, uint64_t seed)
{
	uint64_t n_good = testing_check(end->bytes + offset, n_bytes, seed);

	ck_assert_msg(n_good == n_bytes, "byte %llu of %llu differs",
		      (unsigned long long)n_good, (unsigned long long)n_bytes);
}

void net_check_all(struct net_end *end, uint64_t offset, uint64_t n_bytes, uint8_t value)
{
	const uint8_t *bytes = end->bytes + offset;
	uint64_t i, n_other = 0;

	/* The first byte by itself, then all against their neighbours: memcmp() is fast. */
	if (n_bytes && bytes[0] == value && !memcmp(bytes, bytes + 1, n_bytes - 1))
		return;
	for (i = 0; i < n_bytes; i++)
		n_other += bytes[i] != value;
	ck_assert_msg(!n_other, "%llu bytes of %llu were written to",
		      (unsigned long long)n_other, (unsigned long long)n_bytes);
}
