/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What each release, acquire and fence of src/ipc/service_ring.c is for, for spin, on the machine of
 * weak_memory.pml: launches of a client to a daemon's engine that sleeps on a bell, results for
 * threads that sleep, and threads that wait while a daemon is detached and another one attached.
 * Checked: who reads an entry, a launch's bytes or the areas is ordered with who writes them, and
 * nobody sleeps for ever. The nap by which a thread that sleeps looks again by itself is left out.
 *
 * CASE and WITHOUT are as in order.pml; a WITHOUT of 0 leaves out nothing.
 */

#define WRITES 9
#include "weak_memory.pml"

byte case_number;

/* --- 1: two launches through a ring of one entry, and an engine that sleeps ------- */

#define TURN   0
#define ASLEEP 1
#define TAKEN  2
#define ENTRY  0

bit bell;                               /* an eventfd's count: it stays until it is read */

/* cei_service_put(): write_entry() and ring_bell() */
inline put(number)
{
	MAKES(0, ENTRY);
	store(0, TURN, number, UNLESS(1, RELEASE));
	fence(0, UNLESS(2, SEQ_CST));
	atomic {
		load(0, ASLEEP, RELAXED);
		if
		:: got -> bell = 1
		:: else -> skip
		fi;
		got = 0
	}
}

proctype client()
{
	put(1);
	await(0, TAKEN, 1, UNLESS(3, ACQUIRE));        /* the ring was full */
	put(2);
	n_ended++
}

/* cei_service_doze(1) */
inline doze()
{
	store(1, ASLEEP, 1, RELAXED);
	fence(1, UNLESS(4, SEQ_CST))
}

/* An engine's loop around cei_service_take() and cei_service_took(). */
proctype engine()
{
	byte number = 1, turn;

	do
	:: number == 3 -> break
	:: else ->
		atomic { load(1, TURN, UNLESS(5, ACQUIRE)); turn = got; got = 0 };
		if
		:: turn >= number -> skip
		:: else ->
			if
			:: without != 7 -> doze()
			:: else -> skip
			fi;
			atomic { load(1, TURN, UNLESS(5, ACQUIRE)); turn = got; got = 0 };
			if
			:: without == 7 -> doze()       /* the look came first */
			:: else -> skip
			fi;
			if
			:: turn < number -> atomic { bell -> bell = 0 }
			:: else -> skip
			fi;
			store(1, ASLEEP, 0, RELAXED)
		fi;
		if
		:: turn >= number ->
			READS(1, ENTRY);
			store(1, TAKEN, number, UNLESS(6, RELEASE));
			number++
		:: else -> skip
		fi;
		turn = 0
	od;
	n_ended++
}

/* --- 2: a result, for a thread that sleeps ----------------------------------------- */

#define DONE    0
#define WAITERS 1
#define BYTES   1

/* cei_service_end() */
proctype ending()
{
	bit has_waiters;

	MAKES(0, BYTES);
	store(0, DONE, 1, (without == 1 -> RELEASE : (without == 2 -> RELAXED : SEQ_CST)));
	if
	:: without == 2 -> fence(0, SEQ_CST)    /* in its place: seq_cst, but no release */
	:: else -> skip
	fi;
	atomic { load(0, WAITERS, OR_ELSE(3, SEQ_CST, RELAXED)); has_waiters = got; got = 0 };
	if
	:: has_waiters -> is_asleep = 0
	:: else -> skip
	fi;
	n_ended++
}

/* sleep_until() and look() */
proctype sleeper()
{
	byte done;

	if
	:: without == 4 -> skip                 /* it does not count itself */
	:: else -> atomic { change(1, WAITERS, 1, OR_ELSE(5, SEQ_CST, RELAXED)); got = 0 }
	fi;
	atomic { load(1, DONE, OR_ELSE(6, SEQ_CST, RELAXED)); done = got; got = 0 };
	if
	:: !done && without == 8 -> is_asleep = 1; (!is_asleep) /* without futex(2)'s look */
	:: !done && without != 8 -> sleep_on(1, DONE, 0)
	:: else -> skip
	fi;
	await(1, DONE, 1, UNLESS(7, ACQUIRE));
	READS(1, BYTES);
	n_ended++
}

/* --- 3: threads that wait, while one daemon goes and another one comes -------------- */

#define IS_LOST   0
#define N_WAITING 1                     /* counts in twos: see change() */
#define AREAS     2

/* cei_service_wait(): enter() and leave() */
inline wait_once(agent)
{
	atomic { change(agent, N_WAITING, 2, OR_ELSE(1, SEQ_CST, ACQ_REL)); got = 0 };
	atomic { load(agent, IS_LOST, (without == 8 -> RELAXED : OR_ELSE(2, SEQ_CST, ACQUIRE)));
		 is_lost = got; got = 0 };
	if
	:: is_lost -> skip
	:: else -> READS(agent, AREAS)
	fi;
	atomic { change(agent, N_WAITING, 254, UNLESS(3, RELEASE)); got = 0 }
}

proctype waiting_thread()
{
	bit is_lost;

	wait_once(0);
	is_lost = 0;
	wait_once(0);
	n_ended++
}

proctype other_thread() { bit is_lost; wait_once(2); n_ended++ }

/* cei_service_launcher_detach() and cei_service_launcher_attach() */
proctype renewer()
{
	byte n_waiting = 2;

	store(1, IS_LOST, 1, OR_ELSE(4, SEQ_CST, RELEASE));
	if
	:: without == 7 -> n_waiting = 0        /* it does not wait for them */
	:: else -> skip
	fi;
	do
	:: n_waiting == 0 -> break
	:: else -> atomic { load(1, N_WAITING, OR_ELSE(5, SEQ_CST, ACQUIRE));
			    n_waiting = got; got = 0 }
	od;
	MAKES(1, AREAS);
	store(1, IS_LOST, 0, UNLESS(6, RELEASE));
	n_ended++
}

/* ----------------------------------------------------------------------------------- */

init {
	byte i, n;

	atomic {
		c_code {
			now.case_number = getenv("CASE") ? atoi(getenv("CASE")) : 0;
			now.without = getenv("WITHOUT") ? atoi(getenv("WITHOUT")) : 0;
		};
		i = 0;
		do
		:: i == WORDS -> break
		:: else -> n_writes[i] = 1; i++
		od;
		i = 0;
		n = 2;
		if
		:: case_number == 1 -> run client(); run engine()
		:: case_number == 2 -> run ending(); run sleeper()
		:: case_number == 3 ->
			n = 3;
			run waiting_thread(); run other_thread(); run renewer()
		:: else -> assert(case_number == 0)
		fi;
		run buffers()
	};
	END(n);
	n_ended = 255
}
