# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Which GPU a rank is on where nobody said it."""

from __future__ import annotations

import ctypes

DRIVER = "libcuda.so.1"


def count() -> int:
    """How many GPUs the CUDA driver shows this process; 0 also where there is no driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return 0
    n = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n)):
        return 0
    return n.value


def of_rank(rank: int) -> int:
    """The rank's number modulo that of GPUs: where there are fewer, ranks share them. Without
    any it is the rank's number, for the library to refuse."""
    return rank % (count() or rank + 1)
