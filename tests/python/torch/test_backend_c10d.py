# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""PyTorch's own tests of process groups over the backend "ceov" (see c10d_suite.py): a few, or with
CEOVERLAP_TEST_C10D_ALL=1 all that have to pass.

The others of its file need GPUs, NCCL, MPI, torchvision, or eight ranks; or they are for a
backend with the name "gloo" and of its class (test_grads_same_across_ranks_with_no_sync), ask for
what PyTorch does not pass on from a backend in Python (test_isend* and test_irecv: whether a handle
is complete; test_send_recv_any_source*: who sent), or for the words of Gloo's errors
(test_barrier_timeout*), or for a built-in backend's name (test_ddp_logging_data_cpu)."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import rig
from backend_rig import IS_BY_DEVICE

SUITE = pathlib.Path(__file__).with_name("c10d_suite.py")
IS_LONG = os.environ.get("CEOVERLAP_TEST_C10D_ALL") == "1"
FEW = ["test_all_gather_coalesced_simple", "test_send_recv"]
ALL = {
    "ceov": """
        test_DistributedDataParallelCPU test_DistributedDataParallelCPU_grad_is_view
        test_DistributedDataParallel_requires_grad test_ddp_create_graph test_static_graph_api_cpu
        """.split(),
    "as-gloo": """
        test_Backend_enum_class test_all_gather test_all_gather_coalesced_complex
        test_all_gather_coalesced_full_group test_all_gather_coalesced_simple
        test_all_gather_coalesced_with_empty test_all_gather_complex test_all_gather_full_group
        test_all_gather_object_default_pg test_all_gather_object_subgroup
        test_all_reduce_coalesced_full_group_max test_all_reduce_coalesced_full_group_min
        test_all_reduce_coalesced_full_group_product test_all_reduce_coalesced_full_group_sum
        test_all_reduce_coalesced_max test_all_reduce_coalesced_max_complex_unsupported
        test_all_reduce_coalesced_min test_all_reduce_coalesced_product
        test_all_reduce_coalesced_sum test_all_reduce_complex_unsupported_ops
        test_all_reduce_full_group_max test_all_reduce_full_group_min
        test_all_reduce_full_group_product test_all_reduce_full_group_sum test_all_reduce_max
        test_all_reduce_min test_all_reduce_product test_all_reduce_sum test_all_reduce_sum_async
        test_all_reduce_sum_complex test_barrier test_barrier_full_group
        test_batch_isend_irecv_gloo test_batch_isend_irecv_gloo_tags test_broadcast
        test_broadcast_full_group test_destroy_full_group test_destroy_group test_gather
        test_gather_checks test_gather_full_group test_get_backend test_get_rank
        test_get_rank_size_full_group test_get_rank_size_group test_monitored_barrier_gloo
        test_monitored_barrier_gloo_rank_0_timeout test_monitored_barrier_gloo_subgroup
        test_reduce_full_group_max test_reduce_full_group_min test_reduce_full_group_product
        test_reduce_full_group_sum test_reduce_max test_reduce_min test_reduce_product
        test_reduce_sum test_reduce_sum_twice test_scatter test_scatter_checks
        test_scatter_complex test_scatter_full_group test_scatter_object_list test_send_recv
        test_send_recv_autograd_profiler test_send_recv_torch_profiler test_send_recv_with_tag
        test_send_recv_with_tag_autograd_profiler test_send_recv_with_tag_torch_profiler
        test_sparse_all_reduce_sum
        """.split(),
}
ALL_OF_4 = ["test_gather_object", "test_gather_object_subgroup",
            "test_new_subgroups_with_group_param"]

WITH_DETAIL = ["test_all_gather", "test_all_gather_coalesced_simple", "test_all_reduce_max",
               "test_all_reduce_sum_async", "test_barrier", "test_broadcast_full_group",
               "test_gather", "test_reduce_sum", "test_scatter", "test_send_recv"]
FEW_WITH_DETAIL = WITH_DETAIL[-2:]


def outcome(mode, names, size, **environment):
    """What c10d_suite.py says of these tests; environment: variables that they have, too."""
    with tempfile.TemporaryDirectory() as folder:       # PyTorch's tests leave files in it
        ended = subprocess.run(
            [sys.executable, str(SUITE), *names], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, check=False, timeout=rig.TEST_S - 30,
            env={**os.environ, "CEOVERLAP_TEST_C10D": mode, "WORLD_SIZE": str(size),
                 "TMPDIR": folder, "TEMP_DIR": folder, **environment})
    try:
        return json.loads(ended.stdout.splitlines()[-1]), ended.stderr
    except (IndexError, ValueError):
        raise AssertionError(f"{SUITE.name} ended with {ended.returncode}:\n"
                             f"{ended.stderr[-4000:]}") from None


@rig.needs_one_node
@unittest.skipIf(importlib.util.find_spec("expecttest") is None,
                 "PyTorch's tests need expecttest: pip install expecttest")
class OfPyTorch(unittest.TestCase):

    def passes(self, mode, names, size=2, **environment):
        told, log = outcome(mode, names, size, **environment)
        absent = set() if IS_BY_DEVICE else {       # older versions lack some
            name for name, became in told["outcomes"].items() if became == "absent"}
        self.assertLess(len(absent), len(names) / 2)
        wanted = {name: "absent" if name in absent else "passed" for name in names}
        self.assertEqual(told["outcomes"], wanted, log[-4000:])
        self.assertGreater(sum(told["ours"].values()), 0, told)

    def test_with_the_name_of_gloo(self):
        self.passes("as-gloo", ALL["as-gloo"] if IS_LONG else FEW)

    def test_with_detail(self):
        self.passes("as-gloo", WITH_DETAIL if IS_LONG else FEW_WITH_DETAIL,
                    TORCH_DISTRIBUTED_DEBUG="DETAIL")

    @unittest.skipUnless(IS_LONG, "is part of check-long")
    def test_with_our_name(self):
        self.passes("ceov", ALL["ceov"])

    @unittest.skipUnless(IS_LONG, "is part of check-long")
    def test_with_four_ranks(self):
        self.passes("as-gloo", ALL_OF_4, 4)


if __name__ == "__main__":
    unittest.main()
