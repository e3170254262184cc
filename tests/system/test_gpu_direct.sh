#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests the command ceoverlap-gpu-direct, with host memory in place of a GPU's: bytes go over the
# network and back, and options that are wrong are refused.
set -u

program=./ceoverlap-gpu-direct
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
failed=0

fail() {
	echo "FAIL: $1"
	failed=1
}

export CEOVERLAP_TRANSPORTS=tcp CEOVERLAP_NICS=lo CEOVERLAP_RANK=7 CEOVERLAP_BOOTSTRAP=pmix
export CEOVERLAP_TRACE=$folder/trace.json

if ./ceoverlap-info --json 2> /dev/null | grep -q '"ucx": *null'; then
	echo "skipped: this machine has no UCX"
	exit 77
fi

output=$(timeout 60 "$program" --host --bytes 3000001 --rounds 2 2> "$folder/errors") ||
	fail "exit status of a test over host memory: $?, $(cat "$folder/errors")"
[[ $output =~ ^passed\ [1-9][0-9]+\ [1-9][0-9]+$ ]] || fail "output '$output'"
[ ! -e "$CEOVERLAP_TRACE" ] || fail "it overwrote the trace of the process that ran it"

# A GPU that there is not.
if output=$(timeout 60 "$program" --gpu 63 --bytes 100 2> /dev/null); then
	fail "a GPU that there is not passed"
fi
[ "$output" = "failed: the two nodes cannot be opened" ] || fail "without a GPU: '$output'"

for wrong in "--gpu x" "--gpu 64" "--bytes 0" "--rounds 0" "more" "--nothing"; do
	# shellcheck disable=SC2086
	timeout 10 "$program" $wrong > /dev/null 2>&1
	status=$?
	[ "$status" = 64 ] || fail "'$wrong': exit status $status, not 64"
done
# An option's letter may follow others in its word, and its argument may stand in the next one.
for wrong in "-g 64" "-g64" "-Hg 64" "-Hg64"; do
	# shellcheck disable=SC2086
	output=$(timeout 10 "$program" $wrong 2>&1)
	[[ $output == *" -g: '64' must be"* ]] || fail "'$wrong' is refused so: $output"
done
timeout 10 "$program" --help | grep -q -- --rounds || fail "--help"
exit "$failed"
