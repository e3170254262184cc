# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Models whose training on copy engines is compared with plain FSDP2, which several test
files share."""

import functools
import unittest

import rig
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import ceoverlap
from ceoverlap.torch import _compat, fsdp
from ceoverlap.torch.fsdp._staging import PLANS_MAX

N_STEPS = 4
N_LAYERS = 3
# Divisible by no number of ranks; where each has a GPU, copies take as long as kernels.
WIDTHS = (17, 33) if not rig.HAS_GPUS else (250, 1001) if rig.SHARES_GPUS else (1000, 4001)
STANDS_STILL_S = rig.patience(10)       # longer than anything takes that does not


def _has_inner_parts():
    try:
        _compat.look_at_fsdp2()
    except ceoverlap.VersionError:
        return False
    return True


LEVEL = "inner" if _has_inner_parts() else "public"
needs_inner = unittest.skipUnless(LEVEL == "inner", "is about inner parts of FSDP2, which this "
                                  "PyTorch does not have as they are known")
WORDS = {"inner": "copy engines", "public": "copy engines by FSDP2's public hooks"}


@functools.lru_cache(maxsize=None)
def mesh_of(*shape):
    """The last dimension shards; kept, as process groups are."""
    names = ("replicas", "shards")[-len(shape):]
    return init_device_mesh(rig.device().type, shape, mesh_dim_names=names)


def model_of(widths=None, change=None, mesh=None, policy=None, **options):
    """Layers with a sharded group each, the same at all ranks and in every call."""
    torch.manual_seed(rig.SEED)
    n, wide = widths or WIDTHS
    layers = [nn.Sequential(nn.Linear(n, wide), nn.Tanh(), nn.Linear(wide, n),
                            nn.LayerNorm(n)) for _ in range(N_LAYERS)]
    model = nn.Sequential(*layers, nn.Linear(n, 8)).to(rig.device())
    if change is not None:
        change(model)
    options = dict(options, mesh=mesh_of(*(mesh or (dist.get_world_size(),))),
                   mp_policy=MixedPrecisionPolicy(**(policy or {})))
    for layer in model[:N_LAYERS]:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def batch(step, n=WIDTHS[0]):
    """This rank's input of one step."""
    return rig.normal(step, dist.get_rank(), (6, n))


def assert_close(ours, theirs, tolerance, what):
    ours, theirs = ours.to_local().double(), theirs.to_local().double()
    if not theirs.numel():
        return
    bound = tolerance * max(theirs.abs().max().item(), 1e-6)
    distance = (ours - theirs).abs().max().item()
    assert distance <= bound, f"{what}: {distance} apart, bound {bound}"


def train_plainly(model, step, n=WIDTHS[0], dtype=torch.float32):
    loss = model(batch(step, n).to(dtype)).float().pow(2).mean()
    loss.backward()
    return loss.item()


def assert_same_training(tolerance, train=train_plainly, factor=1.0, prepare=None, level=None,
                         **options):
    """Trains both models; returns the handle, still enabled, and our model. factor: what
    our gradients are of theirs."""
    theirs, ours = model_of(**options), model_of(**options)
    handle = fsdp.enable(ours, level=level)
    assert handle.level == (level or LEVEL), handle.level
    if prepare is not None:
        prepare(theirs, False)
        prepare(ours, True)
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in (theirs, ours)]
    for step in range(N_STEPS):
        losses = [train(model, step) for model in (theirs, ours)]
        # The same parameters bit by bit, so the same loss.
        assert losses[0] == losses[1], f"{step}: loss {losses[1]}, not {losses[0]}"
        for (name, a), b in zip(theirs.named_parameters(), ours.parameters()):
            assert (a.grad is None) == (b.grad is None), f"{step}: gradient of {name}"
            if a.grad is not None:
                assert_close(b.grad, a.grad * factor, tolerance, f"{step}: {name}")
                b.grad = a.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    handle.check()
    return handle, ours


def assert_on_engines(handle, n_gathers=None):
    """All of it, and then disables."""
    for stats in handle.stats:
        assert stats.all_gather == stats.reduce_scatter == WORDS[handle.level], stats
        assert stats.n_gathers and stats.gathered_bytes and stats.summed_bytes, stats
        assert not stats.copied_bytes, stats
        assert n_gathers is None or stats.n_gathers <= n_gathers, stats
        if handle.level == "inner":
            assert 0 < stats.n_plans <= PLANS_MAX * len(handle.stats), stats
            assert 0 < stats.slot_bytes == handle.slot_bytes, stats
    handle.disable()
