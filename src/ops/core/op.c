/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The ceoverlap developers */

/* Creates, explains and releases operators of all kinds. */

#include "ops/core/op.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sized.h"
#include "base/write.h"
#include "ce_engine/objects/buffer.h"
#include "ce_engine/objects/context.h"
#include "ops/core/capture_cuda.h"

#define CALL_BYTES 64u                  /* the longest name of a public call */

/* --- creation -------------------------------------------------------------- */

static void quarantine_op(struct cei_object *object)
{
	ceov_op *op = CEI_OWNER(object, ceov_op, object);

	cei_object_end(object);
	if (op->kind->fini)
		op->kind->fini(op);
	/* What a plan or a kernel still uses, the context releases when it closes. */
	if (!op->may_run)
		(void)ceov_buffer_release(op->counts_buffer);
	free(op->blocks);
	cei_object_unuse(&op->workspace->object);
	cei_object_quarantine(&op->object);
}

const struct cei_object_type cei_op_type = {
	"op", offsetof(ceov_context, uppers), NULL, quarantine_op, NULL
};

/* Destroys an op, which may be partly built. Its runs must have ended. */
static void destroy(ceov_op *op)
{
	uint32_t i;

	cei_agree_untell(op);
	for (i = 0; i < op->kind->n_stages; i++)
		cei_send_stage_fini(&op->stages[i]);
	quarantine_op(&op->object);
}

int cei_op_make_counts(ceov_op *op)
{
	uint64_t n_bytes = CEI_OP_HALVES * op->shape.n_ranks * sizeof(uint64_t);
	ceov_workspace *workspace = op->workspace;
	int r = cei_buffer_create_on_host(workspace->object.context, workspace->rank, n_bytes,
					  &op->counts_buffer);

	if (r)
		return r;
	op->counts = cei_buffer_address(op->counts_buffer, workspace->rank);
	return op->counts ? 0 : cei_raise(cei_object_report(&op->object), CEOV_ERR_NO_ROUTE, 0,
					  "rank %u: its GPU cannot write host memory, where the "
					  "numbers of rows are", workspace->rank);
}

int cei_op_say_present(ceov_op *op, struct cei_send_stage *stage, cei_op_sends *sends)
{
	uint32_t rank = op->workspace->rank, peer;
	int r = 0;

	for (peer = 0; !r && peer < op->shape.n_ranks; peer++)
		if (peer != rank && !sends(&op->shape, rank, peer))
			r = cei_send_stage_say_present(stage, peer);
	return r;
}

int cei_op_await_here(ceov_op *op, struct cei_send_stage *stage, cei_op_sends *sends)
{
	uint32_t rank = op->workspace->rank, peer;
	int r = 0;

	for (peer = 0; !r && peer < op->shape.n_ranks; peer++)
		if (peer != rank && !sends(&op->shape, peer, rank))
			r = cei_send_stage_await_here(stage, peer, op->n_sent++);
	return r;
}

static int say_sent(ceov_op *op, struct cei_send_stage *stage)
{
	return stage->says_sent ? cei_send_stage_say_sent(stage, op->n_sent++) : 0;
}

/* How a kind adds what it sends: a block at a time, or a piece of it at a time. */
struct sending {
	int (*block)(ceov_op *op, uint32_t target);
	int (*piece)(ceov_op *op, uint32_t target, uint32_t piece);
};

static int send_block(ceov_op *op, const struct sending *sending, uint32_t target)
{
	uint32_t piece;
	int r = 0;

	if (sending->block)
		return sending->block(op, target);
	for (piece = 0; !r && piece < op->choice.n_pieces; piece++)
		r = sending->piece(op, target, piece);
	return r;
}

static int send_to_other_nodes(ceov_op *op, struct cei_send_stage *stage,
			       const struct sending *sending)
{
	const struct cei_site *site = &op->workspace->object.context->site;
	uint32_t n_ranks = op->shape.n_ranks, i, target, n_before;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++) {
		target = (op->workspace->rank + i) % n_ranks;
		if (cei_site_is_local(site, target))
			continue;
		n_before = stage->n_added;
		r = send_block(op, sending, target);
		if (!r && stage->n_added != n_before)
			r = say_sent(op, stage);
	}
	return r;
}

static int send_blocks(ceov_op *op, struct cei_send_stage *stage, const struct sending *sending)
{
	const struct cei_site *site = &op->workspace->object.context->site;
	uint32_t n_ranks = op->shape.n_ranks, i, target;
	int r = send_to_other_nodes(op, stage, sending);

	for (i = 1; !r && i < n_ranks; i++) {
		target = (op->workspace->rank + i) % n_ranks;
		if (cei_site_is_local(site, target))
			r = send_block(op, sending, target);
	}
	return r ? r : say_sent(op, stage);
}

