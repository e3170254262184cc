/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

/*
 * ceoverlap-bench measure: what the machine's links carry, alone and at once, by raw
 * driver calls of one process; kept for the runtime's router.
 *
 *   bench_measure.c          the command line, and what is done in which order
 *   bench_measure_pairs.c    links alone: GPU to GPU, host to GPU, GPU to host
 *   bench_measure_sets.c     links at once: what they share
 *   bench_measure_host.c     between NUMA nodes, by the processors
 *   bench_measure_cuda.c     copies between places, begun together
 *   bench_measure_report.c   text and JSON
 */

#include "bench.h"

#include "base/report.h"
#include "topology/machine.h"

#define MEASURE_SIZES       3u
#define MEASURE_ROUNDS_MAX  9u
#define MEASURE_SETS_MAX    1024u
#define MEASURE_FLOWS_MAX   CEI_MACHINE_GPUS_MAX
#define MEASURE_LANES       4u          /* flows at once that one GPU moves */
#define MEASURE_COPIES_MAX  64u         /* of one flow, in one run */

/* The largest share of what links carry alone at which they share something. */
#define MEASURE_SHARED      0.9

/* One link's copies in a run, back to back. */
struct measure_flow {
	uint32_t from;                  /* places of the machine */
	uint32_t to;
	uint64_t bytes;                 /* of a copy */
	uint32_t n_copies;
	uint32_t slot;                  /* 0 to MEASURE_LANES - 1: which part of the
					 * target's memory, where several write it */
	double   us;                    /* out: of all copies, by events of its GPU */
};

/* What moves bytes: GPUs by their driver. private is what open made, also where it failed.
 * GPU flows are pushed by their source, others moved by their GPU. Errors were raised in
 * the report that open got. */
struct measure_mover_config {
	struct cei_report        *report;
	const struct cei_machine *machine;
	uint32_t                  n_gpus;       /* the first ones of the machine */
	uint64_t                  seed;
	uint64_t                  gpu_bytes_max;        /* of a GPU's source, and target */
	uint64_t                  host_bytes_max;       /* of all nodes together */
};

struct measure_sizes {
	uint64_t gpu_bytes;             /* largest copy between GPUs */
	uint64_t host_bytes;            /* largest copy between a node and a GPU */
};

struct measure_mover_ops {
	int  (*open)(void **ret_private, const struct measure_mover_config *config,
		     struct measure_sizes *ret_sizes);
	void (*close)(void *private);
	int  (*reaches)(void *private, uint32_t from, uint32_t to);     /* places */

	/* All flows begin together: their copies are queued behind one gate. Of one flow the
	 * bytes may be any, of several the parts of their memory's 1 / MEASURE_LANES. */
	int  (*run)(void *private, struct measure_flow *flows, uint32_t n_flows);

	/* One copy into poisoned memory: how many words of it came wrong. */
	int  (*check)(void *private, const struct measure_flow *flow, uint64_t *ret_n_wrong);
};

extern const struct measure_mover_ops measure_mover_cuda;       /* with CUDA */

/* --- what was measured -------------------------------------------------------------- */

struct measure_link {                   /* of an ordered pair of places */
	float  us[MEASURE_SIZES][MEASURE_ROUNDS_MAX];   /* of one copy */
	float  plain_us[3];             /* of all copies of a run as nvbandwidth makes them */
	uint32_t n_rounds;
	double median_us[MEASURE_SIZES];
	double plain_gb_per_s;          /* 0: not measured */
	double both_gb_per_s;           /* this way and back at once, summed; 0: not */
	int    is_measured;
};

struct measure_set {                    /* links at once */
	char     name[CEI_MACHINE_NAME_BYTES];
	uint32_t n_flows;
	struct measure_flow flows[MEASURE_FLOWS_MAX];
	double   alone_gb_per_s;        /* the links' sum */
	double   expected_gb_per_s;     /* that, or less: parts of the set share something */
	double   gb_per_s;              /* at once */
	char     port[CEI_MACHINE_NAME_BYTES];  /* what they share; "": nothing, or not known */
};

struct measure {
	const struct bench_options *options;    /* n_ranks: GPUs, 0: all */
	int                         is_quick;
	const char                 *output;     /* XML file; NULL: none */
	int                         is_stored;  /* wanted; then: done */
	char                        command[1024];

	struct cei_report           report;
	struct cei_machine         *machine;
	uint32_t                    n_gpus;     /* that are measured, the first ones */
	uint64_t                    deadline_ns;
	uint32_t                    n_left_out; /* links and sets, for want of time */
	uint64_t                    n_wrong;    /* words */
	uint32_t                    n_checked;  /* links */
	char                        stored_in[512];

	const struct measure_mover_ops *ops;    /* NULL: no GPU */
	void                       *mover;
	struct measure_sizes        sizes;
	uint64_t                    plain_bytes;        /* of a copy, as nvbandwidth */
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

/* argv[0] is "measure". Exit status of the program. */
int bench_measure_main(int argc, char **argv);

/* Whether time is left; counts what has to be left out otherwise. */
int measure_has_time(struct measure *m);
void measure_progress(const struct measure *m, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* The three sizes up to the largest, and how often each is copied in a sample. */
void measure_sizes_up_to(uint64_t largest, uint64_t bytes[MEASURE_SIZES],
			 uint32_t n_copies[MEASURE_SIZES]);

/* The largest copy that links were measured with: between nodes (0 GPUs), a node and a GPU
 * (1), GPUs (2). */
uint64_t measure_largest(const struct measure *m, int n_gpus);

/* Medians of a link's samples, and the line through them into the machine. */
int measure_conclude(struct measure *m, uint32_t from, uint32_t to,
		     const uint64_t bytes[MEASURE_SIZES]);
double measure_median(const float *values, uint32_t n);

/* Each: 0, or an error that was told. */
int measure_pairs(struct measure *m);
int measure_host_links(struct measure *m);
int measure_sets(struct measure *m);
int measure_nodes(struct measure *m);

void measure_report_text(const struct measure *m, FILE *out);
int  measure_report_json(const struct measure *m);

#endif /* BENCH_MEASURE_H */
