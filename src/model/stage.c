/* SPDX-License-Identifier: Apache-2.0 */
#include "model/stage.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

enum { PAGES_MAX = 1 << 24 }; /* entries of all page tables of a step: 64 MB, a billion tokens of context */

enum { PAIRS_BYTES = PROA_EDIT_PAIRS_MAX * (int)sizeof(proa_edit) };

/* Of what is chosen in a step: tokens, rows of searches, candidates in these. */
typedef struct counts {
    int64_t tokens, rows, entries;
    int64_t logits, likeliest; /* of single tokens, if they were asked for */
} counts;

struct proa_stage {
    char *here, *there; /* the step's arrays; on the host touched only if some of them are not known */
    int32_t *there_rows; /* [rows_max] what the head gathers; then 0, 1, ..., rows_max - 1; what ids come from */
    proa_choice *there_choices;  /* [chosen_rows] */
    proa_search *there_searches; /* [chosen_rows / 2] */
    proa_search *searches;       /* [searches_count] what stands there */
    int64_t searches_count;
    proa_edits *there_edits;          /* [chosen_rows] */
    proa_edit *there_pairs;           /* [PROA_EDIT_PAIRS_MAX]; NULL on the host and for encoders */
    int32_t *there_from, *there_last; /* [chosen_rows] */
    float *there_scores;              /* [chosen_rows] of beams, */
    proa_held *there_held;            /* [chosen_rows] and what their groups have finished */
    char *there_chosen;               /* what was chosen last (lay_out), or the likeliest of rows */
    int32_t *there_parents;           /* in it */
    char *sent[2];                    /* the same, on the host */
    counts sent_counts[2];
    float *out, *hidden; /* [head_rows][outputs], [head_rows][hidden] on the host */
    float *inputs[2];    /* of encoders: [chosen_rows][outputs] by the head, then by the pooler */
    float *rows[2];      /* [rows_max][outputs], of a head that only gathers */
    proa_harvest harvest[2];
    bool beside[2]; /* these rows were sent so */
    int64_t bytes, used, pages_max, out_width, hidden_width;
};

static int64_t page_entries(const proa_model *m)
{
    int64_t longest = proa_max64(m->config.context, m->plan.rows_max);
    int64_t entries = 3 * m->plan.rows_max * (proa_ceil_div(longest, PROA_PAGE_TOKENS) + 1);
    return proa_min64(entries, PAGES_MAX);
}

/* Room of so many words at *at, which moves on. */
static void *words(char *memory, int64_t *at, int64_t count)
{
    int64_t begin = *at;
    *at = begin + proa_round_up(4 * count, 16);
    return memory + begin;
}

/* Where it all lies in memory, and how many bytes it takes. */
static int64_t lay_out(proa_told *told, char *memory, counts n)
{
    int64_t at = 0;
    told->ids = words(memory, &at, n.tokens);
    told->sums = words(memory, &at, n.tokens);
    told->logits = words(memory, &at, n.logits);
    told->top_ids = words(memory, &at, n.likeliest);
    told->top_logits = words(memory, &at, n.likeliest);
    if (!n.rows) return at;
    proa_lists *l = &told->lists;
    l->tokens = told->ids;
    l->parents = words(memory, &at, n.tokens);
    l->ids = words(memory, &at, n.entries);
    l->logits = words(memory, &at, n.entries);
    l->sums = words(memory, &at, n.rows);
    return at;
}

/* Or the likeliest ids, their logits and the rows' sums (proa_stage_top). */
static int64_t chosen_bytes(const proa_model *m)
{
    int64_t rows = m->plan.chosen_rows;
    return 4 * 4 * rows + rows * (8 * PROA_TOP_MAX + 4) + 256;
}

static int64_t rows_bytes(const proa_model *m)
{
    int64_t each = (int64_t)(sizeof(proa_choice) + sizeof(proa_edits) + sizeof(proa_search) / 2 +
                             sizeof(float) + sizeof(proa_held) + 8);
    return m->plan.rows_max * 3 * 4 + m->plan.chosen_rows * each + 256 + chosen_bytes(m);
}

