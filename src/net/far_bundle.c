/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Divides copies among rails, and holds posts back until all parts have landed. */

#include "net/far_bundle.h"

#include <stdlib.h>
#include <string.h>

/* Parts of consecutive bytes begin at multiples of this. */
#define PART_ALIGN_BYTES UINT64_C(4096)

/* --- opening -------------------------------------------------------------------------- */

int cei_far_bundle_open(struct cei_far_bundle *bundle, struct cei_rail *const *rails, uint32_t n,
			uint32_t process)
{
	int r = 0;

	memset(bundle, 0, sizeof(*bundle));
	while (!r && bundle->n < n && bundle->n < CEI_FAR_BUNDLE_MAX) {
		bundle->rails[bundle->n] = rails[bundle->n];
		r = cei_rail_lane_open(rails[bundle->n], process, &bundle->lanes[bundle->n]);
		bundle->n += !r;
	}
	if (!r && bundle->n > 1) {
		bundle->held = calloc(CEI_FAR_BUNDLE_POSTS, sizeof(*bundle->held));
		r = bundle->held ? 0 : CEOV_ERR_NO_MEMORY;
	}
	bundle->n_live = bundle->n;
	if (r)
		cei_far_bundle_close(bundle);
	return r;
}

void cei_far_bundle_close(struct cei_far_bundle *bundle)
{
	while (bundle->n) {
		bundle->n--;
		cei_rail_lane_close(bundle->rails[bundle->n], bundle->lanes[bundle->n]);
	}
	free(bundle->held);
	bundle->held = NULL;
}

/* --- lanes that break ------------------------------------------------------------------ */

/* Whether a lane's error says that its connection is lost. Others are the fault of what was
 * appended, and are no reason to go on without the lane. */
static int is_loss(int error)
{
	return error == CEOV_ERR_PEER_LOST || error == CEOV_ERR_UNCERTAIN;
}

static int is_lost(struct cei_far_lane *lane)
{
	uint64_t n_done;

	return cei_far_lane_is_doomed(lane) || is_loss(cei_far_lane_reap(lane, &n_done));
}

static void bury(struct cei_far_bundle *bundle, uint32_t lane)
{
	bundle->is_dead[lane] = 1;
	bundle->is_begun[lane] = 0;
	bundle->submitted[lane] = bundle->done[lane];
	bundle->n_live--;
	while (bundle->first + 1 < bundle->n && bundle->is_dead[bundle->first])
		bundle->first++;
}

/* Whether nothing of the bundle is under way, appended or held back. */
static int is_quiet(const struct cei_far_bundle *bundle)
{
	uint32_t i;

	for (i = 0; i < bundle->n; i++)
		if (bundle->is_begun[i] || bundle->done[i] != bundle->submitted[i])
			return 0;
	return bundle->n_done == bundle->n_submits && bundle->n_let_go == bundle->n_held;
}

/* Goes on without lanes that broke, or will, while nothing was under way. The last one stays: its
 * error is the bundle's. */
static void leave_broken(struct cei_far_bundle *bundle)
{
	uint32_t i;

	if (bundle->n_live < 2 || !is_quiet(bundle))
		return;
	for (i = 0; i < bundle->n && bundle->n_live > 1; i++)
		if (!bundle->is_dead[i] && is_lost(bundle->lanes[i]))
			bury(bundle, i);
}

/* Brings one lane to rest: it has broken and is used no more, or can be used again. */
static int mend_lane(struct cei_far_bundle *bundle, uint32_t lane)
{
	uint64_t n_done;
	int error;

	if (bundle->is_dead[lane])
		return 0;
	if (is_lost(bundle->lanes[lane])) {
		bury(bundle, lane);
		return 0;
	}
	error = cei_far_lane_reap(bundle->lanes[lane], &n_done);
	if (error)
		return error;
	bundle->done[lane] = bundle->submitted[lane] = n_done;
	bundle->is_begun[lane] = 0;
	return cei_far_lane_resume(bundle->lanes[lane]);
}

int cei_far_bundle_mend(struct cei_far_bundle *bundle, uint64_t n_submits)
{
	uint32_t i;
	int r = 0;

	if (!bundle->broken)
		return CEOV_ERR_STATE;
	if (!cei_far_bundle_is_idle(bundle))
		return CEOV_PENDING;
	for (i = 0; !r && i < bundle->n; i++)
		r = mend_lane(bundle, i);
	if (r || !bundle->n_live)
		return r ? r : CEOV_ERR_PEER_LOST;
	bundle->n_submits = bundle->n_posted = bundle->n_done = n_submits;
	bundle->n_let_go = bundle->n_held;
	bundle->n_current = 0;
	bundle->broken = 0;
	return 0;
}

uint32_t cei_far_bundle_broken_rail(const struct cei_far_bundle *bundle)
{
	return bundle->broken ? cei_rail_index(bundle->rails[bundle->broken - 1]) : CEOV_NOBODY;
}