int cei_op_send_all(ceov_op *op, struct cei_send_stage *stage,
		    int (*send)(ceov_op *op, uint32_t target))
{
	const struct sending sending = { .block = send };

	return send_blocks(op, stage, &sending);
}

int cei_op_send_pieces(ceov_op *op, struct cei_send_stage *stage,
		       int (*send)(ceov_op *op, uint32_t target, uint32_t piece))
{
	const struct sending sending = { .piece = send };

	if (op->choice.order == CEOV_ORDER_TURNS)
		return cei_op_send_in_turn(op, stage, send);
	return send_blocks(op, stage, &sending);
}

int cei_op_send_in_turn(ceov_op *op, struct cei_send_stage *stage,
			int (*send)(ceov_op *op, uint32_t target, uint32_t piece))
{
	const struct cei_site *site = &op->workspace->object.context->site;
	const struct sending sending = { .piece = send };
	uint32_t n_ranks = op->shape.n_ranks, i, piece, target;
	int r = send_to_other_nodes(op, stage, &sending);

	for (piece = 0; piece < op->choice.n_pieces; piece++) {
		for (i = 1; !r && i < n_ranks; i++) {
			target = (op->workspace->rank + i) % n_ranks;
			if (cei_site_is_local(site, target))
				r = send(op, target, piece);
		}
	}
	return r ? r : say_sent(op, stage);
}

int cei_op_send_piece(ceov_op *op, uint32_t piece,
		      int (*send)(ceov_op *op, uint32_t target, uint32_t piece))
{
	const struct cei_site *site = &op->workspace->object.context->site;
	uint32_t n_ranks = op->shape.n_ranks, i, target;
	int is_local, r = 0;

	for (is_local = 0; is_local < 2; is_local++) {
		for (i = 1; !r && i < n_ranks; i++) {
			target = (op->workspace->rank + i) % n_ranks;
			if (!cei_site_is_local(site, target) == !is_local)
				r = send(op, target, piece);
		}
	}
	return r;
}

static int pass_piece(ceov_op *op, uint32_t source, uint32_t piece,
		      int (*pass)(ceov_op *op, uint32_t source, uint32_t target,
				  uint32_t piece))
{
	const struct cei_levels *levels = &op->workspace->levels;
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, i, target;
	int r = 0;

	for (i = 1; !r && i < n_ranks; i++) {
		target = (rank + i) % n_ranks;
		if (cei_levels_passes_to(levels, rank, source, target))
			r = pass(op, source, target, piece);
	}
	return r;
}

/* All first pieces go before all second ones: they come about as fast from everywhere. */
int cei_op_pass_all(ceov_op *op,
		    int (*pass)(ceov_op *op, uint32_t source, uint32_t target, uint32_t piece))
{
	const struct cei_levels *levels = &op->workspace->levels;
	uint32_t rank = op->workspace->rank, n_ranks = op->shape.n_ranks, i, source, piece;
	int r = 0;

	for (piece = 0; piece < op->choice.n_pieces; piece++) {
		for (i = 1; !r && i < n_ranks; i++) {
			source = (rank + n_ranks - i) % n_ranks;
			if (cei_levels_passes_on(levels, rank, source))
				r = pass_piece(op, source, piece, pass);
		}
	}
	return r;
}

/* Copies the caller's list of blocks into the op. */
static int keep_blocks(ceov_op *op)
{
	uint64_t n_bytes = sizeof(*op->blocks) * op->shape.n_ranks * op->shape.n_ranks;

	if (!op->shape.blocks)
		return 0;
	op->blocks = malloc(n_bytes);
	if (!op->blocks)
		return cei_raise(cei_object_report(&op->object), CEOV_ERR_NO_MEMORY, 0,
				 "%s_create: rank %u: no memory for its shape",
				 op->kind->name, op->workspace->rank);
	memcpy(op->blocks, op->shape.blocks, n_bytes);
	op->shape.blocks = op->blocks;
	return 0;
}

static int build(ceov_op *op)
{
	uint32_t i;
	int r = keep_blocks(op);

	for (i = 0; i < op->kind->n_stages; i++) {
		op->stages[i].chunk_bytes = op->choice.chunk_bytes;
		op->stages[i].label = op->kind->name;
	}
	if (!r)
		r = op->kind->build(op);
	for (i = 0; !r && i < op->kind->n_stages; i++)
		r = cei_send_stage_close(&op->stages[i]);
	return !r && op->kind->built ? op->kind->built(op) : r;
}

