/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests a peer that follows the protocol but lies: rank 1 is a process of the test whose answer
 * depends on the name that it is asked for. Each lie changes one field of a valid export. Rank 0
 * must refuse it, or accept it if it does no harm, and must not leak descriptors.
 */

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "system/evil_wire.h"
#include "testing.h"

#define SIZE_BYTES 8192u
#define N_COUNTERS 4u
#define SEALS      (F_SEAL_SHRINK | F_SEAL_GROW)

/* Offsets of an export's fields. */
enum {
	AT_KIND = 0, AT_PLACE = 4, AT_COUNTERS = 8, AT_FLAGS = 12, AT_REGIONS = 16,
	AT_REGION_KIND = 20, AT_HAS_FD = 24, AT_SIZE = 28, AT_OFFSET = 36, AT_DEVICE = 44,
	AT_BUFFER_ID = 52, AT_INSTANCE = 60, AT_PID = 76, AT_HANDLE = 84, AT_UUID = 148,
};

#define REGION_BYTES 144u               /* of each region */

enum outcome { REFUSED, TAKEN, EITHER };

/* Descriptors that are sent with an export. */
enum files { HONEST, NO_FILE, TWO_FILES, FOUR_FILES, UNSEALED, A_PIPE, READ_ONLY, OTHER_SIZE };

struct lie {
	uint32_t     kind;              /* kind of object that rank 0 asks for */
	uint32_t     at;
	uint32_t     n_bytes;           /* number of bytes to change; 0: none */
	uint64_t     value;
	enum files   files;
	int          n_more;            /* how many bytes are added to the message, or removed */
	enum outcome outcome;
};

#define BUFFER 1u                       /* kinds of exports */
#define SIGNAL 2u

static const struct lie lies[] = {
	{ BUFFER, 0, 0, 0, HONEST, 0, TAKEN },
	{ SIGNAL, 0, 0, 0, HONEST, 0, TAKEN },
	{ BUFFER, AT_KIND, 4, 0, HONEST, 0, REFUSED },
	{ BUFFER, AT_KIND, 4, SIGNAL, HONEST, 0, REFUSED },
	{ BUFFER, AT_KIND, 4, 3, HONEST, 0, REFUSED },
	{ BUFFER, AT_PLACE, 4, 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_COUNTERS, 4, 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_FLAGS, 4, 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_REGIONS, 4, 0, NO_FILE, -(int)REGION_BYTES, REFUSED },
	{ BUFFER, AT_REGIONS, 4, 0, HONEST, 0, REFUSED },
	{ BUFFER, AT_REGIONS, 4, 2, TWO_FILES, REGION_BYTES, REFUSED },
	{ BUFFER, AT_REGIONS, 4, 3, HONEST, 0, REFUSED },
	{ BUFFER, AT_REGIONS, 4, UINT32_MAX, HONEST, 0, REFUSED },
	{ BUFFER, AT_REGION_KIND, 4, 7, HONEST, 0, REFUSED },
	/* GPU memory, with and without a descriptor: no member can reach it */
	{ BUFFER, AT_REGION_KIND, 4, CEOV_PLACE_GPU, HONEST, 0, EITHER },
	{ BUFFER, AT_REGION_KIND, 8, CEOV_PLACE_GPU, NO_FILE, 0, EITHER },
	{ BUFFER, AT_HAS_FD, 4, 0, HONEST, 0, REFUSED },
	{ BUFFER, AT_HAS_FD, 4, 0, NO_FILE, 0, REFUSED },
	{ BUFFER, AT_HAS_FD, 4, 2, HONEST, 0, REFUSED },
	{ BUFFER, AT_SIZE, 8, 0, HONEST, 0, REFUSED },
	{ BUFFER, AT_SIZE, 8, SIZE_BYTES + 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_SIZE, 8, SIZE_BYTES - 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_SIZE, 8, UINT64_MAX, HONEST, 0, REFUSED },
	{ BUFFER, AT_OFFSET, 8, 4096, HONEST, 0, REFUSED },
	{ BUFFER, AT_OFFSET, 8, UINT64_MAX, HONEST, 0, REFUSED },
	{ BUFFER, AT_DEVICE, 8, 0xdead0000, HONEST, 0, TAKEN },
	{ BUFFER, AT_BUFFER_ID, 8, 1, HONEST, 0, REFUSED },
	{ BUFFER, AT_INSTANCE, 8, 1, HONEST, 0, TAKEN },
	{ BUFFER, AT_PID, 8, 1, HONEST, 0, TAKEN },
	{ BUFFER, AT_HANDLE, 8, UINT64_MAX, HONEST, 0, TAKEN },
	{ BUFFER, AT_UUID, 8, UINT64_MAX, HONEST, 0, TAKEN },
	{ BUFFER, 0, 0, 0, NO_FILE, 0, REFUSED },
	{ BUFFER, 0, 0, 0, TWO_FILES, 0, REFUSED },
	{ BUFFER, 0, 0, 0, FOUR_FILES, 0, REFUSED },
	{ BUFFER, 0, 0, 0, UNSEALED, 0, REFUSED },
	{ BUFFER, 0, 0, 0, A_PIPE, 0, REFUSED },
	{ BUFFER, 0, 0, 0, READ_ONLY, 0, REFUSED },
	{ BUFFER, 0, 0, 0, OTHER_SIZE, 0, REFUSED },
	{ BUFFER, 0, 0, 0, HONEST, 1, REFUSED },
	{ BUFFER, 0, 0, 0, HONEST, -1, REFUSED },
	{ BUFFER, 0, 0, 0, HONEST, -150, REFUSED },
	{ SIGNAL, AT_KIND, 4, BUFFER, HONEST, 0, REFUSED },
	{ SIGNAL, AT_PLACE, 4, CEOV_PLACE_GPU, HONEST, 0, REFUSED },
	{ SIGNAL, AT_PLACE, 4, 9, HONEST, 0, REFUSED },
	{ SIGNAL, AT_COUNTERS, 4, 0, HONEST, 0, REFUSED },
	{ SIGNAL, AT_COUNTERS, 4, SIZE_BYTES, HONEST, 0, REFUSED },
	{ SIGNAL, AT_COUNTERS, 4, UINT32_MAX, HONEST, 0, REFUSED },
	{ SIGNAL, AT_FLAGS, 4, 0x80, HONEST, 0, REFUSED },
	{ SIGNAL, AT_REGIONS, 4, 0, NO_FILE, -(int)REGION_BYTES, REFUSED },
	{ SIGNAL, AT_REGIONS, 4, 2, TWO_FILES, REGION_BYTES, REFUSED },
	{ SIGNAL, AT_REGION_KIND, 8, CEOV_PLACE_GPU, NO_FILE, 0, REFUSED },
	{ SIGNAL, AT_SIZE, 8, 64, OTHER_SIZE, 0, REFUSED },
};

