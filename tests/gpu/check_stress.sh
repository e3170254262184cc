#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Many waiting streams beside PyTorch's kernels and allocator on one GPU (stress_torch.py),
# from the build folder: first a tenth of the time with the driver's default of 8 hardware queues,
# then with 32. CEOVERLAP_STRESS_SECONDS: how long with 32 (default 600); PYTHON names the Python
# with PyTorch. Exits with 77 where there is none, no GPU, or no library.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gpu/with_torch.sh
. "$here/with_torch.sh"
seconds=${CEOVERLAP_STRESS_SECONDS:-600}
export CEOVERLAP_TEST_TIMEOUT=${CEOVERLAP_TEST_TIMEOUT:-$((seconds + 300))}

# Runs the test with so many hardware queues for so many seconds.
stress() {
	CUDA_DEVICE_MAX_CONNECTIONS=$1 CEOVERLAP_STRESS_SECONDS=$2 \
		bash "$here/../run_test.sh" "$python" "$here/stress_torch.py"
}

stress 8 $((seconds / 10)) && stress 32 "$seconds"
