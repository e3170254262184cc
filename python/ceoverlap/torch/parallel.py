# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Replaces nn.Linear modules of a model by tensor-parallel layers, by a plan that names them."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Optional, Union

from torch import nn

from .. import errors
from .functional import name_of
from .group import Group, named
from .linear import ColumnParallelLinear, RowParallelLinear


@dataclass(frozen=True)
class Column:
    """In a plan: make the module a ColumnParallelLinear with these options."""
    sequence_parallel: bool = True
    sequence_dim: int = 0


@dataclass(frozen=True)
class Row:
    """In a plan: make the module a RowParallelLinear with these options."""
    sequence_parallel: bool = True
    sequence_dim: int = 0


class _Place(NamedTuple):
    """A place in the model where an nn.Linear is replaced."""
    name: str
    parent: nn.Module
    attribute: str
    linear: nn.Linear
    style: Union[Column, Row]


def parallelize(module: nn.Module, group=None,
                plan: Optional[Dict[str, object]] = None) -> nn.Module:
    """Swaps the nn.Linear of a model in place, as
    torch.distributed.tensor.parallel.parallelize_module does, and returns the model.

        parallelize(model, group, {"layers.*.mlp.up": "column", "layers.*.mlp.down": "row"})

    plan   names of submodules, in which each part may have wildcards (fnmatch), to "column",
           "row", Column(...), Row(...), or PyTorch's ColwiseParallel and RowwiseParallel:
           Shard(d) as a column's input or a row's output is sequence_dim d, Replicate() (the
           default there, but not here) no sequence parallelism
    group  as everywhere in ceoverlap.torch

    All ranks hold the same model and pass the same plan. Weights are copied, so that one
    which was tied to another module's no longer is; hooks are not taken along; what counts
    features per rank (heads, for one) is the caller's to change. Refused before anything
    changes, at all ranks: names that match nothing, modules that are no plain nn.Linear with
    plain parameters, sizes that do not divide.
    """
    at = named(name_of(group))
    refusal, places = "", []
    try:
        places = _places(module, plan or {})
        _check(places, at)
    except errors.InvalidError as error:
        refusal = f"parallelize: rank {at.rank}: {error}"
    _agree(at, places, refusal)
    made: dict = {}                     # a module may be there twice
    for place in places:
        if id(place.linear) not in made:
            made[id(place.linear)] = _make(place, at)
        setattr(place.parent, place.attribute, made[id(place.linear)])
    return module


def _agree(group: Group, places: List[_Place], refusal: str) -> None:
    """Raises an error at all ranks if one refuses its plan or they replace different modules."""
    for told in group.exchange(refusal):
        if told:
            raise errors.InvalidError(refusal or told)
    group.agree("parallelize", repr([
        (place.name, place.style, place.linear.in_features, place.linear.out_features,
         place.linear.bias is not None, place.linear.weight.dtype) for place in places]))


def _matches(name: str, pattern: str) -> bool:
    parts, patterns = name.split("."), pattern.split(".")
    return len(parts) == len(patterns) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _places(module: nn.Module, plan: Dict[str, object]) -> List[_Place]:
    """Returns the places that the plan names, in the order of the model's modules."""
    all_modules = [(name, one) for name, one in module.named_modules(remove_duplicate=False)
                   if name]
    parents = dict(module.named_modules(remove_duplicate=False))
    places: Dict[str, _Place] = {}
    for pattern, value in plan.items():
        style = _style_of(pattern, value)
        matches = [(name, one) for name, one in all_modules if _matches(name, pattern)]
        if not matches:
            raise errors.InvalidError(f"plan {pattern!r} matches no submodule of "
                                      f"{type(module).__name__}")
        for name, linear in matches:
            if name in places:
                raise errors.InvalidError(f"{name} is matched by {pattern!r} and by another "
                                          "name of the plan")
            parent, _, attribute = name.rpartition(".")
            places[name] = _Place(name, parents[parent], attribute, linear, style)
    return [places[name] for name, _ in all_modules if name in places]


def _check(places: List[_Place], group: Group) -> None:
    styles: dict = {}
    for place in places:
        linear = place.linear
        if (not isinstance(linear, nn.Linear) or
                type(linear).forward is not nn.Linear.forward):
            raise errors.InvalidError(f"{place.name} is a {type(linear).__name__}: only "
                                      "nn.Linear can be swapped")
        _check_parameters(place)
        if styles.setdefault(id(linear), place.style) != place.style:
            raise errors.InvalidError(f"{place.name} is one module under two names with "
                                      "different styles")
        is_column = isinstance(place.style, Column)
        what = "out_features" if is_column else "in_features"
        n = getattr(linear, what)
        if n % group.size:
            raise errors.InvalidError(f"{place.name}: {what} {n} is no multiple of the "
                                      f"group's {group.size} ranks")


def _check_parameters(place: _Place) -> None:
    """Refuses sharded or parametrized parameters, whose copies would not follow later changes."""
    for name in ("weight", "bias"):
        one = getattr(place.linear, name)
        if one is not None and type(one) is not nn.Parameter:
            raise errors.InvalidError(
                f"{place.name}.{name} is a {type(one).__name__}, must be a plain nn.Parameter: "
                "parallelize() comes before fully_shard() and parametrizations")


def _make(place: _Place, group: Group) -> nn.Module:
    kind = ColumnParallelLinear if isinstance(place.style, Column) else RowParallelLinear
    return kind.from_linear(place.linear, group,
                            sequence_parallel=place.style.sequence_parallel,
                            sequence_dim=place.style.sequence_dim)


def _style_of(pattern: str, value) -> Union[Column, Row]:
    if isinstance(value, (Column, Row)):
        return value
    if value == "column":
        return Column()
    if value == "row":
        return Row()
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    if isinstance(value, ColwiseParallel):
        return _converted(pattern, value, Column, value.output_layouts[0],
                          value.input_layouts[0])
    if isinstance(value, RowwiseParallel):
        return _converted(pattern, value, Row, value.input_layouts[0],
                          value.output_layouts[0])
    raise errors.InvalidError(f"plan {pattern!r}: {value!r}: must be 'column', 'row', Column, "
                              "Row, ColwiseParallel or RowwiseParallel")


def _converted(pattern: str, value, kind: type, features, sequence) -> Union[Column, Row]:
    """Returns the Column or Row for a style of PyTorch's; features and sequence are the layouts
    of the layer's two sides."""
    is_last = features.is_shard() and features.dim == -1
    if is_last and value.use_local_output:
        if sequence.is_replicate():
            return kind(sequence_parallel=False)
        if sequence.is_shard() and sequence.dim >= 0:
            return kind(sequence_dim=sequence.dim)
    raise errors.InvalidError(
        f"plan {pattern!r}: {value}: features must be Shard(-1), the other side Replicate() "
        "or Shard() of a dimension before the last, and the output local")
