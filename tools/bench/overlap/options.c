/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The command line of ceoverlap-bench overlap. */

#include <stdlib.h>
#include <string.h>

#include "tools/bench/options.h"
#include "tools/bench/overlap/models.h"
#include "tools/bench/overlap/overlap.h"
#include "tools/bench/overlap/tables.h"
#include "tools/common/refused.h"

#define TOKENS_MAX (UINT64_C(1) << 24)

static const struct bench_case cases[] = {
	{ "ag_gemm", "all-gather and GEMM", 1, 1, 0, 1, bench_overlap_ag_gemm },
	{ "gemm_rs", "GEMM and reduce-scatter", 1, 1, 0, 1, bench_overlap_gemm_rs },
	{ "reduce_scatter", "a sum, each rank its part", 1, 1, 0, 1,
	  bench_overlap_reduce_scatter },
	{ "all_reduce", "a sum, all of it at all ranks", 1, 1, 0, 1, bench_overlap_all_reduce },
	{ "gemm_a2a", "GEMM and all-to-all", 1, 1, 0, 1, bench_overlap_gemm_a2a },
	{ "a2a_gemm", "all-to-all and GEMM", 1, 1, 0, 1, bench_overlap_a2a_gemm },
	{ "gemm_ar", "GEMM and all-reduce", 1, 1, 0, 1, bench_overlap_gemm_ar },
	{ "all_gather", "every rank gets the shards of all", 1, 1, 0, 1,
	  bench_overlap_all_gather },
	{ "all_to_all", "every rank has a block for each", 1, 1, 0, 1,
	  bench_overlap_all_to_all },
	{ "embedding_a2a", "embedding bags and all-to-all", 1, 1, 0, 1, bench_overlap_embedding },
	{ "ep_a2a", "dispatch and combine of a mixture of experts", 1, 1, 0, 1,
	  bench_overlap_experts },
	{ NULL, NULL, 0, 0, 0, 0, NULL },
};

enum key {
	KEY_TOKENS = BENCH_KEY_OWN, KEY_GRAPH, KEY_STREAM,
	KEY_CUBLAS, KEY_NO_CUBLAS,
	KEY_MODE, KEY_PIECES, KEY_TILE, KEY_REDUCE_BLOCKS, KEY_TUNE, KEY_EXPLAIN, KEY_GATHERED,
	KEY_KN, KEY_BY_NODE, KEY_SHAPE, KEY_TABLE, KEY_CUT, KEY_OP_CHUNK, KEY_ORDER, KEY_BAND,
	KEY_GEMM_BLOCKS,
};

