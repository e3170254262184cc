/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Issues copies from host memory and writes of counters in ways that avoid the hardware queues
 * which kernels and waiting streams share.
 *
 * The driver sends small copies from host memory through these queues, and also memory operations
 * of a stream on which no copy is under way. There they can stand behind a stream that waits for
 * the very mark that they raise. Three kinds of operations go through the copy engines' own queues
 * instead: copies of rows with gaps, copies to the host, and memory operations behind such a copy
 * (measured on H100 and H200 with driver 580).
 */

#include "backend/cuda_place.h"

/* Copies of this many bytes or more never go through a queue that kernels use. */
#define SMALL_BYTES (UINT64_C(4) << 20)

int cei_cuda_queues_may_block(struct cei_cuda_backend *own)
{
	return own->shares_queues || cei_waits_may_block(own->waits, own->waits_bound);
}

int cei_cuda_piece_needs_queue(const struct cei_cuda_backend *own,
			       const struct cei_piece *piece)
{
	uint64_t n_bytes = piece->row_bytes * piece->n_rows;

	return n_bytes >= CEI_CUDA_ROWS_BYTES_MIN && n_bytes < SMALL_BYTES &&
	       cei_cuda_piece_is_flat(piece) && !cei_cuda_is_gpu_memory(own, piece->source);
}

/* Treats the two halves of the bytes as two rows. One copy moves the first part of both rows, and
 * another copy moves the rest of both. So the rows of each copy have gaps; the driver would treat
 * rows without gaps as a plain copy. If the number of bytes is odd, one byte is copied twice. */
CUresult cei_cuda_copy_as_rows(struct cei_cuda *cuda, CUstream stream,
			       const struct cei_piece *piece)
{
	uint64_t n_bytes = piece->row_bytes * piece->n_rows;
	uint64_t half = n_bytes / 2, part = half / 2;
	struct cei_piece rows = {
		.source = piece->source,
		.target = piece->target,
		.row_bytes = part,
		.n_rows = 2,
		.source_pitch_bytes = half,
		.target_pitch_bytes = half,
	};
	CUresult result = cei_cuda_copy_rows(cuda, stream, &rows);

	if (result != CUDA_SUCCESS)
		return result;
	rows.source += part;
	rows.target += part;
	rows.row_bytes = n_bytes - half - part;
	return cei_cuda_copy_rows(cuda, stream, &rows);
}

CUresult cei_cuda_copy_past_queues(struct cei_cuda *cuda, CUstream stream, uint64_t target,
				   uint64_t source, uint64_t n_bytes)
{
	const struct cei_piece piece = { .source = source, .target = target,
					 .row_bytes = n_bytes, .n_rows = 1 };

	if (n_bytes >= CEI_CUDA_ROWS_BYTES_MIN && n_bytes < SMALL_BYTES)
		return cei_cuda_copy_as_rows(cuda, stream, &piece);
	return cuda->calls.copy(target, source, n_bytes, stream);
}

CUresult cei_cuda_lead(struct cei_cuda_backend *own, CUstream stream, void *pinned)
{
	if (!cei_cuda_queues_may_block(own))
		return CUDA_SUCCESS;
	return own->cuda->calls.copy((CUdeviceptr)(uintptr_t)pinned, own->scratch,
				     CEI_CUDA_LEAD_BYTES, stream);
}
