/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Trace files of several processes that are joined into one: times of nodes whose offsets are
 * known, unknown or contradictory, and files that are refused before anything is written. */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "testing.h"
#include "tools/common/trace_merge.h"

#define FILES_MAX 8u
#define TEXT_MAX  8192u

static char files[FILES_MAX][512];      /* paths; those of n_files were written */
static uint32_t n_files;
static char target[512], errors[512];
static char result[65536];

static void set_up(void)
{
	char name[16];
	uint32_t i;

	n_files = 0;
	for (i = 0; i < FILES_MAX; i++) {
		snprintf(name, sizeof(name), "part%u", i);
		testing_path(name, files[i], sizeof(files[i]));
	}
	testing_path("all.json", target, sizeof(target));
	testing_path("errors", errors, sizeof(errors));
}

static void tear_down(void)
{
	uint32_t i;

	for (i = 0; i < FILES_MAX; i++)
		(void)unlink(files[i]);
	(void)unlink(target);
	(void)unlink(errors);
}

static void write_text(const char *path, const char *text, size_t n_bytes)
{
	FILE *file = fopen(path, "w");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, n_bytes, file), n_bytes);
	ck_assert_int_eq(fclose(file), 0);
}

static void read_text(const char *path, char *ret_text, size_t n_bytes)
{
	FILE *file = fopen(path, "r");
	size_t n;

	ck_assert_ptr_nonnull(file);
	n = fread(ret_text, 1, n_bytes - 1, file);
	ret_text[n] = '\0';
	(void)fclose(file);
}

/* A file of rank `rank` of 8, on a node of 4, whose clock the rank `measurer` measures. */
struct part {
	uint32_t    rank;
	uint32_t    node;
	uint32_t    measurer;
	const char *offsets;
	const char *events;
	const char *group;              /* NULL: "1" */
};

static void text_of(const struct part *part, char *ret_text)
{
	snprintf(ret_text, TEXT_MAX, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n%s\n],"
		 "\"otherData\":{\"ceoverlap\":\"0.1.0\",\"clock\":\"monotonic\","
		 "\"dropped_chunks\":1,\"unfinished_chunks\":2,\"origin\":{\"host\":\"h\","
		 "\"node_name\":\"name%u\",\"node\":%u,\"nodes\":4,\"process\":%u,"
		 "\"processes\":8,\"ranks\":[%u],\"group_ranks\":8,\"group\":\"%s\","
		 "\"measurer\":%u,\"offsets\":[%s]}}}\n", part->events, part->node, part->node,
		 part->rank, part->rank, part->group ? part->group : "1", part->measurer,
		 part->offsets);
}

static void add_text(const char *text)
{
	write_text(files[n_files++], text, strlen(text));
}

static void add(struct part part)
{
	char text[TEXT_MAX];

	text_of(&part, text);
	add_text(text);
}

/* An event of the rank that has a time. */
static const char *event(uint32_t rank, const char *ts)
{
	static char texts[4][200];
	static uint32_t n;
	char *text = texts[n++ % 4];

	snprintf(text, sizeof(texts[0]), "{\"name\":\"x\",\"ph\":\"b\",\"id\":\"%u\",\"pid\":%u,"
		 "\"ts\":%s}", rank, rank, ts);
	return text;
}