enum cei_far_health cei_far_bundle_health(const struct cei_far_bundle *bundle, uint64_t now_ns,
					  uint64_t *ret_since_ns)
{
	enum cei_far_health health, worst = CEI_FAR_IDLE;
	uint64_t since_ns;
	uint32_t i;

	*ret_since_ns = 0;
	for (i = 0; i < bundle->n; i++) {
		if (bundle->is_dead[i] || !bundle->lanes[i]->vitals ||
		    bundle->done[i] == bundle->submitted[i])
			continue;
		health = cei_far_vitals_judge(bundle->lanes[i]->vitals, now_ns, &since_ns);
		if (health < worst)
			continue;
		worst = health;
		*ret_since_ns = since_ns;
	}
	return worst;
}

/* --- copies --------------------------------------------------------------------------- */

/* Rows that follow each other at both ends are one row. */
static struct cei_far_copy joined(const struct cei_far_copy *copy)
{
	struct cei_far_copy one = *copy;

	if (copy->n_rows > 1 && (copy->source_pitch_bytes != copy->row_bytes ||
				 copy->target_pitch_bytes != copy->row_bytes))
		return one;
	one.row_bytes *= one.n_rows;
	one.n_rows = 1;
	return one;
}

/* The i-th of n parts; its n_rows or row_bytes is 0 where nothing is left for it. */
static struct cei_far_copy part_of(const struct cei_far_copy *copy, uint32_t i, uint32_t n)
{
	uint64_t whole = copy->n_rows > 1 ? copy->n_rows : copy->row_bytes;
	uint64_t step = (whole + n - 1) / n, begin, end;
	struct cei_far_copy part = *copy;

	if (copy->n_rows == 1)
		step = (step + PART_ALIGN_BYTES - 1) / PART_ALIGN_BYTES * PART_ALIGN_BYTES;
	begin = i * step < whole ? i * step : whole;
	end = whole - begin > step ? begin + step : whole;
	if (copy->n_rows > 1) {
		part.source += begin * copy->source_pitch_bytes;
		part.offset += begin * copy->target_pitch_bytes;
		part.n_rows = end - begin;
	} else {
		part.source += begin;
		part.offset += begin;
		part.row_bytes = end - begin;
	}
	return part;
}

static int is_divided(const struct cei_far_bundle *bundle, const struct cei_far_copy *copy)
{
	return bundle->n_live > 1 && copy->n_rows * copy->row_bytes >= CEI_FAR_DIVIDED_BYTES;
}

/* Appends to a lane that has room. */
static void append(struct cei_far_bundle *bundle, uint32_t lane, const struct cei_far_copy *copy)
{
	(void)cei_far_lane_copy(bundle->lanes[lane], copy, 1);
	bundle->is_begun[lane] = 1;
}

static void divide(struct cei_far_bundle *bundle, const struct cei_far_copy *copy)
{
	const struct cei_far_copy whole = joined(copy);
	struct cei_far_copy part;
	uint32_t i, k = 0;

	for (i = 0; i < bundle->n; i++) {
		if (bundle->is_dead[i])
			continue;
		part = part_of(&whole, k++, bundle->n_live);
		if (part.n_rows && part.row_bytes)
			append(bundle, i, &part);
	}
}

int cei_far_bundle_copy(struct cei_far_bundle *bundle, const struct cei_far_copy *copies,
			uint32_t n_copies)
{
	uint32_t i;

	leave_broken(bundle);
	for (i = 0; i < bundle->n; i++)
		if (!bundle->is_dead[i] && !cei_far_lane_has_room(bundle->lanes[i], n_copies))
			return CEOV_FULL;
	for (i = 0; i < n_copies; i++)
		if (is_divided(bundle, &copies[i]))
			divide(bundle, &copies[i]);
		else
			append(bundle, bundle->first, &copies[i]);
	return 0;
}

/* --- posts ---------------------------------------------------------------------------- */

/* Whether nothing that lies behind a post is on another lane than the first, or is held back. */
static int goes_at_once(const struct cei_far_bundle *bundle)
{
	uint32_t i;

	if (bundle->n_let_go != bundle->n_held)
		return 0;
	for (i = bundle->first + 1; i < bundle->n; i++)
		if (bundle->is_begun[i] || bundle->done[i] != bundle->submitted[i])
			return 0;
	return 1;
}

int cei_far_bundle_post(struct cei_far_bundle *bundle, const struct cei_far_post *posts,
			uint32_t n_posts)
{
	uint32_t i;
	int r;

	leave_broken(bundle);
	if (goes_at_once(bundle)) {
		r = cei_far_lane_post(bundle->lanes[bundle->first], posts, n_posts);
		bundle->is_begun[bundle->first] |= !r;
		return r;
	}
	if (bundle->n_held - bundle->n_let_go + n_posts > CEI_FAR_BUNDLE_POSTS)
		return CEOV_FULL;
	for (i = 0; i < n_posts; i++)
		bundle->held[bundle->n_held++ % CEI_FAR_BUNDLE_POSTS] = posts[i];
	bundle->n_current += n_posts;
	return 0;
}

