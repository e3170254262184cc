/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The table of movers, and the capabilities that a mover needs to be opened. */

#include <string.h>

#include "backend/lane.h"
#include "config.h"
#include "testing.h"

START_TEST(test_movers_are_found_by_name_and_serve_their_places)
{
	const struct cei_place_ops *host = cei_backend_named("host");
	const struct cei_place_ops *cuda = cei_backend_named("cuda");

	ck_assert_ptr_nonnull(host);
	ck_assert_str_eq(host->name, "host");
	ck_assert(cei_backend_serves(host, CEOV_PLACE_HOST));
	ck_assert(!cei_backend_serves(host, CEOV_PLACE_GPU));
	ck_assert_int_eq(cuda != NULL, HAVE_CUDA);
	ck_assert(!cuda || cei_backend_serves(cuda, CEOV_PLACE_GPU));
	ck_assert(!cuda || !cei_backend_serves(cuda, CEOV_PLACE_HOST));
	ck_assert_ptr_null(cei_backend_named("none"));
	ck_assert_ptr_null(cei_backend_named(""));
}
END_TEST

START_TEST(test_moves_are_told_by_memory)
{
	ck_assert_int_eq(cei_moves_between(CEOV_PLACE_HOST, CEOV_PLACE_HOST),
			 CEI_MOVES_WITHIN_HOST);
	ck_assert_int_eq(cei_moves_between(CEOV_PLACE_HOST, CEOV_PLACE_GPU),
			 CEI_MOVES_HOST_TO_GPU);
	ck_assert_int_eq(cei_moves_between(CEOV_PLACE_GPU, CEOV_PLACE_HOST),
			 CEI_MOVES_GPU_TO_HOST);
	ck_assert_int_eq(cei_moves_between(CEOV_PLACE_GPU, CEOV_PLACE_GPU), CEI_MOVES_AMONG_GPUS);
}
END_TEST

/* The engine relies on marks that rise only after the bytes have arrived. */
START_TEST(test_a_mover_that_lacks_what_plans_need_is_not_opened)
{
	static const uint32_t needed[] = { CEI_CAP_ORDERED, CEI_CAP_DELIVERED };
	struct cei_place_ops ops = *cei_backend_named("host");
	struct testing_log log;
	struct cei_report report;
	struct cei_site site = { .report = &report, .n_ranks = 1, .n_members = 1 };
	struct cei_backend backend;
	uint32_t i;

	testing_log_init(&log);
	cei_report_init(&report, testing_log_line, &log);
	ops.name = "courier";
	for (i = 0; i < 2; i++) {
		ops.caps = cei_backend_named("host")->caps & ~needed[i];
		ck_assert_int_eq(cei_backend_open(&backend, &ops, &site, 0, testing_host),
				 CEOV_ERR_INVALID);
		testing_log_has(&log, "courier", "marks come behind their bytes", NULL);
		testing_log_clear(&log);
		cei_backend_close(&backend);
	}
	ops.caps = CEI_CAPS_NEEDED;
	ck_assert_int_eq(cei_backend_open(&backend, &ops, &site, 0, testing_host), 0);
	cei_backend_close(&backend);
	cei_report_fini(&report);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("registry");
	TCase *cases = tcase_create("movers");

	tcase_add_test(cases, test_movers_are_found_by_name_and_serve_their_places);
	tcase_add_test(cases, test_moves_are_told_by_memory);
	tcase_add_test(cases, test_a_mover_that_lacks_what_plans_need_is_not_opened);
	suite_add_tcase(suite, cases);
	return testing_run(suite);
}
