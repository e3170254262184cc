/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Rings between ranks on GPUs, for spin: how many bytes travel in runs in steps
 * (src/kernels/channel_steps_kernels.cu, channel_moves.cuh, channel_sums.cuh). One lane of each
 * pair; channel_gpu.pml has heads and the end of runs, for which rings do not wait.
 *
 * At each rank a run is four tasks, which only wait for peers and for each other's counters. Each
 * ring has SLOTS slots at the rank that reads it.
 *
 *   PUSH   stores chunks to the peers' rings of moves, of each peer the first, then of each the
 *          next. LAG stores may be under way of which it has not told, but before it waits for
 *          room it tells of all
 *   ADD    awaits a row of chunks, one of each peer, and adds it up into one of SUM_SLOTS slots
 *   STORE  tells that the row is needed no more, and stores the sum to the peers' rings of sums,
 *          with SUM_LAG rows under way of which it has not told
 *   COPY   takes chunks out of the ring of sums, or of moves
 *
 * TELL and CREDIT are no tasks here: what they add is delay, and whoever looks at a counter may
 * look late.
 *
 * Chunks are counted from the channel's beginning. A chunk holds its run and its row. A store is
 * under way from when it begins until the task that began it has waited for it. Meanwhile its slot
 * holds nothing of use, since bytes arrive in any order. A read takes time, too, and has to find
 * its chunk when it begins and when it ends.
 *
 * Each run is a SUM, whose ROWS rows of chunks are added up at each rank and then gathered by all,
 * or a MOVE, in which ranks with an even number give 2 chunks to each peer, and the others 1. All
 * sequences are tried, as far as RUNS and KINDS go.
 *
 * Checked: each chunk that is read is the one that is wanted, from beginning to end; counters never
 * fall; nobody waits for ever.
 *
 * -DREADS_AT_ONCE=1: a read takes no time. For three ranks, of which circles are what matters.
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
#define KINDS 2
#endif
#ifndef ROWS
#define ROWS 2
#endif
#ifndef SLOTS
#define SLOTS 1
#endif
#ifndef SUM_SLOTS
#define SUM_SLOTS 2
#endif
#ifndef LAG
#define LAG 2
#endif
#ifndef SUM_LAG
#define SUM_LAG 1
#endif
#ifndef READS_AT_ONCE
#define READS_AT_ONCE 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

/* Values of BROKEN: the rule that is left out. */
#define NO_CREDIT      1        /* chunks are stored without awaiting room */
#define CREDIT_FIRST   2        /* COPY gives chunks back before it has read them */
#define CREDIT_ADDENDS 3        /* so does ADD */
#define COUNTER_FIRST  4        /* peers are told of chunks whose stores are under way */
#define FROM_ZERO      5        /* each run counts from 0 */
#define ONE_TASK       6        /* PUSH and STORE are one: while either waits, so does the other */
#define SUMS_IN_ONE    7        /* so are STORE and COPY */
#define SILENT_PUSH    8        /* PUSH waits for room without telling of what it has stored */
#define SILENT_STORE   9        /* so does STORE */
#define TOLD_FALLS    10        /* STORE tells of SUM_LAG rows less than it has told before */

#define SUM  0
#define MOVE 1

#define MOVES 0                 /* rings */
#define SUMS  1

#define PUSH  1                 /* tasks */
#define STORE 2

#define PEER(n)          ((rank + (n)) % RANKS)
#define AT(way, r, p)    (((way) * RANKS + (r)) * RANKS + (p))
#define SLOT(way, r, p, i) slots[AT(way, r, p) * SLOTS + (i) % SLOTS]
#define UNDER_WAY        100
#define IS_HELD_BY(task) (BROKEN == ONE_TASK && turn[rank] == (task))

/* Chunks that rank s gives to another one in run e, by PUSH. */
#define N_ROWS(e, s)     (kinds[e] == SUM -> ROWS : 2 - (s) % 2)
#define MOST_ROWS(e)     (kinds[e] == SUM -> ROWS : 2)
#define N_SUMS(e)        (kinds[e] == SUM -> ROWS : 0)

