# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""All-gather and all-to-all: the templates, and the classes, in threads."""

import unittest

import numpy as np

import ceoverlap
from rig import Case, in_threads

N = 3


class Templates(Case):
    def rig(self, n_pieces, source_bytes, n_ready):
        context = self.host(N)
        sources = [np.random.default_rng(r).integers(0, 256, source_bytes, np.uint8)
                   for r in range(N)]
        parts = {
            "sources": [context.register(one, r) for r, one in enumerate(sources)],
            "ready": [context.signal(n_ready, r) for r in range(N)],
            "arrived": [context.signal(N * n_pieces, r) for r in range(N)],
            "free": [context.signal(N * n_pieces, r) for r in range(N)],
        }
        return context, sources, parts

    def run_rank(self, r, plan, parts, n_ready, n_pieces):
        for k in range(3):
            ticket = plan.launch(k)
            for i in range(n_ready):
                parts["ready"][r].raise_to(k + 1, i)
            for i in range(N * n_pieces):
                parts["arrived"][r].wait(k + 1, i)
                parts["free"][r].raise_to(k + 1, i)
            ticket.wait()

    def test_all_gather(self):
        context, sources, parts = self.rig(4, 1000, 4)
        targets = [context.allocate(64 + N * 1000, r) for r in range(N)]

        def body(r):
            plan = context.plan(r)
            ceoverlap.all_gather(plan, 1000, parts["sources"][r], targets, parts["arrived"],
                                 n_pieces=4, ready=parts["ready"][r], free=parts["free"],
                                 target_offset_bytes=64).commit()
            self.run_rank(r, plan, parts, 4, 4)

        in_threads(N, body)
        for target in targets:
            np.testing.assert_array_equal(target.view()[64:], np.concatenate(sources))

    def test_all_to_all(self):
        context, sources, parts = self.rig(2, N * 512, 2 * N)
        targets = [context.allocate(N * 512, r) for r in range(N)]

        def body(r):
            plan = context.plan(r)
            ceoverlap.all_to_all(plan, 512, parts["sources"][r], targets, parts["arrived"],
                                 n_pieces=2, ready=parts["ready"][r],
                                 free=parts["free"]).commit()
            self.run_rank(r, plan, parts, 2 * N, 2)

        in_threads(N, body)
        blocks = np.stack([one.reshape(N, 512) for one in sources])
        for r, target in enumerate(targets):
            np.testing.assert_array_equal(target.view(shape=(N, 512)), blocks[:, r])

    def test_blocks_of_different_sizes(self):
        context, _, parts = self.rig(2, N * 512, 2 * N)
        targets = [context.allocate(N * 512, r) for r in range(N)]
        values = [parts["sources"][r].view() for r in range(N)]
        sizes = [[100 * r + 37 * t for t in range(N)] for r in range(N)]     # 0 to 0: none

        def body(r):
            plan = context.plan(r)
            blocks = [ceoverlap.Block(sizes[r][t], 512 * t, 512 * r) for t in range(N)]
            ceoverlap.all_to_all(plan, 0, parts["sources"][r], targets, parts["arrived"],
                                 n_pieces=2, ready=parts["ready"][r], free=parts["free"],
                                 blocks=blocks).commit()
            self.run_rank(r, plan, parts, 2 * N, 2)

        in_threads(N, body)
        for t, target in enumerate(targets):
            for r in range(N):
                size = sizes[r][t]
                np.testing.assert_array_equal(target.view()[512 * r:512 * r + size],
                                              values[r][512 * t:512 * t + size])
        with self.assertRaisesRegex(ceoverlap.InvalidError, "blocks: 1 entries"):
            ceoverlap.all_to_all(context.plan(0), 0, parts["sources"][0], targets,
                                 parts["arrived"], blocks=[ceoverlap.Block(1, 0, 0)])

    def test_broadcast(self):
        context, sources, parts = self.rig(4, 1000, 4)
        targets = [context.allocate(1000, r) for r in range(N)]
        root = 1

        def body(r):
            plan = context.plan(r)
            is_root = r == root
            ceoverlap.broadcast(plan, 1000, root, parts["sources"][r] if is_root else None,
                                targets, parts["arrived"], n_pieces=4,
                                ready=parts["ready"][r] if is_root else None).commit()
            ticket = plan.launch(0)
            for i in range(4):
                parts["ready"][r].raise_to(1, i)
            for i in range(0 if is_root else 4):
                parts["arrived"][r].wait(1, i)
            ticket.wait()

        in_threads(N, body)
        for r in (0, 2):
            np.testing.assert_array_equal(targets[r].view(), sources[root])

    def test_how_shards_go_from_node_to_node(self):
        context, _, parts = self.rig(1, 64, 1)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "nodes: 'tree'"):
            ceoverlap.all_gather(context.plan(0), 64, parts["sources"][0], [None] * N,
                                 parts["arrived"], nodes="tree")

    def test_lists_are_by_rank(self):
        context, _, parts = self.rig(1, 64, 1)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "targets: 2 entries"):
            ceoverlap.all_gather(context.plan(0), 64, parts["sources"][0], [None, None],
                                 parts["arrived"])


class Whole(Case):
    def test_all_gather(self):
        context = self.host(N)
        sources = [np.zeros((5, 7), np.float32) for _ in range(N)]
        gathers = [ceoverlap.AllGather(context, "rows", sources[r], rank=r, n_pieces=2)
                   for r in range(N)]

        def body(r):
            gathers[r].connect()
            whole = gathers[r].target.view(np.float32, (N, 5, 7))
            for k in range(30):
                sources[r][:] = 100 * r + k
                gathers[r].run()
                for s in range(N):
                    self.assertTrue((whole[s] == 100 * s + k).all())

        in_threads(N, body)
        for gather in gathers:
            gather.close()
            gather.close()
        with self.assertRaises(ceoverlap.StateError):
            gathers[0].run()

    def test_all_to_all(self):
        context = self.host(N)
        sources = [np.zeros((N, 16), np.int32) for _ in range(N)]
        targets = [np.zeros((N, 16), np.int32) for _ in range(N)]
        exchanges = [ceoverlap.AllToAll(context, "blocks", sources[r], rank=r,
                                        target=targets[r]) for r in range(N)]

        def body(r):
            exchanges[r].connect()
            for k in range(30):
                sources[r][:] = (100 * r + 10 * np.arange(N) + 1000 * k)[:, None]
                exchanges[r].run()
                for s in range(N):
                    self.assertTrue((targets[r][s] == 100 * s + 10 * r + 1000 * k).all())

        in_threads(N, body)
        for exchange in exchanges:
            exchange.close()

    def test_refusals(self):
        context = self.host(N)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "equal blocks"):
            ceoverlap.AllToAll(context, "odd", np.zeros(64, np.uint8))
        with self.assertRaisesRegex(ceoverlap.InvalidError, "must be 192"):
            ceoverlap.AllGather(context, "small", np.zeros(64, np.uint8),
                                target=np.zeros(64, np.uint8))
        gather = ceoverlap.AllGather(context, "alone", np.zeros(64, np.uint8))
        with self.assertRaisesRegex(ceoverlap.StateError, "connect"):
            gather.run()
        with self.assertRaises(ceoverlap.PendingError):
            gather.connect(0.01)
        with self.assertRaises(ceoverlap.CeoverlapError):
            ceoverlap.AllGather(context, "alone", np.zeros(64, np.uint8))


if __name__ == "__main__":
    unittest.main()
