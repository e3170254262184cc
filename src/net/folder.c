/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The names and files of an exchange in a folder, as process 0 and the others use them. */

#include "net/folder_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define PAUSE_MAX_NS UINT64_C(20000000)

/* --- names ------------------------------------------------------------------------- */

void cei_folder_name_call(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES])
{
	snprintf(name, CEI_FOLDER_NAME_BYTES, "ceoverlap-%016" PRIx64 ".call",
		 exchange->group);
}

void cei_folder_name_run(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES])
{
	const struct cei_folder *folder = exchange->private;

	snprintf(name, CEI_FOLDER_NAME_BYTES, "ceoverlap-%016" PRIx64 ".%016" PRIx64 ".",
		 exchange->group, folder->run);
}

void cei_folder_name_part(const struct cei_exchange *exchange, uint32_t process,
			  char name[CEI_FOLDER_NAME_BYTES])
{
	const struct cei_folder *folder = exchange->private;

	snprintf(name, CEI_FOLDER_NAME_BYTES,
		 "ceoverlap-%016" PRIx64 ".%016" PRIx64 ".%u.%u", exchange->group, folder->run,
		 exchange->n_rounds, process);
}

void cei_folder_name_all(const struct cei_exchange *exchange, char name[CEI_FOLDER_NAME_BYTES])
{
	const struct cei_folder *folder = exchange->private;

	snprintf(name, CEI_FOLDER_NAME_BYTES,
		 "ceoverlap-%016" PRIx64 ".%016" PRIx64 ".%u.all", exchange->group, folder->run,
		 exchange->n_rounds);
}

/* --- files ------------------------------------------------------------------------- */

int cei_folder_raise(const struct cei_exchange *exchange, int error, const char *what)
{
	return cei_raise(exchange->config.report, CEOV_ERR_SYSTEM, error,
			 "the shared folder %s: cannot %s: %s", exchange->where, what,
			 strerror(error));
}

int cei_folder_write_as(const struct cei_exchange *exchange, const char *name,
			const void *bytes, uint64_t n_bytes, int failure)
{
	const struct cei_folder *folder = exchange->private;
	struct cei_folder_file file = { .head = {
		.error = failure, .group = exchange->group, .run = folder->run,
		.instance = folder->instance, .process = exchange->process,
		.n_processes = exchange->n_processes, .round = exchange->n_rounds,
	} };
	int error;

	file.bytes = (uint8_t *)(uintptr_t)bytes;       /* it is only read */
	file.n_bytes = n_bytes;
	error = cei_folder_write(folder->fd, name, &file);
	return error ? cei_folder_raise(exchange, error, "write a file") : 0;
}

/* Raises what is wrong with a file of process 0 or, in process 0, of another one. */
static int raise_file(const struct cei_exchange *exchange, const char *name, int error,
		      const struct cei_folder_head *head)
{
	if (error == CEOV_ERR_VERSION)
		return cei_raise(exchange->config.report, error, 0, "the file %s/%s is of "
				 "version %u, this process knows version %u: install one version "
				 "of ceoverlap on all nodes", exchange->where, name,
				 head->version, CEI_FOLDER_VERSION);
	if (error == CEOV_ERR_SYSTEM)
		return cei_folder_raise(exchange, errno, "read a file");
	if (error == CEOV_ERR_NO_MEMORY)
		return cei_raise(exchange->config.report, error, 0, "no memory to read %s",
				 name);
	return cei_raise(exchange->config.report, error, 0, "the file %s/%s is not one that a "
			 "process of this group and user has written: remove it",
			 exchange->where, name);
}

int cei_folder_read_as(const struct cei_exchange *exchange, const char *name, uint32_t process,
		       uint64_t limit, struct cei_folder_file *ret_file)
{
	const struct cei_folder *folder = exchange->private;
	const struct cei_folder_head *head = &ret_file->head;
	int r = cei_folder_read(folder->fd, name, limit, ret_file);

	if (r == CEOV_NONE)
		return r;
	if (r)
		return raise_file(exchange, name, r, head);
	if (head->group == exchange->group && head->run == folder->run &&
	    head->round == exchange->n_rounds && head->process == process)
		return 0;
	free(ret_file->bytes);
	return raise_file(exchange, name, CEOV_ERR_INVALID, head);
}

int cei_folder_write_part(struct cei_exchange *exchange, const void *own, uint32_t n_bytes)
{
	struct cei_folder *folder = exchange->private;

	cei_folder_name_part(exchange, exchange->process, folder->part);
	return cei_folder_write_as(exchange, folder->part, own, n_bytes, 0);
}

void cei_folder_remove_part(struct cei_exchange *exchange)
{
	struct cei_folder *folder = exchange->private;

	if (folder->part[0])
		(void)unlinkat(folder->fd, folder->part, 0);
	folder->part[0] = '\0';
}

void cei_folder_pause(uint64_t deadline_ns, uint64_t *pause_ns)
{
	uint64_t now_ns = cei_now_ns(), left_ns = deadline_ns > now_ns ? deadline_ns - now_ns : 0;
	uint64_t ns = *pause_ns < left_ns ? *pause_ns : left_ns;
	const struct timespec pause = { .tv_nsec = (long)ns };

	nanosleep(&pause, NULL);
	if (*pause_ns < PAUSE_MAX_NS)
		*pause_ns *= 2;
}

DIR *cei_folder_open_list(const struct cei_folder *folder)
{
	int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	return list;
}
