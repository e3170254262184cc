/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CHANNEL_PACKETS_CUH
#define CEI_CHANNEL_PACKETS_CUH

/* Vectors that travel as packets, in runs of packets and in steps. */

#include "kernels/channel.cuh"

namespace cei_channel {

struct packets {                        /* what threads know of their run */
	const struct cei_channel_run &run;
	uint64_t                      number;
};

/* Where in the mail of `reader` that belongs to the run the packets of `writer` come. */
static __device__ __forceinline__ char *mail_of(const struct packets &packets, uint32_t reader,
						uint32_t writer)
{
	const struct cei_channel_place &place = packets.run.place;
	const uint32_t half = packets.number % 2 * (place.n_ranks - 1);

	return place.memory[reader] + place.layout.mail_at +
		(half + cei_channel_index(writer, reader)) * 2 * (uint64_t)place.layout.span_max;
}

static __device__ __forceinline__ void send_vector(const struct packets &packets, char *mail,
						   const uint4 &v)
{
	store_packet(mail, { (uint64_t)v.y << 32 | v.x, packets.number });
	store_packet(mail + packets.run.place.layout.span_max,
		     { (uint64_t)v.w << 32 | v.z, packets.number });
}

/* The two packets of a vector, whether they have come or not. */
struct vector_pair {
	struct cei_channel_packet first, other;
};

static __device__ __forceinline__ struct vector_pair load_pair(const struct packets &packets,
							       const char *mail)
{
	return { load_packet(mail),
		 load_packet(mail + packets.run.place.layout.span_max) };
}

/* Returns whether both packets belong to the run, and their vector. */
static __device__ __forceinline__ bool take_pair(const struct packets &packets,
						 const struct vector_pair &pair, uint4 *ret_v)
{
	if (pair.first.number != packets.number || pair.other.number != packets.number)
		return false;
	*ret_v = make_uint4((uint32_t)pair.first.bytes, (uint32_t)(pair.first.bytes >> 32),
			    (uint32_t)pair.other.bytes, (uint32_t)(pair.other.bytes >> 32));
	return true;
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

static __device__ __forceinline__ void send_part(const struct packets &packets, uint32_t peer,
						 const struct movers &movers)
{
	const struct cei_channel_part &part = packets.run.parts[peer];
	char *mail = mail_of(packets, peer, packets.run.place.own);
	uint64_t at = movers.thread * sizeof(uint4);

	for (; at < part.to; at += movers.n * sizeof(uint4))
		send_vector(packets, mail + at, load_vector(part.source + at, part.to - at));
}

/* Called by whole warps. Returns whether all has come. */
static __device__ __forceinline__ bool take_part(const struct packets &packets, uint32_t peer,
						 const struct movers &movers)
{
	const struct cei_channel_part &part = packets.run.parts[peer];
	const char *mail = mail_of(packets, packets.run.place.own, peer);
	uint64_t first, at;
	struct looks looks = {};
	bool is_missing;
	uint32_t i;
	uint4 v;

	for (first = 0; first < part.from; first += movers.n * sizeof(uint4)) {
		at = first + movers.thread * sizeof(uint4);
		is_missing = at < part.from;
		for (i = 1; __any_sync(0xffffffffu, is_missing); i++) {
			if (is_missing && take_pair(packets, load_pair(packets, mail + at), &v))
				is_missing = false;
			if (i % POLLS == 0 &&
			    !still_waits(packets.run, packets.number,
					 is_missing ? 1u << peer : 0, &looks))
				return false;
		}
		if (at < part.from)
			store_vector(part.target + at, v, part.from - at);
	}
	return true;
}

} /* namespace */

#endif /* CEI_CHANNEL_PACKETS_CUH */
