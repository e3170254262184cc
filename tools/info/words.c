/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Texts that several sections print. */

#include "tools/info/info.h"

#include <stdio.h>
#include <string.h>

#include "tools/common/cells.h"

const char *info_plain(const char *text, char *room, size_t n_bytes)
{
	size_t i;

	for (i = 0; i + 1 < n_bytes && text[i]; i++)
		room[i] = (text[i] >= ' ' && text[i] <= '~') ? text[i] : '?';
	room[i] = '\0';
	return room;
}

const char *info_gpu_name(uint32_t gpu, char *room)
{
	if (gpu == CEOV_NOBODY)
		return strcpy(room, "-");
	snprintf(room, 16, "gpu%u", gpu);
	return room;
}

void info_add_text(struct json_object *object, const char *key, const char *text)
{
	char plain[512];

	json_object_object_add(object, key, json_object_new_string(
		info_plain(text, plain, sizeof(plain))));
}

void info_add_number(struct json_object *object, const char *key, uint64_t number)
{
	int64_t value = number > INT64_MAX ? INT64_MAX : (int64_t)number;

	json_object_object_add(object, key, json_object_new_int64(value));
}

void info_cells_begin(struct cells *cells)
{
	cells_begin(cells);
	cells->indent = "  ";
}

void info_cells_text(struct cells *cells, const char *key, const char *column, const char *text)
{
	char plain[512];

	if (text)
		text = info_plain(text, plain, sizeof(plain));
	cells_text(cells, key, NULL, text);
	cells_text(cells, NULL, column, text && *text ? text : NULL);
}

void info_cells_node(struct cells *cells, const char *key, const char *column, uint32_t node)
{
	char name[16];

	snprintf(name, sizeof(name), "node%u", node);
	cells_text(cells, key, column, node == CEOV_NOBODY ? NULL : name);
}

void info_cells_end(struct cells *cells, FILE *out, struct json_object *list)
{
	if (out)
		cells_print(out, cells, !json_object_array_length(list));
	json_object_array_add(list, cells_take(cells));
}
