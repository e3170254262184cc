/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs of a channel between ranks on GPUs, for spin: how RANKS ranks begin and end RUNS runs, and
 * fail, and how few bytes travel (src/kernels/channel.cuh, channel_packets_kernels.cu).
 * channel_rings.pml has the rings, by which many bytes travel.
 *
 * A run is a kernel of BLOCKS blocks at each rank, and a rank's kernels follow each other. Block 0
 * has the heads besides its share of the bytes. A block reads the run's number when it begins,
 * sends all that it has to send, then awaits packets in any order:
 *
 *   heads   one from each peer, which says what the peer calls
 *   mail    one for each block from each peer that gives bytes in this run
 *
 * Both use the half of the run's parity. A packet arrives whole, and packets arrive in any order.
 * The block that ends last advances the rank's number, if all were good. Behind its last run a rank
 * releases the channel at once.
 *
 * A wait polls, and looks for failures when it has found nothing; much can happen between the two.
 * Poison of a peer that has failed is believed at once. RELEASED is believed only of the peer that
 * is awaited, and only if that peer was found released at an earlier look of the same wait, so
 * that the poll between the two looks finds all that the peer had sent. A warp that awaits several
 * peers at once looks for the first one that it misses.
 *
 * Each run is a MOVE, in which all ranks give bytes to all, or a SCATTER, in which rank 0 does. All
 * sequences are tried. Heads are packets that say so.
 *
 * Checked: each packet that is taken is that of the run; nobody waits for ever; and while all ranks
 * make the same calls, nobody fails.
 *
 * -DFAILS=1: one rank, any of them, makes another call in run ODD_RUN, or no call and releases the
 * channel. Checked: nobody ends that run well whose own call is not what a peer's head says, and
 * nobody ends a later run well; all ranks end. A rank may fail in the run before, although all that
 * it awaits is on its way, because it believes poison at once.
 *
 * -DBROKEN=NAME leaves out a rule; check.sh must find each, see below.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RUNS
#define RUNS 3
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef ODD_RUN
#define ODD_RUN 2
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

/* Values of BROKEN: the rule that is left out. */
#define NO_HEADS         1      /* a run ends without the heads of peers that give no bytes */
#define NO_COMPARE       2      /* heads are awaited but not compared */
#define ONE_HALF_HEADS   3      /* all runs use the same half for heads */
#define ONE_HALF_MAIL    4      /* and for mail */
#define NUMBER_FIRST     5      /* a packet's number arrives before its bytes */
#define EPOCH_EARLY      6      /* the block that ends first advances the number */
#define EPOCH_ANYWAY     7      /* a run that has failed advances the number, and the next one
				 * begins as if nothing were */
#define RELEASED_AT_ONCE 8      /* RELEASED is believed at the first look */
#define RELEASED_OF_ANY  9      /* that some peer of the wait was found released is enough */
#define NO_POISON       10      /* a rank that fails tells nobody */

/* What a rank calls. */
#define MOVE    0
#define SCATTER 1
#define OTHER   2               /* SCATTER, but nothing for rank 1 */
#define NOTHING 3

/* Values of poison. */
#define RELEASED 1
#define FAILED   2

#define PEER(n)         ((rank + (n)) % RANKS)
#define HALF(one_half)  (BROKEN == (one_half) -> 0 : number % 2)
#define HEAD(r, s)      ((HALF(ONE_HALF_HEADS) * RANKS + (r)) * RANKS + (s))
#define MAIL(r, s)      (((HALF(ONE_HALF_MAIL) * RANKS + (r)) * RANKS + (s)) * BLOCKS + block)
#define CALL_OF(r, e)   ((e) == ODD_RUN && (r) == odd_rank -> odd_call : calls[e])
#define GIVES(call, s, t) \
	((call) == MOVE || ((s) == 0 && ((call) == SCATTER || ((call) == OTHER && (t) != 1))))
#define WHAT(call)      ((call) == OTHER -> SCATTER : (call))
/* A rank compares what a peer calls, and what that gives it. */
#define DIFFERS(of_peer, n) \
	(WHAT(of_peer) != WHAT(call) || \
	 GIVES(of_peer, PEER(n), rank) != GIVES(call, PEER(n), rank))

byte calls[RUNS + 2];                   /* [run] */
byte n_calls;                           /* of the first runs: they are chosen */
byte odd_rank = RANKS;                  /* RANKS: nobody */
byte odd_call;

byte head_number[2 * RANKS * RANKS];
byte head_call[2 * RANKS * RANKS];
byte mail_number[2 * RANKS * RANKS * BLOCKS];
byte mail_bytes[2 * RANKS * RANKS * BLOCKS];    /* the run whose bytes they are */
byte poison[RANKS];

byte begun[RANKS];                      /* kernels */
byte epoch[RANKS];                      /* runs that have ended well */
byte n_ended[RANKS];                    /* blocks of the kernel under way */
byte n_good[RANKS];                     /* of them, those that have not failed */
bool failed[RANKS];
bool ends_wrongly;                      /* never set: a run ends well that must not */

