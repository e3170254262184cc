#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# 300 random programs of ceoverlap.torch over host ranks. Skipped as test_torch.sh is.
set -u

# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
	"Python with PyTorch: PYTHON names another one"
export CUDA_VISIBLE_DEVICES=

"$python" "$srcdir/tests/python/torch/run.py" test_programs
