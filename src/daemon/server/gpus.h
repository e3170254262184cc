/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_GPUS_H
#define CEI_DAEMON_GPUS_H

/* Which GPUs the daemon serves. */

#include <stdint.h>

#include "base/site.h"

#define CEI_GPUS_ALL UINT64_MAX         /* of a set of GPUs: those that there are */

/* Reads a set of GPUs: "all", "none", or numbers below 64 with commas between. 0: it is none. */
int  cei_gpus_read(const char *text, uint64_t *ret_set);

/* Opens the driver and adds a member for each GPU of the set to a site that has the ranks on host
 * memory. Where all are asked for, there may be none. Raises CEOV_ERR_INVALID: the process does not
 * see one of them, or there are more than CEI_MEMBERS_MAX members. */
int  cei_gpus_add(struct cei_site *site, uint64_t set);

/* The member that is the GPU of the UUID, or CEOV_NOBODY. */
uint32_t cei_gpus_member(const struct cei_site *site, const uint8_t *uuid);

#endif /* CEI_DAEMON_GPUS_H */
