#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
#   build.sh man BUILD      BUILD/man3: a page of section 3 for each public call, by Doxygen
#   build.sh site BUILD     BUILD/site/html: all documents and the reference, by Sphinx
#
# From the source tree that the script is in; make's targets man3 and site call it. Any warning of
# a tool is an error. Ends with 77 where a tool is missing, and names it.
set -eu

top=$(cd "$(dirname "$0")/../.." && pwd)
what=$1
build=$(mkdir -p "$2" && cd "$2" && pwd)
version=$(cat "$top/VERSION")

need() {
	command -v "$1" > /dev/null && return
	echo "$1 is missing, by which $what is made (Debian: $2)"
	exit 77
}

# doxygen LINE...: runs Doxygen over the public headers with these settings besides.
run_doxygen() {
	{
		cat "$top/docs/site/Doxyfile"
		printf '%s\n' "PROJECT_NUMBER = $version" "STRIP_FROM_PATH = $top/include" "$@"
		echo "INPUT =" "$top"/include/ceoverlap/*.h "$top"/include/ceoverlap/*.cuh
	} | doxygen -
}

# One page for each call: the filter makes each a group, of which Doxygen makes a page.
make_man() {
	local folder=$build/man.new

	rm -rf "$folder" "$build/man3"
	run_doxygen "OUTPUT_DIRECTORY = $folder" "GENERATE_MAN = YES" "MAN_EXTENSION = .3" \
		"INPUT_FILTER = \"python3 $top/docs/site/filter.py --man\""
	python3 "$top/docs/site/pages.py" "$folder/man/man3" "$build/man3"
	rm -rf "$folder"
}

# The C reference: a page for each header.
make_c_pages() {
	local header name

	mkdir -p "$1/c-pages"
	printf '%s\n' "C reference" "===========" "" ".. toctree::" "" > "$1/c.rst"
	for header in "$top"/include/ceoverlap/*.h "$top"/include/ceoverlap/*.cuh; do
		name=$(basename "$header")
		echo "   c-pages/$name" >> "$1/c.rst"
		printf '%s\n' "ceoverlap/$name" "${name//?/=}==========" "" \
			".. doxygenfile:: ceoverlap/$name" > "$1/c-pages/$name.rst"
	done
}

# What Sphinx reads lies in a folder of its own, so that links between documents, and to files of
# the tree, are those of the tree.
make_site() {
	local source=$build/site/source

	rm -rf "$build/site"
	mkdir -p "$source/docs" "$source/reference"
	run_doxygen "OUTPUT_DIRECTORY = $build/site" "GENERATE_XML = YES" \
		"INPUT_FILTER = \"python3 $top/docs/site/filter.py\""
	cp "$top"/*.md "$top/LICENSE" "$source"
	cp -r "$top"/docs/*.md "$top/docs/guides" "$top/docs/internals" "$top/docs/results" "$source/docs"
	cp -r "$top/examples" "$top/include" "$source"
	mkdir -p "$source/tests/fixtures/machines"
	cp "$top/tests/fixtures/machines/README.md" "$source/tests/fixtures/machines"
	cp "$top/docs/site/conf.py" "$top/docs/site/index.rst" "$source"
	make_c_pages "$source/reference"
	python3 "$top/docs/site/reference.py" "$top/python/ceoverlap" "$source/reference/python"
	CEOVERLAP_SITE_VERSION=$version CEOVERLAP_SITE_XML=$build/site/xml \
		sphinx-build -q -W --keep-going -b html "$source" "$build/site/html"
	rm -rf "$source"
}

case $what in
site)
	need doxygen doxygen
	need sphinx-build python3-sphinx
	/usr/bin/env python3 -c '' || exit 77
	make_site
	echo "$build/site/html/index.html"
	;;
man)
	need doxygen doxygen
	need python3 python3
	make_man
	echo "$(find "$build/man3" -name '*.3' | wc -l) pages in $build/man3"
	;;
esac
