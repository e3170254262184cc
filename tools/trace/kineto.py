# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A file of PyTorch's profiler (Kineto): whose it is, and by which clock.

An event's time is in microseconds since baseTimeNanoseconds, a time of CLOCK_REALTIME; files that
lack that number count from 1970. Processors' events have the process's number as pid, and those of
a GPU the GPU's. The profiler's own work beside its process has the pid -1."""

from reading import INT64_MAX, NS_MAX, RANKS_MAX
from reading import Refused, event_times, plain_text, scan_kineto, whole_number

PIDS_MAX = 4096                 # of a file
TEXT_MAX = 255                  # characters of a pid that is a text, and of a host's name
PROCESSOR = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "python_function")


def pid_of(event):
    """A number, or a text: "Spans"."""
    pid = event.get("pid")
    if type(pid) is int and -1 <= pid <= INT64_MAX or \
            isinstance(pid, str) and len(pid) <= TEXT_MAX:
        return pid
    raise Refused("its pid is neither a number nor a short text")


class Profile:
    def __init__(self, path):
        self.path = path
        self.base_ns = 0
        self.host, self.rank, self.pid = None, None, None       # None: it does not say
        self.pids = {}                  # in their order
        self.first_ns, self.last_ns = NS_MAX, -1
        scan_kineto(path, self.take_event, self.take_part)
        self.first_ns += self.base_ns
        self.last_ns += self.base_ns
        if self.base_ns + max(self.last_ns, 0) >= NS_MAX:
            raise Refused(f"{path}: its times are too late to be true")

    def has_events(self):
        return self.last_ns >= self.first_ns

    def take_event(self, event):
        pid = pid_of(event)
        self.pids[pid] = None
        if len(self.pids) > PIDS_MAX:
            raise Refused(f"it is of more than {PIDS_MAX} processes and GPUs")
        if self.pid is None and type(pid) is int and event.get("cat") in PROCESSOR:
            self.pid = pid
        times = event_times(event)
        if times:
            self.first_ns = min(self.first_ns, times[0])
            self.last_ns = max(self.last_ns, times[1])

    def take_part(self, key, value):
        if key == "baseTimeNanoseconds":
            self.base_ns = value
            if type(value) is not int or not 0 <= value < NS_MAX // 2:
                raise Refused("its baseTimeNanoseconds is no time")
        elif key == "host_name":
            self.host = plain_text({key: value}, key, TEXT_MAX)
        elif key == "distributedInfo" and isinstance(value, dict):
            self.rank = whole_number(value, "rank", RANKS_MAX - 1)

    def times(self, event):
        """Begin and end by the clock of the day; None: it is metadata."""
        times = event_times(event)
        return times and tuple(self.base_ns + ns for ns in times)

    def is_of(self, part):
        """Whether it and the trace of ours are of one process."""
        return self.pid is not None and self.pid == part.pid and \
            (self.host is None or part.host in (None, self.host)) and \
            (self.host is not None or self.rank is None or part.n_nodes == 1 or
             self.rank in part.ranks)
