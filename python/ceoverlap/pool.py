# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Pools: memory of a rank's GPU that the peers of a channel know, so that its large all-gathers,
broadcasts and all-to-alls whose targets lie in it are made by copy engines, and take no SM.
``include/ceoverlap/pool.h`` is the contract."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, NamedTuple, Optional, Tuple

from . import _abi, _object, errors

CALL_BYTES: int = _abi.CEOV_POOL_CALL_BYTES     # that a rank gives to a peer at least


class PoolInfo(NamedTuple):
    """What is known of a pool."""
    segment_bytes: int                  # that it has taken from the driver
    used_bytes: int                     # of those that it has handed out
    n_segments: int
    is_connected: bool
    n_engine_calls: int                 # made by copy engines, since the pool was made
    n_kernel_calls: int                 # that looked for targets in the pool, and took kernels


class PoolMemory:
    """Bytes of a pool, as libraries take them by ``__cuda_array_interface__``:

        x = torch.as_tensor(pool.alloc(1 << 20), device="cuda").view(torch.bfloat16)

    Nothing gives them back by itself: Pool.free() does, or the pool's end.

    address     on the GPU
    size_bytes  as asked for"""

    __slots__ = ("address", "size_bytes", "_is_free")

    def __init__(self, address: int, size_bytes: int) -> None:
        self.address: int = address
        self.size_bytes: int = size_bytes
        self._is_free = False

    @property
    def __cuda_array_interface__(self) -> Dict[str, Any]:
        if self._is_free:
            raise errors.StateError("this PoolMemory was given back to its pool")
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": (self.address, False),
                "version": 3}

    def __repr__(self) -> str:
        return f"<{self.size_bytes} bytes of a pool{', given back' if self._is_free else ''}>"


class Pooled(_object.Object):
    """A channel, as its pool knows it."""

    _name: str
    _pool: Optional[Pool]


class Pool(_object.Object):
    """The pool of a connected channel whose rank is on a GPU; a channel has one at most. All ranks
    make theirs between the same two calls of the channel.

    max_bytes   that it takes from the driver at most; 0: no bound. What is freed serves later
                allocations of this pool alone, until it is closed

    connect() comes next, and calls use the pool from then on; Channel.make_pool() does both. Any
    thread may allocate and free, at any time. The channel's close() closes the pool, and the
    channel makes no call once that was closed. Its memory goes with it, and with the context at the
    latest: nothing may use it then."""

    _release_call = "ceov_pool_release"
    _query = ("ceov_pool_query", _abi.ceov_pool_info)

    def __init__(self, channel: Pooled, max_bytes: int = 0) -> None:
        super().__init__(channel._context, channel._rank)
        channel._open_handle()          # raises if it is closed
        self._name = channel._name
        config = _abi.new(_abi.ceov_pool_config)
        config.max_bytes = max_bytes
        self._make_handle("ceov_pool_create", ctypes.byref(config), below=channel._record)
        channel._pool = self

    def connect(self, timeout_s: Optional[float] = None) -> Pool:
        """Finds the pools of all peers. If one process holds several ranks, make the pools of all
        of them first. Raises PendingError if a peer did not make its pool in time. Returns the
        pool."""
        limit = self._context._limit(timeout_s)
        if not _object.wait(lambda ns, is_long: self._invoke(
                "ceov_pool_connect", ns, is_long=is_long), limit):
            raise errors.make(_abi.CEOV_PENDING, f"channel {self._name!r}: some peer has not made "
                              f"its pool within {limit} s")
        return self

    def alloc(self, size_bytes: int) -> PoolMemory:
        """Returns memory that begins at a multiple of 2 MiB. Raises NoMemoryError where max_bytes
        is reached, or the GPU has no more."""
        address = ctypes.c_void_p()
        self._invoke("ceov_pool_alloc", size_bytes, ctypes.byref(address))
        return PoolMemory(address.value or 0, size_bytes)

    def free(self, memory: PoolMemory) -> None:
        """Gives memory back, which the pool may hand out again at once: no call and no kernel of
        this rank uses it any more. Once more does nothing."""
        if not memory._is_free:
            self._invoke("ceov_pool_free", memory.address)
            memory._is_free = True

    def functions(self) -> Tuple[int, int]:
        """Returns the addresses of two C functions, by which other allocators take memory of this
        pool, such as PyTorch's CUDAPluggableAllocator: void *(size, device, stream), which returns
        NULL where there is none, and void (memory, size, device, stream). At most 16 pools of a
        process have some."""
        allocate, free = ctypes.c_void_p(), ctypes.c_void_p()
        self._invoke("ceov_pool_functions", ctypes.byref(allocate), ctypes.byref(free))
        return allocate.value or 0, free.value or 0

    def query(self) -> PoolInfo:
        """Returns what is known of it."""
        info = self._info()
        return PoolInfo(info.segment_bytes, info.used_bytes, info.n_segments,
                        bool(info.is_connected), info.n_engine_calls, info.n_kernel_calls)
