/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Merges trace files. */

#include "tools/bench/trace.h"

#include <stdio.h>
#include <unistd.h>

#include "tools/bench/bench.h"
#include "tools/bench/program.h"

#define PART_BYTES 4096u

static void part_path(char *text, size_t n_bytes, const char *path, uint32_t rank)
{
	snprintf(text, n_bytes, "%s.rank%u", path, rank);
}

int bench_trace_merge(const char *path, uint32_t n_ranks)
{
	const char *arguments[BENCH_RANKS_MAX + 4] = { "ceoverlap-trace", "-o", path };
	char parts[BENCH_RANKS_MAX][PART_BYTES];
	uint32_t i, n = 0;
	int r;

	for (i = 0; i < n_ranks; i++) {
		part_path(parts[n], sizeof(parts[n]), path, i);
		if (access(parts[n], F_OK))
			continue;
		arguments[3 + n] = parts[n];
		n++;
	}
	if (!n)
		return 0;
	r = bench_program_run(arguments, stderr);
	for (i = 0; !r && i < n; i++)
		(void)unlink(parts[i]);
	if (r)
		fprintf(stderr, "ceoverlap-bench: the traces of the ranks are left in %s.rank*\n",
			path);
	return r;
}
