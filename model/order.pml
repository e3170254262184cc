/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * What each release, acquire and fence of the flag protocol is for, for spin: the hand-overs
 * of the code, on the machine of weak_memory.pml. Each step names the function that makes it,
 * and docs/internals/fences.md says of each such line of the code which step it is here.
 *
 * The environment of the search chooses: CASE is which hand-over is played, and WITHOUT the
 * number of the order that is left out of it, 0 for none. Numbers count from 1 in each case.
 * check.sh holds that nothing is found as it is, and which numbers have to be found. Where
 * two orders do the same, either may be left out, and a further number leaves out both.
 */

#include "weak_memory.pml"

byte case_number;

/* --- 1: tiles of kernels, a lane, a kernel that waits ---------------------------- */

#define TALLY   0
#define READY   1
#define ARRIVED 2
#define FREE    3
#define BARRIER 4                       /* of the block that stores */
#define SOURCE  0
#define SOURCE2 1
#define TARGET  2

/* ceov_device_arrive(), of two tiles */
inline device_arrive(agent)
{
	fence(agent, (without == 2 || without == 5 -> RELAXED : ACQ_REL));
	atomic {
		change(agent, TALLY, 1, (without == 3 -> RELEASE :
			(without == 4 || without == 5 -> ACQUIRE : ACQ_REL)));
		is_last = got; got = 0
	};
	if
	:: is_last -> store(agent, READY, 1, UNLESS(6, RELEASE))        /* ceov_device_raise() */
	:: else -> skip
	fi
}

proctype storing_thread() { MAKES(0, SOURCE); store(0, BARRIER, 1, UNLESS(1, RELEASE)); n_ended++ }

proctype arriving_thread()
{
	bit is_last;

	await(1, BARRIER, 1, UNLESS(1, ACQUIRE));
	device_arrive(1);
	n_ended++
}

proctype other_block() { bit is_last; MAKES(2, SOURCE2); device_arrive(2); n_ended++ }

/* A lane on a GPU, and later, when the target is free, what the engine sends next. */
proctype lane_of_gpu()
{
	await(3, READY, 1, UNLESS(7, ACQUIRE));         /* a stream's wait, or look_at() */
	READS(3, SOURCE);
	READS(3, SOURCE2);
	MAKES(3, TARGET);
	store(3, ARRIVED, 1, UNLESS(8, RELEASE));       /* a stream's write */
	await(3, FREE, 1, UNLESS(9, ACQUIRE));         /* look_at() */
	MAKES(3, TARGET);
	n_ended++
}

/* ceov_device_await() in one thread; the others of its block stand for it. */
proctype waiting_kernel()
{
	await(4, ARRIVED, 1, UNLESS(10, ACQUIRE));
	READS(4, TARGET);
	store(4, FREE, 1, UNLESS(11, RELEASE));
	n_ended++
}

/* --- 2: the same by threads and a lane of the host, and its result --------------- */

#define N_DONE  4
#define IS_DONE 5

/* ceov_signal_arrive() and raise_to() */
inline host_arrive(agent)
{
	atomic {
		change(agent, TALLY, 1, (without == 1 -> RELEASE :
			(without == 2 -> ACQUIRE : ACQ_REL)));
		is_last = got; got = 0
	};
	if
	:: is_last -> store(agent, READY, 1, UNLESS(3, SEQ_CST))
	:: else -> skip
	fi
}

/* Has its source back when the launch is done. */
proctype producer()
{
	bit is_last;

	MAKES(0, SOURCE);
	host_arrive(0);
	await(0, IS_DONE, 1, UNLESS(4, ACQUIRE));      /* result_of() */
	MAKES(0, SOURCE);
	n_ended++
}

proctype other_producer() { bit is_last; MAKES(1, SOURCE2); host_arrive(1); n_ended++ }

proctype lane_of_host()
{
	await(2, READY, 1, UNLESS(5, ACQUIRE));        /* execute_wait() */
	READS(2, SOURCE);
	READS(2, SOURCE2);
	MAKES(2, TARGET);
	store(2, ARRIVED, 1, UNLESS(6, RELEASE));      /* raise_counter() */
	atomic { change(2, N_DONE, 1, UNLESS(7, RELEASE)); got = 0 };  /* execute() */
	n_ended++
}

