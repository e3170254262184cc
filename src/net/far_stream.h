/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_STREAM_H
#define CEI_FAR_STREAM_H

/*
 * What two processes have under way to each other on one rail. Pure records and functions: they
 * call no transport and look at no clock.
 *
 * The network orders nothing, so pieces and marks are numbered together, from 1. The receiver
 * counts how far everything has been done without a gap: pieces have landed, marks are raised.
 * It says this number to the sender (ACK). A mark is raised once that number has reached the
 * mark's `after`. No more than CEI_FAR_SPAN numbers are under way, so both sides keep what they
 * know in tables of that size.
 *
 *   sender     SENT --the transport has read the bytes--> SOURCE FREE --ACK--> DONE
 *               |                                          |   (or first ACK, then free)
 *               +----- the connection is lost, no ACK -----+-> UNCERTAIN
 *   receiver   COMING --landed--> DONE        HELD --everything before is done--> DONE
 */

#include <stdatomic.h>
#include <stdint.h>

#include "net/far_wire.h"

#define CEI_FAR_SPAN            128u    /* a power of two: numbers under way */
#define CEI_FAR_MARKS_UNDER_WAY 64u     /* sent, not acknowledged */
#define CEI_FAR_WINDOW_MAX      32u     /* pieces */
#define CEI_FAR_WINDOW          4u
#define CEI_FAR_PIECE_MAX       (UINT64_C(4) << 20)
#define CEI_FAR_PIECE_MIN       (UINT64_C(64) << 10)

/* --- sending --------------------------------------------------------------- */

struct cei_far_item {
	uint64_t n_bytes;       /* 0: a mark */
	uint64_t begun_ns;
	int      is_reading;    /* the transport still reads the source */
};

/* How fast bytes have landed while some were under way. */
struct cei_far_rate {
	uint64_t n_bytes;
	uint64_t busy_ns;       /* both are halved now and then, so that older ones count less */
	uint64_t since_ns;      /* what busy_ns does not contain begins here */
};

struct cei_far_out {
	uint64_t next;          /* number of the next piece or mark */
	uint64_t acked;         /* the receiver has done everything up to here */
	uint64_t ended;         /* acked, and no source is read any more, up to here */
	uint32_t window;        /* pieces, 1 to CEI_FAR_WINDOW_MAX */
	uint32_t n_pieces;      /* not acked */
	uint32_t n_marks;       /* not acked */
	uint64_t piece_max;     /* bytes, as configured */
	uint64_t piece_bytes;   /* how large pieces are made now */
	uint64_t judged;        /* pieces from this number on are measured with today's size */
	uint64_t patience_ns;   /* a window takes less time than this, or pieces shrink */
	uint64_t n_acked_bytes;
	struct cei_far_rate rate;
	int      is_lost;
	struct cei_far_item items[CEI_FAR_SPAN];        /* number n is at n % CEI_FAR_SPAN */
};

/* window and piece_max 0: the defaults above. */
void cei_far_out_begin(struct cei_far_out *out, uint32_t window, uint64_t piece_max,
		       uint64_t patience_ns);

/* Returns whether the window has room for a piece (or else for a mark), which then is number
 * out->next. */
int cei_far_out_has_room(const struct cei_far_out *out, int is_piece);

/* Number out->next has been sent: n_bytes of a piece, or 0 for a mark. */
void cei_far_out_add(struct cei_far_out *out, uint64_t n_bytes, uint64_t now_ns);

/* The transport reads the source of the piece at this index of items no more. */
void cei_far_out_sent(struct cei_far_out *out, uint32_t index);

/* The receiver has done everything up to this number. CEOV_NONE: that was known.
 * CEOV_ERR_INVALID, not raised: the number was never sent. */
int cei_far_out_ack(struct cei_far_out *out, uint64_t number, uint64_t now_ns);

/* The measured rate in bytes per second; 0: too few bytes have landed to tell. */
double cei_far_out_rate(const struct cei_far_out *out);

/* Bytes of pieces that have been sent and are not DONE. */
uint64_t cei_far_out_bytes(const struct cei_far_out *out);

/* --- receiving ------------------------------------------------------------- */

enum cei_far_seen { CEI_FAR_UNSEEN, CEI_FAR_COMING, CEI_FAR_HELD, CEI_FAR_SEEN_DONE };

struct cei_far_arrival {
	enum cei_far_seen   seen;
	uint64_t            n_bytes;    /* of a piece */
	struct cei_far_mark mark;
};

