/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_EXECUTE_HOST_H
#define CEI_EXECUTE_HOST_H

/* What the files of the host's executor share. */

#include <stdatomic.h>
#include <stdint.h>

#include "ops/compute/direct.h"
#include "ops/compute/embedding.h"
#include "ops/compute/executor.h"
#include "ops/compute/experts.h"

struct cei_host_executor {
	_Atomic int error;              /* the first error of a job */
	uint64_t    begin_ns;           /* when the measurement under way began */
};

/* Keeps a job's first error for the executor's status(). Returns r. */
int  cei_host_keep(const struct cei_executor *executor, int r);

/* Waits until the counters have reached the run's number. `what` names what they stand for, for the
 * message of a timeout. */
int  cei_host_await(const struct cei_executor *executor, const struct cei_job_marks *marks,
		    const struct cei_counters *counters, const char *what);

/* host_direct.c */
int  cei_host_direct(struct cei_executor *executor, void *stream,
		     const struct cei_direct_job *job);

/* host_experts.c */
extern const struct cei_experts_ops cei_host_experts;

/* host_embedding.c */
extern const struct cei_embedding_ops cei_host_embedding;

/* measure_host.c: measurements, as struct cei_executor_ops describes them. */
int  cei_host_take(struct cei_executor *executor, void *stream, enum ceov_dtype dtype,
		   uint64_t n, void **ret_memory);
void cei_host_give(struct cei_executor *executor, void *memory);
int  cei_host_time_begin(struct cei_executor *executor, void *stream);
int  cei_host_time_end(struct cei_executor *executor, void *stream, uint64_t timeout_ns,
		       uint64_t *ret_ns);

#endif /* CEI_EXECUTE_HOST_H */
