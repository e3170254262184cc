/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * Runs how clusters of the GEMM claim pairs of tiles (src/kernels/gemm_pairs.cuh) on the host:
 * gpu_on_host.h says how, check_pairs.sh prepares the source. In a case some ranks compute products
 * whose pairs await pairs of all peers, as in a GEMM + reduce-scatter, or as where own pieces come
 * between those of peers (ops/compute/tiles.h). At each rank only some clusters can run at a time;
 * others start when one of these has ended, or when another kernel gives SMs back at any time.
 *
 *   pairs SEED CASES
 */

#include "gpu_on_host.h"
#include "kernels/gemm.h"

static const uint32_t ROLES = 12;               /* threads of a block: takers, and one that claims */
static const uint32_t CLAIMER = ROLES - 1;
static const uint64_t TURNS_MAX = 200000;       /* of a case that should have ended by then */

/* --- in place of kernels/gemm_sm90.cuh ---------------------------------------------- */

struct host_bar {                               /* in a barrier's 8 bytes */
	uint16_t n_arrivals, n_missing;
	uint32_t phase;
};

static host_bar *bar_of(uint64_t *bar)
{
	return (host_bar *)bar;
}

/* Returns the same address in a block of the cluster. */
template <class T>
static T *there(const T *here, uint32_t block)
{
	const uint32_t number = blockIdx.x / CEI_GEMM_CLUSTER * CEI_GEMM_CLUSTER + block;
	const uintptr_t offset = (uintptr_t)here - (uintptr_t)host_shared();
	const uintptr_t base = (uintptr_t)current->of->memory[number].bytes.data();

	return (T *)((base + 127) / 128 * 128 + offset);
}

static uint32_t cei_cluster_block()
{
	return blockIdx.x % CEI_GEMM_CLUSTER;
}

static void cei_bar_init(uint64_t *bar, uint32_t n_arrivals)
{
	*bar_of(bar) = { (uint16_t)n_arrivals, (uint16_t)n_arrivals, 0 };
}

static void cei_bar_arrive(uint64_t *bar)
{
	host_bar *own = bar_of(bar);

	CHECK(own->n_missing, "a barrier that was not initialised");
	if (!--own->n_missing) {
		own->n_missing = own->n_arrivals;
		own->phase++;
	}
	pause_thread();
}

static void cei_bar_arrive_at(uint64_t *bar, uint32_t block)
{
	cei_bar_arrive(there(bar, block));
}

/* As on a GPU: true if the phase before the present one has this parity. */
static void cei_bar_wait(uint64_t *bar, uint32_t parity)
{
	wait_for([=] { return bar_of(bar)->phase % 2 != parity; });
}

static void cei_bar_wait_cluster(uint64_t *bar, uint32_t parity)
{
	cei_bar_wait(bar, parity);
}

static void cei_word_send(uint32_t *target, uint32_t word, uint64_t *bar, uint32_t block)
{
	pause_thread();
	*there(target, block) = word;
	cei_bar_arrive(there(bar, block));
}

static uint32_t cei_word_load(const uint32_t *source)
{
	return *source;
}

static uint32_t cei_word_load_at(const uint32_t *source, uint32_t block)
{
	return *there(source, block);
}

#include "kernels/gemm_pairs.cuh"

/* --- cases ------------------------------------------------------------------------ */

/* A pair that waits awaits all pairs of all peers with lower numbers that do not wait. Lists are
 * sorted by number. */
struct pair {
	uint32_t number;
	bool     waits;
	uint32_t n_done = 0;                    /* blocks that have stored it */
	uint32_t n_taken = 0;
};

struct cluster {
	meeting  all;
	bool     has_begun = false;
	uint32_t n_ended = 0;                   /* of its threads */
	uint32_t n_stored[CEI_GEMM_CLUSTER] = { 0, 0 };
};

