/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_CARRIER_H
#define CEI_CARRIER_H

/*
 * A carrier brings the messages of a group (ipc/group/messages.h) to processes and tells what comes
 * from there: ipc/carrier_unix.h to those of the own node, net/carrier_rails.h to those of
 * other nodes. Whoever makes one calls the events below.
 */

#include <poll.h>
#include <stdint.h>

#include "ipc/group/group.h"

struct cei_peers;                       /* ipc/peers/peers.h */

/* state: the one of struct cei_carrier. */
struct cei_carrier_ops {
	/* Sends a message without blocking, with the lock of the peers held, so it calls nothing of
	 * them. 0; CEOV_FULL: not now, cei_peers_ready() will say when; CEOV_ERR_PEER_LOST:
	 * cei_peers_down() will say so; CEOV_ERR_SYSTEM and *ret_native_code: the descriptors could
	 * not be sent. Not raised. fds may be NULL. */
	int (*send)(void *state, uint32_t process, const struct cei_group_message *message,
		    const struct cei_group_fds *fds, int *ret_native_code);

	/* Stops receiving from the process, and tells it that it was expelled: by a GONE message
	 * that names it, or by refusing its connection. When nothing of it lands any more, maybe
	 * before this returns, cei_peers_quiet() is called. Without the lock. Never after the group
	 * has given up this process, which then refuses nobody. */
	void (*give_up)(void *state, uint32_t process, const char *why);

	/* Writes what the thread has to poll, n_fds_max entries at most, and returns how many they
	 * are. NULL: nothing. With the lock. */
	uint32_t (*list_fds)(void *state, struct pollfd *ret_fds);

	/* Does what the thread has to do: receives from the descriptors that are ready, sees who
	 * has room again and who is quiet. fds: as listed, or NULL. Returns whether it did
	 * anything. Never blocks. Without the lock; one thread at a time. */
	int (*turn)(void *state, const struct pollfd *fds);

	/* Until when turn() need not be called if nothing is ready: 0: call it again and again;
	 * CEI_FOREVER. With the lock. */
	uint64_t (*due)(void *state);
};

struct cei_carrier {
	const struct cei_carrier_ops *ops;
	void                         *state;
	struct cei_group_carrier      promises;
	uint32_t                      n_fds_max;
};

/* --- events, of any thread that holds no lock of the peers ---------------------------------- */

/* A message has come, which was decoded. fds may be NULL; its descriptors are the peers' from now
 * on, whatever becomes of the message. */
void cei_peers_received(struct cei_peers *peers, uint32_t process,
			const struct cei_group_message *message, struct cei_group_fds *fds);

/* There is room for messages to the process again. */
void cei_peers_ready(struct cei_peers *peers, uint32_t process);

/* The connection to the process has ended without a BYE; is_refusal: by the process, which lives
 * and has given this one up. why: a text that stays. */
void cei_peers_down(struct cei_peers *peers, uint32_t process, const char *why, int is_refusal);

/* The process was given up, and nothing of it lands any more. */
void cei_peers_quiet(struct cei_peers *peers, uint32_t process);

/* The thread asks list_fds() and due() anew. Never blocks; the lock may be held. */
void cei_peers_wake(struct cei_peers *peers);

#endif /* CEI_CARRIER_H */
