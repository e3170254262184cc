# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ipc: makes a peer's memory addressable; moves nothing
libceoverlap_core_la_SOURCES += \
	%D%/wire.c %D%/wire.h \
	%D%/meeting.c %D%/meeting.h \
	%D%/meeting_private.h \
	%D%/meeting_path.c \
	%D%/meeting_socket.c \
	%D%/meeting_listen.c \
	%D%/meeting_join.c \
	%D%/meeting_link.c \
	%D%/meeting_offer.c \
	%D%/share.c %D%/share.h \
	%D%/share_host.c \
	%D%/mapping.c %D%/mapping.h \
	%D%/pinned.c %D%/pinned.h
if HAVE_CUDA
libceoverlap_core_la_SOURCES += \
	%D%/share_cuda.c %D%/share_cuda.h \
	%D%/reach_cuda.c
endif
