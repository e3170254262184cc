# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Joins trace files into one."""

import json
import os
import stat

from exposure import analyse, name_ranks
from reading import RANKS_MAX, VERSION, Refused, event_times, say, scan, scan_kineto
from timeline import Timeline, choose_clocks, read_files


def check_group(parts):
    """Checks that the files belong together, each of other ranks."""
    owners = {}
    for part in parts:
        first = parts[0]
        if (part.group, part.n_group_ranks, part.n_nodes) != \
                (first.group, first.n_group_ranks, first.n_nodes):
            raise Refused(f"{part.path}: it is of another group than {first.path}: "
                          f"{part.n_group_ranks} ranks on {part.n_nodes} nodes, group "
                          f"{part.group}, not {first.n_group_ranks} on {first.n_nodes}, group "
                          f"{first.group}")
    for part in parts:
        for rank in part.ranks:
            if rank in owners:
                raise Refused(f"{part.path}: rank {rank} is in {owners[rank].path}, too")
            owners[rank] = part


SORT_STEP = 1000                # a rank's own lines, and behind them those of its profiler


def microseconds(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def dump(value):
    return json.dumps(value, separators=(",", ":"), default=float)


class Writer:
    def __init__(self, out, timeline):
        self.out = out
        self.timeline = timeline
        self.base_ns = 0                # that all times are counted from
        self.has_events = False

    def event(self, text):
        self.out.write((",\n" if self.has_events else "\n") + text)
        self.has_events = True

    def metadata(self, name, pid, **args):
        self.event(dump({"name": name, "ph": "M", "pid": pid, "args": args}))

    def timed(self, event, times):
        """An event with other times than it says."""
        if None in times or times[0] < self.base_ns:
            raise Refused("it has changed since it was checked")
        del event["ts"]
        more = f',"ts":{microseconds(times[0] - self.base_ns)}'
        if event.pop("dur", None) is not None:
            more += f',"dur":{microseconds(times[1] - times[0])}'
        self.event(dump(event)[:-1] + more + "}")

    def part(self, part):
        def take_event(event):
            times = event_times(event)
            if times:
                self.timed(event, [self.timeline.of_part(part, ns) for ns in times])
            else:
                self.event(dump(event))

        scan(part.path, take_event, lambda data: None)
        for rank in part.ranks:
            self.metadata("process_labels", rank, labels=part.clock.label())
            self.metadata("process_sort_index", rank,
                          sort_index=rank * SORT_STEP if self.timeline.by_day else rank)

    def profile(self, profile, number, rank):
        """Numbers that other files have, too, are replaced: pids, and ids by which events belong
        together."""
        def take_event(event):
            times = profile.times(event)
            pid = event["pid"] = profile.pids[event["pid"]]
            if "id" in event:
                event["id"] = f"{number}.{event['id']}"
            if times:
                self.timed(event, [self.timeline.of_profile(profile, ns) for ns in times])
                return
            args = event.get("args")
            event.pop("ts", None)
            if event.get("name") == "process_name" and isinstance(args, dict):
                args["name"] = f"rank {rank}: {args.get('name')}"
            if event.get("name") != "process_sort_index":
                self.event(dump(event))
            elif rank.isdigit():
                self.metadata("process_sort_index", pid,
                              sort_index=int(rank) * SORT_STEP + pid % SORT_STEP)

        scan_kineto(profile.path, take_event, lambda key, value: None)

    def exposed(self, ranks):
        """How much communication was exposed so far, as a counter of each rank."""
        for rank in ranks:
            ns = 0
            if rank.pid is None or rank.exposed is None:
                continue
            for begin, end in rank.exposed:
                for at, more in ((begin, 0), (end, end - begin)):
                    ns += more
                    self.event(f'{{"name":"exposed us","ph":"C","pid":{rank.pid},"tid":0,"ts":'
                               f'{microseconds(at - self.base_ns)},"args":{{"us":'
                               f'{microseconds(ns)}}}}}')

    def end(self, parts, nodes, profiles):
        day = f'"baseTimeNanoseconds":{self.base_ns},' if self.timeline.by_day else ""
        self.out.write(f'\n],{day}"otherData":' + dump({
            "ceoverlap": VERSION, "clock": "merged",
            "dropped_chunks": sum(part.n_dropped for part in parts),
            "unfinished_chunks": sum(part.n_unfinished for part in parts),
            "files": len(parts) + len(profiles),
            "nodes": [{"node": number, "node_name": node.any.node_name, "clock": node.clock,
                       "offsets": [vars(offset) for offset in node.measured.offsets]
                       if node.measured else []}
                      for number, node in sorted(nodes.items())]}) + "}\n")


def first_time(timeline, parts, profiles):
    """Where the numbers of the result begin: where a profiler's do, unless something was before."""
    times = [profile.base_ns for profile in profiles]
    times += [timeline.of_part(part, part.first_ns) for part in parts if part.last_ns >= 0]
    times += [timeline.of_profile(profile, profile.first_ns) for profile in profiles
              if profile.has_events()]
    if None in times:
        raise Refused("the files' clocks contradict each other")
    return min(times)


def write_all(writer, parts, nodes, profiles):
    ranks = []
    if profiles:
        writer.base_ns = first_time(writer.timeline, parts, profiles)
        number = RANKS_MAX              # no rank has it
        for profile in profiles:
            for pid in profile.pids:
                profile.pids[pid] = number
                number += 1
        ranks = analyse(writer.timeline, parts, profiles)
    writer.out.write('{"displayTimeUnit":"ns","traceEvents":[')
    for part in parts:
        writer.part(part)
    names = name_ranks(writer.timeline, profiles)
    for number, profile in enumerate(profiles):
        writer.profile(profile, number, names[profile])
    writer.exposed(ranks)
    writer.end(parts, nodes, profiles)


def open_beside(path):
    """Opens a new file in the same folder, which replaces the old one when it is complete. Returns
    it and its path. None as path: there can be none, and the file is written directly."""
    beside = f"{path}.{os.getpid()}.new"
    try:
        old = os.stat(path)
    except FileNotFoundError:
        old = None
    if old and not stat.S_ISDIR(old.st_mode) and not os.access(path, os.W_OK):
        raise PermissionError(13, os.strerror(13))
    if old and not stat.S_ISREG(old.st_mode):
        return open(path, "w", encoding="utf-8"), None
    try:
        file = open(beside, "x", encoding="utf-8")
    except OSError:
        if not old:
            raise
        return open(path, "w", encoding="utf-8"), None
    if old:
        os.chmod(beside, old.st_mode & 0o777)
    return file, beside


def write(path, write_to):
    """Calls write_to(file), and leaves an older file as it is if anything fails."""
    real = os.path.realpath(path) if not path.startswith(("/dev/", "/proc/")) else path
    beside = None
    try:
        file, beside = open_beside(real)
        with file:
            write_to(file)
        if beside:
            os.rename(beside, real)
            beside = None
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    finally:
        if beside:
            os.unlink(beside)


def check_target(path, sources):
    for source in sources:
        if os.path.exists(path) and os.path.samefile(source, path):
            raise Refused(f"{path}: it is one of the files to join")


def join(paths, path):
    """Returns the exit status, after it has said what is wrong."""
    try:
        parts, profiles = read_files(paths)
        check_group(parts)
        nodes = choose_clocks(parts)
        timeline = Timeline(parts, profiles)
        check_target(path, paths)
        write(path, lambda file: write_all(Writer(file, timeline), parts, nodes, profiles))
    except (Refused, OSError, MemoryError) as why:
        say(why)
        return 1
    return 0
