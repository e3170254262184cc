/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_SIGNAL_H
#define CEI_SIGNAL_H

/*
 * Where counters live.
 *
 *   control   host memory (memfd), mapped by every party and registered with the
 *             driver: header, one word per counter, one host arrival per counter
 *   gpu       GPU place only: counters, arrivals, abort word
 *
 * A host signal's counters are its words. A GPU signal's words are written beside
 * the counters where CEOV_SIGNAL_HOST_VISIBLE was asked for.
 */

#include <stdatomic.h>
#include <stdint.h>

#include "backend/place.h"
#include "ce_engine/objects/object.h"
#include "ipc/peers/peers.h"
#include "ipc/share.h"

struct cei_far;                         /* ce_engine/objects/far.h */

/* most counters of one signal; a larger number is taken for a mistake */
#define CEI_SIGNAL_COUNTERS_MAX (UINT32_C(1) << 24)

struct cei_signal_header {              /* begins the control region */
	_Atomic uint32_t abort_code;    /* 0, or the negated enum ceov_error and, from bit 8 on,
					 * one more than the rank to blame (0: none), and
					 * CEI_ABORT_OPENS. A single word, so that the first
					 * abort is complete. Peers can write it, so read it by
					 * cei_signal_blame() */
	uint8_t          pad[60];       /* counters begin on a cache line of their own */
};

extern const struct cei_object_type cei_signal_type;

struct ceov_signal {
	struct cei_object   object;
	uint32_t            rank;       /* owner */
	struct ceov_place   place;
	uint32_t            n_counters;
	uint32_t            flags;
	struct cei_region  *control;    /* owned, from the cache of mappings, or the image of a
					 * signal of another node */
	struct cei_region  *gpu;        /* NULL for host signals */
	struct cei_region   own_control;
	struct cei_region   own_gpu;
	struct cei_region   tallies[CEI_MEMBERS_MAX]; /* host signals: counts of arrivals in the
						       * memory of GPU members that have asked for
						       * a view; guarded by lock */
	struct cei_far     *far;        /* found at another node; else NULL */
	struct ceov_signal *original;   /* found in this process: the handle that owns the
					 * regions */
	uint32_t            export_id;  /* 0: not shared */
	uint64_t            found_use;  /* of the owner's export, where found at a process of this
					 * node; else 0 */
	int                 is_due;     /* ceov_reopen() is about to renew it */
	struct cei_shared_name name;
};

/* A counter as one member of this process reaches it. */
struct cei_counter {
	struct ceov_signal     *signal; /* NULL: none */
	uint32_t                index;
	uint64_t                value;  /* relative to the launch's base */
	uint64_t                address;/* for lanes of the member; 0: not reachable */
	uint64_t                word;   /* host word for lanes; 0: has none */
	const _Atomic uint64_t *seen;   /* host word for polling; NULL: not visible */
	const struct cei_signal_header *header;
};

/* Whether both are the same counter, whatever values are meant. */
static inline int cei_counter_is_same(const struct cei_counter *counter,
				      const struct cei_counter *other)
{
	return counter->signal == other->signal && counter->index == other->index;
}

/* Raises CEOV_ERR_INVALID with `what` where the signal has no such counter, or it cannot have the
 * value. */
int  cei_signal_check_mark(const struct ceov_signal *signal, uint32_t index, uint64_t value,
			   const char *what);

/* Fills *ret_counter with the mark as the member reaches it. CEOV_ERR_INVALID, raised with `what`:
 * its index or value is out of range. */
int  cei_signal_resolve(const struct ceov_mark *mark, uint32_t member, const char *what,
			struct cei_counter *ret_counter);

/* Where a lane writes to raise a counter: the region of the counter and that of its host word, with
 * the offsets. words NULL: the counter has no host word of its own. */
struct cei_signal_spot {
	const struct cei_region *counters;
	const struct cei_region *words;
	uint64_t                 counter_at;
	uint64_t                 word_at;
};
struct cei_signal_spot cei_signal_spot(const struct ceov_signal *signal, uint32_t index);

/* Has the owner of a signal of another node tell when the counter has reached the value; whoever
 * waits for a counter calls this first. Does nothing for signals of this node. */
void cei_signal_ask(const struct ceov_signal *signal, uint32_t index, uint64_t value);

/* Texts for messages that name a signal, by its shared name if it has one, or a counter of it. */
struct cei_signal_text {
	char text[112];
};
struct cei_signal_text cei_signal_text(const struct ceov_signal *signal);

struct cei_counter_text {
	char text[144];
};
struct cei_counter_text cei_counter_text(const struct ceov_signal *signal, uint32_t index);

/* Advice for messages about a signal that was aborted with this error: after a lost peer or a
 * lost daemon a renewal alone does not help. */
const char *cei_signal_advice(int error);

/* Returns the error that the signal was aborted with, one of enum ceov_error whatever the shared
 * word holds, or 0. */
int  cei_signal_aborted(const struct ceov_signal *signal);

/* Returns the same; *ret_rank is the rank to blame, or CEOV_NOBODY. */
int  cei_signal_blame(const struct ceov_signal *signal, uint32_t *ret_rank);

