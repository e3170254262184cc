# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the process groups of this process have called last, in memory that other processes of the
node read while calls wait, also when this process is stopped, and after its death if they have
opened it before. hang.py says what it means.

The memory has no name in any file system. It begins with a header; behind it each process group has
a section: a header, and a ring of calls. A reader may meet a call that is half written, so what it
reads is used for reports alone."""

from __future__ import annotations

import errno
import mmap
import os
import socket
import struct
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

NAME = "ceoverlap-calls"                # of the memory, as /proc/PID/fd shows it
_MAGIC, _VERSION = b"ceovcall", 1

# Their places are the codes in the ring: append at the end alone.
KINDS = ("all_gather", "all_gather_single", "all_reduce", "all_reduce_sparse", "all_to_all",
         "barrier", "broadcast", "gather", "monitored_barrier", "recv", "recv_anysource", "reduce",
         "reduce_scatter", "reduce_scatter_single", "scatter", "send")
DTYPES = ("", "float32", "float16", "bfloat16", "float64", "int8", "uint8", "int16", "int32",
          "int64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2", "other")
WAYS = ("ceov", "gloo", "nccl")
NO_REDUCTION = NO_TAG = 255
REDUCTIONS = ("sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum")
NO_PEER = -1

# A call's life. ISSUED: it was handed to a stream or to another library, and nobody tells here when
# it ends. REFUSED: its arguments were wrong, so nothing was begun.
CALLED, ENDED, FAILED, REFUSED, ISSUED = 1, 2, 3, 4, 5

_HEADER = struct.Struct("=8sIi q16s64s")        # magic, version, -, pid, token, node
_HEADER_BYTES = 128
# state, calls in the ring, ranks, rank, identity, name, the failed call, why it failed
_SECTION = struct.Struct("=IIIi16s96sQ512s")
_SECTION_BYTES = 1024
_FREE, _OPEN, _CLOSED = 0, 1, 2
_MOST_CLOSED = 8                        # groups of the past that are kept
# index, number, codes, peer, count, called, thread, ended, state
_CALL = struct.Struct("=QQIiQQQQI")
_CALL_BYTES = 64
_END = struct.Struct("=QI")
_END_AT = 48
_FAILURE_AT = 4 * 4 + 16 + 96           # in a section

_DTYPE_BITS = 0xff00                    # of a call's codes

_pack_call, _pack_end = _CALL.pack_into, _END.pack_into
_now, _thread = time.time_ns, threading.get_ident


def codes_of(kind: str, dtype: str = "", reduction: int = NO_REDUCTION, way: str = "ceov") -> int:
    """Returns what a call is, as one number. reduction: its place in REDUCTIONS; of a message, its
    tag's last byte instead, NO_TAG for 0."""
    known = DTYPES.index(dtype) if dtype in DTYPES else len(DTYPES) - 1
    return KINDS.index(kind) | known << 8 | reduction << 16 | WAYS.index(way) << 24


class GroupName(NamedTuple):
    """A process group, and this rank of it."""
    name: str
    rank: int
    size: int
    ranks: Sequence[int]                # in the world; empty if they are not known


class _Place(NamedTuple):
    """Where a section is."""
    memory: mmap.mmap
    at: int
    size: int                           # ranks, which the section has room for
    n_calls: int                        # in its ring


