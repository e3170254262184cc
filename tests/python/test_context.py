# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Contexts: opening, closing, the log, and what exceptions carry."""

import ctypes
import gc
import logging
import os
import subprocess
import sys
import threading
import time
import unittest
import warnings
import weakref
from signal import alarm
from unittest import mock

import numpy as np

import ceoverlap
from ceoverlap import _abi, _gpus, _log
from rig import Case, Kept, logger_of, until


class Opening(Case):
    def test_facts(self):
        context = self.host(3)
        self.assertEqual((context.ranks, context.rank, context.n_ranks), ((0, 1, 2), 0, 3))
        self.assertEqual(context.place(2), ceoverlap.Place("host"))
        self.assertIn("(0, 1, 2) of 3", repr(context))
        self.assertTrue(context.is_open)
        context.barrier()
        self.assertEqual((context.n_processes, context.n_nodes, context.node, context.bootstrap,
                          context.has_daemon), (1, 1, 0, "alone", False))

    def test_facts_of_objects(self):
        context = self.host(2)
        signal = context.signal(3, rank=1)
        self.assertEqual((signal.n_counters, signal.name, signal.place, signal.is_host_visible),
                         (3, None, ceoverlap.Place("host"), True))
        signal.share("done")
        self.assertEqual(context.find_signal(1, "done").name, "done")
        source, target = context.allocate(64), context.allocate(64, rank=1)
        plan = context.plan()
        self.assertEqual((plan.n_transfers, plan.launch_bytes, plan.is_committed), (0, 0, False))
        ready = context.signal()
        plan.expect(ready.mark()).add(source=source, target=target, row_bytes=48,
                                      source_ready=ready.mark()).commit()
        self.assertEqual((plan.n_transfers, plan.launch_bytes, plan.is_committed,
                          plan.n_in_flight, plan.is_by_daemon), (1, 48, True, 0, False))
        ticket = plan.launch()
        self.assertEqual(plan.n_in_flight, 1)
        ready.raise_to(1)
        ticket.wait()
        self.assertEqual(plan.n_in_flight, 0)
        channels = [ceoverlap.Channel(context, "facts", rank) for rank in range(2)]
        self.assertEqual((channels[1].n_ranks, channels[1].ring_bytes, channels[1].is_connected),
                         (2, 1 << 20, False))
        channels[0].connect()
        self.assertTrue(channels[0].is_connected)

    def test_why_it_could_not_be_opened(self):
        with self.assertRaises(ceoverlap.InvalidError) as caught:
            ceoverlap.Context(5, 2, "host", "/tmp/none")
        self.assertIn("rank 5", caught.exception.failure.text)

    def test_threads_have_last_failures_of_their_own(self):
        """Called by ctypes, without a context; many threads come and go."""
        def ask():
            failure = _abi.ceov_failure()
            result = _abi.lib.ceov_last_failure(None, ctypes.byref(failure))
            return result, failure.text.decode()

        said = []

        def call(i):
            said.append((_abi.lib.ceov_barrier(None, 0) if i % 2 else
                         _abi.lib.ceov_turn(None), ask(), ask()[0]))

        self.assertEqual(_abi.lib.ceov_context_query(None, None), _abi.CEOV_ERR_INVALID)
        for i in range(200):
            thread = threading.Thread(target=call, args=(i,))
            thread.start()
            thread.join()
        names = ["ceov_turn", "ceov_barrier"] * 100
        self.assertEqual(said, [(_abi.CEOV_ERR_INVALID, (0, f"{name}: the context is NULL"),
                                 _abi.CEOV_NONE) for name in names])
        self.assertEqual(ask(), (0, "ceov_context_query: the context is NULL"))

    def test_one_node_loads_no_ucx(self):
        """In a process of its own: other tests may have opened nodes."""
        code = ("import ceoverlap\n"
                "with ceoverlap.Context(range(2), place='host') as context:\n"
                "    context.signal().raise_to(1)\n"
                "    names = open('/proc/self/maps').read()\n"
                "assert 'libceoverlap' in names, names\n"
                "assert not any(f'/libuc{x}.' in names for x in 'pst'), names\n")
        with mock.patch.dict(os.environ, CEOVERLAP_PLACE="host"):
            subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    def test_from_the_environment(self):
        with mock.patch.dict(os.environ, CEOVERLAP_PLACE="host", CEOVERLAP_RANK="0",
                             CEOVERLAP_RANKS="1"):
            with ceoverlap.Context() as context:
                self.assertEqual((context.ranks, context.n_ranks), ((0,), 1))
                self.assertEqual(context.place().kind, "host")
            with ceoverlap.Context(range(2)) as context:
                self.assertEqual(context.place(1).kind, "host")

    def test_alone_where_nothing_is_said(self):
        with mock.patch.dict(os.environ):
            for name in ("PLACE", "RANK", "RANKS", "GROUP"):
                os.environ.pop(f"CEOVERLAP_{name}", None)
            with ceoverlap.Context(logger=logger_of(Kept())) as context:
                self.assertIn(context.place().kind, ("host", "gpu"))
                context.signal().raise_to(1)

    def test_ranks_of_no_place_share_gpus(self):
        """Rank r is on GPU r modulo their number, and without one it is refused."""
        with mock.patch.object(_gpus, "count", return_value=2):
            self.assertEqual([_gpus.of_rank(rank) for rank in range(5)], [0, 1, 0, 1, 0])
        with mock.patch.object(_gpus, "DRIVER", "libnone.so.0"):
            self.assertEqual([_gpus.of_rank(rank) for rank in range(3)], [0, 1, 2])
        opened = mock.Mock(side_effect=ceoverlap.StateError("not opened"))
        with mock.patch.object(_gpus, "count", return_value=2), mock.patch.dict(os.environ), \
                mock.patch.object(ceoverlap.Context, "_open", opened):
            os.environ.pop("CEOVERLAP_PLACE", None)
            with self.assertRaises(ceoverlap.StateError):
                ceoverlap.Context(range(1, 4), 4)
        members = opened.call_args.args[0].members
        self.assertEqual([members[i].place.index for i in range(3)], [1, 0, 1])

    def test_refusals_name_the_cause(self):
        for arguments, text in (
                (dict(ranks=[0, 0], place="host"), "are both rank 0"),
                (dict(ranks=[4], n_ranks=2, place="host"), "rank 4"),
                (dict(ranks=[0], n_ranks=2, place="host"), "socket path"),
                (dict(ranks=[0], place="gpu:1000"), "GPU"),
                (dict(ranks=[0], place="gpu"), "gpu:N"),
                (dict(ranks=[0, 1], place=["host"]), "1 places for 2 ranks"),
                (dict(ranks=[], place="host"), "at least one"),
                (dict(ranks=0, place="host", group="/tmp/none"), "say n_ranks"),
                (dict(ranks=[0], place="host", deadline_s=-1), "from 0 on")):
            with self.subTest(arguments=arguments):
                with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                    ceoverlap.Context(logger=logger_of(Kept()), **arguments)

    def test_progress_by_caller(self):
        context = self.host(2, progress_by_caller=True)
        source = context.register(np.ones(64, np.uint8), 0)
        target = context.allocate(64, 1)
        plan = context.plan(0).add(source=source, target=target, row_bytes=64).commit()
        ticket = plan.launch()
        self.assertFalse(ticket.is_done())
        for _ in range(10000):
            context.turn()
            if ticket.is_done():
                break
        self.assertTrue((target.view() == 1).all())

    def test_streams(self):
        class Torch:
            cuda_stream = 0x55

        class Core:
            def __cuda_stream__(self):
                return 0, 0x66

        self.assertEqual([ceoverlap.stream_handle(one) for one in
                          (None, 0x44, Torch(), Core())], [None, 0x44, 0x55, 0x66])
        for nothing, text in ((0, "NULL stream"), ("0", "a str is no stream")):
            with self.assertRaisesRegex(ceoverlap.InvalidError, text):
                ceoverlap.stream_handle(nothing)

    def test_stream_calls_want_a_gpu_rank(self):
        context = self.host(1)
        with self.assertRaises(ceoverlap.InvalidError):
            context.stream_raise(0x44, [context.signal().mark()])
        with self.assertRaises(ceoverlap.InvalidError):
            context.stream_wait(0x44, [context.signal().mark()])
        plan = context.plan().add(then=context.signal().mark())
        with self.assertRaisesRegex(ceoverlap.StateError, "not committed"):
            plan.queue(0x44)
        with self.assertRaisesRegex(ceoverlap.InvalidError, "no streams"):
            plan.commit().queue(0x44)

    def test_mark_lists_know_closed_signals(self):
        context = self.host(1)
        signal = context.signal(2)
        marks = ceoverlap.MarkList([signal.mark(3), signal.mark(4, 1)])
        self.assertEqual([(mark.value, mark.index) for mark in marks], [(3, 0), (4, 1)])
        signal.close()
        with self.assertRaisesRegex(ceoverlap.StateError, "Signal is closed"):
            context.stream_raise(0x44, marks)
        with self.assertRaisesRegex(ceoverlap.StateError, "Signal is closed"):
            ceoverlap.MarkList([signal.mark()])


