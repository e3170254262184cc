# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The handles of calls that torch.distributed makes with async_op=True."""

from __future__ import annotations

import datetime
import time
from typing import Any, Callable, List, Optional, Sequence

import torch

from ... import errors
from .. import _compat
from .._queue import CallQueue, Queued


class Work(_compat.Work):
    """A call in a queue. From PyTorch 2.14 on a process group gives its callers a handle of its
    own, which passes wait() and get_future() on and nothing else.

    result  the tensors that the call sets
    source  of a message: the rank that sends it"""

    def __init__(self, queue: CallQueue, function: Callable[[], object], result: List[Any],
                 source: int = -1) -> None:
        super().__init__()
        self._queue, self._result, self._source = queue, result, source
        self._queued = Queued(function)
        self._future: Optional[torch.futures.Future[Any]] = None
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

    block_current_stream = synchronize

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that has the tensors when the call was made, or its error, as a
        RuntimeError."""
        if self._future is None:        # two threads may make one each: both are told
            ended: torch.futures.Future[Any] = torch.futures.Future()
            # What set_exception() sets is an error for who has that object alone, and PyTorch
            # hands on others. An error of then() is one for all.
            self._future = ended.then(self._outcome)
            self._queued.tell(lambda _: ended.set_result(None))
        return self._future

    def _outcome(self, _ended: Any) -> List[Any]:
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

    def result(self) -> List[Any]:
        return self._result

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank


class Told(_compat.Work):
    """A message of another backend, which is written down; see _record.py."""

    def __init__(self, work: Any, record: Any, call: int) -> None:
        super().__init__()
        self._work, self._record, self._call = work, record, call

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        self._record.recorded(self._call, lambda: self._work.wait(timeout) if timeout else
                              self._work.wait(), lambda: not timeout)
        return True

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> torch.futures.Future[Any]:
        return self._work.get_future()

    def is_completed(self) -> bool:
        return self._work.is_completed()

    def is_success(self) -> bool:
        return self._work.is_success()

    def exception(self) -> Optional[BaseException]:
        return self._work.exception()

    def result(self) -> List[Any]:
        return self._work.result()

    def source_rank(self) -> int:
        return self._work._source_rank()

    _source_rank = source_rank


class OnStream(_compat.Work):
    """A call that a stream has. wait() lets the caller's current stream wait for it, and not the
    host, as NCCL's does.

    side    the Gpu whose call it is
    result  the tensors that it sets
    held    what must stay until some stream has waited for it
    event   behind the call; None: it will come"""

    def __init__(self, side: Any, result: List[Any], held: object,
                 event: Optional[torch.cuda.Event] = None) -> None:
        super().__init__()
        self._side, self._result, self._held, self._event = side, result, held, event
        self.blocks = False             # whether wait() blocks the host, as a barrier's does
        self._is_captured = _compat.is_capturing()      # into a graph, whose memory is its own

    def _reached(self) -> torch.cuda.Event:
        """Returns the event, once the stream has the call."""
        assert self._event is not None
        return self._event

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        """With a timeout the host waits, too; PendingError: it has passed."""
        event, device = self._reached(), self._side.device
        if timeout:
            self._sleep(event, timeout.total_seconds())
        torch.cuda.current_stream(device).wait_event(event)
        if self.blocks and not _compat.is_capturing():
            event.synchronize()
            self._side.check()
        self._held = None
        return True

    def _sleep(self, event: torch.cuda.Event, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not event.query():
            if time.monotonic() > deadline:
                raise errors.PendingError(f"a call has not ended within {seconds} s")
            time.sleep(1e-4)
        self._side.check()

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that has the tensors already: the streams that wait for it, or in which
        its then() runs, begin behind the call."""
        event, device = self._reached(), self._side.device
        future: torch.futures.Future[Any] = torch.futures.Future(devices=[device])
        stream = torch.cuda.Stream(device)
        with torch.cuda.stream(stream):
            stream.wait_event(event)
            future.set_result(self._result)
        return future

    def is_completed(self) -> bool:
        return self._reached().query()

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Optional[BaseException]:
        try:
            self._side.check()
        except errors.CeoverlapError as error:
            return error
        return None

    def result(self) -> List[Any]:
        return self._result

    def source_rank(self) -> int:
        return -1

    _source_rank = source_rank

    def __del__(self) -> None:
        if self._held is not None and self._event is not None and not self._is_captured:
            self._side.keep(self._event, self._held)


class Message(OnStream):
    """A send or a receive, which may wait for others to be made at the same time: for those in
    front of the first handle that is waited for, or that is asked for anything."""

    def __init__(self, side: Any, kind: str, tensors: List[Any], peer: int, rank: int) -> None:
        super().__init__(side, tensors, tensors)
        self.kind, self.tensors, self.peer = kind, tensors, peer
        self._source = peer if kind == "recv" else rank
        self._error: Optional[BaseException] = None

    def end(self, event: torch.cuda.Event, error: Optional[BaseException]) -> None:
        """The stream has it, or it has failed."""
        self._event, self._error = event, error

    def _reached(self) -> torch.cuda.Event:
        if self._event is None:
            self._side.flush()
        if self._error is not None:
            raise self._error
        return super()._reached()

    def exception(self) -> Optional[BaseException]:
        return self._error or super().exception()

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank


class Together(_compat.Work):
    """Several calls that other backends have made."""

    def __init__(self, works: Sequence[Any], result: List[Any]) -> None:
        super().__init__()
        self._works, self._result = list(works), result

    def wait(self, timeout: Optional[datetime.timedelta] = None) -> bool:
        for work in self._works:
            work.wait(timeout) if timeout else work.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def get_future(self) -> torch.futures.Future[Any]:
        """Returns a future that has the tensors when all of them have theirs."""
        each = torch.futures.collect_all([work.get_future() for work in self._works])
        return each.then(lambda _: self._result)

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        return all(work.is_success() for work in self._works)

    def exception(self) -> Optional[BaseException]:
        return next((work.exception() for work in self._works if work.exception()), None)

    def result(self) -> List[Any]:
        return self._result

    def source_rank(self) -> int:
        return -1

    _source_rank = source_rank
