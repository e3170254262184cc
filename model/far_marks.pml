/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Pieces and marks from one process to another one (src/net/far_stream.h, far_peer.c), for spin.
 * The network delivers in any order, and it may still hold what an earlier connection sent. The
 * sender may give the connection up once, at any time, and begin another one, its second
 * incarnation, on which it sends everything again. Checked:
 *
 *   a mark is raised only when the bytes before it are there, of its own incarnation
 *   an acknowledged piece has landed
 *   when the receiver was told that the connection is lost, no byte lands in its memory
 *   everything is acknowledged at the end
 *
 * Numbers 1 and 3 are pieces, 2 and 4 the marks behind them; 2 comes after 1, 4 after 3. A piece
 * lands in two steps, so that it may be seen torn.
 *
 * BROKEN 1: marks are raised as they come; 2: the receiver acknowledges the highest number that it
 * has done, whatever is missing before; 3: the loss is told before receives have ended; 4: the
 * receiver takes what an earlier incarnation sent; 5: the sender takes acknowledgements of an
 * earlier incarnation.
 */

#ifndef BROKEN
#define BROKEN 0
#endif

#define N          4
#define TORN       9
#define IS_PIECE(n) ((n) == 1 || (n) == 3)
#define AT(i, n)   ((i) * (N + 1) + (n))        /* index by incarnation and number */

bool flying[3 * (N + 1)];       /* pieces and marks in the network */
bool acks[3 * (N + 1)];         /* ACKs in the network: of an incarnation, up to a number */
bool hello;                     /* of the second incarnation, in the network */

byte sender = 1;                /* its incarnation */
byte acked;

byte receiver = 1;              /* the incarnation that it is connected to */
bool is_closing;
bool is_quiet;                  /* it was told that nothing lands any more */
byte done;
byte told;                      /* the last ACK */
bool is_done[N + 1];
bool is_held[N + 1];
byte coming[N + 1];             /* 0, or the incarnation of the piece that is being received */
byte memory[N + 1];             /* whose bytes are there: 0, TORN, or an incarnation */

active proctype send_all()
{
	byte next = 1, n;

	do
	:: next <= N ->                         /* the window bounds speed only */
		atomic { flying[AT(sender, next)] = true; next++ }
	:: sender == 1 ->                       /* gives the connection up */
		atomic { sender = 2; next = 1; acked = 0; hello = true }
	:: atomic {
		(BROKEN == 5 && sender == 2 && (acks[AT(1, 2)] || acks[AT(1, 4)])) ->
		n = 2;
		if
		:: acks[AT(1, 4)] -> n = 4
		:: else -> skip
		fi;
		acked = n;
		assert(receiver == sender && memory[n - 1] == sender)
	}
	:: atomic {
		acked < 1 && acks[AT(sender, 1)] -> acked = 1;
		assert(receiver != sender || memory[1] == sender)
	}
	:: atomic {
		acked < 2 && acks[AT(sender, 2)] -> acked = 2;
		assert(receiver != sender || memory[1] == sender)
	}
	:: atomic {
		acked < 3 && acks[AT(sender, 3)] -> acked = 3;
		assert(receiver != sender || (memory[1] == sender && memory[3] == sender))
	}
	:: atomic {
		acked < N && acks[AT(sender, N)] -> acked = N;
		assert(receiver != sender || (memory[1] == sender && memory[3] == sender))
	}
	:: sender == 2 && acked == N -> break
	:: sender == 1 && acked == N -> break
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
	assert(memory[n - 1] == receiver);
	is_held[n] = false;
	is_done[n] = true;
	count_on()
}

/* One thing that arrives, of incarnation i and with number n. */
inline arrive(i, n)
{
	flying[AT(i, n)] = false;
	if
	:: is_closing || (i != receiver && BROKEN != 4) -> skip         /* dropped */
	:: else ->
		if
		:: is_done[n] || coming[n] || is_held[n] -> skip        /* a duplicate */
		:: else ->
			if
			:: IS_PIECE(n) -> coming[n] = i
			:: else -> is_held[n] = true
			fi
		fi
	fi
}

inline land(n)
{
	if
	:: memory[n] != TORN -> memory[n] = TORN
	:: else ->
		memory[n] = coming[n];
		coming[n] = 0;
		if
		:: is_closing -> skip
		:: else -> is_done[n] = true; count_on()
		fi
	fi
}

inline start_anew()
{
	is_closing = false;
	is_quiet = false;
	receiver = 2;
	done = 0;
	told = 0;
	n = 1;
	do
	:: n <= N -> is_done[n] = false; is_held[n] = false; memory[n] = 0; n++
	:: else -> break
	od
}

inline acknowledge()
{
	n = done;
	if
	:: BROKEN == 2 && is_done[3] -> n = 3
	:: else -> skip
	fi;
	told = n;
	acks[AT(receiver, n)] = true
}

active proctype receive_all()
{
	byte n = 0;

end:	do
	:: atomic { flying[AT(1, 1)] -> arrive(1, 1) }
	:: atomic { flying[AT(1, 2)] -> arrive(1, 2) }
	:: atomic { flying[AT(1, 3)] -> arrive(1, 3) }
	:: atomic { flying[AT(1, 4)] -> arrive(1, 4) }
	:: atomic { receiver == 2 && flying[AT(2, 1)] -> arrive(2, 1) }
	:: atomic { receiver == 2 && flying[AT(2, 2)] -> arrive(2, 2) }
	:: atomic { receiver == 2 && flying[AT(2, 3)] -> arrive(2, 3) }
	:: atomic { receiver == 2 && flying[AT(2, 4)] -> arrive(2, 4) }
	:: atomic { coming[1] -> assert(!is_quiet); land(1) }
	:: atomic { coming[3] -> assert(!is_quiet); land(3) }
	:: atomic { !is_closing && is_held[2] && (done >= 1 || BROKEN == 1) -> raise(2) }
	:: atomic { !is_closing && is_held[4] && (done >= 3 || BROKEN == 1) -> raise(4) }
	:: atomic { !is_closing && (done > told || (BROKEN == 2 && is_done[3] && told < 3)) ->
		acknowledge() }
	:: atomic { hello && receiver == 1 && !is_closing -> is_closing = true }
	:: atomic { is_closing && !is_quiet && (BROKEN == 3 || (!coming[1] && !coming[3])) ->
		is_quiet = true }
	:: atomic { is_closing && is_quiet -> start_anew() }
	od
}
