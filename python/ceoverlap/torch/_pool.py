# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A group's pool (ceoverlap.Pool) as one of PyTorch's allocator: tensors that are made in it lie in
memory that the group's other ranks know."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any, List, Optional

import torch

from .. import errors
from ..pool import Pool
from . import _compat
from .group import Group


class _Pause:
    """Pauses Python's garbage collector while any thread is inside the block. PyTorch's
    allocator ends the process by an assertion if a pool is collected while another one is in
    use, and a forgotten pool may be among the garbage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n = 0
        self._was_enabled = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._n:
                self._was_enabled = gc.isenabled()
                gc.disable()
            self._n += 1

    def __exit__(self, *_exception: object) -> None:
        with self._lock:
            self._n -= 1
            if not self._n and self._was_enabled:
                gc.enable()


PAUSE = _Pause()                        # there is one collector

# Groups that were closed while tensors had memory of their pools. Nobody would see when the last of
# these tensors goes, so the memory stays until the process ends.
_held: List[Group] = []


class GroupPool:
    """A group's pool, which is made by the first mem_pool(). The allocator calls C functions alone:
    it holds its lock then, and not Python's, so what waited for Python's could wait for ever."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._pool: Optional[Pool] = None
        self._mem_pool: Any = None

    def mem_pool(self, max_bytes: Optional[int]) -> torch.cuda.MemPool:
        """As Group.pool()."""
        with self._lock:
            if self._mem_pool is None:
                self._check()
                self._make(max_bytes or 0)
            elif max_bytes is not None:
                raise errors.StateError(f"group {self._group.name}: it has its pool, whose "
                                        "max_bytes was given when it was made")
            return self._mem_pool

    def _check(self) -> None:
        group = self._group
        if not group.is_open:
            raise errors.StateError(f"group {group.name}: it is closed")
        if not group.is_gpu:
            raise errors.InvalidError(f"group {group.name}: it can have no pool: its ranks are on "
                                      "the host")
        if group.channel is None:
            reason = (group.why_no_channel if group.n_nodes == 1 else
                      "its ranks are on several hosts")
            raise errors.InvalidError(f"group {group.name}: it can have no pool, as it has no "
                                      f"channel: {reason}")
        if group.is_capturing():
            raise errors.InvalidError(f"group {group.name}: its pool cannot be made while a graph "
                                      "is captured: call pool() before")

    def _make(self, max_bytes: int) -> None:
        group, channel = self._group, self._group.channel
        assert channel is not None      # _check() has looked
        made = group.together("pool", lambda: Pool(channel, max_bytes))
        pools: List[Any] = []

        def connect() -> Pool:
            made.connect(group.deadline_s)
            allocator = _compat.allocator_of(*made.functions())
            with torch.cuda.device(group.device):
                pools.append(torch.cuda.MemPool(allocator))
            return made

        try:
            group.together("pool", connect)
        except BaseException:
            made.close()
            raise
        self._mem_pool, self._pool = pools[0], made

    def empty(self, size: Any, dtype: torch.dtype) -> torch.Tensor:
        """Returns a tensor in the pool."""
        pool = self.mem_pool(None)
        with PAUSE, torch.cuda.use_mem_pool(pool, self._group.device):
            return torch.empty(size, dtype=dtype, device=self._group.device)

    def close(self) -> None:
        """Ends the group's use of the pool. Where tensors still have memory of it, the group keeps
        that; else it goes with the channel."""
        self._mem_pool = None           # the last reference to it frees what no tensor has
        pool, self._pool = self._pool, None
        used = 0 if pool is None or not pool.is_open else pool.query().used_bytes
        if not used:
            return
        self._group.holds_memory = True
        _held.append(self._group)
        logging.getLogger("ceoverlap").warning(
            "group %s: it is closed while tensors, or a MemPool that somebody still holds, have "
            "%d bytes of its pool: they stay valid, and the pool's memory is freed when the "
            "process ends; free them before to have it back", self._group.name, used)
