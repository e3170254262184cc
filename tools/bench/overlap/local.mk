# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench overlap: operators
ceoverlap_bench_SOURCES += \
	%D%/check.c \
	%D%/embedding.c \
	%D%/experts.c \
	%D%/methods.c \
	%D%/models.c %D%/models.h \
	%D%/options.c \
	%D%/overlap.c %D%/overlap.h \
	%D%/report.c \
	%D%/set.c \
	%D%/tables.c %D%/tables.h
