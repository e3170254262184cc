/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the fixture of the tests in which processes exchange their records. */

#include "meeting_fixture.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

struct meeting meeting;
struct meeting_outcome *outcomes;
uint16_t port;

static pid_t pids[MEETING_MAX];

void pause_ms(uint64_t ms)
{
	struct timespec pause = { .tv_sec = (time_t)(ms / 1000),
				  .tv_nsec = (long)(ms % 1000 * 1000000) };

	nanosleep(&pause, NULL);
}

/* --- in a process ------------------------------------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	if (getenv("CEOVERLAP_TEST_SHOW"))
		fprintf(stderr, "%d: %s\n", (int)getpid(), line);
}

/* Returns whether the book says what the processes have told. */
static int is_right(const struct cei_book *book, uint32_t own)
{
	const struct cei_roster *roster = cei_book_roster(book);
	uint32_t n = meeting.n_processes, i, n_bytes;
	const uint32_t *address;

	if (cei_book_n_ranks(book) != n || cei_book_n_processes(book) != n ||
	    cei_book_n_nodes(book) != (n + 3) / 4 || cei_book_own_process(book) != own)
		return 0;
	for (i = 0; i < n; i++) {
		address = cei_book_address(book, i, &n_bytes);
		if (roster->process_of[i] != i || roster->node_of[i] != i / 4 ||
		    n_bytes != 4 * (1 + i % 3) || *address != i)
			return 0;
	}
	return 1;
}

static int open_once(uint32_t number, struct cei_report *report)
{
	uint32_t rank = number, address[3] = { number, number, number };
	struct cei_book_config config = {
		.n_group_ranks = meeting.n_processes, .n_ranks = 1, .ranks = &rank,
		.n_address = 4 * (1 + number % 3), .address = address,
		.transport = "1.13.1",
	};
	struct cei_book *book = NULL;
	char node[16];
	int r;

	snprintf(node, sizeof(node), "node%u", number / 4);
	config.node = node;
	config.deadline_ns = cei_deadline(meeting.timeout_ms * TESTING_MS);
	if (meeting.set)
		meeting.set(number, &config);
	r = cei_book_open(&config, report, &book);
	if (!r && !is_right(book, number))
		r = 99;
	cei_book_free(book);
	return r;
}

void meet(uint32_t number)
{
	struct meeting_outcome *outcome = &outcomes[number];
	struct cei_report report;
	uint64_t begin_ns = cei_now_ns();
	uint32_t i;

	cei_report_init(&report, drop_line, NULL);
	for (i = 0; i < meeting.n_times && !outcome->result; i++)
		outcome->result = open_once(number, &report);
	cei_report_take(&report, &outcome->failure);
	cei_report_fini(&report);
	outcome->ns = cei_now_ns() - begin_ns;
	outcome->has_ended = 1;
}

void set_torchrun(uint32_t number, struct cei_book_config *config)
{
	char text[16];

	(void)config;
	snprintf(text, sizeof(text), "%u", number);
	setenv("RANK", text, 1);
	setenv("LOCAL_RANK", text, 1);
	setenv("GROUP_RANK", "0", 1);
	snprintf(text, sizeof(text), "%u", meeting.n_processes);
	setenv("WORLD_SIZE", text, 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	snprintf(text, sizeof(text), "%u", port - 1u);
	setenv("MASTER_PORT", text, 1);
	setenv("TORCHELASTIC_RUN_ID", "a test", 1);
}

/* --- in the test -------------------------------------------------------------------- */

pid_t start(uint32_t number)
{
	fflush(NULL);
	ck_assert_uint_lt(number, MEETING_MAX);
	pids[number] = fork();
	ck_assert_int_ge(pids[number], 0);
	if (!pids[number]) {
		if (meeting.run)
			meeting.run(number);
		else
			meet(number);
		exit(0);                /* instead of _exit(), so that the leak check runs */
	}
	return pids[number];
}

void start_all(void)
{
	uint32_t i;

	for (i = 0; i < meeting.n_processes; i++)
		start(i);
}

void kill_one(uint32_t number)
{
	ck_assert_int_eq(kill(pids[number], SIGKILL), 0);
	ck_assert_int_eq(waitpid(pids[number], NULL, 0), pids[number]);
	pids[number] = 0;
}

static void await_one(uint32_t number)
{
	uint64_t deadline_ns = cei_deadline(2 * TESTING_PATIENCE);
	int status = 0;
	pid_t ended;

	while (!(ended = waitpid(pids[number], &status, WNOHANG)) && cei_now_ns() < deadline_ns)
		pause_ms(2);
	ck_assert_msg(ended == pids[number], "process %u hangs", number);
	pids[number] = 0;
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
		      "process %u ended with status 0x%x", number, (unsigned)status);
}

void await_all(void)
{
	uint32_t i;

	for (i = 0; i < MEETING_MAX; i++)
		if (pids[i])
			await_one(i);
}

void assert_all_met(void)
{
	uint32_t i;

	for (i = 0; i < meeting.n_processes; i++)
		ck_assert_msg(outcomes[i].has_ended && !outcomes[i].result, "process %u: %d, %s",
			      i, outcomes[i].result, outcomes[i].failure.text);
}

void assert_failed(uint32_t number, int error, const char *text, const char *and_text)
{
	const struct meeting_outcome *outcome = &outcomes[number];

	ck_assert_msg(outcome->has_ended && outcome->result == error &&
		      strstr(outcome->failure.text, text) &&
		      (!and_text || strstr(outcome->failure.text, and_text)),
		      "process %u: %d, '%s', instead of %d, '%s' and '%s'", number,
		      outcome->result, outcome->failure.text, error, text,
		      and_text ? and_text : "");
}

/* Finds a port that is free now, below those that the kernel gives to clients. */
static void choose_port(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	uint64_t state = testing_seed() ^ (uint64_t)getpid() << 20;
	int fd, tries = 0, error;

	do {
		ck_assert_int_lt(tries++, 1000);
		port = (uint16_t)(20000 + testing_below(&state, 12000));
		address.sin_port = htons(port);
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_ge(fd, 0);
		error = bind(fd, (const void *)&address, sizeof(address));
		close(fd);
	} while (error);
}

void meeting_set_up(void)
{
	static const char *const variables[] = {
		"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
		"TORCHELASTIC_RESTART_COUNT", "PMIX_NAMESPACE", "PMIX_RANK", "CEOVERLAP_STORE",
		"CEOVERLAP_BOOTSTRAP", "CEOVERLAP_JOB",
	};
	size_t i;

	for (i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
		unsetenv(variables[i]);
	outcomes = mmap(NULL, MEETING_MAX * sizeof(*outcomes), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(outcomes, MAP_FAILED);
	memset(&meeting, 0, sizeof(meeting));
	meeting.n_times = 1;
	meeting.timeout_ms = TESTING_PATIENCE / TESTING_MS;
	choose_port();
}

void meeting_tear_down(void)
{
	uint32_t i;

	for (i = 0; i < MEETING_MAX; i++)
		if (pids[i])
			kill_one(i);
	munmap(outcomes, MEETING_MAX * sizeof(*outcomes));
}
