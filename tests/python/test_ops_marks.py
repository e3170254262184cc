# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""GEMM with marks on host ranks, against NumPy, in threads."""

import threading
import unittest

import numpy as np

import ceoverlap
from ceoverlap import GemmMarks, GemmReduceScatter, Tuning, Workspace
from rig import Case

K = 16


def numbers(shape, seed):
    """Small whole numbers: sums lose nothing."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


class Marks(Case):
    def space(self, n_ranks=1, **options):
        context = self.host(n_ranks)
        size = GemmMarks.scratch_bytes(8, K, 8, n_ranks, "float16")
        spaces = [Workspace(context, "tests", max(size, 1 << 16), rank, **options)
                  for rank in range(n_ranks)]
        for space in spaces:
            space.connect()
        return spaces[-1]               # peers' make no runs

    def test_groups_cover_all_rows(self):
        space = self.space(2)
        for m, n, n_groups, is_kn in ((1, 8, 0, False), (5, 8, 4, True), (300, 72, 3, False),
                                      (300, 72, 32, True)):
            with self.subTest(m=m, n=n, n_groups=n_groups, is_kn=is_kn):
                op = GemmMarks(space, m, K, n, "float16", Tuning(n_pieces=n_groups), is_kn)
                ends = [first + n_rows for first, n_rows in op.groups]
                self.assertEqual([first for first, _ in op.groups], [0] + ends[:-1])
                self.assertEqual(ends[-1], m)
                for run in (1, 2):
                    a, b = numbers((m, K), run), numbers((n, K), 10 + run)
                    c = op.run(a, np.ascontiguousarray(b.T) if is_kn else b)
                    np.testing.assert_array_equal(c, a @ b.T)
                    for group in range(len(op.groups)):
                        op.wait(group)
                        op.wait(group, run=run)
                op.close()

    def test_a_thread_takes_groups(self):
        """It waits before the run, and finds the rows of each group."""
        op = GemmMarks(self.space(), 256, K, 64, "float16", Tuning(n_pieces=4))
        a, b, c = numbers((256, K), 1), numbers((64, K), 2), np.zeros((256, 64), np.float16)
        taken, failures = [], []

        def take():
            try:
                for group, (first, n_rows) in enumerate(op.groups):
                    op.wait(group, run=1)
                    taken.append(c[first:first + n_rows].copy())
            except ceoverlap.CeoverlapError as failure:
                failures.append(failure)

        thread = threading.Thread(target=take)
        thread.start()
        op.run(a, b, c)
        thread.join()
        self.assertEqual(failures, [])
        np.testing.assert_array_equal(np.concatenate(taken), a @ b.T)

    def test_what_is_refused(self):
        space = self.space(deadline_s=0.05)
        for m, k, n in ((0, 8, 8), (4, 12, 8), (4, 8, 0), (4, 8, 12)):
            with self.subTest(m=m, k=k, n=n):
                with self.assertRaises(ceoverlap.InvalidError):
                    GemmMarks(space, m, k, n)
                with self.assertRaises(ceoverlap.InvalidError):
                    GemmMarks.scratch_bytes(m, k, n, 1)
        op = GemmMarks(space, 4, 8, 16, "float16")
        with self.assertRaises(ceoverlap.StateError):
            op.wait(0)
        with self.assertRaises(ceoverlap.InvalidError):
            op.wait(1, run=1)
        with self.assertRaises(ceoverlap.DeadlineError):
            op.wait(0, run=7)
        with self.assertRaises(ceoverlap.InvalidError):
            op.run(np.zeros((8, 4), np.float16), np.zeros((16, 8), np.float16))
        other = GemmReduceScatter(space, [4], 8, 16, "float16")
        with self.assertRaisesRegex(ceoverlap.InvalidError, "has no groups"):
            other._invoke("ceov_gemm_marks_wait", 1, 0, None)


if __name__ == "__main__":
    unittest.main()
