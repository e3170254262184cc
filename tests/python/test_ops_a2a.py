# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Products with an all-to-all on host ranks, against NumPy, in threads."""

import unittest

import numpy as np

import ceoverlap
from ceoverlap import AllToAllGemm, GemmAllToAll, Tuning, Workspace
from rig import Case, in_threads

N = 3
ROWS_OF = ((3, 0, 8), (5, 2, 7), (0, 0, 4))
ROWS = (11, 0, 6)
COLUMNS = (8, 24, 8)


def numbers(shape, seed):
    """Small whole numbers: sums lose nothing."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def split(matrix, sizes, axis=0):
    return np.split(matrix, np.cumsum(sizes)[:-1], axis)


class AllToAllOperators(Case):
    def run_all(self, kind, k, n, a_shapes, is_kn, blocks):
        """Runs the operator at all ranks; returns operands and results in the order of ranks."""
        context = self.host(N)
        size = kind.scratch_bytes(k, n, "float16", b_is_k_by_n=is_kn, **blocks)
        spaces = [Workspace(context, "tests", size, rank) for rank in range(N)]
        for space in spaces:
            space.connect()
        a = [numbers(a_shapes[r], r) for r in range(N)]
        b = [numbers((n, k), 10 + r) for r in range(N)]

        def body(r):
            op = kind(spaces[r], k, n, "float16", Tuning(n_pieces=2), is_kn, **blocks)
            stored = np.ascontiguousarray(b[r].T) if is_kn else b[r]
            results = [op.run(a[r], stored) for _ in range(3)]
            self.assertIn("divided", op.explain())
            for result in results[1:]:
                np.testing.assert_array_equal(result, results[0])
            op.close()
            return results[0]

        return a, b, in_threads(N, body)

    def test_rows_are_sent_behind_the_product(self):
        shapes = [(sum(ROWS_OF[r]), 16) for r in range(N)]
        for is_kn in (False, True):
            a, b, c = self.run_all(GemmAllToAll, 16, 24, shapes, is_kn, {"rows_of": ROWS_OF})
            sent = [split(x @ y.T, ROWS_OF[r]) for r, (x, y) in enumerate(zip(a, b))]
            for r in range(N):
                np.testing.assert_array_equal(
                    c[r], np.concatenate([blocks[r] for blocks in sent]))

    def test_columns_are_sent_behind_the_product(self):
        shapes = [(rows, 16) for rows in ROWS]
        for is_kn in (False, True):
            a, b, c = self.run_all(GemmAllToAll, 16, sum(COLUMNS), shapes, is_kn,
                                   {"rows": ROWS, "columns": COLUMNS})
            sent = [split(x @ y.T, COLUMNS, 1) for x, y in zip(a, b)]
            for r in range(N):
                np.testing.assert_array_equal(
                    c[r], np.concatenate([blocks[r] for blocks in sent]))

    def test_rows_are_sent_before_the_product(self):
        shapes = [(sum(ROWS_OF[r]), 16) for r in range(N)]
        for is_kn in (False, True):
            a, b, c = self.run_all(AllToAllGemm, 16, 24, shapes, is_kn, {"rows_of": ROWS_OF})
            sent = [split(x, ROWS_OF[r]) for r, x in enumerate(a)]
            for r in range(N):
                np.testing.assert_array_equal(
                    c[r], np.concatenate([blocks[r] for blocks in sent]) @ b[r].T)

    def test_columns_are_sent_before_the_product(self):
        shapes = [(sum(ROWS), columns) for columns in COLUMNS]
        for is_kn in (False, True):
            a, b, c = self.run_all(AllToAllGemm, sum(COLUMNS), 24, shapes, is_kn,
                                   {"rows": ROWS, "columns": COLUMNS})
            sent = [split(x, ROWS) for x in a]
            for r in range(N):
                np.testing.assert_array_equal(
                    c[r], np.concatenate([blocks[r] for blocks in sent], 1) @ b[r].T)

    def test_what_is_refused(self):
        context = self.host(1)
        space = Workspace(context, "refused", 4096)
        space.connect()
        for kind in (GemmAllToAll, AllToAllGemm):
            for blocks in ({}, {"rows": (8,)}, {"rows_of": ((8,),), "rows": (8,), "columns": (8,)},
                           {"rows_of": ((8, 8),)}, {"rows_of": ((8, 8), (8, 8))},
                           {"rows": (8,), "columns": (8, 8)}, {"rows": (8,), "columns": (12,)},
                           {"rows": (-1,), "columns": (8,)}, {"rows": (8,), "columns": (16,)}):
                with self.subTest(kind=kind, blocks=blocks):
                    with self.assertRaises(ceoverlap.InvalidError):
                        kind(space, 8, 8, **blocks)
            op = kind(space, 8, 8, "float16", rows_of=((4,),))
            good, bad = np.zeros((4, 8), np.float16), np.zeros((8, 4), np.float16)
            for a, b in ((bad, np.zeros((8, 8), np.float16)), (good, bad)):
                with self.assertRaises(ceoverlap.InvalidError):
                    op.run(a, b)


if __name__ == "__main__":
    unittest.main()
