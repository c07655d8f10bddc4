/* SPDX-License-Identifier: Apache-2.0
 * speculate.c - draft tokens: which sequences get how many before a pass, and which of them were right after it.
 *
 * Draft tokens are written after a sequence's known tokens (proa_seq.drafts). The pass runs the newest known token and
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
#include "engine/speculate/speculate.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "engine/speculate/propose_medusa.h"
#include <math.h>
#include <string.h>

/* Weights of new values in decaying means. */
#define PAUSE_SHARE   0.125
/* After that many passes with drafts there is one without, so that its time is known. */
#define DRAFTS_IN_ROW 64

const proa_proposer proa_propose_none = {.name = "none"};

static const proa_proposer *const proposers[PROA_PROPOSERS] = {
    &proa_propose_none, &proa_propose_lookup, &proa_propose_draft, &proa_propose_medusa, &proa_propose_eagle};

const proa_proposer *proa_proposer_find(const char *name)
{
    for (size_t i = 0; i < PROA_COUNT(proposers); i++)
        if (strcmp(proposers[i]->name, name) == 0) return proposers[i];
    return NULL;
}

static proa_status check_predicted(const proa_engine *e, const proa_ids *ids, proa_err *err)
{
    long long vocab = e->model->config.vocab;
    if (ids->len > PROA_CONTEXT_MAX)
        return PROA_FAIL(err, LIMIT,
                         "options 'draft_ids' and 'prediction' have %lld tokens, at most %d are taken",
                         (long long)ids->len, PROA_CONTEXT_MAX);
    for (int64_t i = 0; i < ids->len; i++)
        if (ids->ptr[i] < 0 || ids->ptr[i] >= vocab)
            return PROA_FAIL(
                err, INVALID,
                "option 'draft_ids' or 'prediction': token id %d is outside of the vocabulary (0 to %lld)",
                ids->ptr[i], vocab - 1);
    return PROA_OK;
}

/* The ids of draft_ids, then those of the text `prediction`. */
static proa_status read_predicted(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_options *o = &req->options;
    proa_ids ids = {0};
    proa_status status = PROA_OK;
    if (!o->prediction && !o->draft_ids.count) return PROA_OK;
    if (o->prediction && !e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'prediction' needs a tokenizer: give draft_ids");
    for (int32_t i = 0; i < o->draft_ids.count; i++) proa_ids_push(&ids, o->draft_ids.ids[i]);
    if (o->prediction)
        status = proa_tokenizer_encode(e->tokenizer, proa_str_c(o->prediction), false, &ids, err);
    if (status == PROA_OK) status = check_predicted(e, &ids, err);
    if (status == PROA_OK && ids.len) {
        req->predicted = PROA_ARENA_NEW(&req->arena, int32_t, ids.len);
        memcpy(req->predicted, ids.ptr, (size_t)ids.len * sizeof *ids.ptr);
        req->predicted_count = ids.len;
    }
    proa_ids_release(&ids);
    return status;
}

/* What a request names must be there. */
static proa_status check_proposer(const proa_engine *e, const proa_proposer *given, proa_err *err)
{
    if (given == &proa_propose_eagle && !e->eagle)
        return PROA_FAIL(err, INVALID, "option 'speculation' is 'eagle', but the model has no EAGLE heads");
    if (given == &proa_propose_medusa && !e->medusa)
        return PROA_FAIL(err, INVALID, "option 'speculation' is 'medusa', but the model has no Medusa heads");
    if (given == &proa_propose_draft && !e->draft_model)
        return PROA_FAIL(err, INVALID, "option 'speculation' is 'draft', but the model has no draft model");
    if (given != &proa_propose_none && e->states.numbers && !e->states.marks)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "option 'speculation' is '%s': a %s has recurrent states, so the engine must have been "
            "opened with such an option",
            given->name, e->model->arch->name);
    return PROA_OK;
}

