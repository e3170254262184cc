# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Parameters as DTensors: they say which part of a whole tensor this rank has, so that checkpoints,
clipping and optimizers of PyTorch's are right. Modules compute with the local tensors in them."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple, Union, overload

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

from .. import errors
from ._compat import parameters_of
from .functional import all_reduce, name_of
from .group import Group, GroupLike, named

# Layers also take a DeviceMesh of one dimension.
MeshOrGroup = Union[GroupLike, DeviceMesh]


class _Mesh:
    """A DeviceMesh of one dimension with a group's ranks. See Group.part()."""

    def __init__(self, group: Group) -> None:
        process_group = group.process_group
        if process_group is None:
            raise errors.StateError(
                f"group {group.name}: parameters of layers are DTensors, which need a process "
                "group: call torch.distributed.init_process_group() before the group is made")
        # With a name FSDP2 says what is wrong where its own mesh has nothing to do with this one.
        self.mesh = DeviceMesh.from_group(process_group, group.device.type,
                                          mesh_dim_names=("ceoverlap",))

    def close(self) -> None:
        """Does nothing, because there is nothing to release."""


def mesh_and_group(group: MeshOrGroup) -> Tuple[DeviceMesh, Group]:
    """Returns the mesh of one dimension and the Group for a DeviceMesh, or for what else callers
    pass as group."""
    if not isinstance(group, DeviceMesh):
        at = named(name_of(group))
        return at.part(_Mesh).mesh, at
    if group.ndim != 1:
        names = group.mesh_dim_names
        raise errors.InvalidError(
            f"{group}: has {group.ndim} dimensions, must have one: " +
            (f"pass one of them, as mesh[{names[-1]!r}]" if names else
             "make it with mesh_dim_names, and pass mesh[name]"))
    return group, Group.of(group.get_group(), group.device_type)


def shared(local: torch.Tensor, mesh: DeviceMesh, placement: Placement,
           requires_grad: bool = True) -> nn.Parameter:
    """Returns a parameter of whose whole this rank has `local`, on the mesh's kind of device. Parts
    are equal at all ranks, which is not checked."""
    whole = DTensor.from_local(local.detach(), mesh, [placement], run_check=False)
    return nn.Parameter(whole, requires_grad)


@overload
def local(tensor: torch.Tensor) -> torch.Tensor: ...


@overload
def local(tensor: None) -> None: ...


def local(tensor: Optional[torch.Tensor]) -> Optional[torch.Tensor]:
    """Returns what this rank has of a layer's parameter, or of a gradient, with gradients."""
    if not isinstance(tensor, DTensor):
        return tensor
    if len(tensor.placements) != 1:
        raise errors.StateError(
            "a layer's parameter is sharded by FSDP2 as well, and was not gathered: call the layer, "
            "whose hooks do that, or apply fully_shard() to the module around it instead")
    return tensor.to_local()


def local_input(x: torch.Tensor, placement: Placement) -> torch.Tensor:
    """Returns what this rank has of an activation that is placed so, if it is a DTensor; else
    the activation, which is local."""
    return x.redistribute(placements=[placement]).to_local() if isinstance(x, DTensor) else x


class Replicated(torch.autograd.Function):
    """A tensor that is the same at all ranks, where each rank uses it for its part of the work.
    So its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: str) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return all_reduce(grad, ctx.group), None


def replicated_input(x: torch.Tensor, group: str) -> torch.Tensor:
    """Returns an activation that is the same at all ranks, of which each rank uses all for its part
    of the features. So ranks have parts of the gradient, that of a DTensor too, where PyTorch sums
    them once for all who use it."""
    if isinstance(x, DTensor):
        return x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    return Replicated.apply(x, group)


class _Place(NamedTuple):
    """A parameter that all ranks have. sums: the name of the group over whose ranks its gradient
    is summed, or ""."""
    owner: nn.Module
    name: str
    sums: str


class _Lent(NamedTuple):
    """A tensor that stands in the place of a parameter."""
    owner: nn.Module
    name: str
    parameter: torch.Tensor
    tensor: torch.Tensor


class _Lender:
    """Stands for a module's forward(), in which its replicated parameters, and those of its
    submodules, are the local tensors. So submodules may use each other's parameters. The module's
    own hooks before forward() see local tensors, too. One thread at a time. Copies of the model
    have copies of it, as deepcopy() makes them."""

    def __init__(self, module: nn.Module, places: List[_Place]) -> None:
        self._forward = module.forward
        self._places = places
        self._lent: List[_Lent] = []
        self._n_running = 0             # calls of forward(), within each other
        module.forward = self.forward
        module.register_forward_pre_hook(self.lend, prepend=True)
        module.register_forward_hook(self.take_back, always_call=True)  # a hook may have failed

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """Takes the tensors back in every case, also if the user ends the call (Ctrl-C), for which
        PyTorch calls no hooks."""
        try:
            if not self._lent:
                self.lend()
            self._n_running += 1
            try:
                return self._forward(*arguments, **options)
            finally:
                self._n_running -= 1
        finally:
            self.take_back()

    def lend(self, *_of_hook: object) -> None:
        if self._n_running:             # a call within itself: all is lent
            return
        self.take_back()                # what another hook left, which the user ended (Ctrl-C)
        for owner, name, sums in self._places:
            parameter = parameters_of(owner)[name]
            if not isinstance(parameter, DTensor) or not _is_replica(parameter):
                continue                # an outer module has lent it, or FSDP2 has to gather it
            own = parameter.to_local()
            tensor = Replicated.apply(own, sums) if sums else own
            self._lent.append(_Lent(owner, name, parameter, tensor))
            parameters_of(owner)[name] = tensor

    def take_back(self, *_of_hook: object) -> None:
        while self._lent and not self._n_running:
            owner, name, parameter, tensor = self._lent.pop()
            if parameters_of(owner)[name] is tensor:    # else FSDP2 has sharded it meanwhile
                parameters_of(owner)[name] = parameter


def _is_replica(parameter: DTensor) -> bool:
    return len(parameter.placements) == 1 and parameter.placements[0].is_replicate()


def replicate(module: nn.Module, mesh: DeviceMesh, left: Set[nn.Module],
              summed: Dict[nn.Module, str]) -> None:
    """Makes the plain parameters of a model DTensors that all ranks have, but for those of the
    modules in `left`. What is tied stays tied. summed: modules of whose parameters the gradients
    are summed over ranks, with the group's name."""
    made: Dict[int, nn.Parameter] = {}
    places: Dict[nn.Module, List[_Place]] = {}
    for owner in module.modules():
        # An nn.RNN keeps its parameters in a further list, which would not follow.
        if owner in left or isinstance(owner, nn.RNNBase):
            continue
        for name, parameter in parameters_of(owner).items():
            if id(parameter) not in made:
                if type(parameter) is not nn.Parameter:
                    continue
                made[id(parameter)] = _replica(parameter, mesh)
            parameters_of(owner)[name] = made[id(parameter)]
            places.setdefault(owner, []).append(_Place(owner, name, summed.get(owner, "")))
    for one in module.modules():
        inner = [place for owner in one.modules() for place in places.get(owner, ())]
        if inner:
            _Lender(one, inner)


def _replica(parameter: nn.Parameter, mesh: DeviceMesh) -> nn.Parameter:
    return shared(parameter, mesh, Replicate(), parameter.requires_grad)
