# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The slots that peers pull shards from, and the plans and streams of pulls."""

import collections
import contextlib
import functools
import random
import time
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from fsdp_models import (N_LAYERS, STANDS_STILL_S, WIDTHS, assert_on_engines,
                         assert_same_training, mesh_of, model_of, needs_inner)
from torch.distributed.fsdp import FSDPModule, fully_shard

import ceoverlap
from ceoverlap import errors
from ceoverlap.torch import Group, fsdp
from ceoverlap.torch.fsdp._pull import (N_SLOTS, RUNS_IN_FLIGHT, RUNS_TO_AWAIT, Layout, Pull)
from ceoverlap.torch.fsdp._staging import Staging


def shard_bytes(module, dtype):
    """Of the parameters that FSDP gathers with this module."""
    params = module._get_fsdp_state()._fsdp_param_group.fsdp_params
    return sum(param.padded_sharded_param_size.numel() for param in params) * dtype.itemsize


def shared_slots():
    """Layers of different sizes take turns in slots as large as the largest one's shard,
    however many layers there are."""
    def change(n_more, model):
        n = WIDTHS[0]
        model[1] = nn.Sequential(nn.Linear(n, 2 * n), nn.Linear(2 * n, 3 * n),
                                 nn.Linear(3 * n, n, bias=False)).to(rig.device())
        for _ in range(n_more):
            model[0].append(fully_shard(nn.Linear(n, n, device=rig.device()),
                                        mesh=mesh_of(dist.get_world_size())))

    model = model_of(change=functools.partial(change, 0))
    handle = fsdp.enable(model)
    model[0].unshard()                  # all layers are known, so also the largest one
    model[0].reshard()
    assert handle.slot_bytes == N_SLOTS * shard_bytes(model[1], torch.float32)
    handle.disable()
    for n_more, dtype, tolerance in ((0, torch.float32, 1e-5), (5, torch.float32, 1e-5),
                                     (0, torch.bfloat16, 2e-2)):
        handle, ours = assert_same_training(tolerance, policy={"param_dtype": dtype},
                                            change=functools.partial(change, n_more))
        largest = max(shard_bytes(module, dtype) for module in ours.modules()
                      if isinstance(module, FSDPModule))
        assert handle.slot_bytes == N_SLOTS * largest, (handle.slot_bytes, largest)
        assert len(handle.stats) == N_LAYERS + 1 + n_more
        assert_on_engines(handle)


class Streams:
    """Some streams; nothing on the host."""

    def __init__(self, n):
        self._all = [torch.cuda.Stream() for _ in range(n)] if rig.HAS_GPUS else []

    def take(self, i):
        """``with streams.take(i)``: the block's work goes to that one."""
        return torch.cuda.stream(self._all[i]) if self._all else contextlib.nullcontext()

    def order(self, first, second):
        """What comes on the second one comes after what is on the first."""
        if self._all:
            self._all[second].wait_stream(self._all[first])


