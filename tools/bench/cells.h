/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

/*
 * A row of a report: named cells, each a text, an integer, a number or a verdict. The same cells
 * make a line of a table and an object of JSON.
 *
 * A cell has a key, its name in JSON (NULL: it is not in JSON), and a column (NULL: it is not in
 * the table), which is written as
 *
 *   "title:9"      right aligned, 9 characters wide; -9: left aligned
 *   "title:9.2"    a number with 2 decimals, or with less if it would be wider than that
 *   "title:8.1e"   a number with an exponent, which has 3 decimals in JSON
 *   "title"        not a column: the value stands behind the title in a line below the row, which
 *                  begins with '#', and "title:.2" likewise with 2 decimals
 *
 * Columns are separated by a space; a table is at most BENCH_COLUMNS wide.
 */

#include <stdint.h>
#include <stdio.h>

#include <json-c/json.h>

#define BENCH_COLUMNS 120u

struct bench_cells {
	struct json_object *object;
	char                head[BENCH_COLUMNS + 40];
	char                line[BENCH_COLUMNS + 40];
	char                notes[1024];
};

/* Begins a row. bench_cells_end() or bench_cells_take() ends it. */
void bench_cells_begin(struct bench_cells *cells);
void bench_cells_end(struct bench_cells *cells);

/* Ends the row and gives its object to the caller. */
struct json_object *bench_cells_take(struct bench_cells *cells);

/* Adds a cell. NULL, and a number that is NaN, are null in JSON, "-" in the table, and no note. */
void bench_cells_text(struct bench_cells *cells, const char *key, const char *column,
		      const char *text);
void bench_cells_integer(struct bench_cells *cells, const char *key, const char *column,
			 uint64_t value);
void bench_cells_number(struct bench_cells *cells, const char *key, const char *column,
			double value);

/* The same for values of which 0 means that there is none. In JSON the first then adds null, and
 * the second nothing. */
void bench_cells_measured(struct bench_cells *cells, const char *key, const char *column,
			  double value);
void bench_cells_optional(struct bench_cells *cells, const char *key, const char *column,
			  double value);

/* Adds a boolean to JSON, or null if the value is negative: not known. The table has what
 * bench_cells_verdict() says of it. */
void bench_cells_verified(struct bench_cells *cells, const char *key, const char *column,
			  int value);
const char *bench_cells_verdict(int verified);

/* Adds an object or a list to JSON alone, and takes it over. */
void bench_cells_add(struct bench_cells *cells, const char *key, struct json_object *value);

/* Prints the row, after a line of the columns' titles if it is the first of its table. */
void bench_cells_print(FILE *out, const struct bench_cells *cells, int is_first);

#define BENCH_PLACE_BYTES 24u           /* of a place's name */

struct bench_matrix {                   /* of figures from each place to each */
	const char *head;               /* a line above it */
	uint32_t    n;
	const char *(*name)(const void *arg, uint32_t place, char *text);       /* may write text */
	double     (*value)(const void *arg, uint32_t from, uint32_t to);       /* NaN: none */
	const void *arg;
};

/* Prints the matrix without places that have no value, or nothing if none has. */
void bench_matrix_print(FILE *out, const struct bench_matrix *matrix);

#endif /* BENCH_CELLS_H */
