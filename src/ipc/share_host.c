/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Regions in host memory. A created region is a sealed memfd, an adopted one is the application's
 * memory as it is, and an imported one is the memfd that came with an export. An imported memfd
 * must be sealed: if a peer could shrink it, an access here would end this process by SIGBUS. The
 * bootstrap sends and receives the descriptors.
 */

#include "ipc/share.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SEALS_NEEDED (F_SEAL_SHRINK | F_SEAL_GROW)

#define BLOCK_BYTES 512u                /* of st_blocks */

/* A signal makes fallocate() fail with nothing done. So pages are allocated in steps this short,
 * which succeed between two timer signals of a profiler. */
#define RESERVE_STEP_BYTES UINT64_C(0x200000)
#define RESERVE_TRIES_MAX  1000u

static uint32_t rank_of(const struct cei_region *region, uint32_t member)
{
	return region->site->members[member].rank;
}

static int reserve_step(int fd, uint64_t offset_bytes, uint64_t n_bytes)
{
	uint32_t n_tries;

	for (n_tries = 0; n_tries < RESERVE_TRIES_MAX; n_tries++) {
		if (!fallocate(fd, 0, (off_t)offset_bytes, (off_t)n_bytes))
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return EINTR;
}

/* Allocates the pages of the file now, when a lack of memory is an error. Later it would be a
 * SIGBUS. Returns an errno. */
static int reserve(int fd, uint64_t size_bytes)
{
	uint64_t offset_bytes = 0;
	uint64_t n_bytes;
	int error = 0;

	while (!error && offset_bytes < size_bytes) {
		n_bytes = size_bytes - offset_bytes;
		if (n_bytes > RESERVE_STEP_BYTES)
			n_bytes = RESERVE_STEP_BYTES;
		error = reserve_step(fd, offset_bytes, n_bytes);
		offset_bytes += n_bytes;
	}
	return error;
}

static int map_here(struct cei_region *region)
{
	void *host = mmap(NULL, region->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			  region->fd, 0);

	if (host == MAP_FAILED)
		return errno;
	region->host = host;
	return 0;
}

/* Returns whether the size exceeds the machine's memory. This is checked before reserve(), which
 * would otherwise use up the memory of all other processes before it fails. */
static int is_beyond_machine(uint64_t size_bytes)
{
	struct sysinfo machine;
	uint64_t n_units;

	if (sysinfo(&machine))
		return 0;
	n_units = (uint64_t)machine.totalram + machine.totalswap;
	return size_bytes / machine.mem_unit >= n_units;
}

/* Returns whether the process may not have files of this size: ftruncate() would end it by
 * SIGXFSZ. */
static int is_beyond_files(uint64_t size_bytes)
{
	struct rlimit limit;

	return !getrlimit(RLIMIT_FSIZE, &limit) && size_bytes > limit.rlim_cur;
}

/* Creates the region's memfd, sealed and with its pages allocated. Returns an errno. */
static int make_memfd(struct cei_region *region)
{
	struct stat stat;
	int error;

	if (is_beyond_machine(region->size_bytes))
		return ENOMEM;
	if (is_beyond_files(region->size_bytes))
		return EFBIG;
	region->fd = memfd_create("ceoverlap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (region->fd < 0)
		return errno;
	if (ftruncate(region->fd, (off_t)region->size_bytes))
		return errno;
	error = reserve(region->fd, region->size_bytes);
	if (error)
		return error;
	if (fcntl(region->fd, F_ADD_SEALS, SEALS_NEEDED | F_SEAL_SEAL))
		return errno;
	if (fstat(region->fd, &stat))
		return errno;
	region->buffer_id = (uint64_t)stat.st_ino;
	return map_here(region);
}

static void begin(struct cei_region *region, enum cei_region_origin origin,
		  uint64_t size_bytes)
{
	region->origin = origin;
	region->kind = CEOV_PLACE_HOST;
	region->gpu = CEOV_NOBODY;
	region->size_bytes = size_bytes;
	region->fd = -1;
	region->instance[0] = region->site->instance[0];
	region->instance[1] = region->site->instance[1];
}

static int host_create(struct cei_region *region, uint32_t member, uint64_t size_bytes)
{
	struct cei_report *report = region->site->report;
	int error;

	if (!size_bytes || size_bytes > (uint64_t)INT64_MAX)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "rank %u: cannot create host memory of %llu bytes",
				 rank_of(region, member), (unsigned long long)size_bytes);
	begin(region, CEI_REGION_CREATED, size_bytes);
	error = make_memfd(region);
	if (!error)
		return 0;
	return cei_raise(report, error == ENOMEM || error == ENOSPC ?
			 CEOV_ERR_NO_MEMORY : CEOV_ERR_SYSTEM, error,
			 "rank %u: creating %llu bytes of shareable host memory: %s",
			 rank_of(region, member), (unsigned long long)size_bytes,
			 strerror(error));
}

/* Whether the process has mapped all of the range: a copy from or to the rest would end it. msync()
 * looks for that and, with this flag, does nothing else. */
static int is_mapped(const void *base, uint64_t size_bytes)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)base / page * page;

	return !msync((void *)begin, (uintptr_t)base - begin + size_bytes, MS_ASYNC) ||
		errno != ENOMEM;
}