proctype engine()
{
	await(3, N_DONE, 1, UNLESS(8, ACQUIRE));       /* host_reap() */
	store(3, IS_DONE, 1, UNLESS(9, SEQ_CST));      /* publish() */
	await(3, FREE, 1, UNLESS(10, ACQUIRE));         /* look_at() */
	MAKES(3, TARGET);
	n_ended++
}

proctype consumer()
{
	await(4, ARRIVED, 1, UNLESS(11, ACQUIRE));      /* ceov_signal_value() */
	READS(4, TARGET);
	store(4, FREE, 1, UNLESS(12, SEQ_CST));         /* raise_to() */
	n_ended++
}

/* --- 3: an abort opens a gate that nobody raised --------------------------------- */

#define ABORT   0

/* An abort of several signals: abort.c */
proctype aborter()
{
	atomic { change(0, ABORT, 255, UNLESS(1, SEQ_CST)); got = 0 };
	store(0, READY, POISON, UNLESS(2, SEQ_CST));
	n_ended++
}

/* Its gate opens, it copies what nobody made, and its mark looks real. */
proctype gated_lane()
{
	await(1, READY, 1, UNLESS(3, ACQUIRE));
	store(1, ARRIVED, 1, UNLESS(4, RELEASE));
	n_ended++
}

/* ceov_device_await(), ceov_signal_wait(), look_at(): the mark first, then the abort word. */
proctype who_trusts_marks()
{
	await(2, ARRIVED, 1, UNLESS(5, ACQUIRE));
	atomic { load(2, ABORT, UNLESS(6, ACQUIRE)); assert(got); got = 0 };
	n_ended++
}

/* --- 4: a thread raises while another one aborts --------------------------------- */

proctype raiser()
{
	bit is_aborted;

	store(0, READY, 1, (without == 1 || without == 3 -> RELEASE : SEQ_CST));
	if
	:: without == 2 || without == 3 || without == 8 -> skip
	:: else -> fence(0, SEQ_CST)
	fi;
	atomic { load(0, ABORT, (without == 4 || without == 8 -> ACQUIRE : SEQ_CST));
		 is_aborted = got; got = 0 };
	if
	:: is_aborted && without != 5 -> store(0, READY, POISON, RELEASE)
	:: else -> skip
	fi;
	n_ended++
}

proctype other_aborter()
{
	atomic { change(1, ABORT, 255, OR_ELSE(6, SEQ_CST, RELEASE)); got = 0 };
	store(1, READY, POISON, OR_ELSE(7, SEQ_CST, RELEASE));
	n_ended++
}

/* --- 5: who sleeps on a bell, and who rings it ----------------------------------- */

#define SUBMITTED 0
#define BELL      1
#define PARKED    2

/* host_submit(), or cei_ring_put() and ring() */
proctype submitter()
{
	bit is_parked;

	MAKES(0, SOURCE);
	store(0, SUBMITTED, 1, UNLESS(1, RELEASE));
	atomic { change(0, BELL, 1, OR_ELSE(2, SEQ_CST, RELAXED)); got = 0 };
	atomic { load(0, PARKED, OR_ELSE(3, SEQ_CST, RELAXED)); is_parked = got;
		 got = 0 };
	if
	:: is_parked -> is_asleep = 0
	:: else -> skip
	fi;
	n_ended++
}

/* park() of both */
proctype worker()
{
	byte bell, submitted;

	store(1, PARKED, 1, OR_ELSE(4, SEQ_CST, RELAXED));
	atomic { load(1, BELL, OR_ELSE(5, SEQ_CST, RELAXED)); bell = got; got = 0 };
	atomic { load(1, SUBMITTED, OR_ELSE(6, SEQ_CST, RELAXED)); submitted = got; got = 0 };
	if
	:: !submitted -> sleep_on(1, BELL, bell)
	:: else -> skip
	fi;
	await(1, SUBMITTED, 1, UNLESS(7, ACQUIRE));
	READS(1, SOURCE);
	n_ended++
}

/* --- 6: who sleeps on a result --------------------------------------------------- */

#define TURN    0                       /* odd: the launch is in flight */
#define WAITERS 1

