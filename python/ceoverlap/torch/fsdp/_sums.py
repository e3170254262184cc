# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's reduce-scatter: copy engines move the gradients, and a kernel that uses few SMs sums
them."""

from __future__ import annotations

from typing import Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from ... import ops
from .._compat import fsdp2
from ..group import Group
from ..operators import DTYPES, reduce_scatter_into, sum_length, sum_shape

_RedOp = dist.ReduceOp.RedOpType


class Family:
    """The parameter groups whose sums share one workspace. It is made for the largest of them
    at once, instead of growing from one to the next."""

    def __init__(self, group: Group):
        self.group = group
        self.param_groups: List = []
        self._dtypes: Set[torch.dtype] = set()

    def reserve(self, dtype: torch.dtype, scale: float) -> None:
        """At the first sum of this dtype, makes the operator, with this scale, and scratch
        memory for the largest run of any parameter group. All ranks call it together."""
        if dtype in self._dtypes:
            return
        self._dtypes.add(dtype)
        length = max(sum_length(sum(param.padded_sharded_param_size.numel()
                                    for param in param_group.fsdp_params
                                    if param.sharded_param.requires_grad),
                                self.group.size, dtype.itemsize)
                     for param_group in self.param_groups)
        if length:
            shape = sum_shape((length,) * self.group.size, dtype, scale=scale)
            self.group.operators.get(ops.ReduceScatter, *shape)


class SumScatter(fsdp2().ReduceScatter):
    """The reduce-scatters of one FSDP parameter group. Sums are in fp32 and in the order of
    ranks, so repeated runs yield the same bits. An average, or a sum of scaled gradients, is
    the fp32 sum times the factor, rounded to the gradients' dtype afterwards. That holds for
    the first factor that is not 1, because an operator has one fixed factor. Another factor,
    which may change with every step, needs no further operators: a kernel of its own multiplies
    the rounded result.

    Reduce-scatters that it does not support go to `plain`, the implementation that the group
    had before, and `reasons` counts why."""

    def __init__(self, param_group, family: Family):
        self._param_group = param_group
        self.plain = param_group._reduce_scatter_comm
        self.reasons: Dict[str, int] = {}
        self.n_runs = 0
        self.n_bytes = 0                # that went to peers
        self._group = family.group
        self._family = family
        self._scale: Optional[float] = None     # of our operators
        family.param_groups.append(param_group)

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        """Returns ordinary memory, because operands need not be registered."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op, async_op: bool = False) -> Optional[dist.Work]:
        """Sets output_tensor (n elements) to this rank's part of the sum over ranks of
        input_tensor (size x n), on the current stream."""
        kind, factor = _kind_and_factor(op, self._group.size)
        reason = self._refusal(input_tensor, kind, async_op)
        if reason is not None:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            return self.plain(output_tensor=output_tensor, input_tensor=input_tensor,
                              group=group, op=op, async_op=async_op)
        scale = self._scale_for(factor)
        self._family.reserve(input_tensor.dtype, scale)
        reduce_scatter_into(self._group, input_tensor,
                            [output_tensor.numel()] * self._group.size, output_tensor, scale)
        if factor != scale:
            output_tensor.mul_(factor)
        self.n_runs += 1
        self.n_bytes += (self._group.size - 1) * output_tensor.numel() * output_tensor.itemsize
        return None

    def close(self) -> None:
        """Gives the parameter group its former reduce-scatter back. One that somebody else has
        set since then stays."""
        if self._param_group._reduce_scatter_comm is self:
            self._param_group._reduce_scatter_comm = self.plain

    def check(self) -> None:
        """Raises the error that ended a sum of the same ranks, if any. Never blocks."""
        self._group.operators.check()

    def _scale_for(self, factor: float) -> float:
        """Returns the factor if the operators multiply by it, else 1; the same at all ranks."""
        if self._scale is None and factor != 1 and ops.is_scale(factor):
            self._scale = factor
        return factor if factor == self._scale else 1.0

    def _refusal(self, source: torch.Tensor, kind, async_op: bool) -> Optional[str]:
        """Returns why this reduce-scatter is not supported, or None; the same at all ranks."""
        if source.dtype not in DTYPES:
            return f"gradients of {source.dtype}"
        if source.device != self._group.device:
            return f"gradients on {source.device}"
        if kind not in (_RedOp.SUM, _RedOp.AVG, _RedOp.PREMUL_SUM):
            return f"reduction {kind}"
        return "asynchronous" if async_op else None


def _kind_and_factor(op, size: int) -> Tuple[object, float]:
    """Returns which reduction PyTorch asks for, and the factor by which the sum is multiplied."""
    kind = getattr(op, "op", op)
    if kind == _RedOp.AVG:
        return kind, 1.0 / size
    if kind == _RedOp.PREMUL_SUM:
        return kind, float(op.__getstate__()[1])
    return kind, 1.0
