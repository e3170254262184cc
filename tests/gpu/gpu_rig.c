/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Implements the rig of the GPU suites, so that the suites need no CUDA headers. */

#include "gpu_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cuda_table.h"
#include "kernels/module.h"

struct gpu_private {
	struct cei_report  report;
	struct cei_cuda   *cuda;
	struct cei_module *module;
	struct gpu_result *pinned;      /* one */
};

/* --- counting GPUs, and skipping ----------------------------------------- */

static uint32_t count_here(void)
{
	struct cei_report report;
	struct cei_cuda *cuda = NULL;
	const char *why = "the driver cannot be opened";
	uint32_t n = 0;

	cei_report_init(&report, NULL, NULL);
	if (cei_cuda_open(&report, &cuda, &why))
		printf("no GPU to test with: %s\n", why);
	else
		n = cei_cuda_n_gpus(cuda);
	fflush(stdout);
	return n;
}

uint32_t gpu_count(void)
{
	int status = 0;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (!child)
		_exit((int)count_here());
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 0;
	return (uint32_t)WEXITSTATUS(status);
}

/* set by gpu_main_ranks() before any test forks */
static uint32_t n_gpus_here = 1;

uint32_t gpu_of_rank(uint32_t rank)
{
	return rank % n_gpus_here;
}

uint32_t gpu_n_sharing(uint32_t n_ranks)
{
	return (n_ranks + n_gpus_here - 1) / n_gpus_here;
}

