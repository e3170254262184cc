# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Signals: arrays of 64-bit counters that only rise, and marks on them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Iterable, Iterator, Optional

from . import _abi, _object, errors
from ._owner import Owner
from .place import Place, place_from


@dataclass(frozen=True)
class Mark:
    """"Counter `index` of `signal` has reached `value`"; value is relative to the base of a
    launch, where there is one."""
    signal: Signal
    index: int = 0
    value: int = 1

    def _struct(self) -> _abi.ceov_mark:
        return _abi.ceov_mark(self.signal._open_handle(), self.index, self.value)


class MarkList:
    """Marks for calls that are repeated, converted for C once: Context.stream_raise() and
    stream_wait() take less CPU time with a MarkList than with any other sequence of marks."""

    __slots__ = ("_marks", "_array")

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks = tuple(marks)
        self._array = (_abi.ceov_mark * len(self._marks))(*[mark._struct()
                                                            for mark in self._marks])

    def __len__(self) -> int:
        return len(self._marks)

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks)

    def _open_array(self) -> ctypes.Array[_abi.ceov_mark]:
        """Returns the marks as a C array. Raises StateError if one of their signals is closed.
        """
        for mark in self._marks:
            mark.signal._open_handle()
        return self._array


class Signal(_object.Object):
    """An array of 64-bit counters that only rise. Only one kernel, lane, stream or thread may
    raise a counter at a time. Made by the context's signal() and find_signal()."""

    _release_call = "ceov_signal_release"
    _query = ("ceov_signal_query", _abi.ceov_signal_info)

    def __init__(self, context: Owner, rank: int) -> None:
        super().__init__(context, rank)

    @classmethod
    def _create(cls, context: Owner, rank: int, place: Place, n_counters: int,
                flags: int) -> Signal:
        self = cls(context, rank)
        self._make_handle("ceov_signal_create", rank, place._struct(), n_counters, flags)
        return self

    @classmethod
    def _find(cls, context: Owner, rank: int, name: str, timeout_s: float) -> Signal:
        self = cls(context, rank)
        self._find_handle("ceov_signal_find", name, timeout_s)
        return self

    @property
    def n_counters(self) -> int:
        """How many counters it has."""
        return int(self._info().n_counters)

    @property
    def place(self) -> Place:
        """Where the counters are."""
        return place_from(self._info().place)

    @property
    def is_host_visible(self) -> bool:
        """Whether host threads can read the counters."""
        return bool(self._info().is_visible)

    @property
    def name(self) -> Optional[str]:
        """The name under which the signal was shared or found; None if it was not."""
        return self._info().name.decode() or None

    def share(self, name: str) -> None:
        """Lets peers find the signal under a name of 1 to 63 bytes."""
        self._invoke("ceov_signal_share", _object.text_of(name, "name"))

    def mark(self, value: int = 1, index: int = 0) -> Mark:
        """Returns the Mark "counter `index` has reached `value`" of this signal."""
        return Mark(self, index, value)

    def raise_to(self, value: int, index: int = 0) -> None:
        """Raises a counter to a value from the calling thread. A value below the counter's is
        refused, because counters never fall."""
        self._invoke("ceov_signal_raise", index, value)

    def arrive(self, n_tiles: int, value: int, index: int = 0) -> None:
        """Counts one of n_tiles finished tiles; the last one to arrive raises the counter to
        value."""
        self._invoke("ceov_signal_arrive", index, n_tiles, value)

    def value(self, index: int = 0) -> int:
        """Returns the counter's value. Raises StateError if the host cannot read the counter."""
        value = ctypes.c_uint64()
        self._invoke("ceov_signal_value", index, ctypes.byref(value))
        return value.value

    def has_reached(self, value: int, index: int = 0) -> bool:
        """Returns whether the counter has reached the value, without waiting. Raises the
        abort's error if the signal was aborted."""
        return self._invoke("ceov_signal_wait", index, value, 0) != _abi.CEOV_PENDING

    def wait(self, value: int, index: int = 0, timeout_s: Optional[float] = None) -> None:
        """Waits until the counter has reached the value. Raises PendingError if timeout_s
        passed first (None: the context's deadline), and the abort's error, mostly AbortedError,
        if the signal was aborted."""
        limit = self._context._limit(timeout_s)
        if not _object.wait(lambda ns, is_long: self._invoke(
                "ceov_signal_wait", index, value, ns, is_long=is_long), limit):
            name = self.name
            which = "a signal" if name is None else f"signal {name!r}"
            raise errors.make(_abi.CEOV_PENDING, f"counter {index} of {which} of rank "
                              f"{self._rank} has not reached {value} within {limit} s")

    def for_device(self, rank: Optional[int] = None) -> _abi.ceov_device_signal:
        """Returns what a kernel on the GPU of one of this process' ranks needs to use the
        signal: struct ceov_device_signal, to be passed by value (64 bytes: bytes() of it, or
        its fields)."""
        view = _abi.ceov_device_signal()
        self._invoke("ceov_signal_for_device", self._context._own(rank), ctypes.byref(view))
        return view

    def renew(self, timeout_s: Optional[float] = None) -> None:
        """Makes the signal usable again after an abort. Every process that uses it calls this,
        then all meet, for example at Context.barrier(); afterwards the counters are 0 again. It
        waits for launches in flight that name the signal."""
        if not _object.poll(lambda: not self._invoke("ceov_signal_renew"),
                            self._context._limit(timeout_s)):
            raise errors.make(_abi.CEOV_PENDING, "a launch that names the signal is still "
                              "in flight")
