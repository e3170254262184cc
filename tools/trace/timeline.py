# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The files of a command, and one clock for the times of all of them."""

from clocks import Node, day_ahead
from kineto import Profile
from parts import Part
from reading import Refused, is_kineto, say


def read_files(paths):
    """Returns the traces of ours, and those of profilers."""
    parts, profiles = [], []
    for path in paths:
        if is_kineto(path):
            profiles.append(Profile(path))
        else:
            parts.append(Part(path))
    return parts, profiles


def group_of(part):
    return part.group, part.n_group_ranks, part.n_nodes, part.group_name


def choose_clocks(parts):
    """For parts of one group: gives each part the clock of its node. Returns the nodes."""
    nodes = {}
    for part in parts:
        nodes.setdefault(part.node, Node(part)).add(part)
        part.clock = nodes[part.node]
    ranks = {rank for part in parts for rank in part.ranks}
    for number in sorted(nodes):
        nodes[number].choose_clock(len(nodes) == 1, ranks)
    for part in parts:
        if part.last_ns >= 0 and None in (part.clock.convert(part.first_ns),
                                          part.clock.convert(part.last_ns)):
            raise Refused(f"{part.path}: by the offset of its node's clock, its events were "
                          "before the clock of rank 0's node began")
    return nodes


class Timeline:
    """Converts times to one clock: the monotonic one of rank 0's node or, where a profiler's file is
    there, too, the clock of the day at that node."""

    def __init__(self, parts, profiles):
        self.by_day = bool(profiles)
        self.owners = {}                # of each profile: the first part of its process
        self.reference = None           # the part by which monotonic times become times of day
        if not self.by_day:
            return
        for part in parts:
            if not part.clocks:
                raise Refused(f"{part.path}: it does not say what time of day its clock meant: an "
                              "older ceoverlap has written it, so no profiler's file can stand "
                              "beside it")
            if not self.reference and part.clock.clock == "reference":
                self.reference = part
        for part in parts:
            if part.clock.clock == "measured" and not self.reference:
                raise Refused(f"{part.path}: no file is of rank 0's node, which knows the time of "
                              "day that the clock of all of them meant")
        self.find_owners(parts, profiles)

    def find_owners(self, parts, profiles):
        for profile in profiles:
            owner = next((part for part in parts if profile.is_of(part)), None)
            self.owners[profile] = owner
            if not owner and any(part.clock.clock != "reference" for part in parts):
                say(f"warning: {profile.path}: no trace is of its process; its times are by the "
                    "clock of the day at its node, whose distance is not known")

    def day(self, part, own_ns):
        """The time of day of a monotonic time of the part's node."""
        if part.clock.clock == "unknown":
            return own_ns + day_ahead(part.clocks, own_ns)
        ns = part.clock.convert(own_ns)
        return None if ns is None else ns + day_ahead(self.reference.clocks, ns)

    def of_part(self, part, own_ns):
        """None: the time cannot be."""
        return self.day(part, own_ns) if self.by_day else part.clock.convert(own_ns)

    def of_profile(self, profile, day_ns):
        owner = self.owners[profile]
        if not owner or owner.clock.clock != "measured":
            return day_ns
        return self.day(owner, day_ns - day_ahead(owner.clocks, day_ns, by_day=True))
