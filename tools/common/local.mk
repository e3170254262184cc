# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# What the command line tools share
ceoverlap_bench_SOURCES += \
	%D%/output.c %D%/output.h \
	%D%/streams.c %D%/streams.h
ceoverlap_run_SOURCES += \
	%D%/streams.c %D%/streams.h
ceoverlap_info_SOURCES += \
	%D%/streams.c %D%/streams.h
