/* SPDX-License-Identifier: Apache-2.0
 * speculate.c - draft tokens: which sequences get how many before a pass, and which of them were right after it.
 *
 * Draft tokens are written behind a sequence's known tokens (proa_seq.drafts). The pass runs the newest known token and
 * the drafts as one span, and wants the logits of all its rows:
 *
 *   length    known            known + drafts
 *   |== newest |== draft tokens ==|              rows of the span
 *         \         \   ...      \
 *        token     token        token            sampled from them, one position later
 *
 * Tokens are appended in order, as long as each draft token is the one that was sampled at its position. The keys and
 * values of the others are overwritten later. The first row is the one that would have run without drafts, so at least
 * one token is appended. */
#include "engine/sched/request.h"

#include "base/checked.h"
#include "base/clock.h"
#include <string.h>

const proa_proposer proa_propose_none = {.name = "none"};

static const proa_proposer *const proposers[] = {&proa_propose_none, &proa_propose_lookup, &proa_propose_draft};

const proa_proposer *proa_proposer_find(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(proposers); i++)
        if (strcmp(proposers[i]->name, name) == 0) return proposers[i];
    return NULL;
}

void proa_speculate_prepare(const proa_engine *e, proa_engine_request *req)
{
    bool can = req->task == PROA_TASK_GENERATE && !req->candidates && !req->options.top_logprobs;
    can = can && !req->virtuals; /* a draft could hold ids of the table */
    req->proposer = can ? e->speculation.proposer : &proa_propose_none;
    for (int32_t i = 0; i < req->width; i++) req->seq[i].draft = PROA_DRAFT_STATE;
    if (req->proposer->prepare) req->proposer->prepare(e, req);
}

/* ---- before a pass ---- */

/* Whether the sequence goes on by one token in the next pass, which can be one of several then. On a device entries of
 * logits processors are reserved for one row of each sequence. */
static bool may_draft(const proa_engine *e, const proa_seq *seq)
{
    bool room = e->async.mode == PROA_SAMPLE_HOST || !seq->req->samples_on_device || seq->req->entries == 0;
    return seq->finish == PROA_FINISH_NONE && seq->count > 0 && seq->known - seq->length == 1 &&
           !seq->verifying && room;
}

/* Tokens that the next pass samples if none are drafted: one for each running sequence at most. */
static int64_t tokens_without_drafts(const proa_engine *e)
{
    int64_t tokens = 0;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        if (req->phase == PROA_PHASE_DECODER) tokens += req->width;
    return tokens;
}

/* Draft tokens that find pages without anybody giving any up: where few are left, those of the sequence's last page. */
static int64_t tokens_with_pages(const proa_engine *e, const proa_seq *seq)
{
    int64_t scarce = 2 * (int64_t)e->sizes.sequences_max;
    if (seq->req->keeps_pages || proa_kv_pages_available(&e->pages) > scarce) return PROA_DRAFT_MAX;
    return proa_round_up(seq->known, PROA_PAGE_TOKENS) - seq->known;
}

/* Adds the sequence to those that draft, or holds it. Of a sequence whose newest token is in flight, the tokens behind
 * that one count: if there are any, the pass that the device could begin now goes without the sequence, which has draft
 * tokens in the next. */
static void add_chain(proa_engine *e, proa_seq *seq, int64_t tokens, int64_t left, int64_t *count)
{
    const proa_proposer *p = seq->req->proposer;
    int32_t unknown = seq->sampled_at >= 0;
    int64_t limit = proa_min64(proa_min64(left, e->speculation.tokens_max),
                               seq->req->new_max - seq->count - unknown - 1);
    limit = proa_min64(limit, tokens_with_pages(e, seq));
    double token_ns = p->token_ns ? p->token_ns(e, tokens) : 0;
    int32_t size = proa_draft_size(&seq->draft, &e->speculation.times, tokens, (int32_t)limit, token_ns);
    if (size <= 0) return;
    if (unknown) seq->held = p->foresee(e, seq, size) > 0;
    else e->speculation.chains[(*count)++] = (proa_draft_chain){seq, size, 0};
}

