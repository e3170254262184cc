# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What is forgotten, closed twice, copied, or used afterwards; and what releases it."""

import copy
import gc
import logging
import pickle
import subprocess
import sys
import threading
import time
import unittest
import weakref
from unittest import mock

import numpy as np

import ceoverlap
from ceoverlap import _object, errors
from rig import TIMEOUT_S, Case, Kept, in_threads, logger_of, until

N_MANY = 400


def forget(*objects):
    """They are garbage with a cycle, for the collector alone."""
    cycle = list(objects)
    cycle.append(cycle)


class Forgotten(Case):
    def setUp(self):
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)

    def waiting(self, context):
        """A signal, and a plan in flight that waits for its mark."""
        ready = context.signal()
        plan = context.plan(0).expect(ready.mark()).add(source_ready=ready.mark()).commit()
        return ready, plan, plan.launch()

    def test_a_plan_in_flight_does_not_stop_the_collector(self):
        context = self.host()
        ready, plan, ticket = self.waiting(context)
        gone = weakref.ref(plan)
        del ticket
        forget(plan)
        del plan
        started = time.monotonic()
        gc.collect()
        self.assertIsNone(gone())
        context.signal().close()        # calls that sweep do not wait for it, either
        self.assertLess(time.monotonic() - started, TIMEOUT_S / 4)
        self.assertEqual(len(context._lingering), 1)
        ready.raise_to(1)
        self.assertTrue(until(lambda: context.signal().release() and not context._lingering))

    def test_no_lock_is_waited_for(self):
        """The collector runs in a log handler while another thread, inside the library, waits
        for the handler's lock, and a third one holds the context's."""
        context = self.host()
        _ready, plan, _ticket = self.waiting(context)
        del _ticket
        forget(plan, context.signal(), context.allocate(64))
        del plan
        may_go_on = threading.Event()
        is_held = threading.Event()

        def hold():
            with context._lock:
                is_held.set()
                may_go_on.wait(TIMEOUT_S)

        thread = threading.Thread(target=hold)
        thread.start()
        is_held.wait()
        started = time.monotonic()
        gc.collect()
        took = time.monotonic() - started
        may_go_on.set()
        thread.join()
        self.assertLess(took, TIMEOUT_S / 4)

    def test_finalizers_make_no_call_and_no_line(self):
        context = self.host()
        objects = [context.signal(), context.allocate(64), context.plan(0)]
        self.log.records.clear()
        with mock.patch.object(context, "_invoke", side_effect=AssertionError), \
                mock.patch.object(sys, "unraisablehook") as hook:
            forget(*objects)
            objects.clear()
            gc.collect()
        hook.assert_not_called()
        self.assertEqual(self.log.records, [])
        self.assertEqual(len(context._lingering), 3)
        context.signal().close()
        self.assertEqual(len(context._lingering), 0)

    def test_what_stands_on_others_goes_first(self):
        context = self.host(1)
        size = ceoverlap.AllReduce.scratch_bytes([8], "float16")
        space = ceoverlap.Workspace(context, "w", size).connect()
        forget(space, ceoverlap.AllReduce(space, [8], "float16"))
        del space
        gc.collect()
        context.signal().close()
        context.signal().close()
        self.assertEqual(len(context._lingering), 0)
        ceoverlap.Workspace(context, "w", size).close()         # the name is free
        self.assertEqual(self.log.lines(logging.WARNING), [])

    def test_memory_is_kept_until_the_release(self):
        context = self.host()
        values = bytearray(64)
        buffer = context.register(values, 0)
        plan = context.plan(0).add(source=buffer, target=context.allocate(64, 1), row_bytes=64)
        del buffer
        gc.collect()
        context.signal().close()
        with self.assertRaises(BufferError):    # it is exported, as the plan names it
            values.append(1)
        del plan
        gc.collect()
        with self.assertRaises(BufferError):
            values.append(1)
        for _ in range(3):
            context.signal().close()
        values.append(1)

    def test_one_that_cannot_be_released_is_kept_and_told_once(self):
        context = self.host()
        context.signal()
        invoke = context._invoke

        def fail(name, *arguments, **options):
            if name == "ceov_signal_release":
                raise errors.make(-5, "no")
            return invoke(name, *arguments, **options)

        with mock.patch.object(context, "_invoke", fail):
            for _ in range(3):
                context.allocate(64)
                self.assertEqual([one.call for one in context._lingering
                                  if "signal" in one.call], ["ceov_signal_release"])
        self.assertEqual(len(self.log.lines(logging.WARNING)), 1)
        self.assertIn("ceov_signal_release", self.log.lines(logging.WARNING)[0])
        context.allocate(64).close()
        context.allocate(64).close()
        self.assertEqual(len(context._lingering), 0)

    def test_what_was_interrupted_is_not_released_twice(self):
        context = self.host()
        signal = context.signal()
        invoke, n = context._invoke, [0]

        def interrupt(name, *arguments, **options):
            result = invoke(name, *arguments, **options)
            if name == "ceov_signal_release":
                n[0] += 1
                raise KeyboardInterrupt
            return result

        with mock.patch.object(context, "_invoke", interrupt):
            with self.assertRaises(KeyboardInterrupt):
                signal.close()
            signal.close()
            del signal
            context.allocate(64).close()
        self.assertEqual(n, [1])
        context.allocate(64).close()

    def test_many_that_are_used_cost_little(self):
        """The work of each call beside its own is bounded, however many linger."""
        context = self.host()
        plan = context.plan(0)
        for _ in range(N_MANY):
            plan.add(source=context.allocate(64, 0), target=context.allocate(64, 1),
                     row_bytes=64)
        self.assertEqual(len(context._lingering), 0)
        plan._named.clear()             # nobody holds the buffers but C's plan
        gc.collect()
        self.assertEqual(len(context._lingering), 2 * N_MANY)
        n = [0]
        release = context._release

        def count(record):
            n[0] += 1
            return release(record)

        with mock.patch.object(context, "_release", count):
            for _ in range(20):
                context.signal()
        self.assertLessEqual(n[0], 20 * 20)
        plan.close()
        n_calls = 0
        while context._lingering and n_calls < N_MANY:
            context.signal().close()
            n_calls += 1
        self.assertEqual(len(context._lingering), 0)

    def test_a_constructor_that_fails_half_way(self):
        context = self.host()

        class Interrupted(Exception):
            pass

        with mock.patch.object(_object.Object, "_enter", side_effect=Interrupted):
            with self.assertRaises(Interrupted):
                context.signal()        # nothing can be done: it goes with the context
        invoke = context._invoke

        def interrupt(name, *arguments, **options):
            invoke(name, *arguments, **options)
            raise Interrupted           # C has made it, and nobody has heard

        before = len(context._lingering)
        with mock.patch.object(context, "_invoke", interrupt):
            with mock.patch.object(context, "_sweep"):
                with self.assertRaises(Interrupted):
                    context.signal()
        gc.collect()
        self.assertEqual(len(context._lingering), before + 1)

    def test_a_context_with_all_that_it_has(self):
        context = ceoverlap.Context(range(2), place="host", logger=logger_of(Kept()))
        ready, plan, ticket = self.waiting(context)
        gone = weakref.ref(context)
        forget(context, ready, plan, ticket)
        del context, ready, plan, ticket
        started = time.monotonic()
        gc.collect()
        self.assertLess(time.monotonic() - started, TIMEOUT_S / 4)
        self.assertTrue(until(lambda: gc.collect() + 1 and gone() is None))


