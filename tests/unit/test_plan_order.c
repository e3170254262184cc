/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Compares what commit refuses with a simple implementation of the rules on random small plans,
 * byte by byte and pair by pair; and tests that large plans are checked quickly. */

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "testing.h"

#define BYTES      256u                 /* size of the buffer that all transfers share */
#define MOST       10u                  /* transfers of a random plan */
#define COUNTERS   6u
#define ROUNDS     6000u

static struct testing_log log_of;
static ceov_context *context;
static ceov_buffer *small;
static ceov_signal *marks;
static uint64_t random_state;

static void set_up(void)
{
	testing_log_init(&log_of);
	context = testing_open(1, &log_of);
	small = testing_buffer(context, 0, BYTES);
	marks = testing_signal(context, 0, COUNTERS);
	random_state = testing_seed();
}

static void tear_down(void)
{
	ceov_close(context);
}

static uint32_t below(uint32_t limit)
{
	return (uint32_t)testing_below(&random_state, limit);
}

/* --- the simple implementation ---------------------------------------------------- */

enum verdict { FINE, UNKNOWN, CIRCLE, EMPTY, OUTSIDE, RAISERS, ITSELF, TARGETS, READS, VERDICTS };

static const char *const texts[VERDICTS] = {
	[UNKNOWN] = "which no transfer raises", [CIRCLE] = "in a circle",
	[EMPTY] = "which moves nothing and so goes behind",
	[OUTSIDE] = "expected to be raised outside", [RAISERS] = "both raise counter",
	[ITSELF] = "its source and target overlap", [TARGETS] = "their targets overlap",
	[READS] = "and no mark orders them",
};

struct plain {
	struct ceov_transfer transfers[MOST];
	uint32_t             n;
	struct ceov_mark     expected[MOST];
	uint32_t             n_expected;
	unsigned char        follows[MOST][MOST];
	unsigned char        reads[MOST][BYTES];
	unsigned char        writes[MOST][BYTES];
};

/* Returns the transfer whose raise the wait follows; MOST: the mark is raised from outside the
 * plan; -1: no raise reaches it. */
static int raiser_of(const struct plain *plain, const struct ceov_mark *mark)
{
	uint64_t least = UINT64_MAX;
	const struct ceov_mark *raised;
	uint32_t i;
	int found = -1;

	for (i = 0; i < plain->n + plain->n_expected; i++) {
		raised = i < plain->n ? &plain->transfers[i].then
			: &plain->expected[i - plain->n];
		if (!raised->signal || raised->index != mark->index ||
		    raised->value < mark->value || raised->value >= least)
			continue;
		least = raised->value;
		found = i < plain->n ? (int)i : (int)MOST;
	}
	return found;
}

static void close_order(struct plain *plain)
{
	uint32_t i, j, k;

	for (k = 0; k < plain->n; k++)
		for (i = 0; i < plain->n; i++)
			for (j = 0; j < plain->n; j++)
				plain->follows[i][j] |= plain->follows[i][k] &&
					plain->follows[k][j];
}

static enum verdict judge_marks(struct plain *plain)
{
	const struct ceov_mark *mark;
	uint32_t i, k;
	int raiser;

	for (i = 0; i < plain->n; i++) {
		for (k = 0; k < 2; k++) {
			mark = k ? &plain->transfers[i].target_free
				: &plain->transfers[i].source_ready;
			if (!mark->signal)
				continue;
			raiser = raiser_of(plain, mark);
			if (raiser < 0)
				return UNKNOWN;
			if (mark->value && raiser < (int)MOST)
				plain->follows[i][raiser] = 1;
		}
	}
	close_order(plain);
	for (i = 0; i < plain->n; i++)
		if (plain->follows[i][i])
			return CIRCLE;
	for (i = 0; i < plain->n; i++)
		for (k = i + 1; k < plain->n; k++)
			if (plain->follows[i][k] && !plain->transfers[k].row_bytes)
				return EMPTY;
	return FINE;
}

/* Judges the transfers that raise one counter. The message names the fault with the smallest
 * counter and value first, so the test accepts any faulty pair. */
static enum verdict judge_raisers(const struct plain *plain)
{
	const struct ceov_mark *a, *b;
	enum verdict found = FINE;
	uint32_t i, k;

	for (i = 0; i < plain->n; i++) {
		a = &plain->transfers[i].then;
		for (k = 0; a->signal && k < plain->n_expected; k++)
			if (plain->expected[k].index == a->index)
				found = OUTSIDE;
		for (k = 0; a->signal && k < plain->n; k++) {
			b = &plain->transfers[k].then;
			if (k == i || !b->signal || a->index != b->index || a->value > b->value)
				continue;
			if (found == FINE && (a->value == b->value || !plain->follows[k][i]))
				found = RAISERS;
		}
	}
	return found;
}

