#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Everything that the tree holds is in the release: a file that Makefile.am and the local.mk
# of its folder forget would be missed only by those who build from the tarball. And nothing
# is in the release that Python or a build has left behind.
set -u

srcdir=${srcdir:-.}
folder=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$folder"; rm -rf "$folder"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL

if ! make distdir distdir="$folder/release" > "$folder/log" 2>&1; then
	cat "$folder/log"
	exit 1
fi
missing=$(
	cd "$srcdir" || exit 1
	find ./*.md LICENSES abi debian src include python tests tools examples docs man model systemd m4 .ci -type f ! -name '*.log' \
		! -name '*.trs' ! -name '*~' ! -path m4/libtool.m4 ! -path 'm4/lt*.m4' \
		! -path '*/.deps/*' ! -name '*.in~' ! -path '*/__pycache__/*' \
		! -path 'python/build/*' ! -path 'python/lib/build/*' ! -path 'python/*.egg-info/*' 2>/dev/null | sort |
	while read -r path; do
		[ -e "$folder/release/$path" ] || echo "$path"
	done
)
left=$(find "$folder/release" \( -name __pycache__ -o -name '*.log' -o -name '*.o' \
	-o -name '*~' \) -not -path "$folder/release/autom4te.cache/*")
[ -n "$missing$left" ] || exit 0
[ -z "$missing" ] || echo "FAIL: in the tree, but not in the release: $missing"
[ -z "$left" ] || echo "FAIL: in the release, but made by a tool: $left"
exit 1
