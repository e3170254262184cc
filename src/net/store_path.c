/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Creates the socket file of a group for listening, and removes it. A socket file is replaced if
 * the process that created it has died. If that process lives, or if the file is not a socket, the
 * file is never touched. A lock makes sure that of two groups that start at one path at the same
 * time one gets the path and the other one gets an error.
 *
 * The lock is on a separate file beside the path. Other users cannot open that file, so they cannot
 * lock it; the folder itself they could lock for ever if they can read it. The lock file exists
 * only while the socket file is being created. If a process dies and leaves a lock file behind, the
 * next process reuses and removes that file.
 */

#include "net/store_path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
#define LOCK_SUFFIX   ".lock"

struct path_lock {
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + sizeof(LOCK_SUFFIX)];
	int  fd;                        /* -1: not locked */
};

/* Checks that no other user can have locked the file. In a shared folder its name may belong to
 * another user's file, or to one that is not a regular file; then an error is raised. */
static int check_lock_file(struct cei_report *report, const struct path_lock *lock)
{
	struct stat stat;

	if (fstat(lock->fd, &stat))
		return cei_raise(report, CEOV_ERR_SYSTEM, errno, "%s: %s", lock->path,
				 strerror(errno));
	if (S_ISREG(stat.st_mode) && stat.st_uid == geteuid())
		return 0;
	return cei_raise(report, CEOV_ERR_STATE, EEXIST,
			 "%s: the group's lock has to be a file of user %u, and this is %s of "
			 "user %u; choose another path, best in a folder that is yours alone",
			 lock->path, (unsigned)geteuid(),
			 S_ISREG(stat.st_mode) ? "one" : "something else",
			 (unsigned)stat.st_uid);
}

/* Opens the lock file without blocking or following a link, because a file of any kind may have its
 * name. */
static int open_lock_file(struct cei_report *report, struct path_lock *lock)
{
	int r;

	lock->fd = open(lock->path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK |
			O_NOCTTY, S_IRUSR | S_IWUSR);
	if (lock->fd < 0)
		return cei_raise(report, CEOV_ERR_SYSTEM, errno,
				 "the group cannot meet at %.*s, whose lock cannot be opened "
				 "there: %s; its folder must exist and be this user's to write",
				 (int)(strlen(lock->path) - strlen(LOCK_SUFFIX)), lock->path,
				 strerror(errno));
	r = check_lock_file(report, lock);
	if (r) {
		close(lock->fd);
		lock->fd = -1;
	}
	return r;
}

/* Returns whether the lock file still has its name. A process that releases the lock removes the
 * name, and a lock on a file without a name excludes nobody. */
static int has_name(const struct path_lock *lock)
{
	struct stat named, locked;

	return !lstat(lock->path, &named) && !fstat(lock->fd, &locked) &&
	       named.st_dev == locked.st_dev && named.st_ino == locked.st_ino;
}

static void unlock(struct path_lock *lock)
{
	if (lock->fd < 0)
		return;
	unlink(lock->path);             /* before the lock ends, so that no process locks a file
					 * that has lost its name */
	close(lock->fd);
	lock->fd = -1;
}

/* Takes the lock, for which it waits until the deadline. Errors are raised. */
static int take_lock(struct cei_report *report, struct path_lock *lock, uint64_t deadline_ns)
{
	const struct timespec pause = { .tv_nsec = LOCK_RETRY_NS };
	int r, error;

	for (;;) {
		r = open_lock_file(report, lock);
		if (r)
			return r;
		error = flock(lock->fd, LOCK_EX | LOCK_NB) ? errno : 0;
		if (!error && has_name(lock))
			return 0;
		close(lock->fd);
		lock->fd = -1;
		if (error && error != EWOULDBLOCK && error != EINTR)
			return cei_raise(report, CEOV_ERR_SYSTEM, error, "locking %s: %s",
					 lock->path, strerror(error));
		if (cei_now_ns() >= deadline_ns)
			return cei_raise(report, CEOV_ERR_TIMEOUT, EWOULDBLOCK,
					 "another process of this user holds %s and does not "
					 "give it back: is it stopped?", lock->path);
		nanosleep(&pause, NULL);
	}
}