int gpu_main_ranks(Suite *(*suite)(uint32_t n_ranks))
{
	uint32_t n_ranks;

	n_gpus_here = gpu_count();
	if (!n_gpus_here) {
		printf("skipped: a GPU is needed\n");
		return GPU_SKIPPED;
	}
	n_ranks = gpu_setting("CEOVERLAP_TEST_RANKS", n_gpus_here > 1 ? n_gpus_here : 2);
	if (gpu_n_sharing(n_ranks) > 1) {
		printf("%u ranks share %u GPUs\n", n_ranks, n_gpus_here);
		/* More hardware queues than the default 8, which tests' streams of all
		 * ranks would fill (backend/waits.h); and eager loading, because a kernel
		 * that is loaded at its first launch waits for all kernels of the GPU, even
		 * for those that wait for this rank. */
		(void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
		(void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
	}
	fflush(stdout);
	return testing_run(suite(n_ranks));
}

int gpu_main(uint32_t n_needed, Suite *(*suite)(uint32_t n_gpus))
{
	uint32_t n_gpus = gpu_count();

	if (n_gpus < n_needed) {
		printf("skipped: %u GPUs are needed, here are %u\n", n_needed, n_gpus);
		return GPU_SKIPPED;
	}
	return testing_run(suite(n_gpus));
}

uint32_t gpu_setting(const char *name, uint32_t fallback)
{
	const char *text = getenv(name);

	return text && *text ? (uint32_t)strtoul(text, NULL, 10) : fallback;
}

/* --- opening ------------------------------------------------------------- */

static const struct cei_cuda_calls *calls_of(const struct gpu *gpu)
{
	return &gpu->private->cuda->calls;
}

static void enter(const struct gpu *gpu, struct cei_cuda_hold *hold)
{
	ck_assert_int_eq(cei_cuda_push(gpu->private->cuda, gpu->index, hold), 0);
}

static void leave(const struct gpu *gpu, const struct cei_cuda_hold *hold)
{
	cei_cuda_pop(gpu->private->cuda, hold);
}

static void check(const struct gpu *gpu, CUresult result, const char *what)
{
	if (result != CUDA_SUCCESS)
		(void)cei_cuda_raise(gpu->private->cuda, result, CEOV_NOBODY, "%s", what);
	ck_assert_msg(result == CUDA_SUCCESS, "GPU %u: %s: error %d", gpu->index, what,
		      (int)result);
}

/* Returns the CUDA priority of a stream. Lower numbers have priority. The library's lanes use the
 * lowest two numbers. */
static int priority_of(enum gpu_stream stream, int least, int greatest)
{
	int priority = least - (int)stream;

	if (stream == GPU_CONTROL)
		return greatest;
	return priority < greatest ? greatest : priority;
}

static void open_streams(struct gpu *gpu)
{
	int least = 0, greatest = 0, i;
	CUstream stream;

	check(gpu, calls_of(gpu)->ctx_priorities(&least, &greatest),
	      "cuCtxGetStreamPriorityRange");
	for (i = 0; i < (int)GPU_STREAMS; i++) {
		check(gpu, calls_of(gpu)->stream_create(
			&stream, CU_STREAM_NON_BLOCKING,
			priority_of((enum gpu_stream)i, least, greatest)),
		      "cuStreamCreateWithPriority");
		gpu->streams[i] = stream;
	}
}

void gpu_open(struct gpu *gpu, uint32_t index)
{
	const char *why = "";
	struct cei_cuda_hold hold;
	uint32_t i;

	memset(gpu, 0, sizeof(*gpu));
	gpu->index = index;
	gpu->private = calloc(1, sizeof(*gpu->private));
	ck_assert_ptr_nonnull(gpu->private);
	cei_report_init(&gpu->private->report, NULL, NULL);
	ck_assert_msg(!cei_cuda_open(&gpu->private->report, &gpu->private->cuda, &why),
		      "%s", why);
	ck_assert_int_eq(cei_module_open(gpu->private->cuda, index, &cei_kernels,
					 &gpu->private->module), 0);
	ck_assert_int_eq(cei_module_open(gpu->private->cuda, index, &cei_work_kernels,
					 &gpu->private->module), 0);
	enter(gpu, &hold);
	open_streams(gpu);
	leave(gpu, &hold);
	gpu->private->pinned = gpu_host_allocate(gpu, sizeof(struct gpu_result));
	gpu->results = gpu_allocate(gpu, GPU_RESULTS * sizeof(struct gpu_result));
	for (i = 0; i < GPU_RESULTS; i++)
		gpu_reset(gpu, i);
}

#define SPARE_SMS 8u                    /* SMs left for copies, and for kernels that do not wait */

uint64_t gpu_sms_for(const struct gpu *gpu, uint32_t n_ranks, uint32_t n_at_once)
{
	const struct cei_cuda *cuda = gpu->private->cuda;
	uint32_t n_sharing = gpu_n_sharing(n_ranks);
	int n_sms = 0;

	if (n_sharing == 1)
		return 0;
	check(gpu, cuda->calls.device_attribute(&n_sms,
						CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
						cuda->gpus[gpu->index].device),
	      "cuDeviceGetAttribute");
	return ((uint32_t)n_sms - SPARE_SMS) / (n_sharing * n_at_once) / 2 * 2;
}

void gpu_close(struct gpu *gpu)
{
	struct cei_cuda_hold hold;
	uint32_t i;

	for (i = 0; i < GPU_STREAMS; i++)
		gpu_idle(gpu, (enum gpu_stream)i);
	gpu_free(gpu, gpu->results);
	enter(gpu, &hold);
	for (i = 0; i < GPU_STREAMS; i++)
		check(gpu, calls_of(gpu)->stream_destroy(gpu->streams[i]),
		      "cuStreamDestroy");
	leave(gpu, &hold);
	gpu_host_free(gpu, gpu->private->pinned);
	cei_module_close(gpu->private->module);
	cei_cuda_close(gpu->private->cuda);
	cei_report_fini(&gpu->private->report);
	free(gpu->private);
	memset(gpu, 0, sizeof(*gpu));
}

ceov_context *gpu_context(const uint32_t *indices, uint32_t n)
{
	struct ceov_member members[GPU_RANKS_MAX];
	struct ceov_config config = CEOV_CONFIG_INIT;
	ceov_context *context = NULL;
	uint32_t i;

	ck_assert_uint_le(n, GPU_RANKS_MAX);
	for (i = 0; i < n; i++)
		members[i] = (struct ceov_member){ i, { CEOV_PLACE_GPU, indices[i] } };
	config.members = members;
	config.n_members = config.n_ranks = n;
	config.deadline_ns = GPU_DEADLINE;
	ck_assert_int_eq(ceov_open(&config, &context), 0);
	return context;
}

ceov_signal *gpu_signal(ceov_context *context, uint32_t rank, uint32_t gpu,
			uint32_t n_counters, uint32_t flags)
{
	const struct ceov_place place = { CEOV_PLACE_GPU, gpu };
	ceov_signal *signal = NULL;

	ck_assert_int_eq(ceov_signal_create(context, rank, place, n_counters, flags,
					    &signal), 0);
	return signal;
}

struct ceov_device_signal gpu_view(ceov_signal *signal, uint32_t rank)
{
	struct ceov_device_signal view;

	ck_assert_int_eq(ceov_signal_for_device(signal, rank, &view), 0);
	return view;
}

/* --- memory -------------------------------------------------------------- */

static CUdeviceptr address_of(const void *p)
{
	return (CUdeviceptr)(uintptr_t)p;
}

void *gpu_allocate(struct gpu *gpu, uint64_t n_bytes)
{
	struct cei_cuda_hold hold;
	CUdeviceptr p = 0;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->mem_alloc(&p, n_bytes), "cuMemAlloc");
	leave(gpu, &hold);
	return (void *)(uintptr_t)p;
}

void gpu_free(struct gpu *gpu, void *p)
{
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->mem_free(address_of(p)), "cuMemFree");
	leave(gpu, &hold);
}