/* Who drafts for the request: the proposer that it names, prompt lookup if it has a prediction, else the engine's. */
static proa_status choose_proposer(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const char *name = req->options.speculation;
    /* a draft could hold ids of a prompt table */
    bool undoes = !e->states.numbers || e->states.marks;
    bool can = req->task == PROA_TASK_GENERATE && !req->search.candidates && !req->virtuals && undoes;
    const proa_proposer *given = name ? proa_proposer_find(name) : NULL;
    if (name && !given)
        return PROA_FAIL(err, INVALID, "option 'speculation' is '%.40s', must be " PROA_PROPOSER_NAMES, name);
    if (given) PROA_TRY(check_proposer(e, given, err));
    else given = req->predicted_count ? &proa_propose_lookup : e->speculation.proposer;
    req->proposer = can ? given : &proa_propose_none;
    return PROA_OK;
}

proa_status proa_speculate_prepare(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    PROA_TRY(read_predicted(e, req, err));
    PROA_TRY(choose_proposer(e, req, err));
    req->race = e->draft_model && e->async.mode == PROA_SAMPLE_HOST;
    proa_eagle_proposer_admit(e, req);
    if (req->proposer->prepare) req->proposer->prepare(e, req);
    return PROA_OK;
}

void proa_speculate_release(proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width && req->proposer && req->proposer->release; i++)
        req->proposer->release(&req->seq[i]);
}

static proa_drafts_kind *kind_of(proa_engine *e, const proa_engine_request *req)
{
    size_t i = 0;
    while (proposers[i] != req->proposer) i++;
    return &e->speculation.kinds[2 * i + proa_sampler_greedy(&req->options)];
}

void proa_speculate_init(proa_engine *e)
{
    proa_speculation *s = &e->speculation;
    s->offers = PROA_ARENA_NEW(&e->arena, proa_draft_offer, e->sizes.sequences_max);
    s->seqs = PROA_ARENA_NEW(&e->arena, proa_seq *, e->sizes.sequences_max);
    s->chains = PROA_ARENA_NEW(&e->arena, proa_draft_chain, e->sizes.sequences_max);
    s->chances = PROA_ARENA_NEW(&e->arena, float, e->sizes.sequences_max *PROA_DRAFT_MAX);
    for (size_t i = 0; i < PROA_COUNT(s->kinds); i++) s->kinds[i].first = PROA_DRAFT_STATE;
    for (size_t i = 0; i < PROA_COUNT(s->lookup_rates); i++) proa_lookup_rates_init(&s->lookup_rates[i]);
}

/* ---- before a pass ---- */

/* Tokens that the next pass samples if none are drafted: one for each running sequence at most. */
static int64_t tokens_without_drafts(const proa_engine *e)
{
    int64_t tokens = 0;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        if (req->phase == PROA_PHASE_DECODER) tokens += req->width;
    return tokens;
}

/* Rows of a pass whose tokens are known already: of sequences with recurrent states whose last draft was wrong. */
static int64_t undone_rows(const proa_engine *e)
{
    int64_t rows = 0;
    for (const proa_engine_request *req = e->running.first; req && e->states.marks; req = req->next)
        for (int32_t i = 0; i < req->width; i++)
            if (req->seq[i].undone) rows += req->seq[i].known - req->seq[i].length - 1;
    return rows;
}

bool proa_speculate_runs_undone(const proa_engine *e)
{
    return tokens_without_drafts(e) + undone_rows(e) <= e->sizes.step_tokens;
}

/* The sequence's last known token is in the next pass, after few others that are run again. */
static bool runs_newest(const proa_seq *seq)
{
    enum { UNDONE_MAX = 12 }; /* else a pass without a draft comes in between */
    int64_t rows = seq->known - seq->length;
    return rows == 1 || (seq->undone && rows <= UNDONE_MAX);
}

/* Whether the sequence goes on by one token in the next pass, which can be one of several then. On a device entries of
 * logits processors are reserved for one row of each sequence. */
static bool may_draft(const proa_engine *e, const proa_seq *seq)
{
    bool room = e->async.mode == PROA_SAMPLE_HOST || !seq->req->samples_on_device || seq->req->entries == 0;
    bool begun = seq->count > 0 || seq->sampled_at >= 0;
    return seq->finish == PROA_FINISH_NONE && begun && runs_newest(seq) && !seq->verifying && room;
}

