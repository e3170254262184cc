/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* The functions of capture_cuda.h in a build without CUDA: there are no graphs, and no workspace
 * becomes capturable. */

#include "ops/core/capture_cuda.h"


int cei_capture_open(ceov_workspace *workspace, struct cei_capture **ret_capture)
{
	(void)ret_capture;
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "workspace '%s': this build is without CUDA",
			 workspace->name);
}

void cei_capture_close(struct cei_capture *capture)
{
	(void)capture;
}

uint64_t *cei_capture_epoch(const struct cei_capture *capture)
{
	(void)capture;
	return NULL;
}

struct cei_direct_words cei_capture_words(const struct cei_capture *capture)
{
	const struct cei_direct_words none = { .epoch = NULL };

	(void)capture;
	return none;
}

void cei_capture_forget(struct cei_capture *capture, const ceov_op *op)
{
	(void)capture;
	(void)op;
}

uint32_t cei_capture_n_graphs(const struct cei_capture *capture)
{
	(void)capture;
	return 0;
}

int cei_capture_run(struct cei_capture *capture, const struct cei_run *run)
{
	(void)capture;
	(void)run;
	return CEOV_ERR_INVALID;
}