static int64_t out_bytes(const proa_model *m)
{
    return m->plan.head_rows * m->stage->out_width * (int64_t)sizeof(float);
}

static int64_t input_floats(const proa_model *m)
{
    return m->plan.chosen_rows * m->plan.width[PROA_REG_OUT];
}

static int64_t rows_floats(const proa_model *m)
{
    return m->plan.rows_max * m->plan.width[PROA_REG_OUT];
}

/* The host's own model takes room for rows when it comes to need it (proa_stage_keep_rows). */
static proa_status make_harvests(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage;
    bool rows = m->plan.bare_head && !d->host;
    for (int i = 0; i < 2 && m->arch->kind == PROA_KIND_ENCODER && proa_model_harvests(m); i++) {
        s->inputs[i] = d->host_alloc(d, 2 * 4 * input_floats(m));
        if (rows) s->rows[i] = d->host_alloc(d, 4 * rows_floats(m));
        if (!s->inputs[i] || (rows && !s->rows[i]))
            return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB of host memory for an encoder's results",
                             4 * (double)(2 * input_floats(m) + rows_floats(m)) / 1e6);
    }
    return PROA_OK;
}

static void number_rows(proa_model *m)
{
    proa_stage *s = m->stage;
    int64_t rows = m->plan.rows_max;
    int32_t *here = proa_malloc((size_t)rows * sizeof *here);
    for (int64_t i = 0; i < rows; i++) here[i] = (int32_t)i;
    m->device->upload(m->device, s->there_rows + rows, here, rows * 4);
    free(here);
}

const int32_t *proa_stage_all_rows(const proa_model *m)
{
    return m->stage->there_rows + m->plan.rows_max;
}

/* What the host's own model needs too: what was chosen, and a step's arrays, to put that among others. */
static proa_status make_shared(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage;
    char *memory = d->alloc(d, rows_bytes(m));
    s->there_rows = (int32_t *)(void *)memory;
    s->there = d->alloc(d, s->bytes);
    for (int i = 0; i < 2; i++) s->sent[i] = d->host_alloc(d, chosen_bytes(m));
    bool pairs = !d->host && m->arch->kind != PROA_KIND_ENCODER;
    if (pairs) s->there_pairs = d->alloc(d, PAIRS_BYTES);
    if (!memory || (pairs && !s->there_pairs) || !s->there || !s->sent[0] || !s->sent[1])
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for a step's arrays on %s",
                         (double)s->bytes / 1e6, d->name);
    int64_t at = 0, rows = m->plan.chosen_rows, word = 4;
    words(memory, &at, 3 * m->plan.rows_max);
    s->there_choices = words(memory, &at, rows * (int64_t)sizeof(proa_choice) / word);
    s->there_searches = words(memory, &at, rows / 2 * (int64_t)sizeof(proa_search) / word);
    s->there_edits = words(memory, &at, rows * (int64_t)sizeof(proa_edits) / word);
    s->there_from = words(memory, &at, rows);
    s->there_last = words(memory, &at, rows);
    s->there_scores = words(memory, &at, rows);
    s->there_held = words(memory, &at, rows * (int64_t)sizeof(proa_held) / word);
    s->there_chosen = memory + at;
    number_rows(m);
    return PROA_OK;
}

