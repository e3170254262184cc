/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "carrier_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* --- the double ------------------------------------------------------------------ */

void cei_peers_received(struct cei_peers *peers, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds)
{
	uint32_t i;

	ck_assert_uint_eq(peers->n_down, 0);
	ck_assert_uint_lt(peers->n_heard, HEARD);
	peers->from = process;
	peers->types[peers->n_heard] = message->type;
	peers->numbers[peers->n_heard++] = message->number;
	peers->last = *message;
	peers->n_fds = fds->n;
	memcpy(peers->fds, fds->fds, fds->n * sizeof(fds->fds[0]));
	for (i = 0; i < fds->n && !peers->keeps_fds; i++)
		ck_assert_int_eq(close(fds->fds[i]), 0);
}

void cei_peers_ready(struct cei_peers *peers, uint32_t process)
{
	peers->from = process;
	peers->n_ready++;
}

void cei_peers_down(struct cei_peers *peers, uint32_t process, const char *why, int is_refusal)
{
	ck_assert_ptr_nonnull(why);
	peers->from = process;
	peers->n_down++;
	peers->n_refusals += is_refusal != 0;
}

void cei_peers_quiet(struct cei_peers *peers, uint32_t process)
{
	peers->from = process;
	peers->n_quiet++;
}

void cei_peers_wake(struct cei_peers *peers)
{
	peers->n_wakes++;
}

/* --- three processes of a node, in this one ------------------------------------------ */

struct side sides[N_SIDES];
static struct cei_report report;
struct testing_log log_lines;
static uint32_t n_fds_before;

static struct cei_party party_of(uint32_t process)
{
	struct cei_party party = { 1, { process } };

	if (!process)
		party.ranks[party.n_ranks++] = 3;
	return party;
}

uint32_t n_open_fds(void)
{
	uint32_t n = 0;
	int fd;

	for (fd = 0; fd < 1000; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void add_link(struct side *side, uint32_t process, int fd)
{
	struct cei_node_link *link = &side->links.links[side->links.n_links++];

	link->party = party_of(process);
	link->fd = fd;
	link->pidfd = -1;
}

static void make_roster(uint32_t own)
{
	struct cei_site site = { .n_ranks = 4 };
	struct cei_party party = party_of(own);
	uint32_t i;

	site.n_members = party.n_ranks;
	for (i = 0; i < party.n_ranks; i++)
		site.members[i].rank = party.ranks[i];
	cei_node_roster_make(&site, &sides[own].links, &sides[own].who);
}

static void set_up(void)
{
	int ends[2];
	uint32_t i, j;

	n_fds_before = n_open_fds();
	testing_log_init(&log_lines);
	cei_report_init(&report, testing_log_line, &log_lines);
	memset(sides, 0, sizeof(sides));
	for (i = 0; i < N_SIDES; i++)
		for (j = i + 1; j < N_SIDES; j++) {
			ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
						    ends), 0);
			add_link(&sides[i], j, ends[0]);
			add_link(&sides[j], i, ends[1]);
		}
	for (i = 0; i < N_SIDES; i++) {
		make_roster(i);
		ck_assert_int_eq(cei_unix_open(&report, &sides[i].who.roster,
					       &sides[i].carrier), 0);
	}
}

void attach(uint32_t own)
{
	ck_assert_int_eq(cei_unix_attach(sides[own].carrier, &sides[own].peers,
					 &sides[own].links), 0);
}

void attach_all(void)
{
	uint32_t i;

	for (i = 0; i < N_SIDES; i++)
		attach(i);
	for (i = 0; i < N_SIDES; i++)
		memset(&sides[i].peers, 0, sizeof(sides[i].peers));
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; i < N_SIDES; i++) {
		cei_unix_close(sides[i].carrier);
		cei_links_close(&sides[i].links);
	}
	cei_report_fini(&report);
	ck_assert_uint_eq(n_open_fds(), n_fds_before);
}

const struct cei_carrier *carrier_of(uint32_t own)
{
	return cei_unix_carrier(sides[own].carrier);
}

int say_with(uint32_t own, uint32_t to, const struct cei_group_message *message,
	     const struct cei_group_fds *fds, int *ret_native_code)
{
	const struct cei_carrier *carrier = carrier_of(own);

	return carrier->ops->send(carrier->state, to, message, fds, ret_native_code);
}

int say(uint32_t own, uint32_t to, uint32_t type, uint64_t number)
{
	const struct cei_group_message message = { .type = type, .number = number };
	int native_code = 0;

	return say_with(own, to, &message, NULL, &native_code);
}

void give_up(uint32_t own, uint32_t whom)
{
	const struct cei_carrier *carrier = carrier_of(own);

	carrier->ops->give_up(carrier->state, whom, "test");
}

int turn(uint32_t own)
{
	const struct cei_carrier *carrier = carrier_of(own);
	struct pollfd fds[2 * CEI_LINKS_MAX];
	uint32_t n = carrier->ops->list_fds(carrier->state, fds);

	ck_assert_uint_eq(n, carrier->n_fds_max);
	ck_assert_uint_eq(carrier->ops->due(carrier->state), CEI_FOREVER);
	if (poll(fds, n, 0) <= 0)
		return 0;
	return carrier->ops->turn(carrier->state, fds);
}

void turn_all(uint32_t own)
{
	uint32_t n = 0;

	while (turn(own))
		ck_assert_uint_lt(n++, 100);    /* else its thread would never sleep */
}

int steal(uint32_t own, uint32_t process)
{
	struct cei_links *links = &sides[own].links;
	uint32_t i;
	int fd;

	for (i = 0; i < links->n_links; i++)
		if (links->links[i].party.ranks[0] == process) {
			fd = links->links[i].fd;
			links->links[i].fd = -1;
			return fd;
		}
	ck_abort();
	return -1;
}

void set_pidfd(uint32_t own, uint32_t process, pid_t pid)
{
	struct cei_links *links = &sides[own].links;
	uint32_t i;

	for (i = 0; i < links->n_links; i++)
		if (links->links[i].party.ranks[0] == process)
			links->links[i].pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
}

int run_suite(const char *name, void (*add_tests)(TCase *))
{
	Suite *suite = suite_create(name);
	TCase *all = tcase_create(name);

	tcase_add_checked_fixture(all, set_up, tear_down);
	add_tests(all);
	suite_add_tcase(suite, all);
	return testing_run(suite);
}
