# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's own tests of process groups, from its installed package, with our backend.

    c10d_suite.py TEST...       runs them, and ends with a line of JSON: what became of each
                                ("absent": this version of PyTorch does not have it), and how many
                                calls of each kind our backend made
    c10d_suite.py               prints the names of all

CEOVERLAP_TEST_C10D says which backend: "ceov" (the default); "as-gloo", which is ours under the
name "gloo", because many tests run for backends that they know alone (but not those of DDP, which
then takes ours for an object of Gloo's); "gloo" itself, to compare with. Each test starts
WORLD_SIZE processes of its own, which import this file again."""

import collections
import contextlib
import json
import os
import sys
import tempfile
import unittest

MODE = os.environ.get("CEOVERLAP_TEST_C10D", "ceov")
os.environ["BACKEND"] = "ceov" if MODE == "ceov" else "gloo"
os.environ.setdefault("WORLD_SIZE", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
COUNTS = "CEOVERLAP_TEST_C10D_COUNTS"   # a file to which backends write what they made

import torch.distributed as dist        # noqa: E402
from torch.testing._internal.common_distributed import DistTestCases        # noqa: E402

if MODE == "ceov":                      # before the tests are there, whose decorators ask
    for feature in ("ddp", "subgroup", "gpu"):
        DistTestCases.backend_feature[feature].add("ceov")

from torch.testing._internal.distributed import distributed_test        # noqa: E402

import ceoverlap.torch.backend as backend       # noqa: E402
from ceoverlap.torch import _compat     # noqa: E402
from ceoverlap.torch.backend import _base, _whole       # noqa: E402

# Where the class is that makes one device's calls, and its name there: a process group of PyTorch's
# before 2.14 has several.
PLACE = (_base, "Backend") if _compat.takes_backends() else (_whole, "Part")


class Counted(getattr(*PLACE)):
    """Writes down what it made, because the processes of a test end without any notice."""

    def _close(self, timeout_s):
        if self._is_open and COUNTS in os.environ:
            with open(os.environ[COUNTS], "a", encoding="ascii") as file:
                file.write(json.dumps(list(self.counts().values())) + "\n")
        super()._close(timeout_s)


backend.register()
setattr(*PLACE, Counted)
def as_gloo(helper):
    """PyTorch's function that makes process groups, before 2.14, where it asks nobody for Gloo's:
    it makes ours, whose name is said to be the one that was asked for."""
    def make(size, rank, ranks, name, *args, **options):
        group, store = helper(size, rank, ranks, dist.Backend(str(name).replace("gloo", "ceov")),
                              *args, **options)
        if store is not None:
            dist.distributed_c10d._world.pg_map[group] = (name, store)
        return group, store

    return make


if MODE == "as-gloo":
    if _compat.takes_backends():
        dist.Backend._plugins["GLOO"] = dist.Backend._plugins["CEOV"]
    else:
        dist.distributed_c10d._new_process_group_helper = as_gloo(
            dist.distributed_c10d._new_process_group_helper)
    # Whose calls have to be shown to a profiler as events named "gloo:...".
    distributed_test.PROFILING_SUPPORTED_BACKENDS.remove("gloo")
    distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.remove("gloo")


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._spawn_processes()         # without them each test passes, and nothing was called


def names():
    return unittest.TestLoader().getTestCaseNames(Suite)


class Told(unittest.TextTestResult):
    """Keeps what became of each test."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.outcomes = {}

    def _keep(self, test, outcome):
        self.outcomes[test._testMethodName] = outcome

    def addSuccess(self, test):
        super().addSuccess(test)
        self._keep(test, "passed")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._keep(test, "failed")

    def addError(self, test, err):
        super().addError(test, err)
        self._keep(test, "failed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._keep(test, "skipped: " + reason)


def counted(path):
    """How many calls of each kind were ours, and how many Gloo's."""
    totals = collections.Counter(), collections.Counter()
    with open(path, encoding="ascii") as file:
        for line in file:
            for total, some in zip(totals, json.loads(line)):
                total.update(some)
    return totals


def main(wanted):
    if not wanted:
        print("\n".join(names()))
        return
    present = set(names()) & set(wanted)
    with tempfile.NamedTemporaryFile() as counts, contextlib.redirect_stdout(sys.stderr):
        os.environ[COUNTS] = counts.name
        runner = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Told)
        outcomes = runner.run(unittest.TestSuite(map(Suite, sorted(present)))).outcomes
        outcomes.update((name, "absent") for name in wanted if name not in present)
        ours, plain = counted(counts.name)
    print(json.dumps({"outcomes": outcomes, "ours": ours, "plain": plain}))


if __name__ == "__main__":
    main(sys.argv[1:])
