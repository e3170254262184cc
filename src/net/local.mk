# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# net: messages and bytes to and from processes of other nodes
libceoverlap_core_la_SOURCES += \
	%D%/transport.h \
	%D%/far_wire.c %D%/far_wire.h