def runs_of_many_layouts():
    """Every rank's shard arrives where it belongs, run after run, while layouts, dtypes and
    streams change, shards outgrow the slots, and ranks are out of step."""
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    same, own = random.Random(rig.SEED), random.Random(rig.SEED + rank)
    streams, results, largest = Streams(3), [], 0
    limit = 30000 if rig.HAS_GPUS else 300
    layouts = [[same.randrange(1, limit << 5 * (k == 3)) for _ in range(k + 1)]
               for k in range(5)]
    for k in range(90):
        sizes = layouts[same.randrange(3 + k // 30)]
        dtype = same.choice((torch.bfloat16, torch.float32))
        layout = staging.layout(tuple(size * dtype.itemsize for size in sizes))
        fills, runs = same.randrange(3), same.randrange(3)
        with streams.take(fills), torch.inference_mode(k < 30):
            shard = staging.begin(layout, dtype)
            for i, part in enumerate(shard.parts):
                part.copy_(rig.integers(k * 8 + i, rank, (sizes[i],), dtype))
        streams.order(fills, runs)
        with streams.take(runs):
            targets = [torch.empty(n, size, dtype=dtype, device=rig.device())
                       for size in sizes]
            if rig.HAS_GPUS:
                torch.cuda._sleep(own.randrange(1000000))
            staging.run(layout, [target.data_ptr() for target in targets])
        results.append((k, sizes, dtype, targets))
        largest = max(largest, layout.n_bytes)
        assert staging.n_bytes == N_SLOTS * largest, f"{k}: {staging.n_bytes}, {largest}"
        time.sleep(own.random() * 0.004)
    if rig.HAS_GPUS:
        torch.cuda.synchronize()
    for k, sizes, dtype, targets in results:
        for i, target in enumerate(targets):
            expected = [rig.integers(k * 8 + i, peer, (sizes[i],), dtype) for peer in range(n)]
            rig.equal(target, torch.stack(expected), f"run {k}, part {i}")
    staging.group.exchange("read")
    staging.close()
    assert not staging.n_bytes


def kernels_are_loaded_while_a_pull_waits():
    """While a stream waits, a kernel's first launch holds back what the process submits later:
    nothing that the wait needs is left for later. Operators and a dtype that nothing else
    uses, so that their kernels are not loaded yet; every rank is late in its turn."""
    fresh = (torch.hypot, torch.copysign, torch.nextafter, torch.heaviside, torch.atan2,
             torch.logaddexp, torch.fmod, torch.fmax, torch.ldexp, torch.xlogy)
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    layout, streams = staging.layout((30000,)), Streams(2)
    targets = torch.zeros(len(fresh), n, 30000, dtype=torch.uint8, device=rig.device())
    x = torch.ones(64, dtype=torch.float64, device=rig.device())
    torch.cuda.synchronize()
    begin = time.monotonic()
    for run, operator in enumerate(fresh):
        with streams.take(0):
            shard = staging.begin(layout, torch.uint8)
            shard.whole.fill_(run * n + rank)
            if run % n == rank:
                time.sleep(0.1)
            staging.run(layout, [targets[run].data_ptr()])
        with streams.take(1):
            operator(x, x)
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: stood still"
    for run, target in enumerate(targets):
        for peer in range(n):
            assert (target[peer] == run * n + peer).all(), f"run {run}, rank {peer}"
    staging.check()
    staging.group.exchange("read")
    staging.close()


def memory_is_freed_while_a_pull_waits():
    """cudaFree() waits for the GPU and keeps others out of the driver."""
    staging, rank = Staging(Group.of()), dist.get_rank()
    layout = staging.layout((30000,))
    target = torch.zeros(dist.get_world_size(), 30000, dtype=torch.uint8,
                         device=rig.device())
    torch.cuda.synchronize()
    begin = time.monotonic()
    for run in range(5):
        shard = staging.begin(layout, torch.uint8)
        shard.whole.fill_(run)
        if run % dist.get_world_size() == rank:
            time.sleep(0.1)
        staging.run(layout, [target.data_ptr()])
        del shard
        torch.empty(64 << 20, dtype=torch.uint8, device=rig.device())
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: stood still"
    assert (target == 4).all()
    staging.check()
    staging.group.exchange("read")
    staging.close()


def runs_far_ahead():
    """The host queues more runs than may be in flight, and waits for room."""
    staging, n, rank = Staging(Group.of()), dist.get_world_size(), dist.get_rank()
    layout, runs = staging.layout((3000,)), 3 * RUNS_IN_FLIGHT
    targets = torch.zeros(runs, n, 3000, dtype=torch.uint8, device=rig.device())
    shard = staging.begin(layout, torch.uint8)      # allocates
    torch.cuda._sleep(1)
    torch.cuda.synchronize()
    staging.group.exchange("ready")
    torch.cuda._sleep(5 * 10 ** 8 * (1 + rank))     # ranks begin some 0.3 s apart
    for run in range(runs):
        if run:
            shard = staging.begin(layout, torch.uint8)
        shard.whole.fill_((run * n + rank) % 251)
        staging.run(layout, [targets[run].data_ptr()])
    torch.cuda.synchronize()
    for run, target in enumerate(targets):
        for peer in range(n):
            assert (target[peer] == (run * n + peer) % 251).all(), f"run {run}, rank {peer}"
    staging.check()
    staging.group.exchange("read")
    staging.close()


def late_raises_close_nothing_again():
    """Deadlines pass and open what waits; then the last rank raises its mark after all, below
    what the others wait for by then. All streams go on, and all ranks are told."""
    group = Group.of()
    cycles = int(rig.patience(10 ** 9))     # of a clock: twice the deadline, or some more
    pull, layout = Pull(group, 64, 3, rig.patience(0.25)), Layout((64,))
    is_last = group.rank == group.size - 1
    target = torch.zeros(group.size * 64, dtype=torch.uint8, device=rig.device())
    torch.cuda._sleep(1)                # loaded before anything waits
    torch.cuda.synchronize()
    group.exchange("ready")
    begin = time.monotonic()
    with torch.cuda.stream(torch.cuda.Stream()), group.stream() as stream:
        for run in range(1 if is_last else 3):
            pull.begin(stream)
            if is_last or run:          # the others' second run comes behind the late raise
                torch.cuda._sleep(cycles if is_last else 2 * cycles)
            pull.run(layout, [target.data_ptr()], stream)
    torch.cuda.synchronize()
    elapsed = time.monotonic() - begin
    assert elapsed < STANDS_STILL_S, f"{elapsed} s: a stream stood still"
    rig.raises(ceoverlap.DeadlineError, "", wait_for_failure, pull)
    rig.raises(ceoverlap.DeadlineError, "", pull.begin, stream)
    group.exchange("seen")
    pull.close()


def wait_for_failure(pull):
    until = time.monotonic() + rig.patience(5)
    while time.monotonic() < until:
        pull.check()
        time.sleep(0.01)


def plans_are_bounded():
    """Targets that never come again leave neither plans nor registered memory."""
    group = Group.of()
    pull, layout = Pull(group, 64, 3, 10.0), Layout((48, 16))
    whole = torch.zeros(12, 2, group.size * 64, dtype=torch.uint8, device=rig.device())
    for row in whole:
        with group.stream() as stream:
            pull.begin(stream)
            pull.run(layout, [part.data_ptr() for part in row], stream)
    assert pull.n_plans == 3 and len(pull._targets) == 6, (pull.n_plans, pull._targets)
    pull.check()
    group.exchange("read")
    if rig.HAS_GPUS:
        torch.cuda.synchronize()
    pull.close()
    assert not pull._targets


def pull_of_plays():
    """A Pull for a GPU whose plans and signals are played."""
    pull = Pull.__new__(Pull)
    pull._context, pull._deadline_s = mock.Mock(), 1.0
    pull._ready, pull._guard = mock.Mock(), mock.Mock()
    pull._peer_ready, pull._launched = [], collections.deque()
    pull._keepers = {1: mock.Mock()}
    pull._guard.launch.side_effect = pull._keepers[1].launch.side_effect = (
        lambda *_base, **_how: mock.Mock())
    return pull


class Launches(unittest.TestCase):
    """Which launches of the engine a pull asks for, and when."""

    def test_runs_are_awaited_several_at_once(self):
        pull = pull_of_plays()
        for run in range(RUNS_IN_FLIGHT):
            pull._make_room()
            pull._queue(mock.Mock(), run, 1)
        self.assertEqual(len(pull._launched), RUNS_IN_FLIGHT)
        runs = list(pull._launched)
        pull._make_room()
        self.assertEqual(list(pull._launched), runs[RUNS_TO_AWAIT:])
        for i, (guard, keeper) in enumerate(runs):
            guard.wait.assert_not_called()
            self.assertEqual(keeper.wait.call_count, i == RUNS_TO_AWAIT - 1)

    def test_runs_are_kept_where_waiting_for_them_fails(self):
        pull = pull_of_plays()
        for run in range(RUNS_IN_FLIGHT):
            pull._queue(mock.Mock(), run, 1)
        pull._launched[RUNS_TO_AWAIT - 1][-1].wait.side_effect = errors.AbortedError("x")
        with self.assertRaises(errors.AbortedError):
            pull._make_room()
        self.assertEqual(len(pull._launched), RUNS_IN_FLIGHT)

    def test_a_full_context_is_waited_for(self):
        """By the oldest run's keeper, before the launch is tried again."""
        pull = pull_of_plays()
        pull._queue(mock.Mock(), 0, 1)
        (_, keeper), = pull._launched
        ticket = mock.Mock()
        pull._guard.launch.side_effect = [errors.FullError("full"), ticket]
        self.assertIs(pull._launch(pull._guard, 1), ticket)
        keeper.wait.assert_called_once_with(1.0)
        pull._guard.launch.side_effect = errors.FullError("full")
        with self.assertRaises(errors.FullError):
            pull._launch(pull._guard, 2)

    def test_a_context_that_is_full_for_the_first_keeper_is_waited_for(self):
        """By the run's own guard; and the run is kept."""
        pull = pull_of_plays()
        guard, keeper = mock.Mock(), mock.Mock()
        pull._guard.launch.side_effect = [guard]
        pull._keepers[1].launch.side_effect = [errors.FullError("full"), keeper]
        pull._queue(mock.Mock(), 0, 1)
        guard.wait.assert_called_once_with(1.0)
        self.assertEqual(list(pull._launched), [[guard, keeper]])

    def test_the_guard_is_known_when_the_plan_cannot_be_queued(self):
        pull = pull_of_plays()
        plan = mock.Mock()
        plan.queue.side_effect = errors.AbortedError("x")
        with self.assertRaises(errors.AbortedError):
            pull._queue(plan, 0, 1)
        self.assertEqual([len(run) for run in pull._launched], [1])

    def test_the_launchs_own_error_is_raised(self):
        """Not that of the abort that it brings."""
        pull = pull_of_plays()
        pull.check()
        for run in range(2):
            pull._queue(mock.Mock(), run, 1)
        pull._ready.has_reached.side_effect = errors.AbortedError("aborted")
        pull._launched[0][0].is_done.return_value = False
        with self.assertRaises(errors.AbortedError):
            pull.check()
        pull._launched[0][0].is_done.side_effect = errors.DeadlineError("late")
        with self.assertRaises(errors.DeadlineError):
            pull.check()


class Slots(unittest.TestCase):
    @needs_inner
    def test_shared(self):
        rig.run(shared_slots)

    def test_runs_of_many_layouts(self):
        rig.run(runs_of_many_layouts)

    def test_plans_are_bounded(self):
        rig.run(plans_are_bounded)

    @rig.needs_gpus
    def test_kernels_are_loaded_while_a_pull_waits(self):
        rig.run(kernels_are_loaded_while_a_pull_waits)

    @rig.needs_gpus
    def test_memory_is_freed_while_a_pull_waits(self):
        rig.run(memory_is_freed_while_a_pull_waits)

    @rig.needs_gpus
    def test_runs_far_ahead(self):
        rig.run(runs_far_ahead)

    @rig.needs_gpus
    def test_late_raises_close_nothing_again(self):
        self.addCleanup(rig.renew)      # a lane that came back too late takes no more
        rig.run(late_raises_close_nothing_again)


if __name__ == "__main__":
    unittest.main()