/* Collects the sequences of the proposer; returns how many. At most `left` tokens are drafted. */
static int64_t collect_chains(proa_engine *e, const proa_proposer *proposer, int64_t tokens, int64_t left)
{
    int64_t count = 0;
    for (proa_engine_request *req = e->running.first; req; req = req->next) {
        for (int32_t i = 0; i < req->width && req->proposer == proposer && req->phase == PROA_PHASE_DECODER; i++) {
            int64_t before = count;
            req->seq[i].held = false;
            if (left <= 0 || !may_draft(e, &req->seq[i])) continue;
            add_chain(e, &req->seq[i], tokens, left, &count);
            if (count > before) left -= e->speculation.chains[before].size;
        }
    }
    return count;
}

/* Returns the number of tokens that were drafted. */
static int64_t propose_tokens(proa_engine *e, const proa_proposer *proposer, int64_t tokens, int64_t left)
{
    int64_t count = collect_chains(e, proposer, tokens, left), drafted = 0;
    if (count) proposer->propose(e, e->speculation.chains, count);
    for (int64_t i = 0; i < count; i++) {
        const proa_draft_chain *c = &e->speculation.chains[i];
        c->seq->drafts = c->count;
        drafted += c->count;
    }
    return drafted;
}

void proa_speculate_propose(proa_engine *e)
{
    int64_t tokens = tokens_without_drafts(e), room = e->sizes.step_tokens;
    if (e->async.mode != PROA_SAMPLE_HOST) room = proa_min64(room, e->sizes.sequences_max);
    int64_t left = room - tokens;
    for (size_t i = 0; i < PROA_COUNT(proposers); i++) {
        if (!proposers[i]->propose) continue;
        left -= propose_tokens(e, proposers[i], tokens, left);
    }
}

void proa_speculate_follow(proa_engine *e)
{
    if (e->draft_model) proa_propose_draft.follow(e);
}

/* ---- after it ---- */

bool proa_speculate_row_counts(const proa_seq *seq, int64_t position)
{
    return seq->finish == PROA_FINISH_NONE && position == seq->known && position <= seq->rows_valid;
}

/* The sequence's draft tokens are done with: so many were right. */
static void settle_drafts(proa_engine *e, proa_seq *seq, int32_t accepted)
{
    const proa_proposer *p = seq->req->proposer;
    proa_draft_result(&seq->draft, seq->drafts, accepted);
    e->now.drafted += (uint64_t)seq->drafts, e->now.accepted += (uint64_t)accepted;
    seq->req->drafted += seq->drafts, seq->req->accepted += accepted;
    seq->drafts = 0;
    seq->rows_valid = seq->known - 1;
    seq->length = proa_min64(seq->length, seq->known - 1); /* rows behind a wrong draft token are as if not run */
    if (p->settle) p->settle(e, seq);
}

void proa_speculate_sampled(proa_engine *e, proa_seq *seq, int64_t position, int32_t id)
{
    const proa_engine_request *req = seq->req;
    if (seq->text) seq->text[req->input_count + position] = id;
    if (!seq->drafts) return;
    int64_t first = seq->rows_valid - seq->drafts;
    bool right = position < seq->rows_valid && seq->ids[position - req->prompt_count] == id;
    if (!right) settle_drafts(e, seq, (int32_t)(position - first));
}

void proa_speculate_end(proa_engine *e, proa_seq *seq)
{
    if (seq->drafts) settle_drafts(e, seq, (int32_t)(seq->known - (seq->rows_valid - seq->drafts)));
}

void proa_speculate_step_time(proa_engine *e, int64_t rows, int64_t begin_ns)
{
    proa_speculation *s = &e->speculation;
    int64_t now = proa_clock_ns(), begin = proa_max64(begin_ns, s->last_end_ns); /* passes run one after the other */
    if (s->proposer != &proa_propose_none) proa_draft_time(&s->times, rows, (double)(now - begin));
    s->last_end_ns = now;
}
