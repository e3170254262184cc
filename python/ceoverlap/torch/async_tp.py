# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's async-TP operators by their own names and arguments, on copy engines:

    torch.ops.symm_mem.fused_all_gather_matmul(...)     ->  async_tp.fused_all_gather_matmul
    torch.ops.symm_mem.fused_matmul_reduce_scatter(...) ->  ...fused_matmul_reduce_scatter

Tensors need no symmetric memory, and results have gradients. group_name is a process
group's name, as there, or any group that ceoverlap.torch takes; its ranks are in order, and
all of them make the call. Streams and dtypes: functional.py.

take_over() puts these behind PyTorch's own names, and lets its compiler find them:

    ct.async_tp.take_over()
    model = torch.compile(parallelize_module(model, mesh["tp"], plan))
"""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Tuple

import torch

from .. import errors
from . import _compat
from .functional import (_gather_and_multiply, _op_matmul_reduce_scatter, all_gather,
                         name_of)
from .group import Group, named


@torch.compiler.assume_constant_result
def _size_of(name: str) -> int:
    return named(name).size


def _check_operands(A: torch.Tensor, Bs: Sequence[torch.Tensor], dim: int,
                    what: str) -> None:
    if A.dim() < 2 or not 0 <= dim < A.dim():
        raise errors.InvalidError(f"{what}: dimension {dim} of an operand of shape "
                                  f"{tuple(A.shape)}: must be one of 2 or more")
    for B in Bs:
        if B.dim() != 2:
            raise errors.InvalidError(f"{what}: B of shape {tuple(B.shape)}: must be k x n")


def _weights(Bs: Sequence[torch.Tensor]) -> Tuple[List[torch.Tensor], bool]:
    """Returns the weights as operators take them: all of them n x k and False, or all k x n and
    True."""
    if all(B.t().is_contiguous() for B in Bs):
        return [B.t() for B in Bs], False
    return list(Bs), True


def fused_all_gather_matmul(
        A_shard: torch.Tensor, Bs: List[torch.Tensor], gather_dim: int, group_name: str, *,
        return_A: bool = True) -> Tuple[Optional[torch.Tensor], List[torch.Tensor]]:
    """(A, [A @ B for B in Bs]), where A is all ranks' A_shard (... x k) along gather_dim,
    without a gradient, and None unless return_A; each B is k x n. No copy is made where
    A_shard.movedim(gather_dim, 0) is contiguous, and each B or each B.t(), as of
    linear.weight.t(). Along the last dimension the product comes after the gather."""
    _check_operands(A_shard, Bs, gather_dim, "fused_all_gather_matmul")
    name = name_of(group_name)
    x = A_shard.movedim(gather_dim, 0)
    if gather_dim == A_shard.dim() - 1:
        A = all_gather(x, name).movedim(0, -1)
        return A.detach() if return_A else None, [A @ B for B in Bs]
    weights, is_k_by_n = _weights(Bs)
    multiply, is_kept = _gather_and_multiply, return_A
    if torch.is_grad_enabled() and any(one.requires_grad for one in (A_shard, *Bs)):
        multiply = torch.ops.ceoverlap.all_gather_matmul
        is_kept = return_A or any(B.requires_grad for B in Bs)
    A, results = multiply(x.reshape(-1, x.shape[-1]), weights, None, is_kept, is_k_by_n, name)

    def shaped(matrix: torch.Tensor) -> torch.Tensor:
        n = x.shape[0] * _size_of(name)
        return matrix.view(n, *x.shape[1:-1], matrix.shape[-1]).movedim(0, gather_dim)

    return shaped(A).detach() if return_A else None, [shaped(result) for result in results]


def fused_matmul_reduce_scatter(A: torch.Tensor, B: torch.Tensor, reduce_op: str, scatter_dim: int,
                                group_name: str) -> torch.Tensor:
    """The own part along scatter_dim of the sum over ranks of A @ B, or of their mean: A is
    ... x k, B is k x n, reduce_op is "sum" or "avg"."""
    _check_operands(A, [B], scatter_dim, "fused_matmul_reduce_scatter")
    if reduce_op not in ("sum", "avg"):
        raise errors.InvalidError(f"fused_matmul_reduce_scatter: reduce_op {reduce_op!r}: "
                                  "must be 'sum' or 'avg'")
    name = name_of(group_name)
    size = _size_of(name)
    n_all = [*A.shape[:-1], B.shape[1]][scatter_dim]
    if n_all % size:
        raise errors.InvalidError(f"fused_matmul_reduce_scatter: {n_all} of dimension "
                                  f"{scatter_dim} are not {size} equal shares")
    if scatter_dim == A.dim() - 1:      # the transposed product scatters its rows
        y = _op_matmul_reduce_scatter(B.t(), A.reshape(-1, A.shape[-1]), None, False, name).t()
        y = y.reshape(*A.shape[:-1], n_all // size)
    else:
        x = A.movedim(scatter_dim, 0)
        (weight,), is_k_by_n = _weights([B])
        y = _op_matmul_reduce_scatter(x.reshape(-1, x.shape[-1]), weight, None, is_k_by_n,
                                      name)
        y = y.view(n_all // size, *x.shape[1:-1], B.shape[1]).movedim(0, scatter_dim)
    return y if reduce_op == "sum" else y / size


class TakeOver:
    """PyTorch's two operators, carried out by us until give_back(); see take_over().

    calls   how often each of them was called here, by name"""

    def __init__(self) -> None:
        self.calls: Dict[str, int] = dict.fromkeys(_compat.ASYNC_TP_OPERATORS, 0)
        # PyTorch forgets the implementations once nobody has this library. It is ours as long as
        # PyTorch holds our methods, and thereby this object.
        self._library = _compat.implement_async_tp(self._all_gather_matmul,
                                                   self._matmul_reduce_scatter)
        self._before: Optional[bool] = _compat.switch_async_tp(True)

    def give_back(self) -> None:
        """Makes PyTorch's implementations its own again, and the compiler's setting that of before.
        What was compiled meanwhile goes on calling the operators. Nothing happens a second time."""
        if self._before is not None:
            _compat.give_back_async_tp(self._library)
            _compat.switch_async_tp(self._before)
            self._before = None

    def _group_of(self, operator: str, x: torch.Tensor, name: str) -> Group:
        """Counts a call. Returns the group on x's kind of device."""
        self.calls[operator] += 1
        return Group.of(_compat.process_group_named(name), x.device.type)

    def _all_gather_matmul(
            self, A: torch.Tensor, Bs: List[torch.Tensor], gather_dim: int, group_name: str, *,
            return_A: bool = True) -> Tuple[Optional[torch.Tensor], List[torch.Tensor]]:
        """The compiler has laid out what comes behind by PyTorch's strides, as which ours are but for
        gathers along the last dimension."""
        group, dim = self._group_of("fused_all_gather_matmul", A, group_name), gather_dim % A.dim()
        with torch.no_grad():           # as of PyTorch's: gradients are the compiler's
            whole, results = fused_all_gather_matmul(A, Bs, dim, group.name, return_A=return_A)
        if whole is not None and dim == A.dim() - 1:
            whole = whole.contiguous()
        return whole, results

    def _matmul_reduce_scatter(self, A: torch.Tensor, B: torch.Tensor, reduce_op: str,
                               scatter_dim: int, group_name: str) -> torch.Tensor:
        """PyTorch's result is contiguous."""
        group = self._group_of("fused_matmul_reduce_scatter", A, group_name)
        with torch.no_grad():
            return fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim % A.dim(),
                                               group.name).contiguous()


def take_over() -> TakeOver:
    """Carries out torch.ops.symm_mem.fused_all_gather_matmul and fused_matmul_reduce_scatter from
    now on, for all groups, and lets torch.compile make them of all-gathers before products and
    reduce-scatters behind them (Inductor's setting _micro_pipeline_tp). Tensors on the host and on
    GPUs; the operators of scaled products stay PyTorch's.

    Before PyTorch 2.15 the compiler looks only at groups that had been made before this call: call
    it behind the last init_device_mesh(), or once more. From 2.15 on it does so only where there is
    a GPU. Raises VersionError where PyTorch lacks the operators or their compiler, or would never
    fuse, because it was built without NCCL. The caller may keep what is returned: it counts calls,
    and gives the operators back."""
    return TakeOver()
