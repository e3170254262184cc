/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Prints the results as text matrices and as JSON. */

#include "tools/bench/measure/measure.h"

#include <inttypes.h>
#include <json-c/json.h>
#include <string.h>

#define SCHEMA_VERSION 1

/* --- text --------------------------------------------------------------------------- */

enum matrix { MATRIX_RATE, MATRIX_T0, MATRIX_PLAIN, MATRIX_BOTH };

/* Returns whether t0 is known: between nodes only the rate is measured. */
static int has_t0(const struct cei_machine_link *known, const struct measure_link *link)
{
	return link->is_measured && known->t0_ns;
}

static double value_of(const struct measure *m, enum matrix matrix, uint32_t from,
		       uint32_t to)
{
	const struct cei_machine_link *known = cei_machine_link(m->machine, from, to);
	const struct measure_link *link = measure_link(m, from, to);

	switch (matrix) {
	case MATRIX_RATE:  return link->is_measured ? (double)known->bytes_per_s / 1e9 : -1;
	case MATRIX_T0:    return has_t0(known, link) ? (double)known->t0_ns / 1e3 : -1;
	case MATRIX_PLAIN: return link->plain_gb_per_s > 0 ? link->plain_gb_per_s : -1;
	case MATRIX_BOTH:  return link->both_gb_per_s > 0 ? link->both_gb_per_s : -1;
	}
	return -1;
}

/* Returns whether the matrix has any value for the place. */
static int is_shown(const struct measure *m, enum matrix matrix, uint32_t place)
{
	uint32_t i, n = cei_machine_n_places(m->machine);

	for (i = 0; i < n; i++)
		if (value_of(m, matrix, place, i) >= 0 || value_of(m, matrix, i, place) >= 0)
			return 1;
	return 0;
}

static void print_matrix(const struct measure *m, FILE *out, enum matrix matrix,
			 const char *head)
{
	uint32_t from, to, n = cei_machine_n_places(m->machine), n_shown = 0;
	char name[16];
	double value;

	for (from = 0; from < n; from++)
		n_shown += (uint32_t)is_shown(m, matrix, from);
	if (!n_shown)
		return;
	fprintf(out, "\n%s\n%-8s", head, "from\\to");
	for (to = 0; to < n; to++)
		if (is_shown(m, matrix, to))
			fprintf(out, " %8s", cei_machine_place_name(m->machine, to, name));
	fputc('\n', out);
	for (from = 0; from < n; from++) {
		if (!is_shown(m, matrix, from))
			continue;
		fprintf(out, "%-8s", cei_machine_place_name(m->machine, from, name));
		for (to = 0; to < n; to++) {
			if (!is_shown(m, matrix, to))
				continue;
			value = value_of(m, matrix, from, to);
			if (value < 0)
				fprintf(out, " %8s", "-");
			else
				fprintf(out, " %8.1f", value);
		}
		fputc('\n', out);
	}
}

/* Prints one line per pair of GPUs with the rates of both methods of counting. */
static void print_pairs(const struct measure *m, FILE *out)
{
	const struct cei_machine_link *known;
	const struct measure_link *link;
	uint32_t from, to, n_lines = 0;

	for (from = 0; from < m->n_gpus; from++) {
		for (to = 0; to < m->n_gpus; to++) {
			known = cei_machine_link(m->machine, from, to);
			link = measure_link(m, from, to);
			if (link->plain_gb_per_s <= 0)
				continue;
			if (!n_lines++)
				fprintf(out, "\n# GPU pairs: fitted rate and t0; the same as "
					"nvbandwidth's device_to_device_memcpy_write_ce counts "
					"it:\n# %u copies of %llu MiB back to back behind a "
					"gate, median of 3\n", m->n_plain_copies,
					(unsigned long long)(m->plain_bytes >> 20));
			fprintf(out, "pair %2u > %2u  %-8s %8.2f GB/s  t0 %6.2f us  nvbandwidth "
				"%8.2f GB/s\n", from, to,
				cei_machine_link_kind_name(known->kind),
				(double)known->bytes_per_s / 1e9, (double)known->t0_ns / 1e3,
				link->plain_gb_per_s);
		}
	}
}

