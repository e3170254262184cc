/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "net/folder_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/write.h"

#define MAGIC      UINT32_C(0x4c464543)         /* "CEFL" */
#define HEAD_BYTES (2u * 4u + 4u + 3u * 8u + 3u * 4u + 8u)

static void encode(const struct cei_folder_file *file, uint8_t bytes[HEAD_BYTES])
{
	struct cei_writer writer = cei_writer_on(bytes, HEAD_BYTES);

	cei_wire_put_u32(&writer, MAGIC);
	cei_wire_put_u32(&writer, CEI_FOLDER_VERSION);
	cei_wire_put_u32(&writer, (uint32_t)file->head.error);
	cei_wire_put_u64(&writer, file->head.group);
	cei_wire_put_u64(&writer, file->head.run);
	cei_wire_put_u64(&writer, file->head.instance);
	cei_wire_put_u32(&writer, file->head.process);
	cei_wire_put_u32(&writer, file->head.n_processes);
	cei_wire_put_u32(&writer, file->head.round);
	cei_wire_put_u64(&writer, file->n_bytes);
}

/* Magic and version are at the same place in every version. */
static int decode(const uint8_t bytes[HEAD_BYTES], struct cei_folder_file *ret_file)
{
	struct cei_reader reader = cei_reader_on(bytes, HEAD_BYTES);
	struct cei_folder_head *head = &ret_file->head;

	if (cei_wire_get_u32(&reader) != MAGIC)
		return CEOV_ERR_INVALID;
	head->version = cei_wire_get_u32(&reader);
	if (head->version != CEI_FOLDER_VERSION)
		return CEOV_ERR_VERSION;
	head->error = (int32_t)cei_wire_get_u32(&reader);
	head->group = cei_wire_get_u64(&reader);
	head->run = cei_wire_get_u64(&reader);
	head->instance = cei_wire_get_u64(&reader);
	head->process = cei_wire_get_u32(&reader);
	head->n_processes = cei_wire_get_u32(&reader);
	head->round = cei_wire_get_u32(&reader);
	ret_file->n_bytes = cei_wire_get_u64(&reader);
	return cei_reader_end(&reader);
}

int cei_folder_write(int folder_fd, const char *name, const struct cei_folder_file *file)
{
	char fresh[CEI_FOLDER_NAME_BYTES + 32];
	uint8_t head[HEAD_BYTES];
	int fd, error;

	snprintf(fresh, sizeof(fresh), "%s.%016llx.new", name,
		 (unsigned long long)file->head.instance);
	(void)unlinkat(folder_fd, fresh, 0);
	fd = openat(folder_fd, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
		    S_IRUSR | S_IWUSR);
	if (fd < 0)
		return errno;
	encode(file, head);
	error = cei_write_all(fd, head, sizeof(head));
	if (!error)
		error = cei_write_all(fd, file->bytes, file->n_bytes);
	if (!error && fsync(fd))
		error = errno;
	if (close(fd) && !error)        /* a full disk may show at the close only */
		error = errno;
	if (!error && renameat(folder_fd, fresh, folder_fd, name))
		error = errno;
	if (error)
		(void)unlinkat(folder_fd, fresh, 0);
	return error;
}

/* Reads up to n_bytes; CEOV_ERR_INVALID: the file has fewer. */
static int read_all(int fd, uint8_t *bytes, uint64_t n_bytes)
{
	ssize_t n;

	while (n_bytes) {
		n = read(fd, bytes, (size_t)n_bytes);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? CEOV_ERR_SYSTEM : CEOV_ERR_INVALID;
		bytes += n;
		n_bytes -= (uint64_t)n;
	}
	return 0;
}

static int read_file(int fd, uint64_t limit, struct cei_folder_file *ret_file)
{
	uint8_t head[HEAD_BYTES];
	struct stat about;
	int r;

	if (fstat(fd, &about))
		return CEOV_ERR_SYSTEM;
	if (!S_ISREG(about.st_mode) || about.st_uid != geteuid())
		return CEOV_ERR_INVALID;
	r = read_all(fd, head, sizeof(head));
	if (!r)
		r = decode(head, ret_file);
	if (r)
		return r;
	if (ret_file->n_bytes > limit ||
	    (uint64_t)about.st_size != HEAD_BYTES + ret_file->n_bytes)
		return CEOV_ERR_INVALID;
	ret_file->bytes = malloc(ret_file->n_bytes ? (size_t)ret_file->n_bytes : 1);
	if (!ret_file->bytes)
		return CEOV_ERR_NO_MEMORY;
	r = read_all(fd, ret_file->bytes, ret_file->n_bytes);
	if (r)
		free(ret_file->bytes);
	return r;
}

int cei_folder_read(int folder_fd, const char *name, uint64_t limit,
		    struct cei_folder_file *ret_file)
{
	int fd = openat(folder_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
			O_NOCTTY);
	int r, error;

	memset(ret_file, 0, sizeof(*ret_file));
	if (fd < 0)
		return errno == ENOENT || errno == ESTALE ? CEOV_NONE
		     : errno == ELOOP ? CEOV_ERR_INVALID : CEOV_ERR_SYSTEM;
	r = read_file(fd, limit, ret_file);
	error = errno;
	close(fd);
	errno = error;
	if (r == CEOV_ERR_SYSTEM && error == ESTALE)    /* NFS: it was replaced meanwhile */
		r = CEOV_NONE;
	return r;
}
