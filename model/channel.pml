/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs of a channel of ranks on the host, for spin: RANKS ranks, two or three, make RUNS calls.
 * Each rank has a ring of SLOTS slots, into which it puts its chunks, and two heads, which it uses
 * in turn. src/ops/channel/channel.h argues why nothing is overwritten too early and why no circle
 * of ranks waits, and this model checks the argument.
 *
 *   put()          awaits room, writes the chunk and raises the rank's counter of chunks (put() of
 *                  host_run.c, cei_channel_await_room() of waits.c)
 *   await_heads()  awaits the heads of all peers, compares their calls with the rank's own one, and
 *                  gives back all chunks of peers from which nothing comes
 *   await()        a wait for a counter of a peer, which fails if the peer has ended the channel;
 *                  the rank learns that by the poison, and looks at the counter again behind it
 *   took()         gives a chunk back, and with the last one that the rank needs in a run also all
 *                  that the peer puts behind it
 *
 * A chunk holds as its data the number of its run and its number within the run, and 0 while it is
 * written. It is read from the moment when it is found to be there until it is given back, and has
 * to be right at both ends. Likewise a head holds the number of its run, and the rest follows from
 * the call: how many chunks each rank gives to each other one.
 *
 * The model has one memory, whose every change all ranks see at once. That is enough, because each
 * counter, each number of a head and each poison is stored with release and loaded with acquire:
 * who sees it also sees all that was stored before it. No rank asks which of two others stored
 * first; and the only thing from whose absence a rank concludes something is a counter that is too
 * low although the peer's poison, which is stored behind it, was seen. What remains is that a rank
 * stores the data before the counter that stands for them, and that is a rule here.
 *
 * Each run is of some kind; all sequences of the first KINDS kinds are tried:
 *
 *   BARRIER     no chunks
 *   SCATTER     rank 0 gives a chunk to each other rank, and gets nothing
 *   SUM         a reduce-scatter whose last rank gets less than the others
 *   UNEVEN      an all-to-all with different numbers of chunks, some of them more than a ring holds
 *   ALL_REDUCE  two slices of two chunks each: the operand, of which the chunks of all peers are
 *               awaited before the first one is given back, and the sum
 *
 * Checked: each chunk and each head that is read is that of the run for which it is wanted; who
 * overwrites a head finds that all peers have ended the run that it was of; nobody waits for ever;
 * and while all ranks make the same calls nobody fails, although each rank ends the channel as soon
 * as its last call is complete.
 *
 * -DFAILS=DIFFERS: one rank, any of them, makes another call than its peers in run ODD_RUN, or no
 * call and releases the channel. Each kind is tried, also SCATTER with another count between
 * ranks 0 and 1. Checked: nobody fails in an earlier run; whoever completes that run made the same
 * call as each of its peers, which only a third rank can have done, if nothing but the count
 * between two others differs; nobody completes a later run; all ranks end.
 *
 * -DFAILS=ABORTS: another thread ends the channel of some rank at any time. Checked: all ranks end.
 *
 * -DBROKEN=NAME leaves out a rule; check.sh must find each, see below.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RUNS
#define RUNS 3
#endif
#ifndef KINDS
#define KINDS 5
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef ODD_RUN
#define ODD_RUN 2
#endif
#define SLOTS 2

/* Values of FAILS. */
#define DIFFERS 1
#define ABORTS  2

/* Values of BROKEN: the rule that is left out. */
#define NO_CREDIT         1     /* a rank puts a chunk without awaiting room */
#define CREDIT_FIRST      2     /* a chunk is given back before it is read */
#define ONE_HEAD          3     /* all runs use the same head */
#define NO_AWAIT_HEADS    4     /* a rank awaits no heads of peers from which it gets nothing */
#define NO_COMPARE        5     /* heads are awaited but not compared */
#define NO_EARLY_REST     6     /* what lies behind the last chunk that a rank needs is given back
				 * at the end of the run only */
#define NO_EARLY_ALL      7     /* so are the chunks of peers from which nothing comes */
#define PUT_AFTER_READ    8     /* a rank awaits its peers' chunks before it puts its own */
#define POISON_LATE       9     /* the counter is not looked at again behind the poison */
#define POISON_LATE_HEAD 10     /* nor is a head */
#define COUNTER_FIRST    11     /* the counter is stored before the chunk */
#define NUMBER_FIRST     12     /* the head's number is stored before the rest of the head */
#define NO_POISON        13     /* a rank that fails tells nobody */

