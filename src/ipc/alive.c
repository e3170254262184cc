/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Words in shared memory that tell of a process's death: areas, the thread that holds their words,
 * and readers.
 *
 * The robust list's head and nodes are in shared anonymous memory, though no other process uses it.
 * When memory lacks, Linux may take private pages from a process that it has killed before that
 * process's threads end (the OOM reaper, process_mrelease(2)); then the list would be gone by the
 * time at which the kernel walks it. It takes no shared pages.
 */

#include "ipc/alive.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/clock.h"

#define RESERVE_TRIES_MAX 1000u

enum request { REQUEST_NONE, REQUEST_START, REQUEST_HOLD, REQUEST_LET_GO, REQUEST_END };

struct cei_alive {
	int                      is_open;       /* 0 in a forked child, as is all of this struct */
	struct cei_report       *report;
	struct robust_list_head *list;          /* changed by the thread alone */
	pthread_t                thread;
	pthread_mutex_t          callers;       /* one request at a time; taken before `lock` */
	pthread_mutex_t          lock;          /* guards what follows */
	pthread_cond_t           asked;
	pthread_cond_t           answered;
	enum request             request;       /* NONE: the thread has carried it out */
	struct cei_alive_area   *area;          /* of the request */
	int                      result;        /* of the request */
	int                      seen_errno;    /* of a failed start */
	uint32_t                 seen_word;     /* what a word that was not taken held */
	uint32_t                 tid;           /* in this process's PID namespace */
	uint32_t                 n_held;
};

/* One page before each word. */
struct node {
	struct robust_list     robust;
	struct cei_alive_area *area;
};

static size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* --- areas --------------------------------------------------------------- */

/* Returns what is wrong with a file, or NULL. */
static const char *fault_of(int fd, size_t n_bytes)
{
	struct statfs system;
	struct stat stat;
	int seals;

	if (fstat(fd, &stat) || fstatfs(fd, &system))
		return "its descriptor cannot be looked at";
	/* A file of huge pages ends a process that touches it when no page is left. */
	if (!S_ISREG(stat.st_mode) || system.f_type != TMPFS_MAGIC)
		return "it is no memory file of ordinary pages";
	if (n_bytes < sizeof(uint32_t) || stat.st_size < 0 || (uint64_t)stat.st_size != n_bytes)
		return "its size is another one";
	seals = fcntl(fd, F_GET_SEALS);
	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return "it is not sealed against being made smaller";
	return NULL;
}

/* Allocates the page of the word, so that neither who takes the word nor the kernel at the holder's
 * death lacks memory for it. Returns an errno. */
static int reserve_word(int fd)
{
	uint32_t n_tries;

	/* Signals interrupt the call with nothing done. */
	for (n_tries = 0; n_tries < RESERVE_TRIES_MAX; n_tries++) {
		if (!fallocate(fd, 0, 0, (off_t)sizeof(uint32_t)))
			return 0;
		if (errno != EINTR)
			return errno;
	}
	return EINTR;
}

/* Replaces the begin of the room by a page for the node, and the rest by the file. Returns an
 * errno. */
