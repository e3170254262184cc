# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""The C library of ceoverlap, as a file for the package ceoverlap. Importing this package opens
nothing."""

import os

__all__ = ["path"]


def path() -> str:
    """Returns the whole path of the library that was installed with this package."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libceoverlap.so")
