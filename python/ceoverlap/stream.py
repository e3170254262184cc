# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""CUDA streams, in the forms in which other libraries have them."""

from __future__ import annotations

import sys
from typing import Any, Optional, Protocol, SupportsIndex, Tuple, Union

from . import _abi, errors


class TorchStream(Protocol):
    """A stream as PyTorch's are."""

    @property
    def cuda_stream(self) -> int:
        """The CUstream."""


class CupyStream(Protocol):
    """A stream as CuPy's are."""

    @property
    def ptr(self) -> int:
        """The CUstream."""


class CudaStream(Protocol):
    """A stream as those of NVIDIA's Python packages are."""

    def __cuda_stream__(self) -> Tuple[int, int]:
        """Returns the protocol's version and the CUstream."""


StreamLike = Union[SupportsIndex, TorchStream, CupyStream, CudaStream]

HANDLE_MAX = (1 << 64) - 1


def stream_handle(stream: Optional[StreamLike]) -> Optional[int]:
    """Returns the CUstream of an integer or an object, as any_stream() does; None stays None. The
    NULL stream (0) is refused, because nothing can be ordered against it alone."""
    if stream is None:
        return None
    handle = any_stream(stream)
    if not handle:
        raise errors.InvalidError("stream 0 is the NULL stream: use a stream of your own")
    return handle


def any_stream(stream: StreamLike) -> int:
    """Returns the CUstream of an integer, of an object with ``__cuda_stream__()``, or of one with
    ``cuda_stream`` (torch.cuda.Stream) or ``ptr`` (CuPy's); 0 is the NULL stream."""
    handle: Any = stream
    if hasattr(handle, "__cuda_stream__"):
        handle = handle.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr"):
        handle = getattr(handle, name, handle)
    try:
        return _abi.checked(handle, HANDLE_MAX, "stream")
    except TypeError:
        raise errors.InvalidError(f"a {type(handle).__name__} is no stream: pass an integer, or an "
                                  "object with cuda_stream, ptr or __cuda_stream__()") from None


def current_stream(gpu: int) -> int:
    """Returns the CUstream that is PyTorch's current one of a GPU; 0, the default stream, where
    PyTorch is not there, or has not used a GPU yet."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return 0
    return int(cuda.current_stream(gpu).cuda_stream)
