/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_IN_PLACE_H
#define CEI_IN_PLACE_H

/*
 * Whether the network reads and writes host memory of the application itself (in place), or only
 * slots of its rail, of which bytes are copied to and from that memory. In place a byte that came
 * after its connection was given up would land in memory that has another use by then. Over TCP and
 * shared memory none did in tests. Over RDMA, where the device writes and not a processor, nobody
 * has looked. docs/internals/between-nodes.md says more.
 */

#include "base/report.h"

struct cei_in_place {
	int  is_staged;                 /* bytes pass through slots */
	char text[256];                 /* what happens to them, to follow "bytes of host memory" */
};

/* Chooses by CEOVERLAP_IN_PLACE and by what stands against it, in words; NULL: nothing is known.
 * CEOV_ERR_INVALID, raised: the variable has no such value. */
int  cei_in_place_choose(struct cei_report *report, const char *obstacle,
			 struct cei_in_place *ret_choice);

#endif /* CEI_IN_PLACE_H */
