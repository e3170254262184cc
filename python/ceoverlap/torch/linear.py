# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Tensor-parallel Linear layers, and how a model's nn.Linear become such.

Column  weight out/size x in: from whole activations to the rank's share of features.
Row     weight out x in/size: from the rank's share of features to whole activations.

With sequence_parallel (the default) the input of a column layer and the output of a row
layer are the rank's part of dimension ``sequence_dim`` (0; 1 for batch-first (B, S, H)):
the gather and the sum overlap with the product. Without, they are replicated: a row layer
ends with an all-reduce, a column layer's gradient has one. Shapes, for a sequence of S and
equal parts:

    x = column(x)       S/size x ... x in       ->  S x ... x out/size
    x = row(x)          S x ... x in/size       ->  S/size x ... x out

Parameters are DTensors on a mesh of the group's ranks, sharded or replicated as those of PyTorch's
styles are, and so are their gradients and the state_dict. Streams, graphs and dtypes:
functional.py. Layers know their group by its name, so that torch.compile traces them as a whole;
autocast is followed.
"""

from __future__ import annotations

import math
from typing import Any, List, Optional, Protocol, Sequence, Tuple, TypeVar, Union

import torch
from torch import nn
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard
from torch.nn import functional as F

from .. import errors
from ._shares import (MeshOrGroup, Replicated, local, local_input, mesh_and_group,
                      replicated_input, shared)
from .functional import all_gather_matmul, all_reduce, matmul_reduce_scatter


class _Summed(torch.autograd.Function):
    """The sum over ranks of a tensor, which all ranks use in the same manner. So its gradient
    is complete at each rank already."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: str) -> torch.Tensor:
        return all_reduce(x, group)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad, None


_Some = TypeVar("_Some", torch.Tensor, Optional[torch.Tensor])


def cast(*tensors: _Some) -> List[_Some]:
    """Returns the tensors in the dtype that autocast would give the operands of nn.Linear."""
    assert tensors[0] is not None
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    dtype = torch.get_autocast_dtype(kind)
    return [None if one is None else one.to(dtype) for one in tensors]


class Divided(Protocol):
    """What a layer's products need to know of the ranks: a layer of this module is one, and so is
    what styles.py sets beside an nn.Linear."""

    @property
    def group(self) -> str: ...         # its name

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def sequence_parallel(self) -> bool: ...

    @property
    def sequence_dim(self) -> int: ...


def whole_placement(at: Divided) -> Placement:
    """Returns how the activation on a layer's whole side is placed: a column layer's input, a row
    layer's output."""
    return Shard(at.sequence_dim) if at.sequence_parallel else Replicate()


def _sequence_first(at: Divided, x: torch.Tensor) -> torch.Tensor:
    """Returns x with the sequence dimension, which is shared out to ranks, moved to the front."""
    if not 0 <= at.sequence_dim < x.dim() - 1:
        raise errors.InvalidError(
            f"{type(at).__name__}: sequence_dim {at.sequence_dim} of an input of shape "
            f"{tuple(x.shape)}: must be a dimension before the last, from 0 on")
    return x.movedim(at.sequence_dim, 0)


def _check_share(at: Divided, n: int, what: str) -> None:
    if n % at.size:
        raise errors.InvalidError(
            f"{type(at).__name__}: rank {at.rank}: {what} {n} is no multiple of the group's "
            f"{at.size} ranks: pad the layer, or take a group that divides it")


def _divided(layer: nn.Module) -> Divided:
    """Returns a layer of this module itself, or what a style has set beside an nn.Linear."""
    found: Any = layer if isinstance(layer, _ParallelLinear) else getattr(layer, "overlapped", None)
    if found is None:
        raise errors.InvalidError(f"together: {layer} is no column layer")
    return found


