#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Checks the model of the tile-flag protocol: no assertion fails and nothing is stuck,
# for polled and for gated launches; and each rule that the model can leave out
# (-DBROKEN=n) is missed, which shows that the checks can fail. 77: no spin.
set -u

srcdir=$(cd "$(dirname "$0")" && pwd)
command -v spin > /dev/null || { echo "spin is not installed: skipped"; exit 77; }

folder=$(mktemp -d "${TMPDIR:-/tmp}/ceov-model.XXXXXX") || exit 99
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 99
failed=0

# Searches all states; prints how many errors there are, or nothing on a failure.
errors() {
	spin -a "$@" "$srcdir/flag_protocol.pml" > spin.out 2>&1 || { cat spin.out >&2; return; }
	"${CC:-gcc}" -O2 -w -DSAFETY -o pan pan.c || return
	timeout 60 ./pan -m100000 > pan.out 2>&1
	if grep -q 'max search depth too small\|out of memory' pan.out; then
		cat pan.out >&2
		return
	fi
	sed -n 's/.*errors: \([0-9]*\)$/\1/p' pan.out
}

for gated in 0 1; do
	found=$(errors -DGATED=$gated)
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.out)
	if [ "$found" = 0 ]; then
		echo "ok: GATED=$gated: no error in $states states"
	else
		echo "FAIL: GATED=$gated: ${found:-no result}"
		grep -a 'assertion violated\|invalid end state' pan.out
		failed=1
	fi
done

for broken in 1 2 3 4 5 6; do
	found=$(errors -DGATED=1 -DBROKEN=$broken)
	if [ -n "$found" ] && [ "$found" != 0 ]; then
		echo "ok: BROKEN=$broken is found: $(grep -ao 'assertion violated.*\|invalid end state' \
			pan.out | head -n 1)"
	else
		echo "FAIL: BROKEN=$broken is not found"
		failed=1
	fi
done
exit "$failed"
