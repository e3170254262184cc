# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Why process groups with the backend "ceov" wait: what each rank has called last, whom it waits
for, and whose call differs.

    python -m ceoverlap.hang                    # all processes of this user on this node
    python -m ceoverlap.hang --json PID ...     # the groups of these processes
    python -m ceoverlap.hang --dump FOLDER      # files for PyTorch's torchfrtrace, too

It reads what the processes have written down, so none of them has to answer: also those that are
stopped, or wait for ever. On the node of a failed group ceoverlap.torch makes the report by itself,
when a call's deadline has passed. Ranks on other nodes are named, and their calls are not seen."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import _flight
from ._flight import ENDED, FAILED, ISSUED, REFUSED, Call, Past, Process

RUNS, STOPPED, DIED, UNSEEN = "runs", "is stopped", "has died", "cannot be seen from here"
_RECENTLY_NS = 10 * 10 ** 9
_Key = Tuple[str, str, str, str, int, int]
_UNEVEN = ("all_gather", "all_to_all", "gather", "reduce_scatter", "scatter")   # may differ by rank


class Rank(NamedTuple):
    """A rank of a group, as it was found."""
    rank: int
    pid: int                            # 0: not known
    state: str
    past: Optional[Past]                # None: its calls cannot be seen, or it has left
    elsewhere: List[str]                # the calls of other groups that it is in, or has failed in

    @property
    def collectives(self) -> List[Call]:
        """Those that count, from old to new."""
        return [] if self.past is None else [
            call for call in self.past.calls if not call.is_message and call.state != REFUSED]

    @property
    def messages(self) -> List[Call]:
        return [] if self.past is None else [call for call in self.past.calls if call.is_message]

    @property
    def last(self) -> Optional[Call]:
        """What it has called last."""
        return self.past.calls[-1] if self.past is not None and self.past.calls else None

    @property
    def waiting(self) -> Optional[Call]:
        """The oldest call that is not complete; of those whose end nobody tells none."""
        calls = [] if self.past is None else self.past.calls
        return next((call for call in calls if call.waits), None)

    def collective(self, number: int) -> Optional[Call]:
        return next((call for call in self.collectives if call.number == number), None)

    @property
    def n_collectives(self) -> int:
        return self.collectives[-1].number if self.collectives else 0

    @property
    def is_halted(self) -> bool:
        """Whether its process is stopped or has died, and not behind a call that had failed."""
        return self.state in (STOPPED, DIED) and not any(
            call.state == FAILED for call in self.collectives + self.messages)


# --- what ranks do ---------------------------------------------------------------------------


def _state_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            letter = file.read().rsplit(")", 1)[1].split()[0]
    except (OSError, IndexError):
        return DIED
    if letter in "ZX":
        return DIED
    return STOPPED if letter in "Tt" else RUNS


def _ago(ns: int, now_ns: int) -> str:
    return f"{max(now_ns - ns, 0) / 1e9:.1f} s ago"


def _told_of(call: Call, now_ns: int) -> str:
    """Returns what has become of a call."""
    if call.state == ISSUED:
        return f"issued {_ago(call.called_ns, now_ns)}"
    if call.state == REFUSED:
        return f"refused {_ago(call.ended_ns, now_ns)}"
    if call.state == FAILED:
        return f"called {_ago(call.called_ns, now_ns)}, and has failed"
    if call.waits:
        return f"waits since {_ago(call.called_ns, now_ns)}"
    return f"ended {_ago(call.ended_ns, now_ns)}"


def _number_of(call: Call) -> str:
    return f"{'message' if call.is_message else 'call'} {call.number}"


def _elsewhere(process: Process, past: Past) -> List[str]:
    """The calls of other groups in which the process waits, or has failed just now."""
    found = []
    for other in process.groups:
        if other is past or other.is_closed:
            continue
        call = next((call for call in other.calls if call.waits), None)
        if call is not None and (call.state != FAILED or
                                 time.time_ns() - call.ended_ns < _RECENTLY_NS):
            found.append(f"{_number_of(call)} of group {other.name}: {call}" +
                         (", which has failed" if call.state == FAILED else ""))
    return found


def found(rank: int, process: Optional[Process], past: Optional[Past]) -> Rank:
    """Returns what was found of a rank; process: None if its memory cannot be read."""
    if process is None:
        return Rank(rank, 0, UNSEEN, None, [])
    return Rank(rank, process.pid, _state_of(process.pid), past,
                [] if past is None else _elsewhere(process, past))