class Once(Case):
    def test_nothing_is_copied(self):
        context = self.host(1)
        size = ceoverlap.AllReduce.scratch_bytes([8], "float16")
        space = ceoverlap.Workspace(context, "w", size).connect()
        op = ceoverlap.AllReduce(space, [8], "float16")
        gather = ceoverlap.AllGather(context, "gather", np.zeros(8))
        for one in (context, context.signal(), context.allocate(64), context.plan(), space, op,
                    gather):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.subTest(one=one, make=make):
                    with self.assertRaisesRegex(TypeError, "cannot be copied or pickled"):
                        make(one)
        with self.assertRaises(TypeError):
            copy.deepcopy(context.signal().mark())
        gather.close()

    def test_closing_by_many_threads(self):
        context = self.host()
        for _ in range(50):
            signal, plan = context.signal(), context.plan(0)

            def close(_rank):
                signal.close()
                plan.close()

            in_threads(4, close)
        self.assertTrue(until(lambda: context.signal().release() and not context._lingering))

    def test_a_closed_context_is_not_entered(self):
        context = self.host()
        with context:
            signal, buffer = context.signal(), context.allocate(64)
        for one in (context, signal, buffer):
            with self.assertRaises(ceoverlap.StateError):
                with one:
                    self.fail("it is closed")
        context.close()

    def test_handles_of_a_closed_context_reach_no_other_one(self):
        closed, context = self.host(), self.host()
        source, mark = closed.allocate(64), closed.signal().mark()
        ready = ceoverlap.MarkList([mark])
        closed.close()
        plan = context.plan(0)
        for call in (lambda: plan.add(source=source, target=context.allocate(64, 1),
                                      row_bytes=64),
                     lambda: plan.expect(mark),
                     lambda: context.stream_wait(0x44, ready)):
            with self.assertRaises(ceoverlap.StateError):
                call()

    def test_close_returns_when_all_is_closed(self):
        """For each of several threads: then memory that was registered may be freed."""
        context = self.host()
        with mock.patch.object(context, "_close_now",
                               wraps=lambda now=context._close_now: time.sleep(0.2) or now()):
            in_threads(3, lambda _rank: context.close() or self.assertIsNone(context._handle))

    def test_a_log_handler_that_closes(self):
        seen = []

        class Closes(logging.Handler):
            def emit(self, _record):
                try:
                    context.close()
                except ceoverlap.StateError as error:
                    seen.append(str(error))

        context = self.host(logger=logger_of(Closes()))
        ready = context.signal()
        plan = context.plan(0).expect(ready.mark()).add(source_ready=ready.mark()).commit()
        with self.assertRaises(ceoverlap.DeadlineError):
            plan.launch(deadline_s=0.05).wait()
        self.assertTrue(until(lambda: seen))
        self.assertIn("log handler", seen[0])
        self.assertTrue(context.is_open)

    def test_the_end_of_an_interpreter(self):
        """Forgotten, in use, by daemon threads: it ends with 0 and without a word."""
        program = """
import gc, threading, time
import ceoverlap
gc.disable()
contexts = [ceoverlap.Context(range(2), place="host", deadline_s=30) for _ in range(3)]
for context in contexts:
    ready = context.signal()
    plan = context.plan(0).expect(ready.mark()).add(source_ready=ready.mark()).commit()
    plan.launch()
cycle = [contexts.pop(), plan, ready, context]
cycle.append(cycle)
def work(context):
    while True:
        try:
            context.signal().close()
            ready.wait(1, timeout_s=0.01)
        except ceoverlap.CeoverlapError:
            pass
threading.Thread(target=work, args=(contexts[0],), daemon=True).start()
del cycle, plan, context
time.sleep(0.1)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=2 * TIMEOUT_S, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)


class Texts(Case):
    def test_nul_is_refused(self):
        context = self.host()
        buffer, signal = context.allocate(64), context.signal()
        for call in (lambda: buffer.share("a\0b"), lambda: signal.share("a\0b"),
                     lambda: context.find_buffer(1, "a\0b", 0),
                     lambda: context.find_signal(1, "a\0b", 0),
                     lambda: ceoverlap.Workspace(context, "a\0b", 64),
                     lambda: ceoverlap.AllGather(context, "a\0b", np.zeros(8)),
                     lambda: ceoverlap.Context(0, 2, "host", "/tmp/a\0b", deadline_s=1),
                     lambda: ceoverlap.Context(0, 2, "host", b"/tmp/a\0b", deadline_s=1)):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "NUL"):
                call()
        for name in (b"bytes", None, "\udc80"):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "must be a text"):
                buffer.share(name)

    def test_nonsense_in_the_environment(self):
        with mock.patch.dict("os.environ", CEOVERLAP_RANK="one"):
            with self.assertRaisesRegex(ceoverlap.InvalidError, "CEOVERLAP_RANK is 'one'"):
                ceoverlap.Context(place="host")

    def test_times(self):
        self.assertEqual(_object.ns(float("inf")), (1 << 63) - 1)
        self.assertEqual((_object.ns(0), _object.ns(1e-12), _object.ns(2)), (0, 1, 2 * 10 ** 9))
        for seconds in (-1, float("nan")):
            with self.assertRaises(ceoverlap.InvalidError):
                _object.ns(seconds)


if __name__ == "__main__":
    unittest.main()
