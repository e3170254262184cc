# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""bfloat16 for NumPy, which has none: its bits as uint16."""

from __future__ import annotations


def from_float32(values):
    """uint16 array of the same shape: each number rounded to the nearest bfloat16, ties to
    even; NaN stays NaN."""
    import numpy

    values = numpy.ascontiguousarray(values, numpy.float32)
    bits = values.view(numpy.uint32)
    rounded = (bits + (numpy.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    return numpy.where(numpy.isnan(values), bits >> 16 | 0x40, rounded).astype(numpy.uint16)


def to_float32(bits):
    """float32 array of the same shape; loses nothing."""
    import numpy

    bits = numpy.ascontiguousarray(bits).view(numpy.uint16)
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