void *gpu_reserve(struct gpu *gpu, uint64_t n_bytes)
{
	struct cei_cuda_hold hold;
	CUdeviceptr p = 0;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->vmm_reserve(&p, n_bytes, 0, 0, 0), "cuMemAddressReserve");
	leave(gpu, &hold);
	return (void *)(uintptr_t)p;
}

void gpu_unreserve(struct gpu *gpu, void *p, uint64_t n_bytes)
{
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->vmm_unreserve(address_of(p), n_bytes), "cuMemAddressFree");
	leave(gpu, &hold);
}

void gpu_map(struct gpu *gpu, void *p)
{
	const struct cei_cuda_calls *calls = calls_of(gpu);
	const CUmemLocation place = {
		.type = CU_MEM_LOCATION_TYPE_DEVICE,
		.id = gpu->private->cuda->gpus[gpu->index].device,
	};
	const CUmemAllocationProp made = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = place,
	};
	const CUmemAccessDesc access = {
		.location = place,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUmemGenericAllocationHandle allocation;
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls->vmm_create(&allocation, GPU_PAGE_BYTES, &made, 0), "cuMemCreate");
	check(gpu, calls->vmm_map(address_of(p), GPU_PAGE_BYTES, 0, allocation, 0), "cuMemMap");
	check(gpu, calls->vmm_set_access(address_of(p), GPU_PAGE_BYTES, &access, 1),
	      "cuMemSetAccess");
	check(gpu, calls->vmm_release(allocation), "cuMemRelease");     /* the map keeps it */
	leave(gpu, &hold);
}

void gpu_unmap(struct gpu *gpu, void *p)
{
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->vmm_unmap(address_of(p), GPU_PAGE_BYTES), "cuMemUnmap");
	leave(gpu, &hold);
}

uint64_t gpu_memory_id(struct gpu *gpu, const void *p)
{
	const CUpointer_attribute wanted = CU_POINTER_ATTRIBUTE_BUFFER_ID;
	unsigned long long id = 0;
	struct cei_cuda_hold hold;
	CUresult result;

	enter(gpu, &hold);
	result = calls_of(gpu)->pointer_attribute(&id, wanted, address_of(p));
	leave(gpu, &hold);
	return result == CUDA_SUCCESS ? id : 0;
}

void *gpu_host_allocate(struct gpu *gpu, uint64_t n_bytes)
{
	struct cei_cuda_hold hold;
	void *p = NULL;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->host_alloc(&p, n_bytes, CU_MEMHOSTALLOC_PORTABLE),
	      "cuMemHostAlloc");
	leave(gpu, &hold);
	return p;
}

void gpu_host_free(struct gpu *gpu, void *p)
{
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->host_free(p), "cuMemFreeHost");
	leave(gpu, &hold);
}

void gpu_copy(struct gpu *gpu, enum gpu_stream stream, void *to, const void *from,
	      uint64_t n_bytes)
{
	struct cei_cuda_hold hold;

	enter(gpu, &hold);
	check(gpu, calls_of(gpu)->copy(address_of(to), address_of(from), n_bytes,
				       gpu->streams[stream]), "cuMemcpyAsync");
	leave(gpu, &hold);
}

void gpu_move(struct gpu *gpu, void *to, const void *from, uint64_t n_bytes)
{
	gpu_copy(gpu, GPU_CONTROL, to, from, n_bytes);
	gpu_idle(gpu, GPU_CONTROL);
}

/* --- kernels ------------------------------------------------------------- */

void gpu_launch_as(struct gpu *gpu, enum gpu_stream stream,
		   const struct cei_module_launch *launch)
{
	struct cei_module_launch made = *launch;

	made.stream = gpu->streams[stream];
	ck_assert_int_eq(cei_module_launch(gpu->private->module, &made), 0);
}

