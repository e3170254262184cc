# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
# What docs/python.md's first block takes for granted.
import ceoverlap
import numpy as np

values = np.arange(64)