static int share_a_byte(const unsigned char *a, const unsigned char *b)
{
	uint32_t i;

	for (i = 0; i < BYTES; i++)
		if (a[i] && b[i])
			return 1;
	return 0;
}

static int are_ordered(const struct plain *plain, uint32_t a, uint32_t b)
{
	return plain->follows[a][b] || plain->follows[b][a];
}

static enum verdict judge_pair(const struct plain *plain, uint32_t i, uint32_t k)
{
	if (i == k)
		return share_a_byte(plain->reads[i], plain->writes[i]) ? ITSELF : FINE;
	if (are_ordered(plain, i, k))
		return FINE;
	if (share_a_byte(plain->writes[i], plain->writes[k]))
		return TARGETS;
	return share_a_byte(plain->writes[i], plain->reads[k]) ||
	       share_a_byte(plain->reads[i], plain->writes[k]) ? READS : FINE;
}

static enum verdict judge_bytes(const struct plain *plain)
{
	enum verdict found;
	uint32_t i, k;

	for (i = 0; i < plain->n; i++)
		if (judge_pair(plain, i, i) != FINE)
			return ITSELF;
	for (i = 0; i < plain->n; i++) {
		for (k = 0; k < i; k++) {
			found = judge_pair(plain, i, k);
			if (found != FINE)
				return found;
		}
	}
	return FINE;
}

static void paint(unsigned char *bytes, const struct ceov_spot *spot,
		  const struct ceov_transfer *transfer)
{
	uint64_t row;

	for (row = 0; transfer->row_bytes && row < transfer->n_rows; row++)
		memset(bytes + spot->offset_bytes + row * spot->pitch_bytes, 1,
		       transfer->row_bytes);
}

static enum verdict judge(struct plain *plain)
{
	enum verdict found;
	uint32_t i;

	for (i = 0; i < plain->n; i++) {
		paint(plain->reads[i], &plain->transfers[i].source, &plain->transfers[i]);
		paint(plain->writes[i], &plain->transfers[i].target, &plain->transfers[i]);
	}
	found = judge_marks(plain);
	if (found == FINE)
		found = judge_raisers(plain);
	return found == FINE ? judge_bytes(plain) : found;
}

/* --- random plans ----------------------------------------------------------------- */

static struct ceov_spot random_spot(uint32_t row_bytes, uint32_t n_rows, uint32_t pitch)
{
	uint32_t extent = (n_rows - 1) * pitch + row_bytes;

	return (struct ceov_spot){ small, below(BYTES - extent + 1), pitch };
}

/* Makes a transfer with either a pitch common to all, so that all areas lie in one matrix, or
 * random pitches. */
static struct ceov_transfer random_piece(uint32_t common_pitch)
{
	struct ceov_transfer made = { .struct_bytes = sizeof(made) };
	uint32_t pitches[2], k;

	made.n_rows = below(3) ? 1 : 2 + below(5);
	made.row_bytes = 1 + below(made.n_rows == 1 && below(2) ? 40 : 8);
	for (k = 0; k < 2; k++)
		pitches[k] = common_pitch ? common_pitch
			: (uint32_t)made.row_bytes + below(12);
	made.source = random_spot((uint32_t)made.row_bytes, (uint32_t)made.n_rows, pitches[0]);
	made.target = random_spot((uint32_t)made.row_bytes, (uint32_t)made.n_rows, pitches[1]);
	if (!below(10))
		made.row_bytes = 0;
	return made;
}

/* Chooses a mark to wait for, mostly one that an earlier transfer raises. */
static struct ceov_mark random_wait(const struct plain *plain, uint32_t density)
{
	const struct ceov_mark *raised;
	struct ceov_mark none = { NULL, 0, 0 };

	if (!plain->n || below(8) >= density)
		return none;
	if (!below(40))
		return testing_mark(marks, below(COUNTERS), below(4));
	raised = &plain->transfers[below(4) ? plain->n - 1 : below(plain->n)].then;
	return raised->signal ? *raised : none;
}

/* Makes a plan that raises each counter's values in ascending order, so that some plans are
 * valid. */
static void random_plan(struct plain *plain)
{
	uint32_t pitch = below(3) ? 8 + below(16) : 0, density = 1 + below(8), i, n;
	uint64_t values[COUNTERS] = { 0 };
	struct ceov_transfer made;

	memset(plain, 0, sizeof(*plain));
	n = 2 + below(MOST - 2);
	for (i = 0; i < n; i++) {
		made = random_piece(pitch);
		made.source_ready = random_wait(plain, density);
		made.target_free = random_wait(plain, density);
		if (below(16)) {
			uint32_t index = below(3) ? i % COUNTERS : below(COUNTERS);

			values[index] += below(12) ? 1 : below(3);
			made.then = testing_mark(marks, index, values[index]);
		}
		plain->transfers[plain->n++] = made;
	}
	if (!below(6)) {                /* perhaps waits for a later transfer */
		made = plain->transfers[n - 1];
		plain->transfers[n - 1] = plain->transfers[0];
		plain->transfers[0] = made;
	}
	if (!below(4))
		plain->expected[plain->n_expected++] =
			testing_mark(marks, below(COUNTERS), below(4));
}

