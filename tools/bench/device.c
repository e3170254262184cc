/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Devices of ranks: the implementation on host memory, and the choice between it and the GPU. */

#include "tools/bench/device.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench/children.h"
#include "tools/bench/values.h"
#include "config.h"

struct bench_device {
	const struct bench_device_ops *ops;
	void                          *private;
};

/* Computes the same pattern as the GPU kernels do, so that each can check the other's data. */
static uint64_t pattern(uint64_t seed, uint64_t i)
{
	uint64_t x = (seed + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static int host_open(void **ret_private, uint32_t ordinal)
{
	(void)ordinal;
	*ret_private = NULL;
	return 0;
}

static void host_close(void *private)
{
	(void)private;
}

static uint32_t host_n_sms(void *private)
{
	(void)private;
	return 0;
}

static int host_fill(void *private, void *at, uint64_t n_bytes, uint64_t seed)
{
	uint64_t *words = at, i;

	(void)private;
	for (i = 0; i < n_bytes / 8; i++)
		words[i] = pattern(seed, i);
	return 0;
}

static int host_verify(void *private, const void *at, uint64_t n_bytes, uint64_t seed,
		       uint64_t *ret_n_wrong)
{
	const uint64_t *words = at;
	uint64_t i, n_wrong = 0;

	(void)private;
	for (i = 0; i < n_bytes / 8; i++)
		n_wrong += words[i] != pattern(seed, i);
	*ret_n_wrong = n_wrong;
	return 0;
}

/* Allocates with the alignment that operators require. */
static int host_allocate(void *private, uint64_t n_bytes, void **ret_at)
{
	(void)private;
	return posix_memalign(ret_at, 64, n_bytes ? n_bytes : 64) ? CEOV_ERR_NO_MEMORY : 0;
}

static void host_release(void *private, void *at)
{
	(void)private;
	free(at);
}

static int host_values(void *private, const struct bench_values *values)
{
	(void)private;
	bench_host_values(values);
	return 0;
}

static int host_compare(void *private, struct bench_compare *compare)
{
	(void)private;
	bench_host_compare(compare);
	return 0;
}

static const struct bench_device_ops host_ops = {
	.n_sms          = host_n_sms,
	.open     = host_open,
	.close    = host_close,
	.fill     = host_fill,
	.verify   = host_verify,
	.allocate = host_allocate,
	.release  = host_release,
	.values   = host_values,
	.compare  = host_compare,
};

int bench_device_open(struct bench_device **ret_device, int is_gpu, uint32_t gpu)
{
	struct bench_device *device = calloc(1, sizeof(*device));

	if (!device)
		return CEOV_ERR_NO_MEMORY;
	*ret_device = device;
	device->ops = &host_ops;
#if HAVE_CUDA
	if (is_gpu)
		device->ops = &bench_device_cuda;
#else
	(void)is_gpu;
#endif
	return device->ops->open(&device->private, gpu);
}

void bench_device_close(struct bench_device *device)
{
	if (device)
		device->ops->close(device->private);
	free(device);
}

int bench_fill(struct bench_device *device, void *at, uint64_t n_bytes, uint64_t seed)
{
	return device->ops->fill(device->private, at, n_bytes, seed);
}

int bench_verify(struct bench_device *device, const void *at, uint64_t n_bytes,
		 uint64_t seed, uint64_t *ret_n_wrong)
{
	return device->ops->verify(device->private, at, n_bytes, seed, ret_n_wrong);
}

int bench_allocate(struct bench_device *device, uint64_t n_bytes, void **ret_at)
{
	return device->ops->allocate(device->private, n_bytes, ret_at);
}

void bench_release(struct bench_device *device, void *at)
{
	device->ops->release(device->private, at);
}

int bench_make_values(struct bench_device *device, const struct bench_values *values)
{
	return device->ops->values(device->private, values);
}

int bench_compare(struct bench_device *device, struct bench_compare *compare)
{
	return device->ops->compare(device->private, compare);
}

void *bench_stream(struct bench_device *device, enum bench_stream which)
{
	return device->ops->stream(device->private, which);
}

int bench_stream_sync(struct bench_device *device, enum bench_stream which)
{
	return device->ops->sync(device->private, which);
}

int bench_stream_follow(struct bench_device *device, enum bench_stream later,
			enum bench_stream earlier)
{
	return device->ops->follow(device->private, later, earlier);
}

int bench_time_begin(struct bench_device *device)
{
	return device->ops->time_begin(device->private);
}

int bench_time_end(struct bench_device *device)
{
	return device->ops->time_end(device->private);
}

int bench_time_us(struct bench_device *device, double *ret_us)
{
	return device->ops->time_us(device->private, ret_us);
}

int bench_raw_copies(struct bench_device *device, enum bench_stream which,
		     const struct bench_copy *copies, uint32_t n_copies)
{
	return device->ops->copies(device->private, which, copies, n_copies);
}

int bench_raw_flags(struct bench_device *device, enum bench_stream which,
		    void *const *flags, uint32_t n_flags, uint64_t value)
{
	return device->ops->flags(device->private, which, flags, n_flags, value);
}

int bench_raw_waits(struct bench_device *device, enum bench_stream which,
		    void *const *flags, uint32_t n_flags, uint64_t value)
{
	return device->ops->waits(device->private, which, flags, n_flags, value);
}

int bench_pingpong_start(struct bench_device *device, const struct bench_pingpong *game)
{
	return device->ops->pingpong_start(device->private, game);
}

int bench_pingpong_wait(struct bench_device *device, uint32_t n_rounds, double *ret_us)
{
	return device->ops->pingpong_wait(device->private, n_rounds, ret_us);
}

uint32_t bench_n_sms(struct bench_device *device)
{
	return device->ops->n_sms(device->private);
}

int bench_spin_start(struct bench_device *device)
{
	return device->ops->spin_start(device->private);
}

int bench_spin_stop(struct bench_device *device)
{
	return device->ops->spin_stop(device->private);
}

int bench_capture_begin(struct bench_device *device)
{
	return device->ops->capture_begin(device->private);
}

int bench_capture_end(struct bench_device *device, void **ret_graph)
{
	return device->ops->capture_end(device->private, ret_graph);
}

int bench_graph_launch(struct bench_device *device, void *graph)
{
	return device->ops->graph_launch(device->private, graph);
}

void bench_graph_drop(struct bench_device *device, void *graph)
{
	device->ops->graph_drop(device->private, graph);
}

/* --- counting GPUs ------------------------------------------------------- */

struct counted {
	uint32_t n_gpus;
	char     machine[256];
};

static void count(struct counted *counted)
{
#if HAVE_CUDA
	counted->n_gpus = bench_device_cuda.count(counted->machine,
						  sizeof(counted->machine));
#else
	snprintf(counted->machine, sizeof(counted->machine), "built without CUDA");
#endif
}

uint32_t bench_count_gpus(char *ret_machine, size_t n_bytes)
{
	struct counted *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct counted counted = { 0, "not known" };
	pid_t parent = getpid(), child;

	if (shared != MAP_FAILED) {
		fflush(NULL);
		child = fork();
		if (!child) {
			bench_child_follow(parent);
			count(shared);
			_exit(EXIT_SUCCESS);
		}
		if (child > 0 && waitpid(child, NULL, 0) == child)
			counted = *shared;
		munmap(shared, sizeof(*shared));
	}
	snprintf(ret_machine, n_bytes, "%s", counted.machine);
	return counted.n_gpus;
}
