# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# backend: the movers
libceoverlap_core_la_SOURCES += \
	%D%/place.c %D%/place.h \
	%D%/registry.c \
	%D%/lane.c %D%/lane.h \
	%D%/copier.c %D%/copier.h \
	%D%/host.c %D%/host.h \
	%D%/host_access.c \
	%D%/host_script.c \
	%D%/net.c \
	%D%/waits.c %D%/waits.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/cuda.c %D%/cuda_place.h \
	%D%/cuda_access.c \
	%D%/cuda_aside.c \
	%D%/cuda_bounce.c \
	%D%/cuda_copies.c \
	%D%/cuda_flag.c \
	%D%/cuda_lane.c \
	%D%/cuda_probe.c \
	%D%/cuda_queues.c \
	%D%/cuda_stream.c \
	%D%/cuda_waits.c
endif
