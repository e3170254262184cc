#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# For what needs PyTorch and a GPU; scripts source it from the build folder, with `here`
# naming this folder. Sets python, n_gpus and the environment in which ceoverlap is found;
# exits with 77 where there is no PyTorch, no GPU, or no library.

skip() {
	echo "SKIP: $1"
	exit 77
}

python=${PYTHON:-python3}
[ -e "$PWD/.libs/libceoverlap.so" ] || skip "no shared library was built in $PWD"
"$python" -c 'import torch.distributed' > /dev/null 2>&1 ||
	skip "$python has no PyTorch: PYTHON names another one"
n_gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
[ "$n_gpus" -ge 1 ] || skip "needs a GPU, PyTorch sees none"

top=$(dirname "$(dirname "${here:?}")")
export CEOVERLAP_LIBRARY=$PWD/.libs/libceoverlap.so
export PYTHONPATH=$top/python PYTHONDONTWRITEBYTECODE=1
unset CEOVERLAP_RANK CEOVERLAP_RANKS CEOVERLAP_PLACE CEOVERLAP_GROUP
