# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Shards that are cast on their way to where peers read them."""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch


class Uncast:
    """A parameter of FSDP's as the beginning of an all-gather sees it, and the one input of
    that: a shard of the gathered dtype that is not cast yet. FSDP would cast it to memory of
    its own and copy it from there; as there is nothing to cast here, it takes this as it is,
    and the copy to the slot casts.

    param  of FSDP's, with its shard on the device
    dtype  of what is gathered
    """

    __slots__ = ("param", "dtype")
    param_dtype = None                  # FSDP is to cast nothing
    offload_to_cpu = False
    _sharded_local_tensor = None

    def __init__(self, param, dtype: torch.dtype):
        self.param = param
        self.dtype = dtype

    @property
    def all_gather_inputs(self) -> List[Uncast]:
        return [self]

    @property
    def data(self) -> torch.Tensor:
        """The shard, 1-D, of the dtype that it is kept in."""
        return self.param._sharded_param_data

    def numel(self) -> int:
        return self.data.numel()


def uncast(params: Sequence) -> Optional[List[Uncast]]:
    """The same parameters for an all-gather, or None: where FSDP gathers bytes, for which it
    wants tensors; where shards are kept in several dtypes, which one copy cannot read; or off
    the device. No parameter has an all-gather extension."""
    dtypes = {(param.param_dtype, param._sharded_param_data.dtype) for param in params}
    if len(dtypes) != 1 or any(param.offload_to_cpu for param in params):
        return None
    cast_to, kept = dtypes.pop()
    dtype = cast_to or kept
    return None if dtype == torch.uint8 else [Uncast(param, dtype) for param in params]
