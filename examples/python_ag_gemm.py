# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""All-gather + GEMM: each rank has 64 rows of A and a B of its own, and gets all rows of
A B^T. Ranks are threads of this process, on host memory, so that it runs anywhere; with one
process for each rank, only the first line of main() and the loop around run_rank() change."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import ceoverlap
from ceoverlap.bf16 import from_float32, to_float32

ROWS, K, N = [64, 64, 64, 64], 64, 96           # rows of each rank; they may differ


def run_rank(workspace):
    random = np.random.default_rng(workspace.rank)
    a = random.integers(-2, 3, (ROWS[workspace.rank], K)).astype(np.float32)
    b = random.integers(-2, 3, (N, K)).astype(np.float32)
    op = ceoverlap.AllGatherGemm(workspace, ROWS, K, N)         # bfloat16
    c = op.run(from_float32(a), from_float32(b))                # any number of times
    return a, b, to_float32(c)


def main():
    with ceoverlap.Context(range(len(ROWS)), place="host") as context:
        scratch_bytes = ceoverlap.AllGatherGemm.scratch_bytes(ROWS, K, N)
        workspaces = [ceoverlap.Workspace(context, "example", scratch_bytes, rank)
                      for rank in context.ranks]
        for workspace in workspaces:                            # now that all are created
            workspace.connect()
        with ThreadPoolExecutor(len(ROWS)) as threads:
            parts = list(threads.map(run_rank, workspaces))
    whole = np.concatenate([a for a, _, _ in parts])
    for rank, (_, b, c) in enumerate(parts):
        np.testing.assert_allclose(c, whole @ b.T, rtol=2 ** -8)
        print(f"rank {rank}: C {c.shape} is right")


if __name__ == "__main__":
    main()
