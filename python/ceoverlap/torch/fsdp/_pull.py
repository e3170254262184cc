# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""All-gathers that pull: each rank's own copy engines fetch the parts of every rank's shard to
where this rank wants them. Only the rank itself knows its targets, so they may change from run
to run. Peers see a few slots that hold this rank's shard."""

from __future__ import annotations

import collections
import contextlib
import functools
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, TYPE_CHECKING, Tuple

from ... import errors
from ...buffer import Buffer, Memory
from ...plan import Plan, Spot, Ticket
from ...signal import Mark, MarkList, Signal

if TYPE_CHECKING:
    from ..group import Group

AHEAD = 2                               # a slot is filled while the run before is under way
N_SLOTS = AHEAD + 1                     # see Pull
RUNS_IN_FLIGHT = 32                     # at most
RUNS_TO_AWAIT = 8                       # are awaited at once when RUNS_IN_FLIGHT is reached


class Names:
    """Counts what all ranks of a group make in the same order, so that each object gets the
    same number at all ranks. See Group.part()."""

    def __init__(self, _group: Group) -> None:
        self._n = 0

    def next(self, kind: str) -> str:
        """Returns a name that nothing else in the group has."""
        self._n += 1
        return f"{kind}{self._n}"

    def close(self) -> None:
        """Does nothing, because there is nothing to release."""


class Layout:
    """How a shard lies in a slot. Plans are found by the Layout object itself, so keep one
    object for equal parts.

    parts    bytes of each part, in their order
    offsets  offset of each part, in bytes
    n_bytes  bytes of the whole shard
    """

    __slots__ = ("parts", "offsets", "n_bytes")

    def __init__(self, parts: Sequence[int]) -> None:
        self.parts: Tuple[int, ...] = tuple(parts)
        self.n_bytes = sum(parts)
        self.offsets = tuple(sum(parts[:i]) for i in range(len(parts)))


_Range = Tuple[int, int]                # address and bytes of a target


class _Kept(NamedTuple):
    """A plan that is kept, and the registered ranges to which it writes."""
    plan: Plan
    ranges: List[_Range]


class _Target:
    """A registered range of memory, and the number of plans that write to it."""

    __slots__ = ("buffer", "n_plans")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.n_plans = 0


