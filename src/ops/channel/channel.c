/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What all that makes calls of a channel needs: its end, and the calls of a program. */

#include "ops/channel/channel.h"

#include "base/sized.h"
#include "ops/channel/gpu.h"

int cei_channel_end(ceov_channel *channel, int error)
{
	int none = 0;

	/* acq_rel: pairs with error_of() and cei_wait_look() */
	if (!atomic_compare_exchange_strong_explicit(&channel->error, &none, error,
						     memory_order_acq_rel, memory_order_acquire))
		return none;
	if (channel->gpu)
		cei_gpu_channel_end(channel, error);
	else    /* release: pairs with cei_wait_look() of peers, which then see this rank's head */
		atomic_store_explicit(&channel->rings[channel->rank]->poison, (uint32_t)-error,
				      memory_order_release);
	return error;
}

struct ceov_call cei_calls_at(const struct cei_calls *calls, uint32_t i)
{
	struct ceov_call call;

	cei_sized_take(&call, (const char *)calls->first + i * calls->struct_bytes, sizeof(call));
	call.struct_bytes = sizeof(call);
	return call;
}
