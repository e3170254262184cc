#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Ranges of NVTX's domain "ceoverlap", counted by a tool that is built here: launches, operators and
# channels' calls with CEOVERLAP_NVTX=1, nothing without. Skipped where there are no headers of NVTX;
# then the library was built without them, too, and says so.
set -u

folder=${CEOVERLAP_TEST_TMP:-$(mktemp -d)}
out=$folder/nvtx.out
errors=$folder/nvtx.err
tool=$folder/count_ranges.so
failed=0

for name in "${!CEOVERLAP_@}"; do
	case $name in CEOVERLAP_TEST_*) ;; *) unset "$name" ;; esac
done
unset NVTX_INJECTION64_PATH

fail() {
	echo "FAIL: $1"
	failed=1
}

# bench ARGUMENT...: ranks on host memory, a thread each.
bench() {
	timeout 60 ./ceoverlap-bench "$@" --host --one-process -g 2 -n 3 -w 1 > "$out" 2> "$errors" || {
		fail "the bench: $*"
		cat "$errors" "$out"
	}
}

# says TEXT: the last errors have it.
says() {
	grep -qF -- "$1" "$errors" || { fail "'$1' is not said"; cat "$errors"; }
}

CEOVERLAP_NVTX=yes timeout 60 ./ceoverlap-bench --host --one-process -g 2 -t p2p -n 1 -b 64K -e 64K \
	> "$out" 2> "$errors" && fail "CEOVERLAP_NVTX=yes is taken"
says "CEOVERLAP_NVTX is 'yes', must be a number from 0 to 1"

# shellcheck disable=SC2086  # flags are several words
if ! ${CC:-cc} ${CUDA_CFLAGS:-} -Wall -shared -fPIC -pthread -o "$tool" \
		"${srcdir:-.}/tests/system/count_ranges.c" 2> "$errors"; then
	grep -q "nvToolsExt.h" "$errors" || { fail "the tool is not built"; cat "$errors"; exit 1; }
	CEOVERLAP_NVTX=1 bench -t p2p -b 64K -e 64K
	says "this library was built without NVTX's headers"
	[ "$failed" = 0 ] || exit 1
	echo "SKIP: no headers of NVTX"
	exit 77
fi

# ranges NAME: how many of them the last run had.
ranges() {
	cat "$folder"/ranges.* 2> /dev/null | awk -v name="$1" '$1 == name { n += $2 } END { print n + 0 }'
}

# run ARGUMENT...: the bench with the tool.
run() {
	rm -f "$folder"/ranges.*
	NVTX_INJECTION64_PATH=$tool COUNT_RANGES=$folder/ranges bench "$@"
}

export CEOVERLAP_NVTX=1
run -t p2p -b 64K -e 64K
n=$(ranges ceov_launch)
[ "$n" -ge 8 ] || fail "$n ranges of launches"
[ "$(ranges wrong)" = 0 ] || fail "ranges that are not pairs"
run -t p2p -b 64K -e 64K
[ "$(ranges ceov_launch)" = "$n" ] || fail "other launches: $(ranges ceov_launch), before: $n"

run -t channel -b 64K -e 64K
n=$(ranges all_reduce)
[ "$n" -ge 8 ] || { fail "$n ranges of a channel's all-reduces"; cat "$folder"/ranges.*; }
[ "$(ranges wrong)" = 0 ] || fail "a channel's ranges that are not pairs"

run overlap -m tiny
n=$(cat "$folder"/ranges.* | grep -c '^ceov_.* [0-9]')
[ "$n" -ge 3 ] || { fail "$n kinds of ranges of operators"; cat "$folder"/ranges.*; }
[ "$(ranges wrong)" = 0 ] || fail "operators' ranges that are not pairs"

for value in 0 ""; do
	export CEOVERLAP_NVTX=$value
	run -t p2p -b 64K -e 64K
	[ ! -e "$(echo "$folder"/ranges.*)" ] || fail "ranges with CEOVERLAP_NVTX='$value'"
done

# Without a tool nothing happens.
unset NVTX_INJECTION64_PATH
export CEOVERLAP_NVTX=1
bench -t p2p -b 64K -e 64K
[ ! -s "$errors" ] || { fail "something is said"; cat "$errors"; }
exit "$failed"
