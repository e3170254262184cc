/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the fixture of the bootstrap's tests. */

#include "bootstrap_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define PARTIES_MAX 64

struct shared *shared;
char directory[96];
char path[104];
char store[PORT_STORE_BYTES];

static int store_fd;
static pid_t parties[PARTIES_MAX];
static int n_parties;

/* --- processes of the group ---------------------------------------------- */

void give_up(int line, const char *condition)
{
	fprintf(stderr, "party %d, line %d: %s\n", (int)getpid(), line, condition);
	_exit(99);
}

void pause_ms(uint64_t ms)
{
	struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000 * NS_PER_MS) };

	nanosleep(&pause, NULL);
}

void step_done(int step)
{
	/* release: pairs with the acquire in step_reached() */
	atomic_fetch_add_explicit(&shared->steps[step], 1, memory_order_release);
}

int step_reached(int step, uint32_t n)
{
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);

	/* acquire: pairs with the release in step_done() */
	while (atomic_load_explicit(&shared->steps[step], memory_order_acquire) < n) {
		if (cei_now_ns() > deadline_ns)
			return 0;
		pause_ms(1);
	}
	return 1;
}

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	if (getenv("CEOVERLAP_TEST_SHOW"))
		fprintf(stderr, "%d: %s\n", (int)getpid(), line);
}

static void note_gone(void *gone_arg, uint32_t rank, int departed)
{
	struct party *party = gone_arg;
	struct seen *seen = &shared->seen[party->site.members[0].rank][rank];

	/* release: pairs with the acquire in wait_gone() */
	atomic_store_explicit(&seen->departed, departed, memory_order_relaxed);
	atomic_fetch_add_explicit(&seen->n_gone, 1, memory_order_relaxed);
	atomic_store_explicit(&seen->gone_ns, cei_now_ns(), memory_order_release);
}

uint64_t wait_gone(uint32_t who, uint32_t whom)
{
	struct seen *seen = &shared->seen[who][whom];
	uint64_t deadline_ns = cei_deadline(PATIENCE_MS * NS_PER_MS);
	uint64_t gone_ns;

	do {
		/* acquire: pairs with the release in note_gone() */
		gone_ns = atomic_load_explicit(&seen->gone_ns, memory_order_acquire);
		if (!gone_ns)
			pause_ms(1);
	} while (!gone_ns && cei_now_ns() < deadline_ns);
	return gone_ns;
}

void party_init(struct party *party, uint32_t n_ranks)
{
	memset(party, 0, sizeof(*party));
	cei_report_init(&party->report, drop_line, NULL);
	party->site.report = &party->report;
	party->site.n_ranks = n_ranks;
}

void party_hold(struct party *party, uint32_t rank)
{
	party->site.members[party->site.n_members++].rank = rank;
	if (party->site.n_members == 1)
		party->report.rank = rank;
}

static const struct cei_peers_events events = { .gone = note_gone };

/* Takes over the links. */
static int link_party(struct party *party, struct cei_links *links)
{
	struct cei_peers_config config = {
		.report = &party->report, .roster = &party->who.roster,
		.timeout_ns = PATIENCE_MS * NS_PER_MS, .events = &events, .events_arg = party,
	};
	int r;

	cei_node_roster_make(&party->site, links, &party->who);
	r = cei_unix_open(&party->report, &party->who.roster, &party->carrier);
	if (!r) {
		config.near = cei_unix_carrier(party->carrier);
		r = cei_peers_open(&config, &party->peers);
	}
	if (!r)
		return cei_unix_attach(party->carrier, party->peers, links);
	cei_links_close(links);
	return r;
}

int party_open_by(struct party *party, uint64_t timeout_ms)
{
	struct cei_links links;
	int r;

	r = cei_node_meet(&party->site, path, cei_deadline(timeout_ms * NS_PER_MS), &links);
	if (!r)
		r = link_party(party, &links);
	cei_report_take(&party->report, &party->failure);
	return r;
}

void party_open(struct party *party, uint32_t n_ranks, uint32_t rank)
{
	party_init(party, n_ranks);
	party_hold(party, rank);
	if (!party_open_by(party, PATIENCE_MS))
		return;
	fprintf(stderr, "rank %u: %s\n", rank, party->failure.text);
	_exit(98);
}

void party_close(struct party *party)
{
	cei_peers_leave(party->peers);
	cei_unix_close(party->carrier);
	cei_peers_free(party->peers);
	cei_report_fini(&party->report);
}

