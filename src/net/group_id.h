/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_GROUP_ID_H
#define CEI_GROUP_ID_H

/*
 * The number that the processes of a group have in common: a hash of the job's name under the
 * group's secret. It keeps groups apart that could meet by mistake, such as two jobs of one
 * name. It is no protection: whoever can read a message knows the number, and the network must
 * be trusted.
 */

#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

#define CEI_SECRET_BYTES_MAX 4096u

struct cei_secret {
	uint8_t  bytes[CEI_SECRET_BYTES_MAX];
	uint32_t n_bytes;               /* 0: there is none */
};

/* Fills the secret from these bytes; from CEOVERLAP_SECRET where n_bytes is 0: its text, or,
 * where that begins with a slash, all of the file of that name. CEOV_ERR_INVALID and
 * CEOV_ERR_SYSTEM, raised: the secret is too long, the file is empty or cannot be read. No
 * message shows the secret. */
int cei_secret_load(struct cei_report *report, const void *bytes, size_t n_bytes,
		    struct cei_secret *ret_secret);

/* Returns the group's number, which is never 0. */
uint64_t cei_group_id(const struct cei_secret *secret, const char *job);

#endif /* CEI_GROUP_ID_H */
