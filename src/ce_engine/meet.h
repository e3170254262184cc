/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MEET_H
#define CEI_MEET_H

#include <ceoverlap/ceoverlap.h>

/* Opens context->peers, if there are other processes or a network, which has met already, and meets
 * the processes of this node at the path `group`; NULL: at one that the network names. Whatever the
 * result, cei_context_part() ends it. */
int  cei_context_meet(ceov_context *context, const char *group);

/* Frees the peers, which have left, and what carries messages to this node. The network has
 * left. */
void cei_context_part(ceov_context *context);

#endif /* CEI_MEET_H */