/* Kinds of runs. */
#define BARRIER    0
#define SCATTER    1
#define SUM        2
#define UNEVEN     3
#define ALL_REDUCE 4
#define OTHER      5            /* SCATTER, but nothing for rank 1 */
#define GONE       6            /* no call */

/* Numbers of chunks of a call of kind k: those that rank s gives to rank t, those that rank s puts,
 * and the rounds in which rank t gets some. They never change, so they are no part of a state. */
hidden byte gives[(GONE + 1) * RANKS * RANKS];
hidden byte n_puts[(GONE + 1) * RANKS];
hidden byte n_gets[(GONE + 1) * RANKS];

#define GIVES(k, s, t) gives[((k) * RANKS + (s)) * RANKS + (t)]
#define N_PUTS(k, s)   n_puts[(k) * RANKS + (s)]
#define N_GETS(k, t)   n_gets[(k) * RANKS + (t)]

inline raise(counter, least)
{
	counter = (counter < least -> least : counter)
}

inline gives_to(k, s, t, count)
{
	GIVES(k, s, t) = count;
	raise(N_PUTS(k, s), count);
	raise(N_GETS(k, t), count)
}

inline fill_uneven()
{
	if
	:: RANKS == 2 -> gives_to(UNEVEN, 0, 1, 4); gives_to(UNEVEN, 1, 0, 2)
	:: else ->
		gives_to(UNEVEN, 0, 1, 1);
		gives_to(UNEVEN, 0, RANKS - 1, 5);
		gives_to(UNEVEN, RANKS - 1, 1, 5)
	fi
}

inline fill_numbers()
{
	byte s, t;

	d_step {
		fill_uneven();
		do
		:: s == RANKS -> break
		:: s < RANKS && t == RANKS -> t = 0; s++
		:: s < RANKS && t == s -> t++
		:: s < RANKS && t < RANKS && t != s ->
			gives_to(ALL_REDUCE, s, t, 4);
			gives_to(SCATTER, s, t, s == 0);
			gives_to(OTHER, s, t, s == 0 && t != 1);
			gives_to(SUM, s, t, (t == RANKS - 1 -> 1 : 2));
			t++
		od;
		s = 0;
		t = 0
	}
}

/* --- state ---------------------------------------------------------------------------------- */

/* Whether the chunks of this round are awaited of all peers before any is given back. */
#define IS_ADDED_UP (kind == SUM || (kind == ALL_REDUCE && i % 2 == 0))

#define PEER(n)       ((rank + (n)) % RANKS)
#define CREDIT(r, p)  credit[(r) * RANKS + (p)]
#define SLOT(r, c)    slots[(r) * SLOTS + (c) % SLOTS]
#define DATA(run, i)  (8 * (run) + (i))
#define HALF(r)       (2 * (r) + (BROKEN == ONE_HEAD -> 0 : e % 2))
/* What a rank calls in this run. */
#define KIND_OF(p)    (e == ODD_RUN && (p) == odd_rank -> odd_kind : kinds[e])
#define IS_ODD        (odd_rank < RANKS)

byte kinds[RUNS + 1];
byte n_kinds;                           /* of the first runs: somebody has begun them */
byte odd_rank = RANKS;                  /* makes another call in run ODD_RUN; RANKS: nobody does */
byte odd_kind;

byte slots[RANKS * SLOTS];
byte n_ready[RANKS];
byte credit[RANKS * RANKS];
byte head_number[RANKS * 2];
byte head_data[RANKS * 2];
bool poison[RANKS];
bool is_ended[RANKS];                   /* by another thread of the rank */
byte n_finished[RANKS];                 /* runs */
bool succeeds_wrongly;                  /* never set: a rank completes a run that it must not */
bool fails_wrongly;                     /* never set: a rank fails without a reason */

/* --- chunks --------------------------------------------------------------------------------- */

/* Waits until a counter of a peer is high enough. Counters never fall and poison stays, so polling
 * is the same as to block until one of the two has come. */
inline await(has_come, peer)
{
	if
	:: has_come -> skip
	:: BROKEN != POISON_LATE && poison[peer] ->
		if
		:: has_come -> skip
		:: else -> goto failed
		fi
	:: BROKEN == POISON_LATE && !(has_come) ->
		if
		:: poison[peer] -> goto failed
		:: has_come -> skip
		fi
	:: FAILS == ABORTS && !(has_come) && is_ended[rank] -> goto failed
	fi
}

#define HAS_ROOM     (CREDIT(rank, PEER(n)) + SLOTS > n_put)
#define HAS_CHUNK    (n_ready[PEER(n)] > base[PEER(n)] + i)
#define IS_CHUNK_OK  (SLOT(PEER(n), base[PEER(n)] + i) == DATA(e, i))
#define COMES(n)     (GIVES(kind, PEER(n), rank) > i)

