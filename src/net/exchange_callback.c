/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * An exchange by a function of the application. That gathers equally many bytes of each process,
 * so the lengths are gathered first, and then the bytes, filled up to the longest.
 */

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "net/exchange_numbers.h"
#include "net/means.h"

static int detect(struct cei_exchange *exchange)
{
	const struct cei_exchange_config *config = &exchange->config;

	if (!config->all_gather)
		return 0;
	if (!config->n_processes)
		return cei_raise(config->report, CEOV_ERR_INVALID, 0, "the application's "
				 "all-gather needs the number of processes, which is 0");
	exchange->process = config->process;
	exchange->n_processes = config->n_processes;
	return cei_exchange_job(exchange, NULL) ? CEOV_ERR_INVALID : 1;
}

/* Calls the application's function. ret_all has room for n_processes * n_bytes. */
static int call(const struct cei_exchange *exchange, const void *own, size_t n_bytes,
		void *ret_all, uint64_t deadline_ns)
{
	const struct cei_exchange_config *config = &exchange->config;
	uint64_t now_ns = cei_now_ns();
	int result;

	if (now_ns >= deadline_ns)
		return cei_raise(config->report, CEOV_ERR_TIMEOUT, 0,
				 "no time was left to call the application's all-gather");
	result = config->all_gather(config->all_gather_arg, own, n_bytes, ret_all,
				    deadline_ns == CEI_FOREVER ? CEI_FOREVER
							       : deadline_ns - now_ns);
	if (!result)
		return 0;
	return cei_raise(config->report, CEOV_ERR_SYSTEM, result, "the application's all-gather "
			 "of %zu bytes among %u processes failed: it returned %d", n_bytes,
			 exchange->n_processes, result);
}

/* Numbers are little-endian, as processes of other machines may see them. */
static uint32_t length_of(const uint8_t bytes[4])
{
	return bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
	       (uint32_t)bytes[3] << 24;
}

/* Gathers the lengths into n_bytes, which has room for all. */
static int gather_lengths(const struct cei_exchange *exchange, uint32_t own_bytes,
			  uint64_t deadline_ns, uint32_t *n_bytes)
{
	const uint8_t own[4] = { (uint8_t)own_bytes, (uint8_t)(own_bytes >> 8),
				 (uint8_t)(own_bytes >> 16), (uint8_t)(own_bytes >> 24) };
	uint32_t i;
	int r = call(exchange, own, sizeof(own), n_bytes, deadline_ns);

	for (i = 0; !r && i < exchange->n_processes; i++) {
		n_bytes[i] = length_of((const uint8_t *)&n_bytes[i]);
		if (n_bytes[i] > CEI_GATHERED_BYTES_MAX ||
		    (i == exchange->process && n_bytes[i] != own_bytes))
			r = cei_raise(exchange->config.report, CEOV_ERR_INVALID, 0,
				      "the application's all-gather has mixed up bytes: it says "
				      "that process %u sends %u", i, n_bytes[i]);
	}
	return r;
}

static int gather_bytes(const struct cei_exchange *exchange, const void *own,
			const uint32_t *n_bytes, uint64_t deadline_ns,
			struct cei_gathered *gathered)
{
	uint32_t longest = 0, i, n;
	uint8_t *padded, *all;
	int r = 0;

	for (i = 0; i < exchange->n_processes; i++)
		if (n_bytes[i] > longest)
			longest = n_bytes[i];
	if (!longest)
		return 0;
	padded = calloc(1, longest);
	all = malloc((size_t)longest * exchange->n_processes);
	if (!padded || !all)
		r = cei_raise(exchange->config.report, CEOV_ERR_NO_MEMORY, 0,
			      "no memory to gather %u bytes of %u processes", longest,
			      exchange->n_processes);
	if (!r && n_bytes[exchange->process])
		memcpy(padded, own, n_bytes[exchange->process]);
	if (!r)
		r = call(exchange, padded, longest, all, deadline_ns);
	for (i = 0; !r && i < exchange->n_processes; i++)
		memcpy(cei_gathered_part(gathered, i, &n), all + (size_t)longest * i, n_bytes[i]);
	free(padded);
	free(all);
	return r;
}

static int all_gather(struct cei_exchange *exchange, const void *own, uint32_t n_bytes,
		      uint64_t deadline_ns, struct cei_gathered *ret_gathered)
{
	uint32_t *lengths = calloc(exchange->n_processes, sizeof(*lengths));
	int r = lengths ? gather_lengths(exchange, n_bytes, deadline_ns, lengths)
			: CEOV_ERR_NO_MEMORY;

	if (lengths && !r)
		r = cei_gathered_init(ret_gathered, exchange->n_processes, lengths);
	if (r == CEOV_ERR_NO_MEMORY)
		r = cei_raise(exchange->config.report, r, 0, "no memory to gather of %u "
			      "processes", exchange->n_processes);
	if (!r)
		r = gather_bytes(exchange, own, lengths, deadline_ns, ret_gathered);
	if (r)
		cei_gathered_fini(ret_gathered);
	free(lengths);
	return r;
}

const struct cei_exchange_ops cei_exchange_callback = {
	.name = "callback",
	.detect = detect,
	.all_gather = all_gather,
};
