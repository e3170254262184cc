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

const struct bench_table bench_tables[] = {
	{ "rs", "GEMM + reduce-scatter; K of all ranks", FOR(OVERLAP_GEMM_RS), 1, rs, N_OF(rs) },
	{ "ar", "GEMM + all-reduce; K of all ranks", FOR(OVERLAP_GEMM_AR), 1, ar, N_OF(ar) },
	{ "flashoverlap", "GEMM + reduce-scatter or all-reduce; K of a rank",
	  FOR(OVERLAP_GEMM_RS) | FOR(OVERLAP_GEMM_AR), 0, flashoverlap, N_OF(flashoverlap) },
	{ "a2a", "products with an all-to-all; M and K of a rank",
	  FOR(OVERLAP_GEMM_A2A) | FOR(OVERLAP_A2A_GEMM), 0, a2a, N_OF(a2a) },
	{ "tiny", "for host memory; K of all ranks", FOR(OVERLAP_GEMM_RS) | FOR(OVERLAP_GEMM_AR),
	  1, tiny, N_OF(tiny) },
	{ "tiny", "for host memory; K of a rank", FOR(OVERLAP_GEMM_A2A), 0, tiny, N_OF(tiny) },
	{ NULL, NULL, 0, 0, NULL, 0 },
};

static int is_named(const struct bench_table *table, const char *name, size_t length)
{
	return strlen(table->name) == length && !strncmp(table->name, name, length);
}

int bench_table_is_known(const char *name, size_t length)
{
	const struct bench_table *table;

	for (table = bench_tables; table->name; table++)
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
		for (table = bench_tables; table->name; table++)
			if (is_named(table, names, length) && (table->tests & FOR(test)))
				n += add_table(table, n_ranks, ret_shapes + n, n_max - n);
		names += length + (names[length] == ',');
	}
	return n;
}

void bench_tables_list(FILE *out)
{
	const struct bench_table *table;
	const struct bench_overlap_mnk *named;
	uint32_t i;

	for (table = bench_tables; table->name; table++) {
		fprintf(out, "%-14s table: %s\n", table->name, table->help);
		for (i = 0; i < table->n_shapes; i++) {
			named = &table->shapes[i];
			fprintf(out, "%-14s   %llu,%llu,%llu\n", "", (unsigned long long)named->m,
				(unsigned long long)named->n, (unsigned long long)named->k);
		}
	}
}