/* The chunks that a rank reads next. */
inline await_round()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS && !COMES(n) -> n++
	:: n < RANKS && COMES(n) -> await(HAS_CHUNK, PEER(n)); n++
	od
}

/* The next chunk of this rank, which is chunk i of the run. */
inline put()
{
	atomic {
		if
		:: BROKEN == PUT_AFTER_READ && i > 0 -> await_round()
		:: else -> skip
		fi;
		n = (BROKEN == NO_CREDIT || n_put < SLOTS -> RANKS : 1);
		do
		:: n == RANKS -> break
		:: n < RANKS -> await(HAS_ROOM, PEER(n)); n++
		od;
		n = 0;
		SLOT(rank, n_put) = 0;
		if
		:: BROKEN == COUNTER_FIRST -> n_ready[rank] = n_put + 1
		:: else -> skip
		fi
	};
	atomic {
		SLOT(rank, n_put) = DATA(e, i);
		n_put++;
		n_ready[rank] = n_put
	}
}

/* How many chunks peer n puts in this run. */
#define N_CHUNKS       N_PUTS(KIND_OF(PEER(n)), PEER(n))
/* Gives back the chunks that peer n puts in this run before chunk `end` of it. */
#define GIVE_BACK(end) CREDIT(PEER(n), rank) = base[PEER(n)] + (end)

inline took()
{
	if
	:: i + 1 >= GIVES(kind, PEER(n), rank) && BROKEN != NO_EARLY_REST -> GIVE_BACK(N_CHUNKS)
	:: else -> GIVE_BACK(i + 1)
	fi
}

inline read_chunk()
{
	atomic {
		await(HAS_CHUNK, PEER(n));
		assert(IS_CHUNK_OK);
		if
		:: BROKEN == CREDIT_FIRST -> took()
		:: else -> skip
		fi
	}
}

inline end_read()
{
	atomic {
		assert(IS_CHUNK_OK);
		took();
		n++
	}
}

/* Reads chunk i of all peers that have one for this rank. */
inline read_round()
{
	n = 1;
	do
	:: atomic { n == RANKS -> n = 0; break }
	:: atomic { n < RANKS && !COMES(n) -> n++ }
	:: n < RANKS && COMES(n) ->
		read_chunk();
		if
		:: IS_ADDED_UP -> n++
		:: else -> end_read()
		fi
	od;
	n = (IS_ADDED_UP && N_GETS(kind, rank) > i -> 1 : RANKS);
	do
	:: atomic { n == RANKS -> n = 0; break }
	:: n < RANKS -> end_read()
	od
}

/* --- heads ---------------------------------------------------------------------------------- */

#define HAS_HEAD(n)  (head_number[HALF(PEER(n))] == e)
/* SCATTER and OTHER are the same call with other counts. */
#define WHAT(k)      ((k) == OTHER -> SCATTER : (k))
#define DIFFER(n) \
	(WHAT(kind) != WHAT(KIND_OF(PEER(n))) || \
	 GIVES(kind, rank, PEER(n)) != GIVES(KIND_OF(PEER(n)), rank, PEER(n)) || \
	 GIVES(kind, PEER(n), rank) != GIVES(KIND_OF(PEER(n)), PEER(n), rank))

inline take_head(n)
{
	assert(head_data[HALF(PEER(n))] == e);
	if
	:: DIFFER(n) && BROKEN != NO_COMPARE -> goto failed
	:: else -> has_seen[n] = true
	fi
}

#define MISSES(n) ((n) < RANKS && !has_seen[n] && \
		   !(BROKEN == NO_AWAIT_HEADS && GIVES(kind, PEER(n), rank) == 0))

/* What a rank may find that has yet to see the head of peer n. In which order it looks at peers is
 * left open. */
#define LOOKS_AT(n) \
	:: MISSES(n) && HAS_HEAD(n) -> take_head(n) \
	:: BROKEN != POISON_LATE_HEAD && MISSES(n) && poison[PEER(n)] -> \
		if \
		:: HAS_HEAD(n) -> take_head(n) \
		:: else -> goto failed \
		fi \
	:: BROKEN == POISON_LATE_HEAD && MISSES(n) && !HAS_HEAD(n) -> \
		if \
		:: poison[PEER(n)] -> goto failed \
		:: HAS_HEAD(n) -> take_head(n) \
		fi

