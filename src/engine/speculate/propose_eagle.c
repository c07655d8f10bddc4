/* SPDX-License-Identifier: Apache-2.0
 * propose_eagle.c - EAGLE heads as a proposer: trees of the likeliest tokens, which grow where the head is sure
 * (EAGLE-2, Li et al. 2024), or a chain for sequences whose logits processors look at the tokens before a row.
 *
 * A draft takes a few passes of the head over all sequences that draft. The first one runs the rows that lack; its
 * states are the target's. Each later one runs some candidates of the trees; the state of such a row is what the head
 * made of the row above it. Their keys and values are after those of the known tokens, as a tree (proa_span.tree)
 * whose nodes were run in several passes; the next draft overwrites them. */
#include "engine/speculate/propose_eagle.h"

#include "base/checked.h"
#include "base/clock.h"
#include "engine/decode/tree_search.h"
#include "engine/engine.h"
#include "model/heads/eagle.h"
#include <string.h>

/* How many states of a sequence that does not draft are run at once. */
#define CATCH_UP_ROWS 16
/* Passes for which states are kept, at least. */
#define KEPT_PASSES   4
/* Weights of new values in decaying means. */
#define TIME_SHARE    0.125
#define CHANCE_SHARE  (1.0F / 64)
/* Candidates with less chance together are never worth a pass of the head. */
#define CHANCE_LEAST  0.02

/* The draft of one sequence while it grows. */
typedef struct growing_draft {
    proa_draft_chain *chain;
    proa_tree_search search;
    int64_t own; /* number of the head's own state of the newest token; of candidate row r: own_at[r] */
    int64_t own_at[PROA_TREE_MAX];
} growing_draft;

/* A row of the head's pass whose guesses are wanted. */
typedef struct wanted_row {
    growing_draft *draft;
    int32_t candidate; /* -1: the newest token */
} wanted_row;

struct proa_eagle_proposer {
    proa_eagle *heads;
    proa_kv_pages pages; /* beside the target's */
    proa_kv *kv;         /* [layers] */
    int64_t next;        /* number of the state that is kept next; state n is at n % kept_max */
    double level_ns; /* of a pass of the head and its guesses, for one sequence; decaying mean, 0: not measured */
    double draft_ns;             /* of a whole draft, likewise */
    float likely[PROA_TREE_MAX]; /* how often node j of a tree was accepted: decaying means */
    int32_t guesses;             /* after a candidate */
    int32_t *kept_rows;          /* [rows_max] rows of the target's pass whose states are kept */
    /* the batch of a pass of the head: [rows_max] */
    int64_t rows, spans; /* in use */
    int32_t *ids, *positions, *lengths, *state_rows;
    uint64_t *seen;
    proa_span *span;
    /* of a proposal */
    growing_draft *draft; /* [sequences_max] */
    wanted_row *wanted;   /* [rows_max] */
    int32_t *wanted_at;   /* [rows_max] their rows of the pass */
    int64_t wanted_count, own_count;
    int32_t *guess_ids; /* [rows_max][PROA_GUESSES] */
    float *guess_logprobs;
};

/* ---- life ---- */

proa_status proa_eagle_proposer_prepare(proa_engine *e, const char *folder, proa_err *err)
{
    proa_eagle_proposer *p = e->eagle = PROA_ARENA_NEW(&e->arena, proa_eagle_proposer, 1);
    const proa_plan *plan = &e->model->plan;
    int64_t sampled = e->device->host ? plan->rows_max : plan->sampled_rows;
    const proa_eagle_options options = {.model = &e->sizes.model,
                                        .kept_max = plan->rows_max + KEPT_PASSES * sampled,
                                        .own_max = e->sizes.sequences_max + plan->rows_max};
    PROA_TRY(proa_eagle_prepare(&p->heads, folder, e->model, &options, err));
    e->sizes.draft = p->heads->model;
    e->sizes.heads_bytes = p->heads->bytes;
    p->guesses = (int32_t)proa_min64(PROA_GUESSES, proa_eagle_outputs(p->heads));
    /* about what trained heads reach on text: 4 tokens of a large tree (Li et al. 2024) */
    for (int32_t j = 0; j < PROA_TREE_MAX; j++) p->likely[j] = 0.6F / (1 + 0.5F * (float)j);
    return PROA_OK;
}

