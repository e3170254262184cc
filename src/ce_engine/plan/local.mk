# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/plan: the calls for plans, from building to release
libceoverlap_core_la_SOURCES += \
	%D%/local_door.c %D%/local_door.h \
	%D%/plan_bind.c %D%/plan_bind.h \
	%D%/plan_builder.c %D%/plan_builder.h \
	%D%/plan_commit.c %D%/plan_commit.h \
	%D%/plan_explain.c %D%/plan_explain.h \
	%D%/plan_import.c %D%/plan_import.h \
	%D%/plan_launch.c %D%/plan_launch.h \
	%D%/plan_release.c %D%/plan_release.h \
	%D%/signal_renew.c %D%/signal_renew.h \
	%D%/stream_queue.c