class _ParallelLinear(nn.Module):
    """What ColumnParallelLinear and RowParallelLinear have in common."""

    _placements: Tuple[Placement, Placement]    # of weight and bias
    weight: nn.Parameter
    bias: Optional[nn.Parameter]

    def __init__(self, in_features: int, out_features: int, group: MeshOrGroup,
                 sequence_parallel: bool, sequence_dim: int) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        at = mesh_and_group(group)[1]
        self.group: str = at.name
        self.rank: int = at.rank
        self.size: int = at.size
        self.sequence_parallel = sequence_parallel
        self.sequence_dim = sequence_dim

    def _share(self, n: int, what: str) -> int:
        _check_share(self, n, what)
        return n // self.size

    def _make(self, group: MeshOrGroup, shape: Tuple[int, int], n_bias: int,
              **options: Any) -> None:
        mesh, (of_weight, of_bias) = mesh_and_group(group)[0], self._placements
        self.weight = shared(torch.empty(shape, **options), mesh, of_weight)
        if n_bias:
            self.bias = shared(torch.empty(n_bias, **options), mesh, of_bias)
        else:
            self.register_parameter("bias", None)

    def _take(self, linear: nn.Linear, weight: torch.Tensor,
              bias: Optional[torch.Tensor]) -> None:
        """Makes copies of this rank's shares of a whole layer the parameters."""
        assert isinstance(self.weight, DTensor)
        mesh, (of_weight, of_bias) = self.weight.device_mesh, self._placements
        self.weight = shared(weight.clone(memory_format=torch.contiguous_format), mesh,
                             of_weight, linear.weight.requires_grad)
        if bias is not None:
            self.bias = shared(bias.clone(), mesh, of_bias, linear.bias.requires_grad)
        self.train(linear.training)

    def _bound(self) -> float:
        """Returns the bound of nn.Linear's initial weights, which depends on the whole layer's
        width."""
        return 1 / math.sqrt(self.in_features) if self.in_features else 0.0

    def extra_repr(self) -> str:
        return (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, group={self.group!r}, rank={self.rank} of "
                f"{self.size}, sequence_parallel={self.sequence_parallel}, "
                f"sequence_dim={self.sequence_dim}")


def _flat_rows(rows: Optional[Sequence[int]], x: torch.Tensor) -> Optional[List[int]]:
    """Returns each rank's number of rows if x, whose first dimension is shared out, is a
    matrix."""
    inner = math.prod(x.shape[1:-1])
    return None if rows is None else [n * inner for n in rows]


class ColumnParallelLinear(_ParallelLinear):
    """y = x W^T + b, where this rank has out_features/size rows of W and of b.

    group          as everywhere in ceoverlap.torch, or a DeviceMesh of one dimension, which is
                   then that of the parameters; all ranks make the same layers
    sequence_parallel, sequence_dim
                   see the module

    The first weights are drawn from this rank's generator as nn.Linear's: give ranks
    different seeds. The result is the rank's share of features: a row layer takes it.
    """

    _placements = (Shard(0), Shard(0))

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 device: Union[None, str, torch.device] = None,
                 dtype: Optional[torch.dtype] = None, *, group: MeshOrGroup = None,
                 sequence_parallel: bool = True, sequence_dim: int = 0) -> None:
        super().__init__(in_features, out_features, group, sequence_parallel, sequence_dim)
        share = self._share(out_features, "out_features")
        self._make(group, (share, in_features), share if bias else 0, device=device,
                   dtype=dtype)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                nn.init.uniform_(local(parameter), -self._bound(), self._bound())

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: MeshOrGroup = None, *,
                    sequence_parallel: bool = True, sequence_dim: int = 0) -> ColumnParallelLinear:
        """Returns a layer with a copy of this rank's share of a layer that all ranks hold
        alike."""
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, "meta",
                    group=group, sequence_parallel=sequence_parallel,
                    sequence_dim=sequence_dim)
        share = linear.out_features // layer.size
        own = slice(layer.rank * share, (layer.rank + 1) * share)
        layer._take(linear, linear.weight[own],
                    None if linear.bias is None else linear.bias[own])
        return layer

    def forward(self, x: torch.Tensor, rows: Optional[Sequence[int]] = None) -> torch.Tensor:
        """Returns the layer's result for x. rows: each rank's part of the sequence; None: equal
        parts."""
        return self.together([self], x, rows)[0]

    @staticmethod
    def together(layers: Sequence[_ColumnLayer], x: torch.Tensor,
                 rows: Optional[Sequence[int]] = None) -> List[torch.Tensor]:
        """Returns the results of several layers for one x, which is gathered only once: for
        example gate and up of an MLP, or q, k and v. Layers are such ones, or each an nn.Linear
        with the style ColwiseParallel of ceoverlap.torch.parallel. Their hooks are not called, and
        results are local tensors."""
        first = _divided(layers[0])
        for layer in layers:
            at = _divided(layer)
            if ((at.group, at.sequence_parallel, at.sequence_dim) !=
                    (first.group, first.sequence_parallel, first.sequence_dim)):
                raise errors.InvalidError(
                    f"together: {layer} beside {layers[0]}: group, sequence_parallel and "
                    "sequence_dim must be the same")
        return column_products(first, layers, x, rows)