static void make_arrays(proa_engine *e, proa_eagle_proposer *p)
{
    int64_t rows = p->heads->model->plan.rows_max, sequences = e->sizes.sequences_max;
    p->kept_rows = PROA_ARENA_NEW(&e->arena, int32_t, e->model->plan.rows_max);
    p->ids = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    p->positions = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    p->lengths = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    p->state_rows = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    p->seen = PROA_ARENA_NEW(&e->arena, uint64_t, rows);
    p->span = PROA_ARENA_NEW(&e->arena, proa_span, rows);
    p->draft = PROA_ARENA_NEW(&e->arena, growing_draft, sequences);
    p->wanted = PROA_ARENA_NEW(&e->arena, wanted_row, rows);
    p->wanted_at = PROA_ARENA_NEW(&e->arena, int32_t, rows);
    p->guess_ids = PROA_ARENA_NEW(&e->arena, int32_t, rows * PROA_GUESSES);
    p->guess_logprobs = PROA_ARENA_NEW(&e->arena, float, rows *PROA_GUESSES);
}

proa_status proa_eagle_proposer_load(proa_engine *e, proa_progress_fn *progress, void *arg, proa_err *err)
{
    proa_eagle_proposer *p = e->eagle;
    const proa_model *m = p->heads->model;
    PROA_TRY(proa_eagle_load(p->heads, progress, arg, err));
    PROA_TRY(proa_kv_pages_init_attached(&p->pages, &e->pages, e->device, proa_kv_shape_of(m), err));
    p->kv = PROA_ARENA_NEW(&e->arena, proa_kv, m->kv_layers);
    for (int32_t i = 0; i < m->kv_layers; i++) p->kv[i] = proa_kv_pages_layer(&p->pages, i);
    make_arrays(e, p);
    return PROA_OK;
}

void proa_eagle_proposer_free(proa_engine *e)
{
    if (!e->eagle) return;
    proa_kv_pages_detach(&e->pages, &e->eagle->pages);
    proa_kv_pages_release(&e->eagle->pages);
    proa_eagle_free(e->eagle->heads);
}

void proa_eagle_proposer_admit(const proa_engine *e, proa_engine_request *req)
{
    for (int32_t i = 0; i < req->width && e->eagle; i++)
        req->seq[i].states = PROA_ARENA_NEW(&req->arena, proa_eagle_states, 1);
}

void proa_eagle_proposer_fork(proa_seq *seq, const proa_seq *leader)
{
    if (!seq->states) return;
    if (leader) *seq->states = *leader->states;
    else seq->states->count = 0;
}

static int64_t context_of(const proa_eagle_proposer *p)
{
    return p->heads->model->config.context;
}

int64_t proa_eagle_proposer_tokens(const proa_engine *e, const proa_seq *seq)
{
    const proa_eagle_proposer *p = e->eagle;
    bool on = p && seq->length <= context_of(p) && seq->draft_length < context_of(p); /* after it none are drafted */
    return on ? seq->draft_length : INT64_MAX;
}

/* ---- a pass of the head ---- */

/* Adds the row that is at `position` and reads this token with that state. */
static void add_row(proa_eagle_proposer *p, const proa_engine_request *req, int32_t id, int64_t position,
                    int64_t state)
{
    const proa_config *c = &p->heads->model->config;
    int64_t row = p->rows++;
    p->ids[row] = id < c->vocab ? id : 0; /* those of a prompt table are none of the vocabulary */
    p->positions[row] = (int32_t)position;
    p->lengths[row] = (int32_t)proa_rope_length(&c->rope, position, req->prompt_count,
                                                req->prompt_count + req->new_max);
    p->state_rows[row] = (int32_t)state;
    p->seen[row] = 0;
}

static void add_span(const proa_engine *e, proa_eagle_proposer *p, const proa_seq *seq, int64_t rows,
                     int64_t context, int64_t tree)
{
    p->span[p->spans++] = (proa_span){(int32_t)p->rows,
                                      (int32_t)rows,
                                      (int32_t)context,
                                      (int32_t)(seq->table->page - e->slots.memory),
                                      (int32_t)tree,
                                      0,
                                      0};
}

static void run_pass(const proa_engine *e, proa_eagle_proposer *p, bool own)
{
    proa_batch batch = {.rows = p->rows, .ids = p->ids, .positions = p->positions, .state_rows = p->state_rows};
    if (p->rows == 0) return;
    if (proa_model_wants_lengths(p->heads->model)) batch.lengths = p->lengths;
    batch.self = batch.cross = (proa_spans){.span = p->span, .count = p->spans, .pages = e->slots.memory};
    if (own) batch.self.seen = p->seen;
    proa_eagle_decode(p->heads, p->kv, &batch, own);
    p->rows = p->spans = 0;
}

/* Token i of the sequence, which the host knows. */
static int32_t id_of(const proa_seq *seq, int64_t i)
{
    const proa_engine_request *req = seq->req;
    return i < req->prompt_count ? req->prompt[i] : seq->ids[i - req->prompt_count];
}

