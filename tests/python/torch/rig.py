# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""What the tests share: ranks as processes with a torch.distributed process group, and data
whose sums are exact. Rank r is on GPU r modulo the number of GPUs; without GPUs ranks are on
the host. With CEOVERLAP_TEST_NODES=2 the ranks act as those of two nodes.

Processes that share a GPU get it in turns of some 2 ms. What is right without sharing is
right then, but each time that one rank waits for another takes some turns, so bounds of time
go through patience(), and sizes are smaller where SHARES_GPUS says so. NCCL takes no two
ranks of one GPU: the process group is gloo's then, which copies through host memory."""

import atexit
import contextlib
import datetime
import logging
import multiprocessing
import multiprocessing.connection
import os
import random
import sys
import threading
import time
import traceback
import unittest
from unittest import mock

import torch
import torch.distributed as dist

import ceoverlap
from ceoverlap.torch import group as group_module

# Behind: the folder above has a rig, too.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from kept import Kept  # noqa: E402

HAS_GPUS = torch.cuda.is_available()
N_GPUS = torch.cuda.device_count() if HAS_GPUS else 0
SIZE = int(os.environ.get("CEOVERLAP_TEST_RANKS", 0)) or (
    max(2, min(4, N_GPUS)) if HAS_GPUS else 3)
SHARES_GPUS = HAS_GPUS and SIZE > N_GPUS
N_NODES = int(os.environ.get("CEOVERLAP_TEST_NODES", 0)) or 1
TURNS = 5                               # how much more time ranks get that share a GPU
TEST_S = int(os.environ.get("CEOVERLAP_TEST_TIMEOUT", 600))     # of all tests that run together


