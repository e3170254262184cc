/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Halves of scratch used in turn, for spin: RANKS ranks make RUNS runs of a workspace
 * whose runs the engine launches. Nobody says "target free"; src/ops/core/workspace.c argues
 * why nobody has to, and this model checks the argument.
 *
 *   stream    begins run e when run e - 1 is finished, and finishes it when it has seen a
 *             mark of everybody who owes it one (src/ops/core/run.c, the jobs of the kinds)
 *   lanes     of each rank, one for either half: when the stream has begun run e they
 *             write into half e % 2 of each peer, bytes first, their mark behind them
 *             (src/ops/core/send_stage.c). The two know nothing of each other: runs that follow
 *             each other may go on different lanes, and be apart in any way
 *   counters  arrived of half e % 2 (SETS 2), or one set for all runs (SETS 1). Which
 *             source has which counter changes from run to run, as it does when ops cut
 *             rows into different numbers of pieces: index = source * pieces + piece
 *
 * Each run is of some kind; all sequences of the first KINDS kinds are tried:
 *
 *   EVERY     everybody sends to everybody
 *   SOURCE    all-gather: rank 0 has no rows, and says `here` to all instead
 *   TARGET    reduce-scatter: rank 0 has no rows, and all say `here` to it instead
 *   ALL       all-reduce: only rank 1 has a part: all send to it, it sends its sum to all,
 *             and nobody says `here` (src/ops/reduce/reduce.c, build_first(), says why)
 *
 * Checked: who writes into a half finds that its owner has finished the run that used it
 * last; who finishes a run finds that run's bytes; counters only rise; what a rank sent
 * from a half has left when it begins to use the half again; nobody waits forever.
 *
 * -DHERE=0 and -DSETS=1 each leave out what the argument needs; check.sh must find both.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RUNS
#define RUNS 4
#endif
#ifndef KINDS
#define KINDS 4
#endif
#ifndef HERE
#define HERE 1
#endif
#ifndef SETS
#define SETS 2
#endif

#define EVERY  0
#define SOURCE 1
#define TARGET 2
#define ALL    3

#define HALF(e)          ((e) & 1)
/* Of a half of rank r, the part that is rank s's to write. */
#define AT(h, r, s)      (((h) * RANKS + (r)) * RANKS + (s))
#define SET(e)           (SETS == 2 -> HALF(e) : 0)
#define COUNTER(e, s)    (((s) + (e) / 2) % RANKS)
#define ARRIVED(e, r, s) arrived[AT(SET(e), r, COUNTER(e, s))]

/* Whether rank s has bytes for rank t in run e. */
#define SENDS(e, s, t) \
	((kind[e] != ALL || (s) == 1 || (t) == 1) && (kind[e] != SOURCE || (s) != 0) && \
	 (kind[e] != TARGET || (t) != 0))
#define SAYS_HERE(e, s, t) (HERE && kind[e] != ALL && !SENDS(e, s, t))

/* What rank r awaits of rank s in run e has come. */
#define HAS_COME(e, r, s) \
	((r) == (s) || (SENDS(e, s, r) && ARRIVED(e, r, s) >= e) || \
	 (SAYS_HERE(e, s, r) && here[AT(HALF(e), r, s)] >= e) || \
	 (!SENDS(e, s, r) && !SAYS_HERE(e, s, r)))
#define HAVE_COME(e, r) \
	(HAS_COME(e, r, 0) && HAS_COME(e, r, 1) && (RANKS == 2 || HAS_COME(e, r, RANKS - 1)))

byte kind[RUNS + 1];
byte n_kinds;                           /* of the first runs: somebody has begun them */

byte begun[RANKS];                      /* the last run that the stream has begun ... */
byte finished[RANKS];                   /* ... and finished */
byte n_unsent[2 * RANKS];               /* pieces that have yet to leave a half */

byte bytes[2 * RANKS * RANKS];          /* whose run's bytes are there; 0: not all */
byte arrived[2 * RANKS * RANKS];
byte here[2 * RANKS * RANKS];

inline next_target()
{
	i++;
	if
	:: i == RANKS -> i = 1; e = e + 2
	:: else -> skip
	fi
}

#define TO ((rank + i) % RANKS)
/* The sum of an all-reduce leaves when it is made, of what all others have sent. */
#define IS_READY (kind[e] != ALL || rank != 1 || HAVE_COME(e, 1))

proctype lane(byte rank; byte e)
{
	byte i = 1;

	do
	:: atomic { e > RUNS -> break }
	:: atomic {
		e <= RUNS && begun[rank] >= e && SENDS(e, rank, TO) && IS_READY ->
		/* who used this half last has done with it */
		assert(finished[TO] + 2 >= e);
		bytes[AT(HALF(e), TO, rank)] = 0
	   };
	   atomic {
		bytes[AT(HALF(e), TO, rank)] = e;
		assert(ARRIVED(e, TO, rank) < e);
		ARRIVED(e, TO, rank) = e;
		n_unsent[2 * rank + HALF(e)]--;
		next_target()
	   }
	:: atomic {
		e <= RUNS && begun[rank] >= e && !SENDS(e, rank, TO) ->
		if
		:: SAYS_HERE(e, rank, TO) ->
			assert(here[AT(HALF(e), TO, rank)] < e);
			here[AT(HALF(e), TO, rank)] = e
		:: else -> skip
		fi;
		next_target()
	   }
	od
}

/* All ranks make the same runs: the first to begin one says of which kind it is. */
inline choose_kind()
{
	if
	:: n_kinds < e ->
		if
		:: kind[e] = EVERY
		:: KINDS > 1 -> kind[e] = SOURCE
		:: KINDS > 2 -> kind[e] = TARGET
		:: KINDS > 3 -> kind[e] = ALL
		fi;
		n_kinds = e
	:: else -> skip
	fi
}

proctype stream(byte rank)
{
	byte e = 1, s;

	do
	:: atomic { e > RUNS -> break }
	:: atomic {
		e <= RUNS && begun[rank] < e ->
		choose_kind();
		assert(n_unsent[2 * rank + HALF(e)] == 0);
		s = 0;
		do
		:: s == RANKS -> break
		:: else ->
			if
			:: s != rank && SENDS(e, rank, s) -> n_unsent[2 * rank + HALF(e)]++
			:: else -> skip
			fi;
			s++
		od;
		s = 0;
		begun[rank] = e
	   }
	:: atomic {
		/* Reading is over at one moment: who overwrites what is read before that
		 * is found by the writer's assertion. */
		e <= RUNS && begun[rank] == e && HAVE_COME(e, rank) ->
		do
		:: s == RANKS -> break
		:: else ->
			assert(s == rank || !SENDS(e, s, rank) ||
			       bytes[AT(HALF(e), rank, s)] == e);
			s++
		od;
		s = 0;
		finished[rank] = e;
		e++
	   }
	od
}

init {
	byte i = 0;

	atomic {
		do
		:: i == RANKS -> break
		:: else ->
			run stream(i);
			run lane(i, 1);
			run lane(i, 2);
			i++
		od
	}
}
