/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Notes from one process to another one that has two rails to it (src/net/note_stream.h), for spin.
 * A rail delivers in any order. The first one may break at any time; then what it carries is lost
 * or comes late, notes and acknowledgements. Each side gives it up at a time of its own, before or
 * after it has broken, and goes on over the second one: the sender says again what was not
 * acknowledged, the receiver acknowledges again. Checked:
 *
 *   each note is handled once, and in order
 *   no more notes wait at the receiver than the window has places
 *   nothing is stuck: in the end all notes are handled
 *
 * The receiver acknowledges when it has handled as many notes as the window has, and what comes
 * twice.
 *
 * BROKEN 1: nothing is said again; 2: the receiver handles what comes, whatever its number is; 3:
 * the receiver acknowledges nothing again; 4: what comes early is dropped; 5: the window is counted
 * from what was said last, not from what was acknowledged.
 */

#ifndef BROKEN
#define BROKEN 0
#endif

#define N      4                        /* notes */
#define WINDOW 2
#define AT(rail, n) ((rail) * (N + 1) + (n))

bool notes[2 * (N + 1)];                /* on their way, by rail and number */
bool acks[2 * (N + 1)];
bool is_broken;                         /* the first rail */

byte said;                              /* since the last repetition */
byte acked;
byte sender;                            /* the rail that each side uses */
byte receiver;

byte done;
byte told;
bool owes;
bool early[WINDOW];

/* --- sender ------------------------------------------------------------------------------ */

inline hear_ack(rail, n)
{
	acks[AT(rail, n)] = false;
	if
	:: n > acked -> acked = n
	:: else -> skip
	fi;
	if
	:: said < acked -> said = acked
	:: else -> skip
	fi
}

active proctype send_all()
{
end:	do
	:: atomic {
		said < N && (said - acked < WINDOW || BROKEN == 5) ->
		said++;
		notes[AT(sender, said)] = true
	}
	:: atomic {
		sender == 0 ->
		sender = 1;
		if
		:: BROKEN == 1 -> skip
		:: else -> said = acked
		fi
	}
	:: atomic { acks[AT(0, 1)] -> hear_ack(0, 1) }
	:: atomic { acks[AT(0, 2)] -> hear_ack(0, 2) }
	:: atomic { acks[AT(0, 3)] -> hear_ack(0, 3) }
	:: atomic { acks[AT(0, 4)] -> hear_ack(0, 4) }
	:: atomic { acks[AT(1, 1)] -> hear_ack(1, 1) }
	:: atomic { acks[AT(1, 2)] -> hear_ack(1, 2) }
	:: atomic { acks[AT(1, 3)] -> hear_ack(1, 3) }
	:: atomic { acks[AT(1, 4)] -> hear_ack(1, 4) }
	od
}

/* --- receiver ---------------------------------------------------------------------------- */

inline handle_all()
{
	done++;
	do
	:: early[(done + 1) % WINDOW] -> early[(done + 1) % WINDOW] = false; done++
	:: else -> break
	od
}

inline hear(rail, n)
{
	notes[AT(rail, n)] = false;
	if
	:: BROKEN == 2 -> assert(n == done + 1); done++
	:: BROKEN != 2 && n <= done -> owes = (BROKEN != 3)
	:: BROKEN != 2 && n == done + 1 -> handle_all()
	:: BROKEN != 2 && n > done + 1 ->
		assert(n <= done + WINDOW);
		if
		:: BROKEN == 4 -> skip
		:: BROKEN != 4 && early[n % WINDOW] -> owes = (BROKEN != 3)
		:: else -> early[n % WINDOW] = true
		fi
	fi
}

active proctype receive()
{
end:	do
	:: atomic { notes[AT(0, 1)] -> hear(0, 1) }
	:: atomic { notes[AT(0, 2)] -> hear(0, 2) }
	:: atomic { notes[AT(0, 3)] -> hear(0, 3) }
	:: atomic { notes[AT(0, 4)] -> hear(0, 4) }
	:: atomic { notes[AT(1, 1)] -> hear(1, 1) }
	:: atomic { notes[AT(1, 2)] -> hear(1, 2) }
	:: atomic { notes[AT(1, 3)] -> hear(1, 3) }
	:: atomic { notes[AT(1, 4)] -> hear(1, 4) }
	:: atomic {
		owes || done - told >= WINDOW ->
		acks[AT(receiver, done)] = (done > 0);
		told = done;
		owes = false
	}
	:: atomic {
		receiver == 0 ->
		receiver = 1;
		owes = (BROKEN != 3)
	}
	od
}

/* --- the first rail, and what it loses ----------------------------------------------------- */

active proctype lose()
{
end:	do
	:: atomic { !is_broken -> is_broken = true }
	:: atomic { is_broken && notes[AT(0, 1)] -> notes[AT(0, 1)] = false }
	:: atomic { is_broken && notes[AT(0, 2)] -> notes[AT(0, 2)] = false }
	:: atomic { is_broken && notes[AT(0, 3)] -> notes[AT(0, 3)] = false }
	:: atomic { is_broken && notes[AT(0, 4)] -> notes[AT(0, 4)] = false }
	:: atomic { is_broken && acks[AT(0, 1)] -> acks[AT(0, 1)] = false }
	:: atomic { is_broken && acks[AT(0, 2)] -> acks[AT(0, 2)] = false }
	:: atomic { is_broken && acks[AT(0, 3)] -> acks[AT(0, 3)] = false }
	:: atomic { is_broken && acks[AT(0, 4)] -> acks[AT(0, 4)] = false }
	od
}

active proctype watch()
{
	timeout -> assert(done == N)
}
