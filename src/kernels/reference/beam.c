/* SPDX-License-Identifier: Apache-2.0
 * beam.c - beam_step and reorder_kv: candidates are put in order one by one. The formulas are those of beam_step.h. The
 * ops of a device are compared with these, and these must agree with the engine's searches (engine/decode/beam.h),
 * which also keep the finished sequences. */
#include "kernels/beam_step.h"
#include "kernels/reference/reference.h"
#include "kernels/reorder_kv.h"

#include "base/limits.h"
#include <string.h>

typedef struct candidate {
    float key, sum;
    int32_t parent, tie, token;
} candidate;

/* NaN is last, wherever it comes from. */
static int compare_scores(float a, float b)
{
    if (a != a || b != b) return (a != a) - (b != b);
    return (a < b) - (a > b);
}

static bool ranks_before(const candidate *x, const candidate *y)
{
    int order = compare_scores(x->key, y->key);
    if (order) return order < 0;
    return x->parent != y->parent ? x->parent < y->parent : x->tie < y->tie;
}

/* Inserts c into best, which holds `count` candidates in order and at most `most`; returns the new count. */
static int32_t keep_best(candidate *best, int32_t count, int32_t most, const candidate *c)
{
    if (count == most && !ranks_before(c, &best[most - 1])) return count;
    int32_t at = count < most ? count++ : most - 1;
    for (; at > 0 && ranks_before(c, &best[at - 1]); at--) best[at] = best[at - 1];
    best[at] = *c;
    return count;
}

static int32_t group_size(const proa_beam_params *s)
{
    return s->beams / s->groups;
}

/* The state before a step: copies, because the lists are written while they are read. */
typedef struct search_state {
    float score[PROA_DEVICE_BEAMS_MAX];
    int32_t token[PROA_DEVICE_BEAMS_MAX];
    proa_beam_hyp hyp[PROA_DEVICE_BEAMS_MAX];
    proa_beam_state view;
} search_state;

static void load_state(search_state *t, const proa_beam_params *s, const proa_beam_lists *l)
{
    t->view = (proa_beam_state){t->score, t->token, t->hyp};
    for (int32_t i = 0; i < s->beams; i++) {
        t->score[i] = proa_beam_initial_score(s, l, i);
        if (s->groups == 1 && !s->keep_ended) continue;
        if (s->rows > 1) t->hyp[i] = l->hyps[s->state + i];
        else proa_beam_hyp_clear(&t->hyp[i]);
    }
}

static candidate make_candidate(const search_state *t, const proa_beam_params *s, const proa_beam_lists *l,
                                int32_t first, int32_t beam, int32_t rank)
{
    proa_beam_candidate c = proa_beam_continue(&t->view, s, l, first, beam, rank);
    return (candidate){proa_beam_key(&t->view, s, &c, beam, rank), c.sum, beam, proa_beam_tie(s, &c, rank),
                       c.token};
}

/* The group's C best candidates, in order. */
static int32_t find_best(const search_state *t, const proa_beam_params *s, const proa_beam_lists *l,
                         int32_t first, candidate *best)
{
    int32_t kept = 0;
    for (int32_t i = first; i < first + group_size(s); i++)
        for (int32_t j = 0; j < (proa_beam_has_ended(&t->view, s, i) ? 1 : s->each); j++) {
            candidate c = make_candidate(t, s, l, first, i, j);
            kept = keep_best(best, kept, s->kept, &c);
        }
    return kept;
}

/* The candidate as it is ordered among the next beams: those that end come last. Ties keep their order. */
static candidate order_next(const proa_beam_params *s, const candidate *c, int32_t rank)
{
    proa_beam_candidate sum = {c->sum, c->token};
    candidate next = *c;
    if (s->pushed) next.sum = proa_beam_pushed_sum(s, &sum);
    next.key = s->pushed ? next.sum : proa_beam_moves_back(s, c->token) ? 0.0F : 1.0F;
    next.parent = 0, next.tie = rank;
    return next;
}

