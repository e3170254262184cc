/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The kernel that copies rows with gaps between them. rows.h describes its parameters. */

#include "kernels/pattern.cuh"
#include "kernels/rows.h"
#include "kernels/vectors.cuh"

/* A thread's place among the rows. It moves on by as many vectors as there are threads, which are
 * `rows` rows and `vectors` vectors: so only the first place takes a division. */
struct rows_place {
	uint64_t row, vector;
};

static __device__ __forceinline__ void rows_move_on(struct rows_place &place,
						    const struct rows_place &step,
						    uint64_t row_vectors)
{
	place.row += step.row;
	place.vector += step.vector;
	if (place.vector < row_vectors)
		return;
	place.vector -= row_vectors;
	place.row++;
}

extern "C" __global__ void __launch_bounds__(CEI_ROWS_THREADS, 1)
cei_copy_rows(const __grid_constant__ struct cei_copy_rows rows)
{
	const uint64_t n = rows.row_vectors;
	const struct rows_place step = { n_threads() / n, n_threads() % n };
	struct rows_place place = { thread_index() / n, thread_index() % n };
	uint4 raw[CEI_ROWS_FLIGHT], *to[CEI_ROWS_FLIGHT];

	while (place.row < rows.n_rows) {
#pragma unroll
		for (uint32_t i = 0; i < CEI_ROWS_FLIGHT; i++) {
			const char *from = rows.source + place.row * rows.source_pitch_bytes;

			to[i] = NULL;
			if (place.row < rows.n_rows) {
				raw[i] = cei_load((const uint4 *)from + place.vector);
				to[i] = (uint4 *)(rows.target +
						  place.row * rows.target_pitch_bytes) +
					place.vector;
			}
			rows_move_on(place, step, n);
		}
#pragma unroll
		for (uint32_t i = 0; i < CEI_ROWS_FLIGHT; i++)
			if (to[i])
				*to[i] = raw[i];
	}
}
