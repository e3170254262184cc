/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the messages of the store and the files of the folder: what is written comes back, and
 * everything else is refused. */

#include "net/store_wire.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ceoverlap/ceoverlap.h>

#include "net/folder_file.h"
#include "testing.h"

#define N_ROUNDS    20000
#define N_PROCESSES 5u

static uint64_t state;

static void set_up(void)
{
	state = testing_seed();
}

static void random_bytes(uint8_t *bytes, size_t n_bytes)
{
	while (n_bytes--)
		*bytes++ = (uint8_t)testing_random(&state);
}

/* --- messages ----------------------------------------------------------------------- */

START_TEST(test_small_messages_come_back)
{
	struct cei_store_hello hello = { testing_random(&state), 3, 9 }, hello_back;
	struct cei_store_refuse refuse = { CEOV_ERR_STATE, "no room" }, refuse_back;
	uint8_t bytes[CEI_STORE_SMALL_BYTES], *body = bytes + CEI_STORE_HEAD_BYTES;
	struct cei_store_head head;
	uint32_t round = 0;
	size_t n;

	n = cei_store_put_hello(&hello, bytes);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
	ck_assert_uint_eq(head.type, CEI_STORE_HELLO);
	ck_assert_uint_eq(n, CEI_STORE_HEAD_BYTES + head.n_bytes);
	ck_assert_int_eq(cei_store_get_hello(body, head.n_bytes, &hello_back), 0);
	ck_assert(hello_back.group == hello.group && hello_back.process == 3 &&
		  hello_back.n_processes == 9);
	n = cei_store_put_refuse(&refuse, bytes);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
	ck_assert_uint_eq(n, CEI_STORE_HEAD_BYTES + head.n_bytes);
	ck_assert_int_eq(cei_store_get_refuse(body, head.n_bytes, &refuse_back), 0);
	ck_assert_int_eq(refuse_back.error, CEOV_ERR_STATE);
	ck_assert_str_eq(refuse_back.text, "no room");
	n = cei_store_put_part(7, 11, bytes);
	ck_assert_uint_eq(n, CEI_STORE_HEAD_BYTES + CEI_STORE_PART_BYTES);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
	ck_assert_uint_eq(head.n_bytes, CEI_STORE_PART_BYTES + 11);
	ck_assert_int_eq(cei_store_get_part(body, head.n_bytes, &round), 0);
	ck_assert_uint_eq(round, 7);
	ck_assert_uint_eq(cei_store_put_joined(bytes), CEI_STORE_HEAD_BYTES);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
}
END_TEST

START_TEST(test_refusals_are_errors_and_plain_text)
{
	struct cei_store_refuse refuse = { 0, "" }, back;
	uint8_t bytes[CEI_STORE_SMALL_BYTES], *body = bytes + CEI_STORE_HEAD_BYTES;

	memset(refuse.text, '\033', sizeof(refuse.text));
	cei_store_put_refuse(&refuse, bytes);
	ck_assert_int_eq(cei_store_get_refuse(body, CEI_STORE_REFUSE_BYTES, &back),
			 CEOV_ERR_INVALID);
	refuse.error = CEI_ERROR_LOWEST - 1;
	cei_store_put_refuse(&refuse, bytes);
	ck_assert_int_eq(cei_store_get_refuse(body, CEI_STORE_REFUSE_BYTES, &back),
			 CEOV_ERR_INVALID);
	refuse.error = CEI_ERROR_LOWEST;
	cei_store_put_refuse(&refuse, bytes);
	ck_assert_int_eq(cei_store_get_refuse(body, CEI_STORE_REFUSE_BYTES, &back), 0);
	ck_assert_uint_eq(strspn(back.text, "?"), CEI_STORE_TEXT_BYTES - 1);
}
END_TEST

/* Random parts, gathered, to bytes and back. */
static uint8_t *random_all(struct cei_gathered *gathered, uint64_t *ret_n_bytes)
{
	uint32_t lengths[N_PROCESSES], i;

	for (i = 0; i < N_PROCESSES; i++)
		lengths[i] = (uint32_t)testing_below(&state, 40);
	ck_assert_int_eq(cei_gathered_init(gathered, N_PROCESSES, lengths), 0);
	random_bytes(gathered->bytes, gathered->ends[N_PROCESSES - 1]);
	return cei_store_put_all(3, gathered, ret_n_bytes);
}

