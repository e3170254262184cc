#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The Python package over NumPy arrays on host ranks (tests/python), and its examples.
# Skipped where there is no shared library (--disable-shared), or no Python with NumPy.
set -u

failed=0
# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" \
	'import sys, numpy; sys.exit(sys.version_info < (3, 10))' \
	"Python from 3.10 on with NumPy (Debian: python3-numpy)"

"$python" -W error "$srcdir/tests/python/run.py" || failed=1
# Those tests of the Triton verbs that need no GPU; warnings of Triton itself are ignored.
PYTHONPATH=$srcdir/tests/python/triton:$PYTHONPATH \
	"$python" "$srcdir/tests/python/run.py" test_triton || failed=1
for example in "$srcdir"/examples/python_*.py; do
	if ! CEOVERLAP_PLACE=host timeout 60 "$python" -W error "$example"; then
		echo "FAIL: $(basename "$example")"
		failed=1
	fi
done
exit "$failed"