/* end() */
proctype publisher()
{
	bit has_waiters;

	store(0, TURN, 2, OR_ELSE(1, SEQ_CST, RELEASE));
	atomic { load(0, WAITERS, OR_ELSE(2, SEQ_CST, RELAXED)); has_waiters = got; got = 0 };
	if
	:: has_waiters -> is_asleep = 0
	:: else -> skip
	fi;
	n_ended++
}

/* sleep_until() and has_ended() */
proctype waiter()
{
	byte turn;

	atomic { change(1, WAITERS, 1, OR_ELSE(3, SEQ_CST, RELAXED)); got = 0 };
	atomic { load(1, TURN, OR_ELSE(4, SEQ_CST, RELAXED)); turn = got; got = 0 };
	if
	:: turn == 1 -> sleep_on(1, TURN, 1)
	:: else -> skip
	fi;
	n_ended++
}

/* --- 7: a kernel's run fails ----------------------------------------------------- */

#define STATUS 0
#define EPOCH  1

/* cei_mark_fail(): why, then poison */
proctype who_fails()
{
	store(0, STATUS, 1, RELAXED);
	fence(0, UNLESS(1, SEQ_CST));
	store(0, EPOCH, POISON, RELAXED);
	n_ended++
}

/* Another block has found the poison, and would tell ABORTED if it found no status. */
proctype who_finds_poison()
{
	await(1, EPOCH, POISON, RELAXED);
	fence(1, UNLESS(2, SEQ_CST));
	atomic { load(1, STATUS, RELAXED); assert(got); got = 0 };
	n_ended++
}

/* --- 8: tensor copies, which know what their thread knew at its last proxy fence - */

#define BEGIN 4
#define ENDED 5

proctype lane_and_next()
{
	MAKES(0, SOURCE);
	store(0, READY, 1, RELEASE);
	await(0, ARRIVED, 1, ACQUIRE);
	READS(0, TARGET);
	n_ended++
}

/* await() of the GEMM, its copies, arrive() */
proctype copying_thread()
{
	await(1, READY, 1, ACQUIRE);
	fence(1, UNLESS(1, RELEASE));          /* cei_fence_async() */
	store(1, BEGIN, 1, RELAXED);
	if
	:: without == 2 -> skip                /* cei_store_wait() */
	:: else -> await(1, ENDED, 1, ACQUIRE)
	fi;
	store(1, ARRIVED, 1, RELEASE);
	n_ended++
}

proctype copier_of_sm()
{
	await(2, BEGIN, 1, ACQUIRE);
	READS(2, SOURCE);
	MAKES(2, TARGET);
	store(2, ENDED, 1, RELEASE);
	n_ended++
}

/* --- 9: a signal is renewed ------------------------------------------------------ */

/* clear(): zeros, then the abort word */
proctype renewer()
{
	store(0, READY, 0, RELAXED);
	store(0, ABORT, 0, UNLESS(1, RELEASE));
	n_ended++
}

/* ceov_signal_raise(): no abort, so no poison either */
proctype next_raiser()
{
	bit is_aborted;

	atomic { load(1, ABORT, UNLESS(2, ACQUIRE)); is_aborted = got; got = 0 };
	if
	:: is_aborted -> skip
	:: else -> atomic { load(1, READY, RELAXED); assert(got != POISON); got = 0 }
	fi;
	n_ended++
}

/* --- 10: a slot goes to the next launch while somebody reads the last one's result  */

#define NUMBER 1
#define RESULT 2
#define FIRST  7                        /* the results of the two launches */
#define SECOND 9

/* cei_tickets_publish() and end() of both, hand_over() between them */
proctype launches()
{
	store(0, RESULT, FIRST, SEQ_CST);
	store(0, TURN, 2, (without == 1 || without == 14 -> RELAXED : SEQ_CST));
	store(0, NUMBER, 0, (without == 2 || without == 12 -> RELAXED : SEQ_CST));
	store(0, TURN, 3, (without == 3 || without == 17 -> RELAXED : RELEASE));
	store(0, NUMBER, 2, UNLESS(4, RELEASE));
	store(0, RESULT, SECOND, (without == 5 || without == 12 -> RELAXED : SEQ_CST));
	store(0, TURN, 4, SEQ_CST);
	n_ended++
}

