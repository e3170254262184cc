/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_TRANSPORT_PROXY_H
#define CEI_TRANSPORT_PROXY_H

/*
 * A test double: a transport that forwards all calls to another one, and tells what that one tells
 * late and in another order, as the contract of transports allows. Or it tells that bytes have
 * landed as soon as they are accepted, which no transport may. The log says that it is there.
 */

#include "net/transport.h"

/* Returns transports over `under`, whose events come up to late_ns late, each by another time.
 * is_early: `landed` comes before the bytes. There is one such table in a process at any time. */
const struct cei_transport_ops *transport_proxy(const struct cei_transport_ops *under,
						uint64_t late_ns, int is_early);

#endif /* CEI_TRANSPORT_PROXY_H */
