/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * The counters of `sent`, for spin: one rank on a GPU whose host has queued RUNS runs
 * ahead, each of some kind; all sequences of kinds are tried. A job awaits, last of all,
 * that its counters of sent have reached its run's number: its operands have left, or
 * peers that send nothing have begun. One set of these counters serves all runs of a
 * workspace, and which launch raises which is each kind's affair. Checked:
 *
 *   counters only rise: none is raised for a run after it was for a later one
 *   who has awaited its counters finds that its operands have left
 *   nobody waits forever
 *
 * A launch follows the stream (phase->follows, or awaits_start: its steps go when run e has
 * begun) or is polled at once (its steps go when their own ready marks are reached). Launches of
 * different runs are not ordered otherwise: they may be on different lanes.
 *
 *   GATHER   all-gather (ag_gemm.c, move.c, build()): follows; counter 0 behind its copies,
 *            counter 1 when an absent peer is here
 *   SCATTER  GEMM + reduce-scatter (gemm_rs.c, build()) without own rows: polled; what it
 *            sends waits for the job's ready marks, and the peers' `here` come behind
 *            that in the plan: counters 0 and 1
 *   PART     all-reduce (reduce.c, build_first(), build_second()): the first phase follows
 *            and raises counter 0; the second is polled, its copies wait for the job's
 *            ready marks; counter 1 behind them
 *   NO_PART  the same without an own part: there is no second phase and no counter 1.
 *            RAISES 1: there is one, which has nothing to wait for and raises counter 1 as
 *            soon as the host makes the run: it falls again, which check.sh must find
 */

#ifndef RUNS
#define RUNS 3
#endif
#ifndef RAISES
#define RAISES 0
#endif

#define GATHER  0
#define SCATTER 1
#define PART    2
#define NO_PART 3

byte kind[RUNS + 1];
byte begun;                             /* the last run that the stream has begun */
byte sent[2];
byte n_leaving[RUNS + 1];               /* operands' copies of a run that are under way */

/* Peers' `here` of run e may come as soon as this rank has begun run e - 1: they may
 * have finished that. */
#define IS_HERE(e) (begun + 1 >= e)

inline raise(counter)
{
	atomic {
		assert(sent[counter] < e);
		sent[counter] = e
	}
}

proctype following(byte e)
{
	(begun >= e);
	n_leaving[e]--;
	raise(0);
	if
	:: kind[e] == GATHER -> (IS_HERE(e)); raise(1)
	:: else -> skip
	fi
}

proctype polled(byte e)
{
	if
	:: kind[e] == SCATTER ->
		(begun >= e);                   /* the job's ready marks */
		(IS_HERE(e));
		raise(0);
		raise(1)
	:: kind[e] == PART ->
		(begun >= e);                   /* likewise */
		n_leaving[e]--;
		raise(1)
	:: kind[e] == NO_PART ->
		if
		:: RAISES -> raise(1)
		:: else -> skip
		fi
	fi
}

inline queue_run()
{
	if
	:: kind[e] = GATHER; n_leaving[e] = 1
	:: kind[e] = SCATTER
	:: kind[e] = PART; n_leaving[e] = 2
	:: kind[e] = NO_PART; n_leaving[e] = 1
	fi;
	if
	:: kind[e] != SCATTER -> run following(e)
	:: else -> skip
	fi;
	if
	:: kind[e] != GATHER -> run polled(e)
	:: else -> skip
	fi
}

/* The host queues all runs, then the stream makes them: it may be as late as it likes. */
active proctype host_and_stream()
{
	byte e = 1;

	do
	:: e > RUNS -> break
	:: else -> atomic { queue_run(); e++ }
	od;
	e = 1;
	do
	:: e > RUNS -> break
	:: else ->
		begun = e;
		(sent[0] >= e);
		(sent[1] >= e || (kind[e] == NO_PART && !RAISES));
		assert(n_leaving[e] == 0);
		e++
	od
}
