# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Finds a model's FSDP2 parameter groups and makes what puts their communication on copy
engines."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

import torch.nn as nn

from .._compat import fsdp2, param_group_of
from ..group import Group
from ._handle import Part, check_free
from ._landing import PullAllGather
from ._pools import Pools
from ._staging import Staging
from ._sums import Family, SumScatter


def parts_of(model: nn.Module) -> List[Part]:
    """Returns a Part for each parameter group of the model. A group may belong to several
    modules."""
    parts: List[Part] = []
    seen = set()
    for name, module in model.named_modules():
        if not isinstance(module, fsdp2().Module):
            continue
        group: Any = param_group_of(module)
        if group is None or id(group) in seen:
            continue
        seen.add(id(group))
        part = Part(name, module)
        mesh_info = group.mesh_info
        if not isinstance(mesh_info, fsdp2().MeshInfo):
            part.reason = "not sharded"
        elif group.mesh_info.shard_process_group.size() == 1:
            part.reason = "a group of one rank"
        elif group.device.type not in ("cuda", "cpu"):
            part.reason = f"parameters on {group.device.type}"
        parts.append(part)
    return parts


class Shared(NamedTuple):
    """What parameter groups share: a Pools for each device, and a Staging and a Family for each
    Group, by its id()."""
    pools: Dict[Any, Any]
    stagings: Dict[int, Any]
    families: Dict[int, Any]


def join(part: Part) -> None:
    if not part.reason:
        param_group: Any = param_group_of(part.module)
        part.group = Group.of(param_group.mesh_info.shard_process_group, param_group.device)
        if part.group.n_nodes > 1:      # pulls read peers' memory, which other hosts cannot
            part.gather_reason = f"ranks on {part.group.n_nodes} hosts"


def inner_parts(model: nn.Module, gather: bool, scatter: bool) -> List[Part]:
    """Returns the parts of a model, with their communication replaced; see enable()."""
    parts = parts_of(model)
    check_free(parts)
    for part in parts:                  # which may refuse, so all of it comes first
        join(part)
    shared = Shared({}, {}, {})
    for part in parts:
        equip(part, shared, gather, scatter)
    return parts


def equip(part: Part, shared: Shared, gather: bool, scatter: bool) -> None:
    if part.group is None:
        return
    param_group = param_group_of(part.module)
    if gather and not part.gather_reason:
        device = part.group.device
        if device not in shared.pools:
            shared.pools[device] = Pools(device)
        staging = shared.stagings.setdefault(id(part.group), Staging(part.group))
        part.gather = PullAllGather(param_group, staging, shared.pools[device])
        part.module.set_custom_all_gather(part.gather)
    if scatter:
        family = shared.families.setdefault(id(part.group), Family(part.group))
        part.scatter = SumScatter(param_group, family)
        part.module.set_custom_reduce_scatter(part.scatter)
