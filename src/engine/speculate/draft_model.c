/* SPDX-License-Identifier: Apache-2.0
 * draft_model.c - draft tokens from a smaller model (Leviathan, Kalman, Matias 2023; Chen et al. 2023).
 *
 * Its logits pass through the request's own logits processors, grammar and sampler, with the random numbers that the
 * target will use at the same positions. So both choose the same token where their distributions agree (common random
 * numbers; Daliri, Musco, Suresh 2025), and the target's text is the same with and without drafts. */
#include "engine/speculate/draft_model.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/engine.h"
#include "text/token_bytes.h"
#include <math.h>

struct proa_draft_model {
    proa_model *model;
    proa_tokenizer *tokenizer;     /* NULL: its folder has none */
    proa_kv_pages pages;           /* beside the target's */
    proa_kv *kv;                   /* [layers] */
    proa_draft_chances chances[2]; /* of sequences that sample; of greedy ones */
    proa_drafter_times times;      /* of passes with their logits and sampling */
    /* the batch of a pass */
    int64_t rows, spans;                /* in use */
    int32_t *ids, *positions, *lengths; /* [rows_max] */
    int32_t *sampled_at; /* [rows_max] of a row whose token only the device knows: its index among those sampled last */
    bool any_sampled_at;
    proa_span *span;                 /* [rows_max] */
    int32_t *last_row;               /* [sequences_max] of each chain that is drafted, its last row */
    proa_draft_chain **live, **next; /* [sequences_max] these chains; those of the pass after it */
    proa_sample_params *params;      /* [sequences_max] */
    proa_err errors[PROA_HEAD_ROWS];
};

/* ---- life ---- */

static proa_status check_tokens(const proa_tokenizer *target, const proa_tokenizer *draft, int64_t vocab,
                                proa_err *err)
{
    proa_token_bytes *a = proa_token_bytes_new(target), *b = proa_token_bytes_new(draft);
    int32_t other = -1;
    for (int32_t id = 0; id < vocab && other < 0; id++) {
        proa_str x = proa_token_bytes_of(a, id), y = proa_token_bytes_of(b, id);
        if (x.len != y.len || (x.len && memcmp(x.ptr, y.ptr, x.len) != 0)) other = id;
    }
    proa_token_bytes_free(a);
    proa_token_bytes_free(b);
    if (other < 0) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "option 'draft-model': its token %d is not that of the model, which is needed", other);
}

static proa_status check_draft_model(const proa_engine *e, const proa_draft_model *d, proa_err *err)
{
    const proa_model *target = e->model, *draft = d->model;
    int64_t outputs = target->plan.width[PROA_REG_OUT], drafted = draft->plan.width[PROA_REG_OUT];
    if (target->arch->kind != PROA_KIND_DECODER || draft->arch->kind != PROA_KIND_DECODER)
        return PROA_FAIL(err, INVALID, "option 'draft-model': a %s cannot draft for a %s, both must be decoders",
                         draft->arch->name, target->arch->name);
    if (proa_model_state(draft))
        return PROA_FAIL(err, UNSUPPORTED,
                         "option 'draft-model': a %s has recurrent states, which drafts cannot undo",
                         draft->arch->name);
    if (target->config.prefix_end >= 0 || draft->config.prefix_end >= 0)
        return PROA_FAIL(err, INVALID,
                         "option 'draft-model': a %s sees its prompt both ways, which is not supported",
                         target->config.prefix_end >= 0 ? target->arch->name : draft->arch->name);
    if (outputs != drafted || target->config.vocab != draft->config.vocab)
        return PROA_FAIL(err, INVALID,
                         "option 'draft-model': its vocabulary has %lld tokens, that of the model %lld",
                         (long long)drafted, (long long)outputs);
    return e->tokenizer && d->tokenizer ? check_tokens(e->tokenizer, d->tokenizer, outputs, err) : PROA_OK;
}

/* On a CPU, drafting is reading weights, and a draft token may differ from the target's without harm: plain weights are
 * rounded to int8, unless a type was given. */
static bool wants_int8(const proa_model *m, const proa_model_options *o)
{
    bool given = (o->dtype && strcmp(o->dtype, "auto") != 0) || (o->quant && strcmp(o->quant, "none") != 0);
    return m->device->host && !given && !m->packed && !proa_wfmt_is_quantised(m->formats.main);
}

