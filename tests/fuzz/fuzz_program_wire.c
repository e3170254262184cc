/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Feeds any bytes to the decoder of programs, the plans that clients send to a daemon. What it
 * accepts has to be valid, and to encode to the same bytes. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ce_engine/program/program_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check(const struct cei_program *program, const uint8_t *bytes, size_t n_bytes)
{
	uint8_t *again;

	if (cei_program_bytes(program) != n_bytes || cei_program_verify(program))
		abort();
	again = malloc(n_bytes);
	if (!again)
		abort();
	cei_program_write(program, again);
	if (memcmp(again, bytes, n_bytes))
		abort();
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
	struct cei_program program;
	int r = cei_program_read(bytes, n_bytes, &program);

	if (!r) {
		check(&program, bytes, n_bytes);
		cei_program_fini(&program);
	} else if (r != CEOV_ERR_INVALID && r != CEOV_ERR_VERSION && r != CEOV_ERR_NO_MEMORY) {
		abort();
	}
	return 0;
}
