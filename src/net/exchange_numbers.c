/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/exchange_numbers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/launcher.h"
#include "base/variables.h"

/* Reads two variables that only mean something together. Returns 1; 0: one is not set. */
static int read_pair(struct cei_exchange *exchange, const char *process, const char *n_processes)
{
	const char *own = secure_getenv(process), *all = secure_getenv(n_processes);
	uint64_t number = 0, limit = CEI_GATHERED_PROCESSES_MAX;
	int r;

	if (!own || !*own || !all || !*all)
		return 0;
	r = cei_variable_number(exchange->config.report, process, limit, &number);
	exchange->process = (uint32_t)number;
	if (!r)
		r = cei_variable_number(exchange->config.report, n_processes, limit, &number);
	exchange->n_processes = (uint32_t)number;
	return r ? r : 1;
}

int cei_exchange_numbers(struct cei_exchange *exchange)
{
	const struct cei_launcher *launcher = cei_launcher_find();
	int r;

	exchange->process = exchange->config.process;
	exchange->n_processes = exchange->config.n_processes;
	if (exchange->n_processes)
		return 1;
	r = read_pair(exchange, "CEOVERLAP_PROCESS", "CEOVERLAP_PROCESSES");
	if (r || !launcher || !launcher->n_tasks)
		return r;
	return read_pair(exchange, launcher->task, launcher->n_tasks);
}

int cei_exchange_job(struct cei_exchange *exchange, const char *text)
{
	const char *set = secure_getenv("CEOVERLAP_JOB");

	if (exchange->config.job)
		text = exchange->config.job;
	else if (set && *set)
		text = set;
	if (!text)
		text = "";
	if (!cei_record_is_printable(text))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "the job's name has characters that cannot be printed");
	if (strlen(text) >= sizeof(exchange->job))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "the job's name has %zu bytes, at most %zu", strlen(text),
				 sizeof(exchange->job) - 1);
	snprintf(exchange->job, sizeof(exchange->job), "%s", text);
	return 0;
}

int cei_exchange_where(struct cei_exchange *exchange, const char *text)
{
	if (strlen(text) >= sizeof(exchange->where))
		return cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				 "the store's address has %zu bytes, at most %zu",
				 strlen(text), sizeof(exchange->where) - 1);
	snprintf(exchange->where, sizeof(exchange->where), "%s", text);
	return 0;
}

const struct cei_gathered_words *cei_exchange_words(const struct cei_exchange *exchange)
{
	return exchange->site ? &cei_ranks_of_node : &cei_processes;
}

struct ceov_failure cei_exchange_failure(const struct cei_exchange *exchange, uint32_t number,
					 int error, int native_code)
{
	struct ceov_failure failure = cei_failure(error, native_code);

	if (exchange->site)
		failure.rank = number;          /* else ranks are not known yet */
	return failure;
}
