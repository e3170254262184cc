#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# A user's program builds against the installed library, found by pkg-config, and
# runs on host memory: each example, the ring also with several processes, or a small program while
# there is none. Kernels among the examples compile with nvcc. A project of CMake finds the library
# by find_package(), and where its archive was installed, programs link it by "pkg-config --static".
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
unset MAKEFLAGS MFLAGS MAKELEVEL
read -ra cc <<< "${CC:-cc}"

if ! make install DESTDIR="$folder/root" > "$folder/log" 2>&1; then
	cat "$folder/log"
	exit 1
fi

# The installed file is used as it is; the sysroot stands for DESTDIR.
pc=$(find "$folder/root" -name ceoverlap.pc)
if [ -z "$pc" ]; then
	echo "FAIL: no ceoverlap.pc was installed"
	exit 1
fi
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
export PKG_CONFIG_SYSROOT_DIR=$folder/root
read -ra flags <<< "$("${PKG_CONFIG:-pkg-config}" --cflags --libs ceoverlap)"
library=$(dirname "$(dirname "$pc")")

examples=("$srcdir"/examples/*.c)
if [ ! -e "${examples[0]}" ]; then
	cat > "$folder/version.c" <<'END'
#include <ceoverlap/ceoverlap.h>
#include <ceoverlap/version.h>
#include <string.h>

int main(void)
{
	return strcmp(ceov_version(), CEOV_VERSION) != 0;
}
END
	examples=("$folder/version.c")
fi

# Manual pages of calls are made while they are installed, where there is Doxygen.
if command -v doxygen > /dev/null && [ -z "$(find "$folder/root" -path '*/man3/ceov_open.3')" ]; then
	echo "FAIL: no manual page of ceov_open() was installed"
	exit 1
fi

# A project of CMake builds the first example; the installed files, which stand below DESTDIR, are
# found there though they were made for another folder. Versions that are too new are refused.
check_cmake() {
	local project=$folder/cmake version

	if ! command -v cmake > /dev/null; then
		echo "no cmake: find_package(ceoverlap) is not checked"
		return 0
	fi
	version=$(tr -d '\n' < "$srcdir/VERSION")
	mkdir "$project"
	cat > "$project/CMakeLists.txt" <<-END
		cmake_minimum_required(VERSION 3.13)
		project(first C)
		set(THREADS_PREFER_PTHREAD_FLAG ON)
		find_package(Threads REQUIRED)
		foreach(wrong 99 ${version%%.*}.99 ${version%.*}.99)
		  find_package(ceoverlap \${wrong} QUIET)
		  if(ceoverlap_FOUND)
		    message(FATAL_ERROR "$version stands for \${wrong}")
		  endif()
		endforeach()
		find_package(ceoverlap ${version%%.*})
		find_package(ceoverlap ${version%.*} REQUIRED)
		find_package(ceoverlap $version EXACT REQUIRED)
		add_executable(first "${examples[0]}")
		target_link_libraries(first ceoverlap::ceoverlap Threads::Threads)
	END
	if ! { cmake -S "$project" -B "$project/build" -DCMAKE_C_COMPILER="${cc[-1]}" \
			-DCMAKE_PREFIX_PATH="$(dirname "$library")" &&
			cmake --build "$project/build"; } > "$folder/log" 2>&1; then
		cat "$folder/log"
		echo "FAIL: $(basename "${examples[0]}") does not build by CMake"
		return 1
	fi
	CEOVERLAP_PLACE=host timeout 60 "$project/build/first" && return 0
	echo "FAIL: $(basename "${examples[0]}"), built by CMake, does not run on host memory"
	return 1
}

# The first example, linked where nothing but the archive is.
check_static() {
	local program=$folder/static/program static

	[ -e "$library/libceoverlap.a" ] || { echo "no archive was installed"; return 0; }
	read -ra static <<< "$(PKG_CONFIG_SYSROOT_DIR='' \
		"${PKG_CONFIG:-pkg-config}" --static --libs hwloc)"
	if ! echo 'int main(void) { return 0; }' |
			"${cc[@]}" -x c -o "$folder/empty" - "${static[@]}" 2> /dev/null; then
		echo "${static[*]} cannot be linked (Debian: libudev-dev): --static is not checked"
		return 0
	fi
	mkdir "$folder/static"
	cp -r "$folder/root" "$folder/static" || return 1
	find "$folder/static" -name 'libceoverlap.so*' -delete
	read -ra static <<< "$(PKG_CONFIG_SYSROOT_DIR=$folder/static/root \
		"${PKG_CONFIG:-pkg-config}" --static --cflags --libs ceoverlap)"
	if ! "${cc[@]}" -std=c11 -o "$program" "${examples[0]}" "${static[@]}"; then
		echo "FAIL: $(basename "${examples[0]}") does not link by pkg-config --static"
		return 1
	fi
	CEOVERLAP_PLACE=host timeout 60 "$program" && return 0
	echo "FAIL: $(basename "${examples[0]}"), linked statically, does not run on host memory"
	return 1
}

failed=0
check_cmake || failed=1
check_static || failed=1
for example in "${examples[@]}"; do
	name=$(basename "$example" .c)
	if ! "${cc[@]}" -std=c11 -Wall -Wextra -Werror -o "$folder/$name" "$example" \
			"${flags[@]}" -pthread; then
		echo "FAIL: $name does not build against the installed library"
		failed=1
	elif ! LD_LIBRARY_PATH=$library CEOVERLAP_PLACE=host timeout 60 "$folder/$name"; then
		echo "FAIL: $name does not run on host memory"
		failed=1
	fi
done

if [ -n "${NVCC:-}" ]; then
	read -ra arch <<< "${NVCC_ARCH_FLAGS:-}"
	read -ra cflags <<< "$("${PKG_CONFIG:-pkg-config}" --cflags ceoverlap)"
	for example in "$srcdir"/examples/*.cu; do
		[ -e "$example" ] || continue
		if ! "$NVCC" "${arch[@]}" -std=c++17 -Werror all-warnings "${cflags[@]}" \
				-c -o "$folder/kernel.o" "$example"; then
			echo "FAIL: $(basename "$example") does not compile with nvcc"
			failed=1
		fi
	done
else
	echo "no nvcc: kernels among the examples are not compiled"
fi

bench=$(find "$folder/root" -path '*/bin/ceoverlap-bench' -type f)
if [ -z "$bench" ] || ! "$bench" --help > /dev/null; then
	echo "FAIL: the installed ceoverlap-bench does not print its help"
	failed=1
elif ! timeout 60 "$bench" --host -t all_gather -g 2 -b 64K -e 64K -n 3 -w 1; then
	echo "FAIL: the installed ceoverlap-bench does not gather on host memory"
	failed=1
fi

info=$(find "$folder/root" -path "*/bin/ceoverlap-info" -type f)
if [ -z "$info" ] || ! "$info" --help > /dev/null; then
	echo "FAIL: the installed ceoverlap-info does not print its help"
	failed=1
elif ! timeout 60 "$info" --xml "$srcdir/tests/fixtures/machines/two-no-p2p.xml" \
		--route gpu0:gpu1 > "$folder/route" || ! grep -q staged "$folder/route"; then
	echo "FAIL: the installed ceoverlap-info finds no route on a machine from a file"
	cat "$folder/route"
	failed=1
fi
launcher=$(find "$folder/root" -path "*/bin/ceoverlap-run" -type f)
if [ -z "$launcher" ] || ! timeout 60 "$launcher" -n 2 true; then
	echo "FAIL: the installed ceoverlap-run does not start processes"
	failed=1
fi
said=$(LD_LIBRARY_PATH=$library CEOVERLAP_PLACE=host timeout 60 "$launcher" -n 4 "$folder/ring")
if [ "$said" != "a ring of 4 ranks has passed on 6" ]; then
	echo "FAIL: the example ring with 4 processes says '$said'"
	failed=1
fi

# What Debian's machines run against installed packages, as far as it needs no service manager.
commands=$folder/commands
mkdir "$commands"
find "$folder/root" -path '*/bin/*' \( -type f -o -type l \) -exec ln -s -t "$commands" {} +
for name in library tools; do
	mkdir "$folder/$name"
	if ! (cd "$srcdir" && AUTOPKGTEST_TMP=$folder/$name PATH=$commands:$PATH \
			LD_LIBRARY_PATH=$library timeout 120 "debian/tests/$name") \
			> "$folder/log" 2>&1; then
		cat "$folder/log"
		echo "FAIL: debian/tests/$name does not pass with what was installed"
		failed=1
	fi
done
joiner=$(find "$folder/root" -path "*/bin/ceoverlap-trace" -type f)
if [ -z "$joiner" ] || ! "$joiner" --help > /dev/null; then
	echo "FAIL: the installed ceoverlap-trace does not print its help"
	failed=1
fi
plotter=$(find "$folder/root" -path "*/bin/ceoverlap-plot" -type f)
if [ -z "$plotter" ] || ! "$plotter" --help > /dev/null; then
	echo "FAIL: the installed ceoverlap-plot does not print its help"
	failed=1
fi
pages=(ceoverlap-bench.1 ceoverlap-info.1 ceoverlap-plot.1 ceoverlap-run.1 ceoverlap-trace.1)
if [ -x ./ceoverlapd ]; then
	pages+=(ceoverlapctl.1 ceoverlapd.8 ceoverlapd.conf.5)
	for name in ceoverlapd.service ceoverlapd.socket sysusers.d/ceoverlapd.conf \
		ceoverlap/ceoverlapd.conf completions/ceoverlapctl completions/ceoverlap-bench; do
		if [ -z "$(find "$folder/root" -path "*/$name" -type f)" ]; then
			echo "FAIL: $name was not installed"
			failed=1
		fi
	done
	control=$(find "$folder/root" -path '*/bin/ceoverlapctl' -type f)
	if [ -z "$control" ] || ! "$control" --help > /dev/null; then
		echo "FAIL: the installed ceoverlapctl does not print its help"
		failed=1
	fi
fi
for name in bench info plot run trace; do
	if [ -z "$(find "$folder/root" -path "*/completions/ceoverlap-$name" -type f)" ]; then
		echo "FAIL: the completion of ceoverlap-$name was not installed"
		failed=1
	fi
done
for name in README.md docs/tutorial.md docs/results/README.md examples/ring.c; do
	if [ -z "$(find "$folder/root" -path "*/doc/ceoverlap/$name" -type f)" ]; then
		echo "FAIL: $name was not installed"
		failed=1
	fi
done
for page in "${pages[@]}"; do
	if [ -z "$(find "$folder/root" -name "$page*")" ]; then
		echo "FAIL: $page was not installed"
		failed=1
	fi
done
exit "$failed"