/* --- kernels -------------------------------------------------------------------------------- */

/* The first rank that comes to run e says what all call. */
inline choose(e)
{
	if
	:: n_calls >= e -> skip
	:: else ->
		n_calls = e;
		if
		:: calls[e] = MOVE
		:: calls[e] = SCATTER
		fi;
		if
		:: e == ODD_RUN && calls[e] == odd_call -> odd_call = NOTHING
		:: else -> skip
		fi
	fi
}

inline begin_kernel(r)
{
	choose(begun[r] + 1);
	if
	:: begun[r] < RUNS && CALL_OF(r, begun[r] + 1) != NOTHING -> begun[r] = begun[r] + 1
	:: else ->
		begun[r] = RUNS + 1;            /* the last kernel has ended */
		if
		:: !failed[r] -> poison[r] = RELEASED
		:: else -> skip
		fi
	fi
}

inline check_end()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS ->
		ends_wrongly = odd_rank < RANKS && (k > ODD_RUN ||
			(k == ODD_RUN && DIFFERS(CALL_OF(PEER(n), k), n)));
		assert(!ends_wrongly);
		n++
	od
}

inline end_block()
{
	n_ended[rank]++;
	n_good[rank] = n_good[rank] + is_good;
	if
	:: BROKEN == EPOCH_EARLY && n_ended[rank] == 1 && is_good -> epoch[rank] = number
	:: else -> skip
	fi;
	if
	:: n_ended[rank] < BLOCKS -> skip
	:: else ->
		if
		:: BROKEN == EPOCH_ANYWAY -> epoch[rank] = k; failed[rank] = false
		:: n_good[rank] == BLOCKS && !failed[rank] ->
			check_end();
			epoch[rank] = k
		:: else -> skip
		fi;
		n_ended[rank] = 0;
		n_good[rank] = 0;
		begin_kernel(rank)
	fi
}

/* --- packets -------------------------------------------------------------------------------- */

/* To peers one after the other, since what one has may still be on its way to another one: last to
 * the one that awaits this rank last. */
inline send_all()
{
	n = RANKS - 1;
	do
	:: atomic { n == 0 -> break }
	:: atomic {
		n > 0 ->
		if
		:: block == 0 ->
			head_call[HEAD(PEER(n), rank)] = call;
			head_number[HEAD(PEER(n), rank)] = number
		:: else -> skip
		fi
	   };
	   atomic {
		if
		:: GIVES(call, rank, PEER(n)) ->
			mail_number[MAIL(PEER(n), rank)] = number;
			if
			:: BROKEN != NUMBER_FIRST -> mail_bytes[MAIL(PEER(n), rank)] = k
			:: else -> skip
			fi
		:: else -> skip
		fi
	   };
	   atomic {
		if
		:: BROKEN == NUMBER_FIRST && GIVES(call, rank, PEER(n)) ->
			mail_bytes[MAIL(PEER(n), rank)] = k
		:: else -> skip
		fi;
		n--
	   }
	od
}

#define MISSES_HEAD(n)  ((n) < RANKS && lacks_head[n])
#define MISSES_MAIL(n)  ((n) < RANKS && lacks_mail[n])
#define HAS_HEAD(n)     (head_number[HEAD(rank, PEER(n))] == number)
#define HAS_MAIL(n)     (mail_number[MAIL(rank, PEER(n))] == number)

inline fail()
{
	is_good = false;
	if
	:: !failed[rank] && BROKEN != NO_POISON -> poison[rank] = FAILED
	:: else -> skip
	fi;
	failed[rank] = true
}

inline take_head(n)
{
	lacks_head[n] = false;
	if
	:: DIFFERS(head_call[HEAD(rank, PEER(n))], n) && BROKEN != NO_COMPARE -> fail()
	:: else -> skip
	fi
}

inline take_mail(n)
{
	assert(mail_bytes[MAIL(rank, PEER(n))] == k);
	lacks_mail[n] = false
}

/* The warp of heads has a wait for each peer, the others have one for all. */
inline find_nothing()
{
	if
	:: MISSES_HEAD(1) && !HAS_HEAD(1) -> awaited = 1; is_head = true
	:: MISSES_HEAD(2) && !HAS_HEAD(2) -> awaited = 2; is_head = true
	:: MISSES_MAIL(1) && !HAS_MAIL(1) -> awaited = 1
	:: MISSES_MAIL(2) && !HAS_MAIL(2) && !MISSES_MAIL(1) -> awaited = 2
	fi
}

#define WAS_RELEASED \
	(BROKEN == RELEASED_AT_ONCE || (is_head -> was_head[awaited] : was_mail[awaited]) || \
	 (BROKEN == RELEASED_OF_ANY && !is_head && (was_mail[1] || was_mail[2])))

