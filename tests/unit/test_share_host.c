/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Host regions: create, adopt, export, import; and invalid descriptors from a peer. */

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/share.h"

#define SIZE_BYTES 10000u

static struct cei_report report;
static struct cei_site site;
static struct cei_region region, peer;

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
	site.instance[0] = 17;
	site.instance[1] = 18;
	site.n_ranks = 2;
	site.n_members = 2;
	site.members[0].rank = 0;
	site.members[1].rank = 1;
	memset(&region, 0, sizeof(region));
	memset(&peer, 0, sizeof(peer));
	region.site = &site;
	peer.site = &site;
}

static void tear_down(void)
{
	cei_region_fini(&peer);
	cei_region_fini(&region);
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

static void assert_last_failure(int error, const char *part)
{
	struct ceov_failure failure;

	ck_assert_int_eq(cei_report_take(&report, &failure), 0);
	ck_assert_int_eq(failure.error, error);
	ck_assert_msg(strstr(failure.text, part) != NULL, "'%s' is not in '%s'", part,
		      failure.text);
}

START_TEST(test_created_memory_reaches_a_peer)
{
	struct cei_region_wire wire;
	uint32_t n_fds = n_open_fds();
	int fd;

	ck_assert_int_eq(cei_share_host.create(&region, 0, SIZE_BYTES), 0);
	ck_assert_int_eq(cei_region_map_all(&region), 0);
	ck_assert_uint_eq(region.address[1], (uintptr_t)region.host);
	memset(region.host, 7, SIZE_BYTES);
	ck_assert_int_eq(cei_share_host.export(&region, &wire, &fd), 0);
	ck_assert_uint_eq(wire.size_bytes, SIZE_BYTES);
	ck_assert_uint_eq(wire.instance[1], 18);
	ck_assert_uint_eq(wire.has_fd, 1);
	wire.instance[0] = 99;
	ck_assert_int_eq(cei_share_host.import(&peer, &wire, dup(fd)), 0);
	ck_assert_int_eq(cei_region_map_all(&peer), 0);
	ck_assert_int_eq(cei_region_map_all(&peer), 0);         /* a second call changes nothing */
	ck_assert_ptr_ne(peer.host, region.host);
	ck_assert_uint_eq(((uint8_t *)peer.host)[SIZE_BYTES - 1], 7);
	((uint8_t *)peer.host)[0] = 9;
	ck_assert_uint_eq(((uint8_t *)region.host)[0], 9);
	ck_assert_uint_eq(peer.instance[0], 99);
	ck_assert_uint_eq(peer.buffer_id, region.buffer_id);
	ck_assert_int_eq(peer.origin, CEI_REGION_IMPORTED);
	ck_assert_int_eq(cei_share_host.check(&peer), 0);
	cei_region_fini(&region);
	((uint8_t *)peer.host)[1] = 1;          /* the memory stays writable without the
						 * descriptor */
	cei_region_fini(&peer);
	ck_assert_uint_eq(n_open_fds(), n_fds);
	ck_assert_uint_eq(peer.address[0], 0);
}
END_TEST

START_TEST(test_size_0_is_refused)
{
	char byte;

	ck_assert_int_eq(cei_share_host.create(&region, 1, 0), CEOV_ERR_INVALID);
	assert_last_failure(CEOV_ERR_INVALID, "rank 1");
	ck_assert_int_eq(cei_share_host.adopt(&region, 1, &byte, 0), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_share_host.adopt(&region, 1, NULL, 1), CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_share_host.adopt(&region, 1, &byte, UINT64_MAX),
			 CEOV_ERR_INVALID);
	ck_assert_int_eq(cei_share_host.create(&region, 1, UINT64_MAX), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_memory_that_is_not_there_is_an_error_and_not_a_signal)
{
	uint32_t n_fds = n_open_fds();
	int r = cei_share_host.create(&region, 0, UINT64_C(1) << 61);

	ck_assert_int_eq(r, CEOV_ERR_NO_MEMORY);
	assert_last_failure(r, "2305843009213693952 bytes");
	cei_region_fini(&region);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

/* A process may be limited to small files (ulimit -f), and memory files count. */
START_TEST(test_memory_larger_than_files_may_be_is_an_error_and_not_a_signal)
{
	const struct rlimit limit = { 1 << 20, RLIM_INFINITY };
	uint32_t n_fds = n_open_fds();
	int r;

	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	r = cei_share_host.create(&region, 0, 2 << 20);
	ck_assert_int_eq(r, CEOV_ERR_SYSTEM);
	assert_last_failure(r, "2097152 bytes");
	cei_region_fini(&region);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

START_TEST(test_adopted_memory_is_used_but_not_shared)
{
	char memory[64] = "mine";
	struct cei_region_wire wire;
	int fd;

	ck_assert_int_eq(cei_share_host.adopt(&region, 0, memory, sizeof(memory)), 0);
	ck_assert_int_eq(cei_region_map_all(&region), 0);
	ck_assert_uint_eq(region.address[0], (uintptr_t)memory);
	ck_assert_uint_eq(region.instance[0], 17);
	ck_assert_int_eq(cei_share_host.export(&region, &wire, &fd), CEOV_ERR_INVALID);
	assert_last_failure(CEOV_ERR_INVALID, "ceov_buffer_create()");
	cei_region_fini(&region);
	ck_assert_str_eq(memory, "mine");
}
END_TEST

START_TEST(test_imported_memory_is_not_exported_again)
{
	struct cei_region_wire wire;
	int fd;

	ck_assert_int_eq(cei_share_host.create(&region, 0, SIZE_BYTES), 0);
	ck_assert_int_eq(cei_share_host.export(&region, &wire, &fd), 0);
	ck_assert_int_eq(cei_share_host.import(&peer, &wire, dup(fd)), 0);
	ck_assert_int_eq(cei_share_host.export(&peer, &wire, &fd), CEOV_ERR_INVALID);
}
END_TEST

START_TEST(test_the_memory_file_cannot_shrink)
{
	ck_assert_int_eq(cei_share_host.create(&region, 0, SIZE_BYTES), 0);
	ck_assert_int_ne(ftruncate(region.fd, 1), 0);
	ck_assert_int_ne(ftruncate(region.fd, 2 * SIZE_BYTES), 0);
	ck_assert_int_ne(fcntl(region.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
	ck_assert_int_ne(fcntl(region.fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

static int make_file(int flags, int seals, off_t size_bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC | (unsigned)flags);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, size_bytes), 0);
	ck_assert_int_eq(fallocate(fd, 0, 0, size_bytes), 0);
	if (seals)
		ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void assert_import_refused(const struct cei_region_wire *wire, int fd,
				  const char *why)
{
	ck_assert_int_eq(cei_share_host.import(&peer, wire, fd), CEOV_ERR_INVALID);
	assert_last_failure(CEOV_ERR_INVALID, why);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);       /* the descriptor was closed although the
							 * import failed */
	cei_region_fini(&peer);
	peer.site = &site;
}

START_TEST(test_descriptors_that_do_not_fit_are_refused)
{
	const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
	struct cei_region_wire wire, bad;
	int fd;
	int pipe_fds[2];

	ck_assert_int_eq(cei_share_host.create(&region, 0, SIZE_BYTES), 0);
	ck_assert_int_eq(cei_share_host.export(&region, &wire, &fd), 0);
	assert_import_refused(&wire, -1, "no descriptor");
	assert_import_refused(&wire, make_file(0, 0, SIZE_BYTES), "no sealed");
	assert_import_refused(&wire, make_file(MFD_ALLOW_SEALING, F_SEAL_GROW,
					       SIZE_BYTES),
			      "no sealed");
	assert_import_refused(&wire, make_file(MFD_ALLOW_SEALING, sealed, SIZE_BYTES - 1),
			      "size");
	assert_import_refused(&wire, make_file(MFD_ALLOW_SEALING, sealed, SIZE_BYTES),
			      "another");
	ck_assert_int_eq(pipe(pipe_fds), 0);
	assert_import_refused(&wire, pipe_fds[0], "no memory file");
	close(pipe_fds[1]);
	bad = wire;
	bad.size_bytes++;
	assert_import_refused(&bad, dup(fd), "size");
	bad = wire;
	bad.offset_bytes = 4096;
	assert_import_refused(&bad, dup(fd), "host memory");
	bad = wire;
	bad.has_fd = 0;
	assert_import_refused(&bad, dup(fd), "host memory");
	bad = wire;
	bad.kind = CEOV_PLACE_GPU;
	assert_import_refused(&bad, dup(fd), "host memory");
}
END_TEST

/* Describes a file as an export would. */
static void describe(int fd, struct cei_region_wire *wire)
{
	struct stat stat;

	ck_assert_int_eq(fstat(fd, &stat), 0);
	memset(wire, 0, sizeof(*wire));
	wire->kind = CEOV_PLACE_HOST;
	wire->has_fd = 1;
	wire->size_bytes = (uint64_t)stat.st_size;
	wire->buffer_id = (uint64_t)stat.st_ino;
}

/* Whoever touches such memory first pays for it, or is killed where there is none. */
START_TEST(test_memory_files_without_memory_are_refused)
{
	const int sealed = F_SEAL_SHRINK | F_SEAL_GROW;
	struct cei_region_wire wire;
	int fd = memfd_create("hole", MFD_CLOEXEC | MFD_ALLOW_SEALING), all;

	ck_assert_int_eq(ftruncate(fd, 16 << 20), 0);
	ck_assert_int_eq(fallocate(fd, 0, 0, 8 << 20), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, sealed), 0);
	all = dup(fd);
	describe(fd, &wire);
	assert_import_refused(&wire, fd, "no memory for all of its bytes");
	ck_assert_int_eq(fallocate(all, 0, 0, 16 << 20), 0);
	ck_assert_int_eq(cei_share_host.import(&peer, &wire, all), 0);
}
END_TEST

/* Pages of hugetlbfs may be missing when they are touched, whatever the file's size is. */
START_TEST(test_files_of_huge_pages_are_refused)
{
	struct cei_region_wire wire;
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	if (fd < 0) {
		printf("not tested: there are no files of huge pages here\n");
		return;
	}
	ck_assert_int_eq(ftruncate(fd, 1 << 30), 0);    /* a multiple of each size of page */
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	describe(fd, &wire);
	assert_import_refused(&wire, fd, "no memory file");
}
END_TEST

START_TEST(test_gpu_memory_is_not_reachable_for_a_host_member)
{
	region.kind = CEOV_PLACE_GPU;
	region.address[0] = 5;
	ck_assert_int_eq(cei_share_host.map(&region, 0), 0);
	ck_assert_uint_eq(region.address[0], 0);
	region.kind = CEOV_PLACE_HOST;
}
END_TEST

START_TEST(test_release_of_nothing_closes_nothing)
{
	uint32_t n_fds = n_open_fds();

	cei_share_host.release(&region);        /* fd is 0 in a zeroed region */
	cei_region_fini(&peer);
	cei_region_fini(&peer);
	ck_assert_uint_eq(n_open_fds(), n_fds);
}
END_TEST

static Suite *share_host_suite(void)
{
	Suite *suite = suite_create("share_host");
	TCase *tcase = tcase_create("share_host");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_created_memory_reaches_a_peer);
	tcase_add_test(tcase, test_size_0_is_refused);
	tcase_add_test(tcase, test_memory_that_is_not_there_is_an_error_and_not_a_signal);
	tcase_add_test(tcase, 
		       test_memory_larger_than_files_may_be_is_an_error_and_not_a_signal);
	tcase_add_test(tcase, test_adopted_memory_is_used_but_not_shared);
	tcase_add_test(tcase, test_imported_memory_is_not_exported_again);
	tcase_add_test(tcase, test_the_memory_file_cannot_shrink);
	tcase_add_test(tcase, test_descriptors_that_do_not_fit_are_refused);
	tcase_add_test(tcase, test_memory_files_without_memory_are_refused);
	tcase_add_test(tcase, test_files_of_huge_pages_are_refused);
	tcase_add_test(tcase, test_gpu_memory_is_not_reachable_for_a_host_member);
	tcase_add_test(tcase, test_release_of_nothing_closes_nothing);
	suite_add_tcase(suite, tcase);
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(share_host_suite());
	int n_failed;

	srunner_run_all(runner, CK_NORMAL);
	n_failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return n_failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
