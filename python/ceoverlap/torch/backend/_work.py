# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The handle of a call that torch.distributed makes with async_op=True."""

from __future__ import annotations

import datetime
from typing import Callable, Optional

import torch

from ... import errors
from .. import _compat
from .._queue import CallQueue, Queued


class Work(_compat.Work):
    """A call in a queue. From PyTorch 2.14 on a process group gives its callers a handle of its
    own, which passes wait() and get_future() on and nothing else.

    result  the tensors that the call sets
    source  of a message: the rank that sends it"""

    def __init__(self, queue: CallQueue, function: Callable[[], object], result: list,
                 source: int = -1):
        super().__init__()
        self._queue, self._result, self._source = queue, result, source
        self._queued = Queued(function)
        self._future: Optional[torch.futures.Future] = None
        queue.submit(self._queued)

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """Returns when the call was made, and raises its error. PendingError: the time has passed;
        the caller may wait again. No timeout, or one of 0: as long as the group's deadline lets the
        call last."""
        seconds = timeout.total_seconds() if timeout else None
        if not self._queue.wait(self._queued, seconds):
            raise errors.PendingError(f"a call has not ended within {seconds} s")
        if self._queued.error is not None:
            raise self._queued.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future:
        """Returns a future that has the tensors when the call was made, or its error, as a
        RuntimeError."""
        if self._future is None:        # two threads may make one each: both are told
            ended: torch.futures.Future = torch.futures.Future()
            # What set_exception() sets is an error for who has that object alone, and PyTorch
            # hands on others. An error of then() is one for all.
            self._future = ended.then(self._outcome)
            self._queued.tell(lambda _: ended.set_result(None))
        return self._future

    def _outcome(self, _ended) -> list:
        error = self._queued.error
        if error is not None:
            raise error if isinstance(error, Exception) else errors.AbortedError(
                f"a call was interrupted by {error!r}")
        return self._result

    def is_completed(self) -> bool:
        return self._queued.is_done

    def is_success(self) -> bool:
        return self._queued.is_done and self._queued.error is None

    def exception(self) -> Optional[BaseException]:
        return self._queued.error

    def result(self) -> list:
        return self._result

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank
