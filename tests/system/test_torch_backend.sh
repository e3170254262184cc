#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The backend "ceov" of torch.distributed over host ranks (tests/python/torch/test_backend*.py).
# Skipped as test_torch.sh is.
set -u

failed=0
# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
	"Python with PyTorch: PYTHON names another one"
export CUDA_VISIBLE_DEVICES=

names=()
for path in "$srcdir"/tests/python/torch/test_backend*.py; do
	names+=("$(basename "$path" .py)")
done
"$python" "$srcdir/tests/python/torch/run.py" "${names[@]}" || failed=1
exit "$failed"
