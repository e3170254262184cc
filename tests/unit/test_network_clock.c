/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What traces of several nodes say of their clocks, over a simulated network. All nodes are in this
 * process, so the true offset is 0. */

#include <glob.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "ce_engine/objects/context.h"
#include "net/network_private.h"
#include "unit/nodes_rig.h"

static struct nodes nodes;
static char path[512];

static void set_up(void)
{
	testing_path("clock.json", path, sizeof(path));
	setenv("CEOVERLAP_TRACE", path, 1);
}

/* What the trace file of a rank says behind "origin"; the file is removed. */
static void read_origin(uint32_t rank, char *ret_text, size_t n_bytes)
{
	char pattern[560], *at, *end;
	size_t n;
	FILE *file;
	glob_t found;

	snprintf(pattern, sizeof(pattern), "%s*.rank%u", path, rank);
	ck_assert_int_eq(glob(pattern, 0, NULL, &found), 0);
	ck_assert_uint_eq(found.gl_pathc, 1);
	file = fopen(found.gl_pathv[0], "r");
	ck_assert_ptr_nonnull(file);
	n = fread(ret_text, 1, n_bytes - 1, file);
	ret_text[n] = '\0';
	(void)fclose(file);
	ck_assert_int_eq(unlink(found.gl_pathv[0]), 0);
	globfree(&found);
	at = strstr(ret_text, "\"origin\":");
	ck_assert_ptr_nonnull(at);
	end = at + strlen(at) + 1;
	memmove(ret_text, at, (size_t)(end - at));
}

/* The offsets that it has; at most two. */
static uint32_t offsets_in(const char *text, struct cei_clock_offset *ret_offsets)
{
	uint32_t n = 0;

	while ((text = strstr(text, "{\"at_ns\":"))) {
		ck_assert_uint_lt(n, 2);
		ck_assert_int_eq(sscanf(text, "{\"at_ns\":%" SCNu64 ",\"ahead_ns\":%" SCNd64
					",\"within_ns\":%" SCNu64 "}", &ret_offsets[n].at_ns,
					&ret_offsets[n].ahead_ns, &ret_offsets[n].within_ns), 3);
		n++;
		text++;
	}
	return n;
}

static void assert_true_offset(const struct cei_clock_offset *offset)
{
	ck_assert_int_le(offset->ahead_ns, (int64_t)offset->within_ns);
	ck_assert_int_ge(offset->ahead_ns, -(int64_t)offset->within_ns);
}

static struct cei_network *network_of(uint32_t node)
{
	return nodes.node[node].context->site.network;
}

/* Node 1's answers take 10 ms, its questions none, when the contexts close. */
START_TEST(test_each_node_but_the_first_has_an_offset_of_open_and_close)
{
	struct cei_clock_offset offsets[2];
	char text[8192];

	nodes_open(&nodes, 3, 2);
	pthread_mutex_lock(&nodes.net.lock);
	nodes.net.links[0][1].delay_ns = 10 * TESTING_MS;
	pthread_mutex_unlock(&nodes.net.lock);
	nodes_close(&nodes);
	read_origin(0, text, sizeof(text));
	ck_assert_uint_eq(offsets_in(text, offsets), 0);
	ck_assert_ptr_nonnull(strstr(text, "\"node_name\":\"node 0\",\"node\":0,\"nodes\":3,"
				     "\"process\":0,\"processes\":3,\"ranks\":[0,1],"
				     "\"group_ranks\":6,\"group\":\""));
	read_origin(2, text, sizeof(text));
	ck_assert_ptr_nonnull(strstr(text, "\"node_name\":\"node 1\",\"node\":1,"));
	ck_assert_ptr_nonnull(strstr(text, "\"ranks\":[2,3],"));
	ck_assert_ptr_nonnull(strstr(text, "\"measurer\":2,"));
	ck_assert_uint_eq(offsets_in(text, offsets), 2);
	assert_true_offset(&offsets[0]);
	assert_true_offset(&offsets[1]);
	ck_assert_uint_lt(offsets[0].at_ns, offsets[1].at_ns);
	ck_assert_uint_ge(offsets[1].within_ns, 5 * TESTING_MS);
	ck_assert_int_lt(offsets[1].ahead_ns, -4 * (int64_t)TESTING_MS);
	read_origin(4, text, sizeof(text));
	ck_assert_uint_eq(offsets_in(text, offsets), 2);
	assert_true_offset(&offsets[1]);
}
END_TEST

/* The reference makes progress only when its caller says so, which it does not once it is open. */
START_TEST(test_without_an_answer_the_offset_is_unknown)
{
	struct cei_clock_offset offsets[2];
	uint64_t began_ns;
	char text[8192];

	nodes_open_turned(&nodes, 2);
	began_ns = cei_now_ns();
	nodes_close_one(&nodes, 1);
	ck_assert_uint_lt(cei_now_ns() - began_ns, TESTING_PATIENCE);
	testing_log_has(&nodes.node[1].log, "cannot be asked for its time", "does not answer",
			"is not known");
	nodes_close(&nodes);
	read_origin(0, text, sizeof(text));
	read_origin(1, text, sizeof(text));
	ck_assert_uint_le(offsets_in(text, offsets), 1);
	ck_assert_ptr_nonnull(strstr(text, "\"measurer\":1,\"offsets\":["));
}
END_TEST

