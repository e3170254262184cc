# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""A compile cache of the tests' own, gone behind them."""

import os
import tempfile
import unittest


def use_own_cache():
    """For setUpModule()."""
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    before = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder.name
    unittest.addModuleCleanup(lambda: os.environ.update(TRITON_CACHE_DIR=before) if before
                              else os.environ.pop("TRITON_CACHE_DIR"))
