/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests the cache of imported regions: each region is mapped once, however often it is found, and
 * unmapped with its last user. */

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/share.h"

#define SIZE_BYTES 8192u
#define N_THREADS  4
#define N_ROUNDS   500

static struct cei_report report;
static struct cei_site site;
static struct cei_region owned;
static struct cei_region_wire wire;
static int owned_fd;
static struct cei_mappings mappings;

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

static void set_up(void)
{
	cei_report_init(&report, drop_line, NULL);
	memset(&site, 0, sizeof(site));
	site.report = &report;
	site.n_ranks = 1;
	site.n_members = 1;
	memset(&owned, 0, sizeof(owned));
	owned.site = &site;
	ck_assert_int_eq(cei_share_host.create(&owned, 0, SIZE_BYTES), 0);
	ck_assert_int_eq(cei_share_host.export(&owned, &wire, &owned_fd), 0);
	ck_assert_int_eq(cei_mappings_init(&mappings, &site), 0);
}

static void tear_down(void)
{
	cei_mappings_fini(&mappings);
	cei_mappings_fini(&mappings);           /* the second call does nothing */
	cei_region_fini(&owned);
	cei_report_fini(&report);
}

static uint32_t n_open_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	uint32_t n_fds = 0;

	ck_assert_ptr_nonnull(directory);
	while (readdir(directory))
		n_fds++;
	closedir(directory);
	return n_fds;
}

static struct cei_region *get(const struct cei_region_wire *of)
{
	struct cei_region *region = NULL;

	ck_assert_int_eq(cei_mapping_get(&mappings, of, dup(owned_fd), &region), 0);
	return region;
}

START_TEST(test_a_region_is_mapped_once)
{
	struct cei_region *one = get(&wire);
	uint32_t n_fds = n_open_fds();
	struct cei_region *again = get(&wire);

	ck_assert_ptr_eq(one, again);
	ck_assert_uint_eq(n_open_fds(), n_fds);
	ck_assert_uint_eq(mappings.n_mappings, 1);
	ck_assert_uint_eq(one->address[0], (uintptr_t)one->host);
	((char *)owned.host)[100] = 3;
	ck_assert_int_eq(((char *)one->host)[100], 3);
	cei_mapping_put(&mappings, one);
	ck_assert_uint_eq(mappings.n_mappings, 1);
	ck_assert_int_eq(((char *)again->host)[100], 3);
	cei_mapping_put(&mappings, again);
	ck_assert_uint_eq(mappings.n_mappings, 0);
	cei_mapping_put(&mappings, NULL);
}
END_TEST

START_TEST(test_the_owners_instance_makes_another_region)
{
	struct cei_region_wire other = wire;
	struct cei_region *one = get(&wire);
	struct cei_region *two;

	other.instance[1]++;
	two = get(&other);
	ck_assert_ptr_ne(one, two);
	ck_assert_uint_eq(mappings.n_mappings, 2);
	cei_mapping_put(&mappings, two);
	cei_mapping_put(&mappings, one);
	one = get(&wire);
	ck_assert_uint_eq(mappings.n_mappings, 1);
	cei_mapping_put(&mappings, one);
}
END_TEST

static int other_file(void)
{
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, SIZE_BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

/* A peer that copies another peer's identity into its export gets neither that peer's memory nor
 * its entry. */
START_TEST(test_an_identity_without_its_file_is_refused)
{
	struct cei_region_wire other = wire;
	struct cei_region *one = get(&wire);
	struct cei_region *two = NULL;
	uint32_t n_fds = n_open_fds();

	ck_assert_int_eq(cei_mapping_get(&mappings, &wire, other_file(), &two),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_mapping_get(&mappings, &wire, -1, &two), CEOV_ERR_INVALID);
	ck_assert_ptr_null(two);
	other.pid++;
	two = get(&other);
	ck_assert_ptr_ne(one, two);
	ck_assert_uint_eq(n_open_fds(), n_fds);
	cei_mapping_put(&mappings, two);
	cei_mapping_put(&mappings, one);
}
END_TEST

START_TEST(test_a_refused_import_leaves_nothing)
{
	struct cei_region_wire bad = wire;
	struct cei_region *region = NULL;
	uint32_t n_fds = n_open_fds();

	bad.size_bytes++;
	ck_assert_int_eq(cei_mapping_get(&mappings, &bad, dup(owned_fd), &region),
			 CEOV_ERR_INVALID);
	ck_assert_ptr_null(region);
	ck_assert_int_eq(cei_mapping_get(&mappings, &wire, -1, &region),
			 CEOV_ERR_INVALID);
	bad = wire;
	bad.kind = 77;
	ck_assert_int_lt(cei_mapping_get(&mappings, &bad, dup(owned_fd), &region), 0);
	ck_assert_uint_eq(mappings.n_mappings, 0);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

START_TEST(test_fini_unmaps_what_is_left)
{
	uint32_t n_fds = n_open_fds();

	get(&wire);
	get(&wire);
	cei_mappings_fini(&mappings);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

static void *use_often(void *arg)
{
	struct cei_region *region;
	int *n_faults = arg;
	int i;

	for (i = 0; i < N_ROUNDS; i++) {
		if (cei_mapping_get(&mappings, &wire, dup(owned_fd), &region)) {
			(*n_faults)++;
			continue;
		}
		if (((volatile char *)region->host)[5] != 42)
			(*n_faults)++;
		cei_mapping_put(&mappings, region);
	}
	return NULL;
}

START_TEST(test_threads_share_the_cache)
{
	pthread_t threads[N_THREADS];
	int n_faults[N_THREADS] = { 0 };
	uint32_t n_fds = n_open_fds();
	int i;

	((char *)owned.host)[5] = 42;
	for (i = 0; i < N_THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use_often,
						&n_faults[i]), 0);
	for (i = 0; i < N_THREADS; i++) {
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
		ck_assert_int_eq(n_faults[i], 0);
	}
	ck_assert_uint_eq(mappings.n_mappings, 0);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

static Suite *mapping_suite(void)
{
	Suite *suite = suite_create("mapping");
	TCase *tcase = tcase_create("mapping");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_a_region_is_mapped_once);
	tcase_add_test(tcase, test_the_owners_instance_makes_another_region);
	tcase_add_test(tcase, test_an_identity_without_its_file_is_refused);
	tcase_add_test(tcase, test_a_refused_import_leaves_nothing);
	tcase_add_test(tcase, test_fini_unmaps_what_is_left);
	tcase_add_test(tcase, test_threads_share_the_cache);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(mapping_suite());
	int n_failed;

	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
