/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_PACKETS_CUH
#define CEI_CHANNEL_PACKETS_CUH

/* Bytes that travel together with the number of their run, in runs of few bytes and in steps. */

#include "kernels/channel.cuh"

namespace cei_channel {

struct packets {                        /* what threads know of their run */
	const struct cei_channel_run &run;
	uint64_t                      number;
	uint32_t                      step;     /* of the run's lines: 0, or 1: sums on their way to
						 * all ranks */
};

/* --- units ----------------------------------------------------------------------------------- */

/* What a thread moves at once: up to 16 bytes of a pair's. */
struct unit {
	uint32_t first;                 /* where the bytes begin that travel together with it */
	uint32_t at;                    /* where its own begin */
};

/* How units travel is a type:
 *
 *   unit_of(), step()     the first unit of a thread of so many; how far apart its units are
 *   n_together<RANKS>     units that a thread has in flight from each rank
 *   words_max()           words of 8 bytes in the thread's units
 *   send(), load()        store a unit to a peer's mail; look for one in the own mail
 *   has_come()            whether what load() has found is of this run; called by whole warps if
 *                         is_by_warp, in which case all lanes hear the same */

/* Two packets for each unit. */
struct as_packets {
	static constexpr bool is_by_warp = false;
	template <uint32_t RANKS> static constexpr uint32_t n_together = 1;

	struct found {                  /* whether it has come or not */
		struct cei_channel_packet first, other;
	};

	static __device__ __forceinline__ struct unit unit_of(uint32_t thread)
	{
		return { thread * (uint32_t)sizeof(uint4), thread * (uint32_t)sizeof(uint4) };
	}

	static __device__ __forceinline__ uint32_t step(uint32_t n_threads)
	{
		return n_threads * (uint32_t)sizeof(uint4);
	}

	static __device__ __forceinline__ uint32_t words_max()
	{
		return 2;
	}

	/* Where in the mail of `reader` that belongs to the run the packets of `writer` come. */
	static __device__ __forceinline__ char *mail_of(const struct packets &packets,
							uint32_t reader, uint32_t writer)
	{
		const struct cei_channel_place &place = packets.run.place;
		const uint32_t half = packets.number % 2 * (place.n_ranks - 1);

		return place.memory[reader] + place.layout.mail_at +
			(half + cei_channel_index(writer, reader)) * 2 *
			(uint64_t)place.layout.span_max;
	}

	static __device__ __forceinline__ void send(const struct packets &packets, uint32_t peer,
						    const struct unit &unit, const uint4 &v)
	{
		char *mail = mail_of(packets, peer, packets.run.place.own) + unit.at;

		store_packet(mail, { (uint64_t)v.y << 32 | v.x, packets.number });
		store_packet(mail + packets.run.place.layout.span_max,
			     { (uint64_t)v.w << 32 | v.z, packets.number });
	}

	static __device__ __forceinline__ struct found
	load(const struct packets &packets, uint32_t peer, const struct unit &unit)
	{
		const char *mail = mail_of(packets, packets.run.place.own, peer) + unit.at;

		return { load_packet(mail),
			 load_packet(mail + packets.run.place.layout.span_max) };
	}

	static __device__ __forceinline__ bool has_come(const struct packets &packets,
							const struct found &found, uint4 *ret_v)
	{
		if (found.first.number != packets.number || found.other.number != packets.number)
			return false;
		*ret_v = make_uint4((uint32_t)found.first.bytes,
				    (uint32_t)(found.first.bytes >> 32),
				    (uint32_t)found.other.bytes,
				    (uint32_t)(found.other.bytes >> 32));
		return true;
	}
};

/* Lines. A warp moves four at once, and the last of the eight lanes that share one has the
 * number in place of its second word. */
struct as_lines {
	static constexpr bool is_by_warp = true;
	static constexpr uint32_t LANES = CEI_CHANNEL_LINE / sizeof(uint4);
	static constexpr uint32_t LINES = 32 / LANES;           /* of a warp */
	static constexpr uint32_t BYTES = LINES * CEI_CHANNEL_LINE_BYTES;       /* in them */
	static constexpr uint32_t LAST = 0x80808080u;           /* the lanes that have the number */
	template <uint32_t RANKS> static constexpr uint32_t n_together =
		RANKS <= 2 ? 4 : RANKS <= 4 ? 2 : 1;

