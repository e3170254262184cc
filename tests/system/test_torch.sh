#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# ceoverlap.torch over host ranks (tests/python/torch), and its example. Skipped where there
# is no shared library (--disable-shared), or no Python with PyTorch.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
library=$PWD/.libs/libceoverlap.so
failed=0

skip() {
	echo "SKIP: $1"
	exit 77
}

find_python() {
	local one

	for one in ${PYTHON:-python3 /usr/bin/python3}; do
		command -v "$one" > /dev/null &&
			"$one" -c 'import torch.distributed as d; d.TCPStore; d.ReduceOp' \
				> /dev/null 2>&1 && echo "$one" && return 0
	done
	return 1
}

[ -e "$library" ] || skip "no shared library was built"
python=$(find_python) || skip "no Python with PyTorch: PYTHON names another one"
echo "with $("$python" -V)"

export CEOVERLAP_LIBRARY=$library
export PYTHONPATH=$srcdir/python PYTHONDONTWRITEBYTECODE=1
export CUDA_VISIBLE_DEVICES=            # GPUs have tests/gpu/check_torch.sh
unset CEOVERLAP_RANK CEOVERLAP_RANKS CEOVERLAP_PLACE CEOVERLAP_GROUP

"$python" "$srcdir/tests/python/torch/run.py" || failed=1
if ! timeout 100 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 \
		"$srcdir/examples/torch_tp_mlp.py" --device cpu --hidden 32 --ffn 64 \
		--tokens 16 --rounds 2 --steps 1 --loss-steps 3; then
	echo "FAIL: torch_tp_mlp.py"
	failed=1
fi
exit "$failed"
