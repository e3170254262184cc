/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/common/port.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int port_reserve(char ret_store[PORT_STORE_BYTES])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1, error;
	socklen_t n_bytes = sizeof(address);

	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
	    !bind(fd, (const void *)&address, sizeof(address)) &&
	    !getsockname(fd, (void *)&address, &n_bytes)) {
		snprintf(ret_store, PORT_STORE_BYTES, "127.0.0.1:%u", ntohs(address.sin_port));
		return fd;
	}
	error = errno;
	if (fd >= 0)
		close(fd);
	errno = error;
	return -1;
}
