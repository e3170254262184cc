/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Tests books: what is looked up in them, and what is refused. */

#include "net/book.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

static struct cei_report report;
static struct testing_log log_lines;

/* --- groups of records -------------------------------------------------------------- */

/* A group of processes with the same number of ranks each. Process p holds the ranks p, p +
 * n_processes, ...; processes are on nodes in turn. */
struct plan {
	uint32_t n_processes;
	uint32_t n_each;
	uint32_t n_nodes;
	int      has_addresses;
};

static struct cei_record *records;

static void plan_records(const struct plan *plan)
{
	struct cei_record *record;
	uint32_t p, i;

	records = calloc(plan->n_processes, sizeof(*records));
	ck_assert_ptr_nonnull(records);
	for (p = 0; p < plan->n_processes; p++) {
		record = &records[p];
		strcpy(record->library, "0.1.0");
		strcpy(record->transport, "1.13.1");
		strcpy(record->job, "one");
		record->node = 1000 - p % plan->n_nodes;
		record->instance = 500 + p;
		record->n_group_ranks = plan->n_processes * plan->n_each;
		record->n_ranks = plan->n_each;
		for (i = 0; i < plan->n_each; i++)
			record->ranks[i] = p + i * plan->n_processes;
		record->n_address = plan->has_addresses ? 4 + p % 75 : 0;
		memcpy(record->address, &p, sizeof(p));
	}
}

/* Makes a book of the records, of which `cut` bytes of the last one are left out. */
static int make_cut(uint32_t n_processes, uint32_t own, uint32_t cut, struct cei_book **ret_book)
{
	uint32_t *n_bytes = calloc(n_processes, sizeof(*n_bytes)), p, n;
	uint8_t bytes[CEI_RECORD_BYTES_MAX];
	struct cei_gathered gathered;
	int r;

	ck_assert_ptr_nonnull(n_bytes);
	for (p = 0; p < n_processes; p++)
		n_bytes[p] = (uint32_t)cei_record_encode(&records[p], bytes) -
			     (p == n_processes - 1 ? cut : 0);
	ck_assert_int_eq(cei_gathered_init(&gathered, n_processes, n_bytes), 0);
	for (p = 0; p < n_processes; p++) {
		cei_record_encode(&records[p], bytes);
		memcpy(cei_gathered_part(&gathered, p, &n), bytes, n_bytes[p]);
	}
	free(n_bytes);
	r = cei_book_make(&report, &gathered, own, ret_book);
	cei_gathered_fini(&gathered);
	return r;
}

static int make(uint32_t n_processes, uint32_t own, struct cei_book **ret_book)
{
	return make_cut(n_processes, own, 0, ret_book);
}

static void assert_address(const struct cei_book *book, uint32_t p)
{
	uint32_t n;
	const void *address = cei_book_address(book, p, &n);

	ck_assert_uint_eq(n, records[p].n_address);
	ck_assert_mem_eq(address, records[p].address, n);
}

/* The nodes' processes are all there, each node's in the order of their lowest ranks. */
static void assert_is_roster_of(const struct cei_book *book)
{
	const struct cei_roster *roster = cei_book_roster(book);
	uint32_t node, i, process, rank;

	ck_assert_uint_eq(roster->node_at[0], 0);
	ck_assert_uint_eq(roster->node_at[roster->n_nodes], roster->n_processes);
	for (node = 0; node < roster->n_nodes; node++) {
		ck_assert_uint_lt(roster->node_at[node], roster->node_at[node + 1]);
		for (i = roster->node_at[node]; i < roster->node_at[node + 1]; i++) {
			process = roster->in_node[i];
			rank = roster->first_rank[process];
			ck_assert_uint_eq(roster->node_of[process], node);
			ck_assert_uint_eq(roster->process_of[rank], process);
			ck_assert(i == roster->node_at[node] ||
				  rank > roster->first_rank[roster->in_node[i - 1]]);
		}
	}
	for (rank = 0; rank < roster->n_ranks; rank++)
		ck_assert_uint_le(roster->first_rank[roster->process_of[rank]], rank);
}

