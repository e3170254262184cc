# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Reads the values of a trace file one by one."""

import decimal
import gzip
import json
import os
import re
import stat
import sys
import zlib

VERSION = "@VERSION@"

VALUE_MAX = 65536               # characters of an event, and of all that is not one
KINETO_VALUE_MAX = 1 << 20      # likewise in a profiler's file, whose events may have call stacks
PARTS_MAX = 1024                # of a file, its events being one
EVENTS_MAX = 1 << 24            # of a file
RANKS_MAX = 65536               # of a group; as in src/base/site.h
MEMBERS_MAX = 16                # ranks of a process
OFFSETS_MAX = 2                 # of a clock, and pairs of clocks: at the open and at the close
NS_MAX = 1 << 62                # of times and offsets; as in src/net/clock_offset.h
INT64_MAX = (1 << 63) - 1
DRIFT_PPM = 2000                # the rates of two clocks differ by at most this

CUT_SHORT = "the file ends too early"
TOO_LONG = "a value is longer than any that {} writes"
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

    def __init__(self, file, value_max=VALUE_MAX):
        self.file = file
        self.value_max = value_max
        self.too_long = TOO_LONG.format("ceoverlap" if value_max == VALUE_MAX else "a profiler")
        self.text = ""
        self.at = 0
        self.has_ended = False

    def fill(self):
        """Makes sure that a whole value is there, if the file has one."""
        while len(self.text) - self.at <= self.value_max and not self.has_ended:
            more = self.file.read(4 * self.value_max)
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
                raise Refused(CUT_SHORT if self.has_ended else self.too_long) from error
            raise Refused(NO_VALUE) from error
        except (ValueError, RecursionError, decimal.DecimalException) as error:
            raise Refused(NO_VALUE) from error
        if end - self.at > self.value_max:
            raise Refused(self.too_long)
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
            if number > EVENTS_MAX:
                raise Refused(f"there are more than {EVENTS_MAX}")
            take_event(reader.value(dict))
            after = reader.take()
            if after == "," and reader.peek() == "]":
                raise Refused("a comma stands behind the last event")
        if after != "]":
            raise Refused("a comma is missing between events" if after else CUT_SHORT)
    except Refused as why:
        raise Refused(f"event {number}: {why}") from why


def read_all(reader, take_event, take_part):
    """Calls take_part with the name and the value of each part of the file but the events."""
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
        if len(seen) >= PARTS_MAX:
            raise Refused("it has too many parts")
        seen.add(key)
        if key == "traceEvents":
            read_events(reader, take_event)
        else:
            take_part(key, reader.value(object))
        after = reader.take()
        if after != ",":
            break
    if after != "}":
        raise Refused("a comma is missing" if after else CUT_SHORT)
    if reader.take():
        raise Refused("something stands behind its end")
    return seen


def open_regular(path):
    """Opens a file, packed by gzip or not, and never waits for a pipe's writer."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise Refused("it is no regular file")
    if os.pread(number, 2, 0) != b"\x1f\x8b":
        return open(number, encoding="utf-8", newline="")
    return gzip.open(open(number, "rb"), "rt", encoding="utf-8", newline="")


def attempt(path, look):
    """Returns look(file) of the file; what is wrong with it is said with its path."""
    try:
        with open_regular(path) as file:
            return look(file)
    except Refused as why:
        comma = "," if str(why).startswith("event ") else ":"
        raise Refused(f"{path}{comma} {why}") from why
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Refused(f"{path}: what gzip has packed is damaged") from error
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise Refused(f"{path}: it is no text in UTF-8") from error


def is_kineto(path):
    """Whether PyTorch's profiler has written the file; these begin with the version of their form.
    """
    return attempt(path, lambda file: bool(re.match(r'\s*{\s*"schemaVersion"\s*:',
                                                    file.read(VALUE_MAX))))


def scan(path, take_event, take_data):
    """Of a file of ours: calls take_event for each event, in their order, and take_data for
    otherData."""
    def take_part(key, value):
        if key != "otherData":
            return
        if not isinstance(value, dict):
            raise Refused(NO_VALUE)
        take_data(value)

    def look(file):
        if not {"traceEvents", "otherData"} <= read_all(Reader(file), take_event, take_part):
            raise Refused("it has no events, or does not say where it is from: ceoverlap has not "
                          "written it")

    attempt(path, look)


def scan_kineto(path, take_event, take_part):
    """Of a profiler's file: the same, and take_part for each part."""
    def look(file):
        if "traceEvents" not in read_all(Reader(file, KINETO_VALUE_MAX), take_event, take_part):
            raise Refused("it has no events")

    attempt(path, look)


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
