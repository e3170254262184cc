/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_DEVICE_H
#define BENCH_DEVICE_H

/* The functions behind the device calls of bench.h, with the same contracts. `private` is the value
 * that open returned; close must be called with it after a failed open, too. */

#include "tools/bench/bench.h"

struct bench_device_ops {
	int      (*open)(void **ret_private, uint32_t ordinal);
	void     (*close)(void *private);
	int      (*fill)(void *private, void *at, uint64_t n_bytes, uint64_t seed);
	int      (*verify)(void *private, const void *at, uint64_t n_bytes, uint64_t seed,
			   uint64_t *ret_n_wrong);

	int      (*allocate)(void *private, uint64_t n_bytes, void **ret_at);
	void     (*release)(void *private, void *at);
	int      (*values)(void *private, const struct bench_values *values);
	int      (*compare)(void *private, struct bench_compare *compare);

	/* NULL on the host; host ranks do not call these. */
	void    *(*stream)(void *private, enum bench_stream which);
	int      (*sync)(void *private, enum bench_stream which);
	int      (*follow)(void *private, enum bench_stream later,
			   enum bench_stream earlier);
	int      (*time_begin)(void *private);
	int      (*time_end)(void *private);
	int      (*time_us)(void *private, double *ret_us);
	int      (*copies)(void *private, enum bench_stream which,
			   const struct bench_copy *copies, uint32_t n);
	int      (*flags)(void *private, enum bench_stream which, void *const *flags,
			  uint32_t n, uint64_t value);
	int      (*waits)(void *private, enum bench_stream which, void *const *flags,
			  uint32_t n, uint64_t value);
	int      (*pingpong_start)(void *private, const struct bench_pingpong *game);
	int      (*pingpong_wait)(void *private, uint32_t n_rounds, double *ret_us);
	uint32_t (*n_sms)(void *private);
	int      (*spin_start)(void *private);
	int      (*spin_stop)(void *private);
	int      (*capture_begin)(void *private);
	int      (*capture_end)(void *private, void **ret_graph);
	int      (*graph_launch)(void *private, void *graph);
	void     (*graph_drop)(void *private, void *graph);

	/* Returns the number of GPUs. ret_machine describes them, or says why there are none. */
	uint32_t (*count)(char *ret_machine, size_t n_bytes);
};

extern const struct bench_device_ops bench_device_cuda; /* in device_cuda.c, in builds with CUDA */

#endif /* BENCH_DEVICE_H */
