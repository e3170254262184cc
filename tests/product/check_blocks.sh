#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The code of the pages for users is right as printed: blocks.py compiles and runs each block of
# the README, of docs/ and of docs/guides/, and says which it cannot run here, and why.
# CEOVERLAP_TEST_PAGES="docs/pytorch.md" names pages; PYTHON names the Python that has PyTorch.
set -u

# shellcheck source=tests/system/with_python.sh
. "${srcdir:-.}/tests/system/with_python.sh" 'import ctypes' "Python"
for one in ${PYTHON:-python3 /usr/bin/python3}; do      # one with PyTorch, if there is one
	"$one" -c 'import torch.distributed' > /dev/null 2>&1 && python=$(command -v "$one") && break
done
cd "$srcdir" || exit 1
read -ra pages <<< "${CEOVERLAP_TEST_PAGES:-$(echo README.md docs/*.md docs/guides/*.md)}"
cd - > /dev/null || exit 1
"$(command -v "$python")" "$srcdir/tests/product/blocks.py" --top "$srcdir" --build "$PWD" \
	--python "$(command -v "$python")" "${pages[@]}"
