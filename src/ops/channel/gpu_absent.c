/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Channels of ranks on GPUs in a build without CUDA: there are none. */

#include "ops/channel/gpu.h"

#include "ce_engine/objects/context.h"

int cei_gpu_channel_open(ceov_channel *channel, uint32_t gpu)
{
	return cei_raise(cei_channel_report(channel), CEOV_ERR_INVALID, 0,
			 "ceov_channel_create: rank %u is on GPU %u, but this build is without "
			 "CUDA", channel->rank, gpu);
}

/* No channel has a part on a GPU, so the rest is not called. */

int cei_gpu_channel_clear(ceov_channel *channel)
{
	(void)channel;
	return CEOV_ERR_INVALID;
}

int cei_gpu_channel_connect(ceov_channel *channel)
{
	(void)channel;
	return CEOV_ERR_INVALID;
}

int cei_gpu_channel_run(ceov_channel *channel, void *stream)
{
	(void)channel;
	(void)stream;
	return CEOV_ERR_INVALID;
}

int cei_gpu_channel_messages(ceov_channel *channel, const struct cei_calls *calls, void *stream)
{
	(void)channel;
	(void)calls;
	(void)stream;
	return CEOV_ERR_INVALID;
}

const struct cei_channel_status *cei_gpu_channel_status(const ceov_channel *channel)
{
	(void)channel;
	return NULL;
}

void cei_gpu_channel_end(ceov_channel *channel, int error)
{
	(void)channel;
	(void)error;
}

int cei_gpu_channel_idle(ceov_channel *channel)
{
	(void)channel;
	return 0;
}

void cei_gpu_channel_close(ceov_channel *channel)
{
	(void)channel;
}
