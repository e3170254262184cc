/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests what has no business in a meeting: strangers at the store, processes of other versions, and
 * a port that is something else. */

#include "meeting_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/store_wire.h"
#include "testing.h"

#define SHORT_MS  1000u
#define N_STRAYS  200u
#define OWN_JOB   "a test.0"

static int strays[2 * N_STRAYS];

/* Connects to the store, which may not listen yet. */
static int stray(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd, tries = 0;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (;;) {
		fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_ge(fd, 0);
		if (!connect(fd, (const void *)&address, sizeof(address)))
			return fd;
		close(fd);
		ck_assert_int_lt(tries++, 2000);
		pause_ms(5);
	}
}

static void say(int fd, const void *bytes, size_t n_bytes)
{
	(void)!send(fd, bytes, n_bytes, MSG_NOSIGNAL);  /* the store may have closed it */
}

/* Returns what the store sends until it closes the connection. */
static size_t hear(int fd, uint8_t *bytes, size_t n_room)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	size_t n = 0;
	ssize_t got;

	while (n < n_room) {
		ck_assert_int_eq(poll(&poll_fd, 1, (int)(TESTING_PATIENCE / TESTING_MS)), 1);
		got = recv(fd, bytes + n, n_room - n, 0);
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	return n;
}

/* --- strangers ---------------------------------------------------------------------- */

