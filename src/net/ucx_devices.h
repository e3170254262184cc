/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_DEVICES_H
#define CEI_UCX_DEVICES_H

/* The network interfaces that UCX can use. */

#include "net/transport.h"

/* As struct cei_transport_ops has it. Opens a context of UCX for it, which takes a few
 * milliseconds, and closes that again. */
int  cei_ucx_devices(struct cei_report *report, const char *kinds,
		     struct cei_transport_devices *ret_devices);

/* Finds the interface in one line of what UCX says of a context, "# resource 2 : md 1 dev 2 flags
 * -- tcp/eth0", and writes its name. 0: the line names none. */
int  cei_ucx_device_in(const char *line, char ret_name[CEI_TRANSPORT_DEVICE_BYTES]);

#endif /* CEI_UCX_DEVICES_H */
