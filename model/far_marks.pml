/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Pieces and marks from one process to another one (src/net/far_stream.h, far_peer.c), for spin.
 * The network delivers in any order. The receiver may give the connection up at any time. Checked:
 *
 *   a mark is raised only when the bytes before it are there
 *   an acknowledged piece has landed
 *   when the receiver was told that the connection is lost, no byte lands in its memory
 *   everything is acknowledged at the end, unless the connection was given up
 *
 * Numbers 1 and 3 are pieces, 2 and 4 the marks behind them; 2 comes after 1, 4 after 3. A piece
 * lands in two steps, so that it may be seen torn.
 *
 * BROKEN 1: marks are raised as they come; 2: the receiver acknowledges the highest number that it
 * has done, whatever is missing before; 3: the loss is told before receives have ended.
 */

#ifndef BROKEN
#define BROKEN 0
#endif

#define N          4
#define IS_PIECE(n) ((n) == 1 || (n) == 3)

mtype = { EMPTY, TORN, THERE };

bool flying[N + 1];             /* pieces and marks in the network */
bool acks[N + 1];               /* ACKs in the network, up to a number */
byte acked;

bool is_closing;
bool is_quiet;                  /* the receiver was told that nothing lands any more */
byte done;
byte told;                      /* the last ACK */
bool is_done[N + 1];
bool is_held[N + 1];
bool coming[N + 1];             /* the piece is being received */
mtype memory[N + 1] = EMPTY;

inline hear(n)
{
	acked = n;
	assert(memory[1] == THERE && (n < 3 || memory[3] == THERE))
}

active proctype send_all()
{
	byte next = 1;

	do
	:: atomic { next <= N -> flying[next] = true; next++ }  /* the window bounds speed only */
	:: atomic { acked < 1 && acks[1] -> hear(1) }
	:: atomic { acked < 2 && acks[2] -> hear(2) }
	:: atomic { acked < 3 && acks[3] -> hear(3) }
	:: atomic { acked < N && acks[N] -> hear(N) }
	:: acked == N || is_closing -> break
	od
}

inline count_on()
{
	do
	:: done < N && is_done[done + 1] -> done++
	:: else -> break
	od
}

inline raise(n)
{
	assert(memory[n - 1] == THERE);
	is_held[n] = false;
	is_done[n] = true;
	count_on()
}

inline arrive(n)
{
	flying[n] = false;
	if
	:: is_closing -> skip           /* dropped */
	:: else ->
		if
		:: IS_PIECE(n) -> coming[n] = true
		:: else -> is_held[n] = true
		fi
	fi
}

inline land(n)
{
	if
	:: memory[n] != TORN -> memory[n] = TORN
	:: else ->
		memory[n] = THERE;
		coming[n] = false;
		if
		:: is_closing -> skip
		:: else -> is_done[n] = true; count_on()
		fi
	fi
}

inline acknowledge()
{
	told = done;
	if
	:: BROKEN == 2 && is_done[3] -> told = 3
	:: else -> skip
	fi;
	acks[told] = true
}

active proctype receive_all()
{
end:	do
	:: atomic { flying[1] -> arrive(1) }
	:: atomic { flying[2] -> arrive(2) }
	:: atomic { flying[3] -> arrive(3) }
	:: atomic { flying[4] -> arrive(4) }
	:: atomic { coming[1] -> assert(!is_quiet); land(1) }
	:: atomic { coming[3] -> assert(!is_quiet); land(3) }
	:: atomic { !is_closing && is_held[2] && (done >= 1 || BROKEN == 1) -> raise(2) }
	:: atomic { !is_closing && is_held[4] && (done >= 3 || BROKEN == 1) -> raise(4) }
	:: atomic { !is_closing && (done > told || (BROKEN == 2 && is_done[3] && told < 3)) ->
		acknowledge() }
	:: !is_closing -> is_closing = true     /* gives the connection up */
	:: atomic { is_closing && !is_quiet && (BROKEN == 3 || (!coming[1] && !coming[3])) ->
		is_quiet = true }
	od
}