	typedef struct cei_channel_packet found;

	static __device__ __forceinline__ bool has_number()
	{
		return threadIdx.x % LANES == LANES - 1;
	}

	static __device__ __forceinline__ struct unit unit_of(uint32_t thread)
	{
		const uint32_t lane = thread % 32, first = thread / 32 * BYTES;

		return { first, first + lane / LANES * CEI_CHANNEL_LINE_BYTES +
			 lane % LANES * (uint32_t)sizeof(uint4) };
	}

	static __device__ __forceinline__ uint32_t step(uint32_t n_threads)
	{
		return n_threads / 32 * BYTES;
	}

	static __device__ __forceinline__ uint32_t words_max()
	{
		return has_number() ? 1 : 2;
	}

	static __device__ __forceinline__ char *mail_of(const struct packets &packets,
							uint32_t reader, uint32_t writer,
							const struct unit &unit)
	{
		const struct cei_channel_place &place = packets.run.place;
		const uint32_t half = packets.number % 2 * (place.n_ranks - 1);

		return place.memory[reader] + place.layout.lines_at +
			(half + cei_channel_index(writer, reader)) *
			(uint64_t)cei_channel_line_mail(place.layout.line_span) +
			packets.step * (cei_channel_line_mail(place.layout.line_span) / 2) +
			unit.first / BYTES * (LINES * CEI_CHANNEL_LINE) +
			threadIdx.x % 32 * (uint32_t)sizeof(uint4);
	}

	static __device__ __forceinline__ void send(const struct packets &packets, uint32_t peer,
						    const struct unit &unit, const uint4 &v)
	{
		const uint64_t second = (uint64_t)v.w << 32 | v.z;

		store_line(mail_of(packets, peer, packets.run.place.own, unit),
			   { (uint64_t)v.y << 32 | v.x, has_number() ? packets.number : second });
	}

	static __device__ __forceinline__ found load(const struct packets &packets, uint32_t peer,
						     const struct unit &unit)
	{
		return load_line(mail_of(packets, packets.run.place.own, peer, unit));
	}