struct rank {
	cei_gemm             gemm;
	uint32_t             claimed = 0;
	std::vector<pair>    pairs;
	std::deque<cluster>  clusters;
	uint32_t             n_seats;           /* clusters that can run at a time */
	uint32_t             n_running = 0, n_begun = 0;
	std::unique_ptr<launch> kernel;
	rank                *self;              /* the kernel's parameter */
};

struct scene {
	std::deque<rank> ranks;
};

static scene *played;

static void add_pairs(rank *own, uint32_t number, bool waits)
{
	for (uint32_t n = draw(7); n; n--)
		own->pairs.push_back({ number, waits });
}

static void list_pairs(rank *own, uint32_t n_pieces)
{
	for (uint32_t piece = 0; piece <= n_pieces; piece++) {
		if (piece < n_pieces)
			add_pairs(own, 2 * piece, false);
		if (piece)
			add_pairs(own, 2 * piece + 1, true);    /* own piece before this one */
	}
	if (own->pairs.empty())
		own->pairs.push_back({ 2 * n_pieces + 1, true });
}

static void pick_rank(rank *own, bool is_between, bool takes_single_pairs)
{
	const uint32_t n_most = 1 + draw(8);
	uint32_t n_clusters;

	if (is_between) {
		list_pairs(own, 1 + draw(5));
	} else {
		for (uint32_t n = draw(30); n; n--)
			own->pairs.push_back({ 0, false });
		for (uint32_t n = 1 + draw(12); n; n--)
			own->pairs.push_back({ 3, true });
	}
	n_clusters = own->pairs.size() < n_most ? (uint32_t)own->pairs.size() : n_most;
	own->clusters.resize(n_clusters);
	own->n_seats = 1 + draw(n_clusters);
	own->gemm = {};
	own->gemm.n_pairs = (uint32_t)own->pairs.size();
	own->gemm.n_steps = 1 + draw(20);
	own->gemm.claimed = &own->claimed;
	own->gemm.n_columns = takes_single_pairs ? own->gemm.n_pairs : n_clusters;
	while (own->gemm.n_free < own->gemm.n_pairs && !own->pairs[own->gemm.n_free].waits)
		own->gemm.n_free++;
}

/* --- a cluster ---------------------------------------------------------------------- */

static bool is_stored(const pair &of)
{
	return of.n_done == CEI_GEMM_CLUSTER;
}

static bool have_come(const rank &own, uint32_t number)
{
	for (const rank &peer : played->ranks)
		for (const pair &of : peer.pairs)
			if (&peer != &own && !of.waits && of.number < number && !is_stored(of))
				return false;
	return true;
}

static void load(rank *own, cluster *mine, cei_pair_bars *bars)
{
	const uint32_t block = cei_cluster_block();
	uint32_t n = 0, pair;

	while ((pair = cei_pair_next<false>(own->gemm, bars, &n)) < own->gemm.n_pairs) {
		/* loads run ahead of stores, but not far */
		wait_for([=] { return mine->n_stored[block] + 2 >= n; });
		for (uint32_t step = 0; step < own->gemm.n_steps; step++) {
			cei_pair_look_ahead(own->gemm, bars, n - 1, step);
			pause_thread();
		}
	}
}

static void store(rank *own, cluster *mine, cei_pair_bars *bars)
{
	uint32_t n = 0, at;

	while ((at = cei_pair_next<false>(own->gemm, bars, &n)) < own->gemm.n_pairs) {
		pair *of = &own->pairs[at];

		CHECK(++of->n_taken <= CEI_GEMM_CLUSTER, "pair %u is taken twice", at);
		if (of->waits)
			wait_for([=] { return have_come(*own, of->number); });
		pause_thread();
		of->n_done++;
		mine->n_stored[cei_cluster_block()]++;
	}
}

