/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Opens contexts of several nodes in one process. */

#include "unit/nodes_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/place.h"
#include "ce_engine/open.h"

/* All nodes call it at the same time, with the same size. */
static int all_gather(void *arg, const void *own, size_t n_bytes, void *ret_all,
		      uint64_t timeout_ns)
{
	struct node *node = arg;
	struct nodes *nodes = node->nodes;

	(void)timeout_ns;
	if (!node->number)
		nodes->gathered = malloc(nodes->n * n_bytes);
	pthread_barrier_wait(&nodes->barrier);
	memcpy(nodes->gathered + node->number * n_bytes, own, n_bytes);
	pthread_barrier_wait(&nodes->barrier);
	memcpy(ret_all, nodes->gathered, nodes->n * n_bytes);
	pthread_barrier_wait(&nodes->barrier);
	if (!node->number)
		free(nodes->gathered);
	if (nodes->is_late && node->number)
		usleep(30000);
	return 0;
}

/* The node's transport. */
static void name_device(const struct node *node, char *name, size_t n_bytes)
{
	struct nodes *nodes = node->nodes;

	pthread_mutex_lock(&nodes->net.lock);
	snprintf(name, n_bytes, "%s", loop_device(&nodes->net, node->number));
	pthread_mutex_unlock(&nodes->net.lock);
}

static void *open_node(void *arg)
{
	struct node *node = arg;
	struct nodes *nodes = node->nodes;
	struct ceov_member members[NODES_RANKS_MAX];
	struct ceov_network network = CEOV_NETWORK_INIT;
	ceov_buffer *buffer = NULL;
	char device[64], name[32];
	struct ceov_config config;
	uint32_t rank, n = 0;

	config = testing_config(members, NODES_RANKS_MAX, &node->log);
	for (rank = 0; rank < nodes->n_ranks; rank++)
		if (nodes->node_of[rank] == node->number)
			members[n++] = (struct ceov_member){ rank, nodes->places[rank] };
	config.n_members = n;
	config.n_ranks = nodes->n_ranks;
	config.network = &network;
	config.progress_by_caller = nodes->is_turned && !node->number;
	snprintf(name, sizeof(name), "node %u", node->number);
	name_device(node, device, sizeof(device));
	network.bootstrap = CEOV_BOOTSTRAP_CALLBACK;
	network.process = node->number;
	network.n_processes = nodes->n;
	network.all_gather = all_gather;
	network.all_gather_arg = node;
	network.job = "nodes_rig";
	network.node = name;
	network.nics = nodes->transport && !nodes->is_loop && nodes->transport->devices ? NULL
		: device;
	network.peer_timeout_ns = nodes->timeout_ns ? nodes->timeout_ns : NODES_TIMEOUT_NS;
	node->result = cei_context_open(&config, nodes->movers ? nodes->movers : cei_backends,
					nodes->transport ? nodes->transport : &loop_transport,
					&node->context);
	if (nodes->is_late && !node->number && !node->result)
		nodes->found = ceov_buffer_find(node->context, 1, "none", &buffer);
	return NULL;
}

static void *close_node(void *arg)
{
	struct node *node = arg;

	ceov_close(node->context);
	node->context = NULL;
	return NULL;
}

static void run_all(struct nodes *nodes, void *(*run)(void *))
{
	pthread_t threads[NODES_MAX];
	uint32_t i;

	for (i = 0; i < nodes->n; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run, &nodes->node[i]), 0);
	for (i = 0; i < nodes->n; i++)
		pthread_join(threads[i], NULL);
}

/* Gives each node as many ranks. */
static void spread(struct nodes *nodes, uint32_t n, uint32_t n_members)
{
	uint32_t rank;

	ck_assert_uint_le(n * n_members, NODES_RANKS_MAX);
	nodes->n_ranks = n * n_members;
	for (rank = 0; rank < nodes->n_ranks; rank++)
		nodes->node_of[rank] = rank / n_members;
}

static void open_all(struct nodes *nodes, uint32_t n)
{
	uint32_t i;

	loop_net_init(&nodes->net, testing_seed(), 1);
	nodes->n = n;
	ck_assert_uint_le(n, LOOP_NODES_MAX);
	pthread_barrier_init(&nodes->barrier, NULL, n);
	for (i = 0; i < n; i++) {
		nodes->node[i].nodes = nodes;
		nodes->node[i].number = i;
		testing_log_init(&nodes->node[i].log);
	}
	run_all(nodes, open_node);
	for (i = 0; i < n; i++)
		ck_assert_int_eq(nodes->node[i].result, 0);
}

void nodes_open(struct nodes *nodes, uint32_t n, uint32_t n_members)
{
	memset(nodes, 0, sizeof(*nodes));
	spread(nodes, n, n_members);
	open_all(nodes, n);
}

