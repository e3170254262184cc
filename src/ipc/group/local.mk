# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ipc/group: a group of processes; no socket, thread or clock
libceoverlap_core_la_SOURCES += \
	%D%/spread.c %D%/spread.h
