/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIZED_H
#define CEI_SIZED_H

/*
 * Structs that callers fill begin with struct_bytes, a size_t, and grow at their end. A
 * caller's struct may be shorter than ours (an older header): fields that it lacks count as
 * 0. It may be longer (a newer header): then the fields that we do not know must be 0, because
 * ignoring a field that was set would change results silently.
 */

#include <stddef.h>

#include "base/report.h"

/* Says what is wrong with the caller's struct: it is missing, no header has that size, or
 * fields that we do not know are set; NULL: nothing. first_bytes: the size in the first header;
 * known_bytes: the size in this one. */
const char *cei_sized_fault(const void *from, size_t first_bytes, size_t known_bytes);

/* The same check as 0 or CEOV_ERR_INVALID, raised with `what` ("ceov_launch: launch"). */
int cei_sized_check(struct cei_report *report, const void *from, size_t first_bytes,
		    size_t known_bytes, const char *what);

/* Copies the caller's struct into ours, which has known_bytes, and sets fields that it lacks to
 * 0; all fields if from is NULL. Call it only after a check. */
void cei_sized_take(void *to, const void *from, size_t known_bytes);

#endif /* CEI_SIZED_H */
