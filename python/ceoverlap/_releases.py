# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""How handles are released: at once, or later.

Finalizers run at any point of a program and with any lock held: for example in a logging
handler for whose lock another thread waits that has to go on. So finalizers call nothing of the
library. They put the handle on the context's list of handles to release; later calls that make
or release an object work through this list (Releases._sweep())."""

from __future__ import annotations

import collections
import contextlib
import logging
from typing import Any, Callable, List, Optional, Set

from . import _abi, _log, errors

SWEEP_MAX = 16                          # handles that one call tries to release beside its work


class Handle:
    """A handle of the library and what belongs to it, from its creation to its release. The
    release may come after the Python object has gone."""

    __slots__ = ("call", "value", "kept", "idle_call", "below", "above", "turn", "is_gone",
                 "is_told")

    def __init__(self, call: str, value: int, kept: object, idle_call: str,
                 below: Optional[Handle]) -> None:
        self.call = call                # releases it
        self.value = value
        self.kept = kept                # memory and objects that C refers to
        self.idle_call = idle_call      # tells whether `call` would wait; "": it never does,
        self.below = below              # asked of the handle that this one stands on, if any
        self.above: Set[Handle] = set()         # those that stand on this one
        self.turn: List[None] = [None]  # who takes it out releases the handle
        self.is_gone = False
        self.is_told = False            # that its release has failed
        if below is not None:
            self.stand_on(below)

    def stand_on(self, below: Handle) -> None:
        """Lets the handle `below` be released only after this one."""
        self.below = below
        below.above.add(self)


class Releases:
    """The part of a context that releases handles."""

    _handle: Optional[int]              # the context's, None when it is closed
    _is_closing: bool
    _is_turned: bool                    # the caller makes progress, by turn()
    _logger: logging.Logger

    @property
    def is_open(self) -> bool:
        """Whether the context can still be used."""
        return self._handle is not None and not self._is_closing

    def turn(self) -> bool:
        """Has every engine of this process make one pass over its work. Only for contexts with
        progress_by_caller."""
        raise NotImplementedError

    def _invoke(self, name: str, *arguments: Any, is_long: bool = False,
                stop: Optional[Callable[[], None]] = None) -> int:
        """Calls a function of the library."""
        raise NotImplementedError

    def __init__(self) -> None:
        self._lingering: collections.deque[Handle] = collections.deque()

    def _release(self, record: Handle) -> bool:
        """Returns whether the handle is released, by this call or an earlier one. False: it is
        still in use, or another thread is releasing it now. If a release was interrupted, it is
        not known whether C has done it: then the handle is not touched again, and is released
        with the context."""
        if record.is_gone or self._handle is None:
            return True
        if record.above or self._is_closing:
            return False
        try:
            record.turn.pop()
        except IndexError:
            return record.is_gone
        is_known = True                 # whether C has released it
        try:
            if not self._is_busy(record):
                is_known = False
                record.is_gone = self._invoke(record.call, record.value) != _abi.CEOV_PENDING
                is_known = True
        except errors.CeoverlapError:
            is_known = True
            if not self.is_open:        # closed meanwhile
                return self._handle is None
            raise
        finally:
            if is_known and not record.is_gone:
                record.turn.append(None)
        if record.is_gone and record.below is not None:
            record.below.above.discard(record)
        return record.is_gone

    def _is_idle(self, record: Handle) -> bool:
        """Returns whether a release would not have to wait. True also while another thread
        releases the handle."""
        try:
            record.turn.pop()
        except IndexError:
            return True
        try:
            return not self._is_busy(record)
        finally:
            record.turn.append(None)

    def _is_busy(self, record: Handle) -> bool:
        """Returns whether a release would have to wait for launches or runs in flight."""
        if not record.idle_call or not self.is_open:
            return False
        asked = record if record.below is None else record.below
        try:
            is_busy = self._invoke(record.idle_call, asked.value) == _abi.CEOV_PENDING
        except errors.StateError:       # closed meanwhile
            if self.is_open:
                raise
            return False
        if is_busy and self._is_turned:
            self.turn()
        return is_busy

    def _linger(self, record: Handle) -> None:
        """Has the handle released later. Finalizers call this, so it does nothing that may
        wait."""
        self._lingering.append(record)

    def _sweep(self) -> None:
        """Tries to release some of the handles whose release was put off. The work is bounded,
        so no call pays much for it; since each new object causes a sweep, all handles get their
        turn. It goes through the list twice, because one handle may keep another one from being
        released."""
        for _ in range(min(2 * len(self._lingering), SWEEP_MAX)):
            try:
                record = self._lingering[0]
            except IndexError:          # another thread sweeps, too
                return
            if self._has_gone(record):
                with contextlib.suppress(ValueError):
                    self._lingering.remove(record)
            else:
                self._lingering.rotate(-1)

    def _has_gone(self, record: Handle) -> bool:
        """Calls _release(). An error is logged once instead of raised, because the caller's own
        call has nothing to do with this handle."""
        try:
            return self._release(record)
        except errors.CeoverlapError as error:
            if not record.is_told:
                record.is_told = True
                _log.write(self._logger, f"ceoverlap: warning: {record.call} of an object that "
                           f"was closed or forgotten: {error}; it is tried again, and "
                           "goes with the context at the latest")
            return False
