# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What a rank's time went to. Of each rank: C, the times at which it computed, and M, those at which
it communicated. What of M is not in C is exposed; what of the time is in neither is idle.

C are kernels, and M copies between GPUs, NCCL's kernels and those of ours that move or sum, all by
the file of the profiler, and the copies in the trace of ours. A copy to memory of another process may
be told as one within the GPU, so such copies of our calls belong to M, too. Kernels of ours that multiply or look
up belong to C. A rank without kernels is on the host: PyTorch's operators on the processor are its C
then, and calls of ours that compute no product belong to M."""

import bisect
import collections
import os

from kineto import PROCESSOR
from reading import INT64_MAX, Refused, event_times, plain_text, scan, scan_kineto, whole_number
from spans import length, union, without
from timeline import group_of

ITEMS_MAX = 1 << 22             # events of all files that are kept
OURS, THEIRS = 0, 1             # priorities: a copy of ours is in the profiler's file, too
COMPUTES = ("cei_gemm", "cei_embedding_look_up")

Item = collections.namedtuple("Item", "begin end priority op group chunk awaited")
Chunk = collections.namedtuple("Chunk", "transfer chunk")
Wait = collections.namedtuple("Wait", "begin end awaited")


class Rank:
    def __init__(self, name, pid):
        self.name = name
        self.pid = pid                  # under which merged files show it
        self.computes = None            # intervals; None: no profiler's file tells
        self.compute_is = None          # "kernels" or "operators on the processor"
        self.windows = []               # in which a profiler ran
        self.items = []
        self.waits = []
        self.exposed = None             # intervals; None: not known
        self.last_from = collections.Counter()  # whose bytes came last, in how many launches

    def clip(self):
        """Leaves only what was while a profiler ran: at other times computation is not known."""
        if self.computes is None:
            return
        for kept in (self.items, self.waits):
            kept[:] = [one._replace(begin=max(one.begin, begin), end=min(one.end, end))
                       for begin, end in union(self.windows) for one in kept
                       if one.begin < end and one.end > begin]

    def finish(self):
        """From what was collected: sets of intervals."""
        self.clip()
        self.moves = union((item.begin, item.end) for item in self.items)
        if self.computes is not None:
            self.computes = union(self.computes)
            self.exposed = without(self.moves, self.computes)
        both = union(self.moves + (self.computes or []))
        self.span = (both[0][0], both[-1][1]) if both else (0, 0)
        self.busy_ns = length(both)


class Budget:
    """Bounds the memory that files can take."""

    def __init__(self):
        self.left = ITEMS_MAX

    def take(self):
        self.left -= 1
        if self.left < 0:
            raise Refused(f"the files have more than {ITEMS_MAX} events that count")


# --- traces of ours ----------------------------------------------------------------------------

class Arrivals:
    """In each launch of a group, whose bytes came last to each rank. Ranks make the same launches in
    the same order, so a launch has the same number at all of them."""

    def __init__(self):
        self.last = {}                  # (group, launch, rank): (time, sender)
        self.ranks = {}                 # (group, rank): its Rank

    def add(self, group, args, at):
        sender, taker = (whole_number(args, key, INT64_MAX) for key in ("from", "to"))
        if None in (sender, taker) or sender == taker:
            return
        key = group, whole_number(args, "launch", INT64_MAX), taker
        self.last[key] = max(self.last.get(key, (0, 0)), (at, sender))

    def end(self):
        for (group, _, taker), (_, sender) in self.last.items():
            if (group, taker) in self.ranks:
                self.ranks[group, taker].last_from[sender] += 1


class Collector:
    """Takes copies and waits from a trace of ours."""

    def __init__(self, timeline, part, ranks, arrivals, budget):
        self.timeline, self.part, self.ranks = timeline, part, ranks
        self.arrivals, self.budget = arrivals, budget
        self.waiting = {}               # doorbells that have begun, by id
        scan(part.path, self.take_event, lambda data: None)

    def take_event(self, event):
        times = event_times(event)
        if not times:
            return
        args = event.get("args") if isinstance(event.get("args"), dict) else {}
        times = [self.timeline.of_part(self.part, ns) for ns in times]
        rank = self.ranks.get(whole_number(event, "pid", INT64_MAX))
        if None in times or not rank:
            raise Refused("it has changed since it was checked")
        if event.get("cat") == "lane":
            self.budget.take()
            rank.items.append(self.item(times, args))
            self.arrivals.add(self.part.group_called, args, times[1])
        elif event.get("cat") == "stage" and event.get("name") == "doorbell":
            self.take_doorbell(rank, event, times[0], args)

    def item(self, times, args):
        chunk = Chunk(whole_number(args, "transfer", INT64_MAX),
                      whole_number(args, "chunk", INT64_MAX))
        return Item(*times, OURS, plain_text(args, "op", 40) or "plan",
                    self.part.group_called, chunk,
                    whole_number(args, "awaited", INT64_MAX))

    def take_doorbell(self, rank, event, at, args):
        number = plain_text(event, "id", 64)
        if event["ph"] == "b":
            self.budget.take()
            self.waiting[number] = at, whole_number(args, "awaited", INT64_MAX)
        elif number in self.waiting:
            begin, awaited = self.waiting.pop(number)
            if awaited is not None:
                rank.waits.append(Wait(begin, at, awaited))


# --- files of profilers ------------------------------------------------------------------------

class Annotations:
    """Which of ours a kernel or a copy is of: the profiler has given it the number of a "ceov::...",
    or its launch lies within one on the same thread. Launches by the driver's calls are not always
    in the file."""

    def __init__(self):
        self.numbered = {}              # its number: (thread, time)
        self.launches = {}              # correlation: (thread, time)
        self.threads = {}               # thread: [(begin, end, name, group)]

    def end(self):
        self.begins = {}
        for thread, found in self.threads.items():
            found.sort(key=lambda one: (one[0], -one[1]))
            outer = []                  # those that no other one contains
            for one in found:
                if not outer or one[0] >= outer[-1][1]:
                    outer.append(one)
            self.threads[thread] = outer
            self.begins[thread] = [one[0] for one in outer]

    def of(self, args):
        thread, at = self.numbered.get(whole_number(args, "External id", INT64_MAX)) or \
            self.launches.get(whole_number(args, "correlation", INT64_MAX), (None, 0))
        i = bisect.bisect_right(self.begins.get(thread, ()), at) - 1
        if i < 0 or self.threads[thread][i][1] < at:
            return None
        return self.threads[thread][i][2:]


class ProfileReader:
    """Takes kernels and copies from a profiler's file. The second reading of the file finds their
    operators."""

    def __init__(self, timeline, profile, budget):
        self.timeline, self.profile, self.budget = timeline, profile, budget
        self.notes = Annotations()
        self.kernels, self.operators, self.items = [], [], []
        self.calls = []                 # of ours, as the processor made them
        self.has_kernels = False
        for take in (self.take_note, self.take_work):
            scan_kineto(profile.path, lambda event, take=take: self.take_event(event, take),
                        lambda key, value: None)
            self.notes.end()

    def take_event(self, event, take):
        category, name = event.get("cat"), event.get("name")
        if event.get("ph") != "X" or not isinstance(category, str) or not isinstance(name, str):
            return
        args = event.get("args") if isinstance(event.get("args"), dict) else {}
        times = [self.timeline.of_profile(self.profile, ns) for ns in self.profile.times(event)]
        if None in times:
            raise Refused("it has changed since it was checked")
        take(category, name, times, (event, args))

    def take_note(self, category, name, times, more):
        event, args = more
        thread = str(event.get("tid"))[:64]
        if category in ("cuda_runtime", "cuda_driver"):
            number = whole_number(args, "correlation", INT64_MAX)
            if number is not None:
                self.budget.take()
                self.notes.launches[number] = thread, times[0]
        elif category in PROCESSOR and name.startswith("ceov::"):
            self.budget.take()
            self.notes.threads.setdefault(thread, []).append(
                (*times, plain_text(event, "name", 46)[6:], plain_text(args, "group", 40)))
            number = whole_number(args, "External id", INT64_MAX)
            if number:
                self.notes.numbered[number] = thread, times[0]

    def take_work(self, category, name, times, more):
        event, args = more
        if category == "kernel":
            self.has_kernels = True
            self.take_kernel(name, times, (event, args))
        elif category == "gpu_memcpy" and ("PtoP" in name or "Peer" in name or
                                           "DtoD" in name and self.notes.of(args)):
            self.add(times, "memcpy between GPUs", args)
        elif category == "cpu_op" and name.startswith("aten::"):
            self.budget.take()
            self.operators.append(tuple(times))
        elif category in PROCESSOR and name.startswith("ceov::") and "gemm" not in name:
            self.budget.take()
            self.calls.append(Item(*times, THEIRS, plain_text(event, "name", 46)[6:],
                                   plain_text(args, "group", 40) or "-", None, None))
        elif category == "user_annotation" and name.startswith("gloo:"):
            self.add(times, plain_text(event, "name", 40), args)

    def take_kernel(self, name, times, more):
        event, args = more
        if name.startswith("nccl"):
            kind = plain_text(args, "Collective name", 30)
            self.add(times, f"nccl:{kind}" if kind else plain_text(event, "name", 40), args)
        elif name.startswith("cei_") and not name.startswith(COMPUTES):
            self.add(times, plain_text(event, "name", 40), args)
        else:
            self.budget.take()
            self.kernels.append(tuple(times))

    def add(self, times, op, args):
        self.budget.take()
        group = plain_text(args, "Process Group Description", 40) or \
            plain_text(args, "Process Group Name", 40)
        found = self.notes.of(args)
        if found:
            op, group = found[0], found[1] or group
        self.items.append(Item(*times, THEIRS, op, group or "-", None, None))


# --- ranks -------------------------------------------------------------------------------------

def name_groups(parts):
    """Gives each part a short name of its group: how the path ends where its ranks met."""
    names = {}
    for part in parts:
        key = group_of(part)
        if key not in names:
            path = part.group_name.rsplit("/", 2)[-2:]
            name = path[0] if path[-1] == "group" else path[-1]
            name = name or f"{part.n_group_ranks} ranks"
            names[key] = name if name not in names.values() else f"{name} #{len(names) + 1}"
        part.group_called = names[key]


def name_ranks(timeline, profiles):
    """By which rank each profiler's file is called: that of torch.distributed, or of ours."""
    names = {}
    for profile in profiles:
        owner = timeline.owners[profile]
        rank = profile.rank
        if rank is None and owner and len(owner.ranks) == 1:
            rank = owner.ranks[0]
        names[profile] = os.path.basename(profile.path)[-16:] if rank is None else str(rank)
    return names


