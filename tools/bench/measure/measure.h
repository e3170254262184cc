/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

/*
 * ceoverlap-bench measure: the bandwidth of the machine's links, alone and together, by
 * plain driver calls of one process; stored for the runtime's router.
 *
 *   measure.c      the command line, and what is done in which order
 *   pairs.c        links alone: GPU to GPU, host to GPU, GPU to host
 *   sets.c         links at once: what they share
 *   host.c         between NUMA nodes, by the processors
 *   mover_cuda.c   copies between places, begun together
 *   report.c       text and JSON
 */

#include "tools/bench/bench.h"

#include "base/report.h"
#include "topology/machine.h"

#define MEASURE_SIZES       3u
#define MEASURE_ROUNDS_MAX  9u
#define MEASURE_SETS_MAX    1024u
#define MEASURE_FLOWS_MAX   CEI_MACHINE_GPUS_MAX
#define MEASURE_LANES       4u          /* concurrent flows per GPU */
#define MEASURE_COPIES_MAX  64u         /* copies of one flow in one run */

/* Links share a port if together they reach at most this fraction of the sum of their rates. */
#define MEASURE_SHARED      0.9

/* A series of copies over one link, back to back. */
struct measure_flow {
	uint32_t from;                  /* indexes of the machine's places */
	uint32_t to;
	uint64_t bytes;                 /* size of one copy */
	uint32_t n_copies;
	uint32_t slot;                  /* selects the part of the target's memory where several
					 * flows write to it, below MEASURE_LANES */
	double   us;                    /* result: time of all copies, by events of the moving
					 * GPU */
};

/* The mover makes copies through the driver of the GPUs. `private` is the value that open returned;
 * close must be called with it after a failed open, too. A copy between GPUs is made by the source
 * GPU, a copy between a GPU and the host by that GPU. Errors are raised in the report that open
 * got. */
struct measure_mover_config {
	struct cei_report        *report;
	const struct cei_machine *machine;
	uint32_t                  n_gpus;       /* uses the machine's first n_gpus GPUs */
	uint64_t                  seed;
	uint64_t                  gpu_bytes_max;        /* largest size of a GPU's source and
							 * target memory */
	uint64_t                  host_bytes_max;       /* largest total of all nodes' memory */
};

struct measure_sizes {
	uint64_t gpu_bytes;             /* largest copy between GPUs */
	uint64_t host_bytes;            /* largest copy between a node and a GPU */
};

struct measure_mover_ops {
	int  (*open)(void **ret_private, const struct measure_mover_config *config,
		     struct measure_sizes *ret_sizes);
	void (*close)(void *private);
	int  (*reaches)(void *private, uint32_t from, uint32_t to);     /* whether it can copy from
									 * one place to the other */

	/* Runs flows that begin together: their copies are queued behind one gate. A single flow
	 * may use all of the memory, several at once 1 / MEASURE_LANES of it each. */
	int  (*run)(void *private, struct measure_flow *flows, uint32_t n_flows);

	/* Makes one copy into poisoned memory and counts the words that are wrong. */
	int  (*check)(void *private, const struct measure_flow *flow, uint64_t *ret_n_wrong);
};

extern const struct measure_mover_ops measure_mover_cuda;       /* in builds with CUDA */

/* --- results ------------------------------------------------------------------------ */

struct measure_link {                   /* results for an ordered pair of places */
	float  us[MEASURE_SIZES][MEASURE_ROUNDS_MAX];   /* time of one copy */
	float  plain_us[3];             /* time of all copies of one run, made as nvbandwidth makes
					 * them */
	uint32_t n_rounds;
	double median_us[MEASURE_SIZES];
	double plain_gb_per_s;          /* 0: not measured */
	double both_gb_per_s;           /* sum of both directions at once; 0: not measured */
	int    is_measured;
};

struct measure_set {                    /* links measured at once */
	char     name[CEI_MACHINE_NAME_BYTES];
	uint32_t n_flows;
	struct measure_flow flows[MEASURE_FLOWS_MAX];
	double   alone_gb_per_s;        /* sum of the links' rates when alone */
	double   expected_gb_per_s;     /* the links' sum, or less if parts of the set share a
					 * port */
	double   gb_per_s;              /* measured rate of all links at once */
	char     port[CEI_MACHINE_NAME_BYTES];  /* the port that they share; "": none, or not
						 * known */
};

struct measure {
	const struct bench_options *options;    /* its n_ranks: how many GPUs; 0: all */
	int                         is_quick;
	const char                 *output;     /* path of an XML file; NULL: none */
	int                         is_stored;  /* before the run: the user wants the result stored;
						 * afterwards: it was stored */

	struct cei_report           report;
	struct cei_machine         *machine;
	uint32_t                    n_gpus;     /* the first n_gpus GPUs are measured */
	uint64_t                    deadline_ns;
	uint32_t                    n_left_out; /* links and sets that were left out because time
						 * ran out */
	uint64_t                    n_wrong;    /* words that arrived wrong */
	uint32_t                    n_checked;  /* links whose data was checked */
	char                        stored_in[512];

	const struct measure_mover_ops *ops;    /* NULL: there is no GPU */
	void                       *mover;
	struct measure_sizes        sizes;
	uint64_t                    plain_bytes;        /* size of a copy made as nvbandwidth makes
							 * it */
	uint32_t                    n_plain_copies;
	uint64_t                    node_bytes; /* largest copy between nodes */

	struct measure_link        *links;      /* [from * n_places + to] */
	struct measure_set         *sets;       /* [MEASURE_SETS_MAX] */
	uint32_t                    n_sets;
};

static inline struct measure_link *measure_link(const struct measure *m, uint32_t from,
						uint32_t to)
{
	return &m->links[from * cei_machine_n_places(m->machine) + to];
}

/* Runs the command; argv[0] is "measure". Returns the program's exit status. */
int bench_measure_main(int argc, char **argv);

/* Whether there is time left; if not, counts one more measurement as left out. */
int measure_has_time(struct measure *m);
void measure_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Chooses three sizes up to the largest, and how often each is copied per sample. */
void measure_sizes_up_to(uint64_t largest, uint64_t bytes[MEASURE_SIZES],
			 uint32_t n_copies[MEASURE_SIZES]);

/* Returns the size of the largest copy with which links are measured. n_gpus: how many ends of the
 * link are GPUs. */
uint64_t measure_largest(const struct measure *m, int n_gpus);

/* Computes the medians of a link's samples, fits the cost to them, and stores it in the
 * machine. */
void measure_conclude(struct measure *m, uint32_t from, uint32_t to,
		      const uint64_t bytes[MEASURE_SIZES]);
double measure_median(const float *values, uint32_t n);

/* Each measures one kind of links. Returns 0, or an error that it has reported. */
int measure_pairs(struct measure *m);
int measure_host_links(struct measure *m);
int measure_sets(struct measure *m);
int measure_nodes(struct measure *m);

/* Prints the results, and writes them as JSON if that was asked for. Returns 0, or -1, reported. */
int  measure_report(const struct measure *m);

#endif /* BENCH_MEASURE_H */