/* --- submits -------------------------------------------------------------------------- */

static int submit_lane(struct cei_far_bundle *bundle, uint32_t lane)
{
	int r = bundle->is_begun[lane] ? cei_far_lane_submit(bundle->lanes[lane]) : 0;

	if (r || !bundle->is_begun[lane])
		return r;
	bundle->is_begun[lane] = 0;
	bundle->submitted[lane]++;
	return 0;
}

int cei_far_bundle_submit(struct cei_far_bundle *bundle)
{
	struct cei_far_bundle_submit *made =
		&bundle->submits[bundle->n_submits % CEI_FAR_BUNDLE_SUBMITS];
	uint32_t i;
	int r = 0;

	if (bundle->n_submits - bundle->n_done == CEI_FAR_BUNDLE_SUBMITS)
		return CEOV_FULL;
	for (i = 0; !r && i < bundle->n; i++)
		r = submit_lane(bundle, i);
	if (r)
		return r;
	memset(made, 0, sizeof(*made));
	memcpy(made->needs, bundle->submitted, sizeof(made->needs));
	made->n_held = bundle->n_current;
	bundle->n_current = 0;
	bundle->n_submits++;
	return 0;
}

/* Whether all parts on other lanes than the first have landed; the first lane itself keeps posts
 * behind its copies. */
static int may_post(const struct cei_far_bundle *bundle, const struct cei_far_bundle_submit *of)
{
	uint32_t i;

	for (i = bundle->first + 1; i < bundle->n; i++)
		if (bundle->done[i] < of->needs[i])
			return 0;
	return 1;
}

static void let_go(struct cei_far_bundle *bundle, struct cei_far_bundle_submit *of)
{
	uint32_t i;

	for (i = 0; i < of->n_held; i++)
		(void)cei_far_lane_post(bundle->lanes[bundle->first],
					&bundle->held[bundle->n_let_go++ % CEI_FAR_BUNDLE_POSTS],
					1);
	bundle->is_begun[bundle->first] = 1;
	of->posted = bundle->submitted[bundle->first] + 1;
}

/* Gives the first lane posts that were held back, in their order, as far as there is room. */
static void post_held(struct cei_far_bundle *bundle)
{
	struct cei_far_bundle_submit *next;

	while (bundle->n_posted < bundle->n_submits) {
		next = &bundle->submits[bundle->n_posted % CEI_FAR_BUNDLE_SUBMITS];
		if (next->n_held) {
			if (!may_post(bundle, next) ||
			    !cei_far_lane_has_room(bundle->lanes[bundle->first],
						   next->n_held + 1))
				break;
			let_go(bundle, next);
		}
		bundle->n_posted++;
	}
	(void)submit_lane(bundle, bundle->first);       /* what finds no room goes later */
}

static int is_done(const struct cei_far_bundle *bundle, const struct cei_far_bundle_submit *submit)
{
	return may_post(bundle, submit) &&
		bundle->done[bundle->first] >= submit->needs[bundle->first] &&
		bundle->done[bundle->first] >= submit->posted;
}

int cei_far_bundle_reap(struct cei_far_bundle *bundle, uint64_t *ret_n_done)
{
	int error = bundle->n_live ? 0 : CEOV_ERR_PEER_LOST, one;
	uint32_t i;

	for (i = 0; i < bundle->n; i++) {
		if (bundle->is_dead[i])
			continue;
		one = cei_far_lane_reap(bundle->lanes[i], &bundle->done[i]);
		if (is_loss(one) && i != bundle->first && !bundle->is_begun[i] &&
		    bundle->done[i] == bundle->submitted[i]) {
			bury(bundle, i);        /* nothing of the bundle is on it */
			continue;
		}
		if (!one || error == CEOV_ERR_UNCERTAIN)
			continue;
		error = one;
		bundle->broken = i + 1;
	}
	if (!error)
		post_held(bundle);
	while (bundle->n_done < bundle->n_posted &&
	       is_done(bundle, &bundle->submits[bundle->n_done % CEI_FAR_BUNDLE_SUBMITS]))
		bundle->n_done++;
	*ret_n_done = bundle->n_done;
	return error;
}

void cei_far_bundle_stop(struct cei_far_bundle *bundle)
{
	uint32_t i;

	for (i = 0; i < bundle->n; i++)
		cei_far_lane_stop(bundle->lanes[i]);
}

int cei_far_bundle_is_idle(struct cei_far_bundle *bundle)
{
	uint32_t i;

	for (i = 0; i < bundle->n; i++)
		if (!cei_far_lane_is_idle(bundle->lanes[i]))
			return 0;
	return 1;
}
