/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Copies within one GPU's memory that go through host memory.
 *
 * If source and target are memory of one CUDA context, the driver executes a copy as a kernel,
 * whichever call queues it (plain, batched, 2-D, or on a stream of another context; measured on
 * H100 with driver 580). Such a copy does not start while waiting streams hold all hardware queues,
 * or while a kernel holds all SMs. Here two copies over PCIe take its place. They start even then,
 * but reach some 25 GB/s instead of 1300. The bytes between them are in pinned memory of the lane;
 * a part of it is overwritten only after it was copied out, because both copies are on one stream.
 * The copy from there to the GPU is small, so it goes as rows (cuda_queues.c): a plain one would
 * stand behind streams that wait.
 */

#include "backend/cuda_place.h"

static int is_in_gpu(const struct cei_cuda_backend *own, uint64_t address)
{
	int device = -1;

	return cei_cuda_is_gpu_memory(own, address) &&
	       own->cuda->calls.pointer_attribute(&device,
						  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
						  address) == CUDA_SUCCESS &&
	       device == own->cuda->gpus[own->gpu].device;
}

int cei_cuda_piece_bounces(const struct cei_cuda_backend *own, const struct cei_piece *piece)
{
	return piece->n_rows && piece->row_bytes && is_in_gpu(own, piece->source) &&
	       is_in_gpu(own, piece->target);
}

/* Copies consecutive bytes, part by part, to the pinned memory and from there to the target. */
static CUresult bounce_bytes(const struct cei_cuda_bounce *bounce, uint64_t target,
			     uint64_t source, uint64_t n_bytes)
{
	CUdeviceptr between = (CUdeviceptr)(uintptr_t)bounce->memory;
	CUresult result = CUDA_SUCCESS;
	uint64_t part;

	for (; n_bytes && result == CUDA_SUCCESS; n_bytes -= part) {
		part = n_bytes < bounce->n_bytes ? n_bytes : bounce->n_bytes;
		/* Leaves enough for the last part to be copied as rows. */
		if (part < n_bytes && n_bytes - part < CEI_CUDA_ROWS_BYTES_MIN)
			part -= CEI_CUDA_ROWS_BYTES_MIN;
		result = bounce->cuda->calls.copy(between, source, part, bounce->stream);
		if (result == CUDA_SUCCESS)
			result = cei_cuda_copy_past_queues(bounce->cuda, bounce->stream,
							   target, between, part);
		source += part;
		target += part;
	}
	return result;
}

/* Copies rows of a piece, from row `first` on: `fit` rows, or as many as are left. In the pinned
 * memory the rows have no gaps. */
static CUresult bounce_rows(const struct cei_cuda_bounce *bounce,
			    const struct cei_piece *piece, uint64_t first, uint64_t fit)
{
	struct cei_piece rows = *piece;
	CUresult result;

	rows.n_rows = fit < piece->n_rows - first ? fit : piece->n_rows - first;
	rows.source = piece->source + first * piece->source_pitch_bytes;
	rows.target = (uint64_t)(uintptr_t)bounce->memory;
	rows.target_pitch_bytes = piece->row_bytes;
	result = cei_cuda_copy_rows(bounce->cuda, bounce->stream, &rows);
	if (result != CUDA_SUCCESS)
		return result;
	rows.source = rows.target;
	rows.source_pitch_bytes = piece->row_bytes;
	rows.target = piece->target + first * piece->target_pitch_bytes;
	rows.target_pitch_bytes = piece->target_pitch_bytes;
	if (cei_cuda_piece_is_flat(&rows))
		return cei_cuda_copy_past_queues(bounce->cuda, bounce->stream, rows.target,
						 rows.source, rows.row_bytes * rows.n_rows);
	return cei_cuda_copy_rows(bounce->cuda, bounce->stream, &rows);
}

CUresult cei_cuda_copy_bouncing(const struct cei_cuda_bounce *bounce,
				const struct cei_piece *piece)
{
	uint64_t fit = bounce->n_bytes / piece->row_bytes, i;
	CUresult result = CUDA_SUCCESS;

	if (cei_cuda_piece_is_flat(piece))
		return bounce_bytes(bounce, piece->target, piece->source,
				    piece->row_bytes * piece->n_rows);
	for (i = 0; i < piece->n_rows && result == CUDA_SUCCESS; i += fit ? fit : 1)
		result = fit ? bounce_rows(bounce, piece, i, fit)
			: bounce_bytes(bounce, piece->target + i * piece->target_pitch_bytes,
				       piece->source + i * piece->source_pitch_bytes,
				       piece->row_bytes);
	return result;
}
