# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Memory for gathered parameters, which copy engines fill ahead of the computation."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, Iterator, List

import torch

from .._pool import PAUSE

N_POOLS = 2                             # one is filled while the other is computed with


class Pools:
    """Two pools of GPU memory for gathered parameters, used alternately.

    FSDP frees a layer's parameters on the host while kernels that use them are still queued. If
    they were in PyTorch's common pool, that memory could be in use by anything on the compute
    stream. The next all-gather could write into it only behind everything queued there, and so
    would overlap nothing. From these pools only all-gathers allocate, and each waits only for
    the kernels that were queued when something of its own pool was freed: those of the layer
    before the last one. On the CPU there are no pools of their own and nothing waits.

    The memory of a freed layer is kept for later layers and is not available to activations."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._n_turns = 0
        self._pools: List[Any] = []
        self._released: List[Dict[int, torch.cuda.Event]] = [{} for _ in range(N_POOLS)]
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._pools = [torch.cuda.MemPool() for _ in range(N_POOLS)]

    @contextlib.contextmanager
    def allocating(self) -> Iterator[int]:
        """During the block, allocations come from one of the pools, and the current stream may
        write them. Yields the pool's number. Use a block for each all-gather."""
        number = self._n_turns % N_POOLS
        self._n_turns += 1
        if not self._pools:
            yield number
            return
        stream = torch.cuda.current_stream(self._device)
        for event in self._released[number].values():
            stream.wait_event(event)
        with PAUSE, torch.cuda.use_mem_pool(self._pools[number], self._device):
            yield number

    def release(self, number: int) -> None:
        """Notes that memory of this pool was freed, whose last use is on the current stream."""
        if not self._pools:
            return
        # One event a stream: a later record on it comes after all that came before.
        stream = torch.cuda.current_stream(self._device)
        events = self._released[number]
        if stream.cuda_stream not in events:
            events[stream.cuda_stream] = torch.cuda.Event()
        events[stream.cuda_stream].record(stream)

    def close(self) -> None:
        """Frees the memory that the pools keep. Nothing may be in flight; tensors in the pools
        stay valid. From now on allocations come from PyTorch's common pool."""
        self._pools.clear()