/* Tokens of the sequence whose ids the host knows. */
static int64_t ids_known(const proa_seq *seq)
{
    return seq->req->prompt_count + (seq->req->search.candidates ? 0 : seq->count);
}

/* Adds rows [draft_length, end), the states of the first of which are those that the sequence keeps, of the others
 * `chunk`, chunk + 1, ... Full batches are run. */
static void add_states(const proa_engine *e, proa_eagle_proposer *p, proa_seq *seq, int64_t end, int64_t chunk)
{
    proa_eagle_states *s = seq->states;
    int64_t begin = seq->draft_length, rows_max = p->heads->model->plan.rows_max, kept = s->count;
    for (int64_t i = begin; i < end; i++) {
        int64_t state = i - begin < kept ? s->at[i - begin] : chunk + i - begin - kept;
        if (p->rows == rows_max) run_pass(e, p, false);
        if (i == begin || p->rows == 0) add_span(e, p, seq, proa_min64(end - i, rows_max - p->rows), 0, 0);
        p->span[p->spans - 1].context = (int32_t)i + 1;
        add_row(p, seq->req, id_of(seq, i + 1), i, state % p->heads->kept_max);
    }
    int64_t used = proa_min64(kept, end - begin);
    s->count -= (int32_t)used;
    memmove(s->at, s->at + used, (size_t)s->count * sizeof *s->at);
    seq->draft_length = end;
}

/* The sequence's pages from the head's next row on become its own. `tokens` of the target are in them. */
static bool own_pages(proa_engine *e, proa_seq *seq, int64_t tokens)
{
    return proa_page_table_own_attached(&e->pages, seq->table, seq->draft_length, tokens);
}

/* ---- states ---- */

/* Whether the head follows the rows that the target runs for the sequence now; chunks also for those that only keep
 * their pages for others. */
static bool is_followed(const proa_eagle_proposer *p, const proa_seq *seq)
{
    const proa_engine_request *req = seq->req;
    bool drafts = req->proposer == &proa_propose_eagle;
    if (!seq->states || seq->length >= context_of(p)) return false;
    if (proa_seq_runs_chunk(seq)) return drafts || req->space;
    return drafts && seq->length == seq->draft_length + seq->states->count;
}

/* Whether states with numbers from this one on are still kept after that many more. */
static bool are_kept(const proa_eagle_proposer *p, int64_t first, int64_t more)
{
    return first + p->heads->kept_max >= p->next + more;
}

/* Runs the states that the sequence keeps, as far as the tokens after them are known. */
static void catch_up(proa_engine *e, proa_seq *seq, int64_t tokens)
{
    const proa_eagle_states *s = seq->states;
    int64_t end = proa_min64(seq->draft_length + s->count, ids_known(seq) - 1);
    if (end > seq->draft_length && are_kept(e->eagle, s->at[0], 0) && own_pages(e, seq, tokens))
        add_states(e, e->eagle, seq, end, 0);
}

/* Called before that many states are kept: runs those that they overwrite. Returns the number of the first new one; the
 * new ones follow each other in the list. */
static int64_t make_room(proa_engine *e, int64_t count)
{
    proa_eagle_proposer *p = e->eagle;
    int64_t max = p->heads->kept_max, at = p->next % max, skipped = at + count > max ? max - at : 0;
    for (proa_engine_request *req = e->running.first; req; req = req->next)
        for (int32_t i = 0; i < req->width; i++) {
            proa_seq *seq = &req->seq[i];
            if (!seq->states || !seq->states->count || !seq->table) continue;
            if (!are_kept(p, seq->states->at[0], skipped + count)) catch_up(e, seq, seq->length);
        }
    run_pass(e, p, false);
    p->next += skipped + count;
    return p->next - count;
}

static void push_state(proa_eagle_states *s, int64_t state)
{
    if (s->count < PROA_EAGLE_STATES) s->at[s->count++] = state;
}

/* A chunk of the sequence was run, its states are kept from number `at` on. */
static void follow_chunk(proa_engine *e, proa_seq *seq, int64_t rows, int64_t at)
{
    proa_eagle_proposer *p = e->eagle;
    proa_eagle_states *s = seq->states;
    int64_t begin = seq->length, last = proa_min64(begin + rows, context_of(p));
    if (seq->draft_length + s->count != begin)
        seq->draft_length = begin, s->count = 0; /* its pages are reused */
    int64_t end = proa_min64(last, ids_known(seq) - 1);
    if (end > seq->draft_length && !own_pages(e, seq, begin + rows)) return;
    if (end > seq->draft_length) add_states(e, p, seq, end, at);
    for (int64_t i = proa_max64(begin, seq->draft_length + s->count); i < last; i++)
        push_state(s, at + i - begin);
}