static int fill_room(struct cei_alive_area *area, int fd)
{
	const int prot = area->is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
	int error = area->is_writable ? reserve_word(fd) : 0;

	if (error)
		return error;
	if (area->is_writable && mmap(area->room, page_bytes(), prot,
				      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return errno;
	if (mmap(area->memory, area->n_bytes, prot, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
		return errno;
	return 0;
}

static int raise_errno(struct cei_report *report, int error, const char *what)
{
	return cei_raise(report, error == ENOMEM ? CEOV_ERR_NO_MEMORY : CEOV_ERR_SYSTEM, error,
			 "%s: %s", what, strerror(error));
}

int cei_alive_map(struct cei_report *report, int fd, size_t n_bytes, int prot,
		  struct cei_alive_area *ret_area)
{
	const char *fault = fault_of(fd, n_bytes);
	struct cei_alive_area area;
	int error;

	if (!fault && prot != PROT_READ && prot != (PROT_READ | PROT_WRITE))
		fault = "it is neither for reading nor for reading and writing";
	if (fault)
		return cei_raise(report, CEOV_ERR_INVALID, 0,
				 "an area of %zu bytes that processes are to share is refused: %s",
				 n_bytes, fault);
	memset(&area, 0, sizeof(area));
	area.n_bytes = n_bytes;
	area.n_room_bytes = page_bytes() + n_bytes;
	area.is_writable = prot != PROT_READ;
	area.room = mmap(NULL, area.n_room_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area.room == MAP_FAILED)
		return raise_errno(report, errno, "finding room for an area of shared memory");
	area.memory = (char *)area.room + page_bytes();
	error = fill_room(&area, fd);
	if (error) {
		munmap(area.room, area.n_room_bytes);
		return raise_errno(report, error, "mapping an area of shared memory");
	}
	*ret_area = area;
	return 0;
}

void cei_alive_unmap(struct cei_alive_area *area)
{
	if (area->holder)
		cei_alive_let_go(area->holder, area);
	if (area->room)
		munmap(area->room, area->n_room_bytes);
	memset(area, 0, sizeof(*area));
}

/* --- the holder's thread ------------------------------------------------- */

/*
 * Changes one pointer of the list. The kernel walks the list on behalf of this very thread, so it
 * finds the stores before the instruction at which the thread was killed, and none behind it. The
 * compiler has to keep their order; the processor does, for its own thread.
 */
static void set_pointer(struct robust_list *volatile *at, struct robust_list *to)
{
	atomic_signal_fence(memory_order_seq_cst);
	*at = to;
	atomic_signal_fence(memory_order_seq_cst);
}

static void unlink_node(struct cei_alive *alive, struct robust_list *node)
{
	struct robust_list *before = &alive->list->list;

	while (before->next != node)
		before = before->next;
	set_pointer(&before->next, node->next);
}

/* The node is in the list before the word has the thread's id: killed between the two, the thread
 * leaves a word of 0, which the kernel passes by. The other way round it would leave a word that
 * seems alive for ever. */
static int hold(struct cei_alive *alive, struct cei_alive_area *area)
{
	struct node *node = area->room;
	uint32_t seen = 0;

	node->area = area;
	set_pointer(&node->robust.next, alive->list->list.next);
	set_pointer(&alive->list->list.next, &node->robust);
	/* FUTEX_WAITERS has the kernel wake whoever sleeps on the word, who may not be allowed to
	 * write that bit. release: what the area was prepared with; pairs with the acquire in
	 * cei_alive_state(). */
	if (atomic_compare_exchange_strong_explicit(cei_alive_word(area), &seen,
						    alive->tid | FUTEX_WAITERS,
						    memory_order_release, memory_order_relaxed)) {
		area->holder = alive;
		alive->n_held++;
		return 0;
	}
	unlink_node(alive, &node->robust);
	alive->seen_word = seen;
	return CEOV_ERR_STATE;
}

/* The word is 0 before the node leaves the list, for the same reason. Killed before it has woken
 * the waiter, the thread leaves that to the waiter's own next look. */
static int let_go(struct cei_alive *alive, struct cei_alive_area *area)
{
	struct node *node = area->room;

	/* release: all that was written to the area before its orderly end; pairs with the acquire
	 * in cei_alive_state() */
	atomic_store_explicit(cei_alive_word(area), 0, memory_order_release);
	unlink_node(alive, &node->robust);
	cei_futex_wake_shared(cei_alive_word(area));
	area->holder = NULL;
	alive->n_held--;
	return 0;
}

static int let_go_of_all(struct cei_alive *alive)
{
	struct robust_list *end = &alive->list->list;

	while (end->next != end)
		let_go(alive, ((struct node *)(void *)end->next)->area);
	return 0;
}

/* Replaces the list of robust mutexes, which the C library registers for each thread; this one
 * takes none. */
static int start(struct cei_alive *alive)
{
	pthread_setname_np(pthread_self(), "ceov-alive");
	alive->tid = (uint32_t)syscall(SYS_gettid);
	alive->list->list.next = &alive->list->list;
	alive->list->list_op_pending = NULL;
	alive->list->futex_offset = (long)page_bytes();
	if (!syscall(SYS_set_robust_list, alive->list, sizeof(*alive->list)))
		return 0;
	alive->seen_errno = errno;
	return CEOV_ERR_SYSTEM;
}

static int carry_out(struct cei_alive *alive)
{
	switch (alive->request) {
	case REQUEST_START:
		return start(alive);
	case REQUEST_HOLD:
		return hold(alive, alive->area);
	case REQUEST_LET_GO:
		return let_go(alive, alive->area);
	case REQUEST_END:
		return let_go_of_all(alive);
	case REQUEST_NONE:
		break;
	}
	return 0;
}

static void *holder_main(void *arg)
{
	struct cei_alive *alive = arg;
	int is_last;

	pthread_mutex_lock(&alive->lock);
	do {
		while (alive->request == REQUEST_NONE)
			pthread_cond_wait(&alive->asked, &alive->lock);
		is_last = alive->request == REQUEST_END;
		alive->result = carry_out(alive);
		alive->request = REQUEST_NONE;
		pthread_cond_signal(&alive->answered);
	} while (!is_last);
	pthread_mutex_unlock(&alive->lock);
	return NULL;
}

/* --- the holder's callers ------------------------------------------------ */

/* Has the thread carry out a request. The caller has `callers`. */
static int ask(struct cei_alive *alive, enum request request, struct cei_alive_area *area)
{
	int r;

	pthread_mutex_lock(&alive->lock);
	alive->area = area;
	alive->request = request;
	pthread_cond_signal(&alive->asked);
	while (alive->request != REQUEST_NONE)
		pthread_cond_wait(&alive->answered, &alive->lock);
	r = alive->result;
	pthread_mutex_unlock(&alive->lock);
	return r;
}

/* Returns zeroed memory of at least a page for itself, or NULL. */
static void *get_pages(size_t n_bytes, int flags)
{
	void *pages = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

/* Initialises the locks. Returns an errno. */
static int init_locks(struct cei_alive *alive)
{
	pthread_mutex_t *const locks[] = { &alive->callers, &alive->lock };
	pthread_cond_t *const conditions[] = { &alive->asked, &alive->answered };
	int error = 0;
	int i;

	for (i = 0; i < 2 && !error; i++) {
		error = pthread_mutex_init(locks[i], NULL);
		if (!error)
			error = pthread_cond_init(conditions[i], NULL);
	}
	return error;           /* on Linux neither takes anything that would have to be freed */
}

/* Starts the thread with all signals blocked, so that only the application's threads handle
 * signals. Returns an errno. */
static int start_thread(struct cei_alive *alive)
{
	sigset_t all, before;
	int error;

	sigfillset(&all);
	error = pthread_sigmask(SIG_SETMASK, &all, &before);
	if (error)
		return error;
	error = pthread_create(&alive->thread, NULL, holder_main, alive);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static void stop_thread(struct cei_alive *alive)
{
	pthread_mutex_lock(&alive->callers);
	ask(alive, REQUEST_END, NULL);
	pthread_mutex_unlock(&alive->callers);
	pthread_join(alive->thread, NULL);
}

/* Returns an errno. */
static int begin(struct cei_alive *alive)
{
	int error;

	if (madvise(alive, sizeof(*alive), MADV_WIPEONFORK))
		return errno;
	alive->list = get_pages(sizeof(*alive->list), MAP_SHARED);
	if (!alive->list)
		return errno;
	error = init_locks(alive);
	if (!error)
		error = start_thread(alive);
	if (error)
		return error;
	alive->is_open = 1;
	if (!ask(alive, REQUEST_START, NULL))
		return 0;
	stop_thread(alive);
	return alive->seen_errno;
}

static void free_pages(struct cei_alive *alive)
{
	if (alive->list)
		munmap(alive->list, sizeof(*alive->list));
	munmap(alive, sizeof(*alive));
}

int cei_alive_open(struct cei_report *report, struct cei_alive **ret_alive)
{
	struct cei_alive *alive = get_pages(sizeof(*alive), MAP_PRIVATE);
	int error;

	if (!alive)
		return raise_errno(report, errno, "opening a holder of words that tell of a death");
	alive->report = report;
	error = begin(alive);
	if (error) {
		free_pages(alive);
		return raise_errno(report, error, "starting the thread whose end tells others that "
				   "this process has died");
	}
	*ret_alive = alive;
	return 0;
}

/* Raises that the word is not 0. */
static int raise_taken(struct cei_alive *alive, uint32_t seen_word)
{
	return cei_raise(alive->report, CEOV_ERR_STATE, 0,
			 "a word that is to tell of this process's death is 0x%x instead of 0: "
			 "somebody holds it, or has died with it", seen_word);
}

int cei_alive_hold(struct cei_alive *alive, struct cei_alive_area *area)
{
	uint32_t n_held, seen = 0;
	int r = 0;

	if (!alive->is_open)
		return CEOV_ERR_FORKED;
	if (!area->memory || !area->is_writable)
		return cei_raise(alive->report, CEOV_ERR_INVALID, 0,
				 "an area of shared memory that is not mapped for writing cannot "
				 "tell of this process's death");
	/* A node that was put into the list twice would make a circle of it. */
	if (area->holder)
		return cei_raise(alive->report, CEOV_ERR_STATE, 0,
				 "an area of shared memory already tells of this process's death");
	pthread_mutex_lock(&alive->callers);
	n_held = alive->n_held;
	if (n_held < CEI_ALIVE_AREAS_MAX)
		r = ask(alive, REQUEST_HOLD, area);
	seen = alive->seen_word;
	pthread_mutex_unlock(&alive->callers);
	if (n_held >= CEI_ALIVE_AREAS_MAX)
		return cei_raise(alive->report, CEOV_ERR_STATE, 0,
				 "this process tells of its death in %u areas of shared memory, "
				 "and in no more", n_held);
	return r ? raise_taken(alive, seen) : 0;
}

int cei_alive_let_go(struct cei_alive *alive, struct cei_alive_area *area)
{
	int r;

	if (!alive->is_open)
		return CEOV_ERR_FORKED;
	if (area->holder != alive)
		return cei_raise(alive->report, CEOV_ERR_STATE, 0,
				 "an area of shared memory does not tell of this process's death, "
				 "so it cannot cease to");
	pthread_mutex_lock(&alive->callers);
	r = ask(alive, REQUEST_LET_GO, area);
	pthread_mutex_unlock(&alive->callers);
	return r;
}

void cei_alive_close(struct cei_alive *alive)
{
	if (!alive || !alive->is_open)
		return;
	stop_thread(alive);
	free_pages(alive);
}

/* --- readers ------------------------------------------------------------- */

static enum cei_alive_state state_of(uint32_t value)
{
	if (value & FUTEX_OWNER_DIED)
		return CEI_ALIVE_DIED;
	return value & FUTEX_TID_MASK ? CEI_ALIVE : CEI_ALIVE_ENDED;
}

static uint32_t look_at(const _Atomic uint32_t *word)
{
	/* acquire: what was written before the word; pairs with hold(), let_go(), and with the
	 * kernel's exchange at a death */
	return atomic_load_explicit(word, memory_order_acquire);
}

enum cei_alive_state cei_alive_state(const _Atomic uint32_t *word)
{
	return state_of(look_at(word));
}

enum cei_alive_state cei_alive_wait(const _Atomic uint32_t *word, uint64_t timeout_ns)
{
	uint64_t deadline = cei_deadline(timeout_ns), nap;
	uint32_t seen = look_at(word);

	while (state_of(seen) == CEI_ALIVE && cei_now_ns() < deadline) {
		nap = cei_deadline(CEI_ALIVE_NAP_NS);
		cei_futex_wait_shared(word, seen, nap < deadline ? nap : deadline);
		seen = look_at(word);
	}
	return state_of(seen);
}