void nodes_open_map(struct nodes *nodes, const struct nodes_map *map)
{
	memset(nodes, 0, sizeof(*nodes));
	ck_assert_uint_le(map->n_ranks, NODES_RANKS_MAX);
	nodes->n_ranks = map->n_ranks;
	nodes->transport = map->transport;
	nodes->is_loop = map->is_loop;
	nodes->movers = map->movers;
	memcpy(nodes->node_of, map->node_of, map->n_ranks * sizeof(*map->node_of));
	if (map->places)
		memcpy(nodes->places, map->places, map->n_ranks * sizeof(*map->places));
	open_all(nodes, map->n_nodes);
}

void nodes_open_mixed(struct nodes *nodes, uint32_t n, uint32_t n_ranks, const uint32_t *node_of)
{
	const struct nodes_map map = { .n_nodes = n, .n_ranks = n_ranks, .node_of = node_of };

	nodes_open_map(nodes, &map);
}

void nodes_open_at(struct nodes *nodes, uint32_t n, const struct ceov_place *places,
		   const struct cei_transport_ops *transport)
{
	memset(nodes, 0, sizeof(*nodes));
	memcpy(nodes->places, places, n * sizeof(*places));
	nodes->transport = transport;
	spread(nodes, n, 1);
	open_all(nodes, n);
}

void nodes_open_strict(struct nodes *nodes, uint32_t n, uint64_t timeout_ns)
{
	memset(nodes, 0, sizeof(*nodes));
	nodes->timeout_ns = timeout_ns;
	spread(nodes, n, 1);
	open_all(nodes, n);
}

void nodes_open_turned(struct nodes *nodes, uint32_t n)
{
	memset(nodes, 0, sizeof(*nodes));
	nodes->is_turned = 1;
	spread(nodes, n, 1);
	open_all(nodes, n);
}

void nodes_open_late(struct nodes *nodes)
{
	memset(nodes, 0, sizeof(*nodes));
	nodes->is_late = 1;
	spread(nodes, 2, 1);
	open_all(nodes, 2);
}

void nodes_close_one(struct nodes *nodes, uint32_t number)
{
	close_node(&nodes->node[number]);
}

void nodes_delay(struct nodes *nodes, uint64_t *random)
{
	uint32_t i, k;

	pthread_mutex_lock(&nodes->net.lock);
	for (i = 0; i < nodes->n; i++) {
		for (k = 0; k < nodes->n; k++) {
			nodes->net.links[i][k].delay_ns = testing_below(random, TESTING_MS);
			nodes->net.links[i][k].jitter_ns =
				1 + testing_below(random, 2 * TESTING_MS);
		}
	}
	pthread_mutex_unlock(&nodes->net.lock);
}

void nodes_cut(struct nodes *nodes, uint32_t one, uint32_t other)
{
	pthread_mutex_lock(&nodes->net.lock);
	loop_net_cut(&nodes->net, one, other, 1);
	pthread_mutex_unlock(&nodes->net.lock);
}

void nodes_close(struct nodes *nodes)
{
	run_all(nodes, close_node);
	loop_net_fini(&nodes->net);
	pthread_barrier_destroy(&nodes->barrier);
}

ceov_context *nodes_context(struct nodes *nodes, uint32_t rank)
{
	return nodes->node[nodes->node_of[rank]].context;
}

ceov_buffer *nodes_buffer(struct nodes *nodes, uint32_t rank, const char *name, uint64_t n_bytes)
{
	ceov_buffer *buffer = testing_buffer(nodes_context(nodes, rank), rank, n_bytes);

	ck_assert_int_eq(ceov_buffer_share(buffer, name), 0);
	return buffer;
}

ceov_signal *nodes_signal(struct nodes *nodes, uint32_t rank, const char *name, uint32_t n)
{
	ceov_signal *signal = testing_signal(nodes_context(nodes, rank), rank, n);

	ck_assert_int_eq(ceov_signal_share(signal, name), 0);
	return signal;
}

ceov_buffer *nodes_find_buffer(struct nodes *nodes, uint32_t finder, uint32_t rank,
			       const char *name)
{
	ceov_buffer *buffer = NULL;

	ck_assert_int_eq(ceov_buffer_find(nodes_context(nodes, finder), rank, name, &buffer), 0);
	return buffer;
}

ceov_signal *nodes_find_signal(struct nodes *nodes, uint32_t finder, uint32_t rank,
			       const char *name)
{
	ceov_signal *signal = NULL;

	ck_assert_int_eq(ceov_signal_find(nodes_context(nodes, finder), rank, name, &signal), 0);
	return signal;
}

void nodes_await(ceov_signal *signal, uint32_t index, uint64_t value)
{
	ck_assert_int_eq(ceov_signal_wait(signal, index, value, TESTING_PATIENCE), 0);
}
