# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What torch.profiler sees of calls, and what that costs while none runs."""

import json
import os
import tempfile
import time
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist

import ceoverlap.torch as ct
from ceoverlap import ops
from ceoverlap.torch import Group, _compat, _seen

PRICE_US = 0.3                          # of a call while no profiler runs


def calls(group):
    x = rig.integers(1, group.rank, (4 * group.size, 16))
    half = x.to(torch.bfloat16)
    weight = rig.integers(2, 0, (16, 16), torch.bfloat16)
    ct.all_gather(x, group)
    ct.reduce_scatter(x, group)
    ct.all_reduce(x, group)
    ct.all_to_all(x, group)
    ct.all_gather_matmul(half, weight, group)
    ct.matmul_reduce_scatter(half, weight, group)


def events_of(group, **options):
    """The events of a profiler, as in the file that it writes."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                **options) as profiler:
        calls(group)
    with tempfile.TemporaryDirectory() as folder:
        profiler.export_chrome_trace(folder + "/trace")
        with open(folder + "/trace", encoding="utf-8") as file:
            trace = json.load(file)
    assert all(event.get("pid") == os.getpid() for event in trace["traceEvents"]
               if event["name"].startswith("ceov::")), "other processes' events"
    return [event for event in trace["traceEvents"] if event["name"].startswith("ceov::")]


NAMES = ["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "all_gather_gemm",
         "gemm_reduce_scatter"]


def expected(group):
    """Each call's name and bytes."""
    n = 4 * group.size * 16
    return list(zip([f"ceov::{name}" for name in NAMES], [n * 4] * 4 + [n * 2] * 2))


def shows(way):
    group = Group.of()
    calls(group)                        # what is made at a first call is not of interest
    assert not _compat.is_profiling()
    events = events_of(group, record_shapes=True)
    found = [(event["name"], event["args"].get("bytes")) for event in events]
    assert found == expected(group), found
    ways = [event["args"].get("way") for event in events]
    if way == "channel":
        assert ways[:4] == ["channel"] * 4, ways
    if way == "operators":
        assert "channel" not in ways, ways
    assert all(one in ("overlap", "sequence", "direct", "two-shot") or one == "channel"
               for one in ways), ways
    assert "channel" not in ways[4:], ways
    assert {event["args"].get("group") for event in events} == {group.name}, events
    assert all(event["dur"] > 0 for event in events)
    names = [event["name"] for event in events_of(group)]       # without shapes
    assert names == [name for name, _ in expected(group)], names
    assert not _compat.is_profiling()
    calls(group)


def shows_the_public_way():
    group = Group.of()
    with mock.patch.object(_compat, "profiled", _compat._slow_profiled):
        names = [event["name"] for event in events_of(group, record_shapes=True)]
    assert names == [name for name, _ in expected(group)], names
    dist.barrier()


class Seen(unittest.TestCase):
    @rig.needs_one_node
    def test_by_channel(self):
        rig.run(shows, "channel" if not rig.HAS_GPUS else "any")

    def test_by_operators(self):
        rig.run(rig.by_operators, shows, "operators")

    def test_by_the_public_way(self):
        rig.run(shows_the_public_way)

    def test_names(self):
        for kind, name in ((ops.AllGather, "all_gather"), (ops.AllGatherGemm, "all_gather_gemm"),
                           (ops.AllToAll, "all_to_all")):
            self.assertEqual(_seen.name_of_kind(kind), name)

    def test_this_version_has_the_short_way(self):
        self.assertIs(_compat.profiled, _compat._find_profiled())
        self.assertIs(_compat.is_profiling, _compat._by_flag)
        self.assertIsNot(_compat.profiled, _compat._slow_profiled)

    def test_another_version_may_lack_it(self):
        def other(name):
            raise AssertionError(name)

        with mock.patch.object(torch._C._profiler, "_RecordFunctionFast", other):
            self.assertIs(_compat._find_profiled(), _compat._slow_profiled)
        with mock.patch.object(torch._C._profiler, "_RecordFunctionFast", None):
            self.assertIs(_compat._find_profiled(), _compat._slow_profiled)

    def test_the_price(self):
        """How much longer a call takes that would be shown: the least of many rounds, since others
        may use the processor, too."""
        def bare(group, x, target):
            return target

        wrapped = _seen.by_channel(bare)
        n, least = 20000, {bare: 1e9, wrapped: 1e9}
        for _ in range(40):
            for function in least:
                begun = time.thread_time()
                for _ in range(n):
                    function(None, None, None)
                least[function] = min(least[function], (time.thread_time() - begun) / n * 1e6)
        price = least[wrapped] - least[bare]
        print(f"a call that no profiler sees costs {price:.3f} us more")
        self.assertLess(price, PRICE_US)


if __name__ == "__main__":
    unittest.main()
