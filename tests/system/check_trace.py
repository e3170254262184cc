# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

"""Tests what ceoverlap-trace makes of trace files, as tests/system/test_trace.sh calls it with the
script: times of nodes whose offsets are known, unknown or contradictory, and files that are refused
before anything is written."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import random
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("trace", sys.argv.pop(1))
trace = importlib.util.module_from_spec(importlib.util.spec_from_loader("trace", LOADER))
LOADER.exec_module(trace)
SEED = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.randrange(1 << 32))


def offset(at, ahead, within):
    return {"at_ns": at, "ahead_ns": ahead, "within_ns": within}


def event(rank, ts):
    return '{"name":"x","ph":"b","id":"%d","pid":%d,"ts":%s}' % (rank, rank, ts)


def text_of(rank, node, measurer, offsets=(), events="", group="1"):
    """A file of one rank of 8, on a node of 4, whose clock the rank `measurer` measures."""
    data = {"ceoverlap": "0.1.0", "clock": "monotonic", "dropped_chunks": 1, "unfinished_chunks": 2,
            "origin": {"host": "h", "node_name": f"name{node}", "node": node, "nodes": 4,
                       "process": rank, "processes": 8, "ranks": [rank], "group_ranks": 8,
                       "group": group, "measurer": measurer, "offsets": list(offsets)}}
    return '{"displayTimeUnit":"ns","traceEvents":[\n%s\n],"otherData":%s}\n' % (
        events, json.dumps(data))


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.target = self.folder + "/all.json"
        self.paths = []

    def add_text(self, text):
        self.paths.append(f"{self.folder}/part{len(self.paths)}")
        with open(self.paths[-1], "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def add(self, *arguments, **more):
        self.add_text(text_of(*arguments, **more))

    def join(self, target=None):
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            status = trace.join(self.paths, target or self.target)
        self.said = said.getvalue()
        return status

    def joined(self):
        self.assertEqual(self.join(), 0, self.said)
        with open(self.target, encoding="utf-8") as file:
            self.result = file.read()
        json.loads(self.result)

    def has(self, *texts):
        for text in texts:
            self.assertIn(text, self.result)

    def says(self, *texts):
        for text in texts:
            self.assertIn(text, self.said)

    def refused(self, why):
        """Nothing is written, an older file stays, and stderr names the last file and says why."""
        with open(self.target, "w", encoding="utf-8") as file:
            file.write("older")
        self.assertEqual(self.join(), 1, why)
        self.says(os.path.basename(self.paths[-1]), why)
        with open(self.target, encoding="utf-8") as file:
            self.assertEqual(file.read(), "older")
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".new")], [])
        self.paths = []


class Clocks(Case):
    def test_three_nodes_with_known_offsets(self):
        """All of these events are at the same time, 20 s after the start of rank 0's machine; only
        that of rank 4 is 500 ns later, since node 1's clock has drifted by then."""
        self.add(0, 0, 0, events=event(0, "20000000.000"))
        self.add(2, 1, 2, [offset(10000000000, 5000000000, 70),
                           offset(20000000000, 5000001000, 30)],
                 '{"ph":"X","pid":2,"ts":10000000.000,"dur":10000000.5}')
        self.add(4, 1, 2, events=event(4, "15000000"))
        self.add(6, 3, 6, [offset(90000000000, -80000000000, 9)], event(6, "100000000.0"))
        self.joined()
        self.has('"pid":0,"ts":20000000.000}',
                 '{"ph":"X","pid":2,"ts":15000000.000,"dur":10000001.500}',
                 '"pid":4,"ts":20000000.500}', '"pid":6,"ts":20000000.000}',
                 '"pid":4,"args":{"labels":"node 1, name1, clock within 70 ns"}',
                 '"pid":6,"args":{"labels":"node 3, name3, clock within 9 ns when it was',
                 '"dropped_chunks":4,"unfinished_chunks":8,"files":4',
                 '"node_name":"name1","clock":"measured"')
        self.says("node 3 (name3): how its clock drifts is not known")

    def test_no_nanosecond_is_lost(self):
        """A machine that has been up for 143 days: a double does not hold these digits."""
        self.add(0, 0, 0, events=event(0, "12345678901234.567"))
        self.add(1, 1, 1, [offset(1, 1, 1), offset(2, 1, 1)], event(1, "12345678901234.567"))
        self.joined()
        self.has('"pid":0,"ts":12345678901234.567}', '"pid":1,"ts":12345678901234.568}')
        self.assertEqual(self.said, "")

    def test_a_node_whose_offset_is_unknown_keeps_its_times(self):
        self.add(0, 0, 0, events=event(0, "1.5"))
        self.add(2, 1, 2, events=event(2, "2.5"))       # it has no answer
        self.add(5, 2, 4, events=event(5, "3.5"))       # rank 4 is missing
        self.add(6, 3, 6, [offset(10000000000, 5000000000, 70)], event(6, "4.5"))
        self.joined()
        self.has('"pid":0,"ts":1.500}', '"pid":2,"ts":2.500}', '"pid":5,"ts":3.500}',
                 '"pid":6,"ts":5000004.500}', '"labels":"node 1, name1, clock unknown"',
                 '"labels":"node 2, name2, clock unknown"',
                 '"node_name":"name2","clock":"unknown"')
        self.says("node 1 (name1): how far", "node 2 (name2): how far",
                  "the file of rank 4 has to tell, and does not (it is not among the files)")

    def test_offsets_that_contradict_each_other(self):
        self.add(0, 0, 0, events=event(0, "1"))
        self.add(2, 1, 2, [offset(1000, 5000, 7), offset(2000, 6000, 7)], event(2, "2"))
        self.joined()
        self.has('"pid":2,"ts":2.000}', "clock unknown")
        self.says("contradict")

    def test_files_of_one_node_need_no_offset(self):
        self.add(4, 2, 3, events=event(4, "1"))
        self.add(5, 2, 3, events=event(5, "2"))
        self.joined()
        self.has('"pid":4,"ts":1.000}', '"labels":"node 2, name2"')
        self.assertEqual(self.said, "")


