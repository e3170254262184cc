# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What PyTorch makes of a model after parallelize(): checkpoints, clipping, optimizers, copies,
FSDP2 over another dimension of the mesh."""

import copy
import functools
import shutil
import tempfile
import unittest

import rig
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from rig import normal, raises
from torch import nn
from torch.distributed.checkpoint.state_dict import (StateDictOptions, get_model_state_dict,
                                                     set_model_state_dict)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               SequenceParallel, parallelize_module)

from ceoverlap import errors
from ceoverlap.torch import Column, ColumnParallelLinear, Group, Row, fsdp, parallelize
from ceoverlap.torch._shares import local

HIDDEN = 16
N_STEPS = 4
PLAN = {"up": "column", "down": "row", "norm": "summed"}
WHOLE = StateDictOptions(full_state_dict=True)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)
        self.up = nn.Linear(HIDDEN, 8 * size)
        self.down = nn.Linear(8 * size, HIDDEN)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def block(seed=0, size=None):
    torch.manual_seed(rig.SEED + seed)
    one = Block(size or dist.get_world_size())
    nn.init.normal_(one.norm.weight)
    return one.to(rig.device())


@functools.lru_cache(maxsize=None)
def mesh_of(*shape):
    return init_device_mesh(rig.device().type, shape,
                            mesh_dim_names=("data", "tensor")[-len(shape):])


def batch(step, rank=None):
    """This rank's part of a sequence, sequence first."""
    return normal(step, dist.get_rank() if rank is None else rank, (4, 2, HIDDEN))


def folder():
    """One for all ranks, which rank 0 removes by shutil.rmtree()."""
    made = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(made, 0, device=rig.device())
    return made[0]


def whole(model):
    """All parameters as plain tensors, at all ranks."""
    return {name: one.detach().full_tensor() if isinstance(one, DTensor) else one.detach()
            for name, one in model.named_parameters()}


def same_bits(got, expected, what):
    assert got.keys() == expected.keys(), what
    for name, one in expected.items():
        assert type(one) is type(got[name]) is torch.Tensor, (what, name)
        rig.equal(got[name], one, f"{what}: {name}")


def pass_on(source, target, path):
    """Saves a checkpoint of one model in a folder and loads it into another one."""
    dcp.save(source.state_dict(), checkpoint_id=path)
    state = target.state_dict()
    dcp.load(state, checkpoint_id=path)
    target.load_state_dict(state)


def is_saved_and_loaded():
    """A checkpoint of the parallelized model is one of the plain model, and the reverse."""
    path = folder()
    plain, ours, expected = block(1), parallelize(block(), None, PLAN), whole(block())
    pass_on(ours, plain, f"{path}/ours")
    same_bits(whole(plain), expected, "loaded by a plain model")
    again = parallelize(block(2), None, PLAN)
    pass_on(plain, again, f"{path}/plain")
    same_bits(whole(again), expected, "loaded by a parallelized model")
    rig.equal(again(batch(0)), ours(batch(0)), "result")
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(path)


def has_a_whole_state():
    ours, expected = parallelize(block(), None, PLAN), whole(block())
    same_bits(get_model_state_dict(ours, options=WHOLE), expected, "whole state")
    again = parallelize(block(3), None, PLAN)
    set_model_state_dict(again, dict(expected), options=WHOLE)   # which it changes
    same_bits(whole(again), expected, "loaded from a whole state")


def train(model):
    """Losses and norms of gradients, by AdamW with clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    results = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        y = model(batch(step))
        loss = local(y).square().mean()
        loss.backward()
        add_gradients(model)
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss)
        results.append((loss.item(), whole_number(norm)))
    return results


def add_gradients(model):
    """Adds up what ranks have of a gradient by PyTorch's styles, whose norm PyTorch 2.9 takes of each
    rank's part."""
    for one in model.parameters():
        if any(placement.is_partial() for placement in one.grad.placements):
            one.grad = one.grad.redistribute(placements=one.placements)


def whole_number(norm):
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()


def assert_close(ours, theirs):
    """On GPUs cuBLAS adds products in another order for other shapes, and AdamW divides gradients by
    their own size, so that their rounding shows in later steps."""
    most = 1e-3 if rig.HAS_GPUS else 1e-4
    for step, (a, b) in enumerate(zip(ours, theirs)):
        for x, y in zip(a, b):
            assert abs(x - y) <= most * abs(y), f"step {step}: {a}, expected {b}"