/* Whether a thread can read the byte: it may lie behind a file's end, or in a range that was only
 * reserved. The kernel reads the word around it as the thread would, with a failure in place of a
 * signal, and does not sleep: its timeout is 0. process_vm_readv() would fail for pinned memory,
 * too, where a driver has mapped it. */
static int is_readable(uintptr_t at)
{
	const struct timespec now = { 0, 0 };

	return !syscall(SYS_futex, at - at % sizeof(uint32_t), FUTEX_WAIT_PRIVATE, 0, &now, NULL,
			0) || errno != EFAULT;
}

/* Returns what is wrong with the caller's memory, or NULL. All of it has to be mapped; of what is,
 * the ends are looked at. */
static const char *fault_of_own(const void *base, uint64_t size_bytes)
{
	if (!is_mapped(base, size_bytes))
		return "has not mapped all of it";
	if (!is_readable((uintptr_t)base) || !is_readable((uintptr_t)base + size_bytes - 1))
		return "cannot read its first or its last byte";
	return NULL;
}

static int host_adopt(struct cei_region *region, uint32_t member, void *base,
		      uint64_t size_bytes)
{
	const char *fault;

	if (!base || !size_bytes || size_bytes > UINTPTR_MAX - (uintptr_t)base)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "rank %u: cannot register host memory at %p, %llu bytes",
				 rank_of(region, member), base,
				 (unsigned long long)size_bytes);
	fault = fault_of_own(base, size_bytes);
	if (fault)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "rank %u: cannot register host memory at %p, %llu bytes: this "
				 "process %s", rank_of(region, member), base,
				 (unsigned long long)size_bytes, fault);
	begin(region, CEI_REGION_ADOPTED, size_bytes);
	region->host = base;
	return 0;
}

static int host_export(struct cei_region *region, struct cei_region_wire *ret_wire,
		       int *ret_fd)
{
	if (region->origin == CEI_REGION_ADOPTED)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "ordinary host memory (%p, %llu bytes) cannot be "
				 "shared with other processes; memory of "
				 "ceov_buffer_create() can",
				 region->host, (unsigned long long)region->size_bytes);
	if (region->origin != CEI_REGION_CREATED)
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "memory that belongs to another process can only be "
				 "shared by that process");
	cei_region_fill_wire(region, ret_wire);
	ret_wire->pid = (uint64_t)getpid();
	*ret_fd = region->fd;
	return 0;
}

