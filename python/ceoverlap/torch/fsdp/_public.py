# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Finds a model's FSDP2 modules and replaces their communication by public hooks."""

from __future__ import annotations

from typing import Any, List, Set

import torch.nn as nn

from .._compat import look_at_fsdp2_hooks
from ._handle import Part, check_free
from ._hooks import HookGather, HookSums, plain_all_gather, plain_reduce_scatter


def public_parts(model: nn.Module, gather: bool, scatter: bool) -> List[Part]:
    """Returns a Part for each FSDP2 module of the model that has parameters of its own, with
    hooks of ours. Of modules that share one parameter group, FSDP2 calls the last one's."""
    parts = _parts_of(model)
    check_free(parts)
    for part in parts:
        _equip(part, gather, scatter)
    return parts


def _parts_of(model: nn.Module) -> List[Part]:
    kind = look_at_fsdp2_hooks()
    seen: Set[int] = set()
    parts: List[Part] = []
    for name, module in reversed(list(model.named_modules())):      # children come first
        if isinstance(module, kind) and _takes_new(module, seen):
            parts.append(Part(name, module))
    return parts[::-1]


def _takes_new(module: Any, seen: Set[int]) -> bool:
    """Returns whether the module has parameters that are not seen yet, and marks them as seen."""
    new = {id(parameter) for parameter in module.parameters()} - seen
    seen |= new
    return bool(new)


def _equip(part: Part, gather: bool, scatter: bool) -> None:
    try:
        if gather:
            hook = HookGather(plain_all_gather)
            part.module.set_custom_all_gather(hook)
            part.gather = hook
        if scatter:
            sums = HookSums(plain_reduce_scatter)
            part.module.set_custom_reduce_scatter(sums)
            part.scatter = sums
    except ValueError as error:         # parameter groups of several meshes in one module
        part.reason = str(error)