/* Draft tokens that find pages: where few are free, those of the sequence's last page. */
static int64_t tokens_with_pages(const proa_engine *e, const proa_seq *seq)
{
    return proa_proposer_may_take_pages(e, seq) ? PROA_TREE_MAX
                                                : proa_round_up(seq->known, PROA_PAGE_TOKENS) - seq->known;
}

/* Draft tokens of the sequence at most: one of its new tokens is always sampled without. */
static int64_t tokens_allowed(const proa_engine *e, const proa_seq *seq)
{
    int64_t unknown = seq->sampled_at >= 0, left = seq->req->new_max - seq->count - unknown - 1;
    int64_t given = seq->req->options.draft_tokens, most = given ? given : e->speculation.tokens_max;
    if (!seq->tree) left = proa_min64(left, PROA_DRAFT_MAX);
    return proa_min64(proa_min64(left, most), tokens_with_pages(e, seq));
}

static void begin_state(proa_engine *e, proa_seq *seq)
{
    seq->draft = PROA_DRAFT_STATE;
    seq->draft.rate = kind_of(e, seq->req)->first.rate;
}

/* Collects the sequences that could draft in the next pass; returns how many. */
static int64_t collect_offers(proa_engine *e, int64_t tokens)
{
    proa_speculation *s = &e->speculation;
    int64_t count = 0;
    if (s->drafts_in_row >= DRAFTS_IN_ROW) return 0;
    for (proa_engine_request *req = e->running.first; req; req = req->next) {
        const proa_proposer *p = req->proposer;
        bool drafts = p->propose && req->phase == PROA_PHASE_DECODER && !kind_of(e, req)->account.closed;
        for (int32_t i = 0; i < req->width && drafts; i++) {
            proa_seq *seq = &req->seq[i];
            int64_t allowed = may_draft(e, seq) ? tokens_allowed(e, seq) : 0;
            if (allowed <= 0) continue;
            if (seq->draft.tries == 0) begin_state(e, seq);
            s->seqs[count] = seq;
            s->offers[count] = (proa_draft_offer){.state = &seq->draft, .limit = (int32_t)allowed};
            if (p->offer) p->offer(e, seq, tokens, &s->offers[count]);
            count++;
        }
    }
    return count;
}

/* What a pass with drafts waits for: the host must know all tokens, so it is not submitted ahead. */
static double pause_ns(const proa_engine *e)
{
    return e->async.mode == PROA_SAMPLE_ASYNC ? e->speculation.pause_ns : 0;
}

static bool plan_offers(const proa_engine *e, int64_t count, int64_t tokens)
{
    return proa_draft_plan(e->speculation.offers, count, &e->speculation.times, tokens, pause_ns(e));
}

/* Limits the offers that were chosen to what their proposers could draft now. */
static void limit_offers(proa_engine *e, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        proa_draft_offer *o = &e->speculation.offers[i];
        const proa_seq *seq = e->speculation.seqs[i];
        if (o->size == 0) o->limit = 0;
        else if (seq->req->proposer->draft_limit) o->limit = seq->req->proposer->draft_limit(e, seq, o->size);
    }
}

static bool any_chosen(const proa_engine *e, int64_t count)
{
    bool any = false;
    for (int64_t i = 0; i < count; i++) any = any || e->speculation.offers[i].size > 0;
    return any;
}

static bool is_verifying(const proa_engine *e)
{
    bool any = false;
    for (const proa_engine_request *req = e->running.first; req; req = req->next)
        for (int32_t i = 0; i < req->width; i++) any = any || req->seq[i].verifying;
    return any;
}

bool proa_speculate_waits(proa_engine *e)
{
    if (is_verifying(e)) return true;
    int64_t tokens = tokens_without_drafts(e), count = collect_offers(e, tokens);
    plan_offers(e, count, tokens);
    if (any_chosen(e, count)) {
        limit_offers(e, count);
        plan_offers(e, count, tokens);
    }
    if (any_chosen(e, count)) return true;
    for (int64_t i = 0; i < count; i++) proa_draft_idle(&e->speculation.seqs[i]->draft);
    return false;
}

