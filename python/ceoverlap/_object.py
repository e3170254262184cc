# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The base class of buffers, signals, plans, workspaces and operators: a handle of the library,
the context it belongs to, and what must stay alive while the library may use it."""

from __future__ import annotations

import ctypes
import time
from ctypes import byref
from typing import (Any, Callable, Iterable, NoReturn, Optional, SupportsIndex, Tuple, Type,
                    TypeVar)

from . import _abi, errors
from ._owner import Owner
from ._releases import Handle

POLL_S = 0.001
SHORT_S = 0.001                         # the first part of a wait: most need no more
SLICE_S = 0.1                           # the others: for Ctrl-C and Context.close()


def deadline_of(timeout_s: float) -> float:
    """Returns the point in time, by time.monotonic(), that is timeout_s from now."""
    return time.monotonic() + timeout_s


def slice_of(deadline: float, at_most_s: float) -> float:
    """Returns how many seconds the next part of a wait may take: until the deadline, and
    at_most_s. 0 means that the deadline has passed."""
    return min(max(deadline - time.monotonic(), 0.0), at_most_s)


def ns(seconds: float) -> int:
    """Returns seconds as whole nanoseconds, and at least 1 if seconds is more than 0."""
    if not seconds >= 0:
        raise errors.InvalidError(f"{seconds!r} seconds: must be a number from 0 on")
    most = (1 << 63) - 1
    if seconds * 1e9 >= most:           # infinity, too
        return most
    return int(seconds * 1e9) or int(seconds > 0)


def poll(look: Callable[[], bool], timeout_s: float) -> bool:
    """Calls look() until it returns true or timeout_s has passed, at least once. Returns
    whether it returned true."""
    deadline = deadline_of(timeout_s)
    while not look():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


def wait(look: Callable[..., int], timeout_s: float) -> bool:
    """Calls look(timeout_ns, is_long) until it returns 0 or timeout_s has passed, at least
    once. Returns whether it returned 0. is_long is false in the first call, which is short."""
    deadline = deadline_of(timeout_s)
    slice_s = slice_of(deadline, SHORT_S)
    is_long = False
    while look(ns(slice_s), is_long):
        if not slice_s:
            return False
        slice_s, is_long = slice_of(deadline, SLICE_S), True
    return True


def text_of(text: str, what: str) -> bytes:
    """Returns the text's bytes for C. Refuses a text with a NUL, at which C would cut it off;
    `what` names the text in the error."""
    try:
        encoded = text.encode()
    except (AttributeError, UnicodeEncodeError):
        raise errors.InvalidError(f"{what} {text!r}: must be a text") from None
    if b"\0" in encoded:
        raise errors.InvalidError(f"{what} {text!r}: has a NUL, where C would cut it off")
    return encoded


class NotCopied:
    """A base class that refuses copies and pickling, because a copy would release the same
    handle a second time."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"a ceoverlap {type(self).__name__} cannot be copied or pickled: what "
                        "it holds in the library is released once; pass the object itself")


_Self = TypeVar("_Self", bound="Object")