static void print_sets(const struct measure *m, FILE *out)
{
	const struct measure_set *set;
	uint32_t i;

	if (!m->n_sets)
		return;
	fprintf(out, "\n# at once, GB/s: sum of the links alone; expected of the set's parts; "
		"measured\n%-44s %8s %8s %8s  %s\n", "set", "alone", "expected", "at once",
		"shared");
	for (i = 0; i < m->n_sets; i++) {
		set = &m->sets[i];
		fprintf(out, "%-44s %8.1f %8.1f %8.1f  %s\n", set->name, set->alone_gb_per_s,
			set->expected_gb_per_s, set->gb_per_s, set->port);
	}
}

void measure_report_text(const struct measure *m, FILE *out)
{
	const struct cei_machine *machine = m->machine;

	fprintf(out, "# ceoverlap-bench %s measure: %s, %016" PRIx64 ", %u GPUs of %u, %u NUMA "
		"nodes, driver %s, seed %llu\n", ceov_version(), machine->name, machine->hash,
		m->n_gpus, machine->n_gpus, machine->n_nodes,
		machine->driver[0] ? machine->driver : "none",
		(unsigned long long)m->options->seed);
	if (!m->n_gpus)
		fprintf(out, "# no GPU was measured: only memcpy() of one thread between NUMA "
			"nodes\n");
	if (m->n_left_out)
		fprintf(out, "# the time was up: %u steps were left out\n", m->n_left_out);
	print_matrix(m, out, MATRIX_RATE, "# GB/s, of T = t0 + bytes / rate through three "
		     "sizes (between nodes: one thread's memcpy)");
	print_matrix(m, out, MATRIX_T0, "# t0, us");
	print_pairs(m, out);
	print_matrix(m, out, MATRIX_BOTH, "# GB/s both ways at once, summed");
	print_sets(m, out);
	fprintf(out, "\n# data: %u links checked, %llu words wrong\n", m->n_checked,
		(unsigned long long)m->n_wrong);
	if (m->output)
		fprintf(out, "# machine written to %s\n", m->output);
	fprintf(out, "# %s: %s\n", m->is_stored ? "kept for the runtime" : "not kept",
		m->stored_in);
}

/* --- JSON --------------------------------------------------------------------------- */

static void add_string(struct json_object *object, const char *key, const char *value)
{
	json_object_object_add(object, key, json_object_new_string(value));
}

static void add_integer(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_int64((int64_t)value));
}

static void add_place(const struct measure *m, struct json_object *object, const char *key,
		      uint32_t place)
{
	char name[16];

	add_string(object, key, cei_machine_place_name(m->machine, place, name));
}

static struct json_object *sizes_to_json(const struct measure *m, uint32_t from, uint32_t to)
{
	struct json_object *list = json_object_new_array(), *point;
	const struct measure_link *link = measure_link(m, from, to);
	int from_gpu = cei_machine_is_gpu(m->machine, from);
	int to_gpu = cei_machine_is_gpu(m->machine, to);
	uint32_t size, n_copies[MEASURE_SIZES];
	uint64_t bytes[MEASURE_SIZES];

	measure_sizes_up_to(measure_largest(m, from_gpu + to_gpu), bytes, n_copies);
	for (size = 0; size < MEASURE_SIZES; size++) {
		point = json_object_new_object();
		add_integer(point, "bytes", bytes[size]);
		if (link->median_us[size] > 0)
			bench_report_number(point, "us_median", link->median_us[size]);
		else
			json_object_object_add(point, "us_median", NULL);
		json_object_array_add(list, point);
	}
	return list;
}

static struct json_object *link_to_json(const struct measure *m, uint32_t from, uint32_t to)
{
	const struct cei_machine_link *known = cei_machine_link(m->machine, from, to);
	const struct measure_link *link = measure_link(m, from, to);
	struct json_object *object = json_object_new_object();