static const struct argp_option options_table[] = {
	{ "test", 't', "NAMES", 0, "Operators, a comma list of ag_gemm, gemm_rs, "
	  "reduce_scatter, all_reduce, gemm_a2a, a2a_gemm, gemm_ar, all_gather, all_to_all, "
	  "embedding_a2a, ep_a2a (default: all)", 0 },
	{ "list", 'l', NULL, 0, "List the operators, the models and the tables", 0 },
	{ "models", 'm', "NAMES", 0, "Whose shapes, a comma list (default: all but tiny "
	  "and mistral7b; host memory: tiny)", 0 },
	{ "tokens", KEY_TOKENS, "N,...", 0, "Rows of the whole product (default 2048,8192; "
	  "host memory: 256)", 0 },
	{ "shape", KEY_SHAPE, "M,N,K", 0, "A shape of products instead of models' (may be "
	  "repeated); embeddings: samples, columns of a table, tables of a rank. ep_a2a: "
	  "M,N,K,T,D: tokens of a rank, values of a token, experts of all ranks, experts of a "
	  "token, per cent of these dropped", 0 },
	{ "table", KEY_TABLE, "NAMES", 0, "Tables of shapes instead of models', a comma list of "
	  "rs, ar, flashoverlap, a2a, ep, tiny; operators that none is for are left out", 0 },
	{ "stream", KEY_STREAM, NULL, 0, "Calls on a stream only (default: both)", 1 },
	{ "graph", KEY_GRAPH, NULL, 0, "Replayed CUDA graphs only (default: both)", 1 },
	{ "mode", KEY_MODE, "overlap|sequence|direct|two-shot", 0, "How ours goes (default: "
	  "chosen). direct, two-shot: sums, moves and gemm_ar by SMs, not copy engines", 2 },
	{ "pieces", KEY_PIECES, "N", 0, "Pieces of a rank's rows (default: chosen)", 2 },
	{ "cut", KEY_CUT, "equal|waves|shrinking|growing|columns", 0, "How products are cut into "
	  "pieces (default: equal, or chosen by --tune). columns: gemm_rs and gemm_ar", 2 },
	{ "op-chunk", KEY_OP_CHUNK, "SIZE", 0, "Largest chunk of the operator's copies, at most "
	  "--chunk, which holds for the whole context (default: that)", 2 },
	{ "tile", KEY_TILE, "RxC", 0, "The GEMM's tiles (default: chosen)", 2 },
	{ "reduce-blocks", KEY_REDUCE_BLOCKS, "N", 0, "SMs of a sum, or of a direct mode "
	  "(default: chosen)", 2 },
	{ "order", KEY_ORDER, "bands|columns|turns", 0, "Order of the GEMM's tiles (default: "
	  "chosen). turns: all ranks' first pieces before second ones, and of gemm_ar each own "
	  "piece behind the next pieces of peers", 2 },
	{ "band", KEY_BAND, "ROWS", 0, "Most rows of a band of tiles (default: 8 pairs)", 2 },
	{ "gemm-blocks", KEY_GEMM_BLOCKS, "N", 0, "Most SMs of the GEMM (default: all)", 2 },
	{ "tune", KEY_TUNE, NULL, 0, "Measure the choices first (GPUs)", 2 },
	{ "explain", KEY_EXPLAIN, NULL, 0, "Print what was chosen, and why", 2 },
	{ "gathered", KEY_GATHERED, NULL, 0, "Ours leaves the gathered A, too, as the "
	  "backward pass wants it", 2 },
	{ "kn", KEY_KN, NULL, 0, "B is k x n, as in a backward pass, and the product A B "
	  "(default: n x k, A times B transposed); cuBLAS's, too", 2 },
	{ "by-node", KEY_BY_NODE, NULL, 0, "Sums over nodes: a node's ranks first add up what "
	  "they have for a rank of another node", 2 },
	{ "cublas", KEY_CUBLAS, "PATH", 0, "libcublas to compare with (default: searched)",
	  3 },
	{ "no-cublas", KEY_NO_CUBLAS, NULL, 0, "Leave cuBLAS out: nothing is checked then",
	  3 },
	{ "without-cublas", KEY_NO_CUBLAS, NULL, OPTION_ALIAS, NULL, 3 },
	{ NULL, 0, NULL, 0, NULL, 0 },
};

static void list_all(void)
{
	uint32_t i;

	for (i = 0; cases[i].name; i++)
		printf("%-14s %s\n", cases[i].name, cases[i].help);
	for (i = 0; bench_models[i].name; i++)
		printf("%-14s hidden %llu, ffn %llu\n", bench_models[i].name,
		       (unsigned long long)bench_models[i].hidden,
		       (unsigned long long)bench_models[i].ffn);
	bench_tables_list(stdout);
}

static int is_model(const char *name, size_t length)
{
	return bench_model_find(name, length) != NULL;
}

static const char *check_names(struct argp_state *state, const char *text, const char *what,
			       int (*is_known)(const char *name, size_t length))
{
	const char *at = text;
	size_t length;

	if (!*text)
		argp_error(state, "no names of %ss", what);
	while (*at) {
		length = strcspn(at, ",");
		if (!is_known(at, length))
			argp_error(state, "no %s '%.*s'; -l lists them", what, (int)length, at);
		at += length + (at[length] == ',');
	}
	return text;
}

