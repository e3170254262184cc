# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# kernels: device code of operators, embedded as a fatbin
kernel_sources = \
	%D%/kernels.cu \
	%D%/fill_kernels.cu \
	%D%/begin_kernels.cu \
	%D%/reduce_kernels.cu \
	%D%/sm_lane_kernels.cu \
	%D%/channel_packets_kernels.cu \
	%D%/channel_steps_kernels.cu \
	%D%/direct_kernels.cu \
	%D%/direct_steps_kernels.cu \
	%D%/direct_ll_kernels.cu \
	%D%/gemm_kernels.cu \
	%D%/experts_kernels.cu \
	%D%/embedding_kernels.cu \
	%D%/rows_kernels.cu \
	%D%/bulk.cuh \
	%D%/channel.cuh \
	%D%/channel_moves.cuh \
	%D%/channel_packets.cuh \
	%D%/channel_steps.cuh \
	%D%/channel_sums.cuh \
	%D%/direct.cuh \
	%D%/direct_steps.cuh \
	%D%/gemm_layout.cuh \
	%D%/gemm_pairs.cuh \
	%D%/gemm_sm90.cuh \
	%D%/gemm_sums.cuh \
	%D%/gemm_wgmma.cuh \
	%D%/marks.cuh \
	%D%/pattern.cuh \
	%D%/vectors.cuh
EXTRA_DIST += $(kernel_sources)
libceoverlap_core_la_SOURCES += \
	%D%/begin.h \
	%D%/channel.h \
	%D%/direct.h \
	%D%/direct_ll.h \
	%D%/embedding.h \
	%D%/experts.h \
	%D%/fill.h \
	%D%/reduce.h \
	%D%/sm_lane.h \
	%D%/gemm.h \
	%D%/rows.h \
	%D%/module.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/kernels.c \
	%D%/module.c \
	%D%/kernels_fatbin.S
# The fatbin lies in the build folder; the source includes it by its name alone.
AM_CCASFLAGS = -Wa,-I$(builddir)
CLEANFILES += kernels.fatbin

kernels.fatbin: $(kernel_sources) \
		%D%/begin.h \
		%D%/channel.h \
		%D%/direct.h \
		%D%/direct_ll.h \
		%D%/embedding.h \
		%D%/experts.h \
		%D%/fill.h \
		%D%/gemm.h \
		%D%/reduce.h \
	%D%/sm_lane.h \
		%D%/rows.h \
		%D%/sm_lane.h \
		include/ceoverlap/ceoverlap.h \
		include/ceoverlap/channel.h \
		include/ceoverlap/device.cuh \
		include/ceoverlap/ops.h
	$(AM_V_GEN)$(NVCC) -fatbin $(NVCC_ARCH_FLAGS) -std=c++17 $(NVCCFLAGS) \
		-I$(srcdir)/include -I$(srcdir)/src -o $@ $(srcdir)/src/kernels/kernels.cu

%D%/kernels_fatbin.lo: kernels.fatbin
else
libceoverlap_core_la_SOURCES += \
	%D%/module_absent.c
endif
