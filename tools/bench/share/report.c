/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/share/share.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

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

/* --- text -------------------------------------------------------------------------- */

static const char *yes(int with)
{
	return with ? "yes" : "no";
}

static void print_senders(const struct bench_share *share)
{
	const struct bench_share_found *found;
	uint32_t with, i;
	struct sums sums;
	double together;

	printf("%-7s %7s %12s %14s %8s %12s\n", "daemon", "sender", "alone GB/s",
	       "together GB/s", "share %", "wrong words");
	for (with = 0; with < 2; with++) {
		sums = add_up(share, (int)with);
		for (i = 0; i < share->n_senders; i++) {
			found = share->runs[with]->found[i];
			together = rate(share, (int)with, i, BENCH_SHARE_TOGETHER);
			printf("%-7s %7u %12.3f %14.3f %8.1f %12llu\n", yes((int)with), i,
			       rate(share, (int)with, i, BENCH_SHARE_ALONE) / 1e9, together / 1e9,
			       100 * part(together, sums.together),
			       (unsigned long long)(found[BENCH_SHARE_ALONE].n_wrong +
						    found[BENCH_SHARE_TOGETHER].n_wrong));
		}
	}
}

static void print_sums(const struct bench_share *share)
{
	struct sums sums;
	uint32_t with;

	printf("\n%-7s %12s %14s %9s\n", "daemon", "sum GB/s", "sum / alone", "fairness");
	for (with = 0; with < 2; with++) {
		sums = add_up(share, (int)with);
		printf("%-7s %12.3f %14.3f %9.3f\n", yes((int)with), sums.together / 1e9,
		       sums.of_alone, sums.fairness);
	}
}

static void print_urgent(const struct bench_share *share)
{
	const struct bench_share_found *found;
	struct times times;
	uint32_t with, when;

	printf("\n%-7s %-9s %9s %7s %10s %10s %10s %10s %12s\n", "daemon", "urgent", "launches",
	       "missed", "median us", "90 % us", "99 % us", "worst us", "wrong words");
	for (with = 0; with < 2; with++) {
		for (when = 0; when < BENCH_SHARE_WHENS; when++) {
			found = &share->runs[with]->found[share->n_senders][when];
			times = sort_times(share, (int)with, when);
			printf("%-7s %-9s %9llu %7llu %10.1f %10.1f %10.1f %10.1f %12llu\n",
			       yes((int)with), when_names[when],
			       (unsigned long long)found->n_blocks,
			       (unsigned long long)found->n_missed, times.median, times.p90,
			       times.p99, times.worst, (unsigned long long)found->n_wrong);
		}
	}
}

void bench_share_print(const struct bench_share *share)
{
	char from[16], to[16];

	place_text(&share->from, from, sizeof(from));
	place_text(&share->to, to, sizeof(to));
	printf("%u senders of %llu bytes from %s to %s, %u launches of each in flight, %g s a "
	       "phase; %s\n", share->n_senders, (unsigned long long)share->n_bytes, from, to,
	       share->n_in_flight, share->seconds, share->machine);
	if (share->urgent_bytes)
		printf("urgent: %llu bytes every %llu us\n",
		       (unsigned long long)share->urgent_bytes,
		       (unsigned long long)share->every_us);
	printf("\n");
	print_senders(share);
	print_sums(share);
	if (share->urgent_bytes)
		print_urgent(share);
}

/* --- JSON --------------------------------------------------------------------------- */

static void add_integer(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_int64((int64_t)value));
}

static struct json_object *sender_json(const struct bench_share *share, int with, uint32_t sender)
{
	const struct bench_share_found *found = share->runs[with]->found[sender];
	double together = rate(share, with, sender, BENCH_SHARE_TOGETHER);
	struct json_object *object = json_object_new_object();

	add_integer(object, "sender", sender);
	bench_report_number(object, "alone_bytes_per_s",
			    rate(share, with, sender, BENCH_SHARE_ALONE));
	bench_report_number(object, "together_bytes_per_s", together);
	bench_report_number(object, "share", part(together, add_up(share, with).together));
	add_integer(object, "wrong_words", found[BENCH_SHARE_ALONE].n_wrong +
		    found[BENCH_SHARE_TOGETHER].n_wrong);
	return object;
}

static struct json_object *urgent_json(const struct bench_share *share, int with,
				       enum bench_share_when when)
{
	const struct bench_share_found *found = &share->runs[with]->found[share->n_senders][when];
	struct times times = sort_times(share, with, when);
	struct json_object *object = json_object_new_object();

	add_integer(object, "launches", found->n_blocks);
	add_integer(object, "missed", found->n_missed);
	bench_report_number(object, "us_median", times.median);
	bench_report_number(object, "us_p90", times.p90);
	bench_report_number(object, "us_p99", times.p99);
	bench_report_number(object, "us_worst", times.worst);
	add_integer(object, "wrong_words", found->n_wrong);
	return object;
}

static struct json_object *run_json(const struct bench_share *share, int with)
{
	struct json_object *object = json_object_new_object();
	struct json_object *senders = json_object_new_array();
	struct json_object *urgent = NULL;
	struct sums sums = add_up(share, with);
	uint32_t i, when;

	json_object_object_add(object, "daemon", json_object_new_boolean(with));
	for (i = 0; i < share->n_senders; i++)
		json_object_array_add(senders, sender_json(share, with, i));
	json_object_object_add(object, "senders", senders);
	bench_report_number(object, "sum_bytes_per_s", sums.together);
	bench_report_number(object, "sum_by_alone", sums.of_alone);
	bench_report_number(object, "fairness_jain", sums.fairness);
	if (share->urgent_bytes)
		urgent = json_object_new_object();
	for (when = 0; urgent && when < BENCH_SHARE_WHENS; when++)
		json_object_object_add(urgent, when_names[when], urgent_json(share, with, when));
	json_object_object_add(object, "urgent", urgent);
	return object;
}

int bench_share_json(const struct bench_share *share)
{
	struct json_object *report = json_object_new_object();
	struct json_object *runs = json_object_new_array();
	char from[16], to[16];

	place_text(&share->from, from, sizeof(from));
	place_text(&share->to, to, sizeof(to));
	add_integer(report, "schema_version", SCHEMA_VERSION);
	json_object_object_add(report, "provenance",
			       bench_report_provenance(&share->options, share->machine));
	json_object_object_add(report, "from", json_object_new_string(from));
	json_object_object_add(report, "to", json_object_new_string(to));
	add_integer(report, "bytes", share->n_bytes);
	add_integer(report, "in_flight", share->n_in_flight);
	bench_report_number(report, "seconds", share->seconds);
	add_integer(report, "chunk_bytes", share->options.chunk_bytes);
	add_integer(report, "urgent_bytes", share->urgent_bytes);
	add_integer(report, "every_us", share->every_us);
	json_object_array_add(runs, run_json(share, 0));
	json_object_array_add(runs, run_json(share, 1));
	json_object_object_add(report, "runs", runs);
	return bench_report_write(&share->options, report);
}
