#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs tests with a UCX that need not be the installed one:
#
#   check_ucx.sh TEST...
#
#   UCX_LIB      folder of its libucp.so.0; its modules are in ucx/ there, where UCX looks for them.
#                Empty: the one that is installed
#
# Fails if the tests would use another UCX than that of UCX_LIB, and if any test fails or is skipped.
# Where the installed UCX is of another version, test_ucx_versions.sh has both meet.
set -u

scripts=$(dirname "$0")
failed=()

# found PATH: version and file of the UCX that processes with this LD_LIBRARY_PATH open.
found() {
	LD_LIBRARY_PATH=$1 LD_DEBUG=libs ./ceoverlap-info build 2>&1 |
		sed -n -e 's/.*calling init: \(.*libucp\.so\.0\)$/in \1/p' \
			-e 's/.*  \(UCX [0-9][^ ,]*\),.*/\1/p' | LC_ALL=C sort -u | paste -sd ' '
}

before=${LD_LIBRARY_PATH:-}
installed=$(found "$before")
if [ -n "${UCX_LIB:-}" ]; then
	UCX_LIB=$(cd "$UCX_LIB" && pwd) || exit 2
	export LD_LIBRARY_PATH=$UCX_LIB${before:+:$before}
fi
tested=$(found "${LD_LIBRARY_PATH:-}")
echo "tested: ${tested:-no UCX}"
case "$tested " in
"UCX "*" in ${UCX_LIB:-}"*) ;;
*)
	echo "check_ucx.sh: ${UCX_LIB:-this machine} has no UCX that can be opened" >&2
	exit 2
esac
if [ -n "$installed" ] && [ "${installed%% in *}" != "${tested%% in *}" ]; then
	CEOVERLAP_TEST_UCX2=$(dirname "${installed##* in }")
	export CEOVERLAP_TEST_UCX2
fi

for test in "$@"; do
	echo "== $test"
	"$BASH" "$scripts/run_test.sh" "$test"
	status=$?
	[ "$status" = 0 ] || failed+=("$test ($status)")
done
if [ ${#failed[@]} != 0 ]; then
	printf 'failed or skipped with %s: %s\n' "${tested%% in *}" "${failed[*]}"
	exit 1
fi
echo "all $# passed with ${tested%% in *}"
