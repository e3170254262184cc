# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# What docs/python.md's block of a channel takes for granted: two ranks, and their arrays.
import ceoverlap
import numpy as np

context = ceoverlap.Context()
left = right = 1 - context.rank
rows = received = sent = [2, 2]
gradients, weights, x, y = (np.ones(4, np.float32) for _ in range(4))
part, whole = np.ones((2, 3), np.float32), np.zeros((4, 3), np.float32)
input, output = np.ones((4, 3), np.float32), np.zeros((4, 3), np.float32)
