# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs the tests of this folder, or those named; see counted.py."""

import os
import sys

import counted

LIMIT_S = 100

if __name__ == "__main__":
    sys.exit(counted.exit_code(counted.run(os.path.dirname(os.path.abspath(__file__)),
                                           sys.argv[1:], LIMIT_S)))
