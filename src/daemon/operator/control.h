/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_CONTROL_H
#define CEI_DAEMON_CONTROL_H

/* What ceoverlapctl and scrapers ask, and the answers. Front thread. */

#include <stdint.h>
#include <stdio.h>

/* Where the control socket is if systemd passes the clients'. Else it is beside that. */
#define CEI_CONTROL_PATH "/run/ceoverlapd/control"

/* Answers a line of ceoverlapctl: the name of a command. The answer is JSON, with "ok", and
 * "error" where that is false. server: a struct cei_server. Returns as the answer of an outlet. */
int  cei_control_answer(void *server, const char *request, uint64_t *note, FILE *out);

/* Answers, in the same way, who may not ask. */
void cei_control_refuse(const char *text, FILE *out);

/* Answers the head of a request of HTTP: metrics, or an error. */
int  cei_control_answer_http(void *server, const char *request, uint64_t *note, FILE *out);

#endif /* CEI_DAEMON_CONTROL_H */
