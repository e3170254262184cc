# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ipc: makes a peer's memory addressable; moves nothing
libceoverlap_core_la_SOURCES += \
	%D%/wire.c %D%/wire.h \
	%D%/service_area.h \
	%D%/service_ask.c \
	%D%/service_link.c %D%/service_link.h \
	%D%/service_link_private.h \
	%D%/service_ring.c %D%/service_ring.h \
	%D%/service_wire.c %D%/service_wire.h \
	%D%/carrier_unix.c %D%/carrier_unix.h \
	%D%/peers/carrier.h \
	%D%/peers/peers.c %D%/peers/peers.h \
	%D%/peers/peers_private.h \
	%D%/peers/peers_calls.c \
	%D%/peers/peers_far.c \
	%D%/peers/peers_thread.c \
	%D%/alive.c %D%/alive.h \
	%D%/alive_watch.c %D%/alive_watch.h \
	%D%/share.c %D%/share.h \
	%D%/share_host.c \
	%D%/pinned.c %D%/pinned.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/share_cuda.c %D%/share_cuda.h \
	%D%/vmm_cuda.c %D%/vmm_cuda.h \
	%D%/reach_cuda.c
endif
