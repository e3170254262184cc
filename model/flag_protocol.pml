/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The tile-flag protocol, for spin: one producer kernel whose tiles arrive at a
 * counter, the engine with one lane, one consumer, two launches (bases 0 and 1), one
 * target that both launches write, and one who may abort at any moment.
 *
 *   producer   writes TILES tiles of launch k, each arrives; the last raises
 *              ready to k + 1 and the tally wraps to 0 (device.cuh)
 *   engine     launch k goes when free >= k (always polled) and ready >= k + 1, which
 *              it polls (GATED 0) or leaves to the lane (GATED 1)
 *   lane       waits (GATED 1), copies tile by tile, then raises arrived to k + 1
 *   consumer   awaits arrived >= k + 1, looks at the abort word after its mark,
 *              reads, raises free to k + 1
 *   aborter    abort word first, then poison on every counter (signal.c); the engine
 *              drops what has not begun, and poisons again when its lane is drained
 *
 * Steps are atomic where the code's are one store or one read-modify-write. Reads of
 * memory in the model are sequentially consistent: each raise is a release, each look
 * an acquire, and the raiser against the aborter is ordered by seq_cst.
 *
 * -DBROKEN=n leaves out one rule; each of them must be found by check.sh:
 *   1  the consumer does not look at the abort word after its mark
 *   2  the abort poisons first and raises the abort word then
 *   3  the engine does not wait until the target is free
 *   4  the mark is raised before the copy
 *   5  the tally does not wrap
 *   6  poison is not repeated after the lane is drained
 */

#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef GATED
#define GATED 1
#endif

#define TILES    2
#define LAUNCHES 2
#define POISON   100

byte ready, free_mark, arrived;         /* counters; only rise, but for the poison's end */
byte tally;
bit abort_word;
bit all_poisoned;                       /* the aborter has ended */
bit engine_ended;

byte source[TILES];                     /* launch + 1 whose data is there; 0: nothing */
byte target[TILES];
byte reading;                           /* the consumer reads data of launch reading - 1 */

/* The lane: one operation list per launch, handed over by the engine. */
byte n_given, n_done;

inline poison_all() {
	ready = POISON;
	free_mark = POISON;
	arrived = POISON;
}

proctype tile(byte t; byte k)
{
	source[t] = k + 1;                      /* stores the tile */
	atomic {                                /* atomic inc that wraps */
		if
		:: tally == TILES - 1 ->
			if
			:: BROKEN == 5 -> tally++
			:: else -> tally = 0
			fi
		:: else -> tally++; goto done
		fi
	}
	ready = k + 1;                          /* the last one raises, over poison too */
done:	skip
}

/* Launches its tiles anew when the engine took the source of launch k - 1; leaves
 * where the abort word is raised. */
active proctype producer()
{
	byte k = 0;

	do
	:: k == LAUNCHES -> break
	:: k < LAUNCHES ->
		(n_done >= k || abort_word);
		if
		:: abort_word -> break
		:: else -> skip
		fi;
		run tile(0, k);
		run tile(1, k);
		k++
	od
}

active proctype engine()
{
	byte k = 0;

	do
	:: k == LAUNCHES -> break
	:: k < LAUNCHES ->
		/* doorbell: the counter first, then the abort word */
		(BROKEN == 3 || free_mark >= k || abort_word);
		if
		:: abort_word -> break
		:: else -> skip
		fi;
		if
		:: GATED -> skip
		:: !GATED ->
			(ready >= k + 1 || abort_word);
			if
			:: abort_word -> break
			:: else -> skip
			fi
		fi;
		n_given++;
		k++
	od;
	(n_done == n_given);                    /* drained: nothing is gated any more */
	if
	:: abort_word && BROKEN != 6 -> (all_poisoned); poison_all()
	:: else -> skip
	fi;
	engine_ended = 1
}

active proctype lane()
{
	byte k = 0, t;

	do
	:: n_given > k ->
		if
		:: GATED -> (ready >= k + 1 || abort_word)
		:: !GATED -> skip
		fi;
		if
		:: BROKEN == 4 -> arrived = k + 1
		:: else -> skip
		fi;
		t = 0;
		do
		:: t < TILES ->
			/* no overwrite while the consumer reads, abort or not */
			assert(reading == 0);
			target[t] = source[t];
			t++
		:: t == TILES -> break
		od;
		if
		:: BROKEN != 4 -> arrived = k + 1       /* over poison too */
		:: else -> skip
		fi;
		k++;
		n_done = k
	:: k == LAUNCHES -> break
	:: engine_ended && n_given == k -> break
	od
}

active proctype consumer()
{
	byte k = 0, t, seen;

	do
	:: k == LAUNCHES -> break
	:: k < LAUNCHES ->
		(arrived >= k + 1);                     /* awaits; poison lets it go on */
		seen = arrived;
		if
		:: BROKEN != 1 && (abort_word || seen >= POISON) -> break
		:: else -> skip
		fi;
		/* From here on it trusts its mark. An abort that comes now is too late to
		 * matter for what was copied before its mark. */
		reading = k + 1;
		t = 0;
		do
		:: t < TILES ->
			assert(target[t] == k + 1);     /* this launch's data, whole */
			t++
		:: t == TILES -> break
		od;
		reading = 0;
		if
		:: atomic { !abort_word -> free_mark = k + 1 }  /* raise_to(): seq_cst */
		:: abort_word -> break
		fi;
		k++
	od
}

/* May abort at any time, or never. */
active proctype aborter()
{
	if
	:: skip;
		if
		:: BROKEN == 2 -> poison_all(); abort_word = 1
		:: else -> abort_word = 1; poison_all()
		fi
	:: skip
	fi;
	all_poisoned = 1;
	/* When all has ended after an abort, who comes late still finds poison: nobody
	 * awaits a value in vain. Tiles that are late may cover ready, and only it. */
	(engine_ended);
	assert(!abort_word || arrived >= POISON)
}