START_TEST(test_a_reference_that_has_closed_is_not_waited_for)
{
	struct cei_clock_offset offsets[2];
	char text[8192];

	nodes_open(&nodes, 2, 1);
	nodes_close_one(&nodes, 0);             /* waits for node 1's last question in vain */
	nodes_close_one(&nodes, 1);
	testing_log_has(&nodes.node[1].log, "is lost or has closed", "drifts", NULL);
	nodes_close(&nodes);
	read_origin(0, text, sizeof(text));
	read_origin(1, text, sizeof(text));
	ck_assert_uint_eq(offsets_in(text, offsets), 1);
	assert_true_offset(&offsets[0]);
}
END_TEST

START_TEST(test_without_a_trace_nobody_asks)
{
	uint32_t i;

	unsetenv("CEOVERLAP_TRACE");
	nodes_open(&nodes, 2, 1);
	for (i = 0; i < 2; i++) {
		ck_assert_uint_eq(network_of(i)->clock.n_offsets, 0);
		ck_assert_ptr_null(network_of(i)->clock.askers);
	}
	nodes_close(&nodes);
}
END_TEST

/* Tells node 1 what a reference would tell; returns how many answers it still awaits. */
static uint32_t tell(uint32_t process, uint64_t number, uint64_t heard_ns, uint64_t told_ns)
{
	struct cei_far_clock told = { CEI_FAR_CLOCK_TELL, number, heard_ns, told_ns };
	struct cei_network *network = network_of(1);
	uint32_t n;

	pthread_mutex_lock(&network->lock);
	cei_network_heard_clock(network, process, &told);
	n = network->clock.n_left;
	pthread_mutex_unlock(&network->lock);
	return n;
}

/* As if node 1 had asked, a second ago, and awaited so many answers. The number is one that the
 * true reference does not use. */
static void begin_to_ask(uint32_t n_left, uint64_t number)
{
	struct cei_network_clock *clock = &network_of(1)->clock;

	pthread_mutex_lock(&network_of(1)->lock);
	clock->n_left = n_left;
	clock->n_taken = 0;
	clock->is_contradicted = 0;
	clock->number = number;
	clock->asked_ns = cei_now_ns() - TESTING_SECOND;
	pthread_mutex_unlock(&network_of(1)->lock);
}

START_TEST(test_a_reference_that_lies)
{
	struct cei_network_clock *clock;

	unsetenv("CEOVERLAP_TRACE");
	nodes_open(&nodes, 3, 1);
	clock = &network_of(1)->clock;
	begin_to_ask(1, 77);
	ck_assert_uint_eq(tell(2, 77, 5, 6), 1);        /* not the reference */
	ck_assert_uint_eq(tell(0, 78, 5, 6), 1);        /* another question */
	ck_assert_uint_eq(tell(0, 0, 5, 6), 1);
	ck_assert_uint_eq(clock->n_taken, 0);
	ck_assert_uint_eq(tell(0, 77, 5, 6), 0);
	ck_assert_uint_eq(clock->n_taken, 1);
	ck_assert_int_eq(clock->is_contradicted, 0);
	ck_assert_uint_eq(tell(0, 77, 7, 8), 0);        /* the same answer again */
	ck_assert_uint_eq(clock->n_taken, 1);
	begin_to_ask(9, 79);                            /* busy for longer than the answer took */
	ck_assert_uint_eq(tell(0, 79, 5, 100 * TESTING_SECOND), 0);
	ck_assert_int_eq(clock->is_contradicted, 1);
	ck_assert_uint_eq(clock->n_taken, 0);
	begin_to_ask(1, 80);
	ck_assert_uint_eq(tell(0, 80, 100 * TESTING_SECOND, 100 * TESTING_SECOND), 0);
	begin_to_ask(1, 81);
	clock->n_taken = 1;                             /* another offset than before */
	ck_assert_uint_eq(tell(0, 81, 200 * TESTING_SECOND, 200 * TESTING_SECOND), 0);
	ck_assert_int_eq(clock->is_contradicted, 1);
	nodes_close(&nodes);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("network clock");
	TCase *all = tcase_create("network clock");

	tcase_add_checked_fixture(all, set_up, NULL);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_each_node_but_the_first_has_an_offset_of_open_and_close);
	tcase_add_test(all, test_without_an_answer_the_offset_is_unknown);
	tcase_add_test(all, test_a_reference_that_has_closed_is_not_waited_for);
	tcase_add_test(all, test_without_a_trace_nobody_asks);
	tcase_add_test(all, test_a_reference_that_lies);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
