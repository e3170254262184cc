/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CARRIER_UNIX_H
#define CEI_CARRIER_UNIX_H

/*
 * Carries messages to the processes of the own node, with descriptors beside them, over the sockets
 * that they got when they met (net/node_meet.h): one datagram a message.
 *
 * A process is lost when its pidfd or the end of its socket says so, and what it said before was
 * read. A socket ends a moment before its process does, and an exec ends it, too: so that end alone
 * is never taken for a refusal. Who gives a process up sends it a GONE that names it, and ends the
 * socket behind that.
 */

#include "base/report.h"
#include "ipc/peers/carrier.h"
#include "net/links.h"

struct cei_unix;

/* Makes a carrier that has no links yet, so all messages wait. The roster stays until the close.
 * CEOV_ERR_NO_MEMORY, CEOV_ERR_SYSTEM: raised. */
int  cei_unix_open(struct cei_report *report, const struct cei_roster *roster,
		   struct cei_unix **ret_carrier);

const struct cei_carrier *cei_unix_carrier(const struct cei_unix *carrier);

/* Takes over the links to all other processes of the node, and their descriptors in any case. Once,
 * before any other event of this carrier. CEOV_ERR_INVALID, raised: they hold other ranks than the
 * roster says. */
int  cei_unix_attach(struct cei_unix *carrier, struct cei_peers *peers,
		     struct cei_links *links);

/* Nothing calls the carrier any more. NULL is allowed. */
void cei_unix_close(struct cei_unix *carrier);

#endif /* CEI_CARRIER_UNIX_H */
