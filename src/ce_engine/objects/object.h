/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_OBJECT_H
#define CEI_OBJECT_H

/*
 * What buffers, signals, plans and what stands on them have in common: they know their
 * context, count who uses them, and are recognised when a released handle comes back. Released
 * objects rest in a bounded quarantine, and then among the tombstones, before their memory is
 * reused, so that a stale handle is refused and not followed.
 */

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

#include <ceoverlap/ceoverlap.h>

struct cei_object;

/* A type of handles: a constant in the module that makes such handles. */
struct cei_object_type {
	const char *name;               /* for messages: "buffer" */
	size_t      list_at;            /* offset in struct ceov_context of the list that
					 * holds such objects */

	/* Of layers above, whose objects are in the context's list `uppers`; else NULL.
	 * The first two are called by ceov_close(). stop, which may be NULL: while engines turn;
	 * ends what is in flight, bounded. destroy: newest first, when engines have stopped; ends
	 * the object and moves it to quarantine. Plans, signals and buffers that the object
	 * made are the context's then. fail, which may be NULL: called by ceov_reopen() before it
	 * renews aborted signals; an object that has one of them fails for good. */
	void      (*stop)(struct cei_object *object);
	void      (*destroy)(struct cei_object *object);
	void      (*fail)(struct cei_object *object);
};

enum cei_object_state {                 /* any values that memory rarely holds */
	CEI_OBJECT_ALIVE = 0x6c697665,
	CEI_OBJECT_DEAD  = 0x64656164,
};

/* Released handles that are kept recognisable, per context. */
#define CEI_QUARANTINE_MAX 1024u

struct cei_object {                     /* first member of each handle */
	enum cei_object_state state;
	const struct cei_object_type *type;
	ceov_context        *context;   /* NULL: dead, and not in the quarantine any more */
	struct cei_list      link;      /* in the context's list, unlinked while it ends;
					 * guarded by its lock */
	uint32_t             n_users;   /* plans that name it; guarded by that lock */
};

/* Enters the object into its context's list. */
void cei_object_init(struct cei_object *object, ceov_context *context,
		     const struct cei_object_type *type);

/* Returns the report of the object's context. */
struct cei_report *cei_object_report(const struct cei_object *object);

/* Whether the context may be used in this process. CEOV_ERR_INVALID: it is NULL or closed, and a
 * line on stderr names the public call; CEOV_ERR_FORKED, raised without a line. */
int  cei_context_check(const ceov_context *context, const char *call);

/* Returns 0 if handle is a living object of that type whose context may be used in this process.
 * Errors are raised, except in a forked child; of a handle that is no living object on stderr.
 * call names the public call. */
int  cei_object_check(const void *handle, const struct cei_object_type *type,
		      const char *call);

/* An object ends in three steps: it is marked dead, so that no list and no check yields it
 * any more; the caller gives up what it holds; it is moved to quarantine. Until then its memory
 * is its own, and afterwards the caller must not touch it.
 *
 * The first step. claim: CEOV_PENDING: it has users; CEOV_ERR_INVALID, raised: another
 * thread has claimed it. end: whatever uses it, at ceov_close() and where the caller has
 * made sure that nothing does. */
int  cei_object_claim(struct cei_object *object, const char *call);
void cei_object_end(struct cei_object *object);

/* The last step: moves a dead object to quarantine, which gives up its oldest one if it is
 * full. */
void cei_object_quarantine(struct cei_object *object);

/* Gives up the context's quarantine, at ceov_close(). */
void cei_objects_forget(ceov_context *context);

/* Count the users of an object. An object with users is not released. */
void cei_object_use(struct cei_object *object);
void cei_object_unuse(struct cei_object *object);
uint32_t cei_object_n_users(struct cei_object *object);

/* The name under which a buffer or a signal was shared or found. It is set once, while other
 * threads may ask for it: an engine's, for one, that writes a message. */
struct cei_shared_name {
	_Atomic uint32_t is_set;        /* the text is written, which then stays */
	char             text[CEOV_NAME_BYTES];
};

void        cei_shared_name_set(struct cei_shared_name *name, const char *text);
const char *cei_shared_name_text(const struct cei_shared_name *name);   /* "": it has none */

/* --- tombstones ------------------------------------------------------------ */

/*
 * Tombstones: the memory of handles that were released, and of contexts that were closed, is
 * kept for a while. So a call with such a handle finds there that it was released, instead of
 * memory that belongs to somebody else.
 *
 * One for the process, because it outlives contexts. Bounded: a new entry displaces the
 * oldest one, which is freed. Any thread, without a lock; also in a forked child.
 */

/* How many released handles, and how many closed contexts, are kept at most. Of a context the
 * pages behind the first are given back to the system, so it costs little. */
#define CEI_TOMBSTONES_HANDLES  1024u
#define CEI_TOMBSTONES_CONTEXTS 16u

/* Takes ownership of a closed context's malloc()ed memory, of which only the first page keeps its
 * contents. Handles come here from the quarantine. */
void cei_tombstones_keep_context(void *memory, size_t n_bytes);

#endif /* CEI_OBJECT_H */
