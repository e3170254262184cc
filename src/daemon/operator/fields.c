/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Adds fields to JSON objects. */

#include "daemon/operator/fields.h"

#include <stddef.h>

#include <json-c/json.h>

void cei_fields_add(struct json_object *object, const char *name, struct json_object *value)
{
	json_object_object_add(object, name, value);
}

void cei_fields_add_number(struct json_object *object, const char *name, uint64_t number)
{
	cei_fields_add(object, name, json_object_new_uint64(number));
}

void cei_fields_add_text(struct json_object *object, const char *name, const char *text)
{
	cei_fields_add(object, name, text ? json_object_new_string(text) : NULL);
}
