/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the hash by its published vectors, and that secret and job both count. */

#include "net/group_id.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/siphash.h"
#include "testing.h"

/* From the reference implementation of SipHash (vectors.h, 64 bits) and, the last one, from the
 * paper's appendix: hashes of the bytes 0, 1, 2, ... under the key of bytes 0 to 15. */
static const struct {
	size_t   n_bytes;
	uint64_t hash;
} vectors[] = {
	{ 0, UINT64_C(0x726fdb47dd0e0e31) }, { 1, UINT64_C(0x74f839c593dc67fd) },
	{ 2, UINT64_C(0x0d6c8009d9a94f5a) }, { 3, UINT64_C(0x85676696d7fb7e2d) },
	{ 4, UINT64_C(0xcf2794e0277187b7) }, { 5, UINT64_C(0x18765564cd99a68d) },
	{ 6, UINT64_C(0xcbc9466e58fee3ce) }, { 7, UINT64_C(0xab0200f58b01d137) },
	{ 8, UINT64_C(0x93f5f5799a932462) }, { 15, UINT64_C(0xa129ca6149be45e5) },
};

#define N_VECTORS (sizeof(vectors) / sizeof(vectors[0]))

static struct cei_report report;
static struct testing_log log_lines;

static void set_up(void)
{
	unsetenv("CEOVERLAP_SECRET");
	testing_log_init(&log_lines);
	cei_report_init(&report, testing_log_line, &log_lines);
}

static void tear_down(void)
{
	cei_report_fini(&report);
}

START_TEST(test_published_vectors)
{
	static const uint64_t key[2] = { UINT64_C(0x0706050403020100),
					 UINT64_C(0x0f0e0d0c0b0a0908) };
	uint8_t bytes[16];
	size_t i;

	for (i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)i;
	for (i = 0; i < N_VECTORS; i++)
		ck_assert_uint_eq(cei_siphash(key, bytes, vectors[i].n_bytes),
				  vectors[i].hash);
}
END_TEST

static uint64_t id_of(const char *secret, const char *job)
{
	struct cei_secret loaded;

	ck_assert_int_eq(cei_secret_load(&report, secret, strlen(secret), &loaded), 0);
	return cei_group_id(&loaded, job);
}

START_TEST(test_secret_and_job_both_count)
{
	ck_assert_uint_eq(id_of("open sesame", "job"), id_of("open sesame", "job"));
	ck_assert_uint_ne(id_of("open sesame", "job"), id_of("open sesame", "job 2"));
	ck_assert_uint_ne(id_of("open sesame", "job"), id_of("open sesamf", "job"));
	ck_assert_uint_ne(id_of("", "job"), id_of("a", "job"));
	ck_assert_uint_ne(id_of("", ""), 0);
}
END_TEST

START_TEST(test_secret_from_the_environment)
{
	struct cei_secret secret;
	char path[256];
	FILE *file;

	setenv("CEOVERLAP_SECRET", "open sesame", 1);
	ck_assert_int_eq(cei_secret_load(&report, NULL, 0, &secret), 0);
	ck_assert_uint_eq(cei_group_id(&secret, "job"), id_of("open sesame", "job"));
	/* what a call says wins */
	ck_assert_int_eq(cei_secret_load(&report, "call", 4, &secret), 0);
	ck_assert_uint_eq(cei_group_id(&secret, "job"), id_of("call", "job"));

	testing_path("secret", path, sizeof(path));
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fputs("of a file", file);
	fclose(file);
	setenv("CEOVERLAP_SECRET", path, 1);
	ck_assert_int_eq(cei_secret_load(&report, NULL, 0, &secret), 0);
	ck_assert_uint_eq(cei_group_id(&secret, "job"), id_of("of a file", "job"));
	unlink(path);
}
END_TEST

START_TEST(test_bad_secrets_are_refused)
{
	static char long_one[CEI_SECRET_BYTES_MAX + 2];
	struct cei_secret secret;
	char path[256];
	FILE *file;

	memset(long_one, 'x', sizeof(long_one) - 1);
	ck_assert_int_eq(cei_secret_load(&report, long_one, sizeof(long_one) - 1, &secret),
			 CEOV_ERR_INVALID);
	testing_log_has(&log_lines, "4097 bytes", "at most 4096", NULL);
	testing_path("no secret", path, sizeof(path));
	setenv("CEOVERLAP_SECRET", path, 1);
	ck_assert_int_eq(cei_secret_load(&report, NULL, 0, &secret), CEOV_ERR_SYSTEM);
	testing_log_has(&log_lines, path, "No such file", NULL);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	fclose(file);
	ck_assert_int_eq(cei_secret_load(&report, NULL, 0, &secret), CEOV_ERR_INVALID);
	testing_log_has(&log_lines, path, "which is empty", NULL);
	unlink(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("group_id");
	TCase *tcase = tcase_create("group_id");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_published_vectors);
	tcase_add_test(tcase, test_secret_and_job_both_count);
	tcase_add_test(tcase, test_secret_from_the_environment);
	tcase_add_test(tcase, test_bad_secrets_are_refused);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
