/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_FENCES_H
#define CEI_DAEMON_FENCES_H

/*
 * Engines whose places, mostly GPUs, are lost to the daemon: they are fenced
 * (ce_engine/engine/fence.h). Their launches end with an error, which is the engines' work. Here is
 * what the daemon does beside: it tells its operator and clients, once, and refuses what asks for
 * such a place. Only a new start of the daemon ends a fence.
 */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_server;                      /* daemon/server.h */

/* Notices engines that were fenced since the last look. Front thread. */
void cei_fences_look(struct cei_server *server);

/* Whether the engine is fenced. Returns the error, and words for a client that asks for its place;
 * 0: it is not. Any thread. */
int  cei_fences_refuse(struct cei_server *server, uint32_t engine,
		       char ret_text[CEOV_FAILURE_TEXT_BYTES]);

#endif /* CEI_DAEMON_FENCES_H */