proa_status proa_stage_make(proa_model *m, proa_err *err)
{
    proa_device *d = m->device;
    proa_stage *s = m->stage = proa_calloc(1, sizeof *s);
    int64_t rows = m->plan.rows_max;
    s->pages_max = page_entries(m);
    s->bytes = rows * (3 * 4 + 2 * (int64_t)sizeof(proa_span)) +
               m->plan.chosen_rows * (int64_t)sizeof(proa_branch) + 4 * s->pages_max + 1024;
    s->here = proa_malloc((size_t)s->bytes);
    PROA_TRY(make_shared(m, err));
    PROA_TRY(make_harvests(m, err));
    if (d->host) return PROA_OK;
    s->out_width = proa_max64(m->plan.width[PROA_REG_OUT], m->config.hidden);
    s->hidden_width = m->config.hidden;
    s->searches = proa_calloc((size_t)(m->plan.chosen_rows / 2 + 1), sizeof *s->searches);
    s->out = d->host_alloc(d, out_bytes(m));
    s->hidden = d->host_alloc(d, m->plan.head_rows * s->hidden_width * (int64_t)sizeof *s->hidden);
    if (s->out && s->hidden) return PROA_OK;
    return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB of host memory for a step's results",
                     (double)out_bytes(m) / 1e6);
}

void proa_stage_free(proa_model *m)
{
    proa_stage *s = m->stage;
    if (!s) return;
    m->device->free(m->device, s->there, s->bytes);
    m->device->free(m->device, s->there_rows, rows_bytes(m));
    m->device->free(m->device, s->there_pairs, PAIRS_BYTES);
    for (int i = 0; i < 2; i++) m->device->host_free(m->device, s->sent[i]);
    for (int i = 0; i < 2; i++) {
        m->device->host_free(m->device, s->inputs[i]);
        m->device->host_free(m->device, s->rows[i]);
    }
    free(s->here);
    free(s->searches);
    m->device->host_free(m->device, s->out);
    m->device->host_free(m->device, s->hidden);
    free(s);
    m->stage = NULL;
}

/* Appends bytes to the block; returns where they will lie on the device. */
static void *put(proa_stage *s, const void *bytes, int64_t len)
{
    int64_t at = s->used;
    s->used = proa_round_up(at + len, 16);
    PROA_ASSERT(s->used <= s->bytes);
    if (bytes) memcpy(s->here + at, bytes, (size_t)len);
    else memset(s->here + at, 0, (size_t)len);
    return s->there + at;
}

/* Contexts of one length class launch alike: 256, 512, 1024, ... */
static int32_t length_class(int32_t context)
{
    int32_t up = 256;
    while (up < context) up *= 2;
    return up;
}

/* The spans, with page tables that lie behind each other from *pages on. */
static void put_spans(proa_stage *s, const proa_spans *from, proa_spans *to)
{
    proa_span *span = (proa_span *)(void *)(s->here + s->used);
    *to = (proa_spans){.count = from->count};
    to->span = put(s, from->span, from->count * (int64_t)sizeof *span);
    for (int64_t i = 0; i < from->count; i++) {
        to->rows_max = span[i].rows > to->rows_max ? span[i].rows : to->rows_max;
        to->rows_min = i == 0 || span[i].rows < to->rows_min ? span[i].rows : to->rows_min;
        to->context_max = span[i].context > to->context_max ? span[i].context : to->context_max;
    }
    if (to->context_max) to->context_max = length_class(to->context_max);
}

static void put_pages(proa_stage *s, const proa_spans *from, const proa_spans *there, int32_t *count,
                      int32_t *pages)
{
    proa_span *span = (proa_span *)(void *)(s->here + ((const char *)there->span - s->there));
    for (int64_t i = 0; i < from->count; i++) {
        int32_t n = (span[i].context + PROA_PAGE_TOKENS - 1) / PROA_PAGE_TOKENS;
        PROA_ASSERT(*count + n <= s->pages_max);
        memcpy(pages + *count, from->pages + span[i].table, (size_t)n * sizeof *pages);
        span[i].table = *count;
        *count += n;
    }
}

/* Numbers of rows where the model runs. Mostly they are 0, 1, 2, ..., which lie there already. */
static const int32_t *rows_there(proa_model *m, const int32_t *rows, int64_t count, int32_t *room)
{
    int64_t i = 0;
    if (m->device->host) return rows;
    while (i < count && rows[i] == (int32_t)i) i++;
    if (i == count) return proa_stage_all_rows(m);
    m->device->upload(m->device, room, rows, count * 4);
    return room;
}

