# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

"""Tests what ceoverlap-trace makes of traces of ours beside files of PyTorch's profiler, as
tests/system/test_trace.sh calls it with the script: one timeline of both, and reports of exposed
communication whose answers are known, also on files that are damaged."""

import contextlib
import gzip
import importlib.machinery
import importlib.util
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import unittest
import xml.dom.minidom

sys.dont_write_bytecode = True
SCRIPT = sys.argv.pop(1)
LOADER = importlib.machinery.SourceFileLoader("trace", SCRIPT)
trace = importlib.util.module_from_spec(importlib.util.spec_from_loader("trace", LOADER))
LOADER.exec_module(trace)
SEED = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.randrange(1 << 32))

BASE = 1790857026000000000      # that a profiler counts from
DAY = 1795977029000000000       # the time of day when the monotonic clock was MONO
MONO = 5000000000
AT = (DAY - BASE) // 1000       # the same moment in the profiler's microseconds


def copy(rank, begin, end, op="all_gather", more="", launch=1):
    """A copy of ours, in microseconds after MONO."""
    return ('{"name":"transfer 0","cat":"lane","ph":"X","pid":%d,"tid":1,"ts":%d.500,"dur":%d,'
            '"args":{"launch":%d,"transfer":0,"chunk":2,"chunks":1,"bytes":8,"op":"%s"%s}}' %
            (rank, MONO // 1000 + begin, end - begin, launch, op, more))


def wait(rank, begin, end, awaited, number):
    head = '{"name":"doorbell","cat":"stage","ph":"%s","id":"' + number + '","pid":%d,"tid":1,"ts":%d'
    return ",\n".join((head % ("b", rank, MONO // 1000 + begin) + ',"args":{"awaited":%d}}' % awaited,
                       head % ("e", rank, MONO // 1000 + end) + "}"))


def ours(rank, events=(), pid=70, ranks=4, node=0, offsets=(), ahead=0, **more):
    """A trace of one rank, of a node whose monotonic clock is `ahead` of MONO at that moment."""
    pairs = [{"realtime_ns": DAY + after, "monotonic_ns": MONO + ahead + after, "within_ns": 40}
             for after in (0, 1000000)]
    origin = {"host": f"h{node}", "node_name": f"n{node}", "node": node, "nodes": 2 if offsets or node
              else 1, "process": rank, "processes": ranks, "ranks": [rank], "group_ranks": ranks,
              "group": "1", "measurer": rank if node else 0, "offsets": list(offsets), "pid": pid,
              "group_name": "/tmp/ceoverlap-abc/group", "clocks": pairs}
    origin.update(more)
    return '{"displayTimeUnit":"ns","traceEvents":[\n%s\n],"otherData":%s}\n' % (
        ",\n".join(events), json.dumps({
            "ceoverlap": "0.1.0", "clock": "monotonic", "dropped_chunks": 0,
            "unfinished_chunks": 0, "origin": origin}))


def work(name, begin, end, category="kernel", pid=0, **args):
    """An event of a profiler's file. Copies of ours begin half a microsecond after their number, and
    so do these."""
    return ('{"ph":"X","cat":"%s","name":"%s","pid":%s,"tid":7,"ts":%d.500,"dur":%d,"args":%s}' %
            (category, name, json.dumps(pid), AT + begin, end - begin, json.dumps(args)))


def kineto(rank, events, pid=70, window=(0, 1000), **more):
    ends = [work("x", window[0], window[0], "cpu_op", pid),
            work("x", window[1], window[1], "cpu_op", pid)]
    head = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"rank": rank},
            "host_name": "h0", "baseTimeNanoseconds": BASE}
    head.update(more)
    return json.dumps(head)[:-1] + ', "traceEvents": [\n' + ",\n".join(ends + list(events)) + \
        '\n], "traceName": "x"}'


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.paths = []

    def add(self, text):
        self.paths.append(f"{self.folder}/part{len(self.paths)}")
        with open(self.paths[-1], "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def run_in(self, *words):
        """Runs the command here. Returns its exit status; what it printed is kept."""
        out, said, old = io.StringIO(), io.StringIO(), sys.argv
        sys.argv = ["ceoverlap-trace", *words]
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(said):
                status = trace.main()
        finally:
            sys.argv = old
        self.out, self.said = out.getvalue(), said.getvalue()
        return status

    def report(self, *words):
        self.assertEqual(self.run_in("report", "--json", *words, *self.paths), 0, self.said)
        found = json.loads(self.out)
        for rank in found["ranks"]:
            for table in ("operators", "groups"):
                for key in ("comm_ns", "exposed_ns"):
                    if rank[key] is not None:
                        self.assertEqual(sum(row[key] for row in rank[table]), rank[key])
        self.assertEqual(self.run_in("report", *self.paths), 0, self.said)
        for line in self.out.splitlines():
            self.assertLessEqual(len(line), 80, line)
        return found["ranks"]

    def merged(self):
        target = self.folder + "/all.json"
        self.assertEqual(self.run_in("merge", "-o", target, *self.paths), 0, self.said)
        with open(target, encoding="utf-8") as file:
            return json.load(file, parse_float=trace.read_real)

    def figures(self, rank, **expected):
        for key, microseconds in expected.items():
            self.assertEqual(rank[key + "_ns"], microseconds * 1000, key)


class Spans(unittest.TestCase):
    def test_against_sets_of_moments(self):
        draw = random.Random(SEED)
        for _ in range(2000):
            these, others = ([(begin, begin + draw.randrange(6)) for begin in
                              (draw.randrange(30) for _ in range(draw.randrange(8)))]
                             for _ in range(2))
            moments = [{i for begin, end in found for i in range(begin, end)}
                       for found in (these, others)]
            sets = [trace.union(these), trace.union(others)]
            for found, expected in zip(sets, moments):
                self.assertEqual(self.moments(found), expected)
                self.assertEqual(trace.length(found), len(expected))
            left = trace.without(*sets)
            self.assertEqual(self.moments(left), moments[0] - moments[1])
            items = [trace.Item(*one, draw.randrange(2), "", "", None, None) for one in these]
            got = trace.share_out(items, left)
            self.assertEqual(got, self.slow_shares(items, moments[0] - moments[1]))

    def moments(self, found):
        """The sets are in order, and do not touch."""
        for one, other in zip(found, found[1:]):
            self.assertLess(one[1], other[0])
        return {i for begin, end in found for i in range(begin, end)}

    @staticmethod
    def slow_shares(items, moments):
        got = [0] * len(items)
        for at in moments:
            got[min((item.priority, item.begin, i) for i, item in enumerate(items)
                    if item.begin <= at < item.end)[2]] += 1
        return got


class Reports(Case):
    def test_each_kind_of_meeting(self):
        """Computation from 100 to 200 and from 300 to 400."""
        kernels = [work("sgemm", 100, 150), work("cei_gemm_bf16_128x256", 150, 200),
                   work("sgemm", 300, 400)]
        for copies, comm, exposed, idle in (
                ([(50, 100)], 50, 50, 100),                     # touches
                ([(200, 300)], 100, 100, 0),                    # touches both
                ([(120, 130)], 10, 0, 100),                     # is contained
                ([(90, 410)], 320, 120, 0),                     # contains both
                ([(150, 250)], 100, 50, 50),                    # begins within one
                ([(250, 350)], 100, 50, 50),                    # ends within one
                ([(210, 220), (215, 230), (230, 240)], 30, 30, 70),
                ([(110, 110)], 0, 0, 100),                      # is empty
                ([], 0, 0, 100)):
            with self.subTest(copies):
                self.paths = []
                self.add(ours(0, [copy(0, *one) for one in copies]))
                self.add(kineto(0, kernels))
                rank, = self.report()
                self.figures(rank, compute=200, comm=comm, exposed=exposed, idle=idle)
                self.assertEqual(rank["compute_is"], "kernels")

    def test_what_counts_as_communication(self):
        self.add(kineto(3, [
            work("ncclDevKernel_AllReduce_Sum_f32", 0, 10, **{
                "Collective name": "allreduce", "Process Group Description": "tp"}),
            work("Memcpy PtoP (Device -> Device)", 20, 30, "gpu_memcpy"),
            work("Memcpy HtoD (Pinned -> Device)", 32, 38, "gpu_memcpy"),
            work("cei_reduce_bf16", 40, 50, correlation=9),
            work("cudaLaunchKernel", 5, 6, "cuda_runtime", 70, correlation=9),
            work("ceov::reduce_scatter", 4, 7, "cpu_op", 70, group="tp0"),
            work("ceov::inner", 5, 6, "cpu_op", 70, group="no"),
            work("cei_embedding_look_up_bf16", 60, 61)]))
        rank, = self.report()
        self.assertEqual(rank["rank"], "3")
        self.figures(rank, compute=1, comm=30, exposed=30)
        self.assertEqual([(row["op"], row["exposed_ns"]) for row in rank["operators"]],
                         [("memcpy between GPUs", 10000), ("nccl:allreduce", 10000),
                          ("reduce_scatter", 10000)])
        self.assertEqual({row["group"]: row["exposed_ns"] for row in rank["groups"]},
                         {"tp": 10000, "tp0": 10000, "-": 10000})

    def test_what_calls_of_ours_queue_by_the_driver(self):
        """The profiler knows such launches by the call's number alone, and may take a copy to another
        process's memory for one within the GPU."""
        self.add(kineto(0, [
            work("ceov::all_gather", 4, 9, "cpu_op", 70, group="tp", **{"External id": 5}),
            work("ceov::inner", 5, 6, "cpu_op", 70, group="no", **{"External id": 6}),
            work("Memcpy DtoD (Device -> Device)", 10, 20, "gpu_memcpy", **{"External id": 5}),
            work("Memcpy DtoD (Device -> Device)", 20, 25, "gpu_memcpy", **{"External id": 6}),
            work("Memcpy DtoD (Device -> Device)", 30, 40, "gpu_memcpy", **{"External id": 0}),
            work("Memcpy DtoD (Device -> Device)", 50, 60, "gpu_memcpy", **{"External id": 7}),
            work("Memcpy HtoD (Pinned -> Device)", 70, 80, "gpu_memcpy", **{"External id": 5}),
            work("sgemm", 90, 91)]))
        rank, = self.report()
        self.figures(rank, compute=1, comm=15, exposed=15)
        self.assertEqual([(row["op"], row["n"]) for row in rank["operators"]], [("all_gather", 2)])

    def test_the_profiler_itself(self):
        """Its own work has no process."""
        self.add(kineto(0, [work("Activity Buffer Request", 5, 45, "overhead", -1),
                            work("Memcpy PtoP", 5, 15, "gpu_memcpy")]))
        rank, = self.report()
        self.figures(rank, compute=0, comm=10, exposed=10)

    def test_a_copy_of_ours_is_not_counted_twice(self):
        self.add(ours(0, [copy(0, 10, 30, "all_gather"), copy(0, 20, 40, "all_to_all")]))
        self.add(kineto(0, [work("Memcpy PtoP", 5, 45, "gpu_memcpy"), work("sgemm", 15, 16)]))
        rank, = self.report()
        self.figures(rank, comm=40, exposed=39)
        self.assertEqual({row["op"]: row["exposed_ns"] for row in rank["operators"]},
                         {"all_gather": 19000, "all_to_all": 10000, "memcpy between GPUs": 10000})
        self.assertEqual({row["op"]: row["comm_ns"] for row in rank["chunks"]},
                         {"all_gather": 20000, "all_to_all": 10000})

    def test_packed_files(self):
        """PyTorch's profiler packs a file whose name ends in .gz."""
        texts = ours(0, [copy(0, 10, 20)]), kineto(0, [work("sgemm", 14, 18)])
        for text in texts:
            self.add(text)
        expected = self.report()
        self.figures(expected[0], exposed=6)
        self.paths = []
        for text in texts:
            self.add(gzip.compress(text.encode()))
        self.assertEqual(self.report(), expected)

    def test_ranks_are_apart(self):
        """What one rank computes hides nothing of another."""
        for rank in range(3):
            self.add(ours(rank, [copy(rank, 100, 200)], pid=70 + rank))
            self.add(kineto(rank, [work("sgemm", 100 + 50 * rank, 200 + 50 * rank)],
                            pid=70 + rank))
        for rank, exposed in zip(self.report(), (0, 50, 100)):
            self.figures(rank, exposed=exposed, comm=100, compute=100)

    def test_whom_transfers_waited_for(self):
        self.add(ours(0, [wait(0, 0, 10, 2, "a"), wait(0, 5, 20, 2, "b"), wait(0, 30, 40, 1, "c"),
                          copy(0, 50, 60, more=',"from":0,"to":1,"awaited":2'),
                          copy(0, 60, 90, more=',"from":0,"to":1,"awaited":1')]))
        self.add(ours(1, [copy(1, 50, 70, more=',"from":1,"to":0')], pid=71))
        self.add(ours(2, [copy(2, 50, 71, more=',"from":2,"to":0'),
                          copy(2, 80, 81, launch=2, more=',"from":2,"to":0'),
                          copy(2, 80, 82, launch=3, more=',"from":2,"to":1')], pid=72))
        self.add(kineto(0, [work("sgemm", 8, 11)]))
        ranks = self.report()
        # doorbells begin half a microsecond before the kernel's and copies' times
        self.assertEqual(ranks[0]["waited_for"],
                         [{"rank": 2, "n": 2, "wait_ns": 16500},
                          {"rank": 1, "n": 1, "wait_ns": 10000}])
        self.assertEqual(ranks[0]["last_from"], [{"rank": 2, "n": 2}])
        self.assertEqual(ranks[1]["last_from"], [{"rank": 0, "n": 1}, {"rank": 2, "n": 1}])
        self.assertEqual(ranks[0]["chunks"][0]["awaited"], 1)
        self.assertIsNone(ranks[1]["exposed_ns"])       # no profiler tells
        self.assertIn("not known of rank 1, 2", self.out)

    def test_only_while_the_profiler_ran(self):
        self.add(ours(0, [copy(0, 50, 150), copy(0, 290, 310), copy(0, 700, 800)]))
        self.add(kineto(0, [work("sgemm", 120, 130)], window=(100, 300)))
        self.add(kineto(0, [work("sgemm", 710, 720)], window=(700, 750)))
        rank, = self.report()
        self.figures(rank, comm=50 + 10 + 50, exposed=90)

    def test_ranks_on_the_host(self):
        self.add(ours(0, [copy(0, 50, 150)]))
        self.add(kineto(0, [work("aten::mm", 40, 100, "cpu_op", 70),
                            work("c10d::allreduce_", 160, 190, "cpu_op", 70),
                            work("ceov::all_gather", 90, 155, "cpu_op", 70, group="g"),
                            work("ceov::all_gather", 200, 230, "cpu_op", 70, group="g"),
                            work("ceov::all_gather_gemm", 300, 400, "cpu_op", 70, group="g"),
                            work("gloo:all_reduce", 170, 180, "user_annotation", 70)]))
        rank, = self.report()
        self.figures(rank, compute=60, comm=145, exposed=95)
        self.assertEqual({row["group"]: row["exposed_ns"] for row in rank["groups"]},
                         {"ceoverlap-abc": 50000, "g": 35000, "-": 10000})
        self.assertIn("PyTorch's operators", self.out)

    def test_a_process_in_two_groups_is_one_rank(self):
        self.add(ours(1, [copy(1, 0, 10)]))
        self.add(ours(0, [copy(0, 20, 40)], group="2", ranks=2, group_name="/tmp/other"))
        self.add(kineto(5, []))
        rank, = self.report()
        self.assertEqual(rank["rank"], "5")
        self.figures(rank, exposed=30)
        self.assertEqual({row["group"]: row["exposed_ns"] for row in rank["groups"]},
                         {"ceoverlap-abc": 10000, "other": 20000})

    def test_random_ranks_against_sets_of_moments(self):
        draw = random.Random(SEED)
        for _ in range(50):
            self.paths = []
            spans = [[(begin, begin + draw.randrange(30)) for begin in
                      (draw.randrange(200) for _ in range(draw.randrange(20)))]
                     for _ in range(2)]
            self.add(ours(0, [copy(0, *one, draw.choice("abc")) for one in spans[0]]))
            self.add(kineto(0, [work("sgemm", *one) for one in spans[1]]))
            moves, computes = ({i for begin, end in found for i in range(begin, end)}
                               for found in spans)
            rank, = self.report()
            self.figures(rank, comm=len(moves), compute=len(computes),
                         exposed=len(moves - computes))
            both = moves | computes
            self.figures(rank, idle=max(both) + 1 - min(both) - len(both) if both else 0)

    def test_the_picture(self):
        self.add(ours(0, [copy(0, 0, 100)]))
        target = self.folder + "/x.svg"
        for kernels, n_exposed in (([(0, 100)], 0), ([(0, 50)], 1), ([(40, 60)], 2)):
            self.paths = self.paths[:1]
            self.add(kineto(0, [work("sgemm", *one) for one in kernels]))
            self.report("--svg", target)
            found = xml.dom.minidom.parse(target).getElementsByTagName("rect")
            drawn = [one for one in found if one.getAttribute("fill-opacity")
                     and one.getAttribute("fill") == "#cc3344"]
            self.assertEqual(len(drawn), n_exposed)
            for one in drawn:
                self.assertEqual(int(one.getAttribute("width")), 500 if n_exposed == 1 else 400)
        self.assertEqual(self.run_in("report", "--svg", self.paths[0], *self.paths), 2)
        self.assertIn("one of the files", self.said)


class Merges(Case):
    def times(self, found, name):
        return [event["ts"] for event in found["traceEvents"]
                if event["name"] == name and event["ph"] == "X"]

    def test_one_timeline_by_the_profilers_clock(self):
        self.add(ours(0, [copy(0, 10, 30)]))
        self.add(kineto(0, [work("sgemm", 15, 20), work("spans", 15, 16, "Trace", "Spans"),
                            '{"ph":"s","id":5,"name":"ac2g","pid":0,"tid":7,"ts":%d}' % AT,
                            '{"ph":"M","name":"process_name","pid":0,"ts":1.5,"args":'
                            '{"name":"python"}}']))
        found = self.merged()
        self.assertEqual(found["baseTimeNanoseconds"], BASE)
        self.assertEqual(self.times(found, "transfer 0"), [trace.read_real(f"{AT + 10}.500")])
        self.assertEqual(self.times(found, "sgemm"), [trace.read_real(f"{AT + 15}.500")])
        for event in found["traceEvents"]:
            self.assertTrue(event["pid"] == 0 or event["pid"] >= 65536, event)
        self.assertIn('"id": "0.5"', json.dumps(found, default=float))
        self.assertIn("rank 0: python", json.dumps(found, default=float))
        counter = [(event["ts"] - AT, event["args"]["us"]) for event in found["traceEvents"]
                   if event["name"] == "exposed us"]
        self.assertEqual([(float(at), float(us)) for at, us in counter],
                         [(10.5, 0), (15.5, 5), (20.5, 5), (30.5, 15)])

    def test_clocks_of_two_nodes(self):
        """The monotonic clock of node 1 is 2 s behind that of node 0, its time of day 1 s late."""
        offsets = [{"at_ns": MONO - 2000000000 + after, "ahead_ns": 2000000000, "within_ns": 9}
                   for after in (0, 1000000)]
        pairs = [{"realtime_ns": DAY - 1000000000 + after, "monotonic_ns": MONO - 2000000000 + after,
                  "within_ns": 9} for after in (0, 1000000)]
        self.add(ours(0, [copy(0, 10, 20)], nodes=2))
        self.add(ours(1, [copy(1, -1999990, -1999980)], pid=71, node=1, offsets=offsets,
                      clocks=pairs))
        self.add(kineto(0, [work("one", 10, 20)]))
        self.add(kineto(1, [work("other", 10 - 1000000, 20 - 1000000)], pid=71, host_name="h1",
                        window=(-1000000, -999000)))
        found = self.merged()
        expected = trace.read_real(f"{AT + 10}.500")
        self.assertEqual(self.times(found, "transfer 0"), [expected] * 2)
        self.assertEqual(self.times(found, "one") + self.times(found, "other"), [expected] * 2)
        for rank in self.report():
            self.figures(rank, comm=10, exposed=0)

    def test_what_cannot_be_laid_beside(self):
        self.add(ours(0, [copy(0, 10, 20)], clocks=[]))
        self.add(kineto(0, []))
        self.assertEqual(self.run_in("-o", self.folder + "/all", *self.paths), 1)
        self.assertIn("part0: it does not say what time of day", self.said)
        self.assertEqual(self.run_in("report", *self.paths), 2)
        self.assertFalse(os.path.exists(self.folder + "/all"))

    def test_profilers_alone(self):
        self.add(kineto(0, [work("sgemm", 1, 2)]))
        self.add(kineto(1, [work("sgemm", 5, 9)], pid=71, baseTimeNanoseconds=BASE + 1000))
        found = self.merged()
        self.assertEqual([float(ts - AT) for ts in self.times(found, "sgemm")], [1.5, 6.5])


class Damage(Case):
    def refused(self, text, *why):
        """In a process of its own, which ends within a time."""
        self.paths = self.paths[:1]
        self.add(text)
        begun = time.monotonic()
        done = subprocess.run([SCRIPT, "report", *self.paths], capture_output=True, timeout=60,
                              text=True, check=False)
        self.assertLess(time.monotonic() - begun, 30)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        for words in why:
            self.assertIn(words, done.stderr)

    def test_files_that_are_none(self):
        self.add(ours(0, [copy(0, 10, 20)]))
        good = kineto(0, [work("sgemm", 1, 2)])
        self.refused("", "part1: it is empty")
        self.refused("nonsense", "part1: it is no trace")
        self.refused(b"\x08\x00\xff\xff", "no text in UTF-8")
        self.refused(b"\x1f\x8b\x08\x00\xff\xff", "part1: what gzip has packed is damaged")
        packed = gzip.compress(good.encode())
        self.refused(packed[:-20], "part1: what gzip has packed is damaged")
        self.refused(packed[:40] + b"\x00\x00" + packed[42:], "part1: what gzip has packed is damaged")
        self.refused(gzip.compress(b"nonsense"), "part1: it is no trace")
        self.refused(good[:-30], "too early")
        self.refused('{"schemaVersion":1}', "it has no events")
        self.refused('{"schemaVersion":1,"traceEvents":{}}', "no list")
        self.refused('{"schemaVersion":1,"traceEvents":[{"ph":"X","ts":1}]}', "event 1: its pid")
        self.refused('{"schemaVersion":1,"traceEvents":[{"ph":"X","pid":1}]}', "event 1: ")
        self.refused('{"schemaVersion":1,"traceEvents":[' + "[" * 300000, "event 1: ")
        self.refused('{"schemaVersion":1,"traceEvents":[{"name":"' + "x" * 9000000,
                     "longer than any")

    def test_numbers_that_cannot_be(self):
        self.add(ours(0, [copy(0, 10, 20)]))
        for number in ("1e300", "-1", "1" * 5000, "1e999999999", "9223372036854775807", "true",
                       '"1"', "1.5e3"):
            for key in ("ts", "dur"):
                event = {"ts": "1", "dur": "1", key: number}
                self.refused('{"schemaVersion":1,"traceEvents":[{"ph":"X","pid":1,"ts":%s,"dur":%s}]}'
                             % (event["ts"], event["dur"]), "event 1: ")
            self.refused('{"schemaVersion":1,"baseTimeNanoseconds":%s,"traceEvents":[]}' % number)

    def test_a_file_that_is_cut_anywhere_is_refused(self):
        text = kineto(0, [work("sgemm", 1, 2, correlation=1)])
        for n in range(0, len(text) - 1):
            self.paths = []
            self.add(text[:n])
            self.assertEqual(self.run_in("report", *self.paths), 2)
            self.assertEqual(self.said.count("\n"), 1)

    def test_damaged_files(self):
        """Whatever the bytes are, the files are refused or the report is valid JSON."""
        draw = random.Random(SEED)
        texts = [ours(0, [copy(0, 10, 20, more=',"from":1,"to":0,"awaited":1'),
                          wait(0, 1, 2, 3, "a")]).encode(),
                 kineto(0, [work("cei_reduce_bf16", 1, 2, correlation=1),
                            work("cudaLaunch", 1, 2, "cuda_runtime", 70, correlation=1),
                            work("ceov::all_gather", 0, 3, "cpu_op", 70, group="tp")]).encode()]
        n_refused = 0
        for number in range(1500):
            self.paths = []
            for text in texts:
                text = bytearray(text)
                for _ in range(number % 3):
                    text[draw.randrange(len(text))] = draw.randrange(256) if number % 2 else \
                        ord(draw.choice('{}[],:"\\ 0-e.'))
                self.add(bytes(text))
            status = self.run_in("report", "--json", "--svg", self.folder + "/x", *self.paths)
            if not status:
                json.loads(self.out, parse_constant=self.fail)
                xml.dom.minidom.parse(self.folder + "/x")
                continue
            self.assertEqual(status, 2)
            n_refused += 1
        self.assertGreater(n_refused, 300)
        self.assertLess(n_refused, 1400)


print("seed", SEED)
unittest.main()
