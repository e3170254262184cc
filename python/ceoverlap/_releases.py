# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""How handles are released: at once, or later.

Finalizers run in the middle of anything, with any lock held: in a logging handler, say, while
another thread that has to get on waits for the handler's lock. So they call nothing of the
library: they put the handle on the context's list of what is to be released, and the next
calls that make or release an object release it (Releases._sweep()).
"""

from __future__ import annotations

import collections
import contextlib
from typing import List, Optional, Set

from . import _abi, _log, errors

SWEEP_MAX = 16                          # handles that one call tries to release beside its work


class Handle:
    """A handle of the library and what belongs to it, from its making to its release, which
    may come after the object that stood for it has gone."""

    __slots__ = ("call", "value", "kept", "idle_call", "below", "above", "turn", "is_gone",
                 "is_told")

    def __init__(self, call: str, value: int, kept: object, idle_call: str,
                 below: Optional[Handle]):
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
            below.above.add(self)


class Releases:
    """A context's part of it."""

    def __init__(self):
        self._lingering: collections.deque = collections.deque()        # of Handle

    def _release(self, record: Handle) -> bool:
        """Whether the handle has gone: now, or before. False: it is still used, or another
        thread is just releasing it. Where a release was interrupted nobody knows whether C
        has done it: the handle is not touched again, and goes with the context."""
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
        """Whether its release would not wait; also where another thread releases it."""
        try:
            record.turn.pop()
        except IndexError:
            return True
        try:
            return not self._is_busy(record)
        finally:
            record.turn.append(None)

    def _is_busy(self, record: Handle) -> bool:
        """Whether its release would wait for what is in flight."""
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
        """It is released later. Finalizers call this: it does nothing that may wait."""
        self._lingering.append(record)

    def _sweep(self) -> None:
        """Tries to release what lingers, some of it: what a call pays for it is bounded, and
        as every object is made once, all get their turns. Two rounds, as one may hold
        another."""
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
        """_release(); its failure is nothing to whoever sweeps."""
        try:
            return self._release(record)
        except errors.CeoverlapError as error:
            if not record.is_told:
                record.is_told = True
                _log.write(self._logger, f"ceoverlap: warning: {record.call} of an object that "
                           f"was closed or forgotten: {error}; it is tried again, and "
                           "goes with the context at the latest")
            return False
