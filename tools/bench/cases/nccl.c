/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/*
 * NCCL, opened at run time: its default collectives and its zero-CTA ones. The few
 * declarations that this needs follow NCCL's published ABI (nccl.h of 2.28); nothing
 * of NCCL is needed to build.
 */

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/bench/library.h"

#define NCCL_VERSION_MIN    22800
#define NCCL_UNIQUE_BYTES   128
#define NCCL_INT8           0
#define NCCL_SUM            0
#define NCCL_MAGIC          0xcafebeefu
#define NCCL_UNDEFINED      INT_MIN
#define NCCL_POLICY_ZERO    2
#define NCCL_WIN_SYMMETRIC  1

struct nccl_id {
	char internal[NCCL_UNIQUE_BYTES];
};

struct nccl_config {                    /* same layout as NCCL 2.28's ncclConfig_t */
	size_t      size;
	unsigned    magic;
	unsigned    version;
	int         blocking;
	int         cga_cluster_size;
	int         min_ctas;
	int         max_ctas;
	const char *net_name;
	int         split_share;
	int         traffic_class;
	const char *comm_name;
	int         collnet_enable;
	int         cta_policy;
	int         shrink_share;
	int         nvls_ctas;
	int         n_channels_per_net_peer;
	int         nvlink_centric_sched;
};

struct nccl_calls {
	int         (*get_version)(int *version);
	const char *(*error_string)(int result);
	int         (*get_unique_id)(struct nccl_id *id);
	int         (*comm_init)(void **comm, int n_ranks, struct nccl_id id, int rank,
				 struct nccl_config *config);
	int         (*comm_destroy)(void *comm);
	int         (*mem_alloc)(void **ptr, size_t n_bytes);
	int         (*mem_free)(void *ptr);
	int         (*window_register)(void *comm, void *ptr, size_t n_bytes, void **window,
				       int flags);
	int         (*window_deregister)(void *comm, void *window);
	int         (*all_gather)(const void *source, void *target, size_t count, int type,
				  void *comm, void *stream);
	int         (*all_to_all)(const void *source, void *target, size_t count, int type,
				  void *comm, void *stream);
	int         (*reduce_scatter)(const void *source, void *target, size_t count,
				      int type, int op, void *comm, void *stream);
	int         (*all_reduce)(const void *source, void *target, size_t count, int type,
				  int op, void *comm, void *stream);
	int         (*send)(const void *source, size_t count, int type, int peer, void *comm,
			    void *stream);
	int         (*recv)(void *target, size_t count, int type, int peer, void *comm,
			    void *stream);
	int         (*group_start)(void);
	int         (*group_end)(void);
};

struct bench_nccl {
	void             *library;
	struct nccl_calls calls;
	int               version;
	void             *comm;
	void             *source;
	void             *target;
	void             *windows[2];
	uint32_t          rank;
};

static int check(const struct bench_nccl *nccl, int result, const char *what)
{
	if (!result)
		return 0;
	fprintf(stderr, "ceoverlap-bench: rank %u: NCCL %s: %s\n", nccl->rank, what,
		nccl->calls.error_string ? nccl->calls.error_string(result) : "failed");
	return CEOV_ERR_CUDA;
}

/* Searches the loader's path, then the folders of the toolkit and of Python's packages. */
static int load(struct bench_nccl *nccl, const char *path)
{
	static const char *const names[] = {
		"libnccl.so.2",
		"/usr/local/cuda/lib64/libnccl.so.2",
		"/usr/local/cuda/lib/libnccl.so.2",
		"/usr/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
		"/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
		"/opt/*/.venv/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2",
		NULL
	};
	const struct bench_symbol wanted[] = {
		{ "ncclGetVersion", &nccl->calls.get_version },
		{ "ncclGetErrorString", &nccl->calls.error_string },
		{ "ncclGetUniqueId", &nccl->calls.get_unique_id },
		{ "ncclCommInitRankConfig", &nccl->calls.comm_init },
		{ "ncclCommDestroy", &nccl->calls.comm_destroy },
		{ "ncclMemAlloc", &nccl->calls.mem_alloc },
		{ "ncclMemFree", &nccl->calls.mem_free },
		{ "ncclCommWindowRegister", &nccl->calls.window_register },
		{ "ncclCommWindowDeregister", &nccl->calls.window_deregister },
		{ "ncclAllGather", &nccl->calls.all_gather },
		{ "ncclAlltoAll", &nccl->calls.all_to_all },
		{ "ncclReduceScatter", &nccl->calls.reduce_scatter },
		{ "ncclAllReduce", &nccl->calls.all_reduce },
		{ "ncclSend", &nccl->calls.send },
		{ "ncclRecv", &nccl->calls.recv },
		{ "ncclGroupStart", &nccl->calls.group_start },
		{ "ncclGroupEnd", &nccl->calls.group_end },
	};

	nccl->library = bench_library_open(path, names);
	if (!nccl->library ||
	    bench_library_find(nccl->library, wanted, sizeof(wanted) / sizeof(wanted[0])))
		return CEOV_NONE;
	return nccl->calls.get_version(&nccl->version) ||
		nccl->version < NCCL_VERSION_MIN ? CEOV_NONE : 0;
}

