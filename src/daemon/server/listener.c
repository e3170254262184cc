/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Makes sockets, and removes what a daemon that was killed has left. */

#include "daemon/server/listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#define BACKLOG 128

static int raise_path(struct cei_report *report, const char *path, const char *what)
{
	return cei_raise(report, CEOV_ERR_SYSTEM, errno, "%s: %s: %s", path, what,
			 strerror(errno));
}

static int make_socket(int family, int type)
{
	return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Removes a socket's file that nobody listens at. */
static int remove_stale(struct cei_report *report, const struct cei_listener_path *ask,
			const struct sockaddr_un *address)
{
	int fd, is_used;
	struct stat stat;

	if (lstat(ask->path, &stat))
		return errno == ENOENT ? 0 : raise_path(report, ask->path, "cannot be looked at");
	fd = make_socket(AF_UNIX, ask->type);
	if (fd < 0)
		return raise_path(report, ask->path, "no socket");
	is_used = !S_ISSOCK(stat.st_mode) || stat.st_uid != geteuid() ||
		!connect(fd, (const struct sockaddr *)address, sizeof(*address)) ||
		errno != ECONNREFUSED;
	close(fd);
	if (is_used)
		return cei_raise(report, CEOV_ERR_STATE, EEXIST,
				 "%s: %s; end it, or choose another path", ask->path,
				 S_ISSOCK(stat.st_mode) ? "another daemon listens there"
				 : "something that is no socket is there");
	return unlink(ask->path) ? raise_path(report, ask->path, "cannot be removed") : 0;
}

/* The file is there from bind() on. */
static int open_to_others(struct cei_report *report, const struct cei_listener_path *ask, int fd)
{
	if (ask->group != CEI_LISTENER_NO_GROUP && chown(ask->path, (uid_t)-1, ask->group))
		return raise_path(report, ask->path, "its group cannot be set");
	if (chmod(ask->path, ask->mode))
		return raise_path(report, ask->path, "its mode cannot be set");
	return listen(fd, BACKLOG) ? raise_path(report, ask->path, "cannot listen") : 0;
}

/* The mask lets nobody connect in the moment before chmod(). */
int cei_listener_bind(struct cei_report *report, const struct cei_listener_path *ask,
		      int *ret_fd)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	mode_t mask;
	int r, fd;

	if (strlen(ask->path) >= sizeof(address.sun_path)) {
		errno = ENAMETOOLONG;
		return raise_path(report, ask->path, "the path of a socket has at most 107 bytes");
	}
	strcpy(address.sun_path, ask->path);
	r = remove_stale(report, ask, &address);
	if (r)
		return r;
	fd = make_socket(AF_UNIX, ask->type);
	if (fd < 0)
		return raise_path(report, ask->path, "no socket");
	mask = umask(0777);
	r = bind(fd, (const struct sockaddr *)&address, sizeof(address));
	umask(mask);
	if (r) {
		r = raise_path(report, ask->path, "cannot listen there");
		close(fd);
		return r;
	}
	r = open_to_others(report, ask, fd);
	if (r) {
		(void)unlink(ask->path);
		close(fd);
		return r;
	}
	*ret_fd = fd;
	return 0;
}

int cei_listener_take_passed(struct cei_report *report, int *ret_fd)
{
	int n = sd_listen_fds(0);

	if (n == 1 && sd_is_socket(SD_LISTEN_FDS_START, AF_UNIX, SOCK_SEQPACKET, 1) > 0) {
		(void)fcntl(SD_LISTEN_FDS_START, F_SETFL, O_NONBLOCK);
		*ret_fd = SD_LISTEN_FDS_START;
		return 0;
	}
	return cei_raise(report, CEOV_ERR_INVALID, 0,
			 "there is no socket: name its path with --socket or in the settings, "
			 "or have systemd pass one (ListenSequentialPacket=)");
}

int cei_listener_loopback(struct cei_report *report, uint32_t port, int *ret_fd)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int one = 1, r, fd = make_socket(AF_INET, SOCK_STREAM);

	address.sin_port = htons((uint16_t)port);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) &&
	    !bind(fd, (const struct sockaddr *)&address, sizeof(address)) &&
	    !listen(fd, BACKLOG)) {
		*ret_fd = fd;
		return 0;
	}
	r = cei_raise(report, CEOV_ERR_SYSTEM, errno, "port %u of 127.0.0.1: cannot listen: %s",
		      port, strerror(errno));
	if (fd >= 0)
		close(fd);
	return r;
}
