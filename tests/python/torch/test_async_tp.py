# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The drop-ins for PyTorch's async-TP operators: their arguments, and dense maths."""

import contextlib
import gc
import inspect
import unittest
import weakref
from unittest import mock

import rig
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from rig import equal, integers, normal, raises
from torch import nn
from torch._dynamo.backends.common import aot_autograd
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.fx_passes import post_grad
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)

from ceoverlap import errors
from ceoverlap.torch import Group, async_tp
from ceoverlap.torch._shares import local

NAMES = ("fused_all_gather_matmul", "fused_matmul_reduce_scatter")


def name():
    """As PyTorch's operators take it."""
    return dist.group.WORLD.group_name


def gathers(dtype):
    group = Group.of()
    k = 8 * group.size
    for dim in range(3):
        shards = [integers(dim, rank, (2, 4, 8 if dim == 2 else k), dtype)
                  for rank in range(group.size)]
        whole = torch.cat(shards, dim)
        linear = [integers(10 + i, group.rank, (n, k), dtype) for i, n in enumerate((16, 24))]
        for is_transposed in (True, False):
            Bs = [b.t() if is_transposed else b.t().contiguous() for b in linear]
            A, results = async_tp.fused_all_gather_matmul(shards[group.rank], Bs, dim, name())
            equal(A, whole, (dim, "A"))
            for result, B in zip(results, Bs):
                equal(result, whole @ B, (dim, is_transposed))
        A, results = async_tp.fused_all_gather_matmul(shards[group.rank], Bs, dim, name(),
                                                      return_A=False)
        assert A is None and len(results) == 2


def scatters(dtype):
    group = Group.of()
    n = 8 * group.size
    for dim in range(3):
        shape = [group.size * 2, group.size * 3, 16]
        As = [integers(dim, rank, shape, dtype) for rank in range(group.size)]
        Bs = [integers(10 + dim, rank, (16, n), dtype) for rank in range(group.size)]
        whole = sum(A @ B for A, B in zip(As, Bs))
        for reduce_op in ("sum", "avg"):
            got = async_tp.fused_matmul_reduce_scatter(As[group.rank], Bs[group.rank],
                                                       reduce_op, dim, name())
            expected = whole.chunk(group.size, dim)[group.rank].contiguous()
            if reduce_op == "avg":
                expected = expected / group.size
            equal(got, expected, (dim, reduce_op))


def has_gradients():
    group = Group.of()
    k = 8 * group.size
    shards = [integers(0, rank, (4, k)) for rank in range(group.size)]
    Bs = [integers(1, rank, (k, 16)) for rank in range(group.size)]
    grads = [integers(2, rank, (4 * group.size, 16)) for rank in range(group.size)]
    x, B = (one[group.rank].clone().requires_grad_() for one in (shards, Bs))
    _, (y,) = async_tp.fused_all_gather_matmul(x, [B], 0, name(), return_A=False)
    y.backward(grads[group.rank])
    equal(B.grad, torch.cat(shards).t() @ grads[group.rank], "B")
    whole = sum(grad @ B.t() for grad, B in zip(grads, Bs))
    equal(x.grad, whole.chunk(group.size)[group.rank], "A_shard")


def is_compiled():
    group = Group.of()
    x, up, down = (integers(i, group.rank, shape, torch.bfloat16) for i, shape in
                   enumerate(((4, 16), (24, 16), (16, 24))))

    def block(x):
        _, (y,) = async_tp.fused_all_gather_matmul(x, [up.t()], 0, name, return_A=False)
        return async_tp.fused_matmul_reduce_scatter(y, down.t(), "avg", 0, name)

    name = dist.group.WORLD.group_name
    compiled = torch.compile(block, fullgraph=True,
                             backend="inductor" if group.is_gpu else "aot_eager")
    equal(compiled(x), block(x), "compiled")