static int init_comm(struct bench_nccl *nccl, struct bench_rank *rank, int ce)
{
	struct nccl_config config = {
		.size = sizeof(config),
		.magic = NCCL_MAGIC,
		.version = NCCL_VERSION_MIN,
		.blocking = NCCL_UNDEFINED,
		.cga_cluster_size = NCCL_UNDEFINED,
		.min_ctas = NCCL_UNDEFINED,
		.max_ctas = NCCL_UNDEFINED,
		.split_share = NCCL_UNDEFINED,
		.traffic_class = NCCL_UNDEFINED,
		.collnet_enable = NCCL_UNDEFINED,
		.cta_policy = ce ? NCCL_POLICY_ZERO : NCCL_UNDEFINED,
		.shrink_share = NCCL_UNDEFINED,
		.nvls_ctas = NCCL_UNDEFINED,
		.n_channels_per_net_peer = NCCL_UNDEFINED,
		.nvlink_centric_sched = NCCL_UNDEFINED,
	};
	struct nccl_id id;
	int r = 0;

	if (!rank->rank)
		r = check(nccl, nccl->calls.get_unique_id(&id), "ncclGetUniqueId");
	if (!r && !rank->rank)
		memcpy(bench_blob(rank), &id, sizeof(id));
	if (!r)
		r = bench_meet(rank);
	memcpy(&id, bench_blob(rank), sizeof(id));
	if (!r)
		r = check(nccl, nccl->calls.comm_init(&nccl->comm, (int)rank->n_ranks, id,
						      (int)rank->rank, &config),
			  "ncclCommInitRankConfig");
	return r ? r : bench_meet(rank);
}

/* Returns why NCCL does not run between these ranks, or NULL. */
static const char *obstacle(const struct bench_rank *rank)
{
	if (!rank->is_gpu)
		return "it needs GPUs";
	if (rank->launched)
		return "it does not know ranks that a launcher started";
	if (rank->n_nodes > 1)
		return "ranks act as several nodes";
	if (rank->n_on_gpu > 1)
		return "ranks share GPUs, which NCCL refuses";
	return rank->options->without_nccl ? "as asked" : NULL;
}

int bench_nccl_open(struct bench_rank *rank, int ce, uint64_t n_bytes_max,
		    struct bench_nccl **ret_nccl, const char **ret_why)
{
	struct bench_nccl *nccl;
	int r;

	*ret_why = obstacle(rank);
	if (*ret_why)
		return CEOV_NONE;
	nccl = calloc(1, sizeof(*nccl));
	if (!nccl)
		return CEOV_ERR_NO_MEMORY;
	nccl->rank = rank->rank;
	(void)bench_stream(rank->device, BENCH_STREAM_MAIN);    /* makes the rank's GPU current */
	r = load(nccl, rank->options->nccl_path);
	if (r) {
		*ret_why = nccl->version ? "libnccl is older than 2.28"
			: "libnccl.so.2 of 2.28 or newer was not found (--nccl PATH)";
		bench_nccl_close(nccl);
		return r;
	}
	r = init_comm(nccl, rank, ce);
	if (!r)
		r = check(nccl, nccl->calls.mem_alloc(&nccl->source, n_bytes_max),
			  "ncclMemAlloc");
	if (!r)
		r = check(nccl, nccl->calls.mem_alloc(&nccl->target, n_bytes_max),
			  "ncclMemAlloc");
	if (!r && ce)
		r = check(nccl, nccl->calls.window_register(nccl->comm, nccl->source,
			n_bytes_max, &nccl->windows[0], NCCL_WIN_SYMMETRIC),
			"ncclCommWindowRegister");
	if (!r && ce)
		r = check(nccl, nccl->calls.window_register(nccl->comm, nccl->target,
			n_bytes_max, &nccl->windows[1], NCCL_WIN_SYMMETRIC),
			"ncclCommWindowRegister");
	*ret_nccl = nccl;
	return r;
}

