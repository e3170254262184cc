#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs a GPU test program under compute-sanitizer's memcheck, with few rounds:
#
#   check_sanitizer.sh PROGRAM
#
# Exits with 77 where there is no compute-sanitizer (PATH, or COMPUTE_SANITIZER) or no
# GPU. Errors of driver calls are not judged: the suite provokes some.
set -u

program=$1
here=$(dirname "$0")
tool=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer)}
if [ -z "$tool" ] && [ -x /usr/local/cuda/bin/compute-sanitizer ]; then
	tool=/usr/local/cuda/bin/compute-sanitizer
fi
if [ -z "$tool" ]; then
	echo "skipped: there is no compute-sanitizer"
	exit 77
fi

# Check forks each case, so that its processes are to be followed; kernels are slower.
# Kernels that must run at once cannot under it: its launches follow each other.
export CK_EXCLUDE_TAGS=${CK_EXCLUDE_TAGS:-concurrent}
export CEOVERLAP_GPU_OP_SHAPES=${CEOVERLAP_GPU_OP_SHAPES:-1}
export CEOVERLAP_GPU_EXPERT_SHAPES=${CEOVERLAP_GPU_EXPERT_SHAPES:-2}
export CEOVERLAP_GPU_EMBEDDING_SHAPES=${CEOVERLAP_GPU_EMBEDDING_SHAPES:-3}
export CEOVERLAP_GPU_ROUNDS=${CEOVERLAP_GPU_ROUNDS:-20}
export CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-5}
exec bash "$here/../run_test.sh" "$tool" --tool memcheck --target-processes all \
	--report-api-errors no --error-exitcode 9 "$program"
