/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

#include "tools/gpu-direct/trial.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define N_NODES    2
#define N_RANKS    3
#define TIMEOUT_NS UINT64_C(10000000000)

/* Bytes that go from one place to another. */
enum { OUT_TO_IN, IN_TO_SEEN, SEED_TO_IN, IN_TO_BACK, N_PLANS };

struct meeting;

struct node {
	struct meeting *meeting;
	uint32_t        number;
	ceov_context   *context;
	int             result;         /* of ceov_open() */
};

struct meeting {
	const struct trial *trial;
	pthread_mutex_t     lock;       /* guards the next five */
	pthread_cond_t      changed;
	uint32_t            n_arrived;  /* nodes that wait for the other one */
	uint32_t            n_met;      /* how often both have met */
	int                 has_failed; /* a node does not come any more */
	uint8_t            *gathered;
	struct node         nodes[N_NODES];
	uint8_t            *out;
	uint8_t            *back;
	uint8_t            *seen;
	uint8_t            *seed;
	ceov_plan          *plans[N_PLANS];
	uint64_t            random;
	uint64_t            network_ns; /* of all transfers over the network */
};

/* --- the two nodes ------------------------------------------------------------------------ */

/* Waits for the other node. Returns -1 if that does not come any more. */
static int meet(struct meeting *meeting)
{
	uint32_t before;
	int r;

	pthread_mutex_lock(&meeting->lock);
	before = meeting->n_met;
	if (++meeting->n_arrived == N_NODES) {
		meeting->n_arrived = 0;
		meeting->n_met++;
		pthread_cond_broadcast(&meeting->changed);
	}
	while (meeting->n_met == before && !meeting->has_failed)
		pthread_cond_wait(&meeting->changed, &meeting->lock);
	r = meeting->n_met == before ? -1 : 0;
	pthread_mutex_unlock(&meeting->lock);
	return r;
}

/* Both nodes call it, with the same size. */
static int all_gather(void *arg, const void *own, size_t n_bytes, void *ret_all,
		      uint64_t timeout_ns)
{
	struct node *node = arg;
	struct meeting *meeting = node->meeting;
	int r;

	(void)timeout_ns;
	if (!node->number)
		meeting->gathered = malloc(N_NODES * n_bytes);
	r = meet(meeting);
	if (!r && meeting->gathered)
		memcpy(meeting->gathered + node->number * n_bytes, own, n_bytes);
	if (!r)
		r = meet(meeting);
	if (!r && meeting->gathered)
		memcpy(ret_all, meeting->gathered, N_NODES * n_bytes);
	else
		r = -1;
	if (meet(meeting))
		r = -1;
	if (!node->number)
		free(meeting->gathered);
	return r;
}

static void give_up(struct meeting *meeting)
{
	pthread_mutex_lock(&meeting->lock);
	meeting->has_failed = 1;
	pthread_cond_broadcast(&meeting->changed);
	pthread_mutex_unlock(&meeting->lock);
}

static void *open_node(void *arg)
{
	struct node *node = arg;
	const struct trial *trial = node->meeting->trial;
	const struct ceov_member members[N_RANKS] = {
		{ .rank = 0 }, { .rank = 1, .place = trial->place }, { .rank = 2 },
	};
	struct ceov_network network = CEOV_NETWORK_INIT;
	struct ceov_config config = CEOV_CONFIG_INIT;

	config.members = node->number ? &members[1] : members;
	config.n_members = node->number ? 2 : 1;
	config.n_ranks = N_RANKS;
	config.deadline_ns = TIMEOUT_NS;
	config.network = &network;
	network.bootstrap = CEOV_BOOTSTRAP_CALLBACK;
	network.process = node->number;
	network.n_processes = N_NODES;
	network.all_gather = all_gather;
	network.all_gather_arg = node;
	network.job = "ceoverlap-gpu-direct";
	network.node = node->number ? "b" : "a";
	network.nics = trial->nic;
	node->result = ceov_open(&config, &node->context);
	if (node->result)
		give_up(node->meeting);
	return NULL;
}

static int open_nodes(struct meeting *meeting)
{
	pthread_t thread;
	uint32_t i;

	for (i = 0; i < N_NODES; i++) {
		meeting->nodes[i].meeting = meeting;
		meeting->nodes[i].number = i;
		meeting->nodes[i].result = -1;
	}
	if (pthread_create(&thread, NULL, open_node, &meeting->nodes[1]))
		return -1;
	open_node(&meeting->nodes[0]);
	pthread_join(thread, NULL);
	return meeting->nodes[0].result || meeting->nodes[1].result ? -1 : 0;
}

static void *close_node(void *arg)
{
	struct node *node = arg;

	if (!node->result)
		ceov_close(node->context);
	return NULL;
}

static void close_nodes(struct meeting *meeting)
{
	pthread_t thread;
	int has_thread = !pthread_create(&thread, NULL, close_node, &meeting->nodes[1]);

	close_node(&meeting->nodes[0]);
	if (has_thread)
		pthread_join(thread, NULL);
	else
		close_node(&meeting->nodes[1]);
}

/* --- buffers and plans --------------------------------------------------------------------- */

static ceov_context *context_of(const struct meeting *meeting, uint32_t rank)
{
	return meeting->nodes[rank ? 1 : 0].context;
}

static ceov_buffer *make(const struct meeting *meeting, uint32_t rank, const char *name)
{
	ceov_buffer *buffer = NULL;

	if (ceov_buffer_create(context_of(meeting, rank), rank, meeting->trial->n_bytes, &buffer) ||
	    ceov_buffer_share(buffer, name))
		return NULL;
	return buffer;
}