static const char *check_tokens(struct argp_state *state, const char *text)
{
	const char *at = text;
	char *end = NULL;
	uint64_t value;

	do {
		value = strtoull(at, &end, 10);
		if (end == at || *at == '-' || !value || value > TOKENS_MAX ||
		    (*end && (*end != ',' || !end[1])))
			argp_error(state, "%s: '%s' must be numbers from 1 to %llu, say "
				   "2048,8192",
				   refused_option(state, text).text, text,
				   (unsigned long long)TOKENS_MAX);
		at = end + 1;
	} while (*end == ',');
	return text;
}

static void parse_shape(struct argp_state *state, const char *text,
			struct bench_overlap_options *overlap)
{
	unsigned long m = 0, n = 0, k = 0;
	unsigned top_k = 0, dropped = 0;
	int end_3 = 0, end_5 = 0;
	int parsed = sscanf(text, "%9lu,%9lu,%9lu%n,%2u,%3u%n", &m, &n, &k, &end_3, &top_k,
			    &dropped, &end_5);
	int is_product = parsed == 3 && !text[end_3] && k % 8 == 0;
	int is_experts = parsed == 5 && !text[end_5] && top_k && top_k <= k && dropped <= 100;

	if ((!is_product && !is_experts) || !m || !n || !k || n % 8)
		argp_error(state, "%s: '%s' must be M,N,K; N and K are multiples of 8, say "
			   "4096,8192,4096, or of ep_a2a five numbers, say 8192,7168,256,8,30",
			   refused_option(state, text).text, text);
	if (overlap->n_shapes == OVERLAP_SHAPES_MAX)
		argp_error(state, "more than %u shapes", OVERLAP_SHAPES_MAX);
	overlap->choices[overlap->n_shapes] = (struct bench_overlap_choices){ top_k, dropped };
	overlap->shapes[overlap->n_shapes++] = (struct bench_overlap_mnk){ m, n, k };
}

static unsigned parse_word(struct argp_state *state, const char *text,
			   enum bench_overlap_words which)
{
	char all[80] = "";
	const char *word;
	unsigned value;

	for (value = 1; (word = bench_overlap_word(which, value)); value++) {
		if (!strcmp(text, word))
			return value;
		snprintf(all + strlen(all), sizeof(all) - strlen(all), " %s", word);
	}
	argp_error(state, "%s: '%s' must be one of:%s", refused_option(state, text).text, text,
		   all);
	return 0;                       /* argp_error() does not return */
}

static void parse_tile(struct argp_state *state, const char *text,
		       struct ceov_op_tuning *tuning)
{
	unsigned rows = 0, columns = 0;
	char rest;

	if (sscanf(text, "%5ux%5u%c", &rows, &columns, &rest) != 2 || !rows || !columns)
		argp_error(state, "%s: '%s' must be rows x columns, say 128x256",
			   refused_option(state, text).text, text);
	tuning->tile_rows = rows;
	tuning->tile_columns = columns;
}

/* Parses the options that set a field of the tuning. */
static error_t parse_tuning(int key, char *text, struct argp_state *state,
			    struct bench_overlap_options *overlap)
{
	struct ceov_op_tuning *tuning = &overlap->tuning;

