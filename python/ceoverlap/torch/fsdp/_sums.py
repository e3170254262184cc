# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The reduce-scatters of parameter groups whose sizes are known, in one workspace. Copy engines
move the gradients, and a kernel that uses few SMs sums them."""

from __future__ import annotations

from typing import Any, List, Set

import torch

from ... import ops
from .._channel import reduction_of
from ..group import Group
from ..operators import sum_length, sum_shape
from ._hooks import HookSums


class Family:
    """The parameter groups whose sums share one workspace. It is made for the largest of them
    at once, instead of growing from one to the next."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.param_groups: List[Any] = []
        self._dtypes: Set[torch.dtype] = set()

    def reserve(self, dtype: torch.dtype, scale: float) -> None:
        """At the first sum of this dtype, makes the operator, with this scale, and scratch
        memory for the largest run of any parameter group, unless a channel makes the sums. All
        ranks call it together."""
        if dtype in self._dtypes or reduction_of(self.group, scale) is not None:
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


class SumScatter(HookSums):
    """The reduce-scatters of one FSDP parameter group. `plain` is the implementation that the
    group had before."""

    words = "copy engines"

    def __init__(self, param_group: Any, family: Family) -> None:
        super().__init__(param_group._reduce_scatter_comm)
        self._param_group = param_group
        self._family = family
        self.groups[param_group.mesh_info.shard_process_group] = family.group
        family.param_groups.append(param_group)

    def _reserve(self, dtype: torch.dtype, scale: float) -> None:
        self._family.reserve(dtype, scale)

    def close(self) -> None:
        """Gives the parameter group its former reduce-scatter back. One that somebody else has
        set since then stays."""
        super().close()
        if self._param_group._reduce_scatter_comm is self:
            self._param_group._reduce_scatter_comm = self.plain