static proa_status prepare_model(const proa_engine *e, proa_draft_model *d, const char *path, proa_err *err)
{
    proa_model_options options = e->sizes.model;
    options.lora_slots = options.lora_rank = 0;
    options.sampled_rows = e->sizes.sequences_max;
    PROA_TRY(proa_model_prepare(&d->model, path, &options, e->device, e->pool, err));
    if (!wants_int8(d->model, &options)) return PROA_OK;
    proa_model_free(d->model);
    d->model = NULL;
    options.quant = "int8";
    return proa_model_prepare(&d->model, path, &options, e->device, e->pool, err);
}

static proa_status open_draft_model(proa_engine *e, proa_draft_model *d, const char *path, proa_err *err)
{
    proa_err why = {.status = PROA_OK};
    PROA_TRY(prepare_model(e, d, path, err));
    proa_status status = proa_tokenizer_open_files(&d->tokenizer, proa_model_files(d->model), &why);
    if (status != PROA_OK && status != PROA_NOT_FOUND) return PROA_FAIL(err, INVALID, "%s", why.text);
    return check_draft_model(e, d, err);
}

proa_status proa_draft_model_prepare(proa_engine *e, const char *path, proa_err *err)
{
    proa_draft_model *d = e->draft_model = PROA_ARENA_NEW(&e->arena, proa_draft_model, 1);
    PROA_TRY(open_draft_model(e, d, path, err));
    e->sizes.draft = d->model;
    return PROA_OK;
}

proa_status proa_draft_model_load(proa_engine *e, proa_progress_fn *progress, void *arg, proa_err *err)
{
    proa_draft_model *d = e->draft_model;
    int64_t rows = d->model->plan.rows_max, sequences = e->sizes.sequences_max;
    for (size_t i = 0; i < PROA_COUNT(d->chances); i++) proa_draft_chances_init(&d->chances[i]);
    PROA_TRY(proa_model_load(d->model, progress, arg, err));
    PROA_TRY(proa_kv_pages_init_attached(&d->pages, &e->pages, e->device, proa_kv_shape_of(d->model), err));
    d->kv = PROA_ARENA_NEW(&e->arena, proa_kv, d->model->kv_layers);
    for (int32_t i = 0; i < d->model->kv_layers; i++) d->kv[i] = proa_kv_pages_layer(&d->pages, i);
    d->ids = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    d->positions = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    d->lengths = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    d->span = PROA_ARENA_NEW(&e->arena, proa_span, rows);
    d->last_row = PROA_ARENA_NEW(&e->arena, int32_t, sequences);
    d->live = PROA_ARENA_NEW(&e->arena, proa_draft_chain *, sequences);
    d->next = PROA_ARENA_NEW(&e->arena, proa_draft_chain *, sequences);
    d->params = PROA_ARENA_NEW(&e->arena, proa_sample_params, sequences);
    d->sampled_at = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    return PROA_OK;
}

void proa_draft_model_free(proa_engine *e)
{
    proa_draft_model *d = e->draft_model;
    if (!d) return;
    proa_kv_pages_detach(&e->pages, &d->pages);
    proa_kv_pages_release(&d->pages);
    proa_tokenizer_free(d->tokenizer);
    proa_model_free(d->model);
}

int64_t proa_draft_model_tokens(const proa_engine *e, const proa_seq *seq)
{
    const proa_draft_model *d = e->draft_model;
    bool drafts_on = d && seq->draft_length < d->model->config.context; /* after it nothing is drafted */
    return drafts_on ? seq->draft_length : INT64_MAX;
}

/* ---- a pass ---- */

/* Tokens that are not of the vocabulary (of a prompt table) are the first one to the draft model. */
static int32_t id_of(const proa_draft_model *d, const proa_seq *seq, int64_t i)
{
    int64_t prompt = seq->req->prompt_count;
    int32_t id = i < prompt ? seq->req->prompt[i] : seq->ids[i - prompt];
    return id < d->model->config.vocab ? id : 0;
}

