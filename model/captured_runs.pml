/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs that a CUDA graph can hold, for spin: RANKS ranks make RUNS runs, each of which
 * uses one of two halves, the same at all ranks; all sequences of halves are tried, so
 * graphs of one run, of several, and plain runs between them are among them.
 *
 *   stream    cei_op_begin (src/kernels/begin_kernels.cu): closes the gate, tells peers in
 *             done how many runs are finished here, awaits that they have finished as
 *             many, advances the epoch. Then the job (gemm_kernels.cu, reduce_kernels.cu):
 *             awaits peers' pieces, makes the sum, raises the gate, awaits peers' sums.
 *             Then it joins the lane, and the run is finished (src/ops/core/capture_cuda.c)
 *   lane      from begin on: copies the own piece to each peer, behind it the epoch's word
 *             as its mark; waits at the gate; copies the sum and marks likewise
 *
 * PHASES 2 is an all-reduce. PHASES 1 leaves the pieces out: what is sent awaits only
 * the job, as in GEMM + reduce-scatter, and all awaits come behind the gate.
 *
 * FAILS awaits may fail at any time, for no reason that the model knows: time is up. Who
 * fails poisons its epoch and goes on with all that it raises; its later runs wait for
 * nothing. Any further await that fails has found poison: so that nobody is stuck means
 * that poison gets to everybody who waits, without a further timeout.
 *
 * Checked:
 *   - while nobody has failed, who writes into a half finds that its owner has finished
 *     all earlier runs
 *   - who finishes run e without having found poison has from everybody the bytes that
 *     were sent in run e, whole, and made of nothing that was awaited in vain; unless a
 *     later run of somebody who has failed wrote over them while they were read
 *   - who read such bytes finds poison at latest in the run that wrote over them
 *   - nobody is stuck
 *
 * Steps are atomic where the order inside cannot be seen from outside: words told to
 * several peers, bytes that are whole and the mark right behind them.
 *
 * -DSTRICT=1 asserts that bytes are never written over while they are read. That does not
 * hold once somebody has failed: who fails waits for nobody any more, and its lane cannot
 * leave copies out. check.sh finds it.
 *
 * -DBROKEN=n leaves out one rule; each of them must be found by check.sh:
 *   1  who fails does not poison its epoch
 *   2  begin does not close the gate
 *   3  begin does not wait for done
 *   4  the job raises the gate first and poisons then
 *   5  begin tells its peers after it has waited
 *   6  who fails does not raise its gate
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RUNS
#define RUNS 3
#endif
#ifndef PHASES
#define PHASES 2
#endif
#ifndef FAILS
#define FAILS 1
#endif
#ifndef BROKEN
#define BROKEN 0
#endif
#ifndef STRICT
#define STRICT 0
#endif

#define POISON 100
/* All ranks are alike: where one fails, it may be rank 0. */
#define MAY_FAIL (n_fails < FAILS && (FAILS > 1 || rank == 0))

#define PIECES 0
#define SUMS   1

/* Of a half of rank r, what rank s writes in a phase. */
#define AT(phase, h, r, s) ((((phase) * 2 + (h)) * RANKS + (r)) * RANKS + (s))

/* The half of each run, chosen by the first who begins it. */
byte n_chosen;
bit  half[RUNS + 1];

byte epoch[RANKS];
byte done[RANKS * RANKS];               /* done[r * RANKS + s]: told to r by s */
byte finished[RANKS];                   /* nobody looks at it but the first check */
byte n_fails;

bit  gate[RANKS];
byte lane_begun[RANKS];
byte lane_done[RANKS];

/* 2 * run + 1: bytes of that run, whole and good; 2 * run: not all of them, or no good. */
byte sum[RANKS];                        /* what the lane sends behind the gate */
byte bytes[4 * RANKS * RANKS];
byte mark[4 * RANKS * RANKS];

bit  is_torn[2 * RANKS];                /* by half: written over while it was read */

/* --- lane ------------------------------------------------------------------------ */

#define TO ((rank + i) % RANKS)

inline send(phase, what)
{
	i = 1;
	do
	:: atomic { i == RANKS -> i = 0; break }
	:: atomic { i < RANKS ->
		assert(n_fails || finished[TO] >= e - 1);
		bytes[AT(phase, half[e], TO, rank)] = 2 * e
	   };
	   /* The copy ends; the next one is that of the epoch's word. */
	   atomic {
		bytes[AT(phase, half[e], TO, rank)] = what;
		mark[AT(phase, half[e], TO, rank)] = epoch[rank];
		i++
	   }
	od
}