/* Ids that only the device knows take their places among the others. */
static void take_chosen(proa_model *m, const proa_batch *batch, int32_t *ids)
{
    const int32_t *from = rows_there(m, batch->from, batch->rows, m->stage->there_rows + 2 * m->plan.rows_max);
    const int32_t *chosen = (const int32_t *)(const void *)m->stage->there_chosen;
    m->ctx.ops->take_ids(&m->ctx, ids, chosen, from, batch->rows);
}

/* The tables that are to follow, as they were, lie behind the others, and behind these what is to be done: so the pages lie
 * where a recorded pass of this shape has them, whether beams follow or not. Returns how, where the model runs. */
static const proa_branch *put_pending(proa_stage *s, const proa_batch *batch, const proa_spans *there,
                                      int32_t *count, int32_t *pages)
{
    const proa_span *span = (const proa_span *)(const void *)(s->here + ((const char *)there->span - s->there));
    int32_t at = *count;
    for (int64_t i = 0; i < batch->pending_count; i++) {
        const proa_pending *p = &batch->pending[i];
        int32_t n = p->beams * ((span[p->span].context - 1) / PROA_PAGE_TOKENS + 1);
        PROA_ASSERT(*count + n <= s->pages_max);
        memcpy(pages + *count, pages + span[p->span].table, (size_t)n * sizeof *pages);
        *count += n;
    }
    s->used += 4 * (int64_t)*count;
    put(s, NULL, 0);
    proa_branch *branch = (proa_branch *)(void *)(s->here + s->used);
    const proa_branch *branches = put(s, NULL, batch->pending_count * (int64_t)sizeof *branch);
    for (int64_t i = 0; i < batch->pending_count; i++) {
        const proa_pending *p = &batch->pending[i];
        int32_t tokens = span[p->span].context - 1;
        branch[i] = (proa_branch){at, span[p->span].table, p->beams, tokens, p->from};
        at += p->beams * (tokens / PROA_PAGE_TOKENS + 1);
    }
    return branches;
}

static int32_t widest(const proa_batch *batch)
{
    int32_t most = 0;
    for (int64_t i = 0; i < batch->pending_count; i++)
        most = batch->pending[i].beams > most ? batch->pending[i].beams : most;
    return most;
}

const proa_batch *proa_stage_batch(proa_model *m, const proa_kv *kv, const proa_batch *batch, proa_batch *there)
{
    proa_stage *s = m->stage;
    int32_t count = 0;
    if (m->device->host && !batch->from) return batch;
    s->used = 0;
    *there = (proa_batch){.rows = batch->rows};
    there->ids = put(s, batch->ids, batch->rows * 4);
    there->positions = put(s, batch->positions, batch->rows * 4);
    there->types = put(s, batch->types, batch->rows * 4);
    put_spans(s, &batch->self, &there->self);
    put_spans(s, &batch->cross, &there->cross);
    int32_t *pages = (int32_t *)(void *)(s->here + s->used),
            *pages_there = (int32_t *)(void *)(s->there + s->used);
    there->self.pages = there->cross.pages = pages_there;
    put_pages(s, &batch->self, &there->self, &count, pages);
    put_pages(s, &batch->cross, &there->cross, &count, pages);
    const proa_branch *branches = put_pending(s, batch, &there->self, &count, pages);
    m->device->upload(m->device, s->there, s->here, s->used);
    if (batch->from) take_chosen(m, batch, (int32_t *)(void *)s->there); /* ids lie first */
    if (batch->pending_count)
        m->ctx.ops->follow(&m->ctx, pages_there, branches, batch->pending_count, widest(batch),
                           s->there_parents, kv, m->kv_layers);
    return there;
}

const int32_t *proa_stage_rows(proa_model *m, const int32_t *rows, int64_t count)
{
    return rows_there(m, rows, count, m->stage->there_rows);
}

