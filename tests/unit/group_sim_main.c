/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* group_sim FIRST [COUNT]: runs schedules of group_sim.h by their numbers. Without COUNT it runs
 * one, and writes all events. */

#include "group_sim.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "group_sim FIRST [COUNT]: runs schedules by their numbers\n");
		return 2;
	}
	return group_sim_run(strtoull(argv[1], NULL, 0), argc > 2 ? strtoull(argv[2], NULL, 0) : 1,
			     argc == 2, stdout) != 0;
}