static ceov_plan *build(const struct plain *plain)
{
	ceov_plan *plan = testing_plan(context, 0);
	uint32_t i;

	for (i = 0; i < plain->n; i++)
		ck_assert_int_eq(ceov_plan_add(plan, &plain->transfers[i]), 0);
	for (i = 0; i < plain->n_expected; i++)
		ck_assert_int_eq(ceov_plan_expect(plan, &plain->expected[i]), 0);
	return plan;
}

/* Asserts that the message names a pair of transfers that violates the rule. */
static void check_named(const struct plain *plain, uint32_t round)
{
	enum verdict found = FINE;
	const char *line;
	unsigned int a, b;
	uint32_t i;

	for (i = 0; i < log_of.n_lines && found == FINE; i++) {
		line = strstr(log_of.lines[i], "transfer");
		if (line && sscanf(line, "transfers %u and %u: their", &a, &b) == 2)
			found = judge_pair(plain, a, b) == TARGETS ? TARGETS : VERDICTS;
		else if (line && sscanf(line, "transfer %u reads what transfer %u", &a, &b) == 2)
			found = !are_ordered(plain, a, b) &&
				share_a_byte(plain->reads[a], plain->writes[b]) ? READS : VERDICTS;
		else if (line && sscanf(line, "transfer %u: its source and", &a) == 1)
			found = judge_pair(plain, a, a);
	}
	ck_assert_msg(found != FINE && found != VERDICTS, "round %u: no such pair: %s", round,
		      log_of.lines[0]);
}

static int is_logged(const char *text)
{
	uint32_t i, n = 0;

	for (i = 0; i < log_of.n_lines; i++)
		n += strstr(log_of.lines[i], text) != NULL;
	return n != 0;
}

static void compare(struct plain *plain, enum verdict verdict, uint32_t round)
{
	ceov_plan *plan = build(plain);
	int r;

	testing_log_clear(&log_of);
	r = ceov_plan_commit(plan);
	if (r) {                        /* the log counts repeated lines instead of writing them */
		testing_log_clear(&log_of);
		testing_log_line(&log_of, testing_failure(context).text);
	}
	ck_assert_msg(r == (verdict == FINE ? 0 : CEOV_ERR_INVALID),
		      "round %u: commit says %s (%s), the rules say %s", round,
		      ceov_strerror(r), log_of.lines[0],
		      verdict == FINE ? "fine" : texts[verdict]);
	if (verdict == OUTSIDE || verdict == RAISERS)
		ck_assert(is_logged(texts[OUTSIDE]) || is_logged(texts[RAISERS]));
	else if (verdict == TARGETS || verdict == READS)
		ck_assert(is_logged(texts[READS]));     /* both kinds of message name the
							 * transfer */
	else if (verdict != FINE)
		ck_assert_msg(is_logged(texts[verdict]), "round %u: %s", round,
			      log_of.lines[0]);
	if (verdict >= ITSELF)
		check_named(plain, round);
	ceov_plan_release(plan);
}

START_TEST(test_commit_refuses_what_a_plain_reading_does)
{
	uint32_t counts[VERDICTS] = { 0 }, round, i;
	struct plain plain;
	enum verdict verdict;

	for (round = 0; round < ROUNDS; round++) {
		random_plan(&plain);
		verdict = judge(&plain);
		counts[verdict]++;
		compare(&plain, verdict, round);
	}
	for (i = 0; i < VERDICTS; i++)
		ck_assert_msg(counts[i] >= 15, "verdict %u came %u times only", i, counts[i]);
}
END_TEST

/* --- large plans ------------------------------------------------------------------- */

#define MANY UINT32_C(30000)

/* What this thread has used, whatever else the machine does. */
static uint64_t processor_ns(void)
{
	struct timespec used;

	ck_assert_int_eq(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
	return (uint64_t)used.tv_sec * TESTING_SECOND + (uint64_t)used.tv_nsec;
}

/* Asserts that commit is fast. Checking all pairs would take minutes, commit takes a tenth of a
 * second; the limit allows for slow machines and sanitizers. */
static void commits_quickly(ceov_plan *plan)
{
	uint64_t begin = processor_ns();

	ck_assert_int_eq(ceov_plan_commit(plan), 0);
	ck_assert_uint_lt(processor_ns() - begin, 5 * TESTING_SECOND);
	ceov_plan_release(plan);
}

static void add(ceov_plan *plan, const struct ceov_transfer *transfer)
{
	ck_assert_int_eq(ceov_plan_add(plan, transfer), 0);
}

START_TEST(test_a_chain_through_one_target_commits_quickly)
{
	ceov_signal *links = testing_signal(context, 0, 1);
	ceov_buffer *wide = testing_buffer(context, 0, MANY);
	struct ceov_transfer link = testing_transfer(wide, small, 1);
	ceov_plan *plan = testing_plan(context, 0);
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		link.source.offset_bytes = i;
		if (i)
			link.target_free = testing_mark(links, 0, i);
		link.then = testing_mark(links, 0, i + 1);
		add(plan, &link);
	}
	commits_quickly(plan);
}
END_TEST

