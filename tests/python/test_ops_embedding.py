# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Embedding bags with an all-to-all on host ranks, against NumPy, in threads."""

import unittest

import numpy as np

import ceoverlap
from ceoverlap import EmbeddingAllToAll, EmbeddingBackward, Workspace
from rig import Case, in_threads

N = 3
SAMPLES = [4, 0, 3]
TABLES = [[(10, 8), (7, 16)], [(5, 24)], []]
STARTS = [0, 24, 48]                    # of each rank's columns
COLUMNS = 48


def aligned(shape, dtype):
    """Zeros in memory aligned to 16 bytes, which operands have to be."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n_bytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start:start + n_bytes].view(dtype).reshape(shape)


def whole(random, shape):
    """Whole numbers, whose sums are exact."""
    made = aligned(shape, np.float32)
    made[...] = random.integers(-9, 10, shape)
    return made


class Rank:
    """One rank's arrays."""

    def __init__(self, rank):
        random = np.random.default_rng(rank)
        own = TABLES[rank]
        n_bags = len(own) * sum(SAMPLES)
        sizes = random.integers(0, 4, n_bags)
        self.offsets = aligned(n_bags + 1, np.int64)
        self.offsets[1:] = np.cumsum(sizes)
        self.indices = aligned(self.offsets[-1], np.int64)
        for t, (rows, _) in enumerate(own):
            begin, end = self.bags_of(t)
            self.indices[begin:end] = random.integers(0, rows, end - begin)
        self.weights = whole(random, len(self.indices))
        self.flat = whole(random, sum(rows * dim for rows, dim in own))
        self.grads = whole(random, (SAMPLES[rank], COLUMNS))
        self.pooled = aligned((SAMPLES[rank], COLUMNS), np.float32)
        self.bag_grads = aligned((sum(SAMPLES), sum(dim for _, dim in own)), np.float32)
        self.row_grads = aligned((len(self.indices), max([dim for _, dim in own], default=0)),
                                 np.float32)
        self.tables, at = [], 0
        for rows, dim in own:
            self.tables.append(self.flat[at:at + rows * dim].reshape(rows, dim))
            at += rows * dim

    def bags_of(self, table):
        n = sum(SAMPLES)
        return self.offsets[table * n], self.offsets[(table + 1) * n]

    def bag(self, table, sample):
        """The positions of a bag's indices."""
        number = table * sum(SAMPLES) + sample
        return np.arange(self.offsets[number], self.offsets[number + 1])


def pooled(ranks):
    """Pooled vectors of all samples."""
    rows = []
    for sample in range(sum(SAMPLES)):
        parts = []
        for rank in ranks:
            for t, table in enumerate(rank.tables):
                at = rank.bag(t, sample)
                parts.append((table[rank.indices[at]] * rank.weights[at, None]).sum(axis=0))
        rows.append(np.concatenate(parts))
    return np.split(np.stack(rows), np.cumsum(SAMPLES)[:-1])


class EmbeddingOperators(Case):
    def spaces(self):
        context = self.host(N)
        size = max(EmbeddingAllToAll.scratch_bytes(SAMPLES, TABLES),
                   EmbeddingBackward.scratch_bytes(SAMPLES, TABLES))
        spaces = [Workspace(context, "tests", size, rank) for rank in range(N)]
        for space in spaces:
            space.connect()
        return spaces

    def test_forth_and_back(self):
        spaces = self.spaces()
        ranks = [Rank(r) for r in range(N)]

        def body(r):
            rank = ranks[r]
            EmbeddingAllToAll(spaces[r], SAMPLES, TABLES).run(
                rank.flat, rank.indices, rank.offsets, rank.pooled, rank.weights)
            EmbeddingBackward(spaces[r], SAMPLES, TABLES).run(
                rank.grads, rank.offsets, rank.bag_grads, rank.row_grads, rank.weights)

        self.assertEqual(in_threads(N, body), [None] * N)
        all_grads = np.concatenate([rank.grads for rank in ranks])
        for rank, expected, start in zip(ranks, pooled(ranks), STARTS):
            np.testing.assert_array_equal(rank.pooled, expected)
            width = rank.bag_grads.shape[1]
            np.testing.assert_array_equal(rank.bag_grads, all_grads[:, start:start + width])
            self.check_rows(rank, all_grads, start)

    def check_rows(self, rank, all_grads, start):
        for t, table in enumerate(rank.tables):
            dim = table.shape[1]
            for sample in range(sum(SAMPLES)):
                at = rank.bag(t, sample)
                np.testing.assert_array_equal(
                    rank.row_grads[at, :dim],
                    rank.weights[at, None] * all_grads[sample, start:start + dim])
            start += dim

    def test_ranks_without_tables_or_samples_give_none(self):
        spaces = self.spaces()
        ranks = [Rank(r) for r in range(N)]

        def body(r):
            rank = ranks[r]
            forth = EmbeddingAllToAll(spaces[r], SAMPLES, TABLES, pooling="mean")
            if r == 2:
                return forth.run(None, None, None, rank.pooled) is rank.pooled
            return forth.run(rank.flat, rank.indices, rank.offsets,
                             rank.pooled if SAMPLES[r] else None) is not None

        self.assertEqual(in_threads(N, body), [True, False, True])

    def test_a_wrong_index_ends_the_run(self):
        spaces = self.spaces()
        ranks = [Rank(r) for r in range(N)]
        ranks[1].indices[0] = 5

        def body(r):
            rank = ranks[r]
            with self.assertRaises(ceoverlap.InvalidError):
                EmbeddingAllToAll(spaces[r], SAMPLES, TABLES).run(
                    rank.flat, rank.indices, rank.offsets, rank.pooled)

        self.assertEqual(in_threads(N, body), [None] * N)

    def test_wrong_arrays_are_refused(self):
        op = EmbeddingAllToAll(self.spaces()[0], SAMPLES, TABLES)
        rank = Rank(0)
        good = [rank.flat, rank.indices, rank.offsets, rank.pooled]
        for at, wrong in ((0, rank.flat[:8]), (0, None), (1, rank.indices.astype(np.int32)),
                          (2, rank.offsets[1:]), (2, None), (3, rank.pooled[:1])):
            with self.assertRaises((ceoverlap.InvalidError, TypeError)):
                op.run(*good[:at], wrong, *good[at + 1:])

    def test_wrong_shapes_are_refused(self):
        space = self.spaces()[0]
        for wrong in ((SAMPLES, TABLES[:2]), (SAMPLES[:2], TABLES[:2]), ([0, 0, 0], TABLES),
                      (SAMPLES, [[], [], []]), (SAMPLES, [[(5, 12)], [], []]),
                      (SAMPLES, TABLES, "float64"), (SAMPLES, TABLES, "float32", "max")):
            with self.assertRaises((ceoverlap.InvalidError, ValueError)):
                EmbeddingAllToAll(space, *wrong)


if __name__ == "__main__":
    unittest.main()
