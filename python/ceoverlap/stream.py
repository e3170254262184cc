# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""CUDA streams, in the forms in which other libraries have them."""

from __future__ import annotations

from typing import Optional

from . import errors


def stream_handle(stream) -> Optional[int]:
    """Returns the CUstream of an integer, of an object with ``cuda_stream`` (torch.cuda.Stream)
    or of one with ``__cuda_stream__()``; None stays None. The NULL stream (0) is refused,
    because nothing can be ordered against it alone."""
    if stream is None:
        return None
    if not isinstance(stream, int):
        if hasattr(stream, "__cuda_stream__"):
            stream = stream.__cuda_stream__()[1]
        else:
            stream = stream.cuda_stream
    if stream == 0:
        raise errors.InvalidError("stream 0 is the NULL stream: use a stream of your own")
    return stream
