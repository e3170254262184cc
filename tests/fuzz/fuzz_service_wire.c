/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Feeds any bytes to the decoder of messages between a daemon and its clients. What it accepts has
 * to encode to the same bytes. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <ceoverlap/ceoverlap.h>

#include "ipc/service_wire.h"

#define AT_VERSION 4u

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
	static uint8_t again[CEI_SERVICE_BYTES_MAX];
	struct cei_service_message message;
	int r = cei_service_decode(bytes, n_bytes, &message);

	if (r && r != CEOV_ERR_INVALID && r != CEOV_ERR_VERSION)
		abort();
	if (r)
		return 0;
	if (cei_service_encode(&message, again) != n_bytes)
		abort();
	/* Another version's REFUSED is decoded, too, and encoded as this version's. */
	if (message.type == CEI_SERVICE_REFUSED)
		memcpy(again + AT_VERSION, bytes + AT_VERSION, sizeof(message.version));
	if (memcmp(again, bytes, n_bytes))
		abort();
	return 0;
}
