# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Plans: sets of transfers, checked, routed and cut once, then launched many times."""

from __future__ import annotations

import collections
import ctypes
import math
import os
from struct import Struct
from struct import error as StructError
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from . import _abi, _object, errors
from ._owner import Owner
from .buffer import Array, Buffer, Memory, memory_of
from .signal import Mark, Signal
from .stream import StreamLike, stream_handle

_ROUTES = {"default": _abi.CEOV_ROUTES_DEFAULT, "direct": _abi.CEOV_ROUTES_DIRECT,
           "all": _abi.CEOV_ROUTES_ALL}
_URGENCIES = {"normal": _abi.CEOV_URGENCY_NORMAL, "urgent": _abi.CEOV_URGENCY_URGENT,
              "background": _abi.CEOV_URGENCY_BACKGROUND}


def number_of(names: Dict[str, int], name: str, what: str) -> int:
    """Returns the library's constant for a word; `what` names the option in the error."""
    if name not in names:
        raise errors.InvalidError(f"{what} {name!r}: one of {', '.join(names)}")
    return names[name]


_LAUNCH_BYTES = ctypes.sizeof(_abi.ceov_launch)
_pack_launch = Struct(f"={_LAUNCH_BYTES // 8}Q").pack


def _launch_struct(base: int, deadline_ns: int, producer_stream: Optional[int],
                   after_stream: Optional[int], floating: int) -> _abi.ceov_launch:
    """Returns the launch's struct, packed at once: assigned one by one, the fields would take
    longer than the call itself."""
    try:
        packed = _pack_launch(_LAUNCH_BYTES, base, deadline_ns, producer_stream or 0,
                              after_stream or 0, floating)
    except StructError:
        raise errors.InvalidError(f"launch: base {base}, streams {producer_stream} and "
                                  f"{after_stream}: must be numbers from 0 to 2^64 - 1"
                                  ) from None
    return _abi.ceov_launch.from_buffer_copy(packed)


class Spot(NamedTuple):
    """A place in a buffer: the offset of its first byte, and the distance from the begin of one
    row to the next one's (not used for a single row)."""
    buffer: Buffer
    offset_bytes: int = 0
    pitch_bytes: int = 0

    def _struct(self) -> _abi.ceov_spot:
        return _abi.ceov_spot(self.buffer._open_handle(), self.offset_bytes,
                              self.pitch_bytes)


class Transfer(NamedTuple):
    """When the marks source_ready and target_free are reached, moves n_rows rows of row_bytes
    from source to target (a Spot, or a Buffer from its first byte on), then raises the mark
    `then`. Marks may be None.

    With n_rows_at, a place of 8 bytes in host memory of the plan's rank, each launch moves as
    many rows as the number there says when source_ready is reached, at most n_rows.

    With row_bytes 0 a transfer moves nothing and has no buffers: it raises `then` behind the
    bytes of all transfers before it."""
    source: Union[None, Spot, Buffer] = None
    target: Union[None, Spot, Buffer] = None
    row_bytes: int = 0
    n_rows: int = 1
    source_ready: Optional[Mark] = None
    target_free: Optional[Mark] = None
    then: Optional[Mark] = None
    n_rows_at: Union[None, Spot, Buffer] = None

    def _struct(self) -> _abi.ceov_transfer:
        struct = _abi.new(_abi.ceov_transfer)
        struct.row_bytes = self.row_bytes
        struct.n_rows = self.n_rows
        for name in ("source", "target", "n_rows_at"):
            spot = getattr(self, name)
            if spot is not None:
                spot = spot if isinstance(spot, Spot) else Spot(spot)
                if not isinstance(spot.buffer, Buffer):
                    raise errors.InvalidError(f"{name}: a {type(spot.buffer).__name__}, must be "
                                              "a Buffer or a Spot of one: register() the array")
                setattr(struct, name, spot._struct())
        for name in ("source_ready", "target_free", "then"):
            mark = getattr(self, name)
            if mark is not None:
                setattr(struct, name, mark._struct())
        return struct

    def _objects(self) -> Iterator[Union[Buffer, Signal]]:
        """Yields the buffers and signals that the plan has to keep alive for this transfer."""
        for one in (self.source, self.target, self.n_rows_at):
            if one is not None:
                yield one if isinstance(one, Buffer) else one.buffer
        for mark in (self.source_ready, self.target_free, self.then):
            if mark is not None:
                yield mark.signal


