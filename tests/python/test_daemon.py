# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A context whose data a daemon moves: the daemon's death, and going on with the next one."""

import os
import signal
import socket
import subprocess
import tempfile
import unittest

import numpy as np

import ceoverlap
from rig import Case, until

DAEMON = os.path.join(os.getcwd(), "ceoverlapd")


@unittest.skipUnless(os.access(DAEMON, os.X_OK), "built without the daemon")
class DaemonTest(Case):
    def start(self):
        process = subprocess.Popen([DAEMON, "--socket", self.path], stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertTrue(until(self.listens))
        return process

    def listens(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.path) == 0

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "d.sock")
        os.environ["CEOVERLAP_DAEMON"] = self.path
        self.addCleanup(os.environ.pop, "CEOVERLAP_DAEMON")

    def test_a_context_goes_on_with_the_next_daemon(self):
        daemon = self.start()
        context = self.host(2)
        source, target = context.allocate(1000, rank=0), context.allocate(1000, rank=1)
        ready, arrived = context.signal(rank=0), context.signal(rank=1)
        plan = context.plan(0).add(source=source, target=target, row_bytes=1000,
                                   source_ready=ready.mark(1), then=arrived.mark(1))
        plan.expect(ready.mark(1)).commit()
        self.assertIn("by the daemon", plan.explain())
        ticket = plan.launch()
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        with self.assertRaises(ceoverlap.DaemonLostError):
            ticket.wait()
        with self.assertRaises(ceoverlap.DeadlineError):
            context.reopen(timeout_s=0.2)
        self.start()
        context.reopen()
        np.asarray(source.view())[:] = 7
        ticket = plan.launch()
        ready.raise_to(1)
        ticket.wait()
        self.assertEqual(arrived.value(), 1)
        self.assertTrue((np.asarray(target.view()) == 7).all())


if __name__ == "__main__":
    unittest.main()