def column_products(at: Divided, layers: Sequence[_ColumnLayer], x: torch.Tensor,
                    rows: Optional[Sequence[int]] = None) -> List[torch.Tensor]:
    """Returns the results of column layers for one x. layers: modules with such a layer's
    weight and bias, DTensors; rows: see ColumnParallelLinear.forward()."""
    x, *weights = cast(x, *(local(layer.weight) for layer in layers))
    if at.sequence_parallel:
        results = _gathered_products(at, local_input(x, whole_placement(at)), weights, rows)
    else:
        x = replicated_input(x, at.group)
        results = [F.linear(x, weight) for weight in weights]
    return [result if layer.bias is None else result + local(layer.bias).to(result.dtype)
            for layer, result in zip(layers, results)]


def _gathered_products(at: Divided, x: torch.Tensor, weights: Sequence[torch.Tensor],
                       rows: Optional[Sequence[int]]) -> List[torch.Tensor]:
    x = _sequence_first(at, x)
    n = x.shape[0] * at.size if rows is None else sum(rows)
    results = all_gather_matmul(x.reshape(-1, x.shape[-1]), list(weights), at.group,
                                _flat_rows(rows, x))
    return [result.view(n, *x.shape[1:-1], result.shape[-1]).movedim(0, at.sequence_dim)
            for result in results]


class RowParallelLinear(_ParallelLinear):
    """y = sum over ranks of x W^T, plus b, where this rank has in_features/size columns of W
    and the whole b, which is added once.

    The arguments are ColumnParallelLinear's. The first weights are drawn from this rank's
    generator; b starts with zeros, because it has to be the same at all ranks.
    """

    _placements = (Shard(1), Replicate())

    def __init__(self, in_features: int, out_features: int, bias: bool = True,
                 device: Union[None, str, torch.device] = None,
                 dtype: Optional[torch.dtype] = None, *, group: MeshOrGroup = None,
                 sequence_parallel: bool = True, sequence_dim: int = 0) -> None:
        super().__init__(in_features, out_features, group, sequence_parallel, sequence_dim)
        share = self._share(in_features, "in_features")
        self._make(group, (out_features, share), out_features if bias else 0, device=device,
                   dtype=dtype)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        nn.init.uniform_(local(self.weight), -self._bound(), self._bound())
        if self.bias is not None:
            nn.init.zeros_(local(self.bias))

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: MeshOrGroup = None, *,
                    sequence_parallel: bool = True, sequence_dim: int = 0) -> RowParallelLinear:
        """Returns a layer with a copy of this rank's share of a layer that all ranks hold
        alike."""
        layer = cls(linear.in_features, linear.out_features, linear.bias is not None, "meta",
                    group=group, sequence_parallel=sequence_parallel,
                    sequence_dim=sequence_dim)
        share = linear.in_features // layer.size
        own = slice(layer.rank * share, (layer.rank + 1) * share)
        layer._take(linear, linear.weight[:, own], linear.bias)
        return layer

    def forward(self, x: torch.Tensor, rows: Optional[Sequence[int]] = None) -> torch.Tensor:
        """Returns the layer's result for x. rows: each rank's part of the sequence; None: equal
        parts."""
        return row_product(self, self, x, rows)


def row_product(at: Divided, layer: _RowLayer, x: torch.Tensor,
                rows: Optional[Sequence[int]] = None) -> torch.Tensor:
    """Returns the result of a row layer for x. layer: a module with such a layer's weight and
    bias, DTensors; rows: see RowParallelLinear.forward()."""
    x, weight = cast(local_input(x, Shard(-1)), local(layer.weight))
    if not at.sequence_parallel:
        y = _Summed.apply(F.linear(x, weight), at.group)
        return y if layer.bias is None else y + local(layer.bias).to(y.dtype)
    x = _sequence_first(at, x)
    if rows is None:                    # not a list of equal ones: a compiler would fix them
        _check_share(at, x.shape[0], "a sequence of")
    y = matmul_reduce_scatter(x.reshape(-1, x.shape[-1]), weight, at.group, _flat_rows(rows, x))
    n = x.shape[0] // at.size if rows is None else rows[at.rank]
    y = y.view(n, *x.shape[1:-1], y.shape[-1]).movedim(0, at.sequence_dim)
    if layer.bias is None:
        return y
    # each rank adds it to its rows only
    return y + Replicated.apply(local(layer.bias), at.group).to(y.dtype)


# Layers, and nn.Linear that a style of styles.py has made such.
_ColumnLayer = Union[ColumnParallelLinear, nn.Linear]
_RowLayer = Union[RowParallelLinear, nn.Linear]
