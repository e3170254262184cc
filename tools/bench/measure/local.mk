# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench measure: links, for the router
ceoverlap_bench_SOURCES += \
	%D%/host.c \
	%D%/measure.c %D%/measure.h \
	%D%/pairs.c \
	%D%/report.c \
	%D%/sets.c
if HAVE_CUDA
ceoverlap_bench_SOURCES += \
	%D%/mover_cuda.c
endif