proctype lane(byte rank)
{
	byte e = 1, i;

	do
	:: atomic { e > RUNS -> break }
	:: atomic { e <= RUNS && lane_begun[rank] == e -> skip };
		if
		:: PHASES == 2 -> send(PIECES, 2 * e + 1)
		:: else -> skip
		fi;
		(gate[rank]);
		send(SUMS, sum[rank]);
		atomic {
			lane_done[rank] = e;
			e++
		}
	od
}

/* --- stream ---------------------------------------------------------------------- */

inline fail()
{
	is_good = 0;
	if
	:: BROKEN == 1 || BROKEN == 4 -> skip
	:: else -> epoch[rank] = POISON
	fi
}

/* One await: reached, or poison is found, or time is up. */
inline await(counter, value)
{
	if
	:: atomic { counter >= value ->
		if
		:: counter >= POISON -> fail()
		:: else -> skip
		fi
	   }
	:: atomic { MAY_FAIL -> n_fails++; fail() }
	fi
}

/* From the rank before this one on: all ranks are alike. */
#define FROM ((rank + RANKS - i) % RANKS)

inline await_all(phase)
{
	i = 1;
	do
	:: atomic { i == RANKS || !is_good -> i = 0; break }
	:: i < RANKS && is_good ->
		await(mark[AT(phase, half[e], rank, FROM)], e);
		i++
	od
}

/* Whether what it took in this run is what was sent in it. */
inline look_at(phase)
{
	if
	:: bytes[AT(phase, half[e], rank, FROM)] / 2 > e ->
		assert(!STRICT);
		assert(n_fails);
		is_torn[2 * rank + half[e]] = 1
	:: else -> assert(bytes[AT(phase, half[e], rank, FROM)] == 2 * e + 1)
	fi
}

inline choose_half()
{
	if
	:: n_chosen < e ->
		if
		:: half[e] = 0
		:: e > 1 -> half[e] = 1
		fi;
		n_chosen = e
	:: else -> skip
	fi
}

inline tell()
{
	s = 0;
	do
	:: s == RANKS -> s = 0; break
	:: s < RANKS -> done[s * RANKS + rank] = n_finished; s++
	od
}

inline begin()
{
	atomic {
		i = 1;
		choose_half();
		n_finished = epoch[rank];
		is_good = n_finished < POISON;
		if
		:: BROKEN == 2 -> skip
		:: else -> gate[rank] = 0
		fi;
		if
		:: BROKEN == 5 -> skip
		:: else -> tell()
		fi
	};
	do
	:: atomic { i == RANKS || !is_good || BROKEN == 3 -> i = 0; break }
	:: i < RANKS && is_good && BROKEN != 3 ->
		await(done[rank * RANKS + FROM], n_finished);
		i++
	od;
	atomic {
		if
		:: BROKEN == 5 -> tell()
		:: else -> skip
		fi;
		if
		:: is_good || BROKEN == 1 -> epoch[rank] = e
		:: else -> epoch[rank] = POISON
		fi;
		lane_begun[rank] = e
	}
}

proctype stream(byte rank)
{
	byte e = 1, i, s, n_finished;
	bit is_good;

	do
	:: atomic { e > RUNS -> break }
	:: e <= RUNS ->
		begin();
		if
		:: PHASES == 2 -> await_all(PIECES)
		:: else -> skip
		fi;
		atomic {
			/* What follows from an await that failed is no good. */
			sum[rank] = 2 * e + is_good;
			if
			:: BROKEN == 6 && !is_good -> skip
			:: else -> gate[rank] = 1
			fi
		};
		if
		:: BROKEN == 4 && !is_good -> epoch[rank] = POISON
		:: else -> skip
		fi;
		await_all(SUMS);
		atomic {
			lane_done[rank] == e ->
			/* bytes that were written over: found out by now */
			assert(!is_good || !is_torn[2 * rank + half[e]]);
			i = 1;
			do
			:: i == RANKS || !is_good -> i = 0; break
			:: i < RANKS && is_good ->
				if
				:: PHASES == 2 -> look_at(PIECES)
				:: else -> skip
				fi;
				look_at(SUMS);
				i++
			od;
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
			run lane(i);
			i++
		od
	}
}