/* 0, or the error that the signal was aborted with, raised for the public call of that name
 * with the rank to blame and what to do. */
int  cei_signal_check_abort(const struct ceov_signal *signal, const char *call);

/* Returns the error of the first aborted signal among them, and the rank to blame; 0: none is
 * aborted. */
int  cei_signals_blame(struct ceov_signal *const *signals, uint32_t n, uint32_t *ret_rank);

/* Sets the abort word for all parties of this node. Returns 0 if it was set before: the first code
 * stays. */
int  cei_signal_raise_abort(struct ceov_signal *signal, int error, uint32_t rank);

/* Sets CEI_ABORT_OPENS in the abort word and poisons every counter, so that gates, streams and
 * threads that wait on it go on and find the abort word. */
void cei_signal_poison(struct ceov_signal *signal);

/* Poisons one counter of an aborted signal again, after somebody wrote to it. */
void cei_signal_poison_one(struct ceov_signal *signal, uint32_t index);

/* The parts of an abort of several signals: see ce_engine/objects/abort.h, which puts them
 * together. The first returns how many were not aborted before. The second may be repeated after
 * lanes wrote to counters. The third has other nodes do likewise; they get one message for many
 * signals, since there, too, all abort words have to be set before the first poison. Any thread. */
uint32_t cei_signals_raise_abort(struct ceov_signal *const *signals, uint32_t n, int error,
				 uint32_t rank);
void cei_signals_poison(struct ceov_signal *const *signals, uint32_t n);
void cei_signals_tell(struct ceov_signal *const *signals, uint32_t n, int error, uint32_t rank);

/* Whether raising the counter to value would lower it. Counters that only GPUs see, and
 * poisoned ones, are not checked. */
static inline int cei_counter_falls(const struct cei_counter *counter, uint64_t value)
{
	uint64_t seen;

	if (!counter->seen)
		return 0;
	/* relaxed: a counter has one raiser at a time, and this is on its behalf */
	seen = atomic_load_explicit(counter->seen, memory_order_relaxed);
	return value < seen && seen < CEOV_VALUE_LIMIT;
}

/* Refuses to lower a counter, for the public call of that name (signal_verbs.c). Counters that the
 * host cannot see are not checked. Raises CEOV_ERR_INVALID where the counter holds more, and the
 * error of the abort where it is poisoned. */
int  cei_signal_refuse_fall(ceov_signal *signal, uint32_t index, uint64_t value, const char *call);

/* Return addresses in the signal's control region. */
struct cei_signal_header *cei_signal_header(const struct ceov_signal *signal);
_Atomic uint64_t *cei_signal_word(const struct ceov_signal *signal, uint32_t index);
_Atomic uint32_t *cei_signal_host_arrivals(const struct ceov_signal *signal,
					   uint32_t index);

/* Whether it is this process's, and shared with processes of other nodes. */
int cei_signal_is_shared_afar(const struct ceov_signal *signal);

/* Whether an abort can always release streams that wait for the signal's counters. It cannot if
 * they are in the GPU of another process: when that process has ended, nobody can write to them. */
int cei_signal_frees_streams(const struct ceov_signal *signal);

/* Whether host threads can read the counters. */
int cei_signal_is_visible(const struct ceov_signal *signal);

/* Whether a member of this process can write to the counters of a GPU signal. */
int  cei_signal_is_writable(const struct ceov_signal *signal);

/* Writes to the memory of a GPU signal that is writable, at the offset. Raises. */
int  cei_signal_store(const struct ceov_signal *signal, uint64_t at, const void *bytes,
		      uint64_t n_bytes);

/* ceov_signal_find() without its checks, by the lookup's deadline. */
int  cei_signal_find(ceov_context *context, const struct cei_lookup *lookup,
		     ceov_signal **ret_signal);

/* What a signal is made of that came as descriptions with descriptors. */
struct cei_signal_parts {
	uint32_t               rank;    /* owner */
	uint32_t               n_counters;
	uint32_t               flags;   /* enum ceov_signal_flags */
	struct cei_region_wire control;
	int                    fd;      /* of the control region; -1: none */
	int                    is_in_gpu;
	struct cei_region_wire gpu;
	int                    gpu_fd;  /* -1: none */
};

/* Closes the parts' descriptors, those that there are. */
void cei_signal_parts_close(const struct cei_signal_parts *parts);

/* Makes a signal of its parts, and takes the descriptors in any case. CEOV_ERR_INVALID, raised: a
 * region is too small for the counters. */
int  cei_signal_import(ceov_context *context, const struct cei_signal_parts *parts,
		       ceov_signal **ret_signal);

/* The layout of a control region: its size, and where its words begin. */
uint64_t cei_signal_control_bytes(uint32_t n_counters);
uint64_t cei_signal_words_at(void);

/* Zeroes counters, arrivals and abort words, at creation and renewal by the owner. */
int  cei_signal_clear(ceov_signal *signal);

/* Ends the signal at ceov_close(). */
void cei_signal_destroy(struct ceov_signal *signal);

#endif /* CEI_SIGNAL_H */
