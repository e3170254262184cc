#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Each public header compiles alone, as C11 and C++17, pedantically, without warning;
# device.cuh with nvcc. Each struct that grows has its CEOV_..._INIT there, which makes one without
# warning. Each internal header compiles alone, too.
set -u

srcdir=${srcdir:-.}
CC=${CC:-cc}
CXX=${CXX:-c++}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
failed=0
includes=(-I"$srcdir/include" -Iinclude)
strict=(-pedantic -Wall -Wextra -Werror)

# Compiles a file that includes $1 twice and nothing else.
check() {
	local header=$1 name=$2
	shift 2

	printf '#include <%s>\n#include <%s>\n%s\n' "$header" "$header" \
		'extern int check_header_end;' > "$folder/$name"
	if ! "$@" "${includes[@]}" "$folder/$name"; then
		echo "FAIL: $header alone: $*"
		failed=1
	fi
}

# $CC and $CXX may hold options, and are split for that.
read -ra cc <<< "$CC"
read -ra cxx <<< "$CXX"

have_cxx=yes
if ! command -v "${cxx[0]}" > /dev/null; then
	echo "no C++ compiler: C++17 is not checked"
	have_cxx=no
fi

for path in "$srcdir"/include/ceoverlap/*.h include/ceoverlap/version.h; do
	header=ceoverlap/$(basename "$path")
	check "$header" check.c "${cc[@]}" -std=c11 "${strict[@]}" -fsyntax-only
	[ "$have_cxx" = no ] ||
		check "$header" check.cc "${cxx[@]}" -std=c++17 "${strict[@]}" -fsyntax-only
done

# The names of structs that begin with struct_bytes.
mapfile -t sized < <(awk '/^struct ceov_[a-z0-9_]+ \{/ { name = $2; next }
	name != "" && /^[ \t]*size_t +struct_bytes;/ { print name }
	{ name = "" }' "$srcdir"/include/ceoverlap/*.h)
[ "${#sized[@]}" -ge 30 ] || { echo "FAIL: only ${#sized[@]} structs with struct_bytes"; failed=1; }
{
	for path in "$srcdir"/include/ceoverlap/*.h; do
		echo "#include <ceoverlap/$(basename "$path")>"
	done
	echo "int main(void)"
	echo "{"
	for name in "${sized[@]}"; do
		echo "	struct $name made_$name = ${name^^}_INIT;"
		echo "	if (made_$name.struct_bytes != sizeof(struct $name))"
		echo "		return 1;"
	done
	echo "	return 0;"
	echo "}"
} > "$folder/init.c"
cp "$folder/init.c" "$folder/init.cc"

# Compiles the file $1 by the rest, and runs it.
make_all() {
	local name=$1
	shift

	if ! "$@" "${includes[@]}" -o "$folder/init" "$folder/$name" || ! "$folder/init"; then
		echo "FAIL: the CEOV_..._INIT: $*"
		failed=1
	fi
}

make_all init.c "${cc[@]}" -std=c11 "${strict[@]}"
[ "$have_cxx" = no ] || make_all init.cc "${cxx[@]}" -std=c++17 "${strict[@]}"

if [ -n "${NVCC:-}" ]; then
	read -ra arch <<< "${NVCC_ARCH_FLAGS:-}"
	check ceoverlap/device.cuh check.cu "$NVCC" "${arch[@]}" -std=c++17 \
		-Werror all-warnings -fatbin -o "$folder/check.fatbin"
else
	echo "no nvcc: device.cuh is not checked"
fi

# Internal headers that need cuda.h say so by their name.
read -ra cuda <<< "${CUDA_CFLAGS:-}"
includes+=(-I"$srcdir/src" "${cuda[@]}")
while read -r path; do
	header=${path#"$srcdir"/src/}
	case $header in
	*cuda*) [ -n "${NVCC:-}" ] || continue ;;
	esac
	check "$header" check.c "${cc[@]}" -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror \
		-fsyntax-only
done < <(find "$srcdir/src" -name '*.h' | sort)

exit "$failed"
