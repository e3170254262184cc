# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Tensor-parallel layers against the dense layers they come from, and against PyTorch's
own."""

import copy
import unittest

import rig
import torch
from rig import normal, raises
from torch import nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from torch.nn.utils.parametrizations import weight_norm

from ceoverlap import errors
from ceoverlap.torch import (Column, ColumnParallelLinear, Group, Row, RowParallelLinear,
                             parallelize)
from ceoverlap.torch._shares import local

HIDDEN = 16
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}


class Mlp(nn.Module):
    """Llama's."""

    def __init__(self, hidden, ffn, bias=True, **options):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias, **options)
        self.up = nn.Linear(hidden, ffn, bias, **options)
        self.down = nn.Linear(ffn, hidden, bias, **options)
        self.gathers_once = False

    def forward(self, x):
        if self.gathers_once:
            gate, up = ColumnParallelLinear.together([self.gate, self.up], x)
        else:
            gate, up = self.gate(x), self.up(x)
        return self.down(nn.functional.silu(gate) * up)


class Model(nn.Module):

    def __init__(self, **options):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(HIDDEN), "mlp": Mlp(HIDDEN, **options)})
            for _ in range(2))
        self.head = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer["mlp"](layer["norm"](x))
        return x


def dense(size, dtype=torch.float32, bias=True):
    """The same Mlp at all ranks."""
    torch.manual_seed(rig.SEED)
    return Mlp(HIDDEN, 8 * size, bias).to(rig.device(), dtype)


PLAN = {"gate": "column", "up": "column", "down": "row"}


def close_to(got, expected, what):
    """As a whole: single numbers may be sums that cancel out."""
    assert got.shape == expected.shape and got.dtype == expected.dtype, what
    error = (got.float() - expected.float()).norm().item()
    error /= max(expected.float().norm().item(), 1e-3)
    assert error <= TOLERANCE[got.dtype], f"{what}: {error} of it is wrong"


def check_shares(parallel, whole, group, of):
    """Parameters, or their gradients, are shares of the dense layer's."""
    for name, linear in whole.named_children():
        layer, dim = getattr(parallel, name), 1 if name == "down" else 0
        close_to(local(of(layer.weight)), of(linear.weight).chunk(group.size, dim)[group.rank],
                 name)
        if linear.bias is not None:
            bias = of(linear.bias)
            close_to(local(of(layer.bias)), bias if name == "down" else
                     bias.chunk(group.size)[group.rank], f"{name}.bias")


def take_shares(parallel, whole, group):
    """The dense layer's parameters again: in bf16 both round each step by themselves, and
    what adds up can be large beside a small share."""
    for name, linear in whole.named_children():
        layer, dim = getattr(parallel, name), 1 if name == "down" else 0
        bias = linear.bias if name == "down" else linear.bias.chunk(group.size)[group.rank]
        with torch.no_grad():
            local(layer.weight).copy_(linear.weight.chunk(group.size, dim)[group.rank])
            local(layer.bias).copy_(bias)


def share_of(x, group, style):
    return (x.chunk(group.size, style.sequence_dim)[group.rank].contiguous()
            if style.sequence_parallel else x)


def trains(sequence_parallel, sequence_dim, together, dtype):
    """Forward, backward and three steps beside the dense layer."""
    group = Group.of()
    style = Column(sequence_parallel, sequence_dim)
    whole = dense(group.size, dtype)
    mlp = parallelize(copy.deepcopy(whole), group, {
        "gate": style, "up": style, "down": Row(sequence_parallel, sequence_dim)})
    mlp.gathers_once = together
    check_shares(mlp, whole, group, lambda parameter: parameter.detach())
    shape = [3, 5, HIDDEN]
    shape[sequence_dim] = 4 * group.size
    optimizers = [torch.optim.SGD(model.parameters(), 0.05) for model in (mlp, whole)]
    for step in range(3):
        x = normal(step, 0, shape, dtype).requires_grad_()
        own = share_of(x.detach(), group, style).requires_grad_()
        grad = normal(10 + step, 0, shape, dtype)
        y, expected = mlp(own), whole(x)
        close_to(y, share_of(expected, group, style), f"step {step}")
        y.backward(share_of(grad, group, style))
        expected.backward(grad)
        close_to(own.grad, share_of(x.grad, group, style), f"step {step}: x.grad")
        check_shares(mlp, whole, group, lambda parameter: parameter.grad)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        check_shares(mlp, whole, group, lambda parameter: parameter.detach())
        if dtype != torch.float32:
            take_shares(mlp, whole, group)


