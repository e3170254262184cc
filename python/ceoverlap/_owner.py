# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The part of a context that buffers, signals and plans need: calls into the library, and the
list of handles to release. It does not know these classes; Context, which creates their
objects, does."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import weakref
from typing import Any, Callable, Iterator, List, Optional, Set, Tuple

from . import _abi, _lasting, _log, errors
from ._releases import Releases
from .place import Place

_lib = _abi.lib

# What a call has returned, its failure, and the log lines that it wrote.
Outcome = Tuple[int, Optional[errors.Failure], List[str]]


class Owner(Releases):
    """The part of a Context that its objects know.

    logger      gets the library's log lines
    deadline_s  limit of every wait for which the caller gives no timeout, in seconds
    """

    _ranks: Tuple[int, ...]             # of this process
    _n_ranks: int                       # of the group

    def __init__(self, logger: logging.Logger, deadline_s: float) -> None:
        super().__init__()
        self._handle: Optional[int] = None
        self._logger = logger
        self._deadline_s = deadline_s
        self._objects: weakref.WeakSet[Any] = weakref.WeakSet()
        self._inside: Set[object] = set()       # a token for each call; see _outcome()
        self._is_closing = False
        self._is_forked = False
        self._latest: Optional[errors.Failure] = None

    # --- facts ---------------------------------------------------------------------

    @property
    def ranks(self) -> Tuple[int, ...]:
        """The ranks that this process holds."""
        return self._ranks

    @property
    def rank(self) -> int:
        """The first of the ranks that this process holds."""
        return self._ranks[0]

    @property
    def n_ranks(self) -> int:
        """The number of ranks of the whole group."""
        return self._n_ranks

    @property
    def deadline_s(self) -> float:
        """Limit of every wait for which the caller gives no timeout, in seconds."""
        return self._deadline_s

    def place(self, rank: Optional[int] = None) -> Place:
        """Returns where the memory of one of this process' ranks is; None: of its first rank."""
        raise NotImplementedError

    def _own(self, rank: Optional[int]) -> int:
        if rank is None:
            return self._ranks[0]
        if rank not in self._ranks:
            raise errors.InvalidError(f"rank {rank} is not one of this process: "
                                      f"{self._ranks}")
        return rank

    def _limit(self, timeout_s: Optional[float]) -> float:
        return self._deadline_s if timeout_s is None else timeout_s

    # --- calls into the library ------------------------------------------------------

    def _closed_error(self) -> errors.CeoverlapError:
        if self._is_forked:
            return errors.ForkedError("this context was opened by the parent process: open "
                                      "one here")
        return errors.StateError("this Context is closed")

    def _invoke(self, name: str, *arguments: Any, is_long: bool = False,
                stop: Optional[Callable[[], None]] = None) -> int:
        """Calls a function of the library. Returns 0 or a positive condition; raises an
        exception for an error. Arguments are as in C; the first one is a handle, or None for
        the context's own. For is_long and stop see _lasting.call()."""
        checked = _abi.check_arguments(name, arguments)
        if is_long:
            outcome = _lasting.call(functools.partial(self._outcome, name, checked), stop)
        else:
            outcome = self._outcome(name, checked)
        result, failure, lines = outcome
        if result < 0:
            raise self._exception(name, result, lines, failure)
        if lines:
            _log.write_all(self._logger, lines)
        return result

    def _outcome(self, name: str, checked: List[Any]) -> Outcome:
        """Makes a call and returns its result, its failure, and the log lines that it wrote on
        this thread.

        close() sets the flag that stops new calls, and then waits until no call has a token. So
        a call takes its token first and looks at the flag afterwards. An interrupt anywhere in
        the block gives the token back."""
        inside, token = self._inside, object()
        result, failure = 0, None
        outer = _log.begin_call()
        try:
            inside.add(token)
            handle = self._open_handle()
            if checked[0] is None:
                checked[0] = handle
            result = getattr(_lib, name)(*checked) or 0       # some return nothing
            if result < 0:
                failure = self._take_failure(handle)
        finally:
            inside.discard(token)
            lines = _log.end_call(outer)
        return result, failure, lines

    def _open_handle(self) -> int:
        handle = self._handle
        if handle is None or self._is_closing:
            raise self._closed_error()
        return handle

    @contextlib.contextmanager
    def _entered(self) -> Iterator[int]:
        """Keeps other threads from closing the context during the block, for work that does not
        go through _outcome()."""
        token = object()
        try:
            self._inside.add(token)
            yield self._open_handle()
        finally:
            self._inside.discard(token)

    @staticmethod
    def _take_failure(handle: Optional[int]) -> Optional[errors.Failure]:
        struct = _abi.ceov_failure()
        if _lib.ceov_last_failure(handle, ctypes.byref(struct)):
            return None
        return errors.Failure(struct)

    def _exception(self, name: str, result: int, lines: List[str],
                   failure: Optional[errors.Failure]) -> errors.CeoverlapError:
        """Returns the exception for a failed call. If the calling thread wrote error lines,
        these are its text. Otherwise the cause happened on a thread of the library, which
        reports it once: it is kept, and every later call that fails because of it names it."""
        own = [text for level, text in map(_log.split, lines) if level == "error"]
        _log.write_all(self._logger, lines, logging.DEBUG)
        if failure is not None and failure.text in own:
            return errors.make(result, "; ".join(own), failure)
        if failure is not None:
            self._latest = failure
        if own:
            return errors.make(result, "; ".join(own))
        failure = self._latest
        if failure is None:
            return errors.make(result, f"{name}: {errors.strerror(result)}")
        if failure.code == result:
            return errors.make(result, f"{name}: {failure.text}", failure)
        return errors.make(result, f"{name}: {errors.strerror(result)}; before: "
                           f"{failure.text}", failure)

    def last_failure(self) -> Optional[errors.Failure]:
        """Returns the first failure since this method, or an exception, took one; None if there
        was none."""
        with self._entered() as handle:
            return self._take_failure(handle)
