# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""FSDP2's communication by its public hooks, set_custom_all_gather() and
set_custom_reduce_scatter(), which do not change between versions of PyTorch. FSDP2 passes the
process group with each call, so nothing of its inner parts is looked at."""

from __future__ import annotations

from typing import Any, Dict, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ... import errors, ops
from .. import _compat
from .._moves import all_gather_into
from ..group import Group
from ..operators import DTYPES, reduce_scatter_into

_RedOp: Any = dist.ReduceOp.RedOpType


class Hook:
    """What both hooks have in common. Calls that it does not support go to `plain`, with the
    same arguments, and `reasons` counts why.

    groups     the Group of each process group that FSDP2 has passed, made at its first call
    is_closed  whether all calls are left to `plain`
    """

    staging = None                      # shards wait in FSDP2's own tensors
    words = "copy engines by FSDP2's public hooks"

    def __init__(self, plain: Any) -> None:
        self.plain = plain
        self.reasons: Dict[str, int] = {}
        self.groups: Dict[dist.ProcessGroup, Group] = {}
        self.n_runs = 0
        self.n_bytes = 0                # that came from peers, or went to them
        self.is_closed = False

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        """Returns ordinary memory, because operands need not be registered."""
        return torch.empty(*size, dtype=dtype, device=device)

    def _group_of(self, process_group: dist.ProcessGroup, device: torch.device) -> Group:
        group = self.groups.get(process_group)
        if group is None:
            group = self.groups[process_group] = Group.of(process_group, device)
        if not group.is_open:
            raise errors.StateError(
                f"group {group.name}: was closed while FSDP2 of a model communicates by it: call "
                "disable() of what ceoverlap.torch.fsdp.enable() returned before Group.close(), and "
                "enable() again where the model trains on")
        return group

    def _general_refusal(self, tensor: torch.Tensor,
                         process_group: dist.ProcessGroup) -> Optional[str]:
        """Returns why neither hook supports the call, or None; the same at all ranks."""
        if self.is_closed:             # and FSDP2 or others still call
            return "disabled"
        if process_group.size() == 1:
            return "a group of one rank"
        if tensor.device.type not in ("cuda", "cpu"):
            return f"tensors on {tensor.device.type}"
        group = self._group_of(process_group, tensor.device)
        return None if tensor.device == group.device else f"tensors on {tensor.device}"

    def _pass_on(self, reason: str, **arguments: Any) -> Optional[dist.Work]:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        return self.plain(**arguments)

    def check(self) -> None:
        """Raises the error that ended a run of the same ranks, if any. Never blocks."""
        for group in self.groups.values():
            group.operators.check()

    def close(self) -> None:
        """Leaves all further calls to `plain`."""
        self.is_closed = True


def plain_all_gather(output_tensor: Any, input_tensor: Any, group: Any,
                     async_op: Any = False) -> Any:
    return _compat.plain_all_gather(output_tensor, input_tensor, group=group,
                                    async_op=async_op)


def plain_reduce_scatter(output_tensor: Any, input_tensor: Any, group: Any, op: Any,
                         async_op: Any = False) -> Any:
    return _compat.plain_reduce_scatter(output_tensor, input_tensor, op=op, group=group,
                                        async_op=async_op)


class HookGather(Hook):
    """The all-gathers of one module, from and to FSDP2's own tensors, in the order of the
    current stream, also if FSDP2 asks for an asynchronous one."""

    n_copied_bytes = 0                  # by us; FSDP2 copies all of them out of its tensor

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, async_op: bool = False) -> Optional[dist.Work]:
        """Sets output_tensor (size x n elements) to the input_tensor (n) of all ranks."""
        reason = self._general_refusal(input_tensor, group)
        if reason is not None:
            return self._pass_on(reason, output_tensor=output_tensor,
                                 input_tensor=input_tensor, group=group, async_op=async_op)
        at = self._group_of(group, input_tensor.device)
        all_gather_into(at, input_tensor, [input_tensor.numel()] * at.size, output_tensor,
                        ("FSDP2's all-gather", input_tensor, None))
        self.n_runs += 1
        self.n_bytes += (at.size - 1) * input_tensor.numel() * input_tensor.itemsize
        return None


class HookSums(Hook):
    """The reduce-scatters of one module. Sums are in fp32 and in the order of ranks, so repeated
    runs yield the same bits. An average, or a sum of scaled gradients, is the fp32 sum times the
    factor, rounded to the gradients' dtype afterwards; an average by a group's channel is the fp32
    sum divided by the number of ranks instead. That holds for the first factor that is
    not 1, because an operator has one fixed factor. Another factor, which may change with every
    step, needs no further operators: a kernel of its own multiplies the rounded result."""

    def __init__(self, plain: Any) -> None:
        super().__init__(plain)
        self._scale: Optional[float] = None     # of our operators

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: dist.ProcessGroup, op: Any, async_op: bool = False) -> Optional[dist.Work]:
        """Sets output_tensor (n elements) to this rank's part of the sum over ranks of
        input_tensor (size x n), on the current stream."""
        kind, factor = _kind_and_factor(op, group.size())
        reason = (self._general_refusal(input_tensor, group) or
                  _sum_refusal(input_tensor, kind, async_op))
        if reason is not None:
            return self._pass_on(reason, output_tensor=output_tensor,
                                 input_tensor=input_tensor, group=group, op=op,
                                 async_op=async_op)
        at, scale = self._group_of(group, input_tensor.device), self._scale_for(factor)
        self._reserve(input_tensor.dtype, scale)
        reduce_scatter_into(at, input_tensor, [output_tensor.numel()] * at.size, output_tensor,
                            scale, ("FSDP2's reduce-scatter", input_tensor, None, scale))
        if factor != scale:
            output_tensor.mul_(factor)
        self.n_runs += 1
        self.n_bytes += (at.size - 1) * output_tensor.numel() * output_tensor.itemsize
        return None

    def _reserve(self, dtype: torch.dtype, scale: float) -> None:
        """Does nothing: how large other sums will be is not known."""

    def _scale_for(self, factor: float) -> float:
        """Returns the factor if the operators multiply by it, else 1; the same at all ranks."""
        if self._scale is None and factor != 1 and ops.is_scale(factor):
            self._scale = factor
        return factor if factor == self._scale else 1.0


def _sum_refusal(source: torch.Tensor, kind: Any, async_op: bool) -> Optional[str]:
    """Returns why a reduce-scatter is not supported, or None; the same at all ranks."""
    if source.dtype not in DTYPES:
        return f"gradients of {source.dtype}"
    if kind not in (_RedOp.SUM, _RedOp.AVG, _RedOp.PREMUL_SUM):
        return f"reduction {kind}"
    return "asynchronous" if async_op else None


def _kind_and_factor(op: Any, size: int) -> Tuple[object, float]:
    """Returns which reduction PyTorch asks for, and the factor by which the sum is multiplied."""
    kind = getattr(op, "op", op)
    if kind == _RedOp.AVG:
        return kind, 1.0 / size
    if kind == _RedOp.PREMUL_SUM:
        return kind, float(op.__getstate__()[1])
    return kind, 1.0
