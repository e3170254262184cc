/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Queries about this process. */

#include "base/site.h"

#include <fcntl.h>
#include <unistd.h>

/* A random text that the kernel makes at each start of the machine. */
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

/* Hashes the text by FNV-1a. If the file cannot be read, all processes get the same number. */
uint64_t cei_site_own_node(void)
{
	uint64_t node = UINT64_C(14695981039346656037);
	int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t i, n;

	if (fd < 0)
		return node;
	n = read(fd, text, sizeof(text));
	close(fd);
	for (i = 0; i < n; i++)
		node = (node ^ (unsigned char)text[i]) * UINT64_C(1099511628211);
	return node ? node : 1;
}

uint32_t cei_site_n_on_gpu(const struct cei_site *site, uint32_t gpu)
{
	uint32_t i, n = 0;

	for (i = 0; i < site->n_members; i++)
		n += site->members[i].place.kind == CEOV_PLACE_GPU &&
		     site->members[i].place.index == gpu;
	return n;
}
