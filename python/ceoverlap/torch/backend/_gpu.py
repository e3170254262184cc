# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Calls of a backend with tensors on a GPU. A call is queued on the caller's current stream, and
with async_op=True on a stream of the backend that begins behind it, as with NCCL. What the channel
does not have is NCCL's, on the same streams.

Kernels of the channel and of NCCL wait for their peers on the SMs that they hold, so none begins
while one of the other kind waits: in each rank the calls of both kinds follow each other on the GPU
in the order in which they are made, which is the same at all ranks. Messages have an order with
their own kind alone. They are the channel's wherever the group has one, so NCCL's kernels meet
them, but few of them, and they leave enough SMs free."""

from __future__ import annotations

import collections
import datetime
import logging
import threading
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist

from ... import _flight, errors
from .. import _compat
from .._pool import GroupPool
from ..group import Group, Ranks, seconds_of
from . import _tensors
from ._record import AllCalls, Record, Recorded
from ._ways import GPU_SUMS, Ways
from ._work import Message, OnStream, Together

PRIORITY = -1                           # of own streams: a call's few SMs come before a product's


class _Order:
    """Lets each kind of kernel wait for the other kind's last one. It is the group's queue, by
    which ceoverlap.torch's moves and sums go, too."""

    def __init__(self, device: torch.device) -> None:
        self._device, self._index = device, device.index
        self._streams: Dict[int, torch.cuda.Stream] = {}        # by their handles
        self._ours: Optional[int] = None        # the stream of the channel's last call
        self._plain: Set[int] = set()           # those of NCCL's since then

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Returns function(*args), which makes a call of the channel on the current stream."""
        handle = self._current()
        if self._plain:
            for other in self._plain:
                self._follow(handle, other)
            self._plain.clear()
        self._ours = handle             # whose calls follow each other by themselves
        return function(*args)

    def run_plain(self, function: Callable[..., Any], *args: Any) -> Any:
        """The like, of NCCL's calls."""
        handle = self._current()
        if self._ours is not None:
            self._follow(handle, self._ours)
        self._plain.add(handle)
        return function(*args)

    def _current(self) -> int:
        handle = _compat.current_stream(self._index)
        if handle not in self._streams:
            self._streams[handle] = torch.cuda.current_stream(self._device)
        return handle

    def _follow(self, handle: int, other: int) -> None:
        """Lets a stream wait for what another one has: a captured one for one of a capture, too,
        because a graph begins behind nothing but what its stream has when it is replayed."""
        if handle == other:
            return
        stream, before = self._streams[handle], self._streams[other]
        if _is_capturing(stream) == _is_capturing(before):
            stream.wait_stream(before)


def _is_capturing(stream: torch.cuda.Stream) -> bool:
    with torch.cuda.stream(stream):
        return _compat.is_capturing()


