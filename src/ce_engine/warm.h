/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WARM_H
#define CEI_WARM_H

/*
 * At the end of ceov_open() every GPU rank exports a little scratch memory, and every other
 * rank copies there and back: the first use of a mapping takes milliseconds to seconds,
 * which later copies then need not wait for.
 */

#include <ceoverlap/ceoverlap.h>

/* Warms up; contains two barriers of the group. */
int cei_warm_up(ceov_context *context, uint64_t deadline_ns);

#endif /* CEI_WARM_H */
