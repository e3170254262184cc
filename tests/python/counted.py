# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs test cases and counts them as Check does, for tests/count_cases.sh. A test that has
no end is told where it stands, and killed."""

import faulthandler
import sys
import unittest


def run(folder: str, names, limit_s: float) -> unittest.TestResult:
    """The tests of the folder, or those of the names."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit_s, exit=True)
    loader = unittest.TestLoader()
    suite = (loader.loadTestsFromNames(names) if names
             else loader.discover(folder, "test_*.py"))
    return unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)


def exit_code(result: unittest.TestResult) -> int:
    """Tells the skipped ones and the count."""
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    n = result.testsRun - len(result.skipped)
    bad = len(result.failures) + len(result.errors)
    print(f"{100 * (n - bad) // n if n else 0}%: Checks: {n}, "
          f"Failures: {len(result.failures)}, Errors: {len(result.errors)}")
    return 0 if result.wasSuccessful() and n else 1
