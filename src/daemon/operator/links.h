/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_DAEMON_LINKS_H
#define CEI_DAEMON_LINKS_H

/* What all engines have moved, by link, with the links' names. Front thread. */

#include "ce_engine/objects/works.h"
#include "ce_engine/sched/tally.h"

#define CEI_LINKS_MAX        128u       /* links that are told apart: ten places have 96 */
#define CEI_LINKS_NAME_BYTES 40u

struct cei_links {
	uint32_t n;
	struct {
		char name[CEI_LINKS_NAME_BYTES];        /* "gpu0>gpu1", "host", "other" */
		struct cei_tally_link_view view;
	} links[CEI_LINKS_MAX + 1];             /* the last one stands for all others */
};

/* Reads the tallies of the works' engines. NULL: no memory. The caller frees it with free(). */
struct cei_links *cei_links_read(const struct cei_works *works);

/* Writes a link's name. */
void cei_links_name(const struct cei_works *works, const struct cei_machine_link *link,
		    char ret_name[CEI_LINKS_NAME_BYTES]);

/* A time, in us, below which at least `percent` of what was counted is; 0: nothing was. */
uint64_t cei_links_quantile_us(const struct cei_tally_times_view *times, uint32_t percent);

#endif /* CEI_DAEMON_LINKS_H */