/* Adds tokens [begin, end) of the sequence, which are known or drafted and have pages. */
static void add_rows(const proa_engine *e, proa_draft_model *d, proa_seq *seq, int64_t begin, int64_t end)
{
    const proa_engine_request *req = seq->req;
    d->span[d->spans++] = (proa_span){(int32_t)d->rows,
                                      (int32_t)(end - begin),
                                      (int32_t)end,
                                      (int32_t)(seq->table->page - e->slots.memory),
                                      0,
                                      0,
                                      0};
    for (int64_t i = begin; i < end; i++, d->rows++) {
        d->ids[d->rows] = id_of(d, seq, i);
        d->positions[d->rows] = (int32_t)i;
        d->sampled_at[d->rows] = -1;
        d->lengths[d->rows] = (int32_t)proa_rope_length(&d->model->config.rope, i, req->prompt_count,
                                                        req->prompt_count + req->new_max);
    }
    seq->draft_length = end;
}

static void run_pass(const proa_engine *e, proa_draft_model *d)
{
    proa_batch batch = {.rows = d->rows, .ids = d->ids, .positions = d->positions};
    if (proa_model_wants_lengths(d->model)) batch.lengths = d->lengths;
    if (d->any_sampled_at) batch.sampled_at = d->sampled_at;
    batch.self = batch.cross = (proa_spans){.span = d->span, .count = d->spans, .pages = e->slots.memory};
    proa_model_decode(d->model, d->kv, &batch);
    d->rows = d->spans = 0;
    d->any_sampled_at = false;
}

static void follow_chunks(proa_engine *e)
{
    proa_draft_model *d = e->draft_model;
    for (int64_t s = 0; s < e->step.spans; s++) {
        proa_seq *seq = e->step.span_seqs[s];
        int64_t end = proa_min64(seq->length + e->step.self_spans[s].rows, d->model->config.context);
        bool used = seq->req->space || seq->req->proposer == &proa_propose_draft;
        if (used && proa_seq_runs_chunk(seq) && seq->length < end) add_rows(e, d, seq, seq->length, end);
    }
    if (d->rows) run_pass(e, d);
}

/* ---- drafting ---- */

static int32_t limit_draft(const proa_engine *e, const proa_seq *seq, int32_t size)
{
    int64_t unknown = seq->sampled_at >= 0, context = e->draft_model->model->config.context;
    return (int32_t)proa_max64(0, proa_min64(size, context - seq->known - unknown));
}

static void offer_chain(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer)
{
    const proa_drafter_times *times = &e->draft_model->times;
    offer->drafter = times;
    offer->behind = (int32_t)(seq->known - seq->draft_length);
    double first = proa_draft_time_of(&times->first, sequences * offer->behind) / (double)sequences;
    double more = proa_draft_time_of(&times->more, sequences) / (double)sequences;
    offer->token_ns = more > 0 ? more : first;
    offer->first_ns = fmax(0, first - offer->token_ns);
}

static proa_draft_chances *chances_of(const proa_engine *e, const proa_seq *seq)
{
    return &e->draft_model->chances[proa_sampler_greedy(&seq->req->options)];
}

/* Compares the token that was dropped from the last draft, if the one at its position is known. */
static void learn_dropped(const proa_engine *e, proa_seq *seq)
{
    proa_dropped_token *t = &seq->dropped;
    if (t->position == 0 || t->position >= seq->known) return;
    bool right = seq->ids[t->position - seq->req->prompt_count] == t->id;
    proa_draft_chance_result(chances_of(e, seq), t->chance, right);
    proa_draft_dropped(&seq->draft, right);
    t->position = 0;
}

/* The rows that the draft model lacks. Returns the number of chains that are drafted; others only catch up, since the
 * rows of one pass do not suffice. */
static int64_t begin_chains(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    proa_draft_model *d = e->draft_model;
    int64_t live = 0;
    for (int64_t i = 0; i < count; i++) {
        proa_draft_chain *c = &chains[i];
        int64_t begin = c->seq->draft_length, left = d->model->plan.rows_max - d->rows;
        learn_dropped(e, c->seq);
        c->size = limit_draft(e, c->seq, c->size);
        if (c->size == 0 || left == 0 || !proa_proposer_take_pages(e, c->seq, c->size)) continue;
        add_rows(e, d, c->seq, begin, proa_min64(c->seq->known, begin + left));
        if (c->seq->draft_length < c->seq->known) continue;
        d->last_row[live] = (int32_t)d->rows - 1;
        d->live[live++] = c;
    }
    return live;
}