START_TEST(test_bytes_of_all_come_back)
{
	const struct cei_store_wanted wanted = { 3, N_PROCESSES };
	struct cei_gathered gathered, back;
	struct cei_store_head head;
	uint32_t i, p, n, n_back;
	uint64_t n_bytes;
	uint8_t *bytes;

	for (i = 0; i < 1000; i++) {
		bytes = random_all(&gathered, &n_bytes);
		ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
		ck_assert_uint_eq(head.n_bytes, n_bytes - CEI_STORE_HEAD_BYTES);
		ck_assert_int_eq(cei_store_get_all(bytes + CEI_STORE_HEAD_BYTES, head.n_bytes,
						   &wanted, &back), 0);
		for (p = 0; p < N_PROCESSES; p++) {
			ck_assert_mem_eq(cei_gathered_part(&back, p, &n_back),
					 cei_gathered_part(&gathered, p, &n), n);
			ck_assert_uint_eq(n_back, n);
		}
		cei_gathered_fini(&back);
		ck_assert_int_ne(cei_store_get_all(bytes + CEI_STORE_HEAD_BYTES,
						   head.n_bytes - 1, &wanted, &back), 0);
		cei_gathered_fini(&gathered);
		free(bytes);
	}
}
END_TEST

START_TEST(test_lengths_have_limits)
{
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	struct cei_store_head head;

	cei_store_put_part(0, CEI_GATHERED_BYTES_MAX, bytes);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
	cei_store_put_part(0, CEI_GATHERED_BYTES_MAX + 1, bytes);
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), CEOV_ERR_INVALID);
	bytes[8] = CEI_STORE_ALL;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
	ck_assert_int_eq(cei_store_get_head(bytes, 20000, &head), CEOV_ERR_INVALID);
	bytes[19] = 0x80;
	ck_assert_int_eq(cei_store_get_head(bytes, 65536, &head), CEOV_ERR_INVALID);
	cei_store_put_joined(bytes);
	bytes[8] = CEI_STORE_ALL + 1;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), CEOV_ERR_INVALID);
	bytes[8] = 0;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_another_version)
{
	struct cei_store_refuse refuse = { CEOV_ERR_VERSION, "no" };
	uint8_t bytes[CEI_STORE_SMALL_BYTES];
	struct cei_store_head head;

	cei_store_put_joined(bytes);
	bytes[4] = 9;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), CEOV_ERR_VERSION);
	ck_assert_uint_eq(head.version, 9);
	bytes[0] ^= 1;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), CEOV_ERR_INVALID);
	cei_store_put_refuse(&refuse, bytes);
	bytes[4] = 9;
	ck_assert_int_eq(cei_store_get_head(bytes, N_PROCESSES, &head), 0);
}
END_TEST

/* Sanitizers check the accesses. */
START_TEST(test_random_messages_do_no_harm)
{
	const struct cei_store_wanted wanted = { 3, N_PROCESSES };
	struct cei_gathered gathered, back;
	uint64_t n_bytes, n_flips, sum;
	struct cei_store_head head;
	uint32_t i, p, n;
	uint8_t *bytes;

	for (i = 0; i < N_ROUNDS; i++) {
		bytes = random_all(&gathered, &n_bytes);
		for (n_flips = 1 + testing_below(&state, 4); n_flips; n_flips--)
			bytes[testing_below(&state, n_bytes < 60 ? n_bytes : 60)] =
				(uint8_t)testing_below(&state, 64);
		if (!cei_store_get_head(bytes, N_PROCESSES, &head) &&
		    head.n_bytes <= n_bytes - CEI_STORE_HEAD_BYTES &&
		    !cei_store_get_all(bytes + CEI_STORE_HEAD_BYTES, head.n_bytes, &wanted,
				       &back)) {
			for (sum = 0, p = 0; p < N_PROCESSES; p++, sum += n)
				cei_gathered_part(&back, p, &n);
			ck_assert_uint_eq(head.n_bytes, CEI_STORE_ALL_BYTES +
					  4 * N_PROCESSES + sum);
			cei_gathered_fini(&back);
		}
		cei_gathered_fini(&gathered);
		free(bytes);
	}
}
END_TEST

/* --- files -------------------------------------------------------------------------- */