START_TEST(test_200_strangers)
{
	static const char get[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
	uint64_t state = testing_seed(), noise[8];
	uint32_t i, k;

	meeting.set = set_torchrun;
	meeting.n_processes = 8;
	start(0);
	for (i = 0; i < N_STRAYS; i++) {
		strays[i] = stray();
		for (k = 0; k < 8; k++)
			noise[k] = testing_random(&state);
		if (i % 3 == 0)
			say(strays[i], noise, 1 + testing_below(&state, sizeof(noise)));
		else if (i % 3 == 1)
			say(strays[i], get, sizeof(get) - 1);
	}
	for (i = 1; i < 8; i++)
		start(i);
	await_all();
	assert_all_met();
	for (i = 1; i < 8; i++)
		ck_assert_msg(outcomes[i].ns < 5 * TESTING_SECOND, "process %u took %.3f s", i,
			      (double)outcomes[i].ns / 1e9);
	for (i = 0; i < N_STRAYS; i++)
		close(strays[i]);
}
END_TEST

/* More than there is room for: the oldest make room, and processes that lose their place come
 * again. */
START_TEST(test_400_silent_strangers)
{
	uint32_t i;

	meeting.set = set_torchrun;
	meeting.n_processes = 4;
	start(0);
	for (i = 0; i < 2 * N_STRAYS; i++)
		strays[i] = stray();
	for (i = 1; i < 4; i++)
		start(i);
	await_all();
	assert_all_met();
	for (i = 0; i < 2 * N_STRAYS; i++)
		close(strays[i]);
}
END_TEST

START_TEST(test_silent_strangers_are_closed)
{
	uint8_t byte;
	uint64_t begin_ns;
	int fd;

	meeting.set = set_torchrun;
	meeting.n_processes = 2;
	start(0);
	fd = stray();
	begin_ns = cei_now_ns();
	ck_assert_uint_eq(hear(fd, &byte, 1), 0);
	ck_assert_uint_gt(cei_now_ns() - begin_ns, 500 * TESTING_MS);
	close(fd);
	start(1);
	await_all();
	assert_all_met();
}
END_TEST

/* --- processes that say something else than they should ------------------------------ */

/* The fixture's processes have the job OWN_JOB. */
static size_t hello_of(uint32_t process, const char *job, uint8_t *bytes)
{
	struct cei_store_message message = {
		.type = CEI_STORE_HELLO,
		.hello = { meeting.n_processes, { 1, { process } }, (uint32_t)strlen(job), "" },
	};

	memcpy(message.hello.job, job, strlen(job));
	return cei_encode(&cei_store_protocol, &message, bytes);
}

static size_t joined_of(uint8_t *bytes)
{
	struct cei_store_message message = { .type = CEI_STORE_JOINED };

	return cei_encode(&cei_store_protocol, &message, bytes);
}

/* Without the n_bytes that are said to follow. */
static size_t part_of(uint32_t round, uint64_t n_bytes, uint8_t *bytes)
{
	struct cei_store_message message = {
		.type = CEI_STORE_PART, .part = { round, n_bytes, NULL },
	};

	return cei_encode(&cei_store_protocol, &message, bytes);
}

/* Sends the bytes as another process and expects a refusal. */
static void assert_refused(const uint8_t *bytes, size_t n_bytes, int error, const char *text)
{
	uint8_t answer[CEI_STORE_SMALL_BYTES + 1];
	struct cei_store_message message;
	int fd = stray();

	say(fd, bytes, n_bytes);
	ck_assert_uint_eq(hear(fd, answer, sizeof(answer)),
			 CEI_STORE_HEAD_BYTES + 4 + CEI_STORE_TEXT_BYTES);
	ck_assert_int_eq(cei_store_get_head(answer, meeting.n_processes, &message), 0);
	ck_assert_uint_eq(message.type, CEI_STORE_REFUSE);
	ck_assert_int_eq(cei_store_get_body(answer + CEI_STORE_HEAD_BYTES, &message), 0);
	ck_assert_int_eq(message.refuse.error, error);
	ck_assert_msg(strstr(message.refuse.text, text), "'%s' lacks '%s'", message.refuse.text,
		      text);
	ck_assert_msg(!strstr(message.refuse.text, OWN_JOB), "'%s' tells the job's name",
		      message.refuse.text);
	close(fd);
}

static void assert_closed(const uint8_t *bytes, size_t n_bytes)
{
	uint8_t answer[CEI_STORE_SMALL_BYTES];
	int fd = stray();

	say(fd, bytes, n_bytes);
	ck_assert_uint_eq(hear(fd, answer, sizeof(answer)), 0);
	close(fd);
}

START_TEST(test_odd_hellos)
{
	struct cei_store_message two = {        /* numbers of one process */
		.type = CEI_STORE_HELLO, .hello = { 3, { 2, { 1, 2 } }, 0, "" },
	};
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	size_t n;

	meeting.set = set_torchrun;
	meeting.n_processes = 3;
	start(0);
	n = hello_of(1, OWN_JOB, bytes);
	bytes[4] = 9;
	assert_refused(bytes, n, CEOV_ERR_VERSION, "has version 9 of the store's protocol");
	n = hello_of(1, "another job", bytes);
	assert_refused(bytes, n, CEOV_ERR_INVALID, "another job");
	n = hello_of(0, OWN_JOB, bytes);
	assert_refused(bytes, n, CEOV_ERR_STATE, "two processes say that they are process 0");
	n = hello_of(3, OWN_JOB, bytes);
	assert_refused(bytes, n, CEOV_ERR_INVALID, "process 3 is out of range");
	n = part_of(0, 0, bytes);
	assert_closed(bytes, n);
	n = joined_of(bytes);
	assert_closed(bytes, n);
	n = hello_of(1, OWN_JOB, bytes);
	bytes[12]++;                            /* the length */
	assert_closed(bytes, n);
	two.hello.n_job = (uint32_t)strlen(OWN_JOB);
	memcpy(two.hello.job, OWN_JOB, two.hello.n_job);
	assert_closed(bytes, cei_encode(&cei_store_protocol, &two, bytes));
	start(1);
	start(2);
	await_all();
	assert_all_met();
}
END_TEST

/* One that has joined and then breaks the protocol is put out, and may come again. */
START_TEST(test_odd_parts)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES], answer[CEI_STORE_HEAD_BYTES];
	uint32_t i;
	int fd;

	meeting.set = set_torchrun;
	meeting.n_processes = 2;
	start(0);
	for (i = 0; i < 3; i++) {
		fd = stray();
		say(fd, bytes, hello_of(1, OWN_JOB, bytes));
		ck_assert_uint_eq(hear(fd, answer, sizeof(answer)), sizeof(answer));
		if (i == 0)             /* of another round */
			say(fd, bytes, part_of(7, 0, bytes));
		else if (i == 1)        /* a second hello */
			say(fd, bytes, hello_of(1, OWN_JOB, bytes));
		else                    /* a part that is cut off */
			say(fd, bytes, part_of(0, 100, bytes));
		if (i == 2)
			shutdown(fd, SHUT_WR);
		hear(fd, bytes, sizeof(bytes));
		close(fd);
	}
	start(1);
	await_all();
	assert_all_met();
}
END_TEST

/* --- something else listens at the port ----------------------------------------------- */