#define N_LIES (sizeof(lies) / sizeof(lies[0]))

/* Invalid replies; after most of them rank 0 closes the link. */
enum answer { NONE_WITH_FILES, ERROR_WITH_FILES, OTHER_NUMBER, NUMBER_0, ID_0,
	      GENERATION_0, TOO_MANY_FDS_SAID, ODD_RESULT, TWICE, A_DROP, A_BARRIER, A_HELLO,
	      ODD_TYPE, N_ANSWERS };

/* --- the peer -------------------------------------------------------------- */

static char path[108];

static int file_of(uint64_t n_bytes, int seals)
{
	int fd = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	must(fd >= 0 && !ftruncate(fd, (off_t)n_bytes) && !fallocate(fd, 0, 0, (off_t)n_bytes));
	must(!seals || !fcntl(fd, F_ADD_SEALS, seals));
	return fd;
}

static uint32_t files_of(const struct lie *lie, int *fds)
{
	char name[64];
	int pipe_fds[2];
	uint32_t n = 0;

	switch (lie->files) {
	case NO_FILE:
		return 0;
	case A_PIPE:
		must(!pipe(pipe_fds));
		close(pipe_fds[1]);
		fds[0] = pipe_fds[0];
		return 1;
	case READ_ONLY:
		fds[1] = file_of(SIZE_BYTES, SEALS);
		snprintf(name, sizeof(name), "/proc/self/fd/%d", fds[1]);
		fds[0] = open(name, O_RDONLY | O_CLOEXEC);
		close(fds[1]);
		must(fds[0] >= 0);
		return 1;
	case UNSEALED:
		fds[0] = file_of(SIZE_BYTES, 0);
		return 1;
	case OTHER_SIZE:
		fds[0] = file_of(64, SEALS);
		return 1;
	case FOUR_FILES:
		fds[n++] = file_of(SIZE_BYTES, SEALS);
		fds[n++] = file_of(SIZE_BYTES, SEALS);
		/* fall through */
	case TWO_FILES:
		fds[n++] = file_of(SIZE_BYTES, SEALS);
		/* fall through */
	case HONEST:
		fds[n++] = file_of(SIZE_BYTES, SEALS);
	}
	return n;
}

static void put(uint8_t *bytes, uint32_t at, uint64_t value, uint32_t n_bytes)
{
	uint32_t i;

	for (i = 0; i < n_bytes; i++)
		bytes[at + i] = (uint8_t)(value >> 8 * i);
}

