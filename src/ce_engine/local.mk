# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine: the lower folders first
include src/ce_engine/program/local.mk
include src/ce_engine/objects/local.mk
include src/ce_engine/sched/local.mk
include src/ce_engine/exec/local.mk
include src/ce_engine/engine/local.mk
include src/ce_engine/plan/local.mk
include src/ce_engine/remote/local.mk

# what needs several of them: opening and closing a context
libceoverlap_core_la_SOURCES += \
	%D%/context_life.c %D%/context_life.h \
	%D%/meet.c %D%/meet.h \
	%D%/open.c %D%/open.h \
	%D%/peer_events.c %D%/peer_events.h \
	%D%/query.c \
	%D%/tell.c %D%/tell.h \
	%D%/warm.c %D%/warm.h