def is_refused():
    group = Group.of()
    x = torch.zeros(4, 16, device=group.device)
    gather, scatter = (getattr(async_tp, name) for name in NAMES)
    for text, call in (
            ("dimension 2", lambda: gather(x, [x.t()], 2, name())),
            ("must be k x n", lambda: gather(x, [x[0]], 0, name())),
            ("must be 'sum'", lambda: scatter(x, x.t(), "max", 0, name())),
            ("equal shares", lambda: scatter(x[:1], x.t(), "sum", 0, name())),
            ("no group is named", lambda: gather(x, [x.t()], 0, "nobody"))):
        raises(errors.InvalidError, text, call)


# --- taken over ---------------------------------------------------------------------------


def needs_operators(test):
    """Skips where PyTorch's operators cannot be had, with what take_over() says."""
    try:
        async_tp.take_over().give_back()
    except errors.VersionError as error:
        return unittest.skip(str(error))(test)
    return test


def strided(dims):
    """Operands of the two operators for the dimensions of a gather and a scatter."""
    group = Group.of()
    k = 8 * group.size
    for dim in dims:
        yield dim, (integers(dim, group.rank, (2, 4, k), torch.bfloat16),
                    [integers(1, group.rank, (n, k), torch.bfloat16).t() for n in (16, 24)])


def is_taken_over():
    """Direct calls of PyTorch's operators are ours, with the strides that PyTorch tells compilers,
    also when nobody keeps what take_over() returned; then they are given back."""
    group, taken = Group.of(), async_tp.take_over()
    calls = taken.calls
    gather, scatter = (getattr(torch.ops.symm_mem, name) for name in NAMES)
    for dim, (x, Bs) in strided((0, 1)):
        A, results = gather(x, Bs, dim, name())
        expected, products = async_tp.fused_all_gather_matmul(x, Bs, dim, name())
        equal(A, expected, dim)
        for result, product in zip(results, products):
            equal(result, product, dim)
        meta = gather(x.to("meta"), [B.to("meta") for B in Bs], dim, name())
        for a, b in ((A, meta[0]), *zip(results, meta[1])):
            assert a.shape == b.shape and a.stride() == b.stride(), (dim, a.stride(), b.stride())
        y = torch.cat([x] * group.size, dim)
        got = scatter(y, Bs[0], "avg", dim, name())
        equal(got, async_tp.fused_matmul_reduce_scatter(y, Bs[0], "avg", dim, name()), dim)
        meta = scatter(y.to("meta"), Bs[0].to("meta"), "avg", dim, name())
        assert got.shape == meta.shape and got.stride() == meta.stride(), (dim, got.stride())
    own = x.chunk(group.size, -1)[group.rank]
    assert gather(own, Bs, 2, name())[0].is_contiguous()
    assert gather(x, Bs, 0, name(), return_A=False)[0] is None
    assert calls == dict(zip(NAMES, (4, 2))), calls
    taken_again = weakref.ref(taken)
    del taken
    gc.collect()
    gather(x, Bs, 0, name())
    assert calls[NAMES[0]] == 5, calls
    taken_again().give_back()
    taken_again().give_back()
    if not group.is_gpu:                # where PyTorch has none of its own
        raises(NotImplementedError, "fused_all_gather_matmul", gather, x, Bs, 0, name())
    assert calls[NAMES[0]] == 5, calls


class Mlp(nn.Module):
    def __init__(self, ffn):
        super().__init__()
        self.up = nn.Linear(64, ffn, bias=False)
        self.down = nn.Linear(ffn, 64, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def fuse(module, _inputs):
    """What Inductor does about async-TP, and none of its C++, which takes g++ minutes to compile."""
    post_grad.view_to_reshape(module)
    if torch._inductor.config._micro_pipeline_tp:
        post_grad.micro_pipeline_tp_pass(module.graph)
    module.recompile()
    return make_boxed_func(module.forward)


def compiler_looks(group_name):
    """Lets the compiler look for patterns: from 2.15 on it does not where there is no GPU, and so no
    symmetric memory."""
    if symmetric_memory.is_symm_mem_enabled_for_group(group_name):
        return contextlib.nullcontext()
    assert not rig.HAS_GPUS and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)
    return symmetric_memory._test_mode()