static int refuse(const ceov_workspace *workspace, const struct cei_op_kind *kind,
		  const char *fault)
{
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: %s", kind->name, workspace->rank, fault);
}

static int refuse_executor(const ceov_workspace *workspace, const struct cei_op_kind *kind,
			const char *fault)
{
	const char *lacks = workspace->executor.lacks;

	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: %s%s%s", kind->name, workspace->rank, fault,
			 lacks ? "; cuBLAS cannot be used: " : "", lacks ? lacks : "");
}

struct cei_rates cei_op_rates(const ceov_workspace *workspace)
{
	const struct cei_executor *executor = &workspace->executor;
	struct cei_rates rates = workspace->is_host ? cei_rates_host() : cei_rates_gpu();
	struct cei_tile_shape small = cei_selector_shape(&rates, 0), whole = { 1, 8 };

	rates.has_direct = cei_workspace_is_alike(workspace);
	if (workspace->is_host)
		return rates;
	rates.has_direct &= workspace->least[CEI_ALLREDUCE_REACH] == 1;
	rates.all_have_kernels = workspace->least[CEI_ALLREDUCE_KERNELS] == 1;
	rates.has_packets = workspace->least[CEI_ALLREDUCE_PACKETS] == 1;
	rates.has_lanes = rates.has_direct && rates.all_have_kernels &&
		workspace->least[CEI_ALLREDUCE_OWN_SMS] == 1;
	cei_rates_take(&rates, workspace->least[CEI_ALLREDUCE_SMS],
		       workspace->least[CEI_ALLREDUCE_COPY_RATE],
		       cei_allreduce_turned(workspace->least[CEI_ALLREDUCE_COPY_T0]));
	/* Only the library's kernels execute tiles in pairs, so a pair shows that it has them. */
	rates.has_tiles = executor->ops->pair(executor, small) == rates.pair;
	rates.has_library = executor->ops->is_fit(executor, whole);
	return rates;
}

int cei_op_says_nothing(const struct ceov_op_tuning *tuning)
{
	return !tuning || (tuning->mode == CEOV_MODE_CHOOSE && !tuning->n_pieces &&
			   !tuning->tile_rows && !tuning->n_reduce_blocks &&
			   !tuning->chunk_bytes && !tuning->cut && !tuning->tile_order &&
			   !tuning->band_rows && !tuning->n_gemm_blocks);
}

int cei_op_key(const ceov_workspace *workspace, const struct cei_op_shape *shape,
	       char key[CEI_TUNING_KEY_BYTES])
{
	const char *machine = workspace->executor.machine;
	uint32_t n_nodes = workspace->levels.n_nodes;
	char text[CEI_MACHINE_BYTES + 32], nodes[24] = "";

	if (!machine[0])
		return CEOV_NONE;
	/* Marks cost more in a graph than in a launch, and bytes to another node more than to
	 * another GPU, so graphs and groups of several nodes have tunings of their own. */
	if (n_nodes > 1)
		snprintf(nodes, sizeof(nodes), "%u-nodes-", n_nodes);
	snprintf(text, sizeof(text), "%s%s%s", workspace->capture ? "graph-" : "", nodes,
		 machine);
	cei_tuning_key(text, shape, key);
	return 0;
}

int cei_op_recall(const ceov_workspace *workspace, const struct cei_op_shape *shape,
		  struct ceov_op_tuning *ret_tuning)
{
	struct cei_rates rates = cei_op_rates(workspace);
	char key[CEI_TUNING_KEY_BYTES];
	struct ceov_op_tuning tuning;
	int r = cei_op_key(workspace, shape, key);

	if (!r)
		r = cei_tunings_recall(key, &tuning);
	if (!r && shape->kind->lacks && shape->kind->lacks(workspace, shape, &tuning, &rates))
		r = CEOV_NONE;
	if (!r)
		*ret_tuning = tuning;
	return r;
}

/* Applies those parts of a stored tuning that may differ between ranks: tile shape, order of tiles,
 * bands, and numbers of SMs. It does so only if the model chose the number of pieces with which
 * they were measured. Pieces and mode must be equal at all ranks, but ranks may read different
 * files; ceov_op_tune() sees to that. In direct modes blocks must be equal, too. */
static void refine(ceov_op *op, const struct cei_rates *rates)
{
	struct ceov_op_tuning tuning;

	if (!cei_op_says_nothing(&op->given) || cei_selector_is_direct(op->choice.mode) ||
	    cei_op_recall(op->workspace, &op->shape, &tuning) || tuning.mode != op->choice.mode ||
	    tuning.n_pieces != op->choice.n_pieces || tuning.cut != op->choice.cut.kind)
		return;
	cei_selector_choose(&op->shape, rates, &tuning, &op->choice);
	op->is_tuned = 1;
}

