# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The trace file of one process."""

import collections
import types

from reading import INT64_MAX, MEMBERS_MAX, NS_MAX, OFFSETS_MAX, RANKS_MAX
from reading import Refused, event_times, plain_text, scan, whole_number

ClockPair = collections.namedtuple("ClockPair", "realtime_ns monotonic_ns")


class Part:
    """A file of one process: whose events it has, and what it says of its node's clock."""

    def __init__(self, path):
        self.path = path
        self.first_ns, self.last_ns = NS_MAX, -1        # of its events, by the node's clock
        self.pids = set()
        self.offsets = []
        self.clocks = []                # pairs of the node's two clocks
        scan(path, self.take_event, self.take_data)
        alien = self.pids - set(self.ranks)
        if alien:
            raise Refused(f"{path}: it has events of rank {min(alien)}, which its process does "
                          "not have")
        if self.offsets and self.measurer not in self.ranks:
            raise Refused(f"{path}: it has offsets of a clock that rank {self.measurer} measures")

    def take_event(self, event):
        pid = whole_number(event, "pid", RANKS_MAX - 1)
        if pid is None:
            raise Refused("its pid is no rank")
        self.pids.add(pid)
        if len(self.pids) > MEMBERS_MAX:
            raise Refused("it is of one more rank than a process can have")
        times = event_times(event)
        if times:
            self.first_ns = min(self.first_ns, times[0])
            self.last_ns = max(self.last_ns, times[1])

    def take_data(self, data):
        clock = plain_text(data, "clock", 15)
        if clock is None:
            raise Refused("it does not say what its clock is: ceoverlap has not written it")
        if clock == "merged":
            raise Refused("it is joined already: name the files that it was made of")
        self.n_dropped = whole_number(data, "dropped_chunks", INT64_MAX)
        self.n_unfinished = whole_number(data, "unfinished_chunks", INT64_MAX)
        if clock != "monotonic" or self.n_dropped is None or self.n_unfinished is None:
            raise Refused("ceoverlap has not written it")
        origin = data.get("origin")
        if not isinstance(origin, dict):
            raise Refused("it does not say of which ranks it is: an older ceoverlap has written "
                          "it")
        if not self.take_origin(origin):
            raise Refused("what it says of its ranks and its node makes no sense")
        if not self.take_offsets(origin.get("offsets")) or \
                not self.take_clocks(origin.get("clocks", [])):
            raise Refused("what it says of its node's clock makes no sense")

    def take_origin(self, origin):
        self.n_group_ranks = whole_number(origin, "group_ranks", RANKS_MAX)
        self.n_nodes = whole_number(origin, "nodes", RANKS_MAX)
        self.node = whole_number(origin, "node", RANKS_MAX - 1)
        self.measurer = whole_number(origin, "measurer", RANKS_MAX - 1)
        self.node_name = plain_text(origin, "node_name", 63)
        self.group = plain_text(origin, "group", 19)
        self.group_name = plain_text(origin, "group_name", 63) or ""
        self.host = plain_text(origin, "host", 255)
        self.pid = whole_number(origin, "pid", INT64_MAX)       # None: an older file
        self.ranks = origin.get("ranks")
        if None in (self.n_group_ranks, self.n_nodes, self.node, self.measurer, self.node_name,
                    self.group, whole_number(origin, "process", RANKS_MAX - 1)):
            return False
        return isinstance(self.ranks, list) and 1 <= len(self.ranks) <= MEMBERS_MAX and \
            all(type(rank) is int and 0 <= rank < self.n_group_ranks for rank in self.ranks) and \
            self.node < self.n_nodes and self.measurer < self.n_group_ranks

    def take_offsets(self, found):
        if not isinstance(found, list) or len(found) > OFFSETS_MAX:
            return False
        for one in found:
            if not isinstance(one, dict):
                return False
            offset = types.SimpleNamespace(at_ns=whole_number(one, "at_ns", NS_MAX - 1),
                                           within_ns=whole_number(one, "within_ns", NS_MAX - 1),
                                           ahead_ns=one.get("ahead_ns"))
            if offset.at_ns is None or offset.within_ns is None or \
                    type(offset.ahead_ns) is not int or abs(offset.ahead_ns) >= NS_MAX:
                return False
            self.offsets.append(offset)
        return len(found) < 2 or self.offsets[0].at_ns <= self.offsets[1].at_ns

    def take_clocks(self, found):
        """Takes pairs of times; none are there in older files."""
        if not isinstance(found, list) or len(found) > OFFSETS_MAX:
            return False
        for one in found:
            if not isinstance(one, dict):
                return False
            pair = ClockPair(whole_number(one, "realtime_ns", NS_MAX - 1),
                             whole_number(one, "monotonic_ns", NS_MAX - 1))
            if None in pair:
                return False
            self.clocks.append(pair)
        return len(found) != 1 and \
            all(self.clocks[0].monotonic_ns <= pair.monotonic_ns for pair in self.clocks)
