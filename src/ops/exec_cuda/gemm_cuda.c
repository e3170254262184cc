/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Launches our own GEMM kernel, with tensor maps of its matrices, its marks and its partial
 * sums. */

#include "ops/exec_cuda/execute_cuda.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "kernels/gemm.h"

#define NAME_BYTES          40
#define KEEPING_COLUMNS_MAX 4u          /* see keeping_columns() */

static const struct cei_tile_shape shapes[] = {
	{ 128, 256 }, { 128, 192 }, { 128, 128 },
};

#define N_SHAPES (sizeof(shapes) / sizeof(shapes[0]))

/* Writes the name of the kernel for a job's dtype, shape and b_is_k_by_n. */
static void name_kernel(char *name, const struct cei_gemm_job *job)
{
	snprintf(name, NAME_BYTES, "cei_gemm_%s_%ux%u%s",
		 job->dtype == CEOV_BF16 ? "bf16" : "fp16", job->shape.rows,
		 job->shape.columns, job->b_is_k_by_n ? "_kn" : "");
}

/* Limits the number of clusters to those that can run at the same time, since further ones would
 * run only after these. There may be fewer clusters than pairs of SMs: some SMs cannot be paired,
 * or the process has only a part of the GPU. If the driver cannot tell, the number stays as it
 * is. */
static void limit_clusters(struct cei_gpu_executor *own, void *function,
			   uint32_t shared_bytes)
{
	CUlaunchAttribute cluster = { .id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION };
	CUlaunchConfig config = {
		.gridDimX = own->n_clusters * CEI_GEMM_CLUSTER,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = CEI_GEMM_THREADS,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shared_bytes,
		.attrs = &cluster,
		.numAttrs = 1,
	};
	int n = 0;

	cluster.value.clusterDim.x = CEI_GEMM_CLUSTER;
	cluster.value.clusterDim.y = cluster.value.clusterDim.z = 1;
	if (!own->n_clusters || !own->cuda->calls.max_clusters ||
	    own->cuda->calls.max_clusters(&n, function, &config) != CUDA_SUCCESS)
		return;
	if (n >= 0 && (uint32_t)n < own->n_clusters)
		own->n_clusters = (uint32_t)n;
}

static int allow_shared(struct cei_gpu_executor *own, const struct cei_gemm_job *job)
{
	const int shared_bytes = CEI_GEMM_SHARED_BYTES((int)job->shape.rows,
						       (int)job->shape.columns);
	char name[NAME_BYTES];
	void *function = NULL;
	int r;

	name_kernel(name, job);
	r = cei_module_find(own->module, name, &function);
	if (r)
		return r;
	r = cei_gpu_executor_check(
		own, own->cuda->calls.function_set(
			     function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
			     shared_bytes),
		"allowing a kernel its shared memory");
	if (!r)
		limit_clusters(own, function, (uint32_t)shared_bytes);
	return r;
}

int cei_gpu_gemm_open(struct cei_gpu_executor *own)
{
	struct cei_gemm_job job;
	uint32_t i;
	int r = 0;

	memset(&job, 0, sizeof(job));
	own->n_clusters = own->n_sms / CEI_GEMM_CLUSTER;
	if (own->n_clusters > CEI_GEMM_CLUSTERS_MAX)
		own->n_clusters = CEI_GEMM_CLUSTERS_MAX;
	for (i = 0; !r && i < 4 * N_SHAPES; i++) {      /* two dtypes, two layouts of B */
		job.shape = shapes[i / 4];
		job.dtype = i % 4 < 2 ? CEOV_BF16 : CEOV_FP16;
		job.b_is_k_by_n = (int)(i % 2);
		r = allow_shared(own, &job);
	}
	return r;
}

int cei_gpu_gemm_has(const struct cei_gpu_executor *own, struct cei_tile_shape shape)
{
	uint32_t i;

	if (!own->has_kernels || !own->n_clusters)
		return 0;
	for (i = 0; i < N_SHAPES; i++)
		if (shapes[i].rows == shape.rows && shapes[i].columns == shape.columns)
			return 1;
	return 0;
}

