/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WRITE_H
#define CEI_WRITE_H

/* Text for a descriptor of the caller's. */

#include "base/report.h"

/* All of it. CEOV_ERR_SYSTEM, raised: it cannot be written; some of it may be. call names
 * the public call. */
int cei_write(struct cei_report *report, int fd, const char *text, const char *call);

#endif /* CEI_WRITE_H */
