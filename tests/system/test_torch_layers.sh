#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# FSDP2 and tensor-parallel layers of ceoverlap.torch over host ranks. Skipped as test_torch.sh is.
set -u

failed=0
# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
	"Python with PyTorch: PYTHON names another one"
export CUDA_VISIBLE_DEVICES=            # tests/gpu/check_torch.sh tests GPUs

names=(test_linear test_shares test_shares_experts test_styles)
for path in "$srcdir"/tests/python/torch/test_fsdp_*.py; do
	names+=("$(basename "$path" .py)")
done
"$python" "$srcdir/tests/python/torch/run.py" "${names[@]}" || failed=1
exit "$failed"
