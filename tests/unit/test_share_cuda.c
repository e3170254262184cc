/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Tests what exports of GPU memory may claim. The driver is a fake with one GPU, whose memory is
 * one allocation of this process and one that an IPC handle opens.
 */

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cuda_table.h"
#include "ipc/share.h"
#include "testing.h"

#define OWN        UINT64_C(0x7000000000)       /* address of this process's allocation */
#define OWN_BYTES  UINT64_C(0x400000)
#define OPENED     UINT64_C(0x7100000000)       /* address at which a peer's allocation is
						 * opened */
#define PEER_BYTES UINT64_C(0x200000)
#define BUFFER_ID  17u

static struct cei_report report;
static struct cei_site site;
static struct cei_cuda cuda;
static struct cei_cuda_gpu gpu;
static struct cei_region region;
static struct cei_region_wire wire;             /* export of OWN */
static int n_open;                              /* number of open IPC handles */
static int is_dumb;                             /* the driver does not report address ranges */

/* --- the fake driver --------------------------------------------------------- */

static CUresult retain(CUcontext *context, CUdevice device)
{
	(void)device;
	*context = (CUcontext)&gpu;
	return CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
	return context == (CUcontext)&gpu ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult pop(CUcontext *context)
{
	*context = (CUcontext)&gpu;
	return CUDA_SUCCESS;
}

static CUresult mode_of(CUstreamCaptureMode *mode)
{
	*mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
	return CUDA_SUCCESS;
}

static int is_own(CUdeviceptr address)
{
	return address >= OWN && address < OWN + OWN_BYTES;
}

static CUresult look_up(unsigned int n, CUpointer_attribute *attributes, void **values,
			CUdeviceptr address)
{
	unsigned int i;

	for (i = 0; i < n && is_own(address); i++) {
		if (attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
			*(unsigned int *)values[i] = CU_MEMORYTYPE_DEVICE;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)values[i] = 0;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
			*(CUdeviceptr *)values[i] = OWN;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
			*(size_t *)values[i] = OWN_BYTES;
		if (attributes[i] == CU_POINTER_ATTRIBUTE_BUFFER_ID)
			*(unsigned long long *)values[i] = BUFFER_ID;
	}
	return is_own(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult range_of(CUdeviceptr *start, size_t *n_bytes, CUdeviceptr address)
{
	if (is_dumb && !is_own(address))
		return CUDA_ERROR_NOT_FOUND;
	*start = is_own(address) ? OWN : OPENED;
	*n_bytes = is_own(address) ? OWN_BYTES : PEER_BYTES;
	return CUDA_SUCCESS;
}

static CUresult handle_of(CUipcMemHandle *handle, CUdeviceptr start)
{
	ck_assert_uint_eq(start, OWN);
	memset(handle, 0x5a, sizeof(*handle));
	return CUDA_SUCCESS;
}

static CUresult open_handle(CUdeviceptr *base, CUipcMemHandle handle, unsigned int flags)
{
	(void)handle;
	(void)flags;
	n_open++;
	*base = OPENED;
	return CUDA_SUCCESS;
}

static CUresult close_handle(CUdeviceptr base)
{
	ck_assert_uint_eq(base, OPENED);
	n_open--;
	return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *address, size_t n_bytes)
{
	ck_assert_uint_eq(n_bytes, OWN_BYTES);
	*address = OWN;
	return CUDA_SUCCESS;
}

static CUresult give_back(CUdeviceptr address)
{
	ck_assert_uint_eq(address, OWN);
	return CUDA_SUCCESS;
}

#define HOST_PAGES 8u

static uint8_t host_memory[HOST_PAGES * 4096u] __attribute__((aligned(4096)));
#define N_PINS 4u
static struct {                         /* ranges registered by cuMemHostRegister */
	const uint8_t *base;
	size_t         n_bytes;         /* 0: entry is unused */
} pins[N_PINS];
static size_t allocated_bytes;          /* size of the host memory that the driver itself allocated,
					 * at the begin */

static uint32_t n_pins(void)
{
	uint32_t i, n = 0;

	for (i = 0; i < N_PINS; i++)
		n += pins[i].n_bytes != 0;
	return n;
}

static CUresult pin(void *base, size_t n_bytes, unsigned int flags)
{
	const uint8_t *first = base;
	uint32_t i, free_one = N_PINS;

	(void)flags;
	if (first < host_memory + allocated_bytes)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < N_PINS; i++) {
		if (!pins[i].n_bytes)
			free_one = i;
		else if (first < pins[i].base + pins[i].n_bytes &&
			 pins[i].base < first + n_bytes)
			return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	}
	ck_assert_uint_lt(free_one, N_PINS);
	pins[free_one].base = first;
	pins[free_one].n_bytes = n_bytes;
	return CUDA_SUCCESS;
}

static CUresult unpin(void *base)
{
	uint32_t i;

	for (i = 0; i < N_PINS; i++)
		if (pins[i].n_bytes && pins[i].base == base)
			break;
	ck_assert_uint_lt(i, N_PINS);
	pins[i].n_bytes = 0;
	return CUDA_SUCCESS;
}

static CUresult host_range(const uint8_t *p, const uint8_t **start, size_t *n_bytes)
{
	uint32_t i;

	*start = host_memory;
	*n_bytes = allocated_bytes;
	if (p < host_memory + allocated_bytes)
		return CUDA_SUCCESS;
	for (i = 0; i < N_PINS; i++) {
		*start = pins[i].base;
		*n_bytes = pins[i].n_bytes;
		if (p >= *start && p < *start + *n_bytes)
			return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult address_of(CUdeviceptr *address, void *host, unsigned int flags)
{
	const uint8_t *start;
	size_t n_bytes;

	(void)flags;
	*address = (CUdeviceptr)(uintptr_t)host;
	return host_range(host, &start, &n_bytes);
}

static CUresult attribute_of(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
	const uint8_t *start;
	size_t n_bytes;

	if (attribute == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) {
		*(int *)value = is_own(address);
		return CUDA_SUCCESS;
	}
	if (host_range((const uint8_t *)(uintptr_t)address, &start, &n_bytes) != CUDA_SUCCESS)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
		*(CUdeviceptr *)value = (CUdeviceptr)(uintptr_t)start;
	else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
		*(size_t *)value = n_bytes;
	else
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult no_text(CUresult error, const char **text)
{
	(void)error;
	*text = "made up";
	return CUDA_SUCCESS;
}

static void fill_calls(struct cei_cuda_calls *calls)
{
	calls->error_name = no_text;
	calls->error_string = no_text;
	calls->primary_retain = retain;
	calls->ctx_push = push;
	calls->ctx_pop = calls->ctx_get = pop;
	calls->capture_mode = mode_of;
	calls->pointer_attributes = look_up;
	calls->pointer_attribute = attribute_of;
	calls->mem_range = range_of;
	calls->mem_alloc = allocate;
	calls->mem_free = give_back;
	calls->ipc_get = handle_of;
	calls->ipc_open = open_handle;
	calls->ipc_close = close_handle;
	calls->host_register = pin;
	calls->host_unregister = unpin;
	calls->host_address = address_of;
}

/* --- a site with one member on that GPU -------------------------------------- */

static void drop_line(void *log_arg, const char *line)
{
	(void)log_arg;
	(void)line;
}

static void set_up(void)
{
	struct cei_region own = { .site = &site };
	int fd;

	cei_report_init(&report, drop_line, NULL);
	fill_calls(&cuda.calls);
	cuda.report = &report;
	cuda.n_gpus = 1;
	cuda.gpus = &gpu;
	memset(&gpu.uuid, 9, sizeof(gpu.uuid));
	ck_assert_int_eq(pthread_mutex_init(&cuda.lock, NULL), 0);
	site.report = &report;
	site.cuda = &cuda;
	site.n_ranks = 2;
	site.n_members = 1;
	site.members[0].place.kind = CEOV_PLACE_GPU;
	region.site = &site;
	ck_assert_int_eq(cei_share_cuda.create(&own, 0, OWN_BYTES), 0);
	ck_assert_int_eq(cei_share_cuda.export(&own, &wire, &fd), 0);
	ck_assert_int_eq(fd, -1);
	cei_region_fini(&own);
}

static void tear_down(void)
{
	cei_region_fini(&region);
	ck_assert_int_eq(n_open, 0);
	pthread_mutex_destroy(&cuda.lock);
	cei_report_fini(&report);
}

static int take(void)
{
	struct ceov_failure failure;
	int r = cei_share_cuda.import(&region, &wire, -1);

	if (!r)
		r = cei_region_map_all(&region);
	ck_assert_int_eq(cei_report_take(&report, &failure), r ? 0 : CEOV_NONE);
	return r;
}

static void refused(void)
{
	ck_assert_int_eq(take(), CEOV_ERR_INVALID);
	ck_assert_uint_eq(region.address[0], 0);
	ck_assert_int_eq(n_open, 0);
	cei_region_fini(&region);
	region.site = &site;
}

/* Memory that another context of this process exports is used by its address. */
START_TEST(test_own_memory_is_used_by_its_address)
{
	wire.device += 4096;
	wire.offset_bytes += 4096;
	wire.size_bytes -= 4096;
	ck_assert_int_eq(take(), 0);
	ck_assert_uint_eq(region.address[0], OWN + 4096);
	ck_assert_int_eq(n_open, 0);
}
END_TEST

START_TEST(test_own_memory_is_what_the_driver_says)
{
	const struct cei_region_wire honest = wire;

	wire.device = 0x1234000;                /* an address without memory */
	refused();
	wire = honest;
	wire.device += 4096;                    /* beyond the end of the memory */
	refused();
	wire = honest;
	wire.size_bytes++;
	refused();
	wire = honest;
	wire.buffer_id++;                       /* an allocation that was freed */
	refused();
	wire = honest;
	wire.handle[63] ^= 1;                   /* a handle of memory that was never exported */
	refused();
	wire = honest;
	wire.offset_bytes = 1;
	wire.size_bytes--;
	refused();
	wire = honest;
	wire.uuid[0] ^= 1;                      /* a GPU that this process does not have */
	refused();
	wire = honest;
	ck_assert_int_eq(take(), 0);
}
END_TEST

START_TEST(test_a_peers_memory_is_as_large_as_its_allocation)
{
	wire.pid++;
	refused();                              /* the export claims OWN_BYTES, but the handle opens
						 * PEER_BYTES */
	wire.size_bytes = PEER_BYTES;
	wire.offset_bytes = 1;
	refused();
	wire.offset_bytes = UINT64_MAX - PEER_BYTES;
	refused();
	wire.offset_bytes = PEER_BYTES + 1;
	wire.size_bytes = 1;
	refused();
	wire.offset_bytes = PEER_BYTES - 1;
	ck_assert_int_eq(take(), 0);
	ck_assert_uint_eq(region.address[0], OPENED + PEER_BYTES - 1);
	ck_assert_int_eq(n_open, 1);
}
END_TEST

START_TEST(test_a_driver_that_does_not_tell_is_believed)
{
	is_dumb = 1;
	wire.pid++;
	ck_assert_int_eq(take(), 0);
	ck_assert_uint_eq(region.address[0], OPENED);
}
END_TEST

START_TEST(test_a_process_without_gpus_reaches_none)
{
	site.cuda = NULL;
	site.members[0].place.kind = CEOV_PLACE_HOST;
	ck_assert_int_eq(take(), 0);
	ck_assert_uint_eq(region.address[0], 0);
}
END_TEST

static void adopt(struct cei_region *made, uint64_t offset, uint64_t n_bytes)
{
	*made = (struct cei_region){ .site = &site };
	ck_assert_int_eq(cei_share_host.adopt(made, 0, host_memory + offset, n_bytes), 0);
}

static void refused_as(struct cei_region *made, int error)
{
	struct ceov_failure failure;

	ck_assert_int_eq(cei_region_map_all(made), error);
	ck_assert_int_eq(cei_report_take(&report, &failure), 0);
	cei_region_fini(made);
}

/* The first buffer ends in the page in which the second one begins. Each is registered separately,
 * because no copy may cross from one registration to another. */
START_TEST(test_host_buffers_share_a_page)
{
	struct cei_region first, second, within;

	adopt(&first, 4096, 5000);
	adopt(&second, 10000, 9000);
	adopt(&within, 11000, 100);
	ck_assert_int_eq(cei_region_map_all(&first), 0);
	ck_assert_int_eq(cei_region_map_all(&second), 0);
	ck_assert_int_eq(cei_region_map_all(&within), 0);
	ck_assert_uint_eq(second.address[0], (uintptr_t)host_memory + 10000);
	ck_assert_uint_eq(n_pins(), 2);
	cei_region_fini(&first);
	ck_assert_uint_eq(n_pins(), 1);
	cei_region_fini(&second);
	ck_assert_uint_eq(n_pins(), 1);
	cei_region_fini(&within);
	ck_assert_uint_eq(n_pins(), 0);
}
END_TEST

START_TEST(test_host_buffers_that_overlap_in_part_are_refused)
{
	struct cei_region first, across, around;

	adopt(&first, 4096, 5000);
	adopt(&across, 5000, 5000);
	adopt(&around, 4000, 6000);
	ck_assert_int_eq(cei_region_map_all(&first), 0);
	refused_as(&across, CEOV_ERR_INVALID);
	refused_as(&around, CEOV_ERR_INVALID);
	ck_assert_uint_eq(n_pins(), 1);
	cei_region_fini(&first);
	ck_assert_uint_eq(n_pins(), 0);
}
END_TEST

/* The buffer is a part of a larger block that the driver allocated, as PyTorch's pinned tensors
 * are. */
START_TEST(test_host_memory_of_the_driver_is_used_as_it_is)
{
	struct cei_region first, beyond;
	struct ceov_failure failure;

	allocated_bytes = 12000;
	adopt(&first, 4096, 5000);
	adopt(&beyond, 8192, 8192);
	ck_assert_int_eq(cei_region_map_all(&first), 0);
	ck_assert_uint_eq(first.address[0], (uintptr_t)host_memory + 4096);
	ck_assert_uint_eq(n_pins(), 0);
	cei_region_fini(&first);
	ck_assert_int_eq(cei_report_take(&report, &failure), CEOV_NONE);
	refused_as(&beyond, CEOV_ERR_CUDA);
	allocated_bytes = 0;
}
END_TEST

START_TEST(test_host_memory_of_the_application_is_used_as_it_is)
{
	struct cei_region first, beyond;

	ck_assert_int_eq((int)pin(host_memory + 4000, 6000, 0), (int)CUDA_SUCCESS);
	adopt(&first, 4096, 5000);
	adopt(&beyond, 9000, 5000);
	ck_assert_int_eq(cei_region_map_all(&first), 0);
	ck_assert_uint_eq(first.address[0], (uintptr_t)host_memory + 4096);
	cei_region_fini(&first);
	refused_as(&beyond, CEOV_ERR_INVALID);
	ck_assert_uint_eq(n_pins(), 1);
	ck_assert_int_eq((int)unpin(host_memory + 4000), (int)CUDA_SUCCESS);
}
END_TEST

static Suite *suite(void)
{
	Suite *made = suite_create("share_cuda");
	TCase *all = tcase_create("exports");

	tcase_add_checked_fixture(all, set_up, tear_down);
	tcase_add_test(all, test_own_memory_is_used_by_its_address);
	tcase_add_test(all, test_own_memory_is_what_the_driver_says);
	tcase_add_test(all, test_a_peers_memory_is_as_large_as_its_allocation);
	tcase_add_test(all, test_a_driver_that_does_not_tell_is_believed);
	tcase_add_test(all, test_a_process_without_gpus_reaches_none);
	tcase_add_test(all, test_host_buffers_share_a_page);
	tcase_add_test(all, test_host_buffers_that_overlap_in_part_are_refused);
	tcase_add_test(all, test_host_memory_of_the_driver_is_used_as_it_is);
	tcase_add_test(all, test_host_memory_of_the_application_is_used_as_it_is);
	suite_add_tcase(made, all);
	return made;
}

int main(void)
{
	return testing_run(suite());
}
