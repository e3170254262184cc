#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# ceoverlap.torch over host ranks (tests/python/torch), but for FSDP2 and layers, which
# test_torch_layers.sh runs, the backend of torch.distributed, which test_torch_backend.sh runs, and
# ranks of several nodes, which test_torch_nodes.sh does: together they take too long for one test.
# Skipped where there is no shared library (--disable-shared), or no Python with PyTorch.
set -u

failed=0
# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
	"Python with PyTorch: PYTHON names another one"
export CUDA_VISIBLE_DEVICES=            # tests/gpu/check_torch.sh tests GPUs

names=()
for path in "$srcdir"/tests/python/torch/test_*.py; do
	name=$(basename "$path" .py)
	case $name in
	test_nodes | test_backend* | test_fsdp_* | test_linear | test_shares* | test_styles | \
		test_programs) ;;
	*) names+=("$name") ;;
	esac
done
"$python" "$srcdir/tests/python/torch/run.py" "${names[@]}" || failed=1
exit "$failed"