def compiler_finds_them(dim):
    """A plain plan of DTensors, compiled: its products are ours, forward and backward."""
    torch._dynamo.reset()
    size = dist.get_world_size()
    mesh = init_device_mesh(rig.device().type, (size,), mesh_dim_names=("tp",))
    torch.manual_seed(rig.SEED)
    model = parallelize_module(Mlp(32 * size).to(rig.device(), torch.bfloat16), mesh["tp"], {
        "up": ColwiseParallel(input_layouts=Shard(dim)),
        "down": RowwiseParallel(output_layouts=Shard(dim))})
    x = normal(1, dist.get_rank(), (16, 64) if dim == 0 else (2, 16, 64), torch.bfloat16)
    taken, results = async_tp.take_over(), []
    try:
        with compiler_looks(mesh.get_group().group_name):
            backend = "inductor" if rig.HAS_GPUS else aot_autograd(
                fw_compiler=fuse, decompositions=select_decomp_table(),
                partition_fn=min_cut_rematerialization_partition)
            for one in (model, torch.compile(model, backend=backend)):
                model.zero_grad()
                leaf = x.clone().requires_grad_()
                y = one(leaf)
                y.float().square().sum().backward()
                results.append([y.detach(), leaf.grad, *(local(parameter.grad)
                                                         for parameter in model.parameters())])
    finally:
        taken.give_back()
    # forward, and the gradients of both layers' inputs
    assert all(n >= 2 for n in taken.calls.values()), taken.calls
    for i, (eager, compiled) in enumerate(zip(*results)):
        difference = (eager.float() - compiled.float()).norm() / eager.float().norm()
        assert difference <= 2e-2, (dim, i, difference)
    return taken.calls


def settings_come_back():
    for before in (False, True):
        with mock.patch.object(torch._inductor.config, "_micro_pipeline_tp", before):
            taken = async_tp.take_over()
            assert torch._inductor.config._micro_pipeline_tp is True
            taken.give_back()
            assert torch._inductor.config._micro_pipeline_tp is before


class AsyncTp(unittest.TestCase):

    def test_signatures(self):
        """As torch.ops.symm_mem's, so that only the name changes."""
        for one in NAMES:
            theirs = getattr(torch.ops.symm_mem, one).default._schema.arguments
            ours = inspect.signature(getattr(async_tp, one)).parameters.values()
            self.assertEqual(
                [(argument.name, argument.kwarg_only, argument.has_default_value())
                 for argument in theirs if argument.name != "A"],
                [(argument.name, argument.kind is argument.KEYWORD_ONLY,
                  argument.default is not argument.empty)
                 for argument in ours if argument.name not in ("A", "A_shard")], one)

    def test_all_gather(self):
        for dtype in (torch.bfloat16, torch.float32):
            rig.run(gathers, dtype)

    def test_reduce_scatter(self):
        for dtype in (torch.bfloat16, torch.float32):
            rig.run(scatters, dtype)

    def test_gradients(self):
        rig.run(has_gradients)

    def test_compile(self):
        rig.run(is_compiled)

    def test_refusals(self):
        rig.run(is_refused)


class TakenOver(unittest.TestCase):
    def test_what_is_missing_is_told(self):
        with mock.patch.object(dist, "is_nccl_available", return_value=False):
            with self.assertRaisesRegex(errors.VersionError, "built without NCCL.*async_tp inst"):
                async_tp.take_over()
        with mock.patch.object(symmetric_memory, "enable_symm_mem_for_group"):
            del symmetric_memory.enable_symm_mem_for_group
            with self.assertRaisesRegex(errors.VersionError, "no torch.distributed._symm.*_group;"):
                async_tp.take_over()

    @needs_operators
    def test_direct_calls(self):
        rig.run(is_taken_over)

    @needs_operators
    def test_compiler(self):
        """A sequence, and a batch of them, which have their second dimension divided."""
        if rig.SHARES_GPUS:
            self.skipTest("needs a process group by NCCL on GPUs")
        for dim in (0, 1):
            print(f"sequence in dimension {dim}: {rig.run(compiler_finds_them, dim)[0]}")

    @needs_operators
    def test_settings(self):
        rig.run(settings_come_back)


if __name__ == "__main__":
    unittest.main()
