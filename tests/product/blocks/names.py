# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# What the pages' blocks of PyTorch take for granted: a model, tensors, a mesh. On host ranks
# NCCL's process groups are Gloo's, so that a block that names NCCL runs as it is printed.
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

torch.manual_seed(0)
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
_init = dist.init_process_group
dist.init_process_group = lambda backend, *args, **kwargs: _init(
    backend.replace("nccl", "gloo").split(",")[0], *args, **kwargs)
torch.distributed.init_process_group = dist.init_process_group


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.mlp = nn.ModuleDict({"gate": nn.Linear(32, 64), "up": nn.Linear(32, 64),
                                  "down": nn.Linear(64, 32)})

    def forward(self, x):
        y = self.norm(x)
        return x + self.mlp.down(self.mlp.gate(y).sigmoid() * self.mlp.up(y))


class Model(nn.Module):
    def __init__(self, n_layers=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(n_layers))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


model = Model()
x, weight = torch.randn(8, 32), torch.randn(64, 32)
