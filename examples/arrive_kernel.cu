/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A user's own kernels. The producer computes tiles and arrives at the counter of the
 * piece that each belongs to; the arrival that completes a piece raises its mark, and
 * the runtime's copy starts while the other tiles are still being computed. The
 * consumer, on the GPU that receives, works on each piece as its mark comes.
 */

#include <ceoverlap/device.cuh>

/* One block per tile; piece p has the tiles first_tile[p] to first_tile[p + 1] - 1, and
 * need not have as many as the others. `value` is the launch's base + 1. */
extern "C" __global__ void produce(ceov_device_signal ready, const uint32_t *first_tile,
				   uint32_t n_pieces, float *out, uint32_t tile_floats,
				   uint64_t value)
{
	uint32_t piece = 0;

	for (uint32_t i = threadIdx.x; i < tile_floats; i += blockDim.x)
		out[blockIdx.x * (size_t)tile_floats + i] = sqrtf(blockIdx.x + i);
	while (piece + 1 < n_pieces && first_tile[piece + 1] <= blockIdx.x)
		piece++;
	__syncthreads();                /* the whole tile is stored */
	if (threadIdx.x == 0)
		ceov_device_arrive(ready, piece, first_tile[piece + 1] - first_tile[piece],
				   value);
}

/* One block per piece of one source rank; its counter is first_counter + piece. */
extern "C" __global__ void consume(ceov_device_signal arrived, uint32_t first_counter,
				   const float *in, uint32_t piece_floats, uint64_t value,
				   float *sums, int *status)
{
	__shared__ int left;
	float sum = 0;

	if (threadIdx.x == 0)
		left = ceov_device_await(arrived, first_counter + blockIdx.x, value,
					 10000000000ull);
	__syncthreads();
	if (left) {                     /* aborted or too late: do not read */
		if (threadIdx.x == 0)
			*status = left;
		return;
	}
	for (uint32_t i = threadIdx.x; i < piece_floats; i += blockDim.x)
		sum += in[blockIdx.x * (size_t)piece_floats + i];
	atomicAdd(&sums[blockIdx.x], sum);
}
