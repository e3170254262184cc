# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ipc/group: a group of processes as a state machine; no socket, thread or clock
libceoverlap_core_la_SOURCES += \
	%D%/aborts.c \
	%D%/barrier.c \
	%D%/counters.c \
	%D%/directory.c \
	%D%/group.h \
	%D%/group_private.h \
	%D%/life.c \
	%D%/machine.c \
	%D%/messages.c %D%/messages.h \
	%D%/owed.c \
	%D%/peers.c \
	%D%/roster.h \
	%D%/spread.c %D%/spread.h \
	%D%/uses.c