/* Makes a tensor map with boxes of CEI_GEMM_K_STEP columns and box_rows rows, swizzled by 128
 * bytes. If the matrix is not used (its base is NULL), the map stays empty. */
static int make_map(const struct cei_gpu_executor *own, enum ceov_dtype dtype,
		    const struct cei_matrix *matrix, uint32_t box_rows,
		    struct cei_gemm_map *map)
{
	cuuint64_t sizes[2] = { matrix->columns, matrix->rows };
	cuuint64_t pitch[1] = { cei_matrix_pitch(matrix) * 2 };
	cuuint32_t box[2] = { CEI_GEMM_K_STEP, box_rows };
	cuuint32_t steps[2] = { 1, 1 };
	CUtensorMap made;
	CUresult result;

	if (!matrix->base || !matrix->rows)
		return 0;
	result = own->cuda->calls.tensor_map(
		&made, dtype == CEOV_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 :
					    CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
		2, (void *)(uintptr_t)matrix->base, sizes, pitch, box, steps,
		CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
		CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
	if (result != CUDA_SUCCESS)
		return cei_cuda_raise(own->cuda, result, own->rank,
				      "rank %u: GPU %u: mapping a matrix of %" PRIu64
				      " x %" PRIu64 " at %p (pointers and rows must be "
				      "multiples of 16 bytes)", own->rank, own->gpu,
				      matrix->rows, matrix->columns, matrix->base);
	_Static_assert(sizeof(made) == sizeof(*map), "the opaque map is a CUtensorMap");
	memcpy(map, &made, sizeof(made));
	return 0;
}

/* Returns how many tiles of each row of tiles store the gathered rows of A, a part each. All tiles
 * of a column start at the same time, so if only one column stored all rows of A, its tiles would
 * take 1.5 times as long. Of 1, 2, 4, 8 and all columns, 4 were fastest for narrow products, where
 * the number matters (docs/results/2xh200.md, "Gathered rows"). */
static uint32_t keeping_columns(const struct cei_gemm_job *job)
{
	uint64_t n = (job->c[0].columns + job->shape.columns - 1) / job->shape.columns;

	return (uint32_t)(n < KEEPING_COLUMNS_MAX ? n : KEEPING_COLUMNS_MAX);
}

static int make_maps(const struct cei_gpu_executor *own, const struct cei_gemm_job *job,
		     struct cei_gemm *gemm)
{
	uint32_t b_rows = job->b_is_k_by_n ? CEI_GEMM_K_STEP : job->shape.columns / 2, i;
	struct cei_matrix kept = { job->kept, job->c[0].rows, job->k, 0 };
	int r = 0;

	for (i = 0; !r && i < CEI_GEMM_A_COUNT; i++)
		r = make_map(own, job->dtype, &job->a[i], job->shape.rows, &gemm->a[i]);
	for (i = 0; !r && i < CEI_GEMM_B_MAX; i++)
		r = make_map(own, job->dtype, &job->b[i], b_rows, &gemm->b[i]);
	for (i = 0; !r && i < CEI_GEMM_C_MAX; i++) {
		r = make_map(own, job->dtype, &job->c[i], job->shape.rows / 2, &gemm->c[i]);
		gemm->c_base[i] = (void *)(uintptr_t)job->c[i].base;
		gemm->c_columns[i] = (uint32_t)job->c[i].columns;
	}
	if (kept.base)
		gemm->keeps = keeping_columns(job);
	return r ? r : make_map(own, job->dtype, &kept, job->shape.rows / 2, &gemm->kept);
}

static int make_partials(const struct cei_gpu_executor *own, const struct cei_gemm_job *job,
			 struct cei_gemm_partials *partials)
{
	struct cei_matrix all = {
		.base = job->partials,
		.rows = job->c[0].rows * job->n_sources,
		.columns = job->c[0].columns,
	};

	partials->n_rows = (uint32_t)job->c[0].rows;
	partials->n_sources = job->n_sources;
	partials->own = job->own;
	partials->n_pieces = job->n_pieces;
	return make_map(own, job->dtype, &all, job->shape.rows / 2, &partials->map);
}

static int make_marks(const struct cei_gpu_executor *own, const struct cei_job_marks *from,
		      struct cei_gemm_marks *marks)
{
	int r = cei_gpu_signal(own, from->awaited, &marks->awaited);

