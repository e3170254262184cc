# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""ceoverlap: move bytes between GPUs on their copy engines while kernels run.

    with ceoverlap.Context(ranks=range(2), place="host") as context:
        source = context.register(array)            # rank 0's
        target = context.allocate(array.nbytes, rank=1)
        plan = context.plan(rank=0).add(source=source, target=target,
                                        row_bytes=array.nbytes).commit()
        plan.launch().wait()

The library is C; see include/ceoverlap/*.h for its contracts. Contexts hold buffers, signals
and plans; AllGather and AllToAll move; Workspace and the operators on it (AllGatherGemm,
GemmReduceScatter, GemmAllReduce, GemmAllToAll, AllToAllGemm, ReduceScatter, AllReduce)
compute, too; a Channel makes calls of any shape between host ranks. Arrays and tensors are
taken as they are: NumPy, PyTorch, CuPy, anything with DLPack or an array interface. Streams are
integers (a CUstream) or objects that hold one. Failures are exceptions of ceoverlap.errors, with
rank, transfer and mark. Log lines go to logging's "ceoverlap".
"""

from . import bf16, errors
from ._abi import lib as _lib
from .buffer import Buffer, Memory, memory_of
from .channel import Channel
from .collective import AllGather, AllToAll, Block, all_gather, all_to_all, broadcast
from .context import Context
from .errors import (AbortedError, CeoverlapError, CudaError, DaemonLostError, DeadlineError,
                     Failure, ForkedError, FullError, InvalidError, NoMemoryError, NoRouteError,
                     PeerLostError, PendingError, StaleError, StateError, SystemCallError,
                     UcxError, UncertainError, VersionError)
from .network import Network
from .ops import (AllGatherGemm, AllReduce, GemmReduceScatter, ReduceScatter, Tuning,
                  Workspace)
from .ops_a2a import AllToAllGemm, GemmAllToAll
from .ops_ar import GemmAllReduce
from .ops_embedding import EmbeddingAllToAll, EmbeddingBackward
from .ops_experts import MoeCombine, MoeDispatch
from .ops_marks import GemmMarks
from .place import Place
from .plan import Plan, Spot, Ticket, Transfer
from .pool import Pool, PoolInfo, PoolMemory
from .signal import Mark, MarkList, Signal
from .stream import stream_handle

__version__: str = _lib.ceov_version().decode()

__all__ = [
    "AbortedError", "AllGather", "AllGatherGemm", "AllReduce", "AllToAll", "AllToAllGemm", "Block",
    "Buffer",
    "CeoverlapError", "Channel", "Context", "CudaError", "DaemonLostError", "DeadlineError",
    "EmbeddingAllToAll", "EmbeddingBackward", "Failure",
    "ForkedError", "FullError", "GemmAllReduce", "GemmAllToAll", "GemmMarks",
    "GemmReduceScatter", "InvalidError", "Mark", "MarkList", "Memory", "MoeCombine",
    "MoeDispatch", "Network",
    "NoMemoryError", "NoRouteError", "PeerLostError", "PendingError", "Place", "Plan",
    "Pool", "PoolInfo", "PoolMemory",
    "ReduceScatter", "Signal", "Spot", "StaleError", "StateError", "SystemCallError",
    "Ticket", "Transfer", "Tuning", "UcxError", "UncertainError", "VersionError",
    "Workspace", "all_gather", "all_to_all", "bf16", "broadcast", "errors", "memory_of", "stream_handle",
]