const proa_choice *proa_stage_choices(proa_model *m, const proa_choice *how, int64_t count)
{
    if (!how || m->device->host) return how;
    m->device->upload(m->device, m->stage->there_choices, how, count * (int64_t)sizeof *how);
    return m->stage->there_choices;
}

/* In pieces: what is long is uploaded as weights are, by all cores, which a step in the middle of serving is not to wake. */
static void upload_pairs(proa_model *m, const proa_edit *pairs, int64_t count)
{
    enum { PIECE = 1 << 16 };
    for (int64_t at = 0, n; at < count; at += n) {
        n = proa_min64(count - at, PIECE);
        m->device->upload(m->device, m->stage->there_pairs + at, pairs + at, n * (int64_t)sizeof *pairs);
    }
}

/* The last tokens are taken from what was chosen last before anything is chosen in its place. */
proa_edits_there proa_stage_edits(proa_model *m, const proa_asked *asked)
{
    proa_stage *s = m->stage;
    int64_t n = asked->count;
    proa_edits_there e = {asked->edits, asked->pairs, s->there_last};
    const int32_t *chosen = (const int32_t *)(const void *)s->there_chosen;
    if (!asked->edits || !n) return (proa_edits_there){NULL, NULL, NULL};
    m->device->upload(m->device, s->there_last, asked->last, n * 4); /* -1 where there is none */
    m->device->upload(m->device, s->there_from, asked->last, n * 4);
    m->ctx.ops->take_ids(&m->ctx, s->there_last, chosen, s->there_from, n);
    if (m->device->host) return e;
    PROA_ASSERT(asked->pairs_count <= PROA_EDIT_PAIRS_MAX);
    m->device->upload(m->device, s->there_edits, asked->edits, n * (int64_t)sizeof *asked->edits);
    upload_pairs(m, asked->pairs, asked->pairs_count);
    e.rows = s->there_edits, e.pairs = s->there_pairs;
    return e;
}

/* From step to step they are mostly the same. */
const proa_search *proa_stage_searches(proa_model *m, const proa_search *search, int64_t count)
{
    proa_stage *s = m->stage;
    int64_t bytes = count * (int64_t)sizeof *search;
    if (!count || m->device->host) return search;
    if (count == s->searches_count && memcmp(s->searches, search, (size_t)bytes) == 0)
        return s->there_searches;
    memcpy(s->searches, search, (size_t)bytes);
    s->searches_count = count;
    m->device->upload(m->device, s->there_searches, search, bytes);
    return s->there_searches;
}

proa_told proa_stage_told(proa_model *m, const proa_asked *asked, int ticket)
{
    proa_stage *s = m->stage;
    counts n = {.tokens = asked->count, .likeliest = asked->count * asked->top};
    if (asked->logits) n.logits = asked->count;
    proa_told told = {.lists = {.scores = s->there_scores, .held = s->there_held}};
    for (int64_t i = 0; i < asked->searches; i++) {
        const proa_search *search = &asked->search[i];
        n.tokens += search->beams;
        n.rows += search->rows;
        n.entries += (int64_t)search->rows * search->each;
    }
    s->sent_counts[ticket] = n;
    int64_t bytes = lay_out(&told, s->there_chosen, n);
    PROA_ASSERT(n.tokens <= m->plan.chosen_rows && bytes <= chosen_bytes(m));
    s->there_parents = told.lists.parents;
    return told;
}

void proa_stage_send(proa_model *m, int ticket)
{
    proa_stage *s = m->stage;
    proa_told told = {.ids = NULL};
    int64_t bytes = lay_out(&told, s->there_chosen, s->sent_counts[ticket]);
    m->device->send(m->device, s->sent[ticket], s->there_chosen, bytes, ticket);
}

