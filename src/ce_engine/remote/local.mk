# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# ce_engine/remote: the client's side of a daemon
libceoverlap_core_la_SOURCES += \
	%D%/remote.c %D%/remote.h %D%/remote_private.h \
	%D%/remote_link.c \
	%D%/remote_offer.c \
	%D%/reopen.c
