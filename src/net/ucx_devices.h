/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_UCX_DEVICES_H
#define CEI_UCX_DEVICES_H

/* The network interfaces that UCX can use, and by which of its transports. */

#include "net/transport.h"
#include "net/ucx_worker.h"

/* As struct cei_transport_ops has it. Opens a context of UCX for it, which takes a few
 * milliseconds, and closes that again. */
int  cei_ucx_devices(struct cei_report *report, const char *kinds,
		     struct cei_transport_devices *ret_devices);

/* Finds the interface in one line of what UCX says of a context, "# resource 2 : md 1 dev 2 flags
 * -- tcp/eth0", and writes its name. 0: the line names none. */
int  cei_ucx_device_in(const char *line, char ret_name[CEI_TRANSPORT_DEVICE_BYTES]);

/* Whether a line as above names a transport of UCX over which nobody has tried what is written to
 * memory after a connection has closed: any but those of TCP, of shared memory, and those that
 * copy to and from GPUs of this machine. Writes its name, cut to fit. */
#define CEI_UCX_KIND_BYTES 32u
int  cei_ucx_is_untried(const char *line, char ret_name[CEI_UCX_KIND_BYTES]);

/* Writes one such transport that the context may use; empty: there is none. CEOV_NONE, not raised:
 * UCX does not tell. */
int  cei_ucx_find_untried(struct cei_ucx *ucx, char ret_name[CEI_UCX_KIND_BYTES]);

#endif /* CEI_UCX_DEVICES_H */
