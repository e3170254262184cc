# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs the tests of this folder, or those named, and counts them as Check does, for
tests/count_cases.sh. A test that has no end is told where it stands, and killed."""

import faulthandler
import os
import sys
import unittest

LIMIT_S = 100


def main() -> int:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    loader = unittest.TestLoader()
    suite = (loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:]
             else loader.discover(folder, "test_*.py"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    n = result.testsRun - len(result.skipped)
    bad = len(result.failures) + len(result.errors)
    print(f"{100 * (n - bad) // n if n else 0}%: Checks: {n}, "
          f"Failures: {len(result.failures)}, Errors: {len(result.errors)}")
    return 0 if result.wasSuccessful() and n else 1


if __name__ == "__main__":
    sys.exit(main())
