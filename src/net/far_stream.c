/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* What is under way between two processes: numbers, the window, held marks, silence. */

#include "net/far_stream.h"

#include <string.h>

/* A rate is that of about the last second in which bytes were under way, and of so many at
 * least. */
#define RATE_NS    UINT64_C(1000000000)
#define RATE_BYTES (UINT64_C(4) << 20)

#define ASKS_PER_TIMEOUT 5u

/* --- sending --------------------------------------------------------------- */

static struct cei_far_item *item_of(struct cei_far_out *out, uint64_t number)
{
	return &out->items[number % CEI_FAR_SPAN];
}

void cei_far_out_begin(struct cei_far_out *out, uint32_t window, uint64_t piece_max,
		       uint64_t patience_ns)
{
	memset(out, 0, sizeof(*out));
	out->next = 1;
	out->judged = 1;
	out->window = window ? window : CEI_FAR_WINDOW;
	if (out->window > CEI_FAR_WINDOW_MAX)
		out->window = CEI_FAR_WINDOW_MAX;
	out->piece_max = piece_max ? piece_max : CEI_FAR_PIECE_MAX;
	out->piece_bytes = out->piece_max;
	out->patience_ns = patience_ns;
}

int cei_far_out_has_room(const struct cei_far_out *out, int is_piece)
{
	if (out->is_lost || out->next - out->ended > CEI_FAR_SPAN)
		return 0;
	return is_piece ? out->n_pieces < out->window
		: out->n_marks < CEI_FAR_MARKS_UNDER_WAY;
}

void cei_far_out_add(struct cei_far_out *out, uint64_t n_bytes, uint64_t now_ns)
{
	struct cei_far_item *item = item_of(out, out->next++);

	item->n_bytes = n_bytes;
	item->begun_ns = now_ns;
	item->is_reading = n_bytes != 0;
	if (!n_bytes) {
		out->n_marks++;
		return;
	}
	if (!out->n_pieces)
		out->rate.since_ns = now_ns;
	out->n_pieces++;
}

static void end_some(struct cei_far_out *out)
{
	while (out->ended < out->acked && !item_of(out, out->ended + 1)->is_reading)
		out->ended++;
}

void cei_far_out_sent(struct cei_far_out *out, uint32_t index)
{
	out->items[index % CEI_FAR_SPAN].is_reading = 0;
	end_some(out);
}

/* Pieces shrink until a window takes less than the patience: beats share the connection with
 * bytes, and an abort waits for those that are under way. They grow again slowly. */
static void judge(struct cei_far_out *out, uint64_t number, uint64_t now_ns)
{
	const struct cei_far_item *item = item_of(out, number);
	uint64_t took_ns = now_ns - item->begun_ns;
	uint64_t wanted = out->piece_bytes;

	if (!out->patience_ns || number < out->judged)
		return;
	if (took_ns > out->patience_ns && wanted > CEI_FAR_PIECE_MIN)
		wanted /= 2;
	else if (took_ns < out->patience_ns / 8 && item->n_bytes == wanted)
		wanted *= 2;
	if (wanted > out->piece_max)
		wanted = out->piece_max;
	if (wanted == out->piece_bytes)
		return;
	out->piece_bytes = wanted;
	out->judged = out->next;
}

static void measure(struct cei_far_rate *rate, uint64_t n_bytes, uint64_t now_ns)
{
	rate->n_bytes += n_bytes;
	rate->busy_ns += now_ns - rate->since_ns;
	rate->since_ns = now_ns;
	if (rate->busy_ns < RATE_NS)
		return;
	rate->n_bytes /= 2;
	rate->busy_ns /= 2;
}

double cei_far_out_rate(const struct cei_far_out *out)
{
	if (out->rate.n_bytes < RATE_BYTES || !out->rate.busy_ns)
		return 0;
	return (double)out->rate.n_bytes * 1e9 / (double)out->rate.busy_ns;
}

int cei_far_out_ack(struct cei_far_out *out, uint64_t number, uint64_t now_ns)
{
	uint64_t before = out->n_acked_bytes;

	if (number >= out->next)
		return CEOV_ERR_INVALID;
	if (number <= out->acked)
		return CEOV_NONE;
	while (out->acked < number) {
		const struct cei_far_item *item = item_of(out, ++out->acked);

		if (!item->n_bytes) {
			out->n_marks--;
			continue;
		}
		out->n_pieces--;
		out->n_acked_bytes += item->n_bytes;
		judge(out, out->acked, now_ns);
	}
	if (out->n_acked_bytes != before)
		measure(&out->rate, out->n_acked_bytes - before, now_ns);
	end_some(out);
	return 0;
}

