#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers
#
# Runs the kernels whose bytes travel with the number of the run
# (src/kernels/direct_ll_kernels.cu) on the host, by ll.cc, with smaller spans, and with looks for
# failures more often. CEOVERLAP_TEST_CASES cases, 150 by default. Needs a C++ compiler.
set -u

srcdir=${srcdir:-.}
# shellcheck source=tests/product/gpu_on_host.sh
. "$srcdir/tests/product/gpu_on_host.sh"

set_in direct.h
set_in direct_ll.h -e 's/^\(#define CEI_DIRECT_LL_SENT_MAX *\)[0-9a-z]*/\116384u/'
replace_in direct.cuh
replace_in direct_ll_kernels.cu -e 's/^\(#define LL_POLLS *\)[0-9a-z]*/\14u/' \
	-e '/asm volatile("atom.acq_rel.gpu.add/,/;$/c\
			n_before = host_add(n_ended, block);' \
	-e '/ store_packet(void /,/^}/{
		/asm volatile/,/;$/c\
			host_store_packet(to, packet.bytes, packet.number);
	}' \
	-e '/ load_packet(const /,/^}/{
		/asm volatile/,/;$/c\
			host_load_packet(from, &packet.bytes, &packet.number);
	}'
run_cases ll 150
