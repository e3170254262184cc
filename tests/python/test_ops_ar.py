# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""GEMM + all-reduce on host ranks, against NumPy, in threads."""

import unittest

import numpy as np

import ceoverlap
from ceoverlap import GemmAllReduce, Tuning, Workspace
from rig import Case, in_threads

N = 3
K = 16


def numbers(shape, seed):
    """Small whole numbers: sums lose nothing."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


class AllReducedProducts(Case):
    def run_all(self, m, n, is_kn, by_rows):
        context = self.host(N)
        size = GemmAllReduce.scratch_bytes(m, K, n, N, "float16", b_is_k_by_n=is_kn,
                                           by_rows=by_rows)
        spaces = [Workspace(context, "tests", size, rank) for rank in range(N)]
        for space in spaces:
            space.connect()
        a = [numbers((m, K), r) for r in range(N)]
        b = [numbers((n, K), 10 + r) for r in range(N)]

        def body(r):
            op = GemmAllReduce(spaces[r], m, K, n, "float16", Tuning(n_pieces=2), is_kn, by_rows)
            stored = np.ascontiguousarray(b[r].T) if is_kn else b[r]
            results = [op.run(a[r], stored) for _ in range(3)]
            divided = "rows" if by_rows or m >= 128 * N else "columns"
            self.assertIn(f"divided: {divided}", op.explain())
            op.close()
            return results

        expected = sum(x @ y.T for x, y in zip(a, b))
        for results in in_threads(N, body):
            for result in results:
                np.testing.assert_array_equal(result, expected)

    def test_all_ranks_get_the_sum(self):
        for m, n in ((1, 8), (1, 264), (37, 72), (400, 24)):
            for is_kn in (False, True):
                for by_rows in (False, True):
                    with self.subTest(m=m, n=n, is_kn=is_kn, by_rows=by_rows):
                        self.run_all(m, n, is_kn, by_rows)

    def test_what_is_refused(self):
        context = self.host(1)
        space = Workspace(context, "refused", 4096)
        space.connect()
        for m, k, n in ((0, 8, 8), (4, 12, 8), (4, 8, 0), (4, 8, 12)):
            with self.subTest(m=m, k=k, n=n):
                with self.assertRaises(ceoverlap.InvalidError):
                    GemmAllReduce(space, m, k, n)
                with self.assertRaises(ceoverlap.InvalidError):
                    GemmAllReduce.scratch_bytes(m, k, n, 1)
        op = GemmAllReduce(space, 4, 8, 16, "float16")
        good, bad = np.zeros((4, 8), np.float16), np.zeros((8, 4), np.float16)
        for a, b in ((bad, np.zeros((16, 8), np.float16)), (good, bad)):
            with self.assertRaises(ceoverlap.InvalidError):
                op.run(a, b)


if __name__ == "__main__":
    unittest.main()
