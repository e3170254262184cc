# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# What docs/python.md's blocks of operators take for granted: two ranks' operands.
import ceoverlap
import numpy as np

rows, k, n, stream = [64, 64], 32, 16, None
a = ceoverlap.bf16.from_float32(np.ones((64, k), np.float32))
b = ceoverlap.bf16.from_float32(np.ones((n, k), np.float32))
