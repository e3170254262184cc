# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What enable() refuses, what Handle.disable() leaves, and ranks that fail."""

import functools
import gc
import os
import time
import types
import unittest
import weakref
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from fsdp_models import (STANDS_STILL_S, WORDS, assert_same_training, batch, mesh_of, model_of,
                         needs_inner, train_plainly)
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

import ceoverlap
from ceoverlap.torch import Group, fsdp
from ceoverlap.torch.fsdp._pull import Pull
from ceoverlap.torch.fsdp._staging import Staging


def layouts_differ():
    """Nothing is left of what the ranks do not agree on."""
    staging = Staging(Group.of())
    rig.raises(ceoverlap.InvalidError, "bytes of the parts of a shard", staging.layout,
               (64, 32 * (1 + dist.get_rank())))
    assert staging.layout((64, 32)) is staging.layout((64, 32))


def nothing_is_left():
    """Of a handle that was disabled, without the help of the garbage collector: its pools of
    memory must not go at any later time."""
    model = model_of()
    handle = fsdp.enable(model)
    train_plainly(model, 0)
    gather = model._get_fsdp_state()._fsdp_param_group._all_gather_comm
    pools, staging = weakref.ref(gather._pools), weakref.ref(gather.staging)
    own = gather._pools._pools
    assert len(own) == (2 if rig.HAS_GPUS else 0)
    del gather
    gc.disable()
    try:
        handle.disable()
        assert not own, "pools are kept"
        train_plainly(model, 1)         # the last gather's result goes
        assert pools() is None and staging() is None
    finally:
        gc.enable()


def disabled():
    handle, ours = assert_same_training(1e-5)
    words = WORDS[handle.level]
    if handle.level == "inner":
        assert handle.slot_bytes
    handle.disable()
    handle.disable()
    assert not handle.stats and not handle.slot_bytes
    if handle.level == "inner":
        for name in ("_to_sharded", "_to_sharded_post_forward"):
            assert name not in ours[0]._get_fsdp_state()._fsdp_param_group.__dict__
    expected = train_plainly(ours, 0)
    for options, ways in (({"gather": False}, ("PyTorch: not asked for", words)),
                          ({"scatter": False}, (words, "PyTorch: not asked for"))):
        handle = fsdp.enable(ours, **options)
        assert train_plainly(ours, 0) == expected
        stats = handle.stats[0]
        assert (stats.all_gather, stats.reduce_scatter) == ways, stats
        handle.disable()


def refused():
    rig.raises(ceoverlap.InvalidError, "fully_shard", fsdp.enable, nn.Linear(4, 4))
    ours = model_of()
    rig.raises(ceoverlap.InvalidError, "must be 'inner'", functools.partial(
        fsdp.enable, ours, level="deep"))
    handle = fsdp.enable(ours)          # none of it is left
    rig.raises(ceoverlap.StateError, "enabled already", fsdp.enable, ours)
    handle.disable()
    fsdp.enable(ours).disable()


def inner_parts_are_refused():
    ours = model_of()
    with mock.patch.object(FSDPParamGroup, "_to_sharded", None):
        rig.raises(ceoverlap.VersionError, "no FSDPParamGroup._to_sharded", functools.partial(
            fsdp.enable, ours, level="inner"))
    answers = [Group.of(mesh_of(dist.get_world_size()).get_group()),
               ceoverlap.InvalidError("on 2 hosts")]
    with mock.patch.object(Group, "of", side_effect=answers):
        rig.raises(ceoverlap.InvalidError, "on 2 hosts", fsdp.enable, ours)
    fsdp.enable(ours).disable()         # none of it is left


def slots_fail_at_one_rank():
    """All ranks are told at once, and may try again."""
    group = Group.of()
    staging, (create, last) = Staging(group), (Pull._create, group.size - 1)
    layout = staging.layout((64, 32))

    def fails(self, name):
        create(self, name)
        raise MemoryError("none left")

    begin = time.monotonic()
    if group.rank == last:
        with mock.patch.object(Pull, "_create", fails):
            rig.raises(MemoryError, "none left", staging.begin, layout, torch.float32)
    else:
        rig.raises(ceoverlap.StateError, f"rank {last} has failed: MemoryError: none left",
                   staging.begin, layout, torch.float32)
    assert time.monotonic() - begin < group.deadline_s / 2
    assert not staging.n_bytes
    assert staging.begin(layout, torch.float32).whole.numel() == 24
    group.exchange("made")
    staging.close()


def survive_a_death():
    """Of rank 1, which exits between steps while others may still read its slot."""
    ours = model_of()
    fsdp.enable(ours)
    dist.barrier()
    begin = time.monotonic()
    try:
        for step in range(10000):
            begin = time.monotonic()
            with torch.no_grad():
                ours(batch(step))
            if rig.HAS_GPUS:
                torch.cuda.synchronize()
            if step == 3 and dist.get_rank() == 1:
                os._exit(7)
    except (ceoverlap.PeerLostError, ceoverlap.AbortedError):
        assert time.monotonic() - begin < STANDS_STILL_S
        return
    raise AssertionError("rank 1 was not missed")


class Handles(unittest.TestCase):
    @needs_inner
    def test_nothing_is_left(self):
        rig.run(nothing_is_left)

    def test_disabled(self):
        rig.run(disabled)

    def test_refused(self):
        rig.run(refused)

    @needs_inner
    def test_inner_parts_are_refused(self):
        rig.run(inner_parts_are_refused)

    def test_layouts_differ(self):
        rig.run(layouts_differ)

    def test_slots_fail_at_one_rank(self):
        rig.run(slots_fail_at_one_rank)

    def test_a_rank_that_dies(self):
        world = rig.World(min(rig.SIZE, 3))
        self.addCleanup(world.kill)
        world.run(survive_a_death, dying=(1,))


class Environment(unittest.TestCase):
    def check(self, settings, is_cuda=True):
        parameters = [types.SimpleNamespace(is_cuda=is_cuda)]
        with mock.patch.dict(os.environ, settings, clear=True):
            fsdp._check_environment(types.SimpleNamespace(parameters=lambda: parameters))

    def test_one_queue_is_refused(self):
        with self.assertRaisesRegex(ceoverlap.errors.StateError, "MAX_CONNECTIONS=1"):
            self.check({"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
        self.check({"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, is_cuda=False)


if __name__ == "__main__":
    unittest.main()