	static __device__ __forceinline__ bool has_come(const struct packets &packets,
							const found &found, uint4 *ret_v)
	{
		*ret_v = make_uint4((uint32_t)found.bytes, (uint32_t)(found.bytes >> 32),
				    (uint32_t)found.number, (uint32_t)(found.number >> 32));
		return (__ballot_sync(0xffffffffu, found.number == packets.number) & LAST) == LAST;
	}
};

/* --- units of operands ----------------------------------------------------------------------- */

/* Returns how many of `bytes` the unit has. */
template <class WAY>
static __device__ __forceinline__ uint32_t bytes_of(const struct unit &unit, uint64_t bytes)
{
	const uint64_t most = WAY::words_max() * sizeof(uint64_t);

	return unit.at < bytes ? (uint32_t)min(bytes - unit.at, most) : 0;
}

static __device__ __forceinline__ bool is_word(const void *p)
{
	return !((uintptr_t)p % sizeof(uint64_t));
}

/* Loads n bytes, the others are 0. IS_PLAIN: n is a multiple of 8, as is the address, or of 16
 * where all units are. */
template <class WAY, bool IS_PLAIN>
static __device__ __forceinline__ uint4 load_unit(const char *from, uint32_t n)
{
	uint2 words[2] = {};

	if constexpr (IS_PLAIN && !WAY::is_by_warp)
		return cei_load((const uint4 *)from);
	if (!IS_PLAIN && (!is_word(from) || n % sizeof(uint64_t)))
		return load_bytes(from, n);
	if (n)
		words[0] = cei_load_word((const uint2 *)from);
	if (n > sizeof(uint64_t))
		words[1] = cei_load_word((const uint2 *)from + 1);
	return make_uint4(words[0].x, words[0].y, words[1].x, words[1].y);
}

template <class WAY, bool IS_PLAIN>
static __device__ __forceinline__ void store_unit(char *to, const uint4 &v, uint32_t n)
{
	if constexpr (IS_PLAIN && !WAY::is_by_warp) {
		*(uint4 *)to = v;
		return;
	}
	if (!IS_PLAIN && (!is_word(to) || n % sizeof(uint64_t)))
		return store_bytes(to, v, n);
	if (n)
		*(uint2 *)to = make_uint2(v.x, v.y);
	if (n > sizeof(uint64_t))
		*((uint2 *)to + 1) = make_uint2(v.z, v.w);
}

/* One look of a warp at failures; `missing` is a lane's. Returns whether it still waits. The run's
 * struct comes by reference to the kernel's parameters, other things by value: a wait that is over
 * at once must not pay for their place in memory. */
static __device__ __noinline__ bool still_waits(const struct cei_channel_run &run, uint64_t number,
						uint32_t missing, struct looks *looks)
{
	struct failure failure = failure_of(run, number);
	bool is_good = true;

	failure.wait = CEI_CHANNEL_FOR_BYTES;
	missing = __reduce_or_sync(0xffffffffu, missing);
	failure.peer = missing ? __ffs((int)missing) - 1 : 0;
	if (threadIdx.x % 32 == 0)
		is_good = goes_on(run.place, failure, looks);
	is_good = __all_sync(0xffffffffu, is_good);
	__syncwarp();                   /* a vote alone passes on nothing that a lane acquired */
	return is_good;
}

/* --- one pair of a run in steps -------------------------------------------------------------- */

struct movers {                         /* the threads that serve a peer */
	uint32_t n;
	uint32_t thread;                /* this one's number among them */
};

template <class WAY>
static __device__ __forceinline__ void send_part(const struct packets &packets, uint32_t peer,
						 const struct movers &movers)
{
	const struct cei_channel_part &part = packets.run.parts[peer];
	const uint32_t step = WAY::step(movers.n);
	struct unit unit = WAY::unit_of(movers.thread);

	for (; unit.first < part.to; unit.first += step, unit.at += step)
		WAY::send(packets, peer, unit,
			  load_unit<WAY, false>(part.source + unit.at,
						bytes_of<WAY>(unit, part.to)));
}

/* Called by whole warps. Returns whether all has come. */
template <class WAY>
static __device__ __forceinline__ bool take_part(const struct packets &packets, uint32_t peer,
						 const struct movers &movers)
{
	const struct cei_channel_part &part = packets.run.parts[peer];
	const uint32_t step = WAY::step(movers.n);
	const uint32_t warp_first = WAY::unit_of(movers.thread - threadIdx.x % 32).first;
	struct unit unit = WAY::unit_of(movers.thread);
	struct looks looks = {};
	bool is_missing;
	uint64_t first;
	uint32_t i;
	uint4 v;

	for (first = warp_first; first < part.from; first += step) {
		is_missing = unit.first < part.from;
		for (i = 1; __any_sync(0xffffffffu, is_missing); i++) {
			if ((WAY::is_by_warp || is_missing) &&
			    WAY::has_come(packets, WAY::load(packets, peer, unit), &v))
				is_missing = false;
			if (i % POLLS == 0 &&
			    !still_waits(packets.run, packets.number,
					 is_missing ? 1u << peer : 0, &looks))
				return false;
		}
		if (unit.first < part.from)
			store_unit<WAY, false>(part.target + unit.at, v,
					       bytes_of<WAY>(unit, part.from));
		unit.first += step;
		unit.at += step;
	}
	return true;
}

} /* namespace */

#endif /* CEI_CHANNEL_PACKETS_CUH */
