/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Clients that forge launches, or that write random words over all memory that they share with the
 * daemon, from a thread of its own, while another thread launches: rings, counters, abort words
 * and the word that tells their life. The daemon turns them away or not, but lives, and moves the
 * data of an honest client meanwhile.
 */

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ipc/service_area.h"
#include "system/daemon_rig.h"

#define ROUNDS     12u
#define HOSTILE_NS (TESTING_SECOND / 4)
#define RANGES_MAX 64u

static struct daemon_rig rig;
static uint64_t          seed;

/* --- the hostile client --------------------------------------------------------- */

struct range {
	_Atomic uint32_t *words;
	size_t            n;
};

/* The mappings of memory files whose name has the text; for writing: what both sides share. */
static uint32_t find_mapped(const char *name, char right, struct range *ranges)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	unsigned long begin, end;
	char line[400], rights[8];
	uint32_t n = 0;

	while (maps && n < RANGES_MAX && fgets(line, sizeof(line), maps)) {
		if (!strstr(line, name) ||
		    sscanf(line, "%lx-%lx %7s", &begin, &end, rights) != 3 ||
		    !strchr(rights, right))
			continue;
		ranges[n].words = (_Atomic uint32_t *)begin;
		ranges[n++].n = (end - begin) / sizeof(uint32_t);
	}
	if (maps)
		fclose(maps);
	return n;
}

/* Small numbers, numbers with all bits, and numbers that are nearly right get furthest. */
static uint32_t nasty(uint64_t *state, uint32_t now)
{
	switch (testing_below(state, 5)) {
	case 0:  return (uint32_t)testing_below(state, 4);
	case 1:  return UINT32_MAX - (uint32_t)testing_below(state, 3);
	case 2:  return now + 1;
	case 3:  return now ^ UINT32_C(1) << testing_below(state, 32);
	default: return (uint32_t)testing_random(state);
	}
}

struct scribbler {
	uint64_t state;
	int      forges;
};

/* relaxed, in both: the order of nonsense does not matter */
static void spoil(const struct range *ranges, uint32_t n, uint64_t *state)
{
	const struct range *range = &ranges[testing_below(state, n)];
	/* heads more often than the bytes of buffers */
	size_t n_words = testing_below(state, 2) && range->n > 64 ? 64 : range->n;
	_Atomic uint32_t *word = &range->words[testing_below(state, n_words)];

	atomic_store_explicit(word, nasty(state, atomic_load_explicit(word, memory_order_relaxed)),
			      memory_order_relaxed);
}

/* Writes the entry that the daemon takes next: one that it takes to be whole. */
static void forge(const struct cei_service_up *up, struct cei_service_down *down, uint64_t *state)
{
	uint32_t ring = (uint32_t)testing_below(state, 2);
	uint64_t taken = atomic_load_explicit(&up->lines[ring].taken, memory_order_relaxed);
	struct cei_service_entry *entry = &down->rings[ring].entries[taken % CEI_SERVICE_ENTRIES];

	atomic_store_explicit(&entry->plan, nasty(state, 0) | (uint64_t)nasty(state, 0) << 32,
			      memory_order_relaxed);
	atomic_store_explicit(&entry->number, nasty(state, (uint32_t)taken), memory_order_relaxed);
	atomic_store_explicit(&entry->base, nasty(state, 0), memory_order_relaxed);
	atomic_store(&entry->turn, taken + 1);
}

static void *scribble(void *arg)
{
	struct range ranges[RANGES_MAX], ups[RANGES_MAX], downs[RANGES_MAX];
	struct scribbler *scribbler = arg;
	uint32_t n = find_mapped("memfd:ceoverlap", 'w', ranges);

	if (!n || find_mapped("memfd:ceoverlapd-up", 'r', ups) != 1 ||
	    find_mapped("memfd:ceoverlapd-down", 'w', downs) != 1)
		_exit(3);               /* nothing is shared: this would test nothing */
	for (;;) {
		if (scribbler->forges)
			forge((const void *)ups[0].words, (void *)downs[0].words,
			      &scribbler->state);
		else
			spoil(ranges, n, &scribbler->state);
	}
	return NULL;
}

static void be_hostile(uint64_t own_seed, int forges)
{
	struct ceov_launch ask = { .struct_bytes = sizeof(ask), .deadline_ns = 1000000 };
	struct scribbler scribbler = { .state = own_seed, .forges = forges };
	struct daemon_rig_client client;
	pthread_t thread;
	uint64_t end;

	alarm(10);                      /* what it reads of its own is nonsense, too */
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	end = cei_deadline(HOSTILE_NS);
	if (pthread_create(&thread, NULL, scribble, &scribbler))
		_exit(4);
	while (cei_now_ns() < end) {
		(void)ceov_launch(client.plan, &ask, NULL);
		(void)ceov_signal_raise(client.ready, 0, 1);
	}
	kill(getpid(), SIGKILL);
}

/* --- the test ------------------------------------------------------------------- */

/* Hostile clients are forked before there are threads here, and each waits for a byte to begin. */
static void fork_hostile(pid_t *children, int *starts)
{
	uint32_t round;
	int pipes[2];
	char byte;

	for (round = 0; round < ROUNDS; round++) {
		ck_assert_int_eq(pipe(pipes), 0);
		children[round] = fork();
		if (!children[round]) {
			close(pipes[1]);
			if (read(pipes[0], &byte, 1) == 1)
				be_hostile(seed + round, round % 2);
			_exit(0);       /* the test has ended before its turn */
		}
		ck_assert_int_ge(children[round], 0);
		close(pipes[0]);
		starts[round] = pipes[1];
	}
}

START_TEST(test_a_client_that_scribbles_disturbs_nobody)
{
	struct daemon_rig_client client;
	pid_t children[ROUNDS];
	int starts[ROUNDS];
	uint32_t round;
	int status = 0;

	seed = testing_seed();
	daemon_rig_start(&rig, NULL);
	fork_hostile(children, starts);
	daemon_rig_open(&rig, &client, CEOV_URGENCY_NORMAL);
	for (round = 0; round < ROUNDS; round++) {
		ck_assert_int_eq(write(starts[round], "x", 1), 1);
		close(starts[round]);
		while (!waitpid(children[round], &status, WNOHANG))
			daemon_rig_pass(&client);
		ck_assert_msg(WIFSIGNALED(status), "the hostile client ended with 0x%x", status);
	}
	ck_assert_uint_ge(client.base, ROUNDS);
	daemon_rig_pass(&client);
	ceov_close(client.context);
	daemon_rig_end(&rig);
}
END_TEST

static Suite *suite(void)
{
	Suite *all = suite_create("hostile_client");
	TCase *cases = tcase_create("hostile_client");

	tcase_set_timeout(cases, 90);
	tcase_add_test(cases, test_a_client_that_scribbles_disturbs_nobody);
	suite_add_tcase(all, cases);
	return all;
}

int main(void)
{
	return testing_run(suite());
}
