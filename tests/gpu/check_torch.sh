#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# ceoverlap.torch and ceoverlap.triton on the GPUs of this machine, from the build folder:
#
#   check_torch.sh [TEST...]
#
# TEST names modules, classes or cases of tests/python/torch (test_streams, for one), as for
# its run.py; without one, those of tests/python/triton run, too. PYTHON names the Python
# with PyTorch. On one GPU the ranks are processes that share it, which takes longer: of the
# tests only those are skipped, by name, that are about the path between two GPUs. Exits with
# 77 where there is no PyTorch, no GPU, or no library.
set -u

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/gpu/with_torch.sh
. "$here/with_torch.sh"
tests=$(dirname "$here")/python
failed=0
limit=600
[ "$n_gpus" -ge 2 ] || limit=1800
export CEOVERLAP_TEST_TIMEOUT=${CEOVERLAP_TEST_TIMEOUT:-$limit}

bash "$here/../run_test.sh" "$python" "$tests/torch/run.py" "$@" || failed=1
if [ $# = 0 ] && [ -d "$tests/triton" ]; then
	bash "$here/../run_test.sh" "$python" -m unittest discover -v -s "$tests/triton" ||
		failed=1
fi
exit "$failed"
