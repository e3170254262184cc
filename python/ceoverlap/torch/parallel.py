# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Replaces nn.Linear modules of a model by tensor-parallel layers, by a plan that names them."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional, Set, Union

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import parallel

from .. import errors
from ._shares import MeshOrGroup, mesh_and_group, replicate
from .experts import SwiGLUExperts
from .group import Group
from .linear import ColumnParallelLinear, RowParallelLinear
from .styles import ColwiseParallel, RowwiseParallel, SequenceParallel, sides_of

__all__ = ["Column", "ColwiseParallel", "Row", "RowwiseParallel", "SequenceParallel", "Summed",
           "parallelize"]

# For digests of parameters: what they are read as, by the size of an element; how many at once; and
# an odd number whose multiples look random.
WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DIGEST_WORDS = 1 << 18
DIGEST_FACTOR = 0x1E3779B97F4A7C15

HOW = ("write parallelize(model, mesh, {'layers.*.up': 'column', 'layers.*.down': 'row'}), where "
       "mesh is a DeviceMesh of one dimension, a group, or None for the default process group")


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


@dataclass(frozen=True)
class Summed:
    """In a plan: leave the module as it is, which sees only this rank's part of the sequence, as
    norms between sequence-parallel layers do, and sum its parameters' gradients over the ranks."""


class _Place(NamedTuple):
    """A place in the model that the plan names."""
    name: str
    parent: nn.Module
    attribute: str
    linear: nn.Module                   # an nn.Linear, but for Summed
    style: Union[Column, Row, Summed]


def parallelize(module: nn.Module, group: MeshOrGroup = None,
                plan: Optional[Dict[str, object]] = None) -> nn.Module:
    """Swaps the nn.Linear of a model in place, as
    torch.distributed.tensor.parallel.parallelize_module does, and returns the model.

        parallelize(model, mesh, {"layers.*.mlp.up": "column", "layers.*.mlp.down": "row",
                                  "layers.*.norm": "summed"})

    plan   names of submodules, in which each part may have wildcards (fnmatch), to "column",
           "row", "summed", Column(...), Row(...), Summed(), or PyTorch's ColwiseParallel,
           RowwiseParallel and SequenceParallel: Shard(d) as a column's input or a row's output is
           sequence_dim d, Replicate() (the default there, but not here) no sequence
           parallelism; SequenceParallel is Summed()
    group  a DeviceMesh of one dimension, or as everywhere in ceoverlap.torch

    All parameters become DTensors: shares of the layers' weights, and replicas of all others, which
    modules use as local tensors while they run. So checkpoints, clip_grad_norm_() and optimizers of
    PyTorch's are right, and fully_shard() may be applied afterwards, over another dimension of the
    same mesh. SwiGLUExperts are this rank's of the experts of all ranks. Plain tensors stay: buffers,
    and parameters of nn.RNN and its kin.

    All ranks hold the same model and pass the same plan; both are compared. Weights are copied, so
    that one which was tied to another module's no longer is; hooks of swapped modules are not taken
    along; what counts features per rank (heads, for one) is the caller's to change. Refused before
    anything changes, at all ranks: names that match nothing, modules that are no plain nn.Linear
    with plain parameters, sizes that do not divide. TypeError: arguments in another order.
    """
    _check_arguments(module, group, plan)
    mesh, at = mesh_and_group(group)
    refusal, places = "", []
    try:
        places = _places(module, plan or {})
        _check(places, at)
    except errors.InvalidError as error:
        refusal = f"parallelize: rank {at.rank}: {error}"
    _agree(at, places, refusal)
    _compare(at, module)
    made: Dict[int, nn.Module] = {}     # a module may be there twice
    for place in places:
        if isinstance(place.style, Summed):
            continue
        if id(place.linear) not in made:
            made[id(place.linear)] = _make(place, mesh if isinstance(group, DeviceMesh) else at)
        setattr(place.parent, place.attribute, made[id(place.linear)])
    own = _own_modules(module)
    for one in own:
        if isinstance(one, SwiGLUExperts):
            one.share(mesh)
    replicate(module, mesh, own, {
        one: at.name for place in places if isinstance(place.style, Summed)
        for one in place.linear.modules()})
    return module


def _check_arguments(module: Any, group: object, plan: Any) -> None:
    """Raises a TypeError for arguments of another kind or order than parallelize() takes."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"parallelize: the first argument is a {type(module).__name__}, must be "
                        f"the model: {HOW}")
    if isinstance(group, dict) or isinstance(plan, (DeviceMesh, Group, dist.ProcessGroup)):
        raise TypeError("parallelize: the second argument is the mesh or group, the third one the "
                        f"plan: {HOW}")
    if not (group is None or isinstance(group, (str, DeviceMesh, Group, dist.ProcessGroup))):
        raise TypeError(f"parallelize: the second argument is a {type(group).__name__}: {HOW}")
    if not isinstance(plan, dict):
        raise TypeError(f"parallelize: the plan is a {type(plan).__name__}, must be a dict from "
                        f"names of submodules to styles: {HOW}")


def _own_modules(module: nn.Module) -> Set[nn.Module]:
    """Returns the modules whose parameters are this rank's own, so that they are no replicas."""
    kinds = (ColumnParallelLinear, RowParallelLinear, SwiGLUExperts)
    return {one for one in module.modules() if isinstance(one, kinds)}


