/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests opening a rank on a GPU without a usable driver: it reports one line and leaves nothing
 * open. */

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cuda_errors.h"
#include "config.h"
#include "testing.h"

#if HAVE_CUDA
/* Loads the fake driver, which is then found by its SONAME. Each test is a process of its own, so
 * the fake driver stays loaded in that process only. */
static void use_fake(const char *behaviour)
{
	const char *compiler = getenv("CC") ? getenv("CC") : "cc";
	const char *folder = getenv("srcdir") ? getenv("srcdir") : ".";
	char path[256], command[1024];

	testing_path("libcuda.so.1", path, sizeof(path));
	snprintf(command, sizeof(command), "%s -shared -fPIC -Wl,-soname,libcuda.so.1 -o '%s' "
		 "'%s/tests/stub/fake_cuda.c'", compiler, path, folder);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(setenv("CEOVERLAP_FAKE_CUDA", behaviour, 1), 0);
	ck_assert_msg(dlopen(path, RTLD_NOW) != NULL, "%s", dlerror());
}
#endif

static struct testing_log lines;

static void refused(int error, const char *text, const char *and_text)
{
	struct ceov_member member = { 0, { CEOV_PLACE_GPU, 0 } };
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;

	testing_log_init(&lines);
	config.members = &member;
	config.n_members = 1;
	config.log = testing_log_line;
	config.log_arg = &lines;
	ck_assert_int_eq(ceov_open(&config, &context), error);
	ck_assert_ptr_null(context);
	testing_log_has(&lines, text, and_text, NULL);
}

#if HAVE_CUDA
START_TEST(test_an_old_driver_is_named_with_both_versions)
{
	use_fake("old");
	refused(CEOV_ERR_VERSION, "11.4", "12.0");
}
END_TEST

START_TEST(test_a_missing_call_is_named)
{
	use_fake("missing");
	refused(CEOV_ERR_VERSION, "cuStreamBatchMemOp", "update");
}
END_TEST

START_TEST(test_no_gpu_is_said)
{
	use_fake("no device");
	refused(CEOV_ERR_INVALID, "rank 0 is placed on a GPU", "sees no GPU");
	testing_log_has(&lines, "CEOVERLAP_PLACE=host", NULL, NULL);
}
END_TEST

START_TEST(test_a_driver_that_does_not_start_is_said)
{
	use_fake("broken");
	refused(CEOV_ERR_INVALID, "placed on a GPU", "operation not permitted");
}
END_TEST

START_TEST(test_settings_that_take_overlap_away_are_warned_of)
{
	use_fake("poor");
	ck_assert_int_eq(setenv("CUDA_LAUNCH_BLOCKING", "1", 1), 0);
	ck_assert_int_eq(setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1), 0);
	refused(CEOV_ERR_VERSION, "stream memory operations", NULL);
	testing_log_has(&lines, "warning", "CUDA_LAUNCH_BLOCKING=1", NULL);
	testing_log_has(&lines, "warning", "CUDA_DEVICE_MAX_CONNECTIONS=1", NULL);
}
END_TEST

/* A rank whose place is not given is on the host. */
START_TEST(test_a_rank_without_a_place_goes_to_the_host)
{
	ceov_context *context = NULL;
	ceov_buffer *buffer;

	use_fake("no device");
	ck_assert_int_eq(ceov_open(NULL, &context), 0);
	ck_assert_int_eq(ceov_buffer_create(context, 0, 4096, &buffer), 0);
	((char *)ceov_buffer_base(buffer, 0))[4095] = 1;        /* the buffer is in host memory, so
								 * the test can write to it */
	ceov_close(context);
}
END_TEST
#else
START_TEST(test_a_build_without_cuda_says_so)
{
	refused(CEOV_ERR_INVALID, "placed on a GPU", "built without CUDA");
}
END_TEST
#endif

/* By numbers of cuda.h, which do not change. */
START_TEST(test_errors_that_end_a_context_are_known)
{
	static const int lasting[] = { 214, 220, 700, 719, 810 };
	static const int passing[] = { 0, 1, 2, 201, 600, 701, 900, 999, -700 };
	size_t i;

	for (i = 0; i < sizeof(lasting) / sizeof(lasting[0]); i++)
		ck_assert_msg(cei_cuda_error_lasts(lasting[i]), "%d passes", lasting[i]);
	for (i = 0; i < sizeof(passing) / sizeof(passing[0]); i++)
		ck_assert_msg(!cei_cuda_error_lasts(passing[i]), "%d lasts", passing[i]);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("driver");
	TCase *all = tcase_create("refusals");

	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_errors_that_end_a_context_are_known);
#if HAVE_CUDA
	tcase_add_test(all, test_an_old_driver_is_named_with_both_versions);
	tcase_add_test(all, test_a_missing_call_is_named);
	tcase_add_test(all, test_no_gpu_is_said);
	tcase_add_test(all, test_a_driver_that_does_not_start_is_said);
	tcase_add_test(all, test_settings_that_take_overlap_away_are_warned_of);
	tcase_add_test(all, test_a_rank_without_a_place_goes_to_the_host);
#else
	tcase_add_test(all, test_a_build_without_cuda_says_so);
#endif
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