/* Connects, to find out whether a process listens. Returns 0 if one does, else connect()'s
 * errno. */
static int probe(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
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
	return cei_raise(report, CEOV_ERR_SYSTEM, error, "group at %s: %s", path,
			 strerror(error));
}

static int remove_stale(struct cei_report *report, const char *path)
{
	cei_log(report, CEI_LOG_INFO,
		"group at %s: removing a socket that nobody listens at", path);
	if (!unlink(path) || errno == ENOENT)
		return 0;
	return raise_errno(report, path, errno);
}

/* Removes the socket file of a process that has died, or raises why the path is not free. Because
 * the lock is held, no other process of this user is between bind() and listen(). */
static int clear_path(struct cei_report *report, const char *path,
		      const struct sockaddr_un *address)
{
	struct stat stat;
	int error;

	if (lstat(path, &stat))
		return errno == ENOENT ? 0 : raise_errno(report, path, errno);
	if (!S_ISSOCK(stat.st_mode))
		return cei_raise(report, CEOV_ERR_STATE, EEXIST,
				 "group at %s: it exists and is no socket; choose "
				 "another path", path);
	error = probe(address);
	switch (error) {
	case ENOENT:
		return 0;
	case ECONNREFUSED:
		return remove_stale(report, path);
	case 0:                 /* a process listens */
	case EAGAIN:            /* a process listens, and its queue is full */
	case EPROTOTYPE:        /* a process uses a socket of another type */
		return CEOV_NONE;
	default:
		return raise_errno(report, path, error);
	}
}

/* Binds the socket to the path and listens. Returns an errno. */
static int bind_and_listen(struct cei_store_path *at, const struct sockaddr_un *address)
{
	struct stat stat;

	at->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (at->fd < 0)
		return errno;
	/* The file gets its mode at bind(), so this comes before: at no time can other users
	 * connect. */
	if (fchmod(at->fd, S_IRUSR | S_IWUSR))
		return errno;
	if (bind(at->fd, (const struct sockaddr *)address, sizeof(*address)))
		return errno;
	at->is_bound = 1;
	if (lstat(at->path, &stat))
		return errno;
	at->device = stat.st_dev;
	at->inode = stat.st_ino;
	return listen(at->fd, BACKLOG) ? errno : 0;
}

int cei_store_path_open(struct cei_store_path *at, struct cei_report *report, const char *path,
			uint64_t deadline_ns)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct path_lock lock = { .fd = -1 };
	int error = 0;
	int r;

	at->path = path;
	at->fd = -1;
	memcpy(address.sun_path, path, strlen(path));
	snprintf(lock.path, sizeof(lock.path), "%s" LOCK_SUFFIX, path);
	r = take_lock(report, &lock, deadline_ns);
	if (!r)
		r = clear_path(report, path, &address);
	if (!r)
		error = bind_and_listen(at, &address);
	unlock(&lock);
	if (error)
		return cei_raise(report, CEOV_ERR_SYSTEM, error,
				 "cannot listen at %s: %s", path, strerror(error));
	return r;
}

/* Removes the file only if it still is the one that we bound: no other group replaces it while we
 * listen. */
void cei_store_path_close(struct cei_store_path *at, struct cei_report *report)
{
	struct stat stat;

	if (at->is_bound && !lstat(at->path, &stat) &&
	    stat.st_dev == at->device && stat.st_ino == at->inode &&
	    unlink(at->path))
		cei_log(report, CEI_LOG_WARN, "cannot remove %s: %s", at->path,
			strerror(errno));
	at->is_bound = 0;
	if (at->fd >= 0)
		close(at->fd);
	at->fd = -1;
}
