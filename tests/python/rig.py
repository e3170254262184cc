# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the tests share: contexts on host ranks, ranks as threads, ranks as processes."""

import logging
import os
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import unittest

import ceoverlap
from kept import Kept

TIMEOUT_S = 20.0
FOLDER = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(FOLDER))


def logger_of(handler):
    """A logger of a test's own."""
    logger = logging.Logger("test", logging.DEBUG)
    logger.addHandler(handler)
    return logger


def until(is_true, timeout_s=TIMEOUT_S):
    """Whether is_true() has become true in time."""
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)
    return True


class Case(unittest.TestCase):
    """A test with a context per n_ranks host ranks, closed at its end."""

    def host(self, n_ranks=2, **options):
        self.log = Kept()
        options.setdefault("deadline_s", TIMEOUT_S)
        options.setdefault("logger", logger_of(self.log))
        context = ceoverlap.Context(range(n_ranks), place="host", **options)
        self.addCleanup(context.close)
        return context


def in_threads(n, function):
    """function(rank) on a thread each; returns the results, raises the first error."""
    results, failures = [None] * n, []

    def body(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * TIMEOUT_S)
    if any(thread.is_alive() for thread in threads):
        raise AssertionError("a rank's thread has no end")
    if failures:
        raise failures[0]
    return results


def _reserve_port():
    """A socket that keeps its port from others, while a server that reuses addresses, as a group's
    store does, can listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def _of_nodes(port, n, n_nodes, rank):
    """What makes n processes act as so many nodes, which meet at a port."""
    return {"CEOVERLAP_BOOTSTRAP": "store", "CEOVERLAP_STORE": f"127.0.0.1:{port}",
            "CEOVERLAP_PROCESS": str(rank), "CEOVERLAP_PROCESSES": str(n),
            "CEOVERLAP_NODE": f"node {rank * n_nodes // n}", "CEOVERLAP_TRANSPORTS": "tcp",
            "UCX_LOG_LEVEL": "fatal"}


def in_processes(n, program, n_nodes=1, has_ranks=True):
    """The program's text in n processes, each a rank of a group by its environment, of so many
    nodes; returns [(exit status, output)]. Without has_ranks a process of several nodes only gets
    its number. Each process ends by itself or is killed."""
    with tempfile.TemporaryDirectory() as folder, _reserve_port() as reserved:
        processes = []
        try:
            for rank in range(n):
                environment = dict(os.environ, CEOVERLAP_PLACE="host")
                if n_nodes == 1:
                    environment["CEOVERLAP_GROUP"] = os.path.join(folder, "group")
                else:
                    environment.update(_of_nodes(reserved.getsockname()[1], n, n_nodes, rank))
                if has_ranks:
                    environment.update(CEOVERLAP_RANK=str(rank), CEOVERLAP_RANKS=str(n))
                processes.append(subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(program)], env=environment,
                    cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT, text=True))
            return [(process.wait(2 * TIMEOUT_S), process.stdout.read())
                    for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
                process.stdout.close()
