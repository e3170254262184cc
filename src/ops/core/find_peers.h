/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FIND_PEERS_H
#define CEI_FIND_PEERS_H

/* Finds what all other ranks of the group export, as they come to it. */

#include <stdint.h>

#include <ceoverlap/ceoverlap.h>

struct cei_find_peers {
	ceov_context *context;
	uint32_t      rank;             /* the own one, which is not looked for */
	const char   *call;             /* public function, for messages */
	const char   *name;             /* of the object whose parts are looked for, likewise */
	void         *arg;
	/* Looks for the parts of a rank that were not found before; the peer may take until by_ns
	 * to answer. 0: all are found; CEOV_NONE: the rank has not exported all of them; other
	 * errors are raised, and end the search. */
	int         (*find)(void *arg, uint32_t rank, uint64_t by_ns);
};

/* Looks again and again until the parts of all ranks are found. CEOV_NONE: by deadline_ns some
 * rank has not exported everything. CEOV_ERR_PEER_LOST, raised: a rank has gone. */
int cei_find_peers(const struct cei_find_peers *find, uint64_t deadline_ns);

#endif /* CEI_FIND_PEERS_H */
