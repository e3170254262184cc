/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Prints the operators' rows as a text table and as JSON. */

#include <json-c/json.h>
#include <string.h>

#include "tools/bench/overlap/overlap.h"
#include "tools/bench/overlap/tables.h"

#define SCHEMA_VERSION 2

static const char *const method_names[OVERLAP_METHODS] = {
	[OVERLAP_GEMM] = "gemm",
	[OVERLAP_OURS_GEMM] = "ours_gemm",
	[OVERLAP_COMM] = "comm",
	[OVERLAP_COMM_CE] = "comm_ce",
	[OVERLAP_SEQUENCE] = "sequence",
	[OVERLAP_SEQUENCE_CE] = "sequence_ce",
	[OVERLAP_OURS] = "ours",
};

/* Whether SMs moved the bytes of ours, not copy engines. */
static int is_by_sms(const struct bench_overlap_row *row)
{
	return row->chosen.mode == CEOV_MODE_DIRECT || row->chosen.mode == CEOV_MODE_TWO_SHOT;
}

/* Whether the operator has no product. */
static int is_plain(const struct bench_overlap_row *row)
{
	return row->m == 0;
}

/* Whether ours is compared with NCCL alone. */
static int is_comm(const struct bench_overlap_row *row)
{
	return is_plain(row) || bench_overlap_is_experts(row->test);
}

static double median(const struct bench_overlap_row *row, enum bench_overlap_method method)
{
	return row->methods[method].us_median;
}

/* Returns 0 if a value is missing. */
static double ratio(double above, double below)
{
	return above > 0 && below > 0 ? above / below : 0;
}

/* Returns the smaller of the values that were measured. */
static double least(double a, double b)
{
	if (a <= 0 || b <= 0)
		return a > 0 ? a : b;
	return a < b ? a : b;
}

void bench_overlap_derive(const struct bench_overlap_row *row,
			  struct bench_overlap_derived *ret_derived)
{
	double ours = median(row, OVERLAP_OURS), gemm = median(row, OVERLAP_GEMM);
	double comm = least(median(row, OVERLAP_COMM), median(row, OVERLAP_COMM_CE));
	double sequence = is_comm(row) ? comm : median(row, OVERLAP_SEQUENCE);
	struct bench_overlap_derived d = { .ideal_us = 0 };

	if (comm > 0 && (gemm > 0 || is_comm(row)))
		d.ideal_us = gemm > comm ? gemm : comm;
	d.speedup = ratio(sequence, ours);
	d.speedup_ce = ratio(median(row, OVERLAP_SEQUENCE_CE), ours);
	if (!is_comm(row) && d.ideal_us > 0 && sequence > d.ideal_us && ours > 0)
		d.fraction = (sequence / ours - 1) / (sequence / d.ideal_us - 1);
	if (gemm > 0 && ours > 0)
		d.exposed_us = ours - gemm;
	d.gemm_ratio = ratio(gemm, median(row, OVERLAP_OURS_GEMM));
	d.over_ideal = ratio(ours, d.ideal_us);
	if (bench_overlap_is_experts(row->test)) {
		d.gb_per_s = ratio((double)row->bytes / 1e3, ours);
		d.gb_per_s_comm = ratio((double)row->bytes / 1e3, comm);
	}
	*ret_derived = d;
}

/* --- text ----------------------------------------------------------------- */

void bench_overlap_report_head(FILE *out)
{
	fprintf(out, "# us a call: medians of samples, each the maximum over ranks\n"
		"# gemm: cuBLAS; our: our GEMM alone; comm: NCCL; commCE: NCCL zero-CTA; "
		"seq: NCCL and cuBLAS; seqCE: zero-CTA and cuBLAS\n"
		"# speedup: seq / ours (sums, moves and ep_: comm / ours); vsCE: seqCE / ours; "
		"ideal: max(gemm, faster comm); frac: of the ideal's speed-up\n"
		"# SM: SMs moved these (a direct mode), not copy engines\n"
		"# embedding_a2a: M samples, N columns of a table, K tables of a rank; gemm: "
		"look-ups alone; comm: our all-to-all; seq: ours, not overlapped\n"
		"# ep_: M tokens, N values, K experts; model: table/top-k, per cent dropped; comm: "
		"NCCL's sends of as many rows, not counted or permuted; GB/s: of the busiest rank\n"
		"# chosen: mode/pieces/rows x columns of tiles/SMs that sum or move (sm)\n"
		"# exposed: ours - gemm; g/our: gemm / our; /ideal: ours / ideal; cpu: us "
		"of the calling thread a call; thr%%: CPU of other threads\n");
	fprintf(out, "%-14s %-12s %9s %6s %6s %-6s %8s %8s %8s %8s %8s %8s %8s %7s %6s %8s "
		"%6s %8s %6s %6s %6s %5s %8s %-20s  %s\n", "operator", "model", "M", "N", "K",
		"launch", "gemm", "our", "comm", "commCE", "seq", "seqCE", "ours", "speedup",
		"vsCE", "ideal", "frac", "exposed", "g/our", "/ideal", "cpu", "thr%", "error",
		"chosen", "data");
}

