# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""`torchrun --nnodes 2` with the backend "ceov", where two of its agents act as two nodes, which
have names of their own: what goes between them is Gloo's, said once and counted; a group on one of
them has a channel."""

import json
import logging
import os
import socket
import subprocess
import sys
import tempfile
import unittest

N_NODES, N_EACH = 2, 2
LIMIT_S = 180


def calls(group, rank, size):
    """Makes calls twice of each kind, and compares what they return."""
    import torch
    import torch.distributed as dist
    from rig import equal

    for _ in range(2):
        x = torch.full((5,), float(rank))
        dist.all_reduce(x, group=group)
        equal(x, torch.full((5,), float(sum(range(size)))), "all_reduce")
        whole = torch.zeros(size * 3, dtype=torch.int64)
        dist.all_gather_into_tensor(whole, torch.full((3,), rank, dtype=torch.int64), group=group)
        equal(whole, torch.arange(size, dtype=torch.int64).repeat_interleave(3), "all_gather")
        got = torch.zeros(size)
        dist.all_to_all_single(got, torch.full((size,), float(rank)), group=group)
        equal(got, torch.arange(float(size)), "all_to_all")
        dist.broadcast(got, group_src=1, group=group)
        work = dist.isend(torch.full((2,), float(rank)), group=group, group_dst=(rank + 1) % size)
        received = torch.zeros(2)
        dist.recv(received, group=group, group_src=(rank - 1) % size)
        work.wait()
        equal(received, torch.full((2,), float((rank - 1) % size)), "recv")
        dist.barrier(group=group)


def rank_of_two_nodes():
    """A rank that torchrun has started: leaves what it has seen in the folder."""
    import rig
    import torch.distributed as dist

    import ceoverlap.torch as ct

    logging.getLogger("ceoverlap").setLevel(logging.INFO)
    with rig.logged() as log:
        dist.init_process_group("cpu:ceov")
        rank, size = dist.get_rank(), dist.get_world_size()
        calls(None, rank, size)
        nodes = [dist.new_group(range(n * N_EACH, (n + 1) * N_EACH)) for n in range(N_NODES)]
        own = nodes[rank // N_EACH]
        calls(own, rank % N_EACH, N_EACH)
        seen = {"world": ct.backend.stats(), "own": ct.backend.stats(own),
                "said": [line for line in log.lines() if "goes to Gloo" in line],
                "report": ct.backend.report().as_dict()}
        dist.barrier()
        dist.destroy_process_group()
    with open(os.path.join(sys.argv[2], f"{rank}.json"), "w", encoding="ascii") as file:
        json.dump(seen, file)


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class TwoNodes(unittest.TestCase):

    def torchrun(self, folder):
        port = free_port()
        agents = [subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(N_NODES),
             "--node-rank", str(node), "--nproc-per-node", str(N_EACH), "--master-addr",
             "127.0.0.1", "--master-port", str(port), __file__, "rank", folder],
            env={**os.environ, "CEOVERLAP_NODE": f"node {node}"}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for node in range(N_NODES)]
        try:
            told = [agent.communicate(timeout=LIMIT_S)[0] for agent in agents]
        finally:
            for agent in agents:
                agent.kill()
        self.assertEqual([agent.returncode for agent in agents], [0] * N_NODES, "\n".join(told))

    def test_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            self.torchrun(folder)
            ranks = []
            for rank in range(N_NODES * N_EACH):
                with open(os.path.join(folder, f"{rank}.json"), encoding="ascii") as file:
                    ranks.append(json.load(file))
        kinds = {"all_reduce": 2, "all_gather": 2, "all_to_all": 2, "broadcast": 2, "send": 2,
                 "recv": 2, "barrier": 2}
        for seen in ranks:
            self.assertEqual(seen["world"], {"ours": {}, "plain": kinds})
            self.assertEqual(seen["own"], {"ours": kinds, "plain": {}})
            self.assertEqual(sorted(seen["said"]), sorted(
                f"group 0: {kind} goes to Gloo: its ranks are on several nodes" for kind in kinds))
            self.assertEqual(seen["report"]["size"], N_NODES * N_EACH)


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank_of_two_nodes()
    else:
        unittest.main()
