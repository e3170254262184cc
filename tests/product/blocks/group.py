# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# Behind names.py: a process group, a mesh and a GPU's stand-ins, for blocks that begin later.
import ceoverlap.torch as ct

dist.init_process_group("gloo")
mesh = {"tensor": init_device_mesh("cpu", (size,), mesh_dim_names=("tensor",))["tensor"],
        "data": init_device_mesh("cpu", (size,), mesh_dim_names=("data",))["data"]}


def train(model, optimizer, x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def step():
    ct.all_reduce(torch.randn(1024))


# of a mixture of experts: 4 experts of each rank, 2 for each token
hidden, ffn, n_experts, top_k, n_tokens = 32, 64, 4 * size, 2, 8
expert_ids = torch.randint(n_experts, (n_tokens, top_k))
weights = torch.rand(n_tokens, top_k)
experts = ct.SwiGLUExperts(n_experts // size, hidden, ffn)
first, second = (ct.SwiGLUExperts(n_experts // size // 2, hidden, ffn) for _ in range(2))

# of attention: batch x heads x part of the sequence x width
q, k, v = (torch.randn(2, 2 * size, 16, 8) for _ in range(3))
