# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend as PyTorch before 2.14 takes one: a class of Python's cannot be one device's backend
there, but it can take a whole process group's place, with what PyTorch would have made for the
group's other devices."""

from __future__ import annotations

import datetime
from typing import Any, Callable, Dict, Sequence, Tuple

import torch
import torch.distributed as dist

from .. import _compat
from ..group import Ranks
from ._base import NAME, live
from ._calls import Calls

# What PyTorch's classes of options call the values that a caller may give one by one.
_FIELDS = {"root": "rootRank", "op": "reduceOp", "timeout": "timeout"}


class Part(Calls):
    """The calls of a process group with tensors on the devices that are ours."""

    def __init__(self, ranks: Ranks, device: torch.device, timeout: datetime.timedelta,
                 global_ranks: Any, options: Any) -> None:
        self._told = timeout
        self._begin(ranks, timeout, device, lambda: live.pop((ranks.name, device.type), None),
                    global_ranks, options)
        live[ranks.name, device.type] = self

    def follow(self) -> Part:
        """Takes over the timeout that the program has set since by a function of PyTorch's, which
        tells PyTorch's own backends alone. Returns the part."""
        told = self._told if self._host is None else _compat.timeout_of(self._host.plain)
        if told != self._told:
            self._told = told
            self.limit(told)
        return self

    def plain_on(self, device: torch.device) -> Any:
        """Returns PyTorch's own backend for what channels do not have on this device. On GPUs it is
        NCCL's, which no ranks meet for, so one rank alone may ask; a device with a number has been
        chosen, and all ranks meet there, as in their first call with such a tensor."""
        if device.type == "cpu":
            return (self._host or self._on_host()).plain
        if self._gpu is not None or device.index is not None:
            return (self._gpu or self._on_gpu(device)).plain
        made = self.nccl()
        if made is None:
            raise RuntimeError(f"group {self._at.name}: it has no backend on GPUs: this PyTorch "
                               "was built without NCCL")
        return made


def _depth(x: torch.Tensor) -> int:
    """Returns how deep tensors are in lists: 0 for a tensor."""
    return 0 if isinstance(x, torch.Tensor) else 1 + (_depth(x[0]) if x else 0)


def _first(args: Sequence[Any]) -> Any:
    """Returns the first tensor of lists; None if there is none."""
    for one in args:
        if isinstance(one, torch.Tensor):
            return one
        found = _first(one) if isinstance(one, (list, tuple)) else None
        if found is not None:
            return found
    return None


def _options(kind: type, fields: str, given: Tuple[Any, ...], words: Dict[str, Any]) -> Any:
    """Returns the options of a call, which were given as such or one by one."""
    if words.get("opts") is not None:
        return words["opts"]
    if given and isinstance(given[0], kind):
        return given[0]
    options = kind()
    for field, value in [*zip(fields.split(), given), *words.items()]:
        if value is not None:
            setattr(options, _FIELDS[field], value)
    return options


def _collective(former: str, name: str, kind: type, depths: Tuple[Any, ...],
                fields: str = "") -> Callable[..., Any]:
    """Returns the method of a process group that has `former` as its name: it hands the call to
    the part's method `name`, or to the group of the other devices.

    kind     of the options
    depths   how deep the arguments before them are in lists. As PyTorch does for some of its
             methods, tensors and lists of them stand for lists of one
    fields   of the options that a caller may give instead of them"""

    def call(self: Any, *args: Any, **words: Any) -> Any:
        n = len(depths)
        lists = [x if depth is None or _depth(x) >= depth or x == [] else [x]
                 for x, depth in zip(args, depths)]
        options = _options(kind, fields, args[n:], words)
        x = _first(tuple(lists))
        part = self.part(x.device.type if x is not None else "")
        return getattr(part, former if part is self.others else name)(*lists, options)

    call.__name__ = former
    return call