static void compute(rank *own)
{
	cluster *mine = &own->clusters[blockIdx.x / CEI_GEMM_CLUSTER];
	cei_pair_bars *bars = (cei_pair_bars *)host_shared();
	const bool claims = threadIdx.x == CLAIMER && !cei_cluster_block();
	uint32_t first = 0, n = 0;

	wait_for([=] { return mine->has_begun; });
	if (!threadIdx.x)
		cei_pairs_init(bars);
	if (claims)
		first = cei_pair_claim_first(own->gemm, bars);
	meet(&mine->all, CEI_GEMM_CLUSTER * ROLES, 0);
	if (!threadIdx.x)
		load(own, mine, bars);
	else if (threadIdx.x == 1)
		store(own, mine, bars);
	else if (claims)
		cei_pairs_tell(own->gemm, bars, first);
	else if (threadIdx.x != CLAIMER)
		while (cei_pair_next<false>(own->gemm, bars, &n) < own->gemm.n_pairs)
			;
	meet(&mine->all, CEI_GEMM_CLUSTER * ROLES, 0);
	if (++mine->n_ended == CEI_GEMM_CLUSTER * ROLES)
		own->n_running--;
}

/* --- runs --------------------------------------------------------------------------- */

/* Lets clusters begin, in their order, where there is room. */
static void begin_clusters(rank *own)
{
	while (own->n_running < own->n_seats && own->n_begun < own->clusters.size()) {
		own->clusters[own->n_begun++].has_begun = true;
		own->n_running++;
	}
}

static void launch_all(contexts *threads)
{
	uint32_t i = 0;

	for (rank &own : played->ranks) {
		const uint32_t n_clusters = (uint32_t)own.clusters.size();

		own.kernel.reset(new launch{ nullptr, i++, { n_clusters * CEI_GEMM_CLUSTER },
					     { ROLES }, sizeof(cei_pair_bars) });
		own.self = &own;
		begin(threads, own.kernel.get(), compute, &own.self);
		own.clusters.clear();
		own.clusters.resize(n_clusters);
		own.n_begun = own.n_running = 0;
		for (pair &of : own.pairs)
			of.n_done = of.n_taken = 0;
	}
}

/* Runs the kernels of all ranks to their end, which takes no more SMs than there are. */
static void play()
{
	uint64_t n_turns = 0;
	contexts threads;
	uint32_t slow = 0;

	launch_all(&threads);
	do {
		for (rank &own : played->ranks) {
			if (own.n_seats < own.clusters.size() && draw(2000) == 0)
				own.n_seats++;
			begin_clusters(&own);
		}
		if (draw(500) == 0)
			slow = draw((uint32_t)played->ranks.size());
		CHECK(++n_turns < TURNS_MAX, "%zu ranks: it does not end", played->ranks.size());
	} while (turn(slow));
	for (const rank &own : played->ranks) {
		for (const pair &of : own.pairs)
			CHECK(is_stored(of), "a pair was not computed");
		CHECK(!own.claimed, "%u claims are counted behind a launch", own.claimed);
	}
}

int main(int argc, char **argv)
{
	const uint64_t seed = argc > 1 ? strtoull(argv[1], nullptr, 10) : 1;
	const uint32_t n_cases = argc > 2 ? (uint32_t)strtoul(argv[2], nullptr, 10) : 20;
	uint32_t n_pairs = 0;

	random_state = seed;
	for (uint32_t i = 0; i < n_cases; i++) {
		const bool is_between = draw(2), takes_single_pairs = draw(4) == 0;
		scene made;

		case_number = i;
		made.ranks.resize(2 + draw(2));
		for (rank &own : made.ranks) {
			pick_rank(&own, is_between, takes_single_pairs);
			n_pairs += own.gemm.n_pairs;
		}
		played = &made;
		play();
		play();                 /* a replay, with the word that counts claims as it is */
	}
	printf("%u cases of %u pairs: all pairs are computed, each once\n", n_cases, n_pairs);
	return 0;
}
