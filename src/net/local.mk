# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# net: messages and bytes to and from processes of other nodes
libceoverlap_core_la_SOURCES += \
	%D%/transport.h \
	%D%/far_wire.c %D%/far_wire.h

# who is where
libceoverlap_core_la_SOURCES += \
	%D%/siphash.c %D%/siphash.h \
	%D%/group_id.c %D%/group_id.h \
	%D%/gathered.c %D%/gathered.h \
	%D%/record.c %D%/record.h \
	%D%/book.c %D%/book.h \
	%D%/book_private.h \
	%D%/book_make.c \
	%D%/book_shared.c