class Whole(_compat.ProcessGroup):
    """A process group. Each call is made for the device on which its tensors are.

    others   PyTorch's process group of the devices that are not ours"""

    def __init__(self, options: Any, backend_options: Any) -> None:
        _compat.ProcessGroup.__init__(self, options.group_rank, options.group_size)
        self.others: Any = dist.ProcessGroup(options.store, options.group_rank, options.group_size)
        ranks = Ranks(options.store, options.group_rank, options.group_size, options.group_id)
        self._store, self._name, self._description = ranks.store, ranks.name, ""
        asked = _compat.asked_backends()
        self._ours = {device_type for device_type, name in asked.items() if name == NAME}
        told = options.timeout, options.global_ranks_in_group, backend_options
        self._mine = Part(ranks, torch.device("cpu" if "cpu" in self._ours else "cuda"), *told)
        for device_type, name in asked.items():
            if name == NAME:
                self._show(device_type)
                continue
            # In the part's store no keys are left of a group that had the name before.
            store = dist.PrefixStore(device_type, self._mine.store)
            made = _compat.make_backend(name, ranks._replace(store=store), *told)
            for group in (self, self.others):
                _compat.add_backend(group, device_type, name, made)

    def _show(self, device_type: str) -> None:
        """Lets PyTorch know of a device of ours."""
        if device_type == "cpu":
            _compat.add_backend(self, device_type, "gloo", self._mine.plain_on(torch.device("cpu")))
        elif torch.cuda.is_available():
            _compat.add_backend(self, device_type, "nccl", None)

    def part(self, device_type: str) -> Any:
        """Returns who makes the calls of tensors on such a device; "" stands for no tensors."""
        return self._mine.follow() if device_type in self._ours or not device_type else self.others

    broadcast = _collective("broadcast", "broadcast", dist.BroadcastOptions, (1,), "root timeout")
    allreduce = _collective("allreduce", "allreduce", dist.AllreduceOptions, (1,), "op timeout")
    allreduce_coalesced = _collective("allreduce_coalesced", "allreduce_coalesced",
                                      dist.AllreduceCoalescedOptions, (1,))
    reduce = _collective("reduce", "reduce", dist.ReduceOptions, (1,), "root op timeout")
    allgather = _collective("allgather", "allgather", _compat.AllgatherOptions, (2, 1), "timeout")
    allgather_coalesced = _collective("allgather_coalesced", "allgather_coalesced",
                                      _compat.AllgatherOptions, (2, 1))
    _allgather_base = _collective("_allgather_base", "all_gather_single", _compat.AllgatherOptions,
                                  (0, 0))
    allgather_into_tensor_coalesced = _collective(
        "allgather_into_tensor_coalesced", "all_gather_single_coalesced", _compat.AllgatherOptions,
        (1, 1))
    gather = _collective("gather", "gather", dist.GatherOptions, (2, 1), "root timeout")
    scatter = _collective("scatter", "scatter", dist.ScatterOptions, (1, 2), "root timeout")
    reduce_scatter = _collective("reduce_scatter", "reduce_scatter", dist.ReduceScatterOptions,
                                 (1, 2), "op timeout")
    _reduce_scatter_base = _collective("_reduce_scatter_base", "reduce_scatter_single",
                                       dist.ReduceScatterOptions, (0, 0))
    reduce_scatter_tensor_coalesced = _collective(
        "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced",
        dist.ReduceScatterOptions, (1, 1))
    alltoall = _collective("alltoall", "alltoall", dist.AllToAllOptions, (1, 1))
    alltoall_base = _collective("alltoall_base", "all_to_all_single", dist.AllToAllOptions,
                                (0, 0, None, None), "timeout")

    def barrier(self, opts: Any = None, timeout: Any = None) -> Any:     # type: ignore[override]
        given = () if opts is None else (opts,)
        options = _options(dist.BarrierOptions, "timeout", given, {"timeout": timeout})
        device = options.device
        return self.part(device.type if device is not None else "").barrier(options)

    def monitored_barrier(self, timeout: Any = None, wait_all_ranks: bool = False) -> Any:
        part = self.part("cpu")
        if part is self.others:
            part.monitored_barrier(timeout, wait_all_ranks)
            return
        part.monitored_barrier(_options(dist.BarrierOptions, "", (), {"timeout": timeout}),
                               wait_all_ranks)

    def send(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        return self.part(tensors[0].device.type).send(tensors, peer, tag)

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> Any:
        return self.part(tensors[0].device.type).recv(tensors, peer, tag)

    def recv_anysource(self, tensors: Any, tag: int = 0) -> Any:
        return self.part(tensors[0].device.type).recv_anysource(tensors, tag)

    def _start_coalescing(self, device: Any) -> Any:
        part = self.part(device.type)
        return (part._start_coalescing if part is self.others else part.start_coalescing)(device)

    def _end_coalescing(self, device: Any) -> Any:
        part = self.part(device.type)
        return (part._end_coalescing if part is self.others else part.end_coalescing)(device)

    def get_group_store(self) -> Any:
        return self._store

    def _get_backend(self, device: torch.device) -> Any:
        device = torch.device(device)
        if device.type in self._ours:
            return self._mine.plain_on(device)
        return _compat.ProcessGroup._get_backend(self, device)

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self._mine.limit(timeout)
        self.others.set_timeout(timeout)

    def _get_sequence_number_for_group(self) -> int:
        return self._mine._get_sequence_number_for_group()

    def _set_sequence_number_for_group(self) -> None:
        """Numbers begin at 0 at all ranks by themselves."""

    def getBackendName(self) -> str:
        return NAME

    # As PyTorch's Python calls these; the others are what its compiled parts call.
    name = _get_backend_name = getBackendName

    def setGroupName(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        return self._name

    def setGroupDesc(self, description: str) -> None:
        self._description = description

    def getGroupDesc(self) -> str:
        return self._description

    def abort(self) -> None:
        self._mine.abort()
        self.others.abort()

    def shutdown(self) -> None:
        self._mine.shutdown()
        self.others.shutdown()


def create(options: Any, backend_options: Any) -> Whole:
    """Makes a process group for torch.distributed, which calls it at all ranks of a new group."""
    return Whole(options, backend_options)