byte kinds[RUNS + 1];
byte n_kinds;

byte slots[2 * RANKS * RANKS * SLOTS];          /* [way][reader][writer] */
byte arrived[2 * RANKS * RANKS];                /* [way][reader][writer] */
byte credit[2 * RANKS * RANKS];                 /* [way][writer][reader] */

byte run_of[RANKS];
byte n_tasks[RANKS];                            /* of the run that have ended */
byte sent[2 * RANKS * RANKS];                   /* [way][rank][peer]: before the run */
byte taken[2 * RANKS * RANKS];
byte added[RANKS];                              /* rows */
byte emptied[RANKS];                            /* rows that STORE has read */
byte turn[RANKS];                               /* the task that may not be left, if two are one */
bool falls;                                     /* never set: a counter fell */

/* --- runs ------------------------------------------------------------------------------------ */

inline choose(e)
{
	if
	:: n_kinds >= e -> skip
	:: else ->
		n_kinds = e;
		if
		:: kinds[e] = SUM
		:: KINDS > 1 -> kinds[e] = MOVE
		fi
	fi
}

inline add_to(counter, more)
{
	counter = counter + more
}

/* The task that ends last keeps the counters, and begins the next run. */
inline end_task()
{
	n_tasks[rank]++;
	if
	:: n_tasks[rank] < 4 -> skip
	:: else ->
		n = 1;
		do
		:: n == RANKS -> break
		:: n < RANKS && BROKEN != FROM_ZERO ->
			add_to(sent[AT(MOVES, rank, PEER(n))], N_ROWS(e, rank));
			add_to(taken[AT(MOVES, rank, PEER(n))], N_ROWS(e, PEER(n)));
			add_to(sent[AT(SUMS, rank, PEER(n))], N_SUMS(e));
			add_to(taken[AT(SUMS, rank, PEER(n))], N_SUMS(e));
			n++
		:: n < RANKS && BROKEN == FROM_ZERO -> n++
		od;
		added[rank] = 0;
		emptied[rank] = 0;
		n_tasks[rank] = 0;
		run_of[rank] = run_of[rank] + 1;
		if
		:: run_of[rank] <= RUNS -> choose(run_of[rank])
		:: else -> skip
		fi
	fi;
	n = 0;
	row = 0
}

/* --- chunks ---------------------------------------------------------------------------------- */

#define DATA              (16 * e + row + 1)
#define NEXT_OUT(way, n)  (sent[AT(way, rank, PEER(n))] + row)
#define NEXT_IN(way, n)   (taken[AT(way, rank, PEER(n))] + row)
#define SLOT_IN(way, n)   SLOT(way, rank, PEER(n), NEXT_IN(way, n))
#define HAS_ROOM(way) \
	(BROKEN == NO_CREDIT || NEXT_OUT(way, n) < credit[AT(way, rank, PEER(n))] + SLOTS)
#define HAS_COME(way, n)  (arrived[AT(way, rank, PEER(n))] > NEXT_IN(way, n))
#define GIVE_BACK(way, n) credit[AT(way, PEER(n), rank)] = NEXT_IN(way, n) + 1

/* Waits for the stores to peer n of rows before `end`, and tells of them. What was told stays. */
inline tell(way, n, end)
{
	told = arrived[AT(way, PEER(n), rank)] - sent[AT(way, rank, PEER(n))];
	falls = falls || (BROKEN == TOLD_FALLS && told > end);
	assert(!falls);
	do
	:: told >= end -> break
	:: else ->
		SLOT(way, PEER(n), rank, sent[AT(way, rank, PEER(n))] + told) = 16 * e + told + 1;
		told++;
		arrived[AT(way, PEER(n), rank)] = sent[AT(way, rank, PEER(n))] + told
	od;
	told = 0
}

/* A task that stores is_waiting when it has told of what it has stored and waits for room, and
 * is_late when COUNTER_FIRST has told of bytes that are under way. */

