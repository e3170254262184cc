#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Every file of the repository says its licence and its owner, itself or in REUSE.toml, as the REUSE
# specification wants it. Skipped without git, which says what files of the repository are, and
# without the tool reuse of version 4 or newer, the first that reads REUSE.toml.
set -u

srcdir=${srcdir:-.}
if ! git -C "$srcdir" ls-files --error-unmatch REUSE.toml > /dev/null 2>&1; then
	echo "SKIP: the sources are no checkout of git"
	exit 77
fi
tool=(reuse)
if ! command -v reuse > /dev/null; then
	tool=("${PYTHON:-python3}" -m reuse)
fi
version=$("${tool[@]}" --version 2> /dev/null | sed -n '1s/^[^0-9]*\([0-9]*\)\..*/\1/p')
if [ "${version:-0}" -lt 4 ]; then
	echo "SKIP: no reuse of version 4 or newer (pip install reuse)"
	exit 77
fi
"${tool[@]}" --root "$srcdir" lint --quiet && exit 0
"${tool[@]}" --root "$srcdir" lint
echo "FAIL: give new files the two head lines, or name them in REUSE.toml"
exit 1
