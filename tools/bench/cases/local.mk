# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ceoverlap-bench without a command: transfers, collectives, and what the engine takes itself
ceoverlap_bench_SOURCES += \
	%D%/broadcast.c \
	%D%/cases.h \
	%D%/channel.c %D%/channel.h %D%/channel_ways.c \
	%D%/collective.c %D%/collective.h \
	%D%/doorbell.c \
	%D%/engine.c \
	%D%/levels.c \
	%D%/mark.c \
	%D%/methods.c \
	%D%/nccl.c \
	%D%/p2p.c \
	%D%/plan.c