struct cell {
	char text[32];
};

static struct cell cell(double value, int n_decimals)
{
	struct cell cell;

	if (value != 0)
		snprintf(cell.text, sizeof(cell.text), "%.*f", n_decimals, value);
	else
		snprintf(cell.text, sizeof(cell.text), "-");
	return cell;
}

static struct cell size_cell(uint64_t value)
{
	struct cell cell;

	if (value)
		snprintf(cell.text, sizeof(cell.text), "%llu", (unsigned long long)value);
	else
		snprintf(cell.text, sizeof(cell.text), "-");
	return cell;
}

static const char *verdict(const struct bench_overlap_row *row)
{
	if (row->verified < 0)
		return "unchecked";
	if (row->verified)
		return "verified";
	return row->same_bits ? "WRONG" : "WRONG: bits differ";
}

struct test_name {
	char text[24];
};

/* An operator with a product whose sums SMs made says so behind its name. */
static struct test_name test_name(const struct bench_overlap_row *row)
{
	struct test_name name;

	snprintf(name.text, sizeof(name.text), "%s%s", bench_overlap_name(row->test),
		 is_by_sms(row) && !is_plain(row) ? " SM" : "");
	return name;
}

/* Says of sums and moves what the size in the next column is; of products their model; of
 * dispatch and combine their table, the experts of a token, and how many of them are dropped. */
static struct test_name size_name(const struct bench_overlap_row *row)
{
	struct test_name name;

	if (bench_overlap_is_experts(row->test))
		snprintf(name.text, sizeof(name.text), "%.6s/%u-%u%%", row->model,
			 (unsigned)row->choices.top_k, (unsigned)row->choices.dropped);
	else
		snprintf(name.text, sizeof(name.text), "%s", !is_plain(row) ? row->model
			 : is_by_sms(row) ? "SM bytes:" : row->by_node ? "by node:" : "bytes:");
	return name;
}

/* Says how fast a dispatch or combine was; of others nothing. */
static struct cell rate_cell(double gb_per_s, const char *what)
{
	struct cell cell = { "" };

	if (gb_per_s > 0)
		snprintf(cell.text, sizeof(cell.text), ", %s%.1f GB/s", what, gb_per_s);
	return cell;
}

/* As the table's head says. */
static struct cell chosen_cell(const struct ceov_op_tuning *chosen)
{
	const char *mode = bench_overlap_mode_name(chosen->mode);
	char tile[24] = "", sms[16] = "";
	struct cell cell;

	if (chosen->tile_rows)
		snprintf(tile, sizeof(tile), "/%ux%u", chosen->tile_rows, chosen->tile_columns);
	if (chosen->n_reduce_blocks)
		snprintf(sms, sizeof(sms), "/%usm", chosen->n_reduce_blocks);
	snprintf(cell.text, sizeof(cell.text), "%s/%u%s%s", mode, chosen->n_pieces, tile, sms);
	return cell;
}

void bench_overlap_report_row(FILE *out, const struct bench_overlap_row *row)
{
	struct bench_overlap_derived d;
	struct cell error = { "-" };
	uint32_t method;

	bench_overlap_derive(row, &d);
	if (row->error >= 0)
		snprintf(error.text, sizeof(error.text), "%.1e", row->error);
	fprintf(out, "%-14s %-12s %9s %6s %6s %-6s", test_name(row).text, size_name(row).text,
		size_cell(is_plain(row) ? row->bytes : row->m).text, size_cell(row->n).text,
		size_cell(row->k).text, row->is_graph ? "graph" : "stream");
	for (method = 0; method < OVERLAP_METHODS; method++)
		fprintf(out, " %8s", cell(median(row, (enum bench_overlap_method)method), 1).text);
	fprintf(out, " %7s %6s %8s %6s %8s %6s %6s %6s %5s %8s %-20s  %s%s%s\n",
		cell(d.speedup, 3).text, cell(d.speedup_ce, 3).text,
		cell(d.ideal_us, 1).text, cell(d.fraction, 2).text,
		cell(d.exposed_us, 1).text, cell(d.gemm_ratio, 3).text,
		cell(d.over_ideal, 3).text, cell(row->methods[OVERLAP_OURS].thread_us, 1).text,
		cell(row->methods[OVERLAP_OURS].process_percent, 0).text, error.text,
		chosen_cell(&row->chosen).text, verdict(row), rate_cell(d.gb_per_s, "").text,
		rate_cell(d.gb_per_s_comm, "comm ").text);
}

