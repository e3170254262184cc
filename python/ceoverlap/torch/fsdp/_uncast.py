# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Shards that are cast while they are copied to where peers read them."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import torch


class Uncast:
    """Stands for an FSDP parameter at the begin of an all-gather. It is also that parameter's
    only input to the all-gather: a shard that claims the gathered dtype but is not cast yet.
    FSDP would cast it into memory of its own and copy it from there. Since there seems to be
    nothing to cast, FSDP passes it on, and the copy to the slot casts it.

    param  the FSDP parameter, with its shard on the device
    dtype  of the gathered data
    """

    __slots__ = ("param", "dtype")
    param_dtype = None                  # FSDP is to cast nothing
    offload_to_cpu = False
    _sharded_local_tensor = None

    def __init__(self, param: Any, dtype: torch.dtype) -> None:
        self.param = param
        self.dtype = dtype

    @property
    def all_gather_inputs(self) -> List[Uncast]:
        return [self]

    @property
    def data(self) -> torch.Tensor:
        """The shard as a 1-D tensor of the dtype in which it is kept."""
        return self.param._sharded_param_data

    def numel(self) -> int:
        return self.data.numel()


def uncast(params: Sequence[Any]) -> Optional[List[Uncast]]:
    """Returns the Uncast parameters for an all-gather, or None if FSDP would gather bytes, for
    which it needs tensors, if shards have several dtypes, which one copy cannot read, or if
    they are not on the device. The parameters have no all-gather extension."""
    dtypes = {(param.param_dtype, param._sharded_param_data.dtype) for param in params}
    if len(dtypes) != 1 or any(param.offload_to_cpu for param in params):
        return None
    cast_to, kept = dtypes.pop()
    dtype = cast_to or kept
    return None if dtype == torch.uint8 else [Uncast(param, dtype) for param in params]