static bool is_end(const proa_options *o, int32_t id)
{
    bool end = false;
    for (int32_t i = 0; i < o->end_ids_count; i++) end = end || o->end_ids[i] == id;
    return end;
}

/* Adds a token to the draft, or ends the draft before it or after it. */
static void add_token(const proa_engine *e, proa_draft_chain *c, proa_sample token)
{
    proa_seq *seq = c->seq;
    uint8_t chance = (uint8_t)proa_draft_chance_of(expf(token.logprob));
    c->chance *= chances_of(e, seq)->right[chance];
    if (c->chance < c->least) {
        seq->dropped = (proa_dropped_token){seq->known + c->count, token.id, chance};
        c->size = c->count;
        return;
    }
    seq->draft_chance[c->count] = chance;
    seq->ids[seq->count + c->count++] = token.id;
    if (c->chance < c->more || is_end(&seq->req->options, token.id)) c->size = c->count;
}

/* Samples the next token of chains [at, at + n), at most PROA_HEAD_ROWS, as the target will. One that cannot be
 * sampled ends its chain. */
static void sample_tokens(proa_engine *e, int64_t at, int64_t n)
{
    proa_draft_model *d = e->draft_model;
    proa_sampler_row *rows = e->head.draw_rows;
    proa_view logits = proa_model_head(d->model, d->last_row + at, n);
    for (int64_t i = 0; i < n; i++) {
        const proa_draft_chain *c = d->live[at + i];
        proa_sampler_row_make(e, i, c->seq, c->seq->known + c->count,
                              proa_view_f32(logits) + i * logits.stride[0],
                              e->head.processed_logits + i * e->model->plan.width[PROA_REG_OUT]);
        rows[i].logprobs = true, rows[i].top = NULL, rows[i].err = &d->errors[i];
    }
    proa_sampler_rows_run(e, n, logits.shape[1]);
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].status == PROA_OK) add_token(e, d->live[at + i], rows[i].out);
        else d->live[at + i]->size = d->live[at + i]->count;
    }
}

/* The rows of the tokens that were drafted last, of chains that go on. Returns how many these are. */
static int64_t continue_chains(const proa_engine *e, int64_t live)
{
    proa_draft_model *d = e->draft_model;
    int64_t more = 0;
    for (int64_t i = 0; i < live; i++) {
        proa_draft_chain *c = d->live[i];
        if (c->count == c->size) continue;
        add_rows(e, d, c->seq, c->seq->known + c->count - 1, c->seq->known + c->count);
        d->last_row[more] = (int32_t)d->rows - 1;
        d->live[more++] = c;
    }
    return more;
}

static void draft_on_host(proa_engine *e, int64_t live)
{
    proa_draft_model *d = e->draft_model;
    for (proa_draft_times *times = &d->times.first; d->rows; times = &d->times.more) {
        int64_t begin = proa_clock_ns(), rows = d->rows;
        run_pass(e, d);
        for (int64_t at = 0; at < live; at += PROA_HEAD_ROWS)
            sample_tokens(e, at, proa_min64(live - at, PROA_HEAD_ROWS));
        proa_draft_time(times, rows, (double)(proa_clock_ns() - begin));
        live = continue_chains(e, live);
    }
}

/* ---- drafting where the model runs ----
 *
 * The device samples the tokens of a pass, and the next pass takes them from there; it is submitted before the host has
 * received them. So the device goes from pass to pass, and of each token the host gets an id and its probability. A
 * draft that ends has run a row in vain. */

/* Processors and grammars look at tokens that only the device would know. */
static bool all_on_device(const proa_engine *e, int64_t live)
{
    bool all = e->async.mode != PROA_SAMPLE_HOST;
    for (int64_t i = 0; i < live; i++) {
        const proa_engine_request *req = e->draft_model->live[i]->seq->req;
        all = all && req->samples_on_device && !req->logits;
    }
    return all;
}