class Ticket:
    """One launch of a plan. It keeps the plan alive."""

    __slots__ = ("_plan", "_struct")

    def __init__(self, plan: Plan, struct: _abi.ceov_ticket) -> None:
        self._plan = plan
        self._struct = struct

    @property
    def number(self) -> int:
        """The launch's number, which rises with every launch of the context."""
        return int(self._struct.number)

    def is_done(self) -> bool:
        """Returns whether the launch is done, without waiting. Raises the launch's error if it
        failed."""
        return not self._wait(0)

    def wait(self, timeout_s: Optional[float] = None) -> None:
        """Waits until all transfers are done. Raises the launch's error if it failed
        (DeadlineError, PeerLostError, AbortedError, ... with rank, transfer and mark), and
        PendingError if timeout_s passed first. None: the context's deadline."""
        limit = self._plan.context._limit(timeout_s)
        if not _object.wait(self._wait, limit):
            raise errors.make(_abi.CEOV_PENDING, f"launch {self.number} is still moving "
                              f"after {limit} s")

    def _wait(self, timeout_ns: int, is_long: bool = False) -> int:
        return self._plan.context._invoke("ceov_wait", None, self._struct, timeout_ns,
                                          is_long=is_long)

    def abort(self) -> bool:
        """Aborts the launch and every signal that the plan names, at every rank. Returns False
        if the launch had ended already. Aborted signals can be used again after renew()."""
        return not self._plan.context._invoke("ceov_abort", None, self._struct)

    def __repr__(self) -> str:
        return f"<ceoverlap.Ticket {self.number}>"


