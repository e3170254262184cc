# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The named workloads of bench/torch_layers.py, and those of bench/peers, at small sizes: every way
runs, and those that do the same agree."""

import os
import sys
import types
import unittest
from unittest import mock

import rig
import torch
from rig import raises

from ceoverlap.torch import Group

BENCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "bench")


def workloads():
    if BENCH not in sys.path:
        sys.path.append(BENCH)
    import torch_workloads

    return torch_workloads


def runs(table):
    """Each way of each row of a table."""
    module, group = workloads(), Group.of()
    options = types.SimpleNamespace(shrink=256, groups=[1, 2], spare_sms=4)
    for workload in module.named([table]):
        torch.manual_seed(rig.SEED * 64 + group.rank)
        with torch.no_grad():
            ways = workload.ways(options, group, *workload.shape)
            module.agree(workload, ways)
            for call in ways.values():
                call()
        if not {"operator", "torch.distributed", "communication"} <= set(ways):
            raise AssertionError(f"{workload.name} has only {list(ways)}")


def differs():
    """A way that returns something else is found."""
    module, group = workloads(), Group.of()
    (workload,) = module.named(["sp_attn/8192"])
    options = types.SimpleNamespace(shrink=256, groups=[], spare_sms=0)
    with torch.no_grad():
        ways = workload.ways(options, group, *workload.shape)
        with mock.patch.dict(ways, operator=lambda: 1.1 * ways["torch.distributed"]()):
            raises(SystemExit, "operator differs", module.agree, workload, ways)


def find_peers():
    for folder in (BENCH, os.path.join(BENCH, "peers")):
        if folder not in sys.path:
            sys.path.append(folder)


def is_small():
    find_peers()
    import small

    group = Group.of()
    torch.manual_seed(rig.SEED * 64 + group.rank)
    with torch.no_grad():
        for collective in small.COLLECTIVES:
            ways = small.ways_of(collective, 64 * group.size, group)
            small.check(ways)
            wrong = small.Way(lambda: torch.zeros(32 * group.size))
            with mock.patch.dict(ways, operator=wrong):
                raises(SystemExit, "differs", small.check, ways)


def looks_up():
    """PyTorch's look-ups are given the same bags as ceoverlap's."""
    find_peers()
    import embedding

    group = Group.of()
    torch.manual_seed(rig.SEED * 64 + group.rank)
    options = types.SimpleNamespace(samples=4 * group.size, tables=3, columns=16, rows=20, bag=5)
    with torch.no_grad():
        methods = embedding.methods_of(options, group, embedding.Bags(options, group))
        embedding.check(methods)
        for call in methods.values():
            call()
        with mock.patch.dict(methods, operator=lambda: torch.zeros(4, 48 * group.size)):
            raises(SystemExit, "differs", embedding.check, methods)


class Workloads(unittest.TestCase):
    @unittest.skipIf(rig.HAS_GPUS, "is about sizes that only host ranks need")
    def test_every_way(self):
        for table in ("ag_moe", "ep_a2a", "ep_moe", "sp_attn"):
            with self.subTest(table=table):
                rig.run(runs, table)

    @unittest.skipIf(rig.HAS_GPUS, "is about sizes that only host ranks need")
    def test_disagreement(self):
        rig.run(differs)

    @unittest.skipIf(rig.HAS_GPUS, "is about sizes that only host ranks need")
    def test_embeddings(self):
        rig.run(looks_up)

    @unittest.skipIf(rig.HAS_GPUS, "is about sizes that only host ranks need")
    def test_small(self):
        rig.run(is_small)

    def test_names(self):
        module = workloads()
        all_names = [one.name for one in module.WORKLOADS]
        for names, wanted in ((["ag_moe"], all_names[:8]),
                              (["ag_moe/qwen1.5-moe"], all_names[:2]),
                              (["sp_attn/65536", "sp_attn"], all_names[-1:] + all_names[-2:-1])):
            self.assertEqual([one.name for one in module.named(names)], wanted)
        for name in ("ag", "sp_attn/6", "ag_moe/"):
            with self.assertRaises(SystemExit):
                module.named([name])

    def test_spare_sms(self):
        """The setting holds during the call only, also if that fails."""
        module, get = workloads(), torch._C._get_sm_carveout_experimental
        self.assertEqual(module.spared(4, "way", get)["way, 4 SMs spared"](), 4)
        self.assertEqual(module.spared(0, "way", get), {})
        with self.assertRaises(ZeroDivisionError):
            module.spared(4, "way", lambda: 1 // 0)["way, 4 SMs spared"]()
        self.assertIsNone(get())

    def test_ideal(self):
        module = workloads()
        times = {"operator": [5.0, 1.0], "compute": [3.0, 9.0], "communication": [4.0, 1.0]}
        self.assertEqual(module.row_of(module.WORKLOADS[0], times)["ideal_us"], 4.0)


if __name__ == "__main__":
    unittest.main()