class Gpu(Recorded):
    """What a backend has for tensors on a GPU. All ranks make it together.

    nccl    makes NCCL's backend of the same ranks, or returns it; None if there is none
    defers  whether messages wait for the first handle that is waited for, or for another call:
            PyTorch does not tell which ones belong together, and one after the other they would
            wait for each other"""

    def __init__(self, ranks: Ranks, device: torch.device, timeout: datetime.timedelta,
                 nccl: Callable[[], object], defers: bool, record: Record) -> None:
        if _compat.is_capturing():
            raise errors.InvalidError(
                f"group {ranks.name}: its first call with a tensor on a GPU is captured into a "
                "graph: make one before, in which all its ranks meet")
        self._at, self.device, self._timeout = ranks, device, timeout
        self._make_nccl, self._defers, self.record = nccl, defers, record
        self._plain: Any = None
        found = Group.of_ranks(ranks, device, seconds_of(timeout))
        self.group = found if found.n_nodes == 1 else None
        self._shares_gpus = found.shares_gpus
        self.ways = Ways(ranks.name, self._refusal(), "Gloo" if self._shares_gpus else "NCCL",
                         GPU_SUMS)
        # Then its calls and handles are NCCL's own, as in a process group of NCCL.
        self._is_all_nccl = bool(self.ways.refusal) and not self._shares_gpus
        self._order = _Order(device)
        if self.group is not None:
            self.group.queue = AllCalls(self._order, self, _flight.ISSUED, True)
        self._own = torch.cuda.Stream(device, priority=PRIORITY)
        self._beside = torch.cuda.Stream(device, priority=PRIORITY)     # for messages
        self._kept: Deque[Tuple[torch.cuda.Event, object]] = collections.deque()
        self._pending: List[Message] = []
        self._lock = threading.RLock()  # of the two
        self._is_gathering = False      # messages, until end_coalescing()

    def _refusal(self) -> str:
        if self.group is None:
            return "its ranks are on several nodes"
        if self.group.channel is None:
            return f"its ranks can have no channel: {self.group.why_no_channel}"
        return ""

    def check_place(self, device: torch.device) -> None:
        if device != self.device:
            raise errors.InvalidError(
                f"group {self._at.name}: a tensor on {device}: this rank is on {self.device}, "
                "where its first one was")

    # --- ways ------------------------------------------------------------------------------

    def run(self, opts: Any, call: int, function: Callable[[], object],
            result: List[Any]) -> Optional[OnStream]:
        """Queues a call; with async_op=True on a stream of its own. Without it there is no handle,
        as with NCCL. call: what begin() has returned; result: the tensors that it sets."""
        if self._pending:
            self.flush()
        if not opts.asyncOp:
            self._issue(call, function)
            return None
        self._let_go()
        self._own.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._own):
            self._issue(call, function)
            return OnStream(self, result, function, self._own.record_event())

    def _issue(self, call: int, function: Callable[[], object]) -> None:
        self.record.recorded(call, function, self.has_ended, _flight.ISSUED)

    def run_plain(self, name: str, opts: Any, call: int, result: List[Any], *args: Any) -> Any:
        """As run(), of a method of NCCL's."""
        method, made = _compat.method_of(self.plain, name), []
        if self._is_all_nccl:
            if self._pending:
                self.flush()
            self._issue(call, lambda: made.append(method(*args, opts)))
            return made[0]
        return self.run(opts, call,
                        lambda: self._order.run_plain(_wait_for, method, args, opts), result)

    @property
    def plain(self) -> Any:
        """NCCL's backend of the same ranks, or, as NCCL refuses ranks that share a GPU, Gloo's. It
        is made when it is first needed."""
        if self._plain is None:
            self._plain = _compat.make_gloo(
                dist.PrefixStore("plain", self._at.store), self._at.rank, self._at.size,
                self._timeout, self) if self._shares_gpus else self._make_nccl()
        if self._plain is None:
            raise errors.InvalidError(f"group {self._at.name}: the call is NCCL's, which this "
                                      "PyTorch does not have")
        return self._plain

    def last_of(self, works: Sequence[object], result: List[Any]) -> Any:
        """Returns a handle that ends behind all of these, which have come one after the other."""
        if self._is_all_nccl:
            return Together(works, result)
        return OnStream(self, result, works, self._own.record_event())

    # --- memory ----------------------------------------------------------------------------

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return not self.ways.refusal and device in (self.device, torch.device("cuda"))

    def allocate_tensor(self, size: Any, *, dtype: torch.dtype,
                        device: torch.device) -> torch.Tensor:
        if self.group is None or not self.supports_tensor_alloc(device):
            raise errors.InvalidError(
                f"group {self._at.name}: no memory for communication on {device}: "
                f"{self.ways.refusal or f'this rank is on {self.device}'}")
        return self.group.part(GroupPool).empty(size, dtype)

    def keep(self, event: torch.cuda.Event, held: object) -> None:
        """Keeps a call's tensors until the GPU has passed the event: of a handle that went without
        having been waited for, so other streams know nothing of it."""
        with self._lock:
            self._kept.append((event, held))

    def _let_go(self) -> None:
        if not self._kept or _compat.is_capturing():    # where events cannot be asked
            return
        with self._lock:
            while self._kept and self._kept[0][0].query():
                self._kept.popleft()

    # --- calls of which channels have no shape ----------------------------------------------

    def barrier(self, opts: Any) -> Optional[OnStream]:
        """Blocks the host, as NCCL's does; with async_op=True, wait() does."""
        call = self.begin("barrier")
        if call < 0:
            work = self.run_plain("barrier", opts, ~call, [])
        else:
            work = self.run(opts, call, lambda: _tensors.barrier(self.group), [])
        if opts.asyncOp:
            if isinstance(work, OnStream):
                work.blocks = True
        elif not _compat.is_capturing():
            torch.cuda.current_stream(self.device).synchronize()
            self.check()
        return work

    def message(self, kind: str, tensors: List[torch.Tensor], peer: int, tag: int) -> Any:
        """As with NCCL a tag has no meaning: messages of a pair arrive in their order."""
        way, section = self.ways.of(kind, tensors[0]), self.record.section
        if section is not None:
            section.end(section.message(way.codes, tensors[0].numel(), peer), _flight.ISSUED)
        if not way.is_ours and self._is_all_nccl and not self._defers:
            return getattr(self.plain, kind)(tensors, peer, tag)
        made = Message(self, kind, tensors, peer, self._at.rank)
        self._beside.wait_stream(torch.cuda.current_stream(self.device))
        with self._lock:
            self._pending.append(made)
        if not self._defers and not self._is_gathering:
            self.flush()
        return made

    def receive_any(self, _tensors_of: Any, _tag: int) -> Any:
        raise errors.InvalidError("a receive from any rank: pass src: neither channels nor NCCL "
                                  "have one")

    def start_coalescing(self) -> None:
        self._is_gathering = True
        if self._is_all_nccl:
            _compat.start_coalescing(self.plain)

    def end_coalescing(self) -> Any:
        """Returns a handle that ends behind all calls so far."""
        self._is_gathering = False
        if self._is_all_nccl:
            return _compat.end_coalescing(self.plain)
        self.flush()
        self._own.wait_stream(torch.cuda.current_stream(self.device))
        self._own.wait_stream(self._beside)
        return OnStream(self, [], None, self._own.record_event())

    def flush(self) -> None:
        """Makes the messages that were put off, all at the same time. An error is its messages'."""
        with self._lock:
            pending, self._pending = self._pending, []
        if not pending:
            return
        self._let_go()
        error = None
        with torch.cuda.stream(self._beside):
            try:
                if self.ways.refusal:
                    self._make_plain(pending)
                else:
                    _tensors.messages(self.group, [(one.kind == "send", one.tensors[0], one.peer)
                                                   for one in pending])
            except errors.CeoverlapError as failure:
                error = failure
            event = self._beside.record_event()
        for one in pending:
            one.end(event, error)

    def _make_plain(self, pending: Sequence[Message]) -> None:
        for work in _compat.send_and_receive(self.plain, [
                (one.kind, one.tensors, one.peer) for one in pending]):
            work.wait()

    # --- its life --------------------------------------------------------------------------

    def check(self) -> None:
        """Raises the error that ended the channel, if any."""
        if self.group is None or self.group.channel is None:
            return
        try:
            self.group.channel.check()
        except errors.CeoverlapError as error:
            if self.record.section is not None:
                self.record.failed(self.record.section.latest, error, True)
            raise

    def limit(self, timeout: datetime.timedelta) -> None:
        """The channel keeps the deadline with which it was made."""
        if timeout != self._timeout and not self.ways.refusal:
            logging.getLogger("ceoverlap").warning(
                "group %s: calls on GPUs end after %s, with which the group was made: another "
                "timeout needs a new group", self._at.name, self._timeout)
        if self._plain is not None:
            _compat.set_timeout_of(self._plain, timeout)

    def end_calls(self) -> None:
        """Ends the channel, and with it the calls of all ranks that are under way."""
        if self.group is not None:
            self.group.end_channel()

    def close(self, timeout_s: float) -> None:
        """Closes it, once the calls that were made are through, which takes no longer than their
        deadline. timeout_s: 0: they are ended. NCCL's backend belongs to the caller."""
        if timeout_s:
            self.flush()
        else:
            self.end_calls()
        if self.group is not None:
            self.group.close()
        torch.cuda.synchronize(self.device)
        self._kept.clear()


def _wait_for(call: Callable[..., Any], args: Tuple[Any, ...], opts: Any) -> None:
    """Makes one of PyTorch's own calls so that the current stream has it."""
    is_async = opts.asyncOp
    opts.asyncOp = False                # the stream is the call's already
    try:
        work = call(*args, opts)
    finally:
        opts.asyncOp = is_async
    if work is not None:
        work.wait()