def has_uneven_rows():
    group = Group.of()
    whole = dense(group.size)
    up = ColumnParallelLinear.from_linear(whole.up, group)
    down = RowParallelLinear.from_linear(whole.down, group)
    rows = [2 * rank for rank in range(group.size)]
    x = normal(0, 0, (sum(rows), 3, HIDDEN))
    y = down(up(x.split(rows)[group.rank], rows), rows)
    close_to(y, whole.down(whole.up(x)).split(rows)[group.rank], "uneven rows")
    raises(errors.InvalidError, "no multiple", down, up(x.split(rows)[group.rank], rows)[1:])


def is_made_anew():
    """Constructors as nn.Linear's; shapes, first weights, state_dict."""
    group = Group.of()
    n = 8 * group.size
    column = ColumnParallelLinear(HIDDEN, n, dtype=torch.bfloat16, device=rig.device())
    row = RowParallelLinear(n, HIDDEN, group=group.name, device=rig.device())
    for layer, whole, share in ((column, (n, HIDDEN), (8, HIDDEN)),
                                (row, (HIDDEN, n), (HIDDEN, 8))):
        weight = layer.state_dict()["weight"]
        assert tuple(weight.shape) == whole and tuple(weight.to_local().shape) == share
    assert [tuple(layer.bias.placements) for layer in (column, row)] == [
        (Shard(0),), (Replicate(),)]
    assert column.weight.dtype == torch.bfloat16 and local(column.weight).abs().max() <= 0.25
    assert 0 < local(row.weight).abs().max() <= n ** -0.5 and not local(row.bias).any()
    assert RowParallelLinear(n, HIDDEN, bias=False).bias is None
    assert row(torch.zeros(n, 8, device=rig.device())).shape == (8, HIDDEN)
    assert f"rank={group.rank} of {group.size}" in repr(column)
    raises(errors.InvalidError, f"no multiple of the group's {group.size}",
           ColumnParallelLinear, HIDDEN, n + 1)
    raises(errors.InvalidError, f"no multiple of the group's {group.size}",
           RowParallelLinear, n + 1, HIDDEN)
    raises(errors.InvalidError, "before the last", column, torch.zeros(HIDDEN))
    by_name = ColumnParallelLinear(HIDDEN, n, group=torch.distributed.group.WORLD.group_name,
                                   dtype=torch.bfloat16, device=rig.device())
    x = torch.zeros(2, HIDDEN, device=rig.device(), dtype=torch.bfloat16)
    assert len(ColumnParallelLinear.together([column, by_name], x)) == 2
    other = ColumnParallelLinear(HIDDEN, n, sequence_dim=1)
    raises(errors.InvalidError, "must be the same", ColumnParallelLinear.together,
           [column, other], torch.zeros(2, HIDDEN))


