# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's reduce-scatter: copy engines move the gradients, a bounded kernel sums them."""

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
    """The parameter groups whose sums share one workspace: it is made for the largest of
    them at once, instead of growing from one to the next."""

    def __init__(self, group: Group):
        self.group = group
        self.param_groups: List = []
        self._dtypes: Set[torch.dtype] = set()

    def reserve(self, dtype: torch.dtype, scale: float) -> None:
        """At the first sum of that dtype, by all ranks together: scratch for the largest run
        of any of them, and its operator, of that scale."""
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
    """The reduce-scatters of one FSDP parameter group: fp32 sums in the order of ranks,
    the same bits run after run. An average, or a sum of scaled gradients, is the fp32 sum
    times the factor, and only then rounded to the gradients' dtype: for the first factor that
    is not 1, as operators have one each. A further one, which may change with every step,
    makes no further operators: it multiplies what is rounded already, in a kernel of its own.

    What is not understood goes to `plain`, the group's reduce-scatter from before, and
    `reasons` counts why."""

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
        """Ordinary memory: operands are registered nowhere."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op, async_op: bool = False) -> Optional[dist.Work]:
        """output (n elements) = the sum over ranks of their input (size x n), own part, on
        the current stream."""
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
        """Gives the parameter group its own reduce-scatter back; one that was set in place of
        ours stays."""
        if self._param_group._reduce_scatter_comm is self:
            self._param_group._reduce_scatter_comm = self.plain

    def check(self) -> None:
        """Raises the error that ended a sum of the group of ranks. Never blocks."""
        self._group.operators.check()

    def _scale_for(self, factor: float) -> float:
        """The factor where operators multiply by it, else 1; the same at all ranks."""
        if self._scale is None and factor != 1 and ops.is_scale(factor):
            self._scale = factor
        return factor if factor == self._scale else 1.0

    def _refusal(self, source: torch.Tensor, kind, async_op: bool) -> Optional[str]:
        """Why not; the same at all ranks."""
        if source.dtype not in DTYPES:
            return f"gradients of {source.dtype}"
        if source.device != self._group.device:
            return f"gradients on {source.device}"
        if kind not in (_RedOp.SUM, _RedOp.AVG, _RedOp.PREMUL_SUM):
            return f"reduction {kind}"
        return "asynchronous" if async_op else None


def _kind_and_factor(op, size: int) -> Tuple[object, float]:
    """What is reduced, and what the sum is multiplied by."""
    kind = getattr(op, "op", op)
    if kind == _RedOp.AVG:
        return kind, 1.0 / size
    if kind == _RedOp.PREMUL_SUM:
        return kind, float(op.__getstate__()[1])
    return kind, 1.0