/* The proposer drafts for the offers that it was chosen for; they take the rows that are left in the pass in turn. */
static void propose_tokens(proa_engine *e, const proa_proposer *proposer, int64_t offers, int64_t *left)
{
    proa_speculation *s = &e->speculation;
    bool stops = proposer->stops && e->async.mode == PROA_SAMPLE_HOST; /* else too late: the next pass runs already */
    int64_t count = 0;
    for (int64_t i = 0; i < offers; i++) {
        const proa_draft_offer *o = &s->offers[i];
        int64_t most = o->size && stops ? proa_min64(o->state->most, o->limit) : o->size;
        int32_t size = (int32_t)proa_min64(most, *left);
        if (s->seqs[i]->req->proposer != proposer) continue;
        if (size > 0)
            s->chains[count++] = (proa_draft_chain){s->seqs[i], size, o->chance_least, o->chance_more, 1, 0},
            *left -= size;
        else proa_draft_idle(&s->seqs[i]->draft);
    }
    if (count) proposer->propose(e, s->chains, count);
    for (int64_t i = 0; i < count; i++) s->chains[i].seq->drafts = s->chains[i].count;
}

static void begin_measurement(proa_engine *e, int64_t begin_ns)
{
    proa_speculation *s = &e->speculation;
    s->proposed_ns = proa_clock_ns();
    s->drafting_ns = (double)(s->proposed_ns - begin_ns);
    s->drafted = s->right = 0;
    for (size_t i = 0; i < PROA_COUNT(s->kinds); i++) s->kinds[i].drafted = 0;
}

/* Not in a pass that is submitted ahead: proa_speculate_waits has decided that. */
void proa_speculate_propose(proa_engine *e)
{
    if (e->async.count || e->head.fetched.count) return;
    const int64_t begin = proa_clock_ns();
    int64_t tokens = tokens_without_drafts(e), room = e->sizes.step_tokens, count = collect_offers(e, tokens);
    if (e->async.mode != PROA_SAMPLE_HOST) room = proa_min64(room, e->model->plan.sampled_rows);
    int64_t left = proa_max64(0, proa_min64(room, e->sizes.step_tokens - undone_rows(e)) - tokens);
    plan_offers(e, count, tokens);
    for (size_t i = 0; i < PROA_COUNT(proposers); i++)
        if (proposers[i]->propose) propose_tokens(e, proposers[i], count, &left);
    begin_measurement(e, begin);
}

void proa_speculate_follow(proa_engine *e)
{
    if (e->draft_model) proa_propose_draft.follow(e);
    if (e->medusa) proa_propose_medusa.follow(e);
    if (e->eagle) proa_propose_eagle.follow(e);
}

/* ---- after it ---- */

bool proa_speculate_row_counts(const proa_seq *seq, int64_t position, int32_t node)
{
    if (proa_seq_has_tree(seq)) return seq->finish == PROA_FINISH_NONE && node == seq->tree->tip;
    return seq->finish == PROA_FINISH_NONE && position == seq->known && position <= seq->rows_valid;
}

/* The keys and values of the accepted path become those of the positions after each other. */
static void settle_tree(proa_engine *e, proa_seq *seq)
{
    const proa_draft_tree *tree = seq->tree;
    proa_page_table_compact(&e->pages, seq->table, tree->first, tree->path, tree->accepted);
}

/* A recurrent state cannot leave out the rows after the wrong token: it is again that from before the pass. */
static void undo_pass(proa_engine *e, proa_seq *seq)
{
    proa_state_slots_undo(&e->states, seq->req->slot + seq->index);
    seq->length = seq->undo_length;
    seq->undone = true;
}