static const char *direct_fault(const struct cei_op_shape *shape,
				const struct ceov_op_tuning *tuning)
{
	if (!tuning || !cei_selector_is_direct(tuning->mode))
		return NULL;
	if (!shape->kind->direct_fault)
		return "tuning->mode: this operator has no direct mode";
	if (tuning->n_pieces > 1 && !cei_kind_has_sm_lane(shape, tuning->mode))
		return "tuning: a direct mode of this operator has one piece";
	return shape->kind->direct_fault(shape, tuning->mode);
}

static const char *cut_fault(const struct cei_op_shape *shape,
			     const struct ceov_op_tuning *tuning)
{
	struct ceov_op_tuning given;

	cei_sized_take(&given, tuning, sizeof(given));
	if (given.cut == CEOV_CUT_COLUMNS)
		return shape->kind->cuts_columns ? NULL
			: "tuning->cut: this operator has no pieces of columns";
	if (shape->kind->product || given.cut == CEOV_CUT_CHOOSE || given.cut == CEOV_CUT_EQUAL)
		return NULL;
	return "tuning->cut: this operator cuts into equal pieces only";
}

const char *cei_op_tuning_fault(const struct cei_op_shape *shape,
				const struct ceov_op_tuning *tuning)
{
	const char *fault = cei_selector_fault(tuning);

	if (!fault)
		fault = direct_fault(shape, tuning);
	return fault ? fault : cut_fault(shape, tuning);
}

static int check_create(const ceov_workspace *workspace, const struct cei_op_shape *shape,
			const struct ceov_op_tuning *tuning, const struct cei_rates *rates)
{
	const struct cei_op_kind *kind = shape->kind;
	const char *fault = cei_op_shape_fault(shape);
	uint64_t needed;

	if (!fault)
		fault = cei_op_tuning_fault(shape, tuning);
	if (fault)
		return refuse(workspace, kind, fault);
	if (kind->lacks)
		fault = kind->lacks(workspace, shape, tuning, rates);
	if (fault)
		return refuse_executor(workspace, kind, fault);
	needed = kind->scratch_bytes(shape);
	if (needed <= workspace->half_bytes)
		return 0;
	return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_INVALID, 0,
			 "%s_create: rank %u: needs scratch of %" PRIu64 " bytes, workspace "
			 "'%s' has %" PRIu64 "; create it with %s_scratch_bytes()", kind->name,
			 workspace->rank, needed, workspace->name, workspace->half_bytes,
			 kind->name);
}

/* The same at all ranks, as the mode is. */
static int meets(const ceov_op *op)
{
	return op->workspace->met[op->workspace->rank] && op->kind->meets &&
		!cei_selector_is_direct(op->choice.mode) && op->kind->meets(&op->shape);
}

int cei_op_create(ceov_workspace *workspace, const struct cei_op_shape *shape,
		  const struct ceov_op_tuning *tuning, ceov_op **ret_op)
{
	const struct cei_op_kind *kind = shape->kind;
	struct cei_rates rates = cei_op_rates(workspace);
	int r = ret_op ? check_create(workspace, shape, tuning, &rates)
		: refuse(workspace, kind, "no ret_op");
	ceov_op *op;

	if (!r)
		r = cei_workspace_take_kind(workspace, kind);
	if (r)
		return r;
	op = calloc(1, sizeof(*op));
	if (!op)
		return cei_raise(cei_object_report(&workspace->object), CEOV_ERR_NO_MEMORY, 0,
				 "%s_create: no memory for a handle", kind->name);
	op->workspace = workspace;
	op->kind = kind;
	op->shape = *shape;
	cei_sized_take(&op->given, tuning, sizeof(op->given));
	cei_selector_choose(shape, &rates, &op->given, &op->choice);
	refine(op, &rates);
	op->meets = !workspace->capture && meets(op);
	cei_object_use(&workspace->object);
	cei_object_init(&op->object, workspace->object.context, &cei_op_type);
	r = build(op);
	if (r)
		destroy(op);
	else
		*ret_op = op;
	return r;
}

uint64_t cei_op_scratch_bytes(const struct cei_op_kind *kind, const void *from,
			      uint32_t n_ranks)
{
	struct cei_op_shape shape = { .kind = kind };

	(void)kind->shape(&shape, from, n_ranks);
	return cei_op_shape_fault(&shape) ? 0 : kind->scratch_bytes(&shape);
}