static void assert_is_book_of(const struct cei_book *book, const struct plan *plan)
{
	uint32_t n_ranks = plan->n_processes * plan->n_each, i, p, n;
	struct cei_book_node node;

	ck_assert_uint_eq(cei_book_instance(book), 500);
	ck_assert_uint_eq(cei_book_n_ranks(book), n_ranks);
	ck_assert_uint_eq(cei_book_n_processes(book), plan->n_processes);
	ck_assert_uint_eq(cei_book_n_nodes(book), plan->n_nodes);
	for (i = 0; i < n_ranks; i++) {
		p = cei_book_roster(book)->process_of[i];
		ck_assert_uint_eq(p, i % plan->n_processes);
		ck_assert_uint_eq(cei_book_roster(book)->node_of[p], p % plan->n_nodes);
	}
	for (p = 0; p < plan->n_processes; p++) {
		ck_assert_mem_eq(cei_book_ranks_of(book, p, &n), records[p].ranks,
				 4 * plan->n_each);
		ck_assert_uint_eq(n, plan->n_each);
		assert_address(book, p);
	}
	for (i = 0; i < plan->n_nodes; i++) {
		cei_book_node(book, i, &node);
		ck_assert_uint_eq(node.number, 1000 - i);
		ck_assert_uint_eq(node.leader, i);
		n = plan->n_processes / plan->n_nodes + (i < plan->n_processes % plan->n_nodes);
		ck_assert_uint_eq(node.n_processes, n);
		ck_assert_uint_eq(node.n_ranks, n * plan->n_each);
	}
	assert_is_roster_of(book);
}

static const struct plan small = {
	.n_processes = 5, .n_each = 3, .n_nodes = 2, .has_addresses = 1
};

static void set_up(void)
{
	testing_log_init(&log_lines);
	cei_report_init(&report, testing_log_line, &log_lines);
}

static void tear_down(void)
{
	free(records);
	records = NULL;
	cei_report_fini(&report);
}

/* --- look-ups ----------------------------------------------------------------------- */

START_TEST(test_everything_is_found)
{
	static const struct plan plans[] = {
		{ 1, 1, 1, 0 }, { 1, 16, 1, 8 }, { 2, 1, 2, 1 }, { 7, 2, 7, 1 }, { 64, 1, 8, 2 },
		{ 5, 3, 2, 2 },
	};
	struct cei_book *book = NULL;
	size_t i;

	for (i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
		plan_records(&plans[i]);
		ck_assert_int_eq(make(plans[i].n_processes, plans[i].n_processes - 1, &book), 0);
		assert_is_book_of(book, &plans[i]);
		ck_assert_uint_eq(cei_book_own_process(book), plans[i].n_processes - 1);
		cei_book_free(book);
		free(records);
		records = NULL;
	}
}
END_TEST

/* A node's leader is its lowest rank, whichever process holds it. */
START_TEST(test_leaders_and_order_of_nodes)
{
	struct cei_book *book = NULL;
	struct cei_book_node node;

	plan_records(&(struct plan){ .n_processes = 4, .n_each = 1, .n_nodes = 2 });
	records[0].ranks[0] = 3;
	records[3].ranks[0] = 0;
	records[1].ranks[0] = 2;
	records[2].ranks[0] = 1;
	ck_assert_int_eq(make(4, 0, &book), 0);
	cei_book_node(book, 0, &node);
	ck_assert_uint_eq(node.number, 999);    /* of processes 1 and 3 */
	ck_assert_uint_eq(node.leader, 0);
	cei_book_node(book, 1, &node);
	ck_assert_uint_eq(node.leader, 1);
	ck_assert_uint_eq(cei_book_roster(book)->node_of[0], 1);
	assert_is_roster_of(book);
	ck_assert_uint_eq(cei_book_roster(book)->in_node[0], 3);
	ck_assert_uint_eq(cei_book_roster(book)->own, 0);
	cei_book_free(book);
}
END_TEST

/* Bytes that are allocated; 0 under an address sanitizer. */
static uint64_t n_allocated(void)
{
	struct mallinfo2 info = mallinfo2();

	return info.uordblks + info.hblkhd;
}

