/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_ALIVE_H
#define CEI_ALIVE_H

/*
 * Tells a process at once that another one has died. The end of a socket and a pidfd tell it when
 * the kernel has torn the dead process's memory down, which takes seconds for gigabytes. Before
 * that, the kernel walks the robust list of each thread that ends, and sets FUTEX_OWNER_DIED in
 * each word of that list which holds the thread's id (get_robust_list(2), futex(2)).
 *
 *   area     shared memory, a memfd, that begins with such a word. One process holds the word, and
 *            others read it; they may have mapped the area for reading only
 *   holder   of a process: a thread that does nothing but hold the words of areas, so that they
 *            live as long as the process. It is the only one that changes its robust list: the
 *            kernel walks the list as that thread, so a walk never meets a change on another
 *            processor, and a kill can only fall between two instructions of a change
 *   reader   looks at the word, or sleeps until it changes
 *
 * No pointer is in shared memory, where the other process could change it: the node of the robust
 * list lies one page before the word, in memory that each area has for itself.
 *
 * What the word says, and when:
 *
 *   - A process that ends in any way without letting go has died: by a signal, by exit(), by a
 *     return from main(). So has one that calls exec(), as the kernel ends its other threads then.
 *   - The word comes first: other threads of the dead process may still write for a moment. Memory
 *     that they must not write to any more is given away only after the pidfd or the end of the
 *     socket.
 *   - A process that is stopped, or whose control group is frozen, is alive. Since Linux 5.16 so is
 *     one that writes a core file, until the file is written.
 *   - A child made by fork() holds nothing, and its end changes nothing; its parent holds on.
 *   - The id in the word is that of the holder's PID namespace. A reader in another namespace
 *     cannot use it, and none here does: readers look at bits alone.
 *   - Who may write to the word may lie, about itself alone: it can seem to have died while it
 *     lives, or to live until its pidfd or its socket tells otherwise.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/report.h"

struct cei_alive;

/* The most areas that a holder holds; the kernel looks at the first 2048 nodes of a list only. */
#define CEI_ALIVE_AREAS_MAX 1024u

/* --- areas --------------------------------------------------------------- */

/* An area as this process has mapped it. The caller owns the struct, which must not move while the
 * area's word is held, and serialises the calls for one area. */
struct cei_alive_area {
	void             *memory;       /* the file's first byte, and so the word */
	size_t            n_bytes;      /* of the file */
	int               is_writable;
	void             *room;         /* all that is mapped: a page, and the file behind it */
	size_t            n_room_bytes;
	struct cei_alive *holder;       /* who holds the word in this process; NULL: nobody */
};

/* Maps all of a memfd, which stays the caller's and may be closed afterwards. prot is PROT_READ, or
 * PROT_READ | PROT_WRITE. CEOV_ERR_INVALID: it is not a memfd of ordinary pages, not of n_bytes,
 * has no room for a word, or its size can be reduced, after which looking at it would end this
 * process, and the kernel would give up the walk of a list with its word. */
int  cei_alive_map(struct cei_report *report, int fd, size_t n_bytes, int prot,
		   struct cei_alive_area *ret_area);

/* Lets go of the word if this process holds it, and unmaps the area; a second call does nothing. */
void cei_alive_unmap(struct cei_alive_area *area);

static inline _Atomic uint32_t *cei_alive_word(const struct cei_alive_area *area)
{
	return area->memory;
}

/* --- the holder ---------------------------------------------------------- */

/*
 * The calls for a holder may come from any thread. Each waits until the holder's thread has carried
 * it out, which takes a few dozen instructions, so none has a deadline. In a child made by fork()
 * they change nothing, and return CEOV_ERR_FORKED without a message. The report must outlive the
 * holder.
 */
int  cei_alive_open(struct cei_report *report, struct cei_alive **ret_alive);

/* Takes the area's word, which must be 0. CEOV_ERR_INVALID: the area is not mapped, or mapped for
 * reading only. CEOV_ERR_STATE: the word is not 0, since somebody holds it or has died with it, or
 * the holder has CEI_ALIVE_AREAS_MAX areas. */
int  cei_alive_hold(struct cei_alive *alive, struct cei_alive_area *area);

/* Makes the word 0, an orderly end, and wakes who waits for it. Whoever then sees the end also sees
 * all that the caller has written to the area. CEOV_ERR_STATE: this holder does not hold it. */
int  cei_alive_let_go(struct cei_alive *alive, struct cei_alive_area *area);

/* Lets go of all words, ends the thread and frees the holder. NULL does nothing. */
void cei_alive_close(struct cei_alive *alive);

/* --- readers ------------------------------------------------------------- */

enum cei_alive_state {
	CEI_ALIVE,                      /* somebody's id, and no sign of death */
	CEI_ALIVE_ENDED,                /* let go, or never held: nobody's id */
	CEI_ALIVE_DIED                  /* FUTEX_OWNER_DIED, whatever else the word holds */
};

/* Looks at a word. Every value is one of the three. Any process and thread. */
enum cei_alive_state cei_alive_state(const _Atomic uint32_t *word);

/* Returns the state as soon as it is not CEI_ALIVE; CEI_ALIVE if timeout_ns passed first. The
 * kernel wakes one waiter of a dead holder's word, so a word has one waiter: another one would be
 * late by up to CEI_ALIVE_NAP_NS. */
#define CEI_ALIVE_NAP_NS UINT64_C(100000000)
enum cei_alive_state cei_alive_wait(const _Atomic uint32_t *word, uint64_t timeout_ns);

#endif /* CEI_ALIVE_H */