/* --- JSON ----------------------------------------------------------------- */

static void add_string(struct json_object *object, const char *key, const char *value)
{
	json_object_object_add(object, key, json_object_new_string(value));
}

static void add_integer(struct json_object *object, const char *key, uint64_t value)
{
	json_object_object_add(object, key, json_object_new_int64((int64_t)value));
}

/* Adds a boolean, or null if the value was not checked. */
static void add_flag(struct json_object *object, const char *key, int value)
{
	json_object_object_add(object, key, value < 0 ? NULL
			       : json_object_new_boolean(value));
}

/* Adds a number, or null if it is not known. */
static void add_error(struct json_object *object, const char *key, double value)
{
	char text[32];

	snprintf(text, sizeof(text), "%.3e", value);
	json_object_object_add(object, key, value < 0 ? NULL
			       : json_object_new_double_s(value, text));
}

static struct json_object *times_to_json(const struct bench_overlap_times *times)
{
	struct json_object *object = json_object_new_object();

	bench_report_number(object, "us_median", times->us_median);
	bench_report_number(object, "us_min", times->us_min);
	bench_report_number(object, "us_p99", times->us_p99);
	bench_report_number(object, "thread_us", times->thread_us);
	if (times->process_percent > 0)
		bench_report_number(object, "process_percent", times->process_percent);
	else                            /* ranks are threads of one process, so times are not known
					 * per rank */
		json_object_object_add(object, "process_percent", NULL);
	return object;
}

static void add_derived(struct json_object *object, const struct bench_overlap_row *row)
{
	struct bench_overlap_derived d;

	bench_overlap_derive(row, &d);
	const struct {
		const char *key;
		double      value;
	} all[] = {
		{ "speedup", d.speedup },
		{ "speedup_ce", d.speedup_ce },
		{ "ideal_us", d.ideal_us },
		{ "fraction", d.fraction },
		{ "exposed_us", d.exposed_us },
		{ "gemm_ratio", d.gemm_ratio },
		{ "over_ideal", d.over_ideal },
		{ "gb_per_s", d.gb_per_s },
		{ "gb_per_s_comm", d.gb_per_s_comm },
	};
	size_t i;

	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i].value != 0)
			bench_report_number(object, all[i].key, all[i].value);
}

/* Adds the table that the row is of, and the shape by which it names the row: a rank may have a
 * share of its K. */
static void add_table(struct json_object *object, const struct bench_overlap_row *row)
{
	char text[64];

	if (!row->named.m)
		return;
	bench_table_name(&row->named, &row->choices, text, sizeof(text));
	add_string(object, "table", row->model);
	add_string(object, "table_shape", text);
}

const char *bench_overlap_mode_name(enum ceov_op_mode mode)
{
	static const char *const names[] = {
		[CEOV_MODE_CHOOSE] = "chosen", [CEOV_MODE_OVERLAP] = "overlap",
		[CEOV_MODE_SEQUENCE] = "sequence", [CEOV_MODE_DIRECT] = "direct",
		[CEOV_MODE_TWO_SHOT] = "two-shot",
	};

	return names[mode];
}

const char *bench_overlap_cut_name(enum ceov_op_cut cut)
{
	static const char *const names[] = {
		[CEOV_CUT_CHOOSE] = "chosen", [CEOV_CUT_EQUAL] = "equal",
		[CEOV_CUT_WAVES] = "waves", [CEOV_CUT_SHRINKING] = "shrinking",
		[CEOV_CUT_GROWING] = "growing", [CEOV_CUT_COLUMNS] = "columns",
	};

	return names[cut];
}

/* Adds how the caller of the command wanted rows and copies to be cut; 0: the operator chose. */
static void add_cut(struct json_object *object, const struct ceov_op_tuning *tuning)
{
	add_integer(object, "pieces", tuning->n_pieces);
	add_string(object, "cut", bench_overlap_cut_name(tuning->cut));
	add_integer(object, "op_chunk_bytes", tuning->chunk_bytes);
}

