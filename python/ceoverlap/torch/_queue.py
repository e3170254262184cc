# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Calls that wait for peers, made one after another in the order in which they came, by their
callers or by a thread beside them."""

from __future__ import annotations

import collections
import queue
import threading
from typing import Any, Callable, List, Optional

from .. import errors


class Queued:
    """A call in a queue, from submit() on until its end. Those who wait for it make it themselves
    where nobody has begun it yet, together with what came before: a thread that has to wake up
    first takes longer than a short call does."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function: Optional[Callable[[], object]] = function
        self.is_done: bool = False
        self.error: Optional[BaseException] = None
        self._gate = threading.Lock()   # free from the end on
        self._gate.acquire()
        self._told: List[Callable[[Queued], None]] = []         # who wait for the end

    def tell(self, function: Callable[[Queued], None]) -> None:
        """Calls function(self) at the end: from the thread that makes the call, or now, if it has
        been made."""
        self._told.append(function)
        if self.is_done:
            self._tell_all()

    def _tell_all(self) -> None:
        while True:
            try:
                function = self._told.pop()     # one of two threads gets it
            except IndexError:
                return
            function(self)

    def _end(self, error: Optional[BaseException]) -> None:
        self._function, self.error, self.is_done = None, error, True
        self._gate.release()
        self._tell_all()

    def make(self, inside: Callable[[Callable[[], object]], object]) -> None:
        """Makes the call, by inside(function). Its exception is kept for who waits; one that is no
        error, as KeyboardInterrupt, is also raised here."""
        try:
            assert self._function is not None       # only one call makes it
            inside(self._function)
        except Exception as error:
            self._end(error)
        except BaseException as error:
            self._end(error)
            raise
        else:
            self._end(None)

    def sleep(self, timeout_s: float) -> bool:
        """Waits for the end, and returns whether it has come."""
        if self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            self._gate.release()
        return self.is_done


class CallQueue:
    """name    of its thread, which is started for the first call that nobody waits for at once

    A function that runs in the queue may use the queue itself: what it calls is made at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._turn = threading.RLock()  # of who makes calls
        self._is_inside = False         # whether it is in one
        self._waiting: collections.deque[Queued] = collections.deque()
        self._alarm: queue.SimpleQueue[bool] = queue.SimpleQueue()      # whether it goes on
        self._thread: Optional[threading.Thread] = None
        self._starting = threading.Lock()
        self._is_closed = False

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Returns function(*args), called behind what is in the queue."""
        with self._turn:
            if self._is_inside:
                return function(*args)
            while self._waiting:
                self._make_next()
            self._is_inside = True      # as _inside() does, whose call takes time
            try:
                return function(*args)
            finally:
                self._is_inside = False

    def _inside(self, function: Callable[..., Any], *args: Any) -> Any:
        self._is_inside = True
        try:
            return function(*args)
        finally:
            self._is_inside = False

    def _make_next(self) -> None:
        """Makes the first call in the queue, which is not empty. This thread has the turn."""
        self._waiting.popleft().make(self._inside)

    def submit(self, queued: Queued) -> None:
        """Puts a call into the queue, whose thread makes it unless somebody waits for it first."""
        if self._is_closed:
            raise errors.StateError(f"{self._name}: it is closed")
        self._waiting.append(queued)
        if self._thread is None:
            with self._starting:        # two threads may submit their first calls
                if self._thread is None:
                    self._thread = threading.Thread(target=self._work, name=self._name,
                                                    daemon=True)
                    self._thread.start()
        self._alarm.put(True)

    def wait(self, queued: Queued, timeout_s: Optional[float] = None) -> bool:
        """Returns whether the call was made within the time; without one it waits for as long as
        the call lasts."""
        if timeout_s is not None:
            return queued.sleep(timeout_s)
        while not queued.is_done:
            with self._turn:            # nobody is at it: it has been made, or is in the queue
                if not queued.is_done and self._waiting:
                    self._make_next()
        return True

    def _work(self) -> None:
        while self._alarm.get():
            with self._turn:
                if self._waiting:
                    self._make_next()

    def close(self, timeout_s: float) -> bool:
        """Takes no more calls, and returns whether those in the queue were made in time."""
        self._is_closed = True
        last = list(self._waiting)[-1:]
        is_done = all(queued.sleep(timeout_s) for queued in last)
        if self._turn.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):   # the one under way
            self._turn.release()
        else:
            is_done = False
        self._alarm.put(False)
        return is_done
