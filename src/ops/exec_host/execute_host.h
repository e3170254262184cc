/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTE_HOST_H
#define CEI_EXECUTE_HOST_H

/* Shared by the files of the host's executor. */

#include <stdatomic.h>
#include <stdint.h>

#include "ops/compute/executor.h"

struct cei_host_executor {
	_Atomic int error;              /* the first error of a job */
	uint64_t    begin_ns;           /* of a measurement */
};

/* measure_host.c: see struct cei_executor_ops. */
int  cei_host_take(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
		   uint64_t n, void **ret_memory);
void cei_host_give(struct cei_executor *executor, void *memory);
int  cei_host_time_begin(struct cei_executor *executor, void *stream);
int  cei_host_time_end(struct cei_executor *executor, void *stream, uint64_t timeout_ns,
		       uint64_t *ret_ns);

#endif /* CEI_EXECUTE_HOST_H */