/* The sequence's draft tokens were verified: that many were right. */
static void settle_drafts(proa_engine *e, proa_seq *seq, int32_t accepted)
{
    seq->state_row = proa_seq_has_tree(seq) ? seq->tree->tip : accepted;
    if (proa_seq_has_tree(seq)) settle_tree(e, seq);
    const proa_proposer *p = seq->req->proposer;
    proa_drafts_kind *kind = kind_of(e, seq->req);
    proa_draft_result(&seq->draft, seq->drafts, accepted);
    proa_draft_result(&kind->first, seq->drafts, accepted);
    kind->drafted += seq->drafts;
    e->speculation.drafted += seq->drafts, e->speculation.right += accepted;
    e->now.drafted += (uint64_t)seq->drafts, e->now.accepted += (uint64_t)accepted;
    seq->req->usage.drafted += seq->drafts, seq->req->usage.accepted += accepted;
    if (p->settle) p->settle(e, seq, accepted);
    if (accepted < seq->drafts && e->states.marks) undo_pass(e, seq);
    seq->drafts = 0;
    seq->rows_valid = seq->known - 1;
    seq->length = proa_min64(seq->length, seq->known - 1); /* rows after a wrong draft token are as if not run */
}

void proa_speculate_sampled(proa_engine *e, proa_seq *seq, int64_t position, int32_t id)
{
    const proa_engine_request *req = seq->req;
    if (req->proposer->observe) req->proposer->observe(e, seq, id);
    if (!seq->drafts) return;
    if (proa_seq_has_tree(seq)) {
        if (req->proposer->learn) req->proposer->learn(e, seq->tree, id);
        if (!proa_draft_tree_next(seq->tree, id)) settle_drafts(e, seq, seq->tree->accepted);
        return;
    }
    int64_t first = seq->rows_valid - seq->drafts;
    bool right = position < seq->rows_valid && seq->ids[position - req->prompt_count] == id;
    if (!right) settle_drafts(e, seq, (int32_t)(position - first));
}

void proa_speculate_end(proa_engine *e, proa_seq *seq)
{
    if (proa_seq_has_tree(seq)) settle_drafts(e, seq, seq->tree->accepted);
    else if (seq->drafts) settle_drafts(e, seq, (int32_t)(seq->known - (seq->rows_valid - seq->drafts)));
}

/* A pause that is longer than the pass after it was one without requests. */
static void note_pause(proa_speculation *s, double ns, double pass_ns)
{
    if (ns <= 0 || ns > pass_ns) return;
    s->pause_ns += s->pause_ns == 0 ? ns : PAUSE_SHARE * (ns - s->pause_ns);
}

/* Whether the drafts of the pass that has just ended were worth their time. The pause before it has that time in it. */
static void settle_accounts(proa_speculation *s, int64_t rows, int64_t undone, double pass_ns, double pause_ns)
{
    int64_t plain_rows = rows - s->drafted - undone;
    double plain = proa_draft_time_mean(&s->times, plain_rows);
    double ns = proa_draft_time_clipped(&s->times, rows, pass_ns) +
                (s->drafted ? fmax(pause_ns, s->drafting_ns) : 0);
    s->drafts_in_row = s->drafted ? s->drafts_in_row + 1 : 0;
    if (plain == 0) return;
    double worth = plain * (double)(plain_rows + s->right) / (double)plain_rows;
    for (size_t i = 0; i < PROA_COUNT(s->kinds); i++) {
        double share = s->drafted ? (double)s->kinds[i].drafted / (double)s->drafted : 0;
        proa_draft_account_pass(&s->kinds[i].account, ns, worth, share);
    }
}

void proa_speculate_step_time(proa_engine *e, int64_t rows, int64_t begin_ns)
{
    proa_speculation *s = &e->speculation;
    int64_t now = proa_clock_ns(), begin = proa_max64(begin_ns, s->last_end_ns); /* passes run one after the other */
    double pause = (double)(begin - s->last_end_ns), pass = (double)(now - begin);
    settle_accounts(s, rows, e->step.undone_rows, pass, pause < pass + s->drafting_ns ? pause : 0);
    proa_draft_time(&s->times, rows, pass);
    note_pause(s, pause, pass);
    s->last_end_ns = now;
}