static void follow_span(proa_engine *e, proa_seq *seq, int64_t rows, int64_t at)
{
    proa_eagle_states *s = seq->states;
    if (proa_seq_runs_chunk(seq)) {
        follow_chunk(e, seq, rows, at);
        return;
    }
    s->pass = at;
    if (seq->drafts) return; /* settle_draft knows which rows were right */
    push_state(s, at);
    if (s->count > CATCH_UP_ROWS) catch_up(e, seq, seq->length + 1);
}

/* Keeps the states of the pass that was just submitted. */
static void follow_pass(proa_engine *e)
{
    proa_eagle_proposer *p = e->eagle;
    int64_t count = 0;
    for (int64_t s = 0; s < e->step.spans; s++) {
        const proa_span *span = &e->step.self_spans[s];
        if (!is_followed(p, e->step.span_seqs[s])) continue;
        for (int32_t i = 0; i < span->rows; i++) p->kept_rows[count++] = span->row + i;
    }
    if (count == 0) return;
    int64_t at = make_room(e, count);
    proa_eagle_keep(p->heads, at % p->heads->kept_max, p->kept_rows, count);
    for (int64_t s = 0; s < e->step.spans; s++) {
        proa_seq *seq = e->step.span_seqs[s];
        if (!is_followed(p, seq)) continue;
        follow_span(e, seq, e->step.self_spans[s].rows, at);
        at += e->step.self_spans[s].rows;
    }
    run_pass(e, p, false);
}

/* ---- drafting ---- */

static int32_t limit_nodes(const proa_engine *e, const proa_seq *seq, int32_t size)
{
    int64_t unknown = seq->sampled_at >= 0, left = context_of(e->eagle) - seq->known - unknown;
    return (int32_t)proa_max64(0, proa_min64(size, left));
}

/* All nodes of a tree cost the same passes of the head, a token of a chain one. */
static void offer_draft(proa_engine *e, const proa_seq *seq, int64_t sequences, proa_draft_offer *offer)
{
    PROA_UNUSED(sequences);
    const proa_eagle_proposer *p = e->eagle;
    if (seq->tree) offer->chances = p->likely, offer->first_ns = p->draft_ns;
    else offer->token_ns = p->level_ns;
}

static void want_row(proa_eagle_proposer *p, growing_draft *d, int32_t candidate)
{
    p->wanted[p->wanted_count] = (wanted_row){d, candidate};
    p->wanted_at[p->wanted_count++] = (int32_t)p->rows - 1;
}

/* The rows that the head lacks, of all sequences that can draft. Returns how many these are. */
static int64_t begin_drafts(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    proa_eagle_proposer *p = e->eagle;
    int64_t live = 0;
    for (int64_t i = 0; i < count; i++) {
        proa_seq *seq = chains[i].seq;
        const proa_eagle_states *s = seq->states;
        int32_t size = limit_nodes(e, seq, chains[i].size);
        bool complete = s->count > 0 && seq->draft_length + s->count == seq->known - 1 &&
                        are_kept(p, s->at[0], 0);
        bool fits = p->rows + s->count <= p->heads->model->plan.rows_max;
        if (size == 0 || !complete || !fits || !proa_proposer_take_pages(e, seq, size)) continue;
        growing_draft *d = &p->draft[live++];
        d->chain = &chains[i];
        proa_tree_search_begin(&d->search, size, seq->tree ? PROA_TREE_DEPTH_MAX : PROA_DRAFT_MAX);
        add_states(e, p, seq, seq->known - 1, 0);
        want_row(p, d, -1);
    }
    return live;
}

/* The guesses after the rows that are wanted of the pass that was run last, and the states that they stand for. */
static void take_guesses(proa_eagle_proposer *p)
{
    int64_t count = p->wanted_count;
    proa_eagle_keep_own(p->heads, p->own_count, p->wanted_at, count);
    proa_eagle_top_k(p->heads, p->wanted_at, count, p->guesses, p->guess_ids, p->guess_logprobs);
    for (int64_t i = 0; i < count; i++) {
        growing_draft *d = p->wanted[i].draft;
        int32_t candidate = p->wanted[i].candidate, k = d->chain->seq->tree ? p->guesses : 1;
        if (candidate < 0) d->own = p->own_count + i;
        else d->own_at[d->search.candidate[candidate].row] = p->own_count + i;
        proa_tree_search_add(&d->search, candidate, k, p->guess_ids + i * p->guesses,
                             p->guess_logprobs + i * p->guesses);
    }
    p->own_count += count;
    p->wanted_count = 0;
}