void bench_nccl_close(struct bench_nccl *nccl)
{
	int i;

	if (!nccl)
		return;
	for (i = 0; i < 2; i++)
		if (nccl->windows[i])
			(void)check(nccl, nccl->calls.window_deregister(
				nccl->comm, nccl->windows[i]), "window");
	if (nccl->source)
		(void)check(nccl, nccl->calls.mem_free(nccl->source), "ncclMemFree");
	if (nccl->target)
		(void)check(nccl, nccl->calls.mem_free(nccl->target), "ncclMemFree");
	if (nccl->comm)
		(void)check(nccl, nccl->calls.comm_destroy(nccl->comm), "ncclCommDestroy");
	/* the library stays loaded, because NCCL's own threads may still run */
	free(nccl);
}

void *bench_nccl_source(struct bench_nccl *nccl)
{
	return nccl->source;
}

void *bench_nccl_target(struct bench_nccl *nccl)
{
	return nccl->target;
}

int bench_nccl_all_gather(struct bench_nccl *nccl, uint64_t shard_bytes, void *stream)
{
	char *own = (char *)nccl->target + nccl->rank * shard_bytes;    /* the all-gather is in
									 * place */

	return check(nccl, nccl->calls.all_gather(own, nccl->target, shard_bytes, NCCL_INT8,
						  nccl->comm, stream), "ncclAllGather");
}

int bench_nccl_all_to_all(struct bench_nccl *nccl, uint64_t block_bytes, void *stream)
{
	return check(nccl, nccl->calls.all_to_all(nccl->source, nccl->target, block_bytes,
						  NCCL_INT8, nccl->comm, stream),
		     "ncclAlltoAll");
}

int bench_nccl_reduce_scatter(struct bench_nccl *nccl, uint64_t count, enum bench_nccl_type type,
			      void *stream)
{
	return check(nccl, nccl->calls.reduce_scatter(nccl->source, nccl->target, count,
						      (int)type, NCCL_SUM, nccl->comm, stream),
		     "ncclReduceScatter");
}

int bench_nccl_all_reduce(struct bench_nccl *nccl, uint64_t count, enum bench_nccl_type type,
			  void *stream)
{
	return check(nccl, nccl->calls.all_reduce(nccl->source, nccl->target, count, (int)type,
						  NCCL_SUM, nccl->comm, stream),
		     "ncclAllReduce");
}

static int send_and_receive(struct bench_nccl *nccl, const struct bench_nccl_blocks *blocks,
			    void *stream)
{
	const char *source = nccl->source;
	char *target = nccl->target;
	uint32_t i;
	int r = 0;

	for (i = 0; !r && i < blocks->n_ranks; i++) {
		if (blocks->sent[i])
			r = check(nccl, nccl->calls.send(source, blocks->sent[i], NCCL_INT8, (int)i,
							 nccl->comm, stream), "ncclSend");
		if (!r && blocks->got[i])
			r = check(nccl, nccl->calls.recv(target, blocks->got[i], NCCL_INT8, (int)i,
							 nccl->comm, stream), "ncclRecv");
		source += blocks->sent[i];
		target += blocks->got[i];
	}
	return r;
}

int bench_nccl_send_blocks(struct bench_nccl *nccl, const struct bench_nccl_blocks *blocks,
			   void *stream)
{
	int r = check(nccl, nccl->calls.group_start(), "ncclGroupStart"), s;

	if (r)
		return r;
	r = send_and_receive(nccl, blocks, stream);
	s = check(nccl, nccl->calls.group_end(), "ncclGroupEnd");
	return r ? r : s;
}