static void launch(struct gpu *gpu, enum gpu_stream stream, const char *kernel,
		   uint32_t n_blocks, void **arguments)
{
	const struct cei_module_launch made = {
		.name = kernel,
		.n_blocks = n_blocks,
		.n_threads = GPU_THREADS,
		.arguments = arguments,
	};

	gpu_launch_as(gpu, stream, &made);
}

void gpu_launch(struct gpu *gpu, enum gpu_stream stream, const char *kernel,
		uint32_t n_blocks, void *argument)
{
	void *arguments[] = { argument };

	launch(gpu, stream, kernel, n_blocks, arguments);
}

/* Chooses a grid of four words per thread, with at most two blocks per SM of a large GPU. */
static uint32_t blocks_for(uint64_t n_words)
{
	uint64_t n = (n_words + 4 * GPU_THREADS - 1) / (4 * GPU_THREADS);

	return n > 256 ? 256 : n ? (uint32_t)n : 1;
}

void gpu_fill(struct gpu *gpu, enum gpu_stream stream, const struct gpu_words *words)
{
	struct gpu_words copy = *words;
	void *arguments[] = { &copy.p, &copy.n_words, &copy.seed };

	launch(gpu, stream, "cei_kernel_fill", blocks_for(copy.n_words), arguments);
}

void gpu_verify(struct gpu *gpu, enum gpu_stream stream, const struct gpu_words *words,
		uint32_t result)
{
	struct gpu_words copy = *words;
	unsigned long long *n_wrong = &gpu->results[result].n_wrong;
	unsigned long long *first_wrong = &gpu->results[result].first_wrong;
	void *arguments[] = { &copy.p, &copy.n_words, &copy.seed, &n_wrong, &first_wrong };

	launch(gpu, stream, "cei_kernel_verify", blocks_for(copy.n_words), arguments);
}

void gpu_check(struct gpu *gpu, const struct gpu_words *words)
{
	const uint32_t last = GPU_RESULTS - 1;
	struct gpu_result seen;

	gpu_reset(gpu, last);
	gpu_verify(gpu, GPU_CONTROL, words, last);
	seen = gpu_result(gpu, last);
	ck_assert_msg(!seen.n_wrong, "GPU %u: %llu of %llu words are wrong, the first is %llu",
		      gpu->index, seen.n_wrong, (unsigned long long)words->n_words,
		      seen.first_wrong);
}

void gpu_await(struct gpu *gpu, struct ceov_device_signal view,
	       const struct ceov_mark *mark, uint64_t timeout_ns, uint32_t result)
{
	struct cei_kernel_await await;

	memset(&await, 0, sizeof(await));
	await.signal = view;
	await.first = mark->index;
	await.n = 1;
	await.value = mark->value;
	await.timeout_ns = timeout_ns;
	await.ret_status = &gpu->results[result].status;
	gpu_launch(gpu, GPU_CONSUME, "cei_kernel_await", 1, &await);
}

/* --- results, and waiting for streams ------------------------------------ */

void gpu_reset(struct gpu *gpu, uint32_t result)
{
	*gpu->private->pinned = (struct gpu_result){ 0, UINT64_MAX, 0, 0 };
	gpu_move(gpu, &gpu->results[result], gpu->private->pinned,
		 sizeof(struct gpu_result));
}

struct gpu_result gpu_result(struct gpu *gpu, uint32_t result)
{
	gpu_move(gpu, gpu->private->pinned, &gpu->results[result],
		 sizeof(struct gpu_result));
	return *gpu->private->pinned;
}

static CUresult query(const struct gpu *gpu, enum gpu_stream stream, uint64_t deadline_ns)
{
	struct cei_cuda_hold hold;
	CUresult result;

	enter(gpu, &hold);
	result = cei_cuda_idle(gpu->private->cuda, gpu->streams[stream], deadline_ns);
	leave(gpu, &hold);
	return result;
}

void gpu_idle(struct gpu *gpu, enum gpu_stream stream)
{
	static const char *const names[] = { "produce", "consume", "wait", "control" };

	check(gpu, query(gpu, stream, cei_deadline(TESTING_PATIENCE)), names[stream]);
}

int gpu_is_idle(struct gpu *gpu, enum gpu_stream stream)
{
	CUresult result = query(gpu, stream, 0);

	if (result != CUDA_ERROR_NOT_READY)
		check(gpu, result, "cuStreamQuery");
	return result == CUDA_SUCCESS;
}
