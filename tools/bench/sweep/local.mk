# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench sweep: what methods carry; traces
ceoverlap_bench_SOURCES += \
	%D%/job.c \
	%D%/load.c \
	%D%/options.c \
	%D%/plans.c \
	%D%/random.c \
	%D%/report.c \
	%D%/sweep.c %D%/sweep.h \
	%D%/trace.c \
	%D%/urgent.c \
	%D%/world.c
