/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/share/share.h"

#include <stdlib.h>

#include "tools/common/cells.h"

#define SCHEMA_VERSION 1

static const char *const when_names[BENCH_SHARE_WHENS] = { "alone", "together" };

/* --- figures ---------------------------------------------------------------------- */

/* What a sender has sent, in bytes a second. */
static double rate(const struct bench_share *share, int with, uint32_t sender,
		   enum bench_share_when when)
{
	return (double)share->runs[with]->found[sender][when].n_blocks *
		(double)share->n_bytes / share->seconds;
}

struct sums {                           /* of the senders of a run */
	double alone;                   /* sums of rates */
	double together;
	double of_alone;                /* together, divided by what one has alone on average; 0:
					 * none had anything */
	double fairness;                /* Jain's index of what they get together: 1 if all get the
					 * same, 1 / n if one gets all; 0: none got anything */
};

static struct sums add_up(const struct bench_share *share, int with)
{
	struct sums sums = { 0, 0, 0, 0 };
	double squares = 0, together;
	uint32_t i, n = share->n_senders;

	for (i = 0; i < n; i++) {
		together = rate(share, with, i, BENCH_SHARE_TOGETHER);
		sums.alone += rate(share, with, i, BENCH_SHARE_ALONE);
		sums.together += together;
		squares += together * together;
	}
	if (sums.alone > 0)
		sums.of_alone = sums.together / (sums.alone / n);
	if (squares > 0)
		sums.fairness = sums.together * sums.together / (n * squares);
	return sums;
}

static double part(double one, double all)
{
	return all > 0 ? one / all : 0;
}

struct times {                          /* of urgent launches, in microseconds; 0: there are none */
	double median, p90, p99, worst;
};

static int compare_times(const void *left, const void *right)
{
	const uint64_t *a = left, *b = right;

	return (*a > *b) - (*a < *b);
}

/* The least time that so many percent of the sorted times do not exceed. */
static double percentile(const uint64_t *sorted, uint64_t n, uint64_t percent)
{
	return n ? (double)sorted[(n * percent + 99) / 100 - 1] / 1e3 : 0;
}

/* Sorts the times of the run where they lie. */
static struct times sort_times(const struct bench_share *share, int with,
			       enum bench_share_when when)
{
	struct bench_share_run *run = share->runs[with];
	uint64_t n = run->found[share->n_senders][when].n_blocks;
	uint64_t *times_ns = run->times_ns[when];

	qsort(times_ns, n, sizeof(*times_ns), compare_times);
	return (struct times){ percentile(times_ns, n, 50), percentile(times_ns, n, 90),
			       percentile(times_ns, n, 99), percentile(times_ns, n, 100) };
}

/* Writes "host" or "gpu:N". */
static void place_text(const struct ceov_place *place, char *text, size_t n_bytes)
{
	if (place->kind == CEOV_PLACE_GPU)
		snprintf(text, n_bytes, "gpu:%u", place->index);
	else
		snprintf(text, n_bytes, "host");
}

/* --- rows -------------------------------------------------------------------------- */

static void begin_row(struct cells *cells, int with)
{
	cells_begin(cells);
	cells_text(cells, NULL, "daemon:-7", with ? "yes" : "no");
}

/* Adds a rate, which the table has in GB/s. */
static void add_rate(struct cells *cells, const char *key, const char *column,
		     double bytes_per_s)
{
	cells_number(cells, key, NULL, bytes_per_s);
	cells_number(cells, NULL, column, bytes_per_s / 1e9);
}

static struct json_object *report_senders(const struct bench_share *share, int with)
{
	struct json_object *list = json_object_new_array();
	double all = add_up(share, with).together, together;
	const struct bench_share_found *found;
	struct cells cells;
	uint32_t i;

