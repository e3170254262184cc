/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Feeds any bytes to the decoder of messages. The first byte says of which protocol, by its place
 * in the list of tests/made_message.c. What is accepted has to encode to the same bytes. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "tests/made_message.h"

#define AT_VERSION 4u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check(const struct cei_protocol *protocol, const uint8_t *bytes, size_t n_bytes)
{
	static uint64_t message[MADE_BYTES_MAX / sizeof(uint64_t)];
	static uint8_t again[MADE_BYTES_MAX];
	int r = cei_decode(protocol, bytes, n_bytes, message);

	if (r && r != CEOV_ERR_INVALID && r != CEOV_ERR_VERSION)
		abort();
	if (r)
		return;
	if (made_bytes(protocol, message, again) != n_bytes)
		abort();
	/* Another version's refusal is decoded, too, and encoded as this version's. */
	if (protocol->refusal)
		memcpy(again + AT_VERSION, bytes + AT_VERSION, sizeof(uint32_t));
	if (memcmp(again, bytes, n_bytes))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
	if (n_bytes && bytes[0] < made_n_protocols)
		check(made_protocols[bytes[0]].protocol, bytes + 1, n_bytes - 1);
	return 0;
}