class Refusals(Case):
    def test_events_that_make_no_sense(self):
        for text, why in (
                ('{"ph":"b","pid":0}', "event 1: it has no phase, or no time"),
                ('{"pid":0,"ts":1}', "no phase"),
                ('{"ph":"b","pid":0,"ts":-1}', "no time"),
                ('{"ph":"b","pid":0,"ts":1e3}', "no time"),
                ('{"ph":"b","pid":0,"ts":-1.5}', "no time"),
                ('{"ph":"b","pid":0,"ts":true}', "no time"),
                ('{"ph":"b","pid":0,"ts":"1"}', "no time"),
                ('{"ph":"b","pid":0,"ts":4611686018427388}', "no time"),
                ('{"ph":"b","pid":0,"ts":99999999999999999999}', "no time"),
                ('{"ph":"X","pid":0,"ts":1,"dur":-1}', "no time"),
                ('{"ph":"b","pid":1,"ts":1}', "events of rank 1"),
                ('{"ph":"b","pid":-1,"ts":1}', "its pid is no rank"),
                ('{"ph":"b","pid":65536,"ts":1}', "its pid is no rank"),
                ('{"ph":"b","pid":0,"ts":1,"args":1e999}', "event 1: a value is no JSON"),
                ('{"ph":"b","pid":0,"ts":1,"args":NaN}', "event 1: a value is no JSON"),
                ('{"ph":"M","pid":0,"args":%s}' % ("[" * 60000), "event 1: a value is no JSON"),
                ("7", "event 1: a value is no JSON, or of another type"),
                ('{"ph":"M","pid":0},', "a comma stands behind the last event"),
                ('{"ph":"M","pid":0} {"ph":"M","pid":0}', "a comma is missing"),
                ('{"ph":"M","pid":0},\n{"ph":"M","pid":}', "event 2: ")):
            with self.subTest(text[:60]):
                self.add(0, 0, 0, events=text)
                self.refused(why)

    def test_an_event_without_an_end_takes_no_memory(self):
        for text, more in (('{"name":"', "x"), ('{"name":[', "1,")):
            self.add_text('{"traceEvents":[' + text + more * 1000000)
            self.refused("event 1: a value is longer than any that ceoverlap writes")

    def test_files_that_are_no_traces_of_processes(self):
        for text, why in (
                ("", "it is empty"), ("[]", "it is no trace"), ("{}", "a value is missing"),
                (b'{"traceEvents":[],"x":"\xff"}', "no text in UTF-8"),
                ('{"traceEvents":[]}', "does not say where it is from"),
                ('{"traceEvents":{}}', "its events are no list"),
                ('{"traceEvents":[],"traceEvents":[]}', "twice"),
                ('{"otherData":{"clock":"monotonic","dropped_chunks":0,"unfinished_chunks":0},'
                 '"traceEvents":[]}', "an older ceoverlap"),
                ('{"otherData":{"clock":"sundial"}}', "ceoverlap has not written it")):
            with self.subTest(text):
                self.add_text(text)
                self.refused(why)
        self.add(0, 0, 0)
        path = self.paths[0]
        self.joined()
        os.rename(self.target, path)
        self.refused("it is joined already")
        os.unlink(path)
        self.paths = [path]
        self.refused("No such file")
        os.mkfifo(path)
        self.paths = [path]
        self.refused("no regular file")

    def test_files_that_say_what_cannot_be(self):
        good = offset(10000000000, 5000000000, 70)
        for bad in ([7], [{}], [offset(-1, 1, 1)], [offset(1, 1.5, 1)], [offset(1, 1 << 62, 1)],
                    [offset(2, 1, 1), offset(1, 1, 1)], [offset(1, 1, 1)] * 3):
            self.add(1, 1, 1, bad)
            self.refused("what it says of its node's clock makes no sense")
        for place in ((8, 1, 1), (1, 4, 1), (1, 1, 8)):
            self.add(*place)
            self.refused("of its ranks and its node")
        self.add(1, 1, 2, [good])
        self.refused("a clock that rank 2 measures")
        self.add(1, 1, 1, [offset(1, -2000, 1)], event(1, "1.999"))
        self.refused("before the clock of rank 0's node began")
        self.add(0, 0, 0)
        self.add(1, 1, 1, group="2")
        self.refused("of another group than")
        self.add(0, 0, 0)
        self.add(0, 1, 0)
        self.refused("rank 0 is in")
        self.add(1, 1, 1, [good])
        self.add(2, 1, 2, [good])
        self.refused("and so has")

    def test_targets_that_cannot_be_written(self):
        self.add(0, 0, 0)
        self.assertEqual(self.join(self.paths[0]), 1)
        self.says("it is one of the files to join")
        with open(self.paths[0], encoding="utf-8") as file:
            self.assertEqual(file.read(), text_of(0, 0, 0))
        self.assertEqual(self.join("/nonexistent/all.json"), 1)
        self.says("/nonexistent/all.json")


