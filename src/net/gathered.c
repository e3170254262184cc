/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/gathered.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#define NAMED_MAX 8u                    /* missing processes that a message names */

int cei_gathered_init(struct cei_gathered *gathered, uint32_t n_processes,
		      const uint32_t *n_bytes)
{
	uint64_t sum = 0;
	uint32_t i;

	memset(gathered, 0, sizeof(*gathered));
	if (!n_processes || n_processes > CEI_GATHERED_PROCESSES_MAX)
		return CEOV_ERR_INVALID;
	for (i = 0; i < n_processes; i++)
		if (n_bytes[i] > CEI_GATHERED_BYTES_MAX)
			return CEOV_ERR_INVALID;
	gathered->ends = malloc(n_processes * sizeof(*gathered->ends));
	if (!gathered->ends)
		return CEOV_ERR_NO_MEMORY;
	for (i = 0; i < n_processes; i++) {
		sum += n_bytes[i];
		gathered->ends[i] = sum;
	}
	gathered->n_processes = n_processes;
	gathered->bytes = calloc(1, sum ? (size_t)sum : 1);
	if (gathered->bytes)
		return 0;
	cei_gathered_fini(gathered);
	return CEOV_ERR_NO_MEMORY;
}

void cei_gathered_fini(struct cei_gathered *gathered)
{
	free(gathered->ends);
	free(gathered->bytes);
	memset(gathered, 0, sizeof(*gathered));
}

uint8_t *cei_gathered_part(const struct cei_gathered *gathered, uint32_t process,
			   uint32_t *ret_n_bytes)
{
	uint64_t begin = process ? gathered->ends[process - 1] : 0;

	*ret_n_bytes = (uint32_t)(gathered->ends[process] - begin);
	return gathered->bytes + begin;
}

const struct cei_gathered_words cei_processes = {
	"process", "processes", "are process", "store at", "another port (CEOVERLAP_STORE)",
};
const struct cei_gathered_words cei_ranks_of_node = {
	"rank", "ranks", "have rank", "group at",
	"another path if another group uses this one (CEOVERLAP_GROUP)",
};

uint32_t cei_missing_text(const struct cei_gathered_words *words, const uint8_t *has, uint32_t n,
			  char ret_text[CEI_MISSING_TEXT_BYTES])
{
	uint32_t number, n_named = 0, n_missing = 0;
	int at;

	for (number = 0; number < n; number++)
		n_missing += !has[number];
	ret_text[0] = '\0';
	if (!n_missing)
		return 0;
	at = snprintf(ret_text, CEI_MISSING_TEXT_BYTES, "%s",
		      n_missing > 1 ? words->many : words->one);
	for (number = 0; number < n && n_named < NAMED_MAX; number++)
		if (!has[number])
			at += snprintf(ret_text + at, CEI_MISSING_TEXT_BYTES - (size_t)at,
				       "%s %u", n_named++ ? "," : "", number);
	if (n_missing > n_named)
		snprintf(ret_text + at, CEI_MISSING_TEXT_BYTES - (size_t)at, " and %u more",
			 n_missing - n_named);
	return n_missing;
}