def _ring_at(size: int) -> int:
    """Where the ring of a section begins, in the section."""
    return -(-(_SECTION_BYTES + 4 * size) // _CALL_BYTES) * _CALL_BYTES


class Section:
    """What a process group of this process calls. Any thread."""

    def __init__(self, owner: Flight, place: _Place, group: GroupName) -> None:
        self._owner = owner
        self.place: _Place = place
        self._memory, self._at, self._n_calls = place.memory, place.at, place.n_calls
        self._first = place.at + _ring_at(place.size)
        self._index = 0                 # of the next call
        self._collective = 0            # the number of the last one
        self._messages: Dict[Tuple[int, int], int] = {}         # likewise; by codes and peer
        self.has_failed: bool = False
        known = len(group.ranks) == group.size
        struct.pack_into(f"={group.size}i", self._memory, self._at + _SECTION_BYTES,
                         *(group.ranks if known else [-1] * group.size))
        end = self._first + self._n_calls * _CALL_BYTES
        self._memory[self._first:end] = bytes(end - self._first)
        _SECTION.pack_into(self._memory, self._at, _OPEN, self._n_calls, group.size, group.rank,
                           b"", group.name.encode()[-96:], 0, b"")

    def identify(self, identity: bytes) -> None:
        """identity: the same at all ranks, and no other group's."""
        struct.pack_into("=16s", self._memory, self._at + 16, identity)

    def call(self, codes: int, count: int, peer: int = NO_PEER) -> int:
        """Tells that the group's next collective is called: with that many elements; peer: its
        root. Returns what end() and the like want to know."""
        index = self._index
        self._index = index + 1
        number = self._collective = self._collective + 1
        _pack_call(self._memory, self._first + index % self._n_calls * _CALL_BYTES, index + 1,
                   number, codes, peer, count, _now(), _thread(), 0, CALLED)
        return index

    def message(self, codes: int, count: int, peer: int) -> int:
        """As call(), of a message: the next one of its kind, tag and peer."""
        index = self._index
        self._index = index + 1
        key = codes & ~_DTYPE_BITS, peer        # a wrong dtype takes the place of the right one
        number = self._messages[key] = self._messages.get(key, 0) + 1
        _pack_call(self._memory, self._first + index % self._n_calls * _CALL_BYTES, index + 1,
                   number, codes, peer, count, _now(), _thread(), 0, CALLED)
        return index

    def end(self, index: int, state: int = ENDED) -> None:
        """Tells what has become of a call."""
        if self._index - index <= self._n_calls:        # else others have its place
            _pack_end(self._memory, self._first + index % self._n_calls * _CALL_BYTES + _END_AT,
                      _now(), state)

    @property
    def latest(self) -> int:
        """The call that was made last."""
        return self._index - 1

    def refuse(self, index: int, why: str) -> None:
        """A collective was wrong at this rank alone: it does not count."""
        self._collective -= 1
        self.end(index, REFUSED)
        self._tell(why)

    def fail(self, index: int, why: str) -> None:
        """A call has failed. The group's first failure is kept."""
        self.end(index, FAILED)
        if not self.has_failed:
            self.has_failed = True
            self._tell(why)

    def _tell(self, why: str) -> None:
        struct.pack_into("=Q512s", self._memory, self._at + _FAILURE_AT, self._index,
                         why.encode()[:512])

    def leave(self) -> None:
        """The group is about to be destroyed at this rank."""
        struct.pack_into("=I", self._memory, self._at, _CLOSED)

    def close(self) -> None:
        """The group is destroyed, and makes no more calls. leave() comes before."""
        self._owner.take_back(self)


class Flight:
    """The memory of this process."""

    def __init__(self) -> None:
        self.token: bytes = os.urandom(16)
        self._fd = os.memfd_create(NAME)
        self._lock = threading.Lock()
        self._bytes = _HEADER_BYTES
        self._closed: List[_Place] = []         # the one that was closed first comes first
        os.ftruncate(self._fd, self._bytes)
        os.pwrite(self._fd, _HEADER.pack(_MAGIC, _VERSION, 0, os.getpid(), self.token,
                                         socket.gethostname().encode()[:64]), 0)

    @property
    def address(self) -> str:
        """Where others find the memory."""
        return f"{os.getpid()} {self._fd} {self.token.hex()} {socket.gethostname()}"

    def section(self, group: GroupName, n_calls: int) -> Section:
        """Returns a section for a group. n_calls: that its ring holds."""
        with self._lock:
            place = self._used_place(group.size, n_calls) or self._new_place(group.size, n_calls)
            return Section(self, place, group)

    def _used_place(self, size: int, n_calls: int) -> Optional[_Place]:
        """Returns the place of a group that was destroyed, which readers still see until then; None
        if there are few."""
        if len(self._closed) < _MOST_CLOSED:
            return None
        fit = [place for place in self._closed if (place.size, place.n_calls) == (size, n_calls)]
        if fit:
            self._closed.remove(fit[0])
        return fit[0] if fit else None

    def _new_place(self, size: int, n_calls: int) -> _Place:
        at, page = self._bytes, mmap.ALLOCATIONGRANULARITY
        self._bytes = at + _ring_at(size) + n_calls * _CALL_BYTES
        os.ftruncate(self._fd, self._bytes)
        base = at // page * page
        memory = mmap.mmap(self._fd, self._bytes - base, offset=base)
        return _Place(memory, at - base, size, n_calls)

    def take_back(self, section: Section) -> None:
        """The section's group is destroyed."""
        with self._lock:
            self._closed.append(section.place)


_mine: Optional[Flight] = None
_opened: Dict[bytes, int] = {}          # descriptors of other processes' memory, by their tokens
_making = threading.Lock()


def mine() -> Flight:
    """Returns the memory of this process."""
    global _mine
    with _making:
        if _mine is None:
            _mine = Flight()
        return _mine


def _forget() -> None:
    """A child of fork() has calls of its own."""
    global _mine, _making
    _mine, _making = None, threading.Lock()


os.register_at_fork(after_in_child=_forget)

# --- the readers' side ----------------------------------------------------------------------


class Call(NamedTuple):
    """A call as it was read."""
    number: int                         # of the group's collectives, or of a pair's messages
    kind: str
    dtype: str
    reduction: str
    tag: int                            # of a message: the last byte, or NO_TAG
    way: str
    peer: int                           # the root, or a message's other end; NO_PEER
    elements: int                       # of what this rank gives, or gets of its own
    called_ns: int                      # since 1970, as ended_ns, which is 0 before
    ended_ns: int
    thread: int
    state: int

    @property
    def is_message(self) -> bool:
        return self.kind in ("send", "recv")

    @property
    def waits(self) -> bool:
        """Whether it was called and is not complete."""
        return self.state in (CALLED, FAILED)

    def __str__(self) -> str:
        words = [self.kind.replace("_single", "")]
        if self.dtype:
            words.append(f"of {self.elements} {self.dtype}")
        if self.reduction:
            words.append(f"({self.reduction})")
        if self.is_message and self.tag != NO_TAG:
            words.append(f"with tag {self.tag}")
        if self.peer != NO_PEER:
            words.append({"send": "to rank", "recv": "from rank"}.get(self.kind, "with root") +
                         f" {self.peer}")
        return " ".join(words) + (f", by {self.way}" if self.way != "ceov" else "")


class Past(NamedTuple):
    """What a group's section says."""
    name: str
    identity: bytes
    rank: int
    ranks: List[int]                    # in the world; -1 where they are not known
    is_closed: bool
    error: str                          # of its first failure or last refusal
    calls: List[Call]                   # the last ones, from old to new


class Process(NamedTuple):
    """What the memory of a process says."""
    pid: int
    node: str
    token: bytes
    groups: List[Past]


def _open_at(pid: int, path: str) -> int:
    fd = os.open(path, os.O_RDONLY)
    try:
        magic, version, _, owner, _, _ = _HEADER.unpack(os.pread(fd, _HEADER.size, 0))
    except struct.error:
        magic, version, owner = b"", 0, 0
    if (magic, version, owner) != (_MAGIC, _VERSION, pid):
        os.close(fd)
        raise OSError(errno.ENOENT, "no calls of that process")
    return fd


def open_peer(address: str) -> Optional[int]:
    """Returns a descriptor of the memory of a process that told its address, which is kept for
    ever; None if it cannot be had: the process is on another node, or hidden."""
    pid, number, token, node = address.split(" ", 3)
    key = bytes.fromhex(token)
    if key not in _opened and node == socket.gethostname():
        try:
            fd = _open_at(int(pid), f"/proc/{pid}/fd/{number}")
        except OSError:
            return None
        if _HEADER.unpack(os.pread(fd, _HEADER.size, 0))[4] != key:
            os.close(fd)
            return None
        _opened[key] = fd
    return _opened.get(key)


def open_process(pid: int) -> Optional[int]:
    """Returns a descriptor of the memory of any process of this user; None if it has none."""
    folder = f"/proc/{pid}/fd"
    try:
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            if os.readlink(path).startswith(f"/memfd:{NAME} "):
                try:
                    return _open_at(pid, path)
                except OSError:         # another process's, which this one has opened
                    continue
    except OSError:
        pass
    return None


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")


def _name_at(names: Sequence[str], i: int) -> str:
    return names[i] if i < len(names) else ""


def _call_at(raw: bytes, at: int) -> Optional[Tuple[int, Call]]:
    index, number, codes, peer, count, called, thread, ended, state = _CALL.unpack_from(raw, at)
    if not index:
        return None
    kind, extra = _name_at(KINDS, codes & 255), codes >> 16 & 255
    has_tag = kind in ("send", "recv")
    call = Call(number, kind, _name_at(DTYPES, codes >> 8 & 255),
                "" if has_tag else _name_at(REDUCTIONS, extra), extra if has_tag else NO_TAG,
                _name_at(WAYS, codes >> 24), peer, count, called, ended, thread, state)
    return index, call


def read(fd: int) -> Process:
    """Returns what a process's memory says now."""
    raw = os.pread(fd, os.fstat(fd).st_size, 0)
    _, _, _, pid, token, node = _HEADER.unpack_from(raw)
    groups, at = [], _HEADER_BYTES
    while at + _SECTION_BYTES <= len(raw):
        state, n_calls, size, rank, identity, name, _, error = _SECTION.unpack_from(raw, at)
        if state == _FREE:
            break
        ranks = list(struct.unpack_from(f"={size}i", raw, at + _SECTION_BYTES))
        ring_at = at + _ring_at(size)
        found = [_call_at(raw, ring_at + i * _CALL_BYTES) for i in range(n_calls)]
        calls = [call for _, call in sorted(one for one in found if one is not None)]
        groups.append(Past(_text(name), identity, rank, ranks, state == _CLOSED, _text(error),
                           calls))
        at = ring_at + n_calls * _CALL_BYTES
    return Process(pid, _text(node), token, groups)
