# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Causes of hanging are injected at one of three host ranks, and what the others are told has to
name the rank, the operation and the reason, within 2 s of the deadline. Some that the seed draws;
with CEOVERLAP_TEST_HANGS_ALL=1 all of them."""

import ctypes
import datetime
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import rig
import torch
import torch.distributed as dist
from backend_rig import IS_BY_DEVICE, by_device, run_here, world

import ceoverlap.torch as ct
from ceoverlap import _flight, errors, hang

IS_LONG = os.environ.get("CEOVERLAP_TEST_HANGS_ALL") == "1"
SHORT = 14                              # causes, where not all are played
LIMIT_S = 1.0                           # the groups' timeout
LATE_S = 2.0                            # how long after it a rank may know why
SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX
# PyTorch 2.15 renames these.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def x(n=12, dtype=torch.float32):
    return torch.ones(n, dtype=dtype)


def yes(n=3):
    return torch.ones(n, dtype=torch.bool)


def calls_sum(group):
    dist.all_reduce(x(), group=group)


def stays():
    """Makes no call until the others have met their deadline."""
    time.sleep(LIMIT_S + 1.0)


def stops():
    """Stops this process until the others have met their deadline."""
    subprocess.Popen(["sh", "-c", f"sleep {LIMIT_S + 2.0}; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)


def at_last(last, others=calls_sum):
    """A case in which rank 2 does something else than the others."""
    def play(group, rank):
        (last if rank == 2 else others)(group)
    return play


def swapped(group):
    dist.broadcast(x(), 0, group)
    calls_sum(group)


def in_order(group):
    calls_sum(group)
    dist.broadcast(x(), 0, group)


def in_other_group(group, rank):
    calls_sum(group if rank < 2 else _second[0])


def stops_in_the_call(group, rank):
    if rank == 0:
        stays()
    elif rank == 1:
        calls_sum(group)
    else:
        work = dist.all_reduce(x(), group=group, async_op=True)
        stops()
        work.wait()


def fills_the_queue(group, rank):
    if rank == 0:
        for work in [dist.isend(x(1 << 19), 1, group) for _ in range(16)]:
            work.wait()
    else:
        stays()


def raises_in_the_middle(group, rank):
    for i in range(3):
        calls_sum(group)
        if i == 1 and rank == 2:
            try:
                raise ValueError("a program's own mistake")
            except ValueError:
                stays()
                return


def receives_nothing(group, rank):
    dist.recv(x(), 1, group) if rank == 0 else stays()


def sends_to_another(group, rank):
    if rank == 0:
        dist.recv(x(), 1, group)
    elif rank == 1:
        dist.send(x(), 2, group)
    stays()


def one_more(group, rank):
    for _ in range(3 if rank == 2 else 2):
        calls_sum(group)


def uneven(group, rank):
    sent = [4, 4, 4]
    received = [5, 4, 3] if rank == 2 else sent
    dist.all_to_all_single(x(), x(), received, sent, group=group)


def from_threads(group):
    """Two threads, of which the second one comes first."""
    first = threading.Thread(target=lambda: (time.sleep(0.2), dist.all_reduce(x(), group=group)))
    first.start()
    try:
        dist.broadcast(x(), 0, group)
    finally:
        first.join()


def leaves_the_loop(group, rank):
    for _ in range(1 if rank == 2 else 2):
        calls_sum(group)
    dist.barrier(group)


def gathers_beside(group):
    dist.all_gather([x() for _ in range(3)], x(), group, async_op=True).wait()


def receive_from_each_other(group, rank):
    dist.recv(x(), 1 - rank, group) if rank < 2 else stays()


def message(sent, received):
    def play(group, rank):
        if rank == 0:
            dist.recv(received(), 1, group)
        elif rank == 1:
            dist.send(sent(), 0, group)
            stays()
    return play


def with_another_tag(group, rank):
    if rank == 0:
        dist.recv(x(), 1, group, 5)
    elif rank == 1:
        work = dist.isend(x(), 0, group, 6)
        stays()
        del work


def destroys(group):
    dist.destroy_process_group(group)
    stays()


def refused(group):
    try:
        all_gather(x(7), x(4), group)
    except errors.InvalidError:
        stays()


def any_of(group):
    dist.all_reduce(yes(), dist.ReduceOp.BOR, group)


def holds_the_interpreter(_group):
    ctypes.PyDLL(None).usleep(int((LIMIT_S + 1.0) * 1e6))


def monitored(group):
    time_of = datetime.timedelta(seconds=LIMIT_S)
    if IS_BY_DEVICE:
        dist.monitored_barrier(group, time_of)
    else:                               # where dist's takes no group of ours
        group.monitored_barrier(time_of)


def two_together(group, rank):
    for _ in range(2 if rank == 2 else 3):
        dist.all_reduce(x(), group=group, async_op=rank == 0)
    dist.broadcast(x(), 0, group)


# What each does, and the words that all who find out are told: first whose call it is.
CASES = {
    "absent": (at_last(lambda _: stays()), "rank 2 has not made call 1, all_reduce of 12 float32 "
               "(sum), for which rank", "runs"),
    "order swapped": (at_last(swapped, in_order), "call 1 differs (rank 2 differs)",
                      "all_reduce of 12", "broadcast of 12 float32 with root 0"),
    "size": (at_last(lambda g: dist.all_reduce(x(13), group=g)),
             "call 1 differs (rank 2 differs)", "rank 2: all_reduce of 13 float32"),
    "dtype": (at_last(lambda g: dist.all_reduce(x(12, torch.float16), group=g)),
              "call 1 differs (rank 2 differs)", "rank 2: all_reduce of 12 float16"),
    "reduction": (at_last(lambda g: dist.all_reduce(x(), MAX, g)),
                  "call 1 differs (rank 2 differs)", "rank 2: all_reduce of 12 float32 (max)"),
    "root": (at_last(lambda g: dist.broadcast(x(), 2, g), lambda g: dist.broadcast(x(), 0, g)),
             "call 1 differs (rank 2 differs)", "rank 2: broadcast of 12 float32 with root 2"),
    "wrong group": (in_other_group, "rank 2 has not made call 1, all_reduce",
                    "it is in call 1 of group"),
    "stopped": (at_last(lambda _: stops()), "rank 2 has not made call 1, all_reduce",
                "is stopped; it has called nothing"),
    "stopped in the call": (stops_in_the_call, "rank 0 has not made call 1", "rank 2 (process",
                            "is stopped in call 1, all_reduce"),
    "full queue": (fills_the_queue, "send of 524288 float32 to rank 1; rank 1 has received 0",
                   "runs; it has called nothing"),
    "exception": (raises_in_the_middle, "rank 2 has not made call 3, all_reduce",
                  "its last was call 2, all_reduce of 12 float32 (sum), ended"),
    "recv without send": (receives_nothing, "rank 0 waits in message 1, recv of 12 float32 from "
                          "rank 1; rank 1 has sent 0", "runs"),
    "wrong peer": (sends_to_another, "rank 1 has sent 0: it has called send of 12 float32 to rank "
                   "2 instead, for which rank 2 has no recv"),
    "plain": (at_last(any_of), "call 1 differs (rank 2 differs)",
              "rank 2: all_reduce of 3 bool (bor), by gloo"),
    "barrier": (at_last(dist.barrier), "call 1 differs (rank 2 differs)", "rank 2: barrier"),
    "one more": (one_more, "rank 0 has not made call 3, all_reduce", "rank 1 has not made call 3",
                 "for which rank 2 waits"),
    "uneven splits": (uneven, "rank 2", "all_to_all", "gives", "expects"),
    "thread": (at_last(from_threads, in_order), "call 1 differs (rank 2 differs)",
               "rank 2: broadcast"),
    "leaves the loop": (leaves_the_loop, "call 2 differs (rank 2 differs)", "rank 2: barrier"),
    "another kind": (at_last(gathers_beside), "call 1 differs (rank 2 differs)",
                     "rank 2: all_gather of 12 float32"),
    "two receives": (receive_from_each_other, "rank 1 has sent 0: it waits in message 1, recv",
                     "rank 0 has sent 0: it waits in message 1, recv"),
    "size of a message": (message(lambda: x(4), lambda: x(5)), "message 1 of ranks", "differs",
                          "recv of 5 float32 from rank 1", "send of 4 float32 to rank 0"),
    "dtype of a message": (message(lambda: x(4), lambda: x(4, torch.int32)), "message 1 of ranks",
                           "recv of 4 int32 from rank 1", "send of 4 float32 to rank 0"),
    "tag": (with_another_tag, "recv of 12 float32 with tag 5 from rank 1, by gloo; rank 1 has "
            "sent 0"),
    "destroyed": (at_last(destroys), "rank 2 has not made call 1, all_reduce",
                  "it has destroyed the group"),
    "refused": (at_last(refused, lambda g: all_gather(x(12), x(4), g)),
                "rank 2 has not made call 1, all_gather of 4 float32",
                "its all_gather of 4 float32 was refused: all_gather: a whole of 7 elements"),
    "plain alone": (at_last(lambda _: stays(), any_of),
                    "rank 2 has not made call 1, all_reduce of 3 bool (bor), by gloo", "runs"),
    "gather and scatter": (at_last(lambda g: reduce_scatter(x(4), x(12), group=g),
                                   lambda g: all_gather(x(12), x(4), g)),
                           "call 1 differs (rank 2 differs)", "rank 2: reduce_scatter of 4"),
    "receive in a collective": (at_last(lambda g: dist.recv(x(), 0, g)),
                                "rank 2 has not made call 1, all_reduce",
                                "it waits in message 1, recv of 12 float32 from rank 0"),
    "monitored barrier": (at_last(lambda _: stays(), monitored),
                          "rank 2 has not made call 1, monitored_barrier, by gloo", "runs"),
    "interpreter": (at_last(holds_the_interpreter), "rank 2 has not made call 1, all_reduce",
                    "runs; it has called nothing"),
    "ceoverlap.torch": (at_last(lambda g: ct.all_reduce(x(), group=g), dist.barrier),
                        "call 1 differs (rank 2 differs)",
                        "rank 2: all_reduce of 12 float32 (sum)"),
    "ceoverlap.torch before": (at_last(lambda _: stays(), lambda g: (
        ct.all_gather(x(4), group=g))), "rank 2 has not made call 1, all_gather of 4 float32"),
    "one less": (two_together, "call 3 differs (rank 2 differs)", "rank 2: broadcast"),
}

# --- the ranks' side --------------------------------------------------------------------------

_second = []                            # the group beside the case's


def group_of(seconds=LIMIT_S, ranks=None):
    return dist.new_group(ranks, timeout=datetime.timedelta(seconds=seconds))


def found_out(play, group, rank):
    """Returns what this rank is told, and how long that took; None if nothing fails here."""
    begun = time.monotonic()
    try:
        play(group, rank)
    except Exception as error:
        return str(error), time.monotonic() - begun
    return None


def hangs(name):
    """Plays a case in a group of its own."""
    group = group_of()
    if name == "wrong group":
        _second[:] = [group_of()]
    dist.barrier()
    told = found_out(CASES[name][0], group, dist.get_rank())
    dist.barrier()
    for made in [group, *_second]:
        if dist.distributed_c10d._world.pg_map.get(made) is not None:
            dist.destroy_process_group(made)
    _second.clear()
    dist.barrier()
    return told


def is_killed(is_inside):
    """Rank 2 of each three is killed, before its call or in it."""
    rank = dist.get_rank()
    groups = [group_of(2.0, [0, 1, 2]), group_of(2.0, [3, 4, 5])]
    dist.barrier()

    def play(group, at):
        if at < 2:
            if at == 0 and rank >= 3:
                stays()                 # so that the others wait
            calls_sum(group)
        elif rank < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
            calls_sum(group)

    del is_inside
    return found_out(play, groups[rank // 3], rank % 3)


def waits(seconds):
    """Rank 1 stays away, and others look on meanwhile."""
    group = group_of(30.0)
    calls_sum(group)
    dist.barrier()
    report = None
    if dist.get_rank() == 1:
        time.sleep(seconds)
        report = ct.backend.report(group)
    calls_sum(group)
    dist.barrier()
    dist.destroy_process_group(group)
    dist.barrier()
    return group.group_name, None if report is None else (report.why, report.as_dict())


def process():
    return os.getpid()


def leaves_files(folder):
    os.environ["CEOVERLAP_HANG_FOLDER"] = folder
    try:
        return hangs("size")
    finally:
        del os.environ["CEOVERLAP_HANG_FOLDER"]


def issued(*calls):
    """Calls whose end nobody tells, of (kind, number)."""
    return [_flight.Call(number, kind, "float32", "sum", _flight.NO_TAG, "ceov", _flight.NO_PEER, 4,
                         time.time_ns(), time.time_ns(), 0, _flight.ISSUED)
            for kind, number in calls]


def one_rank(rank, calls):
    past = _flight.Past("by hand", b"", rank, [0, 1, 2], False, "", calls)
    return hang.Rank(rank, os.getpid(), hang.RUNS, past, [])


# --- the test's side ----------------------------------------------------------------------


def is_wrong(name, results):
    """Returns "" if a rank was told what CASES says, and in time; else what they were told."""
    told = [result for result in results if result is not None]
    words = CASES[name][1:]
    if any(took <= LIMIT_S + LATE_S and all(word in text for word in words)
           for text, took in told):
        return ""
    return "\n".join(["nobody was told so in time:", *words, "but:", *map(str, told)])


@rig.needs_one_node
class Hangs(unittest.TestCase):

    def test_causes(self):
        names = list(CASES) if IS_LONG else random.Random(rig.SEED).sample(list(CASES), SHORT)
        for name in names:
            with self.subTest(name):
                wrong = is_wrong(name, run_here(hangs, name))
                self.assertFalse(wrong, wrong)

    def test_killed(self):
        killed = world(6)
        try:
            told = killed.run(is_killed, True, dying=(2, 5))
        finally:
            killed.kill()
        for rank in (0, 1, 3, 4):
            text = told[rank][0]
            self.assertIn("rank 2", text)
            self.assertIn("has died", text)
            self.assertIn("all_reduce of 12 float32 (sum)", text)

    def test_while_it_waits(self):
        pids = run_here(process)
        looked = []

        def look():
            time.sleep(1.0)
            looked.append(subprocess.run(
                [sys.executable, "-m", "ceoverlap.hang", "--json", *map(str, pids)],
                capture_output=True, text=True, timeout=30, check=False))

        thread = threading.Thread(target=look)
        thread.start()
        results = run_here(waits, 4.0)
        thread.join()
        self.assertEqual(looked[0].returncode, 0, looked[0].stderr)
        name = results[1][0]
        groups = {one["group"]: one for one in map(json.loads, looked[0].stdout.splitlines())}
        self.assertEqual(groups[name]["blamed"], [1], looked[0].stdout)
        self.assertEqual([one["waits_for"] for one in groups[name]["ranks"]], [[1], [], [1]])
        why, told = results[1][1]
        self.assertIn("rank 1 has not made call 2, all_reduce of 12 float32 (sum), for which "
                      "ranks 0, 2 wait: its process", why[0])
        self.assertEqual(told["ranks"][0]["last"]["number"], 2)
        self.assertTrue(told["ranks"][0]["last"]["waits"])
        self.assertFalse(told["ranks"][1]["last"]["waits"])

    def test_where_nobody_tells_of_the_end(self):
        """Calls on GPUs, written by hand: their ends are not known."""
        report = issued(("all_reduce", 1), ("all_reduce", 2)), issued(("all_reduce", 1))
        report = hang.Report("by hand", 2, [one_rank(i, calls) for i, calls in enumerate(report)])
        self.assertEqual(report.blamed, {1})
        self.assertIn("rank 1 has not made call 2, all_reduce of 4 float32 (sum), for which rank 0 "
                      "waits: its process", report.why[0])
        self.assertEqual(report.waits_for(report.ranks[0]), [1])
        ranks = issued(("all_reduce", 1)), issued(("all_reduce", 1)), issued(("broadcast", 1))
        report = hang.Report("by hand", 3, [one_rank(i, calls) for i, calls in enumerate(ranks)])
        self.assertEqual(report.blamed, {2})
        ranks = issued(("all_reduce", 1)), issued(("all_reduce", 1))
        report = hang.Report("by hand", 2, [one_rank(i, calls) for i, calls in enumerate(ranks)])
        self.assertEqual((report.blamed, report.why), (set(), []))

    @by_device
    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            run_here(leaves_files, folder)
            (made,) = pathlib.Path(folder).iterdir()
            report = json.loads((made / "report.json").read_text())
            self.assertEqual(report["blamed"], [2])
            self.assertIn("call 1 differs", (made / "report.txt").read_text())
            done = subprocess.run([sys.executable, "-m",
                                   "torch.distributed.flight_recorder.fr_trace", made / "fr"],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout + done.stderr, "(?s)number: 1 has errors.*Culprit rank .*"
                             r"input sizes: .*\[\[1[23]\]\]. does not match")


if __name__ == "__main__":
    unittest.main()
