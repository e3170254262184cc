/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_CACHE_H
#define CEI_MACHINE_CACHE_H

/*
 * Machines that were measured here, in the user's cache, one XML file each:
 *
 *   $XDG_CACHE_HOME/ceoverlap/machines/<hash>-<driver>.xml        (else ~/.cache)
 *
 * CEOVERLAP_MACHINE_CACHE moves that: another folder, by its whole path, or "off": nothing
 * is read and nothing kept.
 *
 * A file is replaced as a whole, so that readers find an old one or a new one; of two
 * writers at once the later wins. Of old files the newest are kept. Whatever a file
 * holds, it changes costs and nothing else: one that is not of this machine or makes no
 * sense is passed over.
 */

#include "base/report.h"
#include "topology/machine.h"

#define CEI_MACHINE_CACHE_FILES     32u
#define CEI_MACHINE_CACHE_BYTES_MAX (UINT64_C(16) << 20)        /* of one file */

/* Where the machine's file is or would be. CEOV_NONE: nowhere, and *ret_why says why. */
int  cei_machine_cache_path(const struct cei_machine *machine, char *path, uint64_t n_bytes,
			    const char **ret_why);

/* Merges what was measured before into machine. Returns whether there was something. A file
 * that cannot be used is reported by one warning. */
int  cei_machine_cache_load(struct cei_report *report, struct cei_machine *machine);

/* Stores machine's measured links and ports; creates missing folders. CEOV_NONE: switched
 * off, or there is no cache folder (logged at level INFO). CEOV_ERR_SYSTEM: raised, with
 * the path. */
int  cei_machine_cache_store(struct cei_report *report, const struct cei_machine *machine);

#endif /* CEI_MACHINE_CACHE_H */
