#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# The direction of includes:
#
#   base <- { topology, ipc/group <- ipc/peers } <- net <- { ipc, backend } <- ce_engine <- collective <- ops
#   base <- kernels <- ops
#
# ipc and backend do not know each other, nor do families of operators. Within ce_engine:
#
#   program <- objects <- sched <- exec <- engine <- plan <- remote <- the files of ce_engine itself
#
# The daemon stands on all of ce_engine: server <- operator <- its main program.
#
# Within ops:
#
#   ops <- compute <- { exec_host, exec_cuda, tuning } <- core <- { gemm, reduce, move, experts,
#                                                                            embedding, channel }
#
# Nothing in src/ includes tools/ or tests/.
# Only cuda*, *_cuda and kernels/ include cuda.h or a header cuda*.h that does.
# Only net/ucx* includes UCX's headers or a header that does.
set -u

srcdir=${srcdir:-.}
failed=0

fail() {
	echo "FAIL: $1"
	failed=1
}

# What a folder of src/ may include, itself left out.
may_include() {
	case $1 in
	base)			echo "" ;;
	topology | kernels)	echo "base" ;;
	ipc/group)		echo "base" ;;
	ipc/peers)		echo "base ipc/group" ;;
	net)			echo "base topology ipc/group ipc/peers" ;;
	ipc | backend)		echo "base topology net ipc/group ipc/peers" ;;
	ce_engine/program)	echo "base topology net backend" ;;
	ce_engine/objects)	echo "base topology net ipc ipc/group ipc/peers backend" \
					"ce_engine/program" ;;
	ce_engine/sched)	echo "$(may_include ce_engine/objects) ce_engine/objects" ;;
	ce_engine/exec)		echo "$(may_include ce_engine/sched) ce_engine/sched" ;;
	ce_engine/engine)	echo "$(may_include ce_engine/exec) ce_engine/exec" ;;
	ce_engine/plan)		echo "$(may_include ce_engine/engine) ce_engine/engine" ;;
	ce_engine/remote)	echo "$(may_include ce_engine/plan) ce_engine/plan" ;;
	ce_engine)		echo "$(may_include ce_engine/remote) ce_engine/remote" ;;
	daemon/server)		echo "$(may_include ce_engine) ce_engine" ;;
	daemon/operator)	echo "$(may_include daemon/server) daemon/server" ;;
	daemon)			echo "$(may_include daemon/operator) daemon/operator" ;;
	collective)		echo "base topology net ipc backend ce_engine/objects" \
					"ce_engine/plan" ;;
	ops)			echo "base" ;;
	ops/compute)		echo "base kernels ops" ;;
	ops/exec_host)		echo "base ce_engine/objects kernels ops ops/compute" ;;
	ops/exec_cuda)		echo "base backend ce_engine/objects kernels ops" \
					"ops/compute" ;;
	ops/tuning)		echo "base topology ops ops/compute" ;;
	ops/core)		echo "base topology ipc backend ce_engine/objects" \
					"ce_engine/sched ce_engine/exec ce_engine/plan collective" \
					"kernels ops ops/compute ops/exec_host ops/exec_cuda ops/tuning" ;;
	ops/gemm | ops/reduce | ops/move | ops/experts | ops/embedding | ops/channel)
				echo "$(may_include ops/core) ops/core" ;;
	ops/pool)		echo "$(may_include ops/channel) ops/channel" ;;
	*)			echo "unknown" ;;
	esac
}

# Whether a file may know CUDA's types.
may_know_cuda() {
	case $1 in
	*/kernels/* | */cuda*.[ch] | */*_cuda.[ch] | */*_cuda_*.[ch]) return 0 ;;
	esac
	return 1
}

# Whether a file may know UCX's types.
may_know_ucx() {
	case $1 in
	*/net/ucx*.[ch]) return 0 ;;
	esac
	return 1
}

n_files=0
while read -r path; do
	n_files=$((n_files + 1))
	file=${path#"$srcdir"/src/}
	layer=${file%/*}
	allowed=" $layer $(may_include "$layer") "
	[ "$allowed" != " $layer unknown " ] || fail "$file: a folder without a layer"

	while read -r include; do
		case $include in
		\"config.h\") continue ;;
		\"*/*\") ;;
		\"*) fail "$file includes $include: the path starts at src/"
			continue ;;
		*) continue ;;
		esac
		target=${include#\"}
		target=${target%\"}
		case $allowed in
		*" ${target%/*} "*) ;;
		*) fail "$file ($layer) includes $target (${target%/*})" ;;
		esac
		if grep -qs '<cuda\.h>' "$srcdir/src/$target" && ! may_know_cuda "$path"; then
			fail "$file includes $target, which includes cuda.h"
		fi
		if [ "${target#net/ucx_}" != "$target" ] && ! may_know_ucx "$path"; then
			fail "$file includes $target, which includes UCX's headers"
		fi
	done < <(sed -n 's/^[ \t]*#[ \t]*include[ \t]*\([<"][^>"]*[>"]\).*/\1/p' "$path")

	if grep -q '^[ \t]*#[ \t]*include[ \t]*[<"]cuda' "$path" && ! may_know_cuda "$path"; then
		fail "$file includes a CUDA header"
	fi
	if grep -q '^[ \t]*#[ \t]*include[ \t]*[<"]uc[pst]/' "$path" && ! may_know_ucx "$path"; then
		fail "$file includes a header of UCX"
	fi
done < <(find "$srcdir/src" \( -name '*.[chS]' -o -name '*.cu' -o -name '*.cuh' \) | sort)

[ "$n_files" != 0 ] || fail "no source found under $srcdir/src"
exit "$failed"