class Damage(Case):
    text = text_of(1, 1, 1, [offset(10000000000, 5000000000, 70)], event(1, "1.999") +
                   ',\n{"name":"a\\"b","ph":"X","pid":1,"ts":5.25,"dur":7,"args":'
                   '{"l":[1,{"m":null}]}}').encode()

    def test_a_file_that_is_cut_anywhere_is_refused(self):
        for n in range(len(self.text) - 1):     # the last byte is the end of the line
            self.paths = []
            self.add_text(self.text[:n])
            self.assertEqual(self.join(), 1)
            self.assertFalse(os.path.exists(self.target))
        self.add_text(self.text + b"{}")
        self.paths = self.paths[-1:]
        self.refused("something stands behind its end")
        self.add_text(self.text)
        self.joined()

    def test_damaged_files(self):
        """Whatever the bytes are, a file is refused or what is made of it is valid JSON."""
        draw = random.Random(SEED)
        n_refused = 0
        for number in range(2000):
            text = bytearray(self.text)
            for _ in range(1 + number % 3):
                text[draw.randrange(len(text))] = draw.randrange(256) if number % 2 else \
                    ord(draw.choice('{}[],:"\\ 0-e.'))
            self.paths = []
            self.add_text(bytes(text))
            if self.join():
                n_refused += 1
                continue
            with open(self.target, encoding="utf-8") as file:
                json.load(file, parse_constant=self.fail)
        self.assertGreater(n_refused, 500)


print("seed", SEED)
unittest.main()
