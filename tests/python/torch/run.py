# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
"""Runs the tests of this folder, or those named; see ../counted.py. Exits with 77 where
there is no PyTorch with torch.distributed."""

import os
import sys

FOLDER = os.path.dirname(os.path.abspath(__file__))


def where(rig) -> str:
    """What the ranks run on, and what that means for the tests."""
    if not rig.HAS_GPUS:
        return "the host"
    if not rig.SHARES_GPUS:
        return "a GPU each"
    return (f"{rig.N_GPUS} GPU{'s' * (rig.N_GPUS > 1)}, which they share in turns: smaller "
            f"sizes, {rig.TURNS} times the time, the process group by gloo")


def main() -> int:
    try:
        import torch
    except ImportError as error:
        print(f"SKIP: no PyTorch ({error})")
        return 77
    if not torch.distributed.is_available():
        print("SKIP: this PyTorch has no torch.distributed")
        return 77
    sys.path.append(os.path.dirname(FOLDER))    # behind: it has a rig, too
    import counted
    import rig

    print(f"CEOVERLAP_TEST_SEED={rig.SEED}")
    print(f"PyTorch {torch.__version__}, {rig.SIZE} ranks on {where(rig)}")
    result = counted.run(FOLDER, sys.argv[1:], rig.TEST_S - 20)
    rig.close()
    return counted.exit_code(result)


if __name__ == "__main__":
    sys.exit(main())