	switch (key) {
	case KEY_MODE:
		tuning->mode = (enum ceov_op_mode)parse_word(state, text, OVERLAP_WORDS_MODE);
		break;
	case KEY_PIECES:
		tuning->n_pieces = (uint32_t)bench_parse_number(state, text, 1, 1024);
		break;
	case KEY_CUT:
		tuning->cut = (enum ceov_op_cut)parse_word(state, text, OVERLAP_WORDS_CUT);
		break;
	case KEY_OP_CHUNK: tuning->chunk_bytes = bench_parse_size(state, text); break;
	case KEY_TILE: parse_tile(state, text, tuning); break;
	case KEY_REDUCE_BLOCKS:
		tuning->n_reduce_blocks = (uint32_t)bench_parse_number(state, text, 1, 1024);
		break;
	case KEY_ORDER:
		tuning->tile_order = (enum ceov_op_order)parse_word(state, text,
								    OVERLAP_WORDS_ORDER);
		break;
	case KEY_BAND:
		tuning->band_rows = (uint32_t)bench_parse_number(state, text, 1, 1 << 30);
		break;
	case KEY_GEMM_BLOCKS:
		tuning->n_gemm_blocks = (uint32_t)bench_parse_number(state, text, 2, 1024);
		break;
	default: return ARGP_ERR_UNKNOWN;
	}
	overlap->is_tuned = 1;
	return 0;
}

struct both {
	struct bench_options         options;
	struct bench_overlap_options overlap;
};

static error_t parse(int key, char *text, struct argp_state *state)
{
	struct both *both = state->input;
	struct bench_overlap_options *overlap = &both->overlap;

	switch (key) {
	case 't': both->options.tests = text; break;
	case 'l': list_all(); exit(EXIT_SUCCESS);
	case 'm': overlap->models = check_names(state, text, "model", is_model); break;
	case KEY_TOKENS: overlap->tokens = check_tokens(state, text); break;
	case KEY_SHAPE: parse_shape(state, text, overlap); break;
	case KEY_TABLE:
		overlap->tables = check_names(state, text, "table", bench_table_is_known);
		break;
	case KEY_GRAPH: overlap->graphs = 1; break;
	case KEY_STREAM: overlap->streams = 1; break;
	case KEY_CUBLAS: overlap->blas_path = text; break;
	case KEY_NO_CUBLAS: overlap->without_blas = 1; break;
	case KEY_TUNE: overlap->tunes = 1; break;
	case KEY_EXPLAIN: overlap->explains = 1; break;
	case KEY_GATHERED: overlap->gathers = 1; break;
	case KEY_KN: overlap->b_is_k_by_n = 1; break;
	case KEY_BY_NODE: overlap->by_node = 1; break;
	default: return parse_tuning(key, text, state, overlap);
	}
	return 0;
}

int bench_overlap_main(int argc, char **argv)
{
	static const struct bench_command command = {
		"ceoverlap-bench overlap", options_table, parse,
		"Measures operators: all-gather and GEMM, GEMM and reduce-scatter, GEMM and "
		"all-reduce, GEMM and all-to-all, all-to-all and GEMM, sums, moves, "
		"embedding bags and all-to-all, and dispatch and combine of experts, beside NCCL, "
		"cuBLAS, and both one after the other, in the same run.\v"
		"Sizes are of sums, a rank's input, and of moves, all blocks of a rank. Defaults: "
		"-b 64M -e 256M (or -b) -f 4 -n 20 -w 3 -T 1800.\n\n" BENCH_LAUNCHERS
		BENCH_EXIT_STATUS,
		bench_rank_options
	};
	struct both both = {
		.options = {
			.begin_bytes = UINT64_C(64) << 20,
			.factor = 4,
			.n_samples = 20,
			.n_warmup = 3,
			.check = 1,
			.timeout_s = 1800,
		},
		.overlap = { .tuning = { .struct_bytes = sizeof(struct ceov_op_tuning) } },
	};
	const struct bench_case *chosen[BENCH_CASES_MAX];
	uint32_t n;
	int r;

	both.options.overlap = &both.overlap;
	r = bench_parse(&command, &both.options, &both, argc, argv);
	if (r)
		return r;
	if (bench_options_finish(&both.options, UINT64_C(256) << 20))
		return 2;
	if (!both.overlap.graphs && !both.overlap.streams)
		both.overlap.graphs = both.overlap.streams = 1;
	n = bench_choose_cases(cases, both.options.tests, chosen);
	return n ? bench_world_run(&both.options, chosen, n) : 2;
}
