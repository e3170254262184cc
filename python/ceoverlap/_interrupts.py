# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Short calls of the library that may wait, made so that Ctrl-C ends them.

A helper thread that makes the call, as in _lasting.py, takes longer than such a call. So the main
thread makes it itself, and another thread is told of signals meanwhile: by a pipe into which
Python writes the number of each signal at once (signal.set_wakeup_fd()), though their handlers
only run when the call has returned."""

from __future__ import annotations

import os
import select
import signal
import threading
from typing import Any, Callable, Optional, Tuple

NONE = -1                               # no descriptor


class _Watch:
    """A thread that is told of the signals that come while the main thread is in a call."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.Lock()   # held while signals are read and acted on
        self._stop: Optional[Callable[[], None]] = None         # ends the call under way
        self._others = NONE             # the descriptor of who wants to know of signals, too
        threading.Thread(target=self._work, name="ceoverlap signals", daemon=True).start()

    def _work(self) -> None:
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        while True:
            poll.poll()
            with self._lock:
                if signal.SIGINT in self._take() and self._stop is not None and _is_plain():
                    self._stop()

    def _take(self) -> bytes:
        """Returns the numbers of the signals that have come, and passes them on."""
        try:
            told = os.read(self._read, 4096)
            if self._others != NONE:
                os.write(self._others, told)
        except OSError:                 # nothing has come, or nobody reads what is passed on
            return b""
        return told

    def call(self, function: Callable[..., Any], arguments: Tuple[Any, ...],
             stop: Callable[[], None]) -> Any:
        """Calls function(*arguments). Signals that have come are forgotten at the latest when an
        exception of their handlers is raised here, so they stop no later call."""
        try:
            others = NONE
            self._stop = stop
            try:
                others = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
                if others != NONE:
                    self._others = NONE if others == self._write else others
                return function(*arguments)
            finally:
                signal.set_wakeup_fd(NONE if others == self._write else others)
        except BaseException:
            with self._lock:
                self._stop = None
                self._take()
            stop()
            raise


def _is_plain() -> bool:
    """Returns whether Ctrl-C raises KeyboardInterrupt. A handler of the program's own may do
    something else, for which the call need not end."""
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler


_watch: Optional[_Watch] = None
_main = threading.main_thread().ident   # to ask for it takes longer than a call may


def call(function: Callable[..., Any], arguments: Tuple[Any, ...], stop: Callable[[], None]) -> Any:
    """Calls function(*arguments) and returns its result. Ctrl-C on the main thread calls stop(),
    from another thread, which shall make the function return soon, and then raises
    KeyboardInterrupt here. Handlers of the program's own run when the function has returned; if
    one raises an exception, stop() is called, too. Other threads are not interrupted."""
    global _watch
    if threading.get_ident() != _main:
        return function(*arguments)
    if _watch is None:
        _watch = _Watch()
    return _watch.call(function, arguments, stop)


def _forget() -> None:
    """In a child of fork() the thread is not there, and the main thread is who forked."""
    global _watch, _main
    _watch, _main = None, threading.get_ident()


os.register_at_fork(after_in_child=_forget)
