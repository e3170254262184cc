/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_TABLES_H
#define BENCH_TABLES_H

/* Lists of shapes that others publish figures for, by name. Several lists may have one name, each
 * for other operators. */

#include <stddef.h>
#include <stdint.h>

#include "tools/bench/overlap/overlap.h"

struct bench_table {
	const char                     *name;   /* NULL ends the array */
	const char                     *help;
	uint32_t                        tests;  /* 1 << enum bench_overlap_test of each operator
						 * that it is for */
	int                             divides_k;      /* 1: K is that of all ranks, of which each
							 * has a share; 0: each rank has all
							 * of it */
	const struct bench_overlap_mnk *shapes;
	uint32_t                        n_shapes;
	const struct bench_overlap_choices *choices;    /* of each shape of dispatch and combine;
							 * NULL: the table is of others */
};

/* Returns whether there is a table with the name that the first `length` bytes are. */
int bench_table_is_known(const char *name, size_t length);

/* Writes the shapes that tables of these names (a comma list) have for an operator, at most
 * n_max. Returns how many. */
uint32_t bench_tables_shapes(const char *names, enum bench_overlap_test test, uint32_t n_ranks,
			     struct bench_overlap_shape *ret_shapes, uint32_t n_max);

/* Writes the numbers of a shape as a table names it: M,N,K, or five of dispatch and combine.
 * choices NULL, or without a top_k: it is none of these. */
void bench_table_name(const struct bench_overlap_mnk *named,
		      const struct bench_overlap_choices *choices, char *text, size_t n_bytes);

/* Prints all tables, each shape as it is named, not a rank's share of it. */
void bench_tables_list(FILE *out);

#endif /* BENCH_TABLES_H */
