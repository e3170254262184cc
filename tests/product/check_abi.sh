#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Programs that were built against the last release go on working with this library: what the public
# headers declare, as abidw of libabigail describes it, is held against abi/libceoverlap.abi. New
# calls, new names in enums and new members behind the last one of a struct that begins with
# struct_bytes break nobody. "check_abi.sh --accept", called in the build folder, writes the file
# anew. That the library exports what the headers declare is check_symbols.sh's part. Skipped
# without abigail-tools, and on machines whose types are not those of the file.
set -u

srcdir=${srcdir:-.}
stored=$srcdir/abi/libceoverlap.abi
read -ra cc <<< "${CC:-cc}"
failed=0
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

skip() {
	echo "SKIP: $1"
	exit 77
}

# A library that has the binary interface of the headers in $1 and nothing else, as $2.so; with a
# file of abidw as $3, structs that have grown end where they end there.
make_library() {
	local header

	for header in "$1"/ceoverlap/*.h; do
		echo "#include <ceoverlap/$(basename "$header")>"
	done > "$2.all.c"
	"${cc[@]}" -E -P -I "$1" -o "$2.i" "$2.all.c" &&
		python3 "$srcdir/tests/product/abi.py" "$2.i" "${@:3}" > "$2.c" &&
		"${cc[@]}" -g -w -shared -fPIC -o "$2.so" "$2.c"
}

# Writes what abidw says of the library $1 into $2.
describe() {
	abidw --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed \
		--type-id-style hash --out-file "$2" "$1"
}

# Whether the headers in $1 still have the interface in the file $2: 0 yes; 4 is among the bits of
# the status if not, which is printed; else they cannot be compared.
compare() {
	make_library "$1" "$folder/new" "$2" || return 1
	abidiff --no-added-syms "$2" "$folder/new.so"
}

# Whether a change to the headers, of the kind $1, is found: as $2 says, yes or no. The rest are
# arguments of sed, which makes it.
expect() {
	local kind=$1 wanted=$2 found status
	shift 2

	rm -rf "$folder/include"
	cp -r "$srcdir/include" "$folder/include"
	sed -i "$@" "$folder/include/ceoverlap/ceoverlap.h"
	if cmp -s "$folder/include/ceoverlap/ceoverlap.h" "$srcdir/include/ceoverlap/ceoverlap.h"; then
		echo "FAIL: $kind: this test's change changes nothing"
		failed=1
		return
	fi
	compare "$folder/include" "$folder/now.abi" > "$folder/log" 2>&1
	status=$?
	found=$([ "$((status & 4))" = 0 ] && echo no || echo yes)
	[ "$status" != 1 ] && [ "$found" = "$wanted" ] && return
	cat "$folder/log"
	echo "FAIL: $kind: is a break found? $found (status $status); it should be: $wanted"
	failed=1
}

command -v abidiff > /dev/null || skip "no abidiff (Debian: abigail-tools)"
command -v python3 > /dev/null || skip "no python3"
[ "$(uname -m)" = x86_64 ] || skip "abi/libceoverlap.abi is that of x86_64"

make_library "$srcdir/include" "$folder/now" || exit 1
describe "$folder/now.so" "$folder/now.abi" || exit 1
if [ "${1:-}" = --accept ]; then
	mkdir -p "$srcdir/abi" && cp "$folder/now.abi" "$stored" && echo "written: $stored"
	exit
fi
declared=$(cat "$srcdir"/include/ceoverlap/*.h | sed -e 's,/\*.*\*/,,' -e '\,/\*,,\,\*/,d' |
	grep -o '\<ceov_[a-z0-9_]*(' | tr -d '(' | sort -u)
described=$(grep -o "elf-symbol name='ceov_[a-z0-9_]*" "$folder/now.abi" | sed "s/.*'//" | sort -u)
if [ "$declared" != "$described" ]; then
	diff <(echo "$declared") <(echo "$described")
	echo "FAIL: abi.py does not see the calls that the headers declare"
	failed=1
fi

grown='/^struct ceov_launch {/,/^};/s/^};/\tuint64_t more;\n};/'
expect "a member at the end" no "$grown"
expect "a member at the end, and another type before" yes -e "$grown" \
	-e '/^struct ceov_launch {/,/^};/s/uint64_t base;/uint32_t base;/'
expect "a member at the end of a struct without struct_bytes" yes \
	'/^struct ceov_failure {/,/^};/s/^};/\tuint64_t more;\n};/'
expect "a call without which programs do not start" yes '/ceov_version_number(void)/d'
expect "another type of an argument" yes \
	's/uint32_t rank, const char \*name/uint64_t rank, const char *name/'
expect "another value" yes 's/CEOV_FULL *= 2/CEOV_FULL = 4/'
expect "a new call" no 's/^const char \*ceov_version(void);/&\nint ceov_more(void);/'

if ! compare "$srcdir/include" "$stored"; then
	echo "FAIL: programs built against the last release break, as told above. Undo it; or, where" \
		"that is meant, raise CEOV_LIBRARY_VERSION in configure.ac as its comment says, tell" \
		"it in CHANGELOG.md, and accept it by: cd build && srcdir=.. bash" \
		"../tests/product/check_abi.sh --accept"
	failed=1
fi
exit "$failed"
