/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/cells.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct column {
	const char *title;
	int         title_bytes;
	int         width;              /* 0: a note; negative: left aligned */
	int         decimals;
	int         has_exponent;
	int         is_brief;           /* a brief table has it, too */
};

static struct column read_column(const char *text)
{
	const char *end = strrchr(text, ':');
	struct column column = { .title = text };
	char *at;

	column.title_bytes = (int)(end ? (size_t)(end - text) : strlen(text));
	if (!end)
		return column;
	column.width = (int)strtol(end + 1, &at, 10);
	if (*at == '.')
		column.decimals = (int)strtol(at + 1, &at, 10);
	column.has_exponent = *at == 'e';
	column.is_brief = at[column.has_exponent] == '!';
	return column;
}

static void append(char *text, size_t n_bytes, const char *between, const char *more)
{
	size_t n = strlen(text);

	snprintf(text + n, n_bytes - n, "%s%s", n ? between : "", more);
}

/* Adds what the table shows; NULL: there is no value. */
static void show(struct cells *cells, const struct column *column, const char *text)
{
	char field[128];

	if ((!column->width && !text) || (cells->is_brief && !column->is_brief))
		return;
	if (!column->width) {
		snprintf(field, sizeof(field), "%.*s %s", column->title_bytes, column->title, text);
		append(cells->notes, sizeof(cells->notes), "\n", field);
		return;
	}
	snprintf(field, sizeof(field), "%*.*s", column->width, column->title_bytes,
		 column->title);
	append(cells->head, sizeof(cells->head), " ", field);
	snprintf(field, sizeof(field), "%*s", column->width, text ? text : "-");
	append(cells->line, sizeof(cells->line), " ", field);
}

void cells_begin(struct cells *cells)
{
	cells->object = json_object_new_object();
	cells->indent = "";
	cells->is_brief = 0;
	cells->head[0] = cells->line[0] = cells->notes[0] = '\0';
}

void cells_end(struct cells *cells)
{
	json_object_put(cells->object);
}

struct json_object *cells_take(struct cells *cells)
{
	return cells->object;
}

void cells_add(struct cells *cells, const char *key, struct json_object *value)
{
	json_object_object_add(cells->object, key, value);
}

void cells_text(struct cells *cells, const char *key, const char *column,
		      const char *text)
{
	struct column place;

	if (key)
		cells_add(cells, key, text ? json_object_new_string(text) : NULL);
	if (!column)
		return;
	place = read_column(column);
	show(cells, &place, text);
}

void cells_integer(struct cells *cells, const char *key, const char *column,
			 uint64_t value)
{
	char text[24];

	if (key)
		cells_add(cells, key, json_object_new_int64((int64_t)value));
	snprintf(text, sizeof(text), "%llu", (unsigned long long)value);
	cells_text(cells, NULL, column, text);
}

/* Writes the number with as many of its decimals as the column has room for. */
static void write_number(const struct column *column, double value, char *text, size_t n_bytes)
{
	int decimals = column->decimals, room = abs(column->width);
	int n = snprintf(text, n_bytes, column->has_exponent ? "%.*e" : "%.*f", decimals, value);

	while (room && n > room && decimals-- && !column->has_exponent)
		n = snprintf(text, n_bytes, "%.*f", decimals, value);
}

void cells_number(struct cells *cells, const char *key, const char *column,
			double value)
{
	struct column place = read_column(column ? column : "");
	char text[400];                 /* a double has up to 309 digits before the point */

	snprintf(text, sizeof(text), place.has_exponent ? "%.3e" : "%.3f", value);
	if (key)
		cells_add(cells, key, isnan(value) ? NULL
				: json_object_new_double_s(value, text));
	if (!column)
		return;
	write_number(&place, value, text, sizeof(text));
	show(cells, &place, isnan(value) ? NULL : text);
}

void cells_measured(struct cells *cells, const char *key, const char *column,
			  double value)
{
	cells_number(cells, key, column, value != 0 ? value : NAN);
}

void cells_optional(struct cells *cells, const char *key, const char *column,
			  double value)
{
	if (value != 0)
		cells_number(cells, key, column, value);
	else
		cells_text(cells, NULL, column, NULL);
}

const char *cells_verdict(int verified)
{
	return verified > 0 ? "verified" : verified ? "unchecked" : "WRONG";
}

void cells_verified(struct cells *cells, const char *key, const char *column,
			  int value)
{
	cells_add(cells, key, value < 0 ? NULL : json_object_new_boolean(value));
	cells_text(cells, NULL, column, cells_verdict(value));
}

/* --- text ------------------------------------------------------------------- */

static void print_line(FILE *out, const char *indent, const char *line)
{
	size_t n = strlen(line);

	while (n && line[n - 1] == ' ')
		n--;
	if (n)
		fprintf(out, "%s%.*s\n", indent, (int)n, line);
}

/* Prints notes, which line ends separate, one behind the other as far as a line has room. */
static void print_notes(FILE *out, const char *notes)
{
	size_t n, used = 0;

	for (; *notes; notes += n + (notes[n] == '\n')) {
		n = strcspn(notes, "\n");
		if (used && used + n + 2 >= CELLS_COLUMNS) {
			fputs(",\n", out);
			used = 0;
		}
		used += (size_t)fprintf(out, "%s%.*s", used ? ", " : "#   ", (int)n, notes);
	}
	if (used)
		fputc('\n', out);
}

void cells_print(FILE *out, const struct cells *cells, int is_first)
{
	if (is_first)
		print_line(out, cells->indent, cells->head);
	print_line(out, cells->indent, cells->line);
	print_notes(out, cells->notes);
}

/* Whether the place has a value to or from any other. */
static int is_shown(const struct cells_matrix *matrix, uint32_t place)
{
	uint32_t i;

	for (i = 0; i < matrix->n; i++)
		if (!isnan(matrix->value(matrix->arg, place, i)) ||
		    !isnan(matrix->value(matrix->arg, i, place)))
			return 1;
	return 0;
}

void cells_matrix_print(FILE *out, const struct cells_matrix *matrix)
{
	char name[CELLS_PLACE_BYTES], column[CELLS_PLACE_BYTES + 8];
	uint32_t from, to, n_lines = 0;
	struct cells cells;

	for (from = 0; from < matrix->n; from++) {
		if (!is_shown(matrix, from))
			continue;
		cells_begin(&cells);
		cells_text(&cells, NULL, "from\\to:-7",
				 matrix->name(matrix->arg, from, name));
		for (to = 0; to < matrix->n; to++) {
			if (!is_shown(matrix, to))
				continue;
			snprintf(column, sizeof(column), "%s:6.1",
				 matrix->name(matrix->arg, to, name));
			cells_number(&cells, NULL, column,
					   matrix->value(matrix->arg, from, to));
		}
		if (!n_lines)
			fprintf(out, "\n%s\n", matrix->head);
		cells_print(out, &cells, !n_lines++);
		cells_end(&cells);
	}
}
