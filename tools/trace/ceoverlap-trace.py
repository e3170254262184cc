#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap-trace: joins the trace files of a group's processes into one, in which all times are of
the clock of rank 0's node. Each node's clock is converted by the offsets in the file of the process
that measured them. The library describes these fields where it writes them
(src/ce_engine/engine/trace_origin.h).

All files are read and checked before the first byte is written; then they are read again, event by
event, so memory grows with the number of files only. Files are not trusted: what is no such file is
refused, whatever its bytes are."""

import argparse
import decimal
import json
import os
import re
import stat
import sys
import types

VERSION = "@VERSION@"

VALUE_MAX = 65536               # characters of an event, and of all that is not one
WINDOW = 4 * VALUE_MAX          # how much is read at once
RANKS_MAX = 65536               # of a group; as in src/base/site.h
MEMBERS_MAX = 16                # ranks of a process
OFFSETS_MAX = 2                 # of a clock: at the open and at the close
NS_MAX = 1 << 62                # of times and offsets; as in src/net/clock_offset.h
INT64_MAX = (1 << 63) - 1
DRIFT_PPM = 2000                # the rates of two clocks differ by at most this

CUT_SHORT = "the file ends too early"
TOO_LONG = "a value is longer than any that ceoverlap writes"
NO_VALUE = "a value is no JSON, or of another type than in a trace"
NO_TIME = "it has no phase, or no time that makes sense"


class Refused(Exception):
    """Why nothing is written, as a sentence for stderr."""


def say(text):
    print(f"{os.path.basename(sys.argv[0])}: {text}", file=sys.stderr)


# --- reading -----------------------------------------------------------------------------------

def read_real(text):
    """A number with decimals, without the loss of any; JSON has no larger ones than doubles."""
    number = decimal.Decimal(text)
    if abs(number) > 1e300:
        raise ValueError("too large")
    return number


def refuse_constant(text):
    raise ValueError(text)


DECODER = json.JSONDecoder(parse_float=read_real, parse_constant=refuse_constant)
SPACE = re.compile(r"[ \t\r\n]*")


class Reader:
    """Takes a file's values one by one."""

    def __init__(self, file):
        self.file = file
        self.text = ""
        self.at = 0
        self.has_ended = False

    def fill(self):
        """Makes sure that a whole value is there, if the file has one."""
        while len(self.text) - self.at <= VALUE_MAX and not self.has_ended:
            more = self.file.read(WINDOW)
            self.text = self.text[self.at:] + more
            self.at = 0
            self.has_ended = not more

    def peek(self):
        """The next character that is no space; "" at the end of the file."""
        while True:
            self.fill()
            self.at = SPACE.match(self.text, self.at).end()
            if self.at < len(self.text):
                return self.text[self.at]
            if self.has_ended:
                return ""

    def take(self):
        found = self.peek()
        self.at += len(found)
        return found

    def value(self, kind):
        """Reads a value of this type."""
        first = self.peek()
        if first and first in ",:]}":
            raise Refused("a value is missing")
        self.fill()
        try:
            found, end = DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            if error.msg.startswith("Unterminated") or error.pos >= len(self.text):
                raise Refused(CUT_SHORT if self.has_ended else TOO_LONG) from error
            raise Refused(NO_VALUE) from error
        except (ValueError, RecursionError, decimal.DecimalException) as error:
            raise Refused(NO_VALUE) from error
        if end - self.at > VALUE_MAX:
            raise Refused(TOO_LONG)
        if not isinstance(found, kind):
            raise Refused(NO_VALUE)
        self.at = end
        return found


def read_events(reader, take_event):
    number = 0
    if reader.take() != "[":
        raise Refused("its events are no list")
    try:
        after = "," if reader.peek() != "]" else reader.take()
        while after == ",":
            number += 1
            take_event(reader.value(dict))
            after = reader.take()
            if after == "," and reader.peek() == "]":
                raise Refused("a comma stands behind the last event")
        if after != "]":
            raise Refused("a comma is missing between events" if after else CUT_SHORT)
    except Refused as why:
        raise Refused(f"event {number}: {why}") from why