def analyse(timeline, parts, profiles):
    """Returns the ranks in their order. A process is one rank, whichever groups it is in, unless
    its files say that it has several."""
    ranks, budget, arrivals = {}, Budget(), Arrivals()
    names = name_ranks(timeline, profiles)
    called = {}                         # what a process is called, whose profiler tells
    for profile, owner in timeline.owners.items():
        if owner:
            called.setdefault((owner.host, owner.pid), names[profile])
    members = {}                        # of each process
    name_groups(parts)
    for part in parts:
        process = (part.host, part.pid) if part.pid is not None else part.path
        found = {}
        for number in part.ranks:
            is_alone = len(part.ranks) == 1
            name = called.get(process, str(number)) if is_alone else str(number)
            key = process, None if is_alone else number
            found[number] = ranks.setdefault(key, Rank(name, number))
            members.setdefault(process, {})[key] = found[number]
            arrivals.ranks[part.group_called, number] = found[number]
        Collector(timeline, part, found, arrivals, budget)
    arrivals.end()
    for profile in profiles:
        owner = timeline.owners[profile]
        if owner:
            mine = members[owner.host, owner.pid].values()
        else:
            mine = [ranks.setdefault(profile, Rank(names[profile], profile.pids.get(profile.pid)))]
        add_profile(timeline, profile, mine, budget)
    for rank in ranks.values():
        rank.finish()
    return sorted(ranks.values(), key=lambda rank: (not rank.name.isdigit(), len(rank.name),
                                                    rank.name))


def add_profile(timeline, profile, ranks, budget):
    """Of a process of several ranks the profiler does not tell which rank an event is of: all of them
    get its computation, and the first its communication."""
    found = ProfileReader(timeline, profile, budget)
    for number, rank in enumerate(ranks):
        rank.computes = (rank.computes or []) + (found.kernels if found.has_kernels
                                                 else found.operators)
        rank.compute_is = "kernels" if found.has_kernels else "operators on the processor"
        if not number:
            rank.items += found.items + ([] if found.has_kernels else found.calls)
        if profile.has_events():
            rank.windows.append(tuple(timeline.of_profile(profile, ns)
                                      for ns in (profile.first_ns, profile.last_ns)))
