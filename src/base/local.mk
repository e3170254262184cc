# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# base: knows nothing of transfers
libceoverlap_core_la_SOURCES += \
	%D%/site.c %D%/site.h \
	%D%/report.c %D%/report.h \
	%D%/repeats.c %D%/repeats.h \
	%D%/sized.c %D%/sized.h \
	%D%/write.c %D%/write.h \
	%D%/file.c %D%/file.h \
	%D%/variables.c %D%/variables.h \
	%D%/launcher.c %D%/launcher.h \
	%D%/urgency.c %D%/urgency.h \
	%D%/clock.c %D%/clock.h \
	%D%/hash.h \
	%D%/list.h \
	%D%/table.c %D%/table.h \
	%D%/lane_set.h \
	%D%/cursor.h \
	%D%/codec.c %D%/codec.h \
	%D%/datagram.c %D%/datagram.h \
	%D%/ids.c %D%/ids.h \
	%D%/ring.c %D%/ring.h \
	%D%/word.h \
	%D%/ranges.h \
	%D%/cuda_errors.c %D%/cuda_errors.h \
	%D%/cuda_driver.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/cuda_driver.c \
	%D%/cuda_table.h
else
libceoverlap_core_la_SOURCES += \
	%D%/cuda_absent.c
endif
if HAVE_NVTX
libceoverlap_core_la_SOURCES += \
	%D%/ranges.c
else
libceoverlap_core_la_SOURCES += \
	%D%/ranges_absent.c
endif
