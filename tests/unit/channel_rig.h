/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_RIG_H
#define CEI_CHANNEL_RIG_H

/* Channels of ranks that are threads of one process. Asserts with Check. */

#include "testing.h"
#include "unit/channel_case.h"

#define CHANNEL_RING UINT64_C(65536)    /* the smallest one */

struct channel_rig {
	ceov_context *context;
	uint32_t      n_ranks;
	ceov_channel *channels[CHANNEL_RANKS_MAX];
};

/* Creates the channel of one rank and asserts success. deadline_ns 0: TESTING_PATIENCE. */
ceov_channel *channel_made(ceov_context *context, uint32_t rank, const char *name,
			   uint64_t deadline_ns);

void channel_rig_open(struct channel_rig *rig, uint32_t n_ranks, uint64_t deadline_ns,
		      struct testing_log *log);
/* Opens a further channel in the other rig's context. */
void channel_rig_open_beside(struct channel_rig *rig, const struct channel_rig *other,
			     const char *name);
/* Creates and connects the channels of a context. */
void channel_rig_connect(struct channel_rig *rig, const char *name, uint64_t deadline_ns);
void channel_rig_release(struct channel_rig *rig);
/* Releases channels and closes the context. */
void channel_rig_close(struct channel_rig *rig);

/* Runs body in a thread per rank; returns when all have ended. */
struct channel_part {
	struct channel_rig *rig;
	uint32_t            rank;
	ceov_channel       *channel;
	void               *arg;
};
void channel_rig_each(struct channel_rig *rig, void (*body)(const struct channel_part *part),
		      void *arg);

/* Makes an all-reduce of a few numbers at all ranks and asserts that sums are right. */
void channel_rig_works(struct channel_rig *rig);

#endif /* CEI_CHANNEL_RIG_H */
