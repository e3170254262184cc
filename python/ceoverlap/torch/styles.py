# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's styles of tensor parallelism, for its own parallelize_module(), with products that
overlap with their communication:

    from ceoverlap.torch.parallel import ColwiseParallel, RowwiseParallel   # instead of PyTorch's

    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(input_layouts=Shard(1)),
                                           "down": RowwiseParallel(output_layouts=Shard(1))})

The nn.Linear stays, with its hooks and names; its parameters are the DTensors that PyTorch's style
makes, and its forward() is that of ColumnParallelLinear or RowParallelLinear. Shard(d) as a
column's input or a row's output overlaps; with Replicate() a row's sum and the sum of a column's
gradient are ours. What the layers cannot do is left to PyTorch's style, and an info line says why:
other modules than nn.Linear, other layouts, sizes that do not divide, dtypes that are not summed."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple, Optional

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import (DTensor, Placement, Replicate, Shard, distribute_tensor,
                                      parallel)
from torch.distributed.tensor.parallel import SequenceParallel

from ._shares import mesh_and_group
from .linear import column_products, row_product, whole_placement
from .operators import DTYPES

__all__ = ["ColwiseParallel", "RowwiseParallel", "SequenceParallel"]


class Sides(NamedTuple):
    """The options of a layer of linear.py that say how its whole side is placed."""
    sequence_parallel: bool
    sequence_dim: int


def sides_of(features: Placement, sequence: Placement) -> Optional[Sides]:
    """Returns the layer's options for the layouts of its two sides, that of its features and the
    whole one; None if layers have no such options."""
    if not isinstance(features, Shard) or features.dim != -1:
        return None
    if sequence.is_replicate():
        return Sides(False, 0)
    if isinstance(sequence, Shard) and sequence.dim >= 0:
        return Sides(True, sequence.dim)
    return None


class _Overlapped:
    """Has the forward() of an nn.Linear, which is a bound method, so that copies of the module have
    a copy of it."""

    def __init__(self, linear: nn.Linear, mesh: DeviceMesh, sides: Sides, is_local: bool) -> None:
        at = mesh_and_group(mesh)[1]
        self.group: str = at.name
        self.rank: int = at.rank
        self.size: int = at.size
        self.sequence_parallel: bool = sides.sequence_parallel
        self.sequence_dim: int = sides.sequence_dim
        self.linear = linear
        self._is_local = is_local

    def _given(self, y: torch.Tensor, placement: Placement) -> torch.Tensor:
        """Returns the result as the style's use_local_output says."""
        if self._is_local:
            return y
        assert isinstance(self.linear.weight, DTensor)
        return DTensor.from_local(y, self.linear.weight.device_mesh, [placement], run_check=False)


class OverlappedColumn(_Overlapped):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._given(column_products(self, [self.linear], input)[0], Shard(-1))


class OverlappedRow(_Overlapped):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self._given(row_product(self, self.linear, input), whole_placement(self))


def _why_not(linear: nn.Module, mesh: DeviceMesh, sides: Optional[Sides], what: str) -> str:
    """Returns why a module is left to PyTorch's style, the same at all ranks; "" if it is not.
    what: the size that is divided over the ranks."""
    if (not isinstance(linear, nn.Linear) or "forward" in vars(linear) or
            type(linear).forward is not nn.Linear.forward):
        return f"a {type(linear).__name__} is no plain nn.Linear"
    if sides is None:
        return ("of the layouts the one of the features must be Shard(-1), the other one "
                "Replicate() or Shard() of a dimension before the last, from 0 on")
    for name, one in linear.named_parameters(recurse=False):
        if type(one) is not nn.Parameter or one.dtype not in DTYPES:
            return f"{name} is a {type(one).__name__} of {one.dtype}"
    if type(linear.weight) is not nn.Parameter:
        return f"weight is a {type(linear.weight).__name__}"
    if mesh.ndim != 1:
        return f"{mesh} has {mesh.ndim} dimensions"
    n = getattr(linear, what)
    return f"{what} {n} is no multiple of {mesh.size()} ranks" if n % mesh.size() else ""


def _leave(style: Any, reason: str) -> None:
    logging.getLogger("ceoverlap").info("%s: left to PyTorch's style: %s", style, reason)


def _distribute(style: Any, linear: nn.Linear, mesh: DeviceMesh, weight: Placement,
                bias: Placement) -> None:
    """Makes the parameters DTensors, of the whole ones that style.src_data_rank has."""
    for name, placement in (("weight", weight), ("bias", bias)):
        one = getattr(linear, name)
        if one is not None:
            whole = distribute_tensor(one, mesh, [placement], src_data_rank=style.src_data_rank)
            setattr(linear, name, nn.Parameter(whole, one.requires_grad))


def _overlap(linear: nn.Linear, overlapped: Any) -> nn.Module:
    setattr(linear, "overlapped", overlapped)
    setattr(linear, "forward", overlapped.forward)
    return linear


class ColwiseParallel(parallel.ColwiseParallel):
    """PyTorch's ColwiseParallel with the product of ColumnParallelLinear; see the module."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        (source,), (target,) = self.input_layouts, self.output_layouts
        sides = sides_of(target, source)
        reason = _why_not(module, device_mesh, sides, "out_features")
        if reason:
            _leave(self, reason)
            return super()._apply(module, device_mesh)
        assert isinstance(module, nn.Linear) and sides is not None
        overlapped = OverlappedColumn(module, device_mesh, sides, self.use_local_output)
        _distribute(self, module, device_mesh, Shard(0), Shard(0))
        return _overlap(module, overlapped)


class RowwiseParallel(parallel.RowwiseParallel):
    """PyTorch's RowwiseParallel with the product of RowParallelLinear; see the module."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        (source,), (target,) = self.input_layouts, self.output_layouts
        sides = sides_of(source, target)
        reason = _why_not(module, device_mesh, sides, "in_features")
        if reason:
            _leave(self, reason)
            return super()._apply(module, device_mesh)
        assert isinstance(module, nn.Linear) and sides is not None
        overlapped = OverlappedRow(module, device_mesh, sides, self.use_local_output)
        _distribute(self, module, device_mesh, Shard(1), Replicate())
        return _overlap(module, overlapped)
