# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# What the command line tools share
ceoverlap_bench_SOURCES += \
	%D%/output.c %D%/output.h \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h \
	%D%/trace_merge.c %D%/trace_merge.h \
	%D%/trace_part.c %D%/trace_part.h \
	%D%/trace_scan.c %D%/trace_scan.h
ceoverlap_run_SOURCES += \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
ceoverlap_info_SOURCES += \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
ceoverlap_gpu_direct_SOURCES += \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
