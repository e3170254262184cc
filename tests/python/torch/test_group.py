# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Groups: meeting, exchanging, agreeing, deadlines, several at once, closing."""

import concurrent.futures
import os
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

import rig
import torch
import torch.distributed as dist

from ceoverlap import errors
from ceoverlap.torch import Group, all_reduce
from ceoverlap.torch import group as group_module

SHORT_S = rig.patience(1.5)
HEAD_START_S = rig.patience(0.3)        # of one thread before the other


def exchanges():
    group = Group.of()
    assert (group.rank, group.size) == (dist.get_rank(), dist.get_world_size())
    assert group.device == rig.device() and group.is_open
    for i in range(3):
        told = group.exchange(f"{i} of rank {group.rank}")
        assert told == [f"{i} of rank {rank}" for rank in range(group.size)], told
    assert Group.of() is group and Group.of(dist.group.WORLD) is group
    assert Group.of(group.name) is group and Group.of(group) is group


def agrees():
    group = Group.of()
    group.agree("shape", "the same")
    last = group.size - 1
    rig.raises(errors.InvalidError, f"rank {last} has other", group.agree, "shape",
               "other" if group.rank == last else "the same")
    group.agree("shape", "the same again")


def misses_a_rank():
    """Rank 0 does not come."""
    group = Group(deadline_s=SHORT_S)
    start = time.monotonic()
    if group.rank:
        rig.raises(errors.DeadlineError, "rank 0 of", group.exchange, "here")
        assert time.monotonic() - start < SHORT_S + rig.patience(5)
    dist.barrier()
    group.close()


def meets_twice():
    """Two groups of all ranks, and one of some."""
    first, second = Group(), Group()
    assert first.name != second.name
    parts = dist.new_group([0, 1])
    third = Group.of(parts) if first.rank < 2 else None
    for group in (first, second, third, second, first):
        if group is not None:
            x = torch.full((24,), group.rank + 1.0, device=group.device)
            n = group.size
            rig.equal(all_reduce(x, group), torch.full_like(x, n * (n + 1) / 2), group)
    if third is None:
        rig.raises(errors.InvalidError, "not in the process group", Group, parts)
        rig.raises(errors.InvalidError, "not in the process group", all_reduce, torch.ones(8), parts)
    for group in (third, second, first):
        if group is not None:
            group.close()


def two_threads():
    """A pool of threads on this rank's GPU: which one is current, each thread has to say."""
    on_gpu = {"initializer": torch.cuda.set_device, "initargs": (rig.device(),)}
    return concurrent.futures.ThreadPoolExecutor(2, **(on_gpu if rig.HAS_GPUS else {}))


def crosses(first_calls):
    """Two threads come to two groups, rank 0's in one order and the others' in the other one, so
    that each thread waits for ranks whose other thread waits, too. first_calls: the threads make
    the groups as well."""
    made = [dist.new_group(list(range(dist.get_world_size()))) for _ in range(2)]
    if not first_calls:
        made = [Group(one) for one in made]
    rank, size = dist.get_rank(), dist.get_world_size()

    def call(which):
        group = Group.of(made[which])
        x = torch.full((64,), rank + 1.0, device=group.device)
        rig.equal(all_reduce(x, group), torch.full_like(x, size * (size + 1) / 2), which)

    def body(is_second):
        if is_second:
            time.sleep(HEAD_START_S)
        call(is_second != (rank == 0))

    with two_threads() as pool:
        for done in [pool.submit(body, is_second) for is_second in (False, True)]:
            done.result(rig.LIMIT_S / 2)
    dist.barrier()
    for one in made:
        Group.of(one).close()


def makes_one():
    """Two threads ask for the Group of a process group that has none."""
    made = dist.new_group(list(range(dist.get_world_size())))
    with two_threads() as pool:
        first, second = pool.map(Group.of, [made, made])
    assert first is second
    dist.barrier()
    first.close()


def closes():
    group = Group()
    x = torch.ones(8 * group.size, device=group.device)
    all_reduce(x, group)
    name = group.name
    group.close()
    group.close()
    assert not group.is_open
    rig.raises(errors.InvalidError, "no group is named", all_reduce, x, name)


def is_on_two_nodes():
    """The last rank is on another node."""
    one = Group.of()
    node = "another" if one.rank == one.size - 1 else "one"
    with mock.patch.object(group_module, "_node_id", lambda: node):
        group = Group()
    assert one.n_nodes == rig.N_NODES and group.n_nodes == 2
    for i in range(3):
        x = torch.full((24,), group.rank + i + 1.0, device=group.device)
        total = sum(rank + i + 1.0 for rank in range(group.size))
        rig.equal(all_reduce(x, group), torch.full_like(x, total), group)
    group.close()


