/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_FIELDS_H
#define CEI_DAEMON_FIELDS_H

/* Adds fields to JSON objects. ceoverlapctl(1) describes all of them. */

#include <stdint.h>

struct json_object;

/* The value becomes the object's. */
void cei_fields_add(struct json_object *object, const char *name, struct json_object *value);

void cei_fields_add_number(struct json_object *object, const char *name, uint64_t number);

/* text NULL: null. */
void cei_fields_add_text(struct json_object *object, const char *name, const char *text);

#endif /* CEI_DAEMON_FIELDS_H */
