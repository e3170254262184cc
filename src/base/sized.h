/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIZED_H
#define CEI_SIZED_H

/*
 * Structs that callers fill: they begin with struct_bytes, a size_t, and grow at their
 * end. A caller's may end before ours (an older header: what it lacks is as 0) or behind
 * it (a newer one): then what we do not know must be 0, since a field that was set and is
 * not read would change results without a word.
 */

#include <stddef.h>

#include "base/report.h"

/* NULL, or what is wrong with the caller's struct: none, or a size that no header gives
 * it, or unknown fields in use. first_bytes: the size in the first header; known_bytes:
 * in this one. */
const char *cei_sized_fault(const void *from, size_t first_bytes, size_t known_bytes);

/* The same as 0 or CEOV_ERR_INVALID, raised with what: "ceov_launch: launch". */
int cei_sized_check(struct cei_report *report, const void *from, size_t first_bytes,
		    size_t known_bytes, const char *what);

/* Into ours, of known_bytes, what the caller's has; the rest becomes 0, and all of it where
 * from is NULL. Only without another fault. */
void cei_sized_take(void *to, const void *from, size_t known_bytes);

#endif /* CEI_SIZED_H */
