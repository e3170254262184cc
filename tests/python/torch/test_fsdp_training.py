# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2 on copy engines against plain FSDP2: ways to train, and meshes of ranks."""

import functools
import random
import time
import unittest

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from fsdp_models import (N_LAYERS, N_STEPS, WORDS, assert_on_engines, assert_same_training,
                         batch, mesh_of, model_of, needs_inner, train_plainly)
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather
from torch.distributed.tensor import DTensor, Shard

from ceoverlap.torch import Group, fsdp


def kept_after_forward():
    handle, _ = assert_same_training(1e-5, reshard_after_forward=False)
    assert_on_engines(handle, N_STEPS)


def accumulated():
    """Two backward passes to a step; the parameters stay gathered between."""
    def train(model, step):
        total = 0.0
        for last in (False, True):
            model.set_requires_gradient_sync(last)
            model.set_reshard_after_backward(last)
            total += train_plainly(model, 2 * step + last)
        return total

    handle, _ = assert_same_training(1e-5, train)
    assert_on_engines(handle)


def summed():
    def prepare(model, _is_ours):
        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)

    handle, _ = assert_same_training(1e-5, prepare=prepare)
    assert_on_engines(handle)


def scaled():
    """gloo has no sum of scaled values: theirs are averages."""
    def prepare(model, is_ours):
        for module in model.modules():
            if is_ours and isinstance(module, FSDPModule):
                module.set_gradient_divide_factor(5.0)

    handle, _ = assert_same_training(1e-5, prepare=prepare,
                                     factor=dist.get_world_size() / 5.0)
    assert_on_engines(handle)


def shards_of_columns():
    """FSDP puts these together from temporaries: what was gathered is copied there."""
    size = dist.get_world_size()
    widths = (16 * size, 24 * size)
    handle, _ = assert_same_training(
        1e-5, functools.partial(train_plainly, n=widths[0]), widths=widths,
        shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1)
        if parameter.shape[-1] % size == 0 else None)
    for stats in handle.stats:
        assert stats.all_gather == stats.reduce_scatter == WORDS[handle.level], stats
        assert (stats.copied_bytes > 0) == (handle.level == "inner"), stats
    handle.disable()


def others_gather():
    """An all-gather that was set afterwards, or in front of ours, gets tensors."""
    class InFront(DefaultAllGather):
        def __init__(self, gather, has_memory):
            self.gather = gather
            self.has_memory = has_memory

        def allocate(self, size, *, dtype, device):
            if self.has_memory:
                return torch.empty(*size, dtype=dtype, device=device)
            return self.gather.allocate(size, dtype=dtype, device=device)

        def __call__(self, *args, **kwargs):
            return self.gather(*args, **kwargs)

    def prepare(model, is_ours):
        if is_ours:
            model[0].set_custom_all_gather(DefaultAllGather())
            for i in (1, 2):
                ours = model[i]._get_fsdp_state()._fsdp_param_group._all_gather_comm
                model[i].set_custom_all_gather(InFront(ours, i == 1))

    handle, ours = assert_same_training(2e-2, prepare=prepare,
                                        policy={"param_dtype": torch.bfloat16})
    groups = [module._get_fsdp_state()._fsdp_param_group for module in (*ours[:3], ours)]
    kept = [group._all_gather_comm for group in groups]
    assert [stats.n_gathers > 0 for stats in handle.stats] == [True, False, False, True]
    handle.disable()                    # only what is ours still goes
    assert [group._all_gather_comm is gather for group, gather in zip(groups, kept)] == \
        [True, True, True, False]
    train_plainly(ours, N_STEPS)
    assert kept[2].gather.reasons == {"disabled": 2}, kept[2].gather.reasons


def prefetched():
    def prepare(model, _is_ours):
        layers = list(model[:N_LAYERS])
        for i, layer in enumerate(layers):
            layer.set_modules_to_forward_prefetch(layers[i + 1:i + 3])
            layer.set_modules_to_backward_prefetch(layers[max(i - 2, 0):i][::-1])

    handle, _ = assert_same_training(1e-5, prepare=prepare)
    assert_on_engines(handle)


