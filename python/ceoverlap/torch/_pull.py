# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""An all-gather that pulls: each rank's own engine fetches the parts of every rank's shard
from there to where this rank wants them. Targets are nobody's business but their rank's, so
they may change from run to run; what peers see is two slots with the own shard."""

from __future__ import annotations

import collections
import functools
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from .. import errors
from ..buffer import Buffer, Memory
from ..plan import Plan, Spot, Ticket
from ..signal import Mark, Signal

if TYPE_CHECKING:
    from .group import Group

N_SLOTS = 2                             # one is filled while peers still read the other
N_PLANS = 16                            # kept; a model's steps repeat after a few


class Names:
    """Numbers that are the same at all ranks of a group: what all of them do in the same
    order gets the same one. See Group.part()."""

    def __init__(self, _group: Group):
        self._n = 0

    def next(self, kind: str) -> str:
        """A name that nothing else in the group has."""
        self._n += 1
        return f"{kind}{self._n}"

    def close(self) -> None:
        """Holds nothing."""


class Pull:
    """All-gathers of one layout; they follow each other. All ranks make it together, and
    the same runs in the same order. One thread at a time.

    parts       bytes of each part of a shard, in the order in which they lie in a slot
    deadline_s  how long a run waits for a peer

    One run: slot = begin(stream); fill the slot; run(targets, stream). A stream is a
    CUstream, None on host ranks, where run() has done it when it returns.

    Run k raises counter `own rank` of every peer's `ready` to k + 1 when its slot is filled,
    and its copies raise `arrived` to k + 1 when they have read all peers' slots. A slot is
    filled again two runs later, and nobody tells that it was read: a rank fills for run k
    behind its own arrival of run k - 1, so all peers were ready for that one, and they were
    so behind their arrival of run k - 2, when they read the slot last.
    """

    def __init__(self, group: Group, parts: Sequence[int], deadline_s: float):
        self._group = group
        self._context = group.context
        self._deadline_s = deadline_s
        self._offsets = _offsets(parts)
        self._parts = tuple(parts)
        self._n_runs = 0
        self._plans: collections.OrderedDict = collections.OrderedDict()
        self._targets: dict = {}        # (address, bytes): registered
        self._tickets: collections.deque = collections.deque()
        self._owned: list = []
        name = group.part(Names).next("pull")
        group.agree(f"all-gather {name}: bytes of the parts of a shard", repr(self._parts))
        try:                            # no rank waits in a stream while others allocate
            for step in (self._create, self._connect):
                group.together(f"all-gather {name}", functools.partial(step, name))
        except BaseException:
            self.close()
            raise

    @property
    def n_bytes(self) -> int:
        """Of a slot: one shard."""
        return sum(self._parts)

    @property
    def n_plans(self) -> int:
        """How many are kept."""
        return len(self._plans)

    def _own(self, part):
        self._owned.append(part)
        return part

    def _create(self, name: str) -> Pull:
        context, n = self._context, self._group.size
        self.slots: List[Buffer] = [self._own(context.allocate(self.n_bytes))
                                    for _ in range(N_SLOTS)]
        # The engine polls `ready`, so it is host memory; streams wait for the other.
        self._ready: Signal = self._own(context.signal(n, place="host"))
        self._arrived: Signal = self._own(context.signal(1))
        for i, slot in enumerate(self.slots):
            slot.share(f"{name}.slot{i}")
        self._ready.share(f"{name}.ready")
        return self

    def _connect(self, name: str) -> Pull:
        """Peers in the order in which they are read, so that readers keep apart."""
        context, n, rank = self._context, self._group.size, self._group.rank
        self._peers = [(rank + i) % n for i in range(1, n)]
        self._peer_slots = {peer: [self._own(context.find_buffer(peer, f"{name}.slot{i}"))
                                   for i in range(N_SLOTS)] for peer in self._peers}
        self._peer_ready = {peer: self._own(context.find_signal(peer, f"{name}.ready"))
                            for peer in self._peers}
        return self

    # --- runs --------------------------------------------------------------------------

    def begin(self, stream: Optional[int]) -> int:
        """Which slot the next run's shard goes to. What the stream gets next may write it;
        so may the caller, on host ranks."""
        if self._n_runs:
            self._await_arrival(stream)
        return self._n_runs % N_SLOTS

    def run(self, targets: Sequence[int], stream: Optional[int]) -> None:
        """Part i of every rank's shard to targets[i] + rank * parts[i]: addresses of memory
        of this rank's place. It comes after what is on the stream, the slot's filling among
        it, and what the stream gets next comes after it."""
        self.check()
        plan = self._plan_of(self._n_runs % N_SLOTS, tuple(targets))
        base = self._n_runs
        self._n_runs += 1
        marks = [Mark(self._peer_ready[peer], self._group.rank, 1) for peer in self._peers]
        if stream is None:
            for mark in marks:
                mark.signal.raise_to(base + 1, mark.index)
        else:
            self._context.stream_raise(stream, marks, base)
        self._tickets.append(self._launch(plan, base, stream))
        self._await_arrival(stream)

    def _await_arrival(self, stream: Optional[int]) -> None:
        """Of the last run that was made."""
        if stream is None:
            self._arrived.wait(self._n_runs, 0, self._deadline_s)
        else:
            self._context.stream_wait(stream, [Mark(self._arrived)], self._n_runs - 1)

    def _launch(self, plan: Plan, base: int, stream: Optional[int]) -> Ticket:
        while True:
            try:
                return plan.launch(base, deadline_s=self._deadline_s, after_stream=stream)
            except errors.FullError:
                if not self._tickets:
                    raise
                self._tickets.popleft().wait(self._deadline_s)

    def check(self) -> None:
        """Raises the error of a run that failed. Never blocks."""
        while self._tickets and _has_ended(self._tickets[0]):
            self._tickets.popleft()

    # --- plans -------------------------------------------------------------------------

    def _plan_of(self, slot: int, targets: Tuple[int, ...]) -> Plan:
        key = (slot, targets)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._fresh_plan(slot, targets)
            if len(self._plans) > N_PLANS:
                self._plans.popitem(last=False)[1].close()
                self._forget_targets()
        self._plans.move_to_end(key)
        return plan

    def _fresh_plan(self, slot: int, targets: Tuple[int, ...]) -> Plan:
        try:
            return self._make_plan(slot, targets)
        except errors.StaleError:       # other memory has come to an address of before
            while self._plans:
                self._plans.popitem()[1].close()
            self._forget_targets()
            return self._make_plan(slot, targets)

    def _make_plan(self, slot: int, targets: Tuple[int, ...]) -> Plan:
        buffers = [self._registered(address, self._group.size * n_bytes)
                   for address, n_bytes in zip(targets, self._parts)]
        plan = self._context.plan(routes="direct")
        try:
            self._add_shard(plan, self.slots[slot], self._group.rank, buffers, None)
            for peer in self._peers:
                ready = Mark(self._ready, peer, 1)
                plan.expect(ready)
                self._add_shard(plan, self._peer_slots[peer][slot], peer, buffers, ready)
            return plan.add(then=Mark(self._arrived)).commit()
        except BaseException:
            plan.close()
            raise

    def _add_shard(self, plan: Plan, source: Buffer, rank: int, targets: Sequence[Buffer],
                   ready: Optional[Mark]) -> None:
        for n_bytes, offset, target in zip(self._parts, self._offsets, targets):
            plan.add(source=Spot(source, offset), target=Spot(target, rank * n_bytes),
                     row_bytes=n_bytes, source_ready=ready)

    def _registered(self, address: int, n_bytes: int) -> Buffer:
        """The allocator gives the same ranges again and again: registered once. Nothing
        reaches the memory but a launch, and whoever launches has allocated it anew."""
        buffer = self._targets.get((address, n_bytes))
        if buffer is None:
            device = self._group.device
            memory = Memory(address, n_bytes, (n_bytes,), "uint8",
                            is_gpu=self._group.is_gpu, index=device.index)
            buffer = self._targets[address, n_bytes] = self._context.register(memory)
        return buffer

    def _forget_targets(self) -> None:
        """Those that no plan names any more."""
        named = {(address, self._group.size * n_bytes) for _, targets in self._plans
                 for address, n_bytes in zip(targets, self._parts)}
        for key in [key for key in self._targets if key not in named]:
            self._targets.pop(key).close()

    def close(self) -> None:
        """Waits for its runs. All ranks close it, after their last use."""
        for plan in self._plans.values():
            plan.close()
        self._plans.clear()
        self._tickets.clear()
        self._forget_targets()
        while self._owned:
            self._owned.pop().close()


def _has_ended(ticket: Ticket) -> bool:
    """Raises the run's error. Results are kept for some thousand launches of the context;
    of an older one the plan's signals know: the next launch finds them aborted."""
    try:
        return ticket.is_done()
    except errors.InvalidError:
        return True


def _offsets(parts: Sequence[int]) -> Tuple[int, ...]:
    """Where each part begins in a slot."""
    offsets, end = [], 0
    for n_bytes in parts:
        offsets.append(end)
        end += n_bytes
    return tuple(offsets)