const char *cei_share_host_fault(int fd, struct stat *ret_stat)
{
	struct statfs filesystem;
	int seals;

	if (fd < 0 || fstat(fd, ret_stat) || fstatfs(fd, &filesystem))
		return "no descriptor came with it";
	if (filesystem.f_type != TMPFS_MAGIC || !S_ISREG(ret_stat->st_mode) ||
	    ret_stat->st_size <= 0)
		return "its descriptor is no memory file (memfd)";
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || (seals & SEALS_NEEDED) != SEALS_NEEDED)
		return "its descriptor is no sealed memory file";
	if ((uint64_t)ret_stat->st_blocks * BLOCK_BYTES < (uint64_t)ret_stat->st_size)
		return "its memory file has no memory for all of its bytes (fallocate)";
	return NULL;
}

/* Returns why the descriptor is not valid host memory of this size, in words; NULL: it is. */
static const char *fault_of(const struct cei_region_wire *wire, int fd, struct stat *ret_stat)
{
	const char *fault;

	if (wire->kind != CEOV_PLACE_HOST || !wire->has_fd || wire->offset_bytes)
		return "it does not describe host memory";
	fault = cei_share_host_fault(fd, ret_stat);
	if (fault)
		return fault;
	if ((uint64_t)ret_stat->st_size != wire->size_bytes)
		return "its size is not the memory file's";
	if ((uint64_t)ret_stat->st_ino != wire->buffer_id)
		return "its descriptor is another memory file";
	return NULL;
}

static int host_import(struct cei_region *region, const struct cei_region_wire *wire,
		       int fd)
{
	struct stat stat;
	const char *fault = fault_of(wire, fd, &stat);
	int error;

	if (fault) {
		if (fd >= 0)
			close(fd);
		return cei_raise(region->site->report, CEOV_ERR_INVALID, 0,
				 "host memory exported by process %llu is refused: %s",
				 (unsigned long long)wire->pid, fault);
	}
	begin(region, CEI_REGION_IMPORTED, wire->size_bytes);
	region->buffer_id = wire->buffer_id;
	region->instance[0] = wire->instance[0];
	region->instance[1] = wire->instance[1];
	region->file_device = (uint64_t)stat.st_dev;
	region->fd = fd;
	error = map_here(region);
	/* The descriptor is mostly not needed any more, because the mapping keeps the file. */
	if (error || !region->site->keeps_files) {
		close(fd);
		region->fd = -1;
	}
	if (error)
		return cei_raise(region->site->report, error == ENOMEM ?
				 CEOV_ERR_NO_MEMORY : CEOV_ERR_SYSTEM, error,
				 "mapping %llu bytes of host memory of process %llu: %s",
				 (unsigned long long)wire->size_bytes,
				 (unsigned long long)wire->pid, strerror(error));
	return 0;
}

static int host_is_same(const struct cei_region *region, int fd)
{
	struct stat stat;

	return fd >= 0 && !fstat(fd, &stat) &&
	       (uint64_t)stat.st_ino == region->buffer_id &&
	       (uint64_t)stat.st_dev == region->file_device;
}

static void host_release(struct cei_region *region)
{
	if (region->origin == CEI_REGION_NONE)
		return;
	if (region->origin != CEI_REGION_ADOPTED && region->host)
		munmap(region->host, region->size_bytes);
	region->host = NULL;
	if (region->fd >= 0)
		close(region->fd);
	region->fd = -1;
}

/* Returns 0 always, because the system cannot tell whether the memory at an address was
 * replaced. */
static int host_check(struct cei_region *region)
{
	(void)region;
	return 0;
}

/* Maps the region for a member on the host. */
static int host_map(struct cei_region *region, uint32_t member)
{
	region->address[member] = region->kind == CEOV_PLACE_HOST ?
				  (uint64_t)(uintptr_t)region->host : 0;
	return 0;
}

static void host_unmap(struct cei_region *region, uint32_t member)
{
	region->address[member] = 0;
}

/* Memory that was registered has no file. */
static int host_is_shareable(struct cei_region *region)
{
	return region->fd >= 0;
}

const struct cei_share_ops cei_share_host = {
	.create  = host_create,
	.adopt   = host_adopt,
	.export  = host_export,
	.import  = host_import,
	.is_same = host_is_same,
	.is_shareable = host_is_shareable,
	.release = host_release,
	.check   = host_check,
	.map     = host_map,
	.unmap   = host_unmap,
};
