/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXCHANGE_NUMBERS_H
#define CEI_EXCHANGE_NUMBERS_H

/* What several means of an exchange read from config and environment. */

#include "net/means.h"

/* Fills process and n_processes from config, from CEOVERLAP_PROCESS and CEOVERLAP_PROCESSES, or
 * from the launcher's variables. Returns 1; 0: none of them says both. Errors are raised. */
int cei_exchange_numbers(struct cei_exchange *exchange);

/* Fills job from config or CEOVERLAP_JOB; else from this text, NULL: "". CEOV_ERR_INVALID, raised:
 * it is too long. */
int cei_exchange_job(struct cei_exchange *exchange, const char *text);

/* Fills where. CEOV_ERR_INVALID, raised: it is too long. */
int cei_exchange_where(struct cei_exchange *exchange, const char *text);

/* How messages call the processes of an exchange. */
const struct cei_gathered_words *cei_exchange_words(const struct cei_exchange *exchange);

/* A failure for which the process of this number is to blame. */
struct ceov_failure cei_exchange_failure(const struct cei_exchange *exchange, uint32_t number,
					 int error, int native_code);

#endif /* CEI_EXCHANGE_NUMBERS_H */
