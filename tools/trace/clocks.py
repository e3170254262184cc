# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""How times of a node's clock become times of another one."""

from reading import DRIFT_PPM, NS_MAX, Refused, say


def offsets_agree(one, other):
    """Whether both offsets, of the same two clocks, can be true."""
    elapsed_ns = abs(one.at_ns - other.at_ns)
    return abs(one.ahead_ns - other.ahead_ns) <= one.within_ns + other.within_ns + \
        elapsed_ns // (1000000 // DRIFT_PPM) + 1


def between(at, first, last, values):
    """The value at a time, where two are known at two times, and it changes evenly between these
    and not before or after them."""
    if at >= last:
        return values[1]
    if at <= first:
        return values[0]
    share = float(at - first) / float(last - first)
    return values[0] + int(float(values[1] - values[0]) * share)


def day_ahead(pairs, at_ns, by_day=False):
    """How far the clock of the day is ahead of the monotonic one of the same node, at a time of the
    latter, or of the former if by_day."""
    first, last = pairs[0], pairs[-1]
    ahead = [pair.realtime_ns - pair.monotonic_ns for pair in (first, last)]
    if by_day:
        return between(at_ns, first.realtime_ns, last.realtime_ns, ahead)
    return between(at_ns, first.monotonic_ns, last.monotonic_ns, ahead)


class Node:
    def __init__(self, part):
        self.any = part
        self.measured = None            # the part that has the offsets
        self.clock = "reference"        # times stay: of rank 0's node, or of the only node

    def add(self, part):
        if not part.offsets:
            return
        if self.measured:
            raise Refused(f"{part.path}: it has offsets of the clock of node {part.node}, and so "
                          f"has {self.measured.path}")
        self.measured = part

    def choose_clock(self, is_alone, ranks):
        """Times of a clock that is not known stay, and mean something else than others."""
        part = self.any
        name = f"warning: node {part.node} ({part.node_name}): how "
        why = None
        if part.node == 0 or (is_alone and not self.measured):
            return
        if not self.measured:
            why = f"the file of rank {part.measurer} has to tell, and does not"
        elif not offsets_agree(self.measured.offsets[0], self.measured.offsets[-1]):
            why = "what was measured at the open and at the close contradict each other"
        elif len(self.measured.offsets) == 1:
            say(name + "its clock drifts is not known, since it was measured only once; times "
                "that are far from then are inexact")
        self.clock = "unknown" if why else "measured"
        if why:
            missing = "" if part.measurer in ranks else " (it is not among the files)"
            say(f"{name}far its clock is from that of rank 0's node is not known: {why}{missing}; "
                "its times are of its own clock and cannot be compared with those of other nodes")

    def convert(self, own_ns):
        """A time on the clock of rank 0's node; None: that clock did not run yet."""
        if self.clock != "measured":
            return own_ns
        first, last = self.measured.offsets[0], self.measured.offsets[-1]
        ahead_ns = between(own_ns, first.at_ns, last.at_ns, (first.ahead_ns, last.ahead_ns))
        ns = own_ns + ahead_ns
        return ns if own_ns < NS_MAX and ns >= 0 else None

    def label(self):
        text = f"node {self.any.node}, {self.any.node_name}"
        if self.clock == "unknown":
            return text + ", clock unknown"
        if self.clock == "reference":
            return text
        bound = max(offset.within_ns for offset in self.measured.offsets)
        once = " when it was measured" if len(self.measured.offsets) == 1 else ""
        return f"{text}, clock within {bound} ns{once}"
