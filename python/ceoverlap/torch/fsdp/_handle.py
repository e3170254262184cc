# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The handle that enable() returns: the parameter groups it found, and statistics about them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

import torch
import torch.nn as nn

from ... import errors
from ..group import Group

# Modules of all handles that are not disabled. FSDP2 does not tell whose hooks a module has.
_enabled: weakref.WeakSet[Any] = weakref.WeakSet()


@dataclass(frozen=True)
class GroupStats:
    """Statistics of one FSDP parameter group since enable().

    name             the module's name in the model, "" for the root
    n_ranks          number of ranks that share the group's parameters; by public hooks 0 before
                     the first call
    all_gather       who gathers: "copy engines", "PyTorch" with the reason, or both; "copy
                     engines by FSDP2's public hooks" where the handle's level is "public"
    reduce_scatter   who sums, in the same words
    n_gathers        number of all-gathers on copy engines
    gathered_bytes   bytes that this rank received in them from peers
    copied_bytes     of these, bytes that had to be copied once more, but not by FSDP2 itself
    n_sums           number of reduce-scatters on copy engines
    summed_bytes     bytes that this rank sent in them to peers
    n_plans          number of plans kept for all-gathers, of all parameter groups with the same
                     ranks together
    slot_bytes       memory of the slots from which peers read shards, of the same groups together
    """
    name: str
    n_ranks: int
    all_gather: str
    reduce_scatter: str
    n_gathers: int = 0
    gathered_bytes: int = 0
    copied_bytes: int = 0
    n_sums: int = 0
    summed_bytes: int = 0
    n_plans: int = 0
    slot_bytes: int = 0


@dataclass
class Part:
    """A parameter group of the model with its all-gather and reduce-scatter. Each of them is
    None if it could not be used; the reason says why, and gather_reason why only the all-gather
    could not. Of a group that only public hooks reach, the module is all that is known."""
    name: str
    module: Any                         # an FSDPModule
    reason: str = ""
    gather_reason: str = ""
    group: Optional[Group] = None
    gather: Any = None                  # a PullAllGather or a HookGather
    scatter: Any = None                 # a SumScatter or a HookSums

    @property
    def groups(self) -> List[Group]:
        """The Groups that its communication uses."""
        comms = [comm for comm in (self.gather, self.scatter) if comm is not None]
        return [group for comm in comms for group in comm.groups.values()]


def check_free(parts: List[Part]) -> None:
    """Refuses parts that belong to a handle already, of whichever level."""
    for part in parts:
        if part.module in _enabled:
            raise errors.StateError(f"enable: module {part.name!r} is enabled already: "
                                    "Handle.disable() first")


class Handle:
    """The handle that enable() returns. It keeps the model's modules alive.

    level  "inner" or "public", as enable() takes it
    """

    def __init__(self, parts: List[Part], level: str) -> None:
        self._parts = parts
        self.level = level
        _enabled.update(part.module for part in parts)

    @property
    def stats(self) -> List[GroupStats]:
        """A GroupStats for each parameter group, in the order of modules."""
        return [_stats_of(part) for part in self._parts]

    @property
    def slot_bytes(self) -> int:
        """This rank's memory in which shards wait until peers have read them: a few times the
        largest shard for each group of ranks, with any number of layers. 0 before the first
        all-gather."""
        return sum(staging.n_bytes for staging in self._stagings())

    def _stagings(self) -> List[Any]:
        found = [part.gather.staging for part in self._parts if part.gather is not None]
        return list({id(staging): staging for staging in found if staging}.values())

    def check(self) -> None:
        """Raises the error that ended an all-gather or a sum, if any. Never blocks. Without
        this call, the next all-gather of the same ranks or the next sum raises it."""
        for part in self._parts:
            for comm in (part.gather, part.scatter):
                if comm is not None:
                    comm.check()

    def disable(self) -> None:
        """Gives all communication back to PyTorch and releases the slots. All ranks call it,
        between steps. It may be called twice."""
        groups = {id(group): group for part in self._parts for group in part.groups}.values()
        _meet(groups)                   # no peer reads our slots any more
        for part in self._parts:
            if part.gather is not None:
                part.gather.close()
            if part.scatter is not None:
                part.scatter.close()
        for staging in self._stagings():
            staging.close()
        _meet(groups)                   # nor holds them
        _enabled.difference_update(part.module for part in self._parts)
        self._parts = []


def _meet(groups: Any) -> None:
    for group in groups:
        if group.is_gpu:
            torch.cuda.synchronize(group.device)
        if group.is_open:
            group.exchange("disable")


def _way_of(reason: str, comm: Any) -> str:
    if comm is None:
        return f"PyTorch: {reason or 'not asked for'}"
    why = ", ".join(f"{reason} ({n})" for reason, n in comm.reasons.items())
    if not why:
        return comm.words
    return f"{comm.words}; PyTorch: {why}" if comm.n_runs else f"PyTorch: {why}"


def _n_ranks(part: Part) -> int:
    if part.groups:
        return part.groups[0].size
    return 0 if part.gather or part.scatter else 1


def _stats_of(part: Part) -> GroupStats:
    counts: Dict[str, Any] = {}
    if part.gather is not None:
        counts.update(n_gathers=part.gather.n_runs, gathered_bytes=part.gather.n_bytes,
                      copied_bytes=part.gather.n_copied_bytes)
        if part.gather.staging is not None:
            counts.update(n_plans=part.gather.staging.n_plans,
                          slot_bytes=part.gather.staging.n_bytes)
    if part.scatter is not None:
        counts.update(n_sums=part.scatter.n_runs, summed_bytes=part.scatter.n_bytes)
    return GroupStats(part.name, _n_ranks(part),
                      _way_of(part.reason or part.gather_reason, part.gather),
                      _way_of(part.reason, part.scatter), **counts)