/* Joins the files, with what is said on stderr in `errors`. */
static int join_to(const char *path)
{
	const char *paths[FILES_MAX];
	int kept = dup(STDERR_FILENO), fd, r;
	uint32_t i;

	for (i = 0; i < FILES_MAX; i++)
		paths[i] = files[i];
	fd = open(errors, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	ck_assert_int_ge(fd, 0);
	fflush(stderr);
	ck_assert_int_ge(dup2(fd, STDERR_FILENO), 0);
	close(fd);
	r = trace_merge(paths, n_files, path);
	fflush(stderr);
	ck_assert_int_ge(dup2(kept, STDERR_FILENO), 0);
	close(kept);
	return r;
}

static void says(const char *text)
{
	char said[4096];

	read_text(errors, said, sizeof(said));
	ck_assert_msg(strstr(said, text) != NULL, "'%s' is not said, but: %s", text, said);
}

static void says_nothing(void)
{
	char said[4096];

	read_text(errors, said, sizeof(said));
	ck_assert_str_eq(said, "");
}

/* Joins the files and reads the result, which is valid JSON. */
static void joined(void)
{
	struct json_object *object;

	ck_assert_int_eq(join_to(target), 0);
	object = json_object_from_file(target);
	ck_assert_ptr_nonnull(object);
	json_object_put(object);
	read_text(target, result, sizeof(result));
}

static void has(const char *text)
{
	ck_assert_msg(strstr(result, text) != NULL, "'%s' is not in: %s", text, result);
}

/* --- clocks ----------------------------------------------------------------------------- */

/* All of these events are at the same time, 20 s after the start of rank 0's machine; only that of
 * rank 4 is 500 ns later, since node 1's clock has drifted by then. */
START_TEST(test_three_nodes_with_known_offsets)
{
	add((struct part){ 0, 0, 0, "", event(0, "20000000.000"), NULL });
	add((struct part){ 2, 1, 2, "{\"at_ns\":10000000000,\"ahead_ns\":5000000000,"
			   "\"within_ns\":70},{\"at_ns\":20000000000,\"ahead_ns\":5000001000,"
			   "\"within_ns\":30}",
			   "{\"ph\":\"X\",\"pid\":2,\"ts\":10000000.000,\"dur\":10000000.5}",
			   NULL });
	add((struct part){ 4, 1, 2, "", event(4, "15000000"), NULL });
	add((struct part){ 6, 3, 6, "{\"at_ns\":90000000000,\"ahead_ns\":-80000000000,"
			   "\"within_ns\":9}", event(6, "100000000.0"), NULL });
	joined();
	has("\"pid\":0,\"ts\":20000000.000}");
	has("{\"ph\":\"X\",\"pid\":2,\"ts\":15000000.000,\"dur\":10000001.500}");
	has("\"pid\":4,\"ts\":20000000.500}");
	has("\"pid\":6,\"ts\":20000000.000}");
	has("\"pid\":4,\"args\":{\"labels\":\"node 1, name1, clock within 70 ns\"}");
	has("\"pid\":6,\"args\":{\"labels\":\"node 3, name3, clock within 9 ns when it was");
	has("\"dropped_chunks\":4,\"unfinished_chunks\":8,\"files\":4");
	has("\"node_name\":\"name1\",\"clock\":\"measured\"");
	says("node 3 (name3): how its clock drifts is not known");
}
END_TEST

/* A machine that has been up for 143 days: a double does not hold these digits. */
START_TEST(test_no_nanosecond_is_lost)
{
	add((struct part){ 0, 0, 0, "", event(0, "12345678901234.567"), NULL });
	add((struct part){ 1, 1, 1, "{\"at_ns\":1,\"ahead_ns\":1,\"within_ns\":1},"
			   "{\"at_ns\":2,\"ahead_ns\":1,\"within_ns\":1}",
			   event(1, "12345678901234.567"), NULL });
	joined();
	has("\"pid\":0,\"ts\":12345678901234.567}");
	has("\"pid\":1,\"ts\":12345678901234.568}");
	says_nothing();
}
END_TEST

static const char *const offset = "{\"at_ns\":10000000000,\"ahead_ns\":5000000000,"
	"\"within_ns\":70}";

START_TEST(test_a_node_whose_offset_is_unknown_keeps_its_times)
{
	add((struct part){ 0, 0, 0, "", event(0, "1.5"), NULL });
	add((struct part){ 2, 1, 2, "", event(2, "2.5"), NULL });       /* it has no answer */
	add((struct part){ 5, 2, 4, "", event(5, "3.5"), NULL });       /* rank 4 is missing */
	add((struct part){ 6, 3, 6, offset, event(6, "4.5"), NULL });
	joined();
	has("\"pid\":0,\"ts\":1.500}");
	has("\"pid\":2,\"ts\":2.500}");
	has("\"pid\":5,\"ts\":3.500}");
	has("\"pid\":6,\"ts\":5000004.500}");
	has("\"labels\":\"node 1, name1, clock unknown\"");
	has("\"labels\":\"node 2, name2, clock unknown\"");
	has("\"node_name\":\"name2\",\"clock\":\"unknown\"");
	says("node 1 (name1): how far");
	says("node 2 (name2): how far");
	says("the file of rank 4 has to tell, and does not (it is not among the files)");
}
END_TEST

START_TEST(test_offsets_that_contradict_each_other)
{
	add((struct part){ 0, 0, 0, "", event(0, "1"), NULL });
	add((struct part){ 2, 1, 2, "{\"at_ns\":1000,\"ahead_ns\":5000,\"within_ns\":7},"
			   "{\"at_ns\":2000,\"ahead_ns\":6000,\"within_ns\":7}",
			   event(2, "2"), NULL });
	joined();
	has("\"pid\":2,\"ts\":2.000}");
	has("clock unknown");
	says("contradict");
}
END_TEST

START_TEST(test_files_of_one_node_need_no_offset)
{
	add((struct part){ 4, 2, 3, "", event(4, "1"), NULL });
	add((struct part){ 5, 2, 3, "", event(5, "2"), NULL });
	joined();
	has("\"pid\":4,\"ts\":1.000}");
	has("\"labels\":\"node 2, name2\"");
	says_nothing();
}
END_TEST

/* --- what is refused ------------------------------------------------------------------------ */

/* Nothing is written, an older file stays, and stderr names the file and says why. */
static void refused(uint32_t file, const char *why)
{
	write_text(target, "older", 5);
	ck_assert_int_eq(join_to(target), -1);
	says(strrchr(files[file], '/'));
	says(why);
	read_text(target, result, sizeof(result));
	ck_assert_str_eq(result, "older");
	n_files = 0;
}

static void refused_with_event(const char *text, const char *why)
{
	add((struct part){ 0, 0, 0, "", text, NULL });
	refused(0, why);
}

START_TEST(test_events_that_make_no_sense)
{
	refused_with_event("{\"ph\":\"b\",\"pid\":0}", "event 1: it has no phase, or no time");
	refused_with_event("{\"pid\":0,\"ts\":1}", "no phase");
	refused_with_event("{\"ph\":\"b\",\"pid\":0,\"ts\":-1}", "no time");
	refused_with_event("{\"ph\":\"b\",\"pid\":0,\"ts\":1e3}", "no time");
	refused_with_event("{\"ph\":\"b\",\"pid\":0,\"ts\":\"1\"}", "no time");
	refused_with_event("{\"ph\":\"b\",\"pid\":0,\"ts\":4611686018427388}", "no time");
	refused_with_event("{\"ph\":\"b\",\"pid\":0,\"ts\":99999999999999999999}", "no time");
	refused_with_event("{\"ph\":\"X\",\"pid\":0,\"ts\":1,\"dur\":-1}", "no time");
	refused_with_event("{\"ph\":\"b\",\"pid\":1,\"ts\":1}", "events of rank 1");
	refused_with_event("{\"ph\":\"b\",\"pid\":-1,\"ts\":1}", "its pid is no rank");
	refused_with_event("{\"ph\":\"b\",\"pid\":65536,\"ts\":1}", "its pid is no rank");
	refused_with_event("7", "event 1: a value is no JSON, or of another type");
	refused_with_event("{\"ph\":\"M\",\"pid\":0},", "a comma stands behind the last event");
	refused_with_event("{\"ph\":\"M\",\"pid\":0} {\"ph\":\"M\",\"pid\":0}",
			   "a comma is missing");
	refused_with_event("{\"ph\":\"M\",\"pid\":0},\n{\"ph\":\"M\",\"pid\":}", "event 2: ");
}
END_TEST

START_TEST(test_an_event_without_an_end_takes_no_memory)
{
	FILE *file = fopen(files[n_files++], "w");
	uint32_t i;

	ck_assert_ptr_nonnull(file);
	fputs("{\"traceEvents\":[{\"name\":\"", file);
	for (i = 0; i < 100000; i++)
		fputc('x', file);
	ck_assert_int_eq(fclose(file), 0);
	refused(0, "event 1: a value is longer than any that ceoverlap writes");
}
END_TEST

static void refused_text(const char *text, const char *why)
{
	add_text(text);
	refused(0, why);
}

START_TEST(test_files_that_are_no_traces_of_processes)
{
	refused_text("", "it is empty");
	refused_text("[]", "it is no trace");
	refused_text("{}", "a value is missing");
	refused_text("{\"traceEvents\":[]}", "does not say where it is from");
	refused_text("{\"traceEvents\":{}}", "its events are no list");
	refused_text("{\"traceEvents\":[],\"traceEvents\":[]}", "twice");
	refused_text("{\"otherData\":{\"clock\":\"monotonic\",\"dropped_chunks\":0,"
		     "\"unfinished_chunks\":0},\"traceEvents\":[]}", "an older ceoverlap");
	refused_text("{\"otherData\":{\"clock\":\"sundial\"}}", "ceoverlap has not written it");
	add((struct part){ 0, 0, 0, "", "", NULL });
	n_files = 1;
	joined();
	write_text(files[0], result, strlen(result));
	refused(0, "it is joined already");
	(void)unlink(files[0]);
	n_files = 1;
	refused(0, "No such file");
	ck_assert_int_eq(mkfifo(files[0], 0600), 0);
	n_files = 1;
	refused(0, "no regular file");
}
END_TEST

static void refused_part(struct part part, const char *why)
{
	add(part);
	refused(n_files - 1, why);
}

START_TEST(test_files_that_say_what_cannot_be)
{
	static const char *const bad_offsets[] = {
		"7", "{}", "{\"at_ns\":-1,\"ahead_ns\":1,\"within_ns\":1}",
		"{\"at_ns\":1,\"ahead_ns\":1.5,\"within_ns\":1}",
		"{\"at_ns\":1,\"ahead_ns\":4611686018427387904,\"within_ns\":1}",
		"{\"at_ns\":2,\"ahead_ns\":1,\"within_ns\":1},"
		"{\"at_ns\":1,\"ahead_ns\":1,\"within_ns\":1}",
		"{\"at_ns\":1,\"ahead_ns\":1,\"within_ns\":1},"
		"{\"at_ns\":1,\"ahead_ns\":1,\"within_ns\":1},"
		"{\"at_ns\":1,\"ahead_ns\":1,\"within_ns\":1}",
	};
	uint32_t i;

	for (i = 0; i < sizeof(bad_offsets) / sizeof(bad_offsets[0]); i++)
		refused_part((struct part){ 1, 1, 1, bad_offsets[i], "", NULL },
			     "what it says of its node's clock makes no sense");
	refused_part((struct part){ 8, 1, 1, "", "", NULL }, "of its ranks and its node");
	refused_part((struct part){ 1, 4, 1, "", "", NULL }, "of its ranks and its node");
	refused_part((struct part){ 1, 1, 8, "", "", NULL }, "of its ranks and its node");
	refused_part((struct part){ 1, 1, 2, offset, "", NULL }, "a clock that rank 2 measures");
	refused_part((struct part){ 1, 1, 1, "{\"at_ns\":1,\"ahead_ns\":-2000,\"within_ns\":1}",
				    event(1, "1.999"), NULL },
		     "before the clock of rank 0's node began");
}
END_TEST

START_TEST(test_files_that_do_not_belong_together)
{
	add((struct part){ 0, 0, 0, "", "", NULL });
	refused_part((struct part){ 1, 1, 1, "", "", "2" }, "of another group than");
	add((struct part){ 0, 0, 0, "", "", NULL });
	refused_part((struct part){ 0, 1, 0, "", "", NULL }, "rank 0 is in");
	add((struct part){ 1, 1, 1, offset, "", NULL });
	refused_part((struct part){ 2, 1, 2, offset, "", NULL }, "and so has");
}
END_TEST

START_TEST(test_targets_that_cannot_be_written)
{
	char text[TEXT_MAX], before[TEXT_MAX];
	struct part part = { 0, 0, 0, "", "", NULL };

	text_of(&part, before);
	add(part);
	ck_assert_int_eq(join_to(files[0]), -1);
	says("it is one of the files to join");
	read_text(files[0], text, sizeof(text));
	ck_assert_str_eq(text, before);
	ck_assert_int_eq(join_to("/nonexistent/all.json"), -1);
	says("/nonexistent/all.json");
}
END_TEST

/* --- damage ------------------------------------------------------------------------------- */

static size_t whole_text(char *ret_text)
{
	struct part part = { 1, 1, 1, offset, NULL, NULL };
	char events[600];

	snprintf(events, sizeof(events), "%s,\n{\"name\":\"a\\\"b\",\"ph\":\"X\",\"pid\":1,"
		 "\"ts\":5.25,\"dur\":7,\"args\":{\"l\":[1,{\"m\":null}]}}", event(1, "1.999"));
	part.events = events;
	text_of(&part, ret_text);
	return strlen(ret_text);
}

START_TEST(test_what_stands_behind_the_end)
{
	char text[TEXT_MAX];

	(void)whole_text(text);
	strcat(text, "{}");
	refused_text(text, "something stands behind its end");
}
END_TEST

START_TEST(test_a_file_that_is_cut_anywhere_is_refused)
{
	char text[TEXT_MAX];
	size_t n = whole_text(text), i;

	n_files = 1;
	for (i = 0; i + 1 < n; i++) {   /* the last byte is the end of the line */
		write_text(files[0], text, i);
		ck_assert_int_eq(join_to(target), -1);
		ck_assert_int_ne(access(target, F_OK), 0);
	}
	write_text(files[0], text, n);
	joined();
}
END_TEST

/* Whatever the bytes are, a file is refused or what is made of it is valid JSON. */
START_TEST(test_damaged_files)
{
	uint64_t random = testing_seed();
	char text[TEXT_MAX];
	size_t n = whole_text(text);
	struct json_object *object;
	uint32_t i, k, n_refused = 0;

	n_files = 1;
	for (i = 0; i < 2000; i++) {
		n = whole_text(text);
		for (k = 0; k < 1 + i % 3; k++)
			text[testing_below(&random, n)] = i % 2 ? (char)testing_random(&random) :
				"{}[],:\"\\ 0-e."[testing_below(&random, 13)];
		write_text(files[0], text, n);
		if (join_to(target)) {
			n_refused++;
			continue;
		}
		object = json_object_from_file(target);
		ck_assert_ptr_nonnull(object);
		json_object_put(object);
	}
	ck_assert_uint_gt(n_refused, 500);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("trace merge");
	TCase *all = tcase_create("trace merge");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 60);
	tcase_add_test(all, test_three_nodes_with_known_offsets);
	tcase_add_test(all, test_no_nanosecond_is_lost);
	tcase_add_test(all, test_a_node_whose_offset_is_unknown_keeps_its_times);
	tcase_add_test(all, test_offsets_that_contradict_each_other);
	tcase_add_test(all, test_files_of_one_node_need_no_offset);
	tcase_add_test(all, test_events_that_make_no_sense);
	tcase_add_test(all, test_an_event_without_an_end_takes_no_memory);
	tcase_add_test(all, test_files_that_are_no_traces_of_processes);
	tcase_add_test(all, test_files_that_say_what_cannot_be);
	tcase_add_test(all, test_files_that_do_not_belong_together);
	tcase_add_test(all, test_targets_that_cannot_be_written);
	tcase_add_test(all, test_what_stands_behind_the_end);
	tcase_add_test(all, test_a_file_that_is_cut_anywhere_is_refused);
	tcase_add_test(all, test_damaged_files);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
