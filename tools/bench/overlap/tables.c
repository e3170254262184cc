/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/bench/overlap/tables.h"

#include <string.h>

#define FOR(test)   (UINT32_C(1) << (test))
#define N_OF(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define STEP        8u                  /* K is a multiple of this */

static const struct bench_overlap_mnk rs[] = {
	{ 4096, 4096, 12288 }, { 8192, 8192, 29568 },
};

static const struct bench_overlap_mnk ar[] = {
	{ 32, 5120, 25600 }, { 28000, 7168, 4096 },
};

static const struct bench_overlap_mnk flashoverlap[] = {
	{ 2048, 8192, 2048 }, { 2048, 8192, 4096 }, { 2048, 8192, 8192 }, { 2048, 8192, 16384 },
	{ 4096, 8192, 2048 }, { 4096, 8192, 4096 }, { 4096, 8192, 8192 }, { 4096, 8192, 16384 },
	{ 8192, 8192, 2048 }, { 8192, 8192, 4096 }, { 8192, 8192, 8192 }, { 8192, 8192, 16384 },
	{ 16384, 8192, 2048 }, { 16384, 8192, 4096 }, { 16384, 8192, 8192 },
	{ 16384, 8192, 16384 },
};

static const struct bench_overlap_mnk a2a[] = {
	{ 512, 8192, 4096 }, { 1024, 8192, 4096 }, { 1536, 8192, 4096 }, { 2048, 8192, 4096 },
	{ 2560, 8192, 4096 }, { 4096, 8192, 4096 }, { 4096, 8192, 8192 }, { 8192, 8192, 4096 },
	{ 8192, 8192, 8192 }, { 8192, 16384, 4096 }, { 8192, 16384, 8192 },
};

static const struct bench_overlap_mnk tiny[] = { { 50, 64, 72 }, { 3, 24, 136 } };

static const struct bench_overlap_mnk ep[] = {
	{ 8192, 7168, 256 }, { 8192, 7168, 256 }, { 4096, 6144, 256 }, { 4096, 6144, 256 },
};

static const struct bench_overlap_choices ep_choices[] = {
	{ 8, 0 }, { 8, 30 }, { 6, 0 }, { 6, 30 },
};

static const struct bench_overlap_mnk tiny_ep[] = { { 24, 64, 12 }, { 24, 64, 12 } };
static const struct bench_overlap_choices tiny_ep_choices[] = { { 3, 0 }, { 3, 30 } };

static const struct bench_table tables[] = {
	{ "rs", "GEMM + reduce-scatter; K of all ranks", FOR(OVERLAP_GEMM_RS), 1, rs, N_OF(rs),
	  NULL },
	{ "ar", "GEMM + all-reduce; K of all ranks", FOR(OVERLAP_GEMM_AR), 1, ar, N_OF(ar), NULL },
	{ "flashoverlap", "GEMM + reduce-scatter or all-reduce; K of a rank",
	  FOR(OVERLAP_GEMM_RS) | FOR(OVERLAP_GEMM_AR), 0, flashoverlap, N_OF(flashoverlap),
	  NULL },
	{ "a2a", "products with an all-to-all; M and K of a rank",
	  FOR(OVERLAP_GEMM_A2A) | FOR(OVERLAP_A2A_GEMM), 0, a2a, N_OF(a2a), NULL },
	{ "tiny", "for host memory; K of all ranks", FOR(OVERLAP_GEMM_RS) | FOR(OVERLAP_GEMM_AR),
	  1, tiny, N_OF(tiny), NULL },
	{ "tiny", "for host memory; K of a rank", FOR(OVERLAP_GEMM_A2A), 0, tiny, N_OF(tiny),
	  NULL },
	{ "ep", "dispatch and combine: tokens, values, experts, top-k, per cent dropped",
	  FOR(OVERLAP_DISPATCH) | FOR(OVERLAP_COMBINE), 0, ep, N_OF(ep), ep_choices },
	{ "tiny", "for host memory; as ep", FOR(OVERLAP_DISPATCH) | FOR(OVERLAP_COMBINE), 0,
	  tiny_ep, N_OF(tiny_ep), tiny_ep_choices },
	{ NULL, NULL, 0, 0, NULL, 0, NULL },
};

static int is_named(const struct bench_table *table, const char *name, size_t length)
{
	return strlen(table->name) == length && !strncmp(table->name, name, length);
}

int bench_table_is_known(const char *name, size_t length)
{
	const struct bench_table *table;

	for (table = tables; table->name; table++)
		if (is_named(table, name, length))
			return 1;
	return 0;
}

/* Returns a rank's share of K, as that of a model's layer: at least a step. */
static uint64_t share_of(uint64_t k, uint32_t n_ranks)
{
	uint64_t share = k / n_ranks / STEP * STEP;

	return share ? share : STEP;
}

/* Returns the experts of all ranks: as many as named, made a multiple of the ranks. */
static uint64_t experts_of(uint64_t k, uint32_t n_ranks)
{
	return k < n_ranks ? n_ranks : k / n_ranks * n_ranks;
}

static uint32_t add_table(const struct bench_table *table, uint32_t n_ranks,
			  struct bench_overlap_shape *shapes, uint32_t n_max)
{
	const struct bench_overlap_mnk *named;
	uint32_t n;

	for (n = 0; n < table->n_shapes && n < n_max; n++) {
		named = &table->shapes[n];
		shapes[n] = (struct bench_overlap_shape){
			.model = table->name,
			.named = named,
			.m = named->m,
			.n = named->n,
			.k = table->divides_k ? share_of(named->k, n_ranks) : named->k,
		};
		if (!table->choices)
			continue;
		shapes[n].k = experts_of(named->k, n_ranks);
		shapes[n].choices = table->choices[n];
	}
	return n;
}

uint32_t bench_tables_shapes(const char *names, enum bench_overlap_test test, uint32_t n_ranks,
			     struct bench_overlap_shape *ret_shapes, uint32_t n_max)
{
	const struct bench_table *table;
	uint32_t n = 0;
	size_t length;

	while (*names) {
		length = strcspn(names, ",");
		for (table = tables; table->name; table++)
			if (is_named(table, names, length) && (table->tests & FOR(test)))
				n += add_table(table, n_ranks, ret_shapes + n, n_max - n);
		names += length + (names[length] == ',');
	}
	return n;
}

void bench_table_name(const struct bench_overlap_mnk *named,
		      const struct bench_overlap_choices *choices, char *text, size_t n_bytes)
{
	int n = snprintf(text, n_bytes, "%llu,%llu,%llu", (unsigned long long)named->m,
			 (unsigned long long)named->n, (unsigned long long)named->k);

	if (choices && choices->top_k && n > 0 && (size_t)n < n_bytes)
		snprintf(text + n, n_bytes - (size_t)n, ",%u,%u", (unsigned)choices->top_k,
			 (unsigned)choices->dropped);
}

void bench_tables_list(FILE *out)
{
	const struct bench_table *table;
	char text[64];
	uint32_t i;

	for (table = tables; table->name; table++) {
		fprintf(out, "%-14s table: %s\n", table->name, table->help);
		for (i = 0; i < table->n_shapes; i++) {
			bench_table_name(&table->shapes[i],
					 table->choices ? &table->choices[i] : NULL, text,
					 sizeof(text));
			fprintf(out, "%-14s   %s\n", "", text);
		}
	}
}
