# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Collectives without sums: plan templates, and the classes AllGather and AllToAll on top of
them, which find their peers and manage all marks themselves."""

from __future__ import annotations

import ctypes
from typing import Any, List, NamedTuple, Optional, Sequence, TypeVar

from . import _abi, _object, errors
from .buffer import Array, Buffer, memory_of
from .context import Context
from .plan import Plan, Ticket
from .signal import Mark, Signal
from .stream import StreamLike

# --- templates ---------------------------------------------------------------------------

# How a shard goes from node to node; values of enum ceov_nodes.
_NODES = {None: 0, "direct": 1, "ring": 2}


class Block(NamedTuple):
    """One rank's block of an all-to-all whose blocks have different sizes, in bytes. The offsets
    are added to those of the whole."""
    size_bytes: int
    source_offset_bytes: int
    target_offset_bytes: int


def all_gather(plan: Plan, shard_bytes: int, source: Buffer,
               targets: Sequence[Optional[Buffer]], arrived: Sequence[Signal], *,
               n_pieces: int = 1, ready: Optional[Signal] = None,
               free: Optional[Sequence[Signal]] = None, source_offset_bytes: int = 0,
               target_offset_bytes: int = 0, nodes: Optional[str] = None) -> Plan:
    """Adds to the plan: its rank's shard goes to the same place of every rank's target,
    shard s to target_offset_bytes + s * shard_bytes.

    targets, arrived and free are by rank, one entry for each rank of the group; the own
    target may be None (moves nothing). A shard is cut into n_pieces; piece p of rank s has
    counter s * n_pieces + p in arrived and free, and p in ready. A launch with base k
    expects ready (None: at launch) at k + 1 and free (None: always) at k, and raises arrived
    to k + 1. nodes says how shards go from node to node: "direct", "ring" or None, which leaves
    it to the library. See include/ceoverlap/collective.h, also for which ranks of other nodes
    need entries.
    """
    if nodes not in _NODES:
        raise errors.InvalidError(f"nodes: {nodes!r} is none of 'direct', 'ring' and None")
    struct = _abi.new(_abi.ceov_all_gather)
    struct.shard_bytes = shard_bytes
    struct.nodes = _NODES[nodes]
    return _add("ceov_plan_add_all_gather", struct, plan, source, targets, arrived, n_pieces,
                ready, free, source_offset_bytes, target_offset_bytes)


def all_to_all(plan: Plan, block_bytes: int, source: Buffer,
               targets: Sequence[Optional[Buffer]], arrived: Sequence[Signal], *,
               n_pieces: int = 1, ready: Optional[Signal] = None,
               free: Optional[Sequence[Signal]] = None, source_offset_bytes: int = 0,
               target_offset_bytes: int = 0,
               blocks: Optional[Sequence[Block]] = None) -> Plan:
    """Adds to the plan: block t of its rank's source goes to rank t, as block number "this
    rank" of its target. Otherwise as all_gather(); ready has n_ranks * n_pieces counters in
    the order of targets, or n_pieces. With blocks, one for each rank, each has its own size and
    places, and block_bytes is 0; without bytes nothing moves, and the counters rise all the
    same."""
    struct = _abi.new(_abi.ceov_all_to_all)
    struct.block_bytes = block_bytes
    if blocks is not None:
        if len(blocks) != plan.context.n_ranks:
            raise errors.InvalidError(f"blocks: {len(blocks)} entries, one a rank are "
                                      f"{plan.context.n_ranks}")
        struct.blocks = (_abi.ceov_block * len(blocks))(*(_abi.ceov_block(*one) for one in blocks))
    return _add("ceov_plan_add_all_to_all", struct, plan, source, targets, arrived, n_pieces,
                ready, free, source_offset_bytes, target_offset_bytes)


def broadcast(plan: Plan, n_bytes: int, root: int, source: Optional[Buffer],
              targets: Sequence[Optional[Buffer]], arrived: Sequence[Optional[Signal]], *,
              n_pieces: int = 1, ready: Optional[Signal] = None,
              free: Optional[Sequence[Optional[Signal]]] = None, source_offset_bytes: int = 0,
              target_offset_bytes: int = 0) -> Plan:
    """Adds to the plan what its rank sends when the root's bytes go to all other ranks, to
    target_offset_bytes in each target. Every rank adds it to a plan of its own. source and ready
    are the root's; others give None. Counters have the piece as index, so arrived and free have
    n_pieces. A rank that passes bytes on needs its own target and its own arrived signal, on the
    host. Otherwise as all_gather()."""
    struct = _abi.new(_abi.ceov_broadcast)
    struct.bytes = n_bytes
    struct.root = root
    return _add("ceov_plan_add_broadcast", struct, plan, source, targets, arrived, n_pieces,
                ready, free, source_offset_bytes, target_offset_bytes)


def _add(call: str, struct: Any, plan: Plan, source: Optional[Buffer],
         targets: Sequence[Optional[Buffer]], arrived: Sequence[Optional[Signal]], n_pieces: int,
         ready: Optional[Signal], free: Optional[Sequence[Optional[Signal]]],
         source_offset_bytes: int, target_offset_bytes: int) -> Plan:
    n = plan.context.n_ranks
    struct.n_pieces = n_pieces
    struct.source = None if source is None else source._open_handle()
    struct.source_offset_bytes = source_offset_bytes
    struct.targets = _object.handles(targets, n, "targets")
    struct.target_offset_bytes = target_offset_bytes
    struct.ready = None if ready is None else ready._open_handle()
    struct.arrived = _object.handles(arrived, n, "arrived")
    if free is not None:
        struct.free = _object.handles(free, n, "free")
    plan._invoke(call, ctypes.byref(struct))
    plan._keep(source, ready, *targets, *arrived, *(free or ()))
    return plan


# --- whole collectives ---------------------------------------------------------------------


_Part = TypeVar("_Part", bound=_object.Object)
_Self = TypeVar("_Self", bound="_Collective")


class _Collective(_object.NotCopied):
    """What AllGather and AllToAll share: each rank's target buffer and the signals `arrived`,
    `free` and `sent`, shared under names that begin with the collective's name."""

    def __init__(self, context: Context, name: str, source: Array, *, rank: Optional[int] = None,
                 target: Array = None, n_pieces: int = 1) -> None:
        self._context = context
        self._rank = context._own(rank)
        self._name = name
        self._n_pieces = n_pieces
        self._n_runs = 0
        self._plan: Optional[Plan] = None
        self._parts: List[_object.Object] = []
        memory = memory_of(source)
        self._part_bytes = self._part_of(memory.size_bytes)
        n_counters = context.n_ranks * n_pieces
        try:
            self.source: Buffer = self._own_part(context.register(memory, self._rank))
            self.target: Buffer = self._own_part(self._make_target(target))
            self._arrived = self._own_part(context.signal(n_counters, self._rank))
            self._free = self._own_part(context.signal(n_counters, self._rank,
                                                       host_visible=True))
            self._sent = self._own_part(context.signal(1, self._rank))
            self.target.share(f"{name}.target")
            self._arrived.share(f"{name}.arrived")
            self._free.share(f"{name}.free")
        except BaseException:
            self.close()
            raise

    def _own_part(self, part: _Part) -> _Part:
        self._parts.append(part)
        return part

    def _part_of(self, size_bytes: int) -> int:
        raise NotImplementedError

    def _add_to(self, plan: Plan, targets: Sequence[Buffer], arrived: Sequence[Signal],
                free: Sequence[Signal]) -> None:
        raise NotImplementedError

    def _make_target(self, target: Array) -> Buffer:
        size_bytes = self._part_bytes * self._context.n_ranks
        if target is None:
            return self._context.allocate(size_bytes, self._rank)
        memory = memory_of(target)
        if memory.size_bytes != size_bytes:
            raise errors.InvalidError(f"target: {memory.size_bytes} bytes, must be "
                                      f"{size_bytes}")
        return self._context.register(memory, self._rank)

    def connect(self, timeout_s: Optional[float] = None) -> None:
        """Finds the peers' targets and signals, and waits until they are shared. If one process
        holds several ranks, create the collectives of all of them first."""
        if self._plan is not None:
            return
        n_own = len(self._parts)
        try:
            self._plan = self._make_plan(timeout_s)
        except BaseException:           # what was found is found again
            while len(self._parts) > n_own:
                self._parts.pop().close()
            raise

    def _make_plan(self, timeout_s: Optional[float]) -> Plan:
        context = self._context
        targets: List[Buffer] = []
        arrived: List[Signal] = []
        free: List[Signal] = []
        for rank in range(context.n_ranks):
            if rank == self._rank:
                targets.append(self.target)
                arrived.append(self._arrived)
                free.append(self._free)
                continue
            targets.append(self._own_part(
                context.find_buffer(rank, f"{self._name}.target", timeout_s)))
            arrived.append(self._own_part(
                context.find_signal(rank, f"{self._name}.arrived", timeout_s)))
            free.append(self._own_part(
                context.find_signal(rank, f"{self._name}.free", timeout_s)))
        plan = context.plan(self._rank)
        self._add_to(plan, targets, arrived, free)
        return plan.add(then=Mark(self._sent)).commit()

    def run(self, stream: Optional[StreamLike] = None) -> Ticket:
        """Executes the collective once. All ranks make the same executions in the same order.

        On a rank with a GPU the execution is queued: it begins after what is on the stream
        already, and what the stream gets next finds the target complete and may change the
        source. On a host rank (stream None) it is done when the call returns; each host rank
        needs a thread of its own. The target may be read until the next execution is called or
        queued."""
        plan = self._plan
        if plan is None:
            raise errors.StateError("connect() comes first")
        is_host = self._context.place(self._rank).kind == "host"
        if is_host != (stream is None):
            raise errors.InvalidError("host ranks have no stream" if is_host else
                                      "a rank on a GPU needs a stream")
        base = self._n_runs
        self._n_runs += 1
        return self._run_host(plan, base) if stream is None else self._run_on(plan, stream, base)

    def _run_host(self, plan: Plan, base: int) -> Ticket:
        n_counters = self._context.n_ranks * self._n_pieces
        for index in range(n_counters):
            self._free.raise_to(base, index)
        ticket = plan.launch(base)
        for index in range(n_counters):
            self._arrived.wait(base + 1, index)
        ticket.wait()
        return ticket

    def _run_on(self, plan: Plan, stream: StreamLike, base: int) -> Ticket:
        n_counters = self._context.n_ranks * self._n_pieces
        if base:
            self._context.stream_raise(
                stream, [Mark(self._free, i, 0) for i in range(n_counters)], base, self._rank)
        ticket = plan.launch(base, after_stream=stream)
        marks = [Mark(self._arrived, i, 1) for i in range(n_counters)]
        self._context.stream_wait(stream, marks + [Mark(self._sent)], base, self._rank)
        return ticket

    def close(self) -> None:
        """Waits for executions in flight and releases everything. What peers still use is
        released as soon as they have ended."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None
        while self._parts:
            self._parts.pop().close()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AllGather(_Collective):
    """Gives every rank the sources of all ranks, one after another in the order of ranks.

    source    any memory in the rank's place, of the same size at all ranks
    target    memory of the rank's GPU, n_ranks times that size; None: it is allocated, which on
              the host is necessary if ranks are in several processes. See ``target.view()``
    name      1 to 40 bytes, the same at all ranks
    n_pieces  number of pieces into which a shard is cut
    nodes     as in all_gather(), the same at all ranks
    """

    def __init__(self, context: Context, name: str, source: Array, *, nodes: Optional[str] = None,
                 rank: Optional[int] = None, target: Array = None, n_pieces: int = 1) -> None:
        self._nodes = nodes
        super().__init__(context, name, source, rank=rank, target=target, n_pieces=n_pieces)

    def _part_of(self, size_bytes: int) -> int:
        return size_bytes

    def _add_to(self, plan: Plan, targets: Sequence[Buffer], arrived: Sequence[Signal],
                free: Sequence[Signal]) -> None:
        all_gather(plan, self._part_bytes, self.source, targets, arrived,
                   n_pieces=self._n_pieces, free=free, nodes=self._nodes)


class AllToAll(_Collective):
    """Gives rank t block t of every rank's source, in the order of ranks. The arguments are
    those of AllGather, except that the target is as large as the source: n_ranks equal blocks."""

    def _part_of(self, size_bytes: int) -> int:
        n = self._context.n_ranks
        if size_bytes % n:
            raise errors.InvalidError(f"source: {size_bytes} bytes are not {n} equal blocks")
        return size_bytes // n

    def _add_to(self, plan: Plan, targets: Sequence[Buffer], arrived: Sequence[Signal],
                free: Sequence[Signal]) -> None:
        all_to_all(plan, self._part_bytes, self.source, targets, arrived,
                   n_pieces=self._n_pieces, free=free)