inline await_heads()
{
	atomic {
		do
		:: !MISSES(1) && !MISSES(2) -> break
		LOOKS_AT(1)
		LOOKS_AT(2)
		:: FAILS == ABORTS && (MISSES(1) || MISSES(2)) && is_ended[rank] -> goto failed
		od;
		has_seen[1] = false;
		has_seen[RANKS - 1] = false;
		n = 1;
		do
		:: n == RANKS -> break
		:: n < RANKS ->
			if
			:: GIVES(kind, PEER(n), rank) == 0 && BROKEN != NO_EARLY_ALL ->
				GIVE_BACK(N_CHUNKS)
			:: else -> skip
			fi;
			n++
		od;
		n = 0
	}
}

/* The first rank that begins a run says of which kind it is. */
inline choose_kind()
{
	if
	:: n_kinds < e ->
		if
		:: kinds[e] = BARRIER
		:: KINDS > 1 -> kinds[e] = SCATTER
		:: KINDS > 2 -> kinds[e] = SUM
		:: KINDS > 3 -> kinds[e] = UNEVEN
		:: KINDS > 4 -> kinds[e] = ALL_REDUCE
		fi;
		if
		:: IS_ODD && e == ODD_RUN && kinds[e] == odd_kind -> odd_kind = GONE
		:: else -> skip
		fi;
		n_kinds = e
	:: else -> skip
	fi;
	kind = KIND_OF(rank)
}

/* Whoever overwrites a head finds that nobody reads it any more. */
inline begin_head()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS ->
		assert(n_finished[PEER(n)] + (BROKEN == ONE_HEAD -> 1 : 2) >= e);
		n++
	od;
	n = 0;
	head_data[HALF(rank)] = 0;
	if
	:: BROKEN == NUMBER_FIRST -> head_number[HALF(rank)] = e
	:: else -> skip
	fi
}

/* --- ranks ---------------------------------------------------------------------------------- */

/* All of each peer's chunks are given back at the latest here. */
inline end_run()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS ->
		succeeds_wrongly = IS_ODD && (e > ODD_RUN || (e == ODD_RUN && DIFFER(n)));
		assert(!succeeds_wrongly);
		GIVE_BACK(N_CHUNKS);
		base[PEER(n)] = base[PEER(n)] + N_CHUNKS;
		n++
	od;
	n = 0;
	i = 0;
	n_finished[rank] = e
}

proctype member(byte rank)
{
	byte e, i, n, kind, n_put;
	byte base[RANKS];
	bool has_seen[3];

	do
	:: atomic { e == RUNS -> break }
	:: atomic {
		e < RUNS ->
		if
		:: FAILS == ABORTS && is_ended[rank] -> break
		:: else -> skip
		fi;
		e++;
		choose_kind();
		if
		:: kind == GONE -> break
		:: else -> begin_head()
		fi
	   };
	   atomic {
		head_data[HALF(rank)] = e;
		head_number[HALF(rank)] = e
	   };
	   do
	   :: atomic { i > 0 && i >= N_PUTS(kind, rank) && i >= N_GETS(kind, rank) -> break }
	   :: i == 0 || i < N_PUTS(kind, rank) || i < N_GETS(kind, rank) ->
		if
		:: i < N_PUTS(kind, rank) -> put()
		:: else -> skip
		fi;
		if
		:: i == 0 -> await_heads()      /* the first chunk travels with the head */
		:: else -> skip
		fi;
		read_round();
		i++
	   od;
	   atomic { end_run() }
	od;
	goto over;

failed:
	atomic {
		fails_wrongly = FAILS != ABORTS && !(IS_ODD && e >= ODD_RUN);
		assert(!fails_wrongly)
	};
	if
	:: BROKEN == NO_POISON -> goto silent
	:: else -> skip
	fi;
over:
	poison[rank] = true;
silent:
	skip
}

/* Ends the channel of one rank, whatever that rank is doing. */
proctype aborter()
{
	byte rank;

	select (rank : 0 .. RANKS - 1);
	is_ended[rank] = true;
	poison[rank] = true
}

inline choose_difference()
{
	select (odd_rank : 0 .. RANKS - 1);
	select (odd_kind : 0 .. GONE);
	if
	:: odd_kind == OTHER && odd_rank > 1 -> odd_rank = 1
	:: else -> skip
	fi
}

init {
	byte n;

	fill_numbers();
	atomic {
		if
		:: FAILS == DIFFERS -> choose_difference()
		:: FAILS == ABORTS -> run aborter()
		:: else -> skip
		fi;
		do
		:: n == RANKS -> break
		:: n < RANKS -> run member(n); n++
		od
	}
}