def asynchronous():
    """Gathered ahead by the caller, two layers beside each other."""
    def train(model, step):
        waits = [layer.unshard(async_op=True) for layer in model[:2]]
        if step % 2:
            waits[0].wait()
        return train_plainly(model, step)

    def prepare(model, _is_ours):
        with torch.no_grad():           # the first forward says who is the root
            model(batch(0))

    handle, _ = assert_same_training(1e-5, train, prepare=prepare)
    assert_on_engines(handle)


def without_gradients():
    theirs, ours = model_of(), model_of()
    handle = fsdp.enable(ours)
    for step in range(N_STEPS):
        x = batch(step)
        with torch.no_grad():
            assert torch.equal(theirs(x), ours(x))
    expected = theirs.state_dict()
    for name, value in ours.state_dict().items():
        assert isinstance(value, DTensor) and torch.equal(value.to_local(),
                                                          expected[name].to_local()), name
    assert all(stats.n_gathers for stats in handle.stats)
    handle.disable()


def ranks_out_of_step():
    """A slot is not filled again while a slow peer still reads it."""
    times = random.Random(rig.SEED + dist.get_rank())

    def train(model, step):
        hooks = [layer.register_forward_pre_hook(
            lambda *_: time.sleep(times.random() * 0.01)) for layer in model[:N_LAYERS]]
        losses = [train_plainly(model, 5 * step + i) for i in range(5)]
        for hook in hooks:
            hook.remove()
        return losses

    handle, _ = assert_same_training(1e-4, train)
    assert_on_engines(handle)


def new_parameters_between_gathers():
    """What a rank gathers is what peers have now: they fill the next slot while slow ranks
    still read the last one."""
    layer = fully_shard(nn.Linear(1000, 1500, device=rig.device()),
                        mesh=mesh_of(dist.get_world_size()))
    handle = fsdp.enable(layer)
    for step in range(40):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.to_local().fill_(step + 1)
        layer.unshard()
        for parameter in layer.parameters():
            assert (parameter == step + 1).all(), f"{step}: {parameter}"
        layer.reshard()
    handle.disable()


def replicas_of_shards():
    """HSDP: the all-reduce among replicas is PyTorch's."""
    handle, _ = assert_same_training(1e-5, mesh=(2, 2))
    assert all(stats.n_ranks == 2 for stats in handle.stats), handle.stats
    assert_on_engines(handle)
    Group.of(mesh_of(2, 2).get_group("shards")).close()


def resharded_to_some():
    """Gathers of a smaller group in backward stay with PyTorch, but by public hooks they need
    not."""
    handle, _ = assert_same_training(1e-5, reshard_after_forward=2)
    if handle.level == "inner":
        for stats in handle.stats[1:]:
            assert "resharded to a smaller group" in stats.all_gather, stats
            assert stats.n_gathers == N_STEPS, stats
        handle.disable()
    else:
        assert_on_engines(handle, 2 * N_STEPS)
    Group.of(mesh_of(4).get_group()).close()


class Training(unittest.TestCase):
    def test_kept_after_forward(self):
        rig.run(kept_after_forward)

    def test_accumulated(self):
        rig.run(accumulated)

    def test_summed(self):
        rig.run(summed)

    def test_scaled(self):
        rig.run(scaled)

    def test_shards_of_columns(self):
        rig.run(shards_of_columns)

    def test_prefetched(self):
        rig.run(prefetched)

    def test_asynchronous(self):
        rig.run(asynchronous)

    @needs_inner
    def test_others_gather(self):
        rig.run(others_gather)

    def test_without_gradients(self):
        rig.run(without_gradients)

    def test_ranks_out_of_step(self):
        rig.run(ranks_out_of_step)

    def test_new_parameters_between_gathers(self):
        rig.run(new_parameters_between_gathers)


class FourRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if 1 < rig.N_GPUS < 4:
            raise unittest.SkipTest("needs 4 GPUs, or one that all ranks share")
        cls.world = rig.World(4)
        cls.addClassCleanup(lambda: cls.world.is_open and cls.world.close())

    def test_replicas_of_shards(self):
        self.world.run(replicas_of_shards)

    def test_resharded_to_some(self):
        self.world.run(resharded_to_some)


if __name__ == "__main__":
    unittest.main()
