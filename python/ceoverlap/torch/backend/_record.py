# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Writes down what a group calls where its other ranks can read it (_flight.py), and when a call
fails, tells what all of them have called last, whom they wait for, and whose call differs
(hang.py)."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Any, Callable, List, Optional, Sequence

import torch

from ... import _abi, _flight, errors, hang
from ..._operands import NAMES
from ...channel import PACKED
from ..group import Ranks
from ._ways import REDUCTIONS, Ways

FOLDER = "CEOVERLAP_HANG_FOLDER"        # where failed groups leave reports
_N_CALLS, _MOST_CALLS = 256, 1 << 14
# What a channel's call is, by enum ceov_call_kind.
_KINDS = {_abi.CEOV_ALL_GATHER: "all_gather", _abi.CEOV_REDUCE_SCATTER: "reduce_scatter",
          _abi.CEOV_ALL_REDUCE: "all_reduce", _abi.CEOV_ALL_TO_ALL: "all_to_all",
          _abi.CEOV_BROADCAST: "broadcast", _abi.CEOV_GATHER: "gather",
          _abi.CEOV_SCATTER: "scatter", _abi.CEOV_REDUCE: "reduce", _abi.CEOV_BARRIER: "barrier"}
_SUMS = ("reduce_scatter", "all_reduce", "reduce")
_ROOTED = ("broadcast", "gather", "scatter", "reduce")
_REDUCTIONS = {ours: number for number, ours in REDUCTIONS.items()}
_SETTLE_S = 0.5                         # for ranks that are on their way to a call that differs


def _n_calls() -> int:
    """Returns how many calls of a group are kept: as many as PyTorch's flight recorder keeps where
    somebody has said it. 0: none, and there are no reports."""
    for name in ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE"):
        if os.environ.get(name):
            return min(int(os.environ[name]), _MOST_CALLS)
    return _N_CALLS


class Record:
    """A group's calls.

    section     where they are written down; None: nowhere"""

    def __init__(self, ranks: Ranks, global_ranks: Sequence[int], named_so: str) -> None:
        self._at, self._name = ranks, named_so
        self._peers: List[Optional[int]] = []           # descriptors of all ranks' memory
        self._identity = b""
        self.section: Optional[_flight.Section] = None
        self.here: Here = Here()
        n_calls, address = _n_calls(), ""
        if n_calls > 0:
            mine = _flight.mine()
            address = mine.address
            self.section = mine.section(_flight.GroupName(
                named_so, ranks.rank, ranks.size, global_ranks or range(ranks.size)), n_calls)
        ranks.store.set(f"calls/{ranks.rank}", f"{os.urandom(16).hex()} {address}")

    def meet(self) -> None:
        """Finds the other ranks' memory. All of them have made their record."""
        if self.section is None or self._peers:
            return
        told = [self._at.store.get(f"calls/{rank}").decode().split(" ", 1)
                for rank in range(self._at.size)]
        self._identity = bytes.fromhex(told[0][0])
        self.section.identify(self._identity)
        self._peers = [_flight.open_peer(address) if address else None for _, address in told]

    def leave(self) -> None:
        """Tells peers that this rank is about to destroy the group."""
        if self.section is not None:
            self.section.leave()

    def close(self) -> None:
        """The group is destroyed."""
        section, self.section = self.section, None
        if section is not None:
            section.close()

    # --- failures --------------------------------------------------------------------------

    def report(self) -> hang.Report:
        """Returns what all ranks do now. No rank has to answer."""
        processes = self._processes()
        return hang.Report(self._name, self._at.size, [
            hang.found(rank, process, self._past_of(process))
            for rank, process in enumerate(processes)])

    def _processes(self) -> List[Optional[_flight.Process]]:
        if not self._peers:
            raise errors.StateError(
                f"group {self._name}: no report: its ranks have made no call yet, or "
                "TORCH_FR_BUFFER_SIZE=0 forbids to keep any")
        return [None if fd is None else _flight.read(fd) for fd in self._peers]

    def _past_of(self, process: Optional[_flight.Process]) -> Optional[_flight.Past]:
        groups = [] if process is None else process.groups
        return next((past for past in groups if past.identity == self._identity), None)

    def failed(self, call: int, error: BaseException, is_at_end: bool) -> None:
        """A call has raised an error. is_at_end: no call of the group will succeed any more, or
        peers may wait in this one; else nothing was begun."""
        section = self.section
        if section is None:
            return
        if not is_at_end:
            section.refuse(call, str(error))
            return
        is_first = not section.has_failed
        section.fail(call, str(error))
        if is_first and self._peers and isinstance(error, Exception):
            try:
                self._tell(error)
            except Exception as problem:        # the error itself is what the caller has to see
                logging.getLogger("ceoverlap").warning(
                    "group %s: no hang report: %s", self._name, problem)

    def _tell(self, error: Exception) -> None:
        """Adds what is known to the error. The first rank that waits logs the report, and writes
        it into the folder that the environment names."""
        report = self._settled(error)
        if report.why:
            error.args = ("\n".join([str(error), *report.why]), *error.args[1:])
        waiting = [rank.rank for rank in report.ranks
                   if rank.state == hang.RUNS and rank.waiting is not None]
        if self._at.rank != min(waiting, default=self._at.rank):
            return
        logging.getLogger("ceoverlap").error("%s", report.text())
        folder = os.environ.get(FOLDER)
        if folder:
            self.write(folder, report)

    def _settled(self, error: Exception) -> hang.Report:
        """Returns the report of a failure, which may come before all ranks that are on their way
        have made the call: unless it is a deadline that has passed, they get a moment for it."""
        report, end_s = self.report(), time.monotonic() + _SETTLE_S
        while (not isinstance(error, errors.DeadlineError) and report.is_early and
               time.monotonic() < end_s):
            time.sleep(_SETTLE_S / 50)
            report = self.report()
        return report

    def write(self, folder: str, report: hang.Report) -> str:
        """Makes a folder in that folder with the report as text, as JSON, and as dumps for
        PyTorch's flight recorder's tools, and returns its path."""
        path = os.path.join(folder, f"{self._name.replace('/', '-')}-{os.getpid()}")
        os.makedirs(path, exist_ok=True)
        for name, text in (("report.txt", report.text()), ("report.json", report.json())):
            with open(os.path.join(path, name), "w", encoding="utf-8") as file:
                file.write(f"{text}\n")
        hang.write_dumps(os.path.join(path, "fr"),
                         [process for process in self._processes() if process is not None])
        return path

    def recorded(self, call: int, function: Callable[[], object], has_ended: Callable[[], bool],
                 state: int = _flight.ENDED) -> None:
        """Calls a function that makes a call, and writes down how it ends. has_ended: returns
        whether the group is at its end, once an error was raised; state: of the call otherwise."""
        here = self.here
        here.is_inside = True
        try:
            function()
        except BaseException as error:
            self.failed(call, error, not isinstance(error, Exception) or has_ended())
            raise
        finally:
            here.is_inside = False
        if self.section is not None:
            self.section.end(call, state)


