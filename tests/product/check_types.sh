#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# What type checkers find in the Python package: mypy nothing, by the settings of
# python/pyproject.toml; pyright a type for every public name; and both of them a misspelt keyword, an
# argument too many, and a stream that is none. Skipped where mypy, pyright or PyTorch is missing:
# PYTHON names a Python that has PyTorch; the two are looked for beside it, and in PATH.
set -u

srcdir=$(cd "${srcdir:-.}" && pwd)
failed=0

skip() {
	echo "SKIP: $1"
	exit 77
}

python=${PYTHON:-python3}
site=$("$python" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
	2> /dev/null) || skip "no PyTorch: PYTHON names another Python"
PATH=$(dirname "$("$python" -c 'import sys; print(sys.executable)')"):$PATH
for tool in mypy pyright; do
	"$tool" --version > /dev/null 2>&1 || skip "no $tool (pip install $tool)"
done
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1

if ! mypy --config-file "$srcdir/python/pyproject.toml" --cache-dir "$folder/cache" \
		--python-executable "$python" "$srcdir/python/ceoverlap"; then
	echo "FAIL: mypy finds errors in the package"
	failed=1
fi

# It takes packages from PYTHONPATH alone when it looks at a whole package.
if ! PYTHONPATH=$srcdir/python:$site pyright --verifytypes ceoverlap --ignoreexternal \
		> "$folder/names"; then
	grep -B 2 -A 2 'error:' "$folder/names"
	tail -n 4 "$folder/names"
	echo "FAIL: pyright finds public names without a type"
	failed=1
fi

# A line that is wrong on purpose ends with "# wrong"; all others are right.
cat > "$folder/use.py" <<'END'
import numpy as np

import ceoverlap


def use(context: ceoverlap.Context, name: str) -> None:
    source = context.register(np.zeros(8))
    signal = context.signal(2, host_visible=True)
    context.signal(2, hostvisible=True)  # wrong
    plan = context.plan(urgency="urgent", routes="direct")
    context.plan(urgencies="urgent")  # wrong
    plan.add(source=source, target=source, row_bytes=8, then=signal.mark(1))
    plan.add(source=source, target=source, rows_bytes=8)  # wrong
    plan.add(ceoverlap.Transfer(source, source, 8)).commit()
    ticket = plan.launch(base=3, after_stream=1234)
    plan.launch(base=3, after_streams=1234)  # wrong
    plan.queue("a stream")  # wrong
    ticket.wait(1.5)
    ticket.wait("soon")  # wrong
    gather = ceoverlap.AllGather(context, name, np.zeros(8), n_pieces=2, nodes="ring")
    ceoverlap.AllGather(context, name, np.zeros(8), n_piece=2)  # wrong
    gather.run(np.int64(77)).wait()
    with ceoverlap.Channel(context, name) as channel:
        channel.all_reduce(np.zeros(8), "sum")
        channel.all_reduce(np.zeros(8), "sum", np.zeros(8), 7)  # wrong
    workspace = ceoverlap.Workspace(context, name, 1 << 20).connect()
    ceoverlap.ReduceScatter(workspace, [8, 8], "float32", scale=0.5)
    ceoverlap.ReduceScatter(workspace, [8, 8], "float32", scales=0.5)  # wrong
    ceoverlap.GemmAllToAll(workspace, 8, 8, rows=[1, 1], columns=[8, 8])
    ceoverlap.GemmAllToAll(workspace, 8, 8, row=[1, 1], columns=[8, 8])  # wrong
    print(plan.n_transfers + "text")  # wrong
END
cat > "$folder/torch_use.py" <<'END'
import torch
from torch import nn

import ceoverlap.torch as ct


def use(x: torch.Tensor, model: nn.Module, stream: torch.cuda.Stream) -> None:
    group = ct.Group(device="cpu", channel=True)
    ct.Group(device="cpu", chanel=True)  # wrong
    ct.all_reduce(x, group).sum()
    ct.all_reduce(x, groups=group)  # wrong
    ct.all_gather(x, rows=[1, 2])
    ct.all_gather(x, rows=3)  # wrong
    ct.parallelize(model, group, {"up": ct.Column(sequence_dim=1)})
    ct.parallelize(model, group, {"up": ct.Column(sequence=1)})  # wrong
    ct.ColumnParallelLinear(8, 8, bias=False, group=group)
    ct.ColumnParallelLinear(8, 8, bias=False, groups=group)  # wrong
    ct.ring_attention(x, x, x, is_causal=True, scale=0.5)
    ct.ring_attention(x, x, x, causal=True)  # wrong
    group.context.plan().queue(stream)
END
for name in use torch_use; do
	grep -n '# wrong$' "$folder/$name.py" | cut -d : -f 1 > "$folder/wanted"
	MYPYPATH=$srcdir/python mypy --strict --cache-dir "$folder/cache" --follow-imports silent \
		--python-executable "$python" "$folder/$name.py" > "$folder/said"
	sed -n "s/^$name\.py:\([0-9]*\): error: .*/\1/p" "$folder/said" | sort -nu > "$folder/mypy"
	PYTHONPATH=$srcdir/python:$site pyright "$folder/$name.py" > "$folder/said.pyright"
	sed -n 's/^ .*\.py:\([0-9]*\):[0-9]* - error: .*/\1/p' "$folder/said.pyright" |
		sort -nu > "$folder/pyright"
	for tool in mypy pyright; do
		if ! diff "$folder/wanted" "$folder/$tool"; then
			cat "$folder/said" "$folder/said.pyright"
			echo "FAIL: $tool finds errors in other lines of $name.py than in wrong ones"
			failed=1
		fi
	done
done
exit "$failed"
