# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What buffers, signals, plans, workspaces and operators have in common: a handle, the
context it belongs to, and what must stay alive as long as the library may use it."""

from __future__ import annotations

import time
from ctypes import byref
from typing import TYPE_CHECKING, Callable, Optional

from . import _abi, errors

if TYPE_CHECKING:
    from .context import Context

POLL_S = 0.001


def deadline_of(timeout_s: float) -> float:
    """When that many seconds have passed."""
    return time.monotonic() + timeout_s


def slice_of(deadline: float, at_most_s: float) -> float:
    """How long the next part of a wait may be; 0: the last look."""
    return min(max(deadline - time.monotonic(), 0.0), at_most_s)


def ns(seconds: float) -> int:
    """Nanoseconds, at least 1 for what is more than 0."""
    if not seconds >= 0:
        raise errors.InvalidError(f"{seconds!r} seconds: must be a number from 0 on")
    return min(int(seconds * 1e9) or int(seconds > 0), (1 << 63) - 1)


def poll(look: Callable[[], bool], timeout_s: float) -> bool:
    """Looks until look() is true or the time has passed; at least once."""
    deadline = deadline_of(timeout_s)
    while not look():
        if time.monotonic() >= deadline:
            return False
        time.sleep(POLL_S)
    return True


class Object:
    """A handle of the library. ``close()`` always ends its use by the caller; calling it
    twice is harmless, and so is using ``with`` around it. Objects of one context may be
    used from any thread unless their text says "one thread"."""

    _release_call = ""                  # the library's call that releases the handle

    def __init__(self, context: Context, rank: int):
        self._context = context
        self._rank = rank
        self._handle: Optional[int] = None
        self._kept: object = None       # memory and objects that C refers to

    def _enter(self, handle: _abi.c_void_p, kept: object = None) -> None:
        self._handle = handle.value
        self._kept = kept
        self._context._objects.add(self)
        self._context._sweep()

    def _find_handle(self, call: str, name: str, timeout_s: float) -> None:
        """Finds what a rank offers, waiting for it."""
        handle = _abi.c_void_p()

        def look() -> bool:
            return self._context._invoke(call, None, self._rank, name.encode(),
                                         byref(handle)) != _abi.CEOV_NONE

        if not poll(look, timeout_s):
            raise errors.make(_abi.CEOV_PENDING, f"rank {self._rank} has not offered "
                              f"{name!r} within {timeout_s} s")
        self._enter(handle)

    @property
    def context(self) -> Context:
        """The context that it belongs to."""
        return self._context

    @property
    def rank(self) -> int:
        """The rank that it belongs to; of what was found, the rank that offered it."""
        return self._rank

    @property
    def is_open(self) -> bool:
        """Whether it can still be used."""
        return self._handle is not None and self._context.is_open

    def _open_handle(self) -> int:
        handle = self._handle
        if handle is None:
            raise errors.StateError(f"this {type(self).__name__} is closed")
        return handle

    def _invoke(self, name: str, *arguments) -> int:
        """Calls the library with the handle first."""
        return self._context._invoke(name, self._open_handle(), *arguments)

    def release(self, timeout_s: float = 0.0) -> bool:
        """Releases it if nobody uses it any more, a peer or a plan: True; so is what was
        released before. False: it is still used after timeout_s; it goes on to exist, and
        memory behind it stays referenced. See close()."""
        return poll(self._try_release, timeout_s)

    def _try_release(self) -> bool:
        if self._handle is None:
            return True
        if self._context.is_open and self._context._release(self._release_call,
                                                           self._handle):
            return False
        self._forget()
        return True

    def _forget(self) -> None:
        self._handle = None
        self._kept = None
        self._context._objects.discard(self)

    def close(self) -> None:
        """Ends its use. What a peer or a plan still uses is released by the context as
        soon as that ends, and its memory stays referenced until then."""
        if not self._try_release():
            self._leave()

    def _leave(self) -> None:
        if self._handle is not None:
            self._context._linger(self._release_call, self._handle, self._kept)
        self._forget()

    def __enter__(self):
        return self

    def __exit__(self, *_exception) -> None:
        self.close()

    def __del__(self):
        if getattr(self, "_handle", None) is None:
            return
        try:
            if self._context._may_wait():
                self.close()
            else:                       # not here: see _log.in_callback()
                self._leave()
        except Exception:               # the interpreter may be ending
            pass

    def __repr__(self) -> str:
        state = "" if self.is_open else ", closed"
        return f"<ceoverlap.{type(self).__name__} of rank {self._rank}{state}>"


def handles(objects, n: int, what: str):
    """A C array of n handles; None stands for no object."""
    items = list(objects)
    if len(items) != n:
        raise errors.InvalidError(f"{what}: {len(items)} entries, one a rank are {n}")
    array = (_abi.c_void_p * n)()
    for i, item in enumerate(items):
        array[i] = None if item is None else item._open_handle()
    return array
