# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The context: what this process holds of a group of ranks."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import functools
import logging
import os
import threading
import weakref
from typing import (Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, TypeVar,
                    Union)

from . import _abi, _gpus, _lasting, _log, _object, errors
from ._owner import Owner
from .buffer import Array, Buffer, memory_of
from .network import Network
from .place import Place, PlaceLike, place_from, place_of
from .plan import Plan
from .signal import Mark, MarkList, Signal
from .stream import StreamLike, stream_handle

_lib = _abi.lib

DEADLINE_S = 60.0                       # the library's default
_BOOTSTRAPS = {_abi.CEOV_BOOTSTRAP_CALLBACK: "callback", _abi.CEOV_BOOTSTRAP_PMIX: "pmix",
               _abi.CEOV_BOOTSTRAP_STORE: "store", _abi.CEOV_BOOTSTRAP_ALONE: "alone"}
EXIT_S = 2.0                            # how long calls in flight hold up the exit

Marks = Union[MarkList, Sequence[Mark]]
_Item = TypeVar("_Item")


def _path_of(group: Union[str, os.PathLike[str]]) -> bytes:
    path = os.fsencode(group)
    if b"\0" in path:
        raise errors.InvalidError(f"group {group!r}: has a NUL, where C would cut it off")
    return path


class Context(_object.NotCopied, Owner):
    """Opens ranks of this process and meets the group's other ranks.

    ranks      the rank of this process, or several; None: as the environment has it
               (docs/configuration.md), which launchers set, else rank 0, alone. One of several
               processes of a launcher is refused if nothing says how they meet
    n_ranks    of the whole group; None: as the environment has it where ranks is None, else as
               many as this process has, without a group
    place      "host", "gpu:N" or one of them for each rank; None: CEOVERLAP_PLACE, else
               GPU N for rank N where ranks are named, modulo the number of GPUs
    group      path of the unix socket where the ranks of several processes meet; None:
               CEOVERLAP_GROUP, else all ranks are in this process
    network    how the ranks of several nodes meet, a Network; None: as the environment has it,
               else all ranks are on one node
    max_chunk_bytes, deadline_s, progress_by_caller
               as in struct ceov_config; deadline_s bounds every wait that names none
    logger     gets the library's lines; default: logging.getLogger("ceoverlap").
               CEOVERLAP_LOG (error, warn, info, debug) says which the library writes

    It blocks until all ranks have come; Ctrl-C ends that, though the place at the group may
    stay taken until deadline_s has passed. Close it, best by ``with``: that aborts what is in
    flight and releases what was not. Any thread may use it; each host rank that runs
    operators needs a thread of its own, and calls into the library let others run.
    """

    def __init__(self, ranks: Union[None, int, Iterable[int]] = None,
                 n_ranks: Optional[int] = None,
                 place: Union[None, PlaceLike, Sequence[PlaceLike]] = None,
                 group: Union[None, str, os.PathLike[str]] = None, *, max_chunk_bytes: int = 0,
                 deadline_s: float = DEADLINE_S, progress_by_caller: bool = False,
                 logger: Optional[logging.Logger] = None,
                 network: Optional[Network] = None) -> None:
        super().__init__(logger or logging.getLogger("ceoverlap"), deadline_s)
        self._lock = threading.Lock()   # of _is_closing's rise
        self._is_given_up = False       # while it was being opened
        self._callback = _log.make_callback(self._logger)
        self._places: Dict[int, Place] = {}
        config = _abi.new(_abi.ceov_config)
        members = self._members(ranks, n_ranks, place, group)
        if members:
            config.members = members
            config.n_members = len(members)
        config.n_ranks = self._n_ranks
        config.group = _path_of(group) if group is not None else None
        config.max_chunk_bytes = max_chunk_bytes
        config.deadline_ns = _object.ns(deadline_s)
        config.progress_by_caller = bool(progress_by_caller)
        self._is_turned = bool(progress_by_caller)
        config.log = self._callback
        if network is not None:
            struct = network._struct()
            config.network = ctypes.pointer(struct)
        self._open(config, network)

    def _members(self, ranks: Union[None, int, Iterable[int]], n_ranks: Optional[int],
                 place: Union[None, PlaceLike, Sequence[PlaceLike]],
                 group: Union[None, str, os.PathLike[str]]) -> Any:
        """Returns the C array of this process' ranks and their places; None if the library
        shall take both from the environment."""
        if ranks is None:
            self._ranks: Tuple[int, ...] = ()   # asked for when the context is open
            self._n_ranks: int = n_ranks or 1
            if self._n_ranks < 1:
                raise errors.InvalidError(f"n_ranks is {n_ranks}: at least 1")
            if place is None:
                return None
            only = place_of(place if isinstance(place, (str, Place)) else self._only(place))
            return (_abi.ceov_member * 1)(_abi.ceov_member(_abi.CEOV_NOBODY, only._struct()))
        self._ranks = (ranks,) if isinstance(ranks, int) else tuple(ranks)
        if n_ranks is None and group is not None:
            raise errors.InvalidError("a group has ranks elsewhere: say n_ranks")
        self._n_ranks = n_ranks if n_ranks is not None else len(self._ranks)
        if not self._ranks or min(self._ranks) < 0 or self._n_ranks < 1:
            raise errors.InvalidError(f"ranks {self._ranks} of {self._n_ranks}: at least "
                                      "one, counted from 0")
        if place is None:
            place = os.environ.get("CEOVERLAP_PLACE") or None
        if place is None:
            places = [Place("gpu", _gpus.of_rank(rank)) for rank in self._ranks]
        elif isinstance(place, (str, Place)):
            places = [place_of(place)] * len(self._ranks)
        else:
            places = [place_of(one) for one in place]
        if len(places) != len(self._ranks):
            raise errors.InvalidError(f"{len(places)} places for {len(self._ranks)} ranks")
        self._places = dict(zip(self._ranks, places))
        members = (_abi.ceov_member * len(places))()
        for i, rank in enumerate(self._ranks):
            members[i] = _abi.ceov_member(rank, places[i]._struct())
        return members

    @staticmethod
    def _only(places: Iterable[PlaceLike]) -> PlaceLike:
        places = list(places)
        if len(places) != 1:
            raise errors.InvalidError(f"{len(places)} places for 1 ranks")
        return places[0]

    def _open(self, config: _abi.ceov_config, network: Optional[Network]) -> None:
        try:
            result, failure, lines = _lasting.call(functools.partial(self._open_now, config))
        except BaseException:           # interrupted: it goes on, and is not wanted any more
            self._is_given_up = True
            if self._handle is not None:
                self.close()
            raise
        if result:
            raise self._exception("ceov_open", result, lines, failure) from (
                None if network is None else network.error)
        _open_contexts.add(self)
        _log.write_all(self._logger, lines)
        if not self._ranks:
            self._take_members()

    def _take_members(self) -> None:
        """Asks for the ranks that a launcher or the environment has given this process."""
        info = self._info()
        self._n_ranks = info.n_ranks
        members = (_abi.ceov_member * info.n_members)()
        self._invoke("ceov_members", None, members, info.n_members,
                     ctypes.byref(ctypes.c_uint32()))
        self._ranks = tuple(member.rank for member in members)
        self._places = {member.rank: place_from(member.place) for member in members}

    def _open_now(self, config: _abi.ceov_config
                  ) -> Tuple[int, Optional[errors.Failure], List[str]]:
        handle = ctypes.c_void_p()
        outer = _log.begin_call()
        failure = None
        try:
            result = _lib.ceov_open(ctypes.byref(config), ctypes.byref(handle))
            if result:                  # there is no context to ask: this thread has it
                failure = self._take_failure(None)
        finally:
            self._handle = handle.value         # None where it has failed
            lines = _log.end_call(outer)
        if self._is_given_up:           # set before who set it has looked for the handle
            self.close()
        return result, failure, lines

    # --- facts ---------------------------------------------------------------------

    def place(self, rank: Optional[int] = None) -> Place:
        """Returns where the memory of one of this process' ranks is; None: of its first rank."""
        return self._places[self._own(rank)]

    def _info(self) -> _abi.ceov_context_info:
        info = _abi.new(_abi.ceov_context_info)
        self._invoke("ceov_context_query", None, ctypes.byref(info))
        return info

    @property
    def n_processes(self) -> int:
        """How many processes the group has."""
        return int(self._info().n_processes)

    @property
    def n_nodes(self) -> int:
        """How many nodes the group's ranks are on."""
        return int(self._info().n_nodes)

    @property
    def node(self) -> int:
        """The number of this process' node, counted in the order of the nodes' lowest ranks."""
        return int(self._info().node)

    @property
    def bootstrap(self) -> str:
        """How the processes have found each other, as CEOVERLAP_BOOTSTRAP names it, or "callback";
        "alone" where no other nodes were looked for."""
        return _BOOTSTRAPS[self._info().bootstrap]

    @property
    def has_daemon(self) -> bool:
        """Whether a daemon moves the data of this process, or some of it, and lives."""
        return bool(self._info().has_daemon)

    # --- verbs ---------------------------------------------------------------------------

    def turn(self) -> bool:
        """Has every engine of this process make one pass over its work, if the context was
        opened with progress_by_caller. Returns whether there is more to do. Only one thread may
        call it."""
        return self._invoke("ceov_turn", None) == _abi.CEOV_PENDING

    def barrier(self, timeout_s: Optional[float] = None) -> None:
        """Returns when every process of the group has called it as often as this one.
        DeadlineError names a missing rank, PeerLostError a dead one; after a DeadlineError,
        or Ctrl-C, the next call goes on with the same round. One thread."""
        self._meet("ceov_barrier", timeout_s)

    def reopen(self, timeout_s: Optional[float] = None) -> None:
        """Goes on with the next daemon after DaemonLostError. All processes of the group call
        it, also those whose daemon was not lost or that have none. Afterwards buffers, signals
        and plans work as before; signals of plans that a daemon carries out, and signals that
        were aborted, count from 0, all others keep their counters; operators' workspaces with
        such signals have failed and are made anew. After an error or Ctrl-C the next call goes on where this one was; DaemonLostError: the next
        daemon has gone, too, and all call again. One thread, and no other is in a call of the
        context but those that wait for launches and signals."""
        self._meet("ceov_reopen", timeout_s)

    def _meet(self, name: str, timeout_s: Optional[float]) -> None:
        deadline = _object.deadline_of(self._limit(timeout_s))
        slice_s = _object.slice_of(deadline, _object.SHORT_S)
        while not self._has_met(name, slice_s):
            slice_s = _object.slice_of(deadline, _object.SLICE_S)

    def _has_met(self, name: str, slice_s: float) -> bool:
        """Tries a call for slice_s seconds that the next one goes on with, and returns whether
        it is complete. With slice_s 0 a timeout is final, and raises DeadlineError."""
        call = functools.partial(self._outcome, name, [None, _object.ns(slice_s)])
        result, failure, lines = call() if slice_s <= _object.SHORT_S else _lasting.call(call)
        if result == _abi.CEOV_ERR_TIMEOUT and slice_s:
            if failure is not None and failure.code != result:
                self._latest = failure
            return False
        if result < 0:
            raise self._exception(name, result, lines, failure)
        return True

    def register(self, memory: Array, rank: Optional[int] = None) -> Buffer:
        """Returns a Buffer on the caller's memory: any writable object without gaps that has
        ``__cuda_array_interface__``, ``__array_interface__``, DLPack or the buffer protocol.
        The object is referenced until the buffer is released. Ordinary host memory cannot be
        shared with other processes; see allocate()."""
        return Buffer._register(self, self._own(rank), memory_of(memory))

    def allocate(self, size_bytes: int, rank: Optional[int] = None) -> Buffer:
        """Returns a Buffer on new memory in the rank's place, which can be shared with other
        processes."""
        return Buffer._create(self, self._own(rank), size_bytes, False)

    def floating(self, size_bytes: int, rank: Optional[int] = None) -> Buffer:
        """Returns a floating Buffer: a placeholder of this size for memory that each launch
        names. It can only be the source of transfers."""
        return Buffer._create(self, self._own(rank), size_bytes, True)

    def find_buffer(self, rank: int, name: str,
                    timeout_s: Optional[float] = None) -> Buffer:
        """Returns the buffer that `rank` shared under this name, and waits for it. Raises
        PendingError if it was not shared within timeout_s."""
        return Buffer._find(self, rank, name, self._limit(timeout_s))

    def signal(self, n_counters: int = 1, rank: Optional[int] = None,
               place: Optional[PlaceLike] = None, host_visible: bool = False) -> Signal:
        """Returns a Signal with n_counters counters, which begin at 0. They are in `place`,
        which is the rank's own place if None. Waiting is fastest if the counters are near the
        one who waits."""
        rank = self._own(rank)
        where = self.place(rank) if place is None else place_of(place)
        flags = _abi.CEOV_SIGNAL_HOST_VISIBLE if host_visible else 0
        return Signal._create(self, rank, where, n_counters, flags)

    def find_signal(self, rank: int, name: str,
                    timeout_s: Optional[float] = None) -> Signal:
        """Returns the signal that `rank` shared under this name, and waits for it, as
        find_buffer() does."""
        return Signal._find(self, rank, name, self._limit(timeout_s))

    def plan(self, rank: Optional[int] = None, *, max_chunk_bytes: int = 0,
             mark_group_bytes: int = 0, routes: str = "default",
             urgency: str = "normal") -> Plan:
        """Returns an empty Plan of one of this process' ranks; the options are those of Plan."""
        return Plan(self, self._own(rank), max_chunk_bytes=max_chunk_bytes,
                    mark_group_bytes=mark_group_bytes, routes=routes, urgency=urgency)

    def stream_raise(self, stream: StreamLike, marks: Marks, base: int = 0,
                     rank: Optional[int] = None) -> None:
        """Queues a raise of the marks on a stream (an integer or an object; see
        stream_handle()), behind what the stream holds. base is added to every mark's value. For
        GPU ranks only."""
        self._on_stream("ceov_stream_raise", stream, marks, base, rank)

    def stream_wait(self, stream: StreamLike, marks: Marks, base: int = 0,
                    rank: Optional[int] = None) -> None:
        """Has a stream wait until the marks are reached: what is queued on it from now on runs
        afterwards. Call it only after the work that raises the marks is queued. For GPU ranks
        only. Raises NoRouteError if a mark's counter is in the GPU of another process, because
        nobody could end the wait if that process died."""
        self._on_stream("ceov_stream_wait", stream, marks, base, rank)

    def _on_stream(self, name: str, stream: StreamLike, marks: Marks, base: int,
                   rank: Optional[int]) -> None:
        if not isinstance(marks, MarkList):
            marks = MarkList(marks)
        self._invoke(name, None, self._own(rank), stream_handle(stream),
                     marks._open_array(), len(marks), base)

    # --- the end ---------------------------------------------------------------------------

    def close(self, timeout_s: Optional[float] = None) -> None:
        """Lets copies that are under way end, for 5 s at most, aborts the launches that still wait
        for marks, and releases everything. When it returns, registered memory may be freed, and
        views of allocated memory must not be used any more. It waits for calls of other threads
        and raises StateError if they do not return in time. It waits up to 2 s for peers that
        still use shared memory, so let all ranks meet first, by barrier(). It may be called
        twice."""
        if _log.in_callback():
            raise errors.StateError("close() from a log handler, on a thread of the library "
                                    "that has to end first: close from a thread of your own")
        limit = self._limit(timeout_s)
        if not _object.poll(self._begin_to_close, limit) or self._handle is None:
            return                      # another thread is at it, or was
        try:
            is_alone = _object.poll(lambda: not self._inside, limit)
        except BaseException:
            self._is_closing = False
            raise
        if not is_alone:
            self._is_closing = False
            raise errors.StateError(f"{len(self._inside)} calls of other threads are still in "
                                    "the library: the context stays open")
        _lasting.call(self._close_now)

    def _begin_to_close(self) -> bool:
        """Returns True if this thread may close the context or it is closed already. False:
        another thread is closing it, and may still give up."""
        with self._lock:
            if self._handle is None:
                return True
            if self._is_closing:
                return False
            self._is_closing = True
            return True

    def _close_now(self) -> None:
        """Closes the context in the library. No thread is inside the library, and none can
        enter it. Registered memory stays referenced until this has returned."""
        _lib.ceov_close(self._handle)
        self._handle = None
        self._is_closing = False
        for item in _items_of(self._objects):
            item._forget()
        self._lingering.clear()
        _open_contexts.discard(self)

    def _after_fork(self) -> None:
        self._lock = threading.Lock()   # it may have been held
        self._inside.clear()
        self._is_forked = True
        self._is_closing = False        # by a thread that is not here
        self._handle = None

    def __enter__(self) -> Context:
        if not self.is_open:
            raise self._closed_error()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is None:
            return
        _forgotten.add(self)            # not here: closing waits
        try:                            # threading.Thread would take locks
            _thread.start_new_thread(_close_forgotten, (self,))
        except Exception:               # no thread to be had: at the exit
            pass

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return f"<ceoverlap.Context of ranks {self._ranks} of {self._n_ranks}{state}>"


# Contexts have threads that log: they end before the interpreter does.
_open_contexts: weakref.WeakSet[Context] = weakref.WeakSet()
_forgotten: Set[Context] = set()        # that nobody holds any more, until they are closed


def _items_of(known: Iterable[_Item]) -> List[_Item]:
    """Returns the members of a set to which other threads may add meanwhile, as a list."""
    while True:
        try:
            return list(known)
        except RuntimeError:            # it has changed meanwhile
            pass


def _close_forgotten(context: Context) -> None:
    try:
        context.close()
    except errors.CeoverlapError as error:
        _log.write(context._logger, f"ceoverlap: warning: a Context that nobody held any more "
                   f"could not be closed: {error}")
    finally:
        _forgotten.discard(context)


def _close_all() -> None:
    for context in _items_of(_open_contexts) + _items_of(_forgotten):
        try:
            context.close(EXIT_S)
        except errors.StateError:       # a daemon thread waits: the process ends anyway
            pass


def _mark_forked() -> None:
    for context in _items_of(_open_contexts) + _items_of(_forgotten):
        context._after_fork()
    _forgotten.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_mark_forked)