# --- why ------------------------------------------------------------------------------------


def _key(call: Call) -> _Key:
    """What has to be the same at all ranks."""
    return (call.kind.replace("_single", ""), call.dtype, call.reduction, call.way, call.peer,
            -1 if call.kind in _UNEVEN else call.elements)


def _listed(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    return f"rank{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


class Report:
    """A group at one time.

    name   of the group
    size   how many ranks it has
    ranks  what was found of them
    why    lines that say what differs, or who has not come; empty: nothing was found
    blamed the ranks that these lines blame
    is_early    whether a rank that runs has not made the call in which others wait"""

    def __init__(self, name: str, size: int, ranks: Sequence[Rank]) -> None:
        self.name: str = name
        self.size: int = size
        self.ranks: List[Rank] = list(ranks)
        self.time_ns: int = time.time_ns()
        self.blamed: Set[int] = set()
        self.why: List[str] = []
        self.is_early: bool = False
        self._look_at_collectives()
        self._look_at_messages()
        self._look_at_errors()

    # --- collectives

    def _stuck(self) -> Optional[int]:
        """The number of the collective in which some rank waits. Where nobody tells when calls end,
        as on GPUs: of the first one that differs, or else that not all ranks have called."""
        numbers = [call.number for rank in self.ranks for call in rank.collectives if call.waits]
        if numbers:
            return min(numbers)
        by_number: Dict[int, List[_Key]] = {}
        for rank in self.ranks:
            for call in rank.collectives:
                if call.state == ISSUED:
                    by_number.setdefault(call.number, []).append(_key(call))
        least = min((rank.n_collectives for rank in self.ranks), default=0)
        return next((number for number, keys in sorted(by_number.items())
                     if len(set(keys)) > 1 or number > least), None)

    def _look_at_collectives(self) -> None:
        number = self._stuck()
        if number is None:
            return
        calls = {rank.rank: call for rank in self.ranks
                 for call in [rank.collective(number)] if call is not None}
        by_key: Dict[_Key, List[int]] = {}
        for at, call in calls.items():
            by_key.setdefault(_key(call), []).append(at)
        if len(by_key) > 1:
            self._tell_of_different(number, calls, by_key)
        missing = [rank for rank in self.ranks if rank.n_collectives < number]
        self.is_early = any(rank.state == RUNS for rank in missing)
        for rank in missing:
            self._tell_of_missing(rank, number, calls)
        for rank in self.ranks:
            if rank.rank in calls and rank.is_halted and not calls[rank.rank].state == ENDED:
                self._blame(rank.rank, f"rank {rank.rank} {self._process(rank)} in call {number}, "
                            f"{calls[rank.rank]}, in which others wait for it")

    def _tell_of_different(self, number: int, calls: Dict[int, Call],
                           by_key: Dict[_Key, List[int]]) -> None:
        groups = sorted(by_key.values(), key=lambda ranks: (-len(ranks), ranks))
        told = "; ".join(f"{_listed(ranks)}: {calls[ranks[0]]}" for ranks in groups)
        alike = len(groups[0]) > len(groups[1])
        for ranks in groups[1:] if alike else groups:
            self.blamed.update(ranks)
        whose = f" ({_listed(self.blamed)} differ{'s' if len(self.blamed) == 1 else ''})"
        self.why.append(f"call {number} differs{whose if alike else ''}: {told}")

    def _process(self, rank: Rank) -> str:
        return f"(process {rank.pid}) {rank.state}"

    def _tell_of_missing(self, rank: Rank, number: int, calls: Dict[int, Call]) -> None:
        waiting = [at for at, call in calls.items() if call.waits or call.state == ISSUED]
        what = (f"rank {rank.rank} has not made call {number}, {calls[waiting[0]]}, for which "
                f"{_listed(waiting)} wait{'s' if len(waiting) == 1 else ''}: ")
        self._blame(rank.rank, what + self._reason(rank))

    def _blame(self, rank: int, line: str) -> None:
        self.blamed.add(rank)
        self.why.append(line)

    def _reason(self, rank: Rank) -> str:
        """Returns what a rank does that has not come."""
        if rank.state == UNSEEN:
            return "it is on another node, or its process is hidden"
        if rank.state != RUNS:
            return f"its process {rank.pid} {rank.state}; {self._last_of(rank)}"
        if rank.past is None or rank.past.is_closed:
            return f"it has destroyed the group; {self._last_of(rank)}"
        last = rank.last
        if last is not None and last.state == REFUSED:
            return f"its {last} was refused: {rank.past.error}"
        if rank.waiting is not None:
            return f"it waits in {_number_of(rank.waiting)}, {rank.waiting}"
        if rank.elsewhere:
            return f"it is in {rank.elsewhere[0]}"
        return f"its process {rank.pid} runs; {self._last_of(rank)}"

    def _last_of(self, rank: Rank) -> str:
        last = rank.last
        if last is None:
            return "it has called nothing in this group"
        return (f"its last was {_number_of(last)}, {last}, "
                f"{_told_of(last, self.time_ns)}")

    # --- messages

    @staticmethod
    def _count(rank: Rank, kind: str, peer: int, tag: int) -> int:
        """How many messages of that kind a rank has called with that peer."""
        return max((call.number for call in rank.messages
                    if (call.kind, call.peer, call.tag) == (kind, peer, tag)), default=0)

    def _look_at_messages(self) -> None:
        by_rank = {rank.rank: rank for rank in self.ranks}
        for rank in self.ranks:
            seen: Set[Tuple[str, int, int]] = set()
            for call in rank.messages:
                key = call.kind, call.peer, call.tag
                waits = call.waits or call.state == ISSUED and call.kind == "recv"
                if waits and key not in seen and call.peer in by_rank:
                    seen.add(key)
                    self._look_at_message(rank, call, by_rank[call.peer])

    def _look_at_message(self, rank: Rank, call: Call, peer: Rank) -> None:
        """call: the first one that is not complete with that peer."""
        other, has = ("recv", "received") if call.kind == "send" else ("send", "sent")
        answer = next((one for one in peer.messages if one.number == call.number and
                       (one.kind, one.peer, one.tag) == (other, rank.rank, call.tag)), None)
        if answer is not None:
            if (answer.dtype, answer.elements) != (call.dtype, call.elements):
                self._blame(peer.rank, f"message {call.number} of ranks {rank.rank} and "
                            f"{peer.rank} differs: rank {rank.rank} calls {call}, rank "
                            f"{peer.rank} {answer}")
            elif peer.is_halted:
                self._blame(peer.rank, f"rank {rank.rank} waits in message {call.number}, {call}: "
                            f"rank {peer.rank} {self._process(peer)}")
            return
        n = self._count(peer, other, rank.rank, call.tag)
        if n < call.number:
            self._blame(peer.rank, f"rank {rank.rank} waits in message {call.number}, {call}; rank "
                        f"{peer.rank} has {has} {n}: " +
                        (self._stray(peer, other, rank.rank) or self._reason(peer)))

    def _stray(self, peer: Rank, kind: str, wanted: int) -> str:
        """Returns which message a rank has made with a third one, which makes no such message; ""
        if there is none."""
        other = "recv" if kind == "send" else "send"
        for call in reversed(peer.messages):
            third = next((rank for rank in self.ranks if rank.rank == call.peer), None)
            if call.kind != kind or third is None or call.peer == wanted or third.past is None:
                continue
            if self._count(third, other, peer.rank, call.tag) < call.number:
                return f"it has called {call} instead, for which rank {third.rank} has no {other}"
        return ""

    # --- errors

    def _look_at_errors(self) -> None:
        """What the library found out by itself, where the calls look alike from here."""
        if self.why:
            return
        for rank in self.ranks:
            if rank.past is not None and rank.past.error:
                self.why.append(f"rank {rank.rank}: {rank.past.error}")

    # --- what it is written as

    def text(self) -> str:
        """The report as lines of text."""
        lines = [f"hang report of group {self.name}, {self.size} ranks"]
        lines += [f"  why: {line}" for line in self.why or ["nothing was found that differs"]]
        for rank in self.ranks:
            lines += [f"  {line}" for line in self._lines_of(rank)]
        return "\n".join(lines)

    def _lines_of(self, rank: Rank) -> List[str]:
        head = f"rank {rank.rank}"
        if rank.past is None:
            return [f"{head}: {rank.state}"]
        process = f"process {rank.pid}" + ("" if rank.state == RUNS else f" {rank.state}")
        last = rank.waiting or rank.last
        does = "has called nothing" if last is None else \
            f"{_number_of(last)}, {last}, {_told_of(last, self.time_ns)}"
        lines = [f"{head}, {process}: {does}"]
        waits_for = self.waits_for(rank)
        if waits_for:
            lines.append(f"  waits for {_listed(waits_for)}")
        lines += [f"  is in {one}" for one in rank.elsewhere]
        if rank.past.error:
            lines.append(f"  error: {rank.past.error}")
        return lines

    def waits_for(self, rank: Rank) -> List[int]:
        """The ranks that have not come to the call in which this one waits."""
        call = rank.waiting or rank.last
        if call is None or not call.waits and call.state != ISSUED:
            return []
        if call.is_message:
            return [call.peer]
        return [other.rank for other in self.ranks if other.n_collectives < call.number]

    def as_dict(self) -> Dict[str, Any]:
        """The report as what JSON holds. Times are seconds since 1970; calls are numbered from 1
        on: collectives of the group, or messages of a pair and direction."""
        return {"group": self.name, "size": self.size, "time": self.time_ns / 1e9,
                "why": self.why, "blamed": sorted(self.blamed),
                "ranks": [self._rank_as_dict(rank) for rank in self.ranks]}

    def _rank_as_dict(self, rank: Rank) -> Dict[str, Any]:
        last = rank.waiting or rank.last
        told: Dict[str, Any] = {"rank": rank.rank, "process": rank.pid or None,
                                "state": rank.state, "waits_for": self.waits_for(rank),
                                "elsewhere": rank.elsewhere,
                                "error": rank.past.error if rank.past is not None else "",
                                "last": None}
        if last is not None:
            told["last"] = {"number": last.number, "kind": last.kind, "dtype": last.dtype,
                            "reduction": last.reduction, "way": last.way,
                            "peer": None if last.peer == _flight.NO_PEER else last.peer,
                            "elements": last.elements, "called": last.called_ns / 1e9,
                            "ended": last.ended_ns / 1e9 if last.ended_ns else None,
                            "waits": last.waits}
        return told

    def json(self) -> str:
        return json.dumps(self.as_dict())


# --- PyTorch's flight recorder ----------------------------------------------------------------

# What its reader calls these.
_FR_NAMES = {"all_gather_single": "_all_gather_base", "reduce_scatter_single":
             "_reduce_scatter_base", "monitored_barrier": "barrier",
             "all_reduce_sparse": "all_reduce"}
_FR_VERSION = "2.10"
_FR_DTYPES = {"float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
              "int8": "Char", "uint8": "Byte", "int16": "Short", "int32": "Int", "int64": "Long",
              "bool": "Bool"}


def _fr_sizes(call: Call, size: int) -> Tuple[List[List[int]], List[List[int]]]:
    """Returns the sizes of a call's inputs and outputs, as flat tensors."""
    one, all_of = [[call.elements]], [[call.elements * size]]
    if not call.dtype:
        return [[]], [[]]
    if call.kind in ("all_gather", "all_gather_single", "gather"):
        return one, all_of
    if call.kind in ("reduce_scatter", "reduce_scatter_single", "scatter"):
        return all_of, one
    return one, one


def _fr_entry(past: Past, call: Call, record: int) -> Dict[str, Any]:
    name = _FR_NAMES.get(call.kind, call.kind)
    if call.is_message:
        name += f" {past.rank}{'->' if call.kind == 'send' else '<-'}{call.peer}"
    inputs, outputs = _fr_sizes(call, len(past.ranks))
    dtypes = [_FR_DTYPES.get(call.dtype, call.dtype)] if call.dtype else []
    n = call.number if not call.is_message else 0
    return {"record_id": record, "pg_id": 0, "process_group": (past.name, "undefined"),
            "collective_seq_id": n, "p2p_seq_id": call.number if call.is_message else 0,
            "op_id": call.number, "is_p2p": call.is_message,
            # Readers before PyTorch 2.15 take no other library's name.
            "profiling_name": f"nccl:{name}", "input_sizes": inputs, "output_sizes": outputs,
            "input_dtypes": dtypes, "output_dtypes": dtypes, "time_created_ns": call.called_ns,
            "time_discovered_started_ns": None, "time_discovered_completed_ns":
            call.ended_ns if call.state == ENDED else None,
            "state": "started" if call.waits else
            "scheduled" if call.state == ISSUED else "completed",
            "timeout_ms": 0, "retired": call.state == ENDED, "frames": []}


def _fr_dumps(processes: Sequence[Process]) -> Dict[int, Dict[str, Any]]:
    """Returns a dump for each rank in the world: of the groups of which all ranks are seen.
    Messages that are complete are left out: the reader compares each entry with all ranks'."""
    pasts: Dict[bytes, Dict[int, Past]] = {}
    for process in processes:
        for past in process.groups:
            if not past.is_closed and any(past.identity) and min(past.ranks) >= 0:
                pasts.setdefault(past.identity, {})[past.rank] = past
    dumps: Dict[int, Dict[str, Any]] = {}
    for by_rank in pasts.values():
        if len(by_rank) == len(next(iter(by_rank.values())).ranks):
            _add_group(dumps, by_rank)
    for dump in dumps.values():
        dump["entries"].sort(key=lambda entry: entry["time_created_ns"])
        for i, entry in enumerate(dump["entries"]):     # the reader forgets those before the
            entry["record_id"] = i                      # largest first number
    return dumps


def _add_group(dumps: Dict[int, Dict[str, Any]], by_rank: Dict[int, Past]) -> None:
    """Adds a group's calls to the dumps, from the first one on that all ranks still have."""
    firsts = [next((call.number for call in past.calls if not call.is_message), 1)
              for past in by_rank.values()]
    for past in by_rank.values():
        dump = dumps.setdefault(past.ranks[past.rank], {
            "version": _FR_VERSION, "pg_config": {}, "pg_status": {}, "entries": []})
        dump["pg_config"][past.name] = {"name": past.name, "desc": "undefined",
                                        "ranks": str(list(past.ranks))}
        for call in past.calls:
            if call.state == REFUSED or call.is_message and not call.waits or \
                    not call.is_message and call.number < max(firsts):
                continue
            dump["entries"].append(_fr_entry(past, call, 0))


def write_dumps(folder: str, processes: Sequence[Process]) -> None:
    """Writes a file for each rank into a folder, which has none yet, for torchfrtrace."""
    os.makedirs(folder)
    for rank, dump in _fr_dumps(processes).items():
        with open(os.path.join(folder, f"rank_{rank}"), "wb") as file:
            pickle.dump(dump, file)


# --- the program ------------------------------------------------------------------------------


def reports_of(processes: Sequence[Process]) -> List[Report]:
    """Returns a report for each group of which some process tells."""
    groups: Dict[Any, Dict[int, Rank]] = {}
    sizes: Dict[Any, Tuple[str, int]] = {}
    for process in processes:
        for past in process.groups:
            if past.is_closed:
                continue
            key = past.identity if any(past.identity) else (process.token, past.name)
            groups.setdefault(key, {})[past.rank] = found(past.rank, process, past)
            sizes[key] = past.name, len(past.ranks)
    return [Report(*sizes[key], [by_rank.get(rank) or found(rank, None, None)
                                 for rank in range(sizes[key][1])])
            for key, by_rank in groups.items()]


def _processes(pids: Sequence[int]) -> List[Process]:
    """Returns what processes tell: these, or all that can be seen."""
    told = []
    for pid in pids or sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        fd = _flight.open_process(pid)
        if fd is not None:
            told.append(_flight.read(fd))
            os.close(fd)
        elif pids:
            print(f"ceoverlap.hang: process {pid}: it is not there, belongs to another user, or "
                  "has no process group with the backend ceov", file=sys.stderr)
    return told


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m ceoverlap.hang", description=(
        "Says what the ranks of process groups with the backend \"ceov\" wait for."))
    parser.add_argument("pids", nargs="*", type=int, metavar="PID",
                        help="a process of a rank; without any: all of this user on this node")
    parser.add_argument("--json", action="store_true", help="one line for each group, as JSON")
    parser.add_argument("--dump", metavar="FOLDER",
                        help="make this folder, with a file for each rank, for torchfrtrace")
    options = parser.parse_args(arguments)
    processes = _processes(options.pids)
    if not processes:
        print("ceoverlap.hang: no process with the backend ceov was found", file=sys.stderr)
        return 1
    if options.dump:
        write_dumps(options.dump, processes)
    for report in reports_of(processes):
        print(report.json() if options.json else report.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