class Here(threading.local):
    """A thread, and whether it is in a call that is written down."""
    is_inside = False


class Recorded:
    """What makes calls of one place, and writes them down."""

    ways: Ways
    record: Record
    group: Any                          # a Group, or None: no call is the channel's then

    def has_ended(self) -> bool:
        """Whether the group takes no more calls, once one has failed."""
        if self.group is None or self.group.channel is None:
            return True
        try:
            self.group.channel.check()
        except errors.CeoverlapError:
            return True
        return False

    def begin(self, kind: str, x: Optional[torch.Tensor] = None, op: Optional[int] = None,
              root: int = _flight.NO_PEER, why_not: str = "") -> int:
        """Begins a collective, whose way is Ways.of(). x: what this rank gives, or gets of its own.
        Returns its place in the record; ~place, which is below 0, if it is not the channel's."""
        way = self.ways.of(kind, x, op, why_not)
        section = self.record.section
        call = 0 if section is None else section.call(way.codes, 0 if x is None else x.numel(),
                                                      root)
        return call if way.is_ours else ~call

    def checked(self, call: int, function: Callable[..., Any], *args: Any) -> Any:
        """Returns function(*args), which looks at the arguments of a call that was begun, and
        raises what is wrong with them."""
        try:
            return function(*args)
        except Exception as error:
            self.record.failed(call, error, False)
            raise


class AllCalls:
    """A group's queue, where calls of the channel that are not the backend's, but of
    ceoverlap.torch's own functions, are written down, too.

    state   of a call that has returned
    both    whether the backend's calls go through the queue here, too; those that a CallQueue makes
            are in it already"""

    def __init__(self, queue: Any, recorded: Recorded, state: int = _flight.ENDED,
                 both: bool = False) -> None:
        self._queue, self._of, self._state = queue, recorded, state
        self._here, self._both = recorded.record.here, both

    def run(self, function: Callable[[bytes], object], call: bytes) -> None:
        """Calls function(call), which makes a packed call of the channel."""
        if not self._here.is_inside:
            self._queue.run(self._run, function, call)
        elif self._both:
            self._queue.run(function, call)
        else:
            function(call)

    def _run(self, function: Callable[[bytes], object], call: bytes) -> None:
        record = self._of.record
        _, kind, dtype, reduction, root, _, _, count, _, _, _ = PACKED.unpack(call)
        name = _KINDS[kind]
        codes = _flight.codes_of(name, NAMES.get(dtype, "") if name != "barrier" else "",
                                 _REDUCTIONS[reduction] if name in _SUMS else _flight.NO_REDUCTION)
        section = record.section
        place = 0 if section is None else section.call(
            codes, count, root if name in _ROOTED else _flight.NO_PEER)
        record.recorded(place, lambda: function(call), self._of.has_ended, self._state)