	add_place(m, object, "from", from);
	add_place(m, object, "to", to);
	add_string(object, "kind", cei_machine_link_kind_name(known->kind));
	bench_report_number(object, "gb_per_s", (double)known->bytes_per_s / 1e9);
	if (has_t0(known, link))
		bench_report_number(object, "t0_us", (double)known->t0_ns / 1e3);
	else
		json_object_object_add(object, "t0_us", NULL);
	add_integer(object, "rounds", link->n_rounds);
	json_object_object_add(object, "sizes", sizes_to_json(m, from, to));
	if (link->plain_gb_per_s > 0)
		bench_report_number(object, "memcpy_write_ce_gb_per_s", link->plain_gb_per_s);
	if (link->both_gb_per_s > 0)
		bench_report_number(object, "both_ways_gb_per_s", link->both_gb_per_s);
	return object;
}

static struct json_object *links_to_json(const struct measure *m)
{
	struct json_object *list = json_object_new_array();
	uint32_t from, to, n = cei_machine_n_places(m->machine);

	for (from = 0; from < n; from++)
		for (to = 0; to < n; to++)
			if (measure_link(m, from, to)->is_measured)
				json_object_array_add(list, link_to_json(m, from, to));
	return list;
}

static struct json_object *set_to_json(const struct measure *m, const struct measure_set *set)
{
	struct json_object *object = json_object_new_object(), *flow;
	struct json_object *flows = json_object_new_array();
	uint32_t i;

	add_string(object, "name", set->name);
	for (i = 0; i < set->n_flows; i++) {
		flow = json_object_new_object();
		add_place(m, flow, "from", set->flows[i].from);
		add_place(m, flow, "to", set->flows[i].to);
		json_object_array_add(flows, flow);
	}
	json_object_object_add(object, "links", flows);
	bench_report_number(object, "alone_gb_per_s", set->alone_gb_per_s);
	bench_report_number(object, "expected_gb_per_s", set->expected_gb_per_s);
	bench_report_number(object, "at_once_gb_per_s", set->gb_per_s);
	json_object_object_add(object, "shared_port",
			       set->port[0] ? json_object_new_string(set->port) : NULL);
	return object;
}

static struct json_object *machine_to_json(const struct measure *m)
{
	struct json_object *object = json_object_new_object();
	char hash[20];

	snprintf(hash, sizeof(hash), "%016" PRIx64, m->machine->hash);
	add_string(object, "name", m->machine->name);
	add_string(object, "hash", hash);
	add_string(object, "driver", m->machine->driver);
	add_integer(object, "gpus", m->machine->n_gpus);
	add_integer(object, "nodes", m->machine->n_nodes);
	add_integer(object, "gpus_measured", m->n_gpus);
	return object;
}

int measure_report_json(const struct measure *m)
{
	struct json_object *report = json_object_new_object();
	struct json_object *origin = bench_report_provenance(m->options, m->machine->name);
	struct json_object *sets = json_object_new_array();
	uint32_t i;

	add_integer(report, "schema_version", SCHEMA_VERSION);
	add_string(origin, "command", m->command);
	json_object_object_add(report, "provenance", origin);
	json_object_object_add(report, "machine", machine_to_json(m));
	json_object_object_add(report, "links", links_to_json(m));
	for (i = 0; i < m->n_sets; i++)
		json_object_array_add(sets, set_to_json(m, &m->sets[i]));
	json_object_object_add(report, "at_once", sets);
	add_integer(report, "plain_copy_bytes", m->plain_bytes);
	add_integer(report, "plain_copies", m->n_plain_copies);
	add_integer(report, "steps_left_out", m->n_left_out);
	add_integer(report, "links_checked", m->n_checked);
	add_integer(report, "words_wrong", m->n_wrong);
	json_object_object_add(report, "is_stored", json_object_new_boolean(m->is_stored));
	return bench_report_write(m->options, report);
}