START_TEST(test_a_ring_of_slots_commits_quickly)
{
	ceov_signal *links = testing_signal(context, 0, MANY);
	ceov_buffer *wide = testing_buffer(context, 0, MANY);
	ceov_buffer *there = testing_buffer(context, 0, MANY);
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer in, out;
	uint32_t i;

	for (i = 0; i + 1 < MANY; i += 2) {
		in = testing_transfer(wide, small, 1);
		in.source.offset_bytes = i;
		in.target.offset_bytes = i / 2 % 4;
		if (i >= 8)
			in.target_free = testing_mark(links, i - 7, 1);
		in.then = testing_mark(links, i, 1);
		out = testing_transfer(small, there, 1);
		out.source.offset_bytes = i / 2 % 4;
		out.target.offset_bytes = i;
		out.source_ready = in.then;
		out.then = testing_mark(links, i + 1, 1);
		add(plan, &in);
		add(plan, &out);
	}
	commits_quickly(plan);
}
END_TEST

START_TEST(test_columns_of_a_matrix_commit_quickly)
{
	ceov_buffer *wide = testing_buffer(context, 0, MANY * UINT64_C(64));
	ceov_buffer *there = testing_buffer(context, 0, MANY * UINT64_C(64));
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer column = testing_transfer(wide, there, 1);
	uint32_t i;

	column.n_rows = 64;
	column.source.pitch_bytes = column.target.pitch_bytes = MANY;
	for (i = 0; i < MANY; i++) {
		column.source.offset_bytes = column.target.offset_bytes = i;
		add(plan, &column);
	}
	commits_quickly(plan);
}
END_TEST

/* A writer comes first, for whose mark all readers wait, and another writer comes last. */
START_TEST(test_many_readers_of_one_spot_commit_quickly)
{
	ceov_signal *links = testing_signal(context, 0, MANY + 1);
	ceov_buffer *wide = testing_buffer(context, 0, MANY);
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer writer = testing_transfer(wide, small, 1), reader;
	uint32_t i;

	writer.then = testing_mark(links, MANY, 1);
	add(plan, &writer);
	for (i = 1; i < MANY; i++) {
		reader = testing_transfer(small, wide, 1);
		reader.target.offset_bytes = i;
		reader.source_ready = writer.then;
		reader.target_free = i > 1 ? testing_mark(links, i - 1, 1) : reader.target_free;
		reader.then = testing_mark(links, i, 1);
		add(plan, &reader);
	}
	writer.source_ready = testing_mark(links, MANY - 1, 1);
	writer.then = testing_mark(links, MANY, 2);
	add(plan, &writer);
	commits_quickly(plan);
}
END_TEST

/* Many transfers lie between the two of a pair, in the chain that orders them. */
START_TEST(test_pairs_far_apart_in_a_chain_commit_quickly)
{
	ceov_signal *links = testing_signal(context, 0, 1);
	ceov_buffer *wide = testing_buffer(context, 0, MANY);
	ceov_buffer *there = testing_buffer(context, 0, MANY);
	ceov_plan *plan = testing_plan(context, 0);
	struct ceov_transfer link;
	uint32_t i;

	for (i = 0; i < MANY; i++) {
		link = testing_transfer(i < MANY / 2 ? wide : there,
					i < MANY / 2 ? there : wide, 1);
		link.source.offset_bytes = i < MANY / 2 ? i : MANY - 1 - i;
		link.target.offset_bytes = i;
		if (i)
			link.source_ready = testing_mark(links, 0, i);
		link.then = testing_mark(links, 0, i + 1);
		add(plan, &link);
	}
	commits_quickly(plan);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("plan order");
	TCase *all = tcase_create("plan order");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_commit_refuses_what_a_plain_reading_does);
	tcase_add_test(all, test_a_chain_through_one_target_commits_quickly);
	tcase_add_test(all, test_a_ring_of_slots_commits_quickly);
	tcase_add_test(all, test_columns_of_a_matrix_commit_quickly);
	tcase_add_test(all, test_many_readers_of_one_spot_commit_quickly);
	tcase_add_test(all, test_pairs_far_apart_in_a_chain_commit_quickly);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