def read_all(reader, take_event, take_data):
    seen = set()
    first = reader.take()
    if first != "{":
        raise Refused("it is no trace" if first else "it is empty")
    while True:
        key = reader.value(str)
        if reader.take() != ":":
            raise Refused("a colon is missing")
        if key in seen:
            raise Refused("a part of it is there twice")
        if key in ("traceEvents", "otherData"):
            seen.add(key)
        if key == "traceEvents":
            read_events(reader, take_event)
        elif key == "otherData":
            take_data(reader.value(dict))
        else:
            reader.value(object)
        after = reader.take()
        if after != ",":
            break
    if after != "}":
        raise Refused("a comma is missing" if after else CUT_SHORT)
    if reader.take():
        raise Refused("something stands behind its end")
    if len(seen) < 2:
        raise Refused("it has no events, or does not say where it is from: ceoverlap has not "
                      "written it")


def open_regular(path):
    """Opens a file, and never waits for a pipe's writer."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(number).st_mode):
        return open(number, encoding="utf-8", newline="")
    os.close(number)
    raise Refused("it is no regular file")


def scan(path, take_event, take_data):
    """Calls take_event for each event, in their order, and take_data for otherData."""
    try:
        with open_regular(path) as file:
            read_all(Reader(file), take_event, take_data)
    except Refused as why:
        comma = "," if str(why).startswith("event ") else ":"
        raise Refused(f"{path}{comma} {why}") from why
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: it is no text in UTF-8") from error


def whole_number(found, key, most):
    value = found.get(key)
    return value if type(value) is int and 0 <= value <= most else None


def plain_text(found, key, n_most):
    """A text as printable ASCII, which may go to a terminal."""
    value = found.get(key)
    return re.sub(r"[^ -~]", "?", value)[:n_most] if isinstance(value, str) else None


def time_ns(event, key):
    """A time in microseconds, without a sign or an exponent, in nanoseconds."""
    value = event.get(key)
    if isinstance(value, decimal.Decimal):
        is_plain = not value.is_signed() and value.as_tuple().exponent <= 0
    else:
        is_plain = type(value) is int and value >= 0
    if not is_plain or value >= NS_MAX // 1000:
        raise Refused(NO_TIME)
    return int(value * 1000)


def event_times(event):
    """Begin and end of an event; None: it is metadata, which has no time."""
    phase = event.get("ph")
    if not isinstance(phase, str):
        raise Refused(NO_TIME)
    if phase == "M":
        return None
    begin = time_ns(event, "ts")
    return begin, begin + (time_ns(event, "dur") if event.get("dur") is not None else 0)


# --- files -------------------------------------------------------------------------------------

class Part:
    """A file of one process: whose events it has, and what it says of its node's clock."""

    def __init__(self, path):
        self.path = path
        self.first_ns, self.last_ns = NS_MAX, -1        # of its events, by the node's clock
        self.pids = set()
        self.offsets = []
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
        if not self.take_offsets(origin.get("offsets")):
            raise Refused("what it says of its node's clock makes no sense")

    def take_origin(self, origin):
        self.n_group_ranks = whole_number(origin, "group_ranks", RANKS_MAX)
        self.n_nodes = whole_number(origin, "nodes", RANKS_MAX)
        self.node = whole_number(origin, "node", RANKS_MAX - 1)
        self.measurer = whole_number(origin, "measurer", RANKS_MAX - 1)
        self.node_name = plain_text(origin, "node_name", 63)
        self.group = plain_text(origin, "group", 19)
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


# --- clocks ------------------------------------------------------------------------------------

def offsets_agree(one, other):
    """Whether both offsets, of the same two clocks, can be true."""
    elapsed_ns = abs(one.at_ns - other.at_ns)
    return abs(one.ahead_ns - other.ahead_ns) <= one.within_ns + other.within_ns + \
        elapsed_ns // (1000000 // DRIFT_PPM) + 1


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
        if own_ns >= last.at_ns:
            ahead_ns = last.ahead_ns
        elif own_ns <= first.at_ns:
            ahead_ns = first.ahead_ns
        else:
            share = float(own_ns - first.at_ns) / float(last.at_ns - first.at_ns)
            ahead_ns = first.ahead_ns + int(float(last.ahead_ns - first.ahead_ns) * share)
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


# --- joining -----------------------------------------------------------------------------------

