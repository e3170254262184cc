/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Reports what was measured: a matrix of rates, and a row for each link and each set of links. */

#include "tools/bench/measure/measure.h"

#include <inttypes.h>
#include <math.h>

#include "tools/common/cells.h"

#define SCHEMA_VERSION 1

/* Returns whether t0 is known: between nodes only the rate is measured. */
static int has_t0(const struct cei_machine_link *known, const struct measure_link *link)
{
	return link->is_measured && known->t0_ns;
}

static const char *place_name(const void *m, uint32_t place, char *text)
{
	return cei_machine_place_name(((const struct measure *)m)->machine, place, text);
}

static double rate(const void *m, uint32_t from, uint32_t to)
{
	const struct cei_machine *machine = ((const struct measure *)m)->machine;

	return measure_link(m, from, to)->is_measured
		? (double)cei_machine_link(machine, from, to)->bytes_per_s / 1e9 : NAN;
}

/* --- rows ---------------------------------------------------------------------------- */

static void add_place(const struct measure *m, struct cells *cells, const char *key,
		      uint32_t place)
{
	char name[CELLS_PLACE_BYTES], column[24];

	snprintf(column, sizeof(column), "%s:-7", key);
	cells_text(cells, key, column, place_name(m, place, name));
}

static struct json_object *sizes_to_json(const struct measure *m, uint32_t from, uint32_t to)
{
	struct json_object *list = json_object_new_array();
	const struct measure_link *link = measure_link(m, from, to);
	int from_gpu = cei_machine_is_gpu(m->machine, from);
	int to_gpu = cei_machine_is_gpu(m->machine, to);
	uint32_t size, n_copies[MEASURE_SIZES];
	uint64_t bytes[MEASURE_SIZES];
	struct cells point;

	measure_sizes_up_to(measure_largest(m, from_gpu + to_gpu), bytes, n_copies);
	for (size = 0; size < MEASURE_SIZES; size++) {
		cells_begin(&point);
		cells_integer(&point, "bytes", NULL, bytes[size]);
		cells_measured(&point, "us_median", NULL, link->median_us[size]);
		json_object_array_add(list, cells_take(&point));
	}
	return list;
}

static void fill_link(struct cells *cells, const struct measure *m, uint32_t from,
		      uint32_t to)
{
	const struct cei_machine_link *known = cei_machine_link(m->machine, from, to);
	const struct measure_link *link = measure_link(m, from, to);

	cells_begin(cells);
	add_place(m, cells, "from", from);
	add_place(m, cells, "to", to);
	cells_text(cells, "kind", "kind:-10", cei_machine_link_kind_name(known->kind));
	cells_number(cells, "gb_per_s", "GB/s:9.2", (double)known->bytes_per_s / 1e9);
	cells_number(cells, "t0_us", "t0, us:8.2", has_t0(known, link)
			   ? (double)known->t0_ns / 1e3 : NAN);
	cells_integer(cells, "rounds", "rounds:6", link->n_rounds);
	cells_add(cells, "sizes", sizes_to_json(m, from, to));
	cells_optional(cells, "memcpy_write_ce_gb_per_s", "nvbandwidth:11.2",
			     link->plain_gb_per_s);
	cells_optional(cells, "both_ways_gb_per_s", "both ways:9.2", link->both_gb_per_s);
}

static struct json_object *report_links(const struct measure *m, FILE *out)
{
	struct json_object *list = json_object_new_array();
	uint32_t from, to, n = cei_machine_n_places(m->machine);
	struct cells cells;

	fprintf(out, "\n# links: T = t0 + bytes / GB/s through three sizes (between nodes: one "
		"thread's memcpy)\n");
	if (m->n_gpus)
		fprintf(out, "# nvbandwidth: GB/s as its device_to_device_memcpy_write_ce counts "
			"them, %u copies of %llu MiB back to back\n#   behind a gate, median of 3; "
			"both ways: GB/s of both at once, summed\n", m->n_plain_copies,
			(unsigned long long)(m->plain_bytes >> 20));
	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++) {
			if (!measure_link(m, from, to)->is_measured)
				continue;
			fill_link(&cells, m, from, to);
			cells_print(out, &cells, !json_object_array_length(list));
			json_object_array_add(list, cells_take(&cells));
		}
	return list;
}

