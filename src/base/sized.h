/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIZED_H
#define CEI_SIZED_H

/*
 * Structs that callers fill, or have the library fill, begin with struct_bytes, a size_t, and grow
 * at their end. A caller's struct may be shorter than ours, because it was compiled with an older
 * header: fields that it lacks count as 0. It may be longer, because the header was newer: then the
 * fields that we do not know must be 0, since ignoring a field that was set would silently change
 * results.
 */

#include <stddef.h>

#include "base/report.h"

/* Returns what is wrong with the caller's struct, or NULL: it is missing, no header has a struct of
 * that size, or fields that we do not know are set. first_bytes: the struct's size in the first
 * header; known_bytes: its size in the present one. */
const char *cei_sized_fault(const void *from, size_t first_bytes, size_t known_bytes);

/* Makes the same check and raises CEOV_ERR_INVALID with `what`, such as "ceov_launch: launch". */
int cei_sized_check(struct cei_report *report, const void *from, size_t first_bytes,
		    size_t known_bytes, const char *what);

/* Copies the caller's struct into ours, which has known_bytes, and sets the fields that the
 * caller's lacks to 0. If from is NULL, sets all fields to 0. Call it only after a check. */
void cei_sized_take(void *to, const void *from, size_t known_bytes);

/* For structs that the library fills: returns what is wrong with the caller's struct, whose
 * struct_bytes is set, or NULL. first_bytes is as in cei_sized_fault(). */
const char *cei_sized_room_fault(const void *to, size_t first_bytes);

/* Copies our struct, which has known_bytes, into the caller's, as much of it as that has room for.
 * Fields that only the caller knows become 0, and struct_bytes stays. Call it only after a
 * check. */
void cei_sized_give(void *to, const void *from, size_t known_bytes);

/* Answers a question: makes the room check and gives, or raises CEOV_ERR_INVALID with `what`, such
 * as "ceov_plan_query: ret_info". from begins with its own size. */
int cei_sized_answer(struct cei_report *report, void *to, const void *from, size_t first_bytes,
		     const char *what);

#endif /* CEI_SIZED_H */
