# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Dispatch and combine of a mixture of experts on host ranks, against NumPy, in threads."""

import unittest

import numpy as np

import ceoverlap
from ceoverlap import MoeCombine, MoeDispatch, Workspace
from rig import Case, in_threads

N = 3
SHAPE = (20, 16, 6, 2)                  # tokens, hidden, experts, top_k
TOKENS = (20, 0, 7)                     # of each rank
LOCAL = SHAPE[2] // N


def aligned(shape, dtype):
    """Zeros in memory aligned to 16 bytes, which operands have to be."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(n_bytes + 16, np.uint8)
    start = -raw.ctypes.data % 16
    return raw[start:start + n_bytes].view(dtype).reshape(shape)


class Layer:
    """One rank's arrays."""

    def __init__(self, rank, n_received):
        n = TOKENS[rank]
        random = np.random.default_rng(rank)
        self.tokens = aligned((n, SHAPE[1]), np.float32)
        self.tokens[:] = random.integers(-9, 10, self.tokens.shape)
        self.experts = aligned((n, SHAPE[3]), np.int32)
        for token in range(n):
            self.experts[token] = random.permutation(SHAPE[2])[:SHAPE[3]]
        self.weights = aligned((n, SHAPE[3]), np.float32)
        self.weights[:] = random.integers(1, 5, self.weights.shape)
        self.slots = aligned((n, SHAPE[3]), np.int32)
        self.arrived = aligned((N, LOCAL), np.uint32)
        self.received = aligned((n_received, SHAPE[1]), np.float32)
        self.ends = aligned(LOCAL, np.int32)
        self.sums = aligned((n, SHAPE[1]), np.float32)


class ExpertOperators(Case):
    def spaces(self, **sizes):
        context = self.host(N)
        size = MoeDispatch.scratch_bytes(N, *SHAPE, "float32", **sizes)
        self.assertEqual(size, MoeCombine.scratch_bytes(N, *SHAPE, "float32", **sizes))
        spaces = [Workspace(context, "tests", size, rank) for rank in range(N)]
        for space in spaces:
            space.connect()
        return spaces

    def run_all(self):
        spaces = self.spaces()

        def body(r):
            dispatch = MoeDispatch(spaces[r], *SHAPE, "float32")
            combine = MoeCombine(spaces[r], *SHAPE, "float32")
            layer = Layer(r, dispatch.n_received)
            dispatch.run(layer.tokens, layer.experts, layer.slots, layer.arrived, layer.received,
                         layer.ends)
            combine.run(layer.received, layer.slots, layer.arrived, layer.sums, layer.weights)
            layer.first = layer.received.copy()
            layer.tokens *= 2
            dispatch.run(layer.tokens, None, layer.slots, layer.arrived, layer.received,
                         layer.ends)
            return layer

        return in_threads(N, body)

    def run_groups(self, total):
        """Each group's received rows, with as many groups as a rank has experts, and the sums of
        all groups. A rank sends at most `total` rows to another one."""
        sizes = {"n_groups": LOCAL, "total_capacity": total}
        spaces = self.spaces(**sizes)

        def body(r):
            dispatch = MoeDispatch(spaces[r], *SHAPE, "float32", **sizes)
            combine = MoeCombine(spaces[r], *SHAPE, "float32", **sizes)
            layer, received, sums = Layer(r, dispatch.n_received), [], 0
            sent = aligned((N, LOCAL), np.uint32)
            for group in range(LOCAL):
                ends = aligned(1, np.int32)
                dispatch.run(layer.tokens, None if group else layer.experts, layer.slots,
                             layer.arrived, layer.received, ends, sent=sent, group=group)
                received.append(layer.received[:ends[0]].copy())
                combine.run(layer.received, layer.slots, layer.arrived, layer.sums, layer.weights,
                            group=group)
                sums = sums + layer.sums
            return received, sums

        return in_threads(N, body)

    def test_rows_come_by_expert_rank_and_token(self):
        layers = self.run_all()
        for r, layer in enumerate(layers):
            rows = [source.tokens[token] / 2 for e in range(r * LOCAL, (r + 1) * LOCAL)
                    for source in layers for token in range(len(source.tokens))
                    if e in source.experts[token]]
            self.assertEqual(layer.ends[-1], len(rows))
            np.testing.assert_array_equal(layer.first[:len(rows)], rows)
            np.testing.assert_array_equal(layer.received, 2 * layer.first)

    def test_groups_come_one_after_another(self):
        layers, total = self.run_all(), 5
        kept = [np.zeros(layer.experts.shape, bool) for layer in layers]
        for layer, keeps in zip(layers, kept):
            for target in range(N):
                copies = [(e, *at) for e in range(target * LOCAL, (target + 1) * LOCAL)
                          for at in np.argwhere(layer.experts == e)]
                for _, token, k in copies[:total]:
                    keeps[token, k] = True
        self.assertFalse(kept[0].all())
        for r, (received, sums) in enumerate(self.run_groups(total)):
            for group, rows in enumerate(received):
                expected = [layer.tokens[token] / 2 for layer, keeps in zip(layers, kept)
                            for token, _ in np.argwhere((layer.experts == r * LOCAL + group) &
                                                        keeps)]
                np.testing.assert_array_equal(rows, np.reshape(expected, rows.shape))
            np.testing.assert_array_equal(
                sums, layers[r].tokens / 2 * (layers[r].weights * kept[r]).sum(1, keepdims=True))

    def test_sums_are_weighted(self):
        for layer in self.run_all():
            np.testing.assert_array_equal(
                layer.sums, layer.tokens / 2 * layer.weights.sum(1, keepdims=True))

    def test_wrong_arrays_are_refused(self):
        op = MoeDispatch(self.spaces()[0], *SHAPE, "float32")
        layer = Layer(0, op.n_received)

        def run(**changed):
            given = {"tokens": layer.tokens, "experts": layer.experts, "slots": layer.slots,
                     "arrived": layer.arrived, "received": layer.received, "ends": layer.ends}
            op.run(**{**given, **changed})

        with self.assertRaisesRegex(ceoverlap.InvalidError, "group 1, and"):
            run(group=1)
        for name, wrong in (("tokens", aligned((21, 16), np.float32)),
                            ("tokens", layer.tokens[:, :8].copy()),
                            ("experts", layer.experts.astype(np.int64)),
                            ("slots", layer.slots[:3]), ("arrived", layer.arrived[:1]),
                            ("received", layer.received[1:]), ("ends", layer.ends[:1]),
                            ("sent", layer.arrived[:1])):
            with self.assertRaisesRegex(ceoverlap.InvalidError, name):
                run(**{name: wrong})


if __name__ == "__main__":
    unittest.main()
