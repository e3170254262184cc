# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench: the command line, and what its commands share. One folder a command.
ceoverlap_bench_CPPFLAGS = $(AM_CPPFLAGS) $(JSON_C_CFLAGS)
ceoverlap_bench_LDADD = libceoverlap_core.la $(JSON_C_LIBS) -lm
ceoverlap_bench_SOURCES = \
	%D%/ceoverlap-bench.c \
	%D%/bench.h \
	%D%/blas.c %D%/blas.h \
	%D%/children.c %D%/children.h \
	%D%/device.c %D%/device.h \
	%D%/group.c %D%/group.h \
	%D%/launched.c %D%/launched.h \
	%D%/launched_run.c \
	%D%/library.c %D%/library.h \
	%D%/options.c %D%/options.h \
	%D%/program.c %D%/program.h \
	%D%/report.c \
	%D%/server.c %D%/server.h \
	%D%/shared.c \
	%D%/summary.c \
	%D%/trace.c %D%/trace.h \
	%D%/values.c %D%/values.h \
	%D%/world.c %D%/world.h
if HAVE_CUDA
ceoverlap_bench_LDADD += libwork_kernels.la
ceoverlap_bench_SOURCES += \
	%D%/device_cuda.c %D%/device_cuda.h \
	%D%/work_cuda.c
endif
EXTRA_DIST += %D%/beside-build.py %D%/beside-ucx.sh %D%/in-namespaces.sh \
	%D%/ring-in-namespaces.sh