/* Who is poisoned needs to tell nobody: all peers find the same. */
inline look()
{
	if
	:: failed[rank] || poison[PEER(1)] == FAILED || poison[PEER(RANKS - 1)] == FAILED ->
		is_good = false;
		failed[rank] = true
	:: else ->
		if
		:: poison[PEER(awaited)] == RELEASED && WAS_RELEASED ->
			is_good = false;
			failed[rank] = true
		:: poison[PEER(awaited)] == RELEASED && !WAS_RELEASED && is_head ->
			was_head[awaited] = true
		:: poison[PEER(awaited)] == RELEASED && !WAS_RELEASED && !is_head ->
			was_mail[awaited] = true
		:: else -> skip
		fi
	fi
}

/* No wait for a head begins when the peer has failed. */
inline meet_poison()
{
	if
	:: block == 0 && (poison[PEER(1)] == FAILED || poison[PEER(RANKS - 1)] == FAILED) ->
		is_good = false;
		failed[rank] = true
	:: else -> skip
	fi
}

#define FINDS_NOTHING \
	((MISSES_HEAD(1) && !HAS_HEAD(1)) || (MISSES_HEAD(2) && !HAS_HEAD(2)) || \
	 (MISSES_MAIL(1) && !HAS_MAIL(1)) || (MISSES_MAIL(2) && !HAS_MAIL(2) && !MISSES_MAIL(1)))
#define FINDS_SOMETHING \
	((MISSES_HEAD(1) && HAS_HEAD(1)) || (MISSES_HEAD(2) && HAS_HEAD(2)) || \
	 (MISSES_MAIL(1) && HAS_MAIL(1)) || (MISSES_MAIL(2) && HAS_MAIL(2)))
/* Any other look changes nothing, and is left out. */
#define LOOK_MATTERS (failed[rank] || poison[PEER(1)] || poison[PEER(RANKS - 1)])

inline await_all()
{
	do
	:: atomic {
		!is_good || (!MISSES_HEAD(1) && !MISSES_HEAD(2) && !MISSES_MAIL(1) &&
			     !MISSES_MAIL(2)) -> break
	   }
	:: atomic { is_good && MISSES_HEAD(1) && HAS_HEAD(1) -> take_head(1) }
	:: atomic { is_good && MISSES_HEAD(2) && HAS_HEAD(2) -> take_head(2) }
	:: atomic { is_good && MISSES_MAIL(1) && HAS_MAIL(1) -> take_mail(1) }
	:: atomic { is_good && MISSES_MAIL(2) && HAS_MAIL(2) -> take_mail(2) }
	:: atomic { is_good && FINDS_NOTHING -> find_nothing() };
		atomic {
			if
			:: LOOK_MATTERS -> look()
			:: FINDS_SOMETHING -> skip
			fi;
			awaited = 0;
			is_head = false
		}
	od
}

/* --- blocks --------------------------------------------------------------------------------- */

inline begin_block()
{
	number = epoch[rank] + 1;
	call = CALL_OF(rank, k);
	is_good = !failed[rank];
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS ->
		lacks_mail[n] = GIVES(call, PEER(n), rank);
		lacks_head[n] = block == 0 && !(BROKEN == NO_HEADS && !GIVES(call, PEER(n), rank));
		n++
	od
}

inline forget()
{
	n = 0;
	call = 0;
	number = 0;
	is_good = false;
	for (n : 1 .. 2) {
		lacks_head[n] = false;
		lacks_mail[n] = false;
		was_head[n] = false;
		was_mail[n] = false
	}
	n = 0
}

proctype a_block(byte rank; byte block)
{
	byte k, n, number, call, awaited;
	bool is_good, is_head;
	bool lacks_head[3], lacks_mail[3], was_head[3], was_mail[3];

	do
	:: atomic { begun[rank] == RUNS + 1 -> break }
	:: atomic {
		begun[rank] > k && begun[rank] <= RUNS ->
		k = begun[rank];
		begin_block()
	   };
	   if
	   :: is_good ->
		send_all();
		atomic { meet_poison() };
		await_all()
	   :: else -> skip
	   fi;
	   atomic { end_block(); forget() }
	od
}

init {
	byte r, b;

	atomic {
		if
		:: FAILS ->
			select (odd_rank : 0 .. RANKS - 1);
			select (odd_call : MOVE .. NOTHING);
			if
			:: odd_call == OTHER && odd_rank > 1 -> odd_rank = 1
			:: else -> skip
			fi
		:: else -> skip
		fi;
		for (r : 0 .. RANKS - 1) {
			begin_kernel(r);
			for (b : 0 .. BLOCKS - 1) {
				run a_block(r, b)
			}
		}
	}
	/* all blocks have ended */
	_nr_pr == 1;
	for (r : 0 .. RANKS - 1) {
		assert(FAILS || epoch[r] == RUNS)
	}
}
