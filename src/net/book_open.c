/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/book_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/version.h>

#include "base/hash.h"

/* --- this process's record --------------------------------------------------------- */

static int check(const struct cei_book_config *config, struct cei_report *report)
{
	uint32_t i;

	if (config->n_group_ranks > CEI_BOOK_RANKS_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "a group of %u ranks: it must have 1 to %u",
				 config->n_group_ranks, CEI_BOOK_RANKS_MAX);
	if (!config->n_ranks || config->n_ranks > CEI_MEMBERS_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "this process has %u ranks, must be 1 to %u", config->n_ranks,
				 CEI_MEMBERS_MAX);
	for (i = 0; config->n_group_ranks && i < config->n_ranks; i++)
		if (config->ranks[i] >= config->n_group_ranks)
			return cei_raise(report, CEOV_ERR_INVALID, 0, "this process has rank %u, "
					 "but the group has %u ranks", config->ranks[i],
					 config->n_group_ranks);
	if (config->n_address > CEI_RECORD_ADDRESS_BYTES)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "this process's address has %u "
				 "bytes, at most %u", config->n_address,
				 CEI_RECORD_ADDRESS_BYTES);
	if (config->transport && strlen(config->transport) >= CEI_RECORD_TEXT_BYTES)
		return cei_raise(report, CEOV_ERR_INVALID, 0, "UCX's version '%s' has more than "
				 "%u bytes", config->transport, CEI_RECORD_TEXT_BYTES - 1);
	return 0;
}

/* Returns the machine's number: of its name, if it has been given one. */
static uint64_t node_of(const struct cei_book_config *config)
{
	const char *name = config->node ? config->node : secure_getenv("CEOVERLAP_NODE");
	uint64_t number;

	if (!name || !*name)
		return cei_site_own_node();
	number = cei_hash(CEI_HASH_START, name, strlen(name));
	return number ? number : 1;
}

static void fill_record(const struct cei_book_config *config, const char *job,
			struct cei_record *record)
{
	snprintf(record->library, sizeof(record->library), "%s", CEOV_VERSION);
	if (config->transport)
		snprintf(record->transport, sizeof(record->transport), "%s", config->transport);
	snprintf(record->job, sizeof(record->job), "%s", job);
	record->node = node_of(config);
	record->instance = config->instance;
	record->n_group_ranks = config->n_group_ranks;
	record->n_ranks = config->n_ranks;
	memcpy(record->ranks, config->ranks, config->n_ranks * sizeof(*record->ranks));
	record->n_address = config->n_address;
	if (config->n_address)
		memcpy(record->address, config->address, config->n_address);
}

static int complete(const struct cei_book_config *config, const struct cei_exchange *exchange,
		    struct cei_record *record)
{
	fill_record(config, exchange->job, record);
	if (!config->n_group_ranks) {
		record->n_group_ranks = exchange->n_processes;
		record->n_ranks = 1;
		record->ranks[0] = exchange->process;
	}
	return config->complete ? config->complete(config->complete_arg, exchange, record) : 0;
}

/* Allocates the encoded record. */
static int encode(const struct cei_book_config *config, const struct cei_exchange *exchange,
		  uint8_t **ret_bytes, uint32_t *ret_n_bytes)
{
	struct cei_record *record = calloc(1, sizeof(*record));
	uint8_t *bytes = malloc(CEI_RECORD_BYTES_MAX);
	int r;

	if (record && bytes)
		r = complete(config, exchange, record);
	else
		r = cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
			      "no memory for this process's record");
	if (!r) {
		*ret_n_bytes = (uint32_t)cei_record_encode(record, bytes);
		*ret_bytes = bytes;
	} else {
		free(bytes);
	}
	free(record);
	return r;
}

/* --- the exchange ------------------------------------------------------------------ */

/* Exchanges the records, over an exchange that is open. */
static int exchange_records(const struct cei_book_config *config, struct cei_exchange *exchange,
			    struct cei_gathered *ret_gathered)
{
	uint8_t *bytes;
	uint32_t n_bytes;
	int r = encode(config, exchange, &bytes, &n_bytes);

	if (r)
		return r;
	r = cei_exchange_all_gather(exchange, bytes, n_bytes, config->deadline_ns,
				    ret_gathered);
	free(bytes);
	return r;
}

int cei_book_open(const struct cei_book_config *config, struct cei_report *report,
		  struct cei_book **ret_book)
{
	const struct cei_exchange_config settings = {
		.report = report, .means = config->means, .process = config->process,
		.n_processes = config->n_processes, .all_gather = config->all_gather,
		.all_gather_arg = config->all_gather_arg, .where = config->where,
		.job = config->job,
	};
	struct cei_gathered gathered = { 0 };
	struct cei_exchange exchange;
	int r = check(config, report);

	if (!r)
		r = cei_exchange_open(&exchange, &settings, config->deadline_ns);
	if (r)
		return r;
	r = exchange_records(config, &exchange, &gathered);
	if (!r)
		r = cei_book_make(report, &gathered, exchange.process, ret_book);
	cei_exchange_close(&exchange);
	cei_gathered_fini(&gathered);
	return r;
}