/* Runs the pass and samples token number `step` of the chains, with the random numbers of their positions. */
static void submit_pass(const proa_engine *e, proa_draft_chain *const *chains, int64_t count, int32_t step)
{
    proa_draft_model *d = e->draft_model;
    proa_sample_request request = {.rows = d->last_row, .count = count, .logits = true};
    for (int64_t i = 0; i < count; i++) {
        const proa_seq *seq = chains[i]->seq;
        d->params[i] = seq->req->sample_params;
        if (d->params[i].temperature <= 0) continue;
        d->params[i].uniform = proa_sampler_uniform(seq->seed, seq->known + step);
        request.sample_params = d->params;
    }
    run_pass(e, d);
    proa_model_sample(d->model, &request, step % 2);
}

/* Rows for token number `step` of the chains that may go on: `next`. Their tokens before it are sampled by the pass
 * that was submitted last, in the order of `live`. Returns how many these are. */
static int64_t add_sampled_rows(const proa_engine *e, int64_t live, int32_t step)
{
    proa_draft_model *d = e->draft_model;
    int64_t count = 0;
    for (int64_t i = 0; i < live; i++) {
        proa_draft_chain *c = d->live[i];
        if (c->size <= step) continue;
        add_rows(e, d, c->seq, c->seq->known + step - 1, c->seq->known + step);
        d->ids[d->rows - 1] = 0, d->sampled_at[d->rows - 1] = (int32_t)i;
        d->any_sampled_at = true;
        d->last_row[count] = (int32_t)d->rows - 1;
        d->next[count++] = c;
    }
    return count;
}

/* The host receives token number `step` of the chains. Those that ended before it ran a row in vain. */
static void complete_pass(const proa_engine *e, int64_t live, int32_t step)
{
    const proa_draft_model *d = e->draft_model;
    proa_sampled sampled = proa_model_wait_sampled(d->model, step % 2);
    for (int64_t i = 0; i < live; i++) {
        proa_draft_chain *c = d->live[i];
        float logprob = sampled.logits[i] - sampled.sums[i];
        if (c->size <= step) continue;
        if (isfinite(logprob)) add_token(e, c, (proa_sample){.id = sampled.ids[i], .logprob = logprob});
        else c->size = c->count;
    }
}

static void draft_on_device(proa_engine *e, int64_t live)
{
    proa_draft_model *d = e->draft_model;
    int64_t begin = proa_clock_ns(), rows = d->rows;
    submit_pass(e, d->live, live, 0);
    for (int32_t step = 0; live; step++) {
        int64_t next = add_sampled_rows(e, live, step + 1);
        if (next) submit_pass(e, d->next, next, step + 1);
        complete_pass(e, live, step);
        int64_t now = proa_clock_ns();
        proa_draft_time(step ? &d->times.more : &d->times.first, rows, (double)(now - begin));
        proa_draft_chain **swap = d->live;
        d->live = d->next, d->next = swap;
        live = rows = next, begin = now;
    }
}

static void propose_drafts(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    int64_t live = begin_chains(e, chains, count);
    if (live && all_on_device(e, live)) draft_on_device(e, live);
    else draft_on_host(e, live);
    for (int64_t i = 0; i < count; i++) { /* without the rows that were in vain */
        proa_seq *seq = chains[i].seq;
        seq->draft_length = proa_min64(seq->draft_length, seq->known + chains[i].count);
    }
}

/* Rows after a wrong draft token are as if not run. */
static void settle_draft(proa_engine *e, proa_seq *seq, int32_t accepted)
{
    for (int32_t i = 0; i < seq->drafts && i <= accepted; i++)
        proa_draft_chance_result(chances_of(e, seq), seq->draft_chance[i], i < accepted);
    if (accepted < seq->drafts) seq->dropped.position = 0; /* it followed a wrong one */
    seq->draft_length = proa_min64(seq->draft_length, seq->known - 1);
}

const proa_proposer proa_propose_draft = {.name = "draft",
                                          .draft_limit = limit_draft,
                                          .offer = offer_chain,
                                          .propose = propose_drafts,
                                          .follow = follow_chunks,
                                          .settle = settle_draft,
                                          .stops = true};
