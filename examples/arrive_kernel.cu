/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A user's own kernels. The producer computes tiles and arrives at the counter of the
 * piece that each belongs to; the arrival that completes a piece raises its mark, and
 * the runtime's copy starts while the other tiles are still being computed. The
 * consumer, on the GPU that receives, works on each piece as its mark comes.
 */

#include <ceoverlap/device.cuh>

struct produced {
	ceov_device_signal ready;       /* a counter per piece */
	const uint32_t    *first_tile;  /* of each piece, and behind the last: pieces
					 * need not have the same number of tiles */
	uint32_t           n_pieces;
	float             *out;
	uint32_t           tile_floats;
	uint64_t           value;       /* the launch's base + 1 */
};

/* One block per tile. */
extern "C" __global__ void produce(struct produced p)
{
	uint32_t piece = 0;

	for (uint32_t i = threadIdx.x; i < p.tile_floats; i += blockDim.x)
		p.out[blockIdx.x * (size_t)p.tile_floats + i] = sqrtf(blockIdx.x + i);
	while (piece + 1 < p.n_pieces && p.first_tile[piece + 1] <= blockIdx.x)
		piece++;
	__syncthreads();                /* the whole tile is stored */
	if (threadIdx.x == 0)
		ceov_device_arrive(p.ready, piece,
				   p.first_tile[piece + 1] - p.first_tile[piece], p.value);
}

struct consumed {
	ceov_device_signal arrived;
	uint32_t           first_counter;       /* source rank * pieces */
	const float       *in;
	uint32_t           piece_floats;
	uint64_t           value;
	float             *sums;
	int               *status;
};

/* One block per piece of one source rank. */
extern "C" __global__ void consume(struct consumed c)
{
	__shared__ int left;
	float sum = 0;

	if (threadIdx.x == 0)
		left = ceov_device_await(c.arrived, c.first_counter + blockIdx.x, c.value,
					 10000000000ull);
	__syncthreads();
	if (left) {                     /* aborted or too late: do not read */
		if (threadIdx.x == 0)
			*c.status = left;
		return;
	}
	for (uint32_t i = threadIdx.x; i < c.piece_floats; i += blockDim.x)
		sum += c.in[blockIdx.x * (size_t)c.piece_floats + i];
	atomicAdd(&c.sums[blockIdx.x], sum);
}
