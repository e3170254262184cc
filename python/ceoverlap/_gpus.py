# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Which GPU a rank uses if the caller did not name one."""

from __future__ import annotations

import ctypes

DRIVER = "libcuda.so.1"


def count() -> int:
    """Returns how many GPUs the CUDA driver shows to this process; 0 also if there is no
    driver."""
    try:
        driver = ctypes.CDLL(DRIVER)
    except OSError:
        return 0
    n = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(n)):
        return 0
    return n.value


def of_rank(rank: int) -> int:
    """Returns the rank's number modulo the number of GPUs, so that ranks share GPUs if there
    are fewer GPUs than ranks. Without GPUs it returns the rank's number, which the library then
    refuses."""
    return rank % (count() or rank + 1)
