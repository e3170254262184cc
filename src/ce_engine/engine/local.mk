# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/engine: the thread and its turn, with the first and the last stage
libceoverlap_core_la_SOURCES += \
	%D%/clients.c %D%/clients.h \
	%D%/completion.c %D%/completion.h \
	%D%/doorbell.c %D%/doorbell.h \
	%D%/engine.h \
	%D%/fence.c %D%/fence.h \
	%D%/launch_source.h \
	%D%/parking.c %D%/parking.h \
	%D%/trace_file.c %D%/trace_file.h \
	%D%/trace_origin.c %D%/trace_origin.h \
	%D%/turn.c \
	%D%/works_open.c %D%/works_open.h
