# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Calls of the library that last, made so that Ctrl-C ends them at once.

Python runs the handlers of signals on the main thread alone, and not while that thread is
inside the library; what a handler raises while the library writes a log line is lost in the
callback. So the main thread has such calls made by a helper thread, and waits where handlers
run. Other threads make them themselves.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Callable, List, Optional, TypeVar

_Result = TypeVar("_Result")

STOP_S = 2.0                            # how long an interrupted call may take to end


class _Job:
    """One call of a function on a helper thread, with its result or error."""

    __slots__ = ("function", "result", "error", "done")

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.result: Any = None
        self.error: Optional[BaseException] = None
        self.done = threading.Lock()    # held until the call has returned
        self.done.acquire()

    def run(self) -> None:
        try:
            self.result = self.function()
        except BaseException as error:  # the waiting thread raises it
            self.error = error


class _Helper:
    """A thread that makes the calls it is given, one after the other."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="ceoverlap", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self.jobs.get()
            job.run()
            _idle.append(self)
            job.done.release()
            del job                     # what it refers to may go


_idle: List[_Helper] = []


def call(function: Callable[[], _Result], stop: Optional[Callable[[], None]] = None) -> _Result:
    """Calls function() and returns its result. On the main thread a helper thread makes the
    call, so that signal handlers can run. If a handler raises an exception meanwhile, stop() is
    called, which shall make the function return soon, and the exception is raised here; the
    function runs to its end on the helper thread."""
    if threading.get_ident() != threading.main_thread().ident:
        return function()
    try:
        helper = _idle.pop() if _idle else _Helper()
    except RuntimeError:                # no threads any more: the interpreter is ending
        return function()
    job = _Job(function)
    helper.jobs.put(job)
    try:
        job.done.acquire()
    except BaseException:
        if stop is not None:
            stop()
            job.done.acquire(timeout=STOP_S)
        raise
    if job.error is not None:
        try:
            raise job.error
        finally:
            job.error = None            # no cycle with its traceback
    result: _Result = job.result
    return result


os.register_at_fork(after_in_child=_idle.clear)
