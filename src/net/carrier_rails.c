/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Brings messages of a group to processes of other nodes. */

#include "net/carrier_rails.h"

#include <stdatomic.h>
#include <stdlib.h>

#include <ceoverlap/ceoverlap.h>

#include "base/clock.h"

/* How long turn() is not called after a message found no room: twice as long each time. */
#define AGAIN_MIN_NS UINT64_C(20000)
#define AGAIN_MAX_NS UINT64_C(1000000)

/* What is known of a process. */
enum {
	HAS_TALKED    = 1,              /* a message went to it, or came from it */
	IS_GIVEN_UP   = 2,              /* by the group */
	HAS_ENDED     = 4,              /* its connection: nothing of it lands any more */
	IS_FULL       = 8,              /* turn() says that there is room */
	OWES_REFUSAL  = 16,             /* turn() tells it that it was given up */
	OWES_LOSS     = 32,             /* turn() tells that it closed before the first message */
};

#define TO_DO (IS_FULL | OWES_REFUSAL | OWES_LOSS)

struct farewell {                       /* a BYE that waits until the connection has ended */
	uint64_t                   number;
	struct cei_group_rank_said said;
};

struct cei_carrier_rails {
	struct cei_carrier base;
	struct cei_rail   *rail;
	struct cei_peers  *_Atomic peers;       /* NULL: it has not begun */
	uint32_t           n_processes;
	int                progress_by_caller;
	struct farewell  **farewells;   /* by process; of the rail's thread */
	_Atomic uint32_t  *states;      /* by process */
	_Atomic uint32_t   n_to_do;     /* bits of TO_DO in all of them */
	_Atomic uint64_t   again_ns;    /* when turn() looks at them next */
	uint64_t           patience_ns; /* of turn() */
};

/* --- what is known ------------------------------------------------------------------------ */

/* acq_rel, here and in remove_state(): give_up() and has_ended() of the rail's thread each set
 * a bit and look for the other one's, so that one of them at least tells that the process is
 * quiet; what was written before is seen by who finds the bit. */
static uint32_t add_state(struct cei_carrier_rails *rails, uint32_t process, uint32_t bit)
{
	uint32_t before = atomic_fetch_or_explicit(&rails->states[process], bit,
						   memory_order_acq_rel);

	if (bit & TO_DO & ~before)
		/* relaxed: a hint for turn(), which is woken behind it */
		atomic_fetch_add_explicit(&rails->n_to_do, 1, memory_order_relaxed);
	return before;
}

/* Returns whether it was set. */
static int remove_state(struct cei_carrier_rails *rails, uint32_t process, uint32_t bit)
{
	if (!(atomic_fetch_and_explicit(&rails->states[process], ~bit, memory_order_acq_rel) & bit))
		return 0;
	/* relaxed: as above */
	atomic_fetch_sub_explicit(&rails->n_to_do, 1, memory_order_relaxed);
	return 1;
}

static struct cei_peers *peers_of(const struct cei_carrier_rails *rails)
{
	/* acquire: pairs with cei_carrier_rails_begin() */
	return atomic_load_explicit(&rails->peers, memory_order_acquire);
}

static uint32_t state_of(const struct cei_carrier_rails *rails, uint32_t process)
{
	/* acquire: as in add_state() */
	return atomic_load_explicit(&rails->states[process], memory_order_acquire);
}

int cei_carrier_rails_has_ended(const struct cei_carrier_rails *rails, uint32_t process)
{
	return (state_of(rails, process) & HAS_ENDED) != 0;
}

/* Leaves something to turn(). */
static void leave_to_turn(struct cei_carrier_rails *rails, uint32_t process, uint32_t bit)
{
	if (add_state(rails, process, bit) & bit)
		return;
	/* relaxed: the peers' lock, which the wake takes, orders it for due() */
	atomic_store_explicit(&rails->again_ns, cei_now_ns() + AGAIN_MIN_NS, memory_order_relaxed);
	if (peers_of(rails))
		cei_peers_wake(peers_of(rails));
}

/* --- what the peers call ------------------------------------------------------------------- */

