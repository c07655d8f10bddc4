/* SPDX-License-Identifier: Apache-2.0
 * propose_medusa.c - Medusa heads (model/heads/medusa.h) as a proposer: trees of their guesses, or a chain of their
 * best ones for sequences whose logits processors look at the tokens before a row.
 *
 * The heads read the hidden state of the row from which the newest token was sampled. Where steps are submitted ahead
 * it is kept as soon as its pass was submitted, since the next pass overwrites the model's registers; two sets in turn,
 * because two passes can be in flight. Otherwise the registers still hold it when the next draft is made. */
#include "engine/speculate/propose_medusa.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"
#include <string.h>

struct proa_medusa_proposer {
    proa_medusa *heads;
    proa_tree_rates rates;
    proa_tree_shape shape; /* for the next pass */
    double heads_ns;       /* of the heads, for one sequence; decaying mean, 0: not measured */
    int64_t passes;        /* so far */
    int32_t *rows;         /* [rows_max] of a pass, that are kept */
    /* of a proposal, [sequences_max]: the chains that are drafted, their hidden states, and the guesses for each */
    proa_draft_chain **live;
    int32_t *at, *ids; /* ids: [heads][PROA_TREE_RANKS] for each */
};

/* ---- life ---- */

proa_status proa_medusa_proposer_prepare(proa_engine *e, const char *folder, proa_err *err)
{
    proa_medusa_proposer *p = e->medusa = PROA_ARENA_NEW(&e->arena, proa_medusa_proposer, 1);
    if (e->model->arch->kind != PROA_KIND_DECODER || e->model->config.prefix_end >= 0)
        return PROA_FAIL(err, INVALID, "option 'speculation': Medusa heads need a causal decoder, this is a %s",
                         e->model->arch->name);
    const proa_plan *plan = &e->model->plan;
    int64_t rows = e->device->host ? plan->rows_max : plan->sampled_rows; /* whose tokens one pass can give */
    PROA_TRY(proa_medusa_prepare(&p->heads, folder, e->model, rows, err));
    proa_tree_rates_init(&p->rates, p->heads->heads);
    proa_tree_shape_make(&p->shape, &p->rates);
    e->sizes.heads_bytes = p->heads->bytes;
    return PROA_OK;
}

proa_status proa_medusa_proposer_load(proa_engine *e, proa_err *err)
{
    proa_medusa_proposer *p = e->medusa;
    int64_t sequences = e->sizes.sequences_max;
    p->rows = PROA_ARENA_NEW(&e->arena, int32_t, p->heads->rows_max);
    p->live = PROA_ARENA_NEW(&e->arena, proa_draft_chain *, sequences);
    p->at = PROA_ARENA_NEW(&e->arena, int32_t, sequences);
    p->ids = PROA_ARENA_NEW(&e->arena, int32_t, sequences * p->heads->heads * PROA_TREE_RANKS);
    return proa_medusa_load(p->heads, err);
}

void proa_medusa_proposer_free(proa_engine *e)
{
    if (e->medusa) proa_medusa_free(e->medusa->heads);
}

/* ---- hidden states ---- */

/* Whether hidden states are read from the registers of the last pass. */
static bool reads_registers(const proa_engine *e)
{
    return e->async.mode == PROA_SAMPLE_HOST;
}

static void note_state(const proa_medusa_proposer *p, proa_seq *seq, int64_t at)
{
    if (seq->state_pass == p->passes) return; /* the first row of its span */
    seq->state_pass = p->passes;
    seq->state_at = at;
    seq->state_row = 0;
}

/* Keeps what the rows read whose tokens are sampled. All sequences of a request start from its prompt's last row. */
static void keep_states(proa_engine *e)
{
    proa_medusa_proposer *p = e->medusa;
    int64_t count = 0, set = ++p->passes % 2;
    for (int64_t i = 0; i < e->step.logits_count && count < p->heads->rows_max; i++) {
        const proa_logits_request *a = &e->step.logits_requests[i];
        proa_engine_request *req = a->seq->req;
        bool prompt = a->position < req->prompt_count;
        if (req->proposer != &proa_propose_medusa || a->position + 1 < req->prompt_count) continue;
        int64_t at = reads_registers(e) ? a->row : set * p->heads->rows_max + count;
        for (int32_t s = 0; prompt && s < req->width; s++) note_state(p, &req->seq[s], at);
        if (!prompt) note_state(p, a->seq, at);
        p->rows[count++] = a->row;
    }
    if (count && !reads_registers(e)) proa_medusa_keep(p->heads, (int32_t)set, p->rows, count);
}

