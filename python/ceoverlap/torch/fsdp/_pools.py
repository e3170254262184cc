# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Memory for parameters that copy engines fill ahead of the computation."""

from __future__ import annotations

import contextlib
import gc
import threading
from typing import Dict, Iterator, List

import torch

N_POOLS = 2                             # one is filled while the other is computed with


class Pools:
    """Where gathered parameters live: two pools of GPU memory in turn.

    FSDP frees a layer's parameters on the host, while kernels that use them are still
    queued. Memory of the common pool may then be anybody's on the compute stream, so the
    next all-gather could write into it only behind all that is queued there, and would
    overlap nothing. Here only all-gathers allocate, and each waits for just the kernels
    that were queued when something of its own pool was freed: those of the layer before
    the last one. On the CPU the pools are the common one and nothing waits.

    The memory of a layer that was freed is kept for later layers, not for activations.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._n_turns = 0
        self._pools: list = []
        self._released: List[Dict[int, torch.cuda.Event]] = [{} for _ in range(N_POOLS)]
        if device.type == "cuda":
            with torch.cuda.device(device):
                self._pools = [torch.cuda.MemPool() for _ in range(N_POOLS)]

    @contextlib.contextmanager
    def allocating(self) -> Iterator[int]:
        """What the block allocates may be written by the current stream; the block gets the
        pool's number. One all-gather."""
        number = self._n_turns % N_POOLS
        self._n_turns += 1
        if not self._pools:
            yield number
            return
        stream = torch.cuda.current_stream(self._device)
        for event in self._released[number].values():
            stream.wait_event(event)
        with _PAUSE, torch.cuda.use_mem_pool(self._pools[number], self._device):
            yield number

    def release(self, number: int) -> None:
        """Something of that pool was freed, and was used on the current stream last."""
        if not self._pools:
            return
        # One event a stream: a later record on it comes after all that came before.
        stream = torch.cuda.current_stream(self._device)
        events = self._released[number]
        if stream.cuda_stream not in events:
            events[stream.cuda_stream] = torch.cuda.Event()
        events[stream.cuda_stream].record(stream)

    def close(self) -> None:
        """Gives back what is kept, with nothing in flight; what lives there lives on. From
        now on the common pool is taken."""
        self._pools.clear()


class _Pause:
    """Of the garbage collector, for as long as some thread is in it. A pool that is collected
    while another one is in use ends the process: PyTorch's allocator asserts that none is,
    and somebody's forgotten pool may be among the garbage."""

    def __init__(self):
        self._lock = threading.Lock()
        self._n = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._n:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._n += 1

    def __exit__(self, *_exception) -> None:
        with self._lock:
            self._n -= 1
            if not self._n and self._was_enabled:
                gc.enable()


_PAUSE = _Pause()                       # there is one collector
