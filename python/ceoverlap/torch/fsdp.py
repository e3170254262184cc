# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's FSDP2 (fully_shard) on copy engines.

    from ceoverlap.torch import fsdp

    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    handle = fsdp.enable(model)         # the model trains as before
    ...
    print(handle.stats[0])
    handle.disable()                    # PyTorch's own communication again

All-gathers take no SM: each rank's copy engine pulls the shards from its peers straight into
the unsharded parameters. Reduce-scatters move on copy engines and sum in fp32 in a bounded
kernel. All ranks enable and disable together; results are PyTorch's, but for the rounding of
averages (see _sums.py) and the order of sums.

What is not understood (compiled autograd, all-gather extensions such as float8's, gradients
of other dtypes, ...) stays with PyTorch, group by group, and the stats say why.
"""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from typing import Any, List, NamedTuple, Optional

import torch
import torch.nn as nn

from .. import errors
from .group import Group

KNOWN_VERSIONS = "2.11"


@dataclass(frozen=True)
class GroupStats:
    """One FSDP parameter group since enable().

    name             the module's name in the model, "" for the root
    n_ranks          that share its parameters
    all_gather       "copy engines", "PyTorch" with the reason, or both
    reduce_scatter   likewise
    n_gathers, gathered_bytes
                     all-gathers on copy engines, and bytes that this rank got from peers
    copied_bytes     of these, what had to be copied once more
    n_sums, summed_bytes
                     reduce-scatters of ours, and bytes that this rank sent to peers
    n_plans, slot_bytes
                     plans of all-gathers that are kept, and memory of the slots that peers
                     read shards from: of all parameter groups with the same ranks together
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
class _Part:
    """A parameter group of the model, and what it got: a PullAllGather and a SumScatter,
    or None with the reason."""
    name: str
    module: nn.Module
    reason: str = ""
    group: Optional[Group] = None
    gather: Any = None
    scatter: Any = None


class Handle:
    """What enable() returns. It keeps the model's modules."""

    def __init__(self, parts: List[_Part]):
        self._parts = parts

    @property
    def stats(self) -> List[GroupStats]:
        """A GroupStats for each parameter group, in the order of modules."""
        return [_stats_of(part) for part in self._parts]

    @property
    def slot_bytes(self) -> int:
        """Memory of this rank that shards wait in for peers: a few of the largest shard for
        each group of ranks, however many layers. 0 before the first all-gather."""
        return sum(staging.n_bytes for staging in self._stagings())

    def _stagings(self) -> list:
        found = [part.gather.staging for part in self._parts if part.gather is not None]
        return list({id(staging): staging for staging in found}.values())

    def check(self) -> None:
        """Raises the error that ended an all-gather or a sum, if one did. Never blocks. The
        next all-gather of the same ranks, or the next sum, finds it by itself."""
        for staging in self._stagings():
            staging.check()
        for part in self._parts:
            if part.scatter is not None:
                part.scatter.check()

    def disable(self) -> None:
        """PyTorch's communication again, and the slots are released. All ranks call it,
        between steps. Twice is harmless."""
        parts = [part for part in self._parts if part.group is not None]
        groups = {id(part.group): part.group for part in parts}.values()
        _meet(groups)                   # no peer reads our slots any more
        for part in parts:
            if part.gather is not None:
                part.gather.close()
            if part.scatter is not None:
                part.scatter.close()
        for staging in self._stagings():
            staging.close()
        _meet(groups)                   # nor holds them
        self._parts = []


def _meet(groups) -> None:
    for group in groups:
        if group.is_gpu:
            torch.cuda.synchronize(group.device)
        if group.is_open:
            group.exchange("disable")


def enable(model: nn.Module, *, gather: bool = True, scatter: bool = True) -> Handle:
    """Puts the communication of a model's FSDP2 parameter groups on copy engines. After
    fully_shard() was applied to the submodules and the root; by all ranks together.

    gather, scatter  which of both

    The process groups that shard parameters have to be on one host; each gets a
    ceoverlap.torch.Group (for another deadline than its default one make it before, by
    Group(process_group, deadline_s=...)). With HSDP the shards' communication is ours, the
    all-reduce among replicas stays PyTorch's.

    Streams wait for peers in the GPU. What they wait for does not depend on what the process
    does next: it may load kernels and free memory meanwhile.

    VersionError: this PyTorch's FSDP2 is not what is known. InvalidError: no parameter group,
    several hosts. StateError: enabled already, or one hardware queue for all streams.
    """
    _check_version()
    _check_environment(model)
    parts = _parts_of(model)
    if not parts:
        raise errors.InvalidError("enable: the model has no FSDP2 parameter group: apply "
                                  "torch.distributed.fsdp.fully_shard() to it first")
    for part in parts:                  # which may refuse, so all of it comes first
        _join(part)
    shared = _Shared({}, {}, {})
    for part in parts:
        _equip(part, shared, gather, scatter)
    return Handle(parts)


# --- parameter groups ---------------------------------------------------------------------


