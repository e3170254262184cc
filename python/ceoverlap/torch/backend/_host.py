# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Calls of a backend with tensors on the host. They run in the group's queue: in the call, or with
async_op=True beside the caller. Messages have a queue for each pair and direction, because a rank
that waits to send must not keep itself from receiving. What channels do not have is Gloo's."""

from __future__ import annotations

import datetime
import logging
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from ... import _flight, errors
from .. import _compat
from .._queue import CallQueue, Queued
from ..group import Group, Ranks, seconds_of
from . import _tensors
from ._record import AllCalls, Record, Recorded
from ._ways import HOST_SUMS, Ways
from ._work import Told, Work


class Host(Recorded):
    """What a backend has for tensors on the host. All ranks make it together."""

    def __init__(self, ranks: Ranks, timeout: datetime.timedelta, record: Record) -> None:
        self._at, self.record = ranks, record
        self._timeout = timeout         # of the channel's waits
        self._limit_s = 0.0             # of each call, if it is shorter
        self.plain = _compat.make_gloo(dist.PrefixStore("plain", ranks.store), ranks.rank,
                                        ranks.size, timeout)
        self.group = Group.of_ranks(ranks, torch.device("cpu"),
                                                     seconds_of(timeout))
        refusal = ""
        if self.group.n_nodes > 1:
            self.group = None           # of() makes it when somebody asks for it
            refusal = "its ranks are on several nodes"
        elif self.group.channel is None:
            refusal = f"its ranks can have no channel: {self.group.why_no_channel}"
        self.ways = Ways(ranks.name, refusal, "Gloo", HOST_SUMS)
        self._queue = CallQueue(f"ceoverlap {ranks.name}")
        self._messages: Dict[Tuple[str, int], CallQueue] = {}
        if self.group is not None:
            self.group.queue = AllCalls(self._queue, self)

    def run(self, opts: Any, call: int, make: Callable[[], object], result: List[Any],
            has_ended: Optional[Callable[[], bool]] = None) -> Optional[Work]:
        """Makes a call in the queue; with async_op=True beside the caller. Without it there is no
        handle, as in PyTorch's own backends. call: what begin() has returned; result: the tensors
        that it sets; has_ended: see Record.recorded()."""
        recorded, has_ended = self.record.recorded, has_ended or self.has_ended
        if opts.asyncOp:
            return Work(self._queue, lambda: recorded(call, make, has_ended), result)
        if self._limit_s:
            self._run_within(self._limit_s, lambda: recorded(call, make, has_ended))
        else:
            self._queue.run(recorded, call, make, has_ended)
        return None

    def _run_within(self, timeout_s: float, function: Callable[[], object]) -> None:
        """Makes a call that has a time of its own. When it has passed the group is at its end, as
        after its deadline."""
        queued = Queued(function)
        self._queue.submit(queued)
        if not self._queue.wait(queued, timeout_s):
            self.end_calls()
            raise errors.DeadlineError(f"rank {self._at.rank} of group {self._at.name}: not all "
                                       f"ranks have come within {timeout_s} s")
        if queued.error is not None:
            raise queued.error

    def run_plain(self, name: str, opts: Any, call: int, result: List[Any],
                  *args: Any) -> Optional[Work]:
        """As run(), of a method of Gloo's."""
        method = self._method_of_plain(name)

        def make() -> None:
            work = method(*args, opts)
            if work is not None:
                work.wait()

        return self.run(opts, call, make, result, _always)

    def _method_of_plain(self, name: str) -> Callable[..., Any]:
        if self.plain is None:
            raise errors.InvalidError(f"{name} is Gloo's, which this PyTorch does not have")
        return _compat.method_of(self.plain, name)

    def last_of(self, works: Sequence[Work], result: List[Any]) -> Work:
        """Returns a handle that ends behind all of these."""
        return Work(self._queue, lambda: [work.wait() for work in works], result)

    # --- calls of which channels have no shape ----------------------------------------------

    def barrier(self, opts: Any) -> Optional[Work]:
        call = self.begin("barrier")
        if call < 0:
            return self.run_plain("barrier", opts, ~call, [])
        if opts.timeout > datetime.timedelta(0) and not opts.asyncOp:
            self._run_within(opts.timeout.total_seconds(), lambda: self.record.recorded(
                call, lambda: _tensors.barrier(self.group), self.has_ended))
            return None
        return self.run(opts, call, lambda: _tensors.barrier(self.group), [])

    def monitored_barrier(self, timeout: datetime.timedelta, wait_all_ranks: bool) -> None:
        """Gloo's, which names the ranks that do not come."""
        call = ~self.begin("monitored_barrier", why_not="channels have none")
        method = self._method_of_plain("monitored_barrier")
        self._queue.run(self.record.recorded, call, lambda: method(timeout, wait_all_ranks),
                        _always)

    def _begin_message(self, kind: str, x: torch.Tensor, peer: int, tag: int) -> int:
        """As begin()."""
        why_not = "channels have no tags but 0" if tag else ""
        way = self.ways.of(kind, x, tag % _flight.NO_TAG if tag else None, why_not)
        section = self.record.section
        call = 0 if section is None else section.message(way.codes, x.numel(), peer)
        return call if way.is_ours else ~call

    def message(self, kind: str, tensors: List[torch.Tensor], peer: int, tag: int) -> Any:
        """A message's way is what both its ends see alike: its tag. The channel has none, so a
        message with one is Gloo's, and never takes the place of one without."""
        x = tensors[0]
        call = self._begin_message(kind, x, peer, tag)
        if call < 0:
            return Told(self._method_of_plain(kind)(tensors, peer, tag), self.record, ~call)
        group, make = self.group, _tensors.send if kind == "send" else _tensors.receive
        queue = self._messages.get((kind, peer))
        if queue is None:
            queue = self._messages.setdefault((kind, peer), CallQueue(
                f"ceoverlap {self._at.name}: {kind} {peer}"))
        return Work(queue, lambda: self.record.recorded(
            call, lambda: make(group, x, peer), _always), tensors,
            peer if kind == "recv" else self._at.rank)

    def receive_any(self, tensors: List[torch.Tensor], tag: int) -> Any:
        """Gloo's, so its message needs a tag, with which sends are Gloo's, too."""
        if not tag and not self.ways.refusal:
            raise errors.InvalidError("a receive from any rank: pass src, or a tag other than 0 "
                                      "at both ends, with which messages go by Gloo: those "
                                      "without a tag go by a channel, which needs to know the "
                                      "sender")
        self.ways.of("recv_anysource", why_not="channels have none")
        return self._method_of_plain("recv_anysource")(tensors, tag)

    # --- its life --------------------------------------------------------------------------

    def limit(self, timeout: datetime.timedelta) -> None:
        """Sets how long a call may last, if that is less than the group's timeout, which the
        channel keeps; calls with async_op=True keep that, too."""
        self._limit_s = 0.0
        if timeout < self._timeout:
            self._limit_s = timeout.total_seconds()
        elif timeout > self._timeout:
            logging.getLogger("ceoverlap").warning(
                "group %s: calls end after %s, with which the group was made: a longer timeout "
                "needs a new group", self._at.name, self._timeout)
        if self.plain is not None:
            self.plain.set_timeout(timeout)

    def end_calls(self) -> None:
        """Ends the channel, and with it the calls of all ranks that are under way."""
        if self.group is not None:
            self.group.end_channel()

    def close(self, timeout_s: float) -> None:
        """Closes it, once the calls that were made are through. Waits for no peer that does not
        take part in them. timeout_s: how long they may take; 0: they are ended."""
        if not timeout_s:
            self.end_calls()
        queues = [self._queue, *self._messages.values()]
        if not all([queue.close(timeout_s) for queue in queues]):
            self.end_calls()
        if self.group is not None:
            self.group.close()


def _always() -> bool:
    """After a failure of Gloo's, or of a message, peers may wait in the call."""
    return True