def _has_network() -> bool:
    """Whether two nodes can meet, which two threads of this process play."""
    told, both, failures = [b"", b""], threading.Barrier(2), []

    def all_gather(own, _):
        told[int(threading.current_thread().name)] = own
        both.wait(20)
        answer = list(told)
        both.wait(20)                   # until both have it, before the next one is told
        return answer

    def open_node():
        number = int(threading.current_thread().name)
        try:
            ceoverlap.Context(number, 2, "host", network=ceoverlap.Network(
                all_gather, process=number, n_processes=2, node=str(number))).close()
        except ceoverlap.errors.CeoverlapError as error:
            failures.append(error)

    threads = [threading.Thread(target=open_node, name=str(i)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in failures:
        if "cannot reach others" not in str(error):
            raise error
    return not failures


def patience(seconds: float) -> float:
    """A bound of time for ranks that have a GPU each or are on the host; more where they
    take turns on one."""
    return seconds * TURNS if SHARES_GPUS else seconds


START_S = patience(150.0)               # until all ranks are there: each imports PyTorch
LIMIT_S = patience(60.0)                # of a function that all ranks run
GRACE_S = patience(3.0)                 # for the other ranks, once one has failed
SEED = int(os.environ.setdefault("CEOVERLAP_TEST_SEED", str(random.randrange(10 ** 6))))
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")     # no processes of its own
needs_gpus = unittest.skipUnless(HAS_GPUS, "needs a GPU")
needs_one_node = unittest.skipUnless(N_NODES == 1, "is about ranks of one node")
needs_network = unittest.skipUnless(_has_network(), "UCX is not installed, or not built in")


# --- the ranks' side --------------------------------------------------------------------


def device() -> torch.device:
    """Where this rank's tensors are."""
    return (torch.device("cuda", torch.cuda.current_device()) if HAS_GPUS
            else torch.device("cpu"))


def integers(tag: int, rank: int, shape, dtype=torch.float32) -> torch.Tensor:
    """Numbers of -1, 0 and 1, the same for the same tag and rank at every rank."""
    generator = torch.Generator().manual_seed((SEED * 1009 + tag) * 64 + rank)
    return torch.randint(-1, 2, tuple(shape), generator=generator).to(device(), dtype)


def normal(tag: int, rank: int, shape, dtype=torch.float32) -> torch.Tensor:
    """The like with a normal distribution."""
    generator = torch.Generator().manual_seed((SEED * 1009 + tag) * 64 + rank)
    return torch.randn(tuple(shape), generator=generator).to(device(), dtype)


def equal(got: torch.Tensor, expected: torch.Tensor, what) -> None:
    """Shape, dtype and every number."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        raise AssertionError(f"{what}: {tuple(got.shape)} {got.dtype}, expected "
                             f"{tuple(expected.shape)} {expected.dtype}")
    if not torch.equal(got, expected):
        n = (got != expected).sum().item()
        raise AssertionError(f"{what}: {n} of {got.numel()} numbers differ\n{got}\n{expected}")


def raises(kind, text: str, function, *args, **options) -> None:
    """The call is refused by an exception of that kind that contains the text."""
    try:
        function(*args, **options)
    except kind as error:
        if text not in str(error):
            raise AssertionError(f"{error!r} does not say {text!r}") from error
        return
    raise AssertionError(f"no {kind.__name__} was raised")


@contextlib.contextmanager
def logged():
    """Keeps the lines that ceoverlap logs meanwhile, from level info on."""
    handler, logger = Kept(), logging.getLogger("ceoverlap")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield handler
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


def by_operators(function, *args):
    """function(*args) with groups whose moves and sums go by operators, as those of ranks on GPUs
    and on several nodes do, and not by channels."""
    groups = list(group_module._groups.values())
    channels = [group.channel for group in groups]
    try:
        with mock.patch.object(group_module.Group, "_make_channel", lambda *_: None):
            for group in groups:
                group.channel = None
            return function(*args)
    finally:
        for group, channel in zip(groups, channels):
            group.channel = channel


def backend_of(size: int) -> str:
    """The process group's for that many ranks: NCCL where each has a GPU, else gloo."""
    return "nccl" if HAS_GPUS and size <= N_GPUS else "gloo"


def _serve(rank: int, size: int, port: int, pipe, backend: str) -> None:
    torch.set_num_threads(1)
    if N_NODES > 1:
        os.environ["CEOVERLAP_NODE"] = f"node {rank * N_NODES // size}"
    if HAS_GPUS:
        torch.cuda.set_device(rank % N_GPUS)
    store = dist.TCPStore("127.0.0.1", port, None, False,
                          datetime.timedelta(seconds=START_S))
    dist.init_process_group(backend, store=store, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=LIMIT_S))
    pipe.send((True, None))
    while True:
        try:
            task = pipe.recv()
        except EOFError:                # the test has gone
            os._exit(1)
        if task is None:
            break
        function, args = task
        try:
            result = True, function(*args)
        except BaseException:
            result = False, f"rank {rank}: {traceback.format_exc()}"
        pipe.send(result)
    dist.barrier()
    for group in list(group_module._groups.values()):
        group.close()
    dist.destroy_process_group()


# --- the test's side --------------------------------------------------------------------


class World:
    """Ranks that run functions of the test modules until it is closed. The store is the
    test's, so that a rank may die without taking it away. backend: the process group's."""

    def __init__(self, size: int = SIZE, backend: str = ""):
        self.size = size
        self._store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
        context = multiprocessing.get_context("spawn")
        self._pipes, self._processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, daemon=True,
                                      args=(rank, size, self._store.port, theirs,
                                            backend or backend_of(size)))
            process.start()
            theirs.close()
            self._pipes.append(ours)
            self._processes.append(process)
        self._gather(START_S, ())

    def run(self, function, *args, limit_s: float = LIMIT_S, dying=()):
        """function(*args) at all ranks: their results by rank. AssertionError with what a
        rank raised, or that it did not come back in time; then the world is gone. Ranks in
        dying are expected to exit."""
        for pipe in self._pipes:
            pipe.send((function, args))
        return self._gather(limit_s, dying)

    def _gather(self, limit_s: float, dying):
        results, failures = [None] * self.size, []
        waiting = set(range(self.size))
        deadline = time.monotonic() + limit_s
        while waiting and time.monotonic() < deadline:
            multiprocessing.connection.wait([self._pipes[rank] for rank in waiting],
                                            deadline - time.monotonic())
            for rank in [rank for rank in waiting if self._pipes[rank].poll()]:
                waiting.discard(rank)
                is_right, results[rank] = self._receive(rank, rank in dying)
                if not is_right:
                    failures.append(results[rank])
                    deadline = min(deadline, time.monotonic() + GRACE_S)
        failures += [f"rank {rank}: no end" for rank in waiting]
        if failures:
            self.kill()
            raise AssertionError("\n".join(failures))
        return results

    def _receive(self, rank: int, is_dying: bool):
        try:
            return self._pipes[rank].recv()
        except EOFError:
            return is_dying, f"rank {rank}: has died"

    @property
    def is_open(self) -> bool:
        return bool(self._processes)

    def close(self) -> None:
        """The ranks end by themselves; AssertionError where they do not, or not well."""
        for pipe in self._pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        deadline = time.monotonic() + LIMIT_S
        for process in self._processes:
            process.join(max(deadline - time.monotonic(), 0))
        codes = [process.exitcode for process in self._processes]
        self.kill()
        if any(codes):
            raise AssertionError(f"exit codes of the ranks: {codes}")

    def kill(self) -> None:
        for process in self._processes:
            process.kill()
            process.join()
            process.close()
        for pipe in self._pipes:
            pipe.close()
        self._processes, self._pipes, self._store = [], [], None


_shared = None


def run(function, *args, limit_s: float = LIMIT_S):
    """World.run() in one world of SIZE for all tests; a new one after a failure."""
    global _shared
    if _shared is None or not _shared.is_open:
        _shared = World()
    return _shared.run(function, *args, limit_s=limit_s)


def renew() -> None:
    """The next run() makes new ranks: for tests after which lanes take no more, for one."""
    global _shared
    world, _shared = _shared, None
    if world is not None:
        world.kill()


def close() -> None:
    """Ends that world."""
    global _shared
    world, _shared = _shared, None
    if world is not None and world.is_open:
        world.close()


@atexit.register
def _close_at_exit() -> None:
    if _shared is not None:
        _shared.kill()
    sys.stdout.flush()