class Closing(Case):
    def test_twice_and_afterwards(self):
        context = self.host()
        signal, buffer = context.signal(), context.allocate(64)
        plan = context.plan()
        context.close()
        context.close()
        for call in (lambda: signal.value(), lambda: buffer.address(), plan.commit,
                     context.barrier, context.signal, lambda: context.last_failure()):
            with self.assertRaises(ceoverlap.StateError):
                call()
        for one in (signal, buffer, plan):
            self.assertFalse(one.is_open)
            self.assertTrue(one.release())
            one.close()
            self.assertIn("closed", repr(one))

    def test_waits_for_calls_of_other_threads(self):
        context = self.host()
        signal = context.signal()
        errors = []

        def wait():
            try:
                signal.wait(1)
            except ceoverlap.CeoverlapError as error:
                errors.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        time.sleep(0.05)
        started = time.monotonic()
        context.close()
        thread.join()
        self.assertLess(time.monotonic() - started, 2)
        self.assertIsInstance(errors[0], ceoverlap.StateError)

    def test_a_context_nobody_holds_is_closed(self):
        context = ceoverlap.Context([0], place="host")
        signal = context.signal()
        gone = weakref.ref(context)
        del context
        self.assertIsNotNone(gone())    # its objects hold it
        del signal
        gc.collect()
        self.assertTrue(until(lambda: gone() is None))  # by a thread of its own

    def test_an_interpreter_that_ends_with_all_open(self):
        program = ("import ceoverlap, numpy, threading\n"
                   "c = ceoverlap.Context(range(2), place='host')\n"
                   "s, b = c.signal(), c.register(numpy.zeros(8), 0)\n"
                   "p = c.plan().expect(s.mark()).add(source=b, target=c.allocate(64, 1),\n"
                   "    row_bytes=64, source_ready=s.mark()).commit()\n"
                   "p.launch()\n"
                   "threading.Thread(target=s.wait, args=(1,), daemon=True).start()\n")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                              timeout=20, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_forked_child(self):
        context = self.host()
        signal = context.signal()
        thread = threading.Thread(target=self.hold, args=(context,))
        thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")     # "may lead to deadlocks": we are careful
            child = os.fork()
        if child == 0:
            status = 1
            alarm(10)
            try:
                signal.value()
            except ceoverlap.ForkedError:
                with ceoverlap.Context([0], place="host") as own:
                    own.signal().raise_to(1)
                    with self.assertRaises(ceoverlap.ForkedError):
                        own.plan().expect(signal.mark())
                signal.close()
                context.close()
                del signal, context
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        thread.join()
        self.assertEqual(signal.value(), 0)

    @staticmethod
    def hold(context):
        """A thread that the fork meets in the middle of something."""
        with context._lock:
            time.sleep(0.3)