#define CAN_STORE(way)   (!is_late && HAS_ROOM(way))
#define HAS_TO_WAIT(way) (!is_late && !HAS_ROOM(way) && !is_waiting)

inline begin_store(way)
{
	SLOT(way, PEER(n), rank, NEXT_OUT(way, n)) = UNDER_WAY;
	is_waiting = false;
	if
	:: BROKEN == COUNTER_FIRST ->
		arrived[AT(way, PEER(n), rank)] = NEXT_OUT(way, n) + 1;
		is_late = true
	:: else -> skip
	fi
}

inline end_late_store(way)
{
	SLOT(way, PEER(n), rank, NEXT_OUT(way, n)) = DATA;
	is_late = false
}

/* --- tasks ----------------------------------------------------------------------------------- */

inline begin_task()
{
	do
	:: atomic { run_of[rank] > RUNS -> goto over }
	:: atomic { run_of[rank] > e && run_of[rank] <= RUNS -> e = run_of[rank]; break }
	od
}

/* Chunks of PUSH whose stores have begun; and if n_stored are done, how many of them went to peer
 * m. */
#define N_BEGUN              (row * (RANKS - 1) + n - 1)
#define ROWS_OF(n_stored, m) (((n_stored) + RANKS - 1 - (m)) / (RANKS - 1))

/* Tells all peers of the first n_stored chunks of PUSH. */
inline tell_chunks(n_stored)
{
	m = 1;
	do
	:: m == RANKS -> break
	:: else -> tell(MOVES, m, ROWS_OF(n_stored, m)); m++
	od;
	m = 0
}

inline push_goes_on()
{
	n++;
	if
	:: N_BEGUN > LAG -> tell_chunks(N_BEGUN - LAG)
	:: else -> skip
	fi;
	if
	:: n == RANKS -> n = 1; row++
	:: else -> skip
	fi
}

proctype push(byte rank)
{
	byte e, row, n = 1, m, told;
	bool is_waiting, is_late;

	do
	:: begin_task();
	   do
	   :: atomic { row == N_ROWS(e, rank) -> tell_chunks(N_BEGUN); end_task(); n = 1; break }
	   :: atomic {
		row < N_ROWS(e, rank) && CAN_STORE(MOVES) && !IS_HELD_BY(STORE) ->
		begin_store(MOVES);
		turn[rank] = (BROKEN == ONE_TASK -> 0 : turn[rank]);
		if
		:: is_late -> skip
		:: else -> push_goes_on()
		fi
	      }
	   :: atomic { is_late -> end_late_store(MOVES); push_goes_on() }
	   :: atomic {
		row < N_ROWS(e, rank) && HAS_TO_WAIT(MOVES) && !IS_HELD_BY(STORE) ->
		turn[rank] = (BROKEN == ONE_TASK -> PUSH : turn[rank]);
		is_waiting = true;
		if
		:: BROKEN != SILENT_PUSH -> tell_chunks(N_BEGUN)
		:: else -> skip
		fi
	      }
	   od
	od;
over:	skip
}

/* Reads the addends of a row. */
inline check_addends()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS ->
		assert(SLOT_IN(MOVES, n) == DATA);
		n++
	od;
	n = 0
}

inline give_addends_back()
{
	n = 1;
	do
	:: n == RANKS -> break
	:: n < RANKS -> GIVE_BACK(MOVES, n); n++
	od;
	n = 0
}

inline add_goes_on()
{
	check_addends();
	is_reading = false;
	row++;
	added[rank] = row
}

proctype adder(byte rank)
{
	byte e, row, n;
	bool is_reading;

	do
	:: begin_task();
	   do
	   :: atomic { kinds[e] != SUM || row == ROWS -> end_task(); break }
	   :: atomic {
		kinds[e] == SUM && row < ROWS && !is_reading && HAS_COME(MOVES, 1) &&
		HAS_COME(MOVES, RANKS - 1) && row < emptied[rank] + SUM_SLOTS ->
		check_addends();
		is_reading = true;
		if
		:: BROKEN == CREDIT_ADDENDS -> give_addends_back()
		:: else -> skip
		fi;
		if
		:: READS_AT_ONCE -> add_goes_on()
		:: else -> skip
		fi
	      }
	   :: atomic { is_reading -> add_goes_on() }
	   od
	od;
over:	skip
}

