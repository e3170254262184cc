# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# daemon/server: clients, their rings and plans, engines and settings
libceoverlap_daemon_la_SOURCES += \
	%D%/account.c %D%/account.h \
	%D%/client.c %D%/client.h \
	%D%/client_assembly.c \
	%D%/client_plans.c \
	%D%/client_private.h \
	%D%/client_tasks.c \
	%D%/fences.c %D%/fences.h \
	%D%/front.c \
	%D%/gpus.c %D%/gpus.h \
	%D%/guest.c %D%/guest.h \
	%D%/intake.c %D%/intake.h \
	%D%/journal.c %D%/journal.h \
	%D%/limits.c %D%/limits.h \
	%D%/listener.c %D%/listener.h \
	%D%/porter.c %D%/porter.h \
	%D%/reload.c %D%/reload.h \
	%D%/server.h \
	%D%/settings.c %D%/settings.h \
	%D%/usage.c %D%/usage.h
