/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Stands in for cuda.c in a build without CUDA: there are no versions. */

#include "tools/info/info.h"

void info_cuda_toolkit(char *room)
{
	room[0] = '\0';
}

void info_cuda_driver(const struct cei_cuda *cuda, char *room)
{
	(void)cuda;
	room[0] = '\0';
}
