/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRACE_FILE_H
#define CEI_TRACE_FILE_H

#include "ce_engine/engine/engine.h"

/* Writes one file for all engines of this process, after they have stopped, or an error line
 *. If other processes hold ranks, too, the file's name ends in ".rankN", N being the
 * first rank of this process. The second context of a process has ".2" before that. */
void cei_trace_write(const struct cei_site *site, const struct cei_engine *engines);

#endif /* CEI_TRACE_FILE_H */
