/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Producers and waiters for tools and tests; see work.h. The library itself launches none
 * of them. */

#include <ceoverlap/device.cuh>

#include "tools/kernels/work.h"

/* Each block arrives as one tile; the grid may have fewer blocks than tiles. */
extern "C" __global__ void cei_kernel_raise(struct cei_kernel_raise raise)
{
	const uint64_t n_all = (uint64_t)raise.n * raise.n_tiles;
	uint64_t tile;

	if (threadIdx.x)
		return;
	for (tile = blockIdx.x; tile < n_all; tile += gridDim.x)
		ceov_device_arrive(raise.signal,
				   raise.first + (uint32_t)(tile / raise.n_tiles),
				   raise.n_tiles, raise.value);
}

extern "C" __global__ void cei_kernel_arrive(struct cei_kernel_arrive arrive)
{
	uint32_t i;

	if (threadIdx.x)
		return;
	for (i = blockIdx.x; i < arrive.n_arrivals; i += gridDim.x)
		ceov_device_arrive(arrive.signal, arrive.index, arrive.n_tiles,
				   arrive.value);
}

extern "C" __global__ void cei_kernel_await(struct cei_kernel_await await)
{
	int status;
	uint32_t i;

	if (threadIdx.x)
		return;
	for (i = 0; i < await.n; i++) {
		status = ceov_device_await(await.signal, await.first + i, await.value,
					   await.timeout_ns);
		atomicMax(await.ret_status, (uint32_t)status);
	}
}

extern "C" __global__ void cei_kernel_pingpong(struct cei_kernel_pingpong game)
{
	uint64_t value, before;
	int status = CEOV_DEVICE_REACHED;
	uint32_t i;

	if (threadIdx.x || blockIdx.x)
		return;
	for (i = 0; i < game.n_rounds && status == CEOV_DEVICE_REACHED; i++) {
		value = game.first_value + i;
		before = ceov_device_now_ns();
		if (!game.is_second)
			ceov_device_arrive(game.raise_signal, game.raise_index, 1, value);
		status = ceov_device_await(game.await_signal, game.await_index, value,
					   game.timeout_ns);
		if (game.is_second && status == CEOV_DEVICE_REACHED)
			ceov_device_arrive(game.raise_signal, game.raise_index, 1, value);
		game.ret_ns[i] = ceov_device_now_ns() - before;
	}
	*game.ret_status = (uint32_t)status;
}