static int listen_here(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (const void *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	return fd;
}

START_TEST(test_another_server_at_the_port)
{
	static const char banner[] = "SSH-2.0-OpenSSH_9.2p1 Debian\r\n";
	int fd = listen_here(), guest;

	meeting.set = set_torchrun;
	meeting.n_processes = 2;
	meeting.timeout_ms = 2 * SHORT_MS;
	start(1);
	guest = accept(fd, NULL, NULL);
	ck_assert_int_ge(guest, 0);
	say(guest, banner, sizeof(banner) - 1);
	await_all();
	assert_failed(1, CEOV_ERR_INVALID, "no store of ceoverlap", "CEOVERLAP_STORE");
	close(guest);
	memset(outcomes, 0, MEETING_MAX * sizeof(*outcomes));
	start(0);
	start(1);                               /* nobody accepts it */
	await_all();
	assert_failed(0, CEOV_ERR_SYSTEM, "cannot listen", "CEOVERLAP_STORE");
	assert_failed(1, CEOV_ERR_TIMEOUT, "has not come to the store", NULL);
	close(fd);
}
END_TEST

/* A server that lies: the head is right, what follows is not. */
START_TEST(test_a_store_that_lies)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES], lie[64];
	struct cei_gathered gathered;
	uint32_t lengths[2] = { 1, 1 }, i;
	uint64_t n_all;
	uint8_t *all;
	int fd = listen_here(), guest;

	ck_assert_int_eq(cei_gathered_init(&gathered, 2, lengths), 0);
	meeting.set = set_torchrun;
	meeting.n_processes = 2;
	for (i = 0; i < 4; i++) {
		all = cei_store_put_all(0, &gathered, &n_all);
		ck_assert_ptr_nonnull(all);
		ck_assert_uint_le(n_all, sizeof(lie));
		memcpy(lie, all, n_all);
		free(all);
		if (i < 3)
			lie[CEI_STORE_HEAD_BYTES + 4 * i]++;    /* round, number, a length */
		memset(outcomes, 0, MEETING_MAX * sizeof(*outcomes));
		start(1);
		guest = accept(fd, NULL, NULL);
		ck_assert_int_ge(guest, 0);
		say(guest, bytes, joined_of(bytes));
		say(guest, lie, n_all);
		await_all();
		if (i < 3)
			assert_failed(1, CEOV_ERR_INVALID, "cannot be taken", NULL);
		else                    /* the exchange is right, the records are none */
			assert_failed(1, CEOV_ERR_INVALID, "no record of ceoverlap", NULL);
		close(guest);
	}
	cei_gathered_fini(&gathered);
	close(fd);
}
END_TEST

/* --- addresses that are not good ----------------------------------------- */

static const char *where;

static void set_where(uint32_t number, struct cei_book_config *config)
{
	config->where = where;
	config->job = "a test";
	config->process = number;
	config->n_processes = meeting.n_processes;
}

static void assert_alone_fails(const char *here, int error, const char *text)
{
	where = here;
	memset(outcomes, 0, MEETING_MAX * sizeof(*outcomes));
	start(1);
	await_all();
	assert_failed(1, error, text, NULL);
}

START_TEST(test_bad_places)
{
	meeting.set = set_where;
	meeting.n_processes = 2;
	meeting.timeout_ms = 10 * SHORT_MS;
	assert_alone_fails("localhost", CEOV_ERR_INVALID, "must be host:port");
	assert_alone_fails("localhost:0", CEOV_ERR_INVALID, "must be host:port");
	assert_alone_fails("localhost:65536", CEOV_ERR_INVALID, "must be host:port");
	assert_alone_fails(":77", CEOV_ERR_INVALID, "must be host:port");
	assert_alone_fails("no such host.invalid:77", CEOV_ERR_SYSTEM, "cannot be found");
	assert_alone_fails("/a/folder", CEOV_ERR_INVALID, "must be host:port");
}
END_TEST

static void set_few_descriptors(uint32_t number, struct cei_book_config *config)
{
	struct rlimit limit = { 40, 40 };

	set_torchrun(number, config);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(test_too_few_descriptors)
{
	meeting.set = set_few_descriptors;
	meeting.n_processes = 2;
	start(0);
	await_all();
	assert_failed(0, CEOV_ERR_SYSTEM, "ulimit -n", "66 descriptors");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("meeting_strays");
	TCase *tcase = tcase_create("meeting_strays");

	tcase_add_checked_fixture(tcase, meeting_set_up, meeting_tear_down);
	tcase_add_test(tcase, test_200_strangers);
	tcase_add_test(tcase, test_400_silent_strangers);
	tcase_add_test(tcase, test_silent_strangers_are_closed);
	tcase_add_test(tcase, test_odd_hellos);
	tcase_add_test(tcase, test_odd_parts);
	tcase_add_test(tcase, test_another_server_at_the_port);
	tcase_add_test(tcase, test_a_store_that_lies);
	tcase_add_test(tcase, test_bad_places);
	tcase_add_test(tcase, test_too_few_descriptors);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
