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
said=$(CEOVERLAP_PLACE=host timeout 60 ./ceoverlap-run -n 4 "$python" -W error \
	"$srcdir/examples/python_ring.py")
if [ "$said" != "a ring of 4 ranks has passed on 6" ]; then
	echo "FAIL: the example python_ring.py with 4 processes says '$said'"
	failed=1
fi
exit "$failed"
