#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The Python package over NumPy arrays on host ranks (tests/python), and its examples.
# Skipped where there is no shared library (--disable-shared), or no Python with NumPy.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
library=$PWD/.libs/libceoverlap.so
failed=0

skip() {
	echo "SKIP: $1"
	exit 77
}

# The user's Python, or the system's, whose NumPy a package of the system brings.
find_python() {
	local one

	for one in ${PYTHON:-python3 /usr/bin/python3}; do
		command -v "$one" > /dev/null &&
			"$one" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 9))' \
				> /dev/null 2>&1 && echo "$one" && return 0
	done
	return 1
}

[ -e "$library" ] || skip "no shared library was built"
python=$(find_python) || skip "no Python from 3.9 on with NumPy (Debian: python3-numpy)"
echo "with $("$python" -V)"

export CEOVERLAP_LIBRARY=$library
export PYTHONPATH=$srcdir/python PYTHONDONTWRITEBYTECODE=1
unset CEOVERLAP_RANK CEOVERLAP_RANKS CEOVERLAP_PLACE CEOVERLAP_GROUP

"$python" -W error "$srcdir/tests/python/run.py" || failed=1
# What needs no GPU of the Triton verbs; Triton's own warnings are its own.
PYTHONPATH=$srcdir/tests/python/triton:$PYTHONPATH \
	"$python" "$srcdir/tests/python/run.py" test_triton || failed=1
for example in "$srcdir"/examples/python_*.py; do
	if ! CEOVERLAP_PLACE=host timeout 60 "$python" -W error "$example"; then
		echo "FAIL: $(basename "$example")"
		failed=1
	fi
done
exit "$failed"
