# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What PyTorch makes of a mixture of experts after parallelize(), beside the plain model that has
all experts at each rank: checkpoints, clipping, optimizers."""

import shutil
import unittest

import rig
import torch
import torch.distributed as dist
from rig import normal, raises
from test_shares import (N_STEPS, WHOLE, assert_close, folder, mesh_of, needs_own_gpus, pass_on,
                         same_bits, whole, whole_number)
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.tensor import Replicate, Shard

import ceoverlap.torch as ct
from ceoverlap import errors

HIDDEN, FFN, LOCAL, TOP_K = 16, 24, 2, 2
PLAN = {"norm": "summed", "mixture": "summed"}


class Plain(nn.Module):
    """All experts, without communication; of the same names as ct.MoeLayer."""

    def __init__(self, n_experts):
        super().__init__()
        self.router = nn.Linear(HIDDEN, n_experts, bias=False)
        self.experts = ct.SwiGLUExperts(n_experts, HIDDEN, FFN)

    def forward(self, x):
        weights, ids = self.router(x).softmax(-1).topk(TOP_K, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for expert, (gate_up, down) in enumerate(zip(self.experts.gate_up, self.experts.down)):
            gate, up = (x @ gate_up).chunk(2, -1)
            y = y + (nn.functional.silu(gate) * up @ down) * (
                weights * (ids == expert)).sum(-1, keepdim=True)
        return y


class Own(nn.Module):
    """A router of one's own before SwiGLUExperts."""

    def __init__(self, n_experts):
        super().__init__()
        self.router = nn.Linear(HIDDEN, n_experts, bias=False)
        self.experts = ct.SwiGLUExperts(n_experts // dist.get_world_size(), HIDDEN, FFN)

    def forward(self, x):
        weights, ids = self.router(x).softmax(-1).topk(TOP_K, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        return ct.moe(x, ids, weights, self.experts, self.router.out_features)


class Model(nn.Module):
    def __init__(self, mixture):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.mixture = mixture

    def forward(self, x):
        return x + self.mixture(self.norm(x))


def n_experts():
    return LOCAL * dist.get_world_size()


def plain(seed=0):
    torch.manual_seed(rig.SEED + seed)
    model = Model(Plain(n_experts()))
    nn.init.normal_(model.norm.weight)
    return model.to(rig.device())


def parallel(kind, of):
    """The parallelized model with the parameters of the plain one."""
    mixture = (Own(n_experts()) if kind == "own" else
               ct.MoeLayer(HIDDEN, FFN, n_experts(), TOP_K, n_groups=kind))
    model = Model(mixture).to(rig.device())
    with torch.no_grad():
        model.norm.weight.copy_(of.norm.weight)
        mixture.router.weight.copy_(of.mixture.router.weight)
        for ours, theirs in zip(mixture.experts.parameters(), of.mixture.experts.parameters()):
            own = theirs.chunk(dist.get_world_size())[dist.get_rank()]
            (ours if kind == "own" else ours.to_local()).copy_(own)
    return ct.parallelize(model, None, PLAN)


def is_saved_and_loaded(kind):
    """A checkpoint of the parallelized model is one of the plain model, and the reverse."""
    path, theirs, other = folder(), plain(), plain(1)
    ours, expected = parallel(kind, theirs), whole(theirs)
    pass_on(ours, other, f"{path}/ours")
    same_bits(whole(other), expected, "loaded by a plain model")
    again = parallel(kind, plain(2))
    pass_on(theirs, again, f"{path}/plain")
    same_bits(whole(again), expected, "loaded by a parallelized model")
    x = normal(0, dist.get_rank(), (6, HIDDEN))
    rig.equal(again(x), ours(x), "result")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)


def has_a_whole_state(kind):
    theirs = plain()
    ours, expected = parallel(kind, theirs), whole(theirs)
    same_bits(get_model_state_dict(ours, options=WHOLE), expected, "whole state")
    again = parallel(kind, plain(3))
    set_model_state_dict(again, dict(expected), options=WHOLE)  # which it changes
    same_bits(whole(again), expected, "loaded from a whole state")


def train(model, ranks):
    """Losses and norms of gradients, by AdamW with clipping, of these ranks' tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    results = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        loss = sum(model(normal(step, rank, (6, HIDDEN))).square().mean() for rank in ranks)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        results.append((loss.detach(), whole_number(norm)))
    return results


def trains_as_the_plain_model(kind):
    theirs = plain()
    ours = parallel(kind, theirs)
    expected = train(theirs, range(dist.get_world_size()))
    got = train(ours, [dist.get_rank()])
    for loss, _ in got:
        dist.all_reduce(loss)
    assert_close([(loss.item(), norm) for loss, norm in got],
                 [(loss.item(), norm) for loss, norm in expected])
    for (name, a), b in zip(whole(ours).items(), whole(theirs).values()):
        assert (a - b).norm() <= 1e-3 * b.norm(), name


def has_shares():
    """Placements; experts of a group that is named by a mesh; numbers of experts that differ."""
    for kind in ("own", 1):
        model = parallel(kind, plain())
        for name, one in model.named_parameters():
            kept = Shard(0) if "experts" in name else Replicate()
            assert one.placements == (kept,) and one.requires_grad, (kind, name)
        assert tuple(model.mixture.experts.down.shape) == (n_experts(), FFN, HIDDEN)
    mesh = mesh_of(dist.get_world_size())
    layer = ct.MoeLayer(HIDDEN, FFN, n_experts(), TOP_K, rig.device(), torch.bfloat16, group=mesh)
    assert layer.experts.down.device_mesh == mesh and layer.experts.down.dtype == torch.bfloat16
    assert 0 < layer.experts.down.to_local().abs().max() <= FFN ** -0.5
    frozen = ct.SwiGLUExperts(LOCAL, HIDDEN, FFN).requires_grad_(False)
    assert not ct.parallelize(nn.Sequential(frozen), None, {})[0].down.requires_grad
    uneven = nn.Sequential(ct.SwiGLUExperts(LOCAL + (dist.get_rank() == 1), HIDDEN, FFN))
    raises(errors.InvalidError, "rank 0 has 0.gate_up: torch.float32 (2, 16, 48), rank 1",
           ct.parallelize, uneven, None, {})
    assert type(uneven[0].down) is nn.Parameter


@needs_own_gpus
class Experts(unittest.TestCase):
    def each(self, function):
        for kind in ("own", 1, LOCAL):
            with self.subTest(kind=kind):
                rig.run(function, kind)

    def test_saved_and_loaded(self):
        self.each(is_saved_and_loaded)

    def test_whole_state(self):
        self.each(has_a_whole_state)

    def test_trains_as_the_plain_model(self):
        self.each(trains_as_the_plain_model)

    def test_shares(self):
        rig.run(has_shares)


if __name__ == "__main__":
    unittest.main()
