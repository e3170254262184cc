# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/exec: marks and bytes as work of backends, on the engine's lanes and callers' streams
libceoverlap_core_la_SOURCES += \
	%D%/lanes.c %D%/lanes.h \
	%D%/lower.c %D%/lower.h \
	%D%/movers.c %D%/movers.h \
	%D%/staging.c %D%/staging.h \
	%D%/stream_marks.c