/* Tells all peers of the first rows. */
inline tell_rows(end)
{
	m = 1;
	do
	:: m == RANKS -> break
	:: else -> tell(SUMS, m, end); m++
	od;
	m = 0
}

/* What the last row has stored may still be under way. */
inline store_goes_on()
{
	n++;
	if
	:: n < RANKS -> skip
	:: else ->
		n = 0;
		turn[rank] = 0;
		emptied[rank] = row;
		row++;
		if
		:: row > SUM_LAG -> tell_rows(row - SUM_LAG)
		:: else -> skip
		fi
	fi
}

proctype storer(byte rank)
{
	byte e, row, n, m, told;
	bool is_waiting, is_late;

	do
	:: begin_task();
	   do
	   :: atomic { kinds[e] != SUM -> end_task(); break }
	   :: atomic { kinds[e] == SUM && row == ROWS -> tell_rows(ROWS); end_task(); break }
	   :: atomic {
		n == 0 && added[rank] > row && !IS_HELD_BY(PUSH) ->
		turn[rank] = (BROKEN == ONE_TASK || BROKEN == SUMS_IN_ONE -> STORE : 0);
		give_addends_back();
		n = 1
	      }
	   :: atomic {
		n > 0 && CAN_STORE(SUMS) ->
		begin_store(SUMS);
		if
		:: is_late -> skip
		:: else -> store_goes_on()
		fi
	      }
	   :: atomic { is_late -> end_late_store(SUMS); store_goes_on() }
	   :: atomic {
		n > 0 && HAS_TO_WAIT(SUMS) ->
		is_waiting = true;
		if
		:: BROKEN != SILENT_STORE -> tell_rows(row)
		:: else -> skip
		fi
	      }
	   od
	od;
over:	skip
}

#define COPIED    (kinds[e] == SUM -> SUMS : MOVES)
#define COMES(n)  (kinds[e] == SUM || row < N_ROWS(e, PEER(n)))

/* On to the next chunk that comes. */
inline find_chunk()
{
	do
	:: n == RANKS -> n = 1; row++
	:: n < RANKS && row == MOST_ROWS(e) -> break
	:: n < RANKS && row < MOST_ROWS(e) && !COMES(n) -> n++
	:: n < RANKS && row < MOST_ROWS(e) && COMES(n) -> break
	od
}

inline copy_goes_on()
{
	is_reading = false;
	assert(SLOT_IN(COPIED, n) == DATA);
	GIVE_BACK(COPIED, n);
	n++;
	find_chunk()
}

proctype copier(byte rank)
{
	byte e, row, n = 1;
	bool is_reading;

	do
	:: begin_task();
	   atomic { find_chunk() };
	   do
	   :: atomic { row == MOST_ROWS(e) -> end_task(); n = 1; break }
	   :: atomic {
		row < MOST_ROWS(e) && HAS_COME(COPIED, n) && !is_reading &&
		!(BROKEN == SUMS_IN_ONE && turn[rank] == STORE) ->
		assert(SLOT_IN(COPIED, n) == DATA);
		is_reading = true;
		if
		:: BROKEN == CREDIT_FIRST -> GIVE_BACK(COPIED, n)
		:: else -> skip
		fi;
		if
		:: READS_AT_ONCE -> copy_goes_on()
		:: else -> skip
		fi
	      }
	   :: atomic { is_reading -> copy_goes_on() }
	   od
	od;
over:	skip
}

init {
	byte rank;

	atomic {
		choose(1);
		for (rank : 0 .. RANKS - 1) {
			run_of[rank] = 1;
			run push(rank);
			run adder(rank);
			run storer(rank);
			run copier(rank)
		}
	}
}