/* Whether the hidden state after the sequence's newest token is still there. */
static bool has_state(const proa_engine *e, const proa_seq *seq)
{
    const proa_medusa_proposer *p = e->medusa;
    if (reads_registers(e)) return seq->state_pass > 0 && seq->state_pass == p->passes;
    int64_t set = p->passes % 2, at = seq->state_at + seq->state_row;
    bool recent = seq->state_pass > 0 && p->passes - seq->state_pass < 2;
    int64_t end = (seq->state_pass == p->passes ? set : 1 - set) * p->heads->rows_max + p->heads->rows_max;
    return recent && at < end;
}

/* ---- drafting ---- */

/* All nodes of a tree cost the same heads. */
static void offer_guesses(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer)
{
    PROA_UNUSED(sequences);
    const proa_medusa_proposer *p = e->medusa;
    offer->first_ns = p->heads_ns;
    offer->limit = (int32_t)proa_min64(offer->limit, seq->tree ? p->shape.count : p->heads->heads);
    if (seq->tree) offer->chances = p->shape.likely;
}

/* Heads need the newest token's row only, so a sequence whose newest token is in flight can draft as much. */
static int32_t limit_nodes(const proa_engine *e, const proa_seq *seq, int32_t size)
{
    PROA_UNUSED(e), PROA_UNUSED(seq);
    return size;
}

/* Heads that the drafts of these sequences need. */
static int32_t heads_needed(const proa_medusa_proposer *p, const proa_draft_chain *chains, int64_t count)
{
    int32_t heads = 1;
    for (int64_t i = 0; i < count; i++)
        for (int32_t j = 0; j < chains[i].size; j++) {
            int32_t head = chains[i].seq->tree ? p->shape.node[j].head : j;
            if (head + 1 > heads) heads = head + 1;
        }
    return heads;
}

/* top [heads][PROA_TREE_RANKS]: the guesses of the first heads. */
static void draft_one(const proa_medusa_proposer *p, proa_draft_chain *c, const int32_t *top, int32_t heads)
{
    proa_seq *seq = c->seq;
    c->count = c->size;
    if (seq->tree) {
        memset(seq->tree->top, 0xff, sizeof seq->tree->top); /* heads that have not run guess nothing */
        memcpy(seq->tree->top, top, (size_t)(heads * PROA_TREE_RANKS) * sizeof *top);
        proa_draft_tree_fill(seq->tree, &p->shape, c->size, seq->known);
        return;
    }
    for (int32_t j = 0; j < c->size; j++) seq->ids[seq->count + j] = top[j * PROA_TREE_RANKS];
}

/* The chains that can be drafted: fills live, and at with the places of their kept states. */
static int64_t find_live(const proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    proa_medusa_proposer *p = e->medusa;
    int64_t n = 0;
    for (int64_t i = 0; i < count; i++) {
        if (!has_state(e, chains[i].seq)) continue;
        p->at[n] = (int32_t)(chains[i].seq->state_at + chains[i].seq->state_row);
        p->live[n++] = &chains[i];
    }
    if (n == 0 || !reads_registers(e)) return n;
    proa_medusa_keep(p->heads, 0, p->at, n);
    for (int32_t i = 0; i < n; i++) p->at[i] = i;
    return n;
}

static void propose_guesses(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    proa_medusa_proposer *p = e->medusa;
    int64_t begin = proa_clock_ns(), n = find_live(e, chains, count);
    if (n == 0) return;
    int32_t heads = heads_needed(p, chains, count);
    proa_medusa_top_k(p->heads, p->at, n, heads, PROA_TREE_RANKS, p->ids);
    for (int64_t i = 0; i < n; i++) draft_one(p, p->live[i], p->ids + i * heads * PROA_TREE_RANKS, heads);
    double ns = (double)(proa_clock_ns() - begin) / (double)n;
    p->heads_ns = p->heads_ns == 0 ? ns : p->heads_ns + (ns - p->heads_ns) / 8;
}

/* ---- after a pass ---- */

/* Whether the head had guessed the token counts for the next trees. */
static void learn_rates(proa_engine *e, const proa_draft_tree *tree, int32_t id)
{
    proa_medusa_proposer *p = e->medusa;
    int32_t head = tree->accepted;
    if (head < p->rates.heads && tree->top[head][0] >= 0)
        proa_tree_rates_add(&p->rates, head, tree->top[head], id);
}

/* The next tree is made of what was measured. */
static void settle_shape(proa_engine *e, proa_seq *seq, int32_t accepted)
{
    PROA_UNUSED(accepted);
    if (seq->tree) proa_tree_shape_make(&e->medusa->shape, &e->medusa->rates);
}

const proa_proposer proa_propose_medusa = {.name = "medusa",
                                           .prepare = proa_proposer_prepare_tree,
                                           .offer = offer_guesses,
                                           .draft_limit = limit_nodes,
                                           .propose = propose_guesses,
                                           .follow = keep_states,
                                           .learn = learn_rates,
                                           .settle = settle_shape};
