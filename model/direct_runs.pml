/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Captured runs in direct modes (src/kernels/direct_kernels.cu and direct_ll_kernels.cu) between
 * others of the same workspace, for spin: RANKS ranks make RUNS runs, of kinds and, where that is
 * free, halves that are the same at all ranks; all sequences are tried. A run is that of one
 * block: it sends all or, behind a failure, nothing.
 *
 *   DIRECT    takes the half that was used longest ago; awaits peers' done >= last_use of
 *             that half; stores to each peer's half and raises its counter behind that;
 *             tells peers how many runs are finished here; awaits their counters; reads
 *   LL        takes the half as DIRECT does, and awaits nothing; stores packets, which are bytes
 *             and the number of the run at once, to memory that no other kind of run uses; tells
 *             peers how many runs are finished here; awaits packets of this number
 *   COPIED    tells peers first, awaits that they have finished as many runs, then copies
 *             arrive, on either half (src/kernels/begin_kernels.cu; captured_runs.pml has it
 *             in full)
 *   SILENT    likewise, but nobody has bytes for anybody: of peers it hears only that they
 *             have begun it
 *
 * FAILS awaits may fail at any time: time is up. Who fails poisons its epoch, stores poison
 * in place of the run's number, at both halves and from then on in all runs, and stores no
 * bytes any more. Who fails in an LL run stores poison at once. Failures are looked for where all
 * runs are direct or LL.
 *
 * Checked:
 *   - who writes into a half finds that its owner has finished the run that used it last
 *   - who has found no poison reads the bytes of its run, whole, and nobody writes over
 *     them meanwhile
 *   - nobody is stuck, with one failure by time for all
 *
 * -DBROKEN=n leaves out one rule; each of them but the first must be found by check.sh:
 *   1  a direct run does not wait for done. No error: its half was last used by run e - 2 or
 *      before, and run e - 1, of whatever kind, has shown that all peers have finished that
 *   2  it does not tell how many runs are finished
 *   3  who fails stores no poison
 *   4  a direct run takes the half of the run before
 *   5  the number of an LL run is stored before its bytes
 *   6  packets come to scratch, where bytes of other runs can look like the number of a later run
 *   7  an LL run does not tell how many runs are finished
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RUNS
#define RUNS 5
#endif
#ifndef FAILS
#define FAILS 0
#endif
#ifndef BROKEN
#define BROKEN 0
#endif

#define DIRECT 0
#define COPIED 1
#define SILENT 2
#define LL     3

#define PACKETS 2                       /* that a rank sends to another one in an LL run */

#define POISON 100
#define MAY_FAIL (n_fails < FAILS)

/* Of a half of rank r, what rank s writes. */
#define AT(h, r, s) (((h) * RANKS + (r)) * RANKS + (s))
#define MAIL(h, r, s, p) (AT(h, r, s) * PACKETS + (p))
#define TOLD(r, s)  done[(r) * RANKS + (s)]
#define FROM        ((rank + i) % RANKS)

/* Of each run, chosen by the first who begins it. */
byte n_chosen;
byte kind[RUNS + 1];
bit  half[RUNS + 1];
byte use_before[RUNS + 1];              /* the last run that used the half; 0: none */
byte last_use[2];

byte epoch[RANKS];                      /* runs that were begun and have not failed, or poison */
byte finished[RANKS];
byte done[RANKS * RANKS];
byte arrived[2 * RANKS * RANKS];
byte bytes[2 * RANKS * RANKS];          /* whose run's bytes are there; 0: not all */
byte number[2 * RANKS * RANKS * PACKETS];       /* of a packet: the run to which it belongs */
byte content[2 * RANKS * RANKS * PACKETS];      /* and whose run's bytes it has */
byte n_fails;

inline choose()
{
	atomic {
		if
		:: n_chosen >= e -> skip
		:: else ->
			if
			:: kind[e] = DIRECT
			:: kind[e] = LL
			:: FAILS == 0 -> kind[e] = COPIED
			:: FAILS == 0 -> kind[e] = SILENT
			fi;
			if
			:: kind[e] == COPIED || kind[e] == SILENT -> half[e] = 0
			:: kind[e] == COPIED || kind[e] == SILENT -> half[e] = 1
			:: (kind[e] == DIRECT || kind[e] == LL) && BROKEN != 4 ->
				half[e] = last_use[0] > last_use[1]
			:: (kind[e] == DIRECT || kind[e] == LL) && BROKEN == 4 ->
				half[e] = last_use[0] < last_use[1]
			fi;
			use_before[e] = last_use[half[e]];
			last_use[half[e]] = e;
			n_chosen = e
		fi
	}
}

inline tell()
{
	atomic {
		i = 1;
		do
		:: i == RANKS -> break
		:: else -> TOLD(FROM, rank) = (epoch[rank] == POISON -> POISON : e - 1); i++
		od
	}
}

/* Poisons the own epoch, once this or an earlier await has failed. */
inline fail()
{
	epoch[rank] = POISON
}

/* Awaits that all peers have finished n runs. */
inline await_done(n)
{
	i = 1;
	do
	:: atomic { i == RANKS -> break }
	:: atomic { i < RANKS && epoch[rank] == POISON -> i = RANKS }
	:: atomic { i < RANKS && TOLD(rank, FROM) == POISON -> fail() }
	:: atomic {
		i < RANKS && TOLD(rank, FROM) >= n && TOLD(rank, FROM) < POISON -> i++
	   }
	:: atomic { i < RANKS && MAY_FAIL && epoch[rank] != POISON -> n_fails++; fail() }
	od
}