def alike_at_all_ranks(model):
    """Replicas have the same bits, whatever each rank saw."""
    for name, one in model.named_parameters():
        if Replicate() in one.placements:
            told = [torch.empty_like(one.to_local()) for _ in range(dist.get_world_size())]
            dist.all_gather(told, one.detach().to_local().contiguous())
            for other in told:
                rig.equal(other, told[0], name)


STYLES = {"up": ColwiseParallel(input_layouts=Shard(0)),
          "down": RowwiseParallel(output_layouts=Shard(0)),
          "norm": SequenceParallel(sequence_dim=0, use_local_output=True)}


def trains_as_pytorch():
    """Losses, norms and placements are those of parallelize_module()."""
    mesh = mesh_of(dist.get_world_size())
    theirs = parallelize_module(block(), mesh, dict(STYLES))
    ours = parallelize(block(), mesh, dict(STYLES))
    for (name, a), b in zip(theirs.named_parameters(), ours.parameters()):
        assert a.placements == b.placements and a.device_mesh == b.device_mesh, name
        assert a.shape == b.shape and a.stride() == b.stride(), name
    assert_close(train(ours), train(theirs))
    alike_at_all_ranks(ours)


def clips_as_the_whole_model():
    """With replicated activations, where nothing of the plan is said about the norm."""
    plain = block()
    ours = parallelize(copy.deepcopy(plain), None, {
        "up": Column(sequence_parallel=False), "down": Row(sequence_parallel=False)})
    for foreach in (None, False):
        for step in range(3):
            norms = []
            for model in (plain, ours):
                model.zero_grad()
                model(batch(step, 0)).square().sum().backward()
                norms.append(whole_number(nn.utils.clip_grad_norm_(
                    model.parameters(), 0.5, foreach=foreach)))
            assert abs(norms[1] - norms[0]) <= 1e-4 * norms[0], norms
            with torch.no_grad():
                for a, b in zip(plain.parameters(), ours.parameters()):
                    grad = b.grad.full_tensor()
                    assert (grad - a.grad).norm() <= 1e-4, (foreach, step)
                    a.sub_(a.grad)
                    b.sub_(b.grad)
    alike_at_all_ranks(ours)


def is_copied():
    """A copy has parameters of its own, with the same bits and hooks that use them."""
    ours = parallelize(block(), None, PLAN)
    other = copy.deepcopy(ours)
    same_bits(whole(other), whole(ours), "copied")
    x, before = batch(0), whole(ours)
    rig.equal(other(x), ours(x), "result of the copy")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    same_bits(whole(ours), before, "the original")
    rig.equal(other(x), x, "result of a copy without weights")
    other(x).sum().backward()
    assert all(parameter.grad is None for parameter in ours.parameters())
    assert all(isinstance(one.grad, DTensor) for one in other.parameters())


class Tied(nn.Module):
    """Uses a submodule's parameter outside of that one's forward(), and fails on demand."""

    def __init__(self, size):
        super().__init__()
        self.embedding = nn.Embedding(8, HIDDEN)
        self.block = Block(size)
        self.head = nn.Linear(HIDDEN, 8, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, ids, failure=None):
        x = self.block(self.embedding(ids))
        if failure is not None:
            raise failure
        return nn.functional.linear(x * self.scale, self.embedding.weight)


def modules_use_replicas():
    """Those of other modules, tied ones, after a failure, and one module by itself."""
    torch.manual_seed(rig.SEED)
    plain = Tied(dist.get_world_size()).to(rig.device())
    plan = {"block.up": Column(False), "block.down": Row(False)}
    ours = parallelize(copy.deepcopy(plain), None, plan)
    assert ours.head.weight is ours.embedding.weight
    ids = torch.arange(8, device=rig.device())
    for kind in (ValueError, KeyboardInterrupt):
        raises(kind, "on demand", ours, ids, kind("on demand"))
        raises(kind, "on demand", ours.forward, ids, kind("on demand"))
        assert all(isinstance(one, DTensor) for one in ours.parameters()), kind
        for model in (plain, ours):
            model.zero_grad()
            model(ids).square().sum().backward()
        for (name, a), b in zip(plain.named_parameters(), ours.parameters()):
            difference = (b.grad.full_tensor() - a.grad).norm() / a.grad.norm()
            assert difference <= 1e-4, (name, difference)
    with torch.no_grad():
        rig.equal(ours.head(torch.eye(HIDDEN, device=rig.device())),
                  plain.head(torch.eye(HIDDEN, device=rig.device())), "a module by itself")
    assert all(isinstance(one, DTensor) for one in ours.parameters())


