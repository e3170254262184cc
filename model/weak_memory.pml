/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * A machine whose memory is weak, for spin; order.pml plays the flag protocol on it.
 *
 * Agents are threads, lanes of copies, and the SM's own copier. They share
 *
 *   words   flags and counters. A word keeps all that was written to it; a load may yield
 *           any of it that the agent does not know to be old. Stores that are not seq_cst
 *           lie in the agent's buffer for any time before others can see them
 *   places  ordinary data. Who touches a place must know of the last write to it, and who
 *           writes to it also of all reads since: else the two are not ordered, either
 *           could come first, and the search ends with an error
 *
 * What an agent knows is a vector clock. A release hands it on with the value it stores, an
 * acquire takes over what the loaded value came with; a relaxed store hands on what the
 * agent knew at its last release fence, and an acquire fence takes over what came with
 * relaxed loads. seq_cst accesses and fences have one order: such a load finds the last such
 * store to its word, or a later one.
 *
 * That is C11's model, and PTX's where scopes suffice, but for two things. No load is delayed
 * behind a later store; the rule for places makes up for that. And the stores to one word are
 * ordered as they leave the buffers.
 */

#define AGENTS 5
#define WORDS  6
#ifndef WRITES
#define WRITES 5                        /* to one word; the first is what it begins with */
#endif
#define PLACES 3

#define RELAXED 0
#define ACQUIRE 1
#define RELEASE 2
#define ACQ_REL 3
#define SEQ_CST 7                       /* both, and a place in the one order */

#define POISON  100

/* The order of a step, unless it is left out. */
#define UNLESS(number, order) (without == number -> RELAXED : order)
/* A weaker one instead. */
#define OR_ELSE(number, order, weaker) (without == number -> weaker : order)

byte without;                           /* the number of the order that is left out */

byte clock[AGENTS * AGENTS];            /* [agent][of agent] */
byte handed[AGENTS * AGENTS];           /* at its last release fence */
byte loaded[AGENTS * AGENTS];           /* what came with its relaxed loads */
byte fenced[AGENTS];                    /* known to all full fences so far */
byte newest[AGENTS * WORDS];            /* the newest write that it has loaded or made */

byte n_writes[WORDS];
byte value[WORDS * WRITES];
byte writer[WORDS * WRITES];
byte written_at[WORDS * WRITES];        /* by the writer's clock */
byte came_with[WORDS * WRITES * AGENTS];
byte last_seq_cst[WORDS];

bit  is_buffered[AGENTS];
byte buffer_word[AGENTS], buffer_value[AGENTS], buffer_at[AGENTS];
byte buffer_clock[AGENTS * AGENTS];

byte place_writer[PLACES], place_at[PLACES];
byte place_read_at[PLACES * AGENTS];
bit  is_race;

bit  is_asleep;                         /* in futex(2) */
byte n_ended;

/* Arguments of a step and what it loaded; 0 between steps. */
byte a, w, v, o, pick, got;

/* --- the machine ------------------------------------------------------------------ */

c_code {
	extern void (*Uerror)(char *);

	static void join(unsigned char *to, const unsigned char *from)
	{
		int i;

		for (i = 0; i < AGENTS; i++)
			if (from[i] > to[i])
				to[i] = from[i];
	}

	/* The oldest write of word w that agent a may still load. */
	static int oldest(void)
	{
		int i, at = now.newest[now.a * WORDS + now.w];

		for (i = at + 1; i < now.n_writes[now.w]; i++) {
			int k = now.w * WRITES + i;

			if (now.written_at[k] <=
			    now.clock[now.a * AGENTS + now.writer[k]])
				at = i;
		}
		if (now.o & 4 && now.last_seq_cst[now.w] > at)
			at = now.last_seq_cst[now.w];
		return at;
	}

	static void append(int agent, int word, int number, int at,
			   const unsigned char *with)
	{
		int i = now.n_writes[word]++, k = word * WRITES + i;

		if (i >= WRITES)
			Uerror("WRITES is too small");
		now.value[k] = number;
		now.writer[k] = agent;
		now.written_at[k] = at;
		memset(&now.came_with[k * AGENTS], 0, AGENTS);
		join(&now.came_with[k * AGENTS], with);
		now.newest[agent * WORDS + word] = i;
	}

	static void take(int k)
	{
		unsigned char *to = now.o & 1 ? &now.clock[now.a * AGENTS]
			: &now.loaded[now.a * AGENTS];

		join(to, &now.came_with[k * AGENTS]);
	}

	static void step_store(void)
	{
		int i, at = ++now.clock[now.a * AGENTS + now.a];
		unsigned char *with = now.o & 2 ? &now.clock[now.a * AGENTS]
			: &now.handed[now.a * AGENTS];

		if (now.o & 4) {
			append(now.a, now.w, now.v, at, with);
			now.last_seq_cst[now.w] = now.n_writes[now.w] - 1;
			return;
		}
		now.is_buffered[now.a] = 1;
		now.buffer_word[now.a] = now.w;
		now.buffer_value[now.a] = now.v;
		now.buffer_at[now.a] = at;
		for (i = 0; i < AGENTS; i++)
			now.buffer_clock[now.a * AGENTS + i] = with[i];
	}

	static void step_flush(void)
	{
		append(now.a, now.buffer_word[now.a], now.buffer_value[now.a],
		       now.buffer_at[now.a], &now.buffer_clock[now.a * AGENTS]);
		now.is_buffered[now.a] = now.buffer_word[now.a] = 0;
		now.buffer_value[now.a] = now.buffer_at[now.a] = 0;
		memset(&now.buffer_clock[now.a * AGENTS], 0, AGENTS);
	}

	static void step_load(void)
	{
		int k = now.w * WRITES + now.pick;

		now.newest[now.a * WORDS + now.w] = now.pick;
		take(k);
		now.got = now.value[k];
	}

	/* Reads the last write, and hands on what came with it, too. v: what is added; 255:
	 * 0 becomes 1, anything else stays. */
	static void step_change(void)
	{
		int i = now.n_writes[now.w] - 1, k = now.w * WRITES + i;
		unsigned char with[AGENTS];
		int at = ++now.clock[now.a * AGENTS + now.a];

		take(k);
		now.got = now.value[k];
		memset(with, 0, sizeof(with));
		join(with, now.o & 2 ? &now.clock[now.a * AGENTS]
		     : &now.handed[now.a * AGENTS]);
		join(with, &now.came_with[k * AGENTS]);
		append(now.a, now.w, now.v == 255 ? 1 : now.got + now.v, at, with);
		if (now.o & 4)
			now.last_seq_cst[now.w] = now.n_writes[now.w] - 1;
	}

	static void step_fence(void)
	{
		unsigned char *own = &now.clock[now.a * AGENTS];
		int i;

		if (now.o & 1)
			join(own, &now.loaded[now.a * AGENTS]);
		for (i = 0; now.o & 4 && i < WORDS; i++) {
			unsigned char *last = &now.last_seq_cst[i];
			unsigned char *mine = &now.newest[now.a * WORDS + i];

			if (*last < *mine)
				*last = *mine;
			*mine = *last;
		}
		if (now.o & 4) {
			join(own, now.fenced);
			join(now.fenced, own);
		}
		if (now.o & 2)
			join(&now.handed[now.a * AGENTS], own);
	}

	/* v: it writes. */
	static void step_touch(void)
	{
		unsigned char *own = &now.clock[now.a * AGENTS];
		int i, at = ++own[now.a];

		if (now.place_at[now.w] > own[now.place_writer[now.w]])
			now.is_race = 1;
		for (i = 0; now.v && i < AGENTS; i++)
			if (now.place_read_at[now.w * AGENTS + i] > own[i])
				now.is_race = 1;
		if (now.v) {
			now.place_writer[now.w] = now.a;
			now.place_at[now.w] = at;
		} else {
			now.place_read_at[now.w * AGENTS + now.a] = at;
		}
	}
};

