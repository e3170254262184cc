# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# What the command line tools share
ceoverlap_bench_SOURCES += \
	%D%/cells.c %D%/cells.h \
	%D%/output.c %D%/output.h \
	%D%/port.c %D%/port.h \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
ceoverlap_run_SOURCES += \
	%D%/port.c %D%/port.h \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
ceoverlap_info_SOURCES += \
	%D%/cells.c %D%/cells.h \
	%D%/refused.c %D%/refused.h \
	%D%/streams.c %D%/streams.h
