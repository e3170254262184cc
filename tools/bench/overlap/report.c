/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The operators' rows. */

#include <math.h>
#include <string.h>

#include "tools/bench/overlap/overlap.h"
#include "tools/bench/overlap/tables.h"
#include "tools/common/cells.h"

#define MODEL_BYTES 12          /* of a model's name in a brief table */

/* Of each method: its key, and the column of its time. */
static const struct { const char *key, *column; } method_names[OVERLAP_METHODS] = {
	[OVERLAP_GEMM] = { "gemm", "gemm:.1" },
	[OVERLAP_OURS_GEMM] = { "ours_gemm", "our:.1" },
	[OVERLAP_COMM] = { "comm", "comm:.1" },
	[OVERLAP_COMM_CE] = { "comm_ce", "commCE:.1" },
	[OVERLAP_SEQUENCE] = { "sequence", "seq:.1" },
	[OVERLAP_SEQUENCE_CE] = { "sequence_ce", "seqCE:.1" },
	[OVERLAP_OURS] = { "ours", "ours:9.1!" },
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

/* --- rows ----------------------------------------------------------------- */

void bench_overlap_report_head(FILE *out, int is_brief)
{
	if (is_brief) {
		fprintf(out, "# us a call: medians of samples, each the maximum over ranks\n"
			"# speedup: NCCL and cuBLAS, one after the other, / ours\n");
		return;
	}
	fprintf(out, "# us a call: medians of samples, each the maximum over ranks\n"
		"# gemm: cuBLAS; our: our GEMM alone; comm: NCCL; commCE: NCCL zero-CTA\n"
		"# seq: NCCL and cuBLAS; seqCE: zero-CTA and cuBLAS\n"
		"# speedup: seq / ours (sums, moves and ep_: comm / ours); vsCE: seqCE / ours\n"
		"# ideal: max(gemm, faster comm); /ideal: ours / ideal; frac: of the ideal's "
		"speed-up\n"
		"# exposed: ours - gemm; g/our: gemm / our\n"
		"# cpu: us of the calling thread a call; thr%%: CPU of other threads\n"
		"# SM: SMs moved these (a direct mode), not copy engines\n"
		"# embedding_a2a: M samples, N columns of a table, K tables of a rank; gemm: "
		"look-ups alone;\n#   comm: our all-to-all; seq: ours, not overlapped\n"
		"# ep_: M tokens, N values, K experts; model: table/top-k, per cent dropped; comm: "
		"NCCL's sends of\n#   as many rows, not counted or permuted; GB/s: of the busiest "
		"rank, comm GB/s: of comm\n"
		"# chosen: mode/pieces/rows x columns of tiles/SMs that sum or move (sm)\n");
}

static const char *verdict(const struct bench_overlap_row *row)
{
	return row->verified || row->same_bits ? cells_verdict(row->verified)
		: "WRONG: bits differ";
}

struct test_name {
	char text[48];
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

/* As the table's head says. */
static struct test_name chosen_name(const struct ceov_op_tuning *chosen)
{
	const char *mode = bench_overlap_word(OVERLAP_WORDS_MODE, chosen->mode);
	char tile[24] = "", sms[16] = "";
	struct test_name name;

	if (chosen->tile_rows)
		snprintf(tile, sizeof(tile), "/%ux%u", chosen->tile_rows, chosen->tile_columns);
	if (chosen->n_reduce_blocks)
		snprintf(sms, sizeof(sms), "/%usm", chosen->n_reduce_blocks);
	snprintf(name.text, sizeof(name.text), "%s/%u%s%s", mode, chosen->n_pieces, tile, sms);
	return name;
}

const char *bench_overlap_word(enum bench_overlap_words which, unsigned value)
{
	static const char *const words[][7] = {
		[OVERLAP_WORDS_MODE] = {
			[CEOV_MODE_CHOOSE] = "chosen", [CEOV_MODE_OVERLAP] = "overlap",
			[CEOV_MODE_SEQUENCE] = "sequence", [CEOV_MODE_DIRECT] = "direct",
			[CEOV_MODE_TWO_SHOT] = "two-shot",
		},
		[OVERLAP_WORDS_CUT] = {
			[CEOV_CUT_CHOOSE] = "chosen", [CEOV_CUT_EQUAL] = "equal",
			[CEOV_CUT_WAVES] = "waves", [CEOV_CUT_SHRINKING] = "shrinking",
			[CEOV_CUT_GROWING] = "growing", [CEOV_CUT_COLUMNS] = "columns",
		},
		[OVERLAP_WORDS_ORDER] = {
			[CEOV_ORDER_CHOOSE] = "chosen", [CEOV_ORDER_BANDS] = "bands",
			[CEOV_ORDER_COLUMNS] = "columns", [CEOV_ORDER_TURNS] = "turns",
		},
	};

	return words[which][value];
}

/* Adds a size to the table alone; 0: the operator has none. */
static void show_size(struct cells *cells, const char *column, uint64_t value)
{
	if (value)
		cells_integer(cells, NULL, column, value);
	else
		cells_text(cells, NULL, column, NULL);
}

/* What of the tuning asked for the command, or what ours was made with; 0: it does not matter to
 * the operator, or there is no limit. */
static void add_tiles(struct cells *cells, const struct ceov_op_tuning *tuning)
{
	cells_text(cells, "order", NULL,
			 bench_overlap_word(OVERLAP_WORDS_ORDER, tuning->tile_order));
	cells_integer(cells, "band_rows", NULL, tuning->band_rows);
	cells_integer(cells, "gemm_blocks", NULL, tuning->n_gemm_blocks);
}

static struct json_object *chosen_to_json(const struct ceov_op_tuning *chosen)
{
	struct cells cells;

	cells_begin(&cells);
	cells_text(&cells, "mode", NULL,
			 bench_overlap_word(OVERLAP_WORDS_MODE, chosen->mode));
	cells_integer(&cells, "pieces", NULL, chosen->n_pieces);
	cells_text(&cells, "cut", NULL, bench_overlap_word(OVERLAP_WORDS_CUT, chosen->cut));
	cells_integer(&cells, "tile_rows", NULL, chosen->tile_rows);
	cells_integer(&cells, "tile_columns", NULL, chosen->tile_columns);
	add_tiles(&cells, chosen);
	cells_integer(&cells, "reduce_blocks", NULL, chosen->n_reduce_blocks);
	cells_integer(&cells, "chunk_bytes", NULL, chosen->chunk_bytes);
	return cells_take(&cells);
}

/* Adds what the row is of. The table's shape is that by which it names the row: a rank may have a
 * share of its K. */
static void add_subject(struct cells *cells, const struct bench_overlap_row *row)
{
	char shape[64];

	struct test_name size = size_name(row);

	if (cells->is_brief)
		size.text[MODEL_BYTES] = '\0';
	cells_text(cells, NULL, "operator:-14!", cells->is_brief ? bench_overlap_name(row->test)
		   : test_name(row).text);
	cells_text(cells, "operator", NULL, bench_overlap_name(row->test));
	cells_text(cells, NULL, "model:-12!", size.text);
	show_size(cells, "M:9!", is_plain(row) ? row->bytes : row->m);
	show_size(cells, "N:6!", row->n);
	show_size(cells, "K:6", row->k);
	cells_text(cells, "launch", "launch:-6!", row->is_graph ? "graph" : "stream");
	cells_integer(cells, "ranks", NULL, row->ranks);
	if (is_comm(row))
		cells_integer(cells, "bytes_per_rank", NULL, row->bytes);
	if (is_plain(row)) {
		cells_add(cells, "by_node", json_object_new_boolean(row->by_node));
		return;
	}
	cells_text(cells, "model", NULL, row->model);
	cells_integer(cells, "m", NULL, row->m);
	cells_integer(cells, "n", NULL, row->n);
	cells_integer(cells, "k", NULL, row->k);
	if (row->named.m) {
		bench_table_name(&row->named, &row->choices, shape, sizeof(shape));
		cells_text(cells, "table", NULL, row->model);
		cells_text(cells, "table_shape", NULL, shape);
	}
	if (bench_overlap_is_experts(row->test)) {
		cells_integer(cells, "top_k", NULL, row->choices.top_k);
		cells_integer(cells, "dropped_percent", NULL, row->choices.dropped);
	}
}

/* The table has the median of other methods than ours below the row. Where ranks are threads of
 * one process, times of other threads are not known for each of them. */
static void add_methods(struct cells *cells, const struct bench_overlap_row *row)
{
	struct json_object *methods = json_object_new_object();
	const struct bench_overlap_times *times;
	struct cells method;
	uint32_t i;

	for (i = 0; i < OVERLAP_METHODS; i++) {
		times = &row->methods[i];
		cells_optional(cells, NULL, method_names[i].column, times->us_median);
		if (times->us_median <= 0)
			continue;
		cells_begin(&method);
		cells_number(&method, "us_median", NULL, times->us_median);
		cells_number(&method, "us_min", NULL, times->us_min);
		cells_number(&method, "us_p99", NULL, times->us_p99);
		cells_number(&method, "thread_us", NULL, times->thread_us);
		cells_measured(&method, "process_percent", NULL, times->process_percent);
		json_object_object_add(methods, method_names[i].key, cells_take(&method));
	}
	cells_add(cells, "methods", methods);
}

/* Adds figures of the row's times, and nothing for figures of which a time is missing. The ideal is
 * the longer one of cuBLAS and the faster NCCL. */
static void add_derived(struct cells *cells, const struct bench_overlap_row *row)
{
	const struct bench_overlap_times *times = &row->methods[OVERLAP_OURS];
	double ours = median(row, OVERLAP_OURS), gemm = median(row, OVERLAP_GEMM);
	double comm = least(median(row, OVERLAP_COMM), median(row, OVERLAP_COMM_CE));
	double sequence = is_comm(row) ? comm : median(row, OVERLAP_SEQUENCE);
	double bytes = bench_overlap_is_experts(row->test) ? (double)row->bytes / 1e3 : 0;
	double ideal = 0, fraction = 0;

	if (comm > 0 && (gemm > 0 || is_comm(row)))
		ideal = gemm > comm ? gemm : comm;
	if (!is_comm(row) && ideal > 0 && sequence > ideal && ours > 0)
		fraction = (sequence / ours - 1) / (sequence / ideal - 1);
	cells_optional(cells, "speedup", "speedup:7.3!", ratio(sequence, ours));
	cells_optional(cells, "over_ideal", "/ideal:6.3", ratio(ours, ideal));
	cells_optional(cells, "fraction", "frac:5.2", fraction);
	cells_optional(cells, "speedup_ce", "vsCE:.3",
			     ratio(median(row, OVERLAP_SEQUENCE_CE), ours));
	cells_optional(cells, "ideal_us", "ideal:.1", ideal);
	cells_optional(cells, "exposed_us", "exposed:.1", gemm > 0 && ours > 0
			     ? ours - gemm : 0);
	cells_optional(cells, "gemm_ratio", "g/our:.3",
			     ratio(gemm, median(row, OVERLAP_OURS_GEMM)));
	cells_optional(cells, NULL, "cpu:.1", times->thread_us);
	cells_optional(cells, NULL, "thr%:.0", times->process_percent);
	cells_optional(cells, "gb_per_s", "GB/s:.1", ratio(bytes, ours));
	cells_optional(cells, "gb_per_s_comm", "comm GB/s:.1", ratio(bytes, comm));
}

/* JSON also has how the command wanted rows and copies to be cut, and tiles to be ordered; 0: the
 * operator chose. */
void bench_overlap_fill_row(struct cells *cells, const struct bench_overlap_row *row,
			    const struct bench_options *options)
{
	const struct ceov_op_tuning *asked = &options->overlap->tuning;

	cells_begin(cells);
	cells->is_brief = options->is_brief;
	add_subject(cells, row);
	add_methods(cells, row);
	add_derived(cells, row);
	cells_text(cells, "moved_by", NULL, is_by_sms(row) ? "SM" : "engine");
	cells_text(cells, NULL, "chosen:-20", chosen_name(&row->chosen).text);
	cells_add(cells, "chosen", chosen_to_json(&row->chosen));
	cells_text(cells, NULL, "data:-9!", cells->is_brief ? cells_verdict(row->verified)
		   : verdict(row));
	cells_verified(cells, "verified", NULL, row->verified);
	cells_verified(cells, "same_bits", NULL, row->same_bits);
	cells_number(cells, "error", "error:.1e", row->error < 0 ? NAN : row->error);
	cells_number(cells, "error_nccl", "NCCL's error:.1e", row->error_nccl < 0
			   ? NAN : row->error_nccl);
	cells_number(cells, "tolerance", "tolerance:.1e", row->tolerance < 0 ? NAN
			   : row->tolerance);
	cells_integer(cells, "pieces", NULL, asked->n_pieces);
	cells_text(cells, "cut", NULL, bench_overlap_word(OVERLAP_WORDS_CUT, asked->cut));
	cells_integer(cells, "op_chunk_bytes", NULL, asked->chunk_bytes);
	if (!is_plain(row))
		add_tiles(cells, asked);
}
