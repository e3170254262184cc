# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench share: a few processes that send large blocks, with and without a daemon
ceoverlap_bench_SOURCES += \
	%D%/pair.c %D%/pair.h \
	%D%/process.c \
	%D%/report.c \
	%D%/share.c %D%/share.h