static void fill_set(struct cells *cells, const struct measure *m,
		     const struct measure_set *set)
{
	struct json_object *flows = json_object_new_array();
	struct cells flow;
	uint32_t i;

	for (i = 0; i < set->n_flows; i++) {
		cells_begin(&flow);
		add_place(m, &flow, "from", set->flows[i].from);
		add_place(m, &flow, "to", set->flows[i].to);
		json_object_array_add(flows, cells_take(&flow));
	}
	cells_begin(cells);
	cells_text(cells, "name", "set:-56", set->name);
	cells_add(cells, "links", flows);
	cells_number(cells, "alone_gb_per_s", "alone:8.1", set->alone_gb_per_s);
	cells_number(cells, "expected_gb_per_s", "expected:8.1", set->expected_gb_per_s);
	cells_number(cells, "at_once_gb_per_s", "at once:8.1", set->gb_per_s);
	cells_text(cells, "shared_port", "shared:-20", set->port[0] ? set->port : NULL);
}

static struct json_object *report_sets(const struct measure *m, FILE *out)
{
	struct json_object *list = json_object_new_array();
	struct cells cells;
	uint32_t i;

	if (m->n_sets)
		fprintf(out, "\n# at once, GB/s: sum of the links alone; expected of the set's "
			"parts; measured\n");
	for (i = 0; i < m->n_sets; i++) {
		fill_set(&cells, m, &m->sets[i]);
		cells_print(out, &cells, !i);
		json_object_array_add(list, cells_take(&cells));
	}
	return list;
}

/* --- all of it ------------------------------------------------------------------------ */

static struct json_object *report_machine(const struct measure *m)
{
	struct cells cells;
	char hash[20];

	snprintf(hash, sizeof(hash), "%016" PRIx64, m->machine->hash);
	cells_begin(&cells);
	cells_text(&cells, "name", NULL, m->machine->name);
	cells_text(&cells, "hash", "hash", hash);
	cells_text(&cells, "driver", NULL, m->machine->driver);
	cells_text(&cells, NULL, "driver", m->machine->driver[0] ? m->machine->driver
			 : "none");
	cells_integer(&cells, "gpus", "GPUs", m->machine->n_gpus);
	cells_integer(&cells, "nodes", "NUMA nodes", m->machine->n_nodes);
	cells_integer(&cells, "gpus_measured", "GPUs measured", m->n_gpus);
	cells_print(stdout, &cells, 0);
	return cells_take(&cells);
}

int measure_report(const struct measure *m)
{
	struct cells_matrix rates = { "# GB/s; from (down) to (across)",
				      cei_machine_n_places(m->machine), place_name, rate, m };
	struct cells report;

	printf("# ceoverlap-bench %s measure: %s, seed %llu\n", ceov_version(), m->machine->name,
	       (unsigned long long)m->options->seed);
	bench_report_begin(&report, m->options, m->machine->name, SCHEMA_VERSION);
	cells_add(&report, "machine", report_machine(m));
	if (!m->n_gpus)
		printf("# no GPU was measured: only memcpy() of one thread between NUMA nodes\n");
	if (m->n_left_out)
		printf("# the time was up: %u steps were left out\n", m->n_left_out);
	cells_matrix_print(stdout, &rates);
	cells_add(&report, "links", report_links(m, stdout));
	cells_add(&report, "at_once", report_sets(m, stdout));
	cells_integer(&report, "plain_copy_bytes", NULL, m->plain_bytes);
	cells_integer(&report, "plain_copies", NULL, m->n_plain_copies);
	cells_integer(&report, "steps_left_out", NULL, m->n_left_out);
	cells_integer(&report, "links_checked", "links checked", m->n_checked);
	cells_integer(&report, "words_wrong", "words wrong", m->n_wrong);
	cells_add(&report, "is_stored", json_object_new_boolean(m->is_stored));
	cells_print(stdout, &report, 0);
	if (m->output)
		printf("# machine written to %s\n", m->output);
	printf("# %s: %s\n", m->is_stored ? "kept for the runtime" : "not kept", m->stored_in);
	return bench_report_end(&report, m->options);
}