class Plan(_object.Object):
    """A set of transfers, carried out by the engine of one of this process' ranks. Add
    transfers, then commit(), then launch() any number of times. Until commit() only one thread
    may use it.

    max_chunk_bytes   as in struct ceov_plan_options; 0: the default
    mark_group_bytes  as in struct ceov_plan_options; 0: the default
    routes            "default", "direct" or "all"
    urgency           "normal", "urgent" or "background"
    """

    _release_call = "ceov_plan_release"
    _query = ("ceov_plan_query", _abi.ceov_plan_info)
    _idle_call = "ceov_plan_idle"
    _patience_s = math.inf              # launches end by their deadlines

    def __init__(self, context: Owner, rank: int, *, max_chunk_bytes: int = 0,
                 mark_group_bytes: int = 0, routes: str = "default",
                 urgency: str = "normal") -> None:
        super().__init__(context, rank)
        options = _abi.new(_abi.ceov_plan_options)
        options.max_chunk_bytes = max_chunk_bytes
        options.mark_group_bytes = mark_group_bytes
        options.routes = number_of(_ROUTES, routes, "routes")
        options.urgency = number_of(_URGENCIES, urgency, "urgency")
        self._in_flight: collections.deque[Tuple[int, Memory]] = collections.deque()
        self._named: List[Union[Buffer, Signal]] = []
        self._make_handle("ceov_plan_create", rank, ctypes.byref(options),
                          kept=(self._named, self._in_flight))

    @property
    def n_transfers(self) -> int:
        """How many transfers it has."""
        return int(self._info().n_transfers)

    @property
    def launch_bytes(self) -> int:
        """How many bytes a launch moves; with n_rows_at, at most."""
        return int(self._info().bytes)

    @property
    def is_committed(self) -> bool:
        """Whether commit() was called, and has succeeded."""
        return bool(self._info().is_committed)

    @property
    def n_in_flight(self) -> int:
        """How many launches are in flight."""
        return int(self._info().n_in_flight)

    @property
    def is_by_daemon(self) -> bool:
        """Whether a daemon carries it out, and not this process."""
        return bool(self._info().is_by_daemon)

    def _keep(self, *objects: Union[None, Buffer, Signal]) -> None:
        self._named.extend(one for one in objects if one is not None)

    def add(self, transfer: Optional[Transfer] = None, *,
            source: Union[None, Spot, Buffer] = None, target: Union[None, Spot, Buffer] = None,
            row_bytes: int = 0, n_rows: int = 1, source_ready: Optional[Mark] = None,
            target_free: Optional[Mark] = None, then: Optional[Mark] = None,
            n_rows_at: Union[None, Spot, Buffer] = None) -> Plan:
        """Adds a transfer: a Transfer object, or the fields of one as keyword arguments.
        Returns the plan."""
        if transfer is None:
            transfer = Transfer(source, target, row_bytes, n_rows, source_ready, target_free, then,
                                n_rows_at)
        self._invoke("ceov_plan_add", ctypes.byref(transfer._struct()))
        self._keep(*transfer._objects())
        return self

    def expect(self, *marks: Mark) -> Plan:
        """Tells the plan that something outside of it will raise these marks, so that commit()
        does not refuse to wait for them. Returns the plan."""
        for mark in marks:
            self._invoke("ceov_plan_expect", ctypes.byref(mark._struct()))
            self._keep(mark.signal)
        return self

    def commit(self) -> Plan:
        """Checks bounds, overlap, and that every mark waited for is raised by some transfer or
        expected; chooses routes. InvalidError names the transfer. Returns the plan."""
        self._invoke("ceov_plan_commit")
        return self

    def explain(self) -> str:
        """Returns a text with one line for each transfer: backend, route, trigger, chunks,
        expected time."""
        return told_by(lambda fd: self._invoke("ceov_plan_explain", fd))

    def launch(self, base: int = 0, *, deadline_s: float = 0.0,
               producer_stream: Optional[StreamLike] = None,
               after_stream: Optional[StreamLike] = None, floating: Array = None) -> Ticket:
        """Runs the plan once; base is added to every mark's value. FullError: too many
        launches are in flight.

        deadline_s       from now; 0: the context's
        producer_stream  what raises the plan's source_ready marks is queued already on this
                         stream (host ranks: any integer that names the thread)
        after_stream     the copies come after what is queued on this stream; GPU ranks
        floating         the memory of the plan's floating buffer in this launch; it is
                         referenced until the launch is done
        """
        memory = None if floating is None else memory_of(floating)
        if memory is not None:
            self._check_floating(memory)
        launch = _launch_struct(base, _object.ns(deadline_s), stream_handle(producer_stream),
                                stream_handle(after_stream),
                                0 if memory is None else memory.address)
        ticket = Ticket(self, _abi.ceov_ticket())
        if self._invoke("ceov_launch", ctypes.byref(launch), ctypes.byref(ticket._struct)):
            raise errors.make(_abi.CEOV_FULL, "too many launches are in flight: wait for one")
        if memory is not None:
            self._hold(ticket.number, memory)
        return ticket

    def queue(self, stream: StreamLike, base: int = 0) -> None:
        """Queues the whole plan on a stream (an integer or an object; see stream_handle()),
        from this thread and in the plan's order: waits for marks, copies, raises. The engine
        has no part in it; so there is no ticket and no deadline, and an abort opens the
        waits: look at the signals after the stream went on. Until then memory and signals
        stay, and are not renewed; the plan may be closed. Queue it only after the work that
        raises what it waits for. base as in launch(). GPU ranks only; one thread.

        InvalidError: a host rank, a base that falls, a floating buffer, a transfer without a
        direct path or behind a mark of a later one, a stream that is being captured.
        NoRouteError: a mark to wait for is in another process' GPU. StateError: a launch of
        the plan is in flight."""
        self._invoke("ceov_plan_queue", stream_handle(stream), base)

    def _check_floating(self, memory: Memory) -> None:
        sizes = [one.size_bytes for one in self._named if isinstance(one, Buffer)
                 and one.is_floating]
        if not sizes:
            raise errors.InvalidError("the plan has no floating buffer")
        if memory.size_bytes < sizes[0]:
            raise errors.InvalidError(f"floating: {memory.size_bytes} bytes, the buffer has "
                                      f"{sizes[0]}")

    def _hold(self, number: int, memory: Memory) -> None:
        """Keeps the memory of a floating buffer alive until launch `number`, which uses it, is
        done."""
        self._in_flight.append((number, memory))
        while self._in_flight and self._has_ended(self._in_flight[0][0]):
            self._in_flight.popleft()

    def _has_ended(self, number: int) -> bool:
        try:
            return self._context._invoke("ceov_wait", None, _abi.ceov_ticket(number),
                                         0) != _abi.CEOV_PENDING
        except errors.CeoverlapError:   # it failed: told to who holds its ticket
            return True

    def _forget(self) -> None:
        super()._forget()
        self._in_flight = collections.deque()
        self._named = []

    def close(self) -> None:
        """Waits for launches in flight, each of which is bounded by its deadline, and releases
        the plan."""
        super().close()


def told_by(tell: Callable[[int], object]) -> str:
    """Returns the text that the library writes into a file: tell(fd) is called with its
    descriptor."""
    with os.fdopen(os.memfd_create("ceoverlap-text"), "rb") as file:
        tell(file.fileno())
        file.seek(0)
        return file.read().decode(errors="replace")
