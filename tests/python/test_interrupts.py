# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Ctrl-C: real processes that get SIGINT while the main thread is in a call that lasts."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import ceoverlap
from ceoverlap import _lasting, _log
from rig import FOLDER, TIMEOUT_S, Case, Kept, logger_of

DEADLINE_S = 60                         # of every wait: no test takes that long
PROMPT_S = 8                            # far less, and much on a slow machine

HEAD = f"""
import os, signal, subprocess, sys, time
import ceoverlap
import numpy as np
signal.signal(signal.SIGINT, signal.default_int_handler)
group = os.path.join(sys.argv[1], "group")
kept = []

def interrupted(call):
    started = time.monotonic()
    try:
        print("ready", flush=True)
        call()
    except KeyboardInterrupt as error:
        kept.append(error)              # as a notebook does, and with it what its frames hold
        took = time.monotonic() - started
        assert took < {PROMPT_S}, took
        print("interrupted", flush=True)
    else:
        print("returned", flush=True)

def two_ranks(**options):
    return ceoverlap.Context(range(2), place="host", deadline_s={DEADLINE_S}, **options)
"""


class Interrupts(unittest.TestCase):
    def interrupt(self, program):
        """SIGINT to the program in its call; the program ends well, and has nothing to say
        of exceptions that nobody got."""
        with tempfile.TemporaryDirectory() as folder:
            process = subprocess.Popen(
                [sys.executable, "-c", HEAD + textwrap.dedent(program), folder], cwd=FOLDER,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True)
            try:
                self.assertEqual(process.stdout.readline(), "ready\n")
                time.sleep(0.3)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=TIMEOUT_S)
            finally:
                process.kill()
                process.communicate()
        self.assertEqual((process.returncode, out), (0, "interrupted\n"), err)
        self.assertNotIn("Exception ignored", err)
        return err

    def test_open(self):
        self.interrupt(f"""
            interrupted(lambda: ceoverlap.Context(0, 2, "host", group,
                                                  deadline_s={DEADLINE_S}))
        """)

    def test_open_that_fails_meanwhile(self):
        """The library has written its line when the handler runs, at the latest."""
        self.interrupt("""
            interrupted(lambda: ceoverlap.Context(0, 2, "host", group, deadline_s=1.5))
            time.sleep(1.5)
        """)

    def test_open_that_succeeds_afterwards(self):
        """The context that nobody wants any more is closed."""
        self.interrupt(f"""
            tasks = "/proc/self/task"
            n_tasks = len(os.listdir(tasks)) + 1        # and the helper's
            interrupted(lambda: ceoverlap.Context(0, 2, "host", group,
                                                  deadline_s={DEADLINE_S}))
            assert len(os.listdir(tasks)) >= n_tasks
            peer = "import sys, ceoverlap; ceoverlap.Context(1, 2, 'host', sys.argv[1])"
            subprocess.run([sys.executable, "-c", peer, group], check=True)
            end = time.monotonic() + 10
            while len(os.listdir(tasks)) > n_tasks:
                assert time.monotonic() < end, os.listdir(tasks)
                time.sleep(0.01)
        """)

    def test_barrier(self):
        self.interrupt(f"""
            pid = os.fork()
            context = ceoverlap.Context(0 if pid else 1, 2, "host", group,
                                        deadline_s={DEADLINE_S})
            if not pid:
                time.sleep(1.5)
                context.barrier()
                os._exit(0)
            interrupted(context.barrier)
            context.barrier()           # the same round
            assert os.waitpid(pid, 0)[1] == 0
            context.close()
        """)

    def test_operator(self):
        self.interrupt("""
            context = two_ranks()
            size = ceoverlap.AllReduce.scratch_bytes([8, 8], "float16")
            spaces = [ceoverlap.Workspace(context, "w", size, rank) for rank in range(2)]
            ops = [ceoverlap.AllReduce(space.connect(), [8, 8], "float16")
                   for space in spaces]
            values = np.zeros(16, np.float16)
            interrupted(lambda: ops[0].run(values))
            for op in ops:              # at all ranks
                try:
                    op.run(values)
                except ceoverlap.AbortedError:
                    continue
                raise AssertionError("a run of an aborted workspace")
            context.close()
        """)

    def test_channel(self):
        self.interrupt("""
            context = two_ranks()
            channels = [ceoverlap.Channel(context, "c", rank) for rank in range(2)]
            for channel in channels:
                channel.connect()
            interrupted(lambda: channels[0].all_reduce(np.zeros(16)))
            for channel in channels:    # at all ranks
                try:
                    channel.all_reduce(np.zeros(16))
                except ceoverlap.AbortedError:
                    continue
                raise AssertionError("a call of an aborted channel")
            again = [ceoverlap.Channel(context, "d", rank) for rank in range(2)]
            for channel in again:
                channel.connect()
            again[0].send(b"x", 1)      # no interrupt is left over
            again[1].receive(bytearray(1), 0)
            context.close()
        """)

    def test_channel_where_others_want_to_know_of_signals(self):
        """As asyncio does: they are told, and their descriptor is in its place again. A handler
        of the program's own does not end the call."""
        self.interrupt("""
            import threading
            context, handled = two_ranks(), []
            channels = [ceoverlap.Channel(context, "c", rank) for rank in range(2)]
            for channel in channels:
                channel.connect()
            read, write = os.pipe()
            os.set_blocking(write, False)
            signal.set_wakeup_fd(write)
            signal.signal(signal.SIGINT, lambda *_: handled.append(1))
            threading.Timer(1, channels[1].barrier).start()
            print("ready", flush=True)
            channels[0].barrier()
            assert handled == [1]
            assert os.read(read, 9) == bytes([signal.SIGINT])
            assert signal.set_wakeup_fd(-1) == write
            channels[0].check()
            print("interrupted", flush=True)
            context.close()
        """)

    def test_wait_of_a_signal(self):
        self.interrupt("""
            context = two_ranks()
            interrupted(lambda: context.signal().wait(1))
            context.close()
        """)

    def test_find(self):
        self.interrupt("""
            context = two_ranks()
            interrupted(lambda: context.find_buffer(1, "nobody's"))
            context.close()
        """)

    def test_connect(self):
        self.interrupt("""
            context = two_ranks()
            space = ceoverlap.Workspace(context, "w", 4096)
            interrupted(space.connect)
            context.close()
        """)

    def test_ticket_and_close_of_a_plan(self):
        for call in ("ticket.wait", "plan.close"):
            with self.subTest(call=call):
                self.interrupt(f"""
                    context = two_ranks()
                    ready = context.signal()
                    plan = context.plan().expect(ready.mark()).add(source_ready=ready.mark())
                    ticket = plan.commit().launch()
                    interrupted({call})
                    ready.raise_to(1)
                    ticket.wait()
                    plan.close()
                    context.close()
                """)