def _agree(group: Group, places: List[_Place], refusal: str) -> None:
    """Raises an error at all ranks if one refuses its plan or they replace different modules."""
    for told in group.exchange(refusal):
        if told:
            raise errors.InvalidError(refusal or told)
    group.agree("parallelize", repr([
        (place.name, place.style) if isinstance(place.style, Summed) else
        (place.name, place.style, place.linear.in_features, place.linear.out_features,
         place.linear.bias is not None, place.linear.weight.dtype) for place in places]))


def _compare(group: Group, module: nn.Module) -> None:
    """Raises an error at all ranks, which names a parameter, if they do not hold the same one."""
    own = {id(parameter) for one in _own_modules(module) for parameter in one.parameters()}
    lines = [f"{name}: {parameter.dtype} {tuple(parameter.shape)}" +
             ("" if id(parameter) in own else f" {_digest(parameter):x}")
             for name, parameter in module.named_parameters()
             if type(parameter) is nn.Parameter]
    told = [one.splitlines() for one in group.exchange("\n".join(lines))]
    for rank, theirs in enumerate(told):
        for first, one in zip(told[0], theirs):
            if first != one:
                raise errors.InvalidError(
                    f"parallelize: rank 0 has {first}, rank {rank} has {one} (dtype, shape, digest "
                    "of values): all ranks have to hold the same model: seed them alike, or load "
                    "the same weights first")
        if len(theirs) != len(told[0]):
            raise errors.InvalidError(f"parallelize: rank 0 has {len(told[0])} parameters, rank "
                                      f"{rank} {len(theirs)}: all ranks have to hold the same "
                                      "model")


def _digest(parameter: nn.Parameter) -> int:
    """Returns a number of 64 bits that is the same for the same bits in the same order, and another
    one for others, almost certainly; 0 without memory. Sums of products wrap around."""
    if parameter.is_meta or not parameter.numel():
        return 0
    kind = WORDS[min(parameter.element_size(), 8)]
    words = parameter.detach().reshape(-1).contiguous().view(kind)
    factors = torch.arange(1, DIGEST_WORDS + 1, device=words.device) * DIGEST_FACTOR
    factors ^= factors >> 29            # else they would be as far apart as places are
    digest = 0
    for part in words.split(DIGEST_WORDS):
        own = int((part * factors[:len(part)]).sum())
        digest = (digest * DIGEST_FACTOR + own) % (1 << 64)
    return digest


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
    styles: Dict[int, Any] = {}
    for place in places:
        linear = place.linear
        if isinstance(place.style, Summed):
            _check_summed(place)
            continue
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


def _check_summed(place: _Place) -> None:
    """Refuses parameters that do not become replicas now, so that nothing would sum their
    gradients. Those of our own layers have whole gradients."""
    left = _own_modules(place.linear)
    for name, owner in place.linear.named_modules(prefix=place.name):
        for own, one in () if owner in left else owner.named_parameters(recurse=False):
            what = f"{name}.{own}"
            if isinstance(owner, nn.RNNBase):
                raise errors.InvalidError(f"{what} of a {type(owner).__name__} stays plain, so it "
                                          "cannot be 'summed': sum its gradient over the ranks")
            if type(one) is not nn.Parameter:
                raise errors.InvalidError(
                    f"{what} is a {type(one).__name__}, must be a plain nn.Parameter to be "
                    "'summed': name its module in the first parallelize() that sees it, before "
                    "fully_shard()")


def _check_parameters(place: _Place) -> None:
    """Refuses sharded or parametrized parameters, whose copies would not follow later changes."""
    for name in ("weight", "bias"):
        one = getattr(place.linear, name)
        if one is not None and type(one) is not nn.Parameter:
            raise errors.InvalidError(
                f"{place.name}.{name} is a {type(one).__name__}, must be a plain nn.Parameter: "
                "parallelize() comes before fully_shard() and parametrizations")


def _make(place: _Place, group: MeshOrGroup) -> nn.Module:
    assert isinstance(place.linear, nn.Linear) and not isinstance(place.style, Summed)
    kind = ColumnParallelLinear if isinstance(place.style, Column) else RowParallelLinear
    return kind.from_linear(place.linear, group,
                            sequence_parallel=place.style.sequence_parallel,
                            sequence_dim=place.style.sequence_dim)


def _style_of(pattern: str, value: Any) -> Union[Column, Row, Summed]:
    if isinstance(value, (Column, Row, Summed)):
        return value
    if value == "column":
        return Column()
    if value == "row":
        return Row()
    if value == "summed":
        return Summed()
    if isinstance(value, SequenceParallel):
        return Summed()
    if isinstance(value, parallel.ColwiseParallel):
        return _converted(pattern, value, Column, value.output_layouts[0],
                          value.input_layouts[0])
    if isinstance(value, parallel.RowwiseParallel):
        return _converted(pattern, value, Row, value.input_layouts[0],
                          value.output_layouts[0])
    raise errors.InvalidError(f"plan {pattern!r}: {value!r}: must be 'column', 'row', "
                              "'summed', Column, Row, Summed, or PyTorch's ColwiseParallel, "
                              "RowwiseParallel or SequenceParallel")


def _converted(pattern: str, value: Any, kind: type, features: Any,
               sequence: Any) -> Union[Column, Row]:
    """Returns the Column or Row for a style of PyTorch's; features and sequence are the layouts
    of the layer's two sides."""
    sides = sides_of(features, sequence)
    if sides is not None and value.use_local_output:
        return kind(*sides)
    raise errors.InvalidError(
        f"plan {pattern!r}: {value}: features must be Shard(-1), the other side Replicate() "
        "or Shard() of a dimension before the last, and the output local")
