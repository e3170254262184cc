/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_WIRE_H
#define CEI_WIRE_H

/* What exports say, by the tables of base/codec.h. */

#include <stddef.h>
#include <stdint.h>

#include "base/codec.h"
#include "ipc/share.h"

enum cei_export_kind { CEI_EXPORT_BUFFER = 1, CEI_EXPORT_SIGNAL = 2 };

#define CEI_EXPORT_REGIONS_MAX 2u

/* The contents of an export. A buffer has exactly one region. A signal has its control region, and
 * a second region if its counters are on a GPU. */
struct cei_wire_described {
	uint32_t               kind;            /* enum cei_export_kind */
	uint32_t               place_kind;      /* signals only: enum ceov_place_kind of the place
						 * where the counters are */
	uint32_t               n_counters;      /* signals only */
	uint32_t               flags;           /* signals only: enum ceov_signal_flags */
	uint32_t               n_regions;
	struct cei_region_wire regions[CEI_EXPORT_REGIONS_MAX];
};

extern const struct cei_layout cei_described_layout;

/* Decodes the contents of an export. The reader fails if they are none that an owner sends, above
 * all if the number of regions or descriptors does not fit the kind. */
void cei_wire_get_described(struct cei_reader *reader, uint32_t n_fds,
			    struct cei_wire_described *ret_described);

#endif /* CEI_WIRE_H */
