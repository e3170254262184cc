/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Versions of CUDA; the only file of ceoverlap-info that includes cuda.h. */

#include "tools/info/info.h"

#include "base/cuda_table.h"

static void format(int version, char *room)
{
	snprintf(room, 32, "%d.%d", version / 1000, version % 1000 / 10);
}

void info_cuda_toolkit(char *room)
{
	format(CUDA_VERSION, room);
}

void info_cuda_driver(const struct cei_cuda *cuda, char *room)
{
	format(cuda->version, room);
}