class Failures(Case):
    def test_text_of_a_refused_call(self):
        context = self.host()
        with self.assertRaises(ceoverlap.InvalidError) as caught:
            context.signal(0)
        self.assertIn("ceov_signal_create", str(caught.exception))
        self.assertEqual(caught.exception.code, -1)
        self.assertIsInstance(caught.exception, ValueError)
        self.assertEqual(caught.exception.failure.text, str(caught.exception))
        self.assertIsNone(context.last_failure())
        self.assertEqual(self.log.lines(logging.INFO), [])      # the exception tells it
        self.assertTrue(any("ceov_signal_create" in line for line in self.log.lines()))

    def test_each_thread_has_its_own_text(self):
        context = self.host()
        signal = context.signal(1)
        buffer = context.allocate(64)

        def fail(call, text, n):
            for _ in range(n):
                with self.assertRaisesRegex(ceoverlap.CeoverlapError, text):
                    call()

        from rig import in_threads
        in_threads(2, lambda i: fail(lambda: signal.value(9), "ceov_signal_value", 200) if i
                   else fail(lambda: context.allocate(0), "ceov_buffer_create", 200))
        buffer.close()

    def test_deadline_carries_rank_transfer_and_mark(self):
        context = self.host()
        ready, target = context.signal(), context.allocate(64, 1)
        source = context.register(np.zeros(64, np.uint8), 0)
        plan = context.plan(0).expect(ready.mark(5))
        plan.add(source=source, target=target, row_bytes=16)
        plan.add(source=ceoverlap.Spot(source, 16), target=ceoverlap.Spot(target, 16),
                 row_bytes=16, source_ready=ready.mark(5)).commit()
        ready.raise_to(3)
        ticket = plan.launch(deadline_s=1)      # transfer 0 has ended long before
        with self.assertRaises(ceoverlap.DeadlineError) as caught:
            ticket.wait()
        error = caught.exception
        self.assertIsInstance(error, TimeoutError)
        self.assertEqual((error.transfer, error.mark_value, error.seen_value), (1, 5, 3))
        self.assertEqual(error.rank, 0)
        self.assertIsInstance(error.failure, ceoverlap.Failure)
        self.assertIn("mark_value=5", repr(error.failure))
        with self.assertRaises(ceoverlap.DeadlineError):        # the same again
            ticket.is_done()
        with self.assertRaises(ceoverlap.CeoverlapError):       # its signals are aborted
            ready.wait(5, timeout_s=1)
        ready.renew()
        self.assertEqual(ready.value(), 0)
        self.assertTrue(any("transfer 1" in line for line in self.log.lines(logging.ERROR)))

    def test_a_logger_that_raises(self):
        class Bad(logging.Handler):
            def emit(self, record):
                raise RuntimeError("a handler's own")

        plan = self.waiting_plan(self.host(logger=logger_of(Bad())))
        unraisable = []
        with mock.patch.object(sys, "unraisablehook", unraisable.append):
            with self.assertRaises(ceoverlap.DeadlineError):
                plan.launch(deadline_s=0.05).wait()
        self.assertEqual(unraisable, [])

    def waiting_plan(self, context):
        """Its launches wait for a mark that nobody raises."""
        ready = context.signal()
        plan = context.plan(0).expect(ready.mark())
        plan.add(source=context.allocate(64, 0), target=context.allocate(64, 1), row_bytes=64,
                 source_ready=ready.mark())
        return plan.commit()

    def test_a_failure_is_told_of_its_own_call(self):
        context = self.host()
        ticket = self.waiting_plan(context).launch(deadline_s=0.05)
        time.sleep(0.2)                 # it has failed, and nobody has asked
        with self.assertRaises(ceoverlap.InvalidError) as caught:
            context.allocate(0)
        self.assertIn("ceov_buffer_create", str(caught.exception))
        self.assertIsNone(caught.exception.failure)
        with self.assertRaises(ceoverlap.DeadlineError) as caught:
            ticket.wait()
        self.assertEqual((caught.exception.transfer, caught.exception.mark_value), (0, 1))

    def test_last_failure(self):
        context = self.host()
        self.waiting_plan(context).launch(deadline_s=0.05)
        seen = []
        self.assertTrue(until(lambda: seen.append(context.last_failure()) or seen[-1]))
        failure = seen[-1]
        self.assertEqual((failure.code, failure.transfer), (-10, 0))
        self.assertIsNone(context.last_failure())

    def test_lines_of_the_librarys_threads_are_logged(self):
        with self.assertLogs("ceoverlap", logging.ERROR) as caught:
            with ceoverlap.Context(range(2), place="host") as context:
                with self.assertRaises(ceoverlap.DeadlineError):
                    self.waiting_plan(context).launch(deadline_s=0.05).wait()
        self.assertIn("ceoverlap[rank 0]: error: ", caught.output[0])

    def test_lines_are_taken_apart(self):
        self.assertEqual(_log.split("ceoverlap[rank 3]: warning: a: b"), ("warning", "a: b"))
        self.assertEqual(_log.split("what is this"), ("info", "what is this"))

    def test_every_code_has_its_class(self):
        for code in range(-14, 0):
            error = ceoverlap.errors.make(code, "text")
            self.assertEqual((error.code, str(error)), (code, "text"))
            self.assertNotIn(type(error), (ceoverlap.CeoverlapError,))
            self.assertIsNone(error.rank)
        self.assertIs(type(ceoverlap.errors.make(-99, "text")), ceoverlap.CeoverlapError)


if __name__ == "__main__":
    unittest.main()