#define ENDS a = 0; w = 0; v = 0; o = 0; pick = 0

/* One at a time lies in the buffer. */
inline store(agent, word, number, order)
{
	atomic {
		!is_buffered[agent] -> a = agent; w = word; v = number; o = order;
		c_code { step_store(); };
		ENDS
	}
}

/* Into got: any write that is not known to be old. */
inline load(agent, word, order)
{
	atomic {
		!is_buffered[agent] || buffer_word[agent] != word ->
		a = agent; w = word; o = order;
		c_code { now.pick = oldest(); };
		do
		:: pick + 1 < n_writes[word] -> pick++
		:: break
		od;
		c_code { step_load(); };
		ENDS
	}
}

/* Loads again and again until there is number or more. */
inline await(agent, word, number, order)
{
	atomic {
		!is_buffered[agent] && value[word * WRITES + n_writes[word] - 1] >= number ->
		a = agent; w = word; o = order;
		c_code { now.pick = oldest(); };
		do
		:: value[word * WRITES + pick] >= number -> break
		:: pick + 1 < n_writes[word] -> pick++
		od;
		c_code { step_load(); };
		got = 0;
		ENDS
	}
}

/* A read-modify-write. */
inline change(agent, word, number, order)
{
	atomic {
		!is_buffered[agent] -> a = agent; w = word; v = number; o = order;
		c_code { step_change(); };
		ENDS
	}
}

inline fence(agent, order)
{
	atomic {
		(order != SEQ_CST || !is_buffered[agent]) -> a = agent; o = order;
		c_code { step_fence(); };
		ENDS
	}
}

inline touch(agent, place, writes)
{
	atomic {
		a = agent; w = place; v = writes;
		c_code { step_touch(); };
		ENDS;
		assert(!is_race)
	}
}

#define READS(agent, place)  touch(agent, place, 0)
#define MAKES(agent, place)  touch(agent, place, 1)

/* futex(2) is a full barrier, looks at the word, and sleeps if it is as it was. */
inline sleep_on(agent, word, as_it_was)
{
	fence(agent, SEQ_CST);
	atomic {
		if
		:: value[word * WRITES + n_writes[word] - 1] == as_it_was -> is_asleep = 1
		:: else -> skip
		fi
	};
	(!is_asleep)
}

proctype buffers()
{
	byte i;

	do
	:: atomic { n_ended == 255 -> break }
	:: atomic { is_buffered[0] -> a = 0; c_code { step_flush(); }; a = 0 }
	:: atomic { is_buffered[1] -> a = 1; c_code { step_flush(); }; a = 0 }
	:: atomic { is_buffered[2] -> a = 2; c_code { step_flush(); }; a = 0 }
	:: atomic { is_buffered[3] -> a = 3; c_code { step_flush(); }; a = 0 }
	:: atomic { is_buffered[4] -> a = 4; c_code { step_flush(); }; a = 0 }
	od
}

#define END(n) (n_ended == n && !is_buffered[0] && !is_buffered[1] && !is_buffered[2] && \
		!is_buffered[3] && !is_buffered[4])
#define LAST(word) value[(word) * WRITES + n_writes[word] - 1]
