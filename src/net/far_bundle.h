/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */
#ifndef CEI_FAR_BUNDLE_H
#define CEI_FAR_BUNDLE_H

/*
 * A bundle: the far lanes from one engine to one other process, one on each rail that both have.
 * It is used like a far lane (net/far_lane.h). A large copy is divided among the lanes; everything
 * else goes on the first one. Rails know nothing of each other, so posts behind a divided copy are
 * held back until the other lanes' parts are acknowledged, and then go on the first lane. Posts
 * keep their order.
 *
 * A lane that breaks while something of the bundle is on it breaks the bundle. If nothing is, the
 * bundle goes on without it; and a broken bundle does so after cei_far_bundle_mend(). The first of
 * the lanes that are left is the first lane.
 *
 * The engine's thread only, but for stop and is_idle.
 */

#include "net/far_lane.h"
#include "net/rail.h"

#define CEI_FAR_BUNDLE_MAX     8u               /* lanes */
#define CEI_FAR_BUNDLE_SUBMITS 64u              /* that are not reaped */
#define CEI_FAR_BUNDLE_POSTS   256u             /* that are held back; of an engine 64 are, one
						 * for each chunk that a lane may have */

/* Copies of at least so many bytes are divided. The post behind one takes a round trip more, which
 * two rails of 10 GB/s win back with 2 MiB if the round trip takes less than 100 us. */
#define CEI_FAR_DIVIDED_BYTES  (UINT64_C(2) << 20)

struct cei_far_bundle_submit {
	uint64_t needs[CEI_FAR_BUNDLE_MAX];     /* submits of each lane that it is part of */
	uint64_t posted;                        /* the first lane's submit that has its posts, if
						 * they were held back */
	uint32_t n_held;                        /* posts that are or were held back */
};

struct cei_far_bundle {
	uint32_t                     n;         /* lanes */
	uint32_t                     n_live;    /* of these: not dead */
	uint32_t                     first;     /* the first lane that is not dead */
	int                          is_dead[CEI_FAR_BUNDLE_MAX];       /* by lane: it has broken,
									 * and is not used */
	struct cei_rail             *rails[CEI_FAR_BUNDLE_MAX];
	struct cei_far_lane         *lanes[CEI_FAR_BUNDLE_MAX];
	uint64_t                     submitted[CEI_FAR_BUNDLE_MAX];     /* by lane */
	uint64_t                     done[CEI_FAR_BUNDLE_MAX];          /* by lane, as last seen */
	int                          is_begun[CEI_FAR_BUNDLE_MAX];      /* by lane: something was
									 * appended since its last
									 * submit */
	struct cei_far_bundle_submit submits[CEI_FAR_BUNDLE_SUBMITS];   /* a ring */
	uint64_t                     n_submits;
	uint64_t                     n_posted;  /* submits whose posts the first lane has */
	uint64_t                     n_done;    /* submits */
	struct cei_far_post         *held;      /* a ring of CEI_FAR_BUNDLE_POSTS; NULL: one lane */
	uint64_t                     n_held;    /* posts, ever */
	uint64_t                     n_let_go;  /* of these */
	uint32_t                     broken;    /* 1 + the lane whose error reap() returned last */
	uint32_t                     n_current; /* of these: for the next submit */
};

/* Opens a lane to the process on each of the rails; small copies take the first one.
 * CEOV_ERR_NO_MEMORY is not always raised, other errors are. close: all lanes are idle, or the
 * bundle is zeroed. */
int  cei_far_bundle_open(struct cei_far_bundle *bundle, struct cei_rail *const *rails, uint32_t n,
			 uint32_t process);
void cei_far_bundle_close(struct cei_far_bundle *bundle);

/* As those of far lanes. The reap also lets posts go that were held back. */
int  cei_far_bundle_copy(struct cei_far_bundle *bundle, const struct cei_far_copy *copies,
			 uint32_t n_copies);
int  cei_far_bundle_post(struct cei_far_bundle *bundle, const struct cei_far_post *posts,
			 uint32_t n_posts);
int  cei_far_bundle_submit(struct cei_far_bundle *bundle);
int  cei_far_bundle_reap(struct cei_far_bundle *bundle, uint64_t *ret_n_done);

/* Makes a broken bundle usable again over the lanes that have not broken; what was under way counts
 * as n_submits submits that are done. CEOV_PENDING: a lane is not idle yet. Not raised:
 * CEOV_ERR_PEER_LOST, all lanes have broken; CEOV_ERR_STATE, none has, so it is not a lane that
 * keeps the bundle from its end; CEOV_ERR_INVALID, one was given what cannot be sent. */
int  cei_far_bundle_mend(struct cei_far_bundle *bundle, uint64_t n_submits);

/* The number of a rail whose lane broke the bundle; CEOV_NOBODY: none did. */
uint32_t cei_far_bundle_broken_rail(const struct cei_far_bundle *bundle);

/* How the other side does, and for how long: see cei_far_vitals_judge(). Of several rails on which
 * something is under way the one that says the worst counts. CEI_FAR_IDLE: nothing is under way, or
 * it is too early to say. */
enum cei_far_health cei_far_bundle_health(const struct cei_far_bundle *bundle, uint64_t now_ns,
					  uint64_t *ret_since_ns);

void cei_far_bundle_stop(struct cei_far_bundle *bundle);
int  cei_far_bundle_is_idle(struct cei_far_bundle *bundle);

#endif /* CEI_FAR_BUNDLE_H */
