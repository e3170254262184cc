/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WARM_H
#define CEI_WARM_H

/*
 * At the end of ceov_open(): every GPU rank exports a little scratch memory, every
 * other rank moves bytes there and back. The first use of a mapping costs
 * milliseconds to seconds; afterwards it is paid.
 */

#include <ceoverlap/ceoverlap.h>

/* Meets the group twice. */
int cei_warm_up(ceov_context *context, uint64_t deadline_ns);

#endif /* CEI_WARM_H */