uint64_t cei_far_out_bytes(const struct cei_far_out *out)
{
	uint64_t number, n_bytes = 0;

	for (number = out->ended + 1; number < out->next; number++)
		n_bytes += out->items[number % CEI_FAR_SPAN].n_bytes;
	return n_bytes;
}

/* --- receiving ------------------------------------------------------------- */

/* Finds the place of a number that has not come yet. CEOV_NONE: it came. */
static int place_of(struct cei_far_in *in, uint64_t number,
		    struct cei_far_arrival **ret_arrival)
{
	if (number <= in->done) {
		in->n_duplicates++;
		return CEOV_NONE;
	}
	if (number - in->done > CEI_FAR_SPAN)
		return CEOV_ERR_INVALID;
	*ret_arrival = &in->arrivals[number % CEI_FAR_SPAN];
	if ((*ret_arrival)->seen == CEI_FAR_UNSEEN)
		return 0;
	in->n_duplicates++;
	return CEOV_NONE;
}

/* Counts on over all that is done without a gap; the places are free for later numbers. */
static void count_on(struct cei_far_in *in)
{
	struct cei_far_arrival *next;

	for (;;) {
		next = &in->arrivals[(in->done + 1) % CEI_FAR_SPAN];
		if (next->seen != CEI_FAR_SEEN_DONE)
			return;
		next->seen = CEI_FAR_UNSEEN;
		in->done++;
	}
}

int cei_far_in_piece(struct cei_far_in *in, uint64_t number, uint64_t n_bytes)
{
	struct cei_far_arrival *arrival;
	int r = place_of(in, number, &arrival);

	if (r)
		return r;
	arrival->seen = CEI_FAR_COMING;
	arrival->n_bytes = n_bytes;
	in->n_coming++;
	return 0;
}

void cei_far_in_landed(struct cei_far_in *in, uint32_t index)
{
	struct cei_far_arrival *arrival = &in->arrivals[index % CEI_FAR_SPAN];

	if (arrival->seen != CEI_FAR_COMING)
		return;
	arrival->seen = CEI_FAR_SEEN_DONE;
	in->n_coming--;
	in->n_landed_bytes += arrival->n_bytes;
	count_on(in);
}

int cei_far_in_mark(struct cei_far_in *in, const struct cei_far_mark *mark)
{
	struct cei_far_arrival *arrival;
	int r = place_of(in, mark->sequence, &arrival);

	if (r)
		return r;
	arrival->seen = CEI_FAR_HELD;
	arrival->mark = *mark;
	in->n_held++;
	return 0;
}

int cei_far_in_raise(struct cei_far_in *in, struct cei_far_mark *ret_mark)
{
	struct cei_far_arrival *arrival;
	uint64_t number;

	if (!in->n_held)
		return 0;
	for (number = in->done + 1; number <= in->done + CEI_FAR_SPAN; number++) {
		arrival = &in->arrivals[number % CEI_FAR_SPAN];
		if (arrival->seen != CEI_FAR_HELD || arrival->mark.after > in->done)
			continue;
		*ret_mark = arrival->mark;
		arrival->seen = CEI_FAR_SEEN_DONE;
		in->n_held--;
		count_on(in);
		return 1;
	}
	return 0;
}

/* --- whether the other side lives -------------------------------------------- */

static void tell(_Atomic uint64_t *vital, uint64_t ns)
{
	/* relaxed: for messages alone, see struct cei_far_vitals */
	atomic_store_explicit(vital, ns, memory_order_relaxed);
}

static uint64_t told(const _Atomic uint64_t *vital)
{
	/* relaxed: as above */
	return atomic_load_explicit(vital, memory_order_relaxed);
}