const char *bench_overlap_order_name(enum ceov_op_order order)
{
	static const char *const names[] = {
		[CEOV_ORDER_CHOOSE] = "chosen", [CEOV_ORDER_BANDS] = "bands",
		[CEOV_ORDER_COLUMNS] = "columns", [CEOV_ORDER_TURNS] = "turns",
	};

	return names[order];
}

/* Adds what the command asked of the product's tiles; 0: nothing. */
static void add_order(struct json_object *object, const struct ceov_op_tuning *tuning)
{
	add_string(object, "order", bench_overlap_order_name(tuning->tile_order));
	add_integer(object, "band_rows", tuning->band_rows);
	add_integer(object, "gemm_blocks", tuning->n_gemm_blocks);
}

/* What ours was made with, in the terms of struct ceov_op_tuning; 0: it does not matter to the
 * operator, or there is no limit. */
static struct json_object *chosen_to_json(const struct ceov_op_tuning *chosen)
{
	struct json_object *object = json_object_new_object();

	add_string(object, "mode", bench_overlap_mode_name(chosen->mode));
	add_integer(object, "pieces", chosen->n_pieces);
	add_string(object, "cut", bench_overlap_cut_name(chosen->cut));
	add_integer(object, "tile_rows", chosen->tile_rows);
	add_integer(object, "tile_columns", chosen->tile_columns);
	if (chosen->tile_rows)
		add_string(object, "order", bench_overlap_order_name(chosen->tile_order));
	add_integer(object, "band_rows", chosen->band_rows);
	add_integer(object, "gemm_blocks", chosen->n_gemm_blocks);
	add_integer(object, "reduce_blocks", chosen->n_reduce_blocks);
	add_integer(object, "chunk_bytes", chosen->chunk_bytes);
	return object;
}

static struct json_object *row_to_json(const struct bench_overlap_row *row,
				       const struct ceov_op_tuning *tuning)
{
	struct json_object *object = json_object_new_object();
	struct json_object *methods = json_object_new_object();
	uint32_t method;

	add_string(object, "operator", bench_overlap_name(row->test));
	add_string(object, "launch", row->is_graph ? "graph" : "stream");
	add_integer(object, "ranks", row->ranks);
	add_string(object, "moved_by", is_by_sms(row) ? "SM" : "engine");
	add_cut(object, tuning);
	json_object_object_add(object, "chosen", chosen_to_json(&row->chosen));
	if (is_plain(row)) {
		add_integer(object, "bytes_per_rank", row->bytes);
		add_flag(object, "by_node", row->by_node);
	} else {
		add_string(object, "model", row->model);
		add_table(object, row);
		add_integer(object, "m", row->m);
		add_integer(object, "n", row->n);
		add_integer(object, "k", row->k);
		add_order(object, tuning);
	}
	if (bench_overlap_is_experts(row->test)) {
		add_integer(object, "top_k", row->choices.top_k);
		add_integer(object, "dropped_percent", row->choices.dropped);
		add_integer(object, "bytes_per_rank", row->bytes);
	}
	for (method = 0; method < OVERLAP_METHODS; method++)
		if (row->methods[method].us_median > 0)
			json_object_object_add(methods, method_names[method],
					       times_to_json(&row->methods[method]));
	json_object_object_add(object, "methods", methods);
	add_derived(object, row);
	add_flag(object, "verified", row->verified);
	add_flag(object, "same_bits", row->same_bits);
	add_error(object, "error", row->error);
	add_error(object, "error_nccl", row->error_nccl);
	add_error(object, "tolerance", row->tolerance);
	return object;
}

int bench_overlap_report_json(const struct bench_options *options,
			      const struct bench_overlap_row *rows, uint32_t n_rows,
			      const char *machine, int is_complete)
{
	struct json_object *report = json_object_new_object();
	struct json_object *list = json_object_new_array();
	struct json_object *origin = bench_report_provenance(options, machine);
	uint32_t i;

	add_string(origin, "command", options->overlap->command);
	add_integer(origin, "calls_per_sample", OVERLAP_CALLS);
	add_integer(report, "schema_version", SCHEMA_VERSION);
	json_object_object_add(report, "provenance", origin);
	add_flag(report, "complete", is_complete);
	for (i = 0; i < n_rows; i++)
		json_object_array_add(list, row_to_json(&rows[i], &options->overlap->tuning));
	json_object_object_add(report, "rows", list);
	return bench_report_write(options, report);
}