static int send(void *state, uint32_t process, const struct cei_group_message *message,
		const struct cei_group_fds *fds, int *ret_native_code)
{
	struct cei_carrier_rails *rails = state;
	struct cei_far_message note = { .type = CEI_FAR_NOTE };
	uint8_t bytes[CEI_GROUP_MESSAGE_BYTES];

	(void)fds;
	(void)ret_native_code;
	_Static_assert(CEI_GROUP_MESSAGE_BYTES <= CEI_FAR_NOTE_MAX, "every message fits");
	if (state_of(rails, process) & HAS_ENDED) {
		leave_to_turn(rails, process, OWES_LOSS);
		return CEOV_ERR_PEER_LOST;
	}
	note.note.bytes = bytes;
	note.note.n_bytes = (uint32_t)cei_encode(&cei_group_protocol, message, bytes);
	if (cei_rail_say(rails->rail, process, &note)) {        /* no room, or no memory */
		leave_to_turn(rails, process, IS_FULL);
		return CEOV_FULL;
	}
	(void)add_state(rails, process, HAS_TALKED);
	return 0;
}

static void give_up(void *state, uint32_t process, const char *why)
{
	struct cei_carrier_rails *rails = state;

	if (add_state(rails, process, IS_GIVEN_UP) & HAS_ENDED)
		cei_peers_quiet(peers_of(rails), process);
	else if (cei_rail_refuse(rails->rail, process, why))
		leave_to_turn(rails, process, OWES_REFUSAL);
}

/* Does what is left to turn() of one process. Returns whether that was anything. */
static int catch_up(struct cei_carrier_rails *rails, uint32_t process)
{
	int has_worked = 0;

	if (!(state_of(rails, process) & TO_DO))
		return 0;
	if (remove_state(rails, process, IS_FULL)) {
		cei_peers_ready(peers_of(rails), process);
		has_worked = !(state_of(rails, process) & IS_FULL);
	}
	if ((state_of(rails, process) & OWES_REFUSAL) &&
	    !cei_rail_refuse(rails->rail, process, "the group has given it up"))
		has_worked |= remove_state(rails, process, OWES_REFUSAL);
	if (remove_state(rails, process, OWES_LOSS)) {
		cei_peers_down(peers_of(rails), process, "it has closed its connection", 0);
		has_worked = 1;
	}
	return has_worked;
}

static int catch_up_all(struct cei_carrier_rails *rails)
{
	uint32_t process;
	int has_worked = 0;

	/* relaxed: a hint, see add_state() */
	if (!atomic_load_explicit(&rails->n_to_do, memory_order_relaxed))
		return 0;
	for (process = 0; process < rails->n_processes; process++)
		has_worked |= catch_up(rails, process);
	if (has_worked)
		rails->patience_ns = AGAIN_MIN_NS;
	else if (rails->patience_ns < AGAIN_MAX_NS)
		rails->patience_ns *= 2;
	/* relaxed: only a time */
	atomic_store_explicit(&rails->again_ns, cei_now_ns() + rails->patience_ns,
			      memory_order_relaxed);
	return has_worked;
}

static int turn(void *state, const struct pollfd *fds)
{
	struct cei_carrier_rails *rails = state;
	int has_worked = 0;

	(void)fds;
	if (!peers_of(rails))
		return 0;
	if (rails->progress_by_caller)
		has_worked = cei_rail_turn(rails->rail, cei_now_ns()) == CEOV_PENDING;
	return catch_up_all(rails) | has_worked;
}

/* What comes to a rail without a thread shows in turn() only. */
static uint64_t due(void *state)
{
	struct cei_carrier_rails *rails = state;

	if (rails->progress_by_caller)
		return 0;
	/* relaxed, both: the lock of the peers orders what leave_to_turn() wrote */
	if (!atomic_load_explicit(&rails->n_to_do, memory_order_relaxed))
		return CEI_FOREVER;
	return atomic_load_explicit(&rails->again_ns, memory_order_relaxed);
}

static const struct cei_carrier_ops ops = {
	.send    = send,
	.give_up = give_up,
	.turn    = turn,
	.due     = due,
};

/* --- what the rail tells --------------------------------------------------------------------- */