	if (!r)
		r = cei_gpu_signal(own, from->ready, &marks->ready);
	if (!r)
		r = cei_gpu_signal(own, from->sent, &marks->sent);
	marks->epoch = from->epoch;
	marks->await_value = from->epoch ? 0 : from->value;
	marks->arrive_value = from->epoch ? 1 : from->value;
	marks->sent_value = from->value;
	marks->sent_index = from->sent_index;
	marks->n_sent = from->n_sent;
	marks->timeout_ns = from->timeout_ns;
	marks->status = (uint32_t *)own->status;
	marks->failed = cei_gpu_word(own, CEI_GPU_WORD_FAILED);
	return r;
}

/* Returns how many blocks to launch: as many clusters as fit on the stream's SMs, but no more than
 * the job may use, nor than there are pairs of tiles. */
static uint32_t n_blocks(const struct cei_gpu_executor *own, void *stream,
			 const struct cei_gemm_job *job, uint32_t n_pairs)
{
	uint32_t n = own->n_clusters, most = cei_gpu_sms(own, stream);

	if (job->n_blocks && job->n_blocks < most)
		most = job->n_blocks;
	most /= CEI_GEMM_CLUSTER;
	if (n > most)
		n = most ? most : 1;
	if (n > n_pairs)
		n = n_pairs ? n_pairs : 1;      /* one cluster is needed to await `sent` */
	return n * CEI_GEMM_CLUSTER;
}

/* Has clusters claim pairs of tiles if the caller wants that, and where tiles wait for partial sums
 * of peers: the pairs of a cluster that finds no SM would keep theirs from them. */
static void make_claims(const struct cei_gpu_executor *own, const struct cei_gemm_job *job,
			uint32_t n_clusters, struct cei_gemm *gemm)
{
	gemm->n_free = job->tiles->n_free / CEI_GEMM_CLUSTER;
	gemm->n_columns = job->is_claimed ? gemm->n_pairs : n_clusters;
	if (job->is_claimed || job->tiles->n_free < job->tiles->n_tiles)
		gemm->claimed = cei_gpu_word(own, CEI_GPU_WORD_CLAIMED);
}

int cei_gpu_gemm(struct cei_gpu_executor *own, void *stream, const struct cei_gemm_job *job)
{
	struct cei_gemm gemm;
	void *arguments[] = { &gemm };
	char name[NAME_BYTES];
	struct cei_module_launch launch = {
		.name = name,
		.n_threads = CEI_GEMM_THREADS,
		.shared_bytes = CEI_GEMM_SHARED_BYTES(job->shape.rows, job->shape.columns),
		.stream = stream,
		.arguments = arguments,
	};
	struct cei_cuda_hold hold;
	int r = cei_cuda_push(own->cuda, own->gpu, &hold); /* tensor maps need the context to be
							    * current */

	if (r)
		return r;
	memset(&gemm, 0, sizeof(gemm));
	gemm.tiles = job->held_tiles;
	gemm.n_pairs = job->tiles->n_tiles / CEI_GEMM_CLUSTER;
	gemm.n_steps = (uint32_t)((job->k + CEI_GEMM_K_STEP - 1) / CEI_GEMM_K_STEP);
	launch.n_blocks = n_blocks(own, stream, job, gemm.n_pairs);
	make_claims(own, job, launch.n_blocks / CEI_GEMM_CLUSTER, &gemm);
	r = make_maps(own, job, &gemm);
	if (!r && job->partials)
		r = make_partials(own, job, &gemm.partials);
	if (!r)
		r = make_marks(own, &job->marks, &gemm.marks);
	name_kernel(name, job);
	if (!r && job->marks.awaited)
		r = cei_gpu_check_waiting(own, launch.n_blocks, name);
	if (!r)
		r = cei_module_launch(own->module, &launch);
	cei_cuda_pop(own->cuda, &hold);
	return r;
}