/* The candidates among the group's first Q that end become hypotheses. */
static void keep_finished(const proa_beam_params *s, proa_beam_hyp *hyp, const candidate *best)
{
    for (int32_t i = 0; i < group_size(s); i++)
        if (proa_beam_is_end(s, best[i].token))
            proa_beam_hyp_add(hyp, group_size(s), (double)best[i].sum / s->length);
    hyp->done = proa_beam_group_done(hyp, s, best[0].sum);
}

static void step_group(search_state *t, const proa_beam_params *s, const proa_beam_lists *l, int32_t first)
{
    candidate best[PROA_BEAM_CANDIDATES_MAX], next[PROA_DEVICE_BEAMS_MAX];
    int32_t kept = find_best(t, s, l, first, best), running = 0;
    for (int32_t i = 0; i < kept; i++) {
        candidate c = order_next(s, &best[i], i);
        running = keep_best(next, running, group_size(s), &c);
    }
    for (int32_t i = 0; i < running; i++) {
        int32_t parent = best[next[i].tie].parent, token = next[i].token;
        proa_beam_write(s, l, first + i, next[i].sum, token, parent);
        if (s->keep_ended)
            l->hyps[s->state + i] = proa_beam_hyp_continue(&t->hyp[parent], s, token, proa_beam_is_end(s, token));
    }
    if (s->groups > 1) keep_finished(s, t->hyp + first, best);
}

static void step_one(const proa_beam_params *s, const proa_beam_lists *l)
{
    search_state t;
    int32_t size = group_size(s);
    load_state(&t, s, l);
    for (int32_t first = 0; first < s->beams; first += size) {
        bool done = s->groups > 1 && t.hyp[first].done;
        if (!done) step_group(&t, s, l, first);
        for (int32_t i = first; i < first + size; i++) {
            if (done) proa_beam_write(s, l, i, 0, s->pad, first);
            t.token[i] = l->tokens[s->to + i];
            if (s->groups > 1) l->hyps[s->state + i] = t.hyp[i];
        }
    }
}

void proa_beam_step_reference(proa_ctx *c, const proa_beam_params *s, int64_t count, const proa_beam_lists *lists)
{
    PROA_UNUSED(c);
    for (int64_t i = 0; i < count; i++) step_one(&s[i], lists);
}

/* The first `tokens` tokens of a page, in every layer, of keys and of values. */
static void copy_page(const proa_kv *kv, int64_t layers, int32_t to, int32_t from, int64_t tokens)
{
    int64_t token = kv->head_dim * proa_dtype_bytes(kv->dtype), head = PROA_PAGE_TOKENS * token;
    for (int64_t i = 0; i < 2 * layers * kv->kv_heads; i++) {
        int64_t block = i / kv->kv_heads, at = i % kv->kv_heads * head, page = kv->kv_heads * head;
        char *memory = block % 2 ? kv[block / 2].v : kv[block / 2].k;
        memcpy(memory + to * page + at, memory + from * page + at, (size_t)(tokens * token));
    }
}

static void reorder_one(int32_t *pages, const proa_kv_reorder *b, const int32_t *parent, const proa_kv *kv,
                        int64_t layers)
{
    int32_t take[PROA_DEVICE_BEAMS_MAX], full = b->tokens / PROA_PAGE_TOKENS, used = b->tokens % PROA_PAGE_TOKENS;
    int32_t count = full + 1;
    proa_reorder_pages(take, parent, b->beams);
    for (int32_t i = 0; i < b->beams; i++) {
        const int32_t *source = pages + b->source;
        int32_t *table = pages + b->table + i * count, own = used ? take[i] : i;
        memcpy(table, source + parent[i] * count, (size_t)full * sizeof *table);
        table[full] = source[own * count + full];
        if (layers && used && own != parent[i])
            copy_page(kv, layers, table[full], source[parent[i] * count + full], used);
    }
}

void proa_reorder_kv_reference(proa_ctx *c, int32_t *pages, const proa_kv_reorder *b, int64_t count,
                               int32_t most, const int32_t *parents, const proa_kv *kv, int64_t layers)
{
    PROA_UNUSED(c), PROA_UNUSED(most);
    for (int64_t i = 0; i < count; i++) reorder_one(pages, &b[i], parents + b[i].from, kv, layers);
}
