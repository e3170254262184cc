#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Many waiting streams beside PyTorch's kernels and allocator on one GPU (stress_torch.py),
# from the build folder. CEOVERLAP_STRESS_SECONDS: how long (default 600); PYTHON names the
# Python with PyTorch. Exits with 77 where there is none, no GPU, or no library.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gpu/with_torch.sh
. "$here/with_torch.sh"
export CEOVERLAP_STRESS_SECONDS=${CEOVERLAP_STRESS_SECONDS:-600}
export CEOVERLAP_TEST_TIMEOUT=${CEOVERLAP_TEST_TIMEOUT:-$((CEOVERLAP_STRESS_SECONDS + 300))}
bash "$here/../run_test.sh" "$python" "$here/stress_torch.py"
