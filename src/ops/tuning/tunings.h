/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TUNINGS_H
#define CEI_TUNINGS_H

/*
 * The file of tunings that were measured on this machine: ceoverlap/tunings in $XDG_CACHE_HOME, or
 * else in ~/.cache. Each line is one tuning:
 *
 *   key format mode n_pieces tile_rows tile_columns n_reduce_blocks cut chunk_bytes tile_order
 *   band_rows n_gemm_blocks
 *
 * format is CEI_TUNINGS_FORMAT, and rises when fields are added. Lines of other formats, which
 * older libraries wrote without a number, count as not there, so that what they say is measured
 * anew.
 *
 * The file is a cache. It is always replaced as a whole, so that readers find either the old file
 * or the new one. If two processes write at once, the later one wins, and the line of the other one
 * is lost. Lines that cannot be understood are ignored, and dropped when the file is written again.
 */

#include <stdint.h>

#include "base/report.h"
#include "ops/tuning/selector.h"

#define CEI_TUNINGS_FORMAT       2u             /* 1 had no number */
#define CEI_TUNINGS_MAX          1024u          /* lines kept in the file; when there are more, the
						 * oldest are dropped */
#define CEI_TUNING_KEY_BYTES     192u

/* Writes the key of a tuning, which names machine, op and shape without blanks. machine may be any
 * text. */
void cei_tuning_key(const char *machine, const struct cei_op_shape *shape,
		    char key[CEI_TUNING_KEY_BYTES]);

/* Finds the file's path. CEOV_NONE: there is no cache folder. */
int  cei_tunings_path(char *path, uint64_t n_bytes);

/* Finds the tuning that is stored under the key. CEOV_NONE: nothing usable is stored. */
int  cei_tunings_recall(const char *key, struct ceov_op_tuning *ret_tuning);

/* Stores a tuning and creates missing folders. CEOV_ERR_SYSTEM: raised, with the path. */
int  cei_tunings_remember(struct cei_report *report, const char *key,
			  const struct ceov_op_tuning *tuning);

#endif /* CEI_TUNINGS_H */