int cei_op_create_from(ceov_workspace *workspace, const struct cei_op_kind *kind,
		       const void *from, ceov_op **ret_op)
{
	struct cei_op_shape shape = { .kind = kind };
	const struct ceov_op_tuning *tuning;
	char call[CALL_BYTES];
	int r;

	snprintf(call, sizeof(call), "%s_create", kind->name);
	r = cei_workspace_check_connected(workspace, call);
	if (r)
		return r;
	tuning = kind->shape(&shape, from, workspace->n_ranks);
	r = cei_op_create(workspace, &shape, tuning, ret_op);
	if (!r)
		cei_agree_tell(*ret_op);
	return r;
}

/* Copies all that cei_op_create() built, but not the op's place in the context's list, which other
 * threads link and unlink at the same time. */
static void take_built(ceov_op *to, const ceov_op *from)
{
	to->choice = from->choice;
	to->meets = from->meets;
	to->n_sent = from->n_sent;
	to->product = from->product;
	memcpy(to->stages, from->stages, sizeof(to->stages));
	memcpy(to->carried, from->carried, sizeof(to->carried));
}

void cei_op_swap(ceov_op *op, ceov_op *other)
{
	ceov_op kept;

	cei_capture_forget(op->workspace->capture, op);
	cei_capture_forget(op->workspace->capture, other);
	take_built(&kept, op);
	take_built(op, other);
	take_built(other, &kept);
	cei_agree_renew(op);
	cei_agree_renew(other);
}

/* --- explanation and release ----------------------------------------------- */

static int say(const ceov_op *op, int fd, const char *text)
{
	return cei_write(cei_object_report(&op->object), fd, text, "ceov_op_explain");
}

/* Says the size of chunks, if an engine makes copies. A daemon may have a lower limit. */
static int say_chunks(const ceov_op *op, int fd)
{
	uint64_t most = op->workspace->object.context->max_chunk_bytes;
	uint64_t given = op->choice.chunk_bytes;
	char text[96];

	if (op->shape.n_ranks == 1 || cei_selector_is_direct(op->choice.mode) ||
	    op->workspace->capture)
		return 0;
	snprintf(text, sizeof(text), "chunks: at most %" PRIu64 " bytes (%s)\n",
		 given && given < most ? given : most,
		 given && given < most ? "as given" : "the context's limit");
	return say(op, fd, text);
}

int ceov_op_explain(const ceov_op *op, int fd)
{
	int r = cei_object_check(op, &cei_op_type, "ceov_op_explain");

	r = r ? r : say(op, fd, op->kind->name);
	if (!r)
		r = say(op, fd, op->is_tuned
			      ? ", given by the tuning that is stored on this machine\n" : "\n");
	r = r ? r : say(op, fd, op->choice.text);
	return r ? r : say_chunks(op, fd);
}

int ceov_op_chosen(const ceov_op *op, struct ceov_op_tuning *ret_tuning)
{
	int r = cei_object_check(op, &cei_op_type, "ceov_op_chosen");
	struct ceov_op_tuning chosen;

	if (r)
		return r;
	chosen = cei_choice_tuning(&op->choice);
	return cei_sized_answer(cei_object_report(&op->object), ret_tuning, &chosen,
				offsetof(struct ceov_op_tuning, chunk_bytes),
				"ceov_op_chosen: ret_tuning");
}

/* Waits for the runs of the workspace. On the host they have ended, and the lock is not taken: a
 * run of another op holds it, which may wait for the very thread that releases this one. */
static void await_runs(ceov_op *op)
{
	ceov_workspace *workspace = op->workspace;
	int r;

	if (workspace->is_host)
		return;
	pthread_mutex_lock(&workspace->lock);
	(void)cei_workspace_land(workspace);    /* the workspace keeps errors in its status */
	r = workspace->executor.ops->idle(&workspace->executor, workspace->deadline_ns);
	cei_capture_forget(workspace->capture, op);
	pthread_mutex_unlock(&workspace->lock);
	op->may_run = r == CEOV_PENDING;
	if (op->may_run)
		cei_log(cei_object_report(&op->object), CEI_LOG_WARN,
			"ceov_op_release: rank %u: runs of workspace '%s' have not ended within "
			"their deadline; memory that kernels of a %s may still write stays until "
			"ceov_close()", workspace->rank, workspace->name, op->kind->name);
}

void ceov_op_release(ceov_op *op)
{
	if (!op || cei_object_check(op, &cei_op_type, "ceov_op_release"))
		return;
	await_runs(op);
	destroy(op);
}