class Tree(nn.Module):
    """Calls itself while it runs."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, x, depth=0):
        x = x + (self(x, depth - 1) if depth else 0)
        return nn.functional.layer_norm(x, (HIDDEN,), self.norm.weight, self.norm.bias)


def calls_itself():
    tree = parallelize(Tree().to(rig.device()), None, {"norm": "summed"})
    tree(batch(0), 2).square().sum().backward()
    assert all(isinstance(one, DTensor) for one in tree.parameters())
    alike_at_all_ranks(tree)


def hooks_are_interrupted():
    """One of the caller's hooks, between ours and forward(). The next call is right again."""
    ours = parallelize(block(), None, PLAN)
    for kind in (KeyboardInterrupt, ValueError):
        def fails(_module, _arguments):
            raise kind("in a hook")

        for module in (ours, ours.norm):
            expected = module(batch(0))
            hook = ours.norm.register_forward_pre_hook(fails)
            with torch.no_grad():
                raises(kind, "in a hook", module, batch(0))
            hook.remove()
            y = module(batch(0))
            rig.equal(y, expected, kind)
            module.zero_grad()
            y.sum().backward()
            assert ours.norm.bias.grad.full_tensor().all(), kind
            assert all(isinstance(one, DTensor) for one in ours.parameters()), kind


def is_compiled():
    ours = parallelize(block(), None, PLAN)
    compiled = torch.compile(ours, fullgraph=True,
                             backend="inductor" if rig.HAS_GPUS else "aot_eager")
    results = []
    for model in (ours, compiled):
        ours.zero_grad()
        y = model(batch(0))
        y.square().sum().backward()
        results.append([y.detach(), *(local(one.grad) for one in ours.parameters())])
    for i, (a, b) in enumerate(zip(*results)):
        assert (a - b).norm() <= 1e-4 * max(a.norm().item(), 1), i


def two_dimensions():
    """FSDP2 over the data dimension, with its communication by PyTorch and by us."""
    mesh = mesh_of(2, 2)
    results = []
    for make, enables in ((parallelize_module, False), (parallelize, False), (parallelize, True)):
        model = make(block(size=2), mesh["tensor"], dict(STYLES))
        for one in (model.up, model.down):
            fully_shard(one, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])
        handle = fsdp.enable(model) if enables else None
        results.append(train(model))
        if enables:
            assert all(stats.n_gathers and stats.n_sums for stats in handle.stats), handle.stats
            handle.disable()
    for one in results[1:]:
        assert_close(one, results[0])
    raises(errors.StateError, "sharded by FSDP2", ColumnParallelLinear.together, [model.up],
           batch(0))
    shards_again(mesh)
    model = parallelize(block(size=2), mesh["tensor"].get_group(), PLAN)
    raises(Exception, "mesh", functools.partial(fully_shard, model, mesh=mesh["data"]))


