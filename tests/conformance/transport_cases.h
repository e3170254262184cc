/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRANSPORT_CASES_H
#define CEI_TRANSPORT_CASES_H

/* What the files of the transport conformance cases share. */

#include <check.h>
#include <stdint.h>

#include "net/transport.h"

struct transport_kit {
	const struct cei_transport_ops *ops;
	const char                     *kinds;
	uint64_t                        random;         /* for testing_random() */
};

extern struct transport_kit transport_kit;

/* Adds the cases of connections that are closed and lost. */
void transport_add_end_cases(Suite *suite);

#endif /* CEI_TRANSPORT_CASES_H */