/* look(), for one launch or the other */
proctype looking()
{
	byte number, turn, result, again;

	atomic { load(1, NUMBER, UNLESS(6, ACQUIRE)); number = got; got = 0 };
	atomic { load(1, TURN, (without == 7 || without == 15 -> RELAXED : ACQUIRE));
		 turn = got; got = 0 };
	atomic { load(1, RESULT, (without == 8 || (without >= 13 && without <= 15) -> RELAXED : SEQ_CST));
		 result = got; got = 0 };
	atomic { load(1, NUMBER, (without == 9 || without == 13 -> RELAXED : SEQ_CST));
		 again = got; got = 0 };
	assert(!number || number != again || turn == 1 || turn == 3 ||
	       result == (number == 1 -> FIRST : SECOND));
	n_ended++
}

/* has_ended(): if the turn is a newer launch's, the number is no longer the first one's. */
proctype about_to_sleep()
{
	byte turn;

	atomic { load(2, TURN, (without == 10 || without == 16 -> RELAXED : SEQ_CST));
		 turn = got; got = 0 };
	atomic { load(2, NUMBER, (without == 11 || without >= 16 -> RELAXED : SEQ_CST));
		 assert(turn != 3 || got != 1); got = 0 };
	n_ended++
}

/* --- 11: barriers of a block, and events of streams ------------------------------ */

#define WOKEN  0                        /* the block's barrier behind an await, ... */
#define STORED 4                        /* ... and the one before its arrival */
#define EVENT  5

/* Comes after a stream by an event, and has its copies read by a kernel. */
proctype following_lane()
{
	await(0, EVENT, 1, UNLESS(1, ACQUIRE));
	READS(0, SOURCE2);
	MAKES(0, SOURCE);
	store(0, READY, 1, RELEASE);
	await(0, FREE, 1, ACQUIRE);
	READS(0, TARGET);
	n_ended++
}

proctype followed_stream() { MAKES(3, SOURCE2); store(3, EVENT, 1, UNLESS(1, RELEASE)); n_ended++ }

/* The thread that awaits for its block, and arrives for it. */
proctype first_thread()
{
	await(1, READY, 1, ACQUIRE);
	store(1, WOKEN, 1, UNLESS(2, RELEASE));
	await(1, STORED, 1, UNLESS(3, ACQUIRE));
	store(1, FREE, 1, RELEASE);
	n_ended++
}

proctype other_thread()
{
	await(2, WOKEN, 1, UNLESS(2, ACQUIRE));
	READS(2, SOURCE);
	MAKES(2, TARGET);
	store(2, STORED, 1, UNLESS(3, RELEASE));
	n_ended++
}

/* --------------------------------------------------------------------------------- */

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
		:: case_number == 1 ->
			n = 5;
			run storing_thread(); run arriving_thread(); run other_block();
			run lane_of_gpu(); run waiting_kernel()
		:: case_number == 2 ->
			n = 5;
			run producer(); run other_producer(); run lane_of_host();
			run engine(); run consumer()
		:: case_number == 3 ->
			n = 3;
			run aborter(); run gated_lane(); run who_trusts_marks()
		:: case_number == 4 -> run raiser(); run other_aborter()
		:: case_number == 5 -> run submitter(); run worker()
		:: case_number == 6 ->
			value[TURN * WRITES] = 1;
			run publisher(); run waiter()
		:: case_number == 7 -> run who_fails(); run who_finds_poison()
		:: case_number == 8 ->
			n = 3;
			run lane_and_next(); run copying_thread(); run copier_of_sm()
		:: case_number == 9 ->
			value[ABORT * WRITES] = 1;
			value[READY * WRITES] = POISON;
			run renewer(); run next_raiser()
		:: case_number == 10 ->
			n = 3;
			value[TURN * WRITES] = 1;
			value[NUMBER * WRITES] = 1;
			run launches(); run looking(); run about_to_sleep()
		:: case_number == 11 ->
			n = 4;
			run following_lane(); run followed_stream(); run first_thread();
			run other_thread()
		:: else -> assert(case_number == 0)
		fi;
		run buffers()
	};
	END(n);
	/* After an abort nobody's raise covers the poison. */
	assert(case_number != 4 || LAST(READY) == POISON);
	n_ended = 255
}
