/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CELLS_H
#define CELLS_H

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
 * A '!' behind it all, "title:9!", keeps the column in a brief table, which has no other ones, and
 * no lines below rows.
 *
 * Columns are separated by a space; a table is at most CELLS_COLUMNS wide, a brief one 80. A
 * value of more than 127 characters is cut in the table, not in JSON.
 */

#include <stdint.h>
#include <stdio.h>

#include <json-c/json.h>

#define CELLS_COLUMNS 120u

struct cells {
	struct json_object *object;
	const char         *indent;     /* of its lines; "", if the caller sets nothing else */
	int                 is_brief;   /* 0, if the caller sets nothing else */
	char                head[640];
	char                line[640];
	char                notes[1024];
};

/* Begins a row. cells_end() or cells_take() ends it. */
void cells_begin(struct cells *cells);
void cells_end(struct cells *cells);

/* Ends the row and gives its object to the caller. */
struct json_object *cells_take(struct cells *cells);

/* Adds a cell. NULL, and a number that is NaN, are null in JSON, "-" in the table, and no note. */
void cells_text(struct cells *cells, const char *key, const char *column,
		      const char *text);
void cells_integer(struct cells *cells, const char *key, const char *column,
			 uint64_t value);
void cells_number(struct cells *cells, const char *key, const char *column,
			double value);

/* The same for values of which 0 means that there is none. In JSON the first then adds null, and
 * the second nothing. */
void cells_measured(struct cells *cells, const char *key, const char *column,
			  double value);
void cells_optional(struct cells *cells, const char *key, const char *column,
			  double value);

/* Adds a boolean to JSON, or null if the value is negative: not known. The table has what
 * cells_verdict() says of it. */
void cells_verified(struct cells *cells, const char *key, const char *column,
			  int value);
const char *cells_verdict(int verified);

/* Adds an object or a list to JSON alone, and takes it over. */
void cells_add(struct cells *cells, const char *key, struct json_object *value);

/* Prints the row, after a line of the columns' titles if it is the first of its table. */
void cells_print(FILE *out, const struct cells *cells, int is_first);

#define CELLS_PLACE_BYTES 24u           /* of a place's name */

struct cells_matrix {                   /* of figures from each place to each */
	const char *head;               /* a line above it */
	uint32_t    n;
	const char *(*name)(const void *arg, uint32_t place, char *text);       /* may write text */
	double     (*value)(const void *arg, uint32_t from, uint32_t to);       /* NaN: none */
	const void *arg;
};

/* Prints the matrix without places that have no value, or nothing if none has. */
void cells_matrix_print(FILE *out, const struct cells_matrix *matrix);

#endif /* CELLS_H */
