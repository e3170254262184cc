/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Gives copies of pieces to the driver, on any stream, and says which memory is a GPU's. */

#include <string.h>

#include "backend/cuda_place.h"

int cei_cuda_is_gpu_memory(const struct cei_cuda_backend *own, uint64_t address)
{
	unsigned int type = 0;
	CUresult result;

	result = own->cuda->calls.pointer_attribute(&type,
						    CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
						    address);
	return result == CUDA_SUCCESS && type == CU_MEMORYTYPE_DEVICE;
}

CUresult cei_cuda_copy_rows(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_piece *piece)
{
	CUDA_MEMCPY2D shape;

	memset(&shape, 0, sizeof(shape));
	shape.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
	shape.srcDevice = piece->source;
	shape.srcPitch = piece->source_pitch_bytes;
	shape.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	shape.dstDevice = piece->target;
	shape.dstPitch = piece->target_pitch_bytes;
	shape.WidthInBytes = piece->row_bytes;
	shape.Height = piece->n_rows;
	return cuda->calls.copy_2d(&shape, stream);
}

int cei_cuda_piece_is_flat(const struct cei_piece *piece)
{
	return piece->n_rows == 1 ||
	       (piece->source_pitch_bytes == piece->row_bytes &&
		piece->target_pitch_bytes == piece->row_bytes);
}

CUresult cei_cuda_copy_each(struct cei_cuda *cuda, CUstream stream,
			    const struct cei_cuda_copies *copies)
{
	CUresult result = CUDA_SUCCESS;
	size_t i;

	for (i = 0; i < copies->n && result == CUDA_SUCCESS; i++)
		result = cuda->calls.copy(copies->targets[i], copies->sources[i],
					  copies->sizes[i], stream);
	return result;
}

CUresult cei_cuda_copy_batch(struct cei_cuda *cuda, CUstream stream,
			     struct cei_cuda_copies *copies)
{
	CUmemcpyAttributes attributes;
	size_t first = 0;

	if (!cuda->calls.copy_batch)
		return cei_cuda_copy_each(cuda, stream, copies);
	memset(&attributes, 0, sizeof(attributes));
	attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
	attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
	return cuda->calls.copy_batch(copies->targets, copies->sources, copies->sizes,
				      copies->n, &attributes, &first, 1, stream);
}

CUresult cei_cuda_copy_gapped(struct cei_cuda *cuda, CUstream stream,
			      const struct cei_piece *pieces, uint32_t n_pieces,
			      struct cei_cuda_copies *ret_copies)
{
	CUresult result = CUDA_SUCCESS;
	size_t n = 0;
	uint32_t i;

	for (i = 0; i < n_pieces && result == CUDA_SUCCESS; i++) {
		if (!pieces[i].n_rows || !pieces[i].row_bytes)
			continue;
		if (!cei_cuda_piece_is_flat(&pieces[i])) {
			result = cei_cuda_copy_rows(cuda, stream, &pieces[i]);
			continue;
		}
		ret_copies->targets[n] = pieces[i].target;
		ret_copies->sources[n] = pieces[i].source;
		ret_copies->sizes[n] = pieces[i].row_bytes * pieces[i].n_rows;
		n++;
	}
	ret_copies->n = n;
	return result;
}