def shards_again(mesh):
    """A layer that FSDP2 gathered before the model's forward(), and shards again within it."""
    model = parallelize(nn.Sequential(block(size=2)), mesh["tensor"], {
        f"0.{name}": style for name, style in PLAN.items()})
    fully_shard(model[0], mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    own = dict(model.named_parameters())
    expected = model(batch(0))
    model[0].unshard()
    rig.equal(model(batch(0)), expected, "gathered before")
    for name, one in model.named_parameters():
        assert one is own[name], f"{name} is not the one that FSDP2 has sharded"


def wrong_arguments():
    mesh = mesh_of(dist.get_world_size())
    model = block()
    for arguments, text in (
            ((model, PLAN), "second argument is the mesh"),
            ((model, PLAN, mesh), "second argument is the mesh"),
            ((model, PLAN, dist.group.WORLD), "second argument is the mesh"),
            ((model, 3, PLAN), "second argument is a int"),
            ((mesh, model, PLAN), "first argument is a DeviceMesh"),
            ((PLAN,), "first argument is a dict"),
            ((model,), "the plan is a NoneType"),
            ((model, mesh, ColwiseParallel()), "the plan is a ColwiseParallel"),
            ((model, None, "column"), "the plan is a str")):
        raises(TypeError, text, parallelize, *arguments)
        raises(TypeError, "write parallelize(model, mesh, {", parallelize, *arguments)
    flat = torch.arange(dist.get_world_size()).view(1, -1)
    two = torch.distributed.DeviceMesh(rig.device().type, flat, mesh_dim_names=("data", "tensor"))
    raises(errors.InvalidError, "mesh['tensor']", parallelize, model, two, PLAN)
    for one in (dist.group.WORLD, mesh, Group.of(), Group.of().name):
        assert parallelize(block(), one, PLAN).up.weight.placements == (Shard(0),)


def is_called_twice():
    """What an earlier call, or another one, made DTensors, and nn.RNN's, cannot become summed any
    more: that is refused before anything changes."""
    twice = parallelize(nn.Sequential(block(), block()), None, {"0.up": "column", "0.down": "row"})
    twice[1] = block()
    for name in ("*.norm", "0"):
        raises(errors.InvalidError, "0.norm.weight is a DTensor", parallelize, twice, None,
               {name: "summed", "1.up": "column"})
    assert all(type(one) is nn.Parameter for one in twice[1].parameters())
    parallelize(twice, None, {"1.norm": "summed", "1.up": "column", "1.down": "row"})
    once = parallelize(nn.Sequential(block(), block()), None, {
        "*.up": "column", "*.down": "row", "1.norm": "summed"})
    for model in (once, twice):
        model(batch(0)).square().sum().backward()
    for (name, a), b in zip(once.named_parameters(), twice.parameters()):
        rig.equal(b.grad.to_local(), a.grad.to_local(), name)
    recurrent = nn.Sequential(nn.Linear(4, 4), nn.GRU(4, 4))
    raises(errors.InvalidError, "1.weight_ih_l0 of a GRU", parallelize, recurrent, None,
           {"1": "summed"})
    lazy = nn.Sequential(nn.LazyBatchNorm1d())
    raises(errors.InvalidError, "0.weight is a UninitializedParameter", parallelize, lazy, None,
           {"0": "summed"})


def other_weights():
    """Ranks that were seeded differently are told, before anything changes."""
    model = block()
    if dist.get_rank() == 1:
        with torch.no_grad():
            model.up.bias[0] += 1
    raises(errors.InvalidError, "rank 0 has up.bias", parallelize, model, None, PLAN)
    assert all(type(one) is nn.Parameter for one in model.parameters())
    for dtype, first, other in ((torch.float32, (1, 2), (2, 1)), (torch.bfloat16, (1, 2), (2, 1)),
                                (torch.uint8, (2, 0), (0, 1)), (torch.complex128, (1, 2), (2, 1))):
        turned = nn.Sequential(nn.Linear(2, dist.get_world_size()))
        values = torch.zeros(1 << 20, device=rig.device(), dtype=dtype)
        values[-2:] = torch.tensor(other if dist.get_rank() == 1 else first)
        turned.values = nn.Parameter(values, requires_grad=False)
        raises(errors.InvalidError, "rank 0 has values", parallelize, turned, None,
               {"0": "column"})
    empty = nn.Sequential(nn.Linear(2, 2) if dist.get_rank() == 1 else nn.ReLU())
    raises(errors.InvalidError, "rank 0 has 0 parameters, rank 1 2", parallelize, empty, None,
           {})
    deeper = nn.Sequential(*(block() for _ in range(1 + (dist.get_rank() == 1))))
    raises(errors.InvalidError, "rank 1 12", parallelize, deeper, None, {"0.up": "column"})


# gloo's collectives of DTensors on GPUs end the process.
needs_own_gpus = unittest.skipIf(rig.SHARES_GPUS, "needs a process group by NCCL on GPUs")


@needs_own_gpus
class Shares(unittest.TestCase):
    def test_saved_and_loaded(self):
        rig.run(is_saved_and_loaded)

    def test_whole_state(self):
        rig.run(has_a_whole_state)

    def test_trains_as_pytorch(self):
        rig.run(trains_as_pytorch)

    def test_clips_as_the_whole_model(self):
        rig.run(clips_as_the_whole_model)

    def test_copied(self):
        rig.run(is_copied)

    def test_modules_use_replicas(self):
        rig.run(modules_use_replicas)

    def test_calls_itself(self):
        rig.run(calls_itself)

    def test_interrupted_hooks(self):
        rig.run(hooks_are_interrupted)

    def test_compiled(self):
        rig.run(is_compiled)

    def test_wrong_arguments(self):
        rig.run(wrong_arguments)

    def test_called_twice(self):
        rig.run(is_called_twice)

    def test_other_weights(self):
        rig.run(other_weights)


@needs_own_gpus
class TwoDimensions(unittest.TestCase):
    def test_fsdp2_over_layers(self):
        if 1 < rig.N_GPUS < 4:
            raise unittest.SkipTest("needs 4 GPUs")
        world = rig.World(4)
        self.addCleanup(lambda: world.is_open and world.close())
        world.run(two_dimensions)


if __name__ == "__main__":
    unittest.main()