static int open_folder(void)
{
	char path[256];
	int fd;

	testing_path("", path, sizeof(path));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

static struct cei_folder_file random_file(uint8_t *bytes, uint64_t n_bytes)
{
	struct cei_folder_file file = { .bytes = bytes, .n_bytes = n_bytes };

	random_bytes(bytes, n_bytes);
	file.head.version = CEI_FOLDER_VERSION;
	file.head.error = -3;
	file.head.group = testing_random(&state);
	file.head.run = testing_random(&state);
	file.head.instance = testing_random(&state);
	file.head.process = 4;
	file.head.n_processes = 5;
	file.head.round = 6;
	return file;
}

START_TEST(test_files_come_back)
{
	uint8_t bytes[200];
	struct cei_folder_file file = random_file(bytes, sizeof(bytes)), back;
	int fd = open_folder();

	ck_assert_int_eq(cei_folder_read(fd, "file", 200, &back), CEOV_NONE);
	ck_assert_int_eq(cei_folder_write(fd, "file", &file), 0);
	ck_assert_int_eq(cei_folder_read(fd, "file", 200, &back), 0);
	ck_assert_mem_eq(&back.head, &file.head, offsetof(struct cei_folder_head, round) + 4);
	ck_assert_uint_eq(back.n_bytes, 200);
	ck_assert_mem_eq(back.bytes, bytes, 200);
	free(back.bytes);
	ck_assert_int_eq(cei_folder_read(fd, "file", 199, &back), CEOV_ERR_INVALID);
	file = random_file(bytes, 10);          /* replaces it */
	ck_assert_int_eq(cei_folder_write(fd, "file", &file), 0);
	ck_assert_int_eq(cei_folder_read(fd, "file", 200, &back), 0);
	ck_assert_uint_eq(back.n_bytes, 10);
	free(back.bytes);
	ck_assert_int_eq(unlinkat(fd, "file", 0), 0);
	close(fd);
}
END_TEST

START_TEST(test_what_is_no_such_file)
{
	uint8_t bytes[20];
	struct cei_folder_file file = random_file(bytes, sizeof(bytes)), back;
	int fd = open_folder(), file_fd;
	struct stat about;

	ck_assert_int_eq(cei_folder_write(fd, "file", &file), 0);
	ck_assert_int_eq(symlinkat("file", fd, "link"), 0);
	ck_assert_int_eq(cei_folder_read(fd, "link", 20, &back), CEOV_ERR_INVALID);
	ck_assert_int_eq(mkfifoat(fd, "pipe", 0600), 0);
	ck_assert_int_eq(cei_folder_read(fd, "pipe", 20, &back), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_folder_read(fd, ".", 20, &back), CEOV_ERR_INVALID);
	file_fd = openat(fd, "file", O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(file_fd, 0);
	ck_assert_int_eq(fstat(file_fd, &about), 0);
	ck_assert_int_eq(about.st_mode & 07777, 0600);
	ck_assert_int_eq(ftruncate(file_fd, about.st_size - 1), 0);
	ck_assert_int_eq(cei_folder_read(fd, "file", 20, &back), CEOV_ERR_INVALID);
	ck_assert_int_eq(ftruncate(file_fd, 7), 0);
	ck_assert_int_eq(cei_folder_read(fd, "file", 20, &back), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_folder_write(fd, "file", &file), 0);
	close(file_fd);
	file_fd = openat(fd, "file", O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(pwrite(file_fd, "\x09", 1, 4), 1);
	ck_assert_int_eq(cei_folder_read(fd, "file", 20, &back), CEOV_ERR_VERSION);
	ck_assert_uint_eq(back.head.version, 9);
	ck_assert_int_eq(pwrite(file_fd, "x", 1, 0), 1);
	ck_assert_int_eq(cei_folder_read(fd, "file", 20, &back), CEOV_ERR_INVALID);
	close(file_fd);
	unlinkat(fd, "file", 0);
	unlinkat(fd, "link", 0);
	unlinkat(fd, "pipe", 0);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("store_wire");
	TCase *tcase = tcase_create("store_wire");

	tcase_add_checked_fixture(tcase, set_up, NULL);
	tcase_add_test(tcase, test_small_messages_come_back);
	tcase_add_test(tcase, test_refusals_are_errors_and_plain_text);
	tcase_add_test(tcase, test_bytes_of_all_come_back);
	tcase_add_test(tcase, test_lengths_have_limits);
	tcase_add_test(tcase, test_another_version);
	tcase_add_test(tcase, test_random_messages_do_no_harm);
	tcase_add_test(tcase, test_files_come_back);
	tcase_add_test(tcase, test_what_is_no_such_file);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
