#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The shared library exports exactly what the public headers declare, all of it ceov_*, and needs
# neither libcuda nor UCX. The archive of its objects has ceov_* and cei_* only; a static library,
# which not every build makes, has the same objects.
set -u
export LC_ALL=C

srcdir=${srcdir:-.}
read -ra nm <<< "${NM:-nm}"
shared=.libs/libceoverlap.so
static=.libs/libceoverlap_core.a
failed=0

fail() {
	echo "FAIL: $1"
	failed=1
}

# With --disable-shared there is no shared library.
if [ ! -e "$shared" ]; then
	grep -q '^build_libtool_libs=no' libtool || fail "$shared was not built"
else
	exported=$("${nm[@]}" -D --defined-only "$shared" | awk '$2 != "A" { print $3 }' |
		sed 's/@.*//' | sort -u)
	# Comments fall out first: they mention calls, too.
	declared=$(cat "$srcdir"/include/ceoverlap/*.h |
		sed -e 's,/\*.*\*/,,' -e '\,/\*,,\,\*/,d' |
		grep -o '\<ceov_[a-z0-9_]*(' | tr -d '(' | sort -u)
	foreign=$(echo "$exported" | grep -v '^ceov_')
	[ -z "$foreign" ] || fail "$shared exports what is not ceov_*: $foreign"
	[ -n "$declared" ] || fail "no call found in the public headers"
	missing=$(comm -13 <(echo "$exported") <(echo "$declared"))
	[ -z "$missing" ] || fail "declared but not exported: $missing"
	extra=$(comm -23 <(echo "$exported") <(echo "$declared"))
	[ -z "$extra" ] || fail "exported but not declared in a public header: $extra"
	# Whoever runs a program with another user's rights must not choose its files; and
	# what it opens must not reach the programs that it starts.
	unsafe=$("${nm[@]}" -D --undefined-only "$shared" | awk '{ print $NF }' |
		sed 's/@.*//' | grep -Ex 'getenv|mkstemp' | sort -u)
	[ -z "$unsafe" ] || fail "$shared calls $unsafe: take secure_getenv(), mkostemp()"
	if readelf -d "$shared" | grep -q 'NEEDED.*libcuda'; then
		fail "$shared needs libcuda at start"
	fi
	if readelf -d "$shared" | grep -q 'NEEDED.*libuc[pstm]'; then
		fail "$shared needs UCX at start"
	fi
fi
if [ ! -e "$static" ]; then
	fail "$static was not built"
else
	# Sanitizers and coverage add names that are reserved to the compiler. NVTX's headers define
	# their own, weak and hidden, so that all objects of a program share them.
	foreign=$("${nm[@]}" -g --defined-only "$static" | awk 'NF == 3 { print $2, $3 }' |
		grep -Ev '^[WV] (nvtx|InitializeInjectionNvtx2_fnptr)' | awk '{ print $2 }' |
		grep -Ev '^(ceov_|cei_|__)' | sort -u)
	[ -z "$foreign" ] || fail "$static defines what is neither ceov_* nor cei_*: $foreign"
fi
exit "$failed"
