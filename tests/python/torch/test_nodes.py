# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Groups whose ranks act as those of two nodes: tests of the other modules, run in a process of
their own, and what such groups refuse."""

import os
import subprocess
import sys
import time
import unittest

import rig
import torch
import torch.distributed as dist
from fsdp_models import WORDS
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import ceoverlap.torch as ct
from ceoverlap import errors
from ceoverlap.torch import Group, fsdp

TESTS = ("test_group", "test_functional", "test_linear", "test_sums", "test_async_tp")
LAYERS = ("test_experts", "test_attention", "test_gathered")
END_S = time.monotonic() + rig.TEST_S - 40      # before this process is ended; see run.py


def gathers_by_pytorch():
    """FSDP2's gradients are right, its sums go by operators, its gathers do not, but by public hooks
    they do. Each rank compares its shard: gloo's collectives of DTensors on GPUs end the process.
    """
    torch.manual_seed(rig.SEED)
    model = torch.nn.Linear(16, 16, device=rig.device())
    plain = torch.nn.Linear(16, 16, device=rig.device())
    plain.load_state_dict(model.state_dict())
    mesh = init_device_mesh(rig.device().type, (dist.get_world_size(),))
    fully_shard(model, mesh=mesh)
    handle = fsdp.enable(model)
    model(rig.normal(1, dist.get_rank(), (4, 16))).square().sum().backward()
    for rank in range(dist.get_world_size()):
        (plain(rig.normal(1, rank, (4, 16))).square().sum() / dist.get_world_size()).backward()
    for ours, theirs in zip(model.parameters(), plain.parameters()):
        shard = theirs.grad.chunk(dist.get_world_size())[dist.get_rank()]
        torch.testing.assert_close(ours.grad.to_local(), shard)
    (stats,) = handle.stats
    assert stats.all_gather == (f"PyTorch: ranks on {rig.N_NODES} hosts"
                                if handle.level == "inner" else WORDS["public"]), stats
    assert stats.reduce_scatter == WORDS[handle.level], stats
    handle.disable()


def refuses_captures():
    group = Group.of()
    x = torch.ones(8, 64, device=rig.device())
    ct.all_gather(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rig.raises(errors.InvalidError, "a CUDA graph cannot hold transfers to other hosts",
                   ct.all_gather, x)
        x.add_(1)
    rig.equal(ct.all_gather(x), x.repeat(group.size, 1), "after the capture")


@unittest.skipUnless(rig.N_NODES > 1, "is run with CEOVERLAP_TEST_NODES")
class TwoNodes(unittest.TestCase):
    def test_fsdp(self):
        rig.run(gathers_by_pytorch)

    @rig.needs_gpus
    def test_captures(self):
        rig.run(refuses_captures)


@rig.needs_one_node
@rig.needs_network
class Again(unittest.TestCase):
    def on_two_nodes(self, *tests):
        left_s = int(END_S - time.monotonic())  # of which the ranks' tests tell where they stand
        environment = {**os.environ, "CEOVERLAP_TEST_NODES": "2",
                       "CEOVERLAP_TEST_TIMEOUT": str(max(left_s, 40))}
        done = subprocess.run([sys.executable, os.path.join(os.path.dirname(__file__), "run.py"),
                               *tests], env=environment, capture_output=True, text=True,
                              timeout=max(left_s, 40), check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_others_on_two_nodes(self):
        self.on_two_nodes("test_nodes", *TESTS)

    def test_layers_on_two_nodes(self):
        self.on_two_nodes(*LAYERS)


if __name__ == "__main__":
    unittest.main()
