/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_MACHINE_CACHE_H
#define CEI_MACHINE_CACHE_H

/*
 * Measurements of machines, kept in the user's cache as one text file for each machine
 * (cei_machine_measured_text()):
 *
 *   $XDG_CACHE_HOME/ceoverlap/machines/<hash>-<driver>.measured   (else ~/.cache)
 *
 * CEOVERLAP_MACHINE_CACHE names another folder by its whole path, or is "off": then nothing is
 * read or stored.
 *
 * A file is always replaced as a whole, so readers find either the old file or the new one; if
 * two processes write at once, the later one wins. When there are too many files, the oldest are
 * removed. A file can change costs and nothing else. One that describes another machine, or
 * cannot be understood, is ignored.
 */

#include "base/report.h"
#include "topology/machine.h"

#define CEI_MACHINE_CACHE_FILES     32u

/* Returns in path where the machine's file is or would be. CEOV_NONE: there is no such path, and
 * *ret_why says why. */
int  cei_machine_cache_path(const struct cei_machine *machine, char *path, uint64_t n_bytes,
			    const char **ret_why);

/* Merges the measurements that an earlier process stored into machine. Returns 1 if there
 * was a usable file, else 0. A file that cannot be used is reported by one warning. */
int  cei_machine_cache_load(struct cei_report *report, struct cei_machine *machine);

/* Stores machine's measured links and ports; creates missing folders. CEOV_NONE: switched
 * off, or there is no cache folder (logged at level INFO). CEOV_ERR_SYSTEM: raised, with
 * the path. */
int  cei_machine_cache_store(struct cei_report *report, const struct cei_machine *machine);

#endif /* CEI_MACHINE_CACHE_H */