	for (i = 0; i < share->n_senders; i++) {
		found = share->runs[with]->found[i];
		together = rate(share, with, i, BENCH_SHARE_TOGETHER);
		begin_row(&cells, with);
		cells_integer(&cells, "sender", "sender:7", i);
		add_rate(&cells, "alone_bytes_per_s", "alone GB/s:12.3",
			 rate(share, with, i, BENCH_SHARE_ALONE));
		add_rate(&cells, "together_bytes_per_s", "together GB/s:14.3", together);
		cells_number(&cells, "share", NULL, part(together, all));
		cells_number(&cells, NULL, "share %:8.1", 100 * part(together, all));
		cells_integer(&cells, "wrong_words", "wrong words:12",
				    found[BENCH_SHARE_ALONE].n_wrong +
				    found[BENCH_SHARE_TOGETHER].n_wrong);
		cells_print(stdout, &cells, !with && !i);
		json_object_array_add(list, cells_take(&cells));
	}
	return list;
}

static struct json_object *report_urgent(const struct bench_share *share, int with)
{
	struct json_object *both = json_object_new_object();
	const struct bench_share_found *found;
	struct cells cells;
	struct times times;
	uint32_t when;

	for (when = 0; when < BENCH_SHARE_WHENS; when++) {
		found = &share->runs[with]->found[share->n_senders][when];
		times = sort_times(share, with, when);
		begin_row(&cells, with);
		cells_text(&cells, NULL, "urgent:-9", when_names[when]);
		cells_integer(&cells, "launches", "launches:9", found->n_blocks);
		cells_integer(&cells, "missed", "missed:7", found->n_missed);
		cells_number(&cells, "us_median", "median us:10.1", times.median);
		cells_number(&cells, "us_p90", "90 % us:10.1", times.p90);
		cells_number(&cells, "us_p99", "99 % us:10.1", times.p99);
		cells_number(&cells, "us_worst", "worst us:10.1", times.worst);
		cells_integer(&cells, "wrong_words", "wrong words:12", found->n_wrong);
		cells_print(stdout, &cells, !with && !when);
		json_object_object_add(both, when_names[when], cells_take(&cells));
	}
	return both;
}

static void add_sums(const struct bench_share *share, int with, struct cells *run)
{
	struct sums sums = add_up(share, with);

	add_rate(run, "sum_bytes_per_s", "sum GB/s:12.3", sums.together);
	cells_number(run, "sum_by_alone", "sum / alone:14.3", sums.of_alone);
	cells_number(run, "fairness_jain", "fairness:9.3", sums.fairness);
	cells_print(stdout, run, !with);
}

/* Reports both runs, one kind of rows after the other. */
static struct json_object *report_runs(const struct bench_share *share)
{
	struct json_object *list = json_object_new_array();
	struct cells runs[2];
	int with;

	for (with = 0; with < 2; with++) {
		begin_row(&runs[with], with);
		cells_add(&runs[with], "daemon", json_object_new_boolean(with));
		cells_add(&runs[with], "senders", report_senders(share, with));
	}
	putchar('\n');
	for (with = 0; with < 2; with++)
		add_sums(share, with, &runs[with]);
	putchar('\n');
	for (with = 0; with < 2; with++) {
		cells_add(&runs[with], "urgent", share->urgent_bytes
				? report_urgent(share, with) : NULL);
		json_object_array_add(list, cells_take(&runs[with]));
	}
	return list;
}

int bench_share_report(const struct bench_share *share)
{
	struct cells report;
	char from[16], to[16];

	place_text(&share->from, from, sizeof(from));
	place_text(&share->to, to, sizeof(to));
	printf("%u senders of %llu bytes from %s to %s, %u launches of each in flight, %g s a "
	       "phase; %s\n", share->n_senders, (unsigned long long)share->n_bytes, from, to,
	       share->n_in_flight, share->seconds, share->machine);
	(void)bench_report_begin(&report, &share->options, share->machine, SCHEMA_VERSION);
	cells_text(&report, "from", NULL, from);
	cells_text(&report, "to", NULL, to);
	cells_integer(&report, "bytes", NULL, share->n_bytes);
	cells_integer(&report, "in_flight", NULL, share->n_in_flight);
	cells_number(&report, "seconds", NULL, share->seconds);
	cells_integer(&report, "chunk_bytes", NULL, share->options.chunk_bytes);
	cells_integer(&report, "urgent_bytes", "bytes of urgent launches",
			    share->urgent_bytes);
	cells_integer(&report, "every_us", "one every us", share->every_us);
	if (share->urgent_bytes)
		cells_print(stdout, &report, 0);
	cells_add(&report, "runs", report_runs(share));
	return bench_report_end(&report, &share->options);
}