static void describe(const struct lie *lie, int fd, struct evil_reply *reply)
{
	struct stat stat = { .st_ino = 0 };
	uint32_t at;

	must(fd < 0 || !fstat(fd, &stat));
	put(reply->bytes, AT_KIND, lie->kind, 4);
	put(reply->bytes, AT_COUNTERS, lie->kind == SIGNAL ? N_COUNTERS : 0, 4);
	put(reply->bytes, AT_REGIONS, 1, 4);
	for (at = 0; at <= REGION_BYTES; at += REGION_BYTES) {
		put(reply->bytes, at + AT_HAS_FD, 1, 4);
		put(reply->bytes, at + AT_SIZE, SIZE_BYTES, 8);
		put(reply->bytes, at + AT_BUFFER_ID, stat.st_ino, 8);
		put(reply->bytes, at + AT_PID, (uint64_t)getpid(), 8);
	}
	reply->n_bytes = (uint32_t)((int)(AT_REGION_KIND + REGION_BYTES) + lie->n_more);
	put(reply->bytes, lie->at, lie->value, lie->n_bytes);
}

static void tell_lie(int fd, struct evil_reply *reply, const struct lie *lie)
{
	int fds[EVIL_FDS_MAX];
	uint32_t i;

	reply->n_fds = files_of(lie, fds);
	describe(lie, reply->n_fds ? fds[0] : -1, reply);
	evil_answer(fd, reply, fds, reply->n_fds);
	for (i = 0; i < reply->n_fds; i++)
		close(fds[i]);
}

