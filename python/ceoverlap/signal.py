# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Signals: arrays of 64-bit counters that only rise, and marks on them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Iterable, Iterator, Optional

from . import _abi, _object, errors
from ._owner import Owner
from .place import Place


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
    """Marks for calls that come again and again, put together once: Context.stream_raise()
    and stream_wait() take less of the CPU than with any other sequence of marks."""

    __slots__ = ("_marks", "_array")

    def __init__(self, marks: Iterable[Mark]):
        self._marks = tuple(marks)
        self._array = (_abi.ceov_mark * len(self._marks))(*[mark._struct()
                                                            for mark in self._marks])

    def __len__(self) -> int:
        return len(self._marks)

    def __iter__(self) -> Iterator[Mark]:
        return iter(self._marks)

    def _open_array(self):
        """The marks for C, whose handles are those of open signals."""
        for mark in self._marks:
            mark.signal._open_handle()
        return self._array


class Signal(_object.Object):
    """An array of counters. Each has one raiser at a time: a kernel, a lane, a stream or a
    thread. Made by the context: signal(), find_signal()."""

    _release_call = "ceov_signal_release"

    def __init__(self, context: Owner, rank: int):
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

    def share(self, name: str) -> None:
        """Offers it to the group under a name of 1 to 63 bytes."""
        self._invoke("ceov_signal_share", _object.text_of(name, "name"))

    def mark(self, value: int = 1, index: int = 0) -> Mark:
        """A mark on one of the counters."""
        return Mark(self, index, value)

    def raise_to(self, value: int, index: int = 0) -> None:
        """Raises a counter, by this thread. It never falls: a lower value is refused."""
        self._invoke("ceov_signal_raise", index, value)

    def arrive(self, n_tiles: int, value: int, index: int = 0) -> None:
        """Counts one tile of n_tiles; the last one raises the counter to value."""
        self._invoke("ceov_signal_arrive", index, n_tiles, value)

    def value(self, index: int = 0) -> int:
        """What the counter holds; StateError where the host does not see it."""
        value = ctypes.c_uint64()
        self._invoke("ceov_signal_value", index, ctypes.byref(value))
        return value.value

    def has_reached(self, value: int, index: int = 0) -> bool:
        """Looks once. Raises the abort's error where the signal was aborted."""
        return self._invoke("ceov_signal_wait", index, value, 0) != _abi.CEOV_PENDING

    def wait(self, value: int, index: int = 0, timeout_s: Optional[float] = None) -> None:
        """Blocks until the counter has reached value; PendingError where timeout_s (the
        context's deadline) passed first, AbortedError and its kin where it was aborted."""
        limit = self._context._limit(timeout_s)
        if not _object.wait(lambda ns, is_long: self._invoke(
                "ceov_signal_wait", index, value, ns, is_long=is_long), limit):
            raise errors.make(_abi.CEOV_PENDING, f"counter {index} of a signal of rank "
                              f"{self._rank} has not reached {value} within {limit} s")

    def for_device(self, rank: Optional[int] = None) -> _abi.ceov_device_signal:
        """What a kernel on our rank's GPU needs: struct ceov_device_signal, by value (64
        bytes: bytes() of it, or its fields)."""
        view = _abi.ceov_device_signal()
        self._invoke("ceov_signal_for_device", self._context._own(rank), ctypes.byref(view))
        return view

    def renew(self, timeout_s: Optional[float] = None) -> None:
        """After an abort, a fresh start: every party calls it, then all meet, then counters
        are 0 again. Waits for launches in flight that name it."""
        if not _object.poll(lambda: not self._invoke("ceov_signal_renew"),
                            self._context._limit(timeout_s)):
            raise errors.make(_abi.CEOV_PENDING, "a launch that names the signal is still "
                              "in flight")