def _parts_of(model: nn.Module) -> List[_Part]:
    """A parameter group may belong to several modules."""
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.fsdp._fully_shard._fsdp_common import FSDPMeshInfo

    from ._landing import PullAllGather
    from ._sums import SumScatter

    parts: List[_Part] = []
    seen = set()
    for name, module in model.named_modules():
        if not isinstance(module, FSDPModule):
            continue
        group = module._get_fsdp_state()._fsdp_param_group
        if group is None or id(group) in seen:
            continue
        if (isinstance(group._all_gather_comm, PullAllGather) or
                isinstance(group._reduce_scatter_comm, SumScatter)):
            raise errors.StateError(f"enable: module {name!r} is enabled already: "
                                    "Handle.disable() first")
        seen.add(id(group))
        part = _Part(name, module)
        if not isinstance(group.mesh_info, FSDPMeshInfo):
            part.reason = "not sharded"
        elif group.mesh_info.shard_process_group.size() == 1:
            part.reason = "a group of one rank"
        elif group.device.type not in ("cuda", "cpu"):
            part.reason = f"parameters on {group.device.type}"
        parts.append(part)
    return parts


class _Shared(NamedTuple):
    """What parameter groups have in common: Pools by device; a Staging and a Family by id of
    a Group."""
    pools: dict
    stagings: dict
    families: dict


def _join(part: _Part) -> None:
    if not part.reason:
        param_group = part.module._get_fsdp_state()._fsdp_param_group
        part.group = Group.of(param_group.mesh_info.shard_process_group, param_group.device)


def _equip(part: _Part, shared: _Shared, gather: bool, scatter: bool) -> None:
    from ._landing import PullAllGather
    from ._pools import Pools
    from ._staging import Staging
    from ._sums import Family, SumScatter

    if part.group is None:
        return
    param_group = part.module._get_fsdp_state()._fsdp_param_group
    if gather:
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


def _way_of(part: _Part, comm) -> str:
    if comm is None:
        return f"PyTorch: {part.reason or 'not asked for'}"
    why = ", ".join(f"{reason} ({n})" for reason, n in comm.reasons.items())
    if not why:
        return "copy engines"
    return f"copy engines; PyTorch: {why}" if comm.n_runs else f"PyTorch: {why}"


def _stats_of(part: _Part) -> GroupStats:
    counts = {}
    if part.gather is not None:
        counts.update(n_gathers=part.gather.n_runs, gathered_bytes=part.gather.n_bytes,
                      copied_bytes=part.gather.n_copied_bytes,
                      n_plans=part.gather.staging.n_plans,
                      slot_bytes=part.gather.staging.n_bytes)
    if part.scatter is not None:
        counts.update(n_sums=part.scatter.n_runs, summed_bytes=part.scatter.n_bytes)
    return GroupStats(part.name, part.group.size if part.group else 1,
                      _way_of(part, part.gather), _way_of(part, part.scatter), **counts)


def _check_environment(model: nn.Module) -> None:
    """What CUDA has been told before its first use."""
    if not any(parameter.is_cuda for parameter in model.parameters()):
        return
    if os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1":
        raise errors.StateError("enable: CUDA_DEVICE_MAX_CONNECTIONS=1: an all-gather that "
                                "waits for a peer would hold up all other streams: set it "
                                "to 32, or leave it unset")


# --- versions -------------------------------------------------------------------------------


def _check_version() -> None:
    """FSDP2's inner parts are no public interface: what is used of them is looked at."""
    missing = _missing()
    if missing:
        raise errors.VersionError(f"enable: PyTorch {torch.__version__}: FSDP2 has no "
                                  f"{missing}; known to work: {KNOWN_VERSIONS}")


def _missing() -> str:
    """The first thing that is not there, or ""."""
    try:
        from torch.distributed.fsdp import FSDPModule
        from torch.distributed.fsdp._fully_shard import _fsdp_api, _fsdp_collectives
        from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
        from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup
    except ImportError as error:
        return str(error)
    wanted = [(FSDPModule, "set_custom_all_gather", "comm"),
              (FSDPModule, "set_custom_reduce_scatter", "comm"),
              (_fsdp_api.AllGather, "allocate", "dtype"),
              (_fsdp_api.ReduceScatter, "__call__", "op"),
              (FSDPParamGroup, "unshard", "async_op"),
              (FSDPParamGroup, "_to_sharded", "self"),
              (FSDPParamGroup, "_to_sharded_post_forward", "self"),
              (FSDPParam, "init_all_gather_outputs", "world_size"),
              (FSDPParam, "alloc_all_gather_outputs", "self"),
              (_fsdp_collectives, "foreach_all_gather", "fsdp_params"),
              (_fsdp_collectives, "compiled_autograd_enabled", "")]
    for owner, name, parameter in wanted:
        call = getattr(owner, name, None)
        if call is None or (parameter and parameter not in inspect.signature(call).parameters):
            return f"{owner.__name__}.{name}({parameter})"
    for name in ("all_gather_copy_in", "split_with_sizes_copy"):
        if not hasattr(torch.ops.fsdp, name):
            return f"torch.ops.fsdp.{name}"
    return ""