static ceov_plan *plan_of(const struct meeting *meeting, uint32_t rank, ceov_buffer *from,
			  ceov_buffer *to)
{
	const struct ceov_transfer transfer = {
		.struct_bytes = sizeof(transfer),
		.source = { .buffer = from },
		.target = { .buffer = to },
		.row_bytes = meeting->trial->n_bytes,
		.n_rows = 1,
	};
	ceov_plan *plan = NULL;

	if (!from || !to || ceov_plan_create(context_of(meeting, rank), rank, NULL, &plan) ||
	    ceov_plan_add(plan, &transfer) || ceov_plan_commit(plan))
		return NULL;
	return plan;
}

static int make_plans(struct meeting *meeting)
{
	ceov_buffer *out = make(meeting, 0, "out"), *back = make(meeting, 0, "back");
	ceov_buffer *seen = make(meeting, 2, "seen"), *seed = make(meeting, 2, "seed");
	ceov_buffer *in = make(meeting, 1, "in"), *far_in = NULL, *far_back = NULL;
	uint32_t i;

	if (!out || !back || !seen || !seed || !in ||
	    ceov_buffer_find(context_of(meeting, 0), 1, "in", &far_in) ||
	    ceov_buffer_find(context_of(meeting, 1), 0, "back", &far_back))
		return -1;
	meeting->out = ceov_buffer_base(out, 0);
	meeting->back = ceov_buffer_base(back, 0);
	meeting->seen = ceov_buffer_base(seen, 2);
	meeting->seed = ceov_buffer_base(seed, 2);
	meeting->plans[OUT_TO_IN] = plan_of(meeting, 0, out, far_in);
	meeting->plans[IN_TO_SEEN] = plan_of(meeting, 1, in, seen);
	meeting->plans[SEED_TO_IN] = plan_of(meeting, 1, seed, in);
	meeting->plans[IN_TO_BACK] = plan_of(meeting, 1, in, far_back);
	for (i = 0; i < N_PLANS; i++)
		if (!meeting->plans[i])
			return -1;
	return 0;
}

/* --- rounds --------------------------------------------------------------------------------- */

/* splitmix64 */
static uint64_t random_of(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void fill(struct meeting *meeting, uint8_t *bytes)
{
	uint64_t at, word, n_bytes = meeting->trial->n_bytes;

	for (at = 0; at < n_bytes; at += sizeof(word)) {
		word = random_of(&meeting->random);
		memcpy(bytes + at, &word, n_bytes - at < sizeof(word) ? n_bytes - at
		       : sizeof(word));
	}
}

/* Launches the plan and waits until its bytes have arrived. */
static int move(struct meeting *meeting, uint32_t plan, uint32_t rank)
{
	uint64_t begin_ns = cei_now_ns();
	ceov_ticket ticket;
	int r = ceov_launch(meeting->plans[plan], NULL, &ticket);

	if (!r)
		r = ceov_wait(context_of(meeting, rank), ticket, TIMEOUT_NS);
	if (plan == OUT_TO_IN || plan == IN_TO_BACK)
		meeting->network_ns += cei_now_ns() - begin_ns;
	return r;
}

static int run_round(struct meeting *meeting, const char **ret_why)
{
	uint64_t n_bytes = meeting->trial->n_bytes;

	*ret_why = "a transfer failed";
	fill(meeting, meeting->out);
	if (move(meeting, OUT_TO_IN, 0) || move(meeting, IN_TO_SEEN, 1))
		return -1;
	if (memcmp(meeting->out, meeting->seen, n_bytes)) {
		*ret_why = "wrong bytes came to the memory of the GPU";
		return -1;
	}
	fill(meeting, meeting->seed);
	if (move(meeting, SEED_TO_IN, 1) || move(meeting, IN_TO_BACK, 1))
		return -1;
	if (memcmp(meeting->seed, meeting->back, n_bytes)) {
		*ret_why = "wrong bytes came from the memory of the GPU";
		return -1;
	}
	return 0;
}

static int run_rounds(struct meeting *meeting, double *ret_bytes_per_s, const char **ret_why)
{
	const struct trial *trial = meeting->trial;
	int r = run_round(meeting, ret_why);    /* the first one connects */
	uint32_t i;

	meeting->network_ns = 0;
	for (i = 0; !r && i < trial->n_rounds; i++)
		r = run_round(meeting, ret_why);
	if (!r)
		*ret_bytes_per_s = 2.0 * trial->n_rounds * (double)trial->n_bytes * 1e9 /
			(double)(meeting->network_ns + 1);
	return r;
}

int trial_run(const struct trial *trial, const char *mode, double *ret_bytes_per_s,
	      const char **ret_why)
{
	struct meeting meeting = { .trial = trial, .random = cei_now_ns(),
				   .lock = PTHREAD_MUTEX_INITIALIZER,
				   .changed = PTHREAD_COND_INITIALIZER };
	int r;

	*ret_why = "the two nodes cannot be opened";
	r = setenv("CEOVERLAP_GPU_DIRECT", mode, 1) || open_nodes(&meeting) ? -1 : 0;
	if (!r) {
		*ret_why = "the plans cannot be made";
		r = make_plans(&meeting);
	}
	if (!r)
		r = run_rounds(&meeting, ret_bytes_per_s, ret_why);
	close_nodes(&meeting);
	return r;
}
