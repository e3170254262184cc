#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Tests that processes whose versions of UCX, or of ceoverlap, differ do not form a group, and that
# the processes of both nodes are told both versions. Two of four processes use
#
#   - a copy of the UCX that is here, whose library says another version;
#   - a program with another version of ceoverlap built into it (run_other_party);
#   - the UCX in the folder CEOVERLAP_TEST_UCX2, which has to be of another version. Then that UCX
#     also claims the version of the first one, so that the group is not refused, and the test
#     prints how that ends.
#
# Processes of equal versions have to form a group, or the refusals would prove nothing.
set -u

party=./tests/system/run_party
folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
[ -n "${CEOVERLAP_TEST_TMP:-}" ] || trap 'rm -rf "$folder"' EXIT
here=${LD_LIBRARY_PATH:-}
failed=0
runs=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done
export CEOVERLAP_NICS=lo CEOVERLAP_PLACE=host

fail() {
	echo "FAIL: $1"
	tail -n 20 "$meeting".*.err
	failed=1
}

# ucx_version PATH: the version of the UCX that is found by this LD_LIBRARY_PATH.
ucx_version() {
	LD_LIBRARY_PATH=$1 ./ceoverlap-info build 2> /dev/null |
		sed -n 's/.*UCX \([0-9][^ ,]*\),.*/\1/p' | head -n 1
}

# ucx_file PATH: the libucp that is found by this LD_LIBRARY_PATH.
ucx_file() {
	LD_LIBRARY_PATH=$1 LD_DEBUG=libs ./ceoverlap-info build 2>&1 > /dev/null |
		sed -n 's/.*calling init: \(.*libucp\.so\.0\)$/\1/p' | head -n 1
}

# with_version FROM TO FILE COPY: copies the file, and puts one version in the place of the other,
# which has the same length, wherever a text ends with it.
with_version() {
	LC_ALL=C sed "s/${1//./\\.}\x00/$2\x00/g" "$3" > "$4" && chmod 755 "$4" &&
		! cmp -s "$3" "$4"
}

# run_group PATH PROGRAM: processes 0 and 1 are a node with what is here, 2 and 3 are one with this
# LD_LIBRARY_PATH and program. Returns how many of the four failed. To the launcher all of them
# end well, or it would end those that have not yet said why they fail.
run_group() {
	runs=$((runs + 1))
	meeting=$folder/group$runs
	# shellcheck disable=SC2016 # the processes expand it
	here=$here party=$party path=$1 program=$2 meeting=$meeting \
		./ceoverlap-run -n 4 --nodes 2 --timeout 60 sh -c '
		[ "$CEOVERLAP_PROCESS" -lt 2 ] || here=$path party=$program
		LD_LIBRARY_PATH=$here "$party" > "$meeting.$CEOVERLAP_PROCESS.out" \
			2> "$meeting.$CEOVERLAP_PROCESS.err" || : > "$meeting.$CEOVERLAP_PROCESS.failed"'
	return "$(find "$folder" -name "group$runs.*.failed" | wc -l)"
}

# refused WHAT OURS THEIRS: the last group was refused, and every process named both versions.
refused() {
	local rank own foreign

	for rank in 0 1 2 3; do
		own=$2 foreign=$3
		[ "$rank" -lt 2 ] || own=$3 foreign=$2
		grep -qE "rank [0-3] has $1 ${foreign//./\\.}, rank $rank has ${own//./\\.}: " \
			"$meeting.$rank.err" ||
			fail "$1 $2 and $3: rank $rank does not name both"
	done
}

# --- another UCX --------------------------------------------------------------------------

# claim VERSION CLAIMED PATH COPY: makes the folder COPY, which holds a copy of the libucp that is
# found by this LD_LIBRARY_PATH and says another version. The copy needs the other libraries of
# the same UCX, which lie where it lay.
claim() {
	local file

	file=$(ucx_file "$3")
	[ -n "$file" ] || { fail "no libucp is found by '$3'"; return 1; }
	mkdir "$4" || exit 99
	with_version "$1" "$2" "$file" "$4/libucp.so.0" ||
		{ fail "the version $1 is not in $file"; return 1; }
	[ "$(ucx_version "$4:$(dirname "$file"):$3")" = "$2" ] ||
		{ fail "a copy of $file does not say version $2"; return 1; }
	claimed=$4:$(dirname "$file"):$3
}

meeting=$folder/none
ucx=$(ucx_version "$here")
if [ -z "$ucx" ]; then
	echo "SKIP: there is no UCX"
	exit 77
fi
lying=${ucx%?}$(((${ucx: -1} + 1) % 10))
if claim "$ucx" "$lying" "$here" "$folder/claimed"; then
	run_group "$claimed" "$party"
	[ $? = 4 ] || fail "UCX $ucx and $lying formed a group"
	refused UCX "$ucx" "$lying"
fi

# --- another ceoverlap ----------------------------------------------------------------------

run_group "$here" "$party" || fail "a group of equal versions was refused"
ours=$(./ceoverlap-info --version | sed 's/.* //')
run_group "$here" ./tests/system/run_other_party
[ $? = 4 ] || fail "ceoverlap $ours and 99.9.9 formed a group"
refused ceoverlap "$ours" 99.9.9

# --- a second UCX ---------------------------------------------------------------------------

second=${CEOVERLAP_TEST_UCX2:-}
if [ -z "$second" ]; then
	echo "not tried: a second UCX, whose libraries' folder CEOVERLAP_TEST_UCX2 names"
	exit "$failed"
fi
theirs=$(ucx_version "$second")
echo "UCX $ucx here, UCX $theirs in $second"
if [ -z "$theirs" ] || [ "$theirs" = "$ucx" ]; then
	fail "$second holds no other UCX than $ucx"
	exit "$failed"
fi
run_group "$second" "$party"
[ $? = 4 ] || fail "UCX $ucx and $theirs formed a group"
refused UCX "$ucx" "$theirs"
if [ ${#ucx} = ${#theirs} ] && claim "$theirs" "$ucx" "$second" "$folder/unchecked"; then
	run_group "$claimed" "$party"
	echo "if UCX $theirs claims to be $ucx, $? of 4 processes fail (0: the bytes were right)"
	cat "$meeting".*.err | head -n 8
fi
exit "$failed"
