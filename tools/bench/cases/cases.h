/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef BENCH_CASES_H
#define BENCH_CASES_H

/* The entry points of all test cases. Each runs on every rank and returns 0 or an error. */

struct bench_rank;

int bench_p2p(struct bench_rank *rank);
int bench_p2p_2d(struct bench_rank *rank);
int bench_busy_sm(struct bench_rank *rank);
int bench_mark(struct bench_rank *rank);
int bench_doorbell(struct bench_rank *rank);
int bench_all_gather(struct bench_rank *rank);
int bench_all_to_all(struct bench_rank *rank);
int bench_broadcast(struct bench_rank *rank);
int bench_channel(struct bench_rank *rank);
int bench_engine(struct bench_rank *rank);
int bench_idle(struct bench_rank *rank);
int bench_plan(struct bench_rank *rank);

#endif /* BENCH_CASES_H */