def follows_autocast():
    group = Group.of()
    mlp = parallelize(dense(group.size), group, PLAN)
    x = normal(0, group.rank, (4, HIDDEN))
    with torch.autocast(rig.device().type, torch.bfloat16):
        y = mlp(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert mlp.up.weight.grad.dtype == torch.float32


def freezes():
    """What needs no gradient stays so."""
    group = Group.of()
    whole = dense(group.size)
    whole.up.weight.requires_grad_(False)
    mlp = parallelize(whole.eval(), group, PLAN)
    assert not mlp.up.weight.requires_grad and mlp.up.bias.requires_grad
    assert not mlp.up.training
    mlp(normal(0, group.rank, (4, HIDDEN))).sum().backward()
    assert mlp.up.weight.grad is None and mlp.gate.weight.grad is not None


def compiles():
    group = Group.of()
    for style in (Column(), Column(sequence_parallel=False), Column(sequence_dim=1)):
        mlp = parallelize(dense(group.size), group, {
            "gate": style, "up": style,
            "down": Row(style.sequence_parallel, style.sequence_dim)})
        mlp.gathers_once = True
        compiled = torch.compile(mlp, fullgraph=True,
                                 backend="inductor" if group.is_gpu else "aot_eager")
        x = normal(0, group.rank if style.sequence_parallel else 0,
                   (4 * group.size, 8, HIDDEN))
        results = []
        for one in (mlp, compiled):
            mlp.zero_grad()
            leaf = x.clone().requires_grad_()
            y = one(leaf)
            y.square().sum().backward()
            results.append([y.detach(), leaf.grad, *(local(p.grad) for p in mlp.parameters())])
        for i, (a, b) in enumerate(zip(*results)):
            close_to(b, a, (style, i))


def compiles_once():
    """One program for all lengths of the sequence, with gradients."""
    group = Group.of()
    torch._dynamo.reset()
    mlp = parallelize(dense(group.size), group, PLAN)
    programs = []

    def count(program, _inputs):
        programs.append(program)
        return program

    compiled = torch.compile(mlp, fullgraph=True, dynamic=True, backend=count)
    for n in range(2, 6):
        x = normal(n, group.rank, (n, HIDDEN))
        leaves = [x.clone().requires_grad_() for _ in range(2)]
        for leaf, model in zip(leaves, (compiled, mlp)):
            model(leaf).square().sum().backward()
        close_to(leaves[0].grad, leaves[1].grad, n)
    assert len(programs) == 1, f"{len(programs)} programs for 4 lengths"


def swaps():
    group = Group.of()
    torch.manual_seed(rig.SEED)
    whole = Model(ffn=8 * group.size).to(rig.device())
    model = copy.deepcopy(whole)
    assert parallelize(model, None, {
        "layers.*.mlp.[gu]*": "column", "layers.*.mlp.down": "row"}) is model
    assert type(model.layers[1]["mlp"].up) is ColumnParallelLinear
    assert type(model.layers[0]["mlp"].down) is RowParallelLinear
    assert type(model.head) is nn.Linear
    x = normal(0, 0, (2 * group.size, HIDDEN))
    own = x.chunk(group.size)[group.rank]
    close_to(model(own), whole(x).chunk(group.size)[group.rank], "two layers")


def takes_styles_of_pytorch():
    group = Group.of()
    whole = dense(group.size)
    for sequence, dim in ((Shard(0), 0), (Shard(1), 1), (Replicate(), None)):
        mlp = parallelize(copy.deepcopy(whole), group, {
            "gate": ColwiseParallel(input_layouts=sequence),
            "up": ColwiseParallel(input_layouts=sequence),
            "down": RowwiseParallel(output_layouts=sequence)})
        for layer in (mlp.up, mlp.down):        # another dimension gives the same numbers
            assert (layer.sequence_parallel, layer.sequence_dim) == (dim is not None, dim or 0)
        x = normal(0, 0, (group.size, 2 * group.size, HIDDEN))
        own, expected = x, whole(x)
        if dim is not None:
            own, expected = (one.chunk(group.size, dim)[group.rank] for one in (x, expected))
        close_to(mlp(own), expected, sequence)


def refuses_plans():
    group = Group.of()
    model = Model(ffn=8 * group.size).to(rig.device())
    uneven = Model(ffn=8 * group.size + 1).to(rig.device())
    whole = copy.deepcopy(model)
    scaled, sharded = (Mlp(HIDDEN, 8 * group.size).to(rig.device()) for _ in range(2))
    weight_norm(scaled.up)
    mesh = torch.distributed.init_device_mesh(rig.device().type, (group.size,))
    sharded.up.weight = nn.Parameter(DTensor.from_local(sharded.up.weight.detach(), mesh))
    up = "layers.*.mlp.up"
    for text, module, plan in (
            ("matches no submodule", model, {up: "column", "layers.*.mlp.none": "row"}),
            ("matches no submodule", model, {"layers.*.up": "column"}),
            ("only nn.Linear", model, {up: "column", "layers.*.norm": "column"}),
            ("by another", model, {up: "column", "layers.0.mlp.*": "column"}),
            ("must be 'column'", model, {up: "columns"}),
            ("must be Shard(-1)", model, {up: ColwiseParallel(output_layouts=Replicate())}),
            ("up.weight is a Tensor, must be", scaled, {"up": "column"}),
            ("up.weight is a DTensor, must be", sharded, {"up": "column"}),
            ("no multiple", uneven, {up: "column"}),
            ("no multiple", uneven, {"layers.*.mlp.down": "row"})):
        raises(errors.InvalidError, text, parallelize, module, group, plan)
    raises(errors.InvalidError, "rank 1", parallelize, model, group,
           {up if group.rank != 1 else "none": "column"})
    raises(errors.InvalidError, "same at all ranks", parallelize, model, group,
           {up: "column" if group.rank else Column(sequence_dim=1)})
    assert all(type(one) is type(other) for one, other in
               zip(model.modules(), whole.modules())), "changed all the same"


def equals_dtensor():
    """PyTorch's modules with the same weights, in bf16: on the host where the process group
    is gloo's, whose collectives of DTensors on GPUs end the process."""
    group = Group.of()
    place = rig.device() if torch.distributed.get_backend() == "nccl" else torch.device("cpu")
    mesh = torch.distributed.init_device_mesh(place.type, (group.size,))
    torch.manual_seed(rig.SEED)
    whole = Mlp(256, 512 * group.size, bias=False).to(rig.device(), torch.bfloat16)
    plan = {"gate": ColwiseParallel(input_layouts=Shard(0)),
            "up": ColwiseParallel(input_layouts=Shard(0)),
            "down": RowwiseParallel(output_layouts=Shard(0))}
    theirs = parallelize_module(copy.deepcopy(whole).to(place), mesh, plan)
    ours = parallelize(whole, group, plan)
    x = normal(0, group.rank, (512, 256), torch.bfloat16)
    results = []
    for model, device in (ours, rig.device()), (theirs, place):
        leaf = x.to(device, copy=True).requires_grad_()
        y = model(leaf)
        y.backward(normal(1, group.rank, y.shape, y.dtype).to(device))
        grads = [local(p.grad) for p in model.parameters()]
        results.append([y.detach().cpu(), *(grad.cpu() for grad in [leaf.grad, *grads])])
    for i, (a, b) in enumerate(zip(*results)):
        close_to(a, b, i)


class Layers(unittest.TestCase):

    def test_training(self):
        for sequence_parallel, dim in ((True, 0), (True, 1), (False, 0)):
            for together in (False, True):
                for dtype in (torch.float32, torch.bfloat16):
                    with self.subTest(sequence_parallel=sequence_parallel, dim=dim,
                                      together=together, dtype=dtype):
                        rig.run(trains, sequence_parallel, dim, together, dtype)

    def test_uneven_rows(self):
        rig.run(has_uneven_rows)

    def test_made_anew(self):
        rig.run(is_made_anew)

    def test_autocast(self):
        rig.run(follows_autocast)

    def test_frozen_weights(self):
        rig.run(freezes)

    def test_compile(self):
        rig.run(compiles)

    def test_compile_for_any_length(self):
        rig.run(compiles_once)

    def test_against_dtensor(self):
        rig.run(equals_dtensor)


class Plans(unittest.TestCase):

    def test_swap(self):
        rig.run(swaps)

    def test_styles_of_pytorch(self):
        rig.run(takes_styles_of_pytorch)

    def test_refusals(self):
        rig.run(refuses_plans)


if __name__ == "__main__":
    unittest.main()
