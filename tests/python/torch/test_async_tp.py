# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The drop-ins for PyTorch's async-TP operators: their arguments, and dense maths."""

import inspect
import unittest

import rig
import torch
import torch.distributed as dist
from rig import equal, integers, raises

from ceoverlap import errors
from ceoverlap.torch import Group, async_tp

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


class AsyncTp(unittest.TestCase):

    def test_signatures(self):
        """As torch.ops.symm_mem's, so that only the name changes."""
        try:
            import torch.distributed._symmetric_memory  # noqa: F401
        except ImportError as error:
            self.skipTest(f"no symmetric memory in this PyTorch ({error})")
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


if __name__ == "__main__":
    unittest.main()
