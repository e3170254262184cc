# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs the tests of this folder, or those named, and counts them as Check does, for
tests/count_cases.sh. Exits with 77 where there is no PyTorch with torch.distributed. A test
that has no end is told where it stands, and killed."""

import faulthandler
import os
import sys
import unittest

LIMIT_S = int(os.environ.get("CEOVERLAP_TEST_TIMEOUT", 120)) - 20


def main() -> int:
    try:
        import torch
    except ImportError as error:
        print(f"SKIP: no PyTorch ({error})")
        return 77
    if not torch.distributed.is_available():
        print("SKIP: this PyTorch has no torch.distributed")
        return 77
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path.insert(0, folder)
    faulthandler.enable()
    faulthandler.dump_traceback_later(LIMIT_S, exit=True)
    import rig

    print(f"CEOVERLAP_TEST_SEED={rig.SEED}")
    print(f"PyTorch {torch.__version__}, {rig.SIZE} ranks on "
          f"{'GPUs' if rig.HAS_GPUS else 'the host'}")
    loader = unittest.TestLoader()
    suite = (loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:]
             else loader.discover(folder, "test_*.py"))
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=2).run(suite)
    rig.close()
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    n = result.testsRun - len(result.skipped)
    bad = len(result.failures) + len(result.errors)
    print(f"{100 * (n - bad) // n if n else 0}%: Checks: {n}, "
          f"Failures: {len(result.failures)}, Errors: {len(result.errors)}")
    return 0 if result.wasSuccessful() and n else 1


if __name__ == "__main__":
    sys.exit(main())