def read_parts(paths):
    """Reads all files, and checks that they belong together. Returns them, and the nodes."""
    parts, owners, nodes = [], {}, {}
    for path in paths:
        part = Part(path)
        parts.append(part)
        first = parts[0]
        if (part.group, part.n_group_ranks, part.n_nodes) != \
                (first.group, first.n_group_ranks, first.n_nodes):
            raise Refused(f"{path}: it is of another group than {first.path}: "
                          f"{part.n_group_ranks} ranks on {part.n_nodes} nodes, group "
                          f"{part.group}, not {first.n_group_ranks} on {first.n_nodes}, group "
                          f"{first.group}")
    for part in parts:
        for rank in part.ranks:
            if rank in owners:
                raise Refused(f"{part.path}: rank {rank} is in {owners[rank].path}, too")
            owners[rank] = part
        nodes.setdefault(part.node, Node(part)).add(part)
    for number in sorted(nodes):
        nodes[number].choose_clock(len(nodes) == 1, owners)
    for part in parts:
        node = nodes[part.node]
        if part.last_ns >= 0 and None in (node.convert(part.first_ns),
                                          node.convert(part.last_ns)):
            raise Refused(f"{part.path}: by the offset of its node's clock, its events were "
                          "before the clock of rank 0's node began")
    return parts, nodes


def microseconds(ns):
    return f"{ns // 1000}.{ns % 1000:03d}"


def dump(value):
    return json.dumps(value, separators=(",", ":"), default=float)


class Writer:
    def __init__(self, out):
        self.out = out
        self.has_events = False

    def event(self, text):
        self.out.write((",\n" if self.has_events else "\n") + text)
        self.has_events = True

    def part(self, part, node):
        def take_event(event):
            times = event_times(event)
            if not times:
                self.event(dump(event))
                return
            times = [node.convert(ns) for ns in times]
            if None in times:
                raise Refused("it has changed since it was checked")
            del event["ts"]
            more = f',"ts":{microseconds(times[0])}'
            if event.pop("dur", None) is not None:
                more += f',"dur":{microseconds(times[1] - times[0])}'
            self.event(dump(event)[:-1] + more + "}")

        scan(part.path, take_event, lambda data: None)
        for rank in part.ranks:
            self.event(dump({"name": "process_labels", "ph": "M", "pid": rank,
                             "args": {"labels": node.label()}}))
            self.event(dump({"name": "process_sort_index", "ph": "M", "pid": rank,
                             "args": {"sort_index": rank}}))

    def all(self, parts, nodes):
        self.out.write('{"displayTimeUnit":"ns","traceEvents":[')
        for part in parts:
            self.part(part, nodes[part.node])
        self.out.write('\n],"otherData":' + dump({
            "ceoverlap": VERSION, "clock": "merged",
            "dropped_chunks": sum(part.n_dropped for part in parts),
            "unfinished_chunks": sum(part.n_unfinished for part in parts), "files": len(parts),
            "nodes": [{"node": number, "node_name": node.any.node_name, "clock": node.clock,
                       "offsets": [vars(offset) for offset in node.measured.offsets]
                       if node.measured else []}
                      for number, node in sorted(nodes.items())]}) + "}\n")


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


def write(path, parts, nodes):
    """Leaves an older file as it is if anything fails."""
    real = os.path.realpath(path) if not path.startswith(("/dev/", "/proc/")) else path
    beside = None
    try:
        file, beside = open_beside(real)
        with file:
            Writer(file).all(parts, nodes)
        if beside:
            os.rename(beside, real)
            beside = None
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from error
    finally:
        if beside:
            os.unlink(beside)


def join(paths, path):
    """Returns the exit status, after it has said what is wrong."""
    try:
        parts, nodes = read_parts(paths)
        for part in parts:
            if os.path.exists(path) and os.path.samefile(part.path, path):
                raise Refused(f"{path}: it is one of the files to join")
        write(path, parts, nodes)
    except (Refused, OSError, MemoryError) as why:
        say(why)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(
        add_help=False, usage="%(prog)s [OPTION...] -o FILE TRACE...",
        description="Joins the trace files that the processes of a group have written "
        "(CEOVERLAP_TRACE) into one for ui.perfetto.dev or chrome://tracing, with all times on "
        "the clock of rank 0's node. Of a node whose clock's offset is not known, times stay "
        "those of its own clock, and a warning says so.",
        epilog="Exit status: 0 when the file was written, also with warnings; 1 when a file "
        "cannot be read, is no trace, or is of another group, or the result cannot be written; "
        "2 on unusable arguments.")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="The file to write, which replaces an older one")
    parser.add_argument("-?", "--help", action="help", help="Give this help list")
    parser.add_argument("-V", "--version", action="version", version=f"ceoverlap {VERSION}",
                        help="Print program version")
    parser.add_argument("traces", metavar="TRACE", nargs="*", help="A file of one process")
    asked = parser.parse_args()
    if not asked.output:
        parser.error("say with -o which file to write")
    if not asked.traces:
        parser.error("no file was named")
    return join(asked.traces, asked.output)


if __name__ == "__main__":
    sys.exit(main())
