# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2 by its public hooks, also with a PyTorch whose inner parts are known."""

import functools
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from fsdp_models import (LEVEL, N_STEPS, WORDS, assert_on_engines, assert_same_training, model_of,
                         train_plainly)
from torch.distributed.fsdp import fully_shard

import ceoverlap
from ceoverlap.torch import Group, Operators, fsdp

public = functools.partial(fsdp.enable, level="public")


def trained(tolerance, **policy):
    handle, _ = assert_same_training(tolerance, policy=policy, level="public")
    size = dist.get_world_size()
    assert all(stats.n_ranks == size for stats in handle.stats), handle.stats
    assert_on_engines(handle, 2 * N_STEPS)


def others_stay():
    """Gradients in fp64 are not summed by us; the stats say why."""
    handle, _ = assert_same_training(
        1e-12, functools.partial(train_plainly, dtype=torch.float64), level="public",
        change=nn.Module.double)
    for stats in handle.stats:
        assert stats.all_gather == WORDS["public"] and stats.gathered_bytes, stats
        assert stats.reduce_scatter.startswith("PyTorch: gradients of torch.float64"), stats
        assert not stats.n_sums, stats
    handle.disable()


def disabled():
    """PyTorch's collectives are back, and what counted ours is not called any more."""
    model = model_of()
    handle = public(model)
    assert [stats.n_ranks for stats in handle.stats] == [0] * 4
    rig.raises(ceoverlap.StateError, "enabled already", public, model)
    train_plainly(model, 0)
    handle.check()
    gathers = [part.gather for part in handle._parts]
    n_runs = [gather.n_runs for gather in gathers]
    assert all(n_runs)
    handle.disable()
    handle.disable()
    assert not handle.stats
    train_plainly(model, 1)
    assert [gather.n_runs for gather in gathers] == n_runs
    assert all(gather.reasons["disabled"] for gather in gathers)
    again = public(model, scatter=False)
    train_plainly(model, 2)
    for stats in again.stats:
        assert stats.n_gathers and not stats.n_sums, stats
        assert stats.reduce_scatter == "PyTorch: not asked for", stats
    again.disable()


def has_one_level():
    """A model that is enabled at one level is refused at the other, before anything changes."""
    model = model_of()
    levels = ("public", "inner") if LEVEL == "inner" else ("public",)
    for level in levels:
        handle = fsdp.enable(model, level=level)
        for other in levels:
            rig.raises(ceoverlap.StateError, "enabled already", functools.partial(
                fsdp.enable, model, level=other))
            rig.raises(ceoverlap.StateError, "enabled already", functools.partial(
                fsdp.enable, model[0], level=other))
        train_plainly(model, 0)
        assert all(stats.n_gathers and stats.n_sums for stats in handle.stats), handle.stats
        handle.disable()


def tells_of_failed_gathers():
    handle = fsdp.enable(model_of(), level="public", scatter=False)
    train_plainly(handle._parts[0].module, 0)
    handle.check()
    with mock.patch.object(Operators, "check", side_effect=ceoverlap.DeadlineError("late")):
        rig.raises(ceoverlap.DeadlineError, "late", handle.check)
    handle.disable()


def outlives_its_group():
    """A step after Group.close() is refused, and the model trains on after enabling it again."""
    process_group = dist.new_group()
    mesh = torch.distributed.DeviceMesh.from_group(process_group, rig.device().type)
    layer = fully_shard(nn.Linear(8, 8, device=rig.device()), mesh=mesh)
    x = torch.ones(2, 8, device=rig.device())
    handle = public(layer)
    layer(x).sum().backward()
    Group.of(process_group).close()
    handle.check()
    with torch.no_grad():
        rig.raises(ceoverlap.StateError, "before Group.close()", layer, x)
    handle.disable()
    for parameter in layer.parameters():
        parameter.grad = None
    handle = public(layer)
    layer(x).sum().backward()
    assert handle.stats[0].n_gathers and handle.stats[0].n_sums, handle.stats
    handle.disable()


def one_rank():
    """Shares nothing: PyTorch does it, which moves nothing either."""
    group = [dist.new_group([rank]) for rank in range(dist.get_world_size())][dist.get_rank()]
    mesh = torch.distributed.DeviceMesh.from_group(group, rig.device().type)
    layer = fully_shard(nn.Linear(8, 8, device=rig.device()), mesh=mesh)
    handle = public(layer)
    layer(torch.ones(2, 8, device=rig.device())).sum().backward()
    assert not handle.stats[0].n_gathers and not handle.stats[0].n_sums, handle.stats
    handle.disable()


class Public(unittest.TestCase):
    def test_fp32(self):
        rig.run(trained, 1e-5)

    def test_bf16(self):
        rig.run(functools.partial(trained, 2e-2, param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.bfloat16))

    def test_others_stay(self):
        rig.run(others_stay)

    def test_disabled(self):
        rig.run(disabled)

    def test_one_level(self):
        rig.run(has_one_level)

    def test_failed_gathers(self):
        rig.run(tells_of_failed_gathers)

    def test_a_closed_group(self):
        rig.run(outlives_its_group)

    def test_one_rank(self):
        rig.run(one_rank)


if __name__ == "__main__":
    unittest.main()