struct cei_far_in {                     /* begins zeroed */
	uint64_t done;          /* everything up to here has landed or is raised */
	uint64_t told;          /* the last ACK that was said */
	uint32_t n_coming;
	uint32_t n_held;
	uint64_t n_landed_bytes;
	uint64_t n_duplicates;
	struct cei_far_arrival arrivals[CEI_FAR_SPAN];  /* number n is at n % CEI_FAR_SPAN */
};

/* A piece is offered; on 0 it counts as coming. CEOV_NONE: a piece or mark of this number came
 * before; it is counted. CEOV_ERR_INVALID, not raised: no sender is that far ahead. */
int cei_far_in_piece(struct cei_far_in *in, uint64_t number, uint64_t n_bytes);

/* The piece at this index of arrivals has landed. */
void cei_far_in_landed(struct cei_far_in *in, uint32_t index);

/* Likewise for a mark, which is held until cei_far_in_raise() gives it out. */
int cei_far_in_mark(struct cei_far_in *in, const struct cei_far_mark *mark);

/* Gives a mark out that may be raised now, and counts it as done: the caller raises it before
 * anything else, above all before it says an ACK. 0: there is none. */
int cei_far_in_raise(struct cei_far_in *in, struct cei_far_mark *ret_mark);

/* --- whether the other side lives -------------------------------------------- */

enum cei_far_health {
	CEI_FAR_IDLE,           /* nothing is awaited from it */
	CEI_FAR_MOVING,         /* it made progress within the last timeout */
	CEI_FAR_STUCK,          /* it answers, but makes no progress */
	CEI_FAR_STALLED,        /* likewise, with bytes under way for two whole timeouts */
	CEI_FAR_GONE,           /* nothing was heard of it for a whole timeout */
};

/* What is awaited from the other side. */
enum cei_far_awaited {
	CEI_FAR_AWAITS_NOTHING,
	CEI_FAR_AWAITS_ANSWERS, /* something, but no bytes whose way is the network's alone */
	CEI_FAR_AWAITS_BYTES,
};

/* What a pulse tells threads other than the rail's, for messages alone: points in time, 0 where
 * there was none. All accesses are relaxed, since nothing is ordered by them. */
struct cei_far_vitals {
	_Atomic uint64_t timeout_ns;    /* of the pulse */
	_Atomic uint64_t awaited_ns;    /* since then something has been awaited; 0: nothing is */
	_Atomic uint64_t heard_ns;      /* the last time that anything was heard */
	_Atomic uint64_t moved_ns;      /* the last time that it had made progress */
};

/* While something is awaited, both sides ask and answer five times per timeout. Time that a
 * side spent without looking (its process was stopped) is not held against the other one. */
struct cei_far_pulse {
	uint64_t timeout_ns;
	uint64_t looked_ns;     /* the last look */
	uint64_t silent_ns;     /* for how long something has been awaited in vain */
	uint64_t idle_ns;       /* for how long without progress */
	uint64_t stalled_ns;    /* for how long bytes have been awaited without progress */
	uint64_t asked_ns;      /* the last question */
	uint64_t progress;      /* what the other side had landed, as last heard */
	enum cei_far_awaited awaited;
	int      has_moved;             /* there was progress since the last look */
	struct cei_far_vitals vitals;
};

void cei_far_pulse_begin(struct cei_far_pulse *pulse, uint64_t timeout_ns, uint64_t now_ns);

/* Something valid was heard; progress: the bytes that the other side has landed, or has sent
 * to here, as it or the transport tells. */
void cei_far_pulse_heard(struct cei_far_pulse *pulse, uint64_t now_ns);
void cei_far_pulse_progress(struct cei_far_pulse *pulse, uint64_t progress);

/* Looks at the time; call it at least every fifth of a timeout. */
enum cei_far_health cei_far_pulse_look(struct cei_far_pulse *pulse, enum cei_far_awaited awaited,
				       uint64_t now_ns);

/* Returns whether to ask now, and notes that it was done. */
int cei_far_pulse_must_ask(const struct cei_far_pulse *pulse, uint64_t now_ns);
void cei_far_pulse_asked(struct cei_far_pulse *pulse, uint64_t now_ns);

/* How the other side does by the time when somebody has waited for it in vain, and for how long it
 * has been so: GONE, it does not answer; STUCK, it answers, but makes no progress; MOVING, it makes
 * progress. IDLE: too little time has passed to say. A launch may have less time than the timeout,
 * so this judges after two questions without an answer, or two answers without progress. Any
 * thread. */
enum cei_far_health cei_far_vitals_judge(const struct cei_far_vitals *vitals, uint64_t now_ns,
					 uint64_t *ret_since_ns);

#endif /* CEI_FAR_STREAM_H */
