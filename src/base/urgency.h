/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_URGENCY_H
#define CEI_URGENCY_H

/* The names of urgencies (enum ceov_urgency), as settings, metrics and answers have them: "normal",
 * "urgent" and "background". */

#include <stdint.h>

/* Returns the name, or "?" for a number that is no urgency. */
const char *cei_urgency_name(uint32_t urgency);

/* Returns whether the text is a name, and whose. */
int cei_urgency_read(const char *text, uint32_t *ret_urgency);

#endif /* CEI_URGENCY_H */