START_TEST(test_65536_ranks)
{
	static const struct plan large = { .n_processes = 65536, .n_each = 1, .n_nodes = 8192,
					   .has_addresses = 1 };
	struct cei_book *book = NULL;
	uint64_t before;
	uint32_t p;

	plan_records(&large);
	for (p = 0; p < large.n_processes; p++) {
		records[p].node = 100000 - p % large.n_nodes;
		records[p].n_address = 79;
	}
	before = n_allocated();
	ck_assert_int_eq(make(large.n_processes, 65535, &book), 0);
	/* as book.h says, and a little for each allocation */
	ck_assert_uint_le(n_allocated() - before, 8192 * 28 + 65536 * (8 + 36 + 79) + 65536);
	for (p = 0; p < large.n_processes; p++) {
		ck_assert_uint_eq(cei_book_roster(book)->process_of[p], p);
		ck_assert_uint_eq(cei_book_roster(book)->node_of[p], p % large.n_nodes);
		assert_address(book, p);
	}
	cei_book_free(book);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------- */

static void assert_refused(int error, const char *one, const char *other, uint32_t rank)
{
	struct cei_book *book = NULL;
	struct ceov_failure failure;

	ck_assert_int_eq(make(small.n_processes, 0, &book), error);
	ck_assert_ptr_null(book);
	testing_log_has(&log_lines, one, other, NULL);
	ck_assert_int_eq(cei_report_take(&report, &failure), 0);
	ck_assert_uint_eq(failure.rank, rank);
}

START_TEST(test_other_versions_are_refused)
{
	plan_records(&small);
	strcpy(records[3].library, "0.2.0");
	assert_refused(CEOV_ERR_VERSION, "rank 3 has ceoverlap 0.2.0", "rank 0 has 0.1.0", 3);
	strcpy(records[3].library, "0.1.0");
	memset(records[4].transport, 0, sizeof(records[4].transport));
	assert_refused(CEOV_ERR_VERSION, "rank 4 has UCX (none)", "rank 0 has 1.13.1", 4);
	records[4].transport[0] = '9';
	assert_refused(CEOV_ERR_VERSION, "rank 4 has UCX 9", "rank 0 has 1.13.1", 4);
}
END_TEST

START_TEST(test_other_groups_are_refused)
{
	plan_records(&small);
	strcpy(records[2].job, "two");
	assert_refused(CEOV_ERR_INVALID, "rank 2 has the job two", "rank 0 has one", 2);
	strcpy(records[2].job, "");
	assert_refused(CEOV_ERR_INVALID, "rank 2 has the job (none)", "rank 0 has one", 2);
	strcpy(records[2].job, "one");
	records[2].n_group_ranks = 16;
	assert_refused(CEOV_ERR_INVALID, "rank 2 has", "16, rank 0 has 15", 2);
}
END_TEST

START_TEST(test_ranks_have_to_be_there_once)
{
	plan_records(&small);
	records[1].ranks[2] = 4;
	assert_refused(CEOV_ERR_INVALID, "processes 1 and 4", "rank 4", 4);
	records[1].ranks[2] = 1;
	assert_refused(CEOV_ERR_INVALID, "processes 1 and 1", "rank 1", 1);
	records[1].ranks[2] = 15;
	assert_refused(CEOV_ERR_INVALID, "process 1 says it has rank 15", "15 ranks", 15);
	records[1].ranks[2] = 11;
	records[4].n_ranks = 2;
	assert_refused(CEOV_ERR_INVALID, "no process has rank 14", "1 of 15 ranks", 14);
}
END_TEST

START_TEST(test_a_record_that_is_none)
{
	struct cei_book *book = NULL;

	plan_records(&small);
	ck_assert_int_eq(make_cut(5, 0, 1, &book), CEOV_ERR_INVALID);
	testing_log_has(&log_lines, "process 4", "no record", NULL);
	records[0].n_group_ranks = CEI_BOOK_RANKS_MAX + 1;
	ck_assert_int_eq(make(5, 0, &book), CEOV_ERR_INVALID);
	testing_log_has(&log_lines, "65537", "65536", NULL);
	records[0].n_group_ranks = 0;
	ck_assert_int_eq(make(5, 0, &book), CEOV_ERR_INVALID);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("book");
	TCase *tcase = tcase_create("book");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, test_everything_is_found);
	tcase_add_test(tcase, test_leaders_and_order_of_nodes);
	tcase_add_test(tcase, test_65536_ranks);
	tcase_add_test(tcase, test_other_versions_are_refused);
	tcase_add_test(tcase, test_other_groups_are_refused);
	tcase_add_test(tcase, test_ranks_have_to_be_there_once);
	tcase_add_test(tcase, test_a_record_that_is_none);
	tcase_set_timeout(tcase, 60);
	suite_add_tcase(suite, tcase);
	return testing_run(suite);
}
