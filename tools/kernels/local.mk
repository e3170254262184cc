# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# Device code of tools and tests, embedded as a fatbin in what uses it
work_kernel_sources = \
	%D%/kernels.cu \
	%D%/raise_kernels.cu \
	%D%/work_kernels.cu
EXTRA_DIST += $(work_kernel_sources)
if HAVE_CUDA
noinst_LTLIBRARIES += libwork_kernels.la
libwork_kernels_la_SOURCES = \
	%D%/work.c %D%/work.h \
	%D%/work_fatbin.S
CLEANFILES += work_kernels.fatbin

work_kernels.fatbin: $(work_kernel_sources) %D%/work.h \
		src/kernels/fill_kernels.cu src/kernels/fill.h src/kernels/pattern.cuh \
		include/ceoverlap/device.cuh include/ceoverlap/ceoverlap.h \
		include/ceoverlap/ops.h
	$(AM_V_GEN)$(NVCC) -fatbin $(NVCC_ARCH_FLAGS) -std=c++17 $(NVCCFLAGS) \
		-I$(srcdir)/include -I$(srcdir)/src -I$(srcdir) -o $@ \
		$(srcdir)/tools/kernels/kernels.cu

%D%/work_fatbin.lo: work_kernels.fatbin
else
EXTRA_DIST += %D%/work.c %D%/work.h %D%/work_fatbin.S
endif