class Object(NotCopied):
    """An object of the library, held by its handle. ``close()`` ends the caller's use of it in
    any case; it may be called twice, and ``with`` calls it at the end of the block. Objects of
    one context may be used from any thread unless their text says "one thread"."""

    _release_call = ""                  # the library's call that releases the handle
    _query: Tuple[str, Type[_abi.Struct]]       # the call that tells of it, and the call's struct
    _idle_call = ""                     # see Handle.idle_call
    _patience_s = 0.0                   # how long close() waits for that

    def __init__(self, context: Owner, rank: int) -> None:
        self._context = context
        self._rank = rank
        self._handle: Optional[int] = None
        self._record: Optional[Handle] = None   # it again, until it is released

    def _enter(self, handle: ctypes.c_void_p, kept: object = None,
               below: Optional[Handle] = None) -> None:
        value = handle.value or 0               # a caller has looked that it is not 0
        self._record = Handle(self._release_call, value, kept, self._idle_call, below)
        self._handle = value
        self._context._objects.add(self)
        if self._context._handle is None:       # closed meanwhile, and the handle with it
            self._forget()
        self._context._sweep()

    def _make_handle(self, call: str, *arguments: Any, kept: object = None,
                     below: Optional[Handle] = None) -> None:
        """Calls the library's function `call`, which creates this object's handle. The first
        argument of the C function is the context, or the handle `below` on which the new one
        depends. What C has created is released with this object, even if Python was interrupted
        in between."""
        handle = ctypes.c_void_p()
        first = None if below is None else below.value
        try:
            self._context._invoke(call, first, *arguments, byref(handle))
        finally:
            if handle.value:
                self._enter(handle, kept, below)

    def _find_handle(self, call: str, name: str, timeout_s: float) -> None:
        """Looks up what this object's rank shared under a name, and waits at most timeout_s for
        it. Raises PendingError if it was not shared in time."""
        handle = ctypes.c_void_p()
        encoded = text_of(name, "name")

        def look() -> bool:
            return self._context._invoke(call, None, self._rank, encoded, byref(handle),
                                         is_long=True) != _abi.CEOV_NONE

        try:
            is_found = poll(look, timeout_s)
        finally:
            if handle.value:
                self._enter(handle)
        if not is_found:
            raise errors.make(_abi.CEOV_PENDING, f"rank {self._rank} has not shared "
                              f"{name!r} within {timeout_s} s")

    @property
    def context(self) -> Owner:
        """The context that the object belongs to."""
        return self._context

    @property
    def rank(self) -> int:
        """The rank that the object belongs to; for an object that was found, the rank that
        shared it."""
        return self._rank

    @property
    def is_open(self) -> bool:
        """Whether the object can still be used."""
        return self._handle is not None and self._context.is_open

    def _open_handle(self) -> int:
        handle = self._handle
        if handle is None:
            raise errors.StateError(f"this {type(self).__name__} is closed")
        return handle

    def _invoke(self, name: str, *arguments: Any, is_long: bool = False) -> int:
        """Calls a function of the library with this object's handle as its first argument."""
        return self._context._invoke(name, self._open_handle(), *arguments, is_long=is_long)

    def _info(self) -> Any:
        """Asks the library what it knows of the object, and returns the struct."""
        call, kind = self._query
        info = _abi.new(kind)
        self._invoke(call, byref(info))
        return info

    def release(self, timeout_s: float = 0.0) -> bool:
        """Releases the object if no peer and no plan uses it any more, and returns True; also
        if it was released before. Returns False if it is still in use after timeout_s; then the
        object stays open, and its memory stays referenced. See close()."""
        return poll(self._try_release, timeout_s)

    def _try_release(self) -> bool:
        record = self._record
        if record is None:
            return True
        if not self._context._release(record):
            return False
        self._forget()
        self._context._sweep()
        return True

    def _forget(self) -> None:
        self._handle = None
        self._record = None
        self._context._objects.discard(self)

    def close(self) -> None:
        """Ends the caller's use of the object. If a peer or a plan still uses it, the context
        releases it as soon as they have ended, and its memory stays referenced until then."""
        if self._idle_call and self._record is not None:
            poll(self._is_idle, self._patience_s)
        if not self._try_release():
            self._leave()

    def _is_idle(self) -> bool:
        record = self._record
        return record is None or self._context._is_idle(record)

    def _leave(self) -> None:
        record = self._record
        if record is not None:
            self._context._linger(record)
        self._forget()

    def __enter__(self: _Self) -> _Self:
        self._open_handle()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        record = getattr(self, "_record", None)
        if record is not None and self._context._handle is not None:
            self._context._linger(record)       # see the top: nothing else may be done here

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return f"<ceoverlap.{type(self).__name__} of rank {self._rank}{state}>"


def handles(objects: Iterable[Optional[Object]], n: int,
            what: str) -> ctypes.Array[ctypes.c_void_p]:
    """Returns a C array with the handles of n objects, one for each rank; None stands for no
    object. `what` names the list in errors."""
    items = list(objects)
    if len(items) != n:
        raise errors.InvalidError(f"{what}: {len(items)} entries, one a rank are {n}")
    array = (ctypes.c_void_p * n)()
    for i, item in enumerate(items):
        array[i] = None if item is None else item._open_handle()
    return array