/* Keeps a farewell until the connection has ended. Returns whether there was memory for it. */
static int keep_farewell(struct cei_carrier_rails *rails, uint32_t process,
			 const struct cei_group_message *message)
{
	struct farewell *farewell = rails->farewells[process];

	if (!farewell)
		farewell = rails->farewells[process] = calloc(1, sizeof(*farewell));
	if (!farewell)
		return 0;
	farewell->number = message->number;
	farewell->said = message->said;
	return 1;
}

void cei_carrier_rails_heard(struct cei_carrier_rails *rails, uint32_t process,
			     const struct cei_far_note *note)
{
	struct cei_group_message message;

	if (add_state(rails, process, HAS_TALKED) & IS_GIVEN_UP)
		return;
	if (cei_decode(&cei_group_protocol, note->bytes, note->n_bytes, &message))
		cei_peers_down(peers_of(rails), process,
			       "it has sent a message that makes no sense", 0);
	else if (message.type != CEI_GROUP_BYE || !keep_farewell(rails, process, &message))
		cei_peers_received(peers_of(rails), process, &message, NULL);
}

void cei_carrier_rails_losing(struct cei_carrier_rails *rails, uint32_t process, const char *why,
			      int is_refusal)
{
	if (!(state_of(rails, process) & IS_GIVEN_UP))
		cei_peers_down(peers_of(rails), process, why, is_refusal);
}

/* Also of a process that was not given up: the group that has given up this one gives up
 * nobody, and its other members are lost nevertheless. */
void cei_carrier_rails_lost(struct cei_carrier_rails *rails, uint32_t process)
{
	(void)add_state(rails, process, HAS_ENDED);
	cei_peers_quiet(peers_of(rails), process);
}

/* The end in order is the group's BYE and then the rail's. Who was never talked to says no BYE
 * to the group: rails may be connected without a message of the group, to ask for the time.
 * That process is lost to those who have something to say to it later. Any other one owed a
 * farewell. */
void cei_carrier_rails_departed(struct cei_carrier_rails *rails, uint32_t process)
{
	const struct farewell *farewell = rails->farewells[process];
	uint32_t state = add_state(rails, process, HAS_ENDED);
	struct cei_group_message message = { .type = CEI_GROUP_BYE };

	if (state & IS_GIVEN_UP) {
		cei_peers_quiet(peers_of(rails), process);
	} else if (farewell) {
		message.number = farewell->number;
		message.said = farewell->said;
		cei_peers_received(peers_of(rails), process, &message, NULL);
	} else if (state & HAS_TALKED) {
		cei_peers_down(peers_of(rails), process,
			       "it has closed its connection without a farewell to the group", 0);
	}
}

/* --- opening and closing --------------------------------------------------------------------- */

int cei_carrier_rails_open(uint32_t n_processes, int progress_by_caller,
			   struct cei_carrier_rails **ret_rails)
{
	struct cei_carrier_rails *rails = calloc(1, sizeof(*rails));

	if (!rails)
		return CEOV_ERR_NO_MEMORY;
	rails->base.ops = &ops;
	rails->base.state = rails;
	rails->base.promises.is_sure = 1;
	rails->n_processes = n_processes;
	rails->progress_by_caller = progress_by_caller;
	rails->patience_ns = AGAIN_MIN_NS;
	rails->farewells = calloc(n_processes, sizeof(struct farewell *));
	rails->states = calloc(n_processes, sizeof(*rails->states));
	if (!rails->farewells || !rails->states) {
		cei_carrier_rails_close(rails);
		return CEOV_ERR_NO_MEMORY;
	}
	*ret_rails = rails;
	return 0;
}

void cei_carrier_rails_close(struct cei_carrier_rails *rails)
{
	uint32_t process;

	if (!rails)
		return;
	for (process = 0; rails->farewells && process < rails->n_processes; process++)
		free(rails->farewells[process]);
	free(rails->farewells);
	free(rails->states);
	free(rails);
}

void cei_carrier_rails_attach(struct cei_carrier_rails *rails, struct cei_rail *rail)
{
	rails->rail = rail;
}

void cei_carrier_rails_begin(struct cei_carrier_rails *rails, struct cei_peers *peers)
{
	/* release: pairs with peers_of() */
	atomic_store_explicit(&rails->peers, peers, memory_order_release);
}

const struct cei_carrier *cei_carrier_rails_base(const struct cei_carrier_rails *rails)
{
	return &rails->base;
}
