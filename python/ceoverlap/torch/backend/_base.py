# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The backend as PyTorch takes one."""

from __future__ import annotations

import datetime
from typing import Any, Dict, Tuple

import torch

from .. import _compat
from ..group import Ranks
from ._calls import Calls, device_of

NAME = "ceov"

# By the group_name of the process group and the device. PyTorch keeps no more than the C++ half of
# a backend that it wraps (TORCH_DISTRIBUTED_DEBUG=DETAIL), so the backends are kept here until they
# are shut down.
live: Dict[Tuple[str, str], Calls] = {}


class Backend(Calls, _compat.Backend):
    """One device's backend of a process group, from PyTorch 2.14 on."""

    knows_batches = True

    def __init__(self, ranks: Ranks, timeout: datetime.timedelta, device: torch.device,
                 global_ranks: Any = (), options: Any = None) -> None:
        _compat.Backend.__init__(self, ranks.rank, ranks.size)
        self._device, self._given = device, options
        made: Any = _compat.Backend.Options(NAME, timeout)
        made.group_name = ranks.name
        self._options = made
        self._begin(ranks, timeout, device, lambda: live.pop((ranks.name, device.type), None),
                    global_ranks, options)
        live[ranks.name, device.type] = self

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        """Whether PyTorch shall tell which messages are made at the same time."""
        return self._device.type == "cuda" or self._gpu is not None

    # Properties that PyTorch's base class asks for by their names, again and again where a class
    # does not say what they are.
    supports_shrinking = supports_reconfigure = supports_window = property(
        lambda self: False)
    _supports_time_estimate = supports_shrinking

    def split(self, store: Any, ranks: Any, options: Any) -> Any:
        """Returns the backend of some of the ranks, which all call it; None at the others."""
        if self._at.rank not in ranks:
            return None
        at = Ranks(store, list(ranks).index(self._at.rank), len(ranks), options.group_name)
        return Backend(at, options._timeout, self._device, options=self._given)

    # What a process group that is bound to a device (init_process_group(device_id=...)) asks for.
    # Ranks outside of a new group take no part in it.
    def eager_connect_single_device(self, device: Any) -> None:
        """Makes what the group has on that GPU, as its first call would."""
        if device is not None and device.type == "cuda":
            self._on_gpu(device)

    def perform_nocolor_split(self, _device: Any) -> None:
        """Does nothing."""

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.limit(timeout)
        self._options._timeout = timeout

    # Former names, which PyTorch's compiled parts may still call.
    _allgather_base = Calls.all_gather_single
    allgather_into_tensor_coalesced = Calls.all_gather_single_coalesced
    gather_into_tensor = Calls.gather_single
    alltoall_base = Calls.all_to_all_single
    _reduce_scatter_base = Calls.reduce_scatter_single
    reduce_scatter_tensor_coalesced = Calls.reduce_scatter_single_coalesced


def create(options: Any, backend_options: Any) -> Calls:
    """Makes a backend for torch.distributed, which calls it at all ranks of a new group.
    backend_options: of the caller of init_process_group() or new_group(), for NCCL."""
    ranks = Ranks(options.store, options.group_rank, options.group_size, options.group_id)
    return Backend(ranks, options.timeout, device_of(ranks.store, ranks.rank),
                   options.global_ranks_in_group, backend_options)
