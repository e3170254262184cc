#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# ceoverlap.torch over host ranks that act as those of two nodes (tests/python/torch/test_nodes.py),
# and its examples. Skipped as test_torch.sh is.
set -u

failed=0
# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
	"Python with PyTorch: PYTHON names another one"
export CUDA_VISIBLE_DEVICES=            # tests/gpu/check_torch.sh tests GPUs

# The three examples have up to 100, 100 and 120 s of the time.
CEOVERLAP_TEST_TIMEOUT=$((${CEOVERLAP_TEST_TIMEOUT:-600} - 320)) \
	"$python" "$srcdir/tests/python/torch/run.py" test_nodes || failed=1
if ! timeout 100 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
		"$srcdir/examples/torch_tp_mlp.py" --device cpu --hidden 32 --ffn 64 \
		--tokens 16 --rounds 2 --steps 1 --loss-steps 3; then
	echo "FAIL: torch_tp_mlp.py"
	failed=1
fi
if ! timeout 100 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
		"$srcdir/examples/torch_marks_nccl.py" --device cpu --tokens 300 --inner 64 \
		--hidden 72 --groups 3 --rounds 2; then
	echo "FAIL: torch_marks_nccl.py"
	failed=1
fi
# Four ranks, so that both dimensions of the mesh have two.
if ! timeout 120 "$python" -m torch.distributed.run --standalone --nproc-per-node 4 \
		"$srcdir/examples/torch_llama.py" --device cpu --layers 1 --hidden 32 \
		--vocab 64 --seq 16 --batch 2 --steps 3; then
	echo "FAIL: torch_llama.py"
	failed=1
fi
exit "$failed"