class Pull:
    """All-gathers that follow each other, over slots that they share. All ranks make it
    together, and the same runs in the same order. One thread at a time.

    group        of two ranks at least
    n_bytes      of a slot: the largest shard
    max_plans    how many are kept, each for a layout, a slot and targets
    deadline_s   how long a run waits for a peer

    One run: slot = begin(stream); fill the slot; run(layout, targets, stream). A stream is
    a CUstream, None on host ranks, where run() has done it when it returns. The two may
    differ, and from run to run; run()'s comes after the filling.

    Run k raises counter `own rank` of every peer's `ready` to k + 1 when its slot is filled,
    and its copies raise `arrived` to k + 1 when they have read all peers' slots. Whatever
    their streams, run k raises and copies behind the own arrival of run k - 1.

    Nobody tells that a slot was read. A rank fills for run k behind its own arrival of run
    k - AHEAD, so all peers were ready for that one, and they were so behind their arrival
    of run k - AHEAD - 1: with AHEAD + 1 slots the one that read this slot last.

    On GPUs the calling thread queues all of a run on its stream: the raises at peers, then
    the waits for all their marks, the copies, peer by peer, that of the own shard, and the own
    arrival. So ranks copy in step: each reads from another one at any time. Of 8 H200 that read
    from a peer as soon as it was ready, several read from the same one. (The engine of a host
    rank copies from each peer as soon as that one is ready.) While a stream
    waits, the driver may hold back what the process submits later, on any stream: the first
    launch of a kernel does so, and cudaFree(). But a wait of run k needs peers' raises of
    run k alone, which stand before their waits of it: so the earliest run that some rank
    waits in goes on when all have queued it.

    Streams know no deadline, so two plans without bytes go through the engine with each
    run. The guard looks for the peers' marks: when one does not come in time, or a peer is
    lost, it fails, and that aborts `ready`, which is on the host, where the engine needs no
    driver to open what waits. Peers' late raises may cover that again; the keeper is in
    flight until the stream has passed the run, and an engine repeats the abort for as long
    as a launch that it ended is in flight, or 5 s: a stream that takes longer to come to the
    run, behind a peer that raises late and then is gone, may stand still. One keeper for
    each stream, as their orders differ. A rank is RUNS_IN_FLIGHT runs ahead of its stream,
    and of its slowest peer, at most.
    """

    def __init__(self, group: Group, n_bytes: int, max_plans: int, deadline_s: float) -> None:
        self._group = group
        self._context = group.context
        self._deadline_s = deadline_s
        self._n_runs = 0
        self._stream: Optional[int] = None      # of the last run
        self._max_plans = max_plans
        self._plans: collections.OrderedDict[Any, Any] = collections.OrderedDict()
        self._targets: Dict[_Range, _Target] = {}
        self._keepers: Dict[int, Plan] = {}     # by stream
        self._launched: collections.deque[Any] = collections.deque()        # by run, [Ticket, ...]
        self._owned: List[Any] = []
        self.n_bytes = n_bytes
        name = group.part(Names).next("pull")
        group.agree(f"all-gather {name}: bytes of a slot", repr(n_bytes))
        try:                            # no rank waits in a stream while others allocate
            for step in (self._create, self._connect):
                group.together(f"all-gather {name}", functools.partial(step, name))
        except BaseException:
            self.close()
            raise

    @property
    def n_plans(self) -> int:
        """Number of plans that are kept."""
        return len(self._plans)

    def _own(self, part: Any) -> Any:
        self._owned.append(part)
        return part

    def _create(self, name: str) -> Pull:
        context, n = self._context, self._group.size
        self.slots: List[Buffer] = [self._own(context.allocate(self.n_bytes))
                                    for _ in range(N_SLOTS)]
        # The engine polls and aborts `ready`, so it is host memory; see the class.
        self._ready: Signal = self._own(context.signal(n, place="host"))
        self._arrived: Signal = self._own(context.signal(1))
        self._arrival = MarkList([Mark(self._arrived)])
        for i, slot in enumerate(self.slots):
            slot.share(f"{name}.slot{i}")
        self._ready.share(f"{name}.ready")
        return self

    def _connect(self, name: str) -> Pull:
        """Finds the peers' slots and signals, in the order in which this rank reads them. Each
        rank begins with another peer, so that readers do not compete."""
        context, n, rank = self._context, self._group.size, self._group.rank
        self._peers = [(rank + i) % n for i in range(1, n)]
        self._peer_slots = {peer: [self._own(context.find_buffer(peer, f"{name}.slot{i}"))
                                   for i in range(N_SLOTS)] for peer in self._peers}
        self._peer_ready = MarkList(
            Mark(self._own(context.find_signal(peer, f"{name}.ready")), rank)
            for peer in self._peers)
        if self._group.is_gpu:
            self._guard = self._plan_behind([Mark(self._ready, peer)
                                             for peer in self._peers])
        return self

    def _plan_behind(self, marks: Sequence[Mark]) -> Plan:
        """Returns a plan that waits for the marks and moves nothing."""
        plan = self._own(self._context.plan(routes="direct")).expect(*marks)
        for mark in marks:
            plan.add(source_ready=mark)
        return plan.commit()

    # --- runs --------------------------------------------------------------------------

    def begin(self, stream: Optional[int]) -> int:
        """Returns the number of the slot for the next run's shard. What is queued on the stream
        afterwards may write the slot; on host ranks the caller may."""
        self.check()                    # of a run that failed there may be no arrival
        self._await_arrival(self._n_runs - AHEAD, stream)
        return self._n_runs % N_SLOTS

    def run(self, layout: Layout, targets: Sequence[int], stream: Optional[int]) -> None:
        """Fetches part i of every rank's shard to address targets[i] + rank * parts[i], in
        memory of this rank's place. It runs after what is on the stream, and what the stream
        gets next runs after it."""
        self._make_room()
        run = self._n_runs
        plan = self._plan_of(run % N_SLOTS, layout, tuple(targets))
        if stream != self._stream:      # else the run before has made it wait
            self._await_arrival(run - 1, stream)
        self._n_runs, self._stream = run + 1, stream
        if stream is None:
            self._run_now(plan, run)
        else:
            self._queue(plan, run, stream)

    def _run_now(self, plan: Plan, run: int) -> None:
        for mark in self._peer_ready:
            mark.signal.raise_to(run + 1, mark.index)
        self._launched.append([self._launch(plan, run)])
        self._await_arrival(run, None)

    def _make_room(self) -> None:
        """Waits until another run may be launched. This comes before the run's raise at peers,
        because they rely on the run from then on. Where a run's keeper is done, the stream has
        passed that run and those before it, so one wait is enough for several."""
        if len(self._launched) < RUNS_IN_FLIGHT:
            return
        self._launched[RUNS_TO_AWAIT - 1][-1].wait(self._deadline_s)
        for _ in range(RUNS_TO_AWAIT):
            self._launched.popleft()

    def _queue(self, plan: Plan, run: int, stream: int) -> None:
        self._context.stream_raise(stream, self._peer_ready, run)
        launched = [self._launch(self._guard, run)]
        self._launched.append(launched)
        plan.queue(stream, run)
        keeper = self._launch(self._keeper_of(stream), 0, stream)
        if not self._launched:          # a full context was waited for, also by this run's guard
            self._launched.append(launched)
        launched.append(keeper)

    def _keeper_of(self, stream: int) -> Plan:
        """Returns the keeper of this stream: a plan that names `ready`, but waits for none of
        its marks."""
        keeper = self._keepers.get(stream)
        if keeper is None:
            reached = Mark(self._ready, self._group.rank, 0)
            keeper = self._keepers[stream] = self._plan_behind([reached])
        return keeper

    def _await_arrival(self, run: int, stream: Optional[int]) -> None:
        """Has the stream wait for this rank's own copies of a run, if there was such a run."""
        if run < 0:
            return
        if stream is None:
            self._arrived.wait(run + 1, 0, self._deadline_s)
        else:
            self._context.stream_wait(stream, self._arrival, run)

    def _launch(self, plan: Plan, base: int, after_stream: Optional[int] = None) -> Ticket:
        while True:
            try:
                return plan.launch(base, deadline_s=self._deadline_s, after_stream=after_stream)
            except errors.FullError:    # the context is: it goes on, whatever ours ended in
                if not self._launched:
                    raise
                with contextlib.suppress(errors.CeoverlapError):        # check() has it, too
                    self._launched.popleft()[-1].wait(self._deadline_s)

    def check(self) -> None:
        """Raises the error of a run that failed, or of a peer that was lost. Never blocks. Either
        aborts `ready`; the error of a launch says more."""
        try:
            self._ready.has_reached(0)
        except errors.CeoverlapError:
            while self._launched and all(map(_has_ended, self._launched[0])):
                self._launched.popleft()
            raise

    # --- plans -------------------------------------------------------------------------

    def _plan_of(self, slot: int, layout: Layout, targets: Tuple[int, ...]) -> Plan:
        key = (slot, layout, targets)
        kept = self._plans.get(key)
        if kept is None:
            kept = self._plans[key] = self._fresh_plan(slot, layout, targets)
            if len(self._plans) > self._max_plans:
                self._drop_oldest()
        self._plans.move_to_end(key)
        return kept.plan

    def _fresh_plan(self, slot: int, layout: Layout, targets: Tuple[int, ...]) -> _Kept:
        try:
            return self._make_plan(slot, layout, targets)
        except errors.StaleError:       # other memory has come to an address of before
            self._drop_plans()
            return self._make_plan(slot, layout, targets)

    def _make_plan(self, slot: int, layout: Layout, targets: Tuple[int, ...]) -> _Kept:
        ranges = [(address, self._group.size * n_bytes)
                  for address, n_bytes in zip(targets, layout.parts)]
        plan = self._context.plan(routes="direct")
        try:
            buffers = [self._registered(one) for one in ranges]
            for peer in self._peers:
                ready = Mark(self._ready, peer)
                plan.expect(ready).add(source_ready=ready)
            for peer in self._peers:
                self._add_shard(plan, self._peer_slots[peer][slot], peer, layout, buffers,
                                Mark(self._ready, peer))
            # Each copy names its peer's mark again, so that on a stream each peer's copies are a
            # batch of their own: copies of a batch have no order. The own shard names none, so it
            # is a batch behind them: before or beside the others it would put this rank out of step.
            self._add_shard(plan, self.slots[slot], self._group.rank, layout, buffers)
            plan.add(then=Mark(self._arrived)).commit()
        except BaseException:
            plan.close()
            self._forget(ranges)
            raise
        for one in ranges:
            self._targets[one].n_plans += 1
        return _Kept(plan, ranges)

    def _add_shard(self, plan: Plan, source: Buffer, rank: int, layout: Layout,
                   targets: Sequence[Buffer], ready: Optional[Mark] = None) -> None:
        for n_bytes, offset, target in zip(layout.parts, layout.offsets, targets):
            plan.add(source=Spot(source, offset), target=Spot(target, rank * n_bytes),
                     row_bytes=n_bytes, source_ready=ready)

    def _registered(self, one: _Range) -> Buffer:
        """Returns the registered range of this memory. PyTorch's allocator returns the same
        ranges repeatedly, so each one is registered once and stays so. Only launches access it,
        and who launches has just allocated it."""
        target = self._targets.get(one)
        if target is None:
            address, n_bytes = one
            memory = Memory(address, n_bytes, (n_bytes,), "uint8",
                            is_gpu=self._group.is_gpu, index=self._group.device.index)
            target = self._targets[one] = _Target(self._context.register(memory))
        return target.buffer

    def _forget(self, ranges: Sequence[_Range]) -> None:
        """Releases those ranges to which no plan writes any more."""
        for one in ranges:
            target = self._targets.get(one)
            if target is not None and not target.n_plans:
                self._targets.pop(one).buffer.close()

    def _drop_oldest(self) -> None:
        kept = self._plans.popitem(last=False)[1]
        kept.plan.close()
        for one in kept.ranges:
            self._targets[one].n_plans -= 1
        self._forget(kept.ranges)

    def _drop_plans(self) -> None:
        while self._plans:
            self._drop_oldest()

    def close(self) -> None:
        """Waits for runs in flight and releases everything. All ranks call it, after their last
        use."""
        self._drop_plans()
        self._keepers.clear()
        self._launched.clear()
        while self._owned:
            self._owned.pop().close()


def _has_ended(ticket: Ticket) -> bool:
    """Returns whether a launch has ended, and raises its error if it failed. A context keeps
    the results of some thousand launches. Of an older one the plan's signals tell: the next
    launch finds them aborted."""
    try:
        return ticket.is_done()
    except errors.InvalidError:
        return True