/* Stores the bytes to all peers and raises their counters, or poison alone. */
inline send()
{
	i = 1;
	do
	:: atomic { i == RANKS -> break }
	:: atomic {
		i < RANKS && epoch[rank] != POISON ->
		assert(finished[FROM] >= use_before[e]);
		bytes[AT(half[e], FROM, rank)] = 0
	   };
	   atomic {
		bytes[AT(half[e], FROM, rank)] = e;
		arrived[AT(half[e], FROM, rank)] = e;
		if
		:: BROKEN == 6 -> number[MAIL(half[e], FROM, rank, 0)] = e + 1
		:: BROKEN == 6 -> number[MAIL(half[e], FROM, rank, 0)] = e + 2
		:: else -> skip
		fi;
		i++
	   }
	:: atomic {
		i < RANKS && epoch[rank] == POISON ->
		if
		:: BROKEN == 3 -> skip
		:: else ->
			arrived[AT(0, FROM, rank)] = POISON;
			arrived[AT(1, FROM, rank)] = POISON
		fi;
		i++
	   }
	od
}

/* Awaits the counters of all peers, and reads their bytes. */
inline receive()
{
	i = 1;
	do
	:: atomic { i == RANKS -> break }
	:: atomic { i < RANKS && epoch[rank] == POISON -> i = RANKS }
	:: atomic { i < RANKS && arrived[AT(half[e], rank, FROM)] == POISON -> fail() }
	:: atomic {
		i < RANKS && arrived[AT(half[e], rank, FROM)] >= e &&
		arrived[AT(half[e], rank, FROM)] < POISON -> i++
	   }
	:: atomic { i < RANKS && MAY_FAIL && epoch[rank] != POISON -> n_fails++; fail() }
	od;
	i = 1;
	do                              /* one read of each begins here, another ends later */
	:: atomic { i == RANKS -> break }
	:: atomic {
		i < RANKS ->
		assert(epoch[rank] == POISON || bytes[AT(half[e], rank, FROM)] == e);
		i++
	   }
	od
}

/* Stores poison at all peers. */
inline poison()
{
	atomic {
		i = 1;
		do
		:: i == RANKS -> break
		:: else ->
			arrived[AT(0, FROM, rank)] = POISON;
			arrived[AT(1, FROM, rank)] = POISON;
			TOLD(FROM, rank) = POISON;
			i++
		od
	}
}

/* Stores the packets for all peers, each in one access. */
inline send_packets()
{
	i = 1;
	p = 0;
	do
	:: atomic { i == RANKS || epoch[rank] == POISON -> break }
	:: atomic {
		i < RANKS && epoch[rank] != POISON ->
		assert(finished[FROM] >= use_before[e]);
		number[MAIL(half[e], FROM, rank, p)] = e;
		if
		:: BROKEN == 5 -> skip
		:: else -> content[MAIL(half[e], FROM, rank, p)] = e
		fi
	   };
	   atomic {
		content[MAIL(half[e], FROM, rank, p)] = e;
		p++;
		if
		:: p == PACKETS -> p = 0; i++
		:: else -> skip
		fi
	   }
	od
}

/* Awaits the packets of all peers; whoever sees a number has the bytes by the same access. */
inline receive_packets()
{
	i = 1;
	p = 0;
	do
	:: atomic { i == RANKS -> break }
	:: atomic { i < RANKS && epoch[rank] == POISON -> i = RANKS }
	:: atomic { i < RANKS && arrived[AT(half[e], rank, FROM)] == POISON -> fail() }
	:: atomic {
		i < RANKS && number[MAIL(half[e], rank, FROM, p)] == e ->
		assert(epoch[rank] == POISON || content[MAIL(half[e], rank, FROM, p)] == e);
		p++;
		if
		:: p == PACKETS -> p = 0; i++
		:: else -> skip
		fi
	   }
	:: atomic { i < RANKS && MAY_FAIL && epoch[rank] != POISON -> n_fails++; fail() }
	od;
	if
	:: epoch[rank] == POISON && BROKEN != 3 -> poison()
	:: else -> skip
	fi
}

active [RANKS] proctype stream()
{
	byte rank = _pid, e = 1, i, p;

	do
	:: e > RUNS -> break
	:: else ->
		choose();
		if
		:: kind[e] == DIRECT ->
			if
			:: BROKEN == 1 -> skip
			:: else -> await_done(use_before[e])
			fi;
			send();
			if
			:: BROKEN == 2 -> skip
			:: else -> tell()
			fi;
			receive()
		:: kind[e] == LL ->
			send_packets();
			if
			:: BROKEN == 7 -> skip
			:: else -> tell()
			fi;
			receive_packets()
		:: kind[e] == COPIED -> tell(); await_done(e - 1); send(); receive()
		:: kind[e] == SILENT -> tell(); await_done(e - 1)
		fi;
		atomic {
			if
			:: epoch[rank] != POISON -> epoch[rank] = e
			:: else -> skip
			fi;
			finished[rank] = e;
			e++
		}
	od
}
