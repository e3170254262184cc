/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TELL_H
#define CEI_TELL_H

#include <ceoverlap/ceoverlap.h>

/* At level info: tells what a new context is, each in a line of its own: the version and the
 * process, each of its ranks and where that is, the group, the machine, how bytes go, and each
 * environment variable that is set. For who has to find out from a log alone what ran. */
void cei_context_tell(const ceov_context *context);

#endif /* CEI_TELL_H */
