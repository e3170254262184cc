# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap for PyTorch: collectives and overlapped operators on tensors, tensor-parallel
layers, mixtures of experts, attention over a sequence that ranks share, FSDP2, drop-ins for
async-TP, and a backend of torch.distributed.

    torch.distributed.init_process_group("nccl")
    y = ceoverlap.torch.all_gather_matmul(x, linear.weight)     # x: this rank's rows

Nothing is compiled and no version of PyTorch is pinned; see functional.py for streams,
shapes, graphs and dtypes, and docs/pytorch.md.
"""

from . import async_tp, backend
from .attention import all_to_all_attention, balanced_part, ring_attention
from .experts import MoeLayer, SwiGLUExperts, moe
from .functional import (all_gather, all_gather_matmul, all_reduce, all_to_all,
                         matmul_reduce_scatter, reduce_scatter)
from .gathered import ag_moe
from .group import Group
from .linear import ColumnParallelLinear, RowParallelLinear
from .marks import gemm_with_marks
from .operators import Operators
from .parallel import Column, Row, Summed, parallelize
from .pools import pool

__all__ = ["Column", "ColumnParallelLinear", "Group", "MoeLayer", "Operators", "Row",
           "RowParallelLinear", "Summed", "SwiGLUExperts", "ag_moe", "all_gather",
           "all_gather_matmul", "all_reduce", "all_to_all", "all_to_all_attention",
           "async_tp", "backend", "balanced_part", "gemm_with_marks", "matmul_reduce_scatter",
           "moe", "parallelize", "pool", "reduce_scatter", "ring_attention"]

backend.register()
