/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_VARIABLES_H
#define CEI_VARIABLES_H

/* Reads environment variables that begin with CEOVERLAP_, and warns of unknown ones. */

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

/* Reads a whole number from 0 to limit. If the variable is unset or empty, *ret_number stays
 * unchanged. CEOV_ERR_INVALID, raised: the variable holds anything else. */
int cei_variable_number(struct cei_report *report, const char *name, uint64_t limit,
			uint64_t *ret_number);

/* Returns whether the library, its tools, the Python package or the tests read a variable of
 * this name. The name need not end with a NUL. */
int cei_variable_is_known(const char *name, size_t length);

/* Returns the known name that is most similar; NULL: none is similar. */
const char *cei_variable_nearest(const char *name, size_t length);

/* Warns of variables that nobody reads, or reads any more, and of a CEOVERLAP_LOG that names no
 * level. */
void cei_variables_check(struct cei_report *report);

/* Logs at level info each variable that the library or its tools read and that is set, but for
 * those that only tests read. */
void cei_variables_tell(struct cei_report *report);

#endif /* CEI_VARIABLES_H */