proa_told proa_model_chosen(proa_model *m, int ticket)
{
    proa_told told = {.ids = NULL};
    m->device->sent(m->device, ticket);
    lay_out(&told, m->stage->sent[ticket], m->stage->sent_counts[ticket]);
    return told;
}

proa_view proa_stage_fetch(proa_model *m, proa_view out, proa_view hidden)
{
    proa_stage *s = m->stage;
    proa_device *d = m->device;
    if (d->host) return out;
    if (m->hidden_wanted && hidden.rank) d->send(d, s->hidden, hidden.data, proa_view_count(hidden) * 4, 0);
    d->send(d, s->out, out.data, proa_view_count(out) * 4, 0);
    d->sent(d, 0);
    out.data = s->out;
    return out;
}

void proa_stage_harvest(proa_model *m, int ticket)
{
    m->stage->harvest[ticket] = (proa_harvest){NULL, NULL, NULL};
    m->stage->beside[ticket] = false;
}

void proa_stage_send_inputs(proa_model *m, proa_view out, int64_t at, bool pooled, int ticket)
{
    proa_harvest *h = &m->stage->harvest[ticket];
    float *to = m->stage->inputs[ticket] + (pooled ? input_floats(m) : 0);
    if (pooled) h->pooled = to;
    else h->first = to;
    PROA_ASSERT(at + out.shape[0] <= m->plan.chosen_rows);
    m->device->send(m->device, to + at * out.shape[1], out.data, proa_view_count(out) * 4, ticket);
}

void proa_stage_send_rows(proa_model *m, proa_view out, int64_t first, int ticket)
{
    enum { BESIDE_FROM = 1 << 20 }; /* bytes; fewer are there before a copy between has begun */
    proa_stage *s = m->stage;
    int64_t bytes = proa_view_count(out) * 4;
    if (first > 0 || bytes >= BESIDE_FROM) s->beside[ticket] = true;
    s->harvest[ticket].rows = s->rows[ticket];
    m->device->send(m->device, s->rows[ticket] + first * out.shape[1], out.data, bytes,
                    s->beside[ticket] ? PROA_SEND_BESIDE + ticket : ticket);
}

void proa_stage_keep_rows(proa_model *m, proa_view out, bool keep, int ticket)
{
    proa_stage *s = m->stage;
    s->harvest[ticket].rows = proa_view_f32(out);
    if (!keep) return;
    if (!s->rows[ticket]) s->rows[ticket] = m->device->host_alloc(m->device, 4 * rows_floats(m));
    memcpy(s->rows[ticket], out.data, (size_t)proa_view_count(out) * 4);
    s->harvest[ticket].rows = s->rows[ticket];
}

proa_harvest proa_model_harvested(proa_model *m, int ticket)
{
    m->device->sent(m->device, ticket);
    if (m->stage->beside[ticket]) m->device->sent(m->device, PROA_SEND_BESIDE + ticket);
    return m->stage->harvest[ticket];
}

proa_top proa_stage_top(proa_model *m, int64_t count, int64_t k)
{
    int32_t *ids = (int32_t *)(void *)m->stage->there_chosen;
    float *logits = (float *)(void *)(ids + count * k);
    return (proa_top){ids, logits, logits + count * k};
}

void proa_stage_fetch_top(proa_model *m, int64_t count, int64_t k, int32_t *ids, float *logits, float *sums)
{
    char *here = m->stage->sent[0];
    m->device->send(m->device, here, m->stage->there_chosen, 4 * (2 * count * k + count), 0);
    m->device->sent(m->device, 0);
    memcpy(ids, here, (size_t)(count * k) * sizeof *ids);
    memcpy(logits, here + 4 * count * k, (size_t)(count * k) * sizeof *logits);
    memcpy(sums, here + 8 * count * k, (size_t)count * sizeof *sums);
}

const float *proa_stage_hidden(const proa_model *m, proa_view hidden, int64_t row)
{
    const float *rows = m->device->host ? proa_view_f32(hidden) : m->stage->hidden;
    return rows + row * hidden.stride[0];
}