int party_barrier(struct party *party, uint64_t timeout_ms)
{
	int r = cei_peers_barrier(party->peers, cei_deadline(timeout_ms * NS_PER_MS));

	cei_report_take(&party->report, &party->failure);
	return r;
}

int party_export(struct party *party, const struct thing *thing, uint64_t *ret_id)
{
	struct cei_group_export export = { .rank = thing->rank, .n_bytes = thing->n_bytes };
	uint32_t id;
	int r;

	memcpy(export.name, thing->name, NAME_BYTES);
	memcpy(export.bytes, thing->bytes, THING_BYTES);
	export.fds.n = thing->n_fds;
	memcpy(export.fds.fds, thing->fds, sizeof(export.fds.fds));
	r = cei_peers_export(party->peers, &export, &id);
	if (!r)
		*ret_id = id;
	return r;
}

int party_withdraw(struct party *party, uint64_t id)
{
	return cei_peers_withdraw(party->peers, (uint32_t)id, 0);
}

int party_find(struct party *party, uint32_t rank, const char *name, struct thing *ret_thing,
	       uint64_t *ret_use)
{
	struct cei_lookup lookup = { rank, name, cei_deadline(FIND_MS * NS_PER_MS) };
	struct cei_group_found found;
	struct ceov_failure failure;
	int r = cei_peers_find(party->peers, &lookup, &found, ret_use);

	if (!cei_report_take(&party->report, &failure))
		party->failure = failure;
	if (r)
		return r;
	ret_thing->n_fds = found.fds.n;
	ret_thing->n_bytes = found.n_bytes;
	memcpy(ret_thing->bytes, found.bytes, THING_BYTES);
	memcpy(ret_thing->fds, found.fds.fds, sizeof(ret_thing->fds));
	return 0;
}

void party_drop(struct party *party, uint32_t rank, uint64_t use)
{
	cei_peers_drop(party->peers, rank, use);
}

int says(const struct party *party, const char *words)
{
	if (strstr(party->failure.text, words))
		return 1;
	fprintf(stderr, "'%s' is not in '%s'\n", words, party->failure.text);
	return 0;
}

/* --- the test's own process ---------------------------------------------- */

pid_t start(void (*run)(uint32_t), uint32_t number)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		run(number);
		exit(0);        /* exit() instead of _exit(), so that the leak check runs */
	}
	ck_assert_int_lt(n_parties, PARTIES_MAX);
	parties[n_parties++] = pid;
	return pid;
}

static void forget(pid_t pid)
{
	int i;

	for (i = 0; i < n_parties; i++)
		if (parties[i] == pid)
			parties[i] = parties[--n_parties];
}

void assert_ends_well(pid_t pid)
{
	uint64_t deadline_ns = cei_deadline(2 * PATIENCE_MS * NS_PER_MS);
	int status = 0;
	pid_t ended;

	do {
		ended = waitpid(pid, &status, WNOHANG);
		if (!ended)
			pause_ms(2);
	} while (!ended && cei_now_ns() < deadline_ns);
	ck_assert_msg(ended == pid, "a part hangs");
	forget(pid);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
		      "a part ended with status 0x%x", (unsigned)status);
}

void assert_all_end_well(void)
{
	while (n_parties)
		assert_ends_well(parties[0]);
}

uint64_t kill_party(pid_t pid)
{
	uint64_t now_ns = cei_now_ns();

	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	forget(pid);
	return now_ns;
}

uint32_t n_open_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	uint32_t n = 0;

	if (!fds)
		return 0;
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

int is_directory_empty(void)
{
	DIR *entries = opendir(directory);
	int n = 0;

	if (!entries)
		return 0;
	while (readdir(entries))
		n++;
	closedir(entries);
	return n == 2;
}

static void set_up(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(shared, MAP_FAILED);
	ck_assert_int_eq(testing_template("ceoverlap-test", directory, sizeof(directory)), 1);
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/group", directory);
	store_fd = port_reserve(store);
	ck_assert_int_ge(store_fd, 0);
}

static void tear_down(void)
{
	while (n_parties)
		kill_party(parties[0]);
	close(store_fd);
	unlink(path);
	rmdir(directory);
	munmap(shared, sizeof(*shared));
}

int run_suite(const char *name, void (*add_tests)(TCase *))
{
	Suite *suite = suite_create(name);
	TCase *tcase = tcase_create(name);
	SRunner *runner;
	int n_failed;

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 100);
	add_tests(tcase);
	suite_add_tcase(suite, tcase);
	runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