void cei_far_pulse_begin(struct cei_far_pulse *pulse, uint64_t timeout_ns, uint64_t now_ns)
{
	pulse->timeout_ns = timeout_ns;
	pulse->looked_ns = now_ns;
	pulse->asked_ns = now_ns;
	pulse->silent_ns = pulse->idle_ns = pulse->stalled_ns = pulse->progress = 0;
	pulse->awaited = CEI_FAR_AWAITS_NOTHING;
	pulse->has_moved = 0;
	tell(&pulse->vitals.timeout_ns, timeout_ns);
	tell(&pulse->vitals.awaited_ns, 0);
	tell(&pulse->vitals.heard_ns, 0);
	tell(&pulse->vitals.moved_ns, 0);
}

void cei_far_pulse_heard(struct cei_far_pulse *pulse, uint64_t now_ns)
{
	pulse->silent_ns = 0;
	tell(&pulse->vitals.heard_ns, now_ns);
}

void cei_far_pulse_progress(struct cei_far_pulse *pulse, uint64_t progress)
{
	if (progress <= pulse->progress)
		return;
	pulse->progress = progress;
	pulse->idle_ns = pulse->stalled_ns = 0;
	pulse->has_moved = 1;
}

enum cei_far_health cei_far_pulse_look(struct cei_far_pulse *pulse, enum cei_far_awaited awaited,
				       uint64_t now_ns)
{
	uint64_t passed_ns = now_ns - pulse->looked_ns;
	enum cei_far_awaited before = pulse->awaited;

	pulse->looked_ns = now_ns;
	pulse->awaited = awaited;
	if (pulse->has_moved)
		tell(&pulse->vitals.moved_ns, now_ns);
	pulse->has_moved = 0;
	if (!awaited || !before) {
		pulse->silent_ns = pulse->idle_ns = pulse->stalled_ns = 0;
		tell(&pulse->vitals.awaited_ns, awaited ? now_ns : 0);
		return awaited ? CEI_FAR_MOVING : CEI_FAR_IDLE;
	}
	if (passed_ns > pulse->timeout_ns / 2)  /* we slept: nothing could be heard meanwhile */
		passed_ns = pulse->timeout_ns / 2;
	pulse->silent_ns += passed_ns;
	pulse->idle_ns += passed_ns;
	pulse->stalled_ns += passed_ns;
	if (awaited != CEI_FAR_AWAITS_BYTES || before != CEI_FAR_AWAITS_BYTES)
		pulse->stalled_ns = 0;
	if (pulse->silent_ns >= pulse->timeout_ns)
		return CEI_FAR_GONE;
	if (pulse->stalled_ns >= 2 * pulse->timeout_ns)
		return CEI_FAR_STALLED;
	return pulse->idle_ns >= pulse->timeout_ns ? CEI_FAR_STUCK : CEI_FAR_MOVING;
}

int cei_far_pulse_must_ask(const struct cei_far_pulse *pulse, uint64_t now_ns)
{
	return pulse->awaited &&
		now_ns - pulse->asked_ns >= pulse->timeout_ns / ASKS_PER_TIMEOUT;
}

void cei_far_pulse_asked(struct cei_far_pulse *pulse, uint64_t now_ns)
{
	pulse->asked_ns = now_ns;
}

/* For how long nothing of this kind has come while it was awaited. */
static uint64_t lacking_ns(uint64_t last_ns, uint64_t awaited_ns, uint64_t now_ns)
{
	uint64_t since_ns = last_ns > awaited_ns ? last_ns : awaited_ns;

	return now_ns > since_ns ? now_ns - since_ns : 0;
}

enum cei_far_health cei_far_vitals_judge(const struct cei_far_vitals *vitals, uint64_t now_ns,
					 uint64_t *ret_since_ns)
{
	uint64_t enough_ns = 2 * told(&vitals->timeout_ns) / ASKS_PER_TIMEOUT;
	uint64_t awaited_ns = told(&vitals->awaited_ns), moved_ns = told(&vitals->moved_ns);

	*ret_since_ns = lacking_ns(told(&vitals->heard_ns), awaited_ns, now_ns);
	if (!awaited_ns)
		return CEI_FAR_IDLE;
	if (*ret_since_ns >= enough_ns)
		return CEI_FAR_GONE;
	*ret_since_ns = lacking_ns(moved_ns, awaited_ns, now_ns);
	if (*ret_since_ns >= enough_ns)
		return CEI_FAR_STUCK;
	return moved_ns > awaited_ns ? CEI_FAR_MOVING : CEI_FAR_IDLE;
}