class Groups(unittest.TestCase):

    def test_exchange(self):
        rig.run(exchanges)

    def test_host_allreduce(self):
        rig.run(agrees)

    def test_deadline(self):
        rig.run(misses_a_rank)

    def test_two_groups_at_once(self):
        rig.run(meets_twice)

    def test_threads_that_cross(self):
        for first_calls in (False, True):
            with self.subTest(first_calls=first_calls):
                rig.run(crosses, first_calls)

    def test_threads_that_make_one_group(self):
        rig.run(makes_one)

    def test_close(self):
        rig.run(closes)

    @rig.needs_network
    def test_ranks_on_two_nodes(self):
        rig.run(is_on_two_nodes)

    def test_nothing_to_meet_by_is_refused(self):
        with mock.patch.dict(os.environ):
            for name in ("RANK", "WORLD_SIZE"):
                os.environ.pop(name, None)
            with self.assertRaisesRegex(errors.InvalidError, "torchrun"):
                Group(device="cpu")


class Torchrun(unittest.TestCase):

    PROGRAM = """
import os, torch
from ceoverlap.torch import Group, all_reduce
if torch.cuda.is_available():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
group = Group()
y = all_reduce(torch.ones(16, device=group.device), group)
assert y.tolist() == [2.0] * 16, y
group.close()
print("rank", group.rank, "is right")
"""

    AGAIN = """
import gc, os, torch, torch.distributed as dist
from ceoverlap.torch import Group, all_reduce
is_gpu = torch.cuda.is_available()
if is_gpu:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
has_one_each = is_gpu and torch.cuda.device_count() >= 2
groups = []
for i in range(2):
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), None, False)
    store = dist.PrefixStore(f"process group {i}", store)
    dist.init_process_group("nccl" if has_one_each else "gloo", store=store, world_size=2,
                            rank=int(os.environ["RANK"]))
    groups.append(Group.of())
    dist.barrier()
    if i:
        assert groups[0] is not groups[1] and groups[0].name == groups[1].name
        groups[0].close()
        y = all_reduce(torch.ones(16, device=groups[1].device), groups[1].name)
        assert y.tolist() == [2.0] * 16, y
        dist.barrier()
    dist.destroy_process_group()
    gc.collect()
groups.append(Group.of())
assert groups[2] not in groups[:2], "torchrun's, not one of a group that has gone"
for group in groups[1:]:
    group.close()
print("rank", groups[2].rank, "is right")
"""

    DESTROYED = """
import os, torch, torch.distributed as dist
import ceoverlap.torch as ct
from ceoverlap import errors
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
store = dist.TCPStore("127.0.0.1", 0, 1, True)
os.environ["MASTER_PORT"] = str(store.port)
dist.init_process_group("gloo", store=store, rank=0, world_size=1)
dist.destroy_process_group()
try:
    ct.all_reduce(torch.ones(8))
except errors.StateError as error:
    assert "init_process_group() again" in str(error), error
    print("is right")
"""

    def test_process_group_that_is_destroyed(self):
        done = subprocess.run([sys.executable, "-c", self.DESTROYED], capture_output=True,
                              text=True, timeout=rig.LIMIT_S, check=False,
                              env={**os.environ, "TORCHELASTIC_USE_AGENT_STORE": ""})
        self.assertIn("is right", done.stdout, done.stderr)

    LATE = """
import os, sys
from ceoverlap import errors
from ceoverlap.torch import Group
os.environ.update(RANK=sys.argv[1], WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
try:
    Group(device="cpu", deadline_s=2)
except errors.StateError as error:
    print(error)
"""

    def test_a_rank_that_is_late(self):
        """The others are told that it is, or, where it serves the store, that nobody does."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for rank, told in ((0, "not all ranks have come to the store"), (1, "nobody serves the store")):
            done = subprocess.run([sys.executable, "-c", self.LATE, str(rank), str(port)],
                                  capture_output=True, text=True, timeout=rig.LIMIT_S, check=False,
                                  env={**os.environ, "TORCHELASTIC_USE_AGENT_STORE": ""})
            self.assertIn(f"rank {rank}: no process group is there, and {told} at 127.0.0.1:{port} "
                          "within 2 s: start all ranks together", done.stdout, done.stderr)

    def run_program(self, text):
        """By torchrun, whose store the ranks share."""
        with tempfile.TemporaryDirectory(prefix="ceoverlap-torchrun-") as folder:
            path = os.path.join(folder, "program.py")
            with open(path, "w", encoding="ascii") as file:
                file.write(text)
            done = subprocess.run(
                [sys.executable, "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", "2", path], capture_output=True, text=True,
                timeout=rig.LIMIT_S, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("is right"), 2, done.stdout)

    def test_environment(self):
        """Without torch.distributed being initialised."""
        self.run_program(self.PROGRAM)

    def test_process_groups_that_end_and_begin(self):
        """Under the same names; then none."""
        self.run_program(self.AGAIN)


if __name__ == "__main__":
    unittest.main()
