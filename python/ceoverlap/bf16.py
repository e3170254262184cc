# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Conversion between float32 and bfloat16 for NumPy, which has no bfloat16: its bits are held
as uint16."""

from __future__ import annotations

from .buffer import Array


def from_float32(values: Array) -> Array:
    """Returns a uint16 array of the same shape with the bits of the nearest bfloat16 of each
    number, ties to even; NaN stays NaN."""
    import numpy

    values = numpy.ascontiguousarray(values, numpy.float32)
    bits = values.view(numpy.uint32)
    rounded = (bits + (numpy.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    return numpy.where(numpy.isnan(values), bits >> 16 | 0x40, rounded).astype(numpy.uint16)


def to_float32(bits: Array) -> Array:
    """Returns a float32 array of the same shape with the exact values of the bfloat16 bits."""
    import numpy

    bits = numpy.ascontiguousarray(bits).view(numpy.uint16)
    return (bits.astype(numpy.uint32) << 16).view(numpy.float32)
