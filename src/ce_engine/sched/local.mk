# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/sched: launches in flight, and which of their chunks goes when
libceoverlap_core_la_SOURCES += \
	%D%/admission.c %D%/admission.h \
	%D%/expiry.c %D%/expiry.h \
	%D%/flows.c %D%/flows.h \
	%D%/launch.h \
	%D%/lineup.c %D%/lineup.h \
	%D%/ports.c %D%/ports.h \
	%D%/queues.c %D%/queues.h \
	%D%/scheduler.c %D%/scheduler.h \
	%D%/tally.c %D%/tally.h \
	%D%/trace.c %D%/trace.h