static void give_answer(int fd, struct evil_reply *reply, enum answer answer)
{
	int fds[EVIL_FDS_MAX], i;

	for (i = 0; i < (int)EVIL_FDS_MAX; i++)
		must((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
	reply->n_fds = EVIL_FDS_MAX;
	if (answer == NONE_WITH_FILES)
		reply->result = CEOV_NONE;
	if (answer == ERROR_WITH_FILES)
		reply->result = CEOV_ERR_SYSTEM;
	if (answer == ODD_RESULT)
		reply->result = CEOV_PENDING;
	if (answer == OTHER_NUMBER)
		reply->number += 1000;
	if (answer == NUMBER_0)
		reply->number = 0;
	if (answer == ID_0)
		reply->id = 0;
	if (answer == GENERATION_0)
		reply->generation = 0;
	if (answer == TOO_MANY_FDS_SAID)
		reply->n_fds = EVIL_FDS_MAX + 1;
	if (answer == A_DROP)
		evil_say_odd(fd, EVIL_DROP, fds);
	else if (answer == A_BARRIER)
		evil_say_odd(fd, EVIL_BARRIER, fds);
	else if (answer == A_HELLO)
		evil_say_odd(fd, EVIL_HELLO, fds);
	else if (answer == ODD_TYPE)
		evil_say_odd(fd, EVIL_NONE, fds);
	else
		evil_answer(fd, reply, fds, EVIL_FDS_MAX);
	if (answer == TWICE)
		evil_answer(fd, reply, fds, EVIL_FDS_MAX);
	for (i = 0; i < (int)EVIL_FDS_MAX; i++)
		close(fds[i]);
}

/* Answers "lie N" and "answer N" with the N-th lie or answer. For other names it answers that
 * nothing is exported. */
static void answer_find(int fd, struct evil_reply *reply)
{
	unsigned number;

	if (sscanf(reply->name, "lie %u", &number) == 1) {
		tell_lie(fd, reply, &lies[number]);
	} else if (sscanf(reply->name, "answer %u", &number) == 1) {
		give_answer(fd, reply, (enum answer)number);
	} else {
		reply->result = CEOV_NONE;
		evil_answer(fd, reply, NULL, 0);
	}
}

/* Answers requests until rank 0 closes the connection. */
static void be_evil(void)
{
	struct evil_reply reply;
	int fd = evil_come(path);
	uint32_t type;

	while ((type = evil_hear(fd, &reply)) != EVIL_BYE)
		if (type == EVIL_FIND)
			answer_find(fd, &reply);
	_exit(0);
}

/* --- rank 0 ---------------------------------------------------------------- */

static pid_t peer;

static void set_up(void)
{
	testing_path("group", path, sizeof(path));
	fflush(NULL);
	peer = fork();
	ck_assert_int_ge(peer, 0);
	if (!peer)
		be_evil();
}

static void tear_down(void)
{
	kill(peer, SIGKILL);
	waitpid(peer, NULL, 0);
}

static void assert_peer_ended_well(void)
{
	int status = 0;

	ck_assert_int_eq(waitpid(peer, &status, 0), peer);
	ck_assert_int_eq(status, 0);
}

static ceov_context *open_rank_0(void)
{
	struct ceov_member member = { 0, { CEOV_PLACE_HOST, 0 } };
	struct ceov_config config = testing_config(&member, 1, NULL);
	ceov_context *context = NULL;

	config.n_ranks = 2;
	config.group = path;
	config.deadline_ns = TESTING_PATIENCE;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

static uint32_t n_open_fds(void)
{
	DIR *fds = opendir("/proc/self/fd");
	uint32_t n = 0;

	ck_assert_ptr_nonnull(fds);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* Finds the name as a buffer or a signal, uses it, and drops it. */
static int find(ceov_context *context, uint32_t kind, const char *name)
{
	ceov_buffer *buffer = NULL;
	ceov_signal *signal = NULL;
	uint64_t value;
	int r;

	if (kind == BUFFER) {
		r = ceov_buffer_find(context, 1, name, &buffer);
		if (!r && ceov_buffer_base(buffer, 0))
			((volatile char *)ceov_buffer_base(buffer, 0))[SIZE_BYTES - 1] = 1;
		ck_assert_int_eq(ceov_buffer_release(buffer), 0);
		return r;
	}
	r = ceov_signal_find(context, 1, name, &signal);
	if (!r)
		ck_assert_int_eq(ceov_signal_value(signal, N_COUNTERS - 1, &value), 0);
	ck_assert_int_eq(ceov_signal_release(signal), 0);
	return r;
}

static uint32_t n_mappings(const char *of)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	uint32_t n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, of) != NULL;
	fclose(maps);
	return n;
}

START_TEST(test_every_field_may_lie)
{
	ceov_context *context = open_rank_0();
	uint32_t n_fds = n_open_fds(), i;
	char name[32];
	int r;

	for (i = 0; i < N_LIES; i++) {
		snprintf(name, sizeof(name), "lie %u", i);
		r = find(context, lies[i].kind, name);
		ck_assert_msg(lies[i].outcome != REFUSED || r < 0, "lie %u yields %d", i, r);
		ck_assert_msg(lies[i].outcome != TAKEN || !r, "lie %u yields %d", i, r);
		ck_assert_msg(n_open_fds() == n_fds, "lie %u: %u descriptors, before %u", i,
			      n_open_fds(), n_fds);
		ck_assert_msg(!n_mappings("memfd:lie"), "lie %u: a mapping is left", i);
	}
	ck_assert_int_eq(find(context, BUFFER, "lie 0"), 0);    /* the link still works */
	ceov_close(context);
	assert_peer_ended_well();
}
END_TEST

START_TEST(test_descriptors_beside_no_export_are_closed)
{
	ceov_context *context = open_rank_0();
	uint32_t n_fds = n_open_fds(), i;
	char none[32], error[32];

	snprintf(none, sizeof(none), "answer %d", NONE_WITH_FILES);
	snprintf(error, sizeof(error), "answer %d", ERROR_WITH_FILES);
	for (i = 0; i < 50; i++) {
		ck_assert_int_eq(find(context, BUFFER, none), CEOV_NONE);
		ck_assert_int_eq(find(context, SIGNAL, error), CEOV_ERR_SYSTEM);
	}
	ck_assert_uint_eq(n_open_fds(), n_fds);
	ceov_close(context);
	assert_peer_ended_well();
}
END_TEST

/* A reply that breaks the protocol ends the link, without leaked descriptors. */
START_TEST(test_nonsense_ends_the_link)
{
	uint32_t n_fds = n_open_fds();
	enum answer answer = (enum answer)_i;
	ceov_context *context = open_rank_0();
	char name[32];
	int r;

	snprintf(name, sizeof(name), "answer %d", _i);
	r = find(context, BUFFER, name);
	if (answer == TWICE)            /* the first of the two replies was valid */
		ck_assert_int_lt(r, 0);
	else
		ck_assert_int_eq(r, CEOV_ERR_PEER_LOST);
	while (answer == TWICE && r != CEOV_ERR_PEER_LOST)
		r = find(context, BUFFER, "none");
	ck_assert_int_eq(find(context, BUFFER, "lie 0"), CEOV_ERR_PEER_LOST);
	ceov_close(context);
	ck_assert_uint_eq(n_open_fds(), n_fds);
	assert_peer_ended_well();
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("evil_peer");
	TCase *all = tcase_create("lies");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_every_field_may_lie);
	tcase_add_test(all, test_descriptors_beside_no_export_are_closed);
	tcase_add_loop_test(all, test_nonsense_ends_the_link, OTHER_NUMBER, N_ANSWERS);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
