/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The path where a group meets: taken for listening, and left with nothing behind.
 * A socket file whose process died is removed; a living one, or a file that is no
 * socket, is never touched. All this happens with the directory locked, so that of
 * two groups that start at one path at once, one gets it and the other is told.
 */

#include "ipc/meeting_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define BACKLOG       128
#define LOCK_RETRY_NS 1000000L

/* Returns an errno. */
static int open_directory(const char *path, int *ret_fd)
{
	char directory[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	const char *slash = strrchr(path, '/');
	size_t n_bytes = slash ? (size_t)(slash - path) : 0;

	memcpy(directory, path, n_bytes);
	directory[n_bytes] = 0;
	if (!n_bytes)
		strcpy(directory, slash ? "/" : ".");
	*ret_fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return *ret_fd < 0 ? errno : 0;
}

/* Returns an errno; EWOULDBLOCK: the deadline passed. */
static int lock_directory(int fd, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = LOCK_RETRY_NS };

	while (flock(fd, LOCK_EX | LOCK_NB)) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			return errno;
		if (cei_now_ns() >= deadline_ns)
			return EWOULDBLOCK;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Does somebody listen at the path? Returns connect()'s errno, 0 for yes. */
static int probe(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error = 0;

	if (fd < 0)
		return errno;
	if (connect(fd, (const struct sockaddr *)address, sizeof(*address)))
		error = errno;
	close(fd);
	return error;
}

static int raise_errno(struct cei_report *report, const char *path, int error)
{
	return cei_raise(report, CEOV_ERR_SYSTEM, error, "meeting at %s: %s", path,
			 strerror(error));
}

static int remove_stale(struct cei_report *report, const char *path)
{
	cei_log(report, CEI_LOG_INFO,
		"meeting at %s: removing a socket that nobody listens at", path);
	if (!unlink(path) || errno == ENOENT)
		return 0;
	return raise_errno(report, path, errno);
}

/* Leaves the path free, or raises why it is not. With the directory locked: nobody
 * else is between bind() and listen(). */
static int clear_path(struct cei_report *report, const char *path,
		      const struct sockaddr_un *address)
{
	struct stat stat;
	int error;

	if (lstat(path, &stat))
		return errno == ENOENT ? 0 : raise_errno(report, path, errno);
	if (!S_ISSOCK(stat.st_mode))
		return cei_raise(report, CEOV_ERR_STATE, EEXIST,
				 "meeting at %s: it exists and is no socket; choose "
				 "another path", path);
	error = probe(address);
	switch (error) {
	case ENOENT:
		return 0;
	case ECONNREFUSED:
		return remove_stale(report, path);
	case 0:
	case EAGAIN:            /* a full queue is life, */
	case EPROTOTYPE:        /* and so is a socket of another type */
		return cei_raise(report, CEOV_ERR_STATE, EADDRINUSE,
				 "another group is meeting at %s; choose another path",
				 path);
	default:
		return raise_errno(report, path, error);
	}
}

/* Returns an errno. */
static int bind_and_listen(struct cei_listener *listener,
			   const struct sockaddr_un *address)
{
	struct stat stat;

	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return errno;
	/* Before bind(), which gives the file the socket's mode: no moment passes in
	 * which others could connect. */
	if (fchmod(listener->fd, S_IRUSR | S_IWUSR))
		return errno;
	if (bind(listener->fd, (const struct sockaddr *)address, sizeof(*address)))
		return errno;
	listener->is_bound = 1;
	if (lstat(listener->path, &stat))
		return errno;
	listener->device = stat.st_dev;
	listener->inode = stat.st_ino;
	return listen(listener->fd, BACKLOG) ? errno : 0;
}

int cei_listener_open(struct cei_listener *listener, struct cei_report *report,
		      const char *path, uint64_t deadline_ns)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int directory_fd;
	int error;
	int r = 0;

	listener->path = path;
	listener->fd = -1;
	memcpy(address.sun_path, path, strlen(path));
	error = open_directory(path, &directory_fd);
	if (!error)
		error = lock_directory(directory_fd, deadline_ns);
	if (!error)
		r = clear_path(report, path, &address);
	if (!error && !r)
		error = bind_and_listen(listener, &address);
	cei_fd_close(directory_fd);     /* unlocks */
	if (error == EWOULDBLOCK)
		return cei_raise(report, CEOV_ERR_TIMEOUT, error,
				 "cannot listen at %s: its directory stayed locked",
				 path);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error,
				 "cannot listen at %s: %s", path, strerror(error));
	return r;
}

/* While we listen nobody takes the path over, so what has our inode is ours. */
void cei_listener_close(struct cei_listener *listener, struct cei_report *report)
{
	struct stat stat;

	if (listener->is_bound && !lstat(listener->path, &stat) &&
	    stat.st_dev == listener->device && stat.st_ino == listener->inode &&
	    unlink(listener->path))
		cei_log(report, CEI_LOG_WARN, "cannot remove %s: %s", listener->path,
			strerror(errno));
	listener->is_bound = 0;
	cei_fd_close(listener->fd);
	listener->fd = -1;
}
