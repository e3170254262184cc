# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The ceoverlap developers

# daemon/operator: what the daemon's operator asks and sees
libceoverlap_daemon_la_SOURCES += \
	%D%/control.c %D%/control.h \
	%D%/fields.c %D%/fields.h \
	%D%/flight.c %D%/flight.h \
	%D%/links.c %D%/links.h \
	%D%/metrics.c %D%/metrics.h \
	%D%/operation.c %D%/operation.h \
	%D%/outlet.c %D%/outlet.h \
	%D%/picture.c %D%/picture.h