STORM = """
import random, signal, sys, threading, time
import ceoverlap

class Interrupt(BaseException):
    pass

is_armed = False

def interrupt(*_arguments):
    global is_armed
    if is_armed:
        is_armed = False
        raise Interrupt

def work(context, number):
    ready, source = context.signal(), context.register(bytearray(64), 0)
    plan = context.plan(0).expect(ready.mark())
    plan.add(source=source, target=context.allocate(64, 1), row_bytes=64,
             source_ready=ready.mark()).commit()
    ticket = plan.launch()
    if number < 0.3:
        ticket.abort()                  # and all is forgotten
        return
    ready.raise_to(1)
    ticket.wait()
    if number < 0.7:
        plan.close()
        source.close()

seed = int(sys.argv[1])
print("seed", seed)
random = random.Random(seed)
signal.signal(signal.SIGALRM, interrupt)
context = ceoverlap.Context(range(2), place="host", deadline_s=20)
end = time.monotonic() + 1.5
n = 0
while time.monotonic() < end:
    try:
        is_armed = True
        signal.setitimer(signal.ITIMER_REAL, 0.0001 + 0.004 * random.random())
        work(context, random.random())
        is_armed = False
    except Interrupt:
        n += 1
signal.setitimer(signal.ITIMER_REAL, 0)         # at its end the interpreter handles none
started = time.monotonic()
context.close()
assert time.monotonic() - started < 10
assert n > 10, n
"""


class Storm(unittest.TestCase):
    def test_interrupts_anywhere(self):
        """What they leave half done, the context closes, and waits for no call that is not."""
        seed = int(os.environ.get("CEOVERLAP_TEST_SEED") or random.getrandbits(32))
        done = subprocess.run([sys.executable, "-c", STORM, str(seed)], capture_output=True,
                              text=True, timeout=2 * TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Lasting(Case):
    def test_results_and_errors_come_back(self):
        self.assertEqual(_lasting.call(lambda: threading.get_ident() !=
                                       threading.main_thread().ident), True)
        with self.assertRaisesRegex(KeyError, "this one"):
            _lasting.call(lambda: {}["this one"])
        n = len(_lasting._idle)
        for _ in range(20):
            _lasting.call(lambda: None)
        self.assertEqual(len(_lasting._idle), n)        # one thread, again and again

    def test_other_threads_call_themselves(self):
        idents = []
        thread = threading.Thread(target=lambda: idents.append(
            (_lasting.call(threading.get_ident), threading.get_ident())))
        thread.start()
        thread.join()
        self.assertEqual(idents[0][0], idents[0][1])

    def test_stop_is_called(self):
        go_on = threading.Event()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()

        def handler(_number, _frame):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, handler)
        try:
            with self.assertRaises(KeyboardInterrupt):
                _lasting.call(lambda: go_on.wait(TIMEOUT_S), go_on.set)
        finally:
            signal.signal(signal.SIGUSR1, before)
        self.assertTrue(go_on.is_set())

    def test_an_interrupt_in_the_log_callback_is_raised(self):
        """As where a handler of signals runs in the middle of it."""
        class Line(bytes):
            def decode(self, *_arguments, **_options):
                raise KeyboardInterrupt

        outer = _log.begin_call()
        _log.function_of(logger_of(Kept()))(None, Line(b"line"))
        with self.assertRaises(KeyboardInterrupt):
            _log.end_call(outer)

    def test_waits_take_their_time(self):
        context = self.host(2)
        started = time.monotonic()
        with self.assertRaises(ceoverlap.PendingError):
            context.signal().wait(1, timeout_s=0.25)
        self.assertGreaterEqual(time.monotonic() - started, 0.25)
        context.barrier(0)              # alone: nobody is missing


if __name__ == "__main__":
    unittest.main()