/* The next rows of one draft: candidates of its tree. */
static void add_candidates(const proa_engine *e, proa_eagle_proposer *p, growing_draft *d, float least)
{
    const proa_seq *seq = d->chain->seq;
    int32_t chosen[PROA_GUESSES];
    int64_t room = p->heads->model->plan.rows_max - p->rows, own = p->heads->own_max - p->own_count - p->rows;
    int32_t most = (int32_t)proa_max64(0, proa_min64(PROA_GUESSES, proa_min64(room, own)));
    int32_t count = proa_tree_search_next(&d->search, chosen, most, least);
    if (count == 0) return;
    int64_t first = seq->known - 1, rows = d->search.rows;
    add_span(e, p, seq, count, first + rows, rows);
    for (int32_t i = 0; i < count; i++) {
        const proa_tree_candidate *c = &d->search.candidate[chosen[i]];
        int64_t state = c->parent < 0 ? d->own : d->own_at[d->search.candidate[c->parent].row];
        add_row(p, seq->req, c->id, first + c->depth - 1, p->heads->own_first + state);
        p->seen[p->rows - 1] = d->search.seen[c->row];
        want_row(p, d, chosen[i]);
    }
}

/* The chance of a token that is worth a pass of the head for one sequence. */
static float least_chance(const proa_engine *e, int64_t live)
{
    double pass = proa_draft_time_of(&e->speculation.times, live);
    double worth = pass > 0 ? e->eagle->level_ns * (double)live / pass : 0;
    return (float)(worth < CHANCE_LEAST ? CHANCE_LEAST : worth);
}

static void finish_draft(growing_draft *d)
{
    proa_seq *seq = d->chain->seq;
    if (!seq->tree) {
        d->chain->count = proa_tree_search_chain(&d->search, seq->ids + seq->count);
        return;
    }
    proa_tree_search_finish(&d->search, seq->tree, seq->known);
    d->chain->count = seq->tree->count;
}

static void note_time(double *mean, double ns)
{
    *mean += *mean == 0 ? ns : TIME_SHARE * (ns - *mean);
}

static void propose_drafts(proa_engine *e, proa_draft_chain *chains, int64_t count)
{
    proa_eagle_proposer *p = e->eagle;
    int64_t begin = proa_clock_ns(), at = begin, live = begin_drafts(e, chains, count);
    float least = least_chance(e, live);
    p->own_count = 0;
    for (bool own = false; p->rows > 0; own = true) {
        run_pass(e, p, own);
        take_guesses(p);
        for (int64_t i = 0; i < live; i++) add_candidates(e, p, &p->draft[i], least);
        int64_t now = proa_clock_ns();
        note_time(&p->level_ns, (double)(now - at) / (double)live);
        at = now;
    }
    for (int64_t i = 0; i < live; i++) finish_draft(&p->draft[i]);
    if (live) note_time(&p->draft_ns, (double)(at - begin) / (double)live);
}

/* ---- after a pass ---- */

/* How often nodes of this rank are right: a later one is not taken to be likelier. */
static void learn_chances(proa_eagle_proposer *p, const proa_draft_tree *tree)
{
    for (int32_t j = 0, next = 0; j < tree->count; j++) {
        bool right = next < tree->accepted && tree->path[next] == j;
        p->likely[j] += CHANCE_SHARE * ((right ? 1.0F : 0.0F) - p->likely[j]);
        next += right;
    }
    for (int32_t j = 1; j < PROA_TREE_MAX; j++)
        if (p->likely[j] > p->likely[j - 1]) p->likely[j] = p->likely[j - 1];
}

/* The states of the rows that were right: the newest token's, and those of the accepted ones. */
static void settle_draft(proa_engine *e, proa_seq *seq, int32_t accepted)
{
    proa_eagle_states *s = seq->states;
    bool tree = proa_seq_has_tree(seq);
    if (tree) learn_chances(e->eagle, seq->tree);
    push_state(s, s->pass);
    for (int32_t i = 0; i < accepted; i++) push_state(s, s->pass + 1 + (tree ? seq->tree->path[i] : i));
}

const proa_proposer proa_propose_eagle = {.name = "eagle",
                                          .prepare = proa_proposer_prepare_tree,
                                          .offer = offer_draft,
                                          .draft_limit = limit_nodes,
                                          .propose = propose_drafts,
                                          .follow = follow_pass,
                                          .settle = settle_draft};
